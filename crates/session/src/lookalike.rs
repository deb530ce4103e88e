//! Keeps text that imitates the runtime from being taken for it.
//!
//! Only the runtime writes `<system-reminder>` blocks. Wherever text from a file, a tool, a user or a server is sent to
//! the model, one backslash goes after the `<` of whatever looks like such a tag; in the arguments of the model's calls
//! one is taken away again, so that an edit meets the true bytes. The log always holds the true bytes.
//!
//! A look-alike is what matches the regex `<\\*/?system-reminder`, with any number of backslashes: since tags that
//! already carry a backslash get one more, taking one away undoes the change for every text.

use std::borrow::Cow;

/// Whether what a runtime block says, or a text outside of one, begins with one of these.
pub(crate) fn begins_with(text: &str, heads: &[&str]) -> bool {
    let body = text.strip_prefix("<system-reminder>\n").unwrap_or(text);
    heads.iter().any(|head| body.starts_with(head))
}

#[cfg(test)]
mod tests;

/// Encloses a text of the runtime in its tags, on lines of their own.
///
/// Look-alike tags in the body are neutralised, so the block has exactly one opening and one closing tag, whatever came
/// into its body from elsewhere.
pub fn runtime_block(body: &str) -> String {
    format!("<system-reminder>\n{}\n</system-reminder>", neutralise(body))
}

/// Puts one backslash into every look-alike tag of a text. Borrows where there is none.
pub fn neutralise(text: &str) -> Cow<'_, str> {
    insert_backslashes(text, Spelling::Plain)
}

/// Takes one backslash out of every look-alike tag that has one: the inverse of [`neutralise`].
pub fn restore(text: &str) -> Cow<'_, str> {
    remove_backslashes(text, Spelling::Plain)
}

/// Does to the strings within JSON text what [`neutralise`] does to a text, however their characters are escaped.
///
/// Every other byte stays as it is: numbers, spacing, the order of keys. Text that is not JSON is treated the same way.
pub fn neutralise_arguments(arguments: &str) -> Cow<'_, str> {
    insert_backslashes(arguments, Spelling::Json)
}

/// Does to the strings within JSON text what [`restore`] does to a text: the inverse of [`neutralise_arguments`].
pub fn restore_arguments(arguments: &str) -> Cow<'_, str> {
    remove_backslashes(arguments, Spelling::Json)
}

const NAME: &[u8] = b"system-reminder";

/// How a text spells its characters.
#[derive(Clone, Copy)]
enum Spelling {
    /// As they are.
    Plain,
    /// With JSON's escapes. Those occur only inside strings, and no look-alike reaches past a string's end, so the text
    /// need not be taken apart further than into characters.
    Json,
}

impl Spelling {
    fn backslash(self) -> &'static str {
        match self {
            Spelling::Plain => "\\",
            Spelling::Json => "\\\\",
        }
    }

    /// The character that is spelled at `at`, if it is an ASCII one, and how many bytes it takes.
    fn read(self, bytes: &[u8], at: usize) -> (u8, usize) {
        match (self, bytes[at]) {
            (Spelling::Json, b'\\') => read_escape(&bytes[at..]),
            (Spelling::Plain | Spelling::Json, byte) => (byte, 1),
        }
    }
}

/// Reads a JSON escape. What can be no part of a look-alike is read as 0.
fn read_escape(bytes: &[u8]) -> (u8, usize) {
    match bytes.get(1) {
        Some(b'u') => match bytes.get(2..6).and_then(four_hex_digits) {
            Some(code) => (u8::try_from(code).unwrap_or(0), 6),
            None => (0, 2),
        },
        Some(&escaped @ (b'\\' | b'/')) => (escaped, 2),
        Some(_) => (0, 2),
        None => (0, 1),
    }
}

fn four_hex_digits(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0, |code, &digit| Some(code * 16 + char::from(digit).to_digit(16)?))
}

/// Where a look-alike stands.
struct LookAlike {
    /// The end of its `<`.
    opened: usize,
    /// The end of its first backslash, if it has one; the backslash begins at `opened`.
    first_backslash: Option<usize>,
}

fn insert_backslashes(text: &str, spelling: Spelling) -> Cow<'_, str> {
    let mut found = look_alikes(text, spelling).peekable();
    if found.peek().is_none() {
        return Cow::Borrowed(text);
    }
    let mut changed = String::with_capacity(text.len() + 16);
    let mut copied = 0;
    for tag in found {
        changed.push_str(&text[copied..tag.opened]);
        changed.push_str(spelling.backslash());
        copied = tag.opened;
    }
    changed.push_str(&text[copied..]);
    Cow::Owned(changed)
}

fn remove_backslashes(text: &str, spelling: Spelling) -> Cow<'_, str> {
    let mut found =
        look_alikes(text, spelling).filter_map(|tag| Some(tag.opened..tag.first_backslash?)).peekable();
    if found.peek().is_none() {
        return Cow::Borrowed(text);
    }
    let mut changed = String::with_capacity(text.len());
    let mut copied = 0;
    for backslash in found {
        changed.push_str(&text[copied..backslash.start]);
        copied = backslash.end;
    }
    changed.push_str(&text[copied..]);
    Cow::Owned(changed)
}

/// Finds the look-alikes of a text in order, in one pass: what follows a `<` holds no other one until it stops
/// matching.
fn look_alikes(text: &str, spelling: Spelling) -> impl Iterator<Item = LookAlike> {
    let bytes = text.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            at = next_candidate(text, at, spelling)?;
            let (byte, length) = spelling.read(bytes, at);
            at += length;
            if byte == b'<'
                && let Some(tag) = look_alike_from(bytes, at, spelling)
            {
                return Some(tag);
            }
        }
    })
}

/// Where the search goes on. Plain text is skipped up to the next `<` at the speed of a byte search; JSON text must be
/// read character by character, or an escaped backslash would be taken for the start of an escape.
fn next_candidate(text: &str, at: usize, spelling: Spelling) -> Option<usize> {
    match spelling {
        Spelling::Plain => text[at..].find('<').map(|found| at + found),
        Spelling::Json => (at < text.len()).then_some(at),
    }
}

fn look_alike_from(bytes: &[u8], opened: usize, spelling: Spelling) -> Option<LookAlike> {
    let mut at = opened;
    let mut first_backslash = None;
    while let Some(next) = step_over(bytes, at, spelling, b'\\') {
        first_backslash.get_or_insert(next);
        at = next;
    }
    at = step_over(bytes, at, spelling, b'/').unwrap_or(at);
    for &expected in NAME {
        at = step_over(bytes, at, spelling, expected)?;
    }
    Some(LookAlike { opened, first_backslash })
}

fn step_over(bytes: &[u8], at: usize, spelling: Spelling, expected: u8) -> Option<usize> {
    if at >= bytes.len() {
        return None;
    }
    let (byte, length) = spelling.read(bytes, at);
    (byte == expected).then_some(at + length)
}
