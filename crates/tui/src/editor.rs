//! The text that the user writes: several lines, pastes of any size, a cursor that moves by what is seen.
//!
//! A long paste stands in the text as one short placeholder, which the cursor jumps over and which is deleted as one; what
//! is sent has the whole paste in its place. So typing stays quick whatever was pasted.

use ratatui::style::Style;
use serde::{Deserialize, Serialize};
use unicode_segmentation::UnicodeSegmentation;

use crate::text::{Cell, breaks, end_of_row, plain_line, width};

/// A paste with more lines or bytes than this is shown as a placeholder.
const LONG_LINES: usize = 8;
const LONG_BYTES: usize = 1_000;

/// A text being written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Editor {
    text: String,
    /// Where the cursor is, in bytes.
    cursor: usize,
    pastes: Vec<Paste>,
    /// How many pastes there have been, so that no two placeholders are alike.
    #[serde(default)]
    pasted: usize,
    /// What was deleted last by a command that deletes more than a character.
    #[serde(skip)]
    killed: Killed,
}

/// Deleted text, with the pastes that have placeholders in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Killed {
    text: String,
    pastes: Vec<Paste>,
}

/// A long paste and what stands for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Paste {
    label: String,
    text: String,
}

/// What the editor looks like at some width.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// The rows.
    pub(crate) rows: Vec<String>,
    /// The cursor's row.
    pub(crate) row: usize,
    /// The cursor's column.
    pub(crate) column: usize,
}

impl Layout {
    /// Adds the rows of a line. The cursor stands before its grapheme of this number.
    fn lay(&mut self, line: &str, cursor: Option<usize>, columns: usize) {
        let shown: Vec<String> = line.graphemes(true).map(plain_line).collect();
        let cells: Vec<Cell<'_>> =
            shown.iter().map(|shown| (shown.as_str(), Style::new(), width(shown))).collect();
        let breaks = breaks(&cells);
        let columns_of = |cells: &[Cell<'_>]| cells.iter().map(|cell| cell.2).sum::<usize>();
        let mut start = 0;
        loop {
            let end = end_of_row(&cells, &breaks, start, columns);
            let is_last = end == cells.len();
            // White space that hangs over the edge is not shown.
            let over = columns_of(&cells[start..end]).saturating_sub(columns);
            let hanging = cells[start..end].iter().rev().take(over).take_while(|cell| cell.0 == " ").count();
            self.rows.push(cells[start..end - hanging].iter().map(|cell| cell.0).collect());
            if let Some(cursor) = cursor
                && (cursor < end || is_last)
                && cursor >= start
            {
                (self.row, self.column) = (self.rows.len() - 1, columns_of(&cells[start..cursor]));
                if self.column >= columns && cursor == cells.len() {
                    // What is typed next stands there.
                    self.rows.push(String::new());
                    (self.row, self.column) = (self.rows.len() - 1, 0);
                }
                self.column = self.column.min(columns - 1);
            }
            if is_last {
                return;
            }
            start = end;
        }
    }
}

/// A step of the cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// By one character.
    Character,
    /// By one word.
    Word,
    /// To the end of the line.
    Line,
}

impl Editor {
    /// An editor with a text, the cursor at its end.
    #[cfg(test)]
    pub(crate) fn with(text: &str) -> Self {
        let mut editor = Editor::default();
        editor.insert(text);
        editor
    }

    /// Whether there is nothing but white space.
    pub(crate) fn is_blank(&self) -> bool {
        self.text.trim().is_empty()
    }

    /// Whether there is nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// What is seen.
    pub(crate) fn shown(&self) -> &str {
        &self.text
    }

    /// What is meant: with the pastes in the place of what stands for them.
    pub(crate) fn whole(&self) -> String {
        let mut whole = String::new();
        let mut rest = self.text.as_str();
        while let Some((at, paste)) = self
            .pastes
            .iter()
            .filter_map(|paste| rest.find(&paste.label).map(|at| (at, paste)))
            .min_by_key(|(at, _)| *at)
        {
            whole.push_str(&rest[..at]);
            whole.push_str(&paste.text);
            rest = &rest[at + paste.label.len()..];
        }
        whole.push_str(rest);
        whole
    }

    /// Takes the text out.
    pub(crate) fn take(&mut self) -> String {
        let whole = self.whole();
        *self = self.successor("");
        whole
    }

    /// An editor with another text, in which what was deleted here can be put in, and no placeholder is like one of here.
    pub(crate) fn successor(&self, text: &str) -> Editor {
        let (pasted, killed) = (self.pasted, self.killed.clone());
        let mut editor = Editor { pasted, killed, ..Editor::default() };
        editor.insert(text);
        editor
    }

    /// Comes back in the place of an editor that was in this one's place for a while.
    pub(crate) fn replacing(mut self, other: &Editor) -> Editor {
        self.pasted = self.pasted.max(other.pasted);
        self.killed = other.killed.clone();
        self
    }

    /// Puts text in at the cursor, as it is.
    pub(crate) fn insert(&mut self, text: &str) {
        self.text.insert_str(self.cursor, text);
        self.cursor += text.len();
    }

    /// Puts a paste in at the cursor. Line ends become `\n`.
    pub(crate) fn paste(&mut self, text: &str) {
        let text = text.replace("\r\n", "\n").replace('\r', "\n");
        let lines = text.lines().count();
        if lines <= LONG_LINES && text.len() <= LONG_BYTES {
            self.insert(&text);
            return;
        }
        self.pasted += 1;
        let size =
            if lines > 1 { format!("{lines} lines") } else { format!("{} characters", text.chars().count()) };
        let label = format!("[paste {}: {size}]", self.pasted);
        self.insert(&label);
        self.pastes.push(Paste { label, text });
    }

    /// The text before the cursor.
    pub(crate) fn before(&self) -> &str {
        &self.text[..self.cursor]
    }

    /// Replaces the last `len` bytes before the cursor.
    pub(crate) fn replace_before(&mut self, len: usize, text: &str) {
        let start = self.cursor.saturating_sub(len);
        self.text.replace_range(start..self.cursor, text);
        self.cursor = start + text.len();
    }

    /// Moves the cursor back.
    pub(crate) fn left(&mut self, step: Step) {
        self.cursor = self.back(step);
    }

    /// Moves the cursor on.
    pub(crate) fn right(&mut self, step: Step) {
        self.cursor = self.forth(step);
    }

    /// Deletes what stands before the cursor.
    pub(crate) fn delete_back(&mut self, step: Step) {
        let start = self.back(step);
        // At the beginning of a line there is the line end to delete.
        let start = if start == self.cursor { self.back(Step::Character) } else { start };
        self.delete(start, self.cursor, step);
    }

    /// Deletes what stands behind the cursor.
    pub(crate) fn delete_forth(&mut self, step: Step) {
        let end = self.forth(step);
        let end = if end == self.cursor { self.forth(Step::Character) } else { end };
        self.delete(self.cursor, end, step);
    }

    /// Puts in what was deleted last by word or line.
    pub(crate) fn yank(&mut self) {
        let Killed { text, pastes } = self.killed.clone();
        self.insert(&text);
        for paste in pastes {
            if !self.pastes.contains(&paste) {
                self.pastes.push(paste);
            }
        }
    }

    /// Moves the cursor a line up; says whether there was one.
    pub(crate) fn up(&mut self) -> bool {
        let start = self.line_start(self.cursor);
        if start == 0 {
            return false;
        }
        let column = width(&self.text[start..self.cursor]);
        let above = self.line_start(start - 1);
        self.cursor = self.at_column(above, column);
        true
    }

    /// Moves the cursor a line down; says whether there was one.
    pub(crate) fn down(&mut self) -> bool {
        let end = self.line_end(self.cursor);
        if end == self.text.len() {
            return false;
        }
        let column = width(&self.text[self.line_start(self.cursor)..self.cursor]);
        self.cursor = self.at_column(end + 1, column);
        true
    }

    /// The rows of the screen that the text takes, broken between words, and where the cursor is.
    pub(crate) fn layout(&self, columns: usize) -> Layout {
        let columns = columns.max(2);
        let mut layout = Layout { rows: Vec::new(), row: 0, column: 0 };
        let mut start = 0;
        for line in self.text.split('\n') {
            let is_here = (start..=start + line.len()).contains(&self.cursor);
            let cursor = is_here.then(|| line[..self.cursor - start].graphemes(true).count());
            layout.lay(line, cursor, columns);
            start += line.len() + 1;
        }
        layout
    }

    fn delete(&mut self, start: usize, end: usize, step: Step) {
        let gone: String = self.text.drain(start..end).collect();
        self.cursor = start;
        if step != Step::Character {
            let pastes = self.pastes.iter().filter(|paste| gone.contains(&paste.label)).cloned().collect();
            self.killed = Killed { text: gone, pastes };
        }
        self.pastes.retain(|paste| self.text.contains(&paste.label));
    }

    fn back(&self, step: Step) -> usize {
        let before = self.before();
        match step {
            Step::Character => match self.pastes.iter().find(|paste| before.ends_with(&paste.label)) {
                Some(paste) => self.cursor - paste.label.len(),
                None => self.cursor - before.graphemes(true).next_back().map_or(0, str::len),
            },
            Step::Word => {
                let words = before.trim_end();
                let start = words
                    .rfind(char::is_whitespace)
                    .map_or(0, |at| at + words[at..].chars().next().map_or(0, char::len_utf8));
                self.out_of_paste(start, false)
            }
            Step::Line => self.line_start(self.cursor),
        }
    }

    fn forth(&self, step: Step) -> usize {
        let behind = &self.text[self.cursor..];
        match step {
            Step::Character => match self.pastes.iter().find(|paste| behind.starts_with(&paste.label)) {
                Some(paste) => self.cursor + paste.label.len(),
                None => self.cursor + behind.graphemes(true).next().map_or(0, str::len),
            },
            Step::Word => {
                let gap = behind.len() - behind.trim_start().len();
                let word = behind[gap..].find(char::is_whitespace).unwrap_or(behind.len() - gap);
                self.out_of_paste(self.cursor + gap + word, true)
            }
            Step::Line => self.line_end(self.cursor),
        }
    }

    /// A place that is not inside of a placeholder.
    fn out_of_paste(&self, at: usize, forth: bool) -> usize {
        for paste in &self.pastes {
            for (start, _) in self.text.match_indices(&paste.label) {
                let end = start + paste.label.len();
                if start < at && at < end {
                    return if forth { end } else { start };
                }
            }
        }
        at
    }

    fn line_start(&self, at: usize) -> usize {
        self.text[..at].rfind('\n').map_or(0, |end| end + 1)
    }

    fn line_end(&self, at: usize) -> usize {
        self.text[at..].find('\n').map_or(self.text.len(), |end| at + end)
    }

    /// The place at a column of the line that begins at `start`.
    fn at_column(&self, start: usize, column: usize) -> usize {
        let line = &self.text[start..self.line_end(start)];
        let mut used = 0;
        let mut at = start;
        for grapheme in line.graphemes(true) {
            if used >= column {
                break;
            }
            used += width(grapheme);
            at += grapheme.len();
        }
        self.out_of_paste(at, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cursor_moves_by_what_is_seen() {
        let mut editor = Editor::with("e\u{301}日\nword two");
        editor.left(Step::Word);
        assert_eq!(editor.before(), "e\u{301}日\nword ");
        assert!(editor.up());
        assert_eq!(editor.before(), "e\u{301}日");
        editor.left(Step::Character);
        editor.left(Step::Character);
        assert_eq!(editor.before(), "");
        assert!(!editor.up());
        assert!(editor.down());
        assert!(!editor.down());
        editor.delete_forth(Step::Line);
        assert_eq!(editor.shown(), "e\u{301}日\n");
        editor.yank();
        assert_eq!(editor.shown(), "e\u{301}日\nword two");
        editor.delete_back(Step::Word);
        editor.delete_back(Step::Line);
        editor.delete_back(Step::Line);
        assert_eq!(editor.shown(), "e\u{301}日");
    }

    #[test]
    fn a_long_paste_is_one_thing_and_is_sent_whole() {
        let paste = "line\r\n".repeat(20_000);
        let mut editor = Editor::with("look: ");
        editor.paste(&paste);
        editor.insert(" ok");
        assert_eq!(editor.shown(), "look: [paste 1: 20000 lines] ok");
        assert_eq!(editor.whole(), format!("look: {} ok", "line\n".repeat(20_000)));
        editor.left(Step::Word);
        editor.left(Step::Character);
        editor.left(Step::Character);
        assert_eq!(editor.before(), "look: ");
        editor.delete_forth(Step::Character);
        assert_eq!(editor.take(), "look:  ok");
        editor.paste("short\rpaste");
        assert_eq!(editor.shown(), "short\npaste");
    }

    /// What was deleted comes back as it was meant, also in a later message that has a paste of its own.
    #[test]
    fn a_deleted_paste_comes_back_whole() {
        let (old, new) = ("old\n".repeat(9), "new\n".repeat(9));
        for step in [Step::Line, Step::Word] {
            let mut editor = Editor::default();
            editor.paste(&old);
            editor.delete_back(step);
            assert!(editor.is_empty());
            editor.yank();
            assert_eq!(editor.whole(), old);
            editor.delete_back(step);
            editor.insert("sent");
            assert_eq!(editor.take(), "sent");
            editor.paste(&new);
            assert_eq!(editor.shown(), "[paste 2: 9 lines]");
            editor.yank();
            editor.yank();
            assert_eq!(editor.whole(), format!("{new}{old}{old}"));
            editor.left(Step::Word);
            editor.insert("|");
            assert_eq!(editor.whole(), format!("{new}{old}|{old}"));
        }
    }

    #[test]
    fn rows_break_where_they_are_full() {
        let editor = Editor::with("ab日\u{1b}\ncd");
        let layout = editor.layout(3);
        assert_eq!(layout.rows, ["ab", "日", r"\u{1b}", "cd"]);
        assert_eq!((layout.row, layout.column), (3, 2));
        let full = Editor::with("abc").layout(3);
        assert_eq!((full.rows, full.row, full.column), (vec!["abc".to_owned(), String::new()], 1, 0));
    }

    /// Words stay whole, and the cursor stands where the next letter comes.
    #[test]
    fn rows_break_between_words() {
        let laid = |text: &str, columns| {
            let layout = Editor::with(text).layout(columns);
            (layout.rows.join("|"), layout.row, layout.column)
        };
        assert_eq!(laid("one two three", 8), ("one two |three".to_owned(), 1, 5));
        assert_eq!(laid("one two  ", 8), ("one two |".to_owned(), 1, 0));
        assert_eq!(laid("one two   x", 7), ("one two|x".to_owned(), 1, 1));
        assert_eq!(laid("日本語です。", 10), ("日本語で|す。".to_owned(), 1, 4));
        let mut editor = Editor::with("one two three");
        editor.left(Step::Word);
        let layout = editor.layout(8);
        assert_eq!((layout.row, layout.column), (1, 0));
        editor.left(Step::Character);
        let layout = editor.layout(7);
        assert_eq!((layout.rows.join("|"), layout.row, layout.column), ("one two|three".to_owned(), 0, 6));
    }
}
