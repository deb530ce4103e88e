//! Pieces of JSON that every wire format writes alike.

use std::borrow::Cow;

use serde_json::value::RawValue;

/// A tool's name as strict servers take it back: the model may have written anything.
pub(crate) fn sendable_name(name: &str) -> Cow<'_, str> {
    let is_sendable = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if name.is_empty() {
        return Cow::Borrowed("unnamed");
    }
    if name.len() <= 64 && name.chars().all(is_sendable) {
        return Cow::Borrowed(name);
    }
    Cow::Owned(name.chars().take(64).map(|c| if is_sendable(c) { c } else { '_' }).collect())
}

/// A schema as it is, or the schema of any object where it is no JSON object.
pub(crate) fn schema(text: &str) -> &str {
    match serde_json::from_str::<&RawValue>(text) {
        Ok(schema) if schema.get().starts_with('{') => schema.get(),
        _ => "{\"type\":\"object\",\"properties\":{}}",
    }
}

/// A text as a JSON string.
pub(crate) fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap_or_default()
}
