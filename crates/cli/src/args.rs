//! What the user typed.
//!
//! Only the shape of the command line is decided here; what it means together with the configuration is
//! [`crate::settings`]'s matter. Every mistake is a [`clap::Error`] with exit code 2, and so are `--help` and
//! `--version` with exit code 0: `main` prints either and ends.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgGroup, CommandFactory, Parser, Subcommand};

use mainstay_agent::prices::UNITS_PER_DOLLAR;

use crate::config::{Approve, ModelName, Overrides, SandboxChoice, defaults};

/// A coding agent whose plan, files and conversation survive every turn, crash and resume
#[derive(Debug, Parser)]
#[command(name = "mainstay", version, max_term_width = 100, after_help = EXAMPLES)]
#[command(args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(flatten)]
    interface: TurnArguments,
    #[command(subcommand)]
    command: Option<Command>,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub(crate) enum Command {
    /// The terminal interface: what no subcommand means.
    #[command(skip)]
    Interface(TurnArguments),
    /// Go on with a session in the terminal interface
    #[command(after_help = RESUME_EXAMPLES)]
    Resume(ResumeArguments),
    /// Do one turn without an interface: the answer on stdout, all else on stderr
    #[command(after_help = EXEC_EXAMPLES)]
    Exec(ExecArguments),
    /// List the sessions, the newest first; search, remove and restore them
    #[command(after_help = SESSIONS_EXAMPLES)]
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
    /// Go back to the end of a turn; what came after is left, not lost
    #[command(after_help = REWIND_EXAMPLES)]
    Rewind(RewindArguments),
    /// Make a session of its own from another, as it is or at the end of a turn
    #[command(after_help = FORK_EXAMPLES)]
    Fork(ForkArguments),
    /// Write a whole session to one file, for another machine or a report
    #[command(after_help = EXPORT_EXAMPLES)]
    Export(ExportArguments),
    /// Take in a session that was exported
    Import(ImportArguments),
    /// Tell a session something from another process; it reads it before its next request
    #[command(after_help = NOTIFY_EXAMPLES)]
    Notify(NotifyArguments),
    /// Say what is damaged in a session, and repair what can be
    #[command(after_help = DOCTOR_EXAMPLES)]
    Doctor(DoctorArguments),
    /// List the models that can be had, with their windows and prices
    #[command(after_help = MODELS_EXAMPLES)]
    Models(ModelsArguments),
    /// Print the completion script of a shell
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions(CompletionsArguments),
    /// Write a manual page for each command
    #[command(after_help = MAN_EXAMPLES)]
    Man(ManArguments),
    /// Watch a scripted session survive a kill -9, without a key and without a network
    Demo,
}

/// How turns are run, in the terminal interface and without it. `mainstay` without a subcommand has no other flags.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub(crate) struct TurnArguments {
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
    /// What holds the commands of the model [default: workspace-write]
    #[arg(long, value_name = "MODE")]
    sandbox: Option<SandboxChoice>,
    /// End a turn after this many steps, a step being one request and the calls it asks for [default: 500]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), allow_negative_numbers = true)]
    max_steps: Option<u32>,
}

impl TurnArguments {
    /// What overrides the configuration.
    pub(crate) fn overrides(&self) -> Overrides {
        Overrides {
            model: self.model.clone(),
            approve: self.approve,
            max_steps: self.max_steps,
            effort: self.effort.clone(),
            sandbox: self.sandbox,
        }
    }

    /// The flags that say what may be done unasked, as they are typed, each with a space before it.
    pub(crate) fn consent(&self) -> String {
        let approve = self.approve.map(|approve| format!(" --approve {}", approve.as_str()));
        let sandbox = self.sandbox.map(|sandbox| format!(" --sandbox {}", sandbox.as_str()));
        approve.into_iter().chain(sandbox).collect()
    }
}

/// `mainstay resume`.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub(crate) struct ResumeArguments {
    /// The session, by any unique part of its id [default: choose from a list]
    #[arg(value_name = "ID")]
    pub(crate) session: Option<String>,
    /// The newest session of this directory
    #[arg(long, conflicts_with = "session")]
    pub(crate) last: bool,
    #[command(flatten)]
    pub(crate) interface: TurnArguments,
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
    #[command(flatten)]
    pub(crate) turns: TurnArguments,
    /// End after the step with which the turn has cost this many US dollars; needs the model's prices
    #[arg(long, value_name = "DOLLARS", value_parser = dollars, allow_negative_numbers = true)]
    pub(crate) max_cost: Option<u64>,
    /// End after this time, such as 90s, 10m or 1h30m; the running step is cancelled
    #[arg(long, value_name = "TIME", value_parser = time, allow_hyphen_values = true)]
    pub(crate) max_time: Option<Duration>,
    /// Go on up to N times while plan items are unfinished, and exit with 3 if they stay so [N: 3]
    #[arg(
        long,
        value_name = "N",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = REQUIRE_PLAN_TIMES
    )]
    pub(crate) require_plan: Option<u32>,
    /// Show the model a PNG, JPEG, GIF or WebP file with the prompt; may be given more than once. Needs a model that
    /// takes images (`images` in the configuration)
    #[arg(long, value_name = "FILE")]
    pub(crate) image: Vec<PathBuf>,
    /// The answer must be a JSON document that fits the JSON Schema in this file
    #[arg(long, value_name = "FILE")]
    pub(crate) output_schema: Option<PathBuf>,
    /// Write the answer to this file too; it is emptied when the turn begins
    #[arg(short = 'o', long = "output", value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// An amount of US dollars as it is typed, in billionths.
fn dollars(text: &str) -> Result<u64, String> {
    let number = text.trim().trim_start_matches('$').parse::<f64>().ok();
    let dollars = number.filter(|dollars| (1e-9..=1e6).contains(dollars));
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in bounds")]
    dollars
        .map(|dollars| (dollars * UNITS_PER_DOLLAR as f64).round() as u64)
        .ok_or_else(|| "must be an amount of US dollars above 0, such as 0.50".to_owned())
}

/// A time as it is typed: seconds, or numbers with the units h, m and s.
fn time(text: &str) -> Result<Duration, String> {
    let wrong = || "must be a time above 0, such as 90s, 10m or 1h30m".to_owned();
    let text = text.trim();
    let seconds = if text.bytes().all(|byte| byte.is_ascii_digit()) {
        text.parse().ok()
    } else {
        text.parse::<jiff::SignedDuration>().ok().and_then(|time| u64::try_from(time.as_secs()).ok())
    };
    let most = 365 * 24 * 60 * 60;
    seconds.filter(|seconds| (1..=most).contains(seconds)).map(Duration::from_secs).ok_or_else(wrong)
}

/// [`defaults::REQUIRE_PLAN`] as it would be typed.
const REQUIRE_PLAN_TIMES: &str = "3";
const _: () = assert!(defaults::REQUIRE_PLAN == 3);

/// `mainstay sessions`.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct SessionsArguments {
    /// Print one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
    /// Only those whose title, prompts or answers hold this, in whatever case
    #[arg(long, value_name = "TEXT")]
    pub(crate) search: Option<String>,
    /// List those in the trash instead
    #[arg(long)]
    pub(crate) trash: bool,
    /// What to do with one.
    #[command(subcommand)]
    pub(crate) action: Option<SessionsAction>,
}

/// What to do with a session.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub(crate) enum SessionsAction {
    /// Move a session to the trash; nothing is deleted
    Rm {
        /// The session, by any unique part of its id
        #[arg(value_name = "ID")]
        session: String,
    },
    /// Bring a session back from the trash
    Restore {
        /// The session, by any unique part of its id
        #[arg(value_name = "ID")]
        session: String,
    },
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
    /// Change nothing, and list what was changed, with the entries of the log
    #[arg(long, conflicts_with = "to")]
    pub(crate) list: bool,
}

/// `mainstay rewind`.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
#[command(group = ArgGroup::new("where").required(true).args(["turn", "undo", "entry"]))]
pub(crate) struct RewindArguments {
    /// The session, by any unique part of its id
    #[arg(value_name = "ID")]
    pub(crate) session: String,
    /// Go back to the end of turn N; 0 is before the first prompt
    #[arg(long, value_name = "N")]
    pub(crate) turn: Option<u64>,
    /// Take the last rewind back
    #[arg(long)]
    pub(crate) undo: bool,
    /// Go to where the session stood at this entry of its log, also of a branch that was left
    #[arg(long, value_name = "SEQ")]
    pub(crate) entry: Option<u64>,
}

/// `mainstay fork`.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub(crate) struct ForkArguments {
    /// The session, by any unique part of its id
    #[arg(value_name = "ID")]
    pub(crate) session: String,
    /// Take it as it was at the end of turn N; 0 is before the first prompt [default: as it is now]
    #[arg(long, value_name = "N")]
    pub(crate) turn: Option<u64>,
}

/// `mainstay export`.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub(crate) struct ExportArguments {
    /// The session, by any unique part of its id
    #[arg(value_name = "ID")]
    pub(crate) session: String,
    /// Where to; `-` is stdout [default: mainstay-ID.jsonl in this directory]
    #[arg(short = 'o', long = "output", value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Replace what looks like a key, a token or a password
    #[arg(long)]
    pub(crate) mask: bool,
}

/// `mainstay import`.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub(crate) struct ImportArguments {
    /// What `mainstay export` wrote; `-` is stdin
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

/// `mainstay doctor`.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub(crate) struct DoctorArguments {
    /// The session, by any unique part of its id [default: the installation itself]
    #[arg(value_name = "ID")]
    pub(crate) session: Option<String>,
    /// Write damaged segments anew; the old files are kept beside them
    #[arg(long, requires = "session")]
    pub(crate) repair: bool,
}

/// `mainstay models`.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub(crate) struct ModelsArguments {
    /// Print one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
    /// The directory whose project's configuration is read too, instead of the current one
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
}

/// `mainstay completions`.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub(crate) struct CompletionsArguments {
    /// Which shell
    #[arg(value_name = "SHELL")]
    pub(crate) shell: clap_complete::Shell,
}

/// `mainstay man`.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub(crate) struct ManArguments {
    /// The directory to write them to; it must be there
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
}

/// `mainstay notify`.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub(crate) struct NotifyArguments {
    /// The session, by any unique part of its id
    #[arg(value_name = "ID")]
    pub(crate) session: String,
    /// What to tell it; `-` reads it from stdin
    #[arg(value_name = "TEXT")]
    text: String,
    /// Do not start a turn for it: it is told with the next one
    #[arg(long)]
    pub(crate) silent: bool,
}

impl NotifyArguments {
    /// Where the text comes from.
    pub(crate) fn text(&self) -> PromptSource<'_> {
        match self.text.as_str() {
            "-" => PromptSource::Stdin,
            text => PromptSource::Given(text),
        }
    }
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
}

/// Reads a command line, the program's name first.
///
/// An error is what to print, and how to end: `--help` and `--version` are such errors too.
pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Command, clap::Error> {
    let Arguments { interface, command } = Arguments::try_parse_from(arguments).map_err(with_a_tip)?;
    Ok(command.unwrap_or(Command::Interface(interface)))
}

/// Says where a text was taken for several arguments, or a prompt for a command.
fn with_a_tip(mut error: clap::Error) -> clap::Error {
    let tip = match error.kind() {
        ErrorKind::UnknownArgument => tip_of_words(&error),
        ErrorKind::InvalidSubcommand => tip_of_exec(&error),
        ErrorKind::ArgumentConflict => tip_of_order(&error),
        _ => None,
    };
    if let Some(tip) = tip {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

fn tip_of_words(error: &clap::Error) -> Option<String> {
    let is_word = matches!(error.get(ContextKind::InvalidArg), Some(ContextValue::String(word)) if !word.starts_with('-'));
    let takes_text = error.get(ContextKind::Usage).is_some_and(|usage| {
        let usage = usage.to_string();
        ["PROMPT", "TEXT", "INSTRUCTIONS"].iter().any(|name| usage.contains(name))
    });
    (is_word && takes_text).then(|| "a text of several words is one argument, in quotes: \"…\"".to_owned())
}

/// Where a flag stands, if it stood before the command that takes it.
fn tip_of_order(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(command)) = error.get(ContextKind::InvalidSubcommand) else { return None };
    Some(format!("what a command takes stands behind it: mainstay {command} …"))
}

/// How a prompt is given, where a word is no command and like none.
fn tip_of_exec(error: &clap::Error) -> Option<String> {
    if error.get(ContextKind::SuggestedSubcommand).is_some() {
        return None;
    }
    let Some(ContextValue::String(text)) = error.get(ContextKind::InvalidSubcommand) else { return None };
    let is_plain = |c: char| !c.is_control() && !"\"\\$`!".contains(c);
    let text = if text.chars().count() <= 60 && text.chars().all(is_plain) { text } else { "…" };
    Some(format!("a prompt is given like this: mainstay exec \"{text}\""))
}

/// The whole command line, for what is made from it.
pub(crate) fn definition() -> clap::Command {
    Arguments::command()
}

const EXAMPLES: &str = "\
Examples:
  mainstay                                    the terminal interface, in this directory
  mainstay resume                             choose a session to go on with
  mainstay demo                               see it work: no key, no network
  mainstay exec \"fix the failing test\"        one turn in this directory
  mainstay exec --last \"now add a changelog\"  continue where that ended
  mainstay plan                               the plan of the newest session here

Configuration is read from ~/.config/mainstay/config.toml; docs/configuration.md has every key.";

const RESUME_EXAMPLES: &str = "\
Examples:
  mainstay resume               choose: those of this directory come first
  mainstay resume --last        the newest of this directory
  mainstay resume 3f2a          the one whose id has 3f2a in it";

const EXEC_EXAMPLES: &str = "\
Examples:
  mainstay exec \"fix the failing test\"
  mainstay exec --model ollama/qwen3-coder \"run the tests and fix what fails\"
  git diff | mainstay exec -                    the prompt from stdin
  mainstay exec --last \"go on\"                  also after a crash: nothing is lost
  mainstay exec --require-plan=5 \"…\"            go on while plan items are unfinished
  mainstay exec --sandbox read-only \"…\"         commands change nothing
  mainstay exec --json \"…\" | jq -c .            what happens, for programs
  mainstay exec --image shot.png \"what is wrong here?\"
  mainstay exec --output-schema form.json -o answer.json \"list the public functions\"
  mainstay exec --max-cost 0.50 --max-time 10m --max-steps 40 \"…\"

With --output-schema the model is asked up to twice to mend an answer that does not fit; if it does not, nothing is \
printed and the exit code is 1. What fits is printed bare, for jq.

Commands of the model run in a sandbox: they change the workspace and nothing else, and reach no
network. Where it cannot be enforced (`mainstay doctor` says), they need --approve all.

Exit codes: 0 done, 1 failed, 2 usage, 3 plan unfinished, 4 limit reached, 65 session damaged, \
69 provider unavailable, 75 try again, 77 credentials, 78 configuration, 130 interrupted, \
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
Sessions are compacted by themselves when the window fills. Its plan goes on in any case, without finished items. Only the last compaction can be undone.

Examples:
  mainstay compact 3f2a                          now
  mainstay compact 3f2a \"keep the error texts\"   with a word on what to keep
  mainstay compact 3f2a --undo                   the whole conversation back";

const UNDO_EXAMPLES: &str = "\
Only changes by `write` and `edit` can be taken back, and only while the files still are what was written. \
Directories that `write` made stay, empty or not.

Examples:
  mainstay undo 3f2a            the changes of the last turn that changed files
  mainstay undo 3f2a --list     what was changed in which turn, and by which entry
  mainstay undo 3f2a --to 41    everything behind entry 41";

const REWIND_EXAMPLES: &str = "\
The conversation, the plan and what the model knows of files go back. Files do not: `mainstay undo` is for them. What \
was used stays counted, permissions stay, and no notification is delivered twice.

Examples:
  mainstay rewind 3f2a --turn 2    the end of turn 2; the next prompt begins another turn 3
  mainstay rewind 3f2a --turn 0    before the first prompt
  mainstay rewind 3f2a --undo      back to where that command was given";

const FORK_EXAMPLES: &str = "\
Nothing of the other session is changed, and a process may work on it meanwhile. Both work in the same directory.

Examples:
  mainstay fork 3f2a             as it is now
  mainstay fork 3f2a --turn 2    as it was at the end of turn 2";

const SESSIONS_EXAMPLES: &str = "\
Examples:
  mainstay sessions --search \"retry loop\"    where that was spoken of
  mainstay sessions rm 3f2a                   to the trash; nothing is deleted, by age or otherwise
  mainstay sessions restore 3f2a              back again";

const EXPORT_EXAMPLES: &str = "\
The file holds prompts, answers, outputs of tools and contents of files. With --mask what looks like a secret is \
replaced; look through it nevertheless before you give it to someone.

Examples:
  mainstay export 3f2a
  mainstay export 3f2a --mask -o report.jsonl
  mainstay export 3f2a -o - | ssh other mainstay import -";

const DOCTOR_EXAMPLES: &str = "\
A repair keeps every good entry and brings nothing back that is lost; what was there before is kept as *.before-repair-N.

Examples:
  mainstay doctor                  what there is: version, directories, sessions
  mainstay doctor 3f2a             what of this session cannot be read, and where
  mainstay doctor 3f2a --repair

Exit codes: 0 nothing is wrong, 1 something is damaged, 65 the session cannot go on.";

const MODELS_EXAMPLES: &str = "\
Prices are US dollars for a million tokens: of a request, of what of it the provider's cache held, of an answer. One that \
is not known is left out; say it with `input_price` and the like in your config.toml.

Servers on this machine are asked for their models; nobody else is.

Examples:
  mainstay models
  mainstay models --json | jq -r .model";

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  mainstay completions bash > ~/.local/share/bash-completion/completions/mainstay
  mainstay completions zsh > ~/.zfunc/_mainstay      with ~/.zfunc in $fpath
  mainstay completions fish > ~/.config/fish/completions/mainstay.fish";

const MAN_EXAMPLES: &str = "\
Examples:
  mkdir -p ~/.local/share/man/man1 && mainstay man ~/.local/share/man/man1
  man mainstay-exec";

const NOTIFY_EXAMPLES: &str = "\
A session that runs is told before its next request, also in the middle of a turn. One that does not is told when it \
goes on. What was taken is never lost and never told twice.

Examples:
  mainstay notify 3f2a \"the build is green\"
  make 2>&1 | tail -50 | mainstay notify 3f2a -
  mainstay notify 3f2a --silent \"the database is back\"";

#[cfg(test)]
mod tests;
