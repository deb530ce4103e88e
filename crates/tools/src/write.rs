//! The `write` tool: a file's whole content.
//!
//! A new file is made with its directories. An existing one is overwritten only if the model knows what it holds, and
//! keeps its encoding, byte order mark and, where they were all CRLF, its line endings.

use futures_util::future::BoxFuture;
use mainstay_session::message::ToolSpec;

use crate::arguments::{Arguments, PATH};
use crate::diff::{self, LineDiff};
use crate::encoding::Encoding;
use crate::files::{Snapshot, alone, change, check_seen, check_writable, touched};
use crate::place::{Place, Purpose};
use crate::text::{count, head_and_tail};
use crate::tool::{CallContext, Tool, ToolError, ToolKind, ToolOutput};

const SHAPE: &str = r#"{"path": "src/main.rs", "content": "the whole file"}"#;

/// Writes a whole file.
#[derive(Debug, Default)]
pub struct Write;

impl Tool for Write {
    fn spec(&self) -> ToolSpec {
        crate::spec("write", include_str!("prompts/write.md"), include_str!("prompts/write.json"))
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
            let (path, content, note) = decode(arguments)?;
            crate::blocking(context, move |context| {
                let place = Place::of(&context, &path, Purpose::Change)?;
                alone(&place, || write(&context, &place, &content, note))
            })
            .await
        })
    }
}

fn decode(arguments: &str) -> Result<(String, String, Option<String>), ToolError> {
    let mut arguments = Arguments::parse(arguments)?;
    let path = arguments.text("path", &PATH);
    let content = arguments.text("content", &["contents", "file_text"]);
    let note = arguments.finish(SHAPE)?;
    Ok((path, content, note))
}

/// The diff that a call would make; none if it would fail or change nothing.
pub(crate) fn preview(arguments: &str, context: &CallContext) -> Option<String> {
    let (path, content, _) = decode(arguments).ok()?;
    let place = Place::of(context, &path, Purpose::Change).ok()?;
    match Snapshot::take(&place).ok()? {
        Some(old) => match prepared(context, &place, &old, &content).ok()? {
            Prepared::Changed { diff, .. } => diff.map(|diff| diff.text),
            Prepared::Unchanged { .. } => None,
        },
        None => diff::lines(b"", content.as_bytes()).map(|diff| diff.text),
    }
}

/// What a call would make of an existing file, before anything is changed. `kept` tells what was kept of its form.
enum Prepared {
    /// It holds exactly this already.
    Unchanged { kept: String },
    /// It shall hold these bytes.
    Changed { bytes: Vec<u8>, diff: Option<LineDiff>, kept: String },
}

/// Fits the content to an existing file, if it may be overwritten so.
fn prepared(
    context: &CallContext,
    place: &Place,
    old: &Snapshot,
    content: &str,
) -> Result<Prepared, ToolError> {
    let (bytes, kept) = fitted(place, &old.bytes, content)?;
    let kept = kept.map(|kept| format!(" {kept}")).unwrap_or_default();
    if bytes == old.bytes {
        return Ok(Prepared::Unchanged { kept });
    }
    let encoding = Encoding::of(&old.bytes);
    let before = encoding.decode(&old.bytes);
    check_seen(context, place, old, || head_and_tail(&String::from_utf8_lossy(&before), 2_000))?;
    check_writable(place, old)?;
    let diff = diff::lines(&before, &encoding.decode(&bytes));
    Ok(Prepared::Changed { bytes, diff, kept })
}

fn write(
    context: &CallContext,
    place: &Place,
    content: &str,
    note: Option<String>,
) -> Result<ToolOutput, ToolError> {
    let old = Snapshot::take(place)?;
    let mut output = match &old {
        Some(old) => overwrite(context, place, old, content)?,
        None => create(context, place, content)?,
    };
    if let Some(note) = note {
        output.summary = format!("{} {note}", output.summary);
    }
    Ok(output)
}

fn create(context: &CallContext, place: &Place, content: &str) -> Result<ToolOutput, ToolError> {
    let look_alikes = place.look_alikes();
    let change = change(context, place, None, content.as_bytes())?;
    let mut summary = format!("Created {}: {}", place.shown, count(content.lines().count() as u64, "line"));
    if !look_alikes.is_empty() {
        summary.push_str(" (Beware: the directory holds another name that looks the same.)");
    }
    let hash = Some(change.after.clone());
    Ok(ToolOutput { summary, changes: vec![change], ..touched(place, hash) })
}

fn overwrite(
    context: &CallContext,
    place: &Place,
    old: &Snapshot,
    content: &str,
) -> Result<ToolOutput, ToolError> {
    let shown = &place.shown;
    let (bytes, diff, kept) = match prepared(context, place, old, content)? {
        Prepared::Changed { bytes, diff, kept } => (bytes, diff, kept),
        Prepared::Unchanged { kept } => {
            let summary = format!("{shown} unchanged: it already held exactly this{kept}");
            return Ok(ToolOutput { summary, ..touched(place, Some(old.hash.clone())) });
        }
    };
    let change = change(context, place, Some(old), &bytes)?;
    let lines = diff.as_ref().map(|diff| format!(" (+{} -{} lines)", diff.added, diff.removed));
    let hash = Some(change.after.clone());
    Ok(ToolOutput {
        summary: format!("Overwrote {shown}{}{kept}", lines.unwrap_or_default()),
        content: diff.map(|diff| diff.text),
        changes: vec![change],
        ..touched(place, hash)
    })
}

/// The content in the form that the old file has, and what was kept of that form.
fn fitted(place: &Place, old: &[u8], content: &str) -> Result<(Vec<u8>, Option<String>), ToolError> {
    let encoding = Encoding::of(old);
    let mut kept = Vec::new();
    match encoding {
        Encoding::Binary => {
            return Err(ToolError {
                summary: format!("{} is a binary file; it was not overwritten", place.shown),
                content: Some("If text is to stand there, remove it with a command first.".to_owned()),
                exit_code: None,
            });
        }
        Encoding::Other if !content.is_ascii() => {
            return Err(ToolError {
                summary: format!("{} is not UTF-8; it was not overwritten", place.shown),
                content: Some(
                    "Writing this text would change its encoding. Change its ASCII lines with edit, or convert it with \
                     a command (iconv) first."
                        .to_owned(),
                ),
                exit_code: None,
            });
        }
        Encoding::Utf8Marked => kept.push("byte order mark"),
        Encoding::Utf16 { .. } => kept.push("UTF-16"),
        Encoding::Utf8 | Encoding::Other => {}
    }
    let mut text =
        content.strip_prefix('\u{feff}').filter(|_| !kept.is_empty()).unwrap_or(content).to_owned();
    if let Some((ending, name)) = only_ending(&encoding.decode(old))
        && text.contains('\n')
        && !text.contains('\r')
    {
        text = text.replace('\n', ending);
        kept.push(name);
    }
    let kept = (!kept.is_empty()).then(|| format!("(kept: {})", kept.join(", ")));
    Ok((encoding.encode(text.as_bytes()), kept))
}

/// The line ending of a text, if it has one other than LF, and that one only.
fn only_ending(text: &[u8]) -> Option<(&'static str, &'static str)> {
    let newlines = text.iter().filter(|byte| **byte == b'\n').count();
    let returns = text.iter().filter(|byte| **byte == b'\r').count();
    let pairs = text.windows(2).filter(|pair| pair == b"\r\n").count();
    match (newlines, returns) {
        (0, 1..) => Some(("\r", "CR line endings")),
        (1.., 1..) if pairs == newlines && pairs == returns => Some(("\r\n", "CRLF line endings")),
        _ => None,
    }
}
