//! Reads a line of which one text is nearly all.
//!
//! serde_json unescapes a text into a buffer of its own and copies it from there, so that such a line would be in memory
//! three times. Here the text is unescaped where it will stay. It is read so only where it is a field of the entry
//! itself, the line is as compact as this crate writes it, and nothing else about it is unusual; any other line is left to
//! the ordinary way, which also says what is wrong with a bad one.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::parse;
use crate::entry::{Body, Entry};
use crate::message::ToolResult;

/// From how many bytes a text is a long one.
const LONG: usize = 1 << 20;

/// The longest escape: a pair of surrogates.
const ESCAPE: usize = "\\ud83d\\ude00".len();

/// Reads the text of a line; none if it is to be read the ordinary way.
pub(super) fn parse_long(text: &str) -> Option<Entry> {
    if text.len() < LONG {
        return None;
    }
    let fields: BTreeMap<&str, &RawValue> = serde_json::from_str(text).ok()?;
    // Had it a field twice, white space or an escape in a name, it would have another length.
    let length: usize =
        fields.iter().map(|(name, value)| name.len() + value.get().len() + "\"\":,".len()).sum();
    let (name, long) = fields.iter().max_by_key(|(_, value)| value.get().len())?;
    let raw = long.get().strip_prefix('"')?.strip_suffix('"')?;
    if length + 1 != text.len() || raw.len() < LONG {
        return None;
    }
    let mut entry = parse(&without(text, raw)?).ok()?;
    *text_of(&mut entry.body, name)? = unescape(raw)?;
    Some(entry)
}

/// The line with an empty text in the place of a long one.
fn without(text: &str, raw: &str) -> Option<String> {
    let start = (raw.as_ptr() as usize).checked_sub(text.as_ptr() as usize)?;
    Some([text.get(..start)?, text.get(start + raw.len()..)?].concat())
}

/// The text that stands in a field of an entry.
fn text_of<'a>(body: &'a mut Body, field: &str) -> Option<&'a mut String> {
    let (name, text) = match body {
        Body::ToolResult(ToolResult { summary, .. }) if field == "summary" => ("summary", summary),
        Body::ToolResult(ToolResult { content, .. }) => ("content", content.as_mut()?),
        Body::UserPrompt(prompt) => ("text", &mut prompt.text),
        Body::Notice(notice) => ("text", &mut notice.text),
        Body::Inbox(message) => ("text", &mut message.text),
        // Their texts are short, or stand further in.
        Body::Session(_)
        | Body::World(_)
        | Body::Checkpoint(_)
        | Body::Model(_)
        | Body::Answer(_)
        | Body::ToolIntent(_)
        | Body::Grant(_)
        | Body::Compaction(_)
        | Body::Rewind(_)
        | Body::ReasoningRefused(_)
        | Body::TurnEnd(_)
        | Body::Lost(_)
        | Body::Unknown(_) => return None,
    };
    (name == field).then_some(text)
}

/// Reads what stands between the quotes of a JSON string that is known to be one.
fn unescape(raw: &str) -> Option<String> {
    let mut text = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(at) = rest.find('\\') {
        text.push_str(&rest[..at]);
        rest = &rest[at..];
        let plain = match rest.as_bytes().get(1)? {
            b'n' => '\n',
            b't' => '\t',
            b'r' => '\r',
            b'"' => '"',
            b'\\' => '\\',
            b'/' => '/',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            _ => {
                let length = if rest.len() >= ESCAPE && is_pair(rest) { ESCAPE } else { ESCAPE / 2 };
                text.push_str(&serde_json::from_str::<String>(&format!("\"{}\"", rest.get(..length)?)).ok()?);
                rest = &rest[length..];
                continue;
            }
        };
        text.push(plain);
        rest = &rest[2..];
    }
    text.push_str(rest);
    Some(text)
}

/// Whether an escape is the first half of a pair of surrogates.
fn is_pair(escape: &str) -> bool {
    let digits = escape.get(2..4).unwrap_or_default();
    matches!(digits.to_ascii_lowercase().as_str(), "d8" | "d9" | "da" | "db")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A line whose longest field is this one, the text of which is made long by what stands behind `raw`.
    fn line(kind: &str, field: &str, raw: &str) -> String {
        let rest = match (kind, field) {
            ("tool_result", "content") => r#","summary":"s""#,
            ("notice", _) => r#","about":{"notice":"reminder"}"#,
            ("inbox", _) => r#","id":"1","wake":true"#,
            _ => "",
        };
        let long = "a line of text\\n".repeat(LONG / 16 + 1);
        format!(
            r#"{{"seq":7,"ts":"2026-11-30T09:00:00Z","kind":"{kind}","{field}":"{raw}{long}"{rest},"crc":"00000000"}}"#
        )
    }

    /// D08: a long text reads as it does the ordinary way, whatever is escaped in it.
    #[test]
    fn a_long_text_reads_as_any_other() {
        let raw = r#"\"\\\/\b\f\n\r\t\u00e4\uD83D\ude00ä\u0000\ufffd"#;
        for (kind, field) in [
            ("tool_result", "content"),
            ("tool_result", "summary"),
            ("user_prompt", "text"),
            ("notice", "text"),
            ("inbox", "text"),
        ] {
            let line = line(kind, field, raw);
            let entry = parse(&line).unwrap();
            assert!(parse_long(&line).as_ref() == Some(&entry), "{kind}.{field}");
        }
    }

    /// What is unusual is left to the ordinary way.
    #[test]
    fn what_is_unusual_is_not_read_so() {
        let whole = line("tool_result", "content", "");
        for line in [
            whole.replacen("\"seq\":7", "\"seq\": 7", 1),
            whole.replacen("\"seq\":7", "\"seq\":7,\"seq\":7", 1),
            whole.replacen("\"seq\":7", "\"\\u0073eq\":7", 1),
            whole.replacen("\"content\"", "\"elsewhere\"", 1),
            whole.replacen("\"kind\":\"tool_result\"", "\"kind\":\"unheard_of\"", 1),
            whole.replacen("\"seq\":7", "\"seq\":-7", 1),
            whole[..whole.len() - 1].to_owned(),
            r#"{"seq":7}"#.to_owned(),
        ] {
            assert!(parse_long(&line).is_none(), "{}", &line[..90.min(line.len())]);
        }
    }

    proptest! {
        #[test]
        fn a_text_unescapes_as_serde_does(text in "\\PC*[\\x00-\\x1f\"\\\\/\u{1F600}]*\\PC*") {
            let json = serde_json::to_string(&text).unwrap();
            prop_assert_eq!(unescape(&json[1..json.len() - 1]), Some(text));
        }
    }
}
