//! The worker that writes the summary: it is asked on the live request's own tools, system text and messages, with one
//! instruction behind them, so that all of the prefix is in the provider's cache.
//!
//! What it says stands in a lane of the log of its own. It may read files, which changes nothing of the session's; any
//! other call is refused, and a second one ends it. It gets no reminders and cannot write the plan.

use mainstay_session::arguments::object_text;
use mainstay_session::compaction::{Summary, instruction_text, refused_call_text, shrink};
use mainstay_session::entry::{Answer, Body, Entry, Lane, Notice, NoticeKind};
use mainstay_session::ids::{CallRef, Seq};
use mainstay_session::log::AppendError;
use mainstay_session::lookalike::restore_arguments;
use mainstay_session::message::{ErrorClass, Finish, Outcome, ToolCall, ToolResult};
use mainstay_session::state::SessionState;

use super::Compactor;
use super::segment::{reader, text_tokens};
use crate::ask::{Ask, Asked};
use crate::caps::Caps;
use crate::consent::refused_unasked;
use crate::dispatch::call_context;
use crate::event::TurnFailure;
use crate::occupancy::Thresholds;

/// How often a worker may read before it must have written.
const ROUNDS: u64 = 4;

/// How many calls that it may not make end a worker.
const REFUSALS: u32 = 2;

/// The most bytes that a worker reads at once.
const MOST_READ: usize = 16 << 10;

/// To how many bytes a result is shortened where the conversation does not fit.
const FOLDED: usize = 300;

/// What came of asking for a summary.
pub(super) enum Summarised {
    /// A summary, how it was made, and how many units of the live request were reused for it, of how many.
    Text { summary: Summary, method: &'static str, reused: Option<(u32, u32)> },
    /// What came is no summary.
    Unusable(String),
    /// The user cancelled.
    Cancelled,
    /// The model could not be asked.
    Failed(TurnFailure),
}

/// Asks for a summary of the session's conversation.
pub(super) async fn summarise(
    compactor: &Compactor<'_>,
    state: &SessionState,
    thresholds: &Thresholds,
    wish: Option<&str>,
) -> Result<Summarised, AppendError> {
    // A word is about a token and a third.
    let words = (thresholds.window / 16).clamp(200, 1_500);
    let instruction = instruction_text(state, wish, words);
    let room = words * 2 + text_tokens(&instruction);
    let is_larger = |state: &SessionState| {
        compactor.log.measured_of(state, compactor.setup.model.as_ref()).1 + room > thresholds.window
    };
    let mut worker = Worker {
        compactor,
        lane: Lane::Worker(format!("compaction-{}", state.last_seq)),
        state: state.clone(),
        refused: 0,
        reused: None,
    };
    let mut is_folded = is_larger(state);
    loop {
        if is_folded {
            worker.state = folded(state, |state| is_larger(state));
        }
        match worker.write(&instruction).await? {
            Written::Text(text) => {
                return Ok(match Summary::parse(&text) {
                    Ok(summary) => Summarised::Text {
                        summary,
                        method: if is_folded { "folded" } else { "model" },
                        reused: worker.reused.filter(|_| !is_folded),
                    },
                    Err(fault) => Summarised::Unusable(fault.to_string()),
                });
            }
            Written::TooLarge if !is_folded => is_folded = true,
            Written::TooLarge => {
                return Ok(Summarised::Unusable(
                    "even shortened, the conversation is too large to ask".to_owned(),
                ));
            }
            Written::Unusable(why) => return Ok(Summarised::Unusable(why)),
            Written::Cancelled => return Ok(Summarised::Cancelled),
            Written::Failed(failure) => return Ok(Summarised::Failed(failure)),
        }
    }
}

/// The state with a shorter conversation: results cut short, then the oldest items left out, until it fits.
fn folded(state: &SessionState, is_larger: impl Fn(&SessionState) -> bool) -> SessionState {
    let mut folded = SessionState { counted: None, last_request: None, ..state.clone() };
    shrink(&mut folded.history, 1, FOLDED);
    while is_larger(&folded) && !folded.history.is_empty() {
        let left_out = folded.history.len().div_ceil(4);
        folded.history.drain(..left_out);
    }
    folded
}

/// One worker, with the conversation as it sees it.
struct Worker<'a> {
    compactor: &'a Compactor<'a>,
    lane: Lane,
    state: SessionState,
    refused: u32,
    reused: Option<(u32, u32)>,
}

/// What a worker wrote.
enum Written {
    Text(String),
    TooLarge,
    Unusable(String),
    Cancelled,
    Failed(TurnFailure),
}

impl Worker<'_> {
    async fn write(&mut self, instruction: &str) -> Result<Written, AppendError> {
        let notice = Notice { about: NoticeKind::Compaction, text: instruction.to_owned() };
        self.log(Body::Notice(notice))?;
        let whole = self.state.last_request.as_ref().map(|mark| mark.units);
        for round in 1..=ROUNDS {
            let (seq, answer) = match self.ask(round).await? {
                Asked::Answer(seq, answer) => (seq, answer),
                Asked::TextCall(_) => {
                    return Ok(Written::Unusable("the model wrote a call instead of a summary".to_owned()));
                }
                Asked::Cancelled => return Ok(Written::Cancelled),
                Asked::Overflow { .. } => return Ok(Written::TooLarge),
                Asked::Failed(failure) => return Ok(failed(failure)),
            };
            if round == 1 {
                self.reused = answer.request.as_ref().zip(whole).map(|(mark, whole)| (mark.shared, whole));
            }
            self.apply(seq, Body::Answer(answer.clone()));
            if answer.calls().next().is_none() {
                return Ok(written(&answer));
            }
            self.run_calls(seq, &answer).await?;
            if self.refused >= REFUSALS {
                return Ok(Written::Unusable(
                    "the model called tools instead of writing a summary".to_owned(),
                ));
            }
        }
        Ok(Written::Unusable("the model went on reading instead of writing a summary".to_owned()))
    }

    async fn ask(&self, round: u64) -> Result<Asked, AppendError> {
        let Compactor { setup, log, cancel, .. } = self.compactor;
        let (encoded, _) = log.measured_of(&self.state, setup.model.as_ref());
        Ask { setup, log, cancel, lane: self.lane.clone(), step: round }.until_answered(encoded).await
    }

    async fn run_calls(&mut self, seq: Seq, answer: &Answer) -> Result<(), AppendError> {
        let may_run = answer.finish != Finish::MaxTokens;
        for (index, call) in (0u32..).zip(answer.calls()) {
            let call_ref = CallRef { answer: seq, call: index };
            let result = self.run_call(call_ref, call, may_run).await;
            self.log(Body::ToolResult(result))?;
        }
        Ok(())
    }

    async fn run_call(&mut self, call_ref: CallRef, call: &ToolCall, may_run: bool) -> ToolResult {
        let refused = |summary: String| ToolResult::new(call_ref, Outcome::Error, summary, None);
        let (Some(tool), "read", true) = (reader(self.compactor), call.name.as_str(), may_run) else {
            self.refused += 1;
            return refused(refused_call_text(&call.name));
        };
        let arguments = match object_text(&call.arguments) {
            Ok(arguments) => restore_arguments(&arguments).into_owned(),
            Err(fault) => return refused(format!("`read` was not run: {fault}")),
        };
        let Compactor { setup, log, jobs, cancel } = self.compactor;
        let max = Caps::of(&self.state).result.min(MOST_READ);
        let mut context = call_context(setup, log, jobs, cancel, call_ref, max);
        context.takes_images = false;
        if let Some(reason) = refused_unasked(setup, log, tool, call, &arguments, &context) {
            return ToolResult::new(call_ref, Outcome::Denied, reason, None);
        }
        match tool.run(&arguments, &context).await {
            Ok(output) => ToolResult::new(call_ref, Outcome::Ok, output.summary, output.content),
            Err(error) => ToolResult::new(call_ref, Outcome::Error, error.summary, error.content),
        }
    }

    /// Logs an entry of the worker's lane and takes it into the conversation as the worker sees it.
    fn log(&mut self, body: Body) -> Result<(), AppendError> {
        let seq = self.compactor.log.append_in(self.lane.clone(), body.clone())?;
        self.apply(seq, body);
        Ok(())
    }

    fn apply(&mut self, seq: Seq, body: Body) {
        self.state.apply(&Entry { seq, ts: jiff::Timestamp::UNIX_EPOCH.into(), lane: Lane::Main, body });
    }
}

fn written(answer: &Answer) -> Written {
    match answer.finish {
        Finish::MaxTokens => Written::Unusable("the output limit cut the summary".to_owned()),
        Finish::Refusal => Written::Unusable("the model declined to write a summary".to_owned()),
        Finish::EndTurn | Finish::ToolCalls | Finish::Unknown => Written::Text(answer.text()),
    }
}

/// A failure that another rung of the ladder may get around, or not.
fn failed(failure: TurnFailure) -> Written {
    match failure {
        TurnFailure::Model {
            class: ErrorClass::BadRequest | ErrorClass::RefusedContent, message, ..
        } => Written::Unusable(message),
        failure => Written::Failed(failure),
    }
}
