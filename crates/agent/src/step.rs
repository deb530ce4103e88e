//! One step: what is new goes into the log, the request that follows is sent, and the answer's calls are run.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use mainstay_model::failure::refuses_reasoning;
use mainstay_model::text_calls::Untaken;
use mainstay_session::attention::{notification_text, reminder_text, text_call_text};
use mainstay_session::compaction;
use mainstay_session::conversation::Item;
use mainstay_session::entry::{
    Answer, Body, InboxMessage, Lane, Notice, NoticeKind, ReasoningRefused, UserPrompt,
};
use mainstay_session::ids::Seq;
use mainstay_session::log::AppendError;
use mainstay_session::message::{ErrorClass, Finish};
use mainstay_tools::Jobs;
use tokio_util::sync::CancellationToken;

use crate::ask::{Ask, Asked};
use crate::caps::Caps;
use crate::compaction::{Compactor, Reason, Room};
use crate::dispatch::Dispatch;
use crate::event::{Event, TurnFailure};
use crate::excerpt;
use crate::occupancy::Thresholds;
use crate::prompt::Prompt;
use crate::setup::Setup;
use crate::shared::SharedLog;
use crate::surroundings;
use crate::text_call;
use crate::watch::{Known, Watch};
use crate::window;

/// How a step ended.
pub(crate) enum StepEnd {
    /// The calls have results; the model shall see them.
    Continue,
    /// The model had no more calls.
    Answered(Finish),
    /// The turn was cancelled.
    Cancelled,
    /// No attempt brought an answer.
    Failed(TurnFailure),
}

/// What a step has of the model before calls are run.
enum Heard {
    /// A whole answer, at its place in the log.
    Answer(Seq, Answer),
    /// A whole answer that is a call written as text, and not taken for one.
    TextCall(Untaken),
    /// No answer: the step has ended.
    Nothing(StepEnd),
}

/// What was told already and is not told again.
#[derive(Default)]
pub(crate) struct Told {
    /// A window that is smaller than declared, in the life of the agent.
    window: AtomicBool,
    /// A call written as text, in the turn.
    text_call: AtomicBool,
    /// A whole answer, in the turn, of which nobody knows what it cost, where there is a limit.
    unpriced: AtomicBool,
}

impl Told {
    /// Begins a turn.
    pub(crate) fn begin_turn(&self) {
        self.text_call.store(false, Ordering::Relaxed);
        self.unpriced.store(false, Ordering::Relaxed);
    }

    /// Whether the turn has an answer that its limit of cost cannot count.
    pub(crate) fn is_unpriced(&self) -> bool {
        self.unpriced.load(Ordering::Relaxed)
    }
}

/// What one step is taken with.
pub(crate) struct StepContext<'a> {
    pub(crate) setup: &'a Setup,
    pub(crate) log: &'a SharedLog,
    pub(crate) watch: &'a Mutex<Watch>,
    pub(crate) told: &'a Told,
    pub(crate) jobs: &'a Arc<Jobs>,
    pub(crate) cancel: &'a CancellationToken,
    /// The step within the turn, from 1.
    pub(crate) number: u64,
}

impl StepContext<'_> {
    /// Takes the step. `prompt` is what the user said, in a turn's first step.
    ///
    /// # Errors
    ///
    /// If the log cannot be written. Then nothing is sent and nothing is run.
    pub(crate) async fn take(&self, prompt: Option<Prompt>) -> Result<StepEnd, AppendError> {
        self.append_what_is_new(prompt)?;
        let (seq, answer) = match self.ask().await? {
            Heard::Answer(seq, answer) => (seq, answer),
            Heard::TextCall(untaken) => return self.refuse_text_call(&untaken),
            Heard::Nothing(end) => return Ok(end),
        };
        self.look_at_window(&answer);
        self.look_at_cost(&answer);
        if answer.calls().next().is_none() {
            return Ok(StepEnd::Answered(answer.finish));
        }
        self.log.sync()?;
        let dispatch = Dispatch {
            setup: self.setup,
            log: self.log,
            jobs: self.jobs,
            cancel: self.cancel,
            step: self.number,
            turn_to_ask: tokio::sync::Mutex::default(),
        };
        dispatch.run(seq, &answer).await?;
        Ok(match answer.finish {
            _ if self.cancel.is_cancelled() => StepEnd::Cancelled,
            Finish::Refusal => StepEnd::Answered(answer.finish),
            Finish::EndTurn | Finish::ToolCalls | Finish::MaxTokens | Finish::Unknown => StepEnd::Continue,
        })
    }

    /// Notifications, changes of the world, the prompt, the reminder: in this order, each an entry before it is sent.
    fn append_what_is_new(&self, prompt: Option<Prompt>) -> Result<(), AppendError> {
        self.accept_messages()?;
        let (said, told): (Vec<_>, Vec<_>) =
            self.log.read(|state| state.inbox.clone()).into_iter().partition(InboxMessage::is_steering);
        for message in told {
            let about = NoticeKind::Notification { inbox: message.id };
            self.append_notice(Notice { about, text: notification_text(&message.source, &message.text) })?;
        }
        for interceptor in &self.setup.interceptors {
            for text in self.log.read(|state| interceptor.pending_history_appends(state, self.number)) {
                let text = notification_text("program", &text);
                self.append_notice(Notice { about: NoticeKind::Interceptor, text })?;
            }
        }
        if let Some(notice) = self.files_that_changed() {
            self.append_notice(notice)?;
        }
        let now = (self.setup.surroundings)();
        for notice in self.log.read(|state| surroundings::changes(&state.told, &now)) {
            self.append_notice(notice)?;
        }
        if self.number == 1 {
            self.tell_form()?;
        }
        for message in said {
            self.append_prompt(message.text.into(), Some(message.id))?;
        }
        if let Some(prompt) = prompt {
            self.append_prompt(prompt, None)?;
        }
        let due = self.log.read(|state| {
            let is_due = state.attention.is_due(&state.plan.plan, &self.setup.attention);
            (is_due && self.setup.plan_is_on(state)).then(|| reminder_text(&state.plan.plan))
        });
        match due {
            Some(text) => self.append_notice(Notice { about: NoticeKind::Reminder, text }),
            None => Ok(()),
        }
    }

    fn files_that_changed(&self) -> Option<Notice> {
        let known = self.log.read(Known::of);
        let mut watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        watch.notice(&known)
    }

    fn append_notice(&self, notice: Notice) -> Result<(), AppendError> {
        self.log.append(Body::Notice(notice.clone()))?;
        self.emit(Event::Notice(notice));
        Ok(())
    }

    /// Takes in what other processes have left.
    fn accept_messages(&self) -> Result<(), AppendError> {
        for path in self.log.take_inbox()?.unreadable {
            let path = path.display();
            self.emit(Event::Warning(format!(
                "a file in the session's inbox is no notification; it stays as {path}"
            )));
        }
        Ok(())
    }

    /// Appends what the user said. `inbox` is the id under which it was accepted while a turn was running.
    fn append_prompt(&self, prompt: Prompt, inbox: Option<String>) -> Result<(), AppendError> {
        let max = self.log.read(|state| Caps::of(state).prompt);
        let len = prompt.text().len();
        let store = self.log.lock().spill();
        let (text, images) = prompt.store(&store)?;
        let (text, spill) = excerpt::fit(text, max, "The prompt", &self.log.lock())?;
        if let Some(hash) = &spill {
            let whole = store.path(hash);
            self.emit(Event::Warning(format!(
                "the prompt has {len} bytes, too many for the model: it is shown the beginning and the end; the whole is in {}",
                whole.display()
            )));
        }
        let steering = inbox.is_some();
        let prompt = UserPrompt { text: text.clone(), spill, images: images.clone(), steering, inbox };
        self.log.append(Body::UserPrompt(prompt))?;
        self.emit(Event::Prompt { text, images, steering });
        Ok(())
    }

    /// Tells the model what form its answer must have, if it must have one.
    fn tell_form(&self) -> Result<(), AppendError> {
        match &self.setup.answer_form {
            Some(form) => {
                let text = form.beforehand();
                self.append_notice(Notice { about: NoticeKind::AnswerForm, text })
            }
            None => Ok(()),
        }
    }

    /// Tells it again where a compaction has left it out.
    fn tell_lost_form(&self) -> Result<(), AppendError> {
        let Some(text) = self.setup.answer_form.as_ref().map(|form| form.beforehand()) else { return Ok(()) };
        let is_told = |item: &Item| matches!(item, Item::Notice { text: told } if *told == text);
        if self.log.read(|state| state.history.iter().any(is_told)) { Ok(()) } else { self.tell_form() }
    }

    /// Asks until there is a whole answer. Where the request leaves too little room in the window, room is made first.
    async fn ask(&self) -> Result<Heard, AppendError> {
        let mut is_crowded = self.log.read(|state| compaction::is_crowded(&state.history));
        loop {
            let (encoded, occupancy) = self.log.measured(self.setup.model.as_ref());
            let thresholds = self.log.read(|state| Thresholds::of(state, self.setup.model.context_window()));
            let end = if occupancy > thresholds.high {
                self.make_room(Reason::Step).await?
            } else if std::mem::take(&mut is_crowded) {
                // Without it the conversation goes on as well, and the model is told of the images it does not see.
                self.make_room(Reason::Images).await?.filter(|end| matches!(end, StepEnd::Cancelled))
            } else {
                let Self { setup, log, cancel, number, .. } = *self;
                let ask = Ask { setup, log, cancel, lane: Lane::Main, step: number };
                match ask.until_answered(encoded).await? {
                    Asked::Answer(seq, answer) => return Ok(Heard::Answer(seq, answer)),
                    Asked::TextCall(untaken) => return Ok(Heard::TextCall(untaken)),
                    Asked::Cancelled => Some(StepEnd::Cancelled),
                    Asked::Overflow { message } => {
                        self.make_room(Reason::Overflow { message: &message }).await?
                    }
                    Asked::Failed(failure) => self.leave_reasoning_out(failure)?,
                }
            };
            if let Some(end) = end {
                return Ok(Heard::Nothing(end));
            }
        }
    }

    /// Makes room in the window; says how the step ends if there is none to be made.
    async fn make_room(&self, reason: Reason<'_>) -> Result<Option<StepEnd>, AppendError> {
        let Self { setup, log, jobs, cancel, .. } = *self;
        Ok(match (Compactor { setup, log, jobs, cancel }).run(reason).await? {
            Room::Made(_) => {
                self.tell_lost_form()?;
                None
            }
            Room::Cancelled => Some(StepEnd::Cancelled),
            Room::Failed(failure) => Some(StepEnd::Failed(failure)),
        })
    }

    /// Leaves signed reasoning out of the conversation where the provider no longer takes it; any other failure is the
    /// step's end. What is left out is gone, so this happens once.
    fn leave_reasoning_out(&self, failure: TurnFailure) -> Result<Option<StepEnd>, AppendError> {
        let why = match &failure {
            TurnFailure::Model { class: ErrorClass::BadRequest, message, .. }
                if refuses_reasoning(message)
                    && self.log.read(|state| state.history.iter().any(Item::is_bound)) =>
            {
                message.clone()
            }
            TurnFailure::Model { .. }
            | TurnFailure::Log { .. }
            | TurnFailure::TextCall { .. }
            | TurnFailure::Window { .. }
            | TurnFailure::AnswerForm { .. } => {
                return Ok(Some(StepEnd::Failed(failure)));
            }
        };
        self.emit(Event::Warning(format!(
            "the provider does not take back its own reasoning ({why}); it is left out from here on, and the request is sent again"
        )));
        self.log.append(Body::ReasoningRefused(ReasoningRefused { why }))?;
        Ok(None)
    }

    /// Tells the model once in a turn that its call was not run, and gives up the next time.
    fn refuse_text_call(&self, untaken: &Untaken) -> Result<StepEnd, AppendError> {
        let message = text_call::message(untaken, self.setup.model.name());
        if self.told.text_call.swap(true, Ordering::Relaxed) || self.number >= self.setup.max_steps {
            return Ok(StepEnd::Failed(TurnFailure::TextCall { message }));
        }
        self.emit(Event::Warning(message));
        let text = text_call_text(&untaken.tool, &text_call::reason(untaken));
        self.append_notice(Notice { about: NoticeKind::TextCall, text })?;
        Ok(StepEnd::Continue)
    }

    /// Warns once if the server seems to have a smaller window than the settings say.
    fn look_at_window(&self, answer: &Answer) {
        let has_images = self.log.read(window::has_images);
        let model = self.setup.model.as_ref();
        if let Some(warning) = window::warning(answer, model.name(), model.context_window(), has_images)
            && !self.told.window.swap(true, Ordering::Relaxed)
        {
            self.emit(Event::Warning(warning));
        }
    }

    /// Warns of an answer that a limit of cost cannot count; such a limit counts as reached.
    fn look_at_cost(&self, answer: &Answer) {
        if self.setup.max_cost.is_some()
            && answer.cost.is_none()
            && !self.told.unpriced.swap(true, Ordering::Relaxed)
        {
            let what =
                "the provider did not count the tokens of an answer, so the limit of cost cannot be kept";
            self.emit(Event::Warning(format!("{what}; it counts as reached")));
        }
    }

    fn emit(&self, event: Event) {
        (self.setup.on_event)(&event);
    }
}
