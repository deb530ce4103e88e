//! Text as a terminal shows it: widths, inert characters, line breaks.
//!
//! Whatever comes from a model, a tool, a file or another process passes [`plain`] or [`plain_line`] on its way to the
//! screen, so that it can show itself and steer nothing. Widths are those of grapheme clusters, in columns. Lines break
//! where Unicode's rules allow it (UAX 14): between words, and between ideographs but not before their punctuation.

use mainstay_agent::session::plan::one_line;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use unicode_linebreak::linebreaks;
use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

const TAB: usize = 4;

/// A logical line of the conversation, before it is broken to a width.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Row {
    /// What it says.
    pub(crate) line: Line<'static>,
    /// How it is broken.
    pub(crate) wrap: Wrap,
}

/// How a line that is wider than the terminal is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrap {
    /// Between words; what follows is indented by so many columns.
    Words(usize),
    /// By the terminal, so that what is copied from it has no break.
    Terminal,
}

impl Default for Wrap {
    fn default() -> Self {
        Wrap::Words(0)
    }
}

impl Row {
    /// A line in one style.
    pub(crate) fn new(text: &str, style: Style) -> Self {
        Row { line: Line::from(Span::styled(plain_line(text), style)), wrap: Wrap::default() }
    }

    /// A line of several parts. Their texts must be plain already.
    pub(crate) fn of(spans: Vec<Span<'static>>) -> Self {
        Row { line: Line::from(spans), wrap: Wrap::default() }
    }

    /// The same, with what follows a break indented.
    pub(crate) fn indented(self, columns: usize) -> Self {
        Row { wrap: Wrap::Words(columns), ..self }
    }

    /// The same, broken by the terminal.
    pub(crate) fn verbatim(self) -> Self {
        Row { wrap: Wrap::Terminal, ..self }
    }

    /// The rows of the screen that it takes, each at most `width` columns wide.
    pub(crate) fn wrapped(&self, width: usize) -> Vec<Line<'static>> {
        match self.wrap {
            Wrap::Words(indent) => wrap(&self.line, width, indent),
            Wrap::Terminal => break_anywhere(&self.line, width),
        }
    }
}

/// The number of columns of a text.
pub(crate) fn width(text: &str) -> usize {
    text.graphemes(true).map(UnicodeWidthStr::width).sum()
}

/// One line that steers nothing: tabs become spaces, other controls are shown as escapes.
pub(crate) fn plain_line(text: &str) -> String {
    if !text.contains('\t') {
        return one_line(text);
    }
    let mut line = String::with_capacity(text.len() + 8);
    for (place, part) in text.split('\t').enumerate() {
        if place > 0 {
            let columns = TAB - width(&line) % TAB;
            line.extend(std::iter::repeat_n(' ', columns));
        }
        line.push_str(&one_line(part));
    }
    line
}

/// The lines of a text, each as [`plain_line`] gives it. A line end may be `\n` or `\r\n`.
pub(crate) fn plain(text: &str) -> impl Iterator<Item = String> + '_ {
    text.lines().map(plain_line)
}

/// At most `max` columns of a line, with a mark where more was.
pub(crate) fn shortened(text: &str, max: usize) -> String {
    if width(text) <= max {
        return text.to_owned();
    }
    let mut short = String::new();
    let mut used = 0;
    for grapheme in text.graphemes(true) {
        used += grapheme.width();
        if used >= max {
            break;
        }
        short.push_str(grapheme);
    }
    if max > 0 {
        short.push('…');
    }
    short
}

/// A piece of a line that is never broken, with the style it has and its columns.
pub(crate) type Cell<'a> = (&'a str, Style, usize);

fn cells<'a>(line: &'a Line<'static>) -> Vec<Cell<'a>> {
    let mut cells = Vec::new();
    for span in &line.spans {
        let style = line.style.patch(span.style);
        cells.extend(span.content.graphemes(true).map(|g| (g, style, g.width())));
    }
    cells
}

fn joined(cells: &[Cell<'_>]) -> Line<'static> {
    let mut spans: Vec<Span<'static>> = Vec::new();
    for (text, style, _) in cells {
        match spans.last_mut() {
            Some(last) if last.style == *style => last.content.to_mut().push_str(text),
            _ => spans.push(Span::styled((*text).to_owned(), *style)),
        }
    }
    Line::from(spans)
}

/// Breaks a line between words, or inside one that is wider than a row.
fn wrap(line: &Line<'static>, width: usize, indent: usize) -> Vec<Line<'static>> {
    let cells = cells(line);
    let breaks = breaks(&cells);
    let width = width.max(1);
    let indent = if indent * 2 > width { width / 10 } else { indent };
    let mut rows = Vec::new();
    let mut start = 0;
    while start < cells.len() {
        let room = if rows.is_empty() { width } else { width - indent };
        let end = end_of_row(&cells, &breaks, start, room);
        let shown = end - cells[start..end].iter().rev().take_while(|cell| cell.0 == " ").count();
        let shown = if end == cells.len() { end } else { shown };
        let mut row = joined(&cells[start..shown.max(start)]);
        if !rows.is_empty() && indent > 0 {
            row.spans.insert(0, Span::raw(" ".repeat(indent)));
        }
        rows.push(row);
        start = end;
    }
    if rows.is_empty() {
        rows.push(Line::default());
    }
    rows
}

/// Whether a line may be broken behind a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Break {
    /// Only where nothing else is left.
    No,
    /// Inside of what has no white space, as behind the `/` of a path: where the whole of it is wider than a row.
    Inside,
    /// Between words, or between ideographs.
    Between,
}

/// How a line may be broken, cell by cell.
pub(crate) fn breaks(cells: &[Cell<'_>]) -> Vec<Break> {
    let text: String = cells.iter().map(|cell| cell.0).collect();
    let mut places = linebreaks(&text).map(|(place, _)| place).peekable();
    let mut end = 0;
    let next = cells.iter().skip(1).map(Some).chain([None]);
    let kind = |(cell, next): (&Cell<'_>, Option<&Cell<'_>>)| {
        end += cell.0.len();
        while places.next_if(|place| *place < end).is_some() {}
        let is_wide = cell.2 == 2 || next.is_some_and(|next| next.2 == 2);
        match places.next_if(|place| *place == end) {
            None => Break::No,
            Some(_) if is_wide || cell.0 == " " => Break::Between,
            Some(_) => Break::Inside,
        }
    };
    cells.iter().zip(next).map(kind).collect()
}

/// Where the row that begins at `start` ends: behind the last break that fits. White space may hang over the edge.
pub(crate) fn end_of_row(cells: &[Cell<'_>], breaks: &[Break], start: usize, room: usize) -> usize {
    let mut used = 0;
    let (mut between, mut inside) = (None, None);
    for (place, (text, _, columns)) in cells.iter().enumerate().skip(start) {
        if used + columns > room && *text != " " {
            return between.or(inside).unwrap_or(place.max(start + 1));
        }
        used += columns;
        match breaks[place] {
            Break::No => {}
            Break::Inside => inside = Some(place + 1),
            Break::Between => between = Some(place + 1),
        }
    }
    cells.len()
}

fn break_anywhere(line: &Line<'static>, width: usize) -> Vec<Line<'static>> {
    let cells = cells(line);
    let mut rows = Vec::new();
    let (mut start, mut used) = (0, 0);
    for (place, cell) in cells.iter().enumerate() {
        if used + cell.2 > width && place > start {
            rows.push(joined(&cells[start..place]));
            (start, used) = (place, 0);
        }
        used += cell.2;
    }
    rows.push(joined(&cells[start..]));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(rows: &[Line<'static>]) -> Vec<String> {
        rows.iter().map(ToString::to_string).collect()
    }

    /// F08: what comes from outside shows itself and steers nothing.
    #[test]
    fn controls_are_shown_and_obeyed_by_nobody() {
        let table = [
            ("\u{1b}]52;c;QQ==\u{7}", r"\u{1b}]52;c;QQ==\u{7}"),
            ("\u{1b}[6n", r"\u{1b}[6n"),
            ("\u{9b}31m", r"\u{9b}31m"),
            ("ÛX", "ÛX"),
            ("a\tb", "a   b"),
            ("日\tb", "日  b"),
            ("\u{202e}abc", r"\u{202e}abc"),
        ];
        for (text, shown) in table {
            assert_eq!(plain_line(text), shown);
        }
    }

    #[test]
    fn lines_break_between_words_and_between_wide_characters() {
        let broken =
            |text: &str, width, indent| texts(&Row::new(text, Style::new()).indented(indent).wrapped(width));
        assert_eq!(broken("one two three", 7, 0), ["one two", "three"]);
        assert_eq!(broken("one two three", 8, 2), ["one two", "  three"]);
        assert_eq!(broken("see src/main.rs, please", 12, 0), ["see", "src/main.rs,", "please"]);
        assert_eq!(broken("see crates/tui/src/main.rs", 12, 0), ["see", "crates/tui/", "src/main.rs"]);
        assert_eq!(broken("(one two)", 6, 0), ["(one", "two)"]);
        assert_eq!(broken("日本語です。次の文。", 10, 0), ["日本語で", "す。次の", "文。"]);
        assert_eq!(broken("日本「語」", 6, 0), ["日本", "「語」"]);
        assert_eq!(broken("ab日本 cd", 5, 0), ["ab日", "本 cd"]);
        assert_eq!(broken("한국어 문장", 7, 0), ["한국어", "문장"]);
        assert_eq!(broken("a b  c", 2, 0), ["a", "b", "c"]);
        assert_eq!(broken("abcdefghij", 4, 0), ["abcd", "efgh", "ij"]);
        assert_eq!(broken("日本語日本語", 5, 0), ["日本", "語日", "本語"]);
        assert_eq!(broken("e\u{301}e\u{301}e\u{301}", 2, 0), ["e\u{301}e\u{301}", "e\u{301}"]);
        assert_eq!(broken("", 5, 0), [""]);
        assert_eq!(broken("  x", 5, 0), ["  x"]);
        assert_eq!(
            texts(&Row::new("let a = 1;", Style::new()).verbatim().wrapped(4)),
            ["let ", "a = ", "1;"]
        );
    }

    #[test]
    fn a_shortened_line_keeps_to_its_columns() {
        assert_eq!(shortened("日本語", 6), "日本語");
        assert_eq!(shortened("日本語", 5), "日本…");
        assert_eq!(shortened("abcdef", 3), "ab…");
        assert_eq!(shortened("abc", 0), "");
    }
}
