//! The sessions of a data directory, each from the head and the tail of its log.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::archive::trash_dir;
use super::lock::HeldLocks;
use super::reading::{first_entry, read, segments};
use super::{segment_path, session_dir, sessions_dir};
use crate::entry::{Body, Clock, Entry, StopReason, Totals, TurnEnd};
use crate::ids::SessionId;
use crate::line;
use crate::message::FilePath;

/// How much of a log's head and tail is read.
const PART: u64 = 64 << 10;
/// How much of its tail is read first.
const SMALL_PART: u64 = 4 << 10;

/// A session as a list shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionSummary {
    /// Its id.
    pub id: SessionId,
    /// Its folder.
    pub dir: PathBuf,
    /// The workspace; none if its header cannot be read.
    pub cwd: Option<FilePath>,
    /// Whether another session started it.
    pub is_child: bool,
    /// Whether its user said anything, also where the session went back before it since.
    pub has_prompt: bool,
    /// When it was created.
    pub created: Option<jiff::Timestamp>,
    /// When its last entry was written.
    pub last: Option<jiff::Timestamp>,
    /// The beginning of its first prompt.
    pub title: String,
    /// How many turns have begun.
    pub turns: u64,
    /// Completed items of the plan.
    pub plan_completed: u32,
    /// All items of the plan.
    pub plan_total: u32,
    /// What it has used.
    pub totals: Totals,
    /// The beginning of its last answer.
    pub last_words: String,
    /// Whether its last turn has no end and no process goes on with it, or was cut short and none has begun since.
    pub is_interrupted: bool,
    /// Whether a process has it open to write.
    pub is_running: bool,
}

/// Lists all sessions, the one with the newest entry first. What cannot be read is listed with what is known of it; a
/// folder without a log is no session.
///
/// # Errors
///
/// If the folder of sessions exists and cannot be read.
pub fn list(data_home: &Path) -> io::Result<Vec<SessionSummary>> {
    list_folder(&sessions_dir(data_home))
}

/// Lists the sessions in the trash, as [`list`] does.
///
/// # Errors
///
/// If the trash exists and cannot be read.
pub fn list_trash(data_home: &Path) -> io::Result<Vec<SessionSummary>> {
    list_folder(&trash_dir(data_home))
}

fn list_folder(folder: &Path) -> io::Result<Vec<SessionSummary>> {
    let held = HeldLocks::now();
    let mut found: Vec<SessionSummary> = ids(folder)?
        .into_iter()
        .map(|id| (folder.join(id.as_str()), id))
        .filter_map(|(dir, id)| segments(&dir).ok().map(|numbers| sum_up(&dir, id, &held, &numbers)))
        .collect();
    found.sort_by(|a, b| (b.last, &b.id).cmp(&(a.last, &a.id)));
    Ok(found)
}

/// The sessions that were begun last, at most `most` of them, the last one first.
///
/// # Errors
///
/// If the folder of sessions exists and cannot be read.
pub fn latest(data_home: &Path, most: usize) -> io::Result<Vec<SessionSummary>> {
    let mut ids = ids(&sessions_dir(data_home))?;
    // An id begins with the time of creation.
    ids.sort_unstable_by(|a, b| b.cmp(a));
    ids.truncate(most);
    let held = HeldLocks::now();
    let sum_up = |id: SessionId| {
        let dir = session_dir(data_home, &id);
        let numbers = segments(&dir).unwrap_or_default();
        sum_up(&dir, id, &held, &numbers)
    };
    Ok(ids.into_iter().map(sum_up).collect())
}

fn ids(folder: &Path) -> io::Result<Vec<SessionId>> {
    match fs::read_dir(folder) {
        Ok(folders) => {
            let id = |folder: fs::DirEntry| folder.file_name().to_str()?.parse().ok();
            Ok(folders.filter_map(Result::ok).filter_map(id).collect())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Sums up one session.
pub fn summarise(dir: &Path, id: SessionId) -> SessionSummary {
    sum_up(dir, id, &HeldLocks::now(), &segments(dir).unwrap_or_default())
}

/// `numbers` are those of its segments.
fn sum_up(dir: &Path, id: SessionId, held: &HeldLocks, numbers: &[u32]) -> SessionSummary {
    let mut summary = SessionSummary {
        id,
        dir: dir.to_owned(),
        cwd: None,
        is_child: false,
        has_prompt: false,
        created: None,
        last: None,
        title: String::new(),
        turns: 0,
        plan_completed: 0,
        plan_total: 0,
        totals: Totals::default(),
        last_words: String::new(),
        is_interrupted: false,
        is_running: held.hold(dir),
    };
    let (Some(&first), Some(&last)) = (numbers.first(), numbers.last()) else { return summary };
    let mut clock = Clock::default();
    for entry in head(&segment_path(dir, first)) {
        summary.take_head(&entry, clock.read(entry.ts));
    }
    if first != last
        && let Ok(Some(Entry { body: Body::Session(header), .. })) = first_entry(dir, last)
    {
        summary.cwd = Some(header.cwd);
    }
    summary.take_tail(&tail(&segment_path(dir, last)));
    summary
}

impl SessionSummary {
    fn take_head(&mut self, entry: &Entry, ts: Option<jiff::Timestamp>) {
        self.created = self.created.or(ts);
        self.last = self.last.max(ts);
        if let (Body::Session(header), None) = (&entry.body, &self.cwd) {
            self.cwd = Some(header.cwd.clone());
            self.is_child = header.child;
        }
    }

    fn take_tail(&mut self, entries: &[Entry]) {
        let mut clock = Clock::default();
        self.last = entries.iter().fold(self.last, |last, entry| last.max(clock.read(entry.ts)));
        let end = entries.iter().enumerate().rev().find_map(|(place, entry)| match &entry.body {
            Body::TurnEnd(turn) => Some((place, turn)),
            _ => None,
        });
        match end {
            Some((place, turn)) if !entries[place + 1..].iter().any(begins_or_continues_a_turn) => {
                self.has_prompt = true;
                self.take_end(turn.clone());
            }
            // A turn without an end, and a segment without a turn, say nothing of themselves for a list.
            Some(_) | None => self.take_whole(),
        }
    }

    /// Reads the current segment as a whole.
    fn take_whole(&mut self) {
        let Ok((state, opening)) = read(&self.dir) else { return };
        self.last = self.last.max(opening.written);
        // One that went back before its first turn has had turns, and can return to them.
        self.has_prompt |= state.turns > 0 || state.branch.is_some();
        if let Some(header) = &state.header {
            self.cwd = Some(header.cwd.clone());
            self.is_child = header.child;
        }
        self.take_end(TurnEnd { cut_short: state.turn_is_open, ..state.turn_end(StopReason::Error, None) });
    }

    fn take_end(&mut self, end: TurnEnd) {
        if end.cwd.is_some() {
            self.cwd = end.cwd;
        }
        self.title = end.title;
        self.turns = end.turns;
        self.plan_completed = end.plan_completed;
        self.plan_total = end.plan_total;
        self.totals = end.totals;
        self.last_words = end.last_words;
        self.is_interrupted = end.cut_short && !self.is_running;
    }
}

fn begins_or_continues_a_turn(entry: &Entry) -> bool {
    match entry.body {
        Body::UserPrompt(_)
        | Body::Answer(_)
        | Body::ToolIntent(_)
        | Body::ToolResult(_)
        | Body::Notice(_)
        | Body::Rewind(_) => true,
        Body::Session(_)
        | Body::World(_)
        | Body::Checkpoint(_)
        | Body::Model(_)
        | Body::Inbox(_)
        | Body::Grant(_)
        | Body::Compaction(_)
        | Body::ReasoningRefused(_)
        | Body::TurnEnd(_)
        | Body::Lost(_)
        | Body::Unknown(_) => false,
    }
}

/// The entries up to the segment's header, if that stands in its first part: most have it on their first line.
fn head(path: &Path) -> Vec<Entry> {
    let mut entries = Vec::new();
    let mut read = || -> io::Result<()> {
        let mut reader = BufReader::with_capacity(4 << 10, File::open(path)?.take(PART));
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line)? > 0 {
            if let Some(Ok(entry)) = line.strip_suffix(b"\n").map(line::decode) {
                entries.push(entry);
            }
            if matches!(entries.last(), Some(Entry { body: Body::Session(_), .. })) {
                break;
            }
            line.clear();
        }
        Ok(())
    };
    // Of what cannot be read the entries before it are known.
    let _ = read();
    entries
}

/// The entries at the file's end, from the last end of a turn on, if that stands in the last part: of most it does in a
/// small one. The first line of a part may be the end of a longer one, which is not an entry.
fn tail(path: &Path) -> Vec<Entry> {
    let read = |part: u64| -> io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let len = file.metadata()?.len();
        file.seek(SeekFrom::Start(len.saturating_sub(part)))?;
        let mut bytes = Vec::with_capacity(usize::try_from(len.min(part)).unwrap_or_default() + 1);
        file.take(part).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    for part in [SMALL_PART, PART] {
        let Ok(bytes) = read(part) else { break };
        let entries = from_last_end(&bytes);
        if matches!(entries.first(), Some(Entry { body: Body::TurnEnd(_), .. })) {
            return entries;
        }
    }
    Vec::new()
}

/// The entries from the last end of a turn on, or all if there is none.
fn from_last_end(bytes: &[u8]) -> Vec<Entry> {
    let mut entries = Vec::new();
    for line in bytes.rsplit(|byte| *byte == b'\n') {
        if let Ok(entry) = line::decode(line) {
            let is_end = matches!(entry.body, Body::TurnEnd(_));
            entries.push(entry);
            if is_end {
                break;
            }
        }
    }
    entries.reverse();
    entries
}
