//! What must hold for any bytes: of a stream that a server sends, and of the requests that follow from a log.
//!
//! The fuzz targets in `fuzz/` call these with bytes of their own making, `replay_seeds.rs` with those that are kept.

use mainstay_model::anthropic::decode::AnthropicDecoder;
use mainstay_model::chat::decode::ChatDecoder;
use mainstay_model::decoder::{Close, Decoder, Feed};
use mainstay_model::gemini::decode::GeminiDecoder;
use mainstay_model::responses::decode::ResponsesDecoder;
use mainstay_model::{Attempt, Delta};
use mainstay_session::entry::{Answer, Body, Entry, Lane, Notice, NoticeKind, UserPrompt, World};
use mainstay_session::line;
use mainstay_session::lookalike::runtime_block;
use mainstay_session::message::{
    Content, ContentHash, Ended, Finish, Image, Outcome, RequestMark, ToolCall, ToolResult, ToolSpec,
};
use mainstay_session::request::{Request, request, request_with};
use mainstay_session::state::SessionState;

use super::dialects::{ANTHROPIC, CHAT, GEMINI, RESPONSES, dialects};

/// Decodes bytes as an answer over Chat Completions.
pub fn chat(data: &[u8]) {
    answer(CHAT, data, ChatDecoder::default);
}

/// Decodes bytes as an answer over Anthropic Messages.
pub fn anthropic(data: &[u8]) {
    answer(ANTHROPIC, data, AnthropicDecoder::default);
}

/// Decodes bytes as an answer over Responses.
pub fn responses(data: &[u8]) {
    answer(RESPONSES, data, ResponsesDecoder::default);
}

/// Decodes bytes as an answer of Gemini.
pub fn gemini(data: &[u8]) {
    answer(GEMINI, data, GeminiDecoder::default);
}

/// The first byte says how the stream is cut and how it ends. Wherever it is cut the same attempt comes out; what came out
/// can be logged and read back; and whatever it holds, it makes no request that a provider refuses.
fn answer<D: Decoder>(model: &str, data: &[u8], decoder: impl Fn() -> D) {
    let Some((first, stream)) = data.split_first() else { return };
    let close = || if first & 1 == 0 { Close::End } else { Close::Cancelled };
    let whole = decode(decoder(), &[stream], close());
    let size = usize::from(first >> 1) % 61 + 1;
    let pieces: Vec<&[u8]> = stream.chunks(size).collect();
    assert_eq!(decode(decoder(), &pieces, close()), whole, "cut into pieces of {size} bytes");
    let (attempt, _) = whole;
    let body = Body::Answer(Answer {
        model: model.to_owned(),
        content: attempt.content,
        finish: attempt.finish,
        usage: attempt.usage,
        ended: Ended::Complete,
        request: None,
        duration_ms: 0,
    });
    let mut log = Fuzzed::new();
    log.append(body);
    log.close_calls();
    log.append(prompt("go on", Vec::new()));
    log.check(Some(model));
}

/// The attempt and all that was shown.
fn decode<D: Decoder>(decoder: D, pieces: &[&[u8]], close: Close) -> (Attempt, String) {
    let mut feed = Feed::new(decoder);
    let mut shown = String::new();
    let mut show = |delta: Delta<'_>| match delta {
        Delta::Text(text) | Delta::Reasoning(text) => shown.push_str(text),
        Delta::CallStarted(name) => shown.push_str(name),
    };
    for piece in pieces {
        feed.push(piece, &mut show);
    }
    let attempt = feed.close(close, &mut show);
    (attempt, shown)
}

/// Writes a log as the bytes say, and checks the request that follows from each of its states.
pub fn requests(data: &[u8]) {
    let mut bytes = Bytes(data);
    let mut log = Fuzzed::new();
    let mut before: Vec<Option<RequestMark>> = dialects().iter().map(|_| None).collect();
    while !bytes.0.is_empty() {
        let body = bytes.body(&log.state);
        log.append(body);
        if !log.state.open_calls().is_empty() {
            continue;
        }
        log.check(None);
        for (dialect, before) in dialects().iter().zip(&mut before) {
            let request = Request { previous: before.as_ref(), ..shown(&log.state) };
            let mark = dialect.encode(&request).mark;
            if let Some(before) = before {
                assert_eq!(mark.shared, before.units, "{} does not grow", dialect.name);
            }
            *before = Some(mark);
        }
    }
}

fn shown(state: &SessionState) -> Request<'_> {
    request_with(state, &|image| Some(image.hash.as_str()[..8].into()))
}

/// A session in memory.
struct Fuzzed {
    state: SessionState,
}

impl Fuzzed {
    fn new() -> Self {
        let mut log = Fuzzed { state: SessionState::default() };
        let tool = ToolSpec {
            name: "read".to_owned(),
            description: "Reads.".to_owned(),
            schema: r#"{"type":"object"}"#.to_owned(),
        };
        log.append(Body::World(World {
            system: "Be good.".to_owned(),
            tools: vec![tool],
            ..World::default()
        }));
        log.append(prompt("go", Vec::new()));
        log
    }

    /// Appends an entry as a log does: written, read back, applied.
    fn append(&mut self, body: Body) {
        let entry = Entry {
            seq: self.state.last_seq + 1,
            ts: jiff::Timestamp::UNIX_EPOCH.into(),
            lane: Lane::Main,
            body,
        };
        let line = line::encode(&entry).unwrap();
        let read = line::decode(line.as_slice().strip_suffix(b"\n").unwrap_or(&line)).unwrap();
        assert_eq!(read, entry, "the log keeps what was written");
        self.state.apply(&read);
    }

    fn close_calls(&mut self) {
        for open in self.state.open_calls() {
            self.append(Body::ToolResult(result(open.call_ref.answer, open.call_ref.call, "done")));
        }
    }

    /// Every provider takes the request; of the `own` model, whose opaque blocks may be anything, it is only JSON.
    fn check(&self, own: Option<&str>) {
        for dialect in dialects() {
            let encoded = dialect.encode(&shown(&self.state));
            if own == Some(dialect.model) {
                let body = serde_json::from_slice::<serde_json::Value>(&encoded.body);
                assert!(body.is_ok(), "{}: {}", dialect.name, String::from_utf8_lossy(&encoded.body));
            } else if let Err(why) = dialect.check(&encoded) {
                panic!("{why}");
            }
        }
        assert_eq!(request(&self.state).tools.len(), 1);
    }
}

fn prompt(text: &str, images: Vec<Image>) -> Body {
    Body::UserPrompt(UserPrompt { text: text.to_owned(), spill: None, images, steering: false, inbox: None })
}

fn result(answer: u64, call: u32, text: &str) -> ToolResult {
    ToolResult {
        answer,
        call,
        call_id: String::new(),
        outcome: Outcome::Ok,
        summary: text.to_owned(),
        content: None,
        images: Vec::new(),
        referenced_files: Vec::new(),
        changes: Vec::new(),
        duration_ms: 0,
        exit_code: None,
        plan: None,
    }
}

/// Bytes from which a log is made.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn text(&mut self) -> String {
        let length = usize::from(self.byte() % 24).min(self.0.len());
        let (text, rest) = self.0.split_at(length);
        self.0 = rest;
        String::from_utf8_lossy(text).into_owned()
    }

    fn images(&mut self) -> Vec<Image> {
        let image = |n: u8| Image {
            media_type: ["image/png", "image/gif"][usize::from(n % 2)].to_owned(),
            hash: ContentHash::of(&[n]),
            bytes: u64::from(n) << 16,
        };
        (0..self.byte() % 3).map(image).collect()
    }

    /// The next entry: while calls are open, mostly a result.
    fn body(&mut self, state: &SessionState) -> Body {
        if let Some(open) = state.open_calls().first()
            && !self.byte().is_multiple_of(8)
        {
            let outcome = [Outcome::Ok, Outcome::Error, Outcome::Denied][usize::from(self.byte() % 3)];
            let result = result(open.call_ref.answer, open.call_ref.call, &self.text());
            return Body::ToolResult(ToolResult { outcome, images: self.images(), ..result });
        }
        match self.byte() % 5 {
            0 => prompt(&self.text(), self.images()),
            1 => Body::Notice(Notice { about: NoticeKind::Interceptor, text: runtime_block(&self.text()) }),
            2 => Body::ToolResult(result(1, 9, &self.text())),
            _ => self.answer(),
        }
    }

    fn answer(&mut self) -> Body {
        let model = [CHAT, ANTHROPIC, RESPONSES, GEMINI][usize::from(self.byte() % 4)];
        let ended = match self.byte() % 8 {
            0 => Ended::Cancelled,
            _ => Ended::Complete,
        };
        Body::Answer(Answer {
            model: model.to_owned(),
            content: (0..self.byte() % 5).map(|_| self.block()).collect(),
            finish: Finish::EndTurn,
            usage: None,
            ended,
            request: None,
            duration_ms: 0,
        })
    }

    fn block(&mut self) -> Content {
        match self.byte() % 6 {
            0 => Content::Text { text: self.text() },
            1 => Content::Reasoning { text: self.text(), opaque: self.opaque() },
            2 => Content::Opaque { raw: self.opaque().unwrap_or_else(|| "{}".to_owned()) },
            _ => {
                let arguments = match self.byte() % 3 {
                    0 => self.text(),
                    _ => serde_json::json!({ "path": self.text() }).to_string(),
                };
                Content::Call(ToolCall { id: self.text(), name: self.text(), arguments, opaque: None })
            }
        }
    }

    /// An opaque block as some provider writes one.
    fn opaque(&mut self) -> Option<String> {
        let raw = match self.byte() % 6 {
            0 => return None,
            1 => r#"{"reasoning_content":"hm"}"#,
            2 => r#"{"type":"thinking","thinking":"hm","signature":"s"}"#,
            3 => r#"{"type":"redacted_thinking","data":"d"}"#,
            4 => r#"{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":"e"}"#,
            _ => r#"{"thoughtSignature":"t"}"#,
        };
        Some(raw.to_owned())
    }
}
