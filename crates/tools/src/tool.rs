//! The seam between the loop and a tool.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use mainstay_session::log::Spill;
use mainstay_session::message::{ContentHash, FileChange, Image, ReferencedFile, ToolSpec};
use mainstay_session::plan::{Plan, PlanInView};
use tokio_util::sync::CancellationToken;

use crate::jobs::Jobs;
use crate::supervisor::StartedProcess;

/// The most bytes that any one result has, whatever the model's window.
pub const RESULT_BYTES: usize = 50 * 1024;

/// A tool that the model may call.
pub trait Tool: Send + Sync {
    /// The tool as the model is told of it. The same bytes at every call.
    fn spec(&self) -> ToolSpec;

    /// What a call of it may do. The same at every call.
    fn kind(&self) -> ToolKind {
        ToolKind::Other
    }

    /// Runs one call. `arguments` is the JSON text of an object.
    ///
    /// A failure is an `Err` whose text helps the model to do better; it never ends the turn. Must not panic. When
    /// `context.cancel` fires it returns soon, having left nothing behind.
    fn run<'a>(
        &'a self,
        arguments: &'a str,
        context: &'a CallContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>>;
}

/// What a call of a tool may do: decides what runs in parallel and what needs permission.
///
/// A call is judged by its arguments: one of [`ToolKind::Read`] and [`ToolKind::Edit`] by the path in `path` (the
/// workspace, where there is none), one of [`ToolKind::Command`] by the command line in `command`. So a tool of these kinds
/// takes its argument by that name. That a path stays in the workspace is the tool's own matter:
/// [`CallContext::path_to_read`] and [`CallContext::path_to_change`] see to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ToolKind {
    /// It only reads. Adjacent calls of such tools run in parallel; every other call is a barrier.
    Read,
    /// It changes files in the workspace.
    Edit,
    /// It runs commands.
    Command,
    /// It writes the session plan.
    Plan,
    /// Whatever an embedding program made it for. It is asked about where all that changes something is, and by rules.
    Other,
}

/// Looks up the hash of a file's bytes as the model knows them, by resolved path.
pub type Seen = Arc<dyn Fn(&Path) -> Option<ContentHash> + Send + Sync>;

/// Hears the end of what a call has printed so far, while it runs: a few lines that steer no terminal, all of them anew
/// each time.
pub type OnOutput = Arc<dyn Fn(&str) + Send + Sync>;

/// What a call is given to work with.
#[derive(Clone)]
pub struct CallContext {
    /// The workspace's directory, absolute and resolved; relative paths start here.
    pub workspace: PathBuf,
    /// Directories outside the workspace that may be read (the session's spill among them).
    pub readable: Vec<PathBuf>,
    /// The plan in view.
    pub plan: PlanInView,
    /// The hash of a file's bytes as the model last read or wrote them, by resolved path.
    pub seen: Seen,
    /// Logs that a command is about to run. The command must not do anything before this returned `Ok`; after `Err` it
    /// must never run.
    pub intent: Arc<dyn Fn(StartedProcess) -> Result<(), String> + Send + Sync>,
    /// The session's background jobs.
    pub jobs: Arc<Jobs>,
    /// Where long outputs, images and what files held before a change are kept whole.
    pub spill: Spill,
    /// Whether the model looks at images.
    pub takes_images: bool,
    /// The most bytes that a result may have.
    pub max_result_bytes: usize,
    /// Who looks on while the call runs. For the eye alone: what is told here is bounded, comes a few times a second at
    /// most, and is never what the model reads. Must return soon.
    pub on_output: OnOutput,
    /// Fires when the call shall end.
    pub cancel: CancellationToken,
}

/// What a call brought.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolOutput {
    /// What the model reads first: usually one line.
    pub summary: String,
    /// The rest of what the model reads.
    pub content: Option<String>,
    /// Images that the model sees behind the text; their bytes are in the spill.
    pub images: Vec<Image>,
    /// The files the call touched, in order; the last is the most recent.
    pub referenced_files: Vec<ReferencedFile>,
    /// What the call changed in files, in order.
    pub changes: Vec<FileChange>,
    /// The exit code of a command that ran.
    pub exit_code: Option<i32>,
    /// The plan after an accepted write. Only the plan tool sets it; for any other tool it is ignored.
    pub plan: Option<Plan>,
}

impl From<&str> for ToolOutput {
    fn from(summary: &str) -> Self {
        ToolOutput::from(summary.to_owned())
    }
}

impl From<String> for ToolOutput {
    fn from(summary: String) -> Self {
        ToolOutput { summary, ..ToolOutput::default() }
    }
}

/// Why a call failed, for the model to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolError {
    /// What the model reads first: one line that says what happened.
    pub summary: String,
    /// The rest: what came, what was expected, what to do.
    pub content: Option<String>,
    /// The exit code of a command that ran.
    pub exit_code: Option<i32>,
}

impl From<&str> for ToolError {
    fn from(summary: &str) -> Self {
        ToolError::from(summary.to_owned())
    }
}

impl From<std::io::Error> for ToolError {
    fn from(error: std::io::Error) -> Self {
        ToolError::from(error.to_string())
    }
}

impl From<String> for ToolError {
    fn from(summary: String) -> Self {
        ToolError { summary, ..ToolError::default() }
    }
}
