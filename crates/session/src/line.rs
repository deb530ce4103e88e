//! One entry as one line of text, and back.
//!
//! A line is a JSON object that ends with a checksum over all the bytes before it:
//!
//! ```text
//! {"seq":7,"ts":"2026-11-30T09:00:00.125Z","kind":"notice","about":{"notice":"reminder"},"text":"…","crc":"0f3a99c1"}
//! ```
//!
//! The newline that follows is the commit mark: what has none was never written. A line never holds a raw newline,
//! since JSON escapes it inside strings.

mod long;

use std::borrow::Cow;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::arguments::clean_surrogates;
use crate::entry::{Body, Entry, Lane, ToolIntent, Unknown, When};
use crate::ids::Seq;
use crate::message::{ToolResult, form};

/// The highest version of any kind that this build reads. A kind without `v` has version 1.
const KIND_VERSION: u32 = 1;

const MUST: &[u8] = b",\"must\":true";
const CRC_MARK: &[u8] = b",\"crc\":\"";
const CRC_TAIL: usize = CRC_MARK.len() + 8 + 2;

/// Why a line could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineFault {
    /// It does not end with a checksum, so it is no line of ours or not a whole one.
    #[error("it does not end with a checksum")]
    NoChecksum,
    /// The checksum is of other bytes.
    #[error("its checksum is {found}, its bytes say {expected}")]
    WrongChecksum {
        /// What the line says.
        found: String,
        /// What its bytes say.
        expected: String,
    },
    /// The checksum is right and the text is not an entry.
    #[error("it is not an entry: {0}")]
    NotAnEntry(String),
}

/// Writes an entry as a line, its newline included.
///
/// # Errors
///
/// Only if a value cannot be expressed in JSON, which no type of [`Body`] allows.
pub fn encode(entry: &Entry) -> Result<Vec<u8>, serde_json::Error> {
    let Entry { seq, body, .. } = entry;
    let kind = body.kind();
    let mut line = match entry.ts {
        When::At(ts) => format!(r#"{{"seq":{seq},"ts":"{ts}","kind":"{kind}""#),
        When::After(ms) => format!(r#"{{"seq":{seq},"at":{ms},"kind":"{kind}""#),
    }
    .into_bytes();
    if let Lane::Worker(name) = &entry.lane {
        line.extend_from_slice(b",\"lane\":");
        serde_json::to_writer(&mut line, name)?;
    }
    write_fields(&mut line, *seq, body)?;
    seal(&mut line);
    Ok(line)
}

/// Ends a line that lacks its last brace with its checksum and its newline.
pub(crate) fn seal(line: &mut Vec<u8>) {
    let crc = crc32fast::hash(line);
    line.extend_from_slice(CRC_MARK);
    line.extend_from_slice(format!("{crc:08x}\"}}\n").as_bytes());
}

/// Writes an object as a line with a checksum.
pub(crate) fn sealed<T: Serialize>(object: &T) -> Result<Vec<u8>, serde_json::Error> {
    let mut line = serde_json::to_vec(object)?;
    line.pop();
    seal(&mut line);
    Ok(line)
}

/// A line, given without its newline, without the carriage return that an editor or a transfer put before that.
pub(crate) fn bare(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Says whether a line, given without its newline, is what it was when it was sealed. A carriage return before the newline,
/// which editors and transfers put there, is none of it.
pub(crate) fn check_seal(line: &[u8]) -> Result<(), LineFault> {
    let line = bare(line);
    let covered = line.len().checked_sub(CRC_TAIL).ok_or(LineFault::NoChecksum)?;
    let (covered, tail) = line.split_at(covered);
    let found = tail
        .strip_prefix(CRC_MARK)
        .and_then(|rest| rest.strip_suffix(b"\"}"))
        .and_then(|digits| std::str::from_utf8(digits).ok())
        .ok_or(LineFault::NoChecksum)?;
    let expected = format!("{:08x}", crc32fast::hash(covered));
    if found == expected {
        return Ok(());
    }
    Err(LineFault::WrongChecksum { found: found.to_owned(), expected })
}

/// Reads a line, given without its newline.
///
/// # Errors
///
/// Says why the line is not an entry. A kind or version of a kind that this build does not know is no error.
pub fn decode(line: &[u8]) -> Result<Entry, LineFault> {
    check_seal(line)?;
    let text = std::str::from_utf8(line).map_err(|error| LineFault::NotAnEntry(error.to_string()))?;
    let text = clean_surrogates(text);
    match long::parse_long(&text) {
        Some(entry) => Ok(entry),
        None => parse(&text).map_err(|error| LineFault::NotAnEntry(error.to_string())),
    }
}

#[derive(Deserialize)]
struct Head<'a> {
    seq: Seq,
    #[serde(default)]
    ts: Option<jiff::Timestamp>,
    #[serde(default)]
    at: Option<u32>,
    #[serde(borrow)]
    kind: Cow<'a, str>,
    #[serde(default)]
    lane: Option<String>,
    #[serde(default)]
    v: Option<u32>,
    #[serde(default)]
    must: bool,
}

/// Reads the text of a line, whatever its checksum.
pub(crate) fn parse(text: &str) -> Result<Entry, serde_json::Error> {
    let head: Head<'_> = serde_json::from_str(text)?;
    let ts = match (head.ts, head.at) {
        (Some(ts), _) => When::At(ts),
        (None, Some(ms)) => When::After(ms),
        (None, None) => return Err(serde::de::Error::missing_field("ts")),
    };
    let mut body = if head.v.unwrap_or(1) > KIND_VERSION {
        Body::Unknown(Unknown { kind: head.kind.into_owned(), must: head.must })
    } else {
        read_fields(&head.kind, head.must, text)?
    };
    if let Some(answer) = answer_of(&mut body)
        && form::is_entry_before(answer)
    {
        *answer = head.seq.saturating_sub(1);
    }
    let lane = head.lane.map_or(Lane::Main, Lane::Worker);
    Ok(Entry { seq: head.seq, ts, lane, body })
}

/// The answer that an entry names, where it names one. On a line it is left out if it stands directly before.
fn answer_of(body: &mut Body) -> Option<&mut Seq> {
    match body {
        Body::ToolIntent(ToolIntent { answer, .. }) | Body::ToolResult(ToolResult { answer, .. }) => {
            Some(answer)
        }
        _ => None,
    }
}

fn write_fields(line: &mut Vec<u8>, seq: Seq, body: &Body) -> Result<(), serde_json::Error> {
    let opening = line.len();
    match body {
        Body::Session(fields) => append_object(line, fields),
        Body::World(fields) => append_object(line, fields),
        Body::Checkpoint(fields) => append_object(line, fields),
        Body::Model(fields) => append_object(line, fields),
        Body::UserPrompt(fields) => append_object(line, fields),
        Body::Answer(fields) => append_object(line, fields),
        Body::ToolIntent(fields) => {
            append_object(line, fields)?;
            leave_out_answer_before(line, opening, seq, fields.answer);
            Ok(())
        }
        Body::ToolResult(fields) => {
            append_object(line, fields)?;
            leave_out_answer_before(line, opening, seq, fields.answer);
            Ok(())
        }
        Body::Notice(fields) => append_object(line, fields),
        Body::Inbox(fields) => append_object(line, fields),
        Body::Grant(fields) => append_object(line, fields),
        Body::Compaction(fields) => append_object(line, fields),
        Body::ReasoningRefused(fields) => append_object(line, fields),
        // A build that passed over it would go on with what the user left.
        Body::Rewind(fields) => {
            line.extend_from_slice(MUST);
            append_object(line, fields)
        }
        Body::TurnEnd(fields) => append_object(line, fields),
        Body::Lost(fields) => append_object(line, fields),
        Body::Unknown(unknown) if unknown.must => {
            line.extend_from_slice(MUST);
            Ok(())
        }
        Body::Unknown(_) => Ok(()),
    }
}

/// Appends an object's fields behind those already on the line. Every kind has at least one field.
fn append_object<T: Serialize>(line: &mut Vec<u8>, fields: &T) -> Result<(), serde_json::Error> {
    let opening = line.len();
    serde_json::to_writer(&mut *line, fields)?;
    line[opening] = b',';
    line.pop();
    Ok(())
}

/// Takes the answer from a line's fields, of which it is the first, if it stands directly before.
fn leave_out_answer_before(line: &mut Vec<u8>, opening: usize, seq: Seq, answer: Seq) {
    let field = format!(",\"answer\":{answer}");
    if answer.checked_add(1) == Some(seq) && line[opening..].starts_with(field.as_bytes()) {
        line.drain(opening..opening + field.len());
    }
}

fn read_fields(kind: &str, must: bool, text: &str) -> Result<Body, serde_json::Error> {
    fn fields<T: DeserializeOwned>(text: &str) -> Result<T, serde_json::Error> {
        serde_json::from_str(text)
    }
    Ok(match kind {
        "session" => Body::Session(fields(text)?),
        "world" => Body::World(fields(text)?),
        "checkpoint" => Body::Checkpoint(fields(text)?),
        "model" => Body::Model(fields(text)?),
        "user_prompt" => Body::UserPrompt(fields(text)?),
        "answer" => Body::Answer(fields(text)?),
        "tool_intent" => Body::ToolIntent(fields(text)?),
        "tool_result" => Body::ToolResult(fields(text)?),
        "notice" => Body::Notice(fields(text)?),
        "inbox" => Body::Inbox(fields(text)?),
        "grant" => Body::Grant(fields(text)?),
        "compaction" => Body::Compaction(fields(text)?),
        "reasoning_refused" => Body::ReasoningRefused(fields(text)?),
        "rewind" => Body::Rewind(fields(text)?),
        "turn_end" => Body::TurnEnd(fields(text)?),
        "lost" => Body::Lost(fields(text)?),
        other => Body::Unknown(Unknown { kind: other.to_owned(), must }),
    })
}
