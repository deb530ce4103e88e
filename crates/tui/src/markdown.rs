//! Markdown as rows of styled text, also while it is still coming.
//!
//! [`finished`] says how much of a growing text can no longer change its looks: all blocks but the last. Of the last one,
//! [`settled`] says what is as it shall be, if it is a paragraph or code. So only the end of the last block is read again
//! when more comes. HTML is shown as the text it is, images by their description.

use std::borrow::Cow;
use std::ops::Range;

use pulldown_cmark::{Alignment, CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};
use ratatui::style::{Modifier, Style};
use ratatui::text::Span;

use crate::text::{Row, plain, plain_line, width};
use crate::theme::{ACCENT, BOLD, CODE, DIM, PLAIN};

/// How much of the end of a growing text is shown, in bytes: some screens of it.
const END: usize = 4 << 10;
/// How long a paragraph may wait for the end of something that began in it, as of `[` or `*`, in bytes.
const HOLDS: usize = 4 << 10;

/// A part of a rendered text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Rows that are as they shall be.
    Rows(Vec<Row>),
    /// Code that can be coloured.
    Code {
        /// The word behind the fence.
        language: String,
        /// The code.
        code: String,
    },
}

/// How many bytes of a growing text are blocks that nothing behind them changes any more. A line that has no end yet may
/// still belong to the block before it.
pub(crate) fn finished(text: &str) -> usize {
    last_block(&text[..text.rfind('\n').map_or(0, |end| end + 1)])
}

/// Where the last block of a text begins. If it is long, all before it is finished, whether its line has an end or not.
pub(crate) fn last_block(text: &str) -> usize {
    let mut depth = 0;
    let mut last = 0;
    for (event, range) in Parser::new_ext(text, options()).into_offset_iter() {
        match event {
            Event::Start(_) => {
                if depth == 0 {
                    last = range.start;
                }
                depth += 1;
            }
            Event::End(_) => depth -= 1,
            Event::Rule if depth == 0 => last = range.start,
            _ => {}
        }
    }
    // The spaces before it are its own: four of them make code of what would be another block.
    text[..last].rfind('\n').map_or(0, |end| end + 1)
}

/// The beginning of the last block of a growing text, as far as nothing behind it changes it any more; but a paragraph may
/// become a heading by a line of dashes or equals signs below it, however long it is, and what is settled stays text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    /// So many bytes of a paragraph. What is behind them reads on its own as it reads there.
    Paragraph(usize),
    /// Lines of code.
    Code {
        /// The word behind the fence.
        language: String,
        /// The lines.
        code: String,
        /// The block without them.
        rest: String,
    },
}

/// What is settled of a text that is one block as yet; nothing if it is of a kind whose end changes its beginning, as a
/// list or a table. Of a paragraph at least `keep` bytes are not.
pub(crate) fn settled(text: &str, keep: usize) -> Option<Settled> {
    match text.trim_start_matches('\n') {
        block if block.starts_with("```") || block.starts_with("~~~") => settled_code(block),
        _ => settled_paragraph(text, keep).map(Settled::Paragraph),
    }
}

fn settled_code(block: &str) -> Option<Settled> {
    let mut events = Parser::new_ext(block, options()).into_offset_iter();
    let language = match events.next() {
        Some((Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(language))), _)) => language.to_string(),
        _ => return None,
    };
    let mut inside: Option<Range<usize>> = None;
    for (event, range) in events {
        match event {
            Event::Text(_) => inside = Some(inside.map_or(range.start, |inside| inside.start)..range.end),
            Event::End(TagEnd::CodeBlock) => {}
            _ => return None,
        }
    }
    let inside = inside?;
    let last = block[inside.clone()].rfind('\n')?;
    let (head, rest) = block.split_at(inside.start + last + 1);
    let (fence, code) = head.split_at(inside.start);
    Some(Settled::Code { language, code: code.to_owned(), rest: format!("{fence}{rest}") })
}

/// Where a paragraph can be cut: between words, outside of all that has a beginning and an end, and behind nothing that
/// may still get its end. One that is very long is cut all the same.
fn settled_paragraph(text: &str, keep: usize) -> Option<usize> {
    if text.len() <= HOLDS && may_become_table(text) {
        return None;
    }
    let most = text.len().checked_sub(keep)?;
    let (mut depth, mut cut) = (0, None);
    let (mut is_begun, mut is_open) = (false, false);
    for (event, range) in Parser::new_ext(text, options()).into_offset_iter() {
        match event {
            Event::Start(Tag::Paragraph) if depth == 0 && !is_begun => {
                is_begun = true;
                depth = 1;
            }
            Event::Start(_) if depth == 0 => return None,
            Event::Rule | Event::Html(_) => return None,
            Event::Start(_) => depth += 1,
            Event::End(_) => depth -= 1,
            Event::Text(_) if !is_open => {
                let end = opening(text, range.clone()).filter(|end| text.len() - end <= HOLDS);
                is_open = end.is_some();
                if depth == 1 {
                    let end = end.unwrap_or(range.end).min(most).max(range.start);
                    cut = last_gap(text, range.start..end).or(cut);
                }
            }
            _ => {}
        }
    }
    cut
}

/// Whether a paragraph is the head of a table if a row of dashes comes below its first line.
fn may_become_table(text: &str) -> bool {
    let mut lines = text.trim_start_matches('\n').split_inclusive('\n');
    let (head, below) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    head.contains('|') && !below.ends_with('\n')
}

/// Where something begins in a part of a text that may get its end later.
fn opening(text: &str, part: Range<usize>) -> Option<usize> {
    let is_word = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    let is_opening = |(at, c): &(usize, char)| {
        let before = text[..part.start + at].chars().next_back();
        let behind = text[part.start + at + c.len_utf8()..].chars().next();
        match c {
            '`' => true,
            // One that is closed, with no address behind it, is a pair of brackets.
            '[' => {
                let address = text[part.start + at..].split_once(']').map(|(_, behind)| behind);
                address.is_none_or(|behind| behind.is_empty() || behind.starts_with(['(', '[', ':']))
            }
            '*' | '~' => behind.is_none_or(|c| !c.is_whitespace()),
            '_' => !(is_word(before) && is_word(behind)),
            '<' => behind.is_none_or(|c| c.is_alphabetic() || "/!?".contains(c)),
            _ => false,
        }
    };
    text[part.clone()].char_indices().find(is_opening).map(|(at, _)| part.start + at)
}

/// The last place in a part of a text where a row may end and what is behind it is no sign of a block.
fn last_gap(text: &str, part: Range<usize>) -> Option<usize> {
    let is_wide = |c: char| c.is_alphabetic() && width(c.encode_utf8(&mut [0; 4])) == 2;
    let part = part.start..text.floor_char_boundary(part.end);
    let ends = text[part.clone()].char_indices().rev().map(|(at, c)| part.start + at + c.len_utf8());
    ends.into_iter().find(|at| {
        let mut before = text[..*at].chars().rev();
        let (last, last_but_one) = (before.next(), before.next());
        let Some(next) = text[*at..].chars().next().filter(|c| c.is_alphabetic()) else { return false };
        let is_space = last == Some(' ') && last_but_one.is_some_and(|c| !c.is_whitespace());
        is_space || is_wide(next) && last.is_some_and(is_wide)
    })
}

/// The end of a growing text, for where only its last rows are shown, so that a long block costs no more than a short
/// one. It begins where a block of code began anew, else between lines or words; the place moves now and then only.
pub(crate) fn end_of(text: &str) -> Cow<'_, str> {
    if text.len() <= 2 * END {
        return text.into();
    }
    let end = &text[text.ceil_char_boundary((text.len() / END - 1) * END)..];
    let begin = end.find('\n').filter(|at| *at < END / 2).or_else(|| end.find(' '));
    let end = begin.map_or(end, |at| &end[at + 1..]);
    match text.trim_start().lines().next().filter(|line| line.starts_with("```") || line.starts_with("~~~")) {
        Some(fence) => format!("{fence}\n{end}").into(),
        None => end.into(),
    }
}

/// Renders a text. Between its blocks stands an empty row, but not between pieces.
pub(crate) fn render(text: &str) -> Vec<Piece> {
    let mut renderer = Renderer::default();
    for event in Parser::new_ext(text, options()) {
        renderer.take(event);
    }
    renderer.end_row();
    renderer.end_piece();
    renderer.pieces
}

/// Rows of a piece whose code is not coloured.
pub(crate) fn uncoloured(piece: &Piece) -> Vec<Row> {
    match piece {
        Piece::Rows(rows) => rows.clone(),
        Piece::Code { code, .. } => {
            plain(code).map(|line| code_row(vec![Span::styled(line, CODE)])).collect()
        }
    }
}

/// A row of a block of code.
pub(crate) fn code_row(spans: Vec<Span<'static>>) -> Row {
    let mut all = vec![Span::raw("  ")];
    all.extend(spans);
    Row::of(all).verbatim()
}

fn options() -> Options {
    Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS
}

/// A table while it is read.
#[derive(Default)]
struct Table {
    alignments: Vec<Alignment>,
    rows: Vec<Vec<String>>,
}

#[derive(Default)]
struct Renderer {
    pieces: Vec<Piece>,
    rows: Vec<Row>,
    spans: Vec<Span<'static>>,
    styles: Vec<Style>,
    /// What stands before the next row, once: a bullet or a number.
    marker: Option<(usize, String)>,
    /// How far lists and quotes have indented, one entry each: its text, and its width.
    indents: Vec<String>,
    /// The number of the next item of each list; none for bullets.
    lists: Vec<Option<u64>>,
    code: Option<(String, String)>,
    table: Option<Table>,
    link: Option<String>,
    needs_gap: bool,
}

impl Renderer {
    fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) => self.text(&text),
            Event::Code(code) => self.push(&plain_line(&code), CODE),
            Event::Html(html) | Event::InlineHtml(html) => self.text(&html),
            Event::InlineMath(text) | Event::DisplayMath(text) | Event::FootnoteReference(text) => {
                self.text(&text)
            }
            Event::SoftBreak => self.push(" ", PLAIN),
            Event::HardBreak => self.end_row(),
            Event::Rule => {
                self.gap();
                self.push("────────", DIM);
                self.end_row();
                self.needs_gap = true;
            }
            Event::TaskListMarker(is_done) => self.push(if is_done { "[x] " } else { "[ ] " }, PLAIN),
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Paragraph | Tag::HtmlBlock => self.gap(),
            Tag::Heading { level, .. } => {
                self.gap();
                let underline =
                    if level == HeadingLevel::H1 { Modifier::UNDERLINED } else { Modifier::empty() };
                self.styles.push(BOLD.add_modifier(underline));
            }
            Tag::BlockQuote(_) => {
                self.gap();
                self.indents.push("│ ".to_owned());
            }
            Tag::CodeBlock(kind) => {
                if self.indents.is_empty() {
                    self.end_row();
                } else {
                    self.gap();
                }
                let language = match kind {
                    CodeBlockKind::Fenced(language) => language.to_string(),
                    CodeBlockKind::Indented => String::new(),
                };
                self.code = Some((language, String::new()));
            }
            Tag::List(first) => {
                if self.lists.is_empty() {
                    self.gap();
                } else {
                    self.end_row();
                }
                self.lists.push(first);
            }
            Tag::Item => {
                self.end_row();
                self.needs_gap = false;
                let marker = match self.lists.last_mut() {
                    Some(Some(number)) => {
                        *number += 1;
                        format!("{}. ", *number - 1)
                    }
                    _ => "• ".to_owned(),
                };
                let indent = " ".repeat(width(&marker));
                self.marker = Some((self.indents.len(), marker));
                self.indents.push(indent);
            }
            Tag::Emphasis => self.styles.push(Style::new().add_modifier(Modifier::ITALIC)),
            Tag::Strong => self.styles.push(BOLD),
            Tag::Strikethrough => self.styles.push(Style::new().add_modifier(Modifier::CROSSED_OUT)),
            Tag::Link { dest_url, .. } => {
                self.link = Some(dest_url.to_string());
                self.styles.push(ACCENT.add_modifier(Modifier::UNDERLINED));
            }
            Tag::Image { .. } => self.push("image: ", DIM),
            Tag::Table(alignments) => {
                self.gap();
                self.table = Some(Table { alignments, rows: Vec::new() });
            }
            Tag::TableHead | Tag::TableRow => {
                if let Some(table) = &mut self.table {
                    table.rows.push(Vec::new());
                }
            }
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph | TagEnd::HtmlBlock => self.end_block(),
            TagEnd::Heading(_) => {
                self.styles.pop();
                self.end_block();
            }
            TagEnd::BlockQuote(_) => {
                self.end_row();
                self.indents.pop();
                self.needs_gap = true;
            }
            TagEnd::CodeBlock => self.end_code(),
            TagEnd::List(_) => {
                self.end_row();
                self.lists.pop();
                self.needs_gap = self.lists.is_empty();
            }
            TagEnd::Item => {
                self.end_row();
                self.indents.pop();
                self.marker = None;
            }
            TagEnd::Emphasis | TagEnd::Strong | TagEnd::Strikethrough => drop(self.styles.pop()),
            TagEnd::Link => self.end_link(),
            TagEnd::TableCell => {
                let text: String = self.spans.drain(..).map(|span| span.content.into_owned()).collect();
                if let Some(row) = self.table.as_mut().and_then(|table| table.rows.last_mut()) {
                    row.push(text);
                }
            }
            TagEnd::Table => self.end_table(),
            _ => {}
        }
    }

    fn text(&mut self, text: &str) {
        if let Some((_, code)) = &mut self.code {
            code.push_str(text);
            return;
        }
        for (place, line) in text.split('\n').enumerate() {
            if place > 0 {
                self.end_row();
            }
            self.push(&plain_line(line), PLAIN);
        }
    }

    fn push(&mut self, text: &str, style: Style) {
        if !text.is_empty() {
            let style = self.styles.iter().fold(PLAIN, |style, more| style.patch(*more)).patch(style);
            self.spans.push(Span::styled(text.to_owned(), style));
        }
    }

    /// Shows where a link leads, unless its text says so.
    fn end_link(&mut self) {
        self.styles.pop();
        let Some(target) = self.link.take() else { return };
        let is_said = self.spans.last().is_some_and(|span| target.ends_with(span.content.as_ref()));
        if !is_said {
            self.push(&format!(" ({})", plain_line(&target)), DIM);
        }
    }

    fn end_block(&mut self) {
        self.end_row();
        self.needs_gap = true;
    }

    fn end_row(&mut self) {
        if self.spans.is_empty() && self.marker.is_none() {
            return;
        }
        let marker = self.marker.take();
        let marked = |(at, indent): (usize, &String)| match &marker {
            Some((place, marker)) if *place == at => marker.clone(),
            Some(_) | None => indent.clone(),
        };
        let before: String = self.indents.iter().enumerate().map(marked).collect();
        let columns = width(&before);
        let mut spans = Vec::new();
        if !before.is_empty() {
            spans.push(Span::styled(before, DIM));
        }
        spans.append(&mut self.spans);
        self.rows.push(Row::of(spans).indented(columns));
    }

    /// Sets what comes apart from what came.
    fn gap(&mut self) {
        if !self.spans.is_empty() {
            self.end_row();
        }
        if std::mem::take(&mut self.needs_gap) {
            self.rows.push(Row::default());
        }
    }

    fn end_piece(&mut self) {
        if !self.rows.is_empty() {
            self.pieces.push(Piece::Rows(std::mem::take(&mut self.rows)));
        }
    }

    fn end_code(&mut self) {
        let Some((language, code)) = self.code.take() else { return };
        if self.indents.is_empty() {
            self.end_piece();
            self.pieces.push(Piece::Code { language, code });
            self.needs_gap = false;
        } else {
            self.end_row();
            let before = self.indents.concat();
            let row = |line| Row::of(vec![Span::raw(before.clone()), Span::styled(line, CODE)]).verbatim();
            self.rows.extend(plain(&code).map(row));
            self.needs_gap = true;
        }
    }

    fn end_table(&mut self) {
        let Some(table) = self.table.take() else { return };
        let columns = table.rows.iter().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns)
            .map(|column| {
                table.rows.iter().filter_map(|row| row.get(column)).map(|cell| width(cell)).max().unwrap_or(0)
            })
            .collect();
        for (place, row) in table.rows.iter().enumerate() {
            let cells: Vec<String> = (0..columns)
                .map(|column| {
                    let cell = row.get(column).map_or("", String::as_str);
                    let room = " ".repeat(widths[column] - width(cell));
                    match table.alignments.get(column) {
                        Some(Alignment::Right) => format!("{room}{cell}"),
                        _ => format!("{cell}{room}"),
                    }
                })
                .collect();
            let style = if place == 0 { BOLD } else { PLAIN };
            self.push(cells.join("  ").trim_end(), style);
            self.end_row();
        }
        self.needs_gap = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, columns: usize) -> String {
        let pieces: Vec<Vec<Row>> = render(text).iter().map(uncoloured).collect();
        let rows: Vec<Row> = pieces.join(&Row::default());
        rows.iter().flat_map(|row| row.wrapped(columns)).map(|line| format!("{line}\n")).collect()
    }

    const TEXT: &str = "# Title\n\nSome *em* and `code` and a [link](https://example.invalid/x).\nSame paragraph.\n\n- one\n- two with many words in it\n  1. inner\n  2. inner too\n- three\n\n> quoted text\n\n```rust\nfn main() {}\n```\n\n| a | b |\n|---|--:|\n| 日本 | 1 |\n\n<b>html</b>\n";

    #[test]
    fn every_kind_of_block_is_shown() {
        insta::assert_snapshot!(shown(TEXT, 24), @r"
        Title

        Some em and code and a
        link
        (https://
        example.invalid/x). Same
        paragraph.

        • one
        • two with many words in
          it
          1. inner
          2. inner too
        • three

        │ quoted text

          fn main() {}

        a     b
        日本  1

        <b>html</b>
        ");
    }

    /// A quote that begins an item, also behind a number of two digits: the marker stands in its own place.
    #[test]
    fn a_marker_stands_where_its_item_begins() {
        let text = "- > quoted\n  > more\n\n9. nine\n10. > ten\n";
        insta::assert_snapshot!(shown(text, 24), @r"
        • │ quoted more

        9. nine
        10. │ ten
        ");
    }

    #[test]
    fn all_blocks_but_the_last_are_finished() {
        let table = [
            ("one", ""),
            ("one\n\ntwo", ""),
            ("one\n\ntwo\n", "one\n\n"),
            ("one\n\n```\ncode\n\nmore", "one\n\n"),
            ("one\n\n```\ncode\n```\n\nx\n", "one\n\n```\ncode\n```\n\n"),
            ("- a\n\n- b\n", ""),
            ("# t\nx\n", "# t\n"),
            ("| a |\n|---|\n|", ""),
        ];
        for (text, done) in table {
            assert_eq!(&text[..finished(text)], done, "{text:?}");
        }
    }

    /// What is shown of a long block is its end, in the same looks.
    #[test]
    fn the_end_of_a_long_block_looks_like_it() {
        let last = |text: &str| shown(text, 60).lines().rev().take(20).map(str::to_owned).collect::<Vec<_>>();
        let line = "let value = *parser*; // 日本語\n";
        for text in [
            format!("```rust\n{}", line.repeat(2_000)),
            format!("~~~\n{}", line.repeat(2_000)),
            (0..2_000).map(|n| format!("- item {n} of *many*\n")).collect(),
            format!("{}\n\n", "short"),
        ] {
            let end = end_of(&text);
            assert!(end.len() <= 2 * END + 100, "{}", end.len());
            assert_eq!(last(&end), last(&text));
        }
        let paragraph = "many *words* of one paragraph, ".repeat(2_000);
        let words = |text: &str| shown(text, 60).split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let end = words(&end_of(&paragraph));
        assert!(end.len() > 500 && words(&paragraph).ends_with(&end), "{}", end.len());
    }

    /// However the text is cut, its finished part and its rest together show what the whole shows.
    #[test]
    fn pieces_add_up_to_the_whole() {
        for cut in (0..TEXT.len()).filter(|cut| TEXT.is_char_boundary(*cut)) {
            let done = finished(&TEXT[..cut]);
            let both = format!("{}\n{}", shown(&TEXT[..done], 30), shown(&TEXT[done..], 30));
            let lines = |text: &str| {
                text.lines().filter(|l| !l.trim().is_empty()).map(str::to_owned).collect::<Vec<_>>()
            };
            assert_eq!(lines(&both), lines(&shown(TEXT, 30)), "cut at {cut}");
        }
    }
}
