//! The `read` tool: a stretch of a text file, as it is, or an image.
//!
//! Lines come without numbers, so that what is quoted in an edit is what stands in the file. The file is streamed: only
//! the stretch is held in memory, the rest is counted and hashed, up to a bound: files may be endless. Bytes that are
//! not UTF-8 are shown as U+FFFD and told; nothing on disk depends on how they were shown. What a file is, is told by
//! what it holds.

mod lines;

use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt;

use futures_util::future::BoxFuture;
use mainstay_session::message::{ContentHash, Image, ToolSpec, to_hex};
use sha2::{Digest, Sha256};

use self::lines::{Found, LineScan, Stretch};
use crate::arguments::{Arguments, PATH};
use crate::encoding::Encoding;
use crate::files::{OpenError, WHOLE_FILE_BYTES, open_regular, touched};
use crate::image::{IMAGE_BYTES, ImageFault, ImageKind, inspect};
use crate::place::{Place, Purpose, entries};
use crate::shown::shown_name;
use crate::text::{content_budget, count};
use crate::tool::{CallContext, Tool, ToolError, ToolKind, ToolOutput};

const SHAPE: &str = r#"{"path": "src/main.rs", "offset": first line from 1, "limit": lines, "column": first character from 1}"#;
const LINES: u64 = 2_000;
const LINE_CHARS: usize = 2_000;
const LISTED: usize = 100;

/// How far into a file a line is looked for.
const SCANNED_BYTES: u64 = 256 * 1024 * 1024;

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

fn decode(arguments: &str) -> Result<(Stretch, String, Option<String>), ToolError> {
    let mut arguments = Arguments::parse(arguments)?;
    let path = arguments.text("path", &PATH);
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
    let mut output = look(context, Opened::of(file, &place)?, stretch)?;
    let notes = [place.note.clone(), note].into_iter().flatten();
    output.summary = std::iter::once(output.summary).chain(notes).collect::<Vec<_>>().join(" ");
    Ok(output)
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

/// A file that is being read.
struct Opened<'a> {
    place: &'a Place,
    file: File,
    /// What its directory says of its size, which is 0 for files that are made as they are read.
    size: u64,
    /// The bytes read last, at first those of its beginning.
    chunk: Vec<u8>,
    filled: usize,
}

impl<'a> Opened<'a> {
    fn of(file: File, place: &'a Place) -> Result<Self, ToolError> {
        let mut opened = Opened { place, file, size: 0, chunk: vec![0; 64 * 1024], filled: 0 };
        opened.size = opened.file.metadata().map_err(|error| opened.failed(&error))?.len();
        opened.advance()?;
        Ok(opened)
    }

    /// The bytes read last; none at the end.
    fn piece(&self) -> &[u8] {
        &self.chunk[..self.filled]
    }

    fn advance(&mut self) -> Result<(), ToolError> {
        self.filled = fill(&mut self.file, &mut self.chunk).map_err(|error| self.failed(&error))?;
        Ok(())
    }

    /// All bytes from the beginning, if they are no more than `most`.
    fn whole(&mut self, most: u64) -> Result<Option<Vec<u8>>, ToolError> {
        let mut bytes = self.piece().to_vec();
        let more = (most + 1).saturating_sub(bytes.len() as u64);
        (&mut self.file).take(more).read_to_end(&mut bytes).map_err(|error| self.failed(&error))?;
        Ok((bytes.len() as u64 <= most).then_some(bytes))
    }

    fn failed(&self, error: &std::io::Error) -> ToolError {
        ToolError::from(format!("cannot read {}: {error}", self.place.shown))
    }

    fn refused(&self, what: &str) -> ToolError {
        ToolError::from(format!(
            "{} is {what} of {}, not text; it was not read",
            self.place.shown,
            count(self.size, "byte")
        ))
    }
}

/// Finds out what a file is, and shows it.
fn look(context: &CallContext, mut opened: Opened<'_>, stretch: Stretch) -> Result<ToolOutput, ToolError> {
    let start = opened.piece();
    if let Some(kind) = ImageKind::of(start).filter(|_| is_binary(start)) {
        return picture(context, opened, kind);
    }
    if start.starts_with(b"\xFF\xFE") || start.starts_with(b"\xFE\xFF") {
        return utf16(opened, stretch);
    }
    if let Some(what) = binary_kind(start) {
        return Err(opened.refused(what));
    }
    let mut lines = LineScan::new(stretch);
    let mut digest = (opened.size <= WHOLE_FILE_BYTES).then(Sha256::new);
    let mut read = 0;
    while !opened.piece().is_empty() && (digest.is_some() || !lines.is_satisfied()) {
        if context.cancel.is_cancelled() {
            return Err(ToolError::from("cancelled while reading".to_owned()));
        }
        read += opened.piece().len() as u64;
        if read > SCANNED_BYTES {
            return Err(too_far(opened.place, stretch));
        }
        digest = digest.filter(|_| read <= WHOLE_FILE_BYTES);
        if let Some(digest) = &mut digest {
            digest.update(opened.piece());
        }
        lines.push(opened.piece());
        opened.advance()?;
    }
    let mut found = lines.finish(opened.piece().is_empty());
    if found.text.contains('\0') {
        return Err(opened.refused("a binary file"));
    }
    let hash = digest.map(|digest| ContentHash(to_hex(&digest.finalize())));
    if hash.is_none() {
        found.notes.push("too large for write and edit".to_owned());
    }
    report(opened.place, stretch, found, hash)
}

fn too_far(place: &Place, stretch: Stretch) -> ToolError {
    ToolError::from(format!(
        "line {} of {} is not within its first {} MB, further read does not look; use a command (tail, sed -n)",
        stretch.first,
        place.shown,
        SCANNED_BYTES >> 20
    ))
}

/// An image, whole and as a block of its own.
fn picture(context: &CallContext, mut opened: Opened<'_>, kind: ImageKind) -> Result<ToolOutput, ToolError> {
    let (shown, name) = (&opened.place.shown, kind.name());
    if !context.takes_images {
        return Err(ToolError::from(format!(
            "{shown} is a {name} image, and this model is not said to take images (setting `images` of the model); it was not read"
        )));
    }
    let refused = |fault: ImageFault| ToolError::from(format!("{shown} was not read: {fault}"));
    let Some(bytes) = opened.whole(IMAGE_BYTES as u64)? else {
        let bytes = usize::try_from(opened.size).unwrap_or(usize::MAX);
        return Err(refused(ImageFault::TooManyBytes { bytes }));
    };
    let info = inspect(&bytes).map_err(refused)?;
    let hash = context
        .spill
        .store(&bytes)
        .map_err(|error| ToolError::from(format!("{shown} was not read: {error}")))?;
    let bytes = bytes.len() as u64;
    Ok(ToolOutput {
        summary: format!(
            "{shown}: {name} image, {}x{} pixels, {}",
            info.width,
            info.height,
            count(bytes, "byte")
        ),
        images: vec![Image { media_type: kind.media_type().to_owned(), hash: hash.clone(), bytes }],
        ..touched(opened.place, Some(hash))
    })
}

/// A file with a byte order mark of UTF-16. It may still be something else.
fn utf16(mut opened: Opened<'_>, stretch: Stretch) -> Result<ToolOutput, ToolError> {
    let shown = &opened.place.shown;
    let Some(bytes) = opened.whole(WHOLE_FILE_BYTES)? else {
        return Err(ToolError::from(format!(
            "{shown} is too large for UTF-16; convert it with a command (iconv)"
        )));
    };
    let encoding = Encoding::of(&bytes);
    if encoding == Encoding::Binary {
        return Err(opened.refused("a binary file"));
    }
    let mut lines = LineScan::new(stretch);
    lines.push(&encoding.decode(&bytes));
    let mut found = lines.finish(true);
    if matches!(encoding, Encoding::Utf16 { .. }) {
        found.notes.push("UTF-16, kept by write and edit".to_owned());
    }
    report(opened.place, stretch, found, Some(ContentHash::of(&bytes)))
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

/// What kind of binary file begins like this, if any does.
fn binary_kind(start: &[u8]) -> Option<&'static str> {
    const KINDS: [(&[u8], &str); 9] = [
        (b"\x7fELF", "an ELF program or library"),
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
    match known {
        Some(what) if is_binary(start) => Some(what),
        _ if start.contains(&0) => Some("a binary file"),
        _ => None,
    }
}

/// Whether a beginning that looks like a binary format is one. The zero byte is what tells binary from text in every
/// encoding without a byte order mark; a text that happens to begin like an archive is ASCII.
fn is_binary(start: &[u8]) -> bool {
    start.contains(&0) || !start.is_ascii()
}

fn report(
    place: &Place,
    stretch: Stretch,
    found: Found,
    hash: Option<ContentHash>,
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
    Ok(ToolOutput {
        summary,
        content: (found.total != Some(0)).then_some(found.text),
        ..touched(place, hash)
    })
}
