//! What the operating system is asked for directly. All of the crate's `unsafe` is here.
//!
//! Linux has everything; elsewhere there is no pid namespace and no subreaper, so that ending a command's whole tree is
//! best effort.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

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
/// commands. Old kernels cannot; then it stays open.
#[cfg(target_os = "linux")]
pub(crate) fn close_what_was_inherited() {
    // SAFETY: takes plain values; the caller holds no descriptor beyond the first three.
    unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) };
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

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Code(i32),
    Signal(i32),
}

/// Waits for one child.
pub(crate) fn wait_for(pid: u32) -> Exit {
    let mut status = 0;
    loop {
        // SAFETY: `status` lives through the call.
        let found = unsafe { libc::waitpid(pid.cast_signed(), &mut status, 0) };
        if found >= 0 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            break;
        }
    }
    if libc::WIFSIGNALED(status) {
        Exit::Signal(libc::WTERMSIG(status))
    } else {
        Exit::Code(libc::WEXITSTATUS(status))
    }
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
#[cfg(target_os = "linux")]
pub(crate) fn become_subreaper() {
    // SAFETY: takes plain values.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
}

/// Has the process killed when its parent ends.
#[cfg(target_os = "linux")]
pub(crate) fn die_with_parent() {
    // SAFETY: takes plain values.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) };
}

/// Lets children that are forked from now on live in a new pid namespace. Needs a privilege that only root has.
#[cfg(target_os = "linux")]
pub(crate) fn new_pid_namespace() -> io::Result<()> {
    // SAFETY: takes a plain value.
    if unsafe { libc::unshare(libc::CLONE_NEWPID) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Gives the process mounts of its own, in which `/proc` shows the processes of its pid namespace.
#[cfg(target_os = "linux")]
pub(crate) fn own_proc() -> io::Result<()> {
    let here = libc::MS_REC | libc::MS_PRIVATE;
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
