//! A keeper: one thread that runs one command at a time, in a nest of its own.

use std::ffi::CString;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::nest::{Emptied, Nest, PATIENCE};
use super::protocol::{Exit, Order, Report, frame_length, read_frame, receive, write_frame};
use crate::sandbox::Held;
use crate::sys::{self, Fork};

/// How long a command may take to end by itself after it was asked to.
const GRACE: Duration = Duration::from_millis(300);

/// How long what a command left running may take to finish its work: the last of a pipe that bash does not wait for,
/// such as `tee >(sort)`.
const LAST_WORK: Duration = Duration::from_millis(100);

/// How often the end of a command is looked for where the system does not tell it.
const LOOK: Duration = Duration::from_millis(2);

/// Serves the agent on this socket until the agent is gone. Never returns. Commands are put under what is to hold them.
pub(super) fn keep(socket: OwnedFd, held: Option<Held>) -> ! {
    sys::begin_session();
    sys::keep_ended_children();
    // Standard input is the supervisor's socket, whose end nobody would see while another process has it.
    if let Ok(nothing) = std::fs::File::open("/dev/null") {
        sys::put_at(nothing.as_raw_fd(), 0);
    }
    let mut keeper = Keeper { socket: UnixStream::from(socket), nest: Nest::make(), held };
    let served = keeper.serve();
    if let Err(error) = &served {
        // If the agent is there, it is to know why its command ends; mostly it is gone.
        let _ = keeper.say(&Report::Failed { reason: error.to_string() });
    }
    keeper.nest.empty();
    if let (Err(_), Some(held)) = (served, &mut keeper.held) {
        // Of the command that was lost, if there is one. Nobody is there to be told.
        held.put_aside();
    }
    sys::exit_now(0)
}

struct Keeper {
    socket: UnixStream,
    nest: Nest,
    held: Option<Held>,
}

impl Keeper {
    /// Runs commands until the socket ends.
    fn serve(&mut self) -> io::Result<()> {
        while let Some((order, descriptor)) = self.order()? {
            match (order, descriptor) {
                (Order::Run { command, cwd, sockets, is_alone }, Some(output)) => {
                    match self.held.as_mut().map_or(Ok(()), |held| held.renew(&sockets, is_alone)) {
                        Ok(()) => self.run(&command, cwd.as_path(), output)?,
                        Err(reason) => self.say(&Report::Stale { reason })?,
                    }
                }
                (Order::Run { .. }, None) => {
                    let reason = "too many files are open to take its output".to_owned();
                    self.say(&Report::NotStarted { reason })?;
                }
                // What came too late for a command that has ended.
                (Order::Go | Order::Kill, _) => {}
            }
        }
        Ok(())
    }

    fn run(&mut self, command: &str, cwd: &Path, output: OwnedFd) -> io::Result<()> {
        let (pid, mut latch) = match start(command, cwd, output, &self.nest, self.held.as_ref()) {
            Ok(started) => started,
            Err(error) => {
                self.held.iter_mut().for_each(Held::not_begun);
                return self.say(&Report::NotStarted { reason: error.to_string() });
            }
        };
        let tries = self.tries_of_network();
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
        if cfg!(not(target_os = "linux")) {
            // Orphans come to nobody there, so their group is all that can be found.
            sys::kill(-pid.cast_signed(), libc::SIGKILL);
        }
        let Emptied { left, stuck } = self.nest.empty();
        let asides = self.held.iter_mut().flat_map(Held::put_aside).collect();
        let tried_network = self.tries_of_network() > tries;
        self.say(&Report::Ended { exit, left, stuck, asides, tried_network })
    }

    fn tries_of_network(&self) -> Option<u64> {
        self.held.as_ref().and_then(Held::tries_of_network)
    }

    /// Waits for a command's shell, and says whether it was told to end it. Fails when the agent is gone.
    fn watch(&mut self, pid: u32) -> io::Result<(Exit, bool)> {
        // Where there is no such handle (older kernels, some sandboxes), the shell is looked at now and then.
        let process = sys::end_of(pid);
        let mut kill_at: Option<Instant> = None;
        loop {
            if let Some(status) = sys::has_ended(pid) {
                return Ok((Exit::of(status), kill_at.is_some()));
            }
            let until_kill = kill_at.map(|at| at.saturating_duration_since(Instant::now()));
            let look = process.is_none().then_some(LOOK);
            if self.has_order(process.as_ref(), until_kill.into_iter().chain(look).min())? {
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

    /// Waits for an order, a process's end or the time, and says whether there is an order.
    fn has_order(&self, process: Option<&OwnedFd>, wait: Option<Duration>) -> io::Result<bool> {
        let mut awaited = vec![PollFd::new(&self.socket, PollFlags::IN)];
        awaited.extend(process.map(|process| PollFd::new(process, PollFlags::IN)));
        let wait = wait.map(|wait| Timespec {
            tv_sec: wait.as_secs().cast_signed(),
            tv_nsec: i64::from(wait.subsec_nanos()),
        });
        match poll(&mut awaited, wait.as_ref()) {
            Ok(_) => Ok(!awaited[0].revents().is_empty()),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
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

/// Forks a command, which waits at its gate.
fn start(
    command: &str,
    cwd: &Path,
    output: OwnedFd,
    nest: &Nest,
    held: Option<&Held>,
) -> io::Result<(u32, PipeWriter)> {
    let shell = ["/bin/bash", "/usr/bin/bash", "/bin/sh"].into_iter().find(|path| Path::new(path).exists());
    let shell = CString::new(shell.unwrap_or("/bin/sh"))?;
    let arguments = [shell.clone(), CString::new("-c")?, CString::new(command)?];
    let (gate, latch) = io::pipe()?;
    match sys::fork()? {
        Fork::Parent(pid) => Ok((pid, latch)),
        Fork::Child => {
            drop(latch);
            sys::put_at(output.as_raw_fd(), 1);
            sys::put_at(output.as_raw_fd(), 2);
            sys::begin_session();
            // Should the keeper be killed, the shell at least goes along where there is no namespace.
            sys::die_with_parent();
            nest.enter();
            become_command(cwd, gate, &shell, &arguments, held)
        }
    }
}

fn become_command(
    cwd: &Path,
    mut gate: PipeReader,
    shell: &CString,
    arguments: &[CString],
    held: Option<&Held>,
) -> ! {
    let entered = std::env::set_current_dir(cwd);
    let is_held = held.map_or(Ok(()), Held::apply);
    sys::reset_signals();
    if !gate.read(&mut [0]).is_ok_and(|length| length == 1) {
        sys::exit_now(125);
    }
    if let Err(why) = is_held {
        let _ = writeln!(io::stderr(), "mainstay: the command was not run, since the sandbox failed: {why}");
        sys::exit_now(126);
    }
    let error = match entered {
        Ok(()) => sys::exec(shell, arguments),
        Err(error) => error,
    };
    let _ = writeln!(io::stderr(), "mainstay: cannot run a shell in {}: {error}", cwd.display());
    sys::exit_now(126)
}
