//! What was said in a session, from its first prompt on.
//!
//! The state of a session holds the conversation of its current segment, since that is what requests are made of. This is
//! for people: every segment, in the order in which it happened, with what was left behind by going back. Lines that
//! cannot be read are left out.

use std::collections::HashMap;
use std::path::Path;

use super::reading::{ReadError, entries};
use crate::conversation::{Item, Step};
use crate::entry::{Answer, Body, Compaction, Entry, Lane, Rewind};
use crate::ids::Seq;
use crate::message::{Content, Ended, ToolResult};

/// A part of what happened in a session.
#[derive(Clone, Debug, PartialEq)]
pub enum Passage {
    /// Something was said.
    Said(Item),
    /// Room was made, or that was tried.
    Compacted(Compaction),
    /// The session went back; what stands before this is no part of the conversation any more.
    WentBack(Rewind),
}

/// Reads all of a session's conversation. Its cost grows with the session's age.
///
/// # Errors
///
/// If there is no session, or a file cannot be read.
pub fn whole_conversation(dir: &Path) -> Result<Vec<Passage>, ReadError> {
    let mut whole = Whole::default();
    entries(dir, |_, entry| {
        if let Ok(Entry { seq, lane: Lane::Main, body, .. }) = entry {
            whole.take(seq, body);
        }
    })?;
    Ok(whole.passages)
}

#[derive(Default)]
struct Whole {
    passages: Vec<Passage>,
    /// Where each answer stands.
    steps: HashMap<Seq, usize>,
}

impl Whole {
    fn take(&mut self, seq: Seq, body: Body) {
        let passage = match body {
            Body::UserPrompt(prompt) => {
                Passage::Said(Item::Prompt { text: prompt.text, images: prompt.images })
            }
            Body::Notice(notice) => Passage::Said(Item::Notice { text: notice.text }),
            Body::Answer(answer) => match step(seq, answer) {
                Some(step) => {
                    self.steps.insert(seq, self.passages.len());
                    Passage::Said(Item::Step(step))
                }
                None => return,
            },
            Body::ToolResult(result) => match self.answered(result) {
                Some(orphan) => Passage::Said(Item::Orphan(orphan)),
                None => return,
            },
            Body::Compaction(compaction) => Passage::Compacted(compaction),
            Body::Rewind(rewind) => Passage::WentBack(rewind),
            Body::Session(_)
            | Body::World(_)
            | Body::Checkpoint(_)
            | Body::Model(_)
            | Body::ToolIntent(_)
            | Body::Inbox(_)
            | Body::Grant(_)
            | Body::ReasoningRefused(_)
            | Body::TurnEnd(_)
            | Body::Lost(_)
            | Body::Unknown(_) => return,
        };
        self.passages.push(passage);
    }

    /// Puts a result to its call, or gives it back where that is lost. The first result of a call counts.
    fn answered(&mut self, result: ToolResult) -> Option<ToolResult> {
        let step = self.steps.get(&result.answer).and_then(|at| self.passages.get_mut(*at));
        let Some(Passage::Said(Item::Step(step))) = step else { return Some(result) };
        if let Some(slot @ None) = step.results.get_mut(result.call as usize) {
            *slot = Some(result);
        }
        None
    }
}

/// An answer as the conversation has it: of one that the user cancelled its text, of one that failed nothing.
fn step(seq: Seq, answer: Answer) -> Option<Step> {
    let Answer { model, mut content, ended, .. } = answer;
    match ended {
        Ended::Complete => {}
        Ended::Cancelled => content.retain(|block| matches!(block, Content::Text { .. })),
        Ended::Failed { .. } => return None,
    }
    Some(Step::new(seq, model, content))
}
