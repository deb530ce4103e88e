//! One step: what is new goes into the log, the request that follows is sent, and the answer's calls are run.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use mainstay_model::retry::{self, Retry};
use mainstay_model::{Attempt, Delta, Encoded};
use mainstay_session::attention::{notification_text, reminder_text};
use mainstay_session::entry::{Answer, Body, InboxMessage, Notice, NoticeKind, UserPrompt};
use mainstay_session::ids::Seq;
use mainstay_session::log::AppendError;
use mainstay_session::message::{Ended, Finish};
use tokio_util::sync::CancellationToken;

use crate::caps::Caps;
use crate::dispatch::Dispatch;
use crate::event::{Event, TurnFailure};
use crate::excerpt;
use crate::setup::Setup;
use crate::shared::SharedLog;
use crate::surroundings;
use crate::watch::Watch;

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

/// What one step is taken with.
pub(crate) struct StepContext<'a> {
    pub(crate) setup: &'a Setup,
    pub(crate) log: &'a SharedLog,
    pub(crate) watch: &'a Mutex<Watch>,
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
    pub(crate) async fn take(&self, prompt: Option<&str>) -> Result<StepEnd, AppendError> {
        self.append_what_is_new(prompt)?;
        let (seq, answer) = match self.ask().await? {
            Asked::Answer(seq, answer) => (seq, answer),
            Asked::Cancelled => return Ok(StepEnd::Cancelled),
            Asked::Failed(failure) => return Ok(StepEnd::Failed(failure)),
        };
        if answer.calls().next().is_none() {
            return Ok(StepEnd::Answered(answer.finish));
        }
        self.log.sync()?;
        let dispatch = Dispatch { setup: self.setup, log: self.log, cancel: self.cancel, step: self.number };
        dispatch.run(seq, &answer).await?;
        Ok(match answer.finish {
            _ if self.cancel.is_cancelled() => StepEnd::Cancelled,
            Finish::Refusal => StepEnd::Answered(answer.finish),
            Finish::EndTurn | Finish::ToolCalls | Finish::MaxTokens | Finish::Unknown => StepEnd::Continue,
        })
    }

    /// Notifications, changes of the world, the prompt, the reminder: in this order, each an entry before it is sent.
    fn append_what_is_new(&self, prompt: Option<&str>) -> Result<(), AppendError> {
        self.accept_messages()?;
        let (said, told): (Vec<_>, Vec<_>) =
            self.log.read(|state| state.inbox.clone()).into_iter().partition(InboxMessage::is_steering);
        for message in told {
            let about = NoticeKind::Notification { inbox: message.id };
            self.append_notice(Notice { about, text: notification_text(&message.source, &message.text) })?;
        }
        for interceptor in &self.setup.interceptors {
            for text in self.log.read(|state| interceptor.pending_history_appends(state)) {
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
        for message in said {
            self.append_prompt(&message.text, Some(message.id))?;
        }
        if let Some(text) = prompt {
            self.append_prompt(text, None)?;
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
        let mut watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        self.log.read(|state| watch.notice(state))
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
    fn append_prompt(&self, text: &str, inbox: Option<String>) -> Result<(), AppendError> {
        let max = self.log.read(|state| Caps::of(state).prompt);
        let len = text.len();
        let (text, spill) = excerpt::fit(text.to_owned(), max, "The prompt", &self.log.lock())?;
        if let Some(hash) = &spill {
            let whole = self.log.lock().spill().path(hash);
            self.emit(Event::Warning(format!(
                "the prompt has {len} bytes, too many for the model: it is shown the beginning and the end; the whole is in {}",
                whole.display()
            )));
        }
        let steering = inbox.is_some();
        self.log.append(Body::UserPrompt(UserPrompt { text, spill, images: Vec::new(), steering, inbox }))?;
        Ok(())
    }

    /// Asks until there is a whole answer, as often as the policy allows. Every attempt is an entry.
    async fn ask(&self) -> Result<Asked, AppendError> {
        let mut waited = Duration::ZERO;
        for failures in 1.. {
            let encoded = self.log.encode(self.setup.model.as_ref());
            let (seq, answer, retry_after) = self.attempt(&encoded).await?;
            let (class, message) = match &answer.ended {
                Ended::Complete => return Ok(Asked::Answer(seq, answer)),
                Ended::Cancelled => return Ok(Asked::Cancelled),
                Ended::Failed { class, message } => (*class, message.clone()),
            };
            let delay = match retry::after_failure(failures, class, retry_after, waited, jitter()) {
                Retry::Wait(delay) => delay,
                Retry::GiveUp | Retry::TooLong(_) => {
                    return Ok(Asked::Failed(TurnFailure::Model { class, message, retry_after }));
                }
            };
            self.emit(Event::Retry { class, message, delay });
            waited += delay;
            tokio::select! {
                () = tokio::time::sleep(delay) => {}
                () = self.cancel.cancelled() => return Ok(Asked::Cancelled),
            }
        }
        // The policy gives up long before attempts run out of numbers.
        Ok(Asked::Cancelled)
    }

    /// Sends one request and logs what came.
    async fn attempt(&self, encoded: &Encoded) -> Result<(Seq, Answer, Option<Duration>), AppendError> {
        let mut on_delta = |delta: Delta<'_>| match delta {
            Delta::Text(text) => self.emit(Event::TextDelta(text.to_owned())),
            Delta::Reasoning(text) => self.emit(Event::ReasoningDelta(text.to_owned())),
            Delta::CallStarted(_) => {}
        };
        let begun = Instant::now();
        let attempt: Attempt = self.setup.model.stream(encoded, &mut on_delta, self.cancel).await;
        let answer = Answer {
            model: self.setup.model.name().to_owned(),
            content: attempt.content,
            finish: attempt.finish,
            usage: attempt.usage,
            ended: attempt.ended,
            request: Some(encoded.mark.clone()),
            duration_ms: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
        };
        let seq = self.log.append(Body::Answer(answer.clone()))?;
        self.emit(Event::Answer { step: self.number, answer: answer.clone() });
        Ok((seq, answer, attempt.retry_after))
    }

    fn emit(&self, event: Event) {
        (self.setup.on_event)(&event);
    }
}

enum Asked {
    Answer(Seq, Answer),
    Cancelled,
    Failed(TurnFailure),
}

/// A number in [0, 1) that differs between processes, so that many agents do not retry at one moment.
fn jitter() -> f64 {
    let random = uuid::Uuid::new_v4().as_u128();
    f64::from(u32::try_from(random & 0xffff_ffff).unwrap_or(0)) / f64::from(u32::MAX)
}
