//! What a worker's answer says: the summary itself, and the two lists at its end.

/// What a worker's answer says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// The summary, without the lists.
    pub text: String,
    /// The files that must be read before going on.
    pub read_first: Vec<FileRange>,
    /// Other files that matter.
    pub references: Vec<String>,
}

/// A file, or some lines of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRange {
    /// The path as the worker wrote it.
    pub path: String,
    /// The first line and the last one.
    pub lines: Option<(u64, u64)>,
}

/// Why an answer is no summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SummaryFault {
    /// It has no text.
    #[error("the summary was empty")]
    Empty,
    /// Its text says nothing: every heading of it stands for nothing.
    #[error("the summary said nothing")]
    Hollow,
    /// Its text is a tool call in writing.
    #[error("the summary was a tool call written as text")]
    Markup,
}

/// How calls look that a model writes as text.
const MARKUP: [&str; 9] = [
    "<tool_call",
    "<function_call",
    "<tools>",
    "<invoke",
    "tool_calls>",
    "<|tool",
    "<function=",
    "[TOOL_CALLS]",
    "[ARGS]",
];

/// The fewest letters and digits that say anything.
const LEAST: usize = 24;

impl Summary {
    /// Reads a worker's answer.
    ///
    /// # Errors
    ///
    /// If it cannot stand for a conversation.
    pub fn parse(answer: &str) -> Result<Summary, SummaryFault> {
        if answer.trim().is_empty() {
            return Err(SummaryFault::Empty);
        }
        if MARKUP.iter().any(|markup| answer.contains(markup)) {
            return Err(SummaryFault::Markup);
        }
        let mut summary = Summary::default();
        let mut section = Section::Text;
        for line in answer.lines() {
            let (heading, rest) = heading(line).map_or((None, line), |(heading, rest)| (Some(heading), rest));
            section = heading.unwrap_or(section.behind(line));
            match section {
                Section::Text => {
                    summary.text.push_str(line);
                    summary.text.push('\n');
                }
                Section::ReadFirst => summary.read_first.extend(names(rest).filter_map(range)),
                Section::References => {
                    summary.references.extend(names(rest).filter_map(|name| Some(range(name)?.path)))
                }
            }
        }
        summary.text = summary.text.trim().to_owned();
        let said = summary
            .text
            .replace("(none)", "")
            .lines()
            .map(|line| line.split_once(':').map_or(line, |(_, rest)| rest))
            .flat_map(str::chars)
            .filter(|c| c.is_alphanumeric())
            .count();
        if said < LEAST { Err(SummaryFault::Hollow) } else { Ok(summary) }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Section {
    Text,
    ReadFirst,
    References,
}

impl Section {
    /// Where a line without a heading belongs: a list goes on with its dashes and blank lines, and ends with any other
    /// text.
    fn behind(self, line: &str) -> Section {
        let line = line.trim();
        if line.is_empty() || line.starts_with(['-', '*', '•']) { self } else { Section::Text }
    }
}

/// The list that a line begins, and what stands behind its heading.
fn heading(line: &str) -> Option<(Section, &str)> {
    let bare = line.trim_start_matches(['#', '*', '_', ' ']);
    let lists = [("read first", Section::ReadFirst), ("references", Section::References)];
    lists.iter().find_map(|(name, section)| {
        let head = bare.get(..name.len()).filter(|head| head.eq_ignore_ascii_case(name))?;
        let rest = bare[head.len()..].trim_start_matches(['*', '_']).strip_prefix(':')?;
        Some((*section, rest.trim_start_matches(['*', '_'])))
    })
}

/// The names in a line of a list.
fn names(line: &str) -> impl Iterator<Item = &str> {
    let line = line.trim().trim_start_matches(['-', '*', '•']);
    line.split(',').map(|name| name.trim().trim_matches(['`', '"', '\''])).filter(|name| !name.is_empty())
}

/// Reads `path`, `path:10-80` or `path (lines 10-80)`; none for words that stand for no file.
fn range(name: &str) -> Option<FileRange> {
    let (path, lines) = split_lines(name);
    let path = path.trim().trim_matches(['`', '"', '\'']);
    let is_none =
        path.is_empty() || matches!(path.to_ascii_lowercase().as_str(), "none" | "(none)" | "n/a" | "none.");
    (!is_none).then(|| FileRange { path: path.to_owned(), lines })
}

fn split_lines(name: &str) -> (&str, Option<(u64, u64)>) {
    let (path, tail) = if let Some((path, tail)) = name.split_once('(') {
        (path, tail.trim_end_matches(')'))
    } else if let Some((path, tail)) = name.rsplit_once(':') {
        (path, tail)
    } else if let Some((path, tail)) = name.split_once(" lines ") {
        (path, tail)
    } else {
        return (name, None);
    };
    let digits =
        tail.trim().trim_start_matches("lines").trim_start_matches("line").trim().trim_start_matches('L');
    let (first, last) = digits.split_once(['-', '–']).unwrap_or((digits, digits));
    let number = |text: &str| text.trim().trim_start_matches('L').parse::<u64>().ok();
    match (number(first), number(last)) {
        (Some(first), Some(last)) if first > 0 && last >= first => (path, Some((first, last))),
        _ if name.contains('(') => (path, None),
        _ => (name, None),
    }
}
