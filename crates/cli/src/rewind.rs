//! `mainstay rewind`: a session goes back to the end of a turn, and back again.

use mainstay_agent::session::log::{
    AppendError, Durability, Log, RewindError, RewindTo, Rewound, SessionSummary,
};

use crate::args::RewindArguments;
use crate::error::{CliError, DAMAGED, USAGE};
use crate::history::{cannot_open, unreadable, warn_of};
use crate::output::{out, say};

/// Goes back, and says where the session stands now and how to return.
///
/// # Errors
///
/// If there is no such turn (exit code 2), if the session is in use, or if what lies between is damaged.
pub(crate) fn rewind(session: &SessionSummary, arguments: &RewindArguments) -> Result<(), CliError> {
    let id = session.id.short();
    let now = jiff::Timestamp::now();
    let (mut log, opening) =
        Log::open(&session.dir, Durability::Always, now).map_err(|error| cannot_open(error, id))?;
    warn_of(&opening.damage);
    let rewound = log.rewind(target(arguments), now).map_err(|error| refused(error, id))?;
    if let Err(error) = log.write_history() {
        say(&format!("warning: history.json is not up to date: {error}"));
    }
    say_where(&log, rewound, id);
    Ok(())
}

fn target(arguments: &RewindArguments) -> RewindTo {
    match (arguments.turn, arguments.entry) {
        (Some(turn), _) => RewindTo::Turn(turn),
        (None, Some(seq)) => RewindTo::Entry(seq),
        (None, None) => RewindTo::BeforeRewind,
    }
}

fn say_where(log: &Log, rewound: Rewound, id: &str) {
    let plan = &log.state().plan.plan;
    let place = match rewound.turn {
        0 => "before its first turn".to_owned(),
        turn if log.state().turn_is_open => format!("in turn {turn}, which had not ended"),
        turn => format!("at the end of turn {turn}"),
    };
    out(&format!(
        "session {id} stands {place} again (it had {}); plan {}/{}",
        rewound.left,
        plan.completed(),
        plan.items.len()
    ));
    say(&format!(
        "no file of the workspace was touched; to take back changes of files: mainstay undo {id}\n\
         to return to where it stood: mainstay rewind {id} --entry {}",
        rewound.from
    ));
}

/// What is said where a session cannot go back, or has no such turn.
pub(crate) fn refused(error: RewindError, id: &str) -> CliError {
    let message = format!("session {id}: {error}");
    match error {
        RewindError::NoSuchTurn { .. }
        | RewindError::NoSuchEntry { .. }
        | RewindError::AlreadyThere { .. }
        | RewindError::NothingToUndo => CliError::new(USAGE, message),
        RewindError::Damaged { .. } => {
            CliError::new(1, message).hint(format!("`mainstay doctor {id}` says what is lost, and repairs"))
        }
        RewindError::Read(error) => unreadable(error),
        RewindError::Append(AppendError::ReadOnly { .. }) => {
            CliError::new(DAMAGED, message).hint("a newer version of mainstay wrote it; go on with that one")
        }
        RewindError::Append(_) => {
            CliError::new(1, message).hint("free some space or check who may write there")
        }
    }
}
