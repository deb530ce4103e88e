//! What is wrong with a session, in all of its segments, and what can be done about it.
//!
//! [`inspect`] looks and changes nothing. [`repair`] writes damaged segments anew: every good line as it is, where it is;
//! a `lost` entry for each entry that is known to be gone; a header where the rest tells what it was. The old file stays
//! beside the new one, byte for byte. Nothing that is lost comes back by this.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::lock::Lock;
use super::reading::{Chain, Damage, DamageKind, ReadError, for_each_damage, for_each_line, read, segments};
use super::{
    Durability, OpenError, Spill, rename, replace_file, segment_path, sync_folder, waiting_messages,
    write_private,
};
use crate::entry::{Body, Entry, FORMAT, Lane, Lost, PROJECTION, SessionHeader, When};
use crate::history::History;
use crate::ids::{Seq, SessionId};
use crate::line;
use crate::message::{ContentHash, FilePath, Image};

/// The most entries in a row that are marked as lost; a larger gap is reported and left.
const MARKED: u64 = 10_000;

/// What was found in a session's folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inspection {
    /// The segments, in order.
    pub segments: Vec<SegmentFound>,
    /// What cannot be read, in any segment.
    pub damage: Vec<Damage>,
    /// Entries that an earlier repair marked as lost.
    pub lost: Vec<Seq>,
    /// Whole texts and images that an entry names and that are not there.
    pub missing: Vec<(Seq, ContentHash)>,
    /// Whole texts and images that are not what they were.
    pub changed: Vec<PathBuf>,
    /// Bytes that were set aside: torn tails, and segments as they were before a repair.
    pub kept: Vec<PathBuf>,
    /// Messages from other processes that wait.
    pub waiting: usize,
}

impl Inspection {
    /// Whether nothing is wrong. What an earlier repair marked is known, and nothing new.
    pub fn is_sound(&self) -> bool {
        self.damage.is_empty() && self.missing.is_empty() && self.changed.is_empty()
    }
}

/// A segment as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentFound {
    /// Its number.
    pub number: u32,
    /// How many entries of it can be read.
    pub entries: u64,
    /// Its length.
    pub bytes: u64,
}

/// Looks through all segments of a session and what lies beside them. Takes no lock and changes nothing.
///
/// # Errors
///
/// If there is no session, or a file cannot be read.
pub fn inspect(dir: &Path) -> Result<Inspection, ReadError> {
    let mut found = Inspection { waiting: waiting_messages(dir), ..Inspection::default() };
    let spill = Spill::of_session(dir, Durability::Relaxed);
    let (mut chain, mut named) = (Chain::default(), BTreeSet::new());
    let numbers = segments(dir)?;
    let last = numbers.last().copied().unwrap_or_default();
    let gone = (1..last).filter(|number| !numbers.contains(number));
    found.damage.extend(gone.map(|segment| Damage { segment, line: 1, kind: DamageKind::Gone }));
    for number in numbers {
        for_each_damage(dir, number, &mut chain, |_, damage| found.damage.push(damage))?;
        let path = segment_path(dir, number);
        let mut entries = 0;
        let failed = |source| ReadError::Io { path: path.clone(), source };
        for_each_line(&path, |line| {
            if let Ok(entry) = line::decode(line) {
                entries += 1;
                if matches!(entry.body, Body::Lost(_)) {
                    found.lost.push(entry.seq);
                }
                named.extend(named_by(&entry.body).map(|hash| (entry.seq, hash.as_str().to_owned())));
            }
        })
        .map_err(failed)?;
        if entries == 0 {
            found.damage.push(Damage { segment: number, line: 1, kind: DamageKind::Empty });
        }
        let bytes = fs::metadata(&path).map_err(failed)?.len();
        found.segments.push(SegmentFound { number, entries, bytes });
    }
    for (seq, hash) in named {
        let hash = ContentHash(hash);
        match spill.load(&hash) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => found.missing.push((seq, hash)),
            Err(_) if found.changed.contains(&spill.path(&hash)) => {}
            Err(_) => found.changed.push(spill.path(&hash)),
        }
    }
    found.kept = kept(dir);
    Ok(found)
}

/// The hashes of what an entry says is kept beside the log.
fn named_by(body: &Body) -> impl Iterator<Item = &ContentHash> {
    let (text, images, before): (Option<&ContentHash>, &[Image], _) = match body {
        Body::UserPrompt(prompt) => (prompt.spill.as_ref(), &prompt.images, [].as_slice()),
        Body::ToolResult(result) => (None, &result.images, result.changes.as_slice()),
        _ => (None, &[], [].as_slice()),
    };
    let before = before.iter().filter_map(|change| change.before.as_ref());
    text.into_iter().chain(images.iter().map(|image| &image.hash)).chain(before)
}

fn kept(dir: &Path) -> Vec<PathBuf> {
    let is_kept = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.contains(".jsonl.torn-") || name.contains(".jsonl.before-repair-")
    };
    let names = fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok);
    let mut kept: Vec<PathBuf> = names.map(|entry| entry.path()).filter(is_kept).collect();
    kept.sort_unstable();
    kept
}

/// What a repair did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repaired {
    /// The segments that were written anew, each with the file that holds what it was before.
    pub segments: Vec<(u32, PathBuf)>,
    /// How many entries were marked as lost.
    pub lost: u64,
    /// How many headers were made again.
    pub headers: u64,
}

/// Why a session was not repaired.
#[derive(Debug, thiserror::Error)]
pub enum RepairError {
    /// It cannot be read, or another process works on it.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A newer version wrote it.
    #[error("the session holds {what}")]
    Newer {
        /// What it holds, in words.
        what: String,
    },
    /// A file could not be written. The segment is as it was.
    #[error("cannot repair {}: {source}", path.display())]
    Write {
        /// The segment.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
}

/// Writes the damaged segments of the session `id` in `dir` anew.
///
/// # Errors
///
/// If a process works on it, a newer version wrote it, or a file cannot be read or written. A segment is replaced whole
/// or not at all.
pub fn repair(dir: &Path, id: &SessionId, now: jiff::Timestamp) -> Result<Repaired, RepairError> {
    let numbers = segments(dir).map_err(OpenError::Read)?;
    let _lock = Lock::acquire(dir, now).map_err(|error| error.into_open_error(dir))?;
    if let Ok((state, _)) = read(dir)
        && let Some(what) = state.must
    {
        return Err(RepairError::Newer { what });
    }
    let mut repaired = Repaired::default();
    let mut last = 0;
    for (place, number) in numbers.iter().enumerate() {
        let path = segment_path(dir, *number);
        let failed = |source| RepairError::Write { path: path.clone(), source };
        let before = fs::read(&path).map_err(failed)?;
        let next =
            numbers.get(place + 1).and_then(|next| super::reading::first_entry(dir, *next).ok().flatten());
        let mut anew = Anew { last, ..Anew::default() };
        // Looking for what a header was means reading all segments before, so only where there is none.
        let first = super::reading::first_entry(dir, *number).ok().flatten();
        let has_header = first.is_some_and(|first| matches!(first.body, Body::Session(_)));
        let header = if has_header { None } else { header(dir, id, *number, last) };
        anew.segment(&before, header, next.as_ref());
        last = anew.last;
        if anew.bytes != before {
            let kept = replace(&path, &before, &anew.bytes).map_err(failed)?;
            repaired.segments.push((*number, kept));
            repaired.lost += anew.lost;
            repaired.headers += u64::from(anew.has_new_header);
        }
    }
    if let Ok((state, _)) = read(dir)
        && let Ok(document) = serde_json::to_vec(&History::of(&state))
    {
        // It can be made again at any time; the next turn's end does.
        let _ = replace_file(&dir.join("history.json"), &document);
    }
    Ok(repaired)
}

/// A header for a segment that has none, as far as the rest of the session tells it.
fn header(dir: &Path, id: &SessionId, segment: u32, last: Seq) -> Option<Entry> {
    let (mut known, mut first, mut world) = (None, None, None);
    for number in segments(dir).ok()?.into_iter().filter(|number| *number <= segment) {
        let read = for_each_line(&segment_path(dir, number), |line| {
            let Ok(entry) = line::decode(line) else { return };
            if number == segment {
                first.get_or_insert((entry.seq, entry.ts));
            }
            match entry.body {
                Body::Session(header) => known = Some((number, header)),
                Body::World(told) => world = Some(told),
                _ => {}
            }
        });
        read.ok()?;
    }
    let (first, ts) = first?;
    // The number must be free, and the segment without a header.
    if first <= last.saturating_add(1) || known.as_ref().is_some_and(|(number, _)| *number == segment) {
        return None;
    }
    let header = match known {
        Some((_, header)) => SessionHeader { segment, ..header },
        None => SessionHeader {
            format: FORMAT,
            projection: PROJECTION,
            session: id.clone(),
            segment,
            cwd: FilePath(world?.cwd.into()),
            parent: None,
            child: false,
            program: String::new(),
        },
    };
    Some(Entry { seq: last + 1, ts, lane: Lane::Main, body: Body::Session(header) })
}

/// A segment that is written anew.
#[derive(Default)]
struct Anew<'a> {
    bytes: Vec<u8>,
    /// Good lines that stand behind later ones, by their entries, where no other line says what these do.
    displaced: BTreeMap<Seq, &'a [u8]>,
    last: Seq,
    /// The checksum of each line that was taken, without its end, by its entry.
    taken: HashMap<Seq, u32>,
    lost: u64,
    has_new_header: bool,
}

impl<'a> Anew<'a> {
    /// `next` is the first entry of the segment behind this one that can be read.
    fn segment(&mut self, before: &'a [u8], header: Option<Entry>, next: Option<&Entry>) {
        let mut bad = 0;
        self.displaced = displaced(before, self.last);
        if let Some(header) = header {
            self.has_new_header = true;
            self.put(&header);
        }
        for line in whole_lines(before) {
            match line::decode(&line[..line.len() - 1]) {
                Ok(entry) => {
                    self.take(&entry, line);
                    bad = 0;
                }
                Err(_) => bad += u64::from(!bare(line).is_empty()),
            }
        }
        match next {
            Some(Entry { seq, body: Body::Session(_), .. }) => self.mark_lost(*seq),
            // What else is gone may have stood in the next segment; here only bad lines tell how many are.
            Some(next) => self.mark_lost(next.seq.min(self.behind(bad))),
            // A segment was whole when it came into being: where nothing of it is left, its opening at least is lost.
            None if self.bytes.is_empty() => self.mark_lost(self.behind(bad.max(1))),
            None => self.mark_lost(self.behind(bad)),
        }
    }

    /// The entry behind as many as there are bad lines.
    fn behind(&self, bad: u64) -> Seq {
        self.last.saturating_add(bad).saturating_add(1)
    }

    fn take(&mut self, entry: &Entry, line: &[u8]) {
        let crc = crc32fast::hash(bare(line));
        if entry.seq > self.last {
            self.mark_lost(entry.seq);
            self.last = entry.seq;
            self.taken.insert(entry.seq, crc);
        } else if self.taken.get(&entry.seq) == Some(&crc) {
            return;
        }
        // One that repeats a number and says something else is good, and stays where it is.
        self.bytes.extend_from_slice(line);
    }

    /// Marks what is gone between the last entry and `next`.
    fn mark_lost(&mut self, next: Seq) {
        if next.saturating_sub(self.last) > MARKED {
            return;
        }
        while self.behind(0) < next {
            if let Some(line) = self.displaced.remove(&self.behind(0)) {
                self.last = self.behind(0);
                self.taken.insert(self.last, crc32fast::hash(bare(line)));
                self.bytes.extend_from_slice(line);
                continue;
            }
            let body = Body::Lost(Lost { why: "its line could not be read".to_owned() });
            self.put(&Entry { seq: self.behind(0), ts: When::After(0), lane: Lane::Main, body });
            self.lost += 1;
        }
    }

    fn put(&mut self, entry: &Entry) {
        if let Ok(line) = line::encode(entry) {
            self.bytes.extend_from_slice(&line);
        }
        self.last = entry.seq;
    }
}

/// The lines of a segment, with their newlines. What stands behind the last newline was never written.
fn whole_lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    bytes[..whole].split_inclusive(|byte| *byte == b'\n')
}

/// What a line says, without what ends it.
fn bare(line: &[u8]) -> &[u8] {
    line::bare(line.strip_suffix(b"\n").unwrap_or(line))
}

/// The good lines that stand behind later ones and hold what none in its place does.
fn displaced(bytes: &[u8], mut last: Seq) -> BTreeMap<Seq, &[u8]> {
    let (mut displaced, mut in_place) = (BTreeMap::new(), BTreeSet::new());
    for line in whole_lines(bytes) {
        match line::decode(&line[..line.len() - 1]) {
            Ok(entry) if entry.seq > last => {
                last = entry.seq;
                in_place.insert(last);
            }
            Ok(entry) => {
                displaced.entry(entry.seq).or_insert(line);
            }
            Err(_) => {}
        }
    }
    displaced.retain(|seq, _| !in_place.contains(seq));
    displaced
}

/// Puts new bytes in a file's place, and keeps the old ones beside it. Both are on the disk when this returns.
fn replace(path: &Path, before: &[u8], bytes: &[u8]) -> io::Result<PathBuf> {
    let kept = (1..)
        .map(|number: u32| path.with_extension(format!("jsonl.before-repair-{number}")))
        .find(|kept| kept.symlink_metadata().is_err())
        .ok_or_else(|| io::Error::other("no name is free"))?;
    let unfinished = path.with_extension("jsonl.new");
    write_private(&kept, before, true, "repair.keep")?;
    write_private(&unfinished, bytes, true, "repair.write")?;
    rename(&unfinished, path, "repair.rename")?;
    if let Some(folder) = path.parent() {
        // What could not be repaired is what it was.
        sync_folder(folder, "folder.sync").inspect_err(|_| drop(fs::rename(&kept, path)))?;
    }
    Ok(kept)
}
