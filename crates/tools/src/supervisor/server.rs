//! The supervisor's own process: one thread, one command at a time.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::protocol::{Exit, Order, Report, frame_length, read_frame, receive, write_frame};
use crate::sys::{self, Fork};

/// How long a command may take to end by itself after it was asked to.
const GRACE: Duration = Duration::from_millis(300);

/// How long what a command left running may take to finish its work: the last of a pipe that bash does not wait for,
/// such as `tee >(sort)`.
const LAST_WORK: Duration = Duration::from_millis(100);

/// How long it may take to end after it was asked to.
const LEFT_GRACE: Duration = Duration::from_millis(100);

/// How long the end of killed processes is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// Serves the agent on the socket that is the standard input, until the agent is gone. Never returns.
pub(super) fn supervise() -> ! {
    sys::begin_session();
    sys::keep_ended_children();
    #[cfg(target_os = "linux")]
    sys::close_what_was_inherited();
    let socket = rustix::stdio::stdin();
    let nest = Nest::make();
    if let Ok(socket) = socket.try_clone_to_owned() {
        // Nothing that is forked may keep the agent's socket open as its standard input.
        let mut server = Server { socket: UnixStream::from(socket), nest };
        // Any failure means that the agent cannot be talked to, which is as good as its end.
        let _ = server.serve();
        server.nest.empty();
    }
    sys::exit_now(0)
}

struct Server {
    socket: UnixStream,
    nest: Nest,
}

impl Server {
    /// Runs commands until the socket ends.
    fn serve(&mut self) -> io::Result<()> {
        while let Some((order, descriptor)) = self.order()? {
            if let (Order::Run { command, cwd }, Some(output)) = (order, descriptor) {
                self.run(&command, cwd.as_path(), output)?;
            }
        }
        Ok(())
    }

    fn run(&mut self, command: &str, cwd: &Path, output: OwnedFd) -> io::Result<()> {
        let (pid, mut latch) = match start(command, cwd, output, &self.nest) {
            Ok(started) => started,
            Err(error) => return self.say(&Report::NotStarted { reason: error.to_string() }),
        };
        let started = sys::stat_of("/proc", pid).map_or(0, |stat| stat.started);
        self.say(&Report::Started { pid, started })?;
        if let Some((Order::Go, _)) = self.order()? {
            latch.write_all(b"!")?;
        }
        // Without the byte, the end of the pipe tells the command not to begin.
        drop(latch);
        let (exit, was_cut) = self.watch(pid)?;
        if !was_cut {
            self.nest.wait_until_empty(LAST_WORK);
        }
        let Emptied { left, stuck } = self.nest.empty();
        self.say(&Report::Ended { exit, left, stuck })
    }

    /// Waits for a command's shell, and says whether it was told to end it. Fails when the agent is gone.
    fn watch(&mut self, pid: u32) -> io::Result<(Exit, bool)> {
        let process = pidfd(pid)?;
        let mut kill_at: Option<Instant> = None;
        loop {
            let wait = kill_at.map(|at| at.saturating_duration_since(Instant::now()));
            let (has_ended, has_order) = wait_for_either(process.as_fd(), self.socket.as_fd(), wait)?;
            if has_ended {
                let exit = match sys::wait_for(pid) {
                    sys::Exit::Code(code) => Exit::Code(code),
                    sys::Exit::Signal(signal) => Exit::Signal(signal),
                };
                return Ok((exit, kill_at.is_some()));
            }
            if has_order {
                match self.order()? {
                    // The command leads a process group of its own.
                    Some((Order::Kill, _)) if kill_at.is_none() => {
                        sys::kill(-pid.cast_signed(), libc::SIGTERM);
                        kill_at = Some(Instant::now() + GRACE);
                    }
                    Some(_) => {}
                    None => return Err(io::ErrorKind::UnexpectedEof.into()),
                }
            }
            if kill_at.is_some_and(|at| at <= Instant::now()) {
                sys::kill(-pid.cast_signed(), libc::SIGKILL);
                kill_at = Some(Instant::now() + PATIENCE);
            }
        }
    }

    fn say(&mut self, report: &Report) -> io::Result<()> {
        self.socket.write_all(&write_frame(report)?)
    }

    /// The agent's next order; none if the agent is gone.
    fn order(&mut self) -> io::Result<Option<(Order, Option<OwnedFd>)>> {
        let mut length = [0; 4];
        let (mut read, mut descriptor) = receive(self.socket.as_fd(), &mut length)?;
        while read < length.len() {
            if read == 0 {
                return Ok(None);
            }
            let (more, other) = receive(self.socket.as_fd(), &mut length[read..])?;
            if more == 0 {
                return Ok(None);
            }
            descriptor = descriptor.or(other);
            read += more;
        }
        let mut frame = vec![0; frame_length(u32::from_le_bytes(length))?];
        self.socket.read_exact(&mut frame)?;
        Ok(Some((read_frame(&frame)?, descriptor)))
    }
}

/// Where the commands live: what keeps them together, so that they can be ended together.
enum Nest {
    /// A pid namespace. When its first process ends, the kernel ends all others; that one ends with the supervisor.
    #[cfg(target_os = "linux")]
    Namespace {
        /// The first process, as seen from outside.
        first: u32,
        /// The mounts in which `/proc` shows the inside.
        mounts: File,
        /// The root directory within them: not theirs, if this process lives in a changed root.
        root: File,
        /// The end of this pipe ends the first process.
        _alive: PipeWriter,
    },
    /// The supervisor is the parent of all its descendants that have lost theirs.
    Subreaper,
}

impl Nest {
    fn make() -> Self {
        #[cfg(target_os = "linux")]
        {
            if let Ok(nest) = Nest::namespace() {
                return nest;
            }
            sys::become_subreaper();
        }
        Nest::Subreaper
    }

    #[cfg(target_os = "linux")]
    fn namespace() -> io::Result<Self> {
        let home = File::open("/proc/self/ns/pid")?;
        sys::new_pid_namespace()?;
        let nest = Nest::first_process();
        if nest.is_err() {
            // Without a first process nothing can be forked into the namespace.
            sys::return_to(home.as_fd());
        }
        nest
    }

    #[cfg(target_os = "linux")]
    fn first_process() -> io::Result<Self> {
        let (alive, mut end) = io::pipe().map(|(read, write)| (write, read))?;
        let (mut ready, mut word) = io::pipe()?;
        let first = match sys::fork()? {
            Fork::Parent(pid) => pid,
            Fork::Child => {
                drop((alive, ready));
                sys::die_with_parent();
                sys::ignore_children();
                if sys::own_proc().and_then(|()| word.write_all(b"!")).is_ok() {
                    drop(word);
                    // Returns when the supervisor is gone, should its signal have come too early.
                    let _ = end.read(&mut [0]);
                }
                sys::exit_now(0)
            }
        };
        drop((end, word));
        let is_ready = ready.read(&mut [0])? == 1;
        if !is_ready {
            sys::wait_for(first);
            return Err(io::Error::other("no /proc of its own"));
        }
        let mounts = File::open(format!("/proc/{first}/ns/mnt"))?;
        let root = File::open(format!("/proc/{first}/root"))?;
        Ok(Nest::Namespace { first, mounts, root, _alive: alive })
    }

    /// For a process that was just forked: sees what its kin are to see.
    fn enter(&self) {
        match self {
            #[cfg(target_os = "linux")]
            Nest::Namespace { mounts, root, .. } => sys::enter_mounts(mounts.as_fd(), root.as_fd()),
            Nest::Subreaper => {}
        }
    }

    /// Ends whatever lives in it.
    fn empty(&self) -> Emptied {
        let left = number(&self.alive());
        if left == 0 {
            return Emptied { left, stuck: 0 };
        }
        self.signal(libc::SIGTERM);
        self.wait_until_empty(LEFT_GRACE);
        let until = Instant::now() + PATIENCE;
        loop {
            let stuck = number(&self.alive());
            if stuck == 0 || Instant::now() >= until {
                return Emptied { left, stuck };
            }
            // Without a pause: what forks as fast as it can must be met by chance.
            self.signal(libc::SIGKILL);
        }
    }

    fn wait_until_empty(&self, time: Duration) {
        let until = Instant::now() + time;
        while !self.alive().is_empty() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// What lives in it, by the numbers that its own `/proc` has for them.
    fn alive(&self) -> Vec<u32> {
        let (proc, candidates) = match self {
            #[cfg(target_os = "linux")]
            Nest::Namespace { first, .. } => {
                let inside = format!("/proc/{first}/root/proc");
                let others = sys::pids(&inside).into_iter().filter(|pid| *pid != 1).collect();
                (inside, others)
            }
            // Asking for children is cheap; looking for theirs is not.
            Nest::Subreaper if !sys::reap() => return Vec::new(),
            Nest::Subreaper => ("/proc".to_owned(), descendants(std::process::id())),
        };
        let is_alive = |pid: &u32| sys::stat_of(&proc, *pid).is_some_and(|stat| stat.state != 'Z');
        candidates.into_iter().filter(is_alive).collect()
    }

    fn signal(&self, signal: i32) {
        match self {
            // From a process inside, to all but the first: no process can be missed, and none outside be met.
            #[cfg(target_os = "linux")]
            Nest::Namespace { .. } => match sys::fork() {
                Ok(Fork::Child) => {
                    sys::kill(-1, signal);
                    sys::exit_now(0)
                }
                Ok(Fork::Parent(pid)) => {
                    sys::wait_for(pid);
                }
                Err(_later) => {}
            },
            Nest::Subreaper => {
                for pid in descendants(std::process::id()) {
                    sys::kill(pid.cast_signed(), signal);
                }
            }
        }
    }
}

/// What ending everything in a nest came to, in processes.
struct Emptied {
    /// What was there.
    left: u32,
    /// What is there still.
    stuck: u32,
}

fn number(processes: &[u32]) -> u32 {
    u32::try_from(processes.len()).unwrap_or(u32::MAX)
}

/// All processes below one, nearest first.
fn descendants(root: u32) -> Vec<u32> {
    let parents: Vec<(u32, u32)> = sys::pids("/proc")
        .into_iter()
        .filter_map(|pid| Some((pid, sys::stat_of("/proc", pid)?.parent)))
        .collect();
    let mut found = vec![root];
    let mut at = 0;
    while let Some(parent) = found.get(at).copied() {
        found.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        at += 1;
    }
    found.split_off(1)
}

/// Forks a command, which waits at its gate.
fn start(command: &str, cwd: &Path, output: OwnedFd, nest: &Nest) -> io::Result<(u32, PipeWriter)> {
    let shell = ["/bin/bash", "/usr/bin/bash", "/bin/sh"].into_iter().find(|path| Path::new(path).exists());
    let shell = CString::new(shell.unwrap_or("/bin/sh"))?;
    let arguments = [shell.clone(), CString::new("-c")?, CString::new(command)?];
    let nothing = File::open("/dev/null")?;
    let (gate, latch) = io::pipe()?;
    match sys::fork()? {
        Fork::Parent(pid) => Ok((pid, latch)),
        Fork::Child => {
            drop(latch);
            sys::put_at(nothing.as_raw_fd(), 0);
            sys::put_at(output.as_raw_fd(), 1);
            sys::put_at(output.as_raw_fd(), 2);
            sys::begin_session();
            // Should the supervisor be killed, the shell at least goes along where there is no namespace.
            #[cfg(target_os = "linux")]
            sys::die_with_parent();
            nest.enter();
            become_command(cwd, gate, &shell, &arguments)
        }
    }
}

fn become_command(cwd: &Path, mut gate: PipeReader, shell: &CString, arguments: &[CString]) -> ! {
    let entered = std::env::set_current_dir(cwd);
    sys::reset_signals();
    if !gate.read(&mut [0]).is_ok_and(|length| length == 1) {
        sys::exit_now(125);
    }
    let error = match entered {
        Ok(()) => sys::exec(shell, arguments),
        Err(error) => error,
    };
    let _ = writeln!(io::stderr(), "mainstay: cannot run a shell in {}: {error}", cwd.display());
    sys::exit_now(126)
}

fn wait_for_either(
    process: BorrowedFd<'_>,
    socket: BorrowedFd<'_>,
    wait: Option<Duration>,
) -> io::Result<(bool, bool)> {
    let mut both =
        [PollFd::from_borrowed_fd(process, PollFlags::IN), PollFd::from_borrowed_fd(socket, PollFlags::IN)];
    let wait = wait.map(|wait| Timespec {
        tv_sec: wait.as_secs().cast_signed(),
        tv_nsec: i64::from(wait.subsec_nanos()),
    });
    match poll(&mut both, wait.as_ref()) {
        Ok(_) => Ok((!both[0].revents().is_empty(), !both[1].revents().is_empty())),
        Err(rustix::io::Errno::INTR) => Ok((false, false)),
        Err(error) => Err(error.into()),
    }
}

fn pidfd(pid: u32) -> io::Result<OwnedFd> {
    let pid = rustix::process::Pid::from_raw(pid.cast_signed())
        .ok_or_else(|| io::Error::other("no such process"))?;
    Ok(rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())?)
}
