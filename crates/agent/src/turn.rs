//! One turn: step after step until something says stop.

use std::sync::{Arc, Mutex};

use mainstay_session::attention::continuation_text;
use mainstay_session::conversation::Step;
use mainstay_session::entry::{Body, InboxMessage, Notice, NoticeKind, StopReason, Totals};
use mainstay_session::ids::Seq;
use mainstay_session::log::AppendError;
use mainstay_session::message::Finish;
use mainstay_session::state::SessionState;
use mainstay_tools::Jobs;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::closing;
use crate::compaction::{Compactor, Reason};
use crate::event::{Event, TurnFailure, TurnReport};
use crate::occupancy::Thresholds;
use crate::prompt::Prompt;
use crate::setup::Setup;
use crate::shared::SharedLog;
use crate::step::{StepContext, StepEnd, Told};
use crate::watch::Watch;

/// How often in a row the same call may fail before the turn ends.
const REPEATED_FAILURES: u32 = 3;

/// How often the model was asked to go on in a turn that it would have ended.
#[derive(Default)]
struct AskedAgain {
    for_the_plan: u32,
    for_the_form: u32,
}

/// What one turn is run with.
pub(crate) struct Turn<'a> {
    pub(crate) setup: &'a Setup,
    pub(crate) log: &'a SharedLog,
    pub(crate) watch: &'a Mutex<Watch>,
    pub(crate) told: &'a Told,
    pub(crate) jobs: &'a Arc<Jobs>,
    pub(crate) cancel: &'a CancellationToken,
}

impl Turn<'_> {
    /// Runs the turn. Its end is in the log when this returns, unless the log could not be written.
    pub(crate) async fn run(&self, prompt: Option<Prompt>) -> TurnReport {
        let before = self.log.read(|state| (state.last_seq, state.totals));
        (self.setup.on_event)(&Event::TurnStarted);
        let (stop_reason, failure) = match self.steps(prompt, before.1).await {
            Ok(stop) => stop,
            Err(error) => (StopReason::Error, Some(TurnFailure::Log { message: error.to_string() })),
        };
        let (stop_reason, failure) = match (self.end(stop_reason, failure.as_ref()), failure) {
            (Err(error), None) => (StopReason::Error, Some(TurnFailure::Log { message: error.to_string() })),
            (Ok(()) | Err(_), failure) => (stop_reason, failure),
        };
        let report = self.report(before, stop_reason, failure);
        (self.setup.on_event)(&Event::TurnCompleted(report.clone()));
        report
    }

    /// `before` is what the session had used when the turn began.
    async fn steps(
        &self,
        prompt: Option<Prompt>,
        before: Totals,
    ) -> Result<(StopReason, Option<TurnFailure>), AppendError> {
        let deadline = self.setup.max_time.map(|time| Instant::now() + time);
        // A turn whose future was dropped had no end.
        closing::close_turn(self.setup, self.log, "the turn before")?;
        self.told.begin_turn();
        self.make_room(deadline).await?;
        let mut asked = AskedAgain::default();
        let mut prompt = prompt;
        for number in 1.. {
            let (end, is_out_of_time) = self.step(number, prompt.take(), deadline).await?;
            match end {
                StepEnd::Cancelled if is_out_of_time => return Ok((StopReason::MaxTime, None)),
                StepEnd::Cancelled => return Ok((StopReason::Cancelled, None)),
                StepEnd::Failed(failure) => return Ok((StopReason::Error, Some(failure))),
                StepEnd::Answered(finish) => {
                    let limit = self.limit(number, before);
                    if let Some(stop) = self.after_answer(finish, limit, &mut asked)? {
                        return Ok(stop);
                    }
                }
                StepEnd::Continue => {
                    if self.is_failing_repeatedly() {
                        return Ok((StopReason::RepeatedFailure, None));
                    }
                    if let Some(limit) = self.limit(number, before) {
                        return Ok((limit, None));
                    }
                }
            }
        }
        Ok((StopReason::MaxSteps, None))
    }

    /// Begins in a window with room. If none could be made, the first step sees what it can do: it logs the prompt first.
    async fn make_room(&self, deadline: Option<Instant>) -> Result<(), AppendError> {
        // Before its first step a session has nothing to summarise, and nothing is to be encoded twice at its start.
        if !self.log.read(|state| state.history.iter().any(|item| item.as_step().is_some())) {
            return Ok(());
        }
        let (_, occupancy) = self.log.measured(self.setup.model.as_ref());
        let thresholds = self.log.read(|state| Thresholds::of(state, self.setup.model.context_window()));
        if occupancy > thresholds.low {
            let cancel = self.cancel.child_token();
            let compactor = Compactor { setup: self.setup, log: self.log, jobs: self.jobs, cancel: &cancel };
            let compaction = compactor.run(Reason::TurnStart);
            tokio::pin!(compaction);
            tokio::select! {
                room = &mut compaction => drop(room?),
                () = time_is_up(deadline) => {
                    cancel.cancel();
                    drop(compaction.await?);
                }
            }
        }
        Ok(())
    }

    /// Takes one step and says whether it was cancelled because the turn's time is up.
    async fn step(
        &self,
        number: u64,
        prompt: Option<Prompt>,
        deadline: Option<Instant>,
    ) -> Result<(StepEnd, bool), AppendError> {
        let cancel = self.cancel.child_token();
        let Turn { setup, log, watch, told, jobs, .. } = *self;
        let context = StepContext { setup, log, watch, told, jobs, cancel: &cancel, number };
        let step = context.take(prompt);
        tokio::pin!(step);
        tokio::select! {
            end = &mut step => Ok((end?, false)),
            () = time_is_up(deadline) => {
                cancel.cancel();
                Ok((step.await?, !self.cancel.is_cancelled()))
            }
        }
    }

    /// The limit that keeps the turn from another step, if one does.
    fn limit(&self, number: u64, before: Totals) -> Option<StopReason> {
        let is_spent =
            |most| self.told.is_unpriced() || self.log.read(|state| state.totals.since(before).cost) >= most;
        if number >= self.setup.max_steps {
            Some(StopReason::MaxSteps)
        } else if self.setup.max_cost.is_some_and(is_spent) {
            Some(StopReason::MaxCost)
        } else {
            None
        }
    }

    /// Whether an answer without calls ends the turn; if not, the log says why the model is asked again. `limit` keeps the
    /// turn from another step.
    fn after_answer(
        &self,
        finish: Finish,
        limit: Option<StopReason>,
        asked: &mut AskedAgain,
    ) -> Result<Option<(StopReason, Option<TurnFailure>)>, AppendError> {
        match finish {
            Finish::MaxTokens => return Ok(Some((StopReason::MaxTokens, None))),
            Finish::Refusal => return Ok(Some((StopReason::Refusal, None))),
            Finish::EndTurn | Finish::ToolCalls | Finish::Unknown => {}
        }
        // What the user said meanwhile is answered in this turn.
        let was_steered = self.log.read(|state| state.inbox.iter().any(InboxMessage::is_steering));
        if was_steered && limit.is_none() {
            return Ok(None);
        }
        let plan = self.log.read(|state| state.plan.plan.clone());
        let Some(most) = self.setup.require_plan.filter(|_| plan.has_unfinished()) else {
            return self.after_last_answer(limit, asked);
        };
        if asked.for_the_plan >= most || !self.log.read(|state| self.setup.plan_is_on(state)) {
            return Ok(Some((StopReason::PlanUnfinished, None)));
        }
        // Tested before the notice, which would else stand in front of the next prompt.
        if let Some(limit) = limit {
            return Ok(Some((limit, None)));
        }
        asked.for_the_plan += 1;
        self.add(Notice { about: NoticeKind::Continuation, text: continuation_text(&plan) })?;
        Ok(None)
    }

    /// The same where the plan lets the turn end: whether its answer has the form that it must have.
    fn after_last_answer(
        &self,
        limit: Option<StopReason>,
        asked: &mut AskedAgain,
    ) -> Result<Option<(StopReason, Option<TurnFailure>)>, AppendError> {
        let Some(form) = &self.setup.answer_form else { return Ok(Some((StopReason::EndTurn, None))) };
        let text = self.log.read(|state| state.last_step().map(Step::text)).unwrap_or_default();
        let Err(why) = (form.check)(&text) else { return Ok(Some((StopReason::EndTurn, None))) };
        if asked.for_the_form >= form.again {
            let message = format!("the answer does not have the form that it must have: {why}");
            return Ok(Some((StopReason::Error, Some(TurnFailure::AnswerForm { message }))));
        }
        if let Some(limit) = limit {
            return Ok(Some((limit, None)));
        }
        asked.for_the_form += 1;
        self.add(Notice { about: NoticeKind::AnswerForm, text: form.misfit(&why) })?;
        Ok(None)
    }

    fn add(&self, notice: Notice) -> Result<(), AppendError> {
        self.log.append(Body::Notice(notice.clone()))?;
        (self.setup.on_event)(&Event::Notice(notice));
        Ok(())
    }

    fn is_failing_repeatedly(&self) -> bool {
        self.log.read(|state| {
            let fails = state.failing.as_ref().is_some_and(|failing| failing.times >= REPEATED_FAILURES);
            fails || state.idleness.ends_the_turn()
        })
    }

    /// Closes what is open and logs the end of the turn.
    fn end(&self, stop_reason: StopReason, failure: Option<&TurnFailure>) -> Result<(), AppendError> {
        closing::close_calls(self.setup, self.log, "the turn")?;
        let error = failure.map(|failure| failure.message().to_owned());
        let end = self.log.read(|state| state.turn_end(stop_reason, error));
        self.log.append(Body::TurnEnd(end))?;
        self.log.sync()?;
        self.log.write_history(self.setup);
        Ok(())
    }

    fn report(
        &self,
        (begun, before): (Seq, Totals),
        stop_reason: StopReason,
        failure: Option<TurnFailure>,
    ) -> TurnReport {
        let is_text_call = matches!(failure, Some(TurnFailure::TextCall { .. }));
        self.log.read(|state| TurnReport {
            stop_reason,
            failure,
            usage: state.totals.since(before).usage,
            cost: state.totals.since(before).known_cost(),
            denied: state.totals.since(before).denied,
            text: if is_text_call { String::new() } else { last_text(state, begun) },
            plan: state.plan.clone(),
            totals: state.totals,
        })
    }
}

/// The text of the last answer behind an entry; empty if there is none, or it has none.
fn last_text(state: &SessionState, behind: Seq) -> String {
    state.last_step().filter(|step| step.answer > behind).map(Step::text).unwrap_or_default()
}

async fn time_is_up(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending::<()>().await,
    }
}
