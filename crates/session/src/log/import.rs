//! A session from an export: checked line by line, and there whole or not at all.
//!
//! Only names that an export has are written, below a folder of the import's own; nothing is ever written over. What it
//! says was permitted was permitted elsewhere, perhaps by nobody: it is kept as a record, and allows nothing here.

use std::fs::File;
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

use super::export::{EXPORT, Head, Piece, in_this_format, is_exported, next_line};
use super::unfinished::Unfinished;
use super::{ReadError, private_dir, private_file, reading, rename, segment_path, session_dir};
use crate::entry::{Body, FORMAT, Grant};
use crate::failpoint;
use crate::ids::SessionId;
use crate::line;
use crate::message::to_hex;

/// A session that was imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// Which it is.
    pub id: SessionId,
    /// Permissions that were given where it comes from, by tool and pattern. They do not hold here.
    pub grants: Vec<(String, String)>,
}

/// Why nothing was imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// What was given is no export, or not a whole one.
    #[error("line {line} is not of an export: {why}")]
    Invalid {
        /// Which line, from 1.
        line: u64,
        /// What is wrong with it.
        why: String,
    },
    /// A newer version wrote it.
    #[error("the export has version {version}, and this version of mainstay reads {EXPORT}")]
    Newer {
        /// Its version.
        version: u32,
    },
    /// There is such a session.
    #[error("there is a session {id} already, in {}", dir.display())]
    Exists {
        /// Its id.
        id: SessionId,
        /// Its folder.
        dir: PathBuf,
    },
    /// The files are whole and are no session.
    #[error(transparent)]
    NoSession(#[from] ReadError),
    /// A file could not be written.
    #[error("cannot write the session: {0}")]
    Write(#[source] io::Error),
}

/// Reads an export and puts its session in its place.
///
/// # Errors
///
/// If anything of it is not as it was exported, if there is such a session already, or if it cannot be written. Then
/// nothing is left of it.
pub fn import(data_home: &Path, from: &mut dyn BufRead) -> Result<Imported, ImportError> {
    let mut lines = Lines { from, line: Vec::new(), number: 0 };
    let head: Head = lines.next()?;
    if head.export > EXPORT {
        return Err(ImportError::Newer { version: head.export });
    }
    let place = session_dir(data_home, &head.session);
    if place.symlink_metadata().is_ok() {
        return Err(ImportError::Exists { id: head.session, dir: place });
    }
    let name = format!("import-{}-{}", head.session, std::process::id());
    let unfinished = Unfinished::create(data_home, &name).map_err(ImportError::Write)?;
    read_files(&mut lines, &unfinished.dir)?;
    let (state, _) = reading::read(&unfinished.dir)?;
    if state.header.as_ref().is_none_or(|header| header.session != head.session) {
        return Err(lines.invalid("its segments are of another session"));
    }
    let grants = void_grants(&unfinished.dir)?;
    unfinished.finish(&place).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => ImportError::Exists { id: head.session.clone(), dir: place.clone() },
        _ => ImportError::Write(error),
    })?;
    Ok(Imported { id: head.session, grants })
}

/// Makes every lasting permission one that was given once, and says which those were.
fn void_grants(dir: &Path) -> Result<Vec<(String, String)>, ImportError> {
    let mut voided = Vec::new();
    for segment in reading::segments(dir)? {
        let (path, before) = (segment_path(dir, segment), voided.len());
        let read = reading::for_each_line(&path, |line| {
            let Ok(mut entry) = line::decode(line) else { return };
            let lasting = grants(&mut entry.body).iter().filter(|grant| grant.lasts());
            voided.extend(lasting.map(|grant| (grant.tool.clone(), grant.pattern.clone())));
        });
        read.map_err(ImportError::Write)?;
        if voided.len() > before {
            write_without_grants(&path).map_err(ImportError::Write)?;
        }
    }
    voided.sort_unstable();
    voided.dedup();
    Ok(voided)
}

fn grants(body: &mut Body) -> &mut [Grant] {
    match body {
        Body::Grant(grant) => std::slice::from_mut(grant),
        Body::Checkpoint(checkpoint) => checkpoint.grants.as_mut_slice(),
        _ => &mut [],
    }
}

/// Writes a segment anew, line by line, with no permission that lasts.
fn write_without_grants(path: &Path) -> io::Result<()> {
    let unfinished = path.with_extension("jsonl.new");
    let mut file = private_file(&unfinished)?;
    let mut written = Ok(());
    reading::for_each_line(path, |line| {
        if written.is_ok() {
            written = without_grants(line)
                .and_then(|line| failpoint::write("import.write", &line, |_, part| file.write_all(part)));
        }
    })?;
    written?;
    failpoint::pass("import.sync").and_then(|()| file.sync_all())?;
    rename(&unfinished, path, "import.rename")
}

/// A line, with its newline, that gives no permission that lasts. Since what is written anew is of this version's format,
/// the headers say so; all else stays as it is, byte for byte.
fn without_grants(line: &[u8]) -> io::Result<Vec<u8>> {
    let as_it_is = || [line, b"\n"].concat();
    let Ok(mut entry) = line::decode(line) else { return Ok(as_it_is()) };
    let is_older = matches!(&entry.body, Body::Session(header) if header.format < FORMAT);
    let mut is_anew = is_older;
    for grant in grants(&mut entry.body).iter_mut().filter(|grant| grant.lasts()) {
        grant.scope = Grant::ONCE.to_owned();
        is_anew = true;
    }
    if is_anew { Ok(line::encode(&in_this_format(entry))?) } else { Ok(as_it_is()) }
}

struct Lines<'a> {
    from: &'a mut dyn BufRead,
    line: Vec<u8>,
    number: u64,
}

impl Lines<'_> {
    fn next<T: serde::de::DeserializeOwned>(&mut self) -> Result<T, ImportError> {
        self.number += 1;
        match next_line(self.from, &mut self.line) {
            Ok(true) => {}
            Ok(false) => return Err(self.invalid("the export ends before its end")),
            Err(error) => return Err(self.invalid(&error.to_string())),
        }
        line::check_seal(&self.line).map_err(|fault| self.invalid(&fault.to_string()))?;
        serde_json::from_slice(&self.line).map_err(|error| self.invalid(&error.to_string()))
    }

    fn is_at_end(&mut self) -> bool {
        self.from.fill_buf().is_ok_and(<[u8]>::is_empty)
    }

    fn invalid(&self, why: &str) -> ImportError {
        ImportError::Invalid { line: self.number, why: why.to_owned() }
    }
}

/// A file whose pieces come.
struct Coming {
    name: String,
    file: File,
    hash: Sha256,
    bytes: u64,
}

fn read_files(lines: &mut Lines<'_>, dir: &Path) -> Result<(), ImportError> {
    let (mut coming, mut files): (Option<Coming>, u64) = (None, 0);
    loop {
        let piece: Piece = lines.next()?;
        if let Some(expected) = piece.files {
            return match coming {
                None if expected == files && lines.is_at_end() => Ok(()),
                None if expected == files => Err(lines.invalid("something stands behind the end")),
                Some(_) | None => Err(lines.invalid("a file is missing")),
            };
        }
        let name = piece.file.clone().or_else(|| piece.end.clone());
        let name = name.ok_or_else(|| lines.invalid("it names no file"))?;
        let mut file = match coming.take() {
            Some(file) if file.name == name => file,
            Some(file) => return Err(lines.invalid(&format!("{} has no end", file.name))),
            None => begin(dir, &name, lines)?,
        };
        if piece.end.is_some() {
            finish(&file, &piece, lines)?;
            files += 1;
        } else {
            let bytes = content(piece).ok_or_else(|| lines.invalid("it holds nothing that can be read"))?;
            let write = failpoint::write("import.write", &bytes, |_, part| file.file.write_all(part));
            write.map_err(ImportError::Write)?;
            file.hash.update(&bytes);
            file.bytes += bytes.len() as u64;
            coming = Some(file);
        }
    }
}

fn begin(dir: &Path, name: &str, lines: &Lines<'_>) -> Result<Coming, ImportError> {
    let path = dir.join(name);
    if !is_exported(name) {
        return Err(lines.invalid(&format!("a session has no file {name:?}")));
    }
    if path.symlink_metadata().is_ok() {
        return Err(lines.invalid(&format!("{name} comes twice")));
    }
    let open = || -> io::Result<File> {
        if name.starts_with("spill/") {
            private_dir(&dir.join("spill"))?;
        }
        private_file(&path)
    };
    let file = open().map_err(ImportError::Write)?;
    Ok(Coming { name: name.to_owned(), file, hash: Sha256::new(), bytes: 0 })
}

fn content(piece: Piece) -> Option<Vec<u8>> {
    match (piece.text, piece.base64) {
        (Some(text), None) => Some(text.into_bytes()),
        (None, Some(base64)) => STANDARD.decode(base64).ok(),
        (Some(_), Some(_)) | (None, None) => None,
    }
}

fn finish(file: &Coming, end: &Piece, lines: &Lines<'_>) -> Result<(), ImportError> {
    let hash = to_hex(&file.hash.clone().finalize());
    if end.bytes != Some(file.bytes) || end.sha256.as_deref() != Some(&hash) {
        return Err(lines.invalid(&format!("{} is not what it was", file.name)));
    }
    failpoint::pass("import.sync").and_then(|()| file.file.sync_all()).map_err(ImportError::Write)
}
