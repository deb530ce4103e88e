//! Takes back what tools changed in files, as far as the files still are what the tools wrote.
//!
//! The log says what each call changed, and the spill holds what was there before. Nothing is logged: the file is then
//! another than the model knows, and the next turn tells it so. What was taken back already is found by what the file
//! holds. All files are put back, or none is touched.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use mainstay_session::entry::Body;
use mainstay_session::ids::Seq;
use mainstay_session::log::{Durability, Log, OpenError, ReadError, Spill, entries, read};
use mainstay_session::message::{ContentHash, FileChange, FilePath};
use mainstay_tools::ToolError;
use mainstay_tools::put_back::{hash_now, put_back};

/// A file that was put back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undone {
    /// Where it lies.
    pub path: FilePath,
    /// Whether it was made by a tool and is gone now.
    pub is_removed: bool,
    /// The entry of the first change that was taken back.
    pub since: Seq,
}

/// Why nothing was taken back, or not all.
#[derive(Debug, thiserror::Error)]
pub enum UndoError {
    /// The session cannot be opened, or another process works on it.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The log cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The log does not reach so far.
    #[error("there is no entry {seq} in the log; its last is {last}")]
    NoSuchEntry {
        /// The entry that was asked for.
        seq: Seq,
        /// The last that there is.
        last: Seq,
    },
    /// No change of a file is in effect.
    #[error("no change of a file is left to take back")]
    Nothing,
    /// Files are no longer what the tools wrote; nothing was changed.
    #[error("nothing was changed: {}", .0.join("; "))]
    Conflicts(
        /// What is wrong with each.
        Vec<String>,
    ),
    /// A file could not be written, after others were put back.
    #[error("{} could not be put back: {why}", path.display())]
    Write {
        /// Which.
        path: PathBuf,
        /// What happened.
        why: String,
        /// Those that were put back before.
        done: Vec<Undone>,
    },
}

/// A change as the log tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The entry that tells of it.
    pub seq: Seq,
    /// How many turns had ended before it.
    pub turn: u64,
    /// What was changed.
    pub change: FileChange,
}

/// What became of a change, by what the file holds now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The file holds it, or a later change made on top of it.
    InEffect,
    /// It was taken back.
    TakenBack,
    /// The file holds something that no tool of this session left there, or cannot be read.
    Unknown,
}

/// What is to be done with one file.
#[derive(Debug, PartialEq, Eq)]
enum Course {
    /// It holds what it held before.
    IsBack,
    /// It becomes what it was before the first of its changes.
    PutBack { now: Option<ContentHash>, then: Option<ContentHash>, since: Seq },
    /// It holds something that none of the changes left.
    Conflict,
}

/// Takes back the file changes of the session in `dir` that stand behind the entry `to`; without `to`, those of the last
/// turn of which any is in effect.
///
/// # Errors
///
/// If a file is no longer what was written, if there is no entry `to`, if the session is in use, or if something cannot be
/// read or written.
pub fn undo(dir: &Path, to: Option<Seq>, now: jiff::Timestamp) -> Result<Vec<Undone>, UndoError> {
    // Held until the end, so that no agent works on the files meanwhile.
    let (log, _) = Log::open(dir, Durability::Relaxed, now)?;
    let last = log.state().last_seq;
    if let Some(seq) = to.filter(|seq| *seq > last) {
        return Err(UndoError::NoSuchEntry { seq, last });
    }
    let workspace = log.state().header.as_ref().map(|header| header.cwd.0.clone()).unwrap_or_default();
    let changes = changes(dir)?;
    match to {
        Some(seq) => take_back(&workspace, &log.spill(), &changes, |change| change.seq > seq),
        None => {
            let mut turns: Vec<u64> = changes.iter().map(|change| change.turn).collect();
            turns.dedup();
            for turn in turns.into_iter().rev() {
                match take_back(&workspace, &log.spill(), &changes, |change| change.turn >= turn) {
                    Err(UndoError::Nothing) => {}
                    other => return other,
                }
            }
            Err(UndoError::Nothing)
        }
    }
}

/// All that tools changed in files in the session in `dir`, in order, whether or not it was taken back since.
///
/// # Errors
///
/// If the log cannot be read.
pub fn changes(dir: &Path) -> Result<Vec<Change>, ReadError> {
    let mut changes = Vec::new();
    let mut turn = 0;
    entries(dir, |_, entry| match entry.map(|entry| (entry.seq, entry.body)) {
        Ok((seq, Body::ToolResult(result))) => {
            changes.extend(result.changes.into_iter().map(|change| Change { seq, turn, change }));
        }
        Ok((_, Body::TurnEnd(_))) => turn += 1,
        Ok(_) | Err(_) => {}
    })?;
    Ok(changes)
}

/// All changes, as [`changes`] gives them, each with what became of it.
///
/// # Errors
///
/// If the log cannot be read.
pub fn standings(dir: &Path) -> Result<Vec<(Change, Standing)>, ReadError> {
    let workspace = read(dir)?.0.header.map(|header| header.cwd.0).unwrap_or_default();
    let all = changes(dir)?;
    let mut by_file: BTreeMap<FilePath, Vec<FileChange>> = BTreeMap::new();
    for Change { change, .. } in &all {
        by_file.entry(change.path.clone()).or_default().push(change.clone());
    }
    let mut standings: BTreeMap<FilePath, _> = by_file
        .into_iter()
        .map(|(path, changes)| {
            let standing = match hash_now(&workspace, path.as_path()) {
                Ok(now) => standing(now.as_ref(), &changes),
                Err(_unreadable) => vec![Standing::Unknown; changes.len()],
            };
            (path, standing.into_iter())
        })
        .collect();
    let next = |change: Change| {
        let standing = standings.get_mut(&change.change.path).and_then(Iterator::next);
        (change, standing.unwrap_or(Standing::Unknown))
    };
    Ok(all.into_iter().map(next).collect())
}

/// What became of the changes of one file that holds `now`.
fn standing(now: Option<&ContentHash>, changes: &[FileChange]) -> Vec<Standing> {
    let kept = changes.iter().rposition(|change| now == Some(&change.after)).map(|last| last + 1);
    let taken_back = kept.or_else(|| changes.iter().position(|change| change.before.as_ref() == now));
    let standing = |place: usize| match (kept, taken_back) {
        (Some(kept), _) if place < kept => Standing::InEffect,
        (_, Some(first)) if place >= first => Standing::TakenBack,
        (Some(_) | None, Some(_) | None) => Standing::Unknown,
    };
    (0..changes.len()).map(standing).collect()
}

/// Takes back the last of all changes, those that are chosen.
fn take_back(
    workspace: &Path,
    spill: &Spill,
    changes: &[Change],
    is_chosen: impl Fn(&Change) -> bool,
) -> Result<Vec<Undone>, UndoError> {
    let mut by_file: BTreeMap<&FilePath, Vec<&Change>> = BTreeMap::new();
    for change in changes {
        by_file.entry(&change.change.path).or_default().push(change);
    }
    by_file.retain(|_, changes| changes.last().is_some_and(|last| is_chosen(last)));
    let mut conflicts = Vec::new();
    let mut work = Vec::new();
    for (path, changes) in by_file {
        let from = changes.iter().position(|change| is_chosen(change)).unwrap_or(0);
        let course = hash_now(workspace, path.as_path()).map(|now| course(now, &changes, from));
        match course.and_then(|course| Ok((load(spill, &course)?, course))) {
            Ok((_, Course::IsBack)) => {}
            Ok((bytes, Course::PutBack { now, since, .. })) => work.push((path, now, bytes, since)),
            Ok((_, Course::Conflict)) => {
                conflicts.push(format!("{path} is no longer what was written into it"));
            }
            Err(error) => conflicts.push(error.summary),
        }
    }
    if !conflicts.is_empty() {
        return Err(UndoError::Conflicts(conflicts));
    }
    if work.is_empty() {
        return Err(UndoError::Nothing);
    }
    let mut done = Vec::new();
    for (path, now, bytes, since) in work {
        if let Err(error) = put_back(workspace, path.as_path(), now.as_ref(), bytes.as_deref()) {
            return Err(UndoError::Write { path: path.0.clone(), why: error.summary, done });
        }
        done.push(Undone { path: path.clone(), is_removed: bytes.is_none(), since });
    }
    Ok(done)
}

/// Walks back from the last change whose outcome the file holds to the one at `from`; those behind it were taken back
/// already.
fn course(now: Option<ContentHash>, changes: &[&Change], from: usize) -> Course {
    let holds = |change: &&Change| now.as_ref() == Some(&change.change.after);
    let last = changes.iter().rposition(holds);
    let Some(last) = last.filter(|last| *last >= from) else {
        let was = |change: Option<&&Change>| change.is_some_and(|change| change.change.before == now);
        let is_back = last.is_some() || was(changes.first()) || was(changes.get(from));
        return if is_back { Course::IsBack } else { Course::Conflict };
    };
    let mut then = now.clone();
    for change in changes[from..=last].iter().rev() {
        if then.as_ref() != Some(&change.change.after) {
            return Course::Conflict;
        }
        then.clone_from(&change.change.before);
    }
    Course::PutBack { now, then, since: changes[from].seq }
}

fn load(spill: &Spill, course: &Course) -> Result<Option<Vec<u8>>, ToolError> {
    let Course::PutBack { then: Some(hash), .. } = course else { return Ok(None) };
    let failed = |error: io::Error| {
        ToolError::from(format!(
            "what was there before cannot be read: {}: {error}",
            spill.path(hash).display()
        ))
    };
    spill.load(hash).map(Some).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The course of a file that holds `now`, after changes from one content to the next.
    fn course_of(now: &str, changes: &[(&str, &str)]) -> Course {
        course_from(now, changes, 0)
    }

    fn course_from(now: &str, changes: &[(&str, &str)], from: usize) -> Course {
        let hash = |text: &str| ContentHash::of(text.as_bytes());
        let made: Vec<Change> = (1..)
            .zip(changes)
            .map(|(seq, (before, after))| Change {
                seq,
                turn: 0,
                change: FileChange {
                    path: FilePath(PathBuf::from("/w/f")),
                    before: (!before.is_empty()).then(|| hash(before)),
                    after: hash(after),
                },
            })
            .collect();
        course((!now.is_empty()).then(|| hash(now)), &made.iter().collect::<Vec<_>>(), from)
    }

    /// The standing of changes from one content to the next, of a file that holds `now`: a letter each.
    fn standing_of(now: &str, changes: &[(&str, &str)]) -> String {
        let hash = |text: &str| (!text.is_empty()).then(|| ContentHash::of(text.as_bytes()));
        let change = |(before, after): &(&str, &str)| FileChange {
            path: FilePath(PathBuf::from("/w/f")),
            before: hash(before),
            after: ContentHash::of(after.as_bytes()),
        };
        let changes: Vec<FileChange> = changes.iter().map(change).collect();
        let letter = |standing| match standing {
            Standing::InEffect => 'e',
            Standing::TakenBack => 't',
            Standing::Unknown => '?',
        };
        standing(hash(now).as_ref(), &changes).into_iter().map(letter).collect()
    }

    #[test]
    fn what_the_file_holds_says_what_became_of_each_change() {
        let two = [("a", "b"), ("b", "c")];
        for (now, standing) in [("c", "ee"), ("b", "et"), ("a", "tt"), ("x", "??"), ("", "??")] {
            assert_eq!(standing_of(now, &two), standing, "{now:?}");
        }
        assert_eq!(standing_of("", &[("", "new"), ("new", "newer")]), "tt");
        assert_eq!(standing_of("hand", &[("a", "b"), ("hand", "c")]), "?t");
    }

    #[test]
    fn what_the_file_holds_decides_the_course() {
        let back = |now: &str, then: &str, since| Course::PutBack {
            now: Some(ContentHash::of(now.as_bytes())),
            then: (!then.is_empty()).then(|| ContentHash::of(then.as_bytes())),
            since,
        };
        assert_eq!(course_of("c", &[("a", "b"), ("b", "c")]), back("c", "a", 1));
        assert_eq!(course_of("b", &[("a", "b"), ("b", "c")]), back("b", "a", 1));
        assert_eq!(course_of("a", &[("a", "b"), ("b", "c")]), Course::IsBack);
        assert_eq!(course_of("x", &[("a", "b"), ("b", "c")]), Course::Conflict);
        assert_eq!(course_of("c", &[("a", "b"), ("hand", "c")]), Course::Conflict);
        assert_eq!(course_from("c", &[("a", "b"), ("b", "c")], 1), back("c", "b", 2));
        assert_eq!(course_from("a", &[("a", "b"), ("b", "c")], 1), Course::IsBack);
        assert_eq!(course_from("b", &[("a", "b"), ("b", "c")], 1), Course::IsBack);
        assert_eq!(course_from("x", &[("a", "b"), ("x", "c")], 1), Course::IsBack);
        assert_eq!(course_of("new", &[("", "new")]), back("new", "", 1));
        assert_eq!(course_of("", &[("", "new")]), Course::IsBack);
        assert_eq!(course_of("", &[("a", "b")]), Course::Conflict);
    }
}
