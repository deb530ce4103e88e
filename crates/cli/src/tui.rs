//! `mainstay` and `mainstay resume`: the terminal interface, and what it needs of this program.

use std::io::{IsTerminal, stdin, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use mainstay_agent::session::entry::Grant;
use mainstay_agent::session::ids::SessionId;
use mainstay_agent::session::log::{self, SessionSummary};
use mainstay_tui::{Colours, Host, Left, ModelOffer, Options, Prepared, Start};

use crate::args::{ResumeArguments, TurnArguments};
use crate::choose::{latest, list, session, settings_of_turns};
use crate::config::Config;
use crate::config::places::Surroundings;
use crate::error::{CliError, USAGE};
use crate::grants;
use crate::models;
use crate::output::say;
use crate::settings::ModelConfig;
use crate::setup::prepared;

/// Opens the interface for a new session.
///
/// # Errors
///
/// If there is no terminal, or nothing to work with.
pub(crate) fn begin(surroundings: &Surroundings, arguments: &TurnArguments) -> Result<ExitCode, CliError> {
    check_terminal(surroundings, "mainstay exec \"…\"")?;
    open(surroundings, arguments, Start::New, None)
}

/// Opens the interface for a session that exists, or to choose one.
///
/// # Errors
///
/// If there is no terminal, no such session, or nothing to work with.
pub(crate) fn resume(surroundings: &Surroundings, arguments: &ResumeArguments) -> Result<ExitCode, CliError> {
    check_terminal(surroundings, "mainstay exec --last \"…\"")?;
    let ResumeArguments { session: part, last, interface } = arguments;
    if part.is_none() && !last {
        return open(surroundings, interface, Start::Choose, None);
    }
    let workspace = match part {
        Some(_) => surroundings.current_dir.clone(),
        None => surroundings.workspace(interface.cwd.as_deref())?,
    };
    let chosen = session(&surroundings.data_home()?, &workspace, part.as_deref())?;
    open(surroundings, interface, Start::Resume(chosen.dir.clone()), Some(&chosen))
}

fn check_terminal(surroundings: &Surroundings, instead: &str) -> Result<(), CliError> {
    let is_dumb = surroundings.environment.get("TERM").is_some_and(|term| term == "dumb");
    if stdin().is_terminal() && stdout().is_terminal() && !is_dumb {
        return Ok(());
    }
    let what = if is_dumb { "this terminal can show no interface" } else { "the interface needs a terminal" };
    Err(CliError::new(USAGE, what).hint(format!("do one turn without it: {instead}")))
}

fn open(
    surroundings: &Surroundings,
    arguments: &TurnArguments,
    start: Start,
    session: Option<&SessionSummary>,
) -> Result<ExitCode, CliError> {
    let (workspace, model) = match start {
        Start::New | Start::Resume(_) => {
            let settings = settings_of_turns(surroundings, arguments, session, arguments.overrides())?;
            (settings.workspace, model_name(&settings.model))
        }
        // The session that is chosen may go on with its own model, so there need be none as yet.
        Start::Choose => {
            let workspace = surroundings.workspace(arguments.cwd.as_deref())?;
            let model = Config::load(surroundings, &workspace, arguments.overrides())?.values.model;
            (workspace, model.map(|name| name.value.to_string()).unwrap_or_default())
        }
    };
    let variable =
        |name: &str| surroundings.environment.get(name).map(|value| value.to_string_lossy().into_owned());
    let program = Program { surroundings: surroundings.clone(), arguments: arguments.clone() };
    let left = mainstay_tui::run(Options {
        start,
        data_home: surroundings.data_home()?,
        workspace,
        model,
        colours: colours(surroundings),
        editor: variable("VISUAL").or_else(|| variable("EDITOR")),
        host: Arc::new(program),
    })
    .map_err(|error| CliError::new(1, format!("the interface failed: {error}")))?;
    say_left(&left, &arguments.consent());
    Ok(ExitCode::from(left.code))
}

/// Which colours the user's terminal is given. Few terminals tell their ground, in `COLORFGBG`, and none is asked: what it
/// answers could not be told from typing.
fn colours(surroundings: &Surroundings) -> Colours {
    let variable = |name: &str| surroundings.environment.get(name).and_then(|value| value.to_str());
    if surroundings.environment.get("NO_COLOR").is_some_and(|value| !value.is_empty()) {
        return Colours::No;
    }
    let ground = variable("COLORFGBG").and_then(|colours| colours.rsplit(';').next()?.parse::<u8>().ok());
    match ground {
        Some(7 | 10..=15) => Colours::OnLight,
        Some(0..=6 | 8 | 9) => Colours::OnDark,
        Some(16..) | None => Colours::OnAny,
    }
}

/// `flags` are those that say what may be done unasked; a session does not keep them.
fn say_left(left: &Left, flags: &str) {
    if let Some(id) = &left.session {
        let plan = match left.plan {
            (_, 0) => String::new(),
            (completed, total) => format!("; plan {completed}/{total}"),
        };
        say(&format!("session {id}{plan}; to go on: mainstay resume {id}{flags}"));
    }
}

fn model_name(model: &ModelConfig) -> String {
    match model {
        ModelConfig::Script { file } => format!("script:{}", file.display()),
        ModelConfig::Served(served) => format!("{}/{}", served.provider, served.model),
        ModelConfig::Logged(choice) => choice.model.clone(),
    }
}

/// This program as the interface sees it.
struct Program {
    surroundings: Surroundings,
    arguments: TurnArguments,
}

impl Program {
    fn data_home(&self) -> Result<PathBuf, String> {
        self.surroundings.data_home().map_err(|error| words(&error))
    }
}

impl Host for Program {
    fn setup(&self, session: Option<&Path>, model: Option<&str>) -> Result<Prepared, String> {
        let summary = session.and_then(|dir| {
            let id: SessionId = dir.file_name()?.to_str()?.parse().ok()?;
            Some(log::summarise(dir, id))
        });
        let mut overrides = self.arguments.overrides();
        if let Some(name) = model {
            overrides.model = Some(name.parse()?);
        }
        let settings = settings_of_turns(&self.surroundings, &self.arguments, summary.as_ref(), overrides);
        let (setup, notes) =
            settings.and_then(|settings| prepared(&settings, None)).map_err(|error| words(&error))?;
        Ok(Prepared { setup, notes })
    }

    fn sessions(&self) -> Result<Vec<SessionSummary>, String> {
        list(&self.data_home()?).map_err(|error| words(&error))
    }

    fn interrupted(&self, workspace: &Path) -> Option<SessionSummary> {
        latest(&self.data_home().ok()?, workspace).filter(|last| last.is_interrupted)
    }

    fn models(&self, workspace: &Path) -> Result<Vec<ModelOffer>, String> {
        models::configured(&self.surroundings, workspace, self.arguments.overrides())
            .map_err(|error| words(&error))
    }

    fn fork(&self, session: &Path) -> Result<PathBuf, String> {
        let now = jiff::Timestamp::now();
        log::fork(&self.data_home()?, session, SessionId::random(now), None, now)
            .map(|forked| forked.dir)
            .map_err(|error| error.to_string())
    }

    fn keep(&self, workspace: &Path, grant: &Grant) -> Result<(), String> {
        grants::keep(self.surroundings.config_home().as_deref(), workspace, grant)
    }
}

/// An error with what to do, in lines.
fn words(error: &CliError) -> String {
    let hints = error.hints.iter().map(|hint| format!("\n  {hint}"));
    format!("{}{}", error.message, hints.collect::<String>())
}
