//! Text for the model: bounded, cut at character borders, and without control over a terminal.

use crate::tool::RESULT_BYTES;

/// The most bytes of a result's content, with room left for the summary and notes.
pub(crate) fn content_budget(max_result_bytes: usize) -> usize {
    RESULT_BYTES.min(max_result_bytes).saturating_sub(512).max(256)
}

/// The beginning of a text, at most so many bytes.
pub(crate) fn head(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

/// Cuts the middle out of a text that is too long and says how much is missing.
pub(crate) fn head_and_tail(text: &str, bytes: usize) -> String {
    if text.len() <= bytes {
        return text.to_owned();
    }
    let half = bytes / 2;
    let start = head(text, half);
    let end = &text[text.ceil_char_boundary(text.len() - half)..];
    format!("{start}{}{end}", gap(text.len() - start.len() - end.len()))
}

/// The line that stands where bytes are missing.
pub(crate) fn gap(bytes: usize) -> String {
    format!("\n[… {bytes} bytes left out …]\n")
}

/// A number of things, with the plural where it belongs.
pub(crate) fn count(number: u64, thing: &str) -> String {
    if number == 1 { format!("1 {thing}") } else { format!("{number} {thing}s") }
}
