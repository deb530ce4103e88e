//! Reads JSON leniently, decoding only what is asked for.
//!
//! Fields keep their bytes as received, so that what a provider wants back can be returned unchanged, and a field of an
//! unexpected type is simply not there instead of failing the whole event. Nothing here recurses.

use std::borrow::Cow;
use std::fmt;

use mainstay_session::arguments::clean_surrogates;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The fields of a JSON object, undecoded.
#[derive(Debug)]
pub(crate) struct Fields<'a>(Vec<(Cow<'a, str>, &'a str)>);

impl<'a> Fields<'a> {
    /// Reads an object; anything else is none.
    pub(crate) fn of(json: &'a str) -> Option<Self> {
        serde_json::from_str(json).ok()
    }

    /// The JSON text of a field; a field that is `null` is not there.
    pub(crate) fn get(&self, name: &str) -> Option<&'a str> {
        let (_, value) = self.0.iter().rev().find(|(key, _)| key == name)?;
        (*value != "null").then_some(*value)
    }

    /// A field that is an object.
    pub(crate) fn object(&self, name: &str) -> Option<Fields<'a>> {
        Fields::of(self.get(name)?)
    }

    /// The items of a field that is an array; none if it is anything else.
    pub(crate) fn items(&self, name: &str) -> Vec<&'a str> {
        self.get(name).map(items).unwrap_or_default()
    }

    /// A field that is a string, decoded.
    pub(crate) fn text(&self, name: &str) -> Option<Cow<'a, str>> {
        text(self.get(name)?)
    }

    /// A field that is a whole number, also when it is written as a float or a string.
    pub(crate) fn number(&self, name: &str) -> Option<i64> {
        let value = self.get(name)?;
        let digits = value.trim_matches('"');
        digits.parse().ok().or_else(|| {
            let float: f64 = digits.parse().ok()?;
            (float.fract() == 0.0 && float.abs() < 9e15).then_some(float as i64)
        })
    }

    /// A field that counts something.
    pub(crate) fn count(&self, name: &str) -> Option<u64> {
        u64::try_from(self.number(name)?).ok()
    }

    /// The error that an object names. Some servers send an empty one along with every piece, which is none.
    pub(crate) fn error(&self) -> Option<&'a str> {
        self.get("error").filter(|error| !matches!(*error, "\"\"" | "{}" | "false" | "[]"))
    }

    /// Whether the object is an error: it names one, it says that it is one, or it is nothing but the fields of one.
    pub(crate) fn is_error(&self) -> bool {
        let is_marked = || ["type", "object"].iter().any(|name| self.text(name).as_deref() == Some("error"));
        let is_bare = || {
            let tells = ["message", "detail"].iter().any(|name| self.get(name).is_some());
            tells && self.iter().all(|(name, _)| ERROR_FIELDS.contains(&name))
        };
        self.error().is_some() || is_marked() || is_bare()
    }

    /// The names and JSON texts of all fields in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &'a str)> {
        self.0.iter().map(|(key, value)| (key.as_ref(), *value))
    }
}

/// What an error has that comes without an envelope.
const ERROR_FIELDS: &[&str] =
    &["message", "detail", "details", "code", "status", "type", "param", "request_id"];

/// The items of an array; none if the text is anything else.
pub(crate) fn items(json: &str) -> Vec<&str> {
    let raw: Vec<&RawValue> = serde_json::from_str(json).unwrap_or_default();
    raw.into_iter().map(RawValue::get).collect()
}

/// Whether this is the JSON text of a string that is not empty.
pub(crate) fn is_filled(json: &str) -> bool {
    json.len() > 2 && json.starts_with('"')
}

/// JSON values one after another: bare, on lines of their own, or the items of an array that may be cut.
///
/// What cannot be read is none, and nothing follows it.
pub(crate) fn values(json: &str) -> impl Iterator<Item = Option<&str>> {
    let mut rest = json;
    std::iter::from_fn(move || {
        rest = rest.trim_start_matches(|c: char| c.is_ascii_whitespace() || matches!(c, '[' | ',' | ']'));
        if rest.is_empty() {
            return None;
        }
        let mut parsed = serde_json::Deserializer::from_str(rest).into_iter::<&RawValue>();
        let value = parsed.next().and_then(Result::ok).map(RawValue::get);
        rest = value.and_then(|_| rest.get(parsed.byte_offset()..)).unwrap_or_default();
        Some(value)
    })
}

/// A JSON string, decoded; lone surrogates become U+FFFD.
pub(crate) fn text(json: &str) -> Option<Cow<'_, str>> {
    #[derive(Deserialize)]
    #[serde(transparent)]
    struct Text<'t>(#[serde(borrow)] Cow<'t, str>);
    match clean_surrogates(json) {
        Cow::Borrowed(json) => serde_json::from_str::<Text<'_>>(json).ok().map(|text| text.0),
        Cow::Owned(json) => serde_json::from_str(&json).ok().map(Cow::Owned),
    }
}

/// A JSON string that arrives in pieces, each a JSON string of its own.
///
/// A surrogate pair may be split over two pieces: a high half at the end of one waits for the next.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    text: String,
    waiting: Option<String>,
}

impl Pieces {
    /// Adds a piece and returns what it added to the text. What is no JSON string adds nothing.
    pub(crate) fn push(&mut self, json: &str) -> &str {
        let start = self.text.len();
        let Some(inner) = json.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else {
            return "";
        };
        if inner.is_empty() {
            return "";
        }
        let (now, later) = inner.split_at(inner.len() - trailing_high_half(inner));
        match self.waiting.take() {
            Some(half) => self.decode(&format!("\"{half}{now}\"")),
            None if later.is_empty() => self.decode(json),
            None => self.decode(&format!("\"{now}\"")),
        }
        self.waiting = (!later.is_empty()).then(|| later.to_owned());
        &self.text[start..]
    }

    /// Adds text that is not JSON.
    pub(crate) fn push_plain(&mut self, plain: &str) {
        self.settle();
        self.text.push_str(plain);
    }

    /// The text so far.
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// Starts over with nothing.
    pub(crate) fn clear(&mut self) {
        *self = Pieces::default();
    }

    /// The whole text.
    pub(crate) fn finish(mut self) -> String {
        self.settle();
        self.text
    }

    fn decode(&mut self, json: &str) {
        self.text.push_str(text(json).as_deref().unwrap_or_default());
    }

    fn settle(&mut self) {
        if self.waiting.take().is_some() {
            self.text.push('\u{fffd}');
        }
    }
}

/// How many bytes at the end are the escape of a high surrogate: 6 or 0.
fn trailing_high_half(inner: &str) -> usize {
    let bytes = inner.as_bytes();
    let Some(start) = bytes.len().checked_sub(6) else { return 0 };
    let escape = &bytes[start..];
    let is_high = escape.starts_with(b"\\u")
        && escape[2].eq_ignore_ascii_case(&b'd')
        && matches!(escape[3], b'8' | b'9' | b'a' | b'b' | b'A' | b'B')
        && escape[4..].iter().all(u8::is_ascii_hexdigit);
    let backslashes = bytes[..start].iter().rev().take_while(|&&b| b == b'\\').count();
    if is_high && backslashes % 2 == 0 { 6 } else { 0 }
}

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FieldsVisitor)
    }
}

struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Fields<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
        #[derive(Deserialize)]
        #[serde(transparent)]
        struct Key<'k>(#[serde(borrow)] Cow<'k, str>);
        let mut fields = Vec::new();
        while let Some(Key(key)) = map.next_key()? {
            let value: &RawValue = map.next_value()?;
            fields.push((key, value.get()));
        }
        Ok(Fields(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_unexpected_types_are_not_there() {
        let fields = Fields::of(r#"{"a":null,"b":7,"c":"7","d":[1,2],"e":{"f":1.0},"g":"\ud99c"}"#).unwrap();
        assert_eq!(fields.get("a"), None);
        assert_eq!((fields.number("b"), fields.number("c"), fields.number("d")), (Some(7), Some(7), None));
        assert_eq!(fields.text("b"), None);
        assert_eq!(fields.items("d"), ["1", "2"]);
        assert!(fields.items("e").is_empty());
        assert_eq!(fields.object("e").unwrap().count("f"), Some(1));
        assert_eq!(fields.text("g").as_deref(), Some("\u{fffd}"));
        assert!(Fields::of("[]").is_none());
    }

    #[test]
    fn values_are_found_in_an_array_or_outside() {
        let read = |json| values(json).collect::<Vec<_>>();
        let both = [Some(r#"{"a":1}"#), Some(r#"{"b":[2]}"#)];
        for json in [r#"[{"a":1},{"b":[2]}]"#, "{\"a\":1}\r\n{\"b\":[2]}", r#"[{"a":1}, {"b":[2]}"#] {
            assert_eq!(read(json), both, "{json}");
        }
        assert_eq!(read(r#"[{"a":1},{"b":"#), [both[0], None]);
        assert_eq!(read(" [] "), []);
    }

    /// D17: a pair split over two pieces is one character; a half that stays alone is U+FFFD.
    #[test]
    fn a_split_surrogate_pair_survives() {
        let join = |pieces: &[&str]| {
            let mut joined = Pieces::default();
            for piece in pieces {
                joined.push(piece);
            }
            joined.finish()
        };
        assert_eq!(join(&[r#""a\ud83d""#, r#""\ude00b""#]), "a😀b");
        assert_eq!(join(&[r#""a\ud83d""#, r#""b""#]), "a\u{fffd}b");
        assert_eq!(join(&[r#""a\ud83d""#]), "a\u{fffd}");
        assert_eq!(join(&[r#""a\ud83d""#, r#""""#, r#""\ude00""#]), "a😀");
        assert_eq!(join(&[r#""a\\ud83d""#, r#""b""#]), "a\\ud83db");
        assert_eq!(join(&["7", "\"x\""]), "x");
    }

    #[test]
    fn deep_nesting_is_no_danger() {
        let deep = format!("{{\"a\":{}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(Fields::of(&deep).unwrap().number("a").is_none());
    }
}
