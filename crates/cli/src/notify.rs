//! `mainstay notify`: a session is told something by another process.

use mainstay_agent::session::log::{LeaveError, SessionSummary, leave_message};

use crate::error::{CliError, USAGE};
use crate::history::unreadable;
use crate::output::out;

/// Leaves a text for a session, and says when it will be told.
///
/// # Errors
///
/// If it is too long (exit code 2), or cannot be written. Then nothing is left.
pub(crate) fn notify(session: &SessionSummary, text: &str, silent: bool) -> Result<(), CliError> {
    let id = session.id.short();
    leave_message(&session.dir, text, !silent, jiff::Timestamp::now()).map_err(refused)?;
    let when = match (session.is_running, silent) {
        (true, false) => "a process works on it and is told before its next request".to_owned(),
        (true, true) => "a process works on it and is told with its next request".to_owned(),
        (false, _) => {
            format!(
                "no process works on it now; it is told when it goes on: mainstay exec --session {id} \"…\""
            )
        }
    };
    out(&format!("left for session {id}; {when}"));
    Ok(())
}

fn refused(error: LeaveError) -> CliError {
    match error {
        LeaveError::NoSession(error) => unreadable(error),
        error @ LeaveError::TooLong { .. } => {
            CliError::new(USAGE, error.to_string()).hint("put it in a file and name that")
        }
        error @ LeaveError::Write { .. } => {
            CliError::new(1, error.to_string()).hint("free some space or check who may write there")
        }
    }
}
