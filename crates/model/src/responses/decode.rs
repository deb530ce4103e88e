//! Reads an answer over the Responses format, streamed or whole.
//!
//! An answer is a list of items: messages, reasoning, calls, and what the provider's own tools did. What an item's last
//! event says is what counts, since deltas may be missing and some servers leave out the list at the end. Items are told
//! apart by their place, because servers change ids between the events of one item. Only a terminal event ends an answer
//! in order. Events and items of unknown kinds never fail a stream: the items are kept as they came.

mod item;

use jiff::Timestamp;
use mainstay_session::message::{Content, Ended, ErrorClass, Finish, Usage};

use self::item::{Item, Role};
use crate::decoder::{Close, Decoder, OnDelta, Progress};
use crate::failure::{self, Failure, FirstFailure};
use crate::model::Attempt;
use crate::raw::{self, Fields};

/// Collects one answer.
#[derive(Debug, Default)]
pub struct ResponsesDecoder {
    items: Vec<Item>,
    usage: Option<Usage>,
    end: Option<End>,
    failure: FirstFailure,
}

/// How the provider says that the answer ended.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Whole,
    /// Something cut it short.
    Cut,
    /// A filter cut it short.
    Filtered,
}

impl Decoder for ResponsesDecoder {
    fn event(&mut self, name: &str, data: &str, on_delta: &mut OnDelta<'_>) -> Progress {
        let data = data.trim();
        if data == "[DONE]" {
            return Progress::Done;
        }
        if let Some(event) = Fields::of(data) {
            return self.typed(name, data, &event, on_delta);
        }
        if name == "error" {
            return self.fail(failure::of_object(data, Timestamp::now()));
        }
        // Gateways send status words as data; only what looks like JSON can hold a piece of the answer.
        if data.starts_with('{') { self.lines(data, on_delta) } else { Progress::Nothing }
    }

    fn document(&mut self, json: &str, on_delta: &mut OnDelta<'_>) {
        let json = json.trim();
        let json =
            if json.starts_with('[') { raw::items(json).first().copied().unwrap_or(json) } else { json };
        let Some(answer) = Fields::of(json) else {
            self.fail(Failure::cut(format!("the answer is cut or no JSON: {}", failure::excerpt(json))));
            return;
        };
        let is_answer =
            answer.get("output").is_some() || answer.text("object").as_deref() == Some("response");
        if is_answer {
            self.end("response", &answer, on_delta);
        } else if says_error(&answer) {
            self.fail(failure::of_object(json, Timestamp::now()));
        } else {
            let message = format!("the answer is no response: {}", failure::excerpt(json));
            self.fail(Failure::new(ErrorClass::BadRequest, message));
        }
    }

    fn close(mut self, close: Close) -> Attempt {
        let finish = self.finish();
        let ended = match close {
            Close::Cancelled => Ended::Cancelled,
            Close::Failed(failure) => self.ended(failure),
            Close::End => self.ended(Failure::cut("the stream ended before the answer did")),
        };
        Attempt {
            finish,
            usage: self.usage,
            ended,
            retry_after: self.failure.retry_after(),
            content: self.content(),
        }
    }
}

impl ResponsesDecoder {
    /// Takes data that is no JSON as a whole: several events that a server did not part by a blank line, or garbage.
    fn lines(&mut self, data: &str, on_delta: &mut OnDelta<'_>) -> Progress {
        let mut brought = Progress::Nothing;
        for line in data.lines().map(str::trim).filter(|line| !line.is_empty()) {
            brought = match Fields::of(line) {
                Some(event) => self.typed("", line, &event, on_delta),
                None if line == "[DONE]" || self.end.is_some() => Progress::Done,
                None => self.fail(Failure::cut(format!(
                    "the stream holds an event that is no JSON: {}",
                    failure::excerpt(line)
                ))),
            };
        }
        brought
    }

    fn typed(&mut self, name: &str, json: &str, event: &Fields<'_>, on_delta: &mut OnDelta<'_>) -> Progress {
        let kind = event.text("type").unwrap_or_else(|| name.to_owned().into());
        match kind.as_ref() {
            "response.completed"
            | "response.incomplete"
            | "response.failed"
            | "response.done"
            | "response.cancelled" => {
                if let Some(response) = event.object("response") {
                    self.end(&kind, &response, on_delta);
                }
                Progress::Done
            }
            "response.output_item.added" => match event.get("item").and_then(Fields::of) {
                Some(item) => self.begin(event, &item, on_delta),
                None => Progress::Nothing,
            },
            "response.output_item.done" => match event.get("item") {
                Some(raw) => self.finish_item(event, raw, on_delta),
                None => Progress::Nothing,
            },
            _ if matches!(kind.as_ref(), "error" | "response.error")
                || (event.get("type").is_none() && says_error(event)) =>
            {
                self.fail(failure_of(json, event))
            }
            _ => self.piece(&kind, event, on_delta),
        }
    }

    /// Takes an event that tells of a part of an item, if it does.
    fn piece(&mut self, kind: &str, event: &Fields<'_>, on_delta: &mut OnDelta<'_>) -> Progress {
        let Some(role) = Role::of_event(kind) else {
            // The provider's own tools may work for long; their events show that it goes on.
            let tells_of_item = event.get("output_index").is_some() || event.get("item_id").is_some();
            return if tells_of_item { Progress::Content } else { Progress::Nothing };
        };
        let place = self.place(event, None).unwrap_or_else(|| {
            self.items.push(Item::new(event.number("output_index")));
            self.items.len() - 1
        });
        if self.items[place].piece(role, event, on_delta) { Progress::Content } else { Progress::Nothing }
    }

    fn begin(&mut self, event: &Fields<'_>, item: &Fields<'_>, on_delta: &mut OnDelta<'_>) -> Progress {
        let place = self.place(event, Some(item)).filter(|place| !self.items[*place].is_done());
        let place = place.unwrap_or_else(|| {
            self.items.push(Item::new(event.number("output_index")));
            self.items.len() - 1
        });
        self.items[place].begin(item, on_delta);
        Progress::Content
    }

    fn finish_item(&mut self, event: &Fields<'_>, raw: &str, on_delta: &mut OnDelta<'_>) -> Progress {
        let Some(fields) = Fields::of(raw) else { return Progress::Nothing };
        let place = self.place(event, Some(&fields)).or_else(|| self.open_place(event, &fields));
        let place = place.filter(|place| self.items[*place].may_be(&fields));
        let place = place.unwrap_or_else(|| {
            self.items.push(Item::new(event.number("output_index")));
            self.items.len() - 1
        });
        self.items[place].finish(raw, &fields, on_delta);
        Progress::Content
    }

    /// Which item an event is about: the one at its index, or where a server gives none, the one with its id, or the last.
    fn place(&self, event: &Fields<'_>, item: Option<&Fields<'_>>) -> Option<usize> {
        if let Some(index) = event.number("output_index") {
            return self.items.iter().rposition(|known| known.index() == Some(index));
        }
        let id = item.and_then(|item| item.text("id")).or_else(|| event.text("item_id"));
        match id.filter(|id| !id.is_empty()) {
            Some(id) => self.items.iter().rposition(|known| known.id() == id),
            None if item.is_none() => self.items.len().checked_sub(1),
            None => None,
        }
    }

    /// Which item without an end this may be the end of, where the server gives neither index nor id.
    fn open_place(&self, event: &Fields<'_>, item: &Fields<'_>) -> Option<usize> {
        let is_nameless = event.number("output_index").is_none() && item.text("id").is_none();
        let is_open = |known: &Item| !known.is_done() && known.may_be(item);
        self.items.iter().position(is_open).filter(|_| is_nameless)
    }

    /// Takes the whole response, as the last event or the document holds it.
    fn end(&mut self, kind: &str, response: &Fields<'_>, on_delta: &mut OnDelta<'_>) {
        self.usage = usage(response.object("usage")).or(self.usage);
        self.complete_from(&response.items("output"), on_delta);
        let status = response.text("status").unwrap_or_default();
        let named = kind.strip_prefix("response.").unwrap_or_default();
        let is = |what: &str| status == what || named == what;
        if is("failed") {
            let error = response.get("error").map(|error| format!("{{\"error\":{error}}}"));
            self.fail_for_good(error.as_deref());
        } else if is("cancelled") {
            self.fail(Failure::cut("the provider cancelled the answer"));
        } else if is("incomplete") {
            let details = response.object("incomplete_details");
            let reason = details.and_then(|details| details.text("reason")).unwrap_or_default();
            self.end = Some(if reason.contains("filter") { End::Filtered } else { End::Cut });
        } else if !named.is_empty() || !matches!(status.as_ref(), "in_progress" | "queued") {
            self.end = Some(End::Whole);
        }
    }

    /// Takes from the list at the end what no event has told.
    fn complete_from(&mut self, output: &[&str], on_delta: &mut OnDelta<'_>) {
        let none_came = self.items.is_empty();
        for (index, raw) in output.iter().enumerate() {
            let Some(fields) = Fields::of(raw) else { continue };
            let index = i64::try_from(index).ok();
            if none_came {
                self.items.push(Item::new(index));
            }
            let open = |item: &&mut Item| item.index() == index && !item.is_done() && item.may_be(&fields);
            if let Some(item) = self.items.iter_mut().rfind(open) {
                item.finish(raw, &fields, on_delta);
            }
        }
    }

    fn fail(&mut self, failure: Failure) -> Progress {
        self.failure.note(failure);
        Progress::Done
    }

    /// An error event may come before and say less than the failed response does.
    fn fail_for_good(&mut self, error: Option<&str>) {
        match error.and_then(|json| Some(failure_of(json, &Fields::of(json)?))) {
            Some(failure) => self.failure.replace(failure),
            None => {
                let message = "the provider ended the answer as failed and did not say why";
                self.fail(Failure::new(ErrorClass::Overload, message));
            }
        }
    }

    /// How the attempt ended, if it failed for this reason where neither an end nor another failure is known.
    fn ended(&mut self, otherwise: Failure) -> Ended {
        if self.end.is_none() {
            self.fail(otherwise);
        }
        self.failure.ended()
    }

    /// The presence of calls decides; but calls of an answer that was cut are never to be run, even where they parse.
    fn finish(&self) -> Finish {
        let any = |has: fn(&Item) -> bool| self.items.iter().any(has);
        match &self.end {
            None => Finish::Unknown,
            Some(End::Filtered) => Finish::Refusal,
            Some(End::Cut) => Finish::MaxTokens,
            Some(End::Whole) if any(Item::is_cut_call) => Finish::MaxTokens,
            Some(End::Whole) if any(Item::is_call) => Finish::ToolCalls,
            Some(End::Whole) if any(Item::is_refusal) => Finish::Refusal,
            Some(End::Whole) if any(Item::awaits_client) => Finish::Unknown,
            Some(End::Whole) => Finish::EndTurn,
        }
    }

    fn content(mut self) -> Vec<Content> {
        self.items.sort_by_key(|item| item.index().unwrap_or(i64::MAX));
        let mut is_tied = false;
        let mut content = Vec::new();
        for item in self.items {
            is_tied |= item.ties();
            content.extend(item.into_content(is_tied));
        }
        content
    }
}

/// Whether an object without a type is an error: here, whatever has a message, for no untyped event has one.
fn says_error(object: &Fields<'_>) -> bool {
    object.is_error() || object.get("message").is_some() || object.get("detail").is_some()
}

/// Reads an error inside an answer that began in order, where no status tells whose fault it is.
///
/// The codes are those of <https://platform.openai.com/docs/api-reference/responses/object#responses/object-error>.
fn failure_of(json: &str, event: &Fields<'_>) -> Failure {
    let mut failure = failure::of_object(json, Timestamp::now());
    let inner = event.object("error");
    let code = inner.as_ref().unwrap_or(event).text("code").unwrap_or_default();
    if failure.class == ErrorClass::Overload {
        if code == "invalid_prompt" {
            failure.class = ErrorClass::RefusedContent;
        } else if code.starts_with("invalid_") || code.contains("image") {
            failure.class = ErrorClass::BadRequest;
        }
    }
    failure
}

fn usage(usage: Option<Fields<'_>>) -> Option<Usage> {
    let usage = usage?;
    let (input, output) = (usage.count("input_tokens"), usage.count("output_tokens"));
    if input.is_none() && output.is_none() {
        return None;
    }
    let cached = usage.object("input_tokens_details").and_then(|details| details.count("cached_tokens"));
    Some(Usage {
        input_tokens: input.unwrap_or(0),
        cached_tokens: cached.unwrap_or(0),
        output_tokens: output.unwrap_or(0),
        ..Usage::default()
    })
}
