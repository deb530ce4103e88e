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
    details: Vec<String>,
}

impl Reasoning {
    /// Keeps a piece of `reasoning_content`, a JSON string.
    pub(super) fn keep_content(&mut self, json: &str) {
        let inner = json.get(1..json.len().saturating_sub(1)).unwrap_or_default();
        self.content.get_or_insert_default().push_str(inner);
    }

    /// Keeps an item of `reasoning_details`. Text that continues the item before becomes part of it.
    pub(super) fn keep_detail(&mut self, json: &str) {
        if let Some(last) = self.details.last_mut()
            && let Some(joined) = joined(last, json)
        {
            *last = joined;
            return;
        }
        self.details.push(json.to_owned());
    }

    /// The block, if there is anything in it.
    pub(super) fn finish(self) -> Option<Content> {
        let mut fields = Vec::new();
        if let Some(content) = self.content {
            fields.push(format!("\"reasoning_content\":\"{content}\""));
        }
        if !self.details.is_empty() {
            fields.push(format!("\"reasoning_details\":[{}]", self.details.join(",")));
        }
        let text = self.text.finish();
        let opaque = (!fields.is_empty()).then(|| format!("{{{}}}", fields.join(",")));
        (!text.is_empty() || opaque.is_some()).then_some(Content::Reasoning { text, opaque })
    }
}

/// Two items as one, where both are text or summary of the same place; what the later one has besides is added.
fn joined(before: &str, after: &str) -> Option<String> {
    let (before, after) = (Fields::of(before)?, Fields::of(after)?);
    let kind = before.text("type")?;
    let name = match kind.as_ref() {
        "reasoning.text" => "text",
        "reasoning.summary" => "summary",
        _ => return None,
    };
    let is_same = after.text("type")? == kind
        && before.get("index") == after.get("index")
        && before.get("signature").is_none();
    if !is_same {
        return None;
    }
    let mut fields = Vec::new();
    for (key, value) in before.iter() {
        let key_json = serde_json::to_string(key).ok()?;
        match (key == name, after.get(key)) {
            (_, Some(later)) if value == "null" => fields.push(format!("{key_json}:{later}")),
            (true, Some(more)) => fields.push(format!("{key_json}:{}", concatenated(value, more)?)),
            _ => fields.push(format!("{key_json}:{value}")),
        }
    }
    for (key, value) in after.iter().filter(|(key, _)| before.iter().all(|(known, _)| known != *key)) {
        fields.push(format!("{}:{value}", serde_json::to_string(key).ok()?));
    }
    Some(format!("{{{}}}", fields.join(",")))
}

/// Two JSON strings as one.
fn concatenated(one: &str, other: &str) -> Option<String> {
    Some(format!("{}{}", one.strip_suffix('"')?, other.strip_prefix('"')?))
}
