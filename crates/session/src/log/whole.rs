//! What was said in a session, from its first prompt on.
//!
//! The state of a session holds the conversation of its current segment, since that is what requests are made of. This is
//! for people: every segment, in the order in which it happened, with what was left behind by going back. Lines that
//! cannot be read are left out.

use std::collections::VecDeque;
use std::path::Path;

use super::reading::{ReadError, entries};
use crate::conversation::Item;
use crate::entry::{Body, Compaction, Entry, Lane, ModelChoice, Rewind};
use crate::ids::Seq;
use crate::message::ToolResult;

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

/// The conversation of a session, as much of it as was asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WholeConversation {
    /// How many passages came before.
    pub left_out: usize,
    /// The passages, in the order in which they happened.
    pub passages: VecDeque<Passage>,
}

/// Reads a session's conversation from its beginning and gives at most the last `most` passages of it. It holds no more
/// than those in memory at once; the time it takes grows with the session's age.
///
/// # Errors
///
/// If there is no session, or a file cannot be read.
pub fn whole_conversation(dir: &Path, most: usize) -> Result<WholeConversation, ReadError> {
    let mut whole = Whole { most, ..Whole::default() };
    entries(dir, |_, entry| {
        if let Ok(Entry { seq, lane: Lane::Main, body, .. }) = entry {
            whole.take(seq, body);
        }
    })?;
    Ok(whole.conversation)
}

#[derive(Default)]
struct Whole {
    most: usize,
    conversation: WholeConversation,
    /// The model that is asked from here on.
    model: Option<ModelChoice>,
    /// The last answer that is left out.
    last_left_out: Seq,
}

impl Whole {
    fn take(&mut self, seq: Seq, body: Body) {
        let passage = match body {
            Body::UserPrompt(prompt) => {
                Passage::Said(Item::Prompt { text: prompt.text, images: prompt.images })
            }
            Body::Notice(notice) => Passage::Said(Item::Notice { text: notice.text }),
            Body::Answer(answer) => match answer.into_step(seq, self.model.as_ref()) {
                Some(step) => Passage::Said(Item::Step(step)),
                None => return,
            },
            Body::Model(choice) => {
                self.model = Some(choice);
                return;
            }
            Body::ToolResult(result) => match self.answered(result) {
                Some(orphan) => Passage::Said(Item::Orphan(orphan)),
                None => return,
            },
            Body::Compaction(compaction) => Passage::Compacted(compaction),
            Body::Rewind(rewind) => Passage::WentBack(rewind),
            Body::Session(_)
            | Body::World(_)
            | Body::Checkpoint(_)
            | Body::ToolIntent(_)
            | Body::Inbox(_)
            | Body::Grant(_)
            | Body::ReasoningRefused(_)
            | Body::TurnEnd(_)
            | Body::Lost(_)
            | Body::Unknown(_) => return,
        };
        self.conversation.passages.push_back(passage);
        if self.conversation.passages.len() > self.most {
            self.leave_out();
        }
    }

    fn leave_out(&mut self) {
        self.conversation.left_out += 1;
        if let Some(Passage::Said(Item::Step(step))) = self.conversation.passages.pop_front() {
            self.last_left_out = step.answer;
        }
    }

    /// Puts a result to its call, or gives it back where that is lost. The first result of a call counts.
    fn answered(&mut self, result: ToolResult) -> Option<ToolResult> {
        if result.answer <= self.last_left_out {
            return None;
        }
        let steps = self.conversation.passages.iter_mut().rev().filter_map(|passage| match passage {
            Passage::Said(Item::Step(step)) => Some(step),
            Passage::Said(_) | Passage::Compacted(_) | Passage::WentBack(_) => None,
        });
        let mut behind = steps.take_while(|step| step.answer >= result.answer);
        let Some(step) = behind.find(|step| step.answer == result.answer) else { return Some(result) };
        if let Some(slot @ None) = step.results.get_mut(result.call as usize) {
            *slot = Some(result);
        }
        None
    }
}
