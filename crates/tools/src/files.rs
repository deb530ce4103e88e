//! Files whole: read with their hash, and replaced so that a reader sees the old bytes or the new ones.
//!
//! A replacement is written beside the file without a name, synced, linked and renamed over it, and keeps owner and
//! mode. Where that would lose something, or is not possible, the bytes are written in place: a file with several hard
//! links (all names keep seeing one file), one whose owner could not be kept, a directory in which no file can be made.
//! Links were followed before, so a link stays and its target changes. Extended attributes are not carried over.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use mainstay_session::message::ContentHash;
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Stat, Uid};

use crate::place::Place;
use crate::text::count;
use crate::tool::{CallContext, ToolError};

/// The largest file that is hashed, edited or overwritten.
pub(crate) const WHOLE_FILE_BYTES: u64 = 64 * 1024 * 1024;

/// A file as it was at one moment.
pub(crate) struct Snapshot {
    /// All of its bytes.
    pub(crate) bytes: Vec<u8>,
    /// Their hash.
    pub(crate) hash: ContentHash,
    stat: Stat,
}

impl Snapshot {
    /// Reads a file; none if nothing lies there.
    ///
    /// # Errors
    ///
    /// What lies there is no regular file, is larger than [`WHOLE_FILE_BYTES`], or cannot be read.
    pub(crate) fn take(place: &Place) -> Result<Option<Self>, ToolError> {
        let mut file = match open_regular(place) {
            Ok(file) => file,
            Err(OpenError::Missing) => return Ok(None),
            Err(error) => return Err(error.for_model(place)),
        };
        let failed = |error: io::Error| ToolError::from(format!("cannot read {}: {error}", place.shown));
        let stat = rustix::fs::fstat(&file).map_err(|error| failed(error.into()))?;
        if u64::try_from(stat.st_size).unwrap_or(0) > WHOLE_FILE_BYTES {
            return Err(ToolError::from(format!(
                "{} is larger than {} MB; change it with a command",
                place.shown,
                WHOLE_FILE_BYTES >> 20
            )));
        }
        let mut bytes = Vec::new();
        (&mut file).take(WHOLE_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
        Ok(Some(Snapshot { hash: ContentHash::of(&bytes), bytes, stat }))
    }
}

/// Why a file could not be opened for reading.
pub(crate) enum OpenError {
    /// Nothing lies there.
    Missing,
    /// A directory lies there.
    Directory,
    /// Something lies there that is neither; what it is.
    Special(&'static str),
    /// The system refused.
    Io(io::Error),
}

impl OpenError {
    /// The error as the model reads it.
    pub(crate) fn for_model(self, place: &Place) -> ToolError {
        let shown = &place.shown;
        ToolError::from(match self {
            OpenError::Missing => format!("{shown} does not exist"),
            OpenError::Directory => format!("{shown} is a directory, not a file"),
            OpenError::Special(what) => format!("{shown} is {what}, not a regular file; it was not opened"),
            OpenError::Io(error) if error.raw_os_error() == Some(libc::ELOOP) => {
                format!("{shown} was replaced by a link while it was being opened; nothing was done")
            }
            OpenError::Io(error) => format!("cannot open {shown}: {error}"),
        })
    }
}

/// Opens a regular file for reading. Whatever lies there, this does not hang and wakes no device.
pub(crate) fn open_regular(place: &Place) -> Result<File, OpenError> {
    let io = |error: rustix::io::Errno| match error {
        rustix::io::Errno::NOENT => OpenError::Missing,
        error => OpenError::Io(error.into()),
    };
    let (directory, name) = place.parent(false).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => OpenError::Missing,
        _ => OpenError::Io(error),
    })?;
    let stat = rustix::fs::statat(&directory, &name, AtFlags::SYMLINK_NOFOLLOW).map_err(io)?;
    regular(&stat)?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = rustix::fs::openat(&directory, &name, flags, Mode::empty()).map_err(io)?;
    regular(&rustix::fs::fstat(&file).map_err(io)?)?;
    Ok(File::from(file))
}

fn regular(stat: &Stat) -> Result<(), OpenError> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(()),
        FileType::Directory => Err(OpenError::Directory),
        FileType::Symlink => Err(OpenError::Io(rustix::io::Errno::LOOP.into())),
        FileType::Fifo => Err(OpenError::Special("a named pipe")),
        FileType::Socket => Err(OpenError::Special("a socket")),
        FileType::CharacterDevice | FileType::BlockDevice => Err(OpenError::Special("a device")),
        FileType::Unknown => Err(OpenError::Special("of an unknown kind")),
    }
}

/// Puts new bytes where `old` was, or makes a new file, with its directories, where nothing was.
pub(crate) fn replace(place: &Place, old: Option<&Snapshot>, bytes: &[u8]) -> Result<(), ToolError> {
    let failed = |error: io::Error| ToolError::from(format!("cannot write {}: {error}", place.shown));
    let (directory, name) = place.parent(old.is_none()).map_err(failed)?;
    if old.is_some_and(|old| old.stat.st_nlink > 1) {
        return in_place(&directory, &name, bytes).map_err(failed);
    }
    match beside(&directory, old, bytes) {
        Ok(fresh) => fresh.rename_to(&directory, &name).map_err(failed),
        Err(error) if old.is_none() || out_of_space(&error) => Err(failed(error)),
        Err(_) => in_place(&directory, &name, bytes).map_err(failed),
    }
}

fn out_of_space(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// A written file that has not yet got its place. Dropped, it is gone.
struct Fresh<'a> {
    directory: &'a OwnedFd,
    /// Its name for the time being, or its descriptor while it has none.
    named: Result<String, OwnedFd>,
}

impl Fresh<'_> {
    fn rename_to(mut self, directory: &OwnedFd, name: &OsStr) -> io::Result<()> {
        if let Err(file) = &self.named {
            let temporary = temporary_name();
            // The only way to give a name to a file without one that needs no privilege, see open(2), O_TMPFILE.
            let unnamed = format!("/proc/self/fd/{}", file.as_raw_fd());
            rustix::fs::linkat(rustix::fs::CWD, &unnamed, directory, &temporary, AtFlags::SYMLINK_FOLLOW)?;
            self.named = Ok(temporary);
        }
        if let Ok(temporary) = &self.named {
            rustix::fs::renameat(directory, temporary, directory, name)?;
        }
        Ok(())
    }
}

impl Drop for Fresh<'_> {
    fn drop(&mut self) {
        if let Ok(temporary) = &self.named {
            // After the rename there is nothing of this name any more.
            let _ = rustix::fs::unlinkat(self.directory, temporary, AtFlags::empty());
        }
    }
}

fn beside<'a>(directory: &'a OwnedFd, old: Option<&Snapshot>, bytes: &[u8]) -> io::Result<Fresh<'a>> {
    let mode = Mode::from(if old.is_some() { 0o600 } else { 0o666 });
    let (file, name) = make_temporary(directory, mode)?;
    // Made before anything can fail, so that it is cleared away then.
    let mut fresh = Fresh { directory, named: name.ok_or(file.try_clone()?) };
    let mut file = File::from(file);
    if let Some(old) = old {
        keep_owner_and_mode(&file, &old.stat)?;
    }
    file.write_all(bytes)?;
    rustix::fs::fdatasync(&file)?;
    if let Err(descriptor) = &mut fresh.named {
        *descriptor = file.into();
    }
    Ok(fresh)
}

fn make_temporary(directory: &OwnedFd, mode: Mode) -> io::Result<(OwnedFd, Option<String>)> {
    #[cfg(target_os = "linux")]
    {
        // Without a name there is nothing to clear away after a crash in the middle of a long write.
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        if let Ok(file) = rustix::fs::openat(directory, ".", flags, mode) {
            return Ok((file, None));
        }
    }
    let name = temporary_name();
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok((rustix::fs::openat(directory, &name, flags, mode)?, Some(name)))
}

fn temporary_name() -> String {
    use std::hash::{BuildHasher, RandomState};
    format!(".mainstay-{:016x}.tmp", RandomState::new().hash_one(0))
}

fn keep_owner_and_mode(file: &File, old: &Stat) -> io::Result<()> {
    let new = rustix::fs::fstat(file)?;
    if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid) {
        let (uid, gid) = (Uid::from_raw(old.st_uid), Gid::from_raw(old.st_gid));
        rustix::fs::fchown(file.as_fd(), Some(uid), Some(gid))?;
    }
    rustix::fs::fchmod(file, Mode::from_raw_mode(old.st_mode))?;
    Ok(())
}

fn in_place(directory: &OwnedFd, name: &OsStr, bytes: &[u8]) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut file = File::from(rustix::fs::openat(directory, name, flags, Mode::empty())?);
    file.write_all(bytes)?;
    file.set_len(bytes.len() as u64)?;
    file.sync_data()
}

/// Runs a change of a file alone: within this process no other change of the same file runs at the same time.
///
/// The key is the resolved path, so that every way to name a file is one; several hard links of a file share its inode
/// as a second key.
pub(crate) fn alone<R>(place: &Place, change: impl FnOnce() -> R) -> R {
    let by_path = lock_of(Key::Path(place.path.clone()));
    let _path_guard = by_path.lock().unwrap_or_else(PoisonError::into_inner);
    let shared = place.stat().ok().filter(|stat| stat.st_nlink > 1);
    let by_inode = shared.map(|stat| lock_of(Key::Inode(stat.st_dev, stat.st_ino)));
    let _inode_guard = by_inode.as_ref().map(|lock| lock.lock().unwrap_or_else(PoisonError::into_inner));
    change()
}

#[derive(PartialEq, Eq, Hash)]
enum Key {
    Path(PathBuf),
    Inode(rustix::fs::Dev, u64),
}

type Locks = HashMap<Key, Arc<Mutex<()>>>;

fn lock_of(key: Key) -> Arc<Mutex<()>> {
    static LOCKS: LazyLock<Mutex<Locks>> = LazyLock::new(Mutex::default);
    let mut locks = LOCKS.lock().unwrap_or_else(PoisonError::into_inner);
    locks.retain(|_, lock| Arc::strong_count(lock) > 1);
    locks.entry(key).or_default().clone()
}

/// What this session's tools did to files: which bytes they turned into which, and what they refused.
///
/// Two changes in one answer may both start from what the model read before. The second is not stale: what changed the
/// file in between was the first.
#[derive(Debug, Default)]
pub struct FileMemory {
    files: Mutex<HashMap<PathBuf, Remembered>>,
}

#[derive(Debug, Default)]
struct Remembered {
    changes: Vec<(Option<ContentHash>, ContentHash)>,
    refused: Option<ContentHash>,
}

impl FileMemory {
    pub(crate) fn changed(&self, path: &Path, before: Option<ContentHash>, after: ContentHash) {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let remembered = files.entry(path.to_owned()).or_default();
        if remembered.changes.len() == 16 {
            remembered.changes.remove(0);
        }
        remembered.changes.push((before, after));
        remembered.refused = None;
    }

    /// Whether `now` came from `seen` by changes of these tools alone.
    fn leads(&self, path: &Path, seen: Option<&ContentHash>, now: &ContentHash) -> bool {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let changes = files.get(path).map(|remembered| remembered.changes.as_slice()).unwrap_or_default();
        let mut reached = seen;
        for (before, after) in changes {
            if before.as_ref() == reached {
                reached = Some(after);
            }
        }
        reached == Some(now)
    }

    /// Remembers a refusal; says whether it is the same as the one before.
    fn refused_again(&self, path: &Path, now: &ContentHash) -> bool {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let refused = &mut files.entry(path.to_owned()).or_default().refused;
        refused.replace(now.clone()).as_ref() == Some(now)
    }
}

/// Checks that the model knows what a file holds before it changes it. Only contents count, not times.
pub(crate) fn check_seen(
    context: &CallContext,
    memory: &FileMemory,
    place: &Place,
    now: &Snapshot,
    region: impl FnOnce() -> String,
) -> Result<(), ToolError> {
    let seen = (context.seen)(&place.path);
    if seen.as_ref() == Some(&now.hash) || memory.leads(&place.path, seen.as_ref(), &now.hash) {
        return Ok(());
    }
    let shown = &place.shown;
    let again = memory.refused_again(&place.path, &now.hash);
    let summary = match (seen.is_some(), again) {
        (false, false) => format!("{shown} has not been read yet; read it first, then change it"),
        (false, true) => format!("refused again: call read on {shown} before any change of it"),
        (true, false) => format!("{shown} has changed since it was last read; read it again, then change it"),
        (true, true) => format!(
            "refused again: {shown} still differs from what was read; repeating this call cannot help, call read on it now"
        ),
    };
    let size = count(now.bytes.len() as u64, "byte");
    let content = if seen.is_some() { region() } else { format!("It exists and holds {size}.") };
    Err(ToolError { summary, content: Some(content), exit_code: None })
}
