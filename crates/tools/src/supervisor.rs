//! Runs commands so that none outlives its session.
//!
//! The agent starts one small supervisor, lazily, by executing its own binary again; the supervisor forks the commands.
//! They talk over a socket: when the agent dies, whatever way, the socket ends, and the supervisor takes the whole tree
//! along, daemons and new sessions included. Where the user may make a pid namespace without a user namespace (root
//! may), the commands live in one and the kernel ends it; elsewhere the supervisor is the subreaper of its descendants.
//!
//! A command waits, before its first instruction, until its intent is logged. What it leaves running when its shell
//! ends is ended with it.

mod protocol;
mod server;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use mainstay_session::message::FilePath;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::tool::StartedProcess;
use protocol::{Order, Report, write_frame};

/// The argument that makes a program the supervisor.
const ASKED: &str = "--mainstay-supervise";

/// How long a command's output is still read after its shell ended and everything it left was told to end.
const DRAIN: Duration = Duration::from_millis(250);

/// Variables that keep programs from waiting for a person.
const NO_PERSON: [(&str, &str); 13] = [
    ("PAGER", "cat"),
    ("GIT_PAGER", "cat"),
    ("MANPAGER", "cat"),
    ("SYSTEMD_PAGER", "cat"),
    ("EDITOR", "false"),
    ("VISUAL", "false"),
    ("GIT_EDITOR", "false"),
    ("GIT_SEQUENCE_EDITOR", "false"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("SSH_ASKPASS", "false"),
    ("GIT_ASKPASS", "false"),
    ("DEBIAN_FRONTEND", "noninteractive"),
    ("TERM", "dumb"),
];

/// If this process was started as a supervisor, supervises and ends; else returns at once.
///
/// Must be the first line of `main`, before any thread is started, in every program that runs commands.
pub fn supervise_if_asked() {
    if std::env::args_os().nth(1).is_some_and(|argument| argument == ASKED) {
        server::supervise();
    }
}

/// The agent's side: starts the supervisor when the first command is run, and ends it, with all commands, when dropped.
#[derive(Debug)]
pub struct Supervisor {
    program: PathBuf,
    hidden: Vec<String>,
    idle: Mutex<Option<Connection>>,
}

/// What is to be run.
pub(crate) struct Run<'a> {
    pub(crate) command: &'a str,
    pub(crate) cwd: &'a Path,
    pub(crate) timeout: Duration,
    pub(crate) cancel: &'a CancellationToken,
}

/// How a command ended.
pub(crate) use protocol::Exit;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Finished {
    pub(crate) exit: Exit,
    pub(crate) cut: Option<Cut>,
    /// How many processes it left running, which were to be ended.
    pub(crate) left: u32,
    /// How many of them are running still.
    pub(crate) stuck: u32,
}

/// Why a command was ended before it ended by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    Timeout,
    Cancelled,
}

/// Why a command was not run, or not to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    #[error("the process that runs commands could not be used: {0}")]
    Supervisor(#[from] io::Error),
    #[error("the command was not run: it could not be started: {0}")]
    NotStarted(String),
    #[error("the command was not run, since its intent could not be logged: {0}")]
    Intent(String),
    #[error("the process that runs commands ended unexpectedly; the command may have run in part")]
    Lost,
}

impl Supervisor {
    /// A supervisor that is this program, started again. Commands do not see the variables of these names, nor any
    /// whose name ends in `_API_KEY`.
    pub fn new(hidden: Vec<String>) -> Self {
        Supervisor::of_program(PathBuf::from("/proc/self/exe"), hidden)
    }

    /// A supervisor that is another program, whose `main` calls [`supervise_if_asked`] first.
    pub fn of_program(program: PathBuf, hidden: Vec<String>) -> Self {
        Supervisor { program, hidden, idle: Mutex::new(None) }
    }

    /// Runs a command to its end. `intent` is called when its process exists and waits; `output` gets what it prints.
    ///
    /// If the future is dropped, the command is ended with everything else that the supervisor runs.
    pub(crate) async fn run(
        &self,
        run: Run<'_>,
        intent: impl FnOnce(StartedProcess) -> Result<(), String>,
        mut output: impl FnMut(&[u8]),
    ) -> Result<Finished, RunError> {
        let mut idle = self.idle.lock().await;
        // Out of its place while in use: if this future is dropped half-way, so is the connection, with the command.
        let begun = match idle.take() {
            // It may have been killed since; then the command has not been touched.
            Some(connection) => connection.begin(&run).await.ok(),
            None => None,
        };
        let mut begun = match begun {
            Some(begun) => begun,
            None => self.connect()?.begin(&run).await?,
        };
        let logged = match begun.process {
            Ok(process) => intent(process),
            Err(reason) => return Err(RunError::NotStarted(reason)),
        };
        let connection = &mut begun.connection;
        let finished = async {
            connection.send(if logged.is_ok() { &Order::Go } else { &Order::Kill }).await?;
            connection.attend(&run, begun.printed, &mut output).await
        };
        let finished = match finished.await {
            Ok(finished) => finished,
            Err(error) if is_lost(&error) => {
                return Err(logged.map_or_else(RunError::Intent, |()| RunError::Lost));
            }
            Err(error) => return Err(error.into()),
        };
        *idle = Some(begun.connection);
        logged.map(|()| finished).map_err(RunError::Intent)
    }

    fn connect(&self) -> io::Result<Connection> {
        let (ours, theirs) = StdUnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let mut command = Command::new(&self.program);
        command
            .arg(ASKED)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.envs(NO_PERSON);
        for (name, _) in std::env::vars_os() {
            let is_hidden = self.hidden.iter().any(|hidden| name == **hidden)
                || name.to_str().is_some_and(|name| name.ends_with("_API_KEY"));
            if is_hidden {
                command.env_remove(name);
            }
        }
        Ok(Connection {
            socket: UnixStream::from_std(ours)?,
            received: Vec::new(),
            _process: command.spawn()?,
        })
    }
}

/// A running supervisor. Dropping it closes the socket, which ends the supervisor and everything it runs.
#[derive(Debug)]
struct Connection {
    socket: UnixStream,
    received: Vec<u8>,
    _process: Child,
}

/// A command whose process waits to be let go, or the reason why there is none.
struct Begun {
    connection: Connection,
    process: Result<StartedProcess, String>,
    printed: pipe::Receiver,
}

impl Connection {
    /// Has a command's process made, which waits.
    async fn begin(mut self, run: &Run<'_>) -> io::Result<Begun> {
        let (sender, printed) = pipe::pipe()?;
        let order = Order::Run { command: run.command.to_owned(), cwd: FilePath(run.cwd.to_owned()) };
        self.send_with(&order, sender.into_blocking_fd()?).await?;
        let process = match self.report().await? {
            Report::Started { pid, started } => Ok(StartedProcess { pid, started }),
            Report::NotStarted { reason } => Err(reason),
            Report::Ended { .. } => {
                return Err(io::Error::other("it did not say that the command had started"));
            }
        };
        Ok(Begun { connection: self, process, printed })
    }

    async fn send(&mut self, order: &Order) -> io::Result<()> {
        self.socket.write_all(&write_frame(order)?).await
    }

    /// Sends an order, and with its first bytes the descriptor that the command prints to.
    async fn send_with(&mut self, order: &Order, descriptor: OwnedFd) -> io::Result<()> {
        let frame = write_frame(order)?;
        let sent = loop {
            self.socket.writable().await?;
            let send = || protocol::send_descriptor(self.socket.as_fd(), &frame, descriptor.as_fd());
            match self.socket.try_io(Interest::WRITABLE, send) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                sent => break sent?,
            }
        };
        self.socket.write_all(&frame[sent..]).await
    }

    /// Waits for the next report. May be dropped while it waits: what has come stays.
    async fn report(&mut self) -> io::Result<Report> {
        loop {
            if let Some(report) = protocol::take_frame(&mut self.received)? {
                return Ok(report);
            }
            if self.socket.read_buf(&mut self.received).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Reads what a command prints until it has ended, and ends it when its time is up or the turn is cancelled.
    async fn attend(
        &mut self,
        run: &Run<'_>,
        mut printed: pipe::Receiver,
        output: &mut impl FnMut(&[u8]),
    ) -> io::Result<Finished> {
        let deadline = tokio::time::sleep(run.timeout);
        tokio::pin!(deadline);
        let mut buffer = vec![0; 64 << 10];
        let mut is_open = true;
        let mut cut = None;
        let (exit, left, stuck) = loop {
            tokio::select! {
                report = self.report() => {
                    if let Report::Ended { exit, left, stuck } = report? {
                        break (exit, left, stuck);
                    }
                }
                read = printed.read(&mut buffer), if is_open => match read? {
                    0 => is_open = false,
                    length => output(&buffer[..length]),
                },
                () = &mut deadline, if cut.is_none() => {
                    cut = Some(Cut::Timeout);
                    self.send(&Order::Kill).await?;
                }
                () = run.cancel.cancelled(), if cut.is_none() => {
                    cut = Some(Cut::Cancelled);
                    self.send(&Order::Kill).await?;
                }
            }
        };
        if is_open {
            drain(&mut printed, &mut buffer, output).await?;
        }
        Ok(Finished { exit, cut, left, stuck })
    }
}

/// Whether an error means that the other side is gone.
fn is_lost(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

/// Reads what is still in a pipe. Everything that could print more was ended, so its end comes soon; if something got
/// away, it is not waited for.
async fn drain(
    printed: &mut pipe::Receiver,
    buffer: &mut [u8],
    output: &mut impl FnMut(&[u8]),
) -> io::Result<()> {
    let until = Instant::now() + DRAIN;
    while let Ok(read) = tokio::time::timeout_at(until.into(), printed.read(buffer)).await {
        match read? {
            0 => return Ok(()),
            length => output(&buffer[..length]),
        }
    }
    Ok(())
}
