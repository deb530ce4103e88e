//! One writer a session, by a lock of the operating system, which is free as soon as its process is gone.

use std::collections::HashSet;
use std::fmt;
use std::fs::{File, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{OpenError, ReadError};

/// Who holds a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The process; 0 if it did not say.
    pub pid: u32,
    /// When it opened the session; empty if it did not say.
    pub started: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pid {
            0 => f.write_str("another process"),
            pid => write!(f, "process {pid}, since {}", self.started),
        }
    }
}

/// The lock, held until this is dropped. The files are closed on exec, so no child holds it.
#[derive(Debug)]
pub(super) struct Lock {
    file: File,
    /// The folder is locked too, so that a removed lock file lets no second writer in.
    folder: File,
}

#[derive(Debug)]
pub(super) enum LockError {
    Held(Holder),
    Io(io::Error),
}

impl Lock {
    pub(super) fn acquire(dir: &Path, now: jiff::Timestamp) -> Result<Self, LockError> {
        let path = lock_path(dir);
        let open =
            File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
        let file = open.map_err(LockError::Io)?;
        // From here on it is freed again, should the other one be held.
        let mut lock = Lock { file, folder: File::open(dir).map_err(LockError::Io)? };
        for locked in [lock.file.try_lock(), lock.folder.try_lock()] {
            match locked {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(LockError::Held(holder(&mut lock.file))),
                Err(TryLockError::Error(error)) => return Err(LockError::Io(error)),
            }
        }
        let holder = Holder { pid: std::process::id(), started: format!("{now:.0}") };
        // The name of the holder is a courtesy to whoever is refused: the lock holds without it, on a full disk too.
        let _ = lock.file.set_len(0);
        let _ = serde_json::to_vec(&holder).map(|text| lock.file.write_all(&text));
        Ok(lock)
    }
}

impl Drop for Lock {
    /// Frees it here and now. To close the files is not enough: a child that another thread has begun, and that is not yet
    /// what it is to become, has copies of them for a moment, and with them the lock.
    fn drop(&mut self) {
        for locked in [&self.file, &self.folder] {
            let _ = locked.unlock();
        }
    }
}

impl LockError {
    pub(super) fn into_io(self) -> io::Error {
        match self {
            LockError::Held(holder) => io::Error::other(format!("{holder} holds it")),
            LockError::Io(error) => error,
        }
    }

    pub(super) fn into_open_error(self, dir: &Path) -> OpenError {
        match self {
            LockError::Held(holder) => OpenError::InUse { holder },
            LockError::Io(error) if error.kind() == io::ErrorKind::NotFound => {
                OpenError::Read(ReadError::NoSession { dir: dir.to_owned() })
            }
            LockError::Io(source) => OpenError::Io { path: lock_path(dir), source },
        }
    }
}

fn lock_path(dir: &Path) -> PathBuf {
    dir.join("lock")
}

fn holder(file: &mut File) -> Holder {
    let mut text = String::new();
    let read = file.read_to_string(&mut text);
    read.ok().and_then(|_| serde_json::from_str(&text).ok()).unwrap_or_default()
}

/// The locks that processes hold at one moment, to ask without taking one: a reader that tried the lock itself could be in
/// the way of a writer that begins. Known on Linux, and for processes that this one can see; elsewhere none are.
#[derive(Debug, Default)]
pub(super) struct HeldLocks {
    /// The locked files, as in `/proc/locks`: the device's numbers and the inode.
    files: HashSet<String>,
}

impl HeldLocks {
    pub(super) fn now() -> Self {
        // Fields by proc_locks(5): number, kind, mode, access, process, device and inode, range.
        let table = std::fs::read_to_string("/proc/locks").unwrap_or_default();
        let held = table.lines().filter(|line| !line.contains("->"));
        HeldLocks {
            files: held.filter_map(|line| line.split_whitespace().nth(5)).map(str::to_owned).collect(),
        }
    }

    /// Whether a process writes to the session in `dir`.
    pub(super) fn hold(&self, dir: &Path) -> bool {
        let Ok(metadata) = std::fs::metadata(lock_path(dir)) else { return false };
        let device = metadata.dev();
        let (major, minor) =
            (((device >> 8) & 0xfff) | ((device >> 32) & !0xfff), (device & 0xff) | ((device >> 12) & !0xff));
        self.files.contains(&format!("{major:02x}:{minor:02x}:{}", metadata.ino()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_free_at_once_even_where_a_child_has_copies_of_its_files() {
        let dir = tempfile::tempdir().unwrap();
        let now = jiff::Timestamp::UNIX_EPOCH;
        let lock = Lock::acquire(dir.path(), now).unwrap();
        let _of_a_child = [lock.file.try_clone().unwrap(), lock.folder.try_clone().unwrap()];
        assert!(matches!(Lock::acquire(dir.path(), now), Err(LockError::Held(_))));
        drop(lock);
        Lock::acquire(dir.path(), now).unwrap();
    }
}
