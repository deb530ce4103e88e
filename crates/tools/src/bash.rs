//! The `bash` tool: one command in the workspace, to its end.
//!
//! The call returns when the shell ends, not when the last holder of its output does; what the command left running is
//! ended then. Nobody is there to be asked: no terminal, no input, no pager, no editor. Output is kept at both ends and
//! shown without what would steer a terminal.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use mainstay_session::message::ToolSpec;

use crate::arguments::Arguments;
use crate::supervisor::{Cut, Exit, Finished, Run, Supervisor};
use crate::text::HeadTail;
use crate::tool::{CallContext, Tool, ToolError, ToolKind, ToolOutput};

const SHAPE: &str = r#"{"command": "cargo test", "timeout_ms": milliseconds}"#;
const DEFAULT_TIMEOUT_MS: u64 = 120_000;
const LONGEST_TIMEOUT_MS: u64 = 600_000;

/// The longest command, in bytes: more than this does not fit into one argument of a program.
const LONGEST_COMMAND: usize = 128 * 1024 - 1;

/// The most bytes of either end of an output that are held in memory.
const HELD: usize = 64 << 10;

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
            if !context.workspace.is_dir() {
                let gone = format!(
                    "the workspace {} is gone, so nothing can run in it",
                    context.workspace.display()
                );
                return Err(ToolError::from(gone));
            }
            let mut output = HeadTail::new(HELD);
            let run = Run { command: &asked.command, cwd: &context.workspace, cancel: &context.cancel };
            let intent = |process| (context.intent)(process);
            let timeout = Duration::from_millis(asked.timeout_ms);
            let finished = self.supervisor.run(run, timeout, intent, |bytes| output.push(bytes)).await;
            let finished = finished.map_err(|error| ToolError::from(error.to_string()))?;
            told(&asked, finished, output, context.max_result_bytes)
        })
    }
}

struct Asked {
    command: String,
    timeout_ms: u64,
    notes: Vec<String>,
}

fn decode(arguments: &str) -> Result<Asked, ToolError> {
    let mut arguments = Arguments::parse(arguments)?;
    let command = arguments.text("command", &["cmd", "script"]);
    let timeout = arguments.optional_number("timeout_ms", &[], 1);
    let background = arguments.flag("background", &["run_in_background"]);
    let note = arguments.finish(SHAPE)?;
    if command.trim().is_empty() {
        return Err(ToolError::from("`command` is empty".to_owned()));
    }
    if command.contains('\0') {
        return Err(ToolError::from("`command` holds a NUL character, which no shell takes".to_owned()));
    }
    if command.len() > LONGEST_COMMAND {
        return Err(ToolError::from(format!(
            "`command` has {} bytes, and the longest that can be run has {LONGEST_COMMAND}; write it to a file and run \
             that",
            command.len()
        )));
    }
    if background {
        return Err(ToolError::from(
            "background jobs are not offered; run the command in the foreground, within its timeout"
                .to_owned(),
        ));
    }
    let mut notes: Vec<String> = note.into_iter().collect();
    let timeout_ms = timeout.unwrap_or(DEFAULT_TIMEOUT_MS);
    if timeout_ms > LONGEST_TIMEOUT_MS {
        notes.push(format!(
            "timeout_ms was cut from {timeout_ms} to {LONGEST_TIMEOUT_MS}, the longest allowed"
        ));
    }
    Ok(Asked { command, timeout_ms: timeout_ms.min(LONGEST_TIMEOUT_MS), notes })
}

fn processes(number: u32) -> String {
    if number == 1 { "1 process".to_owned() } else { format!("{number} processes") }
}

/// What the model reads of a command that ended.
fn told(asked: &Asked, finished: Finished, output: HeadTail, max: usize) -> Result<ToolOutput, ToolError> {
    let (text, is_damaged) = output.render(max);
    let mut notes = asked.notes.clone();
    if is_damaged {
        notes.push("some bytes of the output are not UTF-8 and are shown as U+FFFD".to_owned());
    }
    let ended = finished.left.saturating_sub(finished.stuck);
    if ended > 0 {
        notes.push(format!("{} that the command left running ended with it", processes(ended)));
    }
    if finished.stuck > 0 {
        notes.push(format!("{} that the command left running could not be ended", processes(finished.stuck)));
    }
    let mut parts: Vec<String> =
        Some(text.trim_end().to_owned()).filter(|text| !text.is_empty()).into_iter().collect();
    parts.extend(notes.iter().map(|note| format!("[{note}]")));
    let content = Some(parts.join("\n")).filter(|content| !content.is_empty());
    let (summary, exit_code) = match (finished.cut, finished.exit) {
        (Some(Cut::Timeout), _) => (
            format!(
                "timed out after {} ms and was ended; raise timeout_ms if it needs longer",
                asked.timeout_ms
            ),
            None,
        ),
        (Some(Cut::Cancelled), _) => ("cancelled, and ended; it may have run in part".to_owned(), None),
        (None, Exit::Signal(signal)) => (format!("killed by signal {signal}"), Some(128 + signal)),
        (None, Exit::Code(0)) => {
            let summary = if content.is_some() { "exit code 0" } else { "exit code 0, no output" };
            return Ok(ToolOutput {
                summary: summary.to_owned(),
                content,
                exit_code: Some(0),
                ..ToolOutput::default()
            });
        }
        (None, Exit::Code(code)) => (format!("exit code {code}"), Some(code)),
    };
    Err(ToolError { summary, content, exit_code })
}
