//! What commands made though they must not is moved out of the way.
//!
//! Under the way of a path no link is followed: one that was put there is itself what must go. A directory whose mode
//! keeps this out is opened for as long as that takes. What cannot be moved is said; nothing fails silently.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use mainstay_session::message::FilePath;
use rustix::fs::{CWD, Mode, OFlags, RenameFlags, chmod, fstat, openat, renameat_with};
use rustix::io::Errno;

use super::{Aside, Fate, Layout};

/// The names that are tried for what is moved.
const NAMES: std::ops::Range<u32> = 1..1_000;

/// Moves what lies at a path. None if nothing lies there any more, since another keeper was faster, and none if it lies in
/// nothing that commands may write: then none has made it.
pub(super) fn put_aside(layout: &Layout, path: &Path) -> Option<Aside> {
    let fate = match moved(layout, path) {
        Ok(to) => Fate::Moved(FilePath(to)),
        Err(Errno::NOENT) => return None,
        Err(Errno::EXIST) => {
            let name = path.file_name().unwrap_or_default().display();
            Fate::Stuck(format!("the names up to {name}.refused-{} are taken", NAMES.end - 1))
        }
        Err(error) => Fate::Stuck(std::io::Error::from(error).to_string()),
    };
    Some(Aside { path: FilePath(path.to_owned()), fate })
}

fn moved(layout: &Layout, path: &Path) -> rustix::io::Result<PathBuf> {
    let root = layout.outermost().find(|root| path.starts_with(root)).ok_or(Errno::NOENT)?;
    let parts: Vec<&OsStr> = path.strip_prefix(root).map_err(|_| Errno::NOENT)?.iter().collect();
    let (name, folders) = parts.split_last().ok_or(Errno::NOENT)?;
    let folder = openat(CWD, root, FOLDER, Mode::empty())?;
    Ok(root.join(moved_within(&folder, folders, name)?))
}

const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Moves what lies below a directory, and says where to, seen from there.
fn moved_within(folder: &OwnedFd, folders: &[&OsStr], name: &OsStr) -> rustix::io::Result<PathBuf> {
    let Some((first, rest)) = folders.split_first() else {
        return opened(folder, || to_free_name(folder, name)).map(PathBuf::from);
    };
    opened(folder, || match openat(folder, *first, FOLDER, Mode::empty()) {
        Ok(next) => Ok(Path::new(first).join(moved_within(&next, rest, name)?)),
        Err(Errno::NOTDIR | Errno::LOOP) => to_free_name(folder, first).map(PathBuf::from),
        Err(error) => Err(error),
    })
}

fn to_free_name(folder: &OwnedFd, name: &OsStr) -> rustix::io::Result<OsString> {
    for number in NAMES {
        let mut free = name.to_owned();
        free.push(format!(".refused-{number}"));
        match renameat_with(folder, name, folder, &free, RenameFlags::NOREPLACE) {
            Ok(()) => return Ok(free),
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error),
        }
    }
    Err(Errno::EXIST)
}

/// Does something in a directory; if its mode does not let this user, then with one that does.
fn opened<T>(folder: &OwnedFd, act: impl Fn() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    match act() {
        Err(Errno::ACCESS) => {}
        done => return done,
    }
    let mode = Mode::from_raw_mode(fstat(folder.as_fd())?.st_mode & 0o7777);
    // A handle that only names a place can be met by its name alone.
    let place = format!("/proc/self/fd/{}", folder.as_raw_fd());
    chmod(&place, mode | Mode::RWXU).map_err(|_| Errno::ACCESS)?;
    let done = act();
    let restored = chmod(&place, mode);
    let done = done?;
    restored.map(|()| done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::{Sandbox, SandboxMode};

    #[test]
    fn of_what_another_keeper_has_moved_nothing_is_said() -> std::io::Result<()> {
        let top = tempfile::tempdir()?;
        let root = top.path().canonicalize()?;
        let layout = Layout::of(&Sandbox::new(SandboxMode::WorkspaceWrite, root.clone()), root.join("tmp"));
        let place = root.join("there");
        std::fs::write(&place, "")?;
        let fate = Fate::Moved(FilePath(root.join("there.refused-1")));
        assert_eq!(put_aside(&layout, &place), Some(Aside { path: FilePath(place.clone()), fate }));
        assert_eq!(put_aside(&layout, &place), None);
        assert_eq!(put_aside(&layout, &root.join("gone/with/it")), None);
        Ok(())
    }
}
