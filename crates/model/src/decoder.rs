//! The seam between the way to a provider and a wire format: bytes come in, an attempt comes out.
//!
//! [`Feed`] cuts a response body into events, wherever its pieces begin and end, and hands each to the format's
//! [`Decoder`]. A decoder keeps its own buffer, so nothing of one attempt ever reaches another.

use crate::failure::Failure;
use crate::model::{Attempt, Delta};
use crate::sse::{BOM, Framing};

/// Where pieces of the answer are shown as they arrive.
pub type OnDelta<'a> = dyn FnMut(Delta<'_>) + Send + 'a;

/// Decodes the answer of one wire format.
///
/// Nothing that a server sends makes it panic; what it does not know it passes over.
pub trait Decoder: Send {
    /// Takes one event of a stream: its name, which may be empty, and its data.
    fn event(&mut self, name: &str, data: &str, on_delta: &mut OnDelta<'_>) -> Progress;

    /// Takes a whole body that is one JSON document although a stream was asked for.
    fn document(&mut self, json: &str, on_delta: &mut OnDelta<'_>);

    /// Ends the attempt with what has come.
    fn close(self, close: Close) -> Attempt;
}

/// What an event brought; the later in this list, the nearer the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Progress {
    /// Nothing of the answer: a ping, an empty piece.
    Nothing,
    /// A piece of the answer.
    Content,
    /// The answer is whole; only counts may follow.
    Finished,
    /// The provider said that nothing follows.
    Done,
}

/// How the stream came to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Close {
    /// The server ended it in order.
    End,
    /// It failed.
    Failed(Failure),
    /// The user cancelled.
    Cancelled,
}

/// The most bytes of a stream that are read, comments included. The longest answers have 128,000 tokens and take up to
/// 500 bytes for each, most of which is not kept.
const MAX_STREAM: usize = 64 * 1024 * 1024;

/// The most bytes of a body that is one JSON document, which is kept whole.
const MAX_DOCUMENT: usize = 16 * 1024 * 1024;

/// A response body on its way to a decoder.
pub struct Feed<D> {
    decoder: D,
    framing: Framing,
    document: Option<Vec<u8>>,
    begun: bool,
    is_page: bool,
    size: usize,
    progress: Progress,
}

impl<D: Decoder> Feed<D> {
    /// Begins a body.
    pub fn new(decoder: D) -> Self {
        Feed {
            decoder,
            framing: Framing::default(),
            document: None,
            begun: false,
            is_page: false,
            size: 0,
            progress: Progress::Nothing,
        }
    }

    /// Takes the next bytes and says what they brought.
    pub fn push(&mut self, mut bytes: &[u8], on_delta: &mut OnDelta<'_>) -> Progress {
        self.size = self.size.saturating_add(bytes.len());
        if !self.begun {
            let is_lead = |byte: &u8| byte.is_ascii_whitespace() || BOM.contains(byte);
            let lead = bytes.iter().take_while(|byte| is_lead(byte)).count();
            bytes = &bytes[lead..];
            let Some(first) = bytes.first() else { return Progress::Nothing };
            self.begun = true;
            self.is_page = *first == b'<';
            if matches!(first, b'{' | b'[') {
                self.document = Some(Vec::new());
            }
        }
        if self.is_too_long() {
            return Progress::Done;
        }
        if let Some(document) = &mut self.document {
            document.extend_from_slice(bytes);
            self.progress = Progress::Content;
            return Progress::Content;
        }
        let mut brought = Progress::Nothing;
        let Feed { decoder, framing, .. } = self;
        framing.push(bytes, &mut |name, data| brought = brought.max(decoder.event(name, data, on_delta)));
        self.progress = self.progress.max(brought);
        brought
    }

    /// Whether the body is longer than any answer, so that the rest of it is not worth waiting for.
    pub fn is_too_long(&self) -> bool {
        self.size > self.limit()
    }

    /// Whether the body is a web page, whatever the server calls it: no answer begins like one.
    pub fn is_page(&self) -> bool {
        self.is_page
    }

    /// How far the answer is.
    pub fn progress(&self) -> Progress {
        self.progress
    }

    /// Ends the attempt with what has come.
    pub fn close(mut self, close: Close, on_delta: &mut OnDelta<'_>) -> Attempt {
        if self.is_too_long() && close == Close::End {
            let limit = self.limit();
            let failure = Failure::cut(format!("the server sent more than {limit} bytes for one answer"));
            return self.decoder.close(Close::Failed(failure));
        }
        if close == Close::End {
            match self.document.take() {
                Some(document) => self.decoder.document(&String::from_utf8_lossy(&document), on_delta),
                None => {
                    let decoder = &mut self.decoder;
                    self.framing.finish(&mut |name, data| {
                        decoder.event(name, data, on_delta);
                    });
                }
            }
        }
        self.decoder.close(close)
    }

    fn limit(&self) -> usize {
        if self.document.is_some() { MAX_DOCUMENT } else { MAX_STREAM }
    }
}
