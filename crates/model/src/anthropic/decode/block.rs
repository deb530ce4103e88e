//! One block of an answer, from its beginning over its pieces to what is kept of it.
//!
//! What goes back to the provider is put together from the JSON as received, never decoded and written anew. A block
//! that got a piece of a kind that is not known cannot be put together, and so is never sent back.

use std::borrow::Cow;

use mainstay_session::arguments::clean_surrogates;
use mainstay_session::message::{Content, ToolCall};

use crate::decoder::{OnDelta, Progress};
use crate::model::Delta;
use crate::raw::{Fields, Pieces};

/// A block that is being written.
#[derive(Debug)]
pub(super) struct Block {
    /// Its index among the answer's blocks, as the provider counts.
    pub(super) index: Option<i64>,
    kind: Kind,
    /// The block as it began, a JSON object.
    start: String,
    /// What is read of a text or of thinking.
    text: Pieces,
    /// The arguments of a call, or of one of the provider's own tools.
    input: Pieces,
    /// What strings of the block grew to: their names, and the inside of JSON strings.
    grown: Vec<(&'static str, String)>,
    citations: Vec<String>,
    is_understood: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Thinking,
    Call,
    /// Hidden thinking, the provider's own tools and their results, and what is not known.
    Native,
}

impl Block {
    /// Begins a block with what its first event holds; none if that is no object.
    pub(super) fn begin(
        index: Option<i64>,
        json: &str,
        on_delta: &mut OnDelta<'_>,
    ) -> Option<(Block, Progress)> {
        let fields = Fields::of(json)?;
        let kind = match fields.text("type").as_deref() {
            Some("text") => Kind::Text,
            Some("thinking") => Kind::Thinking,
            Some("tool_use") => Kind::Call,
            _ => Kind::Native,
        };
        let mut block = Block {
            index,
            kind,
            start: json.to_owned(),
            text: Pieces::default(),
            input: Pieces::default(),
            grown: Vec::new(),
            citations: Vec::new(),
            is_understood: true,
        };
        let brought = match kind {
            Kind::Text => block.show(fields.get("text"), on_delta),
            // Thinking that is not shown begins and then is silent for long, so its beginning is no content yet.
            Kind::Thinking => block.show(fields.get("thinking"), on_delta),
            Kind::Call => {
                on_delta(Delta::CallStarted(&fields.text("name").unwrap_or_default()));
                Progress::Content
            }
            Kind::Native => Progress::Content,
        };
        Some((block, brought))
    }

    /// A block that came in one piece.
    pub(super) fn whole(json: &str, on_delta: &mut OnDelta<'_>) -> Option<Block> {
        let (mut block, _) = Block::begin(None, json, on_delta)?;
        if block.kind == Kind::Call {
            block.input.push_plain(Fields::of(json)?.get("input").unwrap_or_default());
        }
        Some(block)
    }

    /// The block that a piece belongs to whose block never began.
    pub(super) fn of_delta(index: Option<i64>, delta: &Fields<'_>) -> Option<Block> {
        let start = match delta.text("type")?.as_ref() {
            "text_delta" => "{\"type\":\"text\",\"text\":\"\"}",
            "thinking_delta" => "{\"type\":\"thinking\",\"thinking\":\"\"}",
            _ => return None,
        };
        Block::begin(index, start, &mut |_| {}).map(|(block, _)| block)
    }

    /// Whether this event only begins a call once more, of which nothing but its beginning has come: a gateway sent it
    /// twice.
    pub(super) fn is_begun_again(&self, index: Option<i64>, json: &str) -> bool {
        self.kind == Kind::Call && self.input.as_str().is_empty() && self.index == index && self.start == json
    }

    /// Whether a piece can belong to this block.
    pub(super) fn takes(&self, delta: &Fields<'_>) -> bool {
        match delta.text("type").as_deref() {
            Some("text_delta") => matches!(self.kind, Kind::Text | Kind::Native),
            Some("thinking_delta" | "signature_delta") => matches!(self.kind, Kind::Thinking | Kind::Native),
            Some("input_json_delta") => matches!(self.kind, Kind::Call | Kind::Native),
            _ => true,
        }
    }

    /// Takes a piece.
    pub(super) fn add(&mut self, delta: &Fields<'_>, on_delta: &mut OnDelta<'_>) -> Progress {
        match delta.text("type").as_deref() {
            Some("text_delta") if self.kind == Kind::Native => self.grow("text", delta.get("text")),
            Some("text_delta") => self.show(delta.get("text"), on_delta),
            Some("thinking_delta") if self.kind == Kind::Native => {
                self.grow("thinking", delta.get("thinking"))
            }
            Some("thinking_delta") => {
                self.grow("thinking", delta.get("thinking"));
                self.show(delta.get("thinking"), on_delta)
            }
            Some("signature_delta") => self.grow("signature", delta.get("signature")),
            Some("compaction_delta") => self.grow("content", delta.get("content")),
            Some("input_json_delta") => {
                let piece = delta.get("partial_json").unwrap_or_default();
                // A gateway may hand the arguments over as an object.
                if piece.starts_with('"') {
                    self.input.push(piece);
                } else {
                    self.input.push_plain(piece);
                }
                content_if(piece.len() > 2)
            }
            Some("citations_delta") => {
                self.citations.extend(delta.get("citation").map(str::to_owned));
                Progress::Content
            }
            _ => {
                self.is_understood = false;
                Progress::Nothing
            }
        }
    }

    /// What is kept of the block, if there is anything in it.
    pub(super) fn finish(self) -> Option<Content> {
        let start = Fields::of(&self.start)?;
        match self.kind {
            Kind::Text => {
                Some(self.text.finish()).filter(|text| !text.is_empty()).map(|text| Content::Text { text })
            }
            Kind::Thinking => {
                // Without a signature the provider takes no thinking back.
                let opaque = self.json(&start).filter(|json| is_signed(json));
                let text = self.text.finish();
                (opaque.is_some() || !text.is_empty()).then_some(Content::Reasoning { text, opaque })
            }
            Kind::Call => {
                let opaque = call_extras(&start);
                Some(Content::Call(ToolCall {
                    id: start.text("id").unwrap_or_default().into_owned(),
                    name: start.text("name").unwrap_or_default().into_owned(),
                    arguments: arguments(self.input.finish(), &start),
                    opaque,
                }))
            }
            Kind::Native => self.json(&start).map(|raw| Content::Opaque { raw }),
        }
    }

    fn show(&mut self, json: Option<&str>, on_delta: &mut OnDelta<'_>) -> Progress {
        let Some(json) = json.filter(|json| json.len() > 2) else { return Progress::Nothing };
        let piece = self.text.push(json);
        match self.kind {
            Kind::Thinking => on_delta(Delta::Reasoning(piece)),
            Kind::Text | Kind::Call | Kind::Native => on_delta(Delta::Text(piece)),
        }
        Progress::Content
    }

    /// Adds a JSON string to the string of this name.
    fn grow(&mut self, name: &'static str, json: Option<&str>) -> Progress {
        let inside = json.and_then(inside).unwrap_or_default();
        match self.grown.iter_mut().find(|(known, _)| *known == name) {
            Some((_, text)) => text.push_str(inside),
            None => self.grown.push((name, inside.to_owned())),
        }
        content_if(!inside.is_empty())
    }

    /// The whole block as JSON: as it came, with what its pieces added. None if a piece was not understood.
    fn json(&self, start: &Fields<'_>) -> Option<String> {
        if !self.is_understood {
            return None;
        }
        let input = self.input.as_str();
        if self.grown.is_empty() && self.citations.is_empty() && !is_object(input) {
            return Some(clean_surrogates(&self.start).into_owned());
        }
        let mut fields: Vec<(Cow<'_, str>, Cow<'_, str>)> =
            start.iter().map(|(name, value)| (Cow::Borrowed(name), Cow::Borrowed(value))).collect();
        let mut set = |name: &'static str, value: String| match fields.iter_mut().find(|(n, _)| n == name) {
            Some((_, known)) => *known = Cow::Owned(value),
            None => fields.push((Cow::Borrowed(name), Cow::Owned(value))),
        };
        for (name, added) in &self.grown {
            let before = start.get(name).and_then(inside).unwrap_or_default();
            set(name, format!("\"{before}{added}\""));
        }
        if !self.citations.is_empty() {
            set("citations", format!("[{}]", self.citations.join(",")));
        }
        if is_object(input) {
            set("input", input.to_owned());
        }
        let fields: Vec<String> = fields
            .iter()
            .map(|(name, value)| format!("{}:{value}", serde_json::to_string(name).unwrap_or_default()))
            .collect();
        Some(clean_surrogates(&format!("{{{}}}", fields.join(","))).into_owned())
    }
}

/// A call's arguments: what was streamed, else what its first event held where that is more than the usual `{}`.
fn arguments(streamed: String, start: &Fields<'_>) -> String {
    if !streamed.is_empty() {
        return streamed;
    }
    start.get("input").filter(|input| *input != "{}").unwrap_or_default().to_owned()
}

/// What a call has besides id, name and arguments, where it says anything: that the model itself made it goes without
/// saying.
fn call_extras(start: &Fields<'_>) -> Option<String> {
    let is_extra = |(name, value): &(&str, &str)| {
        let is_direct =
            || Fields::of(value).is_some_and(|caller| caller.text("type").as_deref() == Some("direct"));
        match *name {
            "type" | "id" | "name" | "input" => false,
            "caller" => !is_direct(),
            _ => *value != "null",
        }
    };
    let fields: Vec<String> = start
        .iter()
        .filter(is_extra)
        .map(|(name, value)| format!("{}:{value}", serde_json::to_string(name).unwrap_or_default()))
        .collect();
    (!fields.is_empty()).then(|| format!("{{\"tool_use\":{{{}}}}}", fields.join(",")))
}

fn is_signed(thinking: &str) -> bool {
    let signature = Fields::of(thinking).and_then(|fields| Some(!fields.text("signature")?.is_empty()));
    signature.unwrap_or(false)
}

fn is_object(json: &str) -> bool {
    Fields::of(json).is_some()
}

fn inside(json: &str) -> Option<&str> {
    json.strip_prefix('"')?.strip_suffix('"')
}

fn content_if(is_content: bool) -> Progress {
    if is_content { Progress::Content } else { Progress::Nothing }
}
