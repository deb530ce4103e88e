//! Reads the answer of Gemini's `streamGenerateContent`, streamed or whole.
//!
//! An answer is a list of parts that arrive in chunks. Texts in a row are one text, except where a part carries a
//! `thoughtSignature`: such a part stays a part of its own, since the signature must come back on the same part
//! (<https://ai.google.dev/gemini-api/docs/thought-signatures>). Parts that only Google understands are kept as
//! received. Chunks may come as events, as one JSON array or as bare JSON between events; all are read alike.
//!
//! How a signature is kept, for the encoder beside this module: with a call, `{"thoughtSignature":…}`; behind a text, a
//! reasoning block without text and the same fields; for a part without readable text, and for reasoning, the whole part.

mod calls;

use jiff::Timestamp;
use mainstay_session::message::{Content, Ended, ErrorClass, Finish, Usage};

use self::calls::Call;
use crate::decoder::{Close, Decoder, OnDelta, Progress};
use crate::failure::{self, Failure, FirstFailure};
use crate::model::{Attempt, Delta};
use crate::raw::{self, Fields, Pieces};

/// Collects one answer.
#[derive(Debug, Default)]
pub struct GeminiDecoder {
    blocks: Vec<Block>,
    /// The place of the call whose arguments go on.
    open_call: Option<usize>,
    usage: Counts,
    finish: Option<String>,
    finish_message: String,
    is_blocked: bool,
    failure: FirstFailure,
}

/// A block of the answer, in the order in which blocks began.
#[derive(Debug)]
enum Block {
    /// Text that may go on.
    Text(Pieces),
    /// Reasoning that may go on.
    Thought(Pieces),
    Call(Call),
    /// A part that came whole, or what it carries besides.
    Whole(Content),
}

impl Decoder for GeminiDecoder {
    fn event(&mut self, _name: &str, data: &str, on_delta: &mut OnDelta<'_>) -> Progress {
        // Gateways send status words as data; only what looks like JSON can hold a piece of the answer.
        if !data.trim_start().starts_with(['{', '[']) || data.trim() == "[DONE]" {
            return Progress::Nothing;
        }
        self.chunks(data, on_delta)
    }

    fn document(&mut self, json: &str, on_delta: &mut OnDelta<'_>) {
        self.chunks(json, on_delta);
        if self.blocks.is_empty() && self.finish.is_none() && !self.is_blocked {
            let message = format!("the answer is none of generateContent: {}", failure::excerpt(json));
            self.failure.note(Failure::new(ErrorClass::BadRequest, message));
        }
    }

    fn close(mut self, close: Close) -> Attempt {
        let ended = match close {
            Close::Cancelled => Ended::Cancelled,
            Close::Failed(failure) if self.finish.is_none() || self.failure.is_some() => {
                self.failure.note(failure);
                self.failure.ended()
            }
            Close::End | Close::Failed(_) => {
                self.judge_end();
                self.failure.ended()
            }
        };
        Attempt {
            finish: self.normal_finish(),
            usage: self.usage.total(),
            ended,
            retry_after: self.failure.retry_after(),
            content: self.content(),
        }
    }
}

impl GeminiDecoder {
    /// Takes chunks one after another, in an array or not.
    fn chunks(&mut self, json: &str, on_delta: &mut OnDelta<'_>) -> Progress {
        let mut brought = Progress::Nothing;
        // Nothing of worth follows an error.
        if self.failure.is_some() {
            return Progress::Done;
        }
        for value in raw::values(json) {
            let Some(chunk) = value.and_then(Fields::of) else {
                // What breaks once the answer is whole takes nothing from it.
                if self.finish.is_none() {
                    let excerpt = failure::excerpt(json);
                    self.failure
                        .note(Failure::cut(format!("the stream holds data that is no JSON: {excerpt}")));
                    brought = Progress::Done;
                }
                break;
            };
            brought = brought.max(self.chunk(value.unwrap_or_default(), &chunk, on_delta));
            if self.failure.is_some() {
                return Progress::Done;
            }
        }
        brought
    }

    fn chunk(&mut self, json: &str, chunk: &Fields<'_>, on_delta: &mut OnDelta<'_>) -> Progress {
        if chunk.is_error() {
            self.failure.note(failure::of_object(json, Timestamp::now()));
        }
        self.usage.read(chunk.object("usageMetadata"));
        let feedback = chunk.object("promptFeedback");
        if feedback.is_some_and(|feedback| feedback.get("blockReason").is_some()) {
            self.is_blocked = true;
            return Progress::Finished;
        }
        let mut candidates = chunk.items("candidates").into_iter().filter_map(Fields::of);
        match candidates.find(|candidate| candidate.number("index").unwrap_or(0) == 0) {
            Some(candidate) => self.candidate(&candidate, on_delta),
            None => Progress::Nothing,
        }
    }

    fn candidate(&mut self, candidate: &Fields<'_>, on_delta: &mut OnDelta<'_>) -> Progress {
        let mut brought = Progress::Nothing;
        let parts = candidate.object("content").map(|content| content.items("parts")).unwrap_or_default();
        for json in parts {
            if let Some(part) = Fields::of(json)
                && self.part(json, &part, on_delta)
            {
                brought = Progress::Content;
            }
        }
        if let Some(reason) = candidate.text("finishReason").filter(|reason| !reason.is_empty()) {
            self.finish = Some(reason.into_owned());
            self.finish_message = candidate.text("finishMessage").unwrap_or_default().into_owned();
            brought = Progress::Finished;
        }
        brought
    }

    /// Takes a part and says whether it held anything.
    fn part(&mut self, json: &str, part: &Fields<'_>, on_delta: &mut OnDelta<'_>) -> bool {
        let signature = part.get("thoughtSignature").filter(|signature| raw::is_filled(signature));
        if let Some(call) = part.object("functionCall") {
            return self.call_piece(&call, signature, on_delta);
        }
        let text = part.get("text").filter(|text| text.starts_with('"'));
        let is_thought = part.get("thought") == Some("true");
        let is_text = text.is_some() || part.iter().all(|(name, _)| MARKS.contains(&name));
        match (is_text, signature) {
            (false, _) => self.blocks.push(Block::Whole(Content::Opaque { raw: json.to_owned() })),
            (true, Some(signature)) => {
                let text = text.and_then(raw::text).unwrap_or_default();
                self.signed_text(json, text.into_owned(), is_thought, signature, on_delta);
            }
            (true, None) => match text.filter(|text| raw::is_filled(text)) {
                Some(text) => self.text_piece(text, is_thought, on_delta),
                None => return false,
            },
        }
        true
    }

    fn text_piece(&mut self, json: &str, is_thought: bool, on_delta: &mut OnDelta<'_>) {
        match (is_thought, self.blocks.last()) {
            (false, Some(Block::Text(_))) | (true, Some(Block::Thought(_))) => {}
            (false, _) => self.blocks.push(Block::Text(Pieces::default())),
            (true, _) => self.blocks.push(Block::Thought(Pieces::default())),
        }
        match self.blocks.last_mut() {
            Some(Block::Text(text)) => on_delta(Delta::Text(text.push(json))),
            Some(Block::Thought(text)) => on_delta(Delta::Reasoning(text.push(json))),
            Some(Block::Call(_) | Block::Whole(_)) | None => {}
        }
    }

    /// Takes a text with a signature. Where there is nothing to read, the part itself is what goes back.
    fn signed_text(
        &mut self,
        json: &str,
        text: String,
        is_thought: bool,
        signature: &str,
        on_delta: &mut OnDelta<'_>,
    ) {
        let is_readable = !text.trim().is_empty();
        let opaque = match is_readable && !is_thought {
            true => format!("{{\"thoughtSignature\":{signature}}}"),
            false => json.to_owned(),
        };
        if !text.is_empty() {
            on_delta(if is_thought { Delta::Reasoning(&text) } else { Delta::Text(&text) });
        }
        let thought = if is_thought {
            text
        } else {
            if !text.is_empty() {
                self.blocks.push(Block::Whole(Content::Text { text }));
            }
            String::new()
        };
        self.blocks.push(Block::Whole(Content::Reasoning { text: thought, opaque: Some(opaque) }));
    }

    /// Takes a call or a piece of one and says whether it held anything.
    fn call_piece(
        &mut self,
        piece: &Fields<'_>,
        signature: Option<&str>,
        on_delta: &mut OnDelta<'_>,
    ) -> bool {
        let goes_on = piece.get("willContinue") == Some("true");
        let open = self.open_call.take();
        if let Some(place) = open
            && let Some(Block::Call(call)) = self.blocks.get_mut(place)
            && call.is_continued_by(piece)
        {
            call.add(piece, signature);
            self.open_call = goes_on.then_some(place);
            return true;
        }
        if signature.is_none()
            && ["id", "name", "args", "partialArgs"].iter().all(|field| piece.get(field).is_none())
        {
            // The end of a call that has ended already.
            return false;
        }
        let mut call = Call::new(piece);
        call.add(piece, signature);
        if !call.name().is_empty() {
            on_delta(Delta::CallStarted(call.name()));
        }
        self.open_call = goes_on.then_some(self.blocks.len());
        self.blocks.push(Block::Call(call));
        true
    }

    fn has_calls(&self) -> bool {
        self.blocks.iter().any(|block| matches!(block, Block::Call(_)))
    }

    /// Decides whether a stream that the server ended in order holds an answer that ended in order.
    fn judge_end(&mut self) {
        let said = failure::excerpt(&self.finish_message);
        let failure = match self.finish.as_deref() {
            None if self.is_blocked => return,
            None if self.blocks.is_empty() => Failure::cut("the stream ended without an answer in it"),
            None => Failure::cut("the stream ended before the answer did"),
            Some("MISSING_THOUGHT_SIGNATURE") => {
                Failure::new(ErrorClass::BadRequest, format!("Gemini misses a thought signature: {said}"))
            }
            // The model wrote what Gemini's own check refused: another sample may pass.
            Some(reason @ ("MALFORMED_FUNCTION_CALL" | "MALFORMED_RESPONSE")) => {
                Failure::new(ErrorClass::Overload, format!("the answer ended with {reason}: {said}"))
            }
            Some(reason)
                if self.blocks.is_empty() && !ENDED.contains(&reason) && !DECLINED.contains(&reason) =>
            {
                Failure::new(
                    ErrorClass::Overload,
                    format!("the answer is empty and ended with {reason}: {said}"),
                )
            }
            Some(_) => return,
        };
        self.failure.note(failure);
    }

    /// The presence of calls decides where the reason is `STOP`, which Gemini says for calls too.
    fn normal_finish(&self) -> Finish {
        match self.finish.as_deref() {
            _ if self.is_blocked => Finish::Refusal,
            Some("MAX_TOKENS") => Finish::MaxTokens,
            Some("STOP") if self.has_calls() => Finish::ToolCalls,
            Some("STOP") => Finish::EndTurn,
            Some(reason) if DECLINED.contains(&reason) => Finish::Refusal,
            Some(_) | None => Finish::Unknown,
        }
    }

    fn content(self) -> Vec<Content> {
        let content = |block| match block {
            Block::Text(text) => Content::Text { text: text.finish() },
            Block::Thought(text) => Content::Reasoning { text: text.finish(), opaque: None },
            Block::Call(call) => Content::Call(call.finish()),
            Block::Whole(content) => content,
        };
        self.blocks.into_iter().map(content).collect()
    }
}

/// The fields of a part that say something about its data and hold none.
const MARKS: &[&str] = &["text", "thought", "thoughtSignature"];

/// The finish reasons of answers that ended by themselves or at the output limit.
const ENDED: &[&str] = &["STOP", "MAX_TOKENS"];

/// The finish reasons of answers that were declined
/// (<https://ai.google.dev/api/generate-content#FinishReason>).
const DECLINED: &[&str] = &[
    "SAFETY",
    "RECITATION",
    "LANGUAGE",
    "BLOCKLIST",
    "PROHIBITED_CONTENT",
    "SPII",
    "MODEL_ARMOR",
    "IMAGE_SAFETY",
    "IMAGE_PROHIBITED_CONTENT",
    "IMAGE_RECITATION",
];

/// What Gemini has counted so far; later counts replace earlier ones.
#[derive(Debug, Default)]
struct Counts {
    input: Option<u64>,
    cached: Option<u64>,
    output: Option<u64>,
    thoughts: Option<u64>,
}

impl Counts {
    fn read(&mut self, usage: Option<Fields<'_>>) {
        let Some(usage) = usage else { return };
        for (kept, name) in [
            (&mut self.input, "promptTokenCount"),
            (&mut self.cached, "cachedContentTokenCount"),
            (&mut self.output, "candidatesTokenCount"),
            (&mut self.thoughts, "thoughtsTokenCount"),
        ] {
            *kept = usage.count(name).or(*kept);
        }
    }

    /// Cached tokens are part of the input. Thoughts are counted beside the candidate.
    fn total(&self) -> Option<Usage> {
        if self.input.is_none() && self.output.is_none() && self.thoughts.is_none() {
            return None;
        }
        Some(Usage {
            input_tokens: self.input.unwrap_or(0),
            cached_tokens: self.cached.unwrap_or(0),
            output_tokens: self.output.unwrap_or(0).saturating_add(self.thoughts.unwrap_or(0)),
            ..Usage::default()
        })
    }
}
