//! How a log writes what stands in it most often: in few bytes, and still to be read by a person.
//!
//! Each reads what format 1 wrote as well, which said all of it in full.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize, Serializer};

use super::{Content, ContentHash, FilePath, ReferencedFile, RequestMark, ToolCall, Usage, from_hex, to_hex};
use crate::ids::Seq;

/// The characters of 32 bytes.
const SHORT_HASH: usize = 43;
/// The characters of the 8 bytes of a [`RequestMark`].
const SHORT_MARK: usize = 11;

/// Stands for the entry directly before the one that names it.
pub(crate) fn entry_before() -> Seq {
    Seq::MAX
}

/// Whether an entry is named by being left out.
pub(crate) fn is_entry_before(seq: &Seq) -> bool {
    *seq == Seq::MAX
}

/// A block of an answer. Text and calls are told by their fields and have no `type`.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Block<'a> {
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    kind: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    text: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    id: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    arguments: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    opaque: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    raw: Option<Cow<'a, str>>,
}

impl Serialize for Content {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        fn some(text: &str) -> Option<Cow<'_, str>> {
            Some(Cow::Borrowed(text))
        }
        let block = match self {
            Content::Text { text } => Block { text: some(text), ..Block::default() },
            Content::Reasoning { text, opaque } => Block {
                kind: some("reasoning"),
                text: some(text),
                opaque: opaque.as_deref().map(Cow::Borrowed),
                ..Block::default()
            },
            Content::Call(ToolCall { id, name, arguments, opaque }) => Block {
                id: some(id),
                name: some(name),
                arguments: some(arguments),
                opaque: opaque.as_deref().map(Cow::Borrowed),
                ..Block::default()
            },
            Content::Opaque { raw } => Block { kind: some("opaque"), raw: some(raw), ..Block::default() },
        };
        block.serialize(serializer)
    }
}

impl TryFrom<Block<'_>> for Content {
    type Error = String;

    fn try_from(block: Block<'_>) -> Result<Self, String> {
        let Block { kind, text, id, name, arguments, opaque, raw } = block;
        let kind = match &kind {
            Some(kind) => kind,
            None if name.is_some() => "call",
            None => "text",
        };
        let there = |value: Option<Cow<'_, str>>, field: &str| {
            value.map(Cow::into_owned).ok_or_else(|| format!("a block of type `{kind}` lacks `{field}`"))
        };
        let opaque = opaque.map(Cow::into_owned);
        match kind {
            "text" => Ok(Content::Text { text: there(text, "text")? }),
            "reasoning" => Ok(Content::Reasoning { text: there(text, "text")?, opaque }),
            "call" => Ok(Content::Call(ToolCall {
                id: there(id, "id")?,
                name: there(name, "name")?,
                arguments: there(arguments, "arguments")?,
                opaque,
            })),
            "opaque" => Ok(Content::Opaque { raw: there(raw, "raw")? }),
            other => Err(format!("a block of the unknown type `{other}`")),
        }
    }
}

/// What was sent for an answer. Most units are those of the request before, so the others are counted.
#[derive(Serialize, Deserialize)]
pub(crate) struct Sent {
    units: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    new: Option<u32>,
    /// Said by format 1 in the place of `new`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    shared: Option<u32>,
    hash: String,
    bytes: u64,
}

impl From<RequestMark> for Sent {
    fn from(mark: RequestMark) -> Self {
        let RequestMark { units, hash, shared, bytes } = mark;
        let hash = short(&hash);
        // None has more in common with the one before than it has.
        match units.checked_sub(shared) {
            Some(new) => Sent { units, new: Some(new), shared: None, hash, bytes },
            None => Sent { units, new: None, shared: Some(shared), hash, bytes },
        }
    }
}

impl From<Sent> for RequestMark {
    fn from(sent: Sent) -> Self {
        let Sent { units, new, shared, hash, bytes } = sent;
        let shared = shared.unwrap_or_else(|| units.saturating_sub(new.unwrap_or(units)));
        RequestMark { units, hash: long(hash), shared, bytes }
    }
}

/// The tokens of one answer.
pub(crate) mod usage {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Usage;
    use crate::message::is_zero;

    #[derive(Serialize, Deserialize)]
    struct Tokens {
        #[serde(rename = "in", alias = "input_tokens")]
        input: u64,
        #[serde(default, alias = "cached_tokens", skip_serializing_if = "is_zero")]
        cached: u64,
        #[serde(default, skip_serializing_if = "is_zero")]
        written: u64,
        #[serde(rename = "out", alias = "output_tokens")]
        output: u64,
    }

    pub(crate) fn serialize<S: Serializer>(usage: &Option<Usage>, serializer: S) -> Result<S::Ok, S::Error> {
        let tokens = usage.map(|usage| Tokens {
            input: usage.input_tokens,
            cached: usage.cached_tokens,
            written: usage.cache_written_tokens,
            output: usage.output_tokens,
        });
        tokens.serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Usage>, D::Error> {
        let tokens = Option::<Tokens>::deserialize(deserializer)?;
        Ok(tokens.map(|Tokens { input, cached, written, output }| Usage {
            input_tokens: input,
            cached_tokens: cached,
            cache_written_tokens: written,
            output_tokens: output,
        }))
    }
}

/// The files that a tool touched, their hashes as [`short`] has them.
pub(crate) mod files {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::{ContentHash, FilePath, ReferencedFile, long, short};

    #[derive(Serialize)]
    struct Shown<'a> {
        path: &'a FilePath,
        #[serde(skip_serializing_if = "Option::is_none")]
        hash: Option<String>,
    }

    pub(crate) fn serialize<S: Serializer>(
        files: &[ReferencedFile],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(files.iter().map(|file| Shown {
            path: &file.path,
            hash: file.hash.as_ref().map(|hash| short(hash.as_str())),
        }))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<ReferencedFile>, D::Error> {
        let mut files = Vec::<ReferencedFile>::deserialize(deserializer)?;
        for file in &mut files {
            file.hash = file.hash.take().map(|hash| ContentHash(long(hash.0)));
        }
        Ok(files)
    }
}

/// Bytes of SHA-256 as base64url, which takes two thirds of the digits. Only what [`long`] gives back is made shorter.
fn short(digits: &str) -> String {
    from_hex(digits)
        .map(|bytes| URL_SAFE_NO_PAD.encode(bytes))
        .filter(|text| long(text.clone()) == digits)
        .unwrap_or_else(|| digits.to_owned())
}

/// The hexadecimal digits of what [`short`] wrote; what is of any other length was written as it is.
fn long(text: String) -> String {
    let is_short = matches!(text.len(), SHORT_HASH | SHORT_MARK);
    match URL_SAFE_NO_PAD.decode(&text) {
        Ok(bytes) if is_short => to_hex(&bytes),
        _ => text,
    }
}
