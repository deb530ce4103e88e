//! The temporary directory of a session's commands, and what becomes of those that nobody ended.
//!
//! Whoever needs such a directory holds a claim on it: the agent that made it, and its supervisor. It is removed at the
//! end of the session. Where both were killed it stays, held by nobody; the next session of this user removes it.

use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};

use super::remove_all;

/// How the names begin. Six letters or digits follow.
const PREFIX: &str = "mainstay-commands-";
const LETTERS: usize = 6;

/// How old one that nobody holds must be: whoever has just made it may not have claimed it yet.
const UNCLAIMED: Duration = Duration::from_secs(60);

/// That a directory is in use, as long as this is there and, if it is dropped without more, no longer.
#[derive(Debug)]
pub(super) struct Claim {
    _folder: File,
}

impl Claim {
    /// Claims a directory, which others may claim too.
    pub(super) fn lay(folder: &Path) -> io::Result<Self> {
        Claim::of(folder, FlockOperation::NonBlockingLockShared)
    }

    fn of(folder: &Path, how: FlockOperation) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = File::from(open(folder, flags, Mode::empty())?);
        flock(&folder, how)?;
        Ok(Claim { _folder: folder })
    }
}

/// A directory of its own for the commands of one session. Dropped, it is removed, unless a supervisor does that.
#[derive(Debug)]
pub(crate) struct Temporary {
    path: PathBuf,
    is_handed_over: bool,
    _claim: Claim,
}

impl Temporary {
    /// Makes one where temporary files belong, and removes what was left there by sessions that were killed.
    pub(crate) fn make() -> io::Result<Self> {
        let around = std::env::temp_dir();
        remove_unclaimed(&around);
        let own = Permissions::from_mode(0o700);
        let made = tempfile::Builder::new()
            .prefix(PREFIX)
            .rand_bytes(LETTERS)
            .permissions(own)
            .tempdir_in(around)?;
        let path = made.path().canonicalize()?;
        let claim = Claim::lay(&path)?;
        drop(made.keep());
        Ok(Temporary { path, is_handed_over: false, _claim: claim })
    }

    /// Where it is, without links.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The same, with its removal left to the supervisor that holds commands.
    pub(crate) fn handed_over(mut self) -> Self {
        self.is_handed_over = true;
        self
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.is_handed_over {
            remove_all(&self.path);
        }
    }
}

/// Removes the directories of this user that nobody holds.
fn remove_unclaimed(around: &Path) {
    let user = rustix::process::geteuid().as_raw();
    for entry in around.read_dir().into_iter().flatten().flatten() {
        let name = entry.file_name();
        let letters = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        let is_named_so = letters.is_some_and(|letters| letters.len() == LETTERS);
        let is_left = || {
            let metadata = entry.metadata().ok()?;
            let age = metadata.modified().ok()?.elapsed().ok()?;
            let is_own = metadata.is_dir() && metadata.uid() == user && metadata.mode() & 0o077 == 0;
            Some(is_own && age >= UNCLAIMED)
        };
        if is_named_so && is_left() == Some(true) {
            let path = entry.path();
            if let Ok(_claim) = Claim::of(&path, FlockOperation::NonBlockingLockExclusive) {
                remove_all(&path);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn only_what_nobody_holds_is_removed() -> io::Result<()> {
        let around = tempfile::tempdir()?;
        let names = [
            "mainstay-commands-abc123",
            "mainstay-commands-held00",
            "mainstay-commands-fresh0",
            "mainstay-commands-notes",
            "mainstay-notes0",
        ];
        for name in names {
            let folder = around.path().join(name);
            fs::create_dir_all(folder.join("below"))?;
            fs::set_permissions(&folder, Permissions::from_mode(0o700))?;
            if name != "mainstay-commands-fresh0" {
                File::open(&folder)?.set_modified(SystemTime::now() - 2 * UNCLAIMED)?;
            }
        }
        std::os::unix::fs::symlink(
            around.path().join("mainstay-notes0"),
            around.path().join("mainstay-commands-linked"),
        )?;
        let _claim = Claim::lay(&around.path().join("mainstay-commands-held00"))?;
        remove_unclaimed(around.path());
        let is_there = names.map(|name| around.path().join(name).exists());
        assert_eq!(is_there, [false, true, true, true, true]);
        Ok(())
    }
}
