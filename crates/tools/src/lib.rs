//! Runs one tool call in a workspace and says what it touched.
//!
//! A tool never changes the session's state: the plan in view and the hashes of what was read are handed in, and what
//! it did comes back as a [`ToolOutput`]. It knows neither the model nor other tools.

mod text;
mod shown;
mod sys;
mod paths;
pub mod bounded;
pub mod repository;
pub mod sandbox;
mod supervisor;
mod output;
mod looking_on;
mod jobs;

pub mod tool;

pub mod arguments;

mod diff;
mod encoding;
pub mod image;
mod place;

mod files;
pub mod look;
pub mod put_back;

pub mod search;
mod lookup;

mod bash;
mod edit;
mod glob;
mod grep;
mod read;
mod todo_write;
mod write;
pub mod subject;

use std::sync::Arc;

pub use bash::Bash;
pub use edit::Edit;
pub use glob::Glob;
pub use grep::Grep;
pub use jobs::{JobEnd, Jobs, OnEnd};
pub use read::Read;
pub use supervisor::{StartedProcess, Supervisor, supervise_if_asked};
pub use sys::{harden_process, is_running};
pub use todo_write::TodoWrite;
pub use tool::{CallContext, OnOutput, RESULT_BYTES, Seen, Tool, ToolError, ToolKind, ToolOutput};
pub use write::Write;

use mainstay_session::message::ToolSpec;

/// What the built-in tools are made with.
#[derive(Clone, Debug, Default)]
pub struct BuiltinOptions {
    /// Variables that no command may see, by name; those that end in `_API_KEY` are hidden in any case.
    pub hidden_variables: Vec<String>,
    /// The program that supervises commands, if it is not this one; see [`Supervisor::of_program`].
    pub supervisor: Option<std::path::PathBuf>,
    /// What is to hold commands; nothing if it is not said.
    pub sandbox: Option<sandbox::Sandbox>,
}

impl BuiltinOptions {
    /// The supervisor of commands that is meant.
    pub fn to_supervisor(&self) -> Arc<Supervisor> {
        let hidden = self.hidden_variables.clone();
        let supervisor = match &self.supervisor {
            Some(program) => Supervisor::of_program(program.clone(), hidden),
            None => Supervisor::new(hidden),
        };
        Arc::new(supervisor.within(self.sandbox.clone()))
    }
}

/// All built-in tools of one session, in the order in which the model is told of them.
pub fn builtin_tools(options: &BuiltinOptions) -> Vec<Arc<dyn Tool>> {
    builtin_tools_on(options.to_supervisor())
}

/// The same, with commands run by this supervisor.
pub fn builtin_tools_on(supervisor: Arc<Supervisor>) -> Vec<Arc<dyn Tool>> {
    vec![
        Arc::new(Read),
        Arc::new(Write),
        Arc::new(Edit),
        Arc::new(Glob),
        Arc::new(Grep),
        Arc::new(Bash::new(supervisor)),
        Arc::new(TodoWrite),
    ]
}

/// A tool's spec from its files.
fn spec(name: &str, description: &str, schema: &str) -> ToolSpec {
    ToolSpec {
        name: name.to_owned(),
        description: description.trim().to_owned(),
        schema: schema.trim().to_owned(),
    }
}

/// Runs work on files where it does not hold up other calls. It is short, so it runs to its end even if the call is
/// cancelled.
async fn blocking(
    context: &CallContext,
    work: impl FnOnce(CallContext) -> Result<ToolOutput, ToolError> + Send + 'static,
) -> Result<ToolOutput, ToolError> {
    let context = context.clone();
    match tokio::task::spawn_blocking(move || work(context)).await {
        Ok(result) => result,
        Err(error) => Err(ToolError::from(format!("the call could not be finished: {error}"))),
    }
}
