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

/// Takes out of a program's output what would steer a terminal.
///
/// One rule: escape sequences (7-bit and, as characters, 8-bit) disappear whole, an unfinished one up to the end of its
/// line; a carriage return becomes a line break; other control characters but tab and newline disappear.
pub(crate) fn inert(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\n' | '\t' => out.push(c),
            '\r' => {
                if chars.peek().is_some_and(|next| *next != '\n' && *next != '\r') {
                    out.push('\n');
                }
            }
            '\u{1b}' => skip_escape(&mut chars),
            '\u{9b}' => skip_control_sequence(&mut chars),
            '\u{90}' | '\u{98}' | '\u{9d}' | '\u{9e}' | '\u{9f}' => skip_control_string(&mut chars),
            c if c.is_control() => {}
            c => out.push(c),
        }
    }
    out
}

type Chars<'a> = std::iter::Peekable<std::str::Chars<'a>>;

fn skip_escape(chars: &mut Chars<'_>) {
    match chars.peek() {
        Some('[') => {
            chars.next();
            skip_control_sequence(chars);
        }
        Some(']' | 'P' | 'X' | '^' | '_') => {
            chars.next();
            skip_control_string(chars);
        }
        Some(' '..='/') => {
            while chars.next_if(|c| matches!(c, ' '..='/')).is_some() {}
            chars.next_if(|c| matches!(c, '0'..='~'));
        }
        Some('0'..='~') => {
            chars.next();
        }
        _ => {}
    }
}

fn skip_control_sequence(chars: &mut Chars<'_>) {
    while chars.next_if(|c| matches!(c, ' '..='?')).is_some() {}
    chars.next_if(|c| matches!(c, '@'..='~'));
}

fn skip_control_string(chars: &mut Chars<'_>) {
    while let Some(c) = chars.next_if(|c| *c != '\n') {
        match c {
            '\u{07}' | '\u{9c}' => return,
            '\u{1b}' => {
                chars.next_if(|c| *c == '\\');
                return;
            }
            _ => {}
        }
    }
}

/// The beginning and the end of a stream of bytes of any length, in bounded memory.
#[derive(Debug)]
pub(crate) struct HeadTail {
    limit: usize,
    head: Vec<u8>,
    tail: std::collections::VecDeque<u8>,
    total: usize,
}

impl HeadTail {
    /// Keeps so many bytes of either end.
    pub(crate) fn new(limit: usize) -> Self {
        HeadTail { limit, head: Vec::new(), tail: std::collections::VecDeque::new(), total: 0 }
    }

    /// Takes the next bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.total = self.total.saturating_add(bytes.len());
        let (first, rest) = bytes.split_at(bytes.len().min(self.limit - self.head.len()));
        self.head.extend_from_slice(first);
        let rest = &rest[rest.len().saturating_sub(self.limit)..];
        let excess = (self.tail.len() + rest.len()).saturating_sub(self.limit);
        self.tail.drain(..excess);
        self.tail.extend(rest);
    }

    /// The text for the model, at most about `bytes` long, and whether some bytes were not UTF-8.
    pub(crate) fn render(mut self, bytes: usize) -> (String, bool) {
        let dropped = self.total - self.head.len() - self.tail.len();
        let tail = self.tail.make_contiguous();
        if dropped == 0 {
            self.head.extend_from_slice(tail);
            let (text, damaged) = decoded(&self.head);
            return (head_and_tail(&inert(&text), bytes), damaged);
        }
        // Either end may have been cut inside a character; such a rest is not damage.
        let (start, start_damaged) = decoded(&self.head[..whole_characters(&self.head)]);
        let lead = tail.iter().take(3).take_while(|b| **b & 0xC0 == 0x80).count();
        let (end, end_damaged) = decoded(&tail[lead..]);
        let (start, end) = (inert(&start), inert(&end));
        let start = head(&start, bytes / 2);
        let end = &end[end.ceil_char_boundary(end.len().saturating_sub(bytes / 2))..];
        let left_out = self.total.saturating_sub(start.len() + end.len());
        (format!("{start}{}{end}", gap(left_out)), start_damaged || end_damaged)
    }
}

fn decoded(bytes: &[u8]) -> (std::borrow::Cow<'_, str>, bool) {
    let text = String::from_utf8_lossy(bytes);
    let damaged = matches!(text, std::borrow::Cow::Owned(_));
    (text, damaged)
}

/// Where to cut so that an unfinished character at the end goes.
fn whole_characters(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => error.valid_up_to(),
        Ok(_) | Err(_) => {
            let tail = bytes.len().saturating_sub(3);
            match bytes[tail..].iter().rposition(|b| *b >= 0xC0) {
                Some(at)
                    if std::str::from_utf8(&bytes[tail + at..]).is_err_and(|e| e.error_len().is_none()) =>
                {
                    tail + at
                }
                _ => bytes.len(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// F08
    #[test]
    fn control_sequences_are_rendered_inert_and_text_stays() {
        for (raw, text) in [
            ("a\u{1b}]52;c;QQ==\u{07}b", "ab"),
            ("a\u{1b}]8;;http://x\u{1b}\\b", "ab"),
            ("\u{1b}[6nx", "x"),
            ("\u{1b}]0;t\nnext", "\nnext"),
            ("\u{9b}31mred", "red"),
            ("ÛX €", "ÛX €"),
            ("\u{1b}(Bx\u{1b}=y\u{1b}", "xy"),
            ("\u{1b}P1;2|secret\u{1b}\\z", "z"),
            ("10%\r20%\rdone\r\nok\r", "10%\n20%\ndone\nok"),
            ("a\u{8}b\u{0}c\td", "abc\td"),
            ("\u{1b}[1é", "é"),
        ] {
            assert_eq!(inert(raw), text, "{raw:?}");
        }
    }

    /// F06, F05
    #[test]
    fn long_streams_are_cut_at_character_borders_in_bounded_memory() {
        for shift in 0..4 {
            let mut capture = HeadTail::new(100);
            capture.push("a".repeat(97 + shift).as_bytes());
            for _ in 0..1000 {
                capture.push("€".as_bytes());
            }
            let (text, damaged) = capture.render(100);
            assert!(!damaged, "{text}");
            assert!(text.contains("bytes left out"), "{text}");
            assert!(text.len() < 160, "{text}");
            assert!(text.ends_with("€"));
        }
        let mut capture = HeadTail::new(1000);
        capture.push(b"\xff\xfe\x80ok");
        assert_eq!(capture.render(1000), ("\u{fffd}\u{fffd}\u{fffd}ok".to_owned(), true));
    }
}
