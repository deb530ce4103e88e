//! A line as it is shown: whole, or what stands around its hit.

use std::ops::Range;

use crate::text::count;

/// So many characters of a line are shown.
const SHOWN: usize = 400;
/// So many bytes before a hit are shown with it.
const LEAD: usize = 100;

/// A line without its end. A long one is cut to what surrounds the hit, or to its beginning, and says at which column
/// what is shown begins, as `read` takes it.
pub(super) fn excerpt(line: &[u8], hit: impl FnOnce(&[u8]) -> Option<Range<usize>>) -> String {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    // Bytes that are no text count as no characters, however many there are.
    if line.len() <= SHOWN || (line.len() <= 4 * SHOWN && characters(line) <= SHOWN) {
        return String::from_utf8_lossy(line).into_owned();
    }
    let at = hit(line).map_or(0, |hit| hit.start.min(line.len()));
    let from = if at < SHOWN - LEAD { 0 } else { border(line, at - LEAD) };
    let rest = &line[from..];
    let shown = &rest[..border(rest, end_of(rest, SHOWN))];
    let (before, after) = (if from > 0 { "…" } else { "" }, if shown.len() < rest.len() { "…" } else { "" });
    format!(
        "{before}{}{after} [from column {} of a line of {}]",
        String::from_utf8_lossy(shown),
        characters(&line[..from]) + 1,
        count(characters(line) as u64, "character")
    )
}

fn characters(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| **byte & 0xC0 != 0x80).count()
}

/// Where so many characters end.
fn end_of(bytes: &[u8], limit: usize) -> usize {
    let mut starts = bytes.iter().enumerate().filter(|(_, byte)| **byte & 0xC0 != 0x80);
    // Bytes that are no text may have no character's beginning for long.
    starts.nth(limit).map_or(bytes.len(), |(at, _)| at).min(4 * limit)
}

/// The nearest place at or before `at` where a character may begin.
fn border(bytes: &[u8], at: usize) -> usize {
    let back = bytes[..at].iter().rev().take(3).take_while(|byte| **byte & 0xC0 == 0x80).count();
    match bytes.get(at) {
        Some(byte) if byte & 0xC0 == 0x80 => at - (back + 1).min(at),
        _ => at,
    }
}
