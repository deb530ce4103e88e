//! Tool arguments as models write them: almost always the JSON text of an object, but never taken for granted.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::de::IgnoredAny;
use serde_json::Value;

/// How much of an unreadable text is quoted back, in characters.
const QUOTED: usize = 120;

/// Reads arguments. Nothing, blank text and `null` mean an empty object.
///
/// # Errors
///
/// Says what came instead of an object, quoting its beginning.
pub fn parse_arguments(raw: &str) -> Result<Value, String> {
    let text = replace_lone_surrogates(raw);
    let text = text.trim();
    if text.is_empty() {
        return Ok(Value::Object(serde_json::Map::new()));
    }
    match serde_json::from_str(text) {
        Ok(Value::Null) => Ok(Value::Object(serde_json::Map::new())),
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(other) => Err(format!("expected a JSON object, got {}: {}", kind(&other), quoted(text))),
        Err(error) => {
            Err(format!("expected a JSON object, got text that is not JSON ({error}): {}", quoted(text)))
        }
    }
}

/// The JSON text of the object that a tool is given: the text itself, with nothing in it that a parser refuses.
///
/// # Errors
///
/// As [`parse_arguments`].
pub fn object_text(raw: &str) -> Result<Cow<'_, str>, String> {
    let value = parse_arguments(raw)?;
    let is_empty = value.as_object().is_none_or(serde_json::Map::is_empty);
    Ok(if is_empty { Cow::Borrowed("{}") } else { replace_lone_surrogates(raw) })
}

/// The text itself if it is the JSON text of an object, byte for byte; else an empty object.
///
/// What is sent back to a provider goes through here, since some refuse anything that is not an object.
pub fn object_or_empty(raw: &str) -> Cow<'_, str> {
    let text = replace_lone_surrogates(raw);
    match serde_json::from_str::<BTreeMap<String, IgnoredAny>>(&text) {
        Ok(_) => text,
        Err(_not_an_object) => Cow::Borrowed("{}"),
    }
}

/// Replaces every escape of half a surrogate pair in JSON text by that of U+FFFD; pairs stay.
///
/// Such escapes come from providers that cut text between two UTF-16 units, and no JSON parser for UTF-8 takes them.
pub fn replace_lone_surrogates(json: &str) -> Cow<'_, str> {
    // Nearly all text has no surrogate escape at all, in either case of its letters.
    let bytes = json.as_bytes();
    let may_have = bytes.windows(3).any(|w| w[0] == b'\\' && w[1] == b'u' && (w[2] | 0x20) == b'd');
    if !may_have {
        return Cow::Borrowed(json);
    }
    let mut clean = String::with_capacity(json.len());
    let mut copied = 0;
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] != b'\\' {
            at += 1;
            continue;
        }
        let Some(unit) = unit_at(bytes, at) else {
            // Some other escape, whose second byte must not be taken for the start of one.
            at += 2;
            continue;
        };
        let has_other_half = unit_at(bytes, at + 6).is_some_and(|next| (0xdc00..0xe000).contains(&next));
        match unit {
            0xd800..0xdc00 if has_other_half => at += 12,
            0xd800..0xe000 => {
                clean.push_str(&json[copied..at]);
                clean.push_str("\\ufffd");
                at += 6;
                copied = at;
            }
            _ => at += 6,
        }
    }
    if copied == 0 {
        return Cow::Borrowed(json);
    }
    clean.push_str(&json[copied..]);
    Cow::Owned(clean)
}

/// The UTF-16 unit that the six bytes at `at` escape.
fn unit_at(bytes: &[u8], at: usize) -> Option<u32> {
    let escape = bytes.get(at..at + 6)?;
    let digits = std::str::from_utf8(escape.strip_prefix(b"\\u")?).ok()?;
    u32::from_str_radix(digits, 16).ok()
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

fn quoted(text: &str) -> String {
    let short: String = text.chars().take(QUOTED).collect();
    let dots = if text.chars().count() > QUOTED { "…" } else { "" };
    format!("{short:?}{dots}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// D17
    #[test]
    fn half_a_surrogate_pair_becomes_a_replacement_and_a_pair_stays() {
        for (json, clean) in [
            (r#"{"q":"\ud99c"}"#, r#"{"q":"\ufffd"}"#),
            (r#"{"q":"\ud83d\ude00"}"#, r#"{"q":"\ud83d\ude00"}"#),
            (r#"{"q":"\uDC00x\uD800\uD83D\uDE00"}"#, r#"{"q":"\ufffdx\ufffd\uD83D\uDE00"}"#),
            (r#"{"q":"\\ud99c"}"#, r#"{"q":"\\ud99c"}"#),
            (r#"{"q":"\ud99"#, r#"{"q":"\ud99"#),
            (r#"é\u00e9\ud800"#, r#"é\u00e9\ufffd"#),
        ] {
            assert_eq!(replace_lone_surrogates(json), clean, "{json}");
        }
    }

    /// H14, W06
    #[test]
    fn nothing_means_an_empty_object_and_anything_else_must_be_one() {
        for raw in ["", " \n", "null", "{}"] {
            assert_eq!(parse_arguments(raw), Ok(serde_json::json!({})), "{raw:?}");
            assert_eq!(object_or_empty(raw), "{}", "{raw:?}");
        }
        for raw in ["[]", "\"text\"", "1", "{\"path\":\"a\"", "{path:'a'}", "{\"a\":1}{\"b\":2}"] {
            assert!(parse_arguments(raw).is_err(), "{raw:?}");
            assert_eq!(object_or_empty(raw), "{}", "{raw:?}");
        }
    }

    #[test]
    fn an_object_is_sent_back_as_it_came() {
        let raw = r#"{ "n": 123456789012345678901234567890, "x": 1.10, "n": 2 }"#;
        assert_eq!(object_or_empty(raw), raw);
    }
}
