//! The `write` tool: a file's whole content.
//!
//! A new file is made with its directories. An existing one is overwritten only if the model knows what it holds, and
//! keeps its encoding, byte order mark and, where they were all CRLF, its line endings.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use mainstay_session::message::{ContentHash, FilePath, ReferencedFile, ToolSpec};

use crate::arguments::Arguments;
use crate::diff;
use crate::encoding::Encoding;
use crate::files::{FileMemory, Snapshot, alone, check_seen, replace};
use crate::place::{Place, Purpose};
use crate::text::{count, head_and_tail};
use crate::tool::{CallContext, Tool, ToolError, ToolKind, ToolOutput};

const SHAPE: &str = r#"{"path": "src/main.rs", "content": "the whole file"}"#;

/// Writes a whole file.
#[derive(Debug)]
pub struct Write {
    memory: Arc<FileMemory>,
}

impl Write {
    /// Makes the tool. The tools of one session share one memory.
    pub fn new(memory: Arc<FileMemory>) -> Self {
        Write { memory }
    }
}

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
            let mut arguments = Arguments::parse(arguments)?;
            let path = arguments.text("path", &["file_path", "filename", "file", "target_file"]);
            let content = arguments.text("content", &["contents", "file_text"]);
            let note = arguments.finish(SHAPE)?;
            let memory = self.memory.clone();
            crate::blocking(context, move |context| {
                let place = Place::of(&context, &path, Purpose::Change)?;
                alone(&place, || write(&context, &memory, &place, &content, note))
            })
            .await
        })
    }
}

fn write(
    context: &CallContext,
    memory: &FileMemory,
    place: &Place,
    content: &str,
    note: Option<String>,
) -> Result<ToolOutput, ToolError> {
    let old = Snapshot::take(place)?;
    let (bytes, kept) = match &old {
        Some(old) => fitted(place, &old.bytes, content)?,
        None => (content.as_bytes().to_vec(), None),
    };
    let hash = ContentHash::of(&bytes);
    let shown = &place.shown;
    let (mut summary, shown_diff) = match &old {
        Some(old) if old.hash == hash => (format!("{shown} unchanged: it already held exactly this"), None),
        Some(old) => {
            check_seen(context, memory, place, old, || {
                head_and_tail(&String::from_utf8_lossy(&old.bytes), 2_000)
            })?;
            replace(place, Some(old), &bytes)?;
            let change = diff::lines(&old.bytes, &bytes);
            let lines = change.as_ref().map(|c| format!(" (+{} -{} lines)", c.added, c.removed));
            (format!("Overwrote {shown}{}", lines.unwrap_or_default()), change.map(|change| change.text))
        }
        None => {
            replace(place, None, &bytes)?;
            (format!("Created {shown}: {}", count(content.lines().count() as u64, "line")), None)
        }
    };
    if old.as_ref().is_none_or(|old| old.hash != hash) {
        memory.changed(&place.path, old.map(|old| old.hash), hash.clone());
    }
    for addition in [kept, note].into_iter().flatten() {
        summary = format!("{summary} {addition}");
    }
    Ok(ToolOutput {
        summary,
        content: shown_diff,
        referenced_files: vec![ReferencedFile { path: FilePath(place.path.clone()), hash: Some(hash) }],
        ..ToolOutput::default()
    })
}

/// The content in the form that the old file has, and what was kept of that form.
fn fitted(place: &Place, old: &[u8], content: &str) -> Result<(Vec<u8>, Option<String>), ToolError> {
    let encoding = Encoding::of(old);
    let mut kept = Vec::new();
    match encoding {
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
        Encoding::Utf8 | Encoding::Other | Encoding::Binary => {}
    }
    let mut text =
        content.strip_prefix('\u{feff}').filter(|_| !kept.is_empty()).unwrap_or(content).to_owned();
    let work = encoding.decode(old);
    let lines = work.iter().filter(|b| **b == b'\n').count();
    let crlf = work.windows(2).filter(|pair| pair == b"\r\n").count();
    if crlf > 0 && crlf == lines && text.contains('\n') && !text.contains('\r') {
        text = text.replace('\n', "\r\n");
        kept.push("CRLF line endings");
    }
    let kept = (!kept.is_empty()).then(|| format!("(kept: {})", kept.join(", ")));
    Ok((encoding.encode(text.as_bytes()), kept))
}
