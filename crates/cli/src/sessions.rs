//! `mainstay sessions`: what there is to go on with.

use std::path::Path;

use mainstay_agent::session::log::SessionSummary;
use serde::Serialize;

use crate::choose::{list, short_id};
use crate::error::CliError;
use crate::output::{inert, out, say, shortened};

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
    output_tokens: u64,
    last_words: &'a str,
    interrupted: bool,
    running: bool,
    has_prompt: bool,
    child: bool,
}

#[derive(Serialize)]
struct Counts {
    completed: u32,
    total: u32,
}

/// Lists all sessions, the newest first: a table for people, or one JSON object a line.
pub(crate) fn sessions(
    data_home: &Path,
    cwd: &Path,
    json: bool,
    now: jiff::Timestamp,
) -> Result<(), CliError> {
    let found = list(data_home)?;
    if json {
        found.iter().for_each(|session| out(&row(session)));
        return Ok(());
    }
    if found.is_empty() {
        say("There are no sessions yet. `mainstay exec PROMPT` begins one.");
        return Ok(());
    }
    out(&format!("{:8}  {:>8}  {:>5}  {:>5}  {:11}  TITLE", "ID", "AGE", "PLAN", "TURNS", "STATE"));
    found.iter().for_each(|session| out(&line(session, cwd, now)));
    Ok(())
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
        "{:8}  {:>8}  {plan:>5}  {:>5}  {state:11}  {}{place}",
        short_id(&session.id),
        session.last.map_or_else(|| "-".to_owned(), |last| age(last, now)),
        session.turns,
        shortened(&inert(&session.title), 60),
    )
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

fn row(session: &SessionSummary) -> String {
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
        output_tokens: session.totals.usage.output_tokens,
        last_words: &session.last_words,
        interrupted: session.is_interrupted,
        running: session.is_running,
        has_prompt: session.has_prompt,
        child: session.is_child,
    };
    serde_json::to_string(&row).unwrap_or_default()
}
