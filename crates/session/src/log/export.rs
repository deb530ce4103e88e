//! A whole session as one file: lines of JSON, each with a checksum, each file with its hash, and an end.
//!
//! ```text
//! {"export":1,"session":"…","ts":"…","program":"…","masked":false,"crc":"…"}
//! {"file":"0001.jsonl","text":"…","crc":"…"}
//! {"file":"spill/…","base64":"…","crc":"…"}
//! {"end":"0001.jsonl","bytes":1234,"sha256":"…","crc":"…"}
//! {"files":3,"crc":"…"}
//! ```
//!
//! A file's pieces follow each other, then its end. Reading takes no lock, so a session that is running can be exported:
//! it is what was whole when its last segment was read.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{ReadError, reading, segment_path};
use crate::entry::{Body, Entry, FORMAT};
use crate::ids::SessionId;
use crate::line;
use crate::message::{ContentHash, to_hex};
use crate::secrets::mask;

/// The version of the export's form.
pub(super) const EXPORT: u32 = 1;

/// How much of a file stands on one line.
const PIECE: usize = 1 << 20;

/// The first line.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Head {
    pub(super) export: u32,
    pub(super) session: SessionId,
    ts: jiff::Timestamp,
    #[serde(default)]
    program: String,
    #[serde(default)]
    masked: bool,
}

/// Any other line.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Piece {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) file: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) text: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) base64: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) end: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) sha256: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) files: Option<u64>,
}

/// What was exported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// How many files of the session.
    pub files: u64,
    /// How many of them are no text and were not looked through for secrets.
    pub unmasked: u64,
}

/// Why a session could not be exported.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// It could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The export could not be written.
    #[error("cannot write the export: {0}")]
    Write(#[source] io::Error),
}

/// Writes the session in `dir` to `to`. With `masked`, what looks like a secret is replaced in every text; what only a
/// provider understands, and what is no text, stays as it is.
///
/// # Errors
///
/// If the session has no readable header, a file cannot be read, or `to` cannot be written.
pub fn export(
    dir: &Path,
    masked: bool,
    program: &str,
    now: jiff::Timestamp,
    to: &mut dyn Write,
) -> Result<Exported, ExportError> {
    let (state, _) = reading::read(dir)?;
    let Some(header) = state.header else { return Err(ReadError::NoHeader { dir: dir.to_owned() }.into()) };
    let head = Head { export: EXPORT, session: header.session, ts: now, program: program.to_owned(), masked };
    let mut writer = Writer { to, exported: Exported::default() };
    writer.line(&head)?;
    let renamed = writer.spill(dir, masked)?;
    for segment in reading::segments(dir)? {
        writer.segment(&segment_path(dir, segment), segment, masked.then_some(&renamed))?;
    }
    for (name, path) in other_files(dir)? {
        let bytes = fs::read(&path).map_err(|source| ReadError::Io { path, source })?;
        let bytes = if masked { writer.without_secrets(bytes, &renamed) } else { bytes };
        writer.file(&name, &bytes)?;
    }
    writer.line(&Piece { files: Some(writer.exported.files), ..Piece::default() })?;
    writer.to.flush().map_err(ExportError::Write)?;
    Ok(writer.exported)
}

/// Whole texts that were masked, by the hash they had, with the one they have now.
type Renamed = BTreeMap<String, String>;

struct Writer<'a> {
    to: &'a mut dyn Write,
    exported: Exported,
}

impl Writer<'_> {
    fn line<T: Serialize>(&mut self, object: &T) -> Result<(), ExportError> {
        let line = line::sealed(object).map_err(io::Error::from).map_err(ExportError::Write)?;
        self.to.write_all(&line).map_err(ExportError::Write)
    }

    fn file(&mut self, name: &str, bytes: &[u8]) -> Result<(), ExportError> {
        self.pieces(name, bytes)?;
        self.end(name, bytes.len() as u64, &Sha256::digest(bytes))
    }

    fn pieces(&mut self, name: &str, mut bytes: &[u8]) -> Result<(), ExportError> {
        while !bytes.is_empty() {
            let piece = &bytes[..bytes.len().min(PIECE)];
            // A character that the piece would cut begins the next one.
            let (text, taken) = match std::str::from_utf8(piece) {
                Ok(text) => (Some(text), piece.len()),
                Err(error) if error.error_len().is_none() && error.valid_up_to() > 0 => {
                    (std::str::from_utf8(&piece[..error.valid_up_to()]).ok(), error.valid_up_to())
                }
                Err(_) => (None, piece.len()),
            };
            self.line(&Piece {
                file: Some(name.to_owned()),
                text: text.map(str::to_owned),
                base64: text.is_none().then(|| STANDARD.encode(piece)),
                ..Piece::default()
            })?;
            bytes = &bytes[taken..];
        }
        Ok(())
    }

    fn end(&mut self, name: &str, bytes: u64, sha256: &[u8]) -> Result<(), ExportError> {
        self.exported.files += 1;
        self.line(&Piece {
            end: Some(name.to_owned()),
            bytes: Some(bytes),
            sha256: Some(to_hex(sha256)),
            ..Piece::default()
        })
    }

    /// A segment's whole lines. What stands behind the last newline was never written.
    fn segment(&mut self, path: &Path, segment: u32, renamed: Option<&Renamed>) -> Result<(), ExportError> {
        let name = format!("{segment:04}.jsonl");
        let (mut hash, mut len, mut waiting) = (Sha256::new(), 0, Vec::new());
        let mut result = Ok(());
        reading::for_each_line(path, |line| {
            if result.is_err() {
                return;
            }
            let start = waiting.len();
            match renamed {
                Some(renamed) => waiting.extend_from_slice(&masked_line(line, renamed)),
                None => waiting.extend_from_slice(line),
            }
            waiting.push(b'\n');
            hash.update(&waiting[start..]);
            len += (waiting.len() - start) as u64;
            if waiting.len() >= PIECE {
                result = self.pieces(&name, &waiting);
                waiting.clear();
            }
        })
        .map_err(|source| ReadError::Io { path: path.to_owned(), source })?;
        result?;
        self.pieces(&name, &waiting)?;
        self.end(&name, len, &hash.finalize())
    }

    /// Whole texts and images. A masked text has another name, since it is named by what it holds.
    fn spill(&mut self, dir: &Path, masked: bool) -> Result<Renamed, ExportError> {
        let folder = dir.join("spill");
        let mut renamed = Renamed::new();
        for name in names(&folder)?.into_iter().filter(|name| is_hash(name)) {
            let path = folder.join(&name);
            let bytes = fs::read(&path).map_err(|source| ReadError::Io { path, source })?;
            let bytes = if masked { self.without_secrets(bytes, &Renamed::new()) } else { bytes };
            // What is damaged keeps its name, so that the damage is seen where it is imported.
            let hash = ContentHash::of(&bytes).as_str().to_owned();
            let new = if masked { hash } else { name.clone() };
            self.file(&format!("spill/{new}"), &bytes)?;
            if new != name {
                renamed.insert(name, new);
            }
        }
        Ok(renamed)
    }

    fn without_secrets(&mut self, bytes: Vec<u8>, renamed: &Renamed) -> Vec<u8> {
        match String::from_utf8(bytes) {
            Ok(text) => masked_text(&text, renamed).into_bytes(),
            Err(error) => {
                self.exported.unmasked += 1;
                error.into_bytes()
            }
        }
    }
}

fn masked_text(text: &str, renamed: &Renamed) -> String {
    let masked = mask(text).into_owned();
    renamed.iter().fold(masked, |text, (old, new)| text.replace(old, new))
}

/// A line of a log without secrets. What only a provider understands is left, since it must go back as it came; what is no
/// entry is masked as a text.
fn masked_line(bytes: &[u8], renamed: &Renamed) -> Vec<u8> {
    let masked = |line: &[u8]| -> Option<Vec<u8>> {
        let entry = line::decode(line).ok()?;
        let mut value: Value = serde_json::from_slice(line).ok()?;
        mask_strings(&mut value, renamed);
        let known = line::parse(&value.to_string()).ok()?;
        let mut line = match known.body {
            // Of a kind that is not known only the text is.
            Body::Unknown(_) => {
                value.as_object_mut()?.remove("crc");
                line::sealed(&value).ok()?
            }
            _ => line::encode(&Entry { seq: entry.seq, ..in_this_format(known) }).ok()?,
        };
        line.pop();
        Some(line)
    };
    masked(bytes).unwrap_or_else(|| masked_text(&String::from_utf8_lossy(bytes), renamed).into_bytes())
}

/// A line that is written anew is of the format that this version writes, and its segment says so.
pub(super) fn in_this_format(mut entry: Entry) -> Entry {
    if let Body::Session(header) = &mut entry.body {
        header.format = header.format.max(FORMAT);
    }
    entry
}

fn mask_strings(value: &mut Value, renamed: &Renamed) {
    match value {
        Value::String(text) => *text = masked_text(text, renamed),
        Value::Array(values) => values.iter_mut().for_each(|value| mask_strings(value, renamed)),
        Value::Object(fields) => fields
            .iter_mut()
            .filter(|(key, _)| !matches!(key.as_str(), "opaque" | "raw" | "crc"))
            .for_each(|(_, value)| mask_strings(value, renamed)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Files beside the segments that belong to the session, with their names in the export.
fn other_files(dir: &Path) -> Result<Vec<(String, PathBuf)>, ReadError> {
    let named = |name: &String| !name.ends_with(".jsonl") && is_exported(name);
    Ok(names(dir)?.into_iter().filter(named).map(|name| (name.clone(), dir.join(name))).collect())
}

/// The names of a folder's files, sorted; none if there is no such folder.
fn names(dir: &Path) -> Result<Vec<String>, ReadError> {
    let failed = |source| ReadError::Io { path: dir.to_owned(), source };
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(failed)?;
        if let (true, Ok(name)) =
            (entry.file_type().map_err(failed)?.is_file(), entry.file_name().into_string())
        {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// Whether a file of this name is part of a session's export. No other name is written by an import.
pub(super) fn is_exported(name: &str) -> bool {
    if let Some(hash) = name.strip_prefix("spill/") {
        return is_hash(hash);
    }
    if name == "history.json" {
        return true;
    }
    let Some((number, rest)) = name.split_once(".jsonl") else { return false };
    let is_segment = number.parse().is_ok_and(|n: u32| n > 0 && format!("{n:04}") == number);
    let kept = rest.strip_prefix(".torn-").or_else(|| rest.strip_prefix(".before-repair-"));
    is_segment
        && (rest.is_empty() || kept.is_some_and(|n| n.parse::<u32>().is_ok_and(|k| k.to_string() == n)))
}

fn is_hash(name: &str) -> bool {
    name.len() == 64 && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Reads a line of an export, at most as long as one can be; none at the end.
pub(super) fn next_line(from: &mut dyn io::BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    use io::BufRead;
    // Every byte of a piece may be escaped as six.
    let most = 6 * PIECE as u64 + 4096;
    line.clear();
    from.take(most).read_until(b'\n', line)?;
    if line.is_empty() {
        return Ok(false);
    }
    if line.pop() != Some(b'\n') {
        let why = "the line is cut short, or too long";
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, why));
    }
    Ok(true)
}

/// Where an export is written to: a new file that only the user can read.
pub fn new_export_file(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}
