//! `mainstay undo`: what tools changed in files is taken back.

use mainstay_agent::session::ids::Seq;
use mainstay_agent::session::log::SessionSummary;
use mainstay_agent::undo::{Change, Standing, UndoError, Undone, standings, undo as take_back};

use crate::error::{CliError, USAGE};
use crate::history::{cannot_open, unreadable};
use crate::output::{inert, out, say};

/// Takes back the changes of the last turn that changed files, or all behind an entry.
///
/// # Errors
///
/// If a file is no longer what was written, or the session is in use or cannot be read.
pub(crate) fn undo(session: &SessionSummary, to: Option<Seq>) -> Result<(), CliError> {
    match take_back(&session.dir, to, jiff::Timestamp::now()) {
        Ok(done) => {
            done.iter().for_each(say_undone);
            Ok(())
        }
        Err(UndoError::Write { path, why, done }) => {
            done.iter().for_each(say_undone);
            let message = format!("{} could not be put back: {why}", path.display());
            Err(CliError::new(1, message).hint(match done.is_empty() {
                true => {
                    "nothing was changed; check who may write there, and free some space if there is none"
                }
                false => "the files above were put back; run the command again for the rest",
            }))
        }
        Err(error) => Err(refused(error, session.id.short())),
    }
}

/// Lists what tools changed in files, with what became of it.
///
/// # Errors
///
/// If the session cannot be read.
pub(crate) fn list(session: &SessionSummary) -> Result<(), CliError> {
    let changes = standings(&session.dir).map_err(unreadable)?;
    if changes.is_empty() {
        say("No tool has changed a file in this session.");
        return Ok(());
    }
    out(&format!("{:>5}  {:>6}  {:7}  {:13}  PATH", "TURN", "ENTRY", "CHANGE", "NOW"));
    for (Change { seq, turn, change }, standing) in changes {
        let what = if change.before.is_none() { "made" } else { "changed" };
        let now = match standing {
            Standing::InEffect => "in effect",
            Standing::TakenBack => "taken back",
            Standing::Unknown => "changed since",
        };
        let path = inert(&change.path.to_string());
        out(&format!("{:>5}  {seq:>6}  {what:7}  {now:13}  {path}", turn + 1));
    }
    Ok(())
}

fn say_undone(undone: &Undone) {
    let path = inert(&undone.path.to_string());
    let what = if undone.is_removed { "removed" } else { "put back" };
    out(&format!("{what} {path} (changed since entry {})", undone.since));
}

fn refused(error: UndoError, id: &str) -> CliError {
    match error {
        UndoError::Open(error) => cannot_open(error, id),
        UndoError::Read(error) => unreadable(error),
        error @ (UndoError::NoSuchEntry { .. } | UndoError::Nothing) => {
            CliError::new(USAGE, format!("session {id}: {error}"))
                .hint(format!("`mainstay undo {id} --list` shows what was changed, and by which entries"))
        }
        UndoError::Conflicts(conflicts) => {
            let error = CliError::new(1, "nothing was changed, since a file is no longer what was written");
            conflicts.iter().fold(error, |error, conflict| error.hint(inert(conflict)))
        }
        error @ UndoError::Write { .. } => CliError::new(1, format!("session {id}: {error}")),
    }
}
