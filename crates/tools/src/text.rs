//! Text for the model: bounded, cut at character borders, and without control over a terminal.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The most bytes that any one result has, whatever the window.
pub(crate) const RESULT_BYTES: usize = 50 * 1024;

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

/// A path for people: from the workspace where it lies in it. Bytes that are not UTF-8 appear as `\xNN`, and so do
/// control characters, so that the text names exactly one file.
pub(crate) fn shown_path(path: &Path, workspace: &Path) -> String {
    let path = path.strip_prefix(workspace).ok().filter(|p| !p.as_os_str().is_empty()).unwrap_or(path);
    shown_name(path.as_os_str().as_bytes())
}

/// The bytes of a name for people; see [`shown_path`].
pub(crate) fn shown_name(bytes: &[u8]) -> String {
    let mut shown = String::new();
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() {
                let mut buffer = [0; 4];
                c.encode_utf8(&mut buffer).bytes().for_each(|b| shown.push_str(&format!("\\x{b:02X}")));
            } else {
                shown.push(c);
            }
        }
        chunk.invalid().iter().for_each(|b| shown.push_str(&format!("\\x{b:02X}")));
    }
    shown
}

/// A number of things, with the plural where it belongs.
pub(crate) fn count(number: u64, thing: &str) -> String {
    if number == 1 { format!("1 {thing}") } else { format!("{number} {thing}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_shown_reversibly() {
        assert_eq!(shown_name(b"a\xffz\n.txt"), "a\\xFFz\\x0A.txt");
        assert_eq!(shown_path(Path::new("/w/a/b"), Path::new("/w")), "a/b");
        assert_eq!(shown_path(Path::new("/w"), Path::new("/w")), "/w");
    }
}
