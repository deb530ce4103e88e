//! Pieces of JSON that every wire format writes alike.

use std::borrow::Cow;

use serde_json::Value;
use serde_json::value::RawValue;

use crate::settings::ModelSettings;

/// Opens a body: the model, that the answer is to be streamed, and `fields`, each with the comma behind it.
///
/// What the settings say further takes a field's place, and `null` leaves it out; the `reserved` names are the format's own.
pub(crate) fn opening(
    settings: &ModelSettings,
    mut fields: Vec<(String, Option<Value>)>,
    reserved: &[&str],
) -> String {
    for (name, value) in &settings.extra_body {
        if matches!(name.as_str(), "model" | "stream") || reserved.contains(&name.as_str()) {
            continue;
        }
        fields.retain(|(known, _)| known != name);
        fields.push((name.clone(), Some(value.clone()).filter(|value| !value.is_null())));
    }
    let mut body = format!("{{\"model\":{},\"stream\":true,", quoted(&settings.name));
    for (name, value) in fields {
        if let Some(value) = value {
            body.push_str(&format!("{}:{value},", quoted(&name)));
        }
    }
    body
}

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
