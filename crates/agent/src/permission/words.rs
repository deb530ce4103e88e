//! Words of a command line as far as they are known before it runs, and patterns for them.
//!
//! What a variable, a substitution or a wildcard of the shell will stand for is not known, so there are two answers
//! to whether a command fits a pattern: surely, whatever they stand for, and perhaps. A permission needs the first; a
//! rule that forbids is met by the second. Both err on the strict side.

/// A piece of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// A character, quotes taken off.
    Char(char),
    /// Anything, known only when it runs.
    Any,
}

/// A word of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Word {
    /// What it is made of.
    pub(super) pieces: Vec<Piece>,
    /// Whether any of it was quoted, so that it is no reserved word.
    pub(super) is_quoted: bool,
    /// Whether an unquoted part of it is unknown: then it may become several words, or none.
    pub(super) may_split: bool,
    /// Where the value begins, if it has the form of an assignment.
    pub(super) value_at: Option<usize>,
}

impl Word {
    /// A word of which everything is known.
    pub(super) fn of(text: &str) -> Self {
        Word { pieces: text.chars().map(Piece::Char).collect(), ..Word::default() }
    }

    /// A word of which nothing is known.
    pub(super) fn unknown() -> Self {
        Word { pieces: vec![Piece::Any], may_split: true, ..Word::default() }
    }

    /// The word's text, if all of it is known.
    pub(super) fn text(&self) -> Option<String> {
        let known = |piece: &Piece| match piece {
            Piece::Char(c) => Some(*c),
            Piece::Any => None,
        };
        self.pieces.iter().map(known).collect()
    }

    /// The word's text with `…` for what is not known.
    pub(super) fn shown(&self) -> String {
        let shown = |piece: &Piece| match piece {
            Piece::Char(c) => *c,
            Piece::Any => '…',
        };
        self.pieces.iter().map(shown).collect()
    }

    /// Whether its text is known and is this.
    pub(super) fn is(&self, text: &str) -> bool {
        self.text().is_some_and(|own| own == text)
    }

    /// Whether its known beginning is this.
    pub(super) fn starts_with(&self, start: &str) -> bool {
        let start: Vec<Piece> = start.chars().map(Piece::Char).collect();
        self.pieces.starts_with(&start)
    }

    /// Whether it holds text that some builtins of the shell would run, if it came there.
    pub(super) fn holds_code(&self) -> bool {
        let shown = self.shown();
        shown.contains("$(") || shown.contains('`') || shown.contains("${")
    }
}

/// A symbol of a command's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Symbol {
    Char(char),
    /// Between two words.
    Gap,
    /// Anything.
    Any,
    /// Any number of words with the gaps before them.
    Words,
}

/// The text of a command, for patterns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Text(Vec<Symbol>);

impl Text {
    /// The text of some words.
    pub(super) fn of<'a>(words: impl IntoIterator<Item = &'a Word>) -> Self {
        let mut symbols = Vec::new();
        for word in words {
            if word.may_split && word.pieces.iter().all(|piece| *piece == Piece::Any) {
                symbols.push(Symbol::Words);
                continue;
            }
            if !symbols.is_empty() {
                symbols.push(Symbol::Gap);
            }
            symbols.extend(word.pieces.iter().map(|piece| match piece {
                Piece::Char(c) => Symbol::Char(*c),
                Piece::Any => Symbol::Any,
            }));
        }
        Text(symbols)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Element {
    Char(char),
    /// Between words.
    Space,
    /// `?`
    One,
    /// `*`
    Star,
    /// The gap before the ` *` at the end, which may be missing with all that follows.
    Tail,
}

/// A pattern for commands.
///
/// `*` stands for any text, `?` for one character, a space for the gap between two words, and ` *` at the end for any
/// further words or none. A backslash takes the meaning from the character behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern(Vec<Element>);

impl Pattern {
    pub(super) fn new(text: &str) -> Self {
        let mut elements = Vec::new();
        let mut chars = text.trim().chars().peekable();
        while let Some(c) = chars.next() {
            elements.push(match c {
                '\\' => Element::Char(chars.next().unwrap_or('\\')),
                '*' => Element::Star,
                '?' => Element::One,
                c if c.is_whitespace() => {
                    while chars.next_if(|c| c.is_whitespace()).is_some() {}
                    Element::Space
                }
                c => Element::Char(c),
            });
        }
        if elements.len() > 2 && elements.ends_with(&[Element::Space, Element::Star]) {
            elements.truncate(elements.len() - 2);
            elements.extend([Element::Tail, Element::Star]);
        }
        Pattern(elements)
    }

    /// The pattern that exactly this text fits.
    pub(super) fn quoted(text: &str) -> String {
        let mut quoted = String::with_capacity(text.len());
        for c in text.chars() {
            if matches!(c, '*' | '?' | '\\') {
                quoted.push('\\');
            }
            quoted.push(c);
        }
        quoted
    }

    /// Whether the text fits, whatever its unknown parts stand for.
    pub(super) fn surely_fits(&self, text: &Text) -> bool {
        self.fits(text, Certainty::Sure)
    }

    /// Whether the text may fit, given the right values for its unknown parts.
    pub(super) fn may_fit(&self, text: &Text) -> bool {
        self.fits(text, Certainty::Perhaps)
    }

    /// Walks the text with the set of all places in the pattern that it may have led to.
    fn fits(&self, Text(text): &Text, certainty: Certainty) -> bool {
        let mut places = vec![false; self.0.len() + 1];
        places[0] = true;
        for symbol in text {
            let mut next = vec![false; places.len()];
            for at in 0..places.len() {
                if !places[at] {
                    continue;
                }
                if certainty == Certainty::Perhaps && matches!(symbol, Symbol::Any | Symbol::Words) {
                    // It may be empty, and it may cover any stretch of the pattern.
                    next[at..].fill(true);
                    break;
                }
                let Some(element) = self.0.get(at) else { continue };
                if *element == Element::Star {
                    // It may take this symbol, and it may be empty.
                    next[at] = true;
                    places[at + 1] = true;
                } else if element.takes(*symbol, certainty) {
                    next[at + 1] = true;
                }
            }
            places = next;
        }
        let may_be_empty = |element: &&Element| matches!(element, Element::Star | Element::Tail);
        let rest = self.0.iter().rev().take_while(may_be_empty).count();
        places[self.0.len() - rest..].contains(&true)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Certainty {
    Sure,
    Perhaps,
}

impl Element {
    /// Whether the element stands for this one symbol.
    fn takes(self, symbol: Symbol, certainty: Certainty) -> bool {
        match (self, symbol) {
            (Element::Char(a), Symbol::Char(b)) => a == b,
            (Element::One, Symbol::Char(_)) | (Element::Space | Element::Tail, Symbol::Gap) => true,
            (Element::Tail, Symbol::Words) => true,
            // A word that holds a space looks like two.
            (Element::Space | Element::Tail, Symbol::Char(' ')) => certainty == Certainty::Perhaps,
            _ => false,
        }
    }
}
