//! Puts the live area and the scrollback on a terminal, as bytes.
//!
//! The conversation is printed like any program's output, so it ends up in the terminal's own scrollback, where
//! selecting, searching and scrolling work as ever. The live area stands below it and is moved by printing. All
//! movement is relative to where the cursor was left, so nothing is ever asked of the terminal, and there is no
//! alternate screen to come back from. What changes is written in one piece, which terminals that know of it show at once.
//!
//! A terminal may have another size before this program hears of it. So rows of the live area are cut at its edge, by the
//! terminal, where they would be broken; and downwards the cursor goes by line feeds, for which there is always room.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{self, Write};

use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;

use crate::text::{Row, Wrap};
use crate::view::View;

/// How many rows of the conversation are held for drawing the screen anew.
const HELD: usize = 200;

/// Which colours are written. Never a background, and never one that is not among the terminal's own sixteen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colours {
    /// None.
    No,
    /// On a dark ground.
    OnDark,
    /// On a light ground, where yellow and cyan can hardly be read.
    OnLight,
    /// On a ground that is not known. Yellow is what cannot be read on the other one.
    OnAny,
}

impl Colours {
    /// The code of a colour, if it is to be written.
    fn code(self, colour: Color) -> Option<u8> {
        let (yellow, cyan) = match self {
            Colours::No => return None,
            Colours::OnDark => (33, 36),
            Colours::OnLight => (35, 34),
            Colours::OnAny => (35, 36),
        };
        Some(match colour {
            Color::Red => 31,
            Color::Green => 32,
            Color::Yellow => yellow,
            Color::Blue => 34,
            Color::Magenta => 35,
            Color::Cyan => cyan,
            // The bright ones: grey is for both grounds, of the others the plain ones are.
            Color::Indexed(8) => 90,
            Color::Indexed(11) => yellow,
            Color::Indexed(14) => cyan,
            Color::Indexed(n @ 9..=13) => n + 22,
            // No other colour is ever used.
            _ => return None,
        })
    }
}

const BEGIN: &str = "\x1b[?2026h";
const END: &str = "\x1b[?2026l";
/// Whether the terminal breaks what is wider than it.
const CUT: &str = "\x1b[?7l";
const BREAK: &str = "\x1b[?7h";
/// Erases a row.
const ERASE: &str = "\x1b[2K";

/// Draws on a terminal.
#[derive(Debug)]
pub(crate) struct Painter<W> {
    out: W,
    colours: Colours,
    /// What is on the screen.
    shown: Option<View>,
    /// In which row of the live area the cursor is.
    row: u16,
    /// On how many rows of the terminal the live area stands.
    live: u16,
    title: String,
    /// The last rows of the conversation.
    printed: VecDeque<Row>,
}

impl<W: Write> Painter<W> {
    /// A painter that writes to `out`. The cursor must be at the beginning of an empty line.
    pub(crate) fn new(out: W, colours: Colours) -> Self {
        Painter { out, colours, shown: None, row: 0, live: 0, title: String::new(), printed: VecDeque::new() }
    }

    /// Prints rows above the live area and draws it below them.
    pub(crate) fn print(&mut self, rows: &[Row], view: View) -> io::Result<()> {
        let mut bytes = String::from(BEGIN);
        self.to_top(&mut bytes);
        let columns = usize::from(view.buffer.area.width);
        // Only where the live area stood there is something to be erased; further down, rows would be scrolled away for it.
        let mut left = usize::from(self.live);
        for row in rows {
            let broken = row.wrapped(columns);
            match row.wrap {
                Wrap::Words(_) => broken.iter().for_each(|line| self.line(line, 1, &mut bytes)),
                Wrap::Terminal => self.line(&row.line, broken.len().min(left), &mut bytes),
            }
            left = left.saturating_sub(broken.len());
        }
        self.hold(rows);
        self.whole(&view, &mut bytes);
        self.finish(view, bytes)
    }

    fn hold(&mut self, rows: &[Row]) {
        let new = &rows[rows.len().saturating_sub(HELD)..];
        let excess = (self.printed.len() + new.len()).saturating_sub(HELD);
        self.printed.drain(..excess);
        self.printed.extend(new.iter().cloned());
    }

    /// Draws the live area.
    pub(crate) fn draw(&mut self, view: View) -> io::Result<()> {
        let mut bytes = String::from(BEGIN);
        match self.shown.take() {
            Some(shown) if shown == view => {
                self.shown = Some(shown);
                return Ok(());
            }
            Some(shown) if shown.buffer.area == view.buffer.area => {
                self.changes(&shown.buffer, &view, &mut bytes)
            }
            Some(_) | None => {
                self.to_top(&mut bytes);
                self.whole(&view, &mut bytes);
            }
        }
        self.finish(view, bytes)
    }

    /// Takes in that the terminal has another number of columns. Most terminals then break the lines anew, so the live
    /// area stands on as many rows as its lines take now.
    pub(crate) fn resized(&mut self, columns: u16) {
        let Some(shown) = self.shown.take() else { return };
        let columns = columns.max(1);
        let height = shown.buffer.area.height;
        let rows_before = |row: u16| (0..row.min(height)).map(|y| rows_of(&shown.buffer, y, columns)).sum();
        self.live = rows_before(height);
        // Without a cursor to be seen it stands at the very beginning, and nothing is above it.
        if let Some((column, row)) = shown.cursor {
            let above: u16 = rows_before(row);
            self.row = above + column / columns;
        }
    }

    /// Draws a screen of so many rows anew, whatever is on it: the end of the conversation and the live area below it.
    pub(crate) fn redraw(&mut self, screen: u16, view: View) -> io::Result<()> {
        let columns = usize::from(view.buffer.area.width);
        let room = usize::from(screen.saturating_sub(view.buffer.area.height));
        let mut lines: Vec<Line<'static>> = Vec::new();
        for row in self.printed.iter().rev() {
            if lines.len() >= room {
                break;
            }
            lines.extend(row.wrapped(columns).into_iter().rev());
        }
        lines.truncate(room);
        let mut bytes = format!("{BEGIN}\x1b[0m\x1b[H");
        lines.iter().rev().for_each(|line| self.line(line, 1, &mut bytes));
        self.whole(&view, &mut bytes);
        self.finish(view, bytes)
    }

    /// Takes the live area away, and leaves the cursor where it began.
    pub(crate) fn clear(&mut self) -> io::Result<()> {
        let mut bytes = String::new();
        self.to_top(&mut bytes);
        // Row by row, for the first reason that `line` has.
        let below = self.shown.take().map_or(0, |shown| shown.buffer.area.height.saturating_sub(1));
        for _ in 0..below {
            bytes.push_str("\x1b[K\n");
        }
        bytes.push_str("\x1b[K");
        if below > 0 {
            let _ = write!(bytes, "\x1b[J\x1b[{below}A");
        }
        bytes.push_str("\x1b[?25h");
        self.row = 0;
        self.out.write_all(bytes.as_bytes())?;
        self.out.flush()
    }

    /// Sets the terminal's title, if it is another.
    pub(crate) fn title(&mut self, title: &str) -> io::Result<()> {
        if self.title == title {
            return Ok(());
        }
        title.clone_into(&mut self.title);
        write!(self.out, "\x1b]2;{}\x07", inert(title))?;
        self.out.flush()
    }

    /// Rings.
    pub(crate) fn bell(&mut self) -> io::Result<()> {
        self.out.write_all(b"\x07")?;
        self.out.flush()
    }

    /// What it wrote to.
    #[cfg(test)]
    pub(crate) fn into_inner(self) -> W {
        self.out
    }

    fn to_top(&self, bytes: &mut String) {
        bytes.push('\r');
        if self.row > 0 {
            let _ = write!(bytes, "\x1b[{}A", self.row);
        }
    }

    /// Writes a line over so many rows of the live area, one at least. Each row is erased for itself and
    /// before it is written: tmux takes a screen that is erased from its first cell on for one to be kept, and counts what
    /// is erased behind a text as part of it, which it breaks anew where it becomes narrower.
    fn line(&self, line: &Line<'static>, rows: usize, bytes: &mut String) {
        bytes.push_str(ERASE);
        for _ in 1..rows {
            bytes.push('\n');
            bytes.push_str(ERASE);
        }
        if rows > 1 {
            let _ = write!(bytes, "\x1b[{}A", rows - 1);
        }
        let mut style = Style::new();
        for span in &line.spans {
            self.restyle(&mut style, line.style.patch(span.style), bytes);
            bytes.push_str(&inert(&span.content));
        }
        self.restyle(&mut style, Style::new(), bytes);
        bytes.push_str("\r\n");
    }

    /// Draws every row from the top of the live area on.
    fn whole(&mut self, view: &View, bytes: &mut String) {
        let height = view.buffer.area.height;
        bytes.push_str(CUT);
        for y in 0..height {
            if y > 0 {
                bytes.push_str("\r\n");
            }
            if y + 1 == height {
                // What is below goes. Before the row, since behind a full one its last cell would go too.
                bytes.push_str("\x1b[J");
            }
            self.buffer_row(&view.buffer, y, bytes);
        }
        bytes.push_str(BREAK);
        self.row = height.saturating_sub(1);
    }

    /// Draws the rows that are different.
    fn changes(&mut self, shown: &Buffer, view: &View, bytes: &mut String) {
        bytes.push_str(CUT);
        for y in 0..view.buffer.area.height {
            if row_of(shown, y) != row_of(&view.buffer, y) {
                self.go_to_row(y, bytes);
                self.buffer_row(&view.buffer, y, bytes);
            }
        }
        bytes.push_str(BREAK);
    }

    fn go_to_row(&mut self, y: u16, bytes: &mut String) {
        bytes.push('\r');
        match y.cmp(&self.row) {
            std::cmp::Ordering::Less => drop(write!(bytes, "\x1b[{}A", self.row - y)),
            std::cmp::Ordering::Equal => {}
            std::cmp::Ordering::Greater => bytes.extend(std::iter::repeat_n('\n', usize::from(y - self.row))),
        }
        self.row = y;
    }

    fn buffer_row(&self, buffer: &Buffer, y: u16, bytes: &mut String) {
        bytes.push_str(ERASE);
        let mut style = Style::new();
        let used = used_columns(buffer, y);
        let mut x = 0;
        while x < used {
            let cell = &buffer[(x, y)];
            self.restyle(&mut style, style_of(cell), bytes);
            bytes.push_str(&inert(cell.symbol()));
            x += u16::try_from(crate::text::width(cell.symbol())).unwrap_or(1).max(1);
        }
        self.restyle(&mut style, Style::new(), bytes);
    }

    fn restyle(&self, now: &mut Style, wanted: Style, bytes: &mut String) {
        let colour = wanted.fg.and_then(|colour| self.colours.code(colour));
        let wanted = if colour.is_some() { wanted } else { Style { fg: None, ..wanted } };
        if *now == wanted {
            return;
        }
        *now = wanted;
        bytes.push_str("\x1b[0");
        for (modifier, code) in [
            (Modifier::BOLD, 1),
            (Modifier::DIM, 2),
            (Modifier::ITALIC, 3),
            (Modifier::UNDERLINED, 4),
            (Modifier::CROSSED_OUT, 9),
        ] {
            if wanted.add_modifier.contains(modifier) {
                let _ = write!(bytes, ";{code}");
            }
        }
        if let Some(code) = colour {
            let _ = write!(bytes, ";{code}");
        }
        bytes.push('m');
    }

    fn finish(&mut self, view: View, mut bytes: String) -> io::Result<()> {
        match view.cursor {
            Some((column, row)) => {
                self.go_to_row(row, &mut bytes);
                if column > 0 {
                    let _ = write!(bytes, "\x1b[{column}C");
                }
                bytes.push_str("\x1b[?25h");
            }
            None => {
                self.go_to_row(0, &mut bytes);
                bytes.push_str("\x1b[?25l");
            }
        }
        bytes.push_str(END);
        self.live = view.buffer.area.height;
        self.shown = Some(view);
        self.out.write_all(bytes.as_bytes())?;
        self.out.flush()
    }
}

/// The last word on what reaches the terminal: no control character does.
fn inert(text: &str) -> std::borrow::Cow<'_, str> {
    if text.chars().any(char::is_control) {
        text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect::<String>().into()
    } else {
        text.into()
    }
}

fn row_of(buffer: &Buffer, y: u16) -> &[Cell] {
    let width = usize::from(buffer.area.width);
    let start = usize::from(y) * width;
    &buffer.content[start..start + width]
}

/// On how many rows a terminal of so many columns puts what is in a row: no character is broken.
fn rows_of(buffer: &Buffer, y: u16, columns: u16) -> u16 {
    let (mut rows, mut used, mut x) = (1, 0, 0);
    while x < used_columns(buffer, y) {
        let wide = u16::try_from(crate::text::width(buffer[(x, y)].symbol())).unwrap_or(1).max(1);
        if used + wide > columns && used > 0 {
            (rows, used) = (rows + 1, 0);
        }
        (used, x) = (used + wide, x + wide);
    }
    rows
}

fn used_columns(buffer: &Buffer, y: u16) -> u16 {
    let cells = row_of(buffer, y);
    let blank = cells.iter().rev().take_while(|cell| cell.symbol() == " ").count();
    u16::try_from(cells.len() - blank).unwrap_or(u16::MAX)
}

fn style_of(cell: &Cell) -> Style {
    let fg = Some(cell.fg).filter(|colour| *colour != Color::Reset);
    Style { fg, add_modifier: cell.modifier, ..Style::new() }
}

#[cfg(test)]
impl Painter<Vec<u8>> {
    /// How many bytes were written since this was asked.
    pub(crate) fn take_bytes(&mut self) -> usize {
        std::mem::take(&mut self.out).len()
    }
}

#[cfg(test)]
mod tests;
