//! `mainstay exec`: one headless turn.

mod denials;
mod form;
mod json;
pub(crate) mod text;

use std::fs::{self, File};
use std::io::{self, IsTerminal, stdin, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use mainstay_agent::prices::dollars;
use mainstay_agent::session::entry::StopReason;
use mainstay_agent::session::log::{AppendError, SessionSummary};
use mainstay_agent::session::message::ErrorClass;
use mainstay_agent::session::plan::PlanItemStatus;
use mainstay_agent::tools::bounded;
use mainstay_agent::tools::image::IMAGE_BYTES;
use mainstay_agent::{Agent, Event, Prompt, ResumeError, Resumed, Setup, TurnFailure, TurnReport};

use crate::args::{ExecArguments, PromptSource, SessionChoice};
use crate::choose::{latest, session, settings_of_turns};
use crate::config::places::Surroundings;
use crate::error::{self, CliError, DAMAGED, USAGE};
use crate::history::{cannot_open, warn_of};
use crate::output::{counted, inert, inert_lines, out, say, shortened};
use crate::settings::{ModelConfig, Settings};
use crate::setup::setup;
use crate::signals::{INTERRUPTED, block_on, cancellable};
use denials::Denials;
use form::Form;
use json::Line;

/// Runs one turn and says how it ended.
pub(crate) fn exec(surroundings: &Surroundings, arguments: &ExecArguments) -> Result<ExitCode, CliError> {
    begin(surroundings, arguments).inspect_err(|error| {
        if arguments.json {
            json::write(&Line::Error {
                message: &error.message,
                class: class(error.code),
                retry_after: None,
            });
        }
    })
}

/// Who hears what happens.
type OnEvent = Arc<dyn Fn(&Event) + Send + Sync>;

/// What a turn is to be.
struct Asked {
    form: Option<Form>,
    prompt: Prompt,
    chosen: Option<SessionSummary>,
    settings: Settings,
    setup: Setup,
}

fn asked(
    surroundings: &Surroundings,
    arguments: &ExecArguments,
    heard: impl FnOnce(Option<Form>) -> OnEvent,
) -> Result<Asked, CliError> {
    let form = match &arguments.output_schema {
        Some(file) => Some(Form::open(&surroundings.current_dir.join(file))?),
        None => None,
    };
    let images = images(&surroundings.current_dir, &arguments.image)?;
    let text = prompt(arguments.prompt(), "the prompt")?;
    let prompt = with_images(Prompt::from(text), images)?;
    let chosen = chosen(surroundings, arguments)?;
    let turns = &arguments.turns;
    let settings = settings_of_turns(surroundings, turns, chosen.as_ref(), turns.overrides())?;
    let setup = Setup {
        on_event: heard(form.clone()),
        max_time: arguments.max_time,
        max_cost: arguments.max_cost,
        answer_form: form.as_ref().map(Form::asked),
        ..setup(&settings, arguments.require_plan)?
    };
    check(&setup, &settings, arguments)?;
    Ok(Asked { form, prompt, chosen, settings, setup })
}

fn begin(surroundings: &Surroundings, arguments: &ExecArguments) -> Result<ExitCode, CliError> {
    let target = arguments.output.as_ref().map(|file| surroundings.current_dir.join(file));
    let emptied = |file: &PathBuf| fs::write(file, "").map_err(|error| unwritable(file, &error));
    let signal = Arc::new(AtomicU8::new(0));
    let denials = Denials::default();
    let heard = |form| denials.heard_on(on_event(arguments, form, signal.clone()));
    let asked = asked(surroundings, arguments, heard).inspect_err(|_| {
        // The answer of another run must not be taken for this one's.
        target.iter().filter(|file| file.is_file()).for_each(|file| drop(emptied(file)));
    })?;
    target.as_ref().map(emptied).transpose()?;
    let Asked { form, prompt, chosen, settings, setup } = asked;
    let task = Task { is_json: arguments.json, chosen: chosen.as_ref(), form: form.as_ref(), target };
    let ended = block_on(run(&task, prompt, setup, signal));
    denials.say(settings.config_home.as_deref());
    ended
}

/// `signal` holds the exit code of the signal that cancelled the turn, 0 if none did.
fn on_event(arguments: &ExecArguments, form: Option<Form>, signal: Arc<AtomicU8>) -> OnEvent {
    let with_deltas = arguments.deltas;
    if arguments.json {
        Arc::new(move |event: &Event| {
            text::says_what_is_wrong(event);
            json::show(event, with_deltas, code_of(&signal), form.as_ref());
        })
    } else {
        Arc::new(text::show)
    }
}

fn code_of(signal: &AtomicU8) -> Option<u8> {
    Some(signal.load(Ordering::Relaxed)).filter(|code| *code != 0)
}

/// The files with images, read.
fn images<'a>(directory: &Path, files: &'a [PathBuf]) -> Result<Vec<(&'a Path, Vec<u8>)>, CliError> {
    let read = |file: &'a PathBuf| {
        let wrong = |why: String| CliError::new(USAGE, format!("--image {}: {why}", file.display()));
        let path = directory.join(file);
        let bytes =
            File::open(path).and_then(|file| bounded::up_to(file, IMAGE_BYTES)).map_err(
                |error| match error.kind() {
                    io::ErrorKind::FileTooLarge => {
                        wrong(format!("{error}, which is the most that models take")).hint("make it smaller")
                    }
                    _ => wrong(format!("cannot be read: {error}")).hint("name a PNG, JPEG, GIF or WebP file"),
                },
            )?;
        Ok((file.as_path(), bytes))
    };
    files.iter().map(read).collect()
}

fn with_images(prompt: Prompt, images: Vec<(&Path, Vec<u8>)>) -> Result<Prompt, CliError> {
    images.into_iter().try_fold(prompt, |prompt, (file, bytes)| {
        prompt
            .image(bytes)
            .map_err(|fault| CliError::new(USAGE, format!("--image {}: {fault}", file.display())))
    })
}

/// Whether what the command line asks for can be had of the model.
fn check(setup: &Setup, settings: &Settings, arguments: &ExecArguments) -> Result<(), CliError> {
    let model = setup.model.name();
    let place = || match model.split_once('/') {
        Some((provider, name)) if matches!(settings.model, ModelConfig::Served(_)) => {
            format!("[providers.{provider}.models.{name:?}] of your config.toml")
        }
        _ => "the configuration of a model that a provider serves".to_owned(),
    };
    if !arguments.image.is_empty() && !setup.model.takes_images() {
        let what = format!("--image: {model} is not said to take images");
        return Err(
            CliError::configuration(what).hint(format!("if it does, say `images = true` in {}", place()))
        );
    }
    if arguments.max_cost.is_some() && setup.prices.is_none() {
        let what = format!("--max-cost: what {model} costs is not known");
        let hint = format!(
            "say `input_price` and `output_price`, in US dollars for a million tokens, in {}",
            place()
        );
        return Err(CliError::configuration(what).hint(hint));
    }
    Ok(())
}

fn unwritable(file: &Path, error: &io::Error) -> CliError {
    CliError::new(USAGE, format!("--output {}: cannot be written: {error}", file.display()))
        .hint("nothing was run; name a file in a directory that is there and yours to write")
}

/// The session to go on with, found before anything else, since its directory is where the work is done.
fn chosen(
    surroundings: &Surroundings,
    arguments: &ExecArguments,
) -> Result<Option<SessionSummary>, CliError> {
    let part = match arguments.session() {
        SessionChoice::New => return Ok(None),
        SessionChoice::Last => None,
        SessionChoice::Id(part) => Some(part),
    };
    let workspace = match part {
        Some(_) => surroundings.current_dir.clone(),
        None => surroundings.workspace(arguments.turns.cwd.as_deref())?,
    };
    session(&surroundings.data_home()?, &workspace, part).map(Some)
}

/// The name of an early end, for events.
fn class(code: u8) -> &'static str {
    match code {
        USAGE => "usage",
        DAMAGED => "damaged",
        error::CREDENTIALS => "credentials",
        error::CONFIGURATION => "configuration",
        _ => "failed",
    }
}

/// The exit code of a turn. `signal` is the code of the signal that cancelled it, if one did.
pub(crate) fn exit_code(report: &TurnReport, signal: Option<u8>) -> u8 {
    match report.stop_reason {
        StopReason::EndTurn => 0,
        StopReason::Refusal | StopReason::RepeatedFailure => 1,
        StopReason::PlanUnfinished => 3,
        StopReason::MaxTokens | StopReason::MaxSteps | StopReason::MaxCost | StopReason::MaxTime => 4,
        StopReason::Cancelled => signal.unwrap_or(INTERRUPTED),
        StopReason::Error => report.failure.as_ref().map_or(1, failure_code),
    }
}

/// The exit code of what ended a turn.
pub(crate) fn failure_code(failure: &TurnFailure) -> u8 {
    match failure {
        TurnFailure::Model { class, .. } => match class {
            ErrorClass::Credentials => 77,
            ErrorClass::Rate | ErrorClass::Overload => 75,
            ErrorClass::Network | ErrorClass::CutStream | ErrorClass::Quota => 69,
            ErrorClass::Overflow | ErrorClass::RefusedContent | ErrorClass::BadRequest => 1,
        },
        _ => 1,
    }
}

/// What the user typed or piped in. `what` names it in messages.
///
/// # Errors
///
/// If it is empty (exit code 2), or stdin cannot be read.
pub(crate) fn prompt(source: PromptSource<'_>, what: &str) -> Result<String, CliError> {
    let prompt = match source {
        PromptSource::Given(text) => text.to_owned(),
        PromptSource::Stdin => from_stdin(what)?,
    };
    if prompt.trim().is_empty() {
        return Err(CliError::new(USAGE, format!("{what} is empty")).hint("say it in quotes, or pipe it in"));
    }
    Ok(prompt)
}

/// The longest text that is read from stdin, in bytes.
const LONGEST_TEXT: usize = 64 << 20;

fn from_stdin(what: &str) -> Result<String, CliError> {
    if stdin().is_terminal() {
        say(&format!("reading {what} from the terminal; end it with Ctrl-D"));
    }
    let bytes = bounded::up_to(stdin().lock(), LONGEST_TEXT).map_err(|error| match error.kind() {
        io::ErrorKind::FileTooLarge => CliError::new(USAGE, format!("{what} cannot be taken: {error}"))
            .hint("put it into a file of the workspace, and say where it is"),
        _ => CliError::new(1, format!("cannot read {what}: {error}")),
    })?;
    Ok(String::from_utf8(bytes).unwrap_or_else(|error| {
        say(&format!("warning: {what} has bytes that are not UTF-8; they are replaced by U+FFFD"));
        String::from_utf8_lossy(error.as_bytes()).into_owned()
    }))
}

/// What is to be run, and where its answer goes.
struct Task<'a> {
    is_json: bool,
    chosen: Option<&'a SessionSummary>,
    form: Option<&'a Form>,
    target: Option<PathBuf>,
}

impl Task<'_> {
    /// The answer as it is handed on; none where there is none, or where it has not the form that it must have.
    fn answer(&self, report: &TurnReport) -> Option<String> {
        if report.stop_reason == StopReason::Error || report.text.trim().is_empty() {
            return None;
        }
        match self.form {
            Some(form) => form.document(&report.text).ok().map(|document| document.get().to_owned()),
            None => Some(report.text.clone()),
        }
    }
}

async fn run(
    task: &Task<'_>,
    prompt: Prompt,
    setup: Setup,
    signal: Arc<AtomicU8>,
) -> Result<ExitCode, CliError> {
    // From here on a signal ends the turn in order.
    let (agent, report) = cancellable(signal.clone(), async |cancel| {
        let mut agent = match task.chosen {
            Some(session) => resume(session, setup)?,
            None => create(setup)?,
        };
        if task.is_json {
            started(&agent, task.chosen.is_some());
        }
        let report = agent.run(prompt, cancel).await;
        Ok::<_, CliError>((agent, report))
    })
    .await?;
    let answer = task.answer(&report);
    if let Some(answer) = answer.as_ref().filter(|_| !task.is_json) {
        // What steers a terminal is the user's to see, not the terminal's to obey; a pipe gets the true bytes.
        out(&if stdout().is_terminal() { inert_lines(answer) } else { answer.clone() });
    }
    let is_kept = answer.is_none_or(|answer| keep(task.target.as_deref(), &answer));
    say_end(&agent, &report);
    let code = exit_code(&report, code_of(&signal));
    Ok(ExitCode::from(if is_kept { code } else { code.max(1) }))
}

/// Writes the answer to the file that is to hold it, if there is one; says so and gives false if it cannot be.
fn keep(target: Option<&Path>, answer: &str) -> bool {
    let Some(file) = target else { return true };
    let written = fs::write(file, format!("{answer}\n"));
    if let Err(error) = &written {
        say(&format!("error: the answer could not be written to {}: {error}", file.display()));
        say("  it is in the session: mainstay history");
    }
    written.is_ok()
}

fn create(setup: Setup) -> Result<Agent, CliError> {
    say_if_interrupted(&setup);
    let data_home = setup.data_home.clone();
    Agent::create(setup).map_err(|error| {
        CliError::new(1, error.to_string()).hint(format!(
            "nothing was run; free some space or make {} writable, or set MAINSTAY_HOME to another directory",
            data_home.display()
        ))
    })
}

/// A new session where the last one was interrupted is perhaps not what the user meant.
fn say_if_interrupted(setup: &Setup) {
    if let Some(last) = latest(&setup.data_home, &setup.workspace)
        && last.is_interrupted
    {
        say(&format!(
            "the last session here ({}, plan {}/{}) was interrupted; to go on with it: mainstay exec --last \"…\"",
            last.id.short(),
            last.plan_completed,
            last.plan_total
        ));
    }
}

/// Goes on with a session, and says what was found.
pub(crate) fn resume(chosen: &SessionSummary, setup: Setup) -> Result<Agent, CliError> {
    let id = chosen.id.short();
    if let Some(cwd) = chosen.cwd.as_ref().filter(|cwd| cwd.as_path() != setup.workspace) {
        // Only `--cwd` leads here: without it the work is done where the session worked.
        let (cwd, here) = (inert(&cwd.to_string()), setup.workspace.display());
        say(&format!("session {id} worked in {cwd}; it works in {here} from here on"));
    }
    let (agent, resumed) = Agent::resume(&chosen.dir, setup).map_err(|error| cannot_resume(error, id))?;
    say_resumed(&agent, &resumed, id);
    Ok(agent)
}

fn cannot_resume(error: ResumeError, id: &str) -> CliError {
    match error {
        ResumeError::Open(error) => cannot_open(error, id),
        ResumeError::Append(error @ AppendError::ReadOnly { .. }) => CliError::new(
            DAMAGED,
            format!("session {id}: {error}"),
        )
        .hint("a newer version of mainstay wrote it; go on with that one. `mainstay history` still shows it"),
        ResumeError::Setup(error) => CliError::new(1, error.to_string()),
        ResumeError::Append(error) => CliError::new(1, format!("session {id}: {error}"))
            .hint("nothing was run; free some space, or check the disk and who may write there"),
    }
}

fn say_resumed(agent: &Agent, resumed: &Resumed, id: &str) {
    warn_of(&resumed.damage);
    if let Some(interruption) = resumed.interruption() {
        say(&inert(&format!("session {id} was interrupted{interruption}")));
        let plan = agent.read(|state| state.plan.plan.clone());
        if !plan.items.is_empty() {
            let active = plan.items.iter().find(|item| item.status == PlanItemStatus::InProgress);
            let at = active.map_or(String::new(), |item| format!(", at: {}", inert(&item.content)));
            say(&format!("  plan {}/{}{at}", plan.completed(), plan.items.len()));
        }
        say("  it goes on from its last complete entry; no command was run again");
    }
    for job in &resumed.ended_jobs {
        say(&format!("{} ran then, and ended with it: {}", job.id(), inert(&job.command)));
    }
    for (open, result) in &resumed.closed {
        let call = shortened(&inert(&format!("{} {}", open.call.name, open.call.arguments)), 100);
        let known = result.content.as_deref().unwrap_or_default();
        let what = if open.has_ended { "result lost" } else { "in flight then" };
        say(&format!("{what}: {call}\n  {}", inert(known)));
    }
}

fn started(agent: &Agent, resumed: bool) {
    let (id, segment) = agent.read(|state| {
        let header = state.header.as_ref();
        (
            header.map(|header| header.session.to_string()).unwrap_or_default(),
            header.map_or(0, |header| header.segment),
        )
    });
    json::write(&Line::SessionStarted {
        schema: json::SCHEMA,
        version: env!("CARGO_PKG_VERSION"),
        session_id: &id,
        segment,
        model: agent.setup().model.name(),
        cwd: &agent.setup().workspace.display().to_string(),
        resumed,
    });
}

/// The last line of every run: which session, how far, what it cost, how to go on.
fn say_end(agent: &Agent, report: &TurnReport) {
    if let Some(failure) = &report.failure {
        say(&format!("error: {}", inert(failure.message())));
        hint(failure).into_iter().for_each(|hint| say(&format!("  {hint}")));
    }
    for job in agent.running_jobs() {
        say(&format!("{} is running, and ends now: {}", job.id(), inert(&job.command)));
    }
    let Some(id) = agent.session_id() else { return };
    let (completed, total) = (report.plan.plan.completed(), report.plan.plan.items.len());
    let denied = match report.denied {
        0 => String::new(),
        calls => format!("; {} denied, see below", counted(calls, "call")),
    };
    let usage = report.usage;
    say(&format!(
        "session {}: {}; plan {completed}/{total}; {} tokens in ({} cached), {} out{}{denied}; to go on: mainstay exec --session {} \"…\"",
        id.short(),
        report.stop_reason.as_str(),
        usage.input_tokens,
        usage.cached_tokens,
        usage.output_tokens,
        cost(report),
        id.short(),
    ));
}

/// What the turn cost, and the session if that is more; nothing where it is not known.
fn cost(report: &TurnReport) -> String {
    match (report.cost, report.totals.known_cost()) {
        (Some(turn), Some(all)) if all > turn => format!(", {} ({} in all)", dollars(turn), dollars(all)),
        (Some(turn), _) => format!(", {}", dollars(turn)),
        (None, _) => String::new(),
    }
}

/// The moment after a delay, by the clock of the place.
fn when(delay: Duration) -> String {
    let now = jiff::ZonedDateTime::now();
    match now.checked_add(delay) {
        Ok(then) if then.date() == now.date() => format!("try again at {}", then.strftime("%H:%M:%S")),
        Ok(then) => format!("try again on {}", then.strftime("%Y-%m-%d at %H:%M")),
        Err(_) => "try again much later".to_owned(),
    }
}

fn hint(failure: &TurnFailure) -> Option<String> {
    let text = match failure {
        TurnFailure::Model { class, retry_after, .. } => match class {
            ErrorClass::Credentials => "check the key that `api_key_env` of the provider names".to_owned(),
            ErrorClass::Quota => "the provider says that the account has no credit left".to_owned(),
            ErrorClass::Rate | ErrorClass::Overload => match retry_after {
                Some(delay) => format!(
                    "the provider asks to wait {} s: {}; go on as below then",
                    delay.as_secs_f64().ceil(),
                    when(*delay)
                ),
                None => "try again later; go on as below".to_owned(),
            },
            ErrorClass::Network => {
                "check `base_url` (http or https, host, port) and that the server is running; then go on as below".to_owned()
            }
            ErrorClass::CutStream => "nothing of the cut answer was run; go on as below".to_owned(),
            ErrorClass::Overflow => {
                "the conversation no longer fits the model's window; begin a new session, or take \
                                     a model with a larger `context_window`"
                    .to_owned()
            }
            ErrorClass::RefusedContent | ErrorClass::BadRequest => return None,
        },
        TurnFailure::AnswerForm { .. } => {
            "what it answered is in `mainstay history`; a simpler schema, or a larger model, may help".to_owned()
        }
        TurnFailure::Log { .. } => {
            "what could not be logged was not run; free some space, or check the disk and who may write there".to_owned()
        }
        _ => return None,
    };
    Some(text)
}
