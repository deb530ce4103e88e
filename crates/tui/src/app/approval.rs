//! A question about a call.

use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use mainstay_agent::{Approval, ApprovalRequest};

use crate::editor::{Editor, Step};

/// For how long a new question takes no answer: who was typing did not mean it.
const GUARD: Duration = Duration::from_millis(350);

/// An open question.
#[derive(Debug)]
pub(crate) struct Approving {
    /// What is asked.
    pub(crate) request: ApprovalRequest,
    /// Which answer is chosen.
    pub(crate) chosen: usize,
    /// How many rows of the difference are scrolled away.
    pub(crate) scroll: usize,
    /// The word to the model, once the answer is no.
    pub(crate) word: Option<Editor>,
    since: Duration,
}

/// An answer that can be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// This call.
    Once,
    /// The like, in this session.
    Session,
    /// The like, in this project.
    Project,
    /// Not this call.
    No,
}

impl Choice {
    /// Its key and its words.
    pub(crate) fn words(self) -> (char, &'static str) {
        match self {
            Choice::Once => ('y', "yes, once"),
            Choice::Session => ('s', "yes, and the like in this session"),
            Choice::Project => ('p', "yes, and the like in this project"),
            Choice::No => ('n', "no, and tell the model why"),
        }
    }
}

impl Approving {
    pub(crate) fn new(request: ApprovalRequest, since: Duration) -> Self {
        Approving { request, chosen: 0, scroll: 0, word: None, since }
    }

    /// The answers that can be given.
    pub(crate) fn choices(&self) -> &'static [Choice] {
        if self.request.patterns.is_empty() {
            &[Choice::Once, Choice::No]
        } else {
            &[Choice::Once, Choice::Session, Choice::Project, Choice::No]
        }
    }

    /// Takes a key; the answer, if it gave one.
    pub(crate) fn key(&mut self, key: KeyEvent, now: Duration) -> Option<Approval> {
        if self.word.is_some() {
            return self.word_key(key);
        }
        if now < self.since + GUARD {
            return None;
        }
        let last = self.choices().len() - 1;
        match key.code {
            KeyCode::Up => self.chosen = self.chosen.saturating_sub(1),
            KeyCode::Down | KeyCode::Tab => self.chosen = (self.chosen + 1).min(last),
            KeyCode::PageUp => self.scroll = self.scroll.saturating_sub(5),
            KeyCode::PageDown => self.scroll += 5,
            KeyCode::Enter => return self.choose(self.choices()[self.chosen]),
            KeyCode::Char(c) if !key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) => {
                let choice = self.choices().iter().find(|choice| choice.words().0 == c.to_ascii_lowercase());
                return choice.and_then(|choice| self.choose(*choice));
            }
            _ => {}
        }
        None
    }

    fn choose(&mut self, choice: Choice) -> Option<Approval> {
        match choice {
            Choice::Once => Some(Approval::Once),
            Choice::Session => Some(Approval::Session),
            Choice::Project => Some(Approval::Project),
            Choice::No => {
                self.word = Some(Editor::default());
                None
            }
        }
    }

    fn word_key(&mut self, key: KeyEvent) -> Option<Approval> {
        let word = self.word.as_mut()?;
        match key.code {
            KeyCode::Enter => return Some(Approval::No { word: word.take() }),
            KeyCode::Backspace => word.delete_back(Step::Character),
            KeyCode::Left => word.left(Step::Character),
            KeyCode::Right => word.right(Step::Character),
            KeyCode::Char(c) if !key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) => {
                word.insert(c.encode_utf8(&mut [0; 4]));
            }
            _ => {}
        }
        None
    }
}
