//! Mounts, a network and shared memory of the supervisor's own, which keepers and commands inherit.
//!
//! Everything is mounted as it was, but read-only; what may be written is writable, and what in it may not is read-only
//! again and, like the directories on the way to it, cannot be moved. Sockets that programs outside listen on cannot be
//! met by their names. The network has a loopback and nothing else. Root makes the namespaces as root; everyone else
//! needs a user namespace, in which the user keeps the number it has.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use mainstay_session::message::FilePath;
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_bind_recursive, mount_change};

use super::layout::{Layout, SHARED_MEMORY};
use crate::sys::{change_mount, loopback_up, unshare};

const READ_ONLY: u64 = libc::MOUNT_ATTR_RDONLY;

/// The most sockets of others that can be hidden.
const MOST_SOCKETS: usize = 2_000;

/// Directories that hold little but sockets of programs of the user, also of such as come later.
const OF_SOCKETS: [&str; 1] = ["/run/user"];

/// Enters namespaces of its own and says whether terminals are its own too. After a failure the process is of no use.
pub(super) fn enter(layout: &Layout) -> io::Result<bool> {
    let sockets = of_others(layout)?;
    make()?;
    loopback_up().map_err(|error| named("the loopback interface", error))?;
    mounts(layout, &sockets)
}

fn make() -> io::Result<()> {
    const ALL: i32 = libc::CLONE_NEWNS | libc::CLONE_NEWNET | libc::CLONE_NEWIPC;
    if rustix::process::geteuid().is_root() && unshare(ALL).is_ok() {
        return Ok(());
    }
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    unshare(libc::CLONE_NEWUSER | ALL).map_err(|error| named("a user namespace", error))?;
    let map = |of: &str, text: String| {
        fs::write(format!("/proc/self/{of}"), text).map_err(|error| named(of, error))
    };
    map("uid_map", format!("{user} {user} 1"))?;
    map("setgroups", "deny".to_owned())?;
    map("gid_map", format!("{group} {group} 1"))
}

fn named(what: &str, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

fn mounts(layout: &Layout, sockets: &BTreeSet<PathBuf>) -> io::Result<bool> {
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).map_err(|error| named("mounts of its own", error.into()))?;
    for root in layout.writable.iter().map(FilePath::as_path) {
        if root == Path::new(SHARED_MEMORY) { own_memory()? } else { pin(root)? }
    }
    let writable = writable_mounts(layout)?;
    change_mount(Path::new("/"), READ_ONLY, 0, true).map_err(|error| named("read-only mounts", error))?;
    for place in writable {
        change_mount(&place, 0, READ_ONLY, false).map_err(|error| named(&shown(&place), error))?;
    }
    for place in &layout.pinned {
        pin(place.as_path())?;
    }
    for place in &layout.protected {
        pin(place.as_path())?;
        let done = change_mount(place.as_path(), READ_ONLY, 0, true);
        done.map_err(|error| named(&shown(place.as_path()), error))?;
    }
    hide_sockets(sockets)?;
    Ok(own_terminals().is_ok())
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// Makes a place a mount, which can be neither moved nor removed.
fn pin(place: &Path) -> io::Result<()> {
    mount_bind_recursive(place, place).map_err(|error| named(&shown(place), error.into()))
}

/// The mounts at and in what may be written, but for those that were read-only before.
fn writable_mounts(layout: &Layout) -> io::Result<BTreeSet<PathBuf>> {
    let list = fs::read("/proc/self/mountinfo")?;
    let mounts = list.split(|byte| *byte == b'\n').filter_map(|line| {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        let is_writable = fields.get(5)?.split(|byte| *byte == b',').any(|option| option == b"rw");
        let place = unescaped(fields.get(4)?);
        let is_inside = layout.writable.iter().any(|root| place.starts_with(root.as_path()));
        (is_writable && is_inside).then_some(place)
    });
    Ok(mounts.collect())
}

/// A path as `/proc` writes it, with octal escapes.
fn unescaped(text: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, others)) = rest.split_first() {
        let digits = others.get(..3).filter(|_| *first == b'\\');
        let code = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &others[3..] } else { others };
    }
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}

/// The sockets in the file system that programs listen on, as far as the kernel tells.
fn listening() -> io::Result<BTreeSet<PathBuf>> {
    let list = fs::read("/proc/net/unix").map_err(|error| named("/proc/net/unix", error))?;
    let paths = list.split(|byte| *byte == b'\n').filter_map(|line| {
        let line = String::from_utf8_lossy(line);
        let at = line.find('/')?;
        // An address with more than its number, of a program that accepts or takes datagrams.
        let fields: Vec<&str> = line[..at].split_ascii_whitespace().collect();
        let (flags, kind) = (fields.get(3)?, fields.get(4)?);
        (*flags == "00010000" || *kind == "0002").then(|| PathBuf::from(&line[at..]))
    });
    Ok(paths.collect())
}

/// The sockets in the file system that programs listen on, but for the session's own: wherever they lie, since whoever
/// lets commands write in a directory does not mean what programs there would do for them.
pub(super) fn of_others(layout: &Layout) -> io::Result<BTreeSet<PathBuf>> {
    let hidden_anyway = OF_SOCKETS.into_iter().chain([SHARED_MEMORY]).map(Path::new);
    let but: Vec<&Path> = hidden_anyway.chain([layout.tmp.as_path()]).collect();
    let all = listening()?.into_iter().filter_map(|path| path.canonicalize().ok());
    let others: BTreeSet<PathBuf> =
        all.filter(|path| !but.iter().any(|place| path.starts_with(place))).collect();
    if others.len() > MOST_SOCKETS {
        return Err(io::Error::other(format!("{} sockets of other programs cannot be hidden", others.len())));
    }
    Ok(others)
}

/// Directories in which there is nothing for commands.
pub(super) fn folders_of_sockets() -> impl Iterator<Item = &'static str> {
    OF_SOCKETS.into_iter().filter(|folder| Path::new(folder).is_dir())
}

fn hide_sockets(sockets: &BTreeSet<PathBuf>) -> io::Result<()> {
    for folder in folders_of_sockets() {
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::RDONLY;
        mount("tmpfs", folder, "tmpfs", flags, c"mode=0755,size=4k")
            .map_err(|error| named(folder, error.into()))?;
    }
    for path in sockets {
        // One that is gone by now, or that this user cannot meet, needs no hiding.
        if let Err(error) = mount_bind_recursive("/dev/null", path)
            && rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok()
        {
            return Err(named(&shown(path), error.into()));
        }
    }
    Ok(())
}

/// Memory that only commands share: that of others could be written to.
fn own_memory() -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("tmpfs", SHARED_MEMORY, "tmpfs", flags, c"mode=1777")
        .map_err(|error| named(SHARED_MEMORY, error.into()))
}

/// Terminals that only commands use: those of others could be written to.
fn own_terminals() -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    mount("devpts", "/dev/pts", "devpts", flags, c"newinstance,ptmxmode=0666,mode=620")?;
    Ok(mount_bind_recursive("/dev/pts/ptmx", "/dev/ptmx")?)
}
