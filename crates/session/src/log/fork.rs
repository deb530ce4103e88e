//! A copy of a session up to the end of a turn, which goes on as a session of its own.
//!
//! What lies before the segment that is cut is never written again, so it is shared by hard links, as are the whole texts
//! beside the log; only the cut segment is copied. Where a file system has no links, all is copied. The copy is made
//! beside its place and renamed, so it is there whole or not at all.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::rewind::border;
use super::unfinished::Unfinished;
use super::{ReadError, RewindError, private_dir, private_file, reading, segment_path, session_dir};
use crate::entry::{Body, Entry, Parent, SessionHeader};
use crate::failpoint;
use crate::ids::{Seq, SessionId};
use crate::line;

/// A session that was made from another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forked {
    /// Its id.
    pub id: SessionId,
    /// Its folder.
    pub dir: PathBuf,
    /// The last entry that both share.
    pub seq: Seq,
    /// How many turns it has.
    pub turn: u64,
}

/// Why a session could not be forked.
#[derive(Debug, thiserror::Error)]
pub enum ForkError {
    /// There is no such turn, or what is asked for is damaged.
    #[error(transparent)]
    Where(#[from] RewindError),
    /// The session could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// It cannot be copied without what only a newer version knows.
    #[error("the session holds {what}")]
    Newer {
        /// What it holds, in words.
        what: String,
    },
    /// The segment that is to be cut has no header that can be read.
    #[error("the header of {} cannot be read", path.display())]
    NoHeader {
        /// The segment.
        path: PathBuf,
    },
    /// The copy could not be made. Nothing is left of it.
    #[error("cannot make the fork in {}: {source}", path.display())]
    Write {
        /// The folder that was to hold it.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
}

/// Forks the session in `dir` at the end of a turn of the branch that it is on, or, without one, as it is now. No lock is
/// taken and nothing of it is changed; a process may work on it meanwhile.
///
/// # Errors
///
/// If there is no such turn, the session cannot be read, or the copy cannot be made.
pub fn fork(
    data_home: &Path,
    dir: &Path,
    id: SessionId,
    turn: Option<u64>,
    now: jiff::Timestamp,
) -> Result<Forked, ForkError> {
    fork_with(data_home, dir, id, turn, now, |from, to| fs::hard_link(from, to))
}

fn fork_with(
    data_home: &Path,
    dir: &Path,
    id: SessionId,
    turn: Option<u64>,
    now: jiff::Timestamp,
    link: impl Fn(&Path, &Path) -> io::Result<()>,
) -> Result<Forked, ForkError> {
    let (state, _) = reading::read(dir)?;
    if let Some(what) = state.must.clone() {
        return Err(ForkError::Newer { what });
    }
    let (seq, turn) = match turn {
        None => (state.last_seq, state.turns),
        Some(turn) => {
            let target = border(dir, &state, turn)?;
            (target.seq, target.turn)
        }
    };
    let segment = reading::segment_of(dir, seq)?;
    let header = new_header(dir, segment, &id, seq)?;
    let failed = |source| ForkError::Write { path: session_dir(data_home, &id), source };
    let place = Unfinished::create(data_home, &format!("fork-{id}")).map_err(failed)?;
    let make = || -> io::Result<PathBuf> {
        for earlier in reading::segments(dir).map_err(io::Error::other)?.into_iter().filter(|n| *n < segment)
        {
            share(&segment_path(dir, earlier), &segment_path(&place.dir, earlier), &link)?;
        }
        share_spill(dir, &place.dir, &link)?;
        copy_cut(dir, &place.dir, segment, seq, &Entry { ts: now.into(), ..header })?;
        place.finish(&session_dir(data_home, &id))
    };
    let dir = make().map_err(failed)?;
    Ok(Forked { id, dir, seq, turn })
}

/// The header of the cut segment, for the fork.
fn new_header(dir: &Path, segment: u32, id: &SessionId, seq: Seq) -> Result<Entry, ForkError> {
    match reading::first_entry(dir, segment)? {
        Some(entry) => match entry.body {
            Body::Session(header) => {
                let parent = Some(Parent { session: header.session.clone(), seq });
                let header = SessionHeader { session: id.clone(), parent, child: false, ..header };
                Ok(Entry { body: Body::Session(header), ..entry })
            }
            _ => Err(ForkError::NoHeader { path: segment_path(dir, segment) }),
        },
        None => Err(ForkError::NoHeader { path: segment_path(dir, segment) }),
    }
}

/// Puts the same bytes in another place: the same file where there can be links, a copy elsewhere.
fn share(from: &Path, to: &Path, link: &impl Fn(&Path, &Path) -> io::Result<()>) -> io::Result<()> {
    failpoint::pass("fork.link")?;
    if link(from, to).is_ok() {
        return Ok(());
    }
    let mut file = private_file(to)?;
    failpoint::pass("fork.copy")?;
    io::copy(&mut fs::File::open(from)?, &mut file)?;
    file.sync_all()
}

fn share_spill(from: &Path, to: &Path, link: &impl Fn(&Path, &Path) -> io::Result<()>) -> io::Result<()> {
    let (from, to) = (from.join("spill"), to.join("spill"));
    let names = match fs::read_dir(&from) {
        Ok(names) => names,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    private_dir(&to)?;
    for name in names {
        let name = name?.file_name();
        // Anything else is being written, and named by no entry yet.
        if Path::new(&name).extension().is_none() {
            share(&from.join(&name), &to.join(&name), link)?;
        }
    }
    Ok(())
}

/// Copies a segment up to an entry, each line as it is but the header.
fn copy_cut(from: &Path, to: &Path, segment: u32, seq: Seq, header: &Entry) -> io::Result<()> {
    let mut file = BufWriter::new(private_file(&segment_path(to, segment))?);
    let mut written = Ok(());
    let mut is_cut = false;
    reading::for_each_line(&segment_path(from, segment), |line| {
        if is_cut || written.is_err() {
            return;
        }
        let entry = line::decode(line).ok();
        is_cut = entry.as_ref().is_some_and(|entry| entry.seq >= seq);
        written = match entry.and_then(|entry| renamed(entry, header)) {
            Some(entry) => {
                line::encode(&entry).map_err(io::Error::from).and_then(|line| file.write_all(&line))
            }
            None => file.write_all(line).and_then(|()| file.write_all(b"\n")),
        };
    })?;
    written?;
    failpoint::pass("fork.sync")?;
    file.into_inner()?.sync_all()
}

/// A header of the session before as the fork has it; a segment that a newer version went on with has two. None for every
/// other entry.
fn renamed(entry: Entry, header: &Entry) -> Option<Entry> {
    match (&entry.body, &header.body) {
        (Body::Session(_), _) if entry.seq == header.seq => Some(header.clone()),
        (Body::Session(later), Body::Session(first)) => Some(Entry {
            body: Body::Session(SessionHeader { format: later.format, ..first.clone() }),
            ..entry
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use crate::entry::{FORMAT, ModelChoice, PROJECTION, UserPrompt, World};
    use crate::log::{Durability, Log, NextSegment, read};
    use crate::message::FilePath;

    type Link = dyn Fn(&Path, &Path) -> io::Result<()>;

    /// Where links cannot be made, the same session comes into being by copies.
    #[test]
    fn without_links_all_is_copied() {
        let now: jiff::Timestamp = "2026-11-30T09:00:00Z".parse().unwrap();
        let home = tempfile::tempdir().unwrap();
        let header = SessionHeader {
            format: FORMAT,
            projection: PROJECTION,
            session: SessionId::new(now, [1; 10]),
            segment: 1,
            cwd: FilePath("/work".into()),
            parent: None,
            child: false,
            program: String::new(),
        };
        let model =
            ModelChoice { model: "a/b".to_owned(), api: "x".to_owned(), context_window: 9, effort: None };
        let opening = vec![Body::World(World::default()), Body::Model(model.clone())];
        let mut log = Log::create(home.path(), header.clone(), opening, Durability::Relaxed, now).unwrap();
        let text = "hello".to_owned();
        let prompt = UserPrompt { text, spill: None, images: Vec::new(), steering: false, inbox: None };
        log.append(Body::UserPrompt(prompt), now).unwrap();
        let hash = log.spill().store(b"whole").unwrap();
        let checkpoint = log.state().checkpoint(Vec::new());
        let next = NextSegment { header, world: World::default(), model, checkpoint };
        log.next_segment(next, Vec::new(), now).unwrap();
        let refused = |_: &Path, _: &Path| Err(io::Error::from(io::ErrorKind::CrossesDevices));
        let links: [&Link; 2] = [&refused, &|from, to| fs::hard_link(from, to)];
        for (number, link) in links.into_iter().enumerate() {
            let id = SessionId::new(now, [u8::try_from(number).unwrap() + 2; 10]);
            let forked = fork_with(home.path(), log.dir(), id, None, now, link).unwrap();
            for name in ["0001.jsonl".to_owned(), format!("spill/{}", hash.as_str())] {
                let (ours, theirs) = (log.dir().join(&name), forked.dir.join(&name));
                assert_eq!(fs::read(&ours).unwrap(), fs::read(&theirs).unwrap());
                let is_shared = fs::metadata(ours).unwrap().ino() == fs::metadata(theirs).unwrap().ino();
                assert_eq!(is_shared, number == 1, "{name}");
            }
            assert_eq!(read(&forked.dir).unwrap().0.history, log.state().history);
        }
    }
}
