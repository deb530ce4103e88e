//! What an embedding program may see and decide on the way of a turn.

use mainstay_session::message::{ToolCall, ToolResult};
use mainstay_session::state::SessionState;

/// Sees each request and each tool call of an agent.
///
/// The methods are called from the loop, in the order of the interceptors. They must return soon and must not panic.
/// [`Interceptor::pending_history_appends`] must not use the agent's notifiers: the state is held while it looks.
pub trait Interceptor: Send + Sync {
    /// Texts to add to the history before the next request. Each becomes an entry of the log, then part of the request,
    /// and stays part of every later one.
    ///
    /// `step` is the step that begins, from 1 in each turn. The state is that before the request: at a turn's first step
    /// its prompt is not there yet, and the counts are those of the turn before.
    fn pending_history_appends(&self, state: &SessionState, step: u64) -> Vec<String> {
        let _ = (state, step);
        Vec::new()
    }

    /// Decides whether a call may run. The first denial holds.
    fn pre_tool_call(&self, call: &ToolCall) -> Verdict {
        let _ = call;
        Verdict::Allow
    }

    /// Sees what a call brought, the files it declared included. It is in the log by then.
    fn post_tool_call(&self, call: &ToolCall, result: &ToolResult) {
        let _ = (call, result);
    }
}

/// Whether a call may run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may.
    Allow,
    /// It may not.
    Deny {
        /// Why, for the model to read.
        reason: String,
    },
}
