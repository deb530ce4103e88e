//! Which sockets in the file system are not for commands: those of programs outside, wherever they lie, since whoever
//! lets commands write in a directory does not mean what programs there would do for them.
//!
//! The kernel lists the names that programs listen on, as they were when they were bound. A name says little where it
//! is relative, or where the socket has been renamed or linked since. So, when the sandbox is made, all sockets beside a
//! listed one are taken, and if a name leads nowhere, all in what commands may write. Later, when a command is about to
//! run, what has come to be listed since is taken too; the list is that of this process, in which commands, whose
//! network is another, never are.

use std::collections::{BTreeMap, BTreeSet};
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

/// The most files that are looked at for sockets beside a listed one, and for those whose names lead nowhere.
const MOST_LOOKED_AT: usize = 100_000;

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
    /// The places of listed sockets, by their numbers: of those that have come since. Those of the beginning have none
    /// here.
    later: Mutex<BTreeMap<u64, BTreeSet<PathBuf>>>,
}

impl Sockets {
    /// Those that are there now.
    ///
    /// # Errors
    ///
    /// The kernel does not list them, there are too many, or there is too much to look at for them.
    pub(crate) fn now(layout: &Layout) -> io::Result<Self> {
        let hidden = HIDDEN_FOLDERS.into_iter().chain([SHARED_MEMORY]).map(PathBuf::from);
        let but: Vec<PathBuf> = hidden.chain([layout.tmp.0.clone()]).collect();
        let writable = layout.writable.iter().map(|path| path.0.clone());
        let writable = writable.filter(|path| !but.contains(path)).collect();
        let mut sockets = Sockets { but, writable, first: BTreeSet::new(), later: Mutex::default() };
        let (mut known, mut first) = (BTreeMap::new(), BTreeSet::new());
        let mut is_astray = false;
        for (number, name) in listening()? {
            known.insert(number, BTreeSet::new());
            match sockets.place_of(&name) {
                Some(place) => {
                    if let Some(folder) = place.parent().filter(|_| sockets.is_of_others(&place)) {
                        first.extend(sockets_in(folder, MOST_LOOKED_AT)?);
                    }
                    first.insert(place);
                }
                None => is_astray = true,
            }
        }
        if is_astray {
            first.extend(sockets.astray(|_| true, MOST_LOOKED_AT)?);
        }
        first.retain(|path| sockets.is_of_others(path));
        few_enough(first.len())?;
        sockets.first = first;
        sockets.later = Mutex::new(known);
        Ok(sockets)
    }

    /// Those of the beginning.
    pub(crate) fn first(&self) -> Vec<FilePath> {
        self.first.iter().cloned().map(FilePath).collect()
    }

    /// Those that have come since and are still listened on.
    ///
    /// # Errors
    ///
    /// The kernel does not list them, there are too many, or there is too much to look at for them.
    pub(crate) fn since(&self) -> io::Result<Vec<FilePath>> {
        let listed: BTreeMap<u64, PathBuf> = listening()?.into_iter().collect();
        let mut later = self.later.lock().unwrap_or_else(PoisonError::into_inner);
        later.retain(|number, _| listed.contains_key(number));
        let mut astray: BTreeMap<OsString, Vec<u64>> = BTreeMap::new();
        for (number, name) in listed {
            if later.contains_key(&number) {
                continue;
            }
            let place = self.place_of(&name);
            if let (None, Some(name)) = (&place, name.file_name()) {
                astray.entry(name.to_owned()).or_default().push(number);
            }
            later.insert(number, place.into_iter().filter(|place| self.is_of_others(place)).collect());
        }
        if !astray.is_empty() {
            for place in self.astray(|name| astray.contains_key(name), MOST_LOOKED_AT)? {
                for number in place.file_name().and_then(|name| astray.get(name)).into_iter().flatten() {
                    later.entry(*number).or_default().insert(place.clone());
                }
            }
        }
        let found: BTreeSet<&PathBuf> = later.values().flatten().collect();
        let found: Vec<FilePath> =
            found.into_iter().filter(|path| !self.first.contains(*path)).cloned().map(FilePath).collect();
        few_enough(found.len())?;
        Ok(found)
    }

    fn place_of(&self, name: &Path) -> Option<PathBuf> {
        name.is_absolute().then(|| name.canonicalize().ok()).flatten()
    }

    fn is_of_others(&self, path: &Path) -> bool {
        !self.but.iter().any(|place| path.starts_with(place))
    }

    /// Sockets of these names in what commands may write.
    fn astray(&self, is_meant: impl Fn(&OsStr) -> bool, most: usize) -> io::Result<Vec<PathBuf>> {
        let mut roots = self.writable.iter();
        let Some(first) = roots.next() else { return Ok(Vec::new()) };
        let mut walk = ignore::WalkBuilder::new(first);
        for root in roots {
            walk.add(root);
        }
        walk.standard_filters(false).filter_entry(|entry| {
            !entry.path().ends_with(".git/objects")
                && !OF_BUILDS.iter().any(|name| entry.file_name() == *name)
        });
        let mut entries = walk.build().flatten();
        let sockets = entries
            .by_ref()
            .take(most)
            .filter(|entry| entry.file_type().is_some_and(|kind| kind.is_socket()));
        let found =
            sockets.filter(|entry| is_meant(entry.file_name())).map(ignore::DirEntry::into_path).collect();
        entries.next().map_or(Ok(found), |_| Err(too_much("what commands may write")))
    }
}

fn too_much(place: &str) -> io::Error {
    io::Error::other(format!("{place} holds too much to be looked through for sockets of other programs"))
}

fn few_enough(sockets: usize) -> io::Result<()> {
    match sockets {
        0..=MOST => Ok(()),
        _ => Err(io::Error::other(format!("{sockets} sockets of other programs cannot be hidden"))),
    }
}

/// Directories in which there is nothing for commands.
pub(super) fn hidden_folders() -> impl Iterator<Item = &'static str> {
    HIDDEN_FOLDERS.into_iter().filter(|folder| Path::new(folder).is_dir())
}

fn sockets_in(folder: &Path, most: usize) -> io::Result<Vec<PathBuf>> {
    let mut entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let sockets =
        entries.by_ref().take(most).filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_socket()));
    let found = sockets.map(|entry| entry.path()).collect();
    entries.next().map_or(Ok(found), |_| Err(too_much(&folder.display().to_string())))
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

    #[test]
    fn what_is_not_looked_through_for_sockets_is_said() -> io::Result<()> {
        use std::os::unix::net::UnixListener;
        let top = tempfile::tempdir()?;
        let root = top.path().canonicalize()?;
        let _listener = UnixListener::bind(root.join("socket"))?;
        let writable = vec![root.clone()];
        let (but, first, later) = (Vec::new(), BTreeSet::new(), Mutex::default());
        let sockets = Sockets { but, writable, first, later };
        // The directory itself counts too, where one is walked.
        let looks =
            |most: usize| [sockets.astray(|_| true, most + 1), sockets_in(&root, most)].map(Result::ok);
        let found = || Some(vec![root.join("socket")]);
        assert_eq!(looks(1), [found(), found()]);
        fs::write(root.join("more"), "")?;
        assert_eq!(looks(1), [None, None]);
        assert_eq!(looks(2), [found(), found()]);
        Ok(())
    }

    #[test]
    fn only_what_is_still_listened_on_is_kept() -> io::Result<()> {
        use crate::sandbox::{Sandbox, SandboxMode};
        use std::os::unix::net::UnixListener;
        let top = tempfile::tempdir()?;
        let root = top.path().canonicalize()?;
        let layout = Layout::of(&Sandbox::new(SandboxMode::WorkspaceWrite, root.clone()), root.join("tmp"));
        let sockets = Sockets::now(&layout)?;
        // Others on this machine begin and end as well.
        let since = || -> io::Result<Vec<PathBuf>> {
            let all = sockets.since()?.into_iter().map(|path| path.0);
            Ok(all.filter(|path| path.starts_with(&root)).collect())
        };
        let known = || {
            sockets
                .later
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .values()
                .flatten()
                .cloned()
                .collect::<Vec<_>>()
        };
        let one = UnixListener::bind(root.join("one"))?;
        let _other = UnixListener::bind(root.join("other"))?;
        assert_eq!(since()?, [root.join("one"), root.join("other")]);
        drop(one);
        assert_eq!(since()?, [root.join("other")]);
        assert!(!known().contains(&root.join("one")));
        assert!(few_enough(MOST).is_ok() && few_enough(MOST + 1).is_err());
        Ok(())
    }
}
