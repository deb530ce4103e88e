//! Models whose answers a test decides: beforehand, as a script, or one by one while the agent waits.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use mainstay_model::chat::encode::encode;
use mainstay_model::{Attempt, Delta, Encoded, Model, ModelSettings, ScriptModel, TextCallRule};
use mainstay_session::message::{Content, Ended, ErrorClass, Finish, ToolCall, Usage};
use mainstay_session::request::Request;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// A model that answers from a script, given as the JSON of `docs/script-model.md`.
///
/// # Panics
///
/// If the script is malformed.
pub fn script(answers: &Value) -> Arc<dyn Model> {
    match ScriptModel::from_json("script:test", &answers.to_string()) {
        Ok(model) => Arc::new(model),
        Err(error) => panic!("{error}"),
    }
}

/// Keeps every request that is sent to a model.
pub struct RecordingModel {
    inner: Arc<dyn Model>,
    sent: Mutex<Vec<Encoded>>,
    on_send: Box<dyn Fn(&Encoded) + Send + Sync>,
    text_calls: Option<TextCallRule>,
}

impl RecordingModel {
    /// Records what is sent to `inner`.
    pub fn new(inner: Arc<dyn Model>) -> Arc<Self> {
        RecordingModel::with(inner, |_| ())
    }

    /// As [`RecordingModel::new`]; `on_send` sees each request before the model does.
    pub fn with(inner: Arc<dyn Model>, on_send: impl Fn(&Encoded) + Send + Sync + 'static) -> Arc<Self> {
        let on_send = Box::new(on_send);
        Arc::new(RecordingModel { inner, sent: Mutex::default(), on_send, text_calls: None })
    }

    /// As [`RecordingModel::new`]; calls that the model writes as text go by this rule.
    pub fn with_text_calls(inner: Arc<dyn Model>, rule: TextCallRule) -> Arc<Self> {
        let text_calls = Some(rule);
        Arc::new(RecordingModel { inner, sent: Mutex::default(), on_send: Box::new(|_| ()), text_calls })
    }

    /// What was sent so far.
    pub fn sent(&self) -> Vec<Encoded> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Model for RecordingModel {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn api(&self) -> &str {
        self.inner.api()
    }

    fn context_window(&self) -> u64 {
        self.inner.context_window()
    }

    fn takes_images(&self) -> bool {
        self.inner.takes_images()
    }

    fn text_calls(&self) -> TextCallRule {
        self.text_calls.unwrap_or_else(|| self.inner.text_calls())
    }

    fn effort(&self) -> Option<&str> {
        self.inner.effort()
    }

    fn encode(&self, request: &Request<'_>) -> Encoded {
        self.inner.encode(request)
    }

    fn units(&self, request: &Request<'_>) -> Vec<Vec<u8>> {
        self.inner.units(request)
    }

    fn stream<'a>(
        &'a self,
        request: &'a Encoded,
        on_delta: &'a mut (dyn FnMut(Delta<'_>) + Send),
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Attempt> {
        (self.on_send)(request);
        self.sent.lock().unwrap_or_else(PoisonError::into_inner).push(request.clone());
        self.inner.stream(request, on_delta, cancel)
    }
}

/// The messages of a request's body, whether a script model or a Chat Completions server was to get it.
pub fn messages(encoded: &Encoded) -> Vec<Value> {
    let body: Value = serde_json::from_slice(&encoded.body).unwrap_or_default();
    let request = body.get("request").unwrap_or(&body);
    request["messages"].as_array().cloned().unwrap_or_default()
}

/// Every text of a request's body with its role, in order; a message of several parts has several.
pub fn texts(encoded: &Encoded) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for message in messages(encoded) {
        let role = message["role"].as_str().unwrap_or_default();
        match &message["content"] {
            Value::String(text) => all.push((role.to_owned(), text.clone())),
            Value::Array(parts) => {
                let texts = parts.iter().filter_map(|part| part["text"].as_str());
                all.extend(texts.map(|text| (role.to_owned(), text.to_owned())));
            }
            _ => {}
        }
    }
    all
}

/// How many texts of a request's body hold a phrase.
pub fn count_of(encoded: &Encoded, phrase: &str) -> usize {
    texts(encoded).iter().filter(|(_, text)| text.contains(phrase)).count()
}

/// A model whose every answer waits for the test.
pub struct PushModel {
    settings: ModelSettings,
    asks: mpsc::UnboundedSender<Ask>,
    count: AtomicU64,
}

/// The test's end of a [`PushModel`].
pub struct Asks(mpsc::UnboundedReceiver<Ask>);

/// One request that waits for its answer. Dropped unanswered, it is an attempt whose stream was cut.
pub struct Ask {
    /// What was sent.
    pub encoded: Encoded,
    /// Which request this is, from 1.
    pub number: u64,
    pieces: mpsc::UnboundedSender<Piece>,
}

enum Piece {
    Text(String),
    End(Attempt),
}

impl PushModel {
    /// Makes a model, and the end from which it is answered.
    pub fn new() -> (Arc<Self>, Asks) {
        let (asks, received) = mpsc::unbounded_channel();
        let settings = ModelSettings::new("push", "test", "", 200_000);
        (Arc::new(PushModel { settings, asks, count: AtomicU64::new(0) }), Asks(received))
    }
}

impl Model for PushModel {
    fn name(&self) -> &str {
        "push/test"
    }

    fn api(&self) -> &str {
        "openai-chat"
    }

    fn context_window(&self) -> u64 {
        self.settings.context_window
    }

    fn encode(&self, request: &Request<'_>) -> Encoded {
        encode(self.name(), &self.settings, request)
    }

    fn stream<'a>(
        &'a self,
        request: &'a Encoded,
        on_delta: &'a mut (dyn FnMut(Delta<'_>) + Send),
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Attempt> {
        let (pieces, mut received) = mpsc::unbounded_channel();
        let number = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        // A test that has dropped its end has no more answers; the attempt then ends as cut.
        let _ = self.asks.send(Ask { encoded: request.clone(), number, pieces });
        Box::pin(async move {
            let mut begun = String::new();
            loop {
                let piece = tokio::select! {
                    biased;
                    () = cancel.cancelled() => return after(begun, attempt(Vec::new(), Ended::Cancelled)),
                    piece = received.recv() => piece,
                };
                match piece {
                    Some(Piece::Text(text)) => {
                        on_delta(Delta::Text(&text));
                        begun.push_str(&text);
                    }
                    Some(Piece::End(end)) => return after(begun, end),
                    None => return after(begun, failed(ErrorClass::CutStream, None)),
                }
            }
        })
    }
}

impl Asks {
    /// Waits for the next request.
    ///
    /// # Panics
    ///
    /// If the model is gone.
    pub async fn next(&mut self) -> Ask {
        match self.0.recv().await {
            Some(ask) => ask,
            None => panic!("the model is gone, so no request will come"),
        }
    }

    /// A request that has come already.
    pub fn try_next(&mut self) -> Option<Ask> {
        self.0.try_recv().ok()
    }
}

impl Ask {
    /// Streams a piece of text; the answer goes on.
    pub fn say(&self, text: &str) {
        let _ = self.pieces.send(Piece::Text(text.to_owned()));
    }

    /// Ends the answer with any attempt.
    pub fn end(self, attempt: Attempt) {
        let _ = self.pieces.send(Piece::End(attempt));
    }

    /// Ends the answer with this text.
    pub fn text(self, text: &str) {
        self.say(text);
        self.end(attempt(Vec::new(), Ended::Complete));
    }

    /// Ends the answer with calls, given by name and arguments.
    pub fn calls(self, calls: &[(&str, &str)]) {
        self.end(calls_attempt(calls, Finish::ToolCalls));
    }

    /// Ends the attempt as failed.
    pub fn fail(self, class: ErrorClass, retry_after: Option<Duration>) {
        self.end(failed(class, retry_after));
    }
}

/// A whole attempt that makes calls, given by name and arguments.
pub fn calls_attempt(calls: &[(&str, &str)], finish: Finish) -> Attempt {
    let call = |(place, (name, arguments)): (usize, &(&str, &str))| {
        Content::Call(ToolCall {
            id: format!("call_{place}"),
            name: (*name).to_owned(),
            arguments: (*arguments).to_owned(),
            opaque: None,
        })
    };
    let content = calls.iter().enumerate().map(call).collect();
    Attempt { finish, ..attempt(content, Ended::Complete) }
}

/// A failed attempt.
pub fn failed(class: ErrorClass, retry_after: Option<Duration>) -> Attempt {
    let message = format!("the test's {}", class.as_str());
    Attempt { retry_after, ..attempt(Vec::new(), Ended::Failed { class, message }) }
}

fn attempt(content: Vec<Content>, ended: Ended) -> Attempt {
    let usage = Some(Usage { input_tokens: 10, cached_tokens: 0, output_tokens: 1, ..Usage::default() });
    Attempt { content, finish: Finish::EndTurn, usage, ended, retry_after: None }
}

fn after(begun: String, mut attempt: Attempt) -> Attempt {
    if !begun.is_empty() {
        attempt.content.insert(0, Content::Text { text: begun });
    }
    attempt
}
