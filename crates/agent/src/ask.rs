//! Asks the model until there is a whole answer, as often as the policy allows. Every attempt is an entry.

use std::time::{Duration, Instant};

use mainstay_model::retry::{self, Retry};
use mainstay_model::text_calls::{self, Gate, Reading, Untaken};
use mainstay_model::{Attempt, Delta, Encoded, TextCallRule};
use mainstay_session::entry::{Answer, Body, Lane};
use mainstay_session::ids::Seq;
use mainstay_session::log::AppendError;
use mainstay_session::message::{Ended, ErrorClass, Finish};
use mainstay_session::state::SessionState;
use tokio_util::sync::CancellationToken;

use crate::event::{Event, TurnFailure};
use crate::setup::Setup;
use crate::shared::SharedLog;

/// Who asks, and for whose conversation.
pub(crate) struct Ask<'a> {
    pub(crate) setup: &'a Setup,
    pub(crate) log: &'a SharedLog,
    pub(crate) cancel: &'a CancellationToken,
    /// Whose conversation the answers belong to. What a worker says is shown to nobody.
    pub(crate) lane: Lane,
    /// The step within the turn, from 1.
    pub(crate) step: u64,
}

/// What asking brought.
pub(crate) enum Asked {
    /// A whole answer, at its place in the log.
    Answer(Seq, Answer),
    /// A whole answer that is a call written as text, and not taken for one.
    TextCall(Untaken),
    /// The user cancelled.
    Cancelled,
    /// The prompt is larger than the window, as the provider says.
    Overflow { message: String },
    /// No attempt brought an answer.
    Failed(TurnFailure),
}

impl Ask<'_> {
    /// Sends a request until it is answered.
    ///
    /// # Errors
    ///
    /// If an attempt cannot be logged.
    pub(crate) async fn until_answered(&self, mut encoded: Encoded) -> Result<Asked, AppendError> {
        let (mut waited, mut failures) = (Duration::ZERO, 0);
        loop {
            let Attempted { seq, answer, untaken, retry_after } = self.attempt(&encoded).await?;
            // What is sent again is all of what was sent before.
            encoded.mark.shared = encoded.mark.units;
            let (class, message) = match &answer.ended {
                Ended::Complete => {
                    return Ok(untaken.map_or(Asked::Answer(seq, answer), Asked::TextCall));
                }
                Ended::Cancelled => return Ok(Asked::Cancelled),
                Ended::Failed { class, message } => (*class, message.clone()),
            };
            if class == ErrorClass::Overflow {
                return Ok(Asked::Overflow { message });
            }
            failures += 1;
            let delay = match retry::after_failure(failures, class, retry_after, waited, jitter()) {
                Retry::Wait(delay) => delay,
                Retry::GiveUp | Retry::TooLong(_) => {
                    return Ok(Asked::Failed(TurnFailure::Model { class, message, retry_after }));
                }
            };
            self.emit(Event::Retry { retry: failures, of: retry::MAX_RETRIES, class, message, delay });
            waited += delay;
            tokio::select! {
                () = tokio::time::sleep(delay) => {}
                () = self.cancel.cancelled() => return Ok(Asked::Cancelled),
            }
        }
    }

    /// Sends one request and logs what came.
    async fn attempt(&self, encoded: &Encoded) -> Result<Attempted, AppendError> {
        let is_shown = self.lane == Lane::Main;
        let mut gate = Gate::new(self.text_calls());
        let mut on_delta = |delta: Delta<'_>| match delta {
            Delta::Text(text) if is_shown => self.show(gate.push(text)),
            Delta::Reasoning(text) if is_shown => self.emit(Event::ReasoningDelta(text.to_owned())),
            Delta::Text(_) | Delta::Reasoning(_) | Delta::CallStarted(_) => {}
        };
        let begun = Instant::now();
        let mut attempt: Attempt = self.setup.model.stream(encoded, &mut on_delta, self.cancel).await;
        let untaken = match self.read(&attempt) {
            Reading::Text => {
                // What failed is asked for again, and told then.
                self.show(gate.finish().filter(|_| !matches!(attempt.ended, Ended::Failed { .. })));
                None
            }
            Reading::Calls(content) => {
                attempt = Attempt { content, finish: Finish::ToolCalls, ..attempt };
                None
            }
            Reading::Untaken(untaken) => Some(untaken),
        };
        let answer = Answer {
            model: self.log.read(|state| unless_named(state, self.setup.model.name())),
            content: attempt.content,
            finish: attempt.finish,
            usage: attempt.usage,
            ended: attempt.ended,
            request: Some(encoded.mark.clone()),
            duration_ms: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
        };
        let seq = self.log.append_in(self.lane.clone(), Body::Answer(answer.clone()))?;
        if is_shown {
            self.emit(Event::Answer { step: self.step, answer: answer.clone() });
        }
        Ok(Attempted { seq, answer, untaken, retry_after: attempt.retry_after })
    }

    /// What becomes of calls written as text: a worker's are what it says.
    fn text_calls(&self) -> TextCallRule {
        match self.lane {
            Lane::Main => self.setup.model.text_calls(),
            Lane::Worker(_) => TextCallRule::Ignore,
        }
    }

    /// What an attempt's text is. One that did not end by itself is no call.
    fn read(&self, attempt: &Attempt) -> Reading {
        let is_whole = matches!(attempt.finish, Finish::EndTurn | Finish::ToolCalls | Finish::Unknown);
        if attempt.ended != Ended::Complete || !is_whole {
            return Reading::Text;
        }
        self.log.read(|state| {
            let tools = state.world.as_ref().map_or(&[][..], |world| &world.tools);
            text_calls::read(&attempt.content, tools, self.text_calls())
        })
    }

    fn show(&self, text: Option<String>) {
        if let Some(text) = text {
            self.emit(Event::TextDelta(text));
        }
    }

    fn emit(&self, event: Event) {
        (self.setup.on_event)(&event);
    }
}

/// The model's name, unless the session's last model entry says it.
fn unless_named(state: &SessionState, name: &str) -> String {
    let is_named = state.model.as_ref().is_some_and(|choice| choice.model == name);
    if is_named { String::new() } else { name.to_owned() }
}

/// One attempt, which is in the log.
struct Attempted {
    seq: Seq,
    answer: Answer,
    /// The call written as text that it is, if it is one that is not run.
    untaken: Option<Untaken>,
    retry_after: Option<Duration>,
}

/// A number in [0, 1) that differs between processes, so that many agents do not retry at one moment.
fn jitter() -> f64 {
    let random = uuid::Uuid::new_v4().as_u128();
    f64::from(u32::try_from(random & 0xffff_ffff).unwrap_or(0)) / f64::from(u32::MAX)
}
