//! From segments to a state: every good line counts, whatever stands around it.
//!
//! A torn tail (bytes behind the last newline) was never committed. A bad line in the middle stays where it is and is
//! reported with its number; it hides nothing behind it. If some part of the current segment's opening cannot be read,
//! the segment before it is read first and this one on top, so that nothing good is lost.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::{segment_path, sync_folder, write_private};
use crate::entry::{Body, Clock, Entry};
use crate::failpoint;
use crate::ids::Seq;
use crate::line::{self, LineFault};
use crate::state::SessionState;

/// What was found when a session was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Opening {
    /// What could not be read, in the order of the files.
    pub damage: Vec<Damage>,
    /// When the last entry was written, by the wall clock of then.
    pub written: Option<jiff::Timestamp>,
}

/// Something that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// In which segment.
    pub segment: u32,
    /// On which line of it, from 1.
    pub line: u64,
    /// What it is.
    pub kind: DamageKind,
}

/// What could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DamageKind {
    /// A line is not an entry. It stays where it is.
    BadLine(LineFault),
    /// Entries before this line are gone without a trace on a line of their own.
    Missing {
        /// The first that is gone.
        from: Seq,
        /// The last that is gone.
        to: Seq,
    },
    /// The line repeats an entry, or stands behind a later one; it was skipped.
    OutOfOrder {
        /// The entry.
        seq: Seq,
    },
    /// The segment holds no entry. It was whole when it came into being, with its opening.
    Empty,
    /// The segment is gone.
    Gone,
    /// The last line has no end.
    TornTail {
        /// How many bytes it has.
        bytes: u64,
        /// Where they are kept, if they were cut off.
        kept: Option<PathBuf>,
    },
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Damage { segment, line, kind } = self;
        match kind {
            DamageKind::BadLine(fault) => {
                write!(f, "line {line} of {segment:04}.jsonl is damaged and was skipped: {fault}")
            }
            DamageKind::Missing { from, to } if from == to => {
                write!(f, "entry {from} is missing before line {line} of {segment:04}.jsonl")
            }
            DamageKind::Missing { from, to } => {
                write!(f, "entries {from} to {to} are missing before line {line} of {segment:04}.jsonl")
            }
            DamageKind::OutOfOrder { seq } => {
                write!(f, "line {line} of {segment:04}.jsonl repeats entry {seq} and was skipped")
            }
            DamageKind::Empty => write!(f, "{segment:04}.jsonl holds no entry; what it held is lost"),
            DamageKind::Gone => write!(f, "{segment:04}.jsonl is gone"),
            DamageKind::TornTail { bytes, kept: Some(kept) } => write!(
                f,
                "the last line ({line}) of {segment:04}.jsonl was cut short; its {bytes} bytes are kept in {}",
                kept.display()
            ),
            DamageKind::TornTail { bytes, kept: None } => {
                write!(f, "the last line ({line}) of {segment:04}.jsonl was cut short ({bytes} bytes)")
            }
        }
    }
}

/// Why a session could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// There is no session in this folder.
    #[error("there is no session in {}", dir.display())]
    NoSession {
        /// The folder.
        dir: PathBuf,
    },
    /// No segment has a header that can be read, so the session cannot go on.
    #[error("the session in {} has no readable header", dir.display())]
    NoHeader {
        /// The folder.
        dir: PathBuf,
    },
    /// A file could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
}

/// Reads a session without taking its lock or changing anything.
///
/// # Errors
///
/// If there is no session, none of its segments has a readable header, or a file cannot be read.
pub fn read(dir: &Path) -> Result<(SessionState, Opening), ReadError> {
    read_segments(dir).map(|reading| (reading.state, reading.opening))
}

/// Reads one segment to its state at its end, whether it is the current one or not.
///
/// # Errors
///
/// If it is not there, cannot be read, or nothing that opens a segment can be read of it.
pub fn read_segment(dir: &Path, segment: u32) -> Result<SessionState, ReadError> {
    let mut fold = Fold::default();
    fold.read(dir, segment)?;
    if fold.has_opening(segment == 1) {
        Ok(fold.state)
    } else {
        Err(ReadError::NoHeader { dir: dir.to_owned() })
    }
}

/// Shows every line of every segment to `visit`, in order: the line's bytes and what they are.
///
/// # Errors
///
/// If there is no session, or a file cannot be read.
pub fn entries(dir: &Path, mut visit: impl FnMut(&[u8], Result<Entry, LineFault>)) -> Result<(), ReadError> {
    for segment in segments(dir)? {
        segment_entries(dir, segment, &mut visit)?;
    }
    Ok(())
}

/// Shows every line of one segment to `visit`, as [`entries`] does.
///
/// # Errors
///
/// If the file cannot be read.
pub fn segment_entries(
    dir: &Path,
    segment: u32,
    mut visit: impl FnMut(&[u8], Result<Entry, LineFault>),
) -> Result<(), ReadError> {
    let path = segment_path(dir, segment);
    for_each_line(&path, |line| visit(line, line::decode(line)))
        .map(|_| ())
        .map_err(|source| ReadError::Io { path, source })
}

/// What a writer needs to go on.
pub(super) struct Reading {
    pub(super) segment: u32,
    /// The length of what is whole in that segment.
    pub(super) good_len: u64,
    pub(super) state: SessionState,
    pub(super) opening: Opening,
}

/// Reads a session whose lock is held, and sets a torn tail aside, unless the session is read-only.
pub(super) fn read_to_write(dir: &Path) -> Result<Reading, ReadError> {
    let mut reading = read_segments(dir)?;
    if reading.state.must.is_some() {
        return Ok(reading);
    }
    let path = segment_path(dir, reading.segment);
    for damage in &mut reading.opening.damage {
        if let (true, DamageKind::TornTail { kept, .. }) =
            (damage.segment == reading.segment, &mut damage.kind)
        {
            let torn = set_aside(&path, reading.good_len)
                .map_err(|source| ReadError::Io { path: path.clone(), source })?;
            *kept = Some(torn);
        }
    }
    Ok(reading)
}

/// The numbers of a session's segments, in order.
pub(super) fn segments(dir: &Path) -> Result<Vec<u32>, ReadError> {
    let names = fs::read_dir(dir).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            ReadError::NoSession { dir: dir.to_owned() }
        }
        _ => ReadError::Io { path: dir.to_owned(), source },
    })?;
    let mut numbers: Vec<u32> = names
        .filter_map(Result::ok)
        .filter_map(|entry| {
            let name = entry.file_name();
            let number = name.to_str()?.strip_suffix(".jsonl")?.parse().ok()?;
            (segment_path(dir, number).file_name() == Some(&name)).then_some(number)
        })
        .collect();
    numbers.sort_unstable();
    if numbers.is_empty() { Err(ReadError::NoSession { dir: dir.to_owned() }) } else { Ok(numbers) }
}

/// Folds the current segment; if its opening cannot be read, the segments before it as well, back to one that can.
fn read_segments(dir: &Path) -> Result<Reading, ReadError> {
    let numbers = segments(dir)?;
    for start in (0..numbers.len()).rev() {
        let mut fold = Fold::default();
        let mut is_complete = false;
        let mut good_len = 0;
        for (place, segment) in numbers[start..].iter().enumerate() {
            let before = fold.chain.last;
            good_len = fold.read(dir, *segment)?;
            if fold.chain.last == before && (start, place) != (0, 0) {
                fold.damage.push(Damage { segment: *segment, line: 1, kind: DamageKind::Empty });
            }
            if place == 0 {
                is_complete = fold.has_opening(start == 0);
            }
        }
        let last = numbers[numbers.len() - 1];
        if is_complete || (start == 0 && fold.state.header.is_some()) {
            let Fold { state, written, damage, .. } = fold;
            return Ok(Reading { segment: last, good_len, state, opening: Opening { damage, written } });
        }
    }
    Err(ReadError::NoHeader { dir: dir.to_owned() })
}

/// The segment in which an entry stands: the last one that does not begin behind it.
pub(super) fn segment_of(dir: &Path, seq: Seq) -> Result<u32, ReadError> {
    let numbers = segments(dir)?;
    for segment in numbers.iter().rev() {
        if first_entry(dir, *segment)?.is_some_and(|entry| entry.seq <= seq) {
            return Ok(*segment);
        }
    }
    Ok(numbers[0])
}

/// The first entry of a segment that can be read.
pub(super) fn first_entry(dir: &Path, segment: u32) -> Result<Option<Entry>, ReadError> {
    let path = segment_path(dir, segment);
    let read = || -> io::Result<Option<Entry>> {
        let mut reader = BufReader::new(File::open(&path)?);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line)? > 0 {
            if let Some(Ok(entry)) = line.strip_suffix(b"\n").map(line::decode) {
                return Ok(Some(entry));
            }
            line.clear();
        }
        Ok(None)
    };
    read().map_err(|source| ReadError::Io { path: path.clone(), source })
}

/// The state as it was at an entry, from the segment that holds it alone, with what is damaged in that segment up to there.
pub(super) fn state_at(dir: &Path, seq: Seq) -> Result<(SessionState, Vec<Damage>), ReadError> {
    let segment = segment_of(dir, seq)?;
    let mut fold = Fold { until: Some(seq), ..Fold::default() };
    fold.read(dir, segment)?;
    Ok((fold.state, fold.damage))
}

/// What is damaged behind an entry, up to the end of the session.
pub(super) fn damage_behind(dir: &Path, seq: Seq) -> Result<Vec<Damage>, ReadError> {
    let start = segment_of(dir, seq)?;
    let mut chain = Chain::default();
    let mut found = Vec::new();
    for segment in segments(dir)?.into_iter().filter(|segment| *segment >= start) {
        for_each_damage(dir, segment, &mut chain, |chain, damage| {
            if chain.last >= seq {
                found.push(damage);
            }
        })?;
    }
    Ok(found)
}

/// Tells of all damage of a segment, each with what was read before it.
pub(super) fn for_each_damage(
    dir: &Path,
    segment: u32,
    chain: &mut Chain,
    mut tell: impl FnMut(&Chain, Damage),
) -> Result<(), ReadError> {
    let path = segment_path(dir, segment);
    chain.enter(segment);
    let mut line_number = 0;
    let lengths = for_each_line(&path, |bytes| {
        line_number += 1;
        if line::bare(bytes).is_empty() {
            return;
        }
        let before = *chain;
        let (_, damage) = chain.take(line::decode(bytes));
        if let Some(kind) = damage {
            tell(&before, Damage { segment, line: line_number, kind });
        }
    })
    .map_err(|source| ReadError::Io { path, source })?;
    if lengths.torn > 0 {
        let kind = DamageKind::TornTail { bytes: lengths.torn, kept: None };
        tell(chain, Damage { segment, line: line_number + 1, kind });
    }
    Ok(())
}

/// The numbers of entries as they follow each other.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Chain {
    /// The last entry that was read; 0 before the first.
    pub(super) last: Seq,
    /// Bad lines since then: each stands for one entry that is not missed twice.
    bad_lines: u64,
    /// Whether it began with the first segment, whose first entry is the session's.
    is_from_start: bool,
}

impl Chain {
    /// Goes on with a segment.
    fn enter(&mut self, segment: u32) {
        self.is_from_start |= segment == 1 && self.last == 0;
    }

    /// Takes in a line. Gives the entry, if it counts, and what is wrong with it or with what stands before it.
    pub(super) fn take(&mut self, line: Result<Entry, LineFault>) -> (Option<Entry>, Option<DamageKind>) {
        let entry = match line {
            Err(fault) => {
                self.bad_lines += 1;
                return (None, Some(DamageKind::BadLine(fault)));
            }
            Ok(entry) if entry.seq <= self.last => {
                return (None, Some(DamageKind::OutOfOrder { seq: entry.seq }));
            }
            Ok(entry) => entry,
        };
        let (last, gap) = (self.last, entry.seq - self.last - 1);
        let is_explained = (last == 0 && !self.is_from_start) || gap <= self.bad_lines;
        *self = Chain { last: entry.seq, bad_lines: 0, ..*self };
        let missing = (!is_explained).then(|| DamageKind::Missing { from: last + 1, to: entry.seq - 1 });
        (Some(entry), missing)
    }
}

#[derive(Default)]
struct Fold {
    state: SessionState,
    damage: Vec<Damage>,
    has_checkpoint: bool,
    chain: Chain,
    clock: Clock,
    written: Option<jiff::Timestamp>,
    /// The last entry that counts; all do if there is none.
    until: Option<Seq>,
}

impl Fold {
    /// Whether all that opens a segment has been read, so that nothing before it is needed.
    fn has_opening(&self, is_first: bool) -> bool {
        let SessionState { header, world, model, .. } = &self.state;
        header.is_some() && world.is_some() && model.is_some() && (is_first || self.has_checkpoint)
    }

    /// Reads one segment and says how much of it is whole.
    fn read(&mut self, dir: &Path, segment: u32) -> Result<u64, ReadError> {
        let path = segment_path(dir, segment);
        self.chain.enter(segment);
        let mut line_number = 0;
        let lengths = for_each_line(&path, |line| {
            line_number += 1;
            self.take(segment, line_number, line);
        })
        .map_err(|source| ReadError::Io { path, source })?;
        if lengths.torn > 0 && !self.is_at_end() {
            let kind = DamageKind::TornTail { bytes: lengths.torn, kept: None };
            self.damage.push(Damage { segment, line: line_number + 1, kind });
        }
        Ok(lengths.whole)
    }

    fn is_at_end(&self) -> bool {
        self.until.is_some_and(|until| self.chain.last >= until)
    }

    fn take(&mut self, segment: u32, line: u64, bytes: &[u8]) {
        if line::bare(bytes).is_empty() || self.is_at_end() {
            return;
        }
        let decoded = line::decode(bytes);
        if let (Some(until), Ok(entry)) = (self.until, &decoded)
            && entry.seq > until
        {
            self.chain.last = until;
            return;
        }
        let (entry, damage) = self.chain.take(decoded);
        if let Some(entry) = entry {
            self.written = self.clock.read(entry.ts).or(self.written);
            self.has_checkpoint |= matches!(entry.body, Body::Checkpoint(_));
            self.state.take(entry);
        }
        self.damage.extend(damage.map(|kind| Damage { segment, line, kind }));
    }
}

pub(super) struct Lengths {
    pub(super) whole: u64,
    pub(super) torn: u64,
}

/// Streams a file's lines, without their newlines; what stands behind the last newline is not a line.
pub(super) fn for_each_line(path: &Path, mut visit: impl FnMut(&[u8])) -> io::Result<Lengths> {
    let mut reader = BufReader::with_capacity(1 << 16, File::open(path)?);
    let mut lengths = Lengths { whole: 0, torn: 0 };
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = reader.read_until(b'\n', &mut line)? as u64;
        match line.strip_suffix(b"\n") {
            Some(line) => visit(line),
            None => {
                lengths.torn = read;
                return Ok(lengths);
            }
        }
        lengths.whole += read;
    }
}

/// Moves what stands behind the first `good_len` bytes into a file of its own. The copy is on the disk before the
/// original is cut, and a copy that an interrupted opening left is used again.
fn set_aside(path: &Path, good_len: u64) -> io::Result<PathBuf> {
    let mut file = File::options().read(true).write(true).open(path)?;
    let mut torn = Vec::new();
    file.seek(SeekFrom::Start(good_len))?;
    file.read_to_end(&mut torn)?;
    let mut number = 1;
    let kept = loop {
        let kept = path.with_extension(format!("jsonl.torn-{number}"));
        match fs::read(&kept) {
            Ok(bytes) if bytes == torn => break kept,
            Ok(_) => number += 1,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                write_private(&kept, &torn, true, "torn.write")?;
                break kept;
            }
            Err(error) => return Err(error),
        }
    };
    if let Some(folder) = path.parent() {
        sync_folder(folder, "folder.sync")?;
    }
    failpoint::pass("torn.cut")?;
    file.set_len(good_len)?;
    file.sync_all()?;
    Ok(kept)
}
