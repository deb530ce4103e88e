//! What a `.git` in a directory means, which may be a repository or a file that names one.

use std::path::{Path, PathBuf};

use crate::bounded::regular_file;

/// The longest file that is read.
const SMALL: usize = 64 << 10;

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
    String::from_utf8(regular_file(path, SMALL).ok()?).ok()
}
