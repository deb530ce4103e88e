//! Where the program's words go: results on stdout, everything else on stderr.
//!
//! A reader that has gone away (`| head`) is no error: what can no longer be shown is dropped.

use std::io::{self, Write};
use std::sync::OnceLock;

use mainstay_agent::prices::UNITS_PER_DOLLAR;

/// Why something could not be written to stdout, the first time that it could not.
static UNWRITTEN: OnceLock<String> = OnceLock::new();

/// Writes a line to stdout.
pub(crate) fn out(line: &str) {
    out_bytes(format!("{line}\n").as_bytes());
}

/// Writes bytes to stdout as they are. What cannot be written is told by [`unwritten`], at the end of the program.
pub(crate) fn out_bytes(bytes: &[u8]) {
    printed(io::stdout().lock().write_all(bytes));
}

/// Takes in whether something that was printed to stdout arrived there.
pub(crate) fn printed(written: io::Result<()>) {
    if let Err(error) = written.and_then(|()| io::stdout().lock().flush())
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        let _ = UNWRITTEN.set(error.to_string());
    }
}

/// Why not all that was printed is where stdout leads.
pub(crate) fn unwritten() -> Option<&'static str> {
    UNWRITTEN.get().map(String::as_str)
}

/// Writes a line to stderr.
pub(crate) fn say(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// A text from outside as one line that cannot steer a terminal: control characters are shown as escapes.
pub(crate) fn inert(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        {
            line.extend(c.escape_default());
        } else {
            line.push(c);
        }
    }
    line
}

/// A text of several lines whose control characters, line breaks and tabs excepted, are shown as escapes.
pub(crate) fn inert_lines(text: &str) -> String {
    text.split('\n')
        .map(|line| line.split('\t').map(inert).collect::<Vec<_>>().join("\t"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// A number of things: `1 turn`, `2 turns`, `2 entries`.
pub(crate) fn counted(count: u64, one: &str) -> String {
    match (count, one.strip_suffix('y')) {
        (1, _) => format!("1 {one}"),
        (_, Some(stem)) => format!("{count} {stem}ies"),
        (_, None) => format!("{count} {one}s"),
    }
}

/// An amount in billionths of a US dollar as a number of dollars.
pub(crate) fn in_dollars(amount: u64) -> f64 {
    #[expect(
        clippy::cast_precision_loss,
        reason = "below 2^53 billionths, nine million dollars, nothing is lost"
    )]
    let dollars = amount as f64 / UNITS_PER_DOLLAR as f64;
    dollars
}

/// A text as a TOML string on one line, with everything but plain characters escaped.
pub(crate) fn toml_text(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            c if inert(c.encode_utf8(&mut [0; 4])).starts_with('\\') => {
                quoted.push_str(&format!("\\U{:08X}", u32::from(c)));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// At most `max` characters of a text, with a mark where more was.
pub(crate) fn shortened(text: &str, max: usize) -> String {
    if text.chars().count() <= max {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(max.saturating_sub(1)).collect();
    short.push('…');
    short
}
