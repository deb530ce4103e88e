//! Runs commands so that none outlives its session.
//!
//! The agent starts one small supervisor, lazily, by executing its own binary again. The supervisor forks a keeper for
//! every command that runs at the same time as another: one for the calls that are waited for, one for each background
//! job. Agent and keeper talk over a socket: when the agent dies, whatever way, the socket ends, and the keeper takes the
//! whole tree along, daemons and new sessions included. Where the user may make a pid namespace without a user namespace
//! (root may), a keeper's commands live in one and the kernel ends it; elsewhere the keeper is the subreaper of its
//! descendants.
//!
//! Where commands are to be held in a sandbox (`sandbox.rs`), the supervisor enters it before it makes the first keeper,
//! in the best way that works here, and says what is in force.
//!
//! A command waits, before its first instruction, until its intent is logged. What it leaves running when its shell
//! ends is ended with it.

mod protocol;
mod nest;
mod keeper;
mod server;

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mainstay_session::entry::Job;
use mainstay_session::message::FilePath;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

use crate::sandbox::{self, Aside, Fate, Layout, Sandbox, SandboxReport, Signs, Sockets, Temporary, Way};
use crate::sys;
use protocol::{Begin, Order, Report, write_frame};

/// The argument that makes a program the supervisor.
const ASKED: &str = "--mainstay-supervise";

/// The argument after it that makes it hold commands in a sandbox.
const HELD: &str = "held";

/// How long a command's output is still read after its shell ended and everything it left was told to end.
const DRAIN: Duration = Duration::from_millis(250);

/// How long a keeper may take to make a command's process, or to end one that it was told to end. It needs milliseconds,
/// and about five seconds for what cannot be ended.
const ANSWER: Duration = Duration::from_secs(10);

/// How long the end of a supervisor that another replaces is waited for. Its keepers need about five seconds for what
/// cannot be ended.
const END: Duration = Duration::from_secs(6);

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

/// Whether this program asked at its start whether it is to supervise.
static HAS_ASKED: AtomicBool = AtomicBool::new(false);

/// If this process was started as a supervisor, supervises and ends; else returns at once.
///
/// Must be the first line of `main` in every program that runs commands, before it starts threads of its own: a
/// supervisor forks. (`#[tokio::main]` has threads by then, which have nothing to do yet and are no hindrance.) Without it
/// no command is run: the program would start itself, and do whatever its `main` does, again and again.
pub fn supervise_if_asked() {
    HAS_ASKED.store(true, Ordering::Relaxed);
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|argument| argument == ASKED) {
        server::supervise(arguments.next().is_some_and(|argument| argument == HELD));
    }
}

/// The agent's side: starts the supervisor when the first command is run, and ends it, with all commands, when dropped.
#[derive(Debug)]
pub struct Supervisor {
    program: PathBuf,
    hidden: Vec<String>,
    sandbox: Option<Sandbox>,
    /// The one that runs, or is being started; another takes its place when it is gone.
    process: Mutex<Arc<OnceCell<Arc<Process>>>>,
    /// A keeper that runs nothing. Out of its place while in use.
    idle: Mutex<Option<Connection>>,
    company: Arc<Mutex<Company>>,
    /// What was last said to be in force: what consent to commands was judged on.
    told: Mutex<Option<SandboxReport>>,
}

/// Which commands run.
#[derive(Debug, Default)]
struct Company {
    running: usize,
    /// Whether the end of one was not seen, or processes of it run on, so that nobody knows what is whose.
    is_doubtful: bool,
    /// How many have made something in a place where nothing may be that could not be moved.
    stuck: u64,
    /// Of how many of those a later look at these places has found nothing any more.
    settled: u64,
}

/// What is known of the end of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// It never began.
    NotBegun,
    /// Nobody has seen it, or processes run on.
    Unseen,
    /// It has ended, and something is where nothing may be.
    Stuck,
    /// It has ended, and nothing is.
    Clean,
}

/// That a command runs, or is about to.
#[derive(Debug)]
struct Presence {
    company: Arc<Mutex<Company>>,
    /// How many had made what could not be moved when this began: the look at its end comes after them.
    stuck_before: u64,
    /// What is known of its end when this is dropped.
    end: End,
}

impl Presence {
    /// Counts one more.
    fn of(company: &Arc<Mutex<Company>>) -> Self {
        let mut all = lock(company);
        all.running += 1;
        Presence { company: company.clone(), stuck_before: all.stuck, end: End::NotBegun }
    }

    /// Whether no other command runs.
    fn is_only(&self) -> bool {
        lock(&self.company).running == 1
    }

    /// Whether, moreover, none can have left anything since it was last looked.
    fn is_alone(&self) -> bool {
        let all = lock(&self.company);
        all.running == 1 && !all.is_doubtful && all.settled == all.stuck
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        let mut all = lock(&self.company);
        all.running -= 1;
        match self.end {
            End::NotBegun => {}
            End::Unseen => all.is_doubtful = true,
            End::Stuck => all.stuck += 1,
            End::Clean => all.settled = all.settled.max(self.stuck_before),
        }
    }
}

/// A process that exists but has not begun its work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartedProcess {
    /// The process as the agent sees it.
    pub pid: u32,
    /// When it started, in clock ticks since boot (field 22 of `/proc/PID/stat`); 0 where that is unknown.
    pub started: u64,
    /// The background job that it is to be, if it is one.
    pub job: Option<Job>,
}

/// What is to be run.
#[derive(Clone, Copy)]
pub(crate) struct Run<'a> {
    pub(crate) command: &'a str,
    pub(crate) cwd: &'a Path,
    pub(crate) cancel: &'a CancellationToken,
}

/// How a command, with all that it started, came to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finished {
    pub(crate) exit: Exit,
    pub(crate) cut: Option<Cut>,
    /// How many processes it left running, which were to be ended.
    pub(crate) left: u32,
    /// How many of them are running still.
    pub(crate) stuck: u32,
    /// What it made where nothing may be made.
    pub(crate) asides: Vec<Aside>,
    /// Whether somebody in the sandbox tried to reach a network while it ran.
    pub(crate) tried_network: bool,
}

impl Finished {
    /// Whether anything of it is there that could make, or is, what must not be there.
    fn end(&self) -> End {
        match self.asides.iter().any(|aside| matches!(aside.fate, Fate::Stuck(_))) {
            _ if self.stuck > 0 => End::Unseen,
            true => End::Stuck,
            false => End::Clean,
        }
    }
}

pub(crate) use protocol::Exit;

/// Why a command was ended before it ended by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    Timeout,
    Cancelled,
}

/// Why a command was not run, or not to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    #[error("the command was not run: the process that runs commands could not be used: {0}")]
    Supervisor(#[from] io::Error),
    #[error("the command was not run: it could not be started: {0}")]
    NotStarted(String),
    #[error("the command was not run, since its intent could not be logged: {0}")]
    Intent(String),
    #[error(
        "the command was not run: the process that runs commands had to be started again, and its sandbox does not hold \
         them as the one did that was there when this was allowed: {0}. Call it again; the user is asked then"
    )]
    Weaker(String),
    #[error("cancelled before the command began; it did nothing")]
    Cancelled,
    #[error("the process that runs commands ended unexpectedly{0}; the command may have run in part")]
    Lost(String),
}

impl RunError {
    /// That a running command was lost, with what is known of why.
    fn lost(error: &io::Error) -> Self {
        let is_plain = is_lost(error);
        RunError::Lost(if is_plain { String::new() } else { format!(" ({error})") })
    }
}

impl Supervisor {
    /// A supervisor that is this program, started again. Commands do not see the variables of these names, nor any
    /// whose name ends in `_API_KEY`.
    pub fn new(hidden: Vec<String>) -> Self {
        Supervisor::of_program(sys::this_program(), hidden)
    }

    /// A supervisor that is another program, whose `main` calls [`supervise_if_asked`] first.
    pub fn of_program(program: PathBuf, hidden: Vec<String>) -> Self {
        Supervisor {
            program,
            hidden,
            sandbox: None,
            process: Mutex::default(),
            idle: Mutex::new(None),
            company: Arc::default(),
            told: Mutex::new(None),
        }
    }

    /// The same, with a sandbox around every command.
    pub fn within(self, sandbox: Option<Sandbox>) -> Self {
        Supervisor { sandbox, ..self }
    }

    /// What of the sandbox is in force; none where there is to be none. Starts the supervisor if it does not run.
    ///
    /// # Errors
    ///
    /// It cannot be started, or does not answer.
    pub async fn report(&self) -> io::Result<Option<SandboxReport>> {
        if self.sandbox.is_none() {
            return Ok(None);
        }
        let report = self.process().await?.held.as_ref().map(|held| held.report.clone());
        lock(&self.told).clone_from(&report);
        Ok(report)
    }

    /// What the result of a command that ran in `cwd` should say of the sandbox.
    pub(crate) async fn blame(&self, cwd: &Path, signs: Signs) -> Vec<String> {
        let Some(process) = self.cell().get().cloned().filter(|process| process.held.is_some()) else {
            return Vec::new();
        };
        let cwd = cwd.to_owned();
        let notes = tokio::task::spawn_blocking(move || {
            let held = process.held.as_ref();
            held.map(|held| sandbox::blame(&held.layout, &held.report, &cwd, &signs))
        });
        notes.await.ok().flatten().unwrap_or_default()
    }

    /// Starts a command. `intent` is called when its process exists and waits; when this returns, it has been let go.
    ///
    /// If the future is dropped, the command never begins.
    pub(crate) async fn start(
        &self,
        run: Run<'_>,
        intent: impl FnOnce(StartedProcess) -> Result<(), String>,
    ) -> Result<Running, RunError> {
        let begun = tokio::select! {
            begun = tokio::time::timeout(ANSWER, self.begin(run)) => begun,
            () = run.cancel.cancelled() => return Err(RunError::Cancelled),
        };
        let begun = begun.unwrap_or_else(|_| Err(io::Error::other("it does not answer").into()))?;
        // If it is dropped here, the connection ends, and with it the command, which waits.
        intent(begun.process).map_err(RunError::Intent)?;
        let mut running = begun.running;
        running.presence.end = End::Unseen;
        mainstay_session::failpoint::pass("command.go")?;
        running.connection.send(&Order::Go).await.map_err(|error| RunError::lost(&error))?;
        Ok(running)
    }

    /// Runs a command to its end. `intent` is called when its process exists and waits; `output` gets what it prints.
    ///
    /// If the future is dropped, the command is ended with everything that it started.
    pub(crate) async fn run(
        &self,
        run: Run<'_>,
        timeout: Duration,
        intent: impl FnOnce(StartedProcess) -> Result<(), String>,
        output: impl FnMut(&[u8]),
    ) -> Result<Finished, RunError> {
        let mut running = self.start(run, intent).await?;
        let finished = running.attend(Some(timeout), run.cancel, output).await?;
        *lock(&self.idle) = Some(running.connection);
        Ok(finished)
    }

    async fn begin(&self, run: Run<'_>) -> Result<Begun, RunError> {
        mainstay_session::failpoint::pass("command.start")?;
        let presence = Presence::of(&self.company);
        let (answer, connection) = match self.answer(run, presence.is_alone()).await? {
            (Answer::Stale(why), _) if !presence.is_only() => return Err(RunError::NotStarted(stale(&why))),
            (Answer::Stale(_), stale) => {
                // A new one holds what is there now. What a lost command made the old one moves away before.
                drop(stale);
                let cell = self.cell();
                if let Some(process) = cell.get() {
                    process.end().await;
                }
                self.forget(&cell);
                self.answer(run, presence.is_alone()).await?
            }
            answered => answered,
        };
        match answer {
            Answer::Started(process, printed) => {
                Ok(Begun { process, running: Running { connection, printed, presence } })
            }
            Answer::NotStarted(why) => Err(RunError::NotStarted(why)),
            Answer::Stale(why) => Err(RunError::NotStarted(why)),
        }
    }

    /// Has a keeper make a command's process, and says what it answered.
    async fn answer(&self, run: Run<'_>, is_alone: bool) -> Result<(Answer, Connection), RunError> {
        let process = self.process().await?;
        self.is_as_told(&process)?;
        let order = Order::Run {
            command: run.command.to_owned(),
            cwd: FilePath(run.cwd.to_owned()),
            sockets: process.sockets_since().await?,
            is_alone,
        };
        let idle = lock(&self.idle).take().filter(|idle| Arc::ptr_eq(&idle.process, &process));
        if let Some(connection) = idle
            && let Ok(answered) = connection.answer(&order).await
        {
            return Ok(answered);
        }
        // It may have been killed since, and so may the supervisor; then the command has not been touched.
        match self.connect().await?.answer(&order).await {
            Err(error) if is_lost(&error) => Ok(self.connect().await?.answer(&order).await?),
            answered => Ok(answered?),
        }
    }

    /// Has a new keeper made.
    async fn connect(&self) -> Result<Connection, RunError> {
        let (ours, theirs) = StdUnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let cell = self.cell();
        let mut process = self.process_in(&cell).await?;
        if process.make_keeper(&theirs).is_err() {
            self.forget(&cell);
            process = self.process().await?;
            self.is_as_told(&process)?;
            process.make_keeper(&theirs)?;
        }
        Ok(Connection { socket: UnixStream::from_std(ours)?, received: Vec::new(), process })
    }

    /// Refuses a process whose sandbox holds less than what consent was judged on.
    fn is_as_told(&self, process: &Process) -> Result<(), RunError> {
        let held = process.held.as_ref();
        let was_enforced = lock(&self.told).as_ref().is_some_and(SandboxReport::is_enforced);
        match held.map(|held| &held.report) {
            Some(report) if was_enforced && !report.is_enforced() => {
                Err(RunError::Weaker(report.lacking.join("; ")))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn cell(&self) -> Arc<OnceCell<Arc<Process>>> {
        lock(&self.process).clone()
    }

    /// Lets a process go, which is of no use any more, unless another has its place already. The next one takes what it
    /// finds for the user's, so if only the command runs that is about to begin, nothing is doubtful any more.
    fn forget(&self, cell: &Arc<OnceCell<Arc<Process>>>) {
        let mut current = lock(&self.process);
        if Arc::ptr_eq(&current, cell) {
            *current = Arc::default();
            let mut company = lock(&self.company);
            if company.running <= 1 {
                company.is_doubtful = false;
                company.settled = company.stuck;
            }
        }
    }

    /// The process that runs; it is started if there is none.
    async fn process(&self) -> io::Result<Arc<Process>> {
        self.process_in(&self.cell()).await
    }

    async fn process_in(&self, cell: &OnceCell<Arc<Process>>) -> io::Result<Arc<Process>> {
        let process = cell.get_or_try_init(async || self.start_process().await.map(Arc::new)).await?;
        Ok(process.clone())
    }

    async fn start_process(&self) -> io::Result<Process> {
        if self.program == sys::this_program() && !HAS_ASKED.load(Ordering::Relaxed) {
            return Err(io::Error::other(
                "this program does not begin its main with mainstay_agent::tools::supervise_if_asked()",
            ));
        }
        let Some(sandbox) = self.sandbox.clone() else {
            let (socket, child) = self.spawn(Command::new(&self.program), None)?;
            return Ok(Process { socket, _child: child, held: None });
        };
        let ways = sandbox.ways.clone();
        let places = tokio::task::spawn_blocking(move || places(&sandbox));
        let (tmp, layout, sockets) = places.await.map_err(io::Error::other)??;
        let first = sockets.as_ref().map(Sockets::first).map_err(ToString::to_string);
        let mut reasons = Vec::new();
        for way in ways {
            let mut started = self.start_held(way, &layout, &first).await;
            if let (Way::Bubblewrap, Ok(Err(_)), Ok(listed)) = (way, &started, &first)
                && let Some(there) = without_gone(listed)
            {
                started = self.start_held(way, &layout, &Ok(there)).await;
            }
            match started {
                Ok(Ok((socket, child, mut report))) => {
                    if way == Way::Plain {
                        report.lacking.splice(0..0, reasons);
                    }
                    // Within bubblewrap the supervisor empties it and cannot remove it.
                    let tmp = if way == Way::Bubblewrap { tmp } else { tmp.handed_over() };
                    let held =
                        Some(HeldSo { report, layout, _tmp: tmp, sockets: sockets.ok().map(Arc::new) });
                    return Ok(Process { socket, _child: child, held });
                }
                Ok(Err(reason)) => reasons.push(reason),
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::other(format!("there is no sandbox: {}", reasons.join("; "))))
    }

    /// Starts a supervisor that holds commands in one way; a reason, if that cannot be done.
    async fn start_held(
        &self,
        way: Way,
        layout: &Layout,
        sockets: &Result<Vec<FilePath>, String>,
    ) -> io::Result<Result<Started, String>> {
        let sockets = match (way, sockets) {
            // There are none for commands.
            (Way::Plain, _) => Vec::new(),
            (Way::Namespaces | Way::Bubblewrap, Ok(sockets)) => sockets.clone(),
            (Way::Namespaces | Way::Bubblewrap, Err(why)) => return Ok(Err(why.clone())),
        };
        let command = match way {
            Way::Namespaces | Way::Plain => Command::new(&self.program),
            Way::Bubblewrap => match (sandbox::bubblewrap(layout, &sockets), self.program.canonicalize()) {
                // Within, `/proc/self/exe` would be `bwrap` itself.
                (Ok((bwrap, words)), Ok(program)) => {
                    let mut command = Command::new(bwrap);
                    command.args(words).arg(program);
                    command
                }
                (Err(why), _) => return Ok(Err(why)),
                (_, Err(error)) => return Ok(Err(format!("{}: {error}", self.program.display()))),
            },
        };
        let (socket, child) = self.spawn(command, Some(layout))?;
        let mut talking = socket.try_clone()?;
        let begin = write_frame(&Begin { way, layout: layout.clone(), sockets })?;
        let answer = tokio::task::spawn_blocking(move || {
            talking.set_read_timeout(Some(ANSWER))?;
            talking.write_all(&begin)?;
            protocol::read_whole(&talking)
        });
        match answer.await.map_err(io::Error::other)? {
            Ok(protocol::Begun::Ready(report)) => Ok(Ok((socket, child, report))),
            Ok(protocol::Begun::Cannot(why)) => {
                Ok(Err(format!("no mounts and no network of its own: {why}")))
            }
            Err(_ended) if way == Way::Bubblewrap => {
                Ok(Err("bubblewrap cannot be used here either".to_owned()))
            }
            Err(error) => Err(error),
        }
    }

    fn spawn(&self, mut command: Command, layout: Option<&Layout>) -> io::Result<(StdUnixStream, Child)> {
        let (ours, theirs) = StdUnixStream::pair()?;
        command
            .arg(ASKED)
            .args(layout.map(|_| HELD))
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
        if let Some(layout) = layout {
            set_places(&mut command, layout.tmp.as_path());
        }
        mainstay_session::failpoint::pass("supervisor.start")?;
        Ok((ours, command.spawn()?))
    }
}

/// The sockets that are still there, if some are gone: bubblewrap cannot mount over what is not there, and starts nothing.
fn without_gone(listed: &[FilePath]) -> Option<Vec<FilePath>> {
    let is_there = |socket: &&FilePath| socket.0.symlink_metadata().is_ok();
    let there: Vec<FilePath> = listed.iter().filter(is_there).cloned().collect();
    (there.len() < listed.len()).then_some(there)
}

/// Has programs use the session's own temporary directory, also those that would keep what they compile elsewhere, and
/// not look for helpers that they cannot reach.
fn set_places(command: &mut Command, tmp: &Path) {
    for name in ["TMPDIR", "TMP", "TEMP"] {
        command.env(name, tmp);
    }
    if std::env::var_os("GOCACHE").is_none() {
        command.env("GOCACHE", tmp.join("go-build"));
    }
    for name in ["XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "SSH_AUTH_SOCK", "TMUX"] {
        command.env_remove(name);
    }
}

/// What a sandbox means now, and a temporary directory for it.
fn places(sandbox: &Sandbox) -> io::Result<(Temporary, Layout, io::Result<Sockets>)> {
    let tmp = Temporary::make()?;
    let layout = Layout::of(sandbox, tmp.path().to_owned());
    let sockets = Sockets::now(&layout);
    Ok((tmp, layout, sockets))
}

/// Why a command is not run beside others.
fn stale(why: &str) -> String {
    format!("{why}; it can be when no other command is running: stop the background jobs, and call it again")
}

/// A supervisor that was started, with what it holds.
type Started = (StdUnixStream, Child, SandboxReport);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Whoever holds one of these only moves a value in or out.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The running supervisor. Dropping it closes the socket, which ends the supervisor, but no keeper.
#[derive(Debug)]
struct Process {
    socket: StdUnixStream,
    _child: Child,
    held: Option<HeldSo>,
}

/// How a running supervisor holds commands.
#[derive(Debug)]
struct HeldSo {
    report: SandboxReport,
    layout: Layout,
    _tmp: Temporary,
    sockets: Option<Arc<Sockets>>,
}

impl Process {
    /// The sockets of others that have come since it was started, where commands could meet them.
    async fn sockets_since(&self) -> io::Result<Vec<FilePath>> {
        let held = self.held.as_ref().filter(|held| held.report.way != Way::Plain);
        let Some(sockets) = held.and_then(|held| held.sockets.clone()) else { return Ok(Vec::new()) };
        tokio::task::spawn_blocking(move || sockets.since()).await.map_err(io::Error::other)?
    }

    /// Has it end, and waits until it has; not for long, should a command have begun in it at this moment.
    async fn end(&self) {
        let Ok(mut socket) = self.socket.try_clone() else { return };
        let ended = tokio::task::spawn_blocking(move || {
            // These fail only if the process has ended.
            let _ = socket.shutdown(Shutdown::Write);
            let _ = socket.set_read_timeout(Some(END));
            let _ = socket.read(&mut [0]);
        });
        let _ = ended.await;
    }

    /// Has it make a keeper that serves this socket.
    fn make_keeper(&self, socket: &StdUnixStream) -> io::Result<()> {
        protocol::send_descriptor(self.socket.as_fd(), b"!", socket.as_fd()).map(|_| ())
    }
}

/// The way to a keeper. Dropping it closes the socket, which ends the keeper and everything it runs.
#[derive(Debug)]
struct Connection {
    socket: UnixStream,
    received: Vec<u8>,
    /// Whose keeper it is.
    process: Arc<Process>,
}

/// A command whose process waits to be let go.
struct Begun {
    process: StartedProcess,
    running: Running,
}

/// What a keeper said to an order to run a command.
enum Answer {
    /// There is a process, which prints there.
    Started(StartedProcess, pipe::Receiver),
    NotStarted(String),
    Stale(String),
}

/// A command that runs. Dropping it ends the command with everything that it started.
#[derive(Debug)]
pub(crate) struct Running {
    connection: Connection,
    printed: pipe::Receiver,
    presence: Presence,
}

impl Connection {
    /// Has a command's process made, which waits.
    async fn answer(mut self, order: &Order) -> io::Result<(Answer, Connection)> {
        let (sender, printed) = pipe::pipe()?;
        self.send_with(order, sender.into_blocking_fd()?).await?;
        let answer = match self.report().await? {
            Report::Started { pid, started } => {
                Answer::Started(StartedProcess { pid, started, job: None }, printed)
            }
            Report::NotStarted { reason } => Answer::NotStarted(reason),
            Report::Stale { reason } => Answer::Stale(reason),
            Report::Failed { reason } => return Err(io::Error::other(reason)),
            Report::Ended { .. } => {
                return Err(io::Error::other("it did not say that the command had started"));
            }
        };
        Ok((answer, self))
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
}

impl Running {
    /// Ends the command at once, with everything that it started, when what this returns is told to. For where nobody
    /// waits for the end any more.
    pub(crate) fn severing(&self) -> io::Result<Severing> {
        Ok(Severing(self.connection.socket.as_fd().try_clone_to_owned()?))
    }

    /// Reads what the command prints until it has ended, and ends it when its time is up or `cancel` fires.
    pub(crate) async fn attend(
        &mut self,
        timeout: Option<Duration>,
        cancel: &CancellationToken,
        mut output: impl FnMut(&[u8]),
    ) -> Result<Finished, RunError> {
        let Running { connection, printed, presence } = self;
        let finished = connection.attend(timeout, cancel, printed, &mut output).await;
        presence.end = finished.as_ref().map_or(End::Unseen, Finished::end);
        finished.map_err(|error| RunError::lost(&error))
    }
}

/// Ends a command from afar.
#[derive(Debug)]
pub(crate) struct Severing(OwnedFd);

impl Severing {
    /// Ends it. Whoever attends to it is told that it is lost.
    pub(crate) fn sever(&self) {
        // It fails only if the other side is gone, and the command with it.
        let _ = rustix::net::shutdown(&self.0, rustix::net::Shutdown::Both);
    }
}

impl Connection {
    async fn attend(
        &mut self,
        timeout: Option<Duration>,
        cancel: &CancellationToken,
        printed: &mut pipe::Receiver,
        output: &mut impl FnMut(&[u8]),
    ) -> io::Result<Finished> {
        let mut deadline = timeout.map(|timeout| Instant::now() + timeout);
        let mut buffer = vec![0; 64 << 10];
        let mut is_open = true;
        let mut cut = None;
        let mut finished = loop {
            let why = tokio::select! {
                report = self.report() => match report? {
                    Report::Ended { exit, left, stuck, asides, tried_network } => {
                        break Finished { exit, cut: None, left, stuck, asides, tried_network };
                    }
                    Report::Failed { reason } => return Err(io::Error::other(reason)),
                    Report::Started { .. } | Report::NotStarted { .. } | Report::Stale { .. } => continue,
                },
                read = printed.read(&mut buffer), if is_open => {
                    match read? {
                        0 => is_open = false,
                        length => output(&buffer[..length]),
                    }
                    continue;
                }
                () = time_is_up(deadline) => Cut::Timeout,
                () = cancel.cancelled(), if cut.is_none() => Cut::Cancelled,
            };
            if cut.is_some() {
                return Err(io::Error::other("it was told to end the command and does not answer"));
            }
            cut = Some(why);
            deadline = Some(Instant::now() + ANSWER);
            self.send(&Order::Kill).await?;
        };
        if is_open {
            drain(printed, &mut buffer, output).await?;
        }
        finished.cut = cut;
        Ok(finished)
    }
}

async fn time_is_up(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
        None => std::future::pending().await,
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
