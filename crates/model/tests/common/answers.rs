//! What comes of a small answer, however it is cut.

use mainstay_model::decoder::{Close, Decoder, Feed};
use mainstay_model::{Attempt, Delta};
use mainstay_session::message::{Content, Ended, ErrorClass};

/// Decodes a body in one piece, in single bytes and cut once at every place, which must make no difference.
pub fn decode_all_ways<D: Decoder + Default>(body: &[u8]) -> Attempt {
    let whole = decode::<D>(&[body]);
    assert_eq!(decode::<D>(&body.chunks(1).collect::<Vec<_>>()), whole, "in single bytes");
    for at in 0..body.len() {
        let (start, end) = body.split_at(at);
        assert_eq!(decode::<D>(&[start, end]), whole, "cut at byte {at}");
    }
    whole.0
}

/// Decodes a body in these pieces, and what was shown meanwhile.
pub fn decode<D: Decoder + Default>(pieces: &[&[u8]]) -> (Attempt, String) {
    let mut feed = Feed::new(D::default());
    let mut shown = String::new();
    let mut show = |delta: Delta<'_>| match delta {
        Delta::Text(text) | Delta::Reasoning(text) => shown.push_str(text),
        Delta::CallStarted(name) => shown.push_str(&format!("[{name}]")),
    };
    for piece in pieces {
        feed.push(piece, &mut show);
    }
    let attempt = feed.close(Close::End, &mut show);
    (attempt, shown)
}

/// How it failed, if it did.
pub fn class(attempt: &Attempt) -> Option<ErrorClass> {
    match &attempt.ended {
        Ended::Failed { class, .. } => Some(*class),
        Ended::Complete | Ended::Cancelled => None,
    }
}

pub fn text(text: &str) -> Content {
    Content::Text { text: text.to_owned() }
}
