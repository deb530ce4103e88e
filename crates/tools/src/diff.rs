//! A small diff of a change, for the model and for people.

use std::time::Duration;

use similar::{ChangeTag, TextDiff};

use crate::text::head_and_tail;

const SHOWN_BYTES: usize = 4_000;
const COMPARED_BYTES: usize = 2 * 1024 * 1024;

/// What a change did to a file's lines.
pub(crate) struct LineDiff {
    /// Lines that are new.
    pub(crate) added: usize,
    /// Lines that are gone.
    pub(crate) removed: usize,
    /// The hunks in unified form without a header, cut to a few thousand bytes.
    pub(crate) text: String,
}

/// Compares two texts line by line; none if they are too large for it.
pub(crate) fn lines(old: &[u8], new: &[u8]) -> Option<LineDiff> {
    if old.len().max(new.len()) > COMPARED_BYTES {
        return None;
    }
    let (old, new) = (String::from_utf8_lossy(old), String::from_utf8_lossy(new));
    let diff = TextDiff::configure().timeout(Duration::from_millis(200)).diff_lines(&*old, &*new);
    let count = |tag| diff.iter_all_changes().filter(|change| change.tag() == tag).count();
    let (added, removed) = (count(ChangeTag::Insert), count(ChangeTag::Delete));
    let text = diff.unified_diff().context_radius(2).missing_newline_hint(false).to_string();
    // Lines end here as `read` shows them.
    let text = text.replace("\r\n", "\n");
    Some(LineDiff { added, removed, text: head_and_tail(text.trim_end(), SHOWN_BYTES) })
}
