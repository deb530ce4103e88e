//! The session's folder: the only place in this crate that touches files.
//!
//! ```text
//! lock            held by the one writer
//! 0001.jsonl …    segments; the highest complete one is current
//! inbox/<uuid>    messages from other processes, not logged yet
//! history.json    the current segment's history as one document
//! spill/<sha256>  whole texts of which the log holds a part
//! *.torn-N        bytes cut off a torn tail, kept
//! *.before-repair-N   a segment as it was before a repair
//! ```
//!
//! [`Log`] is the one writer. It writes an entry whole, then applies it to the state; what could not be written is
//! cut off again, kept in order, and written before anything else once writing works. Readers ([`read`], [`list`])
//! take no lock and change nothing.

mod file;
mod lock;
mod reading;
mod spill;
mod listing;
mod rewind;
mod inbox;
mod unfinished;
mod fork;
mod export;
mod archive;
mod repair;
mod search;
mod whole;
mod import;

use std::collections::VecDeque;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::attention::carried_text;
use crate::entry::{
    Body, Checkpoint, Entry, FORMAT, Lane, ModelChoice, Notice, NoticeKind, PROJECTION, SessionHeader, When,
    World,
};
use crate::failpoint;
use crate::history::History;
use crate::ids::{Seq, SessionId};
use crate::line;
use crate::plan::Plan;
use crate::state::SessionState;

pub use archive::{TrashError, leftovers, remove, restore, trash_dir};
pub use export::{ExportError, Exported, export, new_export_file};
#[cfg(any(test, feature = "faults"))]
pub use file::Fault;
pub use fork::{ForkError, Forked, fork};
pub use import::{ImportError, Imported, import};
pub use inbox::{LeaveError, MESSAGE_BYTES, Taken, leave_message, waiting_messages};
pub use listing::{SessionSummary, latest, list, list_trash, summarise};
pub use lock::Holder;
pub use reading::{Damage, DamageKind, Opening, ReadError, entries, read, read_segment, segment_entries};
pub use repair::{Inspection, RepairError, Repaired, SegmentFound, inspect, repair};
pub use rewind::{RewindError, RewindTo, Rewound};
pub use search::{Found, search};
pub use spill::{Spill, SpillError, SpillWriter};
pub use whole::{Passage, WholeConversation, whole_conversation};

use file::LogFile;
use lock::Lock;

/// When what is written is made to survive a loss of power. Both survive a crash of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// [`Log::sync`] waits until everything written is on the disk.
    #[default]
    Always,
    /// [`Log::sync`] leaves that to the operating system.
    Relaxed,
}

/// After how many milliseconds an entry says its time in full again, whatever its kind.
const TIME_TOLD_EVERY: u32 = 600_000;

/// The folder in which all sessions of a data directory lie.
pub fn sessions_dir(data_home: &Path) -> PathBuf {
    data_home.join("sessions")
}

/// The one writer of a session.
#[derive(Debug)]
pub struct Log {
    dir: PathBuf,
    segment: u32,
    durability: Durability,
    file: LogFile,
    state: SessionState,
    /// Entries whose write failed, in order; they have their numbers and are not applied.
    unwritten: VecDeque<Entry>,
    next_seq: Seq,
    /// The last time that this writer wrote in full, in the current segment.
    told_time: Option<jiff::Timestamp>,
    /// Folders that name something new and are not on the disk yet.
    unsynced_dirs: Vec<PathBuf>,
    _lock: Lock,
}

/// Why an entry could not be written. It is kept and will be written before any other.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    /// The file could not be written.
    #[error("cannot write the session log {}: {source}", path.display())]
    Write {
        /// The segment.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// The file could not be made durable, twice.
    #[error("cannot make the session log {} durable: {source}", path.display())]
    Sync {
        /// The segment.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// The session holds entries that only a newer version may write behind.
    #[error("the session is read-only: it holds {what}")]
    ReadOnly {
        /// What it holds, in words.
        what: String,
    },
}

/// Why a session could not be created.
#[derive(Debug, thiserror::Error)]
#[error("cannot create a session in {}: {source}", dir.display())]
pub struct CreateError {
    /// The folder that was to hold it.
    pub dir: PathBuf,
    /// What the operating system said.
    pub source: io::Error,
}

/// Why a session could not be opened for writing.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Another process writes to it.
    #[error("the session is in use by {holder}")]
    InUse {
        /// Who.
        holder: Holder,
    },
    /// Its folder or files could not be opened for writing.
    #[error("cannot open the session for writing: {}: {source}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
}

impl Log {
    /// Creates a session's folder with its first segment, which holds a header, written in one piece with `first`.
    ///
    /// # Errors
    ///
    /// If the folder or the segment cannot be written; then no segment is left behind. If the folder holds a session
    /// already, or another process holds its lock; then that session is as it was.
    pub fn create(
        data_home: &Path,
        header: SessionHeader,
        first: Vec<Body>,
        durability: Durability,
        now: jiff::Timestamp,
    ) -> Result<Log, CreateError> {
        let dir = sessions_dir(data_home).join(header.session.as_str());
        let failed = |source| CreateError { dir: dir.clone(), source };
        let new_names = new_dirs(&dir);
        private_dir(&dir).map_err(failed)?;
        let lock = Lock::acquire(&dir, now).map_err(|error| failed(error.into_io()))?;
        if reading::segments(&dir).is_ok() {
            return Err(failed(io::Error::new(io::ErrorKind::AlreadyExists, "there is a session already")));
        }
        let entries = numbered(1, std::iter::once(Body::Session(header)).chain(first), now);
        let file = write_segment(&dir, 1, &entries, durability).map_err(failed)?;
        Ok(Log {
            segment: 1,
            durability,
            file,
            next_seq: after(&entries, 1),
            state: fold(entries),
            unwritten: VecDeque::new(),
            told_time: None,
            unsynced_dirs: new_names,
            _lock: lock,
            dir,
        })
    }

    /// Opens a session to write on. A torn tail is set aside in a file of its own; nothing else is changed.
    ///
    /// # Errors
    ///
    /// If another process holds it, if no segment has a readable header, or if the files cannot be used.
    pub fn open(
        dir: &Path,
        durability: Durability,
        now: jiff::Timestamp,
    ) -> Result<(Log, Opening), OpenError> {
        // A folder that holds no session is left without a lock file.
        reading::segments(dir)?;
        let lock = Lock::acquire(dir, now).map_err(|error| error.into_open_error(dir))?;
        let reading = reading::read_to_write(dir)?;
        let path = segment_path(dir, reading.segment);
        let file = LogFile::open(&path, reading.good_len, durability)
            .map_err(|source| OpenError::Io { path: path.clone(), source })?;
        let log = Log {
            dir: dir.to_owned(),
            segment: reading.segment,
            durability,
            file,
            next_seq: reading.state.last_seq.saturating_add(1),
            told_time: None,
            state: reading.state,
            unwritten: VecDeque::new(),
            // The process before may have ended between making a file and the first sync.
            unsynced_dirs: vec![dir.to_owned()],
            _lock: lock,
        };
        Ok((log, reading.opening))
    }

    /// The state after all entries written so far.
    pub fn state(&self) -> &SessionState {
        &self.state
    }

    /// The session's folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The number of the current segment.
    pub fn segment(&self) -> u32 {
        self.segment
    }

    /// Entries that could not be written yet.
    pub fn unwritten(&self) -> usize {
        self.unwritten.len()
    }

    /// Writes an entry of the session's own lane, then applies it.
    ///
    /// # Errors
    ///
    /// If it, or one before it, cannot be written. Then nothing half-written remains, the state is as it was, and the
    /// entry is written, in order, before the next one.
    pub fn append(&mut self, body: Body, now: jiff::Timestamp) -> Result<Seq, AppendError> {
        self.append_in(Lane::Main, body, now)
    }

    /// Writes an entry of any lane, as [`Log::append`] does.
    ///
    /// # Errors
    ///
    /// As [`Log::append`].
    pub fn append_in(&mut self, lane: Lane, body: Body, now: jiff::Timestamp) -> Result<Seq, AppendError> {
        self.check_writable()?;
        self.raise_format(now);
        let seq = self.enqueue(lane, body, now);
        self.write_waiting()?;
        Ok(seq)
    }

    /// Says in a segment that an older version began that what follows is of this format. A version that reads only the
    /// older one then leaves the session as it is.
    fn raise_format(&mut self, now: jiff::Timestamp) {
        // Behind a header that cannot be read it would stand for that one, and hide the segments before.
        let is_older = |header: &SessionHeader| header.format < FORMAT && header.segment == self.segment;
        if self.unwritten.is_empty()
            && let Some(header) = self.state.header.as_ref().filter(|header| is_older(header)).cloned()
        {
            self.enqueue(Lane::Main, Body::Session(SessionHeader { format: FORMAT, ..header }), now);
        }
    }

    fn enqueue(&mut self, lane: Lane, mut body: Body, now: jiff::Timestamp) -> Seq {
        self.shorten_paths(&mut body);
        let seq = self.next_seq;
        self.next_seq = self.next_seq.saturating_add(1);
        let ts = self.when(&body, to_millis(now));
        self.unwritten.push_back(Entry { seq, ts, lane, body });
        seq
    }

    /// Names the files of a result from the workspace, where the fold will take them from.
    fn shorten_paths(&self, body: &mut Body) {
        if let (Body::ToolResult(result), Some(header), true) =
            (body, &self.state.header, self.unwritten.is_empty())
        {
            for file in &mut result.referenced_files {
                file.path = file.path.below(&header.cwd).unwrap_or_else(|| file.path.seen_from(&header.cwd));
            }
        }
    }

    /// The time as the next entry says it: the kinds that come most often count from the last that said it in full.
    fn when(&mut self, body: &Body, now: jiff::Timestamp) -> When {
        let is_frequent = matches!(body, Body::Answer(_) | Body::ToolIntent(_) | Body::ToolResult(_));
        let passed = |told: jiff::Timestamp| u32::try_from(now.as_millisecond() - told.as_millisecond()).ok();
        match self.told_time.filter(|_| is_frequent).and_then(passed).filter(|ms| *ms < TIME_TOLD_EVERY) {
            Some(ms) => When::After(ms),
            None => {
                self.told_time = Some(now);
                When::At(now)
            }
        }
    }

    /// Waits until everything written is on the disk, under [`Durability::Always`].
    ///
    /// # Errors
    ///
    /// If waiting entries cannot be written, or the disk fails twice.
    pub fn sync(&mut self) -> Result<(), AppendError> {
        self.write_waiting()?;
        if self.durability == Durability::Relaxed {
            return Ok(());
        }
        let path = segment_path(&self.dir, self.segment);
        self.file.sync().map_err(|source| AppendError::Sync { path: path.clone(), source })?;
        for dir in &self.unsynced_dirs {
            sync_folder(dir, "folder.sync")
                .map_err(|source| AppendError::Sync { path: dir.clone(), source })?;
        }
        self.unsynced_dirs.clear();
        Ok(())
    }

    /// Starts the next segment from a checkpoint, in one piece: whatever happens, either the old segment is current or
    /// the new one is, whole.
    ///
    /// The checkpoint's unfinished plan items stand in one notice of their own behind it; there is none if all are
    /// finished. `rest` follows.
    ///
    /// # Errors
    ///
    /// If what the old segment waits for, or the new one, cannot be written or made durable; then the old one goes on.
    pub fn next_segment(
        &mut self,
        opening: NextSegment,
        rest: Vec<Body>,
        now: jiff::Timestamp,
    ) -> Result<(), AppendError> {
        let carried = carried_notice(&opening.checkpoint.plan);
        self.start_segment(opening, carried.into_iter().chain(rest), now)
    }

    /// Starts the next segment with its opening and `rest`.
    fn start_segment(
        &mut self,
        opening: NextSegment,
        rest: impl Iterator<Item = Body>,
        now: jiff::Timestamp,
    ) -> Result<(), AppendError> {
        self.check_writable()?;
        // Undoing a compaction reads the old segment, so all of that is on the disk before it stops being current.
        self.sync()?;
        let segment = self.segment + 1;
        let checkpoint = self.state.with_what_runs_beside(opening.checkpoint);
        let bodies = [
            Body::Session(SessionHeader {
                segment,
                format: FORMAT,
                projection: PROJECTION,
                ..opening.header
            }),
            Body::World(opening.world),
            Body::Model(opening.model),
            Body::Checkpoint(Box::new(checkpoint)),
        ];
        let entries = numbered(self.next_seq, bodies.into_iter().chain(rest), now);
        self.file = write_segment(&self.dir, segment, &entries, self.durability)
            .map_err(|source| AppendError::Write { path: segment_path(&self.dir, segment), source })?;
        self.unsynced_dirs = vec![self.dir.clone()];
        self.told_time = None;
        self.segment = segment;
        self.next_seq = after(&entries, self.next_seq);
        self.state = fold(entries);
        Ok(())
    }

    /// What is kept whole beside the log.
    pub fn spill(&self) -> Spill {
        Spill::of_session(&self.dir, self.durability)
    }

    /// Writes `history.json` anew, in one piece.
    ///
    /// # Errors
    ///
    /// If it cannot be written, or the session is read-only. The log is not touched; the document can always be made
    /// again.
    pub fn write_history(&self) -> Result<(), AppendError> {
        self.check_writable()?;
        let path = self.dir.join("history.json");
        let write = || -> io::Result<()> {
            let document = serde_json::to_vec(&History::of(&self.state))?;
            replace_file(&path, &document)
        };
        write().map_err(|source| AppendError::Write { path: path.clone(), source })
    }

    /// Makes the next write or sync fail as a broken disk would.
    #[cfg(any(test, feature = "faults"))]
    pub fn inject(&mut self, fault: Fault) {
        self.file.inject(fault);
    }

    /// Checks that this build may write to the session.
    ///
    /// # Errors
    ///
    /// If it holds what only a newer version may write behind.
    pub fn check_writable(&self) -> Result<(), AppendError> {
        match &self.state.must {
            Some(what) => Err(AppendError::ReadOnly { what: what.clone() }),
            None => Ok(()),
        }
    }

    fn write_waiting(&mut self) -> Result<(), AppendError> {
        while let Some(entry) = self.unwritten.front() {
            let write = |file: &mut LogFile| -> io::Result<()> { file.append(&line::encode(entry)?) };
            write(&mut self.file).map_err(|source| AppendError::Write {
                path: segment_path(&self.dir, self.segment),
                source,
            })?;
            if let Some(entry) = self.unwritten.pop_front() {
                self.state.take(entry);
            }
        }
        Ok(())
    }
}

/// With what a next segment opens.
#[derive(Clone, Debug)]
pub struct NextSegment {
    /// The header; its segment, format and projection are set by the log.
    pub header: SessionHeader,
    /// The world as it is now.
    pub world: World,
    /// Which model answers.
    pub model: ModelChoice,
    /// What the old segment hands on.
    pub checkpoint: Checkpoint,
}

/// Where the folder of a session lies.
pub fn session_dir(data_home: &Path, id: &SessionId) -> PathBuf {
    sessions_dir(data_home).join(id.as_str())
}

fn carried_notice(plan: &Plan) -> Option<Body> {
    carried_text(plan).map(|text| Body::Notice(Notice { about: NoticeKind::PlanCarried, text }))
}

fn segment_path(dir: &Path, segment: u32) -> PathBuf {
    dir.join(format!("{segment:04}.jsonl"))
}

/// The log's times have milliseconds, so that an entry in memory equals the one read back.
fn to_millis(now: jiff::Timestamp) -> jiff::Timestamp {
    jiff::Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now)
}

fn numbered(first: Seq, bodies: impl Iterator<Item = Body>, now: jiff::Timestamp) -> Vec<Entry> {
    let ts = When::At(to_millis(now));
    (first..).zip(bodies).map(|(seq, body)| Entry { seq, ts, lane: Lane::Main, body }).collect()
}

fn after(entries: &[Entry], otherwise: Seq) -> Seq {
    entries.last().map_or(otherwise, |entry| entry.seq + 1)
}

fn fold(entries: Vec<Entry>) -> SessionState {
    let mut state = SessionState::default();
    entries.into_iter().for_each(|entry| state.take(entry));
    state
}

/// Writes a whole segment beside its place and moves it there. Once it is there, nothing fails any more.
///
/// The first segment is made durable by the first sync; a later one before it replaces the one that holds everything.
fn write_segment(dir: &Path, segment: u32, entries: &[Entry], durability: Durability) -> io::Result<LogFile> {
    let mut bytes = Vec::new();
    for entry in entries {
        bytes.extend_from_slice(&line::encode(entry)?);
    }
    let path = segment_path(dir, segment);
    let unfinished = path.with_extension("jsonl.new");
    let write = || -> io::Result<LogFile> {
        let mut file = LogFile::create(&unfinished, &bytes, durability)?;
        if segment > 1 {
            file.sync()?;
        }
        file.rename(&path)?;
        Ok(file)
    };
    write().inspect_err(|_| {
        // What is left of the attempt is of no use; that it cannot be removed either changes nothing.
        let _ = fs::remove_file(&unfinished);
    })
}

fn private_dir(path: &Path) -> io::Result<()> {
    failpoint::pass("folder.make")?;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Makes a folder in one that is there: a session's folder that vanished is not made anew.
fn private_subdir(path: &Path) -> io::Result<()> {
    failpoint::pass("folder.make")?;
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// Moves a file to its place.
fn rename(from: &Path, to: &Path, place: &str) -> io::Result<()> {
    failpoint::pass(place)?;
    fs::rename(from, to)
}

/// Waits until the names in a folder are on the disk.
fn sync_folder(folder: &Path, place: &str) -> io::Result<()> {
    failpoint::pass(place)?;
    fs::File::open(folder)?.sync_all()
}

/// A new empty file that only the user can read.
fn private_file(path: &Path) -> io::Result<fs::File> {
    fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}

fn write_private(path: &Path, bytes: &[u8], sync: bool, place: &str) -> io::Result<()> {
    let mut file = private_file(path)?;
    failpoint::write(place, bytes, |_, part| file.write_all(part))?;
    if !sync {
        return Ok(());
    }
    failpoint::pass("copy.sync")?;
    file.sync_data()
}

fn replace_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut unfinished = path.to_owned().into_os_string();
    unfinished.push(".new");
    let unfinished = PathBuf::from(unfinished);
    let written = write_private(&unfinished, bytes, false, "history.write")
        .and_then(|()| rename(&unfinished, path, "history.rename"));
    if written.is_err() {
        // What is left of the attempt is of no use; that it cannot be removed either changes nothing.
        let _ = fs::remove_file(&unfinished);
    }
    written
}

/// The folders that will name something new once `dir` is there: a new file outlives a loss of power only if they do.
fn new_dirs(dir: &Path) -> Vec<PathBuf> {
    let is_missing = |path: &&Path| !path.exists();
    let missing = dir.ancestors().take_while(is_missing);
    // What a relative path begins in has no name there.
    let named = |dir: &Path| if dir.as_os_str().is_empty() { PathBuf::from(".") } else { dir.to_owned() };
    std::iter::once(dir).chain(missing.filter_map(Path::parent)).map(named).collect()
}
