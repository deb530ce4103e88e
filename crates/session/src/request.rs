//! From a session's state to the request that follows from it.
//!
//! A pure function: the same state gives the same request, live or resumed. The result is neutral: each provider's
//! encoder in `mainstay-model` decides roles and JSON. What a request says at its start never changes while the
//! session stays in one segment; it only grows at its end.

use std::borrow::Cow;
use std::sync::Arc;

use crate::arguments::{clean_surrogates, object_or_empty};
use crate::conversation::{Item, Step};
use crate::lookalike::{neutralise, neutralise_arguments};
use crate::message::{Content, Image, Outcome, RequestMark, ToolResult, ToolSpec};
use crate::state::SessionState;
use crate::world;

/// What stands in for a result that says nothing.
const EMPTY_RESULT: &str = "(no output)";

/// What stands in for a result that is not there. A request is built only when every call has one; this keeps the
/// projection total.
const NO_RESULT: &str = "(no result)";

/// What introduces a result whose call can no longer be read.
const ORPHAN: &str =
    "The record of the call that this tool result answers was damaged and is lost. The result was:";

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
    /// How many answers of the session are no longer in the conversation.
    pub dropped_answers: u64,
}

/// One piece of the conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// What is told in the user's role: the world, a prompt, a notice. The text is blank only where images stand behind
    /// it.
    User {
        /// The exact text.
        text: Cow<'a, str>,
        /// Images behind the text.
        pictures: Vec<Picture<'a>>,
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
        /// Images behind the text.
        pictures: Vec<Picture<'a>>,
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

/// An image as it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture<'a> {
    /// Which one.
    pub image: &'a Image,
    /// Its bytes in base 64; none if they are not there, or if the request has images enough.
    pub data: Option<Arc<str>>,
}

impl Picture<'_> {
    /// What stands in for an image that cannot be shown.
    pub fn placeholder(&self) -> String {
        let Image { media_type, bytes, .. } = self.image;
        format!(
            "[An image of type {media_type} with {bytes} bytes stands here; it is not shown to this model.]"
        )
    }
}

/// Finds the bytes of an image, in base 64.
pub type Pictures<'a> = dyn Fn(&Image) -> Option<Arc<str>> + 'a;

/// The most bytes that the images of one request have together. Those behind are told of and not shown; since a request
/// only grows, an image once shown stays shown. Gemini takes 20 MB in one request, base 64 makes four bytes of three
/// (<https://ai.google.dev/gemini-api/docs/image-understanding>).
pub const IMAGE_BYTES: u64 = 12 << 20;

/// The request that follows from a state, none of its images shown. Without a world there is no system text and no
/// tool.
pub fn request(state: &SessionState) -> Request<'_> {
    request_with(state, &|_| None)
}

/// The request that follows from a state, with its images.
pub fn request_with<'a>(state: &'a SessionState, pictures: &Pictures<'_>) -> Request<'a> {
    let (system, tools, opening) = match &state.world {
        Some(world) => (world.system.as_str(), world.tools.as_slice(), world::opening(world)),
        None => ("", [].as_slice(), Vec::new()),
    };
    let mut messages: Vec<Message<'_>> = Vec::with_capacity(opening.len() + state.history.len() * 2);
    messages.extend(opening.into_iter().map(|text| told(Cow::Owned(text))));
    let mut gallery = Gallery { pictures, bytes: 0 };
    for item in &state.history {
        project(item, &mut gallery, &mut messages);
    }
    Request {
        system,
        tools,
        messages,
        previous: state.last_request.as_ref(),
        dropped_answers: state.dropped_answers,
    }
}

/// Shows images until the request has enough of them.
struct Gallery<'p> {
    pictures: &'p Pictures<'p>,
    bytes: u64,
}

impl Gallery<'_> {
    fn show<'a>(&mut self, images: &'a [Image]) -> Vec<Picture<'a>> {
        let show = |image: &'a Image| {
            self.bytes = self.bytes.saturating_add(image.bytes);
            let data = (self.bytes <= IMAGE_BYTES).then(|| (self.pictures)(image)).flatten();
            Picture { image, data }
        };
        images.iter().map(show).collect()
    }
}

fn told(text: Cow<'_, str>) -> Message<'_> {
    Message::User { text, pictures: Vec::new() }
}

fn project<'a>(item: &'a Item, gallery: &mut Gallery<'_>, messages: &mut Vec<Message<'a>>) {
    match item {
        Item::Prompt { text, images } if images.is_empty() => push_user(neutralise(text), messages),
        Item::Prompt { text, images } => {
            messages.push(Message::User { text: neutralise(text), pictures: gallery.show(images) });
        }
        Item::Notice { text } => push_user(Cow::Borrowed(text), messages),
        Item::Step(step) => project_step(step, gallery, messages),
        Item::Orphan(result) => {
            push_user(Cow::Borrowed(ORPHAN), messages);
            push_user(Cow::Owned(neutralise(&result.text()).into_owned()), messages);
        }
    }
}

fn push_user<'a>(text: Cow<'a, str>, messages: &mut Vec<Message<'a>>) {
    if !text.trim().is_empty() {
        messages.push(told(text));
    }
}

fn project_step<'a>(step: &'a Step, gallery: &mut Gallery<'_>, messages: &mut Vec<Message<'a>>) {
    let blocks: Vec<Block<'a>> = step.content.iter().filter_map(block).collect();
    if blocks.is_empty() {
        return;
    }
    messages.push(Message::Answer { model: &step.model, blocks });
    for (call_ref, call, result) in step.calls() {
        messages.push(Message::Result {
            call: call_ref.call,
            id: &call.id,
            name: &call.name,
            text: result.map_or(Cow::Borrowed(NO_RESULT), result_text),
            pictures: result.map(|result| gallery.show(&result.images)).unwrap_or_default(),
            is_error: result.is_none_or(|result| result.outcome != Outcome::Ok),
        });
    }
}

fn block(content: &Content) -> Option<Block<'_>> {
    match content {
        Content::Text { text } if text.trim().is_empty() => None,
        Content::Text { text } => Some(Block::Text(neutralise(text))),
        Content::Reasoning { text, opaque } => {
            let opaque = opaque.as_deref().filter(|raw| is_sendable(raw));
            let is_filled = opaque.is_some() || !text.trim().is_empty();
            is_filled.then_some(Block::Reasoning { text, opaque })
        }
        Content::Call(call) => Some(Block::Call {
            id: &call.id,
            name: &call.name,
            arguments: sent_arguments(&call.arguments),
            opaque: call.opaque.as_deref().filter(|raw| is_sendable(raw)),
        }),
        Content::Opaque { raw } => is_sendable(raw).then_some(Block::Opaque(raw)),
    }
}

/// Whether an opaque value can go back as it is: no provider takes half of a surrogate pair, also from itself, and what
/// goes back altered is refused.
fn is_sendable(raw: &str) -> bool {
    matches!(clean_surrogates(raw), Cow::Borrowed(_))
}

/// The arguments as they are sent back: the bytes the model wrote, unless they are no object or imitate the runtime.
fn sent_arguments(raw: &str) -> Cow<'_, str> {
    match object_or_empty(raw) {
        Cow::Borrowed(text) => neutralise_arguments(text),
        Cow::Owned(text) => Cow::Owned(neutralise_arguments(&text).into_owned()),
    }
}

fn result_text(result: &ToolResult) -> Cow<'_, str> {
    let text = match &result.content {
        None => Cow::Borrowed(result.summary.as_str()),
        Some(_) => Cow::Owned(result.text()),
    };
    if text.trim().is_empty() {
        return Cow::Borrowed(EMPTY_RESULT);
    }
    match text {
        Cow::Borrowed(text) => neutralise(text),
        Cow::Owned(text) => Cow::Owned(neutralise(&text).into_owned()),
    }
}
