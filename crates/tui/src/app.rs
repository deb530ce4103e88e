//! The interface as a value: what it knows, and what a message makes of it.
//!
//! [`App::update`] touches no terminal, no file and no clock: time comes with each message, and what is to be done
//! comes back as [`Effect`]s. So every state can be made and looked at in a test.

mod approval;
mod keys;
mod picker;
mod stream;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::Duration;

use crossterm::event::KeyEvent;
use mainstay_agent::prices::dollars;
use mainstay_agent::session::entry::{Job, Totals};
use mainstay_agent::session::log::SessionSummary;
use mainstay_agent::session::message::ToolCall;
use mainstay_agent::session::plan::PlanInView;
use mainstay_agent::{Approval, ApprovalRequest, Event, Hold};

use crate::attachments;
use crate::commands::{self, Command};
use crate::editor::Editor;
use crate::highlight::{Code, plain_code};
use crate::markdown::Piece;
use crate::text::Row;
use crate::transcript::{self, Part};

pub(crate) use approval::{Approving, Choice, Taken};
pub use picker::ModelOffer;
pub(crate) use picker::{Choosing, PickKind, Picker};
use stream::OpenBlock;

/// How long a hint stays at most; the next key and the next turn end it before.
const HINT: Duration = Duration::from_secs(4);
/// Within what time a second Ctrl-C leaves.
const TWICE: Duration = Duration::from_secs(2);
/// After how long a turn's end is worth a bell.
const LONG_TURN: Duration = Duration::from_secs(15);
/// How many calls and notices can be opened.
const DETAILS: usize = 50;
/// A message larger than this is kept for the Up key while the program runs, and not beyond.
const REMEMBERED: usize = 64 << 10;

/// Something that happened.
#[derive(Debug)]
pub(crate) enum Msg {
    /// A key was pressed.
    Key(KeyEvent),
    /// Text was pasted.
    Paste(String),
    /// The terminal has another size.
    Resize(u16, u16),
    /// Time went by while something is shown that counts it.
    Tick,
    /// The session says something.
    Session(Box<Told>),
    /// The names of the workspace's files.
    Files(Vec<String>),
    /// The models that can be chosen, or why that is not known.
    Models(Result<Vec<ModelOffer>, String>),
    /// Code has its colours.
    Coloured(u64, Vec<Row>),
    /// The external editor was left; none if it could not be used, for this reason.
    Edited(Result<String, String>),
    /// Messages that waited were taken back.
    TakenBack(String),
    /// The git branch, if there is one.
    Branch(Option<String>),
    /// The session's side has ended, with nobody having asked for it.
    Gone,
    /// The operating system asks the program to end with this exit code.
    Signal(u8),
}

/// What the session's side says.
#[derive(Debug)]
pub(crate) enum Told {
    /// An event of the agent.
    Event(Event),
    /// A session was opened, or is another now.
    Opened(Box<Opened>),
    /// The user is asked; questions have numbers.
    Ask(u64, ApprovalRequest),
    /// The question of this number is withdrawn.
    Withdrawn(u64),
    /// Nothing is done any more.
    Idle {
        /// The jobs that are running.
        jobs: Vec<Job>,
        /// How many orders were carried out.
        done: u64,
    },
    /// Something to show.
    Say(Part, Vec<Piece>),
    /// Sessions to choose from.
    Sessions(Vec<SessionSummary>),
    /// Turns to choose from: how many turns there were before, and what the user began each with.
    Turns(Vec<(u64, Option<String>)>),
    /// Messages that cannot be delivered now go back to where they were written.
    Returned(Vec<String>),
    /// How far a sandbox holds every command.
    Held(Hold),
}

/// A session as it is when it is opened.
#[derive(Clone, Debug, Default)]
pub(crate) struct Opened {
    /// The end of its id, which is what people type.
    pub(crate) id: Option<String>,
    /// The model's name.
    pub(crate) model: String,
    /// The size of its window, in tokens.
    pub(crate) window: u64,
    /// How much of the window is used, where that is known.
    pub(crate) used: u64,
    /// The plan in view.
    pub(crate) plan: PlanInView,
    /// What the session has used.
    pub(crate) totals: Totals,
    /// Whether its last turn did not end.
    pub(crate) was_interrupted: bool,
    /// The workspace.
    pub(crate) workspace: PathBuf,
    /// What is asked about: `ask`, `edits`, `auto` or `all`.
    pub(crate) approve: &'static str,
    /// How far a sandbox holds every command; none where that was not tried yet.
    pub(crate) hold: Option<Hold>,
    /// Whether the model looks at images.
    pub(crate) takes_images: bool,
}

/// Something to be done.
#[derive(Debug)]
pub(crate) enum Effect {
    /// Rows for the scrollback.
    Print(Vec<Row>),
    /// Something for the session's side.
    Do(Order),
    /// A message waits for the next border of the turn.
    Queue(String),
    /// The last message that waits is taken back.
    TakeBack,
    /// An answer to the question of this number.
    Answer(u64, Approval),
    /// The turn shall end.
    Cancel,
    /// Code to be coloured.
    Colour(Code),
    /// The names of files are wanted.
    LoadFiles,
    /// The models are wanted that can be chosen.
    LoadModels,
    /// The text is to be edited elsewhere.
    Edit(String),
    /// A message to be found again with the Up key, in later sessions too.
    Remember(String),
    /// The user is waited for.
    Bell,
    /// The screen is to be drawn from nothing.
    Redraw,
    /// The git branch may be another.
    LookAtBranch,
    /// The program stops until it is told to go on.
    Suspend,
    /// The program ends.
    Quit(u8),
}

/// Work for the session's side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Take a prompt through a turn.
    Prompt {
        /// Its text.
        text: String,
        /// The images that go with it, by the names that were to be seen in it.
        images: Vec<String>,
    },
    /// Summarise.
    Compact(Option<String>),
    /// Change the model.
    Model(String),
    /// Say which sessions there are.
    ListSessions,
    /// Begin a new session.
    New,
    /// Go on with another session.
    Resume(PathBuf),
    /// Go on in a copy.
    Fork,
    /// Say which turns there are.
    ListTurns,
    /// Go back to the end of a turn.
    Rewind(u64),
    /// Take file changes back.
    Undo,
    /// Show the conversation.
    History,
    /// Say what may be done.
    Permissions,
    /// Tell the session something.
    Notify(String),
}

/// What is going on.
#[derive(Debug, Default)]
pub(crate) struct Work {
    /// When it began.
    pub(crate) since: Duration,
    /// What the model is heard thinking.
    pub(crate) reasoning: String,
    /// Calls that run.
    pub(crate) calls: Vec<Running>,
    /// What is waited for.
    pub(crate) phase: Phase,
    /// Whether the user cancelled it.
    pub(crate) is_cancelled: bool,
}

/// A call that runs.
#[derive(Debug)]
pub(crate) struct Running {
    /// The call.
    pub(crate) call: ToolCall,
    /// Since when, without the time in which the user was asked.
    pub(crate) since: Duration,
    /// The last lines that it printed.
    pub(crate) output: Vec<String>,
}

/// What is waited for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The model, or a call.
    #[default]
    Working,
    /// A request is sent again at this moment.
    Retry {
        /// When.
        at: Duration,
        /// Which retry, of how many, and why.
        words: String,
    },
    /// A summary.
    Compacting {
        /// How many tokens the conversation has.
        before: u64,
    },
    /// Something else, in words.
    Other(&'static str),
}

/// Completions of what is being typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Completion {
    /// What is offered, with a word on it.
    pub(crate) offers: Vec<(String, &'static str)>,
    /// Which is chosen.
    pub(crate) chosen: usize,
    /// How many bytes before the cursor it replaces.
    pub(crate) replaces: usize,
}

/// What stands in the place of the input.
#[derive(Debug)]
pub(crate) enum Overlay {
    /// A question about a call.
    Approval(Box<Approving>),
    /// A list to choose from.
    Picker(Picker),
}

/// A part of the conversation on its way to the scrollback. It waits for those before it.
#[derive(Debug)]
enum Commit {
    Rows(Vec<Row>),
    Code { id: u64, code: String, rows: Option<Vec<Row>> },
}

/// The interface.
#[derive(Debug, Default)]
pub(crate) struct App {
    /// Columns and rows of the terminal.
    pub(crate) size: (u16, u16),
    /// The time since the start.
    pub(crate) now: Duration,
    /// The time of day and year, for ages.
    pub(crate) today: Option<jiff::Timestamp>,
    /// What is known of the session.
    pub(crate) session: Opened,
    /// The git branch.
    pub(crate) branch: Option<String>,
    /// What is being written.
    pub(crate) editor: Editor,
    /// Messages that wait for the next border of the turn.
    pub(crate) queue: Vec<String>,
    /// A message that was sent and is not in the log yet.
    pub(crate) unlogged: Option<String>,
    /// What is going on.
    pub(crate) work: Option<Work>,
    /// What the model says and is not in the scrollback yet.
    pub(crate) stream: String,
    /// What stands in the place of the input.
    pub(crate) overlay: Option<Overlay>,
    /// Completions of what is being typed.
    pub(crate) completion: Option<Completion>,
    /// Background jobs.
    pub(crate) jobs: Vec<Job>,
    /// Whether the turn before was cut short with an item in progress.
    pub(crate) is_interrupted: bool,
    /// The block that is still coming, once its beginning is printed.
    open_block: Option<OpenBlock>,
    /// From what length on it is looked at again whether more of it is settled.
    settles_at: usize,
    hint: Option<(String, Duration)>,
    commits: VecDeque<Commit>,
    last_part: Option<Part>,
    details: Vec<Vec<Row>>,
    opened_details: usize,
    earlier: Vec<String>,
    /// Which earlier message is shown, and what was being written before.
    browsing: Option<(usize, Editor)>,
    files: Option<Vec<String>>,
    /// Whether there may be others by now.
    files_are_old: bool,
    is_loading_files: bool,
    models: Option<Vec<ModelOffer>>,
    is_loading_models: bool,
    /// Whether a model is to be chosen as soon as they are known.
    chooses_model: bool,
    next_code: u64,
    last_interrupt: Option<Duration>,
    awaits_editor_key: bool,
    has_partial: bool,
    warned: Vec<String>,
    /// What was to survive a crash when that was asked last.
    saved: (String, Vec<usize>),
    /// How many orders were given.
    ordered: u64,
}

impl App {
    /// An interface for a terminal of this size. `earlier` are messages of earlier sessions, the last one last.
    pub(crate) fn new(size: (u16, u16), session: Opened, earlier: Vec<String>) -> Self {
        App { size, session, earlier, ..App::default() }
    }

    /// Takes a message in, and says what is to be done.
    pub(crate) fn update(&mut self, msg: Msg, now: Duration) -> Vec<Effect> {
        self.now = now;
        let mut effects = Vec::new();
        match msg {
            Msg::Key(key) => self.key(key, &mut effects),
            Msg::Paste(text) => self.pasted(&text, &mut effects),
            Msg::Resize(columns, rows) => self.size = (columns, rows),
            Msg::Tick => {}
            Msg::Session(told) => self.told(*told, &mut effects),
            Msg::Files(files) => {
                self.files = Some(files);
                (self.files_are_old, self.is_loading_files) = (false, false);
                self.complete(&mut effects);
            }
            Msg::Models(models) => self.models_known(models, &mut effects),
            Msg::Coloured(id, coloured) => self.coloured(id, coloured),
            Msg::Edited(Ok(text)) => self.editor = self.editor.successor(text.trim_end_matches('\n')),
            Msg::Edited(Err(why)) => self.note(transcript::warning(&why)),
            Msg::TakenBack(text) => self.taken_back(&text),
            Msg::Branch(branch) => self.branch = branch,
            Msg::Gone => self.gone(&mut effects),
            Msg::Signal(code) => effects.push(Effect::Quit(code)),
        }
        self.print_ready(&mut effects);
        effects
    }

    /// Leaves, since nobody is there any more who could carry anything out. What waits for its colours goes without.
    fn gone(&mut self, effects: &mut Vec<Effect>) {
        self.say_failure(
            "the session's thread ended by itself; what is in the log is kept, and what you wrote too: \
             mainstay resume --last",
        );
        effects.push(Effect::Print(self.take_committing()));
        effects.push(Effect::Quit(1));
    }

    /// What must survive a crash: what is being written, and what waits to be logged, oldest first.
    pub(crate) fn unsent(&self) -> (&Editor, impl Iterator<Item = &String>) {
        (&self.editor, self.unlogged.iter().chain(&self.queue))
    }

    /// Whether there is nothing that must survive a crash.
    pub(crate) fn is_writing_nothing(&self) -> bool {
        let (editor, mut waiting) = self.unsent();
        editor.is_empty() && waiting.next().is_none()
    }

    /// Whether what must survive a crash has changed since this was asked.
    pub(crate) fn take_is_changed(&mut self) -> bool {
        let waiting = self.unlogged.iter().chain(&self.queue).map(String::len).collect();
        // Placeholders are numbered, so the text that is seen tells pastes apart too.
        let now = (self.editor.shown().to_owned(), waiting);
        let is_changed = self.saved != now;
        self.saved = now;
        is_changed
    }

    /// Takes in what was being written when an interface died.
    pub(crate) fn restore(&mut self, editor: Editor, waiting: &[String]) {
        self.editor = editor;
        if !waiting.is_empty() {
            self.give_back(waiting);
        }
        self.say_hint("what you were writing is back");
    }

    /// Takes in messages of earlier sessions, the last one last.
    pub(crate) fn remember_earlier(&mut self, earlier: Vec<String>) {
        self.earlier = earlier;
    }

    /// Offers sessions to go on with.
    pub(crate) fn choose_session(&mut self, sessions: &[SessionSummary]) {
        let picker =
            Picker::of_sessions(sessions, &self.session.workspace, self.session.id.as_deref(), self.today);
        self.offer(picker, "there is no session yet; your first message begins one");
    }

    /// Says that something failed.
    pub(crate) fn say_failure(&mut self, why: &str) {
        self.show(Part::Note, transcript::failure(&format!("✗ {why}")));
    }

    /// Says what is not as it should be, the first time.
    pub(crate) fn warn_once(&mut self, words: &str) {
        if !self.warned.iter().any(|said| said == words) {
            self.warned.push(words.to_owned());
            self.note(transcript::warning(words));
        }
    }

    /// The hint to show now.
    pub(crate) fn hint(&self) -> Option<&str> {
        self.hint.as_ref().filter(|(_, until)| self.now < *until).map(|(words, _)| words.as_str())
    }

    /// Whether something is shown that changes with time alone, and how often.
    pub(crate) fn ticks(&self) -> Option<Duration> {
        match &self.overlay {
            // That the pause is long enough is to be seen at once.
            Some(Overlay::Approval(approving)) if approving.is_typing(self.now) => {
                Some(Duration::from_millis(200))
            }
            _ => (self.work.is_some() || self.hint().is_some()).then_some(Duration::from_secs(1)),
        }
    }

    /// Whether the user is waited for by a question.
    pub(crate) fn asks(&self) -> bool {
        matches!(self.overlay, Some(Overlay::Approval(_)))
    }

    /// Whether there is something on its way to the scrollback.
    pub(crate) fn is_committing(&self) -> bool {
        !self.commits.is_empty()
    }

    /// The rows that are on their way to the scrollback, for as long as they are not there.
    pub(crate) fn committing(&self) -> Vec<Row> {
        let of = |commit: &Commit| match commit {
            Commit::Rows(rows) => rows.clone(),
            Commit::Code { code, rows, .. } => rows.clone().unwrap_or_else(|| plain_code(code)),
        };
        self.commits.iter().flat_map(of).collect()
    }

    /// The same, at the end of all: nothing waits for its colours any more.
    pub(crate) fn take_committing(&mut self) -> Vec<Row> {
        let rows = self.committing();
        self.commits.clear();
        rows
    }

    fn say_hint(&mut self, words: &str) {
        self.hint = Some((words.to_owned(), self.now + HINT));
    }

    fn taken_back(&mut self, text: &str) {
        if let Some(at) = self.queue.iter().rposition(|queued| queued == text) {
            self.queue.remove(at);
        }
        self.give_back(&[text.to_owned()]);
    }

    /// Puts messages back before what is being written.
    pub(crate) fn give_back(&mut self, texts: &[String]) {
        let being_written = self.editor.take();
        let all: Vec<&str> = texts
            .iter()
            .map(String::as_str)
            .chain([being_written.as_str()])
            .filter(|text| !text.is_empty())
            .collect();
        self.editor.paste(&all.join("\n"));
        self.completion = None;
    }

    /// Sends what is written, or does what it says.
    fn submit(&mut self, effects: &mut Vec<Effect>) {
        if self.editor.is_blank() {
            return;
        }
        match commands::parse(self.editor.shown()) {
            Some(Err(no_command)) => self.refuse_command(&no_command.name, effects),
            Some(Ok(command)) => {
                let text = self.editor.take();
                self.remember(&text, effects);
                self.command(command, effects);
            }
            None => self.submit_message(effects),
        }
        self.completion = None;
    }

    /// Sends what is written. Only an image whose name is to be seen goes along: what a paste behind a placeholder names
    /// nobody has looked at.
    fn submit_message(&mut self, effects: &mut Vec<Effect>) {
        let images: Vec<String> =
            attachments::named(self.editor.shown()).into_iter().map(str::to_owned).collect();
        if self.work.is_some() && !images.is_empty() {
            return self.say_hint(
                "an image goes with a message that begins a turn; send it when this one has ended",
            );
        }
        let text = self.editor.take();
        if attachments::named(&text).len() > images.len() {
            self.say_hint("no image that is named inside a paste goes along; name it in the text");
        }
        self.remember(&text, effects);
        self.send(text, images, effects);
    }

    /// Says that there is no such command. What was typed makes room for the next try, and Up brings it back.
    fn refuse_command(&mut self, name: &str, effects: &mut Vec<Effect>) {
        let text = self.editor.take();
        self.remember(&text, effects);
        self.say_hint(&format!("/{name} is no command; /help lists them, Up brings it back"));
    }

    fn send(&mut self, text: String, images: Vec<String>, effects: &mut Vec<Effect>) {
        if self.work.is_some() {
            self.queue.push(text.clone());
            effects.push(Effect::Queue(text));
            return;
        }
        self.begin(Phase::Working);
        self.unlogged = Some(text.clone());
        self.order(Order::Prompt { text, images }, effects);
    }

    fn remember(&mut self, text: &str, effects: &mut Vec<Effect>) {
        self.browsing = None;
        if self.earlier.last().is_some_and(|last| last == text) {
            return;
        }
        self.earlier.push(text.to_owned());
        if text.len() <= REMEMBERED {
            effects.push(Effect::Remember(text.to_owned()));
        }
    }

    fn begin(&mut self, phase: Phase) {
        self.work = Some(Work { since: self.now, phase, ..Work::default() });
    }

    fn command(&mut self, command: Command, effects: &mut Vec<Effect>) {
        let order = match command {
            Command::Help => return self.show(Part::Note, commands::help()),
            Command::Plan => {
                let rows = transcript::plan(&self.session.plan.plan, self.session.plan.carried);
                return self.show(Part::Note, rows);
            }
            Command::Cost => return self.show(Part::Note, self.cost()),
            Command::Model { name: None } => return self.choose_model(effects),
            Command::Notify { text: None } => return self.show(Part::Note, self.how_to_notify()),
            Command::Quit => return effects.push(Effect::Quit(0)),
            Command::Permissions => Order::Permissions,
            Command::Compact { wish } => Order::Compact(wish),
            Command::Model { name: Some(name) } => Order::Model(name),
            Command::New => Order::New,
            Command::Resume => Order::ListSessions,
            Command::Fork => Order::Fork,
            Command::Rewind => Order::ListTurns,
            Command::Undo => Order::Undo,
            Command::History => Order::History,
            Command::Notify { text: Some(text) } => Order::Notify(text),
        };
        if self.work.is_some() {
            return self.say_hint("not while the model works; Esc cancels the turn");
        }
        self.begin(Phase::Other(match &order {
            Order::Compact(_) => "summarising",
            _ => "a moment",
        }));
        self.order(order, effects);
    }

    fn order(&mut self, order: Order, effects: &mut Vec<Effect>) {
        self.ordered += 1;
        effects.push(Effect::Do(order));
    }

    fn cost(&self) -> Vec<Row> {
        let totals = self.session.totals;
        let Totals { answers, tool_calls, usage, denied, .. } = totals;
        let money = match totals.known_cost() {
            Some(cost) => dollars(cost),
            None => "what that costs is not known here: not every answer has prices".to_owned(),
        };
        let tokens = transcript::tokens;
        vec![
            transcript::note(&format!(
                "{} tokens in ({} of them cached), {} out; {answers} answers, {tool_calls} calls, {denied} denied",
                tokens(usage.input_tokens),
                tokens(usage.cached_tokens),
                tokens(usage.output_tokens),
            )),
            transcript::note(&money),
        ]
    }

    /// Says which model answers, and offers the others where one can be taken now.
    fn choose_model(&mut self, effects: &mut Vec<Effect>) {
        let Opened { model, window, used, .. } = &self.session;
        let words = format!(
            "{model}; {} of {} tokens of its window are used; /model PROVIDER/NAME takes another",
            transcript::tokens(*used),
            transcript::tokens(*window)
        );
        self.note(transcript::note(&words));
        if self.work.is_none() {
            self.chooses_model = true;
            effects.push(Effect::LoadModels);
        }
    }

    fn models_known(&mut self, models: Result<Vec<ModelOffer>, String>, effects: &mut Vec<Effect>) {
        self.is_loading_models = false;
        let is_free = self.overlay.is_none() && self.work.is_none();
        let chooses = std::mem::take(&mut self.chooses_model) && is_free;
        match models {
            Ok(models) if chooses => {
                let picker = Picker::of_models(&models, &self.session.model);
                self.models = Some(models);
                self.offer(picker, "no other model is configured; `mainstay models` says which can be had");
            }
            Ok(models) => {
                self.models = Some(models);
                self.complete(effects);
            }
            Err(why) => {
                // Another time it may be known.
                self.models = None;
                if chooses {
                    self.say_failure(&why);
                }
            }
        }
    }

    fn how_to_notify(&self) -> Vec<Row> {
        vec![transcript::note(&match &self.session.id {
            Some(id) => format!("from any other process: mainstay notify {id} \"TEXT\"; here: /notify TEXT"),
            None => {
                "the session begins with your first message; then other processes can notify it".to_owned()
            }
        })]
    }
}

#[cfg(test)]
pub(crate) mod tests;
