//! What the user typed.
//!
//! Only the shape of the command line is decided here; what it means together with the configuration is
//! [`crate::settings`]'s matter. Every mistake is a [`clap::Error`] with exit code 2, and so are `--help` and
//! `--version` with exit code 0: `main` prints either and ends.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};

use crate::config::{Approve, ModelName, Overrides, defaults};

/// A coding agent whose plan, files and conversation survive every turn, crash and resume
#[derive(Debug, Parser)]
#[command(name = "mainstay", version, max_term_width = 100, after_help = EXAMPLES)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub(crate) enum Command {
    /// Do one turn without an interface: the answer on stdout, all else on stderr
    #[command(after_help = EXEC_EXAMPLES)]
    Exec(ExecArguments),
    /// List the sessions, the newest first
    Sessions(SessionsArguments),
    /// Show the plan of a session
    #[command(after_help = PLAN_EXAMPLES)]
    Plan(PlanArguments),
    /// Show what the model has been told and has answered in a session
    #[command(after_help = HISTORY_EXAMPLES)]
    History(HistoryArguments),
    /// Summarise the conversation of a session now, to make room in the model's window
    #[command(after_help = COMPACT_EXAMPLES)]
    Compact(CompactArguments),
    /// Take back what the tools changed in files; the conversation stays
    #[command(after_help = UNDO_EXAMPLES)]
    Undo(UndoArguments),
    /// Watch a scripted session survive a kill -9, without a key and without a network
    Demo,
}

/// `mainstay exec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub(crate) struct ExecArguments {
    /// What to do; `-` or nothing reads it from stdin
    #[arg(value_name = "PROMPT")]
    prompt: Option<String>,
    /// Print what happens as one JSON object a line instead of the answer
    #[arg(long)]
    pub(crate) json: bool,
    /// With --json, also print the pieces of an answer as they come
    #[arg(long, requires = "json")]
    pub(crate) deltas: bool,
    /// Continue the session with this id; any unique part of it will do
    #[arg(long, value_name = "ID", conflicts_with = "last")]
    session: Option<String>,
    /// Continue the newest session of this directory
    #[arg(long)]
    last: bool,
    /// The model, over the configured one: PROVIDER/NAME, or script:FILE to replay answers
    #[arg(long, value_name = "MODEL")]
    model: Option<ModelName>,
    /// How hard the model shall think, in its provider's words, such as low, medium or high
    #[arg(long, value_name = "EFFORT", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    effort: Option<String>,
    /// The directory to work in, instead of the current one
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
    /// What needs your consent; where nobody can be asked, what would ask is denied [default: auto]
    #[arg(long, value_name = "MODE")]
    approve: Option<Approve>,
    /// End after this many steps, a step being one request and the calls it asks for [default: 500]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_steps: Option<u32>,
    /// Go on up to N times while plan items are unfinished, and exit with 3 if they stay so [N: 3]
    #[arg(
        long,
        value_name = "N",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = REQUIRE_PLAN_TIMES
    )]
    pub(crate) require_plan: Option<u32>,
}

/// [`defaults::REQUIRE_PLAN`] as it would be typed.
const REQUIRE_PLAN_TIMES: &str = "3";
const _: () = assert!(defaults::REQUIRE_PLAN == 3);

/// `mainstay sessions`.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub(crate) struct SessionsArguments {
    /// Print a JSON array
    #[arg(long)]
    pub(crate) json: bool,
}

/// `mainstay plan`.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub(crate) struct PlanArguments {
    /// The session, by any unique part of its id [default: the newest of this directory]
    #[arg(value_name = "ID")]
    pub(crate) session: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Print a Markdown task list
    #[arg(long, conflicts_with = "json")]
    pub(crate) markdown: bool,
    /// The directory whose newest session is meant, instead of the current one
    #[arg(long, value_name = "DIR", conflicts_with = "session")]
    pub(crate) cwd: Option<PathBuf>,
}

/// `mainstay history`.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub(crate) struct HistoryArguments {
    /// The session, by any unique part of its id [default: the newest of this directory]
    #[arg(value_name = "ID")]
    pub(crate) session: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Show each request instead: what it shares with the one before, and what the provider's cache held
    #[arg(long)]
    pub(crate) cache: bool,
    /// The directory whose newest session is meant, instead of the current one
    #[arg(long, value_name = "DIR", conflicts_with = "session")]
    pub(crate) cwd: Option<PathBuf>,
}

/// `mainstay compact`.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub(crate) struct CompactArguments {
    /// The session, by any unique part of its id
    #[arg(value_name = "ID")]
    pub(crate) session: String,
    /// What the summary shall heed
    #[arg(value_name = "INSTRUCTIONS", conflicts_with = "undo")]
    pub(crate) instructions: Option<String>,
    /// Go back to the conversation from before the last compaction; what came since stays behind it
    #[arg(long)]
    pub(crate) undo: bool,
    /// The model, over the configured one
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<ModelName>,
    /// The directory that the session works in, if it was moved
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
}

/// `mainstay undo`.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub(crate) struct UndoArguments {
    /// The session, by any unique part of its id
    #[arg(value_name = "ID")]
    pub(crate) session: String,
    /// Take back everything behind this entry of the log [default: the last turn that changed files]
    #[arg(long, value_name = "SEQ")]
    pub(crate) to: Option<u64>,
}

/// Where the prompt comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PromptSource<'a> {
    /// The command line.
    Given(&'a str),
    /// Standard input.
    Stdin,
}

/// Which session to work on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionChoice<'a> {
    /// A new one.
    New,
    /// The newest of the directory.
    Last,
    /// The one whose id has this part.
    Id(&'a str),
}

impl ExecArguments {
    /// Where the prompt comes from.
    pub(crate) fn prompt(&self) -> PromptSource<'_> {
        match self.prompt.as_deref() {
            None | Some("-") => PromptSource::Stdin,
            Some(prompt) => PromptSource::Given(prompt),
        }
    }

    /// Which session to work on.
    pub(crate) fn session(&self) -> SessionChoice<'_> {
        match (&self.session, self.last) {
            (Some(id), _) => SessionChoice::Id(id),
            (None, true) => SessionChoice::Last,
            (None, false) => SessionChoice::New,
        }
    }

    /// What overrides the configuration.
    pub(crate) fn overrides(&self) -> Overrides {
        Overrides {
            model: self.model.clone(),
            approve: self.approve,
            max_steps: self.max_steps,
            effort: self.effort.clone(),
        }
    }
}

/// Reads a command line, the program's name first.
///
/// An error is what to print, and how to end: `--help` and `--version` are such errors too.
pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Command, clap::Error> {
    Arguments::try_parse_from(arguments)?
        .command
        .ok_or_else(|| Arguments::command().error(ErrorKind::MissingSubcommand, NO_INTERFACE))
}

const NO_INTERFACE: &str = "the terminal interface is not built yet\n\n  \
    do one turn without it:  mainstay exec \"fix the failing test\"\n  \
    see what it is about:    mainstay demo";

const EXAMPLES: &str = "\
Examples:
  mainstay demo                               see it work: no key, no network
  mainstay exec \"fix the failing test\"        one turn in this directory
  mainstay exec --last \"now add a changelog\"  continue where that ended
  mainstay plan                               the plan of the newest session here

Configuration is read from ~/.config/mainstay/config.toml; docs/configuration.md has every key.";

const EXEC_EXAMPLES: &str = "\
Examples:
  mainstay exec \"fix the failing test\"
  mainstay exec --model ollama/qwen3-coder --approve all \"run the tests and fix what fails\"
  git diff | mainstay exec -                    the prompt from stdin
  mainstay exec --last \"go on\"                  also after a crash: nothing is lost
  mainstay exec --require-plan=5 \"…\"            go on while plan items are unfinished
  mainstay exec --json \"…\" | jq -c .            what happens, for programs

Commands of the model need an enforced sandbox or --approve all; this version has no sandbox.

Exit codes: 0 done, 1 failed, 2 usage, 3 plan unfinished, 4 limit reached, 65 session damaged,
69 provider unavailable, 75 try again, 77 credentials, 78 configuration, 130 interrupted,
143 terminated.";

const PLAN_EXAMPLES: &str = "\
Examples:
  mainstay plan                 of the newest session of this directory
  mainstay plan 3f2a --json     of the session whose id has 3f2a in it
  mainstay plan --markdown      to paste into an issue";

const HISTORY_EXAMPLES: &str = "\
Examples:
  mainstay history 3f2a         the conversation as the model sees it
  mainstay history --cache      what each request shared with the one before, and why not all
  mainstay history --cache --json | jq .totals";

const COMPACT_EXAMPLES: &str = "\
Sessions are compacted by themselves when the window fills. The plan is kept in any case.

Examples:
  mainstay compact 3f2a                          now
  mainstay compact 3f2a \"keep the error texts\"   with a word on what to keep
  mainstay compact 3f2a --undo                   the whole conversation back";

const UNDO_EXAMPLES: &str = "\
Only changes by `write` and `edit` can be taken back, and only while the files still are what was written.

Examples:
  mainstay undo 3f2a            the changes of the last turn that changed files
  mainstay undo 3f2a --to 41    everything behind entry 41 (`mainstay history --json` shows the entries)";

#[cfg(test)]
mod tests;
