//! `mainstay sessions`: what there is to go on with, and what was put away.

use std::path::Path;

use mainstay_agent::prices::dollars;
use mainstay_agent::session::log::{self, SessionSummary, TrashError};
use serde::Serialize;

use crate::args::{SessionsAction, SessionsArguments};
use crate::choose::{by_part, list};
use crate::error::{CliError, USAGE};
use crate::history::cannot_open;
use crate::output::{in_dollars, inert, out, say, shortened};

#[derive(Serialize)]
struct Row<'a> {
    session_id: &'a str,
    dir: String,
    cwd: Option<String>,
    created: Option<String>,
    last: Option<String>,
    title: &'a str,
    turns: u64,
    plan: Counts,
    input_tokens: u64,
    cached_tokens: u64,
    output_tokens: u64,
    cost: Option<f64>,
    last_words: &'a str,
    interrupted: bool,
    running: bool,
    has_prompt: bool,
    child: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    found: Option<&'a str>,
}

#[derive(Serialize)]
struct Counts {
    completed: u32,
    total: u32,
}

/// Lists sessions, or moves one to the trash or out of it.
pub(crate) fn sessions(
    data_home: &Path,
    cwd: &Path,
    arguments: &SessionsArguments,
    now: jiff::Timestamp,
) -> Result<(), CliError> {
    match &arguments.action {
        Some(SessionsAction::Rm { session }) => remove(data_home, session, now),
        Some(SessionsAction::Restore { session }) => restore(data_home, session),
        None => show(data_home, cwd, arguments, now),
    }
}

/// Shows all sessions, the newest first: a table for people, or one JSON object a line.
fn show(
    data_home: &Path,
    cwd: &Path,
    arguments: &SessionsArguments,
    now: jiff::Timestamp,
) -> Result<(), CliError> {
    let all = if arguments.trash { list_trash(data_home)? } else { list(data_home)? };
    let found: Vec<(&SessionSummary, Option<String>)> = match &arguments.search {
        None => all.iter().map(|session| (session, None)).collect(),
        Some(text) if text.trim().is_empty() => {
            return Err(CliError::new(USAGE, "the text to search for is empty"));
        }
        Some(text) => log::search(&all, text)
            .into_iter()
            .map(|found| (&all[found.session], Some(found.excerpt)))
            .collect(),
    };
    if arguments.json {
        found.iter().for_each(|(session, excerpt)| out(&row(session, excerpt.as_deref())));
        return Ok(());
    }
    if found.is_empty() {
        say(match (&arguments.search, arguments.trash) {
            (Some(_), _) => "No session speaks of it.",
            (None, true) => "The trash is empty.",
            (None, false) => "There are no sessions yet. `mainstay exec PROMPT` begins one.",
        });
        return Ok(());
    }
    out(&format!(
        "{:8}  {:>8}  {:>5}  {:>5}  {:>8}  {:11}  TITLE",
        "ID", "AGE", "PLAN", "TURNS", "COST", "STATE"
    ));
    for (session, excerpt) in &found {
        out(&line(session, cwd, now));
        if let Some(excerpt) = excerpt {
            out(&format!("          {}", inert(excerpt)));
        }
    }
    Ok(())
}

fn remove(data_home: &Path, part: &str, now: jiff::Timestamp) -> Result<(), CliError> {
    let session = by_part(list(data_home)?, part, "`mainstay sessions` lists all")?;
    let id = session.id.short();
    let place = log::remove(data_home, &session.id, now).map_err(|error| not_moved(error, id))?;
    out(&format!("session {id} is in the trash, whole: {}", place.display()));
    say(&format!("to bring it back: mainstay sessions restore {id}"));
    Ok(())
}

fn restore(data_home: &Path, part: &str) -> Result<(), CliError> {
    let hint = "`mainstay sessions --trash` lists what is in the trash";
    let session = by_part(list_trash(data_home)?, part, hint)?;
    let id = session.id.short();
    log::restore(data_home, &session.id).map_err(|error| not_moved(error, id))?;
    out(&format!("session {id} is back: {}", title(&session)));
    Ok(())
}

fn list_trash(data_home: &Path) -> Result<Vec<SessionSummary>, CliError> {
    log::list_trash(data_home).map_err(|error| {
        CliError::new(1, format!("cannot list {}: {error}", log::trash_dir(data_home).display()))
            .hint("check who may read it")
    })
}

fn not_moved(error: TrashError, id: &str) -> CliError {
    match error {
        TrashError::Open(error) => cannot_open(error, id),
        error @ TrashError::Exists { .. } => CliError::new(USAGE, format!("session {id}: {error}")),
        error @ TrashError::Move { .. } => CliError::new(1, format!("session {id}: {error}"))
            .hint("it is where it was; check who may write there"),
    }
}

fn line(session: &SessionSummary, cwd: &Path, now: jiff::Timestamp) -> String {
    let plan = match session.plan_total {
        0 => "-".to_owned(),
        total => format!("{}/{total}", session.plan_completed),
    };
    let state = match session {
        _ if session.is_running => "running",
        _ if !session.has_prompt => "empty",
        _ if session.is_interrupted => "interrupted",
        _ => "",
    };
    let place = match &session.cwd {
        Some(path) if path.as_path() == cwd => String::new(),
        Some(path) => format!("  ({})", inert(&path.to_string())),
        None => "  (header unreadable)".to_owned(),
    };
    format!(
        "{:8}  {:>8}  {plan:>5}  {:>5}  {:>8}  {state:11}  {}{place}",
        session.id.short(),
        session.last.map_or_else(|| "-".to_owned(), |last| age(last, now)),
        session.turns,
        session.totals.known_cost().map_or_else(|| "-".to_owned(), dollars),
        title(session),
    )
}

/// What a session is known by. One that went back before its first turn has no title of its own any more.
fn title(session: &SessionSummary) -> String {
    match session.title.as_str() {
        "" if session.has_prompt && session.turns == 0 => "(before its first turn again)".to_owned(),
        title => shortened(&inert(title), 60),
    }
}

fn age(then: jiff::Timestamp, now: jiff::Timestamp) -> String {
    let seconds = now.as_second().saturating_sub(then.as_second()).max(0);
    match seconds {
        0..60 => "now".to_owned(),
        60..3_600 => format!("{} min", seconds / 60),
        3_600..86_400 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

fn row(session: &SessionSummary, found: Option<&str>) -> String {
    let row = Row {
        session_id: session.id.as_str(),
        dir: session.dir.display().to_string(),
        cwd: session.cwd.as_ref().map(ToString::to_string),
        created: session.created.map(|ts| ts.to_string()),
        last: session.last.map(|ts| ts.to_string()),
        title: &session.title,
        turns: session.turns,
        plan: Counts { completed: session.plan_completed, total: session.plan_total },
        input_tokens: session.totals.usage.input_tokens,
        cached_tokens: session.totals.usage.cached_tokens,
        output_tokens: session.totals.usage.output_tokens,
        cost: session.totals.known_cost().map(in_dollars),
        last_words: &session.last_words,
        interrupted: session.is_interrupted,
        running: session.is_running,
        has_prompt: session.has_prompt,
        child: session.is_child,
        found,
    };
    serde_json::to_string(&row).unwrap_or_default()
}
