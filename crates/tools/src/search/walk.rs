//! Walks a directory on every core, passing over what ripgrep passes over.
//!
//! Links are never followed and ignored directories never opened. An ignore file that is no regular file, or a huge
//! one, would hold up whoever reads it for ever, so its directory is passed over and named.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use ignore::{DirEntry, ParallelVisitor, ParallelVisitorBuilder, WalkBuilder, WalkState};
use rustix::fs::FileType;

use super::Stop;
use super::globs::Globs;

/// Ignore files that are read, those of ripgrep's own included.
const IGNORE_FILES: [&str; 4] = [".gitignore", ".ignore", ".rgignore", ".git/info/exclude"];
const IGNORE_FILE_BYTES: u64 = 16 << 20;
/// So many of a kind are named; the others are counted.
const NAMED: usize = 3;

/// What a search left out, so that nobody takes it for searched.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Passed {
    /// Links that were not followed.
    pub links: Counted,
    /// What could not be read, each with the reason.
    pub unreadable: Counted,
    /// Files that were not searched, or not to their end, because they are binary.
    pub binary: u64,
}

/// A number of things, of which the first few by name are named.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Counted {
    /// How many there are.
    pub total: u64,
    /// Some of them: path, and reason where there is one.
    pub named: Vec<(PathBuf, Option<String>)>,
}

impl Counted {
    pub(super) fn add(&mut self, path: PathBuf, reason: Option<String>) {
        self.merge(Counted { total: 1, named: vec![(path, reason)] });
    }

    pub(super) fn merge(&mut self, other: Counted) {
        self.total += other.total;
        self.named.extend(other.named);
        self.named.sort();
        self.named.truncate(NAMED);
    }
}

impl Passed {
    pub(super) fn merge(&mut self, other: Passed) {
        self.links.merge(other.links);
        self.unreadable.merge(other.unreadable);
        self.binary += other.binary;
    }
}

/// Takes the files that one thread comes to.
pub(super) trait Collect: Send {
    /// Takes a regular file by its absolute path.
    fn file(&mut self, path: &Path);
}

/// Brings every file below a directory that is not ignored, and that the globs take, to one of the collectors, of which
/// each thread has its own. Gives back the collectors and what was passed over.
pub(super) fn walk<C: Collect>(
    root: &Path,
    globs: &Arc<Globs>,
    stop: &Stop,
    make: impl FnMut() -> C,
) -> (Vec<C>, Passed) {
    let mut passed = Passed::default();
    if let Some(unusable) = root.ancestors().find_map(unusable_ignore_file) {
        passed.unreadable.add(unusable, Some(UNUSABLE.to_owned()));
        return (Vec::new(), passed);
    }
    let refused = Arc::new(Mutex::new(Counted::default()));
    let walker = walker(root, globs.clone(), refused.clone());
    let done = Mutex::default();
    walker.build_parallel().visit(&mut Threads { globs, stop, make, done: &done });
    let mut collectors = Vec::new();
    for (collector, of_thread) in done.into_inner().unwrap_or_else(PoisonError::into_inner) {
        collectors.push(collector);
        passed.merge(of_thread);
    }
    passed.unreadable.merge(refused.lock().unwrap_or_else(PoisonError::into_inner).clone());
    (collectors, passed)
}

fn walker(root: &Path, globs: Arc<Globs>, refused: Arc<Mutex<Counted>>) -> WalkBuilder {
    let mut walker = WalkBuilder::new(root);
    walker.hidden(!globs.hidden()).current_dir(root).add_custom_ignore_filename(".rgignore");
    walker.filter_entry(move |entry| {
        if !entry.file_type().is_some_and(|kind| kind.is_dir()) {
            return true;
        }
        if !globs.enters(entry.path(), entry.depth()) {
            return false;
        }
        let unusable = unusable_ignore_file(entry.path());
        if let Some(file) = &unusable {
            let mut refused = refused.lock().unwrap_or_else(PoisonError::into_inner);
            refused.add(file.clone(), Some(UNUSABLE.to_owned()));
        }
        unusable.is_none()
    });
    walker
}

const UNUSABLE: &str = "is no regular file or too large for an ignore file; its directory was not searched";

fn unusable_ignore_file(directory: &Path) -> Option<PathBuf> {
    IGNORE_FILES.iter().map(|name| directory.join(name)).find(|path| {
        let Ok(stat) = rustix::fs::stat(path) else { return false };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => u64::try_from(stat.st_size).unwrap_or(0) > IGNORE_FILE_BYTES,
            // Opening these fails at once, as reading a directory does.
            FileType::Directory | FileType::Socket | FileType::Symlink => false,
            FileType::Fifo | FileType::CharacterDevice | FileType::BlockDevice | FileType::Unknown => true,
        }
    })
}

type Done<C> = Mutex<Vec<(C, Passed)>>;

/// Makes the visitors of a walk.
struct Threads<'a, M, C> {
    globs: &'a Globs,
    stop: &'a Stop,
    make: M,
    done: &'a Done<C>,
}

impl<'a, C: Collect + 'a, M: FnMut() -> C> ParallelVisitorBuilder<'a> for Threads<'a, M, C> {
    fn build(&mut self) -> Box<dyn ParallelVisitor + 'a> {
        let collector = Some((self.make)());
        Box::new(Visitor {
            globs: self.globs,
            stop: self.stop,
            done: self.done,
            collector,
            passed: Passed::default(),
        })
    }
}

/// Sees what one thread comes to, and hands over what it collected when the thread is done.
struct Visitor<'a, C> {
    globs: &'a Globs,
    stop: &'a Stop,
    done: &'a Done<C>,
    collector: Option<C>,
    passed: Passed,
}

impl<C: Collect> Visitor<'_, C> {
    fn entry(&mut self, entry: &DirEntry) {
        let Some(kind) = entry.file_type() else { return };
        if kind.is_symlink() {
            self.passed.links.add(entry.path().to_owned(), None);
        } else if kind.is_file()
            && self.globs.takes(entry.path())
            && let Some(collector) = &mut self.collector
        {
            collector.file(entry.path());
        }
    }
}

impl<C: Collect> ParallelVisitor for Visitor<'_, C> {
    fn visit(&mut self, entry: Result<DirEntry, ignore::Error>) -> WalkState {
        match entry {
            Ok(entry) => self.entry(&entry),
            Err(error) => {
                if let Some((path, reason)) = unreadable(&error) {
                    self.passed.unreadable.add(path, Some(reason));
                }
            }
        }
        if self.stop.is_set() { WalkState::Quit } else { WalkState::Continue }
    }
}

impl<C> Drop for Visitor<'_, C> {
    fn drop(&mut self) {
        if let Some(collector) = self.collector.take() {
            let passed = std::mem::take(&mut self.passed);
            self.done.lock().unwrap_or_else(PoisonError::into_inner).push((collector, passed));
        }
    }
}

/// The path and the reason of a directory that could not be read. Bad lines in ignore files hold nobody up.
fn unreadable(error: &ignore::Error) -> Option<(PathBuf, String)> {
    match error {
        ignore::Error::WithPath { path, err } => {
            err.io_error().map(|reason| (path.clone(), reason.to_string()))
        }
        ignore::Error::WithDepth { err, .. } => unreadable(err),
        _ => None,
    }
}
