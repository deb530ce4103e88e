//! The honest end of calls that were in flight when something stopped them.

use mainstay_session::entry::ToolIntent;
use mainstay_session::message::{Outcome, ToolResult};
use mainstay_session::state::OpenCall;
use mainstay_tools::{ToolKind, is_running};

/// The result of a call that the agent's own end cut short.
pub(crate) fn after_the_agent_ended(open: &OpenCall, kind: Option<ToolKind>) -> ToolResult {
    if open.has_ended {
        let known = "The call had ended; how, and what it brought, is not known. It was not run again.";
        return interrupted(open, "Lost: the record of this call's result is damaged.", known.to_owned());
    }
    let known = match (&open.intent, kind) {
        (Some(intent), _) => command_that_had_started(intent),
        (None, Some(ToolKind::Command)) => "The command had not been started.".to_owned(),
        (None, Some(ToolKind::Read | ToolKind::Plan)) => "It changed nothing.".to_owned(),
        (None, Some(ToolKind::Edit | ToolKind::Other) | None) => {
            "It may have run in part; look at what it was to change before you repeat it.".to_owned()
        }
    };
    interrupted(open, "Interrupted: the agent ended before this call did.", known)
}

/// The result of a call that never began because the turn was cancelled.
pub(crate) fn never_begun(open: &OpenCall) -> ToolResult {
    interrupted(
        open,
        "Interrupted: the turn was cancelled before this call began.",
        "It changed nothing.".to_owned(),
    )
}

fn command_that_had_started(intent: &ToolIntent) -> String {
    let ToolIntent { pid, started, .. } = intent;
    let now = if is_running(*pid, *started) { "It is still running." } else { "It is not running any more." };
    format!(
        "The command had been started (process {pid}) and may have run in part. {now} How it ended is not known. It was \
         not run again."
    )
}

fn interrupted(open: &OpenCall, summary: &str, content: String) -> ToolResult {
    ToolResult {
        answer: open.call_ref.answer,
        call: open.call_ref.call,
        call_id: open.call.id.clone(),
        outcome: Outcome::Interrupted,
        summary: summary.to_owned(),
        content: Some(content),
        referenced_files: Vec::new(),
        duration_ms: 0,
        exit_code: None,
        plan: None,
    }
}
