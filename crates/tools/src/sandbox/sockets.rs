//! Which sockets in the file system are not for commands: those of programs outside, wherever they lie, since whoever
//! lets commands write in a directory does not mean what programs there would do for them.
//!
//! The kernel lists the names that programs listen on, as they were when they were bound. A name says little where it
//! is relative, or where the socket has been renamed or linked since. So, when the sandbox is made, all sockets beside a
//! listed one are taken, and if a name leads nowhere, all in what commands may write. Later, when a command is about to
//! run, what has come to be listed since is taken too; the list is that of this process, in which commands, whose
//! network is another, never are.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use mainstay_session::message::FilePath;

use super::Layout;
use super::layout::{OF_BUILDS, SHARED_MEMORY};

/// The most sockets of others that can be hidden.
const MOST: usize = 2_000;

/// The most files that are looked at for sockets whose names lead nowhere.
const MOST_LOOKED_AT: usize = 20_000;

/// Directories that hold little but sockets of programs of the user, also of such as come later. They are hidden whole.
const HIDDEN_FOLDERS: [&str; 1] = ["/run/user"];

/// The sockets of others, as far as they are known.
#[derive(Debug)]
pub(crate) struct Sockets {
    /// Where sockets are the session's own, or hidden anyway.
    but: Vec<PathBuf>,
    /// Where commands may write.
    writable: Vec<PathBuf>,
    /// Those that were there when the sandbox was made.
    first: BTreeSet<PathBuf>,
    later: Mutex<Later>,
}

#[derive(Debug, Default)]
struct Later {
    /// The numbers of listed sockets whose places are known, or were looked for.
    known: BTreeSet<u64>,
    found: BTreeSet<PathBuf>,
}

impl Sockets {
    /// Those that are there now.
    ///
    /// # Errors
    ///
    /// The kernel does not list them, or there are too many.
    pub(crate) fn now(layout: &Layout) -> io::Result<Self> {
        let hidden = HIDDEN_FOLDERS.into_iter().chain([SHARED_MEMORY]).map(PathBuf::from);
        let but: Vec<PathBuf> = hidden.chain([layout.tmp.0.clone()]).collect();
        let writable = layout.writable.iter().map(|path| path.0.clone());
        let writable = writable.filter(|path| !but.contains(path)).collect();
        let mut sockets = Sockets { but, writable, first: BTreeSet::new(), later: Mutex::default() };
        let (mut known, mut first) = (BTreeSet::new(), BTreeSet::new());
        let mut is_astray = false;
        for (number, name) in listening()? {
            known.insert(number);
            match sockets.place_of(&name) {
                Some(place) => {
                    first.extend(place.parent().into_iter().flat_map(sockets_in));
                    first.insert(place);
                }
                None => is_astray = true,
            }
        }
        if is_astray {
            first.extend(sockets.astray(|_| true));
        }
        first.retain(|path| sockets.is_of_others(path));
        if first.len() > MOST {
            let why = format!("{} sockets of other programs cannot be hidden", first.len());
            return Err(io::Error::other(why));
        }
        sockets.first = first;
        sockets.later = Mutex::new(Later { known, found: BTreeSet::new() });
        Ok(sockets)
    }

    /// Those of the beginning.
    pub(crate) fn first(&self) -> Vec<FilePath> {
        self.first.iter().cloned().map(FilePath).collect()
    }

    /// Those that have come since, up to now.
    ///
    /// # Errors
    ///
    /// The kernel does not list them.
    pub(crate) fn since(&self) -> io::Result<Vec<FilePath>> {
        let listed = listening()?;
        let mut later = self.later.lock().unwrap_or_else(PoisonError::into_inner);
        let mut astray: BTreeSet<OsString> = BTreeSet::new();
        for (number, name) in listed {
            if !later.known.insert(number) {
                continue;
            }
            match self.place_of(&name) {
                Some(place) => later.found.extend(self.is_of_others(&place).then_some(place)),
                None => astray.extend(name.file_name().map(OsStr::to_owned)),
            }
        }
        if !astray.is_empty() {
            later.found.extend(self.astray(|name| astray.contains(name)));
        }
        let found = later.found.difference(&self.first);
        Ok(found.cloned().map(FilePath).collect())
    }

    fn place_of(&self, name: &Path) -> Option<PathBuf> {
        name.is_absolute().then(|| name.canonicalize().ok()).flatten()
    }

    fn is_of_others(&self, path: &Path) -> bool {
        !self.but.iter().any(|place| path.starts_with(place))
    }

    /// Sockets of these names in what commands may write.
    fn astray(&self, is_meant: impl Fn(&OsStr) -> bool) -> Vec<PathBuf> {
        let mut roots = self.writable.iter();
        let Some(first) = roots.next() else { return Vec::new() };
        let mut walk = ignore::WalkBuilder::new(first);
        for root in roots {
            walk.add(root);
        }
        walk.standard_filters(false).filter_entry(|entry| {
            !entry.path().ends_with(".git/objects")
                && !OF_BUILDS.iter().any(|name| entry.file_name() == *name)
        });
        let entries = walk.build().flatten().take(MOST_LOOKED_AT);
        let sockets = entries.filter(|entry| entry.file_type().is_some_and(|kind| kind.is_socket()));
        sockets.filter(|entry| is_meant(entry.file_name())).map(ignore::DirEntry::into_path).collect()
    }
}

/// Directories in which there is nothing for commands.
pub(super) fn hidden_folders() -> impl Iterator<Item = &'static str> {
    HIDDEN_FOLDERS.into_iter().filter(|folder| Path::new(folder).is_dir())
}

fn sockets_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().take(MOST_LOOKED_AT);
    let sockets = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_socket()));
    sockets.map(|entry| entry.path()).collect()
}

/// The sockets that programs listen on: their numbers, which no two have, and their names, as they were given.
fn listening() -> io::Result<Vec<(u64, PathBuf)>> {
    let list = fs::read("/proc/net/unix")
        .map_err(|error| io::Error::new(error.kind(), format!("/proc/net/unix: {error}")))?;
    Ok(list.split(|byte| *byte == b'\n').filter_map(listened_on).collect())
}

/// The number and the name in a line of the list, if it has one and the program accepts or takes datagrams.
fn listened_on(line: &[u8]) -> Option<(u64, PathBuf)> {
    let (mut fields, mut rest) = (Vec::new(), line);
    // An address, five numbers, and that of the socket.
    for _ in 0..7 {
        rest = rest.trim_ascii_start();
        let end = rest.iter().position(|byte| *byte == b' ')?;
        fields.push(&rest[..end]);
        rest = &rest[end..];
    }
    let name = rest.strip_prefix(b" ").filter(|name| !name.is_empty() && name[0] != b'@')?;
    let is_met = *fields.get(3)? == b"00010000" || *fields.get(4)? == b"0002";
    let number = std::str::from_utf8(fields.get(6)?).ok()?.parse().ok()?;
    is_met.then(|| (number, PathBuf::from(OsStr::from_bytes(name))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_were_bound() {
        let line = |flags: &str, kind: &str, name: &str| {
            let line = format!("ffff88: 00000002 00000000 {flags} {kind} 01   123{name}");
            listened_on(line.as_bytes())
        };
        let all = [
            line("00010000", "0001", " /run/a b"),
            line("00010000", "0001", " dir/x"),
            line("00000000", "0002", " /dgram"),
            line("00000000", "0001", " /connected"),
            line("00010000", "0001", " @abstract"),
            line("00010000", "0001", ""),
        ];
        let names = [Some("/run/a b"), Some("dir/x"), Some("/dgram"), None, None, None];
        assert_eq!(all, names.map(|name| name.map(|name| (123, PathBuf::from(name)))));
    }
}
