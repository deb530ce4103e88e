//! The `todo_write` tool: the session plan, written as a whole.
//!
//! What a valid plan is, and how it reads, is the session's matter; the loop logs what this tool accepted.

use futures_util::future::BoxFuture;
use mainstay_session::message::ToolSpec;
use mainstay_session::plan::{self, PLAN_TOOL_NAMES};

use crate::tool::{CallContext, Tool, ToolError, ToolKind, ToolOutput};

/// Writes the session plan.
#[derive(Debug, Default)]
pub struct TodoWrite;

impl Tool for TodoWrite {
    fn spec(&self) -> ToolSpec {
        let [name, _also_accepted] = PLAN_TOOL_NAMES;
        crate::spec(name, include_str!("prompts/todo_write.md"), include_str!("prompts/todo_write.json"))
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Plan
    }

    fn run<'a>(
        &'a self,
        arguments: &'a str,
        context: &'a CallContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            match plan::write(&context.plan, arguments) {
                Ok(write) => Ok(ToolOutput {
                    summary: write.summary,
                    content: write.content,
                    plan: Some(write.plan),
                    ..ToolOutput::default()
                }),
                Err(refusal) => Err(refused(&refusal.message)),
            }
        })
    }
}

fn refused(message: &str) -> ToolError {
    let (summary, content) = match message.split_once('\n') {
        Some((first, rest)) => (first, Some(rest.to_owned())),
        None => (message, None),
    };
    ToolError { summary: summary.to_owned(), content, exit_code: None }
}
