//! Reads the answer of a Chat Completions server, streamed or whole.
//!
//! Servers that imitate the format differ in small ways, each visible in recorded answers: one index for all parallel
//! calls or none, ids repeated in every piece, arguments as an object, reasoning under three names, usage in four places,
//! an error beside or instead of choices, no finish reason, no `[DONE]`. All of them come out as the same kind of answer.

mod calls;
mod reasoning;

use jiff::Timestamp;
use mainstay_session::message::{Content, Ended, ErrorClass, Finish, Usage};

use self::calls::Calls;
use self::reasoning::Reasoning;
use crate::decoder::{Close, Decoder, OnDelta, Progress};
use crate::failure::{self, Failure, FirstFailure};
use crate::model::{Attempt, Delta};
use crate::raw::{self, Fields, Pieces};

/// Collects one answer.
#[derive(Debug, Default)]
pub struct ChatDecoder {
    blocks: Vec<Block>,
    calls: Calls,
    refused: bool,
    usage: Counts,
    finish: Option<String>,
    done: bool,
    any_choice: bool,
    failure: FirstFailure,
}

/// A block of the answer, in the order in which blocks began.
#[derive(Debug)]
enum Block {
    Text(Pieces),
    Reasoning(Reasoning),
    /// The call at this place among the calls.
    Call(usize),
}

impl Decoder for ChatDecoder {
    fn event(&mut self, name: &str, data: &str, on_delta: &mut OnDelta<'_>) -> Progress {
        let data = data.trim();
        if data == "[DONE]" {
            self.done = true;
            return Progress::Done;
        }
        if name == "error" && Fields::of(data).is_none_or(|chunk| chunk.items("choices").is_empty()) {
            self.failure.note(failure::of_object(data, Timestamp::now()));
            return Progress::Done;
        }
        // Gateways send status words as data; only what looks like JSON can hold a piece of the answer.
        if !data.starts_with(['{', '[']) {
            return Progress::Nothing;
        }
        if let Some(chunk) = Fields::of(data) {
            return self.chunk(data, &chunk, on_delta);
        }
        self.lines(data, on_delta)
    }

    fn document(&mut self, json: &str, on_delta: &mut OnDelta<'_>) {
        let json = json.trim();
        let json =
            if json.starts_with('[') { raw::items(json).first().copied().unwrap_or(json) } else { json };
        let Some(answer) = Fields::of(json) else {
            self.failure
                .note(Failure::cut(format!("the answer is cut or no JSON: {}", failure::excerpt(json))));
            return;
        };
        self.chunk(json, &answer, on_delta);
        self.done = true;
        if !self.any_choice {
            let message = format!("the answer is no chat completion: {}", failure::excerpt(json));
            self.failure.note(Failure::new(ErrorClass::BadRequest, message));
        }
    }

    fn close(mut self, close: Close) -> Attempt {
        let has_calls = self.calls.any();
        let finish = self.normal_finish(has_calls);
        let ended = match close {
            Close::Cancelled => Ended::Cancelled,
            Close::Failed(failure) if !self.done || self.failure.is_some() => {
                self.failure.note(failure);
                self.failure.ended()
            }
            Close::End | Close::Failed(_) => {
                self.judge_end();
                self.failure.ended()
            }
        };
        Attempt {
            finish,
            usage: self.usage.total(),
            ended,
            retry_after: self.failure.retry_after(),
            content: self.content(),
        }
    }
}

impl ChatDecoder {
    /// Takes data that is no JSON as a whole: several events that a server did not part by a blank line, or garbage.
    fn lines(&mut self, data: &str, on_delta: &mut OnDelta<'_>) -> Progress {
        let mut brought = Progress::Nothing;
        for line in data.lines().map(str::trim) {
            match Fields::of(line) {
                Some(chunk) => brought = self.chunk(line, &chunk, on_delta),
                None if line == "[DONE]" => self.done = true,
                // A connection that breaks while counts follow takes nothing from the answer.
                None if self.finish.is_some() || self.done => {}
                None => self.failure.note(Failure::cut(format!(
                    "the stream holds an event that is no JSON: {}",
                    failure::excerpt(line)
                ))),
            }
        }
        brought
    }

    fn chunk(&mut self, json: &str, chunk: &Fields<'_>, on_delta: &mut OnDelta<'_>) -> Progress {
        let choices = chunk.items("choices");
        if chunk.error().is_some() || choices.is_empty() && chunk.is_error() {
            self.failure.note(failure::of_object(json, Timestamp::now()));
        }
        self.usage.read(chunk.object("usage"));
        self.usage.read(chunk.object("x_groq").and_then(|extra| extra.object("usage")));
        let first = choices.into_iter().filter_map(Fields::of).find(|c| c.number("index").unwrap_or(0) == 0);
        let brought = first.map_or(Progress::Nothing, |choice| self.choice(&choice, on_delta));
        // Nothing of worth follows an error, and some servers leave the connection open after one.
        if self.failure.is_some() { Progress::Done } else { brought }
    }

    fn choice(&mut self, choice: &Fields<'_>, on_delta: &mut OnDelta<'_>) -> Progress {
        self.any_choice = true;
        self.usage.read(choice.object("usage"));
        let message = choice.object("delta").or_else(|| choice.object("message"));
        let mut brought = Progress::Nothing;
        if let Some(message) = message
            && self.message(&message, on_delta)
        {
            brought = Progress::Content;
        }
        if let Some(error) = choice.error().filter(|error| error.starts_with('{')) {
            self.failure.note(failure::of_object(error, Timestamp::now()));
        }
        if let Some(reason) = choice.text("finish_reason").filter(|reason| !reason.is_empty()) {
            let native = choice.text("native_finish_reason").unwrap_or_default();
            self.finish_with(&reason, &native);
            brought = Progress::Finished;
        }
        brought
    }

    /// Notes a finish reason and the one that a gateway translated, since some hide there that the answer was cut.
    ///
    /// What was cut or declined stays so, whatever reason comes later.
    fn finish_with(&mut self, reason: &str, native: &str) {
        let is_settled = |reason: &str| says(reason, CUT) || says(reason, DECLINED);
        if !self.finish.as_deref().is_some_and(is_settled) {
            self.finish = Some(if says(native, CUT) { native } else { reason }.to_owned());
        }
    }

    /// Takes a piece of the message and says whether it held anything.
    fn message(&mut self, message: &Fields<'_>, on_delta: &mut OnDelta<'_>) -> bool {
        let mut any = self.reasoning(message, on_delta);
        if let Some(content) = message.get("content") {
            any |= self.content_piece(content, on_delta);
        }
        if let Some(refusal) = message.get("refusal").filter(|refusal| raw::is_filled(refusal)) {
            self.refused = true;
            any |= self.text_piece(refusal, on_delta);
        }
        for call in message.items("tool_calls").into_iter().filter_map(Fields::of) {
            any = true;
            if let Some(place) = self.calls.piece(&call, on_delta) {
                self.blocks.push(Block::Call(place));
            }
        }
        if let Some(call) = message.object("function_call")
            && let Some(place) = self.calls.legacy_piece(&call, on_delta)
        {
            any = true;
            self.blocks.push(Block::Call(place));
        }
        any
    }

    /// Takes content that is a string, or (Mistral) a list of typed parts.
    fn content_piece(&mut self, content: &str, on_delta: &mut OnDelta<'_>) -> bool {
        let mut any = self.text_piece(content, on_delta);
        for part in raw::items(content).into_iter().filter_map(Fields::of) {
            match part.text("type").as_deref() {
                Some("text") => any |= self.text_piece(part.get("text").unwrap_or_default(), on_delta),
                Some("thinking") => {
                    let thinking = part.get("thinking").unwrap_or_default();
                    any |= self.thought_piece(thinking, on_delta);
                    for inner in raw::items(thinking).into_iter().filter_map(Fields::of) {
                        any |= self.thought_piece(inner.get("text").unwrap_or_default(), on_delta);
                    }
                }
                _ => {}
            }
        }
        any
    }

    fn text_piece(&mut self, json: &str, on_delta: &mut OnDelta<'_>) -> bool {
        if !raw::is_filled(json) {
            return false;
        }
        if !matches!(self.blocks.last(), Some(Block::Text(_))) {
            self.blocks.push(Block::Text(Pieces::default()));
        }
        if let Some(Block::Text(text)) = self.blocks.last_mut() {
            on_delta(Delta::Text(text.push(json)));
        }
        true
    }

    fn thought_piece(&mut self, json: &str, on_delta: &mut OnDelta<'_>) -> bool {
        if raw::is_filled(json) {
            self.with_thought(|thought| on_delta(Delta::Reasoning(thought.text.push(json))));
            return true;
        }
        false
    }

    fn reasoning(&mut self, message: &Fields<'_>, on_delta: &mut OnDelta<'_>) -> bool {
        let details = message.items("reasoning_details");
        let own = ["reasoning_content", "reasoning"]
            .into_iter()
            .find_map(|name| Some((name, message.get(name).filter(|value| raw::is_filled(value))?)));
        if let Some((name, value)) = own {
            self.thought_piece(value, on_delta);
            if name == "reasoning_content" {
                self.with_thought(|thought| thought.keep_content(value));
            }
        }
        for detail in &details {
            let fields = Fields::of(detail);
            let text = fields.as_ref().and_then(|f| f.get("text").or_else(|| f.get("summary")));
            // The same text under two names is shown once.
            if let Some(text) = text.filter(|_| own.is_none()) {
                self.thought_piece(text, on_delta);
            }
            self.with_thought(|thought| thought.keep_detail(detail));
        }
        own.is_some() || !details.is_empty()
    }

    /// Writes to the last block, which is made a reasoning block first if it is none.
    fn with_thought(&mut self, write: impl FnOnce(&mut Reasoning)) {
        if !matches!(self.blocks.last(), Some(Block::Reasoning(_))) {
            self.blocks.push(Block::Reasoning(Reasoning::default()));
        }
        if let Some(Block::Reasoning(thought)) = self.blocks.last_mut() {
            write(thought);
        }
    }

    /// Decides whether a stream that the server ended in order holds an answer that ended in order.
    fn judge_end(&mut self) {
        if self.finish.as_deref().is_some_and(|reason| reason.to_lowercase().contains("error")) {
            self.failure
                .note(Failure::new(ErrorClass::Overload, "the provider ended the answer with an error"));
        }
        if !self.any_choice {
            self.failure.note(Failure::cut("the stream ended without an answer in it"));
        }
        if self.finish.is_none() && !self.done {
            self.failure.note(Failure::cut("the stream ended before the answer did"));
        }
    }

    /// The presence of calls decides, not what the reason is called, unless the reason says that something is missing.
    fn normal_finish(&self, has_calls: bool) -> Finish {
        let reason = self.finish.as_deref().unwrap_or_default();
        if says(reason, CUT) {
            Finish::MaxTokens
        } else if says(reason, DECLINED) {
            Finish::Refusal
        } else if has_calls {
            Finish::ToolCalls
        } else if self.refused && !self.has_text_besides_refusal() {
            Finish::Refusal
        } else if self.done && reason.is_empty() || says(reason, ENDED) {
            Finish::EndTurn
        } else {
            Finish::Unknown
        }
    }

    /// A refusal comes in a channel of its own and is kept as text; beside real text it is only a remark.
    fn has_text_besides_refusal(&self) -> bool {
        self.blocks.iter().filter(|block| matches!(block, Block::Text(_))).count() > 1
    }

    fn content(self) -> Vec<Content> {
        let mut calls = self.calls.finish();
        let block = |block| match block {
            Block::Text(text) => Some(Content::Text { text: text.finish() }),
            Block::Reasoning(thought) => thought.finish(),
            Block::Call(place) => calls.get_mut(place).and_then(Option::take).map(Content::Call),
        };
        self.blocks.into_iter().filter_map(block).collect()
    }
}

/// Parts of the finish reasons of answers that the output limit cut.
const CUT: &[&str] = &["length", "max_tokens", "max_output_tokens", "limit"];

/// Parts of the finish reasons of answers that were declined.
const DECLINED: &[&str] = &["filter", "refus", "safety"];

/// Parts of the finish reasons of answers that ended by themselves.
const ENDED: &[&str] = &["stop", "eos", "end_turn"];

fn says(reason: &str, parts: &[&str]) -> bool {
    let reason = reason.to_lowercase();
    parts.iter().any(|part| reason.contains(part))
}

/// What the provider has counted so far; later counts replace earlier ones.
#[derive(Debug, Default)]
struct Counts {
    input: Option<u64>,
    cached: Option<u64>,
    output: Option<u64>,
    reasoning: Option<u64>,
    total: Option<u64>,
}

impl Counts {
    fn read(&mut self, usage: Option<Fields<'_>>) {
        let Some(usage) = usage else { return };
        let prompt = usage.object("prompt_tokens_details");
        let completion = usage.object("completion_tokens_details");
        let cached = prompt
            .and_then(|details| details.count("cached_tokens"))
            .or_else(|| usage.count("prompt_cache_hit_tokens"))
            .or_else(|| usage.count("cached_tokens"))
            .or_else(|| usage.count("num_cached_tokens"));
        let reasoning = completion
            .and_then(|details| details.count("reasoning_tokens"))
            .or_else(|| usage.count("reasoning_tokens"));
        for (kept, new) in [
            (&mut self.input, usage.count("prompt_tokens")),
            (&mut self.cached, cached),
            (&mut self.output, usage.count("completion_tokens")),
            (&mut self.reasoning, reasoning),
            (&mut self.total, usage.count("total_tokens")),
        ] {
            *kept = new.or(*kept);
        }
    }

    fn total(&self) -> Option<Usage> {
        if self.input.is_none() && self.output.is_none() {
            return None;
        }
        let (input, output) = (self.input.unwrap_or(0), self.output.unwrap_or(0));
        let reasoning = self.reasoning.unwrap_or(0);
        // xAI counts reasoning beside the completion, and only the total tells.
        let apart =
            reasoning > 0 && self.total == input.checked_add(output).and_then(|n| n.checked_add(reasoning));
        Some(Usage {
            input_tokens: input,
            cached_tokens: self.cached.unwrap_or(0),
            output_tokens: if apart { output + reasoning } else { output },
            ..Usage::default()
        })
    }
}
