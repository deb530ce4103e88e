//! Mounts, a network and shared memory of the supervisor's own, which keepers and commands inherit.
//!
//! Everything is mounted as it was, but read-only; what may be written is writable, and what in it may not is read-only
//! again and, like the directories on the way to it, cannot be moved. Sockets that programs outside listen on cannot be
//! met by their names. The network has a loopback and nothing else. Root makes the namespaces as root; everyone else
//! needs a user namespace, in which the user keeps the number it has.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use mainstay_session::message::FilePath;
use rustix::fs::{
    Access, AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, StatxAttributes, StatxFlags, access, openat2,
    statx,
};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, mount, mount_bind_recursive,
    mount_change, move_mount, open_tree,
};

use super::layout::{Layout, SHARED_MEMORY};
use super::sockets::hidden_folders;
use crate::paths::is_missing;
use crate::sys::{change_mount, change_mount_of, loopback_up, unshare};

const READ_ONLY: u64 = libc::MOUNT_ATTR_RDONLY;

/// Enters namespaces of its own and says whether terminals are its own too. After a failure the process is of no use.
pub(super) fn enter(layout: &Layout, sockets: &BTreeSet<PathBuf>) -> io::Result<bool> {
    make()?;
    loopback_up().map_err(|error| named("the loopback interface", error))?;
    mounts(layout, sockets)
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
    let has_terminals = own_terminals().is_ok();
    share();
    Ok(has_terminals)
}

/// Has what is mounted later come to the namespaces of commands too, which are made from these. Whoever may not do this
/// mounts nothing later.
pub(super) fn share() {
    let _ = mount_change("/", MountPropagationFlags::SHARED | MountPropagationFlags::REC);
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

fn hide_sockets(sockets: &BTreeSet<PathBuf>) -> io::Result<()> {
    for folder in hidden_folders() {
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::RDONLY;
        mount("tmpfs", folder, "tmpfs", flags, c"mode=0755,size=4k")
            .map_err(|error| named(folder, error.into()))?;
    }
    sockets.iter().try_for_each(|socket| hide(socket))
}

/// Hides a socket. One that is gone by now, or that this user cannot meet, needs no hiding.
pub(super) fn hide(socket: &Path) -> io::Result<()> {
    match mount_bind_recursive("/dev/null", socket) {
        Err(error) if access(socket, Access::WRITE_OK).is_ok() => Err(named(&shown(socket), error.into())),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// What lies at a path, for commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Nothing.
    Nothing,
    /// A link.
    Link,
    /// Something that is no mount, so that it can be moved away, and changed where its directory may be.
    Open,
    /// A mount: commands can make none, so it was made here.
    Mount,
}

impl Place {
    /// Whether the kernel tells a mount from what is none. Where it does not, everything would look open.
    pub(super) fn mounts_are_told() -> bool {
        statx(CWD, "/", AtFlags::SYMLINK_NOFOLLOW, StatxFlags::TYPE)
            .is_ok_and(|found| found.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT))
    }

    /// Looks at a path.
    pub(super) fn at(path: &Path) -> Self {
        match statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::TYPE) {
            Err(Errno::NOENT | Errno::NOTDIR) => Place::Nothing,
            Err(_) => Place::without_mounts(path),
            Ok(found) if FileType::from_raw_mode(found.stx_mode.into()) == FileType::Symlink => Place::Link,
            Ok(found) if found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) => Place::Mount,
            Ok(_) => Place::Open,
        }
    }

    /// The same where that question is not answered, as in a container that does not know the call.
    fn without_mounts(path: &Path) -> Self {
        match fs::symlink_metadata(path) {
            Err(error) if is_missing(&error) => Place::Nothing,
            Ok(metadata) if metadata.is_symlink() => Place::Link,
            Ok(_) | Err(_) => Place::Open,
        }
    }
}

/// Makes a place a mount once more, for all whose mounts come from here, at one stroke. No link is followed.
pub(super) fn cover(place: &Path, is_read_only: bool) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let at = openat2(CWD, place, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?;
    let clone = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::AT_RECURSIVE;
    let tree = open_tree(&at, c"", clone)?;
    if is_read_only {
        change_mount_of(tree.as_fd(), READ_ONLY)?;
    }
    let onto = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(move_mount(&tree, c"", &at, c"", onto)?)
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
