//! What the operating system is asked for directly. All of the crate's `unsafe` is here.
//!
//! Linux has everything. Elsewhere there is no pid namespace, no subreaper and no `/proc`: a command's process group is
//! ended, and what left it is not found. That is written for macOS and tried nowhere.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;

/// How a message is sent: a socket whose other end is gone is an error, not a signal. (Rust programs ignore the signal
/// elsewhere too, unless their embedder has changed that.)
#[cfg(target_os = "linux")]
pub(crate) const SEND: rustix::net::SendFlags = rustix::net::SendFlags::NOSIGNAL;
#[cfg(not(target_os = "linux"))]
pub(crate) const SEND: rustix::net::SendFlags = rustix::net::SendFlags::empty();

/// How a message is received: its descriptors are not for programs that are started.
#[cfg(target_os = "linux")]
pub(crate) const RECEIVE: rustix::net::RecvFlags = rustix::net::RecvFlags::CMSG_CLOEXEC;
#[cfg(not(target_os = "linux"))]
pub(crate) const RECEIVE: rustix::net::RecvFlags = rustix::net::RecvFlags::empty();

/// Makes the process unreadable for others of its user and keeps it from leaving its memory in a core file, since it
/// holds keys. A file size limit becomes an error of the write that meets it.
pub fn harden_process() {
    // SAFETY: these calls take plain values and a struct that lives through the call; a failure changes nothing.
    unsafe {
        #[cfg(target_os = "linux")]
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        libc::setrlimit(libc::RLIMIT_CORE, &none);
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}

/// Whether the process that had this pid when it started at this tick since boot is alive.
pub fn is_running(pid: u32, started: u64) -> bool {
    stat_of("/proc", pid).is_some_and(|stat| stat.started == started && stat.state != 'Z')
}

/// This program, to be started again. On Linux by what is running, not by its name: that may have been replaced since.
pub(crate) fn this_program() -> PathBuf {
    let running = PathBuf::from("/proc/self/exe");
    if cfg!(target_os = "linux") { running } else { std::env::current_exe().unwrap_or(running) }
}

/// What `/proc/PID/stat` says of a process.
pub(crate) struct Stat {
    pub(crate) state: char,
    pub(crate) parent: u32,
    /// In clock ticks since boot.
    pub(crate) started: u64,
}

/// Reads `/proc/PID/stat`; none if there is no such process.
pub(crate) fn stat_of(proc: &str, pid: u32) -> Option<Stat> {
    let text = fs::read_to_string(format!("{proc}/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything, so the fields are counted from its end.
    let fields: Vec<&str> = text.get(text.rfind(')')? + 1..)?.split_ascii_whitespace().collect();
    Some(Stat {
        state: fields.first()?.chars().next()?,
        parent: fields.get(1)?.parse().ok()?,
        started: fields.get(19)?.parse().ok()?,
    })
}

/// All processes that a `/proc` shows.
pub(crate) fn pids(proc: &str) -> Vec<u32> {
    let Ok(names) = fs::read_dir(proc) else { return Vec::new() };
    names.filter_map(|name| name.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// What a fork returned.
pub(crate) enum Fork {
    Child,
    Parent(u32),
}

/// Forks the process.
///
/// Only for a process of one thread; the child must end with [`exec`] or [`exit_now`].
pub(crate) fn fork() -> io::Result<Fork> {
    // SAFETY: the supervisor has one thread, so no lock can be held by another one at this moment.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Fork::Child),
        pid => Ok(Fork::Parent(pid.unsigned_abs())),
    }
}

/// Ends the process without running anything else.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: `_exit` takes a value and never returns.
    unsafe { libc::_exit(code) }
}

/// Begins a session of its own: no controlling terminal, and no signal from one.
pub(crate) fn begin_session() {
    // SAFETY: takes nothing; fails only for the leader of a process group, which already is what is wanted.
    unsafe { libc::setsid() };
}

/// Makes a descriptor the process's standard input (0), output (1) or error (2).
pub(crate) fn put_at(source: RawFd, place: RawFd) {
    // SAFETY: both are numbers; a bad one is an error that leaves everything as it was.
    unsafe { libc::dup2(source, place) };
}

/// Gives every signal its default meaning and unblocks all, as a program that is started expects it.
pub(crate) fn reset_signals() {
    // SAFETY: the set lives through the calls; signals that cannot be changed are refused without effect.
    unsafe {
        for signal in 1..=64 {
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut none = std::mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
    }
}

/// Closes every descriptor but standard input, output and error: whatever else this program was started with is not for
/// commands.
pub(crate) fn close_what_was_inherited() {
    // SAFETY: takes plain values; the caller holds no descriptor beyond the first three.
    #[cfg(target_os = "linux")]
    if unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) } == 0 {
        return;
    }
    let open: Vec<i32> = match fs::read_dir("/dev/fd") {
        Ok(names) => names.filter_map(|name| name.ok()?.file_name().to_str()?.parse().ok()).collect(),
        Err(_) => (3..1024).collect(),
    };
    for descriptor in open.into_iter().filter(|descriptor| *descriptor > 2) {
        // SAFETY: as above; that of the listing is closed already, which is an error without effect.
        unsafe { libc::close(descriptor) };
    }
}

/// Has the process pass over being asked to end, as `killall` asks it: it ends when the agent does, and not before what
/// it runs.
pub(crate) fn ignore_requests_to_end() {
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT, libc::SIGPIPE] {
        // SAFETY: sets a disposition, takes no pointers.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Has ended children wait until they are asked about, even if whoever started this program did not want that of it.
pub(crate) fn keep_ended_children() {
    // SAFETY: sets a disposition, takes no pointers.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

/// Has the kernel forget ended children by itself.
pub(crate) fn ignore_children() {
    // SAFETY: sets a disposition, takes no pointers.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
}

/// Becomes another program, with the environment as it is. Returns only if that failed.
pub(crate) fn exec(program: &CString, arguments: &[CString]) -> io::Error {
    let mut pointers: Vec<*const libc::c_char> = arguments.iter().map(|argument| argument.as_ptr()).collect();
    pointers.push(std::ptr::null());
    // SAFETY: the strings and the list, which ends with a null pointer, live until the call replaces the process.
    unsafe { libc::execv(program.as_ptr(), pointers.as_ptr()) };
    io::Error::last_os_error()
}

/// Sends a signal to a process, to a group (negative), or to all that may be reached (-1).
pub(crate) fn kill(pid: i32, signal: i32) {
    // SAFETY: takes plain values.
    unsafe { libc::kill(pid, signal) };
}

/// Waits for one child.
pub(crate) fn wait_for(pid: u32) {
    while wait(pid, 0).is_err_and(|error| error.kind() == io::ErrorKind::Interrupted) {}
}

/// How a child ended; none as long as it runs. One that cannot be asked about counts as ended.
pub(crate) fn has_ended(pid: u32) -> Option<ExitStatus> {
    wait(pid, libc::WNOHANG).unwrap_or_else(|_| Some(ExitStatus::from_raw(0)))
}

fn wait(pid: u32, options: i32) -> io::Result<Option<ExitStatus>> {
    let mut status = 0;
    // SAFETY: `status` lives through the call.
    match unsafe { libc::waitpid(pid.cast_signed(), &mut status, options) } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        _ => Ok(Some(ExitStatus::from_raw(status))),
    }
}

/// What becomes readable when a child ends; none where the system has no such thing.
#[cfg(target_os = "linux")]
pub(crate) fn end_of(pid: u32) -> Option<OwnedFd> {
    let pid = rustix::process::Pid::from_raw(pid.cast_signed())?;
    rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok()
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn end_of(_pid: u32) -> Option<OwnedFd> {
    None
}

/// This process's children, as far as the system lists them quickly. For a process of one thread.
pub(crate) fn children() -> Vec<u32> {
    let listed = fs::read_to_string(format!("/proc/self/task/{}/children", std::process::id()));
    listed.unwrap_or_default().split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// All processes below one, nearest first.
pub(crate) fn descendants(root: u32) -> Vec<u32> {
    let parents: Vec<(u32, u32)> =
        pids("/proc").into_iter().filter_map(|pid| Some((pid, stat_of("/proc", pid)?.parent))).collect();
    let mut found = vec![root];
    let mut at = 0;
    while let Some(parent) = found.get(at).copied() {
        found.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        at += 1;
    }
    found.split_off(1)
}

/// Reaps whatever ended, without waiting, and says whether any child is left.
pub(crate) fn reap() -> bool {
    loop {
        let mut status = 0;
        // SAFETY: `status` lives through the call.
        match unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG) } {
            0 => return true,
            -1 => return false,
            _ => {}
        }
    }
}

/// Makes orphans among its descendants the process's own children.
pub(crate) fn become_subreaper() {
    // SAFETY: takes plain values.
    #[cfg(target_os = "linux")]
    unsafe {
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    };
}

/// Has the process killed when its parent ends.
pub(crate) fn die_with_parent() {
    // SAFETY: takes plain values.
    #[cfg(target_os = "linux")]
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0)
    };
}

/// Lets children that are forked from now on live in a new pid namespace. Needs a privilege that only root has.
#[cfg(target_os = "linux")]
pub(crate) fn new_pid_namespace() -> io::Result<()> {
    // SAFETY: takes a plain value.
    if unsafe { libc::unshare(libc::CLONE_NEWPID) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Gives the process mounts of its own, in which `/proc` shows the processes of its pid namespace. What is mounted later
/// where it comes from is mounted here too, and not the other way round.
#[cfg(target_os = "linux")]
pub(crate) fn own_proc() -> io::Result<()> {
    let here = libc::MS_REC | libc::MS_SLAVE;
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    // SAFETY: plain values, and strings that live through the calls.
    let done = unsafe {
        libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(c"none".as_ptr(), c"/".as_ptr(), std::ptr::null(), here, std::ptr::null()) == 0
            && libc::mount(c"proc".as_ptr(), c"/proc".as_ptr(), c"proc".as_ptr(), flags, std::ptr::null())
                == 0
    };
    if done { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sees the mounts that `mounts` is a handle of, from the directory `root` within them. A process that may not sees
/// those it has.
#[cfg(target_os = "linux")]
pub(crate) fn enter_mounts(mounts: BorrowedFd<'_>, root: BorrowedFd<'_>) {
    // SAFETY: these calls take open descriptors, plain values and a string that lives through the call.
    unsafe {
        if libc::setns(mounts.as_raw_fd(), libc::CLONE_NEWNS) == 0 && libc::fchdir(root.as_raw_fd()) == 0 {
            libc::chroot(c".".as_ptr());
        }
    }
}

/// Lets children live in the pid namespace that `namespace` is a handle of.
#[cfg(target_os = "linux")]
pub(crate) fn return_to(namespace: BorrowedFd<'_>) {
    // SAFETY: takes an open descriptor and a plain value.
    unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWPID) };
}

/// Leaves namespaces that are shared with others, by the flags of `unshare`.
#[cfg(target_os = "linux")]
pub(crate) fn unshare(flags: i32) -> io::Result<()> {
    // SAFETY: takes a plain value; the callers have one thread, which a new user namespace demands.
    if unsafe { libc::unshare(flags) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sets and clears attributes of the mount at a path, and of all below it if it is to be so.
#[cfg(target_os = "linux")]
pub(crate) fn change_mount(
    at: &std::path::Path,
    set: u64,
    clear: u64,
    with_all_below: bool,
) -> io::Result<()> {
    use std::os::unix::ffi::OsStrExt;
    let at = CString::new(at.as_os_str().as_bytes())?;
    let flags = if with_all_below { libc::AT_RECURSIVE } else { 0 };
    set_mount_attributes(libc::AT_FDCWD, &at, flags, set, clear)
}

/// Sets attributes of the mount that is open here, and of all below it.
#[cfg(target_os = "linux")]
pub(crate) fn change_mount_of(mount: BorrowedFd<'_>, set: u64) -> io::Result<()> {
    set_mount_attributes(mount.as_raw_fd(), c"", libc::AT_EMPTY_PATH | libc::AT_RECURSIVE, set, 0)
}

#[cfg(target_os = "linux")]
fn set_mount_attributes(
    from: RawFd,
    at: &std::ffi::CStr,
    flags: i32,
    set: u64,
    clear: u64,
) -> io::Result<()> {
    let attributes = libc::mount_attr { attr_set: set, attr_clr: clear, propagation: 0, userns_fd: 0 };
    let (call, size) = (libc::SYS_mount_setattr, size_of::<libc::mount_attr>());
    // SAFETY: the path and the struct, whose size is told, live through the call.
    let done = unsafe { libc::syscall(call, from, at.as_ptr(), flags, &raw const attributes, size) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Takes the loopback interface of the process's network namespace into use.
#[cfg(target_os = "linux")]
pub(crate) fn loopback_up() -> io::Result<()> {
    use std::os::fd::FromRawFd;
    // SAFETY: the struct is plain data and lives through the calls; the descriptor is this function's own.
    unsafe {
        let socket = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        if socket < 0 {
            return Err(io::Error::last_os_error());
        }
        let socket = OwnedFd::from_raw_fd(socket);
        let mut request = std::mem::zeroed::<libc::ifreq>();
        request.ifr_name[0] = b'l'.cast_signed();
        request.ifr_name[1] = b'o'.cast_signed();
        if libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFFLAGS, &raw mut request) != 0 {
            return Err(io::Error::last_os_error());
        }
        request.ifr_ifru.ifru_flags |= libc::IFF_UP as libc::c_short;
        if libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw mut request) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// The version of Landlock that the kernel has in use; 0 if it has none.
#[cfg(target_os = "linux")]
pub(crate) fn landlock_version() -> u32 {
    const ASK_FOR_VERSION: u32 = 1;
    let nothing = std::ptr::null::<libc::c_void>();
    // SAFETY: with this flag the call takes no memory.
    let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, nothing, 0, ASK_FOR_VERSION) };
    u32::try_from(version).unwrap_or(0)
}

/// Whether the kernel takes filters of system calls.
#[cfg(target_os = "linux")]
pub(crate) fn has_seccomp_filters() -> bool {
    let action = libc::SECCOMP_RET_ERRNO;
    // SAFETY: the value lives through the call, which only asks.
    unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, 0, &raw const action) == 0 }
}

/// Waits until the process, which has ended children forgotten, has none left.
pub(crate) fn wait_until_childless() {
    let mut status = 0;
    loop {
        // SAFETY: `status` lives through the call.
        let waited = unsafe { libc::waitpid(-1, &raw mut status, 0) };
        if waited < 0 && io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return;
        }
    }
}
