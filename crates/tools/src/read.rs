//! The `read` tool: a stretch of a text file, as it is.
//!
//! Lines come without numbers, so that what is quoted in an edit is what stands in the file. The file is streamed: only
//! the stretch is held in memory, the rest is counted and hashed. Bytes that are not UTF-8 are shown as U+FFFD and told;
//! nothing on disk depends on how they were shown.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt;

use futures_util::future::BoxFuture;
use mainstay_session::message::{ContentHash, FilePath, ReferencedFile, ToolSpec, to_hex};
use sha2::{Digest, Sha256};

use crate::arguments::Arguments;
use crate::files::{OpenError, WHOLE_FILE_BYTES, open_regular};
use crate::place::{Place, Purpose, entries};
use crate::text::{content_budget, count, head, shown_name};
use crate::tool::{CallContext, Tool, ToolError, ToolKind, ToolOutput};

const SHAPE: &str = r#"{"path": "src/main.rs", "offset": first line from 1, "limit": lines, "column": first character from 1}"#;
const LINES: u64 = 2_000;
const LINE_CHARS: usize = 2_000;
const LISTED: usize = 100;

/// Reads a stretch of a text file.
#[derive(Debug, Default)]
pub struct Read;

impl Tool for Read {
    fn spec(&self) -> ToolSpec {
        crate::spec("read", include_str!("prompts/read.md"), include_str!("prompts/read.json"))
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Read
    }

    fn run<'a>(
        &'a self,
        arguments: &'a str,
        context: &'a CallContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let (stretch, path, note) = decode(arguments)?;
            crate::blocking(context, move |context| read(&context, &path, stretch, note)).await
        })
    }
}

/// Which part of a file to show.
#[derive(Clone, Copy)]
struct Stretch {
    first: u64,
    lines: u64,
    /// How many characters of the first line to pass over.
    skip: usize,
    line_chars: usize,
    bytes: usize,
}

fn decode(arguments: &str) -> Result<(Stretch, String, Option<String>), ToolError> {
    let mut arguments = Arguments::parse(arguments)?;
    let path = arguments.text("path", &["file_path", "filename", "file", "target_file"]);
    let first = arguments.optional_number("offset", &["start_line", "line"], 0);
    let lines = arguments.optional_number("limit", &["num_lines", "max_lines"], 1);
    let column = arguments.optional_number("column", &[], 1);
    let note = arguments.finish(SHAPE)?;
    let skip = column.map_or(0, |column| usize::try_from(column - 1).unwrap_or(usize::MAX));
    let stretch = Stretch {
        first: first.unwrap_or(1).max(1),
        lines: lines.unwrap_or(LINES).min(LINES),
        skip,
        // Whoever goes on inside a long line wants it, not a little more of it.
        line_chars: if column.is_some() { usize::MAX } else { LINE_CHARS },
        bytes: 0,
    };
    Ok((stretch, path, note))
}

fn read(
    context: &CallContext,
    path: &str,
    mut stretch: Stretch,
    note: Option<String>,
) -> Result<ToolOutput, ToolError> {
    let place = Place::of_existing(context, path, Purpose::Read)?;
    stretch.bytes = content_budget(context.max_result_bytes);
    let file = match open_regular(&place) {
        Ok(file) => file,
        Err(OpenError::Directory) => return Err(directory(&place)),
        Err(error) => return Err(error.for_model(&place)),
    };
    let found = scan(context, file, &place, stretch)?;
    report(&place, stretch, found, note)
}

fn directory(place: &Place) -> ToolError {
    let listed = place.parent(false).and_then(|(parent, name)| {
        use rustix::fs::{Mode, OFlags};
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        entries(&rustix::fs::openat(&parent, &name, flags, Mode::empty())?)
    });
    let names = listed.unwrap_or_default();
    let shown: Vec<String> = names
        .iter()
        .take(LISTED)
        .map(|name| {
            let slash = if place.path.join(name).is_dir() { "/" } else { "" };
            format!("{}{slash}", shown_name(name.as_bytes()))
        })
        .collect();
    let more = names.len().saturating_sub(LISTED);
    let more = if more > 0 { format!("\n(and {more} more)") } else { String::new() };
    ToolError {
        summary: format!(
            "{} is a directory with {}; read one file in it",
            place.shown,
            if names.len() == 1 { "1 entry".to_owned() } else { format!("{} entries", names.len()) }
        ),
        content: (!shown.is_empty()).then(|| format!("{}{more}", shown.join("\n"))),
        exit_code: None,
    }
}

/// What was found in a file.
#[derive(Default)]
struct Found {
    text: String,
    /// The last line shown; 0 if none.
    last: u64,
    /// All lines of the file, where it was read to its end.
    total: Option<u64>,
    hash: Option<ContentHash>,
    notes: Vec<String>,
}

fn scan(context: &CallContext, mut file: File, place: &Place, stretch: Stretch) -> Result<Found, ToolError> {
    let failed = |error: std::io::Error| ToolError::from(format!("cannot read {}: {error}", place.shown));
    let size = file.metadata().map_err(failed)?.len();
    let mut chunk = vec![0; 64 * 1024];
    let mut filled = fill(&mut file, &mut chunk).map_err(failed)?;
    if let Some(big_endian) = utf16_order(&chunk[..filled]) {
        return utf16(file, &chunk[..filled], big_endian, stretch).map_err(failed);
    }
    if let Some(what) = binary_kind(&chunk[..filled]) {
        return Err(ToolError::from(format!(
            "{} is {what} of {}, not text; it was not read",
            place.shown,
            count(size, "byte")
        )));
    }
    let mut lines = LineScan::new(stretch);
    let mut digest = (size <= WHOLE_FILE_BYTES).then(Sha256::new);
    let mut read = 0;
    let mut at_end = false;
    loop {
        if filled == 0 {
            at_end = true;
            break;
        }
        if context.cancel.is_cancelled() {
            return Err(ToolError::from("cancelled while reading".to_owned()));
        }
        read += filled as u64;
        if read > WHOLE_FILE_BYTES {
            digest = None;
        }
        if let Some(digest) = &mut digest {
            digest.update(&chunk[..filled]);
        }
        lines.push(&chunk[..filled]);
        if lines.is_full() && digest.is_none() {
            break;
        }
        filled = fill(&mut file, &mut chunk).map_err(failed)?;
    }
    let mut found = lines.finish(at_end);
    found.hash = digest.filter(|_| at_end).map(|digest| ContentHash(to_hex(&digest.finalize())));
    if found.hash.is_none() {
        found.notes.push("too large for write and edit".to_owned());
    }
    Ok(found)
}

fn fill(file: &mut File, chunk: &mut [u8]) -> std::io::Result<usize> {
    let mut filled = 0;
    while filled < chunk.len() {
        match file.read(&mut chunk[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

fn utf16_order(start: &[u8]) -> Option<bool> {
    match start {
        [0xFF, 0xFE, ..] => Some(false),
        [0xFE, 0xFF, ..] => Some(true),
        _ => None,
    }
}

fn utf16(mut file: File, start: &[u8], big_endian: bool, stretch: Stretch) -> std::io::Result<Found> {
    let mut bytes = start.to_vec();
    file.by_ref().take(WHOLE_FILE_BYTES).read_to_end(&mut bytes)?;
    let units = bytes[2..].chunks_exact(2).map(|pair| {
        if big_endian {
            u16::from_be_bytes([pair[0], pair[1]])
        } else {
            u16::from_le_bytes([pair[0], pair[1]])
        }
    });
    let text: String = char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect();
    let mut lines = LineScan::new(stretch);
    lines.push(text.as_bytes());
    let mut found = lines.finish(true);
    found.hash = (bytes.len() as u64 <= WHOLE_FILE_BYTES).then(|| ContentHash::of(&bytes));
    found.notes.push("UTF-16, kept by write and edit".to_owned());
    Ok(found)
}

/// What kind of binary file begins like this, if any does.
fn binary_kind(start: &[u8]) -> Option<&'static str> {
    const KINDS: [(&[u8], &str); 12] = [
        (b"\x7fELF", "an ELF program or library"),
        (b"\x89PNG\r\n\x1a\n", "a PNG image"),
        (b"\xff\xd8\xff", "a JPEG image"),
        (b"GIF8", "a GIF image"),
        (b"%PDF-", "a PDF document"),
        (b"PK\x03\x04", "a ZIP archive or office document"),
        (b"\x1f\x8b", "a gzip file"),
        (b"BZh", "a bzip2 file"),
        (b"\xfd7zXZ\0", "an xz file"),
        (b"\x28\xb5\x2f\xfd", "a zstd file"),
        (b"SQLite format 3\0", "an SQLite database"),
        (b"\0asm", "a WebAssembly module"),
    ];
    let known = KINDS.iter().find(|(magic, _)| start.starts_with(magic)).map(|(_, what)| *what);
    // The zero byte is what tells binary from text in every encoding without a byte order mark; a text that happens to
    // begin like an archive has none.
    let zero = start.contains(&0);
    match known {
        Some(what) if zero || !start.is_ascii() => Some(what),
        _ if zero => Some("a binary file"),
        _ => None,
    }
}

/// Collects a stretch of lines from bytes that come in pieces.
struct LineScan {
    stretch: Stretch,
    /// The line that the next byte belongs to, from 1.
    line: u64,
    /// What is kept of the current line's bytes.
    current: Vec<u8>,
    /// The current line's characters and bytes so far, whether kept or not.
    chars: usize,
    started: bool,
    full: bool,
    found: Found,
    damaged: bool,
    crlf: u64,
    lf: u64,
    last_byte: u8,
    byte_order_mark: bool,
    position: u64,
}

impl LineScan {
    fn new(stretch: Stretch) -> Self {
        LineScan {
            stretch,
            line: 1,
            current: Vec::new(),
            chars: 0,
            started: false,
            full: false,
            found: Found::default(),
            damaged: false,
            crlf: 0,
            lf: 0,
            last_byte: 0,
            byte_order_mark: false,
            position: 0,
        }
    }

    fn is_full(&self) -> bool {
        self.full
    }

    fn push(&mut self, mut bytes: &[u8]) {
        if self.position == 0 && bytes.starts_with(b"\xEF\xBB\xBF") {
            self.byte_order_mark = true;
            bytes = &bytes[3..];
        }
        self.position += 1;
        for piece in bytes.split_inclusive(|b| *b == b'\n') {
            let Some(content) = piece.strip_suffix(b"\n") else {
                self.extend(piece);
                self.last_byte = *piece.last().unwrap_or(&0);
                continue;
            };
            self.extend(content);
            let before = content.last().copied().unwrap_or(if self.started { self.last_byte } else { 0 });
            if before == b'\r' {
                self.crlf += 1
            } else {
                self.lf += 1
            }
            self.last_byte = b'\n';
            self.end_line(true);
        }
    }

    fn in_stretch(&self) -> bool {
        self.line >= self.stretch.first && self.line - self.stretch.first < self.stretch.lines && !self.full
    }

    fn skip(&self) -> usize {
        if self.line == self.stretch.first { self.stretch.skip } else { 0 }
    }

    fn extend(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.started = true;
        if !self.in_stretch() {
            return;
        }
        let from = self.skip();
        // A few bytes beyond the limit show whether the line goes on and end in a whole character.
        let to = from.saturating_add(self.stretch.line_chars.min(self.stretch.bytes)).saturating_add(1);
        if self.chars >= to {
            self.chars += characters(bytes);
            return;
        }
        for byte in bytes {
            if byte & 0xC0 != 0x80 {
                self.chars += 1;
            }
            if self.chars > from && self.chars <= to {
                self.current.push(*byte);
            }
        }
    }

    fn end_line(&mut self, ended: bool) {
        if self.in_stretch() && (ended || self.started) {
            self.show_line(ended);
        } else if self.line >= self.stretch.first.saturating_add(self.stretch.lines) {
            self.full = true;
        }
        self.current.clear();
        self.chars = 0;
        self.started = false;
        if ended {
            self.line += 1;
        }
    }

    fn show_line(&mut self, ended: bool) {
        if ended && self.current.last() == Some(&b'\r') && self.last_byte == b'\n' {
            self.current.pop();
            self.chars -= 1;
        }
        let text = String::from_utf8_lossy(&self.current);
        // What was kept may end inside a character only where the line goes on; that is no damage.
        let whole = self.chars == self.skip() + characters(&self.current);
        self.damaged |= std::str::from_utf8(&self.current).is_err_and(|e| whole || e.error_len().is_some());
        let room = self.stretch.bytes.saturating_sub(self.found.text.len() + 1);
        let limit = text.char_indices().nth(self.stretch.line_chars).map_or(text.len(), |(end, _)| end);
        let fitting = head(&text[..limit], room);
        if fitting.len() < limit && !self.found.text.is_empty() {
            self.full = true;
            return;
        }
        let shown = characters(fitting.as_bytes());
        let rest = self.chars.saturating_sub(self.skip() + shown);
        if self.found.last > 0 {
            self.found.text.push('\n');
        }
        self.found.text.push_str(fitting);
        if rest > 0 {
            let column = self.skip() + shown + 1;
            self.found.text.push_str(&format!(
                " […line {} goes on for {}: offset {}, column {column}…]",
                self.line,
                count(rest as u64, "character"),
                self.line
            ));
        }
        self.found.last = self.line;
        self.full = fitting.len() < limit;
    }

    fn finish(mut self, at_end: bool) -> Found {
        let unfinished = self.started;
        self.end_line(false);
        let total = self.line - 1 + u64::from(unfinished);
        let mut found = self.found;
        found.total = at_end.then_some(total);
        if self.byte_order_mark {
            found.notes.push("byte order mark, kept by write and edit".to_owned());
        }
        match (self.crlf, self.lf) {
            (0, _) => {}
            (_, 0) => found.notes.push("CRLF line endings, kept by write and edit".to_owned()),
            (crlf, lf) => found.notes.push(format!("mixed line endings: {crlf} CRLF, {lf} LF")),
        }
        if self.damaged {
            found.notes.push(
                "not UTF-8: U+FFFD stands for bytes that cannot be shown and stay as they are".to_owned(),
            );
        }
        if at_end && unfinished && found.last == total {
            found.notes.push("no newline at the end".to_owned());
        }
        found
    }
}

fn characters(bytes: &[u8]) -> usize {
    bytes.iter().filter(|b| **b & 0xC0 != 0x80).count()
}

fn report(
    place: &Place,
    stretch: Stretch,
    found: Found,
    note: Option<String>,
) -> Result<ToolOutput, ToolError> {
    let shown = &place.shown;
    if found.last == 0 && found.total != Some(0) {
        let total = found.total.map_or_else(|| "fewer lines".to_owned(), |total| count(total, "line"));
        return Err(ToolError::from(format!(
            "offset {} is past the end: {shown} has {total}",
            stretch.first
        )));
    }
    let mut summary = if found.total == Some(0) {
        format!("{shown} is empty")
    } else if stretch.first == 1 && stretch.skip == 0 && found.total == Some(found.last) {
        format!("{shown}: {}", count(found.last, "line"))
    } else {
        let total = found.total.map(|total| format!(" of {total}")).unwrap_or_default();
        let more = found.total.is_none_or(|total| total > found.last);
        let next = if more { format!("; go on with offset {}", found.last + 1) } else { String::new() };
        format!("{shown}: lines {}-{}{total}{next}", stretch.first, found.last)
    };
    if !found.notes.is_empty() {
        summary.push_str(&format!(" ({})", found.notes.join("; ")));
    }
    let notes = [place.note.clone(), note].into_iter().flatten();
    summary = std::iter::once(summary).chain(notes).collect::<Vec<_>>().join(" ");
    Ok(ToolOutput {
        summary,
        content: (found.total != Some(0)).then_some(found.text),
        referenced_files: vec![ReferencedFile { path: FilePath(place.path.clone()), hash: found.hash }],
        ..ToolOutput::default()
    })
}
