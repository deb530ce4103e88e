//! The session's side: owns the agent on a thread of its own, so that typing never waits for it.
//!
//! Orders come in one at a time and are carried out in turn; what happens is told on the channel that the interface
//! listens to. A message that is written while a turn runs lies in the [`Outbox`] until the next border of the turn, and
//! can be taken back until then; at the border it is accepted by the agent, which makes it durable.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;
use mainstay_agent::session::entry::{Grant, StopReason};
use mainstay_agent::session::log::{RewindTo, SessionSummary, whole_conversation};
use mainstay_agent::session::message::Ended;
use mainstay_agent::tools::ToolKind;
use mainstay_agent::undo::{UndoError, Undone, undo};
use mainstay_agent::{
    Agent, Approval, ApprovalRequest, Approver, CommandSandbox, Event, Hold, Notifier, Prompt, Resumed,
    Setup, TurnReport,
};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::app::{ModelOffer, Msg, Opened, Order, Told};
use crate::attachments;
use crate::markdown::Piece;
use crate::text::{Row, plain_line};
use crate::transcript::{self, Part};

/// How much of a conversation is shown when it is gone on with, and when all of it is asked for.
const SHOWN: usize = 40;
const ALL: usize = 5_000;

/// What the embedding program does for the interface.
pub trait Host: Send + Sync {
    /// What an agent is given to work with: for the session in a folder, else for a new one; with another model than the
    /// configured one, if that is asked for.
    ///
    /// # Errors
    ///
    /// It cannot be made; the text says why and what to do.
    fn setup(&self, session: Option<&Path>, model: Option<&str>) -> Result<Prepared, String>;

    /// All sessions, the newest first.
    ///
    /// # Errors
    ///
    /// They cannot be listed.
    fn sessions(&self) -> Result<Vec<SessionSummary>, String>;

    /// The newest session of a workspace, if it was interrupted. It is asked for at every start, so it must be quick.
    fn interrupted(&self, workspace: &Path) -> Option<SessionSummary>;

    /// The models that are configured for a workspace, as far as that is known without asking anybody.
    ///
    /// # Errors
    ///
    /// The configuration cannot be read.
    fn models(&self, workspace: &Path) -> Result<Vec<ModelOffer>, String>;

    /// Makes a session of its own from the one in a folder, and says where it lies.
    ///
    /// # Errors
    ///
    /// It cannot be made.
    fn fork(&self, session: &Path) -> Result<PathBuf, String>;

    /// Keeps a permission for the project.
    ///
    /// # Errors
    ///
    /// It cannot be kept.
    fn keep(&self, workspace: &Path, grant: &Grant) -> Result<(), String>;
}

/// What an agent is given to work with, and what the user shall know of it.
pub struct Prepared {
    /// The setup. Who hears events and who is asked is the interface's matter.
    pub setup: Setup,
    /// Lines for the user.
    pub notes: Vec<String>,
}

/// What the session's side begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Begin {
    /// Getting ready for a new session.
    New,
    /// Going on with the session in this folder.
    With(PathBuf),
    /// Nothing: the user chooses a session, which may need another model than the configured one.
    Idle,
}

/// An order with what cancels it.
pub(crate) type Job = (Order, CancellationToken);

/// Messages that wait for the next border of a turn.
#[derive(Clone, Default)]
pub(crate) struct Outbox(Arc<Mutex<VecDeque<String>>>);

impl Outbox {
    fn lock(&self) -> MutexGuard<'_, VecDeque<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a message in.
    pub(crate) fn put(&self, text: String) {
        self.lock().push_back(text);
    }

    /// Takes the last message back, unless it was handed over.
    pub(crate) fn take_back(&self) -> Option<String> {
        self.lock().pop_back()
    }

    fn take_all(&self) -> Vec<String> {
        self.lock().drain(..).collect()
    }
}

/// What both sides hold.
#[derive(Clone)]
pub(crate) struct Shared {
    /// Where the interface listens.
    pub(crate) msgs: UnboundedSender<Msg>,
    /// Messages that wait.
    pub(crate) outbox: Outbox,
    /// What cancels the work that is going on.
    pub(crate) cancel: Arc<Mutex<CancellationToken>>,
    /// Who waits for an answer of the user.
    pub(crate) question: Arc<Mutex<Questions>>,
}

/// The question that is open, and how many there were, which is the number of the last one.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    asked: u64,
    open: Option<(u64, oneshot::Sender<Approval>)>,
}

impl Questions {
    /// Opens a question: its number, and where its answer comes.
    fn open(&mut self) -> (u64, oneshot::Receiver<Approval>) {
        let (sender, receiver) = oneshot::channel();
        self.asked += 1;
        self.open = Some((self.asked, sender));
        (self.asked, receiver)
    }

    /// Closes this question, if it is the open one.
    fn close(&mut self, number: u64) -> Option<oneshot::Sender<Approval>> {
        self.open.take_if(|(open, _)| *open == number).map(|(_, sender)| sender)
    }
}

impl Shared {
    fn tell(&self, told: Told) {
        // Without anybody who listens the program is about to end.
        let _ = self.msgs.send(Msg::Session(Box::new(told)));
    }

    /// Makes `token` what cancels the work that is going on.
    pub(crate) fn cancelled_by(&self, token: CancellationToken) {
        *self.cancel.lock().unwrap_or_else(PoisonError::into_inner) = token;
    }

    /// Cancels the work that is going on.
    pub(crate) fn cancel(&self) {
        self.cancel.lock().unwrap_or_else(PoisonError::into_inner).cancel();
    }

    fn is_cancelled(&self) -> bool {
        self.cancel.lock().unwrap_or_else(PoisonError::into_inner).is_cancelled()
    }

    fn question(&self) -> MutexGuard<'_, Questions> {
        self.question.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers a question. If another one is open by now, nothing is answered.
    pub(crate) fn answer(&self, number: u64, answer: Approval) {
        if let Some(question) = self.question().close(number) {
            // Withdrawn in the same moment: then nobody wants it.
            let _ = question.send(answer);
        }
    }
}

/// Asks the user of the interface.
struct Asker {
    shared: Shared,
    host: Arc<dyn Host>,
    workspace: PathBuf,
}

/// Withdraws a question that nobody answered.
struct Withdrawal<'a>(&'a Shared, u64);

impl Drop for Withdrawal<'_> {
    fn drop(&mut self) {
        if self.0.question().close(self.1).is_some() {
            self.0.tell(Told::Withdrawn(self.1));
        }
    }
}

impl Approver for Asker {
    fn ask<'a>(&'a self, request: &'a ApprovalRequest) -> BoxFuture<'a, Approval> {
        Box::pin(async move {
            let (number, receiver) = self.shared.question().open();
            let _withdrawal = Withdrawal(&self.shared, number);
            self.shared.tell(Told::Ask(number, request.clone()));
            receiver.await.unwrap_or(Approval::No { word: String::new() })
        })
    }

    fn keep(&self, grant: &Grant) -> Result<(), String> {
        self.host.keep(&self.workspace, grant)
    }
}

/// The session's side.
pub(crate) struct Worker {
    host: Arc<dyn Host>,
    shared: Shared,
    orders: UnboundedReceiver<Job>,
    /// What the next agent is made with.
    setup: Option<Setup>,
    /// How far commands are held, once that is known of this setup.
    hold: Option<Hold>,
    agent: Option<Agent>,
    /// The folder of a session that was let go and could not be taken again. It is still the user's.
    lost: Option<PathBuf>,
    notifier: Arc<Mutex<Option<Notifier>>>,
    /// How many orders were carried out.
    done: u64,
}

impl Worker {
    pub(crate) fn new(host: Arc<dyn Host>, shared: Shared, orders: UnboundedReceiver<Job>) -> Self {
        Worker {
            host,
            shared,
            orders,
            setup: None,
            hold: None,
            agent: None,
            lost: None,
            notifier: Arc::default(),
            done: 0,
        }
    }

    /// Carries out orders until nobody gives any more.
    pub(crate) async fn serve(mut self, begin: Begin) {
        match begin {
            Begin::With(dir) => {
                if self.resume(&dir, None) {
                    self.say_approve();
                } else if self.agent.is_none() {
                    self.note("your first message begins a new session; /sessions offers those that exist");
                }
            }
            Begin::New => {
                self.prepare();
                self.say_interrupted();
            }
            Begin::Idle => {}
        }
        self.idle();
        loop {
            let job = tokio::select! {
                job = self.orders.recv() => match job {
                    Some(job) => job,
                    None => return,
                },
                () = woken(self.agent.as_ref()) => {
                    self.wake().await;
                    continue;
                }
            };
            self.carry_out(job).await;
            self.done += 1;
            match self.agent {
                Some(_) => hand_over(&self.notifier, &self.shared),
                None => self.give_back(),
            }
            self.idle();
        }
    }

    /// Makes ready for a new session, which begins with the first prompt.
    fn prepare(&mut self) {
        match self.host.setup(None, None) {
            Ok(prepared) => {
                self.notes(&prepared.notes);
                self.use_setup(self.equipped(prepared.setup));
                self.tell_opened(false);
            }
            Err(why) => self.failed(&why),
        }
    }

    /// A new session where the last one was interrupted is perhaps not what the user meant.
    fn say_interrupted(&self) {
        let Some(setup) = &self.setup else { return };
        if let Some(last) = self.host.interrupted(&setup.workspace) {
            self.show(vec![transcript::interrupted(&last)]);
        }
    }

    /// Makes ready for another session, with the model that answers now. Whatever fails, the one before stays.
    fn begin_anew(&mut self) {
        if self.keeps_jobs() {
            return;
        }
        let model = self.setup.as_ref().map(|setup| setup.model.name().to_owned());
        let prepared = match self.host.setup(None, model.as_deref()) {
            Ok(prepared) => prepared,
            Err(why) => return self.failed(&why),
        };
        let before = self.agent.as_ref().and_then(Agent::session_id).map(|id| id.short().to_owned());
        self.let_go();
        self.lost = None;
        self.notes(&prepared.notes);
        self.use_setup(self.equipped(prepared.setup));
        self.tell_opened(false);
        self.note(&match before {
            Some(id) => {
                format!("your next message begins a new session; /resume offers the one before, {id}")
            }
            None => "your next message begins a new session".to_owned(),
        });
    }

    async fn carry_out(&mut self, (order, cancel): Job) {
        if !matches!(order, Order::ListSessions | Order::Resume(_) | Order::New) && !self.has_its_session() {
            return;
        }
        let is_ready = self.setup.is_some();
        let prepares = matches!(order, Order::ListSessions | Order::Resume(_) | Order::Model(_) | Order::New);
        if !is_ready && !prepares {
            self.prepare();
        }
        match order {
            Order::Prompt { text, images } => self.prompt(&text, &images, &cancel).await,
            Order::Compact(wish) => self.compact(wish.as_deref(), &cancel).await,
            Order::Model(name) => self.change_model(&name),
            Order::ListSessions => match self.host.sessions() {
                Ok(sessions) => self.shared.tell(Told::Sessions(sessions)),
                Err(why) => self.failed(&why),
            },
            Order::New => self.begin_anew(),
            Order::Resume(dir) => {
                if !self.keeps_jobs() && self.resume(&dir, None) {
                    self.say_approve();
                }
            }
            Order::Fork => self.fork(),
            Order::ListTurns => {
                let turns = self.agent.as_ref().map(|agent| {
                    agent.read(|state| {
                        let owned = |(turn, text): (u64, Option<&str>)| (turn, text.map(str::to_owned));
                        state.turns_in_view().into_iter().map(owned).collect()
                    })
                });
                self.shared.tell(Told::Turns(turns.unwrap_or_default()));
            }
            Order::Rewind(turn) => self.rewind(turn),
            Order::Undo => self.undo(),
            Order::History => self.show_whole_conversation().await,
            Order::Permissions => self.say_permissions(),
            Order::Notify(text) => self.notify(&text),
        }
    }

    async fn prompt(&mut self, text: &str, images: &[String], cancel: &CancellationToken) {
        let Some(setup) = &self.setup else { return self.give_back() };
        let prompt = match with_images(text, images, setup).await {
            Ok((prompt, missing)) => {
                self.show(missing.iter().map(|words| transcript::warning(words)).collect());
                prompt
            }
            // No session for a message that is not sent; it goes back to where it was written.
            Err(why) => return self.failed(&why),
        };
        if self.agent.is_none() && !self.create() {
            return self.give_back();
        }
        let Some(agent) = &mut self.agent else { return };
        let sandbox = agent.setup().sandbox.clone();
        let report = looking(&mut self.hold, &self.shared, sandbox, agent.run(prompt, cancel)).await;
        self.after_turn(&report);
    }

    async fn wake(&mut self) {
        let cancel = CancellationToken::new();
        self.shared.cancelled_by(cancel.clone());
        let Some(agent) = &mut self.agent else { return };
        let sandbox = agent.setup().sandbox.clone();
        if let Some(report) = looking(&mut self.hold, &self.shared, sandbox, agent.wake(&cancel)).await {
            self.after_turn(&report);
            self.idle();
        }
    }

    /// What was written too late for the turn begins the next one; after a failure it is the user's again.
    fn after_turn(&self, report: &TurnReport) {
        match report.stop_reason {
            StopReason::Cancelled | StopReason::Error => self.give_back(),
            _ => hand_over(&self.notifier, &self.shared),
        }
    }

    fn give_back(&self) {
        let texts = self.shared.outbox.take_all();
        if !texts.is_empty() {
            self.shared.tell(Told::Returned(texts));
        }
    }

    async fn compact(&mut self, wish: Option<&str>, cancel: &CancellationToken) {
        let Some(agent) = &mut self.agent else { return self.note("there is nothing to summarise yet") };
        match agent.compact(wish, cancel).await {
            Ok(_) => {
                hand_over(&self.notifier, &self.shared);
                self.tell_opened(false);
            }
            Err(error) => {
                self.failed(&format!("not summarised: {error}; the conversation is as it was"));
                self.give_back();
            }
        }
    }

    fn create(&mut self) -> bool {
        let Some(setup) = self.setup.clone() else { return false };
        let data_home = setup.data_home.clone();
        match Agent::create(setup) {
            Ok(agent) => {
                self.take(agent);
                self.tell_opened(false);
                true
            }
            Err(error) => {
                self.failed(&format!("{error}; make {} writable, or set MAINSTAY_HOME", data_home.display()));
                false
            }
        }
    }

    /// Makes this what the next agent is made with.
    fn use_setup(&mut self, setup: Setup) {
        self.hold = match &setup.sandbox {
            CommandSandbox::None => Some(Hold::No),
            CommandSandbox::Enforced => Some(Hold::Fully),
            CommandSandbox::Supervised(_) => None,
        };
        self.setup = Some(setup);
    }

    fn take(&mut self, agent: Agent) {
        *self.notifier.lock().unwrap_or_else(PoisonError::into_inner) = Some(agent.notifier());
        self.agent = Some(agent);
    }

    /// Takes a session that was lost once more, if one was. No order is carried out without it: that would be for a new
    /// session, which nobody asked for.
    fn has_its_session(&mut self) -> bool {
        match (self.lost.take(), self.setup.clone()) {
            (Some(dir), Some(setup)) => self.take_again(&dir, setup),
            (Some(dir), None) => self.resume(&dir, None),
            (None, _) => true,
        }
    }

    /// Takes the session in `dir` again after it was let go; says why, if that cannot be.
    fn take_again(&mut self, dir: &Path, setup: Setup) -> bool {
        match Agent::resume(dir, setup) {
            Ok((agent, _)) => {
                self.take(agent);
                self.tell_opened(false);
                true
            }
            Err(error) => {
                self.lost = Some(dir.to_owned());
                self.failed(&format!(
                    "the session cannot be gone on with: {error}; your next message tries it again, \
                     /sessions offers others"
                ));
                false
            }
        }
    }

    /// Lets go of the agent, whose background jobs end with it.
    fn let_go(&mut self) {
        *self.notifier.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.agent = None;
    }

    /// Goes on with the session in `dir`, and says whether it could be. Whatever fails, the one before stays.
    fn resume(&mut self, dir: &Path, model: Option<&str>) -> bool {
        let prepared = match self.host.setup(Some(dir), model) {
            Ok(prepared) => prepared,
            Err(why) => {
                self.failed(&why);
                return false;
            }
        };
        let is_same = self.agent.as_ref().is_some_and(|agent| agent.dir() == dir);
        if is_same {
            self.let_go();
        }
        let setup = self.equipped(prepared.setup);
        match Agent::resume(dir, setup.clone()) {
            Ok((agent, resumed)) => {
                self.let_go();
                self.lost = None;
                self.use_setup(setup);
                self.take(agent);
                self.notes(&prepared.notes);
                if model.is_none() {
                    self.show_conversation();
                }
                self.say_resumed(&resumed);
                self.tell_opened(resumed.was_interrupted);
                true
            }
            Err(error) => {
                self.failed(&format!("the session cannot be gone on with: {error}"));
                match self.setup.clone() {
                    Some(before) if is_same => drop(self.take_again(dir, before)),
                    Some(_) => {}
                    None => self.prepare(),
                }
                false
            }
        }
    }

    /// What is asked about is not the session's matter but that of who runs it, so it may be another than before.
    fn say_approve(&self) {
        let Some(setup) = &self.setup else { return };
        self.note(&format!(
            "approve = {} holds from here on, whatever an earlier run was given with --approve",
            setup.approve.as_str()
        ));
    }

    fn say_resumed(&self, resumed: &Resumed) {
        let mut rows: Vec<Row> =
            resumed.damage.iter().map(|damage| transcript::warning(&damage.to_string())).collect();
        if let Some(interruption) = resumed.interruption() {
            rows.push(transcript::warning(&format!("the session was interrupted{interruption}")));
            rows.push(transcript::note("it goes on from its last complete entry, without an answer that was only half there; no command was run again"));
        }
        for job in &resumed.ended_jobs {
            rows.push(transcript::note(&format!(
                "{} ran then, and ended with it: {}",
                job.id(),
                job.command
            )));
        }
        for (open, result) in &resumed.closed {
            let is_command = self
                .setup
                .iter()
                .flat_map(|setup| &setup.tools)
                .any(|tool| tool.kind() == ToolKind::Command && tool.spec().name == open.call.name);
            let what = match &open.intent {
                _ if open.has_ended => "its result is lost",
                // What is about to run is logged before, so this waited for an answer, or for its turn.
                None if is_command => "it was not run",
                Some(_) | None => "it was in flight",
            };
            rows.push(transcript::warning(&format!("{}: {what}", transcript::call_words(&open.call))));
            rows.extend(transcript::call_detail(&open.call, result).into_iter().skip(1).take(8));
        }
        self.show(rows);
    }

    fn change_model(&mut self, name: &str) {
        if self.keeps_jobs() {
            return;
        }
        let is_changed = match self.agent.as_ref().map(Agent::dir) {
            Some(dir) => self.resume(&dir, Some(name)),
            None => match self.host.setup(None, Some(name)) {
                Ok(prepared) => {
                    self.use_setup(self.equipped(prepared.setup));
                    self.tell_opened(false);
                    true
                }
                Err(why) => return self.failed(&why),
            },
        };
        if let (true, Some(setup)) = (is_changed, &self.setup) {
            self.note(&format!("{} answers from here on", setup.model.name()));
        }
    }

    /// Whether jobs are running that would end; then says so.
    fn keeps_jobs(&self) -> bool {
        let jobs = self.agent.as_ref().map(Agent::running_jobs).unwrap_or_default();
        if !jobs.is_empty() {
            let mut rows = vec![transcript::warning("not while background jobs are running: they would end")];
            rows.extend(jobs.iter().map(transcript::job));
            self.show(rows);
        }
        !jobs.is_empty()
    }

    fn fork(&mut self) {
        let Some(dir) = self.agent.as_ref().map(Agent::dir) else {
            return self.note("the session begins with your first message; there is nothing to copy yet");
        };
        if self.keeps_jobs() {
            return;
        }
        match self.host.fork(&dir) {
            Ok(copy) => {
                if self.resume(&copy, None) {
                    self.note("this is the copy; the other session stays as it is");
                } else {
                    self.note("the copy was made; you are still in the other session");
                }
            }
            Err(why) => self.failed(&why),
        }
    }

    fn rewind(&mut self, turn: u64) {
        let Some(agent) = &mut self.agent else { return };
        match agent.rewind(RewindTo::Turn(turn)) {
            Ok(rewound) => {
                self.note(&format!(
                    "the session stands at the end of turn {} again; it had {}. No file was touched: /undo is for them",
                    rewound.turn, rewound.left
                ));
                self.tell_opened(false);
            }
            Err(error) => self.failed(&error.to_string()),
        }
    }

    /// Takes file changes back. The log must be free for that, so the agent is let go and taken again.
    fn undo(&mut self) {
        let Some(dir) = self.agent.as_ref().map(Agent::dir) else {
            return self.note("/undo: nothing was changed yet");
        };
        if self.keeps_jobs() {
            return;
        }
        let Some(setup) = self.setup.clone() else { return };
        let now = (setup.clock)();
        self.let_go();
        match undo(&dir, None, now) {
            Ok(done) => self.say_undone(&done, &setup.workspace),
            Err(error) => {
                if let UndoError::Write { done, .. } = &error {
                    self.say_undone(done, &setup.workspace);
                }
                self.failed(&format!("/undo: {error}"));
            }
        }
        self.take_again(&dir, setup);
    }

    fn say_undone(&self, done: &[Undone], workspace: &Path) {
        self.show(done.iter().map(|undone| transcript::undone(undone, workspace)).collect());
    }

    fn notify(&self, text: &str) {
        let notifier = self.notifier.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match notifier.map(|notifier| notifier.notify(text, false)) {
            Some(Ok(())) => self.note("it is told to the model with your next message"),
            Some(Err(error)) => self.failed(&error.to_string()),
            None => self.note("the session begins with your first message"),
        }
    }

    fn say_permissions(&self) {
        let Some(setup) = &self.setup else { return };
        let sandbox = match self.hold {
            None => "a sandbox is set; whether this machine enforces it is seen with the first turn",
            Some(Hold::No) => "commands run without a sandbox",
            Some(Hold::Partly) => {
                "the sandbox is not enforced in full here, so commands do not count as held: `mainstay doctor` says why"
            }
            Some(Hold::Fully) => "commands run in a sandbox, which this machine enforces",
        };
        let mut rows = vec![transcript::note(&format!("approve = {}; {sandbox}", setup.approve.as_str()))];
        let grants =
            self.agent.as_ref().map(|agent| agent.read(|state| state.grants.clone())).unwrap_or_default();
        let lasting: Vec<&Grant> = grants.iter().filter(|grant| grant.lasts()).collect();
        if lasting.is_empty() {
            rows.push(transcript::note("you gave no lasting permission in this session"));
        }
        rows.extend(lasting.into_iter().map(|grant| {
            transcript::note(&format!("{} {} (for the {})", grant.tool, grant.pattern, grant.scope))
        }));
        rows.push(transcript::note("another mode: mainstay --approve MODE; rules: [[rules]] in config.toml, whose place `mainstay doctor` names"));
        self.show(rows);
    }

    fn show_conversation(&self) {
        let Some(agent) = &self.agent else { return };
        for (part, pieces) in agent.read(|state| transcript::conversation(&state.history, SHOWN)) {
            self.shared.tell(Told::Say(part, pieces));
        }
    }

    /// Reading takes as long as the session is old. It is done on another thread, since on this one what jobs print is
    /// taken from their pipes.
    async fn show_whole_conversation(&self) {
        let Some(dir) = self.agent.as_ref().map(Agent::dir) else { return self.note("there is nothing yet") };
        let reading = tokio::task::spawn_blocking(move || {
            whole_conversation(&dir, ALL).map(|whole| transcript::whole_conversation(&whole))
        });
        match reading.await {
            Ok(Ok(parts)) => {
                parts.into_iter().for_each(|(part, pieces)| self.shared.tell(Told::Say(part, pieces)));
            }
            Ok(Err(error)) => self.failed(&error.to_string()),
            Err(error) => self.failed(&format!("the conversation cannot be shown: {error}")),
        }
    }

    /// A setup whose events and questions come to the interface.
    fn equipped(&self, setup: Setup) -> Setup {
        let (shared, notifier) = (self.shared.clone(), self.notifier.clone());
        let on_event = move |event: &Event| {
            shared.tell(Told::Event(event.clone()));
            if is_border(event) && !shared.is_cancelled() {
                hand_over(&notifier, &shared);
            }
        };
        let approver = Asker {
            shared: self.shared.clone(),
            host: self.host.clone(),
            workspace: setup.workspace.clone(),
        };
        Setup { on_event: Arc::new(on_event), approver: Some(Arc::new(approver)), ..setup }
    }

    fn tell_opened(&self, was_interrupted: bool) {
        let Some(setup) = &self.setup else { return };
        let mut opened = Opened {
            model: setup.model.name().to_owned(),
            window: setup.model.context_window(),
            workspace: setup.workspace.clone(),
            approve: setup.approve.as_str(),
            hold: self.hold,
            takes_images: setup.model.takes_images(),
            was_interrupted,
            ..Opened::default()
        };
        if let Some(agent) = &self.agent {
            opened.id = agent.session_id().map(|id| id.short().to_owned());
            agent.read(|state| {
                opened.plan = state.plan.clone();
                opened.totals = state.totals;
                opened.used = state.counted.map_or(0, |counted| counted.input_tokens);
            });
        }
        self.shared.tell(Told::Opened(Box::new(opened)));
    }

    fn idle(&self) {
        let jobs = self.agent.as_ref().map(Agent::running_jobs).unwrap_or_default();
        self.shared.tell(Told::Idle { jobs, done: self.done });
    }

    fn notes(&self, notes: &[String]) {
        self.show(notes.iter().map(|note| transcript::note(&plain_line(note))).collect());
    }

    fn note(&self, words: &str) {
        self.show(vec![transcript::note(words)]);
    }

    fn failed(&self, why: &str) {
        self.show(transcript::failure(&format!("✗ {why}")));
    }

    fn show(&self, rows: Vec<Row>) {
        if !rows.is_empty() {
            self.shared.tell(Told::Say(Part::Note, vec![Piece::Rows(rows)]));
        }
    }
}

/// A message with its images. Those are read on another thread, since on this one what jobs print is taken from their pipes.
async fn with_images(text: &str, images: &[String], setup: &Setup) -> Result<(Prompt, Vec<String>), String> {
    if images.is_empty() {
        return Ok((Prompt::from(text), Vec::new()));
    }
    let (text, images, workspace) = (text.to_owned(), images.to_vec(), setup.workspace.clone());
    let (model, takes_images) = (setup.model.name().to_owned(), setup.model.takes_images());
    let read = move || attachments::prompt(&text, &images, &workspace, &model, takes_images);
    tokio::task::spawn_blocking(read)
        .await
        .map_err(|error| format!("not sent: an image cannot be read: {error}"))?
}

/// Whether a message that waits is delivered at this event, if the turn was not cancelled: the turn goes on behind it, so that
/// the message is not stranded with a turn that fails.
fn is_border(event: &Event) -> bool {
    match event {
        Event::Answer { answer, .. } => answer.ended == Ended::Complete,
        Event::Compacted(done) => done.after.is_some(),
        Event::ToolCompleted { .. } => true,
        _ => false,
    }
}

/// Gives what waits in the outbox to the agent, which makes it durable.
fn hand_over(notifier: &Mutex<Option<Notifier>>, shared: &Shared) {
    let Some(notifier) = notifier.lock().unwrap_or_else(PoisonError::into_inner).clone() else { return };
    for text in shared.outbox.take_all() {
        if let Err(error) = notifier.steer(&text) {
            let words = transcript::warning(&format!("your message is not in the log yet: {error}"));
            shared.tell(Told::Say(Part::Note, vec![Piece::Rows(vec![words])]));
        }
    }
}

/// Does work, and looks meanwhile how far commands are held, if that is not known yet. The work never waits for it.
async fn looking<T>(
    hold: &mut Option<Hold>,
    shared: &Shared,
    sandbox: CommandSandbox,
    work: impl Future<Output = T>,
) -> T {
    let mut work = pin!(work);
    if hold.is_none() {
        tokio::select! {
            biased;
            done = &mut work => return done,
            found = sandbox.hold() => {
                *hold = Some(found);
                shared.tell(Told::Held(found));
            }
        }
    }
    work.await
}

async fn woken(agent: Option<&Agent>) {
    match agent {
        Some(agent) => agent.woken().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_reaches_its_own_question_only() {
        let shared = Shared {
            msgs: tokio::sync::mpsc::unbounded_channel().0,
            outbox: Outbox::default(),
            cancel: Arc::default(),
            question: Arc::default(),
        };
        let (first, mut first_answer) = shared.question().open();
        drop(Withdrawal(&shared, first));
        let (second, mut second_answer) = shared.question().open();
        shared.answer(first, Approval::Project);
        drop(Withdrawal(&shared, first));
        assert!(first_answer.try_recv().is_err());
        assert!(second_answer.try_recv().is_err(), "the answer was for the first");
        shared.answer(second, Approval::Once);
        assert!(matches!(second_answer.try_recv(), Ok(Approval::Once)));
    }
}
