//! Long texts: the beginning and the end for the model, the whole beside the log.

use std::path::Path;

use mainstay_session::log::{AppendError, Log};
use mainstay_session::message::ContentHash;

/// A text that is at most about `max` bytes long, and the hash of the whole where it was longer.
pub(crate) fn fit(
    text: String,
    max: usize,
    what: &str,
    log: &Log,
) -> Result<(String, Option<ContentHash>), AppendError> {
    if text.len() <= max {
        return Ok((text, None));
    }
    let spill = log.spill();
    let hash = spill.store(text.as_bytes())?;
    let short = head_and_tail(&text, max, what, &spill.path(&hash));
    Ok((short, Some(hash)))
}

fn head_and_tail(text: &str, max: usize, what: &str, whole: &Path) -> String {
    let head = &text[..text.floor_char_boundary(max / 2)];
    let tail = &text[text.ceil_char_boundary(text.len() - max / 2)..];
    let left_out = text.len() - head.len() - tail.len();
    format!(
        "{head}\n\n[{what} has {} bytes; {left_out} of them are left out here. The whole is in {}; `read` it from there.]\n\n{tail}",
        text.len(),
        whole.display()
    )
}
