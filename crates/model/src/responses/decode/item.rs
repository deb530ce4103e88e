//! One item of an answer while it is written, and what becomes of it.
//!
//! | item | becomes |
//! |---|---|
//! | `message` | its text and refusals as one text block; before it an opaque block with all of the item but its content, where encrypted reasoning ties it to itself; where the item only has a phase, with that |
//! | `reasoning` | its summary and text as one reasoning block, with the item itself where it can go back |
//! | `function_call` | a call; beside it, where encrypted reasoning ties it to itself, what else the item has, as its id |
//! | anything else | an opaque block, verbatim |
//!
//! An id that ties nothing never goes back (see `encode/answer.rs`), so it isn't kept.

use mainstay_session::message::{Content, ToolCall};

use crate::decoder::OnDelta;
use crate::model::Delta;
use crate::raw::{self, Fields, Pieces};
use crate::responses::items::{self, Reasoning};

/// What stands between two parts of a reasoning that are shown as one text.
const PART_BREAK: &str = "\n\n";

/// An item, in as far as it has come.
#[derive(Debug, Default)]
pub(super) struct Item {
    index: Option<i64>,
    id: String,
    kind: String,
    name: String,
    call_id: String,
    /// What deltas have brought: text, reasoning or arguments, by the kind of the item.
    streamed: Pieces,
    /// The part that the last delta belonged to.
    part: Option<(Role, i64)>,
    /// The item as its last event holds it, as JSON text.
    whole: Option<String>,
    is_named: bool,
    refused: bool,
}

/// What a piece of an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Text,
    Refusal,
    Summary,
    Reasoning,
    Arguments,
}

impl Role {
    /// What the pieces in events of this type are.
    pub(super) fn of_event(kind: &str) -> Option<Self> {
        let part = kind.strip_prefix("response.")?.strip_suffix(".delta")?;
        match part {
            "output_text" => Some(Role::Text),
            "refusal" => Some(Role::Refusal),
            // Some imitators use the names of an early version of the format.
            "reasoning_summary_text" | "reasoning_summary" => Some(Role::Summary),
            "reasoning_text" | "reasoning" => Some(Role::Reasoning),
            "function_call_arguments" => Some(Role::Arguments),
            _ => None,
        }
    }

    fn kind(self) -> &'static str {
        match self {
            Role::Text | Role::Refusal => "message",
            Role::Summary | Role::Reasoning => "reasoning",
            Role::Arguments => "function_call",
        }
    }
}

impl Item {
    pub(super) fn new(index: Option<i64>) -> Self {
        Item { index, ..Item::default() }
    }

    pub(super) fn index(&self) -> Option<i64> {
        self.index
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Whether the item's last event has come.
    pub(super) fn is_done(&self) -> bool {
        self.whole.is_some()
    }

    /// Whether an item's last event may be about this one: some servers give all items one index.
    pub(super) fn may_be(&self, item: &Fields<'_>) -> bool {
        let is_same = |mine: &str, name: &str| item.text(name).unwrap_or_default() == mine;
        let is_same_kind = is_same(&self.kind, "type");
        match self.whole {
            None => self.kind.is_empty() || is_same_kind,
            Some(_) => is_same_kind && is_same(&self.call_id, "call_id") && is_same(&self.id, "id"),
        }
    }

    /// Takes the item as its first event holds it.
    pub(super) fn begin(&mut self, item: &Fields<'_>, on_delta: &mut OnDelta<'_>) {
        self.read_names(item);
        self.tell_name(on_delta);
    }

    /// Takes a piece and says whether it held anything.
    pub(super) fn piece(&mut self, role: Role, event: &Fields<'_>, on_delta: &mut OnDelta<'_>) -> bool {
        if self.kind.is_empty() {
            role.kind().clone_into(&mut self.kind);
        }
        let piece = event.get("delta").filter(|piece| piece.len() > 2 && piece.starts_with('"'));
        let Some(piece) = piece.filter(|_| !self.is_done() && self.kind == role.kind()) else { return false };
        self.refused |= role == Role::Refusal;
        match role {
            Role::Text | Role::Refusal => on_delta(Delta::Text(self.streamed.push(piece))),
            Role::Summary | Role::Reasoning => {
                self.part_begins(role, event, on_delta);
                on_delta(Delta::Reasoning(self.streamed.push(piece)));
            }
            Role::Arguments => {
                self.streamed.push(piece);
            }
        }
        true
    }

    /// Takes the item as its last event, or the list at the end, holds it. What has not been shown is shown now.
    pub(super) fn finish(&mut self, raw: &str, item: &Fields<'_>, on_delta: &mut OnDelta<'_>) {
        self.read_names(item);
        self.tell_name(on_delta);
        self.whole = Some(raw.to_owned());
        self.refused |=
            item.items("content").into_iter().filter_map(Fields::of).any(|part| is(&part, "refusal"));
        // Deltas may be missing, all or the last ones.
        let rest = |text: &str| text.strip_prefix(self.streamed.as_str()).unwrap_or_default().to_owned();
        match self.kind.as_str() {
            "message" => show(&rest(&message_text(item)), |text| on_delta(Delta::Text(text))),
            "reasoning" => show(&rest(&reasoning_text(item)), |text| on_delta(Delta::Reasoning(text))),
            _ => {}
        }
    }

    /// Whether this is a call of one of our tools.
    pub(super) fn is_call(&self) -> bool {
        self.kind == "function_call"
    }

    /// Whether this is a call that the provider says is not whole.
    pub(super) fn is_cut_call(&self) -> bool {
        let status = self.fields().and_then(|item| item.text("status"));
        self.is_call() && (!self.is_done() || status.as_deref() == Some("incomplete"))
    }

    /// Whether the model declined in this message.
    pub(super) fn is_refusal(&self) -> bool {
        self.kind == "message" && self.refused
    }

    /// Whether the provider waits for something that only a client with other tools can do.
    pub(super) fn awaits_client(&self) -> bool {
        self.fields().is_some_and(|item| items::awaits_client(&item))
    }

    /// Whether this is encrypted reasoning, which the items behind it are tied to.
    pub(super) fn ties(&self) -> bool {
        let item = self.fields().filter(|_| self.kind == "reasoning");
        item.and_then(|item| items::reasoning(&item)) == Some(Reasoning::Tying)
    }

    /// The blocks that the item is; `is_tied` says whether encrypted reasoning stands before it.
    pub(super) fn into_content(self, is_tied: bool) -> Vec<Content> {
        match self.kind.as_str() {
            "message" => self.into_message(is_tied),
            "reasoning" => self.into_reasoning().into_iter().collect(),
            "function_call" => vec![Content::Call(self.into_call(is_tied))],
            _ => self.whole.map(|raw| Content::Opaque { raw }).into_iter().collect(),
        }
    }

    fn into_message(self, is_tied: bool) -> Vec<Content> {
        let (left_out, matter): (&[_], &[_]) = if is_tied {
            (&["content"], &["id", "phase"])
        } else {
            (&["content", "id", "status"], &["phase"])
        };
        let envelope = self.whole.as_deref().and_then(|raw| items::without(raw, left_out, matter));
        let text = self.fields().map(|item| message_text(&item)).filter(|text| !text.is_empty());
        let text = text.unwrap_or_else(|| self.streamed.finish());
        let text = (!text.is_empty()).then_some(Content::Text { text });
        envelope.map(|raw| Content::Opaque { raw }).into_iter().chain(text).collect()
    }

    fn into_reasoning(self) -> Option<Content> {
        let text = self.fields().map(|item| reasoning_text(&item)).filter(|text| !text.is_empty());
        let can_return = self.fields().is_some_and(|item| items::reasoning(&item).is_some());
        let text = text.unwrap_or_else(|| self.streamed.finish());
        let opaque = self.whole.filter(|_| can_return);
        (!text.is_empty() || opaque.is_some()).then_some(Content::Reasoning { text, opaque })
    }

    fn into_call(self, is_tied: bool) -> ToolCall {
        let whole = self.fields().and_then(|item| arguments(&item)).filter(|arguments| !arguments.is_empty());
        let spoken = ["type", "name", "call_id", "arguments"];
        let item = self.whole.as_deref().filter(|_| is_tied);
        ToolCall {
            opaque: item.and_then(|raw| items::without(raw, &spoken, &["id"])),
            arguments: whole.unwrap_or_else(|| self.streamed.finish()),
            id: self.call_id,
            name: self.name,
        }
    }

    fn fields(&self) -> Option<Fields<'_>> {
        Fields::of(self.whole.as_deref()?)
    }

    fn read_names(&mut self, item: &Fields<'_>) {
        for (kept, name) in [
            (&mut self.kind, "type"),
            (&mut self.id, "id"),
            (&mut self.name, "name"),
            (&mut self.call_id, "call_id"),
        ] {
            if let Some(text) = item.text(name).filter(|text| !text.is_empty()) {
                *kept = text.into_owned();
            }
        }
    }

    fn tell_name(&mut self, on_delta: &mut OnDelta<'_>) {
        if self.is_call() && !self.is_named && !self.name.is_empty() {
            self.is_named = true;
            on_delta(Delta::CallStarted(&self.name));
        }
    }

    /// Sets a part of a reasoning off from the one before.
    fn part_begins(&mut self, role: Role, event: &Fields<'_>, on_delta: &mut OnDelta<'_>) {
        let name = if role == Role::Summary { "summary_index" } else { "content_index" };
        let part = Some((role, event.number(name).unwrap_or(0)));
        if self.part.is_some() && self.part != part {
            self.streamed.push_plain(PART_BREAK);
            on_delta(Delta::Reasoning(PART_BREAK));
        }
        self.part = part;
    }
}

fn is(part: &Fields<'_>, kind: &str) -> bool {
    part.text("type").as_deref() == Some(kind)
}

fn show(text: &str, on_text: impl FnOnce(&str)) {
    if !text.is_empty() {
        on_text(text);
    }
}

fn message_text(item: &Fields<'_>) -> String {
    let parts = item.items("content").into_iter().filter_map(Fields::of);
    let text = |part: Fields<'_>| {
        let name = if is(&part, "refusal") { "refusal" } else { "text" };
        part.text(name).map(|text| text.into_owned())
    };
    parts.filter_map(text).collect()
}

fn reasoning_text(item: &Fields<'_>) -> String {
    let parts = item.items("summary").into_iter().chain(item.items("content"));
    let text = |part| Some(Fields::of(part)?.text("text")?.into_owned()).filter(|text| !text.is_empty());
    parts.filter_map(text).collect::<Vec<_>>().join(PART_BREAK)
}

/// The arguments as the raw string; an object in its place is taken as its JSON text.
fn arguments(item: &Fields<'_>) -> Option<String> {
    let json = item.get("arguments")?;
    if json.starts_with(['{', '[']) {
        return Some(json.to_owned());
    }
    raw::text(json).map(|text| text.into_owned())
}
