//! Styles: the terminal's own sixteen colours and attributes, so that light and dark grounds both work.
//!
//! No background is ever set. Where colours are not wanted the painter leaves them out, and every meaning is also a
//! word or a sign.

use ratatui::style::{Color, Modifier, Style};

/// Ordinary text.
pub(crate) const PLAIN: Style = Style::new();
/// What matters less.
pub(crate) const DIM: Style = Style::new().add_modifier(Modifier::DIM);
/// What matters more.
pub(crate) const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
/// What the user may act on.
pub(crate) const ACCENT: Style = Style::new().fg(Color::Cyan);
/// What went well, and what was added.
pub(crate) const GOOD: Style = Style::new().fg(Color::Green);
/// What went wrong, and what was taken away.
pub(crate) const BAD: Style = Style::new().fg(Color::Red);
/// What needs a look.
pub(crate) const WARN: Style = Style::new().fg(Color::Yellow);
/// Code inside a sentence.
pub(crate) const CODE: Style = Style::new().fg(Color::Cyan);
/// The selected line of a list.
pub(crate) const SELECTED: Style = Style::new().fg(Color::Cyan).add_modifier(Modifier::BOLD);
