//! The `bash` tool: one command in the workspace, to its end, or as a background job.
//!
//! The call returns when the shell ends, not when the last holder of its output does; what the command left running is
//! ended then. Nobody is there to be asked: no terminal, no input, no pager, no editor. Output is kept at both ends and
//! shown without what would steer a terminal; the whole of a long one is in the session's spill.

mod asked;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use mainstay_session::message::ToolSpec;

use crate::jobs::Waited;
use crate::looking_on::LookingOn;
use crate::output::{Capture, Captured};
use crate::sandbox::{Fate, Signs, said_of};
use crate::supervisor::{Cut, Exit, Finished, Run, RunError, Supervisor};
use crate::tool::{CallContext, Tool, ToolError, ToolKind, ToolOutput};
use asked::{Asked, What, decode};

/// How long the end of a job that was told to end is waited for.
const STOPPING: Duration = Duration::from_secs(10);

/// What git says of the editor that commands have.
const NO_EDITOR: &str = "problem with the editor 'false'";

/// Runs commands.
#[derive(Debug)]
pub struct Bash {
    supervisor: Arc<Supervisor>,
}

impl Bash {
    /// A tool that runs its commands under this supervisor.
    pub fn new(supervisor: Arc<Supervisor>) -> Self {
        Bash { supervisor }
    }

    async fn run_command(
        &self,
        command: &str,
        asked: &Asked,
        context: &CallContext,
    ) -> Result<ToolOutput, ToolError> {
        let run = in_workspace(command, context)?;
        let mut capture = Capture::new(context.spill.clone());
        let timeout = Duration::from_millis(asked.timeout_ms);
        let intent = |process| (context.intent)(process);
        let looking_on = LookingOn::new(context.on_output.clone());
        let output = |bytes: &[u8]| {
            capture.push(bytes);
            looking_on.push(bytes);
        };
        let finished = tokio::select! {
            finished = self.supervisor.run(run, timeout, intent, output) => finished,
            never = looking_on.tell() => match never {},
        };
        let captured = ended(capture, context.max_result_bytes).await;
        match finished {
            Ok(finished) => {
                let mut notes = refused(&finished);
                let has_failed = finished.exit != Exit::Code(0) && finished.cut.is_none();
                notes.extend((has_failed && captured.text.contains(NO_EDITOR)).then(|| {
                    "commands have no editor: give the text with `-m` or `-F`, or put `GIT_EDITOR=true` before git to \
                     take it as it is"
                        .to_owned()
                }));
                let signs = Signs {
                    printed: captured.text.clone(),
                    has_failed,
                    tried_network: finished.tried_network,
                };
                notes.extend(self.supervisor.blame(run.cwd, signs).await);
                told(asked, &finished, captured, notes)
            }
            Err(error @ RunError::Lost(_)) => Err(ToolError {
                content: content(&captured, Vec::new()),
                ..ToolError::from(error.to_string())
            }),
            Err(error) => Err(ToolError::from(error.to_string())),
        }
    }

    async fn start_job(&self, command: &str, context: &CallContext) -> Result<ToolOutput, ToolError> {
        let run = in_workspace(command, context)?;
        let intent = |process| (context.intent)(process);
        let started = context.jobs.start(&self.supervisor, run, intent).await;
        let started = started.map_err(|error| ToolError::from(error.to_string()))?;
        let content = format!(
            "Its output goes to {}, which you can read. You will be told when it ends.",
            started.path.display()
        );
        Ok(ToolOutput {
            summary: format!("{} started (process {})", started.name, started.pid),
            content: Some(content),
            ..ToolOutput::default()
        })
    }
}

impl Tool for Bash {
    fn spec(&self) -> ToolSpec {
        crate::spec("bash", include_str!("prompts/bash.md"), include_str!("prompts/bash.json"))
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Command
    }

    fn run<'a>(
        &'a self,
        arguments: &'a str,
        context: &'a CallContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let asked = decode(arguments)?;
            let time = Duration::from_millis(asked.timeout_ms);
            let done = match &asked.what {
                // Its notes stand between its output and what else is said of it.
                What::Run(command) => return self.run_command(command, &asked, context).await,
                What::Start(command) => self.start_job(command, context).await,
                What::List => {
                    let (summary, content) = context.jobs.list();
                    Ok(ToolOutput { summary, content, ..ToolOutput::default() })
                }
                What::Wait(number) => wait(*number, time, context).await,
                What::Stop(number) => stop(*number, context).await,
            };
            done.map(|output| ToolOutput { content: with_notes(output.content, &asked.notes), ..output })
        })
    }
}

fn in_workspace<'a>(command: &'a str, context: &'a CallContext) -> Result<Run<'a>, ToolError> {
    if !context.workspace.is_dir() {
        let gone = format!("the workspace {} is gone, so nothing can run in it", context.workspace.display());
        return Err(ToolError::from(gone));
    }
    Ok(Run { command, cwd: &context.workspace, cancel: &context.cancel })
}

async fn wait(number: u32, time: Duration, context: &CallContext) -> Result<ToolOutput, ToolError> {
    let waited = context.jobs.wait(number, time, &context.cancel).await;
    match waited.map_err(|error| ToolError::from(error.to_string()))? {
        Waited::Ended(how) => Ok(ToolOutput::from(format!("job-{number} {how}"))),
        Waited::Running => {
            Ok(ToolOutput::from(format!("job-{number} is still running after {} ms", time.as_millis())))
        }
        Waited::Cancelled => {
            Err(ToolError::from(format!("cancelled while it waited; job-{number} goes on by itself")))
        }
    }
}

async fn stop(number: u32, context: &CallContext) -> Result<ToolOutput, ToolError> {
    let no_such = |error: crate::jobs::NoSuchJob| ToolError::from(error.to_string());
    context.jobs.stop(number).map_err(no_such)?;
    match context.jobs.wait(number, STOPPING, &context.cancel).await.map_err(no_such)? {
        Waited::Ended(how) => Ok(ToolOutput::from(format!("job-{number} {how}"))),
        Waited::Running => {
            Err(ToolError::from(format!("job-{number} was told to end and has not ended yet")))
        }
        Waited::Cancelled => Err(ToolError::from(format!("cancelled; job-{number} was told to end"))),
    }
}

/// Ends the capturing of an output, where what that takes holds up nobody.
async fn ended(capture: Capture, max: usize) -> Captured {
    if !capture.is_long() {
        return capture.end(max);
    }
    match tokio::task::spawn_blocking(move || capture.end(max)).await {
        Ok(captured) => captured,
        Err(error) => Captured { text: format!("[the output is lost: {error}]"), is_damaged: false },
    }
}

/// What the supervisor knows to have been refused, whatever the exit code says.
fn refused(finished: &Finished) -> Vec<String> {
    finished.asides.iter().map(|aside| format!("sandbox: {}", said_of(aside, "command"))).collect()
}

/// What the model reads of a command that ended.
fn told(
    asked: &Asked,
    finished: &Finished,
    captured: Captured,
    of_sandbox: Vec<String>,
) -> Result<ToolOutput, ToolError> {
    let mut notes = asked.notes.clone();
    let left = finished.left.saturating_sub(finished.stuck);
    if left > 0 {
        let processes = processes(left);
        notes.push(format!(
            "{processes} that the command left running ended with it; `background: true` keeps a command running"
        ));
    }
    if finished.stuck > 0 {
        notes.push(format!("{} that the command left running could not be ended", processes(finished.stuck)));
    }
    notes.extend(of_sandbox);
    let content = content(&captured, notes);
    // In the summary, which the user sees as well.
    let aside = match finished.asides.as_slice() {
        [] => "",
        asides if asides.iter().any(|aside| matches!(aside.fate, Fate::Stuck(_))) => {
            "; it made a protected place, which could not be moved aside"
        }
        asides if asides.iter().any(|aside| aside.fate == Fate::Unseen) => {
            "; a protected place cannot be looked at as a whole since"
        }
        _ => "; it made a protected place, which was moved aside",
    };
    let (summary, exit_code) = match (finished.cut, finished.exit) {
        (Some(Cut::Timeout), _) => {
            (format!("timed out after {} ms and was ended; {}", asked.timeout_ms, advice(asked)), None)
        }
        (Some(Cut::Cancelled), _) => ("cancelled, and ended; it may have run in part".to_owned(), None),
        (None, Exit::Signal(signal)) => (format!("killed by signal {signal}"), Some(128 + signal)),
        (None, Exit::Code(0)) => {
            let summary = if content.is_some() { "exit code 0" } else { "exit code 0, no output" };
            return Ok(ToolOutput {
                summary: format!("{summary}{aside}"),
                content,
                exit_code: Some(0),
                ..ToolOutput::default()
            });
        }
        (None, Exit::Code(code)) => (format!("exit code {code}"), Some(code)),
    };
    Err(ToolError { summary: format!("{summary}{aside}"), content, exit_code })
}

/// What to do about a time that was too short.
fn advice(asked: &Asked) -> &'static str {
    match asked.timeout_ms {
        ..1_000 => "timeout_ms is in milliseconds; raise it",
        asked::LONGEST_TIMEOUT_MS.. => "for longer ones there is `background: true`",
        _ => "raise timeout_ms if it needs longer",
    }
}

fn processes(number: u32) -> String {
    if number == 1 { "1 process".to_owned() } else { format!("{number} processes") }
}

fn content(captured: &Captured, mut notes: Vec<String>) -> Option<String> {
    if captured.is_damaged {
        notes.insert(0, "some bytes of the output are not UTF-8 and are shown as U+FFFD".to_owned());
    }
    let text = captured.text.trim_end();
    with_notes((!text.is_empty()).then(|| text.to_owned()), &notes)
}

fn with_notes(text: Option<String>, notes: &[String]) -> Option<String> {
    let mut parts: Vec<String> = text.into_iter().collect();
    parts.extend(notes.iter().map(|note| format!("[{note}]")));
    (!parts.is_empty()).then(|| parts.join("\n"))
}
