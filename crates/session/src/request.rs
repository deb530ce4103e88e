//! From a session's state to the request that follows from it.
//!
//! A pure function: the same state gives the same request, live or resumed. The result is neutral: each provider's
//! encoder in `mainstay-model` decides roles and JSON. What a request says at its start never changes while the
//! session stays in one segment; it only grows at its end.

use std::borrow::Cow;

use crate::message::{RequestMark, ToolSpec};

/// What to ask a model, in the order in which it is told.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// The system text.
    pub system: &'a str,
    /// The tools on offer.
    pub tools: &'a [ToolSpec],
    /// The conversation.
    pub messages: Vec<Message<'a>>,
    /// What was sent for the answer before, if this segment has one.
    pub previous: Option<&'a RequestMark>,
}

/// One piece of the conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// Text that is told in the user's role: the world, a prompt, a notice. Never blank.
    User {
        /// The exact text.
        text: Cow<'a, str>,
    },
    /// An answer of the model, with at least one block. The results of its calls follow it, each call exactly one.
    Answer {
        /// Which model made it, `provider/name`: only the same model gets opaque values back.
        model: &'a str,
        /// Its blocks in order.
        blocks: Vec<Block<'a>>,
    },
    /// The result of a call of the answer before, in the order of the calls.
    Result {
        /// The call's place among the answer's calls.
        call: u32,
        /// The provider's id of the call, as received; may be empty and may repeat.
        id: &'a str,
        /// The name as the model wrote it.
        name: &'a str,
        /// What the model reads. Never blank.
        text: Cow<'a, str>,
        /// Whether the call failed, was denied or interrupted.
        is_error: bool,
    },
}

/// One block of an answer as it is sent back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Block<'a> {
    /// Text, never blank.
    Text(Cow<'a, str>),
    /// Reasoning, with the provider's own block where there is one.
    Reasoning {
        /// The readable part.
        text: &'a str,
        /// The provider's own block as JSON text.
        opaque: Option<&'a str>,
    },
    /// A call.
    Call {
        /// The provider's id, as received.
        id: &'a str,
        /// The name as the model wrote it.
        name: &'a str,
        /// The arguments as JSON text; always an object.
        arguments: Cow<'a, str>,
        /// What the provider wants back with the call, as JSON text.
        opaque: Option<&'a str>,
    },
    /// A block that only its provider understands, as JSON text.
    Opaque(&'a str),
}
