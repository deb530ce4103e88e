//! The honest end of calls that were in flight when something stopped them.

use std::path::Path;

use mainstay_session::attention::untold_carried_text;
use mainstay_session::entry::{Body, InboxMessage, Job, Notice, NoticeKind, StopReason, ToolIntent, TurnEnd};
use mainstay_session::log::AppendError;
use mainstay_session::message::{Outcome, ToolResult};
use mainstay_session::state::OpenCall;
use mainstay_tools::{Jobs, ToolKind, is_running};

use crate::setup::Setup;
use crate::shared::SharedLog;

/// What ended before a call did, if that is known only from the log.
pub(crate) const THE_AGENT: &str = "the agent";

/// Calls that were in flight, with the result that each was given.
pub(crate) type Closed = Vec<(OpenCall, ToolResult)>;

/// Closes a turn that was left open, and its calls. Says whether there was one.
///
/// `what` ended before the calls did, in words for the model.
pub(crate) fn close_turn(setup: &Setup, log: &SharedLog, what: &str) -> Result<(Closed, bool), AppendError> {
    let closed = close_calls(setup, log, what)?;
    let was_interrupted = log.read(|state| state.turn_is_open);
    if was_interrupted {
        let error = format!("{what} ended before the turn did");
        let end = log.read(|state| state.turn_end(StopReason::Error, Some(error)));
        log.append(Body::TurnEnd(TurnEnd { cut_short: what == THE_AGENT, ..end }))?;
    }
    Ok((closed, was_interrupted))
}

/// Tells the plan that a compaction carried, if a damaged log has lost where that was told.
pub(crate) fn tell_carried_plan(log: &SharedLog) -> Result<(), AppendError> {
    let Some(text) = log.read(|state| untold_carried_text(&state.plan, &state.history)) else {
        return Ok(());
    };
    log.append(Body::Notice(Notice { about: NoticeKind::PlanCarried, text })).map(drop)
}

/// Gives every call without a result an honest one.
pub(crate) fn close_calls(setup: &Setup, log: &SharedLog, what: &str) -> Result<Closed, AppendError> {
    // What waits to be written may hold calls, and results of calls that would look open.
    log.flush()?;
    let mut closed = Vec::new();
    for open in log.read(|state| state.open_calls()) {
        let result = cut_short(&open, setup.kind_of(&open.call.name), what);
        log.append(Body::ToolResult(result.clone()))?;
        closed.push((open, result));
    }
    Ok(closed)
}

/// Says of every background job that ran when the agent before ended that it ended with it. Nobody is woken by that.
pub(crate) fn close_jobs(log: &SharedLog, folder: &Path) -> Result<Vec<Job>, AppendError> {
    let mut ended = Vec::new();
    for intent in log.read(|state| state.jobs.clone()) {
        let Some(job) = intent.job.clone() else { continue };
        let text = job_that_was_running(&job, &intent, &Jobs::output_in(folder, job.number));
        let message = InboxMessage { id: job.id(), text, wake: false, source: "job".to_owned() };
        log.append(Body::Inbox(message))?;
        ended.push(job);
    }
    Ok(ended)
}

fn job_that_was_running(job: &Job, intent: &ToolIntent, output: &Path) -> String {
    let still = if is_running(intent.pid, intent.started) {
        format!(" Its process ({}) is still there and is being ended.", intent.pid)
    } else {
        String::new()
    };
    let printed = if output.exists() {
        format!("What it printed until then is in {}.", output.display())
    } else {
        "What it printed is not there any more.".to_owned()
    };
    format!(
        "{} (`{}`) was running when the agent of this session ended, and ended with it; it was not started again.{still} \
         {printed}",
        job.id(),
        job.command
    )
}

/// The result of a call that never began because the turn was cancelled.
pub(crate) fn never_begun(open: &OpenCall) -> ToolResult {
    interrupted(
        open,
        "Interrupted: the turn was cancelled before this call began.".to_owned(),
        "It changed nothing.".to_owned(),
    )
}

/// What is known of a call that has no result, where no process works on its session any more: the text of the result that
/// it gets when the session goes on.
pub fn known_of(open: &OpenCall, kind: Option<ToolKind>) -> String {
    cut_short(open, kind, THE_AGENT).text()
}

fn cut_short(open: &OpenCall, kind: Option<ToolKind>, what: &str) -> ToolResult {
    if open.has_ended {
        let known =
            "The call had ended; how, and what it brought, is not known. It was not run again.".to_owned();
        return interrupted(open, "Lost: the record of this call's result is damaged.".to_owned(), known);
    }
    let known = match (&open.intent, kind) {
        (Some(intent), _) => command_that_had_started(intent),
        (None, Some(ToolKind::Command)) => "The command had not been started.".to_owned(),
        (None, Some(ToolKind::Read | ToolKind::Plan)) => "It changed nothing.".to_owned(),
        (None, Some(ToolKind::Edit | ToolKind::Other) | None) => {
            "It may have run in part; look at what it was to change before you repeat it.".to_owned()
        }
    };
    interrupted(open, format!("Interrupted: {what} ended before this call did."), known)
}

fn command_that_had_started(intent: &ToolIntent) -> String {
    let ToolIntent { pid, started, .. } = intent;
    let now = if is_running(*pid, *started) { "It is still running." } else { "It is not running any more." };
    format!(
        "The command had been started (process {pid}) and may have run in part. {now} How it ended is not known. It was \
         not run again."
    )
}

fn interrupted(open: &OpenCall, summary: String, content: String) -> ToolResult {
    ToolResult::new(open.call_ref, Outcome::Interrupted, summary, Some(content))
}
