//! The history of a segment as one document: what `history.json` holds and `get_history` answers.
//!
//! It is the conversation exactly as requests hold it, notices and reminders included, with the plan beside it.

use serde::{Deserialize, Serialize};

use crate::conversation::Item;
use crate::ids::{Seq, SessionId};
use crate::message::Image;
use crate::plan::Plan;
use crate::request::{Block, Message, Picture, request};
use crate::state::SessionState;

/// The version of the document's form.
pub const HISTORY_SCHEMA: u32 = 1;

/// The history of the current segment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// The version of the document's form.
    pub schema: u32,
    /// Whose history it is.
    pub session: Option<SessionId>,
    /// Which segment.
    pub segment: u32,
    /// The last entry it takes in.
    pub last_seq: Seq,
    /// Which model answers.
    pub model: Option<String>,
    /// The plan in view.
    pub plan: Plan,
    /// Whether the plan was handed on by a compaction and the model has not written it since.
    pub carried: bool,
    /// The system text.
    pub system: String,
    /// The names of the tools on offer.
    pub tools: Vec<String>,
    /// The conversation.
    pub messages: Vec<HistoryMessage>,
}

/// One piece of the conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum HistoryMessage {
    /// Text in the user's role: the world, a prompt, a notice.
    User {
        /// The exact text.
        text: String,
        /// Images behind the text.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        images: Vec<Image>,
    },
    /// An answer.
    Assistant {
        /// Which model made it.
        model: String,
        /// Its text.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        text: String,
        /// Its reasoning, where it can be read.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reasoning: String,
        /// Its calls.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<HistoryCall>,
    },
    /// The result of a call.
    Tool {
        /// The provider's id of the call.
        call_id: String,
        /// The tool's name.
        name: String,
        /// What the model reads.
        text: String,
        /// Images behind the text.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        images: Vec<Image>,
        /// Whether the call failed, was denied or interrupted.
        is_error: bool,
        /// Whether the call has no result yet: it runs, or what ran it has ended. No model is ever sent this.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_open: bool,
    },
}

/// A call as the history shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryCall {
    /// The provider's id of the call.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The arguments as JSON text.
    pub arguments: String,
}

impl History {
    /// The history that a state holds.
    pub fn of(state: &SessionState) -> Self {
        let request = request(state);
        History {
            schema: HISTORY_SCHEMA,
            session: state.header.as_ref().map(|header| header.session.clone()),
            segment: state.header.as_ref().map_or(0, |header| header.segment),
            last_seq: state.last_seq,
            model: state.model.as_ref().map(|choice| choice.model.clone()),
            plan: state.plan.plan.clone(),
            carried: state.plan.carried,
            system: request.system.to_owned(),
            tools: request.tools.iter().map(|tool| tool.name.clone()).collect(),
            messages: messages(state, &request.messages),
        }
    }
}

/// The messages of a request. Its results are those of all calls, in order.
fn messages(state: &SessionState, messages: &[Message<'_>]) -> Vec<HistoryMessage> {
    let steps = state.history.iter().filter_map(Item::as_step);
    let mut open = steps.flat_map(|step| step.results.iter().map(Option::is_none));
    messages.iter().map(|message| HistoryMessage::of(message, &mut open)).collect()
}

fn images(pictures: &[Picture<'_>]) -> Vec<Image> {
    pictures.iter().map(|picture| picture.image.clone()).collect()
}

impl HistoryMessage {
    fn of(message: &Message<'_>, mut open: impl Iterator<Item = bool>) -> Self {
        match message {
            Message::User { text, pictures } => {
                HistoryMessage::User { text: text.to_string(), images: images(pictures) }
            }
            Message::Answer { model, blocks } => HistoryMessage::assistant(model, blocks),
            Message::Result { id, name, text, pictures, is_error, .. } => HistoryMessage::Tool {
                call_id: (*id).to_owned(),
                name: (*name).to_owned(),
                text: text.to_string(),
                images: images(pictures),
                is_error: *is_error,
                is_open: open.next().unwrap_or(false),
            },
        }
    }

    fn assistant(model: &str, blocks: &[Block<'_>]) -> Self {
        let (mut all_text, mut all_reasoning, mut tool_calls) = (String::new(), String::new(), Vec::new());
        for block in blocks {
            match block {
                Block::Text(text) => all_text.push_str(text),
                Block::Reasoning { text, .. } => all_reasoning.push_str(text),
                Block::Call { id, name, arguments, .. } => tool_calls.push(HistoryCall {
                    id: (*id).to_owned(),
                    name: (*name).to_owned(),
                    arguments: arguments.to_string(),
                }),
                Block::Opaque(_) => {}
            }
        }
        HistoryMessage::Assistant {
            model: model.to_owned(),
            text: all_text,
            reasoning: all_reasoning,
            tool_calls,
        }
    }
}
