//! A stretch of lines out of bytes that come in pieces, in memory of the stretch's size.

use memchr::{memchr, memchr_iter};

use crate::text::{count, head};

/// Which part of a text to show.
#[derive(Clone, Copy)]
pub(super) struct Stretch {
    /// The first line, from 1.
    pub(super) first: u64,
    /// How many lines.
    pub(super) lines: u64,
    /// How many characters of the first line to pass over.
    pub(super) skip: usize,
    /// How many characters of each line to show.
    pub(super) line_chars: usize,
    /// How many bytes to show in all.
    pub(super) bytes: usize,
}

/// What was found in a text.
#[derive(Default)]
pub(super) struct Found {
    /// The stretch.
    pub(super) text: String,
    /// The last line shown; 0 if none.
    pub(super) last: u64,
    /// All lines of the text, where it was seen to its end.
    pub(super) total: Option<u64>,
    /// What to tell about the text.
    pub(super) notes: Vec<String>,
}

/// Collects a stretch.
pub(super) struct LineScan {
    stretch: Stretch,
    /// The line that the next byte belongs to, from 1.
    line: u64,
    /// What is kept of the current line's bytes.
    current: Vec<u8>,
    /// The current line's characters so far, whether kept or not.
    chars: usize,
    /// Whether the current line has a byte.
    started: bool,
    /// Whether no more fits.
    full: bool,
    found: Found,
    damaged: bool,
    crlf: u64,
    lf: u64,
    returns: u64,
    /// The last byte of the current line so far; 0 if it has none.
    last_byte: u8,
    byte_order_mark: bool,
    has_begun: bool,
}

impl LineScan {
    pub(super) fn new(stretch: Stretch) -> Self {
        LineScan {
            stretch,
            line: 1,
            current: Vec::new(),
            chars: 0,
            started: false,
            full: false,
            found: Found::default(),
            damaged: false,
            crlf: 0,
            lf: 0,
            returns: 0,
            last_byte: 0,
            byte_order_mark: false,
            has_begun: false,
        }
    }

    /// Whether more bytes would change nothing of what is shown.
    pub(super) fn is_satisfied(&self) -> bool {
        self.full || (self.in_stretch() && self.chars > self.kept_chars())
    }

    pub(super) fn push(&mut self, mut bytes: &[u8]) {
        if !self.has_begun && bytes.starts_with(b"\xEF\xBB\xBF") {
            self.byte_order_mark = true;
            bytes = &bytes[3..];
        }
        self.has_begun = true;
        let mut rest = bytes;
        while let Some(at) = memchr(b'\n', rest) {
            self.extend(&rest[..at]);
            if self.last_byte == b'\r' {
                self.crlf += 1;
            } else {
                self.lf += 1;
            }
            self.end_line(true);
            rest = &rest[at + 1..];
        }
        self.extend(rest);
    }

    fn in_stretch(&self) -> bool {
        self.line >= self.stretch.first && self.line - self.stretch.first < self.stretch.lines && !self.full
    }

    fn skip(&self) -> usize {
        if self.line == self.stretch.first { self.stretch.skip } else { 0 }
    }

    /// Up to which character the current line is kept: one beyond what can be shown, which tells whether it goes on.
    fn kept_chars(&self) -> usize {
        self.skip().saturating_add(self.stretch.line_chars.min(self.stretch.bytes)).saturating_add(1)
    }

    fn extend(&mut self, bytes: &[u8]) {
        let Some(last) = bytes.last() else { return };
        self.started = true;
        self.last_byte = *last;
        self.returns += memchr_iter(b'\r', bytes).count() as u64;
        if !self.in_stretch() {
            return;
        }
        let (from, to) = (self.skip(), self.kept_chars());
        if self.chars > to {
            self.chars += characters(bytes);
            return;
        }
        for byte in bytes {
            if byte & 0xC0 != 0x80 {
                self.chars += 1;
            }
            if self.chars > from && self.chars <= to {
                self.current.push(*byte);
            }
        }
    }

    /// Ends the current line, by a newline or with the text.
    fn end_line(&mut self, by_newline: bool) {
        if self.in_stretch() && (by_newline || self.started) {
            if by_newline && self.last_byte == b'\r' && self.current.last() == Some(&b'\r') {
                self.current.pop();
                self.chars -= 1;
            }
            self.show_line(true);
        } else if self.line >= self.stretch.first.saturating_add(self.stretch.lines) {
            self.full = true;
        }
        self.current.clear();
        self.chars = 0;
        self.started = false;
        self.last_byte = 0;
        self.line += u64::from(by_newline);
    }

    /// Shows what is kept of the current line, of which all has come or not.
    fn show_line(&mut self, is_all: bool) {
        let text = String::from_utf8_lossy(&self.current);
        // What was kept may end inside a character only where the line goes on; that is no damage.
        let is_whole = self.chars == self.skip() + characters(&self.current);
        self.damaged |=
            std::str::from_utf8(&self.current).is_err_and(|e| is_whole || e.error_len().is_some());
        let room = self.stretch.bytes.saturating_sub(self.found.text.len() + 1);
        let limit = text.char_indices().nth(self.stretch.line_chars).map_or(text.len(), |(end, _)| end);
        let fitting = head(&text[..limit], room);
        if fitting.len() < limit && !self.found.text.is_empty() {
            self.full = true;
            return;
        }
        let shown = self.skip() + characters(fitting.as_bytes());
        let rest = self.chars.saturating_sub(shown);
        if self.found.last > 0 {
            self.found.text.push('\n');
        }
        self.found.text.push_str(fitting);
        if rest > 0 || !is_all {
            let far =
                if is_all { format!(" for {}", count(rest as u64, "character")) } else { String::new() };
            let (line, column) = (self.line, shown + 1);
            self.found
                .text
                .push_str(&format!(" […line {line} goes on{far}: offset {line}, column {column}…]"));
        }
        self.found.last = self.line;
        self.full = fitting.len() < limit;
    }

    /// Ends the scan, at the text's end or before.
    pub(super) fn finish(mut self, at_end: bool) -> Found {
        let unfinished = self.started;
        if at_end {
            self.end_line(false);
        } else if self.in_stretch() && self.started {
            self.show_line(false);
        }
        let total = self.line - 1 + u64::from(unfinished);
        let mut found = self.found;
        found.total = at_end.then_some(total);
        if self.byte_order_mark {
            found.notes.push("byte order mark, kept by write and edit".to_owned());
        }
        match (self.crlf, self.lf, self.returns) {
            (0, 0, 1..) => found.notes.push("one line; CR line endings, kept by write and edit".to_owned()),
            (0, _, _) => {}
            (_, 0, _) => found.notes.push("CRLF line endings, kept by write and edit".to_owned()),
            (crlf, lf, _) => found.notes.push(format!("mixed line endings: {crlf} CRLF, {lf} LF")),
        }
        if self.damaged {
            found.notes.push(
                "not UTF-8: U+FFFD stands for bytes that cannot be shown and stay as they are".to_owned(),
            );
        }
        if at_end && unfinished && found.last == total {
            found.notes.push("no newline at the end".to_owned());
        }
        found
    }
}

fn characters(bytes: &[u8]) -> usize {
    bytes.iter().filter(|b| **b & 0xC0 != 0x80).count()
}
