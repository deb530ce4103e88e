//! The bytes on a terminal that is read back.

use ratatui::layout::Rect;
use ratatui::style::Style;

use super::*;
use crate::theme::{BOLD, GOOD, PLAIN};

/// A terminal, and a painter that writes to it.
struct Screen {
    parser: vt100::Parser,
    painter: Painter<Vec<u8>>,
}

impl Screen {
    fn new(rows: u16, columns: u16) -> Self {
        let size = |n: u16| std::num::NonZeroU16::new(n).unwrap();
        let mut parser = vt100::Parser::new(size(rows), size(columns), 1_000);
        parser.process(b"$ mainstay\r\n");
        Screen { parser, painter: Painter::new(Vec::new(), Colours::OnDark) }
    }

    fn flush(&mut self) {
        let bytes = std::mem::take(&mut self.painter.out);
        self.parser.process(&bytes);
    }

    fn draw(&mut self, view: View) {
        self.painter.draw(view).unwrap();
        self.flush();
    }

    fn print(&mut self, rows: &[Row], view: View) {
        self.painter.print(rows, view).unwrap();
        self.flush();
    }

    /// The rows of the screen, the empty ones at its end left out.
    fn rows(&self) -> Vec<String> {
        self.parser.screen().contents().trim_end().lines().map(|line| line.trim_end().to_owned()).collect()
    }

    /// What is in the scrollback and on the screen.
    fn everything(&mut self) -> Vec<String> {
        self.parser.screen_mut().set_scrollback(usize::MAX);
        let back = self.parser.screen().scrollback();
        let mut all = Vec::new();
        for offset in (0..=back).rev() {
            self.parser.screen_mut().set_scrollback(offset);
            let contents = self.parser.screen().contents();
            let mut lines = contents.lines();
            if offset > 0 {
                all.push(lines.next().unwrap_or_default().trim_end().to_owned());
            } else {
                all.extend(lines.map(|line| line.trim_end().to_owned()));
            }
        }
        self.parser.screen_mut().set_scrollback(0);
        while all.last().is_some_and(String::is_empty) {
            all.pop();
        }
        all
    }
}

fn view_of(lines: &[&str], columns: u16, cursor: Option<(u16, u16)>) -> View {
    let mut buffer = Buffer::empty(Rect::new(0, 0, columns, u16::try_from(lines.len()).unwrap()));
    for (y, line) in (0u16..).zip(lines) {
        buffer.set_line(0, y, &Line::raw((*line).to_owned()), columns);
    }
    View { buffer, cursor }
}

fn row(text: &str) -> Row {
    Row::new(text, PLAIN)
}

#[test]
fn the_conversation_stays_above_and_the_live_area_below() {
    let mut screen = Screen::new(6, 20);
    screen.draw(view_of(&["› ", "status"], 20, Some((2, 0))));
    screen.print(&[row("one"), row("two")], view_of(&["› x", "status"], 20, Some((3, 0))));
    assert_eq!(screen.rows(), ["$ mainstay", "one", "two", "› x", "status"]);
    assert_eq!(screen.parser.screen().cursor_position(), (3, 3));
    screen.draw(view_of(&["a plan", "with items", "› xy", "status"], 20, Some((4, 2))));
    assert_eq!(screen.rows(), ["one", "two", "a plan", "with items", "› xy", "status"]);
    screen.draw(view_of(&["› xy", "status"], 20, Some((4, 0))));
    assert_eq!(screen.rows(), ["one", "two", "› xy", "status"]);
    for n in 0..10 {
        screen.print(&[row(&format!("row {n}"))], view_of(&["› xy", "status"], 20, Some((4, 0))));
    }
    let all = screen.everything();
    let mut expected: Vec<String> = ["$ mainstay", "one", "two"].map(str::to_owned).to_vec();
    expected.extend((0..10).map(|n| format!("row {n}")));
    expected.extend(["› xy", "status"].map(str::to_owned));
    assert_eq!(all, expected, "every row once, in order");
}

#[test]
fn only_rows_that_changed_are_written() {
    let mut screen = Screen::new(6, 40);
    screen.draw(view_of(&["a row that stays as it is", "› ", "status"], 40, Some((2, 1))));
    screen.painter.draw(view_of(&["a row that stays as it is", "› k", "status"], 40, Some((3, 1)))).unwrap();
    let bytes = String::from_utf8(screen.painter.out.clone()).unwrap();
    assert!(!bytes.contains("stays") && !bytes.contains("status"), "{bytes:?}");
    assert!(bytes.len() < 60, "{bytes:?}");
    screen.flush();
    screen.painter.draw(view_of(&["a row that stays as it is", "› k", "status"], 40, Some((3, 1)))).unwrap();
    assert_eq!(screen.painter.out, b"");
}

#[test]
fn wide_and_combining_characters_stay_whole_also_at_the_edge() {
    let mut screen = Screen::new(8, 10);
    let wide = "日本語日本";
    screen.print(
        &[row("日本語日本語"), row("e\u{301}a\u{308}")],
        view_of(&[wide, "› e\u{301}"], 10, Some((3, 1))),
    );
    assert_eq!(screen.rows(), ["$ mainstay", "日本語日本", "語", "e\u{301}a\u{308}", wide, "› e\u{301}"]);
    screen.draw(view_of(&["日本語日x", "› e\u{301}"], 10, Some((3, 1))));
    screen.draw(view_of(&[wide, "› e\u{301}"], 10, Some((3, 1))));
    assert_eq!(screen.rows()[4..], [wide, "› e\u{301}"]);
}

/// F08: even a row that somebody forgot to make plain steers nothing.
#[test]
fn no_control_character_reaches_the_terminal() {
    let mut painter = Painter::new(Vec::new(), Colours::OnDark);
    let bad = Row::of(vec![ratatui::text::Span::raw("\u{1b}]52;c;QQ==\u{7}\u{9b}31m\r\nX")]);
    painter.print(&[bad], view_of(&["›"], 10, None)).unwrap();
    painter.title("t\u{7}\u{1b}]0;x").unwrap();
    let bytes = String::from_utf8(painter.out).unwrap();
    assert!(
        !bytes.contains("\u{1b}]52") && !bytes.contains('\u{9b}') && !bytes.contains("\u{1b}]0"),
        "{bytes:?}"
    );
}

/// tmux keeps a screen in its scrollback that is erased from its first cell on; a live area that fills the screen must not
/// end up there.
#[test]
fn a_live_area_that_fills_the_screen_is_erased_row_by_row() {
    let mut screen = Screen::new(4, 20);
    screen.draw(view_of(&["one", "two", "three is longer", "four"], 20, Some((0, 3))));
    screen.painter.print(&[row("a"), row("b")], view_of(&["› x", "status"], 20, Some((3, 0)))).unwrap();
    let bytes = String::from_utf8(screen.painter.out.clone()).unwrap();
    assert!(bytes.starts_with("\x1b[?2026h\r\x1b[3A\x1b[2Ka\r\n\x1b[2Kb\r\n"), "{bytes:?}");
    screen.flush();
    assert_eq!(screen.rows(), ["a", "b", "› x", "status"]);
    screen.draw(view_of(&["one", "two", "three", "four"], 20, Some((0, 3))));
    screen.painter.clear().unwrap();
    assert!(!String::from_utf8_lossy(&screen.painter.out).contains("A\x1b[J"));
    screen.flush();
    assert_eq!((screen.rows(), screen.parser.screen().cursor_position()), (Vec::<String>::new(), (0, 0)));
}

/// In a terminal that breaks its lines anew, the live area takes more rows after it became narrow, and none of the
/// conversation is lost.
#[test]
fn a_narrower_terminal_loses_nothing() {
    let mut screen = Screen::new(10, 20);
    screen.print(&[row("kept")], view_of(&["a live row of 20 col", "› text", "status"], 20, Some((6, 1))));
    screen.painter.resized(10);
    // What such a terminal makes of it.
    let mut narrow = Screen::new(10, 10);
    narrow.parser.process("kept\r\na live row\r\n of 20 col\r\n› text\r\nstatus\x1b[A".as_bytes());
    std::mem::swap(&mut screen.parser, &mut narrow.parser);
    screen.draw(view_of(&["a live row", "› text", "status"], 10, Some((6, 1))));
    assert_eq!(screen.rows(), ["$ mainstay", "kept", "a live row", "› text", "status"]);
}

/// Who only looks on has no cursor, and it stands above all that is drawn: however a terminal breaks that anew, nothing above
/// it was drawn here, and what does not fit any more is lost below it.
#[test]
fn without_a_cursor_nothing_of_the_live_area_is_above_it() {
    let mut screen = Screen::new(10, 20);
    screen.print(&[row("kept")], view_of(&["a live row of 20 col", "› ", "status"], 20, None));
    assert_eq!(screen.parser.screen().cursor_position(), (2, 0));
    screen.draw(view_of(&["a live row of 20 col", "› ", "another"], 20, None));
    assert_eq!(screen.parser.screen().cursor_position(), (2, 0));
    screen.painter.resized(10);
    screen.painter.draw(view_of(&["a live", "› ", "status"], 10, None)).unwrap();
    let bytes = String::from_utf8(screen.painter.out.clone()).unwrap();
    assert!(bytes.starts_with("\x1b[?2026h\r\x1b[?7l\x1b[2Ka live"), "{bytes:?}");
}

/// A character of two columns is not broken, so a row of them may take more rows than its columns say.
#[test]
fn rows_of_wide_characters_are_counted_as_they_are_broken() {
    let view = view_of(&["日本語日本語", "ab日", "", "x"], 12, None);
    let rows = |columns| (0..4).map(|y| rows_of(&view.buffer, y, columns)).collect::<Vec<_>>();
    assert_eq!(rows(12), [1, 1, 1, 1]);
    assert_eq!(rows(5), [3, 1, 1, 1]);
    assert_eq!(rows(3), [6, 2, 1, 1]);
    assert_eq!(rows(1), [6, 3, 1, 1]);
}

/// Nothing that was there before is left behind a text, so that a terminal that breaks lines anew takes no blanks for
/// text; where the terminal breaks a line, each of its rows is free before.
#[test]
fn every_row_is_erased_before_it_is_written() {
    let mut screen = Screen::new(6, 10);
    screen.draw(view_of(&["0123456789", "0123456789", "0123456789"], 10, None));
    screen.print(&[row("let a = 1; // x").verbatim()], view_of(&["› ", "below"], 10, None));
    assert_eq!(screen.rows(), ["$ mainstay", "let a = 1; // x", "›", "below"]);
    screen.painter.print(&[row("let a = 1; // x").verbatim()], view_of(&["› "], 10, None)).unwrap();
    let bytes = String::from_utf8(screen.painter.out.clone()).unwrap();
    assert!(bytes.contains("\r\x1b[2K\n\x1b[2K\x1b[1Alet a = 1; // x\r\n"), "{bytes:?}");
}

/// A line of code that is higher than the screen scrolls away what it fills, and nothing else.
#[test]
fn a_line_that_is_higher_than_the_screen_leaves_no_blanks() {
    let mut screen = Screen::new(6, 10);
    screen.draw(view_of(&["one", "two", "three"], 10, None));
    let long = "0123456789".repeat(20);
    screen.print(&[row(&long).verbatim()], view_of(&["› "], 10, None));
    let blank = screen.everything().into_iter().filter(String::is_empty).count();
    assert_eq!(blank, 0);
}

#[test]
fn colours_are_left_out_where_they_are_not_wanted() {
    let styled = |colours: Colours| {
        let mut painter = Painter::new(Vec::new(), colours);
        let row = Row::of(vec![ratatui::text::Span::styled("x", GOOD.patch(BOLD))]);
        painter.print(&[row], view_of(&["›"], 10, None)).unwrap();
        String::from_utf8(painter.out).unwrap()
    };
    assert!(styled(Colours::OnDark).contains("\x1b[0;1;32mx"));
    assert!(styled(Colours::No).contains("\x1b[0;1mx"));
}

/// Sixteen colours are all that is ever asked for, and no ground; on a light one, or one that is not known, no yellow.
#[test]
fn colours_are_the_terminals_own_and_fit_the_ground() {
    let all = [Color::Red, Color::Green, Color::Yellow, Color::Blue, Color::Magenta, Color::Cyan];
    let indexed = (0..=255).map(Color::Indexed).chain([Color::Rgb(1, 2, 3), Color::White, Color::Black]);
    let wanted: Vec<Color> = all.into_iter().chain(indexed).collect();
    let codes = |colours: Colours| {
        let mut painter = Painter::new(Vec::new(), colours);
        for colour in &wanted {
            let span = ratatui::text::Span::styled("x", Style::new().fg(*colour).bg(Color::Red));
            painter.print(&[Row::of(vec![span])], view_of(&["›"], 10, None)).unwrap();
        }
        let bytes = String::from_utf8(painter.out).unwrap();
        let mut codes: Vec<String> =
            bytes.split("\x1b[0;").skip(1).map(|rest| rest.split('m').next().unwrap().to_owned()).collect();
        codes.sort();
        codes.dedup();
        codes
    };
    assert_eq!(codes(Colours::OnDark), ["31", "32", "33", "34", "35", "36", "90"]);
    assert_eq!(codes(Colours::OnLight), ["31", "32", "34", "35", "90"]);
    assert_eq!(codes(Colours::OnAny), ["31", "32", "34", "35", "36", "90"]);
    assert_eq!(codes(Colours::No), Vec::<String>::new());
}

/// Ctrl-L: whatever another program left on the screen goes, and what belongs there is there again, nothing of it twice.
#[test]
fn a_screen_is_drawn_anew() {
    let mut screen = Screen::new(5, 20);
    for n in 0..10 {
        screen.print(&[row(&format!("row {n}"))], view_of(&["› xy", "status"], 20, Some((4, 0))));
    }
    let before = screen.everything();
    screen.parser.process(b"\x1b[2;3Hrubbish\r\n and more of it");
    screen.painter.redraw(5, view_of(&["› xy", "status"], 20, Some((4, 0)))).unwrap();
    screen.flush();
    assert_eq!(screen.rows(), ["row 7", "row 8", "row 9", "› xy", "status"]);
    assert_eq!(screen.everything(), before);
    assert_eq!(screen.parser.screen().cursor_position(), (3, 4));
    screen.print(&[row("next")], view_of(&["› xy", "status"], 20, Some((4, 0))));
    assert_eq!(screen.rows(), ["row 8", "row 9", "next", "› xy", "status"]);
}
