//! The owner of one session.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mainstay_session::entry::{Body, Compaction, InboxMessage, Job, Notice, NoticeKind};
use mainstay_session::history::History;
use mainstay_session::ids::SessionId;
use mainstay_session::log::{
    AppendError, CreateError, Damage, Log, OpenError, Opening, RewindError, RewindTo, Rewound, Spill,
};
use mainstay_session::message::{FilePath, ToolResult};
use mainstay_session::state::{OpenCall, SessionState, excerpt};
use mainstay_session::world::moved_text;
use mainstay_tools::{JobEnd, Jobs, OnEnd};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::closing;
use crate::compaction::{CompactError, Compactor, Reason, Room};
use crate::event::{Event, TurnReport};
use crate::prompt::Prompt;
use crate::setup::{Clock, Setup, SetupError};
use crate::shared::SharedLog;
use crate::step::Told;
use crate::turn::Turn;
use crate::watch::Watch;

/// How often an idle agent looks for what other processes have left.
const INBOX_POLL: Duration = Duration::from_millis(500);

/// Owns one session: its log, its model, its tools and the loop.
pub struct Agent {
    setup: Setup,
    log: SharedLog,
    watch: Mutex<Watch>,
    told: Told,
    woken: Arc<Notify>,
    /// Background jobs live as long as this. Calls have it on loan.
    jobs: Arc<Jobs>,
}

/// What was found when a session was resumed.
#[derive(Debug)]
pub struct Resumed {
    /// What of the log could not be read.
    pub damage: Vec<Damage>,
    /// Calls that were in flight, with the result that each was given.
    pub closed: Vec<(OpenCall, ToolResult)>,
    /// Background jobs that ran when the agent before ended, and ended with it. The model is told.
    pub ended_jobs: Vec<Job>,
    /// Whether the last turn had not ended.
    pub was_interrupted: bool,
    /// How long ago the last entry was written, by the wall clock; none where that is not known, or in the future.
    pub ago: Option<Duration>,
    /// The beginning of what the user began the last turn with; empty where a notification did.
    pub prompt: String,
}

impl Resumed {
    /// When the last turn was interrupted, and what it was about, in words that follow "the session was interrupted"; none if it
    /// had ended.
    pub fn interruption(&self) -> Option<String> {
        let ago = match self.ago.map(|ago| ago.as_secs()) {
            None => String::new(),
            Some(0..60) => " just now".to_owned(),
            Some(s @ 60..7_200) => format!(" {} min ago", s / 60),
            Some(s @ 7_200..172_800) => format!(" {} h ago", s / 3_600),
            Some(s) => format!(" {} days ago", s / 86_400),
        };
        let prompt = match self.prompt.as_str() {
            "" => String::new(),
            prompt => format!(", while it worked on: {prompt}"),
        };
        self.was_interrupted.then(|| format!("{ago}{prompt}"))
    }
}

/// The beginning of what the user began the last turn with; nothing where a notification did.
fn last_prompt(state: &SessionState) -> String {
    excerpt(state.turns_in_view().last().and_then(|(_, prompt)| *prompt).unwrap_or_default())
}

/// Why a session could not be begun.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The setup cannot be used.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// Its folder or its log could not be made.
    #[error(transparent)]
    Create(#[from] CreateError),
}

/// Why a session could not be resumed.
#[derive(Debug, thiserror::Error)]
pub enum ResumeError {
    /// The setup cannot be used.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// It could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// It was opened, and what had been in flight could not be logged.
    #[error(transparent)]
    Append(#[from] AppendError),
}

impl Agent {
    /// Begins a new session.
    ///
    /// # Errors
    ///
    /// If the tools cannot be told apart, or the session's folder cannot be made.
    pub fn create(setup: Setup) -> Result<Agent, StartError> {
        setup.check()?;
        let now = (setup.clock)();
        let header = setup.header(SessionId::random(now));
        let first = vec![Body::World(setup.world()), Body::Model(setup.choice())];
        let log = Log::create(&setup.data_home, header, first, setup.durability, now)?;
        Ok(Agent::new(setup, log))
    }

    /// Goes on with the session in `dir`. What was in flight when it stopped gets an honest result, which is logged.
    ///
    /// # Errors
    ///
    /// If another process holds the session, if it cannot be read, or if it cannot be written, also because a newer
    /// version wrote it.
    pub fn resume(dir: &Path, setup: Setup) -> Result<(Agent, Resumed), ResumeError> {
        setup.check()?;
        let now = (setup.clock)();
        let (log, opening) = Log::open(dir, setup.durability, now)?;
        log.check_writable()?;
        let prompt = last_prompt(log.state());
        let agent = Agent::new(setup, log);
        let (closed, was_interrupted) = closing::close_turn(&agent.setup, &agent.log, closing::THE_AGENT)?;
        closing::tell_carried_plan(&agent.log)?;
        let ended_jobs = closing::close_jobs(&agent.log, agent.jobs.folder())?;
        agent.enter()?;
        agent.log.take_inbox()?;
        if agent.is_woken() {
            agent.woken.notify_one();
        }
        let ago = opening.written.and_then(|written| Duration::try_from(now.duration_since(written)).ok());
        let Opening { damage, .. } = opening;
        Ok((agent, Resumed { damage, closed, ended_jobs, was_interrupted, ago, prompt }))
    }

    fn new(setup: Setup, log: Log) -> Self {
        let (folder, last_job) = (log.dir().join("jobs"), log.state().last_job);
        let log = SharedLog::new(log, setup.clock.clone());
        let woken = Arc::new(Notify::new());
        let jobs = Jobs::new(folder, last_job, on_job_end(&log, &woken, &setup));
        Agent { setup, log, watch: Mutex::default(), told: Told::default(), woken, jobs: Arc::new(jobs) }
    }

    /// Takes a prompt through as many steps as it needs.
    ///
    /// When `cancel` fires, the running step is cancelled, its calls get results, and the turn ends as cancelled. What
    /// fails is in the report.
    ///
    /// The future may be dropped, too: commands end, and the next turn says in the log what was cut short.
    pub async fn run(&mut self, prompt: impl Into<Prompt>, cancel: &CancellationToken) -> TurnReport {
        self.turn(cancel).run(Some(prompt.into())).await
    }

    /// Runs a turn without a prompt if a waking notification waits; none otherwise.
    pub async fn wake(&mut self, cancel: &CancellationToken) -> Option<TurnReport> {
        self.accept_messages();
        if self.is_woken() { Some(self.turn(cancel).run(None).await) } else { None }
    }

    /// Goes back to where the session stood; see [`Log::rewind`].
    ///
    /// # Errors
    ///
    /// If there is nothing to go back to, if what lies between is damaged, or if the log cannot be written. Then the
    /// session stands where it stood.
    pub fn rewind(&mut self, to: RewindTo) -> Result<Rewound, RewindError> {
        let rewound = self.log.lock().rewind(to, (self.setup.clock)())?;
        self.enter()?;
        self.log.write_history(&self.setup);
        Ok(rewound)
    }

    /// Waits until a waking notification is accepted, from this program or another process. One that came since the last
    /// wait counts. What another process leaves is noticed within half a second.
    pub async fn woken(&self) {
        loop {
            tokio::select! {
                () = self.woken.notified() => return,
                () = tokio::time::sleep(INBOX_POLL) => {
                    if self.accept_messages() {
                        return;
                    }
                }
            }
        }
    }

    /// Accepts what other processes have left, and says whether any of it starts a turn. A step does so by itself; this is
    /// for a program that looks when nothing runs.
    fn accept_messages(&self) -> bool {
        // What cannot be logged now stays in its file; the next turn says why it cannot.
        self.log.take_inbox().is_ok_and(|taken| taken.wakes)
    }

    fn is_woken(&self) -> bool {
        self.log.read(|state| state.inbox.iter().any(|message| message.wake))
    }

    /// Summarises the conversation now, whatever room there is. `wish` is what the user asks of the summary.
    ///
    /// # Errors
    ///
    /// If the model could not be asked, no way to go on fits the window, or the log cannot be written. Then the
    /// conversation is as it was.
    pub async fn compact(
        &mut self,
        wish: Option<&str>,
        cancel: &CancellationToken,
    ) -> Result<Compaction, CompactError> {
        closing::close_turn(&self.setup, &self.log, "the turn before")?;
        let compactor = Compactor { setup: &self.setup, log: &self.log, jobs: &self.jobs, cancel };
        match compactor.run(Reason::Asked { wish }).await? {
            Room::Made(compaction) => {
                self.log.write_history(&self.setup);
                Ok(compaction)
            }
            Room::Cancelled => Err(CompactError::Cancelled),
            Room::Failed(failure) => Err(CompactError::Failed(failure)),
        }
    }

    /// Goes back to the conversation from before the last compaction; what came since stays behind it. It is a segment of
    /// its own again, so nothing is lost by it.
    ///
    /// # Errors
    ///
    /// If the segment does not begin with a compaction, if both conversations together do not fit the window, or if the
    /// log cannot be read or written.
    pub fn undo_compaction(&mut self) -> Result<Compaction, CompactError> {
        closing::close_turn(&self.setup, &self.log, "the turn before")?;
        let compactor = Compactor {
            setup: &self.setup,
            log: &self.log,
            jobs: &self.jobs,
            cancel: &CancellationToken::new(),
        };
        let compaction = compactor.undo()?;
        self.log.write_history(&self.setup);
        Ok(compaction)
    }

    /// A handle that accepts notifications, also while a turn runs.
    pub fn notifier(&self) -> Notifier {
        Notifier { log: self.log.clone(), woken: self.woken.clone() }
    }

    /// The background jobs that are running. They end with the agent.
    pub fn running_jobs(&self) -> Vec<Job> {
        self.jobs.running()
    }

    /// The history of the current segment: exactly what requests hold. While a turn runs, which has the agent to itself,
    /// another reader of the log does: [`mainstay_session::log::read`], then [`History::of`].
    pub fn get_history(&self) -> History {
        self.log.read(History::of)
    }

    /// Looks at the session's state. `look` must not use this agent or its notifiers: the state is held while it looks.
    pub fn read<T>(&self, look: impl FnOnce(&SessionState) -> T) -> T {
        self.log.read(look)
    }

    /// The session's id; none if its header is lost.
    pub fn session_id(&self) -> Option<SessionId> {
        self.log.read(|state| state.header.as_ref().map(|header| header.session.clone()))
    }

    /// The session's folder.
    pub fn dir(&self) -> PathBuf {
        self.log.lock().dir().to_owned()
    }

    /// What is kept whole beside the log.
    pub fn spill(&self) -> Spill {
        self.log.lock().spill()
    }

    /// What the agent works with.
    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    fn turn<'a>(&'a self, cancel: &'a CancellationToken) -> Turn<'a> {
        let Agent { setup, log, watch, told, jobs, .. } = self;
        Turn { setup, log, watch, told, jobs, cancel }
    }

    /// Logs what is different from the last time: another model, or a world where the log has lost its own.
    fn enter(&self) -> Result<(), AppendError> {
        if self.log.read(|state| state.world.is_none()) {
            self.log.append(Body::World(self.setup.world()))?;
        }
        let workspace = self.setup.workspace.display().to_string();
        if self.log.read(|state| state.told.cwd != workspace) {
            let (cwd, text) = (FilePath(self.setup.workspace.clone()), moved_text(&workspace));
            self.log.append(Body::Notice(Notice { about: NoticeKind::Moved { cwd }, text }))?;
        }
        let choice = self.setup.choice();
        if self.log.read(|state| state.model.as_ref() != Some(&choice)) {
            self.log.append(Body::Model(choice))?;
        }
        Ok(())
    }
}

/// Accepts notifications for an agent. What it accepted is durable and delivered once, in order, before the next
/// request.
#[derive(Clone)]
pub struct Notifier {
    log: SharedLog,
    woken: Arc<Notify>,
}

impl Notifier {
    /// Accepts a notification. A waking one makes an idle agent's [`Agent::woken`] return; a silent one waits for the
    /// next turn.
    ///
    /// # Errors
    ///
    /// If it cannot be logged or made durable. Then it waits in memory, is accepted with the next entry that can be
    /// written, and is lost if the agent ends before; sending it again would tell it twice.
    pub fn notify(&self, text: &str, wake: bool) -> Result<(), AppendError> {
        self.accept("program", text, wake)
    }

    /// Accepts what the user says while a turn runs. It is the user's text before the next request, or of the next turn if
    /// the turn ends before; an idle agent is woken by it.
    ///
    /// # Errors
    ///
    /// As [`Notifier::notify`].
    pub fn steer(&self, text: &str) -> Result<(), AppendError> {
        self.accept(InboxMessage::USER, text, true)
    }

    fn accept(&self, source: &str, text: &str, wake: bool) -> Result<(), AppendError> {
        let id = uuid::Uuid::new_v4().hyphenated().to_string();
        let message = InboxMessage { id, text: text.to_owned(), wake, source: source.to_owned() };
        accept(&self.log, &self.woken, message)
    }

    /// Makes the next write or sync of the log fail as a broken disk would.
    #[cfg(feature = "faults")]
    pub fn inject(&self, fault: mainstay_session::log::Fault) {
        self.log.lock().inject(fault);
    }
}

/// Accepts a notification, durably.
fn accept(log: &SharedLog, woken: &Notify, message: InboxMessage) -> Result<(), AppendError> {
    let wake = message.wake;
    log.append(Body::Inbox(message))?;
    log.sync()?;
    if wake {
        woken.notify_one();
    }
    Ok(())
}

/// Makes the end of each background job a notification, as long as the agent is there. One that the model ended itself
/// wakes nobody.
fn on_job_end(log: &SharedLog, woken: &Arc<Notify>, setup: &Setup) -> OnEnd {
    let (log, woken, on_event) = (log.downgrade(), woken.clone(), setup.on_event.clone());
    Arc::new(move |JobEnd { job, text, is_news }: JobEnd| {
        let Some(log) = log.upgrade() else { return };
        let message = InboxMessage { id: job.id(), text, wake: is_news, source: "job".to_owned() };
        if let Err(error) = accept(&log, &woken, message) {
            // It waits in memory and is written with the next entry that can be.
            on_event(&Event::Warning(format!("the end of {} is not logged yet: {error}", job.id())));
        }
    })
}

/// The time by the system's clock.
pub fn system_clock() -> Clock {
    Arc::new(jiff::Timestamp::now)
}
