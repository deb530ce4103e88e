//! Which session a command means, and where it works.

use std::path::Path;

use mainstay_agent::session::entry::ModelChoice;
use mainstay_agent::session::log::{self, SessionSummary};
use mainstay_agent::session::message::FilePath;

use crate::args::TurnArguments;
use crate::config::Overrides;
use crate::config::places::Surroundings;
use crate::error::{CliError, USAGE};
use crate::output::{inert, shortened};
use crate::settings::{Settings, Unsaid};

/// How many sessions are looked at where looking at all would take too long.
const RECENT: usize = 16;

/// How many sessions are shown where a part of an id fits several.
const SHOWN: usize = 5;

/// The one session whose id holds `part`; without a part, the newest of the directory that its user spoke to.
///
/// # Errors
///
/// If none or several fit (exit code 2), or the sessions cannot be listed.
pub(crate) fn session(data_home: &Path, cwd: &Path, part: Option<&str>) -> Result<SessionSummary, CliError> {
    match part {
        Some(part) => {
            let place = log::sessions_dir(data_home);
            by_part(
                list(data_home)?,
                part,
                &format!("`mainstay sessions` lists those in {}", place.display()),
            )
        }
        None => newest(data_home, cwd)?.ok_or_else(|| {
            CliError::new(USAGE, format!("there is no session of {} to go on with", cwd.display()))
                .hint("`mainstay sessions` lists all; `mainstay exec PROMPT` begins one")
        }),
    }
}

/// What a run works with: in `cwd` if that is given, else where the session worked, if it goes on with one. `resolve` makes
/// the settings for a directory.
///
/// # Errors
///
/// As `resolve` fails; a session's directory that is gone is told as that.
pub(crate) fn settings_of(
    session: Option<&SessionSummary>,
    cwd: Option<&Path>,
    resolve: impl FnOnce(Option<&Path>) -> Result<Settings, CliError>,
) -> Result<Settings, CliError> {
    let home = session.and_then(|session| session.cwd.as_ref());
    resolve(cwd.or(home.map(FilePath::as_path))).map_err(|error| match session {
        Some(session) if error.code == USAGE && cwd.is_none() => error.hint(format!(
            "session {} worked there; give `--cwd` the directory that it is in now",
            session.id.short()
        )),
        Some(_) | None => error,
    })
}

/// What turns are run with, in the interface and without it.
///
/// # Errors
///
/// As [`Settings::resolve`] and [`settings_of`].
pub(crate) fn settings_of_turns(
    surroundings: &Surroundings,
    arguments: &TurnArguments,
    session: Option<&SessionSummary>,
    overrides: Overrides,
) -> Result<Settings, CliError> {
    // Where no model is configured, the one that answered last in the session goes on.
    let own = || logged_model(session?).map(|choice| choice.model);
    settings_of(session, arguments.cwd.as_deref(), |directory| {
        Settings::resolve(surroundings, directory, overrides, Unsaid::Named(&own))
    })
}

/// The model that answered last; none where the log does not say, which is told as soon as it is opened.
pub(crate) fn logged_model(session: &SessionSummary) -> Option<ModelChoice> {
    log::read(&session.dir).ok().and_then(|(state, _)| state.model)
}

/// The newest session of a directory that its user spoke to; no stub and no child.
pub(crate) fn newest(data_home: &Path, cwd: &Path) -> Result<Option<SessionSummary>, CliError> {
    Ok(list(data_home)?.into_iter().find(|session| is_of(session, cwd)))
}

/// The session of a directory that was begun last, if it is among the last that were begun anywhere. Quick, however
/// many sessions there are.
pub(crate) fn latest(data_home: &Path, cwd: &Path) -> Option<SessionSummary> {
    log::latest(data_home, RECENT).ok()?.into_iter().find(|session| is_of(session, cwd))
}

fn is_of(session: &SessionSummary, cwd: &Path) -> bool {
    session.has_prompt && !session.is_child && session.cwd.as_ref().is_some_and(|path| path.as_path() == cwd)
}

/// All sessions, the newest first.
pub(crate) fn list(data_home: &Path) -> Result<Vec<SessionSummary>, CliError> {
    log::list(data_home).map_err(|error| {
        let dir = log::sessions_dir(data_home);
        CliError::new(1, format!("cannot list the sessions in {}: {error}", dir.display()))
            .hint("check who may read it, or set MAINSTAY_HOME to another directory")
    })
}

/// The one of `all` whose id holds `part`.
///
/// # Errors
///
/// If none or several fit (exit code 2). `where_else` says where to look then.
pub(crate) fn by_part(
    all: Vec<SessionSummary>,
    part: &str,
    where_else: &str,
) -> Result<SessionSummary, CliError> {
    let part = part.trim().to_lowercase();
    if part.is_empty() {
        let error = CliError::new(USAGE, "the session's id is empty");
        return Err(error.hint("give any unique part of it; `mainstay sessions` lists all"));
    }
    let found: Vec<SessionSummary> =
        all.into_iter().filter(|session| session.id.as_str().contains(&part)).collect();
    match <[SessionSummary; 1]>::try_from(found) {
        Ok([one]) => Ok(one),
        Err(none) if none.is_empty() => {
            Err(CliError::new(USAGE, format!("no session has `{part}` in its id")).hint(where_else))
        }
        Err(several) => {
            let error =
                CliError::new(USAGE, format!("{} sessions have `{part}` in their ids", several.len()));
            let lines =
                several.iter().take(SHOWN).map(|s| format!("{}  {}", s.id, shortened(&inert(&s.title), 50)));
            let error = lines.fold(error, CliError::hint);
            let error = match several.len().saturating_sub(SHOWN) {
                0 => error,
                more => error.hint(format!("and {more} more; `mainstay sessions` lists all")),
            };
            Err(error.hint("give more of the id"))
        }
    }
}
