//! What a `.git` in a directory means, which may be a repository or a file that names one.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

/// The longest file that is read.
const SMALL: u64 = 64 << 10;

/// The directory that a `.git` is or names, as it is written there: in a linked worktree and in a submodule it is a file.
/// Whether the repository that it names is that of the directory is for others to judge.
pub fn git_directory(entry: &Path) -> Option<PathBuf> {
    if entry.is_dir() {
        return Some(entry.to_owned());
    }
    Some(entry.parent()?.join(small_file(entry)?.strip_prefix("gitdir:")?.trim()))
}

/// The text of a regular file of a few lines; of nothing longer, and of nothing else, since a pipe or a device might
/// never end.
pub fn small_file(path: &Path) -> Option<String> {
    // A pipe that takes the file's place in this moment is not waited for.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    file.take(SMALL + 1).read_to_string(&mut text).ok()?;
    (text.len() as u64 <= SMALL).then_some(text)
}
