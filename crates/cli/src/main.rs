//! The `mainstay` binary: what the user typed becomes settings, and settings become a session.
//!
//! Each command is a module; [`error::CliError`] is how any of them ends early. Behaviour of the agent lives in
//! `mainstay-agent`, not here.

mod output;
mod error;
mod config;
mod grants;
mod args;
mod instructions;
mod settings;
mod provider;
mod setup;
mod choose;
mod history;
mod cache;
mod plan;
mod sessions;
mod undo;
mod rewind;
mod signals;
mod exec;
mod compact;
mod notify;
mod fork;
mod transfer;
mod doctor;
mod models;
mod manual;
mod demo;
mod tui;

use std::process::ExitCode;

use args::{Command, DoctorArguments, HistoryArguments, PlanArguments, UndoArguments};
use config::places::Surroundings;
use error::CliError;
use mainstay_agent::session::log::SessionSummary;
use plan::PlanForm;

fn main() -> ExitCode {
    mainstay_agent::tools::supervise_if_asked();
    mainstay_agent::tools::harden_process();
    mainstay_agent::session::failpoint::arm(|name| std::env::var_os(name));
    let command = match args::parse(std::env::args_os()) {
        Ok(command) => command,
        Err(error) => {
            // Help and version go to stdout and are no failure.
            if error.use_stderr() {
                let _ = error.print();
                return ExitCode::from(error::USAGE);
            }
            output::printed(error.print());
            return whole(ExitCode::SUCCESS);
        }
    };
    whole(run(&command).unwrap_or_else(|error| {
        output::say(&error.to_string());
        ExitCode::from(error.code)
    }))
}

/// How the program ends: not well where what it printed is not whole. A reader that has gone away wanted no more.
fn whole(code: ExitCode) -> ExitCode {
    let Some(why) = output::unwritten() else { return code };
    output::say(&format!("error: cannot write to stdout: {why}\n  what was printed there is not whole"));
    if code == ExitCode::SUCCESS { ExitCode::FAILURE } else { code }
}

fn run(command: &Command) -> Result<ExitCode, CliError> {
    let surroundings = Surroundings::of_process()?;
    match command {
        Command::Interface(arguments) => tui::begin(&surroundings, arguments),
        Command::Resume(arguments) => tui::resume(&surroundings, arguments),
        Command::Exec(arguments) => exec::exec(&surroundings, arguments),
        Command::Demo => demo::demo(&surroundings.data_home()?),
        Command::Sessions(arguments) => {
            let workspace = surroundings.workspace(None)?;
            let now = jiff::Timestamp::now();
            sessions::sessions(&surroundings.data_home()?, &workspace, arguments, now)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Plan(arguments) => {
            let PlanArguments { session, json, markdown, cwd } = arguments;
            let form = match (json, markdown) {
                (true, _) => PlanForm::Json,
                (false, true) => PlanForm::Markdown,
                (false, false) => PlanForm::Text,
            };
            plan::plan(&chosen(&surroundings, session.as_deref(), cwd.as_deref())?, form)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Undo(arguments) => {
            let UndoArguments { session, to, list } = arguments;
            let session = chosen(&surroundings, Some(session), None)?;
            match list {
                true => undo::list(&session)?,
                false => undo::undo(&session, *to)?,
            }
            Ok(ExitCode::SUCCESS)
        }
        Command::Rewind(arguments) => {
            rewind::rewind(&chosen(&surroundings, Some(&arguments.session), None)?, arguments)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Notify(arguments) => {
            let text = exec::prompt(arguments.text(), "the text")?;
            notify::notify(&chosen(&surroundings, Some(&arguments.session), None)?, &text, arguments.silent)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Fork(arguments) => {
            let session = chosen(&surroundings, Some(&arguments.session), None)?;
            fork::fork(&surroundings.data_home()?, &session, arguments.turn)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Export(arguments) => {
            let session = chosen(&surroundings, Some(&arguments.session), None)?;
            transfer::export(&session, &surroundings.current_dir, arguments)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Import(arguments) => {
            transfer::import(&surroundings.data_home()?, &surroundings.current_dir, &arguments.file)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Doctor(DoctorArguments { session: None, .. }) => doctor::installation(&surroundings),
        Command::Doctor(DoctorArguments { session: Some(part), repair }) => {
            doctor::session(&chosen(&surroundings, Some(part), None)?, *repair)
        }
        Command::Models(arguments) => {
            models::models(&surroundings, arguments)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Completions(arguments) => {
            manual::completions(arguments.shell);
            Ok(ExitCode::SUCCESS)
        }
        Command::Man(arguments) => {
            manual::write(&surroundings.current_dir.join(&arguments.directory))?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Compact(arguments) => compact::compact(&surroundings, arguments),
        Command::History(arguments) => {
            let HistoryArguments { session, json, cache, cwd } = arguments;
            let session = chosen(&surroundings, session.as_deref(), cwd.as_deref())?;
            match cache {
                true => cache::cache(&session, *json)?,
                false => history::history(&session, *json)?,
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn chosen(
    surroundings: &Surroundings,
    part: Option<&str>,
    cwd: Option<&std::path::Path>,
) -> Result<SessionSummary, CliError> {
    choose::session(&surroundings.data_home()?, &surroundings.workspace(cwd)?, part)
}
