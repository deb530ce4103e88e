//! A block of reasoning, and the form in which its provider wants it back.
//!
//! `reasoning_content` (DeepSeek, Kimi, GLM, llama.cpp) and `reasoning_details` (OpenRouter, MiniMax) must or may be
//! returned; their JSON is put together from the pieces as received, never decoded and written anew. Other spellings are
//! only shown.

use mainstay_session::message::Content;

use crate::raw::{Fields, Pieces};

/// A block that is being written.
#[derive(Debug, Default)]
pub(super) struct Reasoning {
    /// The readable part.
    pub(super) text: Pieces,
    content: Option<String>,
    details: Vec<Detail>,
}

impl Reasoning {
    /// Keeps a piece of `reasoning_content`, a JSON string.
    pub(super) fn keep_content(&mut self, json: &str) {
        let inner = json.get(1..json.len().saturating_sub(1)).unwrap_or_default();
        self.content.get_or_insert_default().push_str(inner);
    }

    /// Keeps an item of `reasoning_details`. Text that continues the item before becomes part of it.
    pub(super) fn keep_detail(&mut self, json: &str) {
        if self.details.last_mut().is_none_or(|last| last.join(json).is_none()) {
            self.details.push(Detail::Whole(json.to_owned()));
        }
    }

    /// The block, if there is anything in it.
    pub(super) fn finish(self) -> Option<Content> {
        let mut fields = Vec::new();
        if let Some(content) = self.content {
            fields.push(format!("\"reasoning_content\":\"{content}\""));
        }
        if !self.details.is_empty() {
            let details: Vec<String> = self.details.into_iter().map(Detail::finish).collect();
            fields.push(format!("\"reasoning_details\":[{}]", details.join(",")));
        }
        let text = self.text.finish();
        let opaque = (!fields.is_empty()).then(|| format!("{{{}}}", fields.join(",")));
        (!text.is_empty() || opaque.is_some()).then_some(Content::Reasoning { text, opaque })
    }
}

/// An item of `reasoning_details`.
#[derive(Debug)]
enum Detail {
    /// As received.
    Whole(String),
    /// Put together from pieces.
    Joined(Joined),
}

/// The JSON texts of an item's fields by name. Pieces are added in place, since an item may have very many.
#[derive(Debug)]
struct Joined {
    kind: String,
    /// The field that grows.
    name: &'static str,
    fields: Vec<(String, String)>,
}

impl Detail {
    /// Adds a later item, where both are text or summary of the same place.
    fn join(&mut self, json: &str) -> Option<()> {
        let after = Fields::of(json)?;
        match self {
            Detail::Joined(item) => item.add(&after),
            Detail::Whole(before) => {
                let mut item = Joined::of(&Fields::of(before)?)?;
                item.add(&after)?;
                *self = Detail::Joined(item);
                Some(())
            }
        }
    }

    fn finish(self) -> String {
        match self {
            Detail::Whole(json) => json,
            Detail::Joined(item) => {
                let field = |(name, value): &(String, String)| {
                    Some(format!("{}:{value}", serde_json::to_string(name).ok()?))
                };
                let fields: Vec<String> = item.fields.iter().filter_map(field).collect();
                format!("{{{}}}", fields.join(","))
            }
        }
    }
}

impl Joined {
    fn of(item: &Fields<'_>) -> Option<Self> {
        let kind = item.text("type")?.into_owned();
        let name = match kind.as_str() {
            "reasoning.text" => "text",
            "reasoning.summary" => "summary",
            _ => return None,
        };
        let fields = item.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Some(Joined { kind, name, fields })
    }

    fn get(&self, name: &str) -> Option<&str> {
        let (_, value) = self.fields.iter().find(|(known, _)| known == name)?;
        (value != "null").then_some(value)
    }

    /// Adds a piece, if it is one of this item: what both have grows or stays, what only the piece has is added.
    fn add(&mut self, piece: &Fields<'_>) -> Option<()> {
        let is_text = |json: Option<&str>| json.is_none_or(|json| json.starts_with('"'));
        let is_same = piece.text("type")? == self.kind.as_str()
            && self.get("index") == piece.get("index")
            && self.get("signature").is_none()
            && is_text(self.get(self.name))
            && is_text(piece.get(self.name));
        if !is_same {
            return None;
        }
        for (name, value) in piece.iter() {
            match self.fields.iter_mut().find(|(known, _)| known == name) {
                None => self.fields.push((name.to_owned(), value.to_owned())),
                Some((_, before)) if before == "null" => value.clone_into(before),
                Some((_, before)) if name == self.name && value != "null" => {
                    before.pop();
                    before.push_str(&value[1..]);
                }
                Some(_) => {}
            }
        }
        Some(())
    }
}
