//! The `edit` tool: exact replacements in a file that the model has read.
//!
//! All edits of a call are made on a copy, in order; the file changes once, if all of them fit, or not at all. See
//! [`matching`] for what fits.

mod matching;

use futures_util::future::BoxFuture;
use mainstay_session::message::ToolSpec;
use serde_json::Value;

use self::matching::{Replacement, nearest};
use crate::arguments::{Arguments, PATH, described};
use crate::diff::{self, LineDiff};
use crate::encoding::Encoding;
use crate::files::{Snapshot, alone, change, check_seen, check_writable, touched};
use crate::place::{Place, Purpose};
use crate::text::count;
use crate::tool::{CallContext, Tool, ToolError, ToolKind, ToolOutput};

const SHAPE: &str = r#"{"path": "src/main.rs", "edits": [{"old": "text in the file", "new": "text to put there", "replace_all": false}]}"#;
const OLD: [&str; 3] = ["old_string", "old_text", "old_str"];
const NEW: [&str; 3] = ["new_string", "new_text", "new_str"];

/// Replaces text in a file.
#[derive(Debug, Default)]
pub struct Edit;

impl Tool for Edit {
    fn spec(&self) -> ToolSpec {
        crate::spec("edit", include_str!("prompts/edit.md"), include_str!("prompts/edit.json"))
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Edit
    }

    fn run<'a>(
        &'a self,
        arguments: &'a str,
        context: &'a CallContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let (path, edits, note) = decode(arguments)?;
            crate::blocking(context, move |context| {
                let place = Place::of_existing(&context, &path, Purpose::Change)?;
                alone(&place, || edit(&context, &place, &edits, note))
            })
            .await
        })
    }
}

fn decode(arguments: &str) -> Result<(String, Vec<Replacement>, Option<String>), ToolError> {
    let mut arguments = Arguments::parse(arguments)?;
    let path = arguments.text("path", &PATH);
    let mut edits = Vec::new();
    match arguments.take("edits", &[]).map(list) {
        Some(Ok(items)) if items.is_empty() => {
            arguments.problem("`edits`: is empty, nothing to do".to_owned())
        }
        Some(Ok(items)) => {
            for (index, item) in items.into_iter().enumerate() {
                edits.extend(replacement(&mut arguments, index, item));
            }
        }
        Some(Err(came)) => {
            arguments.problem(format!("`edits`: expected an array, {} came", described(&came)))
        }
        None => {
            let (old, new) = (arguments.text("old", &OLD), arguments.text("new", &NEW));
            let replace_all = arguments.flag("replace_all", &[]);
            arguments.read_as("a single edit as `edits`");
            edits.push(Replacement { old, new, replace_all });
        }
    }
    let note = arguments.finish(SHAPE)?;
    Ok((path, edits, note))
}

/// A list may come as JSON text, and a single edit without one.
fn list(value: Value) -> Result<Vec<Value>, Value> {
    match value {
        Value::Array(items) => Ok(items),
        Value::Object(_) => Ok(vec![value]),
        Value::String(ref text) => match serde_json::from_str(text) {
            Ok(Value::Array(items)) => Ok(items),
            _ => Err(value),
        },
        other => Err(other),
    }
}

fn replacement(arguments: &mut Arguments, index: usize, item: Value) -> Option<Replacement> {
    let decoded = Arguments::of(item).and_then(|mut fields| {
        let replacement = Replacement {
            old: fields.text("old", &OLD),
            new: fields.text("new", &NEW),
            replace_all: fields.flag("replace_all", &[]),
        };
        fields.finish("{old, new, replace_all}").map(|note| (replacement, note))
    });
    match decoded {
        Ok((replacement, note)) => {
            if let Some(note) = note {
                let how = note.trim_start_matches("(Read ").trim_end_matches(".)");
                arguments.read_as(&format!("{how} in edit {}", index + 1));
            }
            Some(replacement)
        }
        Err(error) => {
            let what = error.content.unwrap_or(error.summary).replace('\n', "; ");
            arguments.problem(format!("`edits[{index}]`: {what}"));
            None
        }
    }
}

/// The diff that a call would make; none if it would fail.
pub(crate) fn preview(arguments: &str, context: &CallContext) -> Option<String> {
    let (path, edits, _) = decode(arguments).ok()?;
    let place = Place::of_existing(context, &path, Purpose::Change).ok()?;
    prepared(context, &place, &edits).ok()?.diff().map(|diff| diff.text)
}

/// What a call would make of a file, before anything is changed.
struct Prepared {
    old: Snapshot,
    /// What the file holds and shall hold, as text.
    before: Vec<u8>,
    after: Vec<u8>,
    /// The same as bytes of the file.
    bytes: Vec<u8>,
    replaced: u64,
    /// What to tell about how the edits matched.
    notes: Vec<String>,
}

impl Prepared {
    fn diff(&self) -> Option<LineDiff> {
        diff::lines(&self.before, &self.after)
    }
}

/// Makes the edits on a copy, if the file may be edited so.
fn prepared(context: &CallContext, place: &Place, edits: &[Replacement]) -> Result<Prepared, ToolError> {
    let shown = &place.shown;
    let Some(old) = Snapshot::take(place)? else {
        return Err(ToolError::from(format!("{shown} does not exist; make it with write")));
    };
    let encoding = Encoding::of(&old.bytes);
    if encoding == Encoding::Binary {
        return Err(ToolError::from(format!("{shown} is a binary file; it was not changed")));
    }
    let before = encoding.decode(&old.bytes).into_owned();
    check_seen(context, place, &old, || {
        let region = edits.first().map(|edit| nearest(&before, &edit.old));
        format!("As it is now: {}", region.unwrap_or_default())
    })?;
    let (after, replaced, notes) = apply_all(&before, edits, encoding)
        .map_err(|error| ToolError { summary: format!("{shown}: {}", error.summary), ..error })?;
    let bytes = encoding.encode(&after);
    if bytes == old.bytes {
        return Err(ToolError::from(format!("{shown}: the edits match but together change nothing")));
    }
    check_writable(place, &old)?;
    Ok(Prepared { old, before, after, bytes, replaced, notes })
}

fn edit(
    context: &CallContext,
    place: &Place,
    edits: &[Replacement],
    note: Option<String>,
) -> Result<ToolOutput, ToolError> {
    let prepared = prepared(context, place, edits)?;
    let change = change(context, place, Some(&prepared.old), &prepared.bytes)?;
    let diff = prepared.diff();
    let lines = diff.as_ref().map(|diff| format!(" (+{} -{} lines)", diff.added, diff.removed));
    let replaced = count(prepared.replaced, "replacement");
    let mut notes = vec![format!("Edited {}: {replaced}{}", place.shown, lines.unwrap_or_default())];
    notes.extend(prepared.notes);
    notes.extend([place.note.clone(), note].into_iter().flatten());
    let hash = Some(change.after.clone());
    Ok(ToolOutput {
        summary: notes.join(" "),
        content: diff.map(|diff| diff.text),
        changes: vec![change],
        ..touched(place, hash)
    })
}

/// Makes all edits on a copy: the copy, how many places changed, and what to tell about how they matched.
fn apply_all(
    before: &[u8],
    edits: &[Replacement],
    encoding: Encoding,
) -> Result<(Vec<u8>, u64, Vec<String>), ToolError> {
    let (mut work, mut replaced, mut notes) = (before.to_vec(), 0, Vec::new());
    for (index, edit) in edits.iter().enumerate() {
        let applied = edit.apply(&work, encoding).map_err(|mut error| {
            if edits.len() > 1 {
                error.summary =
                    format!("edit {} of {}: {}; no edit was made", index + 1, edits.len(), error.summary);
            }
            error
        })?;
        work = applied.bytes;
        replaced += applied.places;
        notes.extend(applied.note);
    }
    Ok((work, replaced, notes))
}
