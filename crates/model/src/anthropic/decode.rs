//! Reads the answer of an Anthropic Messages server, streamed or whole.
//!
//! An answer is a list of blocks, each begun, added to and ended by events of its own. Signatures, hidden thinking and the
//! provider's own tools are kept as the JSON they came as, and kinds of events, blocks and pieces that are not known
//! fail nothing. Only `message_stop` says that an answer is whole. The events are described at
//! <https://platform.claude.com/docs/en/build-with-claude/streaming>.

mod block;

use jiff::Timestamp;
use mainstay_session::message::{Content, Ended, ErrorClass, Finish, Usage};

use self::block::Block;
use crate::decoder::{Close, Decoder, OnDelta, Progress};
use crate::failure::{self, Failure, FirstFailure};
use crate::model::Attempt;
use crate::raw::Fields;

/// Collects one answer.
#[derive(Debug, Default)]
pub struct AnthropicDecoder {
    begun: bool,
    blocks: Vec<Block>,
    usage: Counts,
    stop: Option<String>,
    done: bool,
    failure: FirstFailure,
}

impl Decoder for AnthropicDecoder {
    fn event(&mut self, name: &str, data: &str, on_delta: &mut OnDelta<'_>) -> Progress {
        let data = data.trim();
        if let Some(event) = Fields::of(data) {
            return self.take(name, data, &event, on_delta);
        }
        // Several events that were not parted by a blank line, or words of a gateway.
        let mut brought = Progress::Nothing;
        for line in data.lines().map(str::trim) {
            match Fields::of(line) {
                Some(event) => brought = self.take("", line, &event, on_delta),
                None if line == "[DONE]" => brought = Progress::Done,
                None if name == "error" => {
                    self.failure.note(failure::of_object(line, Timestamp::now()));
                    brought = Progress::Done;
                }
                None if line.starts_with(['{', '[']) && !self.done => self.failure.note(Failure::cut(
                    format!("the stream holds an event that is no JSON: {}", failure::excerpt(line)),
                )),
                None => {}
            }
        }
        brought
    }

    fn document(&mut self, json: &str, on_delta: &mut OnDelta<'_>) {
        let json = json.trim();
        let Some(answer) = Fields::of(json) else {
            self.failure
                .note(Failure::cut(format!("the answer is cut or no JSON: {}", failure::excerpt(json))));
            return;
        };
        if is_error(&answer) {
            self.failure.note(failure::of_object(json, Timestamp::now()));
        } else if answer.get("content").is_none() && answer.get("stop_reason").is_none() {
            let message = format!("the answer is no message: {}", failure::excerpt(json));
            self.failure.note(Failure::new(ErrorClass::BadRequest, message));
        }
        self.begin(&answer);
        for block in answer.items("content") {
            self.blocks.extend(Block::whole(block, on_delta));
        }
        self.done = self.stop.is_some();
    }

    fn close(mut self, close: Close) -> Attempt {
        let ended = match close {
            Close::Cancelled => Ended::Cancelled,
            Close::Failed(failure) if !self.done || self.failure.is_some() => {
                self.failure.note(failure);
                self.failure.ended()
            }
            Close::End | Close::Failed(_) => {
                if !self.done {
                    self.failure.note(Failure::cut(match self.begun {
                        true => "the stream ended before the answer did",
                        false => "the stream ended without an answer in it",
                    }));
                }
                self.failure.ended()
            }
        };
        let content: Vec<Content> = self.blocks.into_iter().filter_map(Block::finish).collect();
        let has_calls = content.iter().any(|block| block.as_call().is_some());
        Attempt {
            finish: finish(self.stop.as_deref().unwrap_or_default(), has_calls),
            usage: self.usage.total(),
            ended,
            retry_after: self.failure.retry_after(),
            content,
        }
    }
}

impl AnthropicDecoder {
    fn take(&mut self, name: &str, json: &str, event: &Fields<'_>, on_delta: &mut OnDelta<'_>) -> Progress {
        if is_error(event) {
            self.failure.note(failure::of_object(json, Timestamp::now()));
            // Nothing of worth follows an error, and some servers leave the connection open after one.
            return Progress::Done;
        }
        let kind = event.text("type");
        match kind.as_deref().unwrap_or(name) {
            "message_start" => {
                // A gateway that asked again splices a second message in; the first one never ended.
                self.blocks.clear();
                self.stop = None;
                self.begin(event.object("message").as_ref().unwrap_or(event));
                Progress::Nothing
            }
            "content_block_start" => self.block_start(event, on_delta),
            "content_block_delta" => self.block_delta(event, on_delta),
            "message_delta" => self.message_delta(event),
            "message_stop" => {
                self.done = true;
                Progress::Done
            }
            _ => Progress::Nothing,
        }
    }

    fn begin(&mut self, message: &Fields<'_>) {
        self.begun = true;
        self.usage.read(message.object("usage"));
        self.stop_with(message);
    }

    fn block_start(&mut self, event: &Fields<'_>, on_delta: &mut OnDelta<'_>) -> Progress {
        let Some(json) = event.get("content_block") else { return Progress::Nothing };
        if self.blocks.last().is_some_and(|last| last.is_begun_again(event.number("index"), json)) {
            return Progress::Nothing;
        }
        let Some((block, brought)) = Block::begin(event.number("index"), json, on_delta) else {
            return Progress::Nothing;
        };
        self.blocks.push(block);
        brought
    }

    fn block_delta(&mut self, event: &Fields<'_>, on_delta: &mut OnDelta<'_>) -> Progress {
        let Some(delta) = event.object("delta") else { return Progress::Nothing };
        let index = event.number("index");
        // The latest of its index: a gateway may count every block as the same one.
        let is_target = |block: &Block| (index.is_none() || block.index == index) && block.takes(&delta);
        let found = self.blocks.iter().rposition(is_target);
        let place = match found {
            Some(place) => place,
            None => {
                let Some(block) = Block::of_delta(index, &delta) else { return Progress::Nothing };
                self.blocks.push(block);
                self.blocks.len() - 1
            }
        };
        self.blocks[place].add(&delta, on_delta)
    }

    fn message_delta(&mut self, event: &Fields<'_>) -> Progress {
        self.usage.read(event.object("usage"));
        if let Some(delta) = event.object("delta") {
            self.stop_with(&delta);
        }
        if self.stop.is_some() { Progress::Finished } else { Progress::Nothing }
    }

    fn stop_with(&mut self, fields: &Fields<'_>) {
        if let Some(reason) = fields.text("stop_reason").filter(|reason| !reason.is_empty()) {
            self.stop = Some(reason.into_owned());
        }
    }
}

/// What a stop reason means (<https://platform.claude.com/docs/en/build-with-claude/handling-stop-reasons>).
///
/// The presence of calls decides, unless the reason says that something is missing. A full window cuts an answer just as
/// the output limit does. `pause_turn` comes only where the provider runs tools of its own, which are not offered: it
/// is not known here, and neither is a reason that is new.
fn finish(reason: &str, has_calls: bool) -> Finish {
    match reason {
        "max_tokens" | "model_context_window_exceeded" => Finish::MaxTokens,
        "refusal" => Finish::Refusal,
        _ if has_calls => Finish::ToolCalls,
        "end_turn" | "stop_sequence" => Finish::EndTurn,
        _ => Finish::Unknown,
    }
}

/// Whether an event or a document is an error. What has a type is no error for its fields alone, nor is a beginning, whose
/// `message` is an object, where only the event's name tells the type.
fn is_error(event: &Fields<'_>) -> bool {
    let is_typed = event.get("type").is_some() || event.object("message").is_some();
    let is_named = event.error().is_some() || event.text("type").as_deref() == Some("error");
    is_named || !is_typed && event.is_error()
}

/// What the provider has counted so far. The counts of a message are cumulative, and later ones correct earlier ones.
#[derive(Debug, Default)]
struct Counts {
    input: Option<u64>,
    cache_read: Option<u64>,
    cache_write: Option<u64>,
    output: Option<u64>,
}

impl Counts {
    fn read(&mut self, usage: Option<Fields<'_>>) {
        let Some(usage) = usage else { return };
        for (kept, name) in [
            (&mut self.input, "input_tokens"),
            (&mut self.cache_read, "cache_read_input_tokens"),
            (&mut self.cache_write, "cache_creation_input_tokens"),
            (&mut self.output, "output_tokens"),
        ] {
            *kept = usage.count(name).or(*kept);
        }
    }

    /// `input_tokens` leaves out what was read from the cache or written to it
    /// (<https://platform.claude.com/docs/en/build-with-claude/prompt-caching>).
    fn total(&self) -> Option<Usage> {
        if self.input.is_none() && self.output.is_none() {
            return None;
        }
        let cached_tokens = self.cache_read.unwrap_or(0);
        let uncached = self.input.unwrap_or(0).saturating_add(self.cache_write.unwrap_or(0));
        Some(Usage {
            input_tokens: uncached.saturating_add(cached_tokens),
            cached_tokens,
            cache_written_tokens: self.cache_write.unwrap_or(0),
            output_tokens: self.output.unwrap_or(0),
        })
    }
}
