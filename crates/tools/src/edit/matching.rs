//! Where an edit fits.
//!
//! In this order: the old text as it is; the old text with line endings read as the file has them, the new text then
//! taking them over; whole lines that differ in white space alone. The first way that fits anywhere decides, and unless
//! all places are wanted it must fit in exactly one. Bytes outside the replaced spans are copied.

use std::ops::Range;

use memchr::memmem::Finder;

use crate::encoding::Encoding;
use crate::text::{head, head_and_tail};
use crate::tool::ToolError;

/// One edit of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Replacement {
    /// The text to find.
    pub(super) old: String,
    /// The text to put there.
    pub(super) new: String,
    /// Whether every place is meant.
    pub(super) replace_all: bool,
}

/// What an edit made of a text.
#[derive(Debug)]
pub(super) struct Applied {
    /// The text after it.
    pub(super) bytes: Vec<u8>,
    /// In how many places it was changed.
    pub(super) places: u64,
    /// How it matched, where that was not exact.
    pub(super) note: Option<String>,
}

impl Replacement {
    /// Makes the edit.
    ///
    /// # Errors
    ///
    /// The edit is empty or changes nothing, fits nowhere or in several places, or would mix encodings.
    pub(super) fn apply(&self, text: &[u8], encoding: Encoding) -> Result<Applied, ToolError> {
        self.check(encoding)?;
        let old = self.old.strip_prefix('\u{feff}').filter(|old| !old.is_empty()).unwrap_or(&self.old);
        let mut hits = find(text, old.as_bytes());
        if !hits.is_empty() {
            self.admit(text, &mut hits, encoding)?;
            return Ok(self.replaced(text, &hits, None));
        }
        let mut hits = find_lines_endings_aside(text, old);
        if !hits.is_empty() {
            self.admit(text, &mut hits, encoding)?;
            return Ok(self.replaced(text, &hits, None));
        }
        self.apply_tolerantly(text, old, encoding)
    }

    fn check(&self, encoding: Encoding) -> Result<(), ToolError> {
        let refused = if self.old.is_empty() {
            "`old` is empty; quote the text to replace, or use write for a whole file"
        } else if self.old == self.new {
            "`old` and `new` are the same; nothing to change"
        } else if encoding == Encoding::Other && self.old.contains(char::REPLACEMENT_CHARACTER) {
            "`old` holds U+FFFD, which stands for bytes that are not UTF-8; quote only text without it"
        } else if encoding == Encoding::Other && !self.new.is_ascii() {
            "the file is not UTF-8, so only ASCII text can be put into it without mixing encodings"
        } else {
            return Ok(());
        };
        Err(ToolError::from(refused.to_owned()))
    }

    /// Refuses what may be the middle of a character, and several places where one is meant.
    fn admit(&self, text: &[u8], hits: &mut Vec<Range<usize>>, encoding: Encoding) -> Result<(), ToolError> {
        // In GBK, Big5 and Shift-JIS the second byte of a character may be an ASCII letter, in GB 18030 also a digit.
        let inside = |hit: &Range<usize>| {
            encoding == Encoding::Other
                && hit.start > 0
                && text[hit.start - 1] >= 0x80
                && matches!(text[hit.start], b'0'..=b'9' | 0x40..=0x7E)
        };
        if hits.iter().any(inside) {
            return Err(ToolError::from(
                "`old` begins right behind a byte that is not UTF-8 and may be half of a character; begin it elsewhere"
                    .to_owned(),
            ));
        }
        if self.replace_all {
            let mut end = 0;
            hits.retain(|hit| {
                let apart = hit.start >= end;
                end = if apart { hit.end } else { end };
                apart
            });
            return Ok(());
        }
        if hits.len() > 1 { Err(ambiguous(text, hits, "")) } else { Ok(()) }
    }

    fn replaced(&self, text: &[u8], hits: &[Range<usize>], note: Option<String>) -> Applied {
        let mut bytes = Vec::with_capacity(text.len());
        let mut copied = 0;
        // Looked for once: an edit may have as many places as the file has lines.
        let has = (text.contains(&b'\r'), text.contains(&b'\n'));
        for hit in hits {
            bytes.extend_from_slice(&text[copied..hit.start]);
            bytes.extend_from_slice(&self.new_for(text, hit, has));
            copied = hit.end;
        }
        bytes.extend_from_slice(&text[copied..]);
        Applied { bytes, places: hits.len() as u64, note }
    }

    /// The new text with the line endings of the place it goes to. Endings that the edit itself spells out stay.
    fn new_for(&self, text: &[u8], hit: &Range<usize>, has: (bool, bool)) -> Vec<u8> {
        let plain = !self.new.contains('\r') && !self.old.contains('\r');
        with_ending(&self.new, if plain { ending_at(text, hit, has) } else { "\n" })
    }

    fn apply_tolerantly(&self, text: &[u8], old: &str, encoding: Encoding) -> Result<Applied, ToolError> {
        let wanted: Vec<&str> = old.lines().collect();
        let lines = line_spans(text);
        let starts = if self.replace_all { Vec::new() } else { find_words(text, &lines, &wanted) };
        let [first] = starts.as_slice() else {
            if starts.is_empty() {
                return Err(self.miss(text, encoding));
            }
            let hits: Vec<Range<usize>> = starts.iter().map(|start| lines[*start].clone()).collect();
            return Err(ambiguous(text, &hits, " (white space aside)"));
        };
        let (first, last) = (*first, *first + wanted.len() - 1);
        let found: Vec<_> =
            lines[first..=last].iter().map(|span| String::from_utf8_lossy(&text[span.clone()])).collect();
        let end = if old.ends_with('\n') { with_terminator(text, lines[last].end) } else { lines[last].end };
        let hit = lines[first].start..end;
        let mut new = reindented(&self.new, &wanted, &found);
        // A last line without a newline does not get one because the edit quotes one.
        if old.ends_with('\n') && end == lines[last].end {
            let kept = new.strip_suffix("\r\n").or_else(|| new.strip_suffix('\n')).map(str::len);
            new.truncate(kept.unwrap_or(new.len()));
        }
        let note = format!("(Lines {}-{} matched except for white space.)", first + 1, last + 1);
        let fitted = Replacement { new, ..self.clone() };
        Ok(fitted.replaced(text, &[hit], Some(note)))
    }

    fn miss(&self, text: &[u8], encoding: Encoding) -> ToolError {
        let already = !self.new.trim().is_empty() && !find(text, self.new.as_bytes()).is_empty();
        let summary = if already {
            "`old` does not occur in the file, but `new` does: it seems to be done already"
        } else if encoding == Encoding::Other && !self.old.is_ascii() {
            "`old` does not occur in the file, which is not UTF-8; quote only ASCII text"
        } else {
            "`old` does not occur in the file"
        };
        ToolError { summary: summary.to_owned(), content: Some(nearest(text, &self.old)), exit_code: None }
    }
}

/// The part of a text that is most like `old`, with its line numbers, for an error to show.
pub(super) fn nearest(text: &[u8], old: &str) -> String {
    const SHOWN: usize = 2_000;
    let spans = line_spans(text);
    let wanted: Vec<Vec<u8>> = old.lines().take(50).map(|line| words(line.as_bytes())).collect();
    let searched = spans.len().min(20_000);
    let keys: Vec<Vec<u8>> = spans[..searched].iter().map(|span| words(&text[span.clone()])).collect();
    let score = |start: usize| {
        let pairs = wanted.iter().zip(&keys[start..]);
        pairs.filter(|(a, b)| !a.is_empty() && a == b).map(|(a, _)| a.len()).sum::<usize>()
    };
    let equal = (0..searched)
        .map(|start| (score(start), start))
        .max_by_key(|(score, start)| (*score, usize::MAX - start));
    let start = match equal {
        Some((score, start)) if score > 0 => Some(start),
        _ => most_similar(&wanted, &keys),
    };
    let Some(start) = start else { return "Nothing in the file is like it; read the file.".to_owned() };
    let end = (start + wanted.len().max(1)).min(spans.len());
    let region = &text[spans[start].start..spans[end - 1].end];
    let region = head_and_tail(&String::from_utf8_lossy(region), SHOWN);
    format!("The nearest text, lines {}-{end}:\n{region}", start + 1)
}

/// The line from which the longest wanted line would differ least.
fn most_similar(wanted: &[Vec<u8>], keys: &[Vec<u8>]) -> Option<usize> {
    let (offset, longest) = wanted.iter().enumerate().max_by_key(|(_, line)| line.len())?;
    let longest = String::from_utf8_lossy(longest);
    let longest = head(&longest, 200);
    let candidates = keys.iter().enumerate().take(3_000).filter(|(_, key)| !key.is_empty());
    let scored = candidates.map(|(index, key)| {
        let key = String::from_utf8_lossy(key);
        let ratio = similar::TextDiff::from_words(longest, head(&key, 200)).ratio();
        (ratio, index)
    });
    let (ratio, index) = scored.max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)))?;
    (ratio > 0.4).then(|| index.saturating_sub(offset))
}

fn ambiguous(text: &[u8], hits: &[Range<usize>], how: &str) -> ToolError {
    const LISTED: usize = 50;
    let mut line = 1;
    let mut counted = 0;
    let numbers: Vec<String> = hits
        .iter()
        .take(LISTED)
        .map(|hit| {
            line += text[counted..hit.start].iter().filter(|b| **b == b'\n').count();
            counted = hit.start;
            line.to_string()
        })
        .collect();
    let more = if hits.len() > LISTED { ", …" } else { "" };
    ToolError::from(format!(
        "`old` occurs {} times{how}, on lines {}{more}; quote more of the lines around the one that is meant, or set replace_all",
        hits.len(),
        numbers.join(", ")
    ))
}

/// The places of some bytes: those that stand apart and, where that is one alone, the next that overlaps it.
fn find(text: &[u8], wanted: &[u8]) -> Vec<Range<usize>> {
    if wanted.is_empty() {
        return Vec::new();
    }
    let finder = Finder::new(wanted);
    let mut starts: Vec<usize> = finder.find_iter(text).collect();
    if let [only] = starts[..] {
        starts.extend(finder.find(&text[only + 1..]).map(|at| only + 1 + at));
    }
    starts.into_iter().map(|start| start..start + wanted.len()).collect()
}

/// All places where the text is `old` if every line ending counts as the same.
fn find_lines_endings_aside(text: &[u8], old: &str) -> Vec<Range<usize>> {
    if !text.contains(&b'\r') {
        return if old.contains('\r') {
            find(text, old.replace("\r\n", "\n").as_bytes())
        } else {
            Vec::new()
        };
    }
    if !text.contains(&b'\n') {
        return find(text, old.replace("\r\n", "\n").replace('\n', "\r").as_bytes());
    }
    // The places, in the text without them, of the newlines that lost their carriage return.
    let mut shortened = Vec::with_capacity(text.len());
    let mut lost = Vec::new();
    for (index, byte) in text.iter().enumerate() {
        if *byte == b'\r' && text.get(index + 1) == Some(&b'\n') {
            lost.push(shortened.len());
        } else {
            shortened.push(*byte);
        }
    }
    let original = |at: usize| at + lost.partition_point(|lost| *lost < at);
    let hits = find(&shortened, old.replace("\r\n", "\n").as_bytes());
    hits.into_iter().map(|hit| original(hit.start)..original(hit.end)).collect()
}

/// The line ending of a place: the first one in it, else of its own line, else of the line before.
fn ending_at(text: &[u8], hit: &Range<usize>, (has_cr, has_lf): (bool, bool)) -> &'static str {
    if !has_cr {
        return "\n";
    }
    if !has_lf {
        return "\r";
    }
    let newline = |from: usize| text[from..].iter().position(|b| *b == b'\n').map(|at| from + at);
    let before = || text[..hit.start].iter().rposition(|b| *b == b'\n');
    match newline(hit.start).or_else(before) {
        Some(at) if at > 0 && text[at - 1] == b'\r' => "\r\n",
        _ => "\n",
    }
}

fn with_ending(text: &str, ending: &str) -> Vec<u8> {
    if ending == "\n" { text.as_bytes().to_vec() } else { text.replace('\n', ending).into_bytes() }
}

/// The lines of a text without their ends.
fn line_spans(text: &[u8]) -> Vec<Range<usize>> {
    let end_byte = if text.contains(&b'\n') { b'\n' } else { b'\r' };
    let mut spans = Vec::new();
    let mut start = 0;
    for line in text.split_inclusive(|b| *b == end_byte) {
        let content = line.strip_suffix(&[end_byte]).unwrap_or(line);
        let content = content.strip_suffix(b"\r").unwrap_or(content);
        spans.push(start..start + content.len());
        start += line.len();
    }
    spans
}

fn with_terminator(text: &[u8], end: usize) -> usize {
    let rest = &text[end..];
    let length = if rest.starts_with(b"\r\n") { 2 } else { usize::from(!rest.is_empty()) };
    end + length
}

/// A line's words with single blanks between them.
fn words(line: &[u8]) -> Vec<u8> {
    let words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(&b' ')
}

/// The lines from which the wanted lines stand in the text, white space aside.
fn find_words(text: &[u8], lines: &[Range<usize>], wanted: &[&str]) -> Vec<usize> {
    let wanted: Vec<Vec<u8>> = wanted.iter().map(|line| words(line.as_bytes())).collect();
    if wanted.iter().all(Vec::is_empty) || wanted.len() > lines.len() {
        return Vec::new();
    }
    let keys: Vec<Vec<u8>> = lines.iter().map(|span| words(&text[span.clone()])).collect();
    (0..=keys.len() - wanted.len()).filter(|start| keys[*start..].starts_with(&wanted)).collect()
}

/// The new text moved to the file's indentation, where all lines of the old one were off by the same.
fn reindented<S: AsRef<str>>(new: &str, wanted: &[&str], found: &[S]) -> String {
    let indent = |line: &str| line[..line.len() - line.trim_start().len()].to_owned();
    let pairs: Vec<(String, String)> = wanted
        .iter()
        .zip(found)
        .filter(|(line, _)| !line.trim().is_empty())
        .map(|(wanted, found)| (indent(wanted), indent(found.as_ref())))
        .collect();
    let Some((wanted_first, found_first)) = pairs.first() else { return new.to_owned() };
    let each_line = |change: &dyn Fn(&str) -> String| {
        let lines = new.split_inclusive('\n');
        lines.map(|line| if line.trim().is_empty() { line.to_owned() } else { change(line) }).collect()
    };
    if let Some(more) = found_first.strip_suffix(wanted_first.as_str())
        && pairs.iter().all(|(wanted, found)| *found == format!("{more}{wanted}"))
    {
        return each_line(&|line| format!("{more}{line}"));
    }
    if let Some(less) = wanted_first.strip_suffix(found_first.as_str())
        && pairs.iter().all(|(wanted, found)| *wanted == format!("{less}{found}"))
    {
        return each_line(&|line| line.strip_prefix(less).unwrap_or(line).to_owned());
    }
    new.to_owned()
}
