//! What a command prints, of any length, in bounded memory: text for the model that steers no terminal, its beginning and
//! end where it is long, and then the whole in the session's spill.
//!
//! The model and whoever reads the whole see the same text: bytes that are not UTF-8 are U+FFFD, and what would steer a
//! terminal is out.

use std::collections::VecDeque;

use mainstay_session::log::{Spill, SpillError, SpillWriter};
use mainstay_session::message::ContentHash;

use crate::text::head;

/// The most bytes of either end of an output that are held in memory.
const HELD: usize = 64 << 10;

/// The most bytes of an output that are kept.
pub(crate) const KEPT: u64 = 64 << 20;

/// Takes out of a program's output what would steer a terminal, piece by piece.
///
/// One rule: escape sequences (7-bit and, as characters, 8-bit) disappear whole, an unfinished one up to the end of its
/// line; a carriage return becomes a line break; other control characters but tab and newline disappear.
#[derive(Debug, Default)]
pub(crate) struct Inert {
    state: State,
    /// The beginning of a character whose rest has not come.
    partial: Vec<u8>,
    /// Whether some bytes were not UTF-8.
    pub(crate) is_damaged: bool,
}

/// Where in a sequence the last character stood.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Text,
    CarriageReturn,
    Escape,
    Intermediate,
    ControlSequence,
    ControlString,
    EscapeInString,
}

impl Inert {
    /// Takes in the next bytes and adds what is text to `out`.
    pub(crate) fn push(&mut self, bytes: &[u8], out: &mut String) {
        if self.partial.is_empty() {
            return self.decode(bytes, out);
        }
        let mut joined = std::mem::take(&mut self.partial);
        joined.extend_from_slice(bytes);
        self.decode(&joined, out);
    }

    /// Takes in that nothing follows.
    pub(crate) fn end(&mut self, out: &mut String) {
        if !std::mem::take(&mut self.partial).is_empty() {
            self.is_damaged = true;
            self.step(char::REPLACEMENT_CHARACTER, out);
        }
    }

    fn decode(&mut self, bytes: &[u8], out: &mut String) {
        let mut at = 0;
        for chunk in bytes.utf8_chunks() {
            self.text(chunk.valid(), out);
            let invalid = chunk.invalid();
            at += chunk.valid().len() + invalid.len();
            let is_unfinished = std::str::from_utf8(invalid).is_err_and(|error| error.error_len().is_none());
            if at == bytes.len() && is_unfinished {
                self.partial = invalid.to_vec();
            } else if !invalid.is_empty() {
                self.is_damaged = true;
                self.step(char::REPLACEMENT_CHARACTER, out);
            }
        }
    }

    fn text(&mut self, text: &str, out: &mut String) {
        let mut rest = text;
        while !rest.is_empty() {
            if self.state == State::Text {
                let plain = rest.bytes().position(may_steer).unwrap_or(rest.len());
                out.push_str(&rest[..plain]);
                rest = &rest[plain..];
            }
            let mut chars = rest.chars();
            if let Some(c) = chars.next() {
                self.step(c, out);
            }
            rest = chars.as_str();
        }
    }

    fn step(&mut self, c: char, out: &mut String) {
        let (next, is_used) = match (self.state, c) {
            (State::Text, '\u{1b}') => (State::Escape, true),
            (State::Text, '\u{9b}') => (State::ControlSequence, true),
            (State::Text, '\u{90}' | '\u{98}' | '\u{9d}' | '\u{9e}' | '\u{9f}') => {
                (State::ControlString, true)
            }
            (State::Text | State::CarriageReturn, '\r') => (State::CarriageReturn, true),
            (State::Text, c) => {
                if !c.is_control() || matches!(c, '\n' | '\t') {
                    out.push(c);
                }
                (State::Text, true)
            }
            (State::CarriageReturn, c) => {
                if c != '\n' {
                    out.push('\n');
                }
                (State::Text, false)
            }
            (State::Escape, '[') => (State::ControlSequence, true),
            (State::Escape, ']' | 'P' | 'X' | '^' | '_') => (State::ControlString, true),
            (State::Escape | State::Intermediate, ' '..='/') => (State::Intermediate, true),
            (State::Escape | State::Intermediate, c) => (State::Text, matches!(c, '0'..='~')),
            (State::ControlSequence, ' '..='?') => (State::ControlSequence, true),
            (State::ControlSequence, c) => (State::Text, matches!(c, '@'..='~')),
            (State::ControlString, '\n') => (State::Text, false),
            (State::ControlString, '\u{07}' | '\u{9c}') => (State::Text, true),
            (State::ControlString, '\u{1b}') => (State::EscapeInString, true),
            (State::ControlString, _) => (State::ControlString, true),
            (State::EscapeInString, c) => (State::Text, c == '\\'),
        };
        self.state = next;
        if !is_used {
            self.step(c, out);
        }
    }
}

/// Whether a byte may begin a character that is not plain text.
fn may_steer(byte: u8) -> bool {
    matches!(byte, 0..=8 | 11..=31 | 127 | 0xC2)
}

/// The text of some bytes, and whether some of them were not UTF-8.
pub(crate) fn inert(bytes: &[u8]) -> (String, bool) {
    let mut inert = Inert::default();
    let mut text = String::with_capacity(bytes.len());
    inert.push(bytes, &mut text);
    inert.end(&mut text);
    (text, inert.is_damaged)
}

/// A command's output while it comes.
#[derive(Debug)]
pub(crate) struct Capture {
    spill: Spill,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total: u64,
    whole: Whole,
}

/// Where the whole of an output is.
#[derive(Debug)]
enum Whole {
    /// In the head and the tail.
    Held,
    /// On its way to the spill.
    Kept(Box<Keeping>),
    /// Nowhere.
    Lost(SpillError),
}

/// The text of an output on its way to the spill.
#[derive(Debug)]
struct Keeping {
    writer: SpillWriter,
    inert: Inert,
    is_full: bool,
}

/// A command's output for the model.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Captured {
    /// The text, its middle left out where it is long.
    pub(crate) text: String,
    /// Whether some bytes were not UTF-8.
    pub(crate) is_damaged: bool,
}

impl Capture {
    /// Begins; what is long goes to this spill.
    pub(crate) fn new(spill: Spill) -> Self {
        Capture { spill, head: Vec::new(), tail: VecDeque::new(), total: 0, whole: Whole::Held }
    }

    /// Whether ending it may take a while.
    pub(crate) fn is_long(&self) -> bool {
        matches!(self.whole, Whole::Kept(_))
    }

    /// Takes the next bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if matches!(self.whole, Whole::Held) && self.head.len() + self.tail.len() + bytes.len() > 2 * HELD {
            self.begin_to_keep();
        }
        self.keep(bytes);
        self.total += bytes.len() as u64;
        let (first, rest) = bytes.split_at(bytes.len().min(HELD - self.head.len()));
        self.head.extend_from_slice(first);
        let rest = &rest[rest.len().saturating_sub(HELD)..];
        let excess = (self.tail.len() + rest.len()).saturating_sub(HELD);
        self.tail.drain(..excess);
        self.tail.extend(rest);
    }

    /// From here on the ends do not hold it all.
    fn begin_to_keep(&mut self) {
        self.whole = match self.spill.create() {
            Ok(writer) => Whole::Kept(Box::new(Keeping { writer, inert: Inert::default(), is_full: false })),
            Err(error) => Whole::Lost(error),
        };
        let held: Vec<u8> = self.head.iter().chain(&self.tail).copied().collect();
        self.keep(&held);
    }

    fn keep(&mut self, bytes: &[u8]) {
        if let Whole::Kept(keeping) = &mut self.whole
            && let Err(error) = keeping.push(bytes)
        {
            self.whole = Whole::Lost(error);
        }
    }

    /// The text for the model, at most about `max` bytes long. What it leaves out is on the disk when this returns.
    pub(crate) fn end(mut self, max: usize) -> Captured {
        let mut is_damaged = false;
        let (whole, is_complete) = match self.whole {
            Whole::Held => {
                self.head.extend(&self.tail);
                let (text, is_damaged) = inert(&self.head);
                if text.len() <= max {
                    return Captured { text, is_damaged };
                }
                let whole = self.spill.store(text.as_bytes()).map(|hash| self.spill.path(&hash));
                let total = text.len() as u64;
                return shortened(&text, &text, max, total, is_damaged, &place(whole, true));
            }
            Whole::Kept(keeping) => {
                let (is_complete, damaged) = (!keeping.is_full, keeping.inert.is_damaged);
                is_damaged = damaged;
                (keeping.end().map(|hash| self.spill.path(&hash)), is_complete)
            }
            Whole::Lost(error) => (Err(error), true),
        };
        // Either end may have been cut inside a character; such a rest is not damage.
        let tail = self.tail.make_contiguous();
        let lead = tail.iter().take(3).take_while(|byte| **byte & 0xC0 == 0x80).count();
        let mut start = String::new();
        let mut beginning = Inert::default();
        beginning.push(&self.head, &mut start);
        let (end, end_is_damaged) = inert(&tail[lead..]);
        is_damaged |= beginning.is_damaged || end_is_damaged;
        shortened(&start, &end, max, self.total, is_damaged, &place(whole, is_complete))
    }
}

impl Keeping {
    fn push(&mut self, bytes: &[u8]) -> Result<(), SpillError> {
        if self.is_full {
            return Ok(());
        }
        let mut text = String::with_capacity(bytes.len());
        self.inert.push(bytes, &mut text);
        self.write(&text)
    }

    fn write(&mut self, text: &str) -> Result<(), SpillError> {
        let room = usize::try_from(KEPT - self.writer.len()).unwrap_or(usize::MAX);
        self.is_full = text.len() > room;
        self.writer.write(head(text, room).as_bytes())
    }

    fn end(mut self) -> Result<ContentHash, SpillError> {
        let mut rest = String::new();
        self.inert.end(&mut rest);
        self.write(&rest)?;
        self.writer.finish()
    }
}

/// Where the whole is, in words.
fn place(whole: Result<std::path::PathBuf, SpillError>, is_complete: bool) -> String {
    match whole {
        Ok(path) if is_complete => format!("The whole is in {}", path.display()),
        Ok(path) => format!("The first {} MiB of it are in {}", KEPT >> 20, path.display()),
        Err(error) => format!("The whole is lost: {error}"),
    }
}

/// The head of `start` and the tail of `end`, cut between lines where lines are not long, and between them what is
/// missing and where it is.
fn shortened(start: &str, end: &str, max: usize, total: u64, is_damaged: bool, place: &str) -> Captured {
    let start = head(start, max / 2);
    let start = match start.rfind('\n') {
        Some(line_end) if line_end >= start.len() / 2 => &start[..=line_end],
        Some(_) | None => start,
    };
    let end = &end[end.ceil_char_boundary(end.len().saturating_sub(max / 2))..];
    let end = match end.find('\n') {
        Some(line_end) if line_end < end.len() / 2 => &end[line_end + 1..],
        Some(_) | None => end,
    };
    let left_out = total.saturating_sub((start.len() + end.len()) as u64);
    let line = start.matches('\n').count() + 1;
    let newline = if start.ends_with('\n') { "" } else { "\n" };
    let text = format!(
        "{start}{newline}[… {left_out} of {total} bytes are left out here, from line {line} on. {place} …]\n{end}"
    );
    Captured { text, is_damaged }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainstay_session::log::Durability;

    fn spill() -> (tempfile::TempDir, Spill) {
        let dir = tempfile::tempdir().unwrap();
        let spill = Spill::of_session(dir.path(), Durability::Relaxed);
        (dir, spill)
    }

    fn files(spill: &Spill) -> Vec<std::path::PathBuf> {
        std::fs::read_dir(spill.folder())
            .map(|names| names.map(|name| name.unwrap().path()).collect())
            .unwrap_or_default()
    }

    /// F08: the same wherever the stream is cut.
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
            ("a\r\rb\r\r\nc", "a\nb\nc"),
            ("a\u{8}b\u{0}c\td", "abc\td"),
            ("\u{1b}[1é", "é"),
            ("©\u{85}®\u{7f}", "©®"),
            ("\u{9d}0;t\u{9c}x\u{1b}]t\u{1b}x", "xx"),
        ] {
            for cut in 0..=raw.len() {
                let mut inert = Inert::default();
                let mut out = String::new();
                inert.push(&raw.as_bytes()[..cut], &mut out);
                inert.push(&raw.as_bytes()[cut..], &mut out);
                inert.end(&mut out);
                assert_eq!((out.as_str(), inert.is_damaged), (text, false), "{raw:?} cut at {cut}");
            }
        }
    }

    /// F07
    #[test]
    fn bytes_that_are_no_text_are_replaced_and_told() {
        assert_eq!(inert(b"\xff\xfe\x80ok"), ("\u{fffd}\u{fffd}\u{fffd}ok".to_owned(), true));
        assert_eq!(inert(b"ok\xe2\x82"), ("ok\u{fffd}".to_owned(), true));
    }

    /// F05, F06: at whatever place the ends are cut, characters stay whole; what is left out is kept.
    #[test]
    fn a_long_output_is_cut_between_characters_and_kept_whole() {
        for max in [100, 1000, 50 << 10] {
            for shift in 0..4 {
                let (_dir, spill) = spill();
                let mut capture = Capture::new(spill.clone());
                let first = "a".repeat(HELD - 3 + shift);
                capture.push(first.as_bytes());
                for _ in 0..40_000 {
                    capture.push("€".as_bytes());
                }
                let Captured { text, is_damaged } = capture.end(max);
                assert!(!is_damaged && text.starts_with('a') && text.ends_with('€'), "{text}");
                assert!(text.len() < max + 300, "{}", text.len());
                let kept = files(&spill);
                assert!(text.contains(&format!("The whole is in {} …]", kept[0].display())), "{text}");
                assert_eq!(std::fs::read_to_string(&kept[0]).unwrap(), first + &"€".repeat(40_000));
                assert_eq!(kept.len(), 1);
            }
        }
    }

    #[test]
    fn what_fits_is_not_kept() {
        let (_dir, spill) = spill();
        let mut capture = Capture::new(spill.clone());
        capture.push(&[b'x'; 1000]);
        assert_eq!(capture.end(1000), Captured { text: "x".repeat(1000), is_damaged: false });
        assert!(files(&spill).is_empty());
    }

    #[test]
    fn what_is_left_out_is_named_by_its_line() {
        let (_dir, spill) = spill();
        let lines: String = (1..=2000).map(|number| format!("line {number}\n")).collect();
        let mut capture = Capture::new(spill.clone());
        capture.push(lines.as_bytes());
        let text = capture.end(100).text;
        let whole = files(&spill)[0].display().to_string();
        assert_eq!(
            text,
            format!(
                "line 1\nline 2\nline 3\nline 4\nline 5\nline 6\nline 7\n[… 18804 of 18893 bytes are left out here, from \
                 line 8 on. The whole is in {whole} …]\nline 1997\nline 1998\nline 1999\nline 2000\n"
            )
        );
    }

    #[test]
    fn what_cannot_be_kept_is_said() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), "").unwrap();
        let mut capture = Capture::new(Spill::of_session(&dir.path().join("file"), Durability::Relaxed));
        (0..4).for_each(|_| capture.push(&[b'x'; HELD]));
        assert!(capture.end(1000).text.contains("The whole is lost: cannot keep the whole in"));
    }

    /// F05
    #[test]
    fn no_more_is_kept_than_the_limit() {
        let (_dir, spill) = spill();
        let mut capture = Capture::new(spill.clone());
        let piece = "€".repeat(21_845);
        for _ in 0..1100 {
            capture.push(piece.as_bytes());
        }
        let text = capture.end(1000).text;
        let whole = &files(&spill)[0];
        assert!(text.contains(&format!("The first 64 MiB of it are in {}", whole.display())), "{text}");
        assert_eq!(std::fs::metadata(whole).unwrap().len(), KEPT / 3 * 3);
    }
}
