//! The arguments of a tool call: from the raw string a model wrote to the object a tool reads.
//!
//! The raw string is what is kept; these functions only read it. Nothing is ever repaired here except escapes of lone
//! surrogates, which no provider accepts and no Rust string can hold: a call whose arguments do not parse does not run.

use std::borrow::Cow;

use serde::de::IgnoredAny;
use serde_json::Value;

/// How much of unreadable arguments an error quotes, in characters.
const SNIPPET: usize = 120;

/// Reads a call's arguments as a JSON object.
///
/// Absent arguments (nothing, white space or `null`) are the empty object. Anything else that is not exactly one JSON
/// object is an error whose text quotes the beginning of what came, for the model to read.
pub fn parse_arguments(raw: &str) -> Result<Value, String> {
    if is_absent(raw) {
        return Ok(Value::Object(serde_json::Map::new()));
    }
    match serde_json::from_str(&clean_surrogates(raw)) {
        Ok(Value::Object(object)) => Ok(Value::Object(object)),
        Ok(other) => {
            Err(format!("the arguments are {}, not a JSON object: {}", kind_of(&other), snippet(raw)))
        }
        Err(error) => Err(format!("the arguments are not valid JSON ({error}): {}", snippet(raw))),
    }
}

/// The arguments as the JSON text of an object, for a tool to read: what came, save for lone surrogates.
///
/// # Errors
///
/// As [`parse_arguments`].
pub fn object_text(raw: &str) -> Result<Cow<'_, str>, String> {
    parse_arguments(raw)?;
    Ok(if is_absent(raw) { Cow::Borrowed("{}") } else { clean_surrogates(raw) })
}

/// The arguments as JSON text that is certainly an object, for sending a call back to a provider.
///
/// Text that is an object stays byte for byte what it is, save for lone surrogates; anything else becomes `{}`.
pub fn object_or_empty(raw: &str) -> Cow<'_, str> {
    let clean = clean_surrogates(raw);
    let is_object = clean.trim_start().starts_with('{') && serde_json::from_str::<IgnoredAny>(&clean).is_ok();
    if is_object { clean } else { Cow::Borrowed("{}") }
}

/// Replaces escapes of lone surrogates in JSON text by the escape of U+FFFD; proper pairs stay.
///
/// Copies nothing where there is nothing to replace. The text keeps its length, so that positions stay true.
pub fn clean_surrogates(json: &str) -> Cow<'_, str> {
    if !json.contains("\\ud") && !json.contains("\\uD") {
        return Cow::Borrowed(json);
    }
    let bytes = json.as_bytes();
    let mut clean: Option<String> = None;
    let mut copied = 0;
    let mut at = 0;
    while let Some(offset) = bytes.get(at..).and_then(|rest| rest.iter().position(|&b| b == b'\\')) {
        at += offset;
        match surrogate_at(bytes, at) {
            Some(Surrogate::High) if surrogate_at(bytes, at + 6) == Some(Surrogate::Low) => at += 12,
            Some(Surrogate::High | Surrogate::Low) => {
                let text = clean.get_or_insert_with(|| String::with_capacity(json.len()));
                text.push_str(&json[copied..at]);
                text.push_str("\\ufffd");
                at += 6;
                copied = at;
            }
            None => at += 2,
        }
    }
    match clean {
        Some(mut text) => {
            text.push_str(&json[copied..]);
            Cow::Owned(text)
        }
        None => Cow::Borrowed(json),
    }
}

#[derive(PartialEq, Eq)]
enum Surrogate {
    High,
    Low,
}

/// Which half of a surrogate pair is escaped at this place, if any.
fn surrogate_at(bytes: &[u8], at: usize) -> Option<Surrogate> {
    let escape = bytes.get(at..at + 6)?;
    let is_surrogate = escape.starts_with(b"\\u")
        && escape[2].eq_ignore_ascii_case(&b'd')
        && escape[4..].iter().all(u8::is_ascii_hexdigit);
    if !is_surrogate {
        return None;
    }
    match escape[3] {
        b'8' | b'9' | b'a' | b'b' | b'A' | b'B' => Some(Surrogate::High),
        b'c'..=b'f' | b'C'..=b'F' => Some(Surrogate::Low),
        _ => None,
    }
}

fn is_absent(raw: &str) -> bool {
    matches!(raw.trim(), "" | "null")
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

fn snippet(raw: &str) -> String {
    match raw.char_indices().nth(SNIPPET) {
        Some((end, _)) => format!("`{}…`", &raw[..end]),
        None => format!("`{raw}`"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// W06, H14: what means "no arguments" is the empty object.
    #[test]
    fn absent_arguments_are_the_empty_object() {
        for raw in ["", " \n\t", "null", " null ", "{}", " { } "] {
            assert_eq!(parse_arguments(raw), Ok(json!({})), "{raw:?}");
        }
    }

    /// W06, H02, H14: everything else that is no object is refused with a snippet of it.
    #[test]
    fn what_is_no_object_is_refused_and_quoted() {
        for raw in [
            "[]",
            "[{}]",
            "\"{}\"",
            "7",
            "true",
            "{\"path\":\"a\"",
            "{path:'a'}",
            "{\"a\":1}{\"b\":2}",
            "nul",
        ] {
            let error = parse_arguments(raw).unwrap_err();
            assert!(error.contains(raw), "{error}");
            assert_eq!(object_or_empty(raw), "{}", "{raw:?}");
        }
        let long = format!("{{\"content\":\"{}", "ä".repeat(5_000));
        assert!(parse_arguments(&long).unwrap_err().len() < 500);
    }

    /// D07: what goes back to a provider is the raw text where it is an object, else `{}`.
    #[test]
    fn an_object_goes_back_byte_for_byte() {
        for raw in ["{\"b\": 1.10,\n \"a\":1,\"a\":2}", " {\"n\":123456789012345678901234567890}", "{}"] {
            assert_eq!(object_or_empty(raw), raw);
        }
        assert_eq!(object_or_empty(""), "{}");
        assert_eq!(object_or_empty("null"), "{}");
    }

    /// D17: a lone surrogate becomes U+FFFD, a pair stays, and an escaped backslash before `ud99c` is no escape.
    #[test]
    fn lone_surrogates_are_replaced_and_pairs_stay() {
        for (raw, clean) in [
            (r#"{"q":"\ud99c"}"#, r#"{"q":"\ufffd"}"#),
            (r#"{"q":"\uDC00x\uD800"}"#, r#"{"q":"\ufffdx\ufffd"}"#),
            (r#"{"q":"\ud83d\ude00"}"#, r#"{"q":"\ud83d\ude00"}"#),
            (r#"{"q":"\ud83d\ud83d\ude00"}"#, r#"{"q":"\ufffd\ud83d\ude00"}"#),
            (r#"{"q":"\\ud99c"}"#, r#"{"q":"\\ud99c"}"#),
            (r#"{"q":"\ud7ff\ue000"}"#, r#"{"q":"\ud7ff\ue000"}"#),
        ] {
            assert_eq!(clean_surrogates(raw), clean);
            assert_eq!(object_or_empty(raw), clean);
            assert!(parse_arguments(raw).is_ok(), "{raw}");
        }
        assert!(matches!(clean_surrogates(r#"{"q":"\\ud99c"}"#), Cow::Borrowed(_)));
    }

    proptest! {
        #[test]
        fn cleaning_never_panics_and_keeps_the_length(text in "(\\\\|u|d|D|8|9|c|\"|\\{|ä){0,40}") {
            prop_assert_eq!(clean_surrogates(&text).len(), text.len());
        }

        #[test]
        fn what_goes_back_is_always_an_object(text in "\\PC{0,40}") {
            prop_assert!(parse_arguments(&object_or_empty(&text)).is_ok());
        }
    }
}
