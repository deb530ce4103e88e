//! `mainstay fork`: a session of its own from another.

use std::path::Path;

use mainstay_agent::session::ids::SessionId;
use mainstay_agent::session::log::{self, ForkError, SessionSummary};

use crate::error::{CliError, DAMAGED, USAGE};
use crate::history::{unreadable, warn_of};
use crate::output::{out, say};
use crate::rewind::refused;

/// Makes the fork, and says how to go on with it.
///
/// # Errors
///
/// If there is no such turn (exit code 2), or the copy cannot be made. Then nothing is left of it.
pub(crate) fn fork(data_home: &Path, session: &SessionSummary, turn: Option<u64>) -> Result<(), CliError> {
    let now = jiff::Timestamp::now();
    let id = session.id.short();
    let forked = log::fork(data_home, &session.dir, SessionId::random(now), turn, now)
        .map_err(|error| not_forked(error, id))?;
    let (state, opening) = log::read(&forked.dir).map_err(unreadable)?;
    warn_of(&opening.damage);
    let place = match turn {
        None => "as it is now".to_owned(),
        Some(0) => "before its first turn".to_owned(),
        Some(turn) => format!("at the end of turn {turn}"),
    };
    let plan = &state.plan.plan;
    let new = forked.id.short();
    out(&format!("session {new} was made from {id} {place}; plan {}/{}", plan.completed(), plan.items.len()));
    say(&format!(
        "both work in the same directory; to go on with the new one: mainstay exec --session {new} \"…\""
    ));
    Ok(())
}

fn not_forked(error: ForkError, id: &str) -> CliError {
    match error {
        ForkError::Where(error) => refused(error, id),
        ForkError::Read(error) => unreadable(error),
        error @ ForkError::Newer { .. } => CliError::new(DAMAGED, format!("session {id}: {error}"))
            .hint("a newer version of mainstay wrote it; fork it with that one"),
        error @ ForkError::NoHeader { .. } => CliError::new(1, format!("session {id}: {error}"))
            .hint(format!("`mainstay doctor {id}` says what is lost, and repairs")),
        ForkError::Write { source, .. } if source.kind() == std::io::ErrorKind::AlreadyExists => {
            CliError::new(USAGE, source.to_string())
        }
        error @ ForkError::Write { .. } => {
            CliError::new(1, error.to_string()).hint("free some space or check who may write there")
        }
    }
}
