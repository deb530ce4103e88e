//! A model whose answers stand in a file, so that any session can be played without a provider.
//!
//! Which answer comes next follows from the request alone: it is the one after as many answers as the request's history
//! holds, so a resumed session goes on where it was. Only failures are counted in memory, since a failed attempt leaves no
//! trace in a request. The format is described in `docs/script-model.md`.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use mainstay_session::compaction::COMPACTION_REQUEST;
use mainstay_session::message::{Content, Ended, ErrorClass, Finish, ToolCall, Usage};
use mainstay_session::request::{Message, Request};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use crate::chat::encode;
use crate::model::{Attempt, Delta, Encoded, Model};
use crate::raw::Fields;
use crate::settings::ModelSettings;

/// The name of the script model in place of a wire format.
pub const API: &str = "script";

const CONTEXT_WINDOW: u64 = 200_000;
const NO_SUMMARY: &str =
    "The conversation so far followed a script, which holds no summary of it. Go on with what is next.";
const NO_MORE: &str = "The script has no more answers.";

/// A model that reads its answers from a script.
#[derive(Debug)]
pub struct ScriptModel {
    name: String,
    context_window: u64,
    /// What is told where a summary is asked for, one after the other; the last again and again.
    summaries: Vec<Answer>,
    summaries_told: AtomicUsize,
    steps: Vec<Step>,
    attempts: Mutex<Attempts>,
}

/// An answer, and the failures that come before it.
#[derive(Debug, Default)]
struct Step {
    failures: Vec<Answer>,
    answer: Option<Answer>,
}

/// How many failures have been told at one place.
#[derive(Debug, Default)]
struct Attempts {
    place: usize,
    failures: usize,
}

impl ScriptModel {
    /// Reads a script from a file. The model's name is `script:` and the path as given.
    pub fn from_file(path: &Path) -> Result<Self, ScriptError> {
        let text =
            text_of(path).map_err(|source| ScriptError::Unreadable { path: path.to_owned(), source })?;
        ScriptModel::from_json(format!("script:{}", path.display()), &text)
    }

    /// Reads a script from its text. The name is how the model is called in the log.
    pub fn from_json(name: impl Into<String>, text: &str) -> Result<Self, ScriptError> {
        let name = name.into();
        let script = parse(text).map_err(|source| ScriptError::Malformed { script: name.clone(), source })?;
        Ok(ScriptModel {
            name,
            context_window: script.context_window.unwrap_or(CONTEXT_WINDOW),
            summaries: script.summaries,
            summaries_told: AtomicUsize::new(0),
            steps: steps(script.answers),
            attempts: Mutex::default(),
        })
    }

    fn settings(&self) -> ModelSettings {
        ModelSettings::new("script", self.name.as_str(), "", self.context_window)
    }

    /// The next answer to a request for a summary.
    fn summary(&self) -> Answer {
        let told = self.summaries_told.fetch_add(1, Ordering::Relaxed);
        let answer = self.summaries.get(told).or(self.summaries.last()).cloned();
        answer.unwrap_or_else(|| Answer { text: Some(NO_SUMMARY.to_owned()), ..Answer::default() })
    }

    /// The answer for this place, with the failures before it told one by one.
    fn next(&self, place: usize) -> Option<Answer> {
        let step = self.steps.get(place)?;
        let mut attempts = self.attempts.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if attempts.place != place {
            *attempts = Attempts { place, failures: 0 };
        }
        match step.failures.get(attempts.failures) {
            Some(failure) => {
                attempts.failures += 1;
                Some(failure.clone())
            }
            None => step.answer.clone(),
        }
    }
}

/// The longest script that is read, in bytes.
const LONGEST: u64 = 64 << 20;

/// The text of a script, which has an end.
fn text_of(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(LONGEST + 1).read_to_string(&mut text)?;
    if text.len() as u64 > LONGEST {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("it has more than {} MiB", LONGEST >> 20),
        ));
    }
    Ok(text)
}

/// A script cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScriptError {
    /// The file cannot be read.
    #[error("the script `{path}` cannot be read: {source}", path = path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The text is no script. The source names line and column.
    #[error("`{script}` is not a script of answers: {source}")]
    Malformed {
        /// The script's name.
        script: String,
        /// What is wrong, and where.
        source: serde_json::Error,
    },
}

impl Model for ScriptModel {
    fn name(&self) -> &str {
        &self.name
    }

    fn api(&self) -> &str {
        API
    }

    fn context_window(&self) -> u64 {
        self.context_window
    }

    /// Writes the request as for a Chat Completions server, and after it how many answers it holds.
    fn encode(&self, request: &Request<'_>) -> Encoded {
        let chat = encode::encode(&self.name, &self.settings(), request);
        let is_answer = |message: &&Message<'_>| matches!(message, Message::Answer { .. });
        let answers = request.messages.iter().filter(is_answer).count() as u64 + request.dropped_answers;
        let asks_for_summary = |message: &Message<'_>| matches!(message, Message::User { text, .. } if text.contains(COMPACTION_REQUEST));
        let summary = if request.messages.iter().any(asks_for_summary) { ",\"summary\":1" } else { "" };
        let mut body = b"{\"request\":".to_vec();
        body.extend_from_slice(&chat.body);
        body.extend_from_slice(format!(",\"answers\":{answers}{summary}}}").as_bytes());
        let mut mark = chat.mark;
        mark.bytes = body.len() as u64;
        Encoded { body, mark }
    }

    fn units(&self, request: &Request<'_>) -> Vec<Vec<u8>> {
        encode::units(&self.name, &self.settings(), request)
    }

    fn stream<'a>(
        &'a self,
        request: &'a Encoded,
        on_delta: &'a mut (dyn FnMut(Delta<'_>) + Send),
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Attempt> {
        Box::pin(async move {
            let place = count(&request.body, "answers");
            let answer = match count(&request.body, "summary") {
                0 => self.next(place).unwrap_or_else(Answer::no_more),
                _ => self.summary(),
            };
            let delay = Duration::from_millis(answer.delay_ms);
            tokio::select! {
                biased;
                () = cancel.cancelled() => return cancelled(),
                () = tokio::time::sleep(delay) => {}
            }
            let mut attempt = answer.into_attempt(place);
            if attempt.ended == Ended::Complete {
                attempt.usage.get_or_insert_with(|| estimate(&request.body, &attempt.content));
            }
            show(&attempt.content, on_delta);
            attempt
        })
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Script {
    answers: Vec<Answer>,
    #[serde(default)]
    context_window: Option<u64>,
    #[serde(default)]
    summaries: Vec<Answer>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Answer {
    reasoning: Option<String>,
    text: Option<String>,
    calls: Vec<Call>,
    finish: Option<Finish>,
    usage: Option<Usage>,
    delay_ms: u64,
    error: Option<Error>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Call {
    name: String,
    #[serde(default)]
    arguments: Option<Box<RawValue>>,
    #[serde(default)]
    id: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Error {
    class: ErrorClass,
    message: String,
    #[serde(default)]
    retry_after_ms: Option<u64>,
}

impl Answer {
    fn no_more() -> Self {
        Answer { text: Some(NO_MORE.to_owned()), ..Answer::default() }
    }

    fn into_attempt(self, place: usize) -> Attempt {
        let mut content = Vec::new();
        content.extend(self.reasoning.map(|text| Content::Reasoning { text, opaque: None }));
        content.extend(self.text.map(|text| Content::Text { text }));
        let default = if self.calls.is_empty() { Finish::EndTurn } else { Finish::ToolCalls };
        content
            .extend(self.calls.into_iter().enumerate().map(|(index, call)| call.into_content(place, index)));
        let retry_after =
            self.error.as_ref().and_then(|error| error.retry_after_ms).map(Duration::from_millis);
        let ended = match self.error {
            Some(error) => Ended::Failed { class: error.class, message: error.message },
            None => Ended::Complete,
        };
        Attempt { content, finish: self.finish.unwrap_or(default), usage: self.usage, ended, retry_after }
    }
}

impl Call {
    fn into_content(self, place: usize, index: usize) -> Content {
        let arguments = self.arguments.as_deref().map(RawValue::get).map(argument_text).unwrap_or_default();
        let id = self.id.unwrap_or_else(|| format!("call_{place}_{index}"));
        Content::Call(ToolCall { id, name: self.name, arguments, opaque: None })
    }
}

/// A string is the raw argument text itself, so that a script can hold arguments that are no object.
fn argument_text(json: &str) -> String {
    crate::raw::text(json).map_or_else(|| compact(json), std::borrow::Cow::into_owned)
}

/// JSON without white space between its tokens; the rest stays as written.
fn compact(json: &str) -> String {
    let mut in_string = false;
    let mut escaped = false;
    let keep = |c: &char| {
        let kept = in_string || !c.is_ascii_whitespace();
        if in_string && !escaped && *c == '\\' {
            escaped = true;
        } else {
            if *c == '"' && !escaped {
                in_string = !in_string;
            }
            escaped = false;
        }
        kept
    };
    json.chars().filter(keep).collect()
}

fn parse(text: &str) -> Result<Script, serde_json::Error> {
    if text.trim_start().starts_with('[') {
        return Ok(Script {
            answers: serde_json::from_str(text)?,
            context_window: None,
            summaries: Vec::new(),
        });
    }
    serde_json::from_str(text)
}

fn steps(answers: Vec<Answer>) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut step = Step::default();
    for answer in answers {
        if answer.error.is_some() {
            step.failures.push(answer);
        } else {
            step.answer = Some(answer);
            steps.push(std::mem::take(&mut step));
        }
    }
    if !step.failures.is_empty() {
        steps.push(step);
    }
    steps
}

fn count(body: &[u8], name: &str) -> usize {
    let count = std::str::from_utf8(body).ok().and_then(Fields::of).and_then(|fields| fields.count(name));
    count.and_then(|count| usize::try_from(count).ok()).unwrap_or(0)
}

/// What an answer without counts is taken to have used, at four bytes a token.
fn estimate(body: &[u8], content: &[Content]) -> Usage {
    let text: usize = content.iter().filter_map(Content::as_text).map(str::len).sum();
    Usage {
        input_tokens: body.len() as u64 / 4,
        cached_tokens: 0,
        output_tokens: text as u64 / 4,
        ..Usage::default()
    }
}

fn cancelled() -> Attempt {
    Attempt {
        content: Vec::new(),
        finish: Finish::Unknown,
        usage: None,
        ended: Ended::Cancelled,
        retry_after: None,
    }
}

fn show(content: &[Content], on_delta: &mut (dyn FnMut(Delta<'_>) + Send)) {
    for block in content {
        match block {
            Content::Text { text } => on_delta(Delta::Text(text)),
            Content::Reasoning { text, .. } => on_delta(Delta::Reasoning(text)),
            Content::Call(call) => on_delta(Delta::CallStarted(&call.name)),
            Content::Opaque { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests;
