//! Runs one tool call in a workspace and says what it touched.
//!
//! A tool never changes the session's state: the plan in view and the hashes of what was read are handed in, and what
//! it did comes back as a [`ToolOutput`]. It knows neither the model nor other tools.

pub mod tool;

pub mod arguments;
mod text;

mod diff;
mod encoding;
mod place;

mod files;

mod edit;
mod read;
mod write;

pub use edit::Edit;
pub use files::FileMemory;
pub use read::Read;
pub use tool::{CallContext, Seen, StartedProcess, Tool, ToolError, ToolKind, ToolOutput};
pub use write::Write;

use mainstay_session::message::ToolSpec;

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
