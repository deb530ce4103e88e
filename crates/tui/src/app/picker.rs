//! A list to choose from: sessions, turns to go back before, or models.

use std::path::{Path, PathBuf};

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use mainstay_agent::prices::dollars;
use mainstay_agent::session::log::SessionSummary;

use crate::files::fitting;
use crate::text::{plain_line, shortened};

/// How many characters of a row are looked at.
const ROW: usize = 400;

/// A model that can be chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelOffer {
    /// Its name, as the configuration and `--model` have it.
    pub name: String,
    /// What is known of it, in a few words.
    pub about: String,
}

/// What a list is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PickKind {
    /// Sessions to go on with.
    Sessions,
    /// Turns to go back before.
    Turns,
    /// Models that may answer from here on.
    Models,
}

/// What is chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Choosing {
    /// The session in this folder.
    Session(PathBuf),
    /// The model of this name.
    Model(String),
    /// The end of this turn, and what the next one began with.
    Turn(u64, Option<String>),
}

/// A list with a filter.
#[derive(Debug)]
pub(crate) struct Picker {
    /// What it is of.
    pub(crate) kind: PickKind,
    /// What was typed to narrow it.
    pub(crate) filter: String,
    /// Which of the rows that fit is chosen.
    pub(crate) chosen: usize,
    rows: Vec<PickRow>,
}

/// A row of a list.
#[derive(Debug)]
pub(crate) struct PickRow {
    /// What it says.
    pub(crate) words: String,
    /// What stands at its end, however little room there is.
    pub(crate) end: String,
    choosing: Choosing,
}

impl Picker {
    /// Sessions that their users spoke to, those of `workspace` first, the newest first. `own` is the end of the id of the
    /// one that is open here.
    pub(crate) fn of_sessions(
        all: &[SessionSummary],
        workspace: &Path,
        own: Option<&str>,
        now: Option<jiff::Timestamp>,
    ) -> Self {
        let is_here =
            |session: &&SessionSummary| session.cwd.as_ref().is_some_and(|cwd| cwd.as_path() == workspace);
        let (here, elsewhere): (Vec<_>, Vec<_>) =
            all.iter().filter(|session| session.has_prompt && !session.is_child).partition(is_here);
        let row = |session: &SessionSummary, is_here: bool| {
            let (id, choosing) = (session.id.short(), Choosing::Session(session.dir.clone()));
            PickRow { words: session_words(session, is_here, own, now), end: format!(" · {id}"), choosing }
        };
        let mut rows: Vec<_> = here.into_iter().map(|session| row(session, true)).collect();
        rows.extend(elsewhere.into_iter().map(|session| row(session, false)));
        Picker { kind: PickKind::Sessions, filter: String::new(), chosen: 0, rows }
    }

    /// Turns, the last one first.
    pub(crate) fn of_turns(turns: Vec<(u64, Option<String>)>) -> Self {
        let row = |(turn, text): (u64, Option<String>)| {
            let said = text.as_deref().unwrap_or("(begun by a notification)");
            let line = said.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
            let words = format!("{:>3}  {}", turn + 1, shortened(&plain_line(line), ROW));
            PickRow { words, end: String::new(), choosing: Choosing::Turn(turn, text) }
        };
        let rows = turns.into_iter().rev().map(row).collect();
        Picker { kind: PickKind::Turns, filter: String::new(), chosen: 0, rows }
    }

    /// Models, the one that answers now marked.
    pub(crate) fn of_models(models: &[ModelOffer], now: &str) -> Self {
        let row = |model: &ModelOffer| {
            let mark = if model.name == now { " (answers now)" } else { "" };
            let words = format!("{}{mark}  {}", plain_line(&model.name), plain_line(&model.about));
            let choosing = Choosing::Model(model.name.clone());
            PickRow { words: shortened(&words, ROW), end: String::new(), choosing }
        };
        let rows = models.iter().map(row).collect();
        let chosen = models.iter().position(|model| model.name == now).unwrap_or_default();
        Picker { kind: PickKind::Models, filter: String::new(), chosen, rows }
    }

    /// Whether there is nothing to choose.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The rows that fit what was typed.
    pub(crate) fn fits(&self) -> Vec<&PickRow> {
        if self.filter.is_empty() {
            return self.rows.iter().collect();
        }
        let fit = |row: &&PickRow| {
            let whole = format!("{}{}", row.words, row.end);
            !fitting([whole.as_str()], &self.filter, 1).is_empty()
        };
        self.rows.iter().filter(fit).collect()
    }

    /// Takes a key; what is chosen, if it chose.
    pub(crate) fn key(&mut self, key: KeyEvent) -> Option<Choosing> {
        let last = self.fits().len().saturating_sub(1);
        match key.code {
            KeyCode::Up => self.chosen = self.chosen.saturating_sub(1),
            KeyCode::Down | KeyCode::Tab => self.chosen = (self.chosen + 1).min(last),
            KeyCode::PageUp => self.chosen = self.chosen.saturating_sub(8),
            KeyCode::PageDown => self.chosen = (self.chosen + 8).min(last),
            KeyCode::Enter => return self.fits().get(self.chosen).map(|row| row.choosing.clone()),
            KeyCode::Backspace => {
                self.filter.pop();
                self.chosen = 0;
            }
            KeyCode::Char(c) if !key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) => {
                self.filter.push(c);
                self.chosen = 0;
            }
            _ => {}
        }
        None
    }
}

fn session_words(
    session: &SessionSummary,
    is_here: bool,
    own: Option<&str>,
    now: Option<jiff::Timestamp>,
) -> String {
    let id = session.id.short();
    let age = match (session.last, now) {
        (Some(then), Some(now)) => age(now.as_second().saturating_sub(then.as_second())),
        _ => "-".to_owned(),
    };
    let plan = match session.plan_total {
        0 => String::new(),
        total => format!("{}/{total}", session.plan_completed),
    };
    let state = match session {
        _ if own == Some(id) => " (this one)",
        _ if session.is_running => " (open elsewhere)",
        _ if session.is_interrupted => " (interrupted)",
        _ => "",
    };
    let place = match &session.cwd {
        Some(cwd) if !is_here => format!(" · in {}", plain_line(&cwd.to_string())),
        _ => String::new(),
    };
    let words = match session.last_words.as_str() {
        "" => String::new(),
        words => format!(" — {}", plain_line(words)),
    };
    let title = plain_line(&session.title);
    let cost = session.totals.known_cost().filter(|cost| *cost > 0);
    let cost = cost.map_or(String::new(), |cost| format!(" · {}", dollars(cost)));
    shortened(&format!("{age:>6} {plan:>5}  {title}{state}{words}{place}{cost}"), ROW)
}

fn age(seconds: i64) -> String {
    match seconds.max(0) {
        0..60 => "now".to_owned(),
        s @ 60..3_600 => format!("{} min", s / 60),
        s @ 3_600..86_400 => format!("{} h", s / 3_600),
        s => format!("{} d", s / 86_400),
    }
}
