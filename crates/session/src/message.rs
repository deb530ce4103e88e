//! What the model says and sees: content blocks, tool calls, tool results, usage.
//!
//! These types are plain values with no behaviour of a provider in them. What a provider needs back byte for byte
//! (signatures, encrypted reasoning, blocks of kinds we do not know) rides along as raw text.

pub(crate) mod form;

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::ids::{CallRef, Seq};
use crate::plan::Plan;

/// One block of a model's answer, in the order in which it came. How a log writes it is `form`'s affair.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "form::Block<'_>")]
pub enum Content {
    /// Text for the user.
    Text {
        /// The text as received.
        text: String,
    },
    /// The model's reasoning.
    Reasoning {
        /// The readable part, which may be empty.
        text: String,
        /// The provider's own block or field, as the JSON text received, where it must be returned unchanged.
        opaque: Option<String>,
    },
    /// A call of a tool.
    Call(ToolCall),
    /// A block that only its provider understands, as the JSON text received.
    Opaque {
        /// The raw JSON.
        raw: String,
    },
}

impl Content {
    /// The text of a text block.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Content::Text { text } => Some(text),
            Content::Reasoning { .. } | Content::Call(_) | Content::Opaque { .. } => None,
        }
    }

    /// The call of a call block.
    pub fn as_call(&self) -> Option<&ToolCall> {
        match self {
            Content::Call(call) => Some(call),
            Content::Text { .. } | Content::Reasoning { .. } | Content::Opaque { .. } => None,
        }
    }
}

/// A call of a tool, as the model wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolCall {
    /// The provider's id, which may be empty and may repeat within a session.
    pub id: String,
    /// The tool's name as the model wrote it.
    pub name: String,
    /// The arguments as the raw string received: usually a JSON object, but never taken for granted.
    pub arguments: String,
    /// What the provider wants back with the call unchanged (a thought signature), as the JSON text received.
    pub opaque: Option<String>,
}

/// How an answer's last block ended, normalised over providers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// The model had said all it wanted to say.
    EndTurn,
    /// The model waits for the results of its calls. In a log the one that need not be said.
    #[default]
    ToolCalls,
    /// The output limit cut the answer.
    MaxTokens,
    /// The model or the provider's filter declined.
    Refusal,
    /// The provider gave a reason we do not know, or none.
    Unknown,
}

/// Tokens as a provider counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens of the request, those read from the provider's cache included.
    pub input_tokens: u64,
    /// Tokens of the request that came from the provider's cache.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cached_tokens: u64,
    /// Tokens of the request that were written to the provider's cache, where it counts them because they cost more.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cache_written_tokens: u64,
    /// Tokens of the answer, reasoning included.
    pub output_tokens: u64,
}

impl Usage {
    /// Adds the counts of another answer.
    pub fn add(&mut self, other: Usage) {
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.cached_tokens = self.cached_tokens.saturating_add(other.cached_tokens);
        self.cache_written_tokens = self.cache_written_tokens.saturating_add(other.cache_written_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
    }

    /// What was counted since `before`, which counted less.
    pub fn since(self, before: Usage) -> Usage {
        Usage {
            input_tokens: self.input_tokens.saturating_sub(before.input_tokens),
            cached_tokens: self.cached_tokens.saturating_sub(before.cached_tokens),
            cache_written_tokens: self.cache_written_tokens.saturating_sub(before.cache_written_tokens),
            output_tokens: self.output_tokens.saturating_sub(before.output_tokens),
        }
    }
}

/// How an attempt to get an answer ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "how", rename_all = "snake_case")]
pub enum Ended {
    /// The provider said that the answer is whole. Only then may its calls run.
    #[default]
    Complete,
    /// The provider, or the way to it, failed.
    Failed {
        /// What kind of failure it is, which decides whether another attempt makes sense.
        class: ErrorClass,
        /// What the provider said, for a person to read.
        message: String,
    },
    /// The user cancelled while it streamed.
    Cancelled,
}

impl Ended {
    /// Whether the answer is whole.
    pub fn is_complete(&self) -> bool {
        *self == Ended::Complete
    }
}

/// Whether a value says nothing: such fields are left out of the log.
pub(crate) fn is_zero<N: Default + PartialEq>(number: &N) -> bool {
    *number == N::default()
}

/// What kind of failure a request met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorClass {
    /// The key is missing, wrong or not allowed to do this.
    Credentials,
    /// The account has no credit left; waiting does not help.
    Quota,
    /// Too many requests for now; waiting helps.
    Rate,
    /// The provider is overloaded or failing; waiting may help.
    Overload,
    /// The prompt is larger than the model's window.
    Overflow,
    /// The provider's filter refused the content.
    RefusedContent,
    /// The provider says that the request is malformed, or the model or address does not exist.
    BadRequest,
    /// The provider could not be reached.
    Network,
    /// The stream ended before the answer did, or stalled.
    CutStream,
}

impl ErrorClass {
    /// Whether the same request may succeed when it is sent again.
    pub fn is_retryable(self) -> bool {
        match self {
            ErrorClass::Rate | ErrorClass::Overload | ErrorClass::Network | ErrorClass::CutStream => true,
            ErrorClass::Credentials
            | ErrorClass::Quota
            | ErrorClass::Overflow
            | ErrorClass::RefusedContent
            | ErrorClass::BadRequest => false,
        }
    }

    /// The name used in logs and events.
    pub fn as_str(self) -> &'static str {
        match self {
            ErrorClass::Credentials => "credentials",
            ErrorClass::Quota => "quota",
            ErrorClass::Rate => "rate",
            ErrorClass::Overload => "overload",
            ErrorClass::Overflow => "overflow",
            ErrorClass::RefusedContent => "refused_content",
            ErrorClass::BadRequest => "bad_request",
            ErrorClass::Network => "network",
            ErrorClass::CutStream => "cut_stream",
        }
    }
}

/// What was sent for one answer: enough to say whether the next request begins with the same bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "form::Sent", into = "form::Sent")]
pub struct RequestMark {
    /// How many units the request had.
    pub units: u32,
    /// The first 8 bytes of the SHA-256 over the units' bytes in order, in hexadecimal; older logs have all 32.
    pub hash: String,
    /// How many units at the start are those of the request before.
    pub shared: u32,
    /// The size of the request's body in bytes.
    pub bytes: u64,
}

/// A tool as the model is told of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// The name by which the model calls it.
    pub name: String,
    /// What it does, for the model to read.
    pub description: String,
    /// The JSON Schema of its arguments, as JSON text in one line.
    pub schema: String,
}

/// How a tool call came out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The tool did what was asked. In a log the one that need not be said.
    #[default]
    Ok,
    /// The tool failed, or the call could not be run.
    Error,
    /// The call was not allowed to run.
    Denied,
    /// The call was cut short and may have run in part.
    Interrupted,
}

/// The result of one tool call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolResult {
    /// The answer entry that asked for the call.
    #[serde(default = "form::entry_before", skip_serializing_if = "form::is_entry_before")]
    pub answer: Seq,
    /// The call's place among that answer's calls, from 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub call: u32,
    /// The provider's id of the call, in older logs. It stands with the call.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub call_id: String,
    /// How it came out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub outcome: Outcome,
    /// What the model reads first: one line, or the rendered plan.
    pub summary: String,
    /// The rest of what the model reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// Images that the model sees behind the text, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Image>,
    /// The files that the tool says it touched, in order.
    #[serde(
        default,
        rename = "files",
        alias = "referenced_files",
        with = "form::files",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub referenced_files: Vec<ReferencedFile>,
    /// What the tool changed in files, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<FileChange>,
    /// How long the call took, by a monotonic clock.
    #[serde(default, rename = "took", alias = "duration_ms", skip_serializing_if = "is_zero")]
    pub duration_ms: u64,
    /// The exit code of a command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The plan after an accepted plan write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<Plan>,
}

impl ToolResult {
    /// A result that says this, and nothing else.
    pub fn new(call: CallRef, outcome: Outcome, summary: String, content: Option<String>) -> Self {
        ToolResult {
            answer: call.answer,
            call: call.call,
            call_id: String::new(),
            outcome,
            summary,
            content,
            images: Vec::new(),
            referenced_files: Vec::new(),
            changes: Vec::new(),
            duration_ms: 0,
            exit_code: None,
            plan: None,
        }
    }

    /// Which call this answers.
    pub fn call_ref(&self) -> CallRef {
        CallRef { answer: self.answer, call: self.call }
    }

    /// The text that the model reads: the summary, then the content on lines of its own.
    pub fn text(&self) -> String {
        match &self.content {
            Some(content) if self.summary.is_empty() => content.clone(),
            Some(content) => format!("{}\n{content}", self.summary),
            None => self.summary.clone(),
        }
    }
}

/// An image for the model to look at. Its bytes lie in the session's spill.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// What kind of image it is: `image/png`, `image/jpeg`, `image/gif` or `image/webp`.
    pub media_type: String,
    /// The hash of its bytes.
    pub hash: ContentHash,
    /// How many bytes it has.
    pub bytes: u64,
}

/// A file that a tool touched.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ReferencedFile {
    /// The file's canonical absolute path. In a log one below the workspace is told from there.
    pub path: FilePath,
    /// The hash of the file's bytes as the tool saw or left them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<ContentHash>,
}

impl ReferencedFile {
    /// A file by its canonical absolute path, with these bytes.
    pub fn of(path: impl Into<std::path::PathBuf>, bytes: &[u8]) -> Self {
        ReferencedFile { path: FilePath(path.into()), hash: Some(ContentHash::of(bytes)) }
    }
}

/// A file that a tool made or changed, so that it can be taken back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileChange {
    /// The file's canonical absolute path.
    pub path: FilePath,
    /// The hash of what it held before, which the session's spill holds; none if there was no such file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<ContentHash>,
    /// The hash of what the tool wrote.
    pub after: ContentHash,
}

impl From<PathBuf> for ReferencedFile {
    fn from(path: PathBuf) -> Self {
        ReferencedFile { path: FilePath(path), hash: None }
    }
}

/// A path that survives JSON whatever its bytes are.
///
/// UTF-8 paths are JSON strings; any other is an object `{"hex": "…"}` with the path's bytes in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FilePath(pub PathBuf);

impl FilePath {
    /// The path itself.
    pub fn as_path(&self) -> &Path {
        &self.0
    }
}

impl FilePath {
    /// The path as it is seen from a folder that it lies below, which is shorter; none for any other path.
    pub(crate) fn below(&self, folder: &FilePath) -> Option<FilePath> {
        let rest = self.0.strip_prefix(&folder.0).ok()?;
        let is_there = !rest.as_os_str().is_empty() && folder.0.join(rest) == self.0;
        is_there.then(|| FilePath(rest.to_owned()))
    }

    /// The path that [`FilePath::below`] shortened; one that was not is as it is.
    pub(crate) fn seen_from(&self, folder: &FilePath) -> FilePath {
        FilePath(folder.0.join(&self.0))
    }
}

impl std::fmt::Display for FilePath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.display().fmt(f)
    }
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum FilePathForm {
    Text(String),
    Bytes { hex: String },
}

impl Serialize for FilePath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.to_str() {
            Some(text) => serializer.serialize_str(text),
            None => FilePathForm::Bytes { hex: to_hex(self.0.as_os_str().as_bytes()) }.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for FilePath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match FilePathForm::deserialize(deserializer)? {
            FilePathForm::Text(text) => Ok(FilePath(PathBuf::from(text))),
            FilePathForm::Bytes { hex } => match from_hex(&hex) {
                Some(bytes) => Ok(FilePath(PathBuf::from(OsString::from_vec(bytes)))),
                None => Err(serde::de::Error::custom("a path's `hex` must be pairs of hexadecimal digits")),
            },
        }
    }
}

/// The SHA-256 of some bytes, as 64 lower-case hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ContentHash(pub String);

impl ContentHash {
    /// Hashes some bytes.
    pub fn of(bytes: &[u8]) -> Self {
        use sha2::Digest;
        ContentHash(to_hex(&sha2::Sha256::digest(bytes)))
    }

    /// The 64 digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is one. A log may hold any text in its place, such as a path.
    pub fn is_hash(&self) -> bool {
        self.0.len() == 64 && self.0.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    }
}

/// Writes bytes as lower-case hexadecimal digits.
pub fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u32>> = text.chars().map(|c| c.to_digit(16)).collect();
    let digits = digits?;
    if digits.len() % 2 == 1 {
        return None;
    }
    digits.chunks(2).map(|pair| u8::try_from(pair[0] * 16 + pair[1]).ok()).collect()
}
