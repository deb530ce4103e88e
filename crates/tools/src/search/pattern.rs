//! What is searched for: a regular expression as ripgrep reads it.
//!
//! It is searched for line by line. One that can only match across a line break is searched for across lines; one with
//! `$` takes a line ending of either kind for the end of a line.

use grep_regex::{ErrorKind, RegexMatcher, RegexMatcherBuilder};

use crate::tool::ToolError;

/// Bounds on what a hostile expression can cost: its compiled form, and the cache of each thread that runs it.
const COMPILED_BYTES: usize = 32 << 20;
const CACHE_BYTES: usize = 32 << 20;

/// How a pattern is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// As text, not as a regular expression.
    pub literal: bool,
    /// Upper and lower case are one.
    pub ignore_case: bool,
    /// `.` matches a line break too, and the pattern may match across lines.
    pub across_lines: bool,
}

/// A pattern, ready to search with.
#[derive(Clone, Debug)]
pub struct Pattern {
    pub(super) matcher: RegexMatcher,
    pub(super) across_lines: bool,
    pub(super) crlf: bool,
}

impl Pattern {
    /// Compiles a pattern.
    ///
    /// # Errors
    ///
    /// It is empty, is no regular expression, or is too large a one; the error says what to do.
    pub fn new(pattern: &str, reading: Reading) -> Result<Self, ToolError> {
        if pattern.is_empty() {
            return Err(ToolError::from(
                "`pattern` is empty and would match every line; list files with glob, or give a pattern"
                    .to_owned(),
            ));
        }
        let lines = [LineEnd::Either, LineEnd::Newline, LineEnd::None];
        let readings: &[LineEnd] = match (reading.across_lines, reading.literal || !pattern.contains('$')) {
            (true, _) => &lines[2..],
            (false, true) => &lines[1..],
            (false, false) => &lines,
        };
        let mut last = None;
        for line_end in readings {
            match compile(pattern, reading, *line_end) {
                Ok(matcher) => {
                    let (across_lines, crlf) = (*line_end == LineEnd::None, *line_end == LineEnd::Either);
                    return Ok(Pattern { matcher, across_lines, crlf });
                }
                // It holds a line break, or a carriage return where that ends a line.
                Err(error) if matches!(error.kind(), ErrorKind::NotAllowed(_)) => last = Some(error),
                Err(error) => return Err(no_pattern(pattern, &error)),
            }
        }
        Err(last.map_or_else(ToolError::default, |error| no_pattern(pattern, &error)))
    }

    /// Whether a match can go over a line's end.
    pub fn spans_lines(&self) -> bool {
        self.across_lines
    }
}

/// What a line ends with while it is searched.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LineEnd {
    /// `\n` or `\r\n`.
    Either,
    /// `\n`; a carriage return before it is part of the line.
    Newline,
    /// Nothing: the file is searched as a whole.
    None,
}

fn compile(pattern: &str, reading: Reading, line_end: LineEnd) -> Result<RegexMatcher, grep_regex::Error> {
    let mut builder = RegexMatcherBuilder::new();
    builder
        .multi_line(true)
        .fixed_strings(reading.literal)
        .case_insensitive(reading.ignore_case)
        .dot_matches_new_line(reading.across_lines)
        .size_limit(COMPILED_BYTES)
        .dfa_size_limit(CACHE_BYTES);
    match line_end {
        LineEnd::Either => builder.crlf(true),
        LineEnd::Newline => builder.line_terminator(Some(b'\n')),
        LineEnd::None => builder.line_terminator(None),
    };
    builder.build(pattern)
}

fn no_pattern(pattern: &str, error: &grep_regex::Error) -> ToolError {
    let reason = error.to_string();
    if reason.contains("size limit") {
        return ToolError {
            summary: "the pattern is too large; nothing was searched".to_owned(),
            content: Some(format!("{reason}. Repeat less, or search for a shorter part of it.")),
            exit_code: None,
        };
    }
    ToolError {
        summary: "`pattern` is no regular expression that can be used; nothing was searched".to_owned(),
        content: Some(format!("{reason}\nTo search for this very text: {}", regex_syntax::escape(pattern))),
        exit_code: None,
    }
}
