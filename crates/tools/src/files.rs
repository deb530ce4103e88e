//! Files whole: read with their hash, and changed so that a reader sees the old bytes or the new ones.
//!
//! What a file held is kept in the session's spill before it changes. A replacement is written beside the file without
//! a name, synced, linked and renamed over it, and keeps owner and mode; a new file is linked where nothing lies. Where a
//! replacement would lose something, or is not possible, the bytes are written in place: a file with several hard links
//! (all names keep seeing one file), one whose owner could not be kept, a directory in which no file can be made. Links
//! were followed before, so a link stays and its target changes. Extended attributes are carried over, access lists among
//! them, but for those of the security modules, which set their own.
//!
//! Nothing here is remembered from one call to the next but locks that are held.

use std::collections::HashMap;
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use mainstay_session::failpoint;
use mainstay_session::message::{ContentHash, FileChange, FilePath, ReferencedFile};
use rustix::buffer::spare_capacity;
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, RenameFlags, Stat, Uid, XattrFlags};

use crate::place::Place;
use crate::text::count;
use crate::tool::{CallContext, ToolError, ToolOutput};

/// The largest file that is hashed, edited or overwritten.
pub(crate) const WHOLE_FILE_BYTES: u64 = 64 * 1024 * 1024;

/// A file as it was at one moment.
pub(crate) struct Snapshot {
    /// All of its bytes.
    pub(crate) bytes: Vec<u8>,
    /// Their hash.
    pub(crate) hash: ContentHash,
    stat: Stat,
    /// None if they cannot be read, and so cannot be given to another file.
    attributes: Option<Vec<Attribute>>,
}

/// An extended attribute: its name and its value.
type Attribute = (CString, Vec<u8>);

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
        let mut bytes = Vec::new();
        if u64::try_from(stat.st_size).unwrap_or(0) <= WHOLE_FILE_BYTES {
            (&mut file).take(WHOLE_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
        }
        if u64::try_from(stat.st_size).unwrap_or(0).max(bytes.len() as u64) > WHOLE_FILE_BYTES {
            return Err(ToolError::from(format!(
                "{} is larger than {} MB; nothing was done, change it with a command",
                place.shown,
                WHOLE_FILE_BYTES >> 20
            )));
        }
        let attributes = attributes(&file).ok();
        Ok(Some(Snapshot { hash: ContentHash::of(&bytes), bytes, stat, attributes }))
    }
}

/// The extended attributes that a replacement must have too; none where the file system has none.
fn attributes(file: &File) -> rustix::io::Result<Vec<Attribute>> {
    let mut names = Vec::with_capacity(64 * 1024);
    match rustix::fs::flistxattr(file, spare_capacity(&mut names)) {
        Err(rustix::io::Errno::OPNOTSUPP) => return Ok(Vec::new()),
        listed => listed?,
    };
    let mut attributes = Vec::new();
    for name in names.split_inclusive(|byte| *byte == 0).filter(|name| !name.starts_with(b"security.")) {
        let name = CString::from_vec_with_nul(name.to_vec()).map_err(|_| rustix::io::Errno::INVAL)?;
        let mut value = Vec::with_capacity(64 * 1024);
        rustix::fs::fgetxattr(file, &name, spare_capacity(&mut value))?;
        attributes.push((name, value));
    }
    Ok(attributes)
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

/// Changes a file to these bytes, or makes it, with its directories, where nothing was.
///
/// # Errors
///
/// Its owner may not write it, what it holds cannot be kept, it is no longer what `old` says, or the system refuses.
/// The file is then as it was.
pub(crate) fn change(
    context: &CallContext,
    place: &Place,
    old: Option<&Snapshot>,
    bytes: &[u8],
) -> Result<FileChange, ToolError> {
    let before = old.map(|old| keep(context, place, old)).transpose()?;
    replace(place, old, bytes)?;
    Ok(FileChange { path: FilePath(place.path.clone()), before, after: ContentHash::of(bytes) })
}

/// Keeps what a file holds, so that the change to come can be taken back.
fn keep(context: &CallContext, place: &Place, old: &Snapshot) -> Result<ContentHash, ToolError> {
    context.spill.store(&old.bytes).map_err(|error| {
        let shown = &place.shown;
        ToolError::from(format!(
            "{shown} was not changed, because what it holds could not be kept for an undo: {error}"
        ))
    })
}

/// Puts new bytes where `old` was, or makes a new file, with its directories, where nothing was.
///
/// # Errors
///
/// As [`change`].
pub(crate) fn replace(place: &Place, old: Option<&Snapshot>, bytes: &[u8]) -> Result<(), ToolError> {
    if let Some(old) = old {
        check_writable(place, old)?;
    }
    put(place, old, bytes).map_err(|error| ToolError::from(format!("cannot write {}: {error}", place.shown)))
}

/// Checks that a file's owner may write it: a rename would replace a read-only file without a word.
pub(crate) fn check_writable(place: &Place, old: &Snapshot) -> Result<(), ToolError> {
    if old.stat.st_mode & 0o200 != 0 {
        return Ok(());
    }
    let mode = old.stat.st_mode & 0o7777;
    Err(ToolError {
        summary: format!("{} is read-only (mode {mode:04o}); nothing was done", place.shown),
        content: Some("If it really is to change, make it writable first, with chmod u+w.".to_owned()),
        exit_code: None,
    })
}

fn put(place: &Place, old: Option<&Snapshot>, bytes: &[u8]) -> io::Result<()> {
    let (directory, name) = place.parent(old.is_none())?;
    let Some(old) = old else { return beside(&directory, None, bytes)?.link_as(&directory, &name) };
    // Looked at again as late as can be, so that what another program wrote since is not lost.
    let now = rustix::fs::statat(&directory, &name, AtFlags::SYMLINK_NOFOLLOW)?;
    if !is_same(&now, &old.stat) {
        return Err(io::Error::other("another program changed it at this moment; read it again"));
    }
    if old.stat.st_nlink > 1 || old.attributes.is_none() {
        return in_place(&directory, &name, old, bytes);
    }
    match beside(&directory, Some(old), bytes) {
        Ok(fresh) => fresh.rename_to(&directory, &name),
        Err(error) if out_of_space(&error) => Err(error),
        Err(_) => in_place(&directory, &name, old, bytes),
    }
}

fn is_same(now: &Stat, old: &Stat) -> bool {
    let key = |stat: &Stat| {
        (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime, stat.st_mtime_nsec, stat.st_nlink)
    };
    key(now) == key(old)
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
    /// Takes the place of what has this name.
    fn rename_to(mut self, directory: &OwnedFd, name: &OsStr) -> io::Result<()> {
        if let Err(file) = &self.named {
            let temporary = temporary_name();
            link_unnamed(file, directory, OsStr::new(&temporary))?;
            self.named = Ok(temporary);
        }
        if let Ok(temporary) = &self.named {
            failpoint::pass("file.rename")?;
            rustix::fs::renameat(directory, temporary, directory, name)?;
        }
        Ok(())
    }

    /// Gets this name, unless something has it already.
    fn link_as(self, directory: &OwnedFd, name: &OsStr) -> io::Result<()> {
        failpoint::pass("file.link")?;
        let temporary = match &self.named {
            Err(file) => return link_unnamed(file, directory, name),
            Ok(temporary) => temporary,
        };
        match rustix::fs::renameat_with(directory, temporary, directory, name, RenameFlags::NOREPLACE) {
            // A file system that cannot rename so.
            Err(rustix::io::Errno::INVAL) => Ok(rustix::fs::renameat(directory, temporary, directory, name)?),
            result => Ok(result?),
        }
    }
}

/// Gives a name to a file without one: the only way that needs no privilege, see open(2), `O_TMPFILE`.
fn link_unnamed(file: &OwnedFd, directory: &OwnedFd, name: &OsStr) -> io::Result<()> {
    let unnamed = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(rustix::fs::linkat(rustix::fs::CWD, &unnamed, directory, name, AtFlags::SYMLINK_FOLLOW)?)
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
        for (name, value) in old.attributes.iter().flatten() {
            rustix::fs::fsetxattr(&file, name, value, XattrFlags::empty())?;
        }
    }
    failpoint::write("file.write", bytes, |_, part| file.write_all(part))?;
    failpoint::pass("file.sync")?;
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

/// Writes over a file's bytes. If that fails on the way, what it held is written back.
fn in_place(directory: &OwnedFd, name: &OsStr, old: &Snapshot, bytes: &[u8]) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut file = File::from(rustix::fs::openat(directory, name, flags, Mode::empty())?);
    let mut put = |bytes: &[u8]| {
        file.rewind()?;
        failpoint::write("file.overwrite", bytes, |_, part| file.write_all(part))?;
        file.set_len(bytes.len() as u64)?;
        failpoint::pass("file.sync")?;
        file.sync_data()
    };
    put(bytes).map_err(|error| match put(&old.bytes) {
        Ok(()) => error,
        Err(_) => {
            let kept = old.hash.as_str();
            io::Error::other(format!("{error}; it may be damaged, what it held is kept as {kept}"))
        }
    })
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

/// What the result of a call on a file says beside its words: which file it was, and what it holds now.
pub(crate) fn touched(place: &Place, hash: Option<ContentHash>) -> ToolOutput {
    let file = ReferencedFile { path: FilePath(place.path.clone()), hash };
    ToolOutput { referenced_files: vec![file], ..ToolOutput::default() }
}

/// Checks that the model knows what a file holds before it changes it. Only contents count, not times. Where nothing is
/// held, nothing need be known.
pub(crate) fn check_seen(
    context: &CallContext,
    place: &Place,
    now: &Snapshot,
    region: impl FnOnce() -> String,
) -> Result<(), ToolError> {
    let shown = &place.shown;
    let (summary, content) = match (context.seen)(&place.path) {
        Some(seen) if seen == now.hash => return Ok(()),
        None if now.bytes.is_empty() => return Ok(()),
        Some(_) => {
            (format!("{shown} has changed since it was last read; read it again, then change it"), region())
        }
        None => {
            let size = count(now.bytes.len() as u64, "byte");
            let summary = format!("{shown} has not been read yet; read it first, then change it");
            (summary, format!("It exists and holds {size}."))
        }
    };
    Err(ToolError { summary, content: Some(content), exit_code: None })
}
