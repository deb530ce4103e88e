//! Blocks of answers that only their provider understands: which of them may go back.
//!
//! They go back byte for byte or not at all. The kinds are those that an answer of this wire format can hold, so that
//! what the same model said over another one never gets here.

use std::collections::HashSet;

use mainstay_session::request::Block;

use crate::raw::Fields;

/// Whether this is thinking that the provider can verify.
///
/// Thinking goes back with the signature it came with, or hidden as it came
/// (<https://platform.claude.com/docs/en/build-with-claude/extended-thinking#preserving-thinking-blocks>).
pub(super) fn is_thinking(json: &str) -> bool {
    let Some(block) = Fields::of(json) else { return false };
    let is_filled = |name: &str| block.text(name).is_some_and(|text| !text.is_empty());
    match block.text("type").as_deref() {
        Some("thinking") => block.text("thinking").is_some() && is_filled("signature"),
        Some("redacted_thinking") => is_filled("data"),
        _ => false,
    }
}

/// The calls of the provider's own tools, each of which must have its result behind it.
///
/// An answer that was paused ends with one that has none; and where an answer also calls a tool of ours, the result comes
/// with a later answer (<https://platform.claude.com/docs/en/build-with-claude/handling-stop-reasons>).
#[derive(Default)]
pub(super) struct ServerTools {
    /// The calls that were sent and whose results have not been.
    open: HashSet<String>,
    /// The results that the rest of the answer holds.
    results: Vec<String>,
    has_calls: bool,
}

impl ServerTools {
    /// Looks at an answer that is to be written.
    pub(super) fn begin_answer(&mut self, blocks: &[Block<'_>]) {
        self.has_calls = blocks.iter().any(|block| matches!(block, Block::Call { .. }));
        let result = |block: &Block<'_>| match block {
            Block::Opaque(json) => Some(Fields::of(json)?.text("tool_use_id")?.into_owned()),
            Block::Text(_) | Block::Reasoning { .. } | Block::Call { .. } => None,
        };
        self.results = blocks.iter().filter_map(result).collect();
    }

    /// Whether the answer's next such block goes back.
    pub(super) fn returns(&mut self, json: &str) -> bool {
        let Some(block) = Fields::of(json) else { return false };
        let id = |name: &str| block.text(name).unwrap_or_default().into_owned();
        match block.text("type").as_deref() {
            Some("compaction" | "container_upload") => true,
            Some(kind) if kind.ends_with("_tool_use") => {
                let id = id("id");
                let is_answered = self.has_calls || self.results.contains(&id);
                is_answered && block.object("input").is_some() && self.open.insert(id)
            }
            Some(kind) if kind.ends_with("_tool_result") => {
                let id = id("tool_use_id");
                if let Some(place) = self.results.iter().position(|result| *result == id) {
                    self.results.remove(place);
                }
                self.open.remove(&id)
            }
            _ => false,
        }
    }
}
