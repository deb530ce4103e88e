//! The conversation as the fold keeps it: prompts, notices, and answers with the results of their calls.
//!
//! A result stands with its call, by position, so that a request can never separate them.

use serde::{Deserialize, Serialize};

use crate::ids::{CallRef, Seq};
use crate::message::{Content, Image, ToolCall, ToolResult};

/// One piece of the conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "item", rename_all = "snake_case")]
pub enum Item {
    /// What the user said.
    Prompt {
        /// The text as the log has it.
        text: String,
        /// The images behind it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        images: Vec<Image>,
    },
    /// What the runtime added.
    Notice {
        /// The exact text.
        text: String,
    },
    /// An answer with the results of its calls.
    Step(Step),
    /// A result whose call stood on a line that can no longer be read.
    Orphan(ToolResult),
}

/// An answer with the results of its calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The answer's entry.
    pub answer: Seq,
    /// Which model made it.
    pub model: String,
    /// Its blocks.
    pub content: Vec<Content>,
    /// The results by call index; none while a call has not ended.
    pub results: Vec<Option<ToolResult>>,
}

impl Item {
    /// The step, if it is one.
    pub fn as_step(&self) -> Option<&Step> {
        match self {
            Item::Step(step) => Some(step),
            Item::Prompt { .. } | Item::Notice { .. } | Item::Orphan(_) => None,
        }
    }

    /// Whether it holds what only the provider that made it understands: signed thinking, sealed reasoning, signatures.
    pub fn is_bound(&self) -> bool {
        self.as_step().is_some_and(|step| step.content.iter().any(Step::binds))
    }

    /// Leaves out what only the provider that made it understands. The item stays, even if nothing of it is left.
    pub fn unbind(&mut self) {
        let Item::Step(step) = self else { return };
        step.content.retain(|block| matches!(block, Content::Text { .. } | Content::Call(_)));
        for block in &mut step.content {
            if let Content::Call(call) = block {
                call.opaque = None;
            }
        }
    }
}

impl Step {
    fn binds(block: &Content) -> bool {
        match block {
            Content::Text { .. } => false,
            Content::Call(call) => call.opaque.is_some(),
            Content::Reasoning { .. } | Content::Opaque { .. } => true,
        }
    }

    /// A step whose calls have no results yet.
    pub fn new(answer: Seq, model: String, content: Vec<Content>) -> Self {
        let calls = content.iter().filter(|block| matches!(block, Content::Call(_))).count();
        Step { answer, model, content, results: vec![None; calls] }
    }

    /// The calls with their results, in order.
    pub fn calls(&self) -> impl Iterator<Item = (CallRef, &ToolCall, Option<&ToolResult>)> {
        let calls = self.content.iter().filter_map(Content::as_call);
        (0u32..).zip(calls).zip(&self.results).map(|((index, call), result)| {
            (CallRef { answer: self.answer, call: index }, call, result.as_ref())
        })
    }

    /// The text blocks, joined.
    pub fn text(&self) -> String {
        self.content.iter().filter_map(Content::as_text).collect()
    }

    /// The call at a place among the answer's calls.
    pub fn call_at(&self, index: u32) -> Option<&ToolCall> {
        self.calls().find(|(call_ref, ..)| call_ref.call == index).map(|(_, call, _)| call)
    }
}
