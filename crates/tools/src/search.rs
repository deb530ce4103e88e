//! Finds files and lines as ripgrep does, on ripgrep's own crates.
//!
//! What is ignored, hidden, a link or binary is decided as `rg` decides it; an ignored directory is never entered and a
//! link never followed, so every search ends and sees each file once. Results are bounded while they are found: the
//! first of them by path are kept, all are counted, and neither depends on which thread was faster. Nothing here knows
//! how the model is told; the tools `glob` and `grep` do that.

mod excerpt;
mod first;
pub mod globs;
pub mod pattern;
mod open;
mod walk;

mod lines;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

pub use lines::{FileHits, Found, Line, LineKind, Wanted, lines, lines_of_file};
pub use walk::{Counted, Passed};

use self::first::First;
use self::globs::Globs;
use self::walk::{Collect, walk};

/// Ends a search before it is done. Every thread of it looks here between files, and within a file at each block.
#[derive(Debug, Default)]
pub struct Stop(AtomicU8);

const CANCELLED: u8 = 1;
const OUT_OF_TIME: u8 = 2;

impl Stop {
    /// Ends the search because nobody waits for it any more.
    pub fn cancel(&self) {
        self.0.fetch_or(CANCELLED, Ordering::Relaxed);
    }

    /// Ends the search because it has taken long enough.
    pub fn run_out_of_time(&self) {
        self.0.fetch_or(OUT_OF_TIME, Ordering::Relaxed);
    }

    /// Whether the search shall end.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Whether it shall end because it was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed) & CANCELLED != 0
    }
}

/// The files that a search found.
#[derive(Debug, Default)]
pub struct Files {
    /// The first by path, as many as were asked for, as absolute paths.
    pub first: Vec<PathBuf>,
    /// How many there are in all.
    pub total: u64,
    /// What was left out on the way.
    pub passed: Passed,
}

/// Finds the files below a directory that the globs take. Returns early, with what it has, when `stop` is set.
pub fn files(root: &Path, globs: &Arc<Globs>, limit: u64, stop: &Stop) -> Files {
    let make = || FilesOfThread { first: First::new(limit), total: 0 };
    let (threads, passed) = walk(root, globs, stop, make);
    let mut files = Files { passed, ..Files::default() };
    let mut first = First::new(limit);
    for thread in threads {
        files.total += thread.total;
        first.merge(thread.first);
    }
    files.first = first.into_items().map(|(path, ())| path).collect();
    files
}

struct FilesOfThread {
    first: First<()>,
    total: u64,
}

impl Collect for FilesOfThread {
    fn file(&mut self, path: &Path) {
        self.total += 1;
        if self.first.wants(path) {
            self.first.insert(path.to_owned(), 1, ());
        }
    }
}
