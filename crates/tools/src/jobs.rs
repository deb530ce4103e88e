//! The background jobs of one session: commands that run on while the model does other things.
//!
//! A job is a command like any other, with a keeper and a nest of its own; its intent is logged before it begins. What it
//! prints goes to a file beside the log. Its end is told to whoever made the [`Jobs`]. Jobs live as long as that value:
//! when it is dropped, all of them are ended. They are not remembered here beyond the process; the session's log does that.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use mainstay_session::entry::Job;
use mainstay_session::plan::one_line;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::output::{Inert, KEPT};
use crate::sandbox::said_of;
use crate::supervisor::{Cut, Exit, Finished, Run, RunError, Running, Severing, StartedProcess, Supervisor};
use crate::text::{count, head};

/// The most jobs that run at one time.
const MOST: usize = 16;

/// The most ended jobs that are listed.
const LISTED: usize = 10;

/// The most lines, and their bytes, of the end of an output that are told.
const LAST_LINES: usize = 10;
const LAST_BYTES: usize = 2_000;

/// The background jobs of one session. Dropping it ends them.
pub struct Jobs {
    folder: PathBuf,
    on_end: OnEnd,
    all: Arc<Mutex<All>>,
}

/// Is told the end of each job, once. Called from the task that attends to the job; must return soon.
pub type OnEnd = Arc<dyn Fn(JobEnd) + Send + Sync>;

/// The end of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobEnd {
    /// Which.
    pub job: Job,
    /// How it ended and what it printed last, for the model.
    pub text: String,
    /// Whether it ended by itself, so that nobody knows of it yet.
    pub is_news: bool,
}

#[derive(Default)]
struct All {
    last_number: u32,
    jobs: Vec<Known>,
    tasks: JoinSet<()>,
    is_closed: bool,
}

/// What is known of a job.
struct Known {
    job: Job,
    pid: u32,
    begun: Instant,
    stop: CancellationToken,
    live: Arc<Mutex<Live>>,
    /// How it ended, once it has.
    end: watch::Receiver<Option<String>>,
}

/// What changes while a job runs.
struct Live {
    printed: Printed,
    /// Ends it at once; gone with its end.
    severing: Option<Severing>,
}

/// The task that a job has until its end.
struct Attendant {
    job: Job,
    begun: Instant,
    stop: CancellationToken,
    live: Arc<Mutex<Live>>,
    told: watch::Sender<Option<String>>,
    all: Weak<Mutex<All>>,
    on_end: OnEnd,
}

/// A job that was started.
pub(crate) struct StartedJob {
    pub(crate) name: String,
    pub(crate) pid: u32,
    pub(crate) path: PathBuf,
}

/// Why a job was not started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error("the job was not started: {MOST} jobs are running; stop one first (`jobs` lists them)")]
    TooMany,
    #[error("the job was not started: its output would go to {}, which cannot be made: {source}", path.display())]
    Output { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Run(#[from] RunError),
}

/// There is no such job.
#[derive(Debug, thiserror::Error)]
#[error("there is no job-{number} in this run of the session; {known}")]
pub(crate) struct NoSuchJob {
    number: u32,
    known: String,
}

/// How waiting for a job came out.
pub(crate) enum Waited {
    /// It has ended, so.
    Ended(String),
    /// It is still running.
    Running,
    /// The waiting was cancelled.
    Cancelled,
}

impl Jobs {
    /// No jobs yet. What they print goes to files in `folder`, which is made with the first; their numbers begin behind
    /// `last_number`.
    pub fn new(folder: PathBuf, last_number: u32, on_end: OnEnd) -> Self {
        let all = All { last_number, ..All::default() };
        Jobs { folder, on_end, all: Arc::new(Mutex::new(all)) }
    }

    /// Where the outputs lie.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where the output of the job of this number lies in such a folder.
    pub fn output_in(folder: &Path, number: u32) -> PathBuf {
        folder.join(format!("job-{number}.log"))
    }

    /// The jobs that are running, in the order in which they were started.
    pub fn running(&self) -> Vec<Job> {
        let all = lock(&self.all);
        all.jobs.iter().filter(|known| known.is_running()).map(|known| known.job.clone()).collect()
    }

    /// Starts a job. `intent` is called when its process exists and waits.
    pub(crate) async fn start(
        &self,
        supervisor: &Supervisor,
        run: Run<'_>,
        intent: impl FnOnce(StartedProcess) -> Result<(), String>,
    ) -> Result<StartedJob, StartError> {
        if self.running().len() >= MOST {
            return Err(StartError::TooMany);
        }
        let (job, path, file) = self.new_output(run.command)?;
        let mut pid = 0;
        let named = job.clone();
        let intent = |process: StartedProcess| {
            pid = process.pid;
            intent(StartedProcess { job: Some(named), ..process })
        };
        let running = supervisor.start(run, intent).await.map_err(StartError::from);
        let severed = running.and_then(|running| match running.severing() {
            Ok(severing) => Ok((running, severing)),
            Err(error) => Err(RunError::Lost(format!(" ({error})")).into()),
        });
        let (running, severing) = severed.inspect_err(|_| {
            // Nobody will look for the output of what never ran.
            let _ = fs::remove_file(&path);
        })?;
        let started = StartedJob { name: job.id(), pid, path: path.clone() };
        let live = Live { printed: Printed::new(path, file), severing: Some(severing) };
        self.take_in(job, pid, running, live);
        Ok(started)
    }

    /// The next number whose file is not there yet.
    fn new_output(&self, command: &str) -> Result<(Job, PathBuf, File), StartError> {
        // In a session's folder that is there: one that vanished is not made anew.
        match fs::DirBuilder::new().mode(0o700).create(&self.folder) {
            Err(source) if source.kind() != io::ErrorKind::AlreadyExists => {
                return Err(StartError::Output { path: self.folder.clone(), source });
            }
            Ok(()) | Err(_) => {}
        }
        loop {
            let number = {
                let mut all = lock(&self.all);
                all.last_number = all.last_number.saturating_add(1);
                all.last_number
            };
            let path = Jobs::output_in(&self.folder, number);
            match fs::OpenOptions::new().append(true).create_new(true).mode(0o600).open(&path) {
                Ok(file) => return Ok((Job { number, command: shown(command) }, path, file)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < u32::MAX => {}
                Err(source) => return Err(StartError::Output { path, source }),
            }
        }
    }

    /// From here on the job is known, and attended to until its end.
    fn take_in(&self, job: Job, pid: u32, running: Running, live: Live) {
        let (told, end) = watch::channel(None);
        let attendant = Attendant {
            job: job.clone(),
            begun: Instant::now(),
            stop: CancellationToken::new(),
            live: Arc::new(Mutex::new(live)),
            told,
            all: Arc::downgrade(&self.all),
            on_end: self.on_end.clone(),
        };
        let Attendant { begun, stop, live, .. } = &attendant;
        let known = Known { job, pid, begun: *begun, stop: stop.clone(), live: live.clone(), end };
        let mut all = lock(&self.all);
        all.forget_old_ones();
        all.jobs.push(known);
        all.tasks.spawn(attendant.attend(running));
    }

    /// All jobs of this process, but for the oldest ended ones: a line that counts them, and one paragraph for each.
    pub(crate) fn list(&self) -> (String, Option<String>) {
        let all = lock(&self.all);
        let running = all.jobs.iter().filter(|known| known.is_running()).count();
        let ended = all.jobs.len() - running;
        if all.jobs.is_empty() {
            return ("there are no background jobs; `background: true` starts one".to_owned(), None);
        }
        let paragraphs: Vec<String> = all.jobs.iter().map(Known::paragraph).collect();
        let are = if running == 1 { "is" } else { "are" };
        (
            format!("{} {are} running, {ended} ended", count(running as u64, "job")),
            Some(paragraphs.join("\n")),
        )
    }

    /// Waits, but not longer than this, until a job has ended.
    pub(crate) async fn wait(
        &self,
        number: u32,
        time: Duration,
        cancel: &CancellationToken,
    ) -> Result<Waited, NoSuchJob> {
        let mut end = self.look(number, |known| known.end.clone())?;
        let ended = async {
            let how = end.wait_for(Option::is_some).await.ok().and_then(|how| how.clone());
            // A task that is gone without a word was ended with the session.
            how.unwrap_or_else(|| "was ended".to_owned())
        };
        Ok(tokio::select! {
            how = ended => Waited::Ended(how),
            () = tokio::time::sleep(time) => Waited::Running,
            () = cancel.cancelled() => Waited::Cancelled,
        })
    }

    /// Tells a job to end; [`Jobs::wait`] waits for that.
    pub(crate) fn stop(&self, number: u32) -> Result<(), NoSuchJob> {
        self.look(number, |known| known.stop.cancel())
    }

    fn look<T>(&self, number: u32, look: impl FnOnce(&Known) -> T) -> Result<T, NoSuchJob> {
        let all = lock(&self.all);
        if let Some(known) = all.jobs.iter().find(|known| known.job.number == number) {
            return Ok(look(known));
        }
        let names: Vec<String> = all.jobs.iter().map(|known| known.job.id()).collect();
        let known = if names.is_empty() {
            "there are none".to_owned()
        } else {
            format!("there are {}", names.join(", "))
        };
        Err(NoSuchJob { number, known })
    }
}

impl Drop for Jobs {
    fn drop(&mut self) {
        let mut all = lock(&self.all);
        all.is_closed = true;
        // At once, whether or not the tasks are ever woken again.
        for known in &all.jobs {
            if let Some(severing) = &lock(&known.live).severing {
                severing.sever();
            }
        }
        all.tasks.abort_all();
    }
}

impl std::fmt::Debug for Jobs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Jobs").field("folder", &self.folder).field("running", &self.running()).finish()
    }
}

impl All {
    fn forget_old_ones(&mut self) {
        while self.tasks.try_join_next().is_some() {}
        let ended = self.jobs.iter().filter(|known| !known.is_running()).count();
        let mut excess = ended.saturating_sub(LISTED);
        self.jobs.retain(|known| {
            let is_kept = known.is_running() || excess == 0;
            excess -= usize::from(!is_kept);
            is_kept
        });
    }
}

impl Attendant {
    async fn attend(self, mut running: Running) {
        let live = &self.live;
        let finished = running.attend(None, &self.stop, |bytes| lock(live).printed.push(bytes)).await;
        // What it left running has ended; so does its keeper now.
        drop(running);
        let how = how_it_ended(&finished, self.begun.elapsed());
        let text = {
            let mut live = lock(live);
            live.severing = None;
            live.printed.end();
            end_text(&self.job, &how, &finished, &live.printed)
        };
        let is_closed = self.all.upgrade().is_none_or(|all| lock(&all).is_closed);
        if !is_closed {
            let is_news = !matches!(&finished, Ok(Finished { cut: Some(_), .. }));
            (self.on_end)(JobEnd { job: self.job, text, is_news });
        }
        // Only now: whoever waited goes on with the end logged.
        self.told.send_replace(Some(how));
    }
}

impl Known {
    fn is_running(&self) -> bool {
        self.end.borrow().is_none()
    }

    fn paragraph(&self) -> String {
        let state = match &*self.end.borrow() {
            Some(how) => how.clone(),
            None => format!("has been running for {} (process {})", time(self.begun.elapsed()), self.pid),
        };
        let live = lock(&self.live);
        format!("{} (`{}`) {state}. {}", self.job.id(), self.job.command, live.printed.in_words(3))
    }
}

/// What a job printed: all of it in a file, the last of it in memory.
struct Printed {
    path: PathBuf,
    /// Until its end.
    file: Option<File>,
    inert: Inert,
    written: u64,
    last: VecDeque<u8>,
    failure: Option<io::Error>,
}

impl Printed {
    fn new(path: PathBuf, file: File) -> Self {
        Printed {
            path,
            file: Some(file),
            inert: Inert::default(),
            written: 0,
            last: VecDeque::new(),
            failure: None,
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        // Of what is not kept any more, only the end is told.
        let needless = if self.written == KEPT { bytes.len().saturating_sub(2 * LAST_BYTES) } else { 0 };
        let bytes = &bytes[needless..];
        let mut text = String::with_capacity(bytes.len());
        self.inert.push(bytes, &mut text);
        self.write(&text);
    }

    fn end(&mut self) {
        let mut text = String::new();
        self.inert.end(&mut text);
        self.write(&text);
        self.file = None;
    }

    fn write(&mut self, text: &str) {
        let room = usize::try_from(KEPT - self.written).unwrap_or(usize::MAX);
        let kept = head(text, room).as_bytes();
        if let Some(file) = &mut self.file
            && let Err(error) = file.write_all(kept)
        {
            self.file = None;
            self.failure = Some(error);
        }
        // From the first that finds no room on, nothing does.
        self.written = if kept.len() < text.len() { KEPT } else { self.written + kept.len() as u64 };
        let text = &text.as_bytes()[text.len().saturating_sub(LAST_BYTES)..];
        let excess = (self.last.len() + text.len()).saturating_sub(LAST_BYTES);
        self.last.drain(..excess);
        self.last.extend(text);
    }

    /// Where the whole is, and the last lines, each marked as the program's.
    fn in_words(&self, most: usize) -> String {
        if self.written == 0 {
            return "It has printed nothing.".to_owned();
        }
        let path = self.path.display();
        let place = match &self.failure {
            Some(error) => format!("What it printed could not be kept in {path}: {error}."),
            None if self.written == KEPT => {
                format!("The first {} MiB of what it printed are in {path}.", KEPT >> 20)
            }
            None => format!("What it printed ({}) is in {path}.", count(self.written, "byte")),
        };
        let bytes: Vec<u8> = self.last.iter().copied().collect();
        let text = String::from_utf8_lossy(&bytes);
        let mut lines: Vec<&str> = text.trim_end().lines().rev().take(most).collect();
        lines.reverse();
        let lines: Vec<String> = lines.iter().map(|line| format!("\n| {line}")).collect();
        format!("{place} The last lines:{}", lines.concat())
    }
}

/// How a job ended, as the end of a sentence about it.
fn how_it_ended(finished: &Result<Finished, RunError>, after: Duration) -> String {
    let after = time(after);
    match finished {
        Ok(Finished { cut: Some(Cut::Cancelled | Cut::Timeout), .. }) => format!("was stopped after {after}"),
        Ok(Finished { exit: Exit::Code(code), .. }) => format!("ended after {after} with exit code {code}"),
        Ok(Finished { exit: Exit::Signal(signal), .. }) => {
            format!("was killed by signal {signal} after {after}")
        }
        Err(error) => format!("was lost after {after}: {error}"),
    }
}

fn end_text(job: &Job, how: &str, finished: &Result<Finished, RunError>, printed: &Printed) -> String {
    let left = match finished {
        Ok(Finished { left: 1.., cut: None, .. }) => {
            " What it had left running ended with it: a job is as long as its shell."
        }
        Ok(_) | Err(_) => "",
    };
    let moved: String = finished
        .iter()
        .flat_map(|finished| &finished.asides)
        .map(|aside| format!(" {}.", said_of(aside, "job")))
        .collect();
    format!("{} (`{}`) {how}.{left}{moved} {}", job.id(), job.command, printed.in_words(LAST_LINES))
}

/// A time as people say it.
fn time(time: Duration) -> String {
    match time.as_secs() {
        0..10 => format!("{:.1} s", time.as_secs_f64()),
        seconds @ 10..120 => format!("{seconds} s"),
        seconds @ 120..7_200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3_600),
    }
}

/// A command in one short line.
fn shown(command: &str) -> String {
    let line = one_line(command.trim());
    let short = head(&line, 80);
    if short.len() < line.len() { format!("{short}…") } else { line }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is held under these locks stays sound even if a holder panicked: each change is one step.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
