//! `mainstay history`: the conversation exactly as the model sees it.

use mainstay_agent::known_of;
use mainstay_agent::session::history::{History, HistoryCall, HistoryMessage};
use mainstay_agent::session::log::{self, Damage, OpenError, ReadError, SessionSummary};
use mainstay_agent::session::secrets::mask;
use mainstay_agent::session::state::{OpenCall, SessionState};
use mainstay_agent::tools::{BuiltinOptions, builtin_tools};
use serde_json::Value;

use crate::error::{CliError, DAMAGED, USAGE};
use crate::output::{inert, inert_lines, out, say};

/// Shows a session's history: for people, or as the document that `history.json` holds, with what looks like a secret
/// masked, since it is often passed on.
pub(crate) fn history(session: &SessionSummary, json: bool) -> Result<(), CliError> {
    let state = read(session)?;
    let history = History::of(&state);
    if json {
        let document = serde_json::to_value(&history).unwrap_or_default();
        out(&serde_json::to_string_pretty(&masked(document)).unwrap_or_default());
    } else {
        let mut open = state.open_calls().into_iter().map(|call| known(&call, session.is_running));
        history.messages.iter().for_each(|message| out(&section(message, &mut open)));
        if session.is_interrupted {
            say(&format!(
                "the last turn was interrupted; to go on with it: mainstay exec --session {} \"…\"",
                session.id.short()
            ));
        }
    }
    Ok(())
}

/// Reads a session's state; what could not be read is said on stderr.
///
/// # Errors
///
/// If the session cannot be read at all.
pub(crate) fn read(session: &SessionSummary) -> Result<SessionState, CliError> {
    let (state, opening) = log::read(&session.dir).map_err(unreadable)?;
    warn_of(&opening.damage);
    Ok(state)
}

/// Says on stderr what of a session could not be read.
pub(crate) fn warn_of(damage: &[Damage]) {
    damage.iter().for_each(|damage| say(&damage_line("warning", damage)));
}

/// A damage in one line, which may quote what stands in the log. `what` says what is made of it.
pub(crate) fn damage_line(what: &str, damage: &Damage) -> String {
    format!("{what}: {}", inert(&damage.to_string()))
}

/// What is said of a session that cannot be read.
pub(crate) fn unreadable(error: ReadError) -> CliError {
    match &error {
        ReadError::NoSession { .. } => {
            CliError::new(USAGE, error.to_string()).hint("`mainstay sessions` lists all")
        }
        ReadError::NoHeader { .. } => CliError::new(DAMAGED, error.to_string())
            .hint("its files are left as they are; the first line of 0001.jsonl should be a `session` entry"),
        ReadError::Io { .. } => CliError::new(1, error.to_string()).hint("check who may read the file"),
    }
}

/// A document with its texts masked one by one, so that it stays one.
fn masked(document: Value) -> Value {
    match document {
        Value::String(text) => Value::String(mask(&text).into_owned()),
        Value::Array(items) => items.into_iter().map(masked).collect(),
        Value::Object(fields) => fields.into_iter().map(|(name, value)| (name, masked(value))).collect(),
        other => other,
    }
}

/// What is said of a session that cannot be opened for writing. `id` is how the user knows it.
pub(crate) fn cannot_open(error: OpenError, id: &str) -> CliError {
    match error {
        OpenError::Read(error) => unreadable(error),
        error @ OpenError::InUse { .. } => {
            CliError::new(1, format!("session {id}: {error}")).hint("wait for it to end, or end it")
        }
        error @ OpenError::Io { .. } => CliError::new(1, format!("session {id}: {error}"))
            .hint("nothing was changed; check who may write there"),
    }
}

/// What is known of a call that has no result: a note on it, and how it may have ended.
fn known(call: &OpenCall, is_running: bool) -> (&'static str, String) {
    let tools = builtin_tools(&BuiltinOptions::default());
    let kind = tools.iter().find(|tool| tool.spec().name == call.call.name).map(|tool| tool.kind());
    match &call.intent {
        _ if !is_running => ("none was logged", known_of(call, kind)),
        Some(intent) => ("none yet", format!("The command runs (process {}).", intent.pid)),
        None => ("none yet", "A process works on this session.".to_owned()),
    }
}

/// A message, as people read it. `open` tells of the calls that have no result, in order.
fn section(message: &HistoryMessage, open: &mut impl Iterator<Item = (&'static str, String)>) -> String {
    match message {
        HistoryMessage::User { text, .. } => block("user", text),
        HistoryMessage::Assistant { model, text, reasoning, tool_calls } => {
            let mut parts = Vec::new();
            if !reasoning.is_empty() {
                parts.push(format!("(reasoning) {reasoning}"));
            }
            if !text.is_empty() {
                parts.push(text.clone());
            }
            let call = |HistoryCall { name, arguments, .. }: &HistoryCall| format!("→ {name} {arguments}");
            parts.extend(tool_calls.iter().map(call));
            block(&format!("assistant ({model})"), &parts.join("\n"))
        }
        HistoryMessage::Tool { name, text, is_open: true, .. } => {
            let (note, known) = open.next().unwrap_or(("none", text.clone()));
            block(&format!("result of {name} ({note})"), &known)
        }
        HistoryMessage::Tool { name, text, is_error, .. } => {
            block(&format!("result of {name}{}", if *is_error { " (failed)" } else { "" }), text)
        }
    }
}

fn block(title: &str, text: &str) -> String {
    format!("── {title}\n{}\n", inert_lines(text))
}
