//! Colours for code, off the thread that draws.
//!
//! Syntaxes are large (tens of megabytes once read), so nothing is loaded before the first block of code in a language
//! that is known, and then on a thread of its own. The theme says colours by the terminal's own numbers, so that it fits
//! any ground.

use std::sync::mpsc;
use std::thread;

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Span;
use syntect::easy::HighlightLines;
use syntect::highlighting::{FontStyle, HighlightState, Style as Found, Theme};
use syntect::parsing::{ParseState, SyntaxSet};
use two_face::theme::EmbeddedThemeName;

use crate::markdown::code_row;
use crate::text::{Row, plain, plain_line};
use crate::theme::CODE;

/// The largest block that is coloured, in bytes; a larger one is shown plain.
const MOST: usize = 100_000;

/// Code to be coloured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Code {
    /// Which block it is.
    pub(crate) id: u64,
    /// The word behind the fence.
    pub(crate) language: String,
    /// The code.
    pub(crate) text: String,
    /// Whether it goes on where the code that was asked for last ends.
    pub(crate) continues: bool,
}

/// Where the colours of a block stand at its end.
type Standing = (HighlightState, ParseState);

/// Colours blocks of code, one after the other.
pub(crate) struct Highlighter {
    sender: mpsc::Sender<Code>,
}

impl Highlighter {
    /// Starts one. `done` hears of each block, on the thread that coloured it.
    pub(crate) fn start(done: impl Fn(u64, Vec<Row>) + Send + 'static) -> Highlighter {
        let (sender, receiver) = mpsc::channel::<Code>();
        // If there is no thread, blocks are shown plain: the sender notices.
        let _ = thread::Builder::new().name("highlight".to_owned()).spawn(move || {
            let (mut loaded, mut last) = (None, None);
            for code in receiver {
                let (syntaxes, theme) = loaded.get_or_insert_with(load);
                let (rows, standing) = coloured(&code, last.take(), syntaxes, theme);
                last = standing;
                done(code.id, rows);
            }
        });
        Highlighter { sender }
    }

    /// Asks for colours; says whether somebody will answer.
    pub(crate) fn ask(&self, code: Code) -> bool {
        self.sender.send(code).is_ok()
    }
}

/// Whether a block is worth asking for.
pub(crate) fn is_worth_it(language: &str, text: &str) -> bool {
    let word = first_word(language);
    !word.is_empty() && !matches!(word, "text" | "txt" | "plain" | "output") && text.len() <= MOST
}

fn first_word(language: &str) -> &str {
    language.split([' ', ',', '{']).next().unwrap_or_default()
}

fn load() -> (SyntaxSet, Theme) {
    let theme = two_face::theme::extra().get(EmbeddedThemeName::Ansi).clone();
    (two_face::syntax::extra_newlines(), theme)
}

fn coloured(
    code: &Code,
    last: Option<Standing>,
    syntaxes: &SyntaxSet,
    theme: &Theme,
) -> (Vec<Row>, Option<Standing>) {
    let plain = || (plain_code(&code.text), None);
    let found = syntaxes.find_syntax_by_token(first_word(&code.language));
    let Some(syntax) = found else { return plain() };
    let mut lines = match last.filter(|_| code.continues) {
        Some((colours, place)) => HighlightLines::from_state(theme, colours, place),
        None => HighlightLines::new(syntax, theme),
    };
    let mut rows = Vec::new();
    for line in code.text.lines() {
        let with_end = format!("{line}\n");
        let Ok(parts) = lines.highlight_line(&with_end, syntaxes) else { return plain() };
        let spans = parts
            .into_iter()
            .map(|(style, part)| Span::styled(plain_line(part.trim_end_matches('\n')), style_of(style)));
        rows.push(code_row(spans.filter(|span| !span.content.is_empty()).collect()));
    }
    (rows, Some(lines.state()))
}

/// Code without colours.
pub(crate) fn plain_code(text: &str) -> Vec<Row> {
    plain(text).map(|line| code_row(vec![Span::styled(line, CODE)])).collect()
}

/// The theme keeps the terminal's colour number in the red part, where the alpha part is 0, and says with an alpha of 1
/// that the terminal's own foreground is meant.
fn style_of(found: Found) -> Style {
    let number = |n: u8| match n {
        1 => Color::Red,
        2 => Color::Green,
        3 => Color::Yellow,
        4 => Color::Blue,
        5 => Color::Magenta,
        6 => Color::Cyan,
        n => Color::Indexed(n),
    };
    let style = match (found.foreground.a, found.foreground.r) {
        // Black and white are invisible on one ground or the other.
        (0, 0 | 7 | 15) | (1.., _) => Style::new(),
        (0, n) => Style::new().fg(number(n)),
    };
    let mut modifier = Modifier::empty();
    modifier.set(Modifier::BOLD, found.font_style.contains(FontStyle::BOLD));
    modifier.set(Modifier::ITALIC, found.font_style.contains(FontStyle::ITALIC));
    modifier.set(Modifier::UNDERLINED, found.font_style.contains(FontStyle::UNDERLINE));
    style.add_modifier(modifier)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_gets_the_terminals_own_colours() {
        let (sender, receiver) = mpsc::channel();
        let highlighter = Highlighter::start(move |id, rows| drop(sender.send((id, rows))));
        let text = "fn main() { let s = \"日本\"; } // \u{1b}[31m\n".to_owned();
        let ask = |id, text: &str, continues| {
            let (language, text) = ("rust".to_owned(), text.to_owned());
            assert!(highlighter.ask(Code { id, language, text, continues }));
        };
        ask(7, &text, false);
        let (id, rows) = receiver.recv_timeout(std::time::Duration::from_secs(60)).unwrap();
        assert_eq!(id, 7);
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].line.to_string(), "  fn main() { let s = \"日本\"; } // \\u{1b}[31m");
        let colours: Vec<_> = rows[0].line.spans.iter().filter_map(|span| span.style.fg).collect();
        assert!(colours.len() > 2, "{colours:?}");
        assert!(!colours.iter().any(|colour| matches!(colour, Color::Rgb(..))), "{colours:?}");
        // What goes on in the middle of a comment is one.
        ask(8, "/* let a = 1;\n", false);
        ask(9, "let a = 1; */\n", true);
        ask(10, "let a = 1;\n", false);
        let spans =
            || receiver.recv_timeout(std::time::Duration::from_secs(60)).unwrap().1[0].line.spans.len();
        let (begun, inside, outside) = (spans(), spans(), spans());
        assert_eq!(inside, begun, "one style from its beginning to its end");
        assert!(outside > inside, "{outside} and {inside}");
    }
}
