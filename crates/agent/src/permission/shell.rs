//! Takes a command line apart into the simple commands that a shell would run for it.
//!
//! It is read as bash reads it, but flatly: whatever stands where a command can stand is taken for one, wherever the
//! keywords around it lead, so nothing depends on which branch is taken. Words keep what is known of them
//! ([`super::words`]). What is not understood is never passed over: it is named in [`Line::unclear`].
//!
//! Nothing is expanded, and nothing is looked up: no variable, alias, function or file. Nesting is bounded, so no line
//! can exhaust the stack; the time taken grows with the length of the line.

use super::launch;
use super::words::{Piece, Word};

/// How deep substitutions, subshells and scripts inside scripts may nest.
pub(super) const DEEPEST: usize = 40;

/// How many of them there may be in all. What may be arithmetic or commands is read twice.
const MOST: usize = 20_000;

/// The longest line that is looked at, in bytes.
const LONGEST: usize = 128 * 1024;

/// What a command line does, as far as it can be known.
#[derive(Clone, Debug, Default)]
pub(super) struct Line {
    /// The simple commands, in the order in which they are met.
    pub(super) commands: Vec<Command>,
    /// The files that redirections write.
    pub(super) writes: Vec<Word>,
    /// What is not understood, or only known when it runs; the first such thing.
    pub(super) unclear: Option<String>,
    /// Whether the working directory may change on the way, so that relative paths mean nothing.
    pub(super) moves: bool,
    /// How many words its commands have.
    pub(super) count: usize,
    nestings: usize,
}

impl Line {
    /// Reads a line.
    pub(super) fn read(text: &str) -> Self {
        let mut line = Line::default();
        if text.len() > LONGEST {
            line.doubt("the command is too long to be judged");
        } else {
            line.script(text, 0);
        }
        line
    }

    /// Notes that something is not known.
    pub(super) fn doubt(&mut self, what: impl Into<String>) {
        self.unclear.get_or_insert_with(|| what.into());
    }

    /// Reads a script that the line hands to a shell.
    pub(super) fn script(&mut self, text: &str, depth: usize) {
        let mut reader =
            Reader { chars: text.chars().collect(), at: 0, depth, heres: Vec::new(), line: self };
        if reader.deeper() {
            reader.list(Until::End);
        }
        if !reader.heres.is_empty() {
            reader.line.doubt("a here-document has no end");
        }
    }
}

/// A simple command.
#[derive(Clone, Debug)]
pub(super) struct Command {
    /// The assignments before it.
    pub(super) assignments: Vec<Word>,
    /// Its name and arguments; none if it only assigns.
    pub(super) words: Vec<Word>,
    /// Whether it does nothing but run the commands that stand behind it here.
    pub(super) is_wrapper: bool,
}

/// What a list of commands ends with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    End,
    Paren,
    /// `;;` or `esac`.
    Case,
}

/// How a list came to its end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ended {
    Closed,
    /// With `esac`, which ends the lists of all branches.
    Esac,
}

/// A here-document whose body has not come yet.
struct Here {
    end: String,
    strips_tabs: bool,
    is_quoted: bool,
    /// Whether a shell runs the body.
    is_script: bool,
}

struct Reader<'a> {
    chars: Vec<char>,
    at: usize,
    depth: usize,
    heres: Vec<Here>,
    line: &'a mut Line,
}

impl Reader<'_> {
    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn ahead(&self, text: &str) -> bool {
        self.chars
            .get(self.at..)
            .is_some_and(|rest| text.chars().zip(rest).filter(|(a, b)| a == *b).count() == text.len())
    }

    fn take(&mut self, text: &str) -> bool {
        let is_there = self.ahead(text);
        self.at += if is_there { text.len() } else { 0 };
        is_there
    }

    /// Gives up: what is left is not read.
    fn give_up(&mut self, why: &str) {
        self.line.doubt(why);
        self.at = self.chars.len();
    }

    /// Goes one level down, or gives up.
    fn deeper(&mut self) -> bool {
        self.depth += 1;
        self.line.nestings += 1;
        let is_bearable = self.depth <= DEEPEST && self.line.nestings <= MOST;
        if !is_bearable {
            self.give_up("it is nested too deeply to be judged");
        }
        is_bearable
    }

    /// A backslash before a line end joins the lines, also within what belongs together.
    fn continued(&mut self) {
        while self.take("\\\n") {}
    }

    fn blanks(&mut self) {
        while self.take("\\\n") || matches!(self.peek(), Some(' ' | '\t')) && self.take_any() {}
    }

    fn take_any(&mut self) -> bool {
        self.at += 1;
        true
    }

    fn comment(&mut self) {
        while self.peek().is_some_and(|c| c != '\n') {
            self.at += 1;
        }
    }

    /// Reads commands up to the end of the list.
    fn list(&mut self, until: Until) -> Ended {
        loop {
            self.blanks();
            match self.peek() {
                None => {
                    if until != Until::End {
                        self.line.doubt("something is opened and not closed");
                    }
                    return Ended::Closed;
                }
                Some('\n') => {
                    self.at += 1;
                    self.here_documents();
                }
                Some('#') => self.comment(),
                Some(';') if until == Until::Case && (self.ahead(";;") || self.ahead(";&")) => {
                    self.at += 2;
                    self.take("&");
                    return Ended::Closed;
                }
                Some('&') if self.ahead("&>") => self.simple(),
                Some(';' | '&' | '|') => self.at += 1,
                Some(')') if until == Until::Paren => {
                    self.at += 1;
                    return Ended::Closed;
                }
                Some(')') => self.give_up("a parenthesis closes what was not opened"),
                Some('(') => self.parenthesis(),
                Some(_) => {
                    if until == Until::Case && self.word_ahead("esac") {
                        return Ended::Esac;
                    }
                    self.simple();
                }
            }
        }
    }

    /// Takes a keyword, if it is the next word.
    fn word_ahead(&mut self, keyword: &str) -> bool {
        let is_end = |c: char| c.is_whitespace() || ";&|()<>".contains(c);
        let behind = self.chars.get(self.at + keyword.len()).copied();
        behind.is_none_or(is_end) && self.take(keyword)
    }

    fn nested(&mut self, until: Until) -> Ended {
        let ended = if self.deeper() { self.list(until) } else { Ended::Closed };
        self.depth -= 1;
        ended
    }

    /// `( … )`, or `(( … ))`.
    fn parenthesis(&mut self) {
        let begin = self.at + 1;
        if self.take("((") && self.arithmetic() {
            return;
        }
        self.at = begin;
        self.nested(Until::Paren);
    }

    /// Reads one simple command, or the head of a compound one.
    fn simple(&mut self) {
        let (mut assignments, mut words): (Vec<Word>, Vec<Word>) = (Vec::new(), Vec::new());
        let (first_here, mut fed) = (self.heres.len(), None);
        loop {
            self.blanks();
            match self.peek() {
                None | Some('\n' | ';' | '|' | ')') => break,
                Some('&') if !self.ahead("&>") => break,
                Some('#') => {
                    self.comment();
                    break;
                }
                Some('<' | '>') if !self.ahead("<(") && !self.ahead(">(") => {
                    fed = self.redirection().or(fed);
                    continue;
                }
                Some('&') => {
                    fed = self.redirection().or(fed);
                    continue;
                }
                Some('(') => {
                    self.function_or_give_up(&words);
                    return;
                }
                Some(_) => {}
            }
            let begin = self.at;
            let word = self.word();
            if self.at == begin {
                self.give_up("it cannot be read as a shell would read it");
                break;
            }
            if self.is_descriptor(&word) {
                continue;
            }
            let is_first = words.is_empty();
            if is_first && assignments.is_empty() && !word.is_quoted && self.keyword(&word) {
                continue;
            }
            if is_first && word.value_at.is_some() {
                self.assignment(&word);
                assignments.push(word);
            } else {
                words.push(word);
            }
            if is_first && words.len() == 1 && !words[0].is_quoted && self.compound(&words[0]) {
                return;
            }
        }
        self.finish(assignments, words, first_here, fed);
    }

    /// Notes a simple command and what it runs in turn.
    fn finish(&mut self, assignments: Vec<Word>, words: Vec<Word>, first_here: usize, fed: Option<Word>) {
        if words.is_empty() && assignments.is_empty() {
            return;
        }
        let has_here = self.heres.len() > first_here;
        let reads_script = launch::note(self.line, assignments, words, self.depth);
        if !reads_script {
            return;
        }
        match fed.map(|word| word.text()) {
            Some(Some(script)) => self.line.script(&script, self.depth),
            Some(None) => self.line.doubt("what a shell is given to run is only known when it runs"),
            None if has_here => self.heres[first_here..].iter_mut().for_each(|here| here.is_script = true),
            None => self.line.doubt("a shell runs what it is given on its input"),
        }
    }

    /// `2` in `2>file` is no word of the command.
    fn is_descriptor(&self, word: &Word) -> bool {
        let text = word.text().unwrap_or_default();
        let is_named = text.starts_with('{') && text.ends_with('}') && text.len() > 2;
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        !word.is_quoted && (is_number || is_named) && matches!(self.peek(), Some('<' | '>'))
    }

    /// Words behind which a command stands as before.
    fn keyword(&mut self, word: &Word) -> bool {
        let Some(text) = word.text() else { return false };
        match text.as_str() {
            "if" | "then" | "elif" | "else" | "fi" | "while" | "until" | "do" | "done" | "{" | "}" | "!" => {
                true
            }
            "time" => {
                self.blanks();
                while self.word_ahead("-p") || self.word_ahead("--") {
                    self.blanks();
                }
                true
            }
            "coproc" => {
                self.line.doubt("a coprocess is started");
                true
            }
            _ => false,
        }
    }

    /// The heads of compound commands whose words are no commands. Says whether it was one.
    fn compound(&mut self, word: &Word) -> bool {
        match word.text().as_deref() {
            Some("for" | "select") => self.for_head(),
            Some("case") => self.case(),
            Some("function") => {
                self.blanks();
                self.word();
                self.blanks();
                if self.take("(") {
                    self.blanks();
                    self.take(")");
                }
            }
            Some("[[") => self.conditional(),
            _ => return false,
        }
        true
    }

    /// `for NAME in WORD…`, up to the `do`.
    fn for_head(&mut self) {
        self.blanks();
        if self.take("((") {
            if !self.arithmetic() {
                self.give_up("it cannot be read as a shell would read it");
            }
            return;
        }
        loop {
            self.blanks();
            match self.peek() {
                None | Some('\n' | ';') => return,
                Some('&' | '|' | '(' | ')' | '<' | '>') if !self.ahead("<(") => {
                    return self.give_up("it cannot be read as a shell would read it");
                }
                Some('#') => self.comment(),
                Some(_) => drop(self.word()),
            }
        }
    }

    /// `case WORD in PATTERN) … ;; esac`
    fn case(&mut self) {
        self.blanks();
        self.word();
        self.gaps();
        if !self.word_ahead("in") {
            return self.give_up("it cannot be read as a shell would read it");
        }
        loop {
            self.gaps();
            if self.peek().is_none() {
                return self.give_up("something is opened and not closed");
            }
            if self.word_ahead("esac") {
                return;
            }
            self.take("(");
            loop {
                self.gaps();
                let begin = self.at;
                self.word();
                self.gaps();
                if self.take(")") {
                    break;
                }
                if !self.take("|") && self.at == begin {
                    return self.give_up("it cannot be read as a shell would read it");
                }
            }
            if self.nested(Until::Case) == Ended::Esac {
                return;
            }
        }
    }

    /// Blanks, line ends and comments.
    fn gaps(&mut self) {
        loop {
            self.blanks();
            match self.peek() {
                Some('\n') => {
                    self.at += 1;
                    self.here_documents();
                }
                Some('#') => self.comment(),
                _ => return,
            }
        }
    }

    /// `[[ … ]]`: its words are data, and numbers in it are evaluated.
    fn conditional(&mut self) {
        loop {
            self.gaps();
            if self.word_ahead("]]") {
                return;
            }
            match self.peek() {
                None => return self.give_up("something is opened and not closed"),
                Some('(' | ')' | '<' | '>' | '&' | '|') => self.at += 1,
                Some(';') => return self.give_up("it cannot be read as a shell would read it"),
                Some(_) => {
                    if self.word().holds_code() {
                        self.line.doubt("text is evaluated that holds a substitution");
                    }
                }
            }
        }
    }

    fn function_or_give_up(&mut self, words: &[Word]) {
        self.at += 1;
        self.blanks();
        if words.len() == 1 && self.take(")") {
            // The body follows, and is read as commands like any other.
            return;
        }
        self.give_up("a parenthesis stands where none is understood");
    }

    fn assignment(&mut self, word: &Word) {
        let value =
            Word { pieces: word.pieces[word.value_at.unwrap_or_default()..].to_vec(), ..Word::default() };
        if value.holds_code() {
            self.line.doubt("a variable is given a text that holds a substitution");
        }
        if value.pieces.is_empty() && self.take("(") {
            loop {
                self.gaps();
                if self.take(")") {
                    return;
                }
                let begin = self.at;
                self.word();
                if self.at == begin {
                    return self.give_up("it cannot be read as a shell would read it");
                }
            }
        }
    }

    /// Reads a redirection. Gives the text that a here-string feeds to the command.
    fn redirection(&mut self) -> Option<Word> {
        let operators = ["&>>", "&>", "<<<", "<<-", "<<", "<>", "<&", ">>", ">|", ">&", "<", ">"];
        let operator = operators.into_iter().find(|operator| self.take(operator)).unwrap_or_default();
        self.blanks();
        let begin = self.at;
        let target = self.word();
        if self.at == begin {
            self.give_up("a redirection leads nowhere");
            return None;
        }
        match operator {
            "<<<" => return Some(target),
            "<<" | "<<-" => match target.text() {
                Some(end) => self.heres.push(Here {
                    end,
                    strips_tabs: operator == "<<-",
                    is_quoted: target.is_quoted,
                    is_script: false,
                }),
                None => self.give_up("the end of a here-document is not known"),
            },
            "<" => {}
            ">&" | "<&" if is_descriptor(&target) => {}
            "<&" => self.line.doubt("where a redirection leads is only known when it runs"),
            _ if target.text().is_some_and(|path| DEVICES.contains(&path.as_str())) => {}
            _ => self.line.writes.push(target),
        }
        None
    }

    /// Reads the bodies of the here-documents that wait for them, at the beginning of a line.
    fn here_documents(&mut self) {
        for here in std::mem::take(&mut self.heres) {
            let body = self.here_body(&here);
            let expands = !here.is_quoted && body.contains(['$', '`']);
            if expands {
                self.expansions(&body);
            }
            if here.is_script && expands {
                self.line.doubt("what a shell is given to run is only known when it runs");
            } else if here.is_script {
                self.line.script(&body, self.depth);
            }
        }
    }

    fn here_body(&mut self, here: &Here) -> String {
        let mut body = String::new();
        loop {
            let mut text = String::new();
            while self.peek().is_some_and(|c| c != '\n') {
                text.extend(self.peek());
                self.at += 1;
            }
            let is_last = self.peek().is_none();
            self.at += 1;
            let text = if here.strips_tabs { text.trim_start_matches('\t') } else { &text };
            if text == here.end {
                return body;
            }
            body.push_str(text);
            body.push('\n');
            if is_last {
                self.give_up("a here-document has no end");
                return body;
            }
        }
    }

    /// Finds the substitutions in a text that is expanded as if in double quotes.
    fn expansions(&mut self, text: &str) {
        let depth = self.depth;
        let mut inner =
            Reader { chars: text.chars().collect(), at: 0, depth, heres: Vec::new(), line: &mut *self.line };
        if !inner.deeper() {
            return;
        }
        let mut word = Word::default();
        while let Some(c) = inner.peek() {
            match c {
                '\\' => inner.at += 2,
                '$' => inner.dollar(&mut word, true),
                '`' => inner.backticks(&mut word, true),
                _ => inner.at += 1,
            }
        }
    }

    /// Reads one word; none, and nothing is taken, where an operator stands.
    fn word(&mut self) -> Word {
        let mut word = Word::default();
        // Whether a brace was opened; with a comma or two dots behind it, the word stands for several.
        let mut is_braced = false;
        while let Some(c) = self.peek() {
            match c {
                '<' | '>' if self.ahead("<(") || self.ahead(">(") => {
                    self.at += 2;
                    self.nested(Until::Paren);
                    word.pieces.push(Piece::Any);
                }
                ' ' | '\t' | '\n' | ';' | '&' | '|' | '(' | ')' | '<' | '>' => break,
                '\\' => self.backslash(&mut word),
                '\'' => self.single_quotes(&mut word),
                '"' => {
                    self.at += 1;
                    self.double_quotes(&mut word);
                }
                '$' => self.dollar(&mut word, false),
                '`' => self.backticks(&mut word, false),
                '*' | '?' | '[' => {
                    self.at += 1;
                    // `[` and `[[` are names of commands.
                    if c == '[' && (self.ends_word() || self.word_is_bracket(&word)) {
                        word.pieces.push(Piece::Char(c));
                    } else {
                        word.pieces.push(Piece::Any);
                        word.may_split = true;
                    }
                }
                '=' if word.value_at.is_none() && is_name(&word) => {
                    self.at += 1;
                    word.pieces.push(Piece::Char(c));
                    word.value_at = Some(word.pieces.len());
                }
                _ => {
                    self.at += 1;
                    is_braced |= c == '{';
                    if is_braced && (c == ',' || (c == '.' && self.peek() == Some('.'))) {
                        word.pieces.push(Piece::Any);
                        word.may_split = true;
                    }
                    word.pieces.push(Piece::Char(c));
                }
            }
        }
        if is_braced && word.may_split {
            // What stands before the value, as in `A={b,c}`, is the same in each.
            word.pieces.truncate(word.value_at.unwrap_or_default());
            word.pieces.push(Piece::Any);
        }
        word
    }

    fn ends_word(&self) -> bool {
        self.peek().is_none_or(|c| c.is_whitespace() || c == ';')
    }

    fn word_is_bracket(&self, word: &Word) -> bool {
        let begins = word.pieces.is_empty() && !word.is_quoted && self.peek() == Some('[');
        begins && self.chars.get(self.at + 1).is_none_or(|c| c.is_whitespace()) || word.is("[")
    }

    fn backslash(&mut self, word: &mut Word) {
        self.at += 1;
        match self.peek() {
            Some('\n') => self.at += 1,
            Some(c) => {
                self.at += 1;
                word.is_quoted = true;
                word.pieces.push(Piece::Char(c));
            }
            None => self.line.doubt("it ends with a backslash"),
        }
    }

    fn single_quotes(&mut self, word: &mut Word) {
        self.at += 1;
        word.is_quoted = true;
        while let Some(c) = self.peek() {
            self.at += 1;
            if c == '\'' {
                return;
            }
            word.pieces.push(Piece::Char(c));
        }
        self.give_up("a quote is not closed");
    }

    /// Reads to the closing quote; the opening one is read.
    fn double_quotes(&mut self, word: &mut Word) {
        word.is_quoted = true;
        if !self.deeper() {
            return;
        }
        while let Some(c) = self.peek() {
            match c {
                '"' => {
                    self.at += 1;
                    self.depth -= 1;
                    return;
                }
                '\\' => {
                    self.at += 1;
                    match self.peek() {
                        Some('\n') => self.at += 1,
                        Some(c @ ('$' | '`' | '"' | '\\')) => {
                            self.at += 1;
                            word.pieces.push(Piece::Char(c));
                        }
                        _ => word.pieces.push(Piece::Char('\\')),
                    }
                }
                '$' => self.dollar(word, true),
                '`' => self.backticks(word, true),
                c => {
                    self.at += 1;
                    word.pieces.push(Piece::Char(c));
                }
            }
        }
        self.give_up("a quote is not closed");
    }

    /// Reads what a `$` begins.
    fn dollar(&mut self, word: &mut Word, is_quoted: bool) {
        self.at += 1;
        self.continued();
        match self.peek() {
            Some('(') => {
                let begin = self.at + 1;
                if !(self.take("((") && self.arithmetic()) {
                    self.at = begin;
                    self.nested(Until::Paren);
                }
            }
            Some('{') => self.parameter(is_quoted),
            Some('[') => self.give_up("arithmetic in an old form"),
            Some('\'') if !is_quoted => return self.escaped_quotes(word),
            Some('"') if !is_quoted => {
                self.at += 1;
                return self.double_quotes(word);
            }
            Some(c) if c.is_ascii_alphabetic() || c == '_' => {
                while self.peek().is_some_and(|c| c.is_ascii_alphanumeric() || c == '_') {
                    self.at += 1;
                    self.continued();
                }
            }
            Some(c) if c.is_ascii_digit() || "?$!#@*-".contains(c) => self.at += 1,
            _ => return word.pieces.push(Piece::Char('$')),
        }
        word.pieces.push(Piece::Any);
        word.may_split |= !is_quoted;
    }

    /// `${ … }`
    fn parameter(&mut self, is_quoted: bool) {
        self.at += 1;
        if matches!(self.peek(), Some(' ' | '\t' | '\n' | '|')) {
            return self.give_up("a substitution in a form that is not understood");
        }
        if !self.deeper() {
            return;
        }
        let mut skipped = Word::default();
        while let Some(c) = self.peek() {
            match c {
                '}' => {
                    self.at += 1;
                    self.depth -= 1;
                    return;
                }
                '\\' => self.at += 2,
                '\'' if is_quoted => return self.give_up("quotes inside of quotes that are not understood"),
                '\'' => self.single_quotes(&mut skipped),
                '"' => {
                    self.at += 1;
                    self.double_quotes(&mut skipped);
                }
                '$' => self.dollar(&mut skipped, is_quoted),
                '`' => self.backticks(&mut skipped, is_quoted),
                '@' if self.chars.get(self.at + 1).is_some_and(char::is_ascii_alphabetic) => {
                    self.give_up("a variable's value is evaluated");
                }
                _ => self.at += 1,
            }
        }
        self.give_up("something is opened and not closed");
    }

    /// `$'…'`, with its escapes.
    fn escaped_quotes(&mut self, word: &mut Word) {
        self.at += 1;
        word.is_quoted = true;
        while let Some(c) = self.peek() {
            self.at += 1;
            match c {
                '\'' => return,
                '\\' => match self.escape() {
                    Some(c) => word.pieces.push(Piece::Char(c)),
                    None => word.pieces.push(Piece::Any),
                },
                c => word.pieces.push(Piece::Char(c)),
            }
        }
        self.give_up("a quote is not closed");
    }

    /// What an escape behind its backslash stands for; none if that is not known.
    fn escape(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += 1;
        Some(match c {
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'a' => '\x07',
            'b' => '\x08',
            'e' | 'E' => '\x1b',
            'f' => '\x0c',
            'v' => '\x0b',
            '\\' | '\'' | '"' | '?' => c,
            'x' => self.digits(16, 2)?,
            'u' => self.digits(16, 4)?,
            'U' => self.digits(16, 8)?,
            '0'..='7' => {
                self.at -= 1;
                self.digits(8, 3)?
            }
            _ => return None,
        })
    }

    fn digits(&mut self, radix: u32, most: usize) -> Option<char> {
        let (mut code, mut count) = (0_u32, 0);
        while let Some(digit) = self.peek().and_then(|c| c.to_digit(radix)).filter(|_| count < most) {
            code = code.checked_mul(radix)?.checked_add(digit)?;
            self.at += 1;
            count += 1;
        }
        // Bytes beyond ASCII are parts of characters, and a zero byte ends the word.
        let is_plain = code != 0 && (code < 128 || most > 3);
        char::from_u32(code).filter(|_| count > 0 && is_plain)
    }

    /// `` `…` ``
    fn backticks(&mut self, word: &mut Word, is_quoted: bool) {
        self.at += 1;
        let mut script = String::new();
        loop {
            match self.peek() {
                None => return self.give_up("a quote is not closed"),
                Some('`') => break,
                Some('\\') => {
                    self.at += 1;
                    match self.peek() {
                        Some(c @ ('`' | '\\' | '$')) => script.push(c),
                        Some('"') if is_quoted => script.push('"'),
                        Some(c) => script.extend(['\\', c]),
                        None => return self.give_up("a quote is not closed"),
                    }
                }
                Some(c) => script.push(c),
            }
            self.at += 1;
        }
        self.at += 1;
        self.line.script(&script, self.depth);
        word.pieces.push(Piece::Any);
        word.may_split |= !is_quoted;
    }

    /// Reads arithmetic to its `))`; the opening is read. Says whether it was arithmetic.
    fn arithmetic(&mut self) -> bool {
        if !self.deeper() {
            return true;
        }
        let (mut open, mut skipped) = (0_usize, Word::default());
        let begin = self.at;
        let is_arithmetic = loop {
            match self.peek() {
                None => break false,
                Some(')') if open > 0 => {
                    open -= 1;
                    self.at += 1;
                }
                Some(')') => break self.take("))"),
                Some('(') => {
                    open += 1;
                    self.at += 1;
                }
                Some('$') => self.dollar(&mut skipped, true),
                Some('`') => self.backticks(&mut skipped, true),
                Some('\'' | '"' | '\\') => self.line.doubt("arithmetic with quotes in it"),
                Some(_) => {}
            }
            if matches!(self.peek(), Some(c) if !"()$`".contains(c)) {
                self.at += 1;
            }
        };
        self.depth -= 1;
        if is_arithmetic && has_two_names(&self.chars[begin..self.at.min(self.chars.len())]) {
            self.line.doubt("it may be arithmetic, or commands");
        }
        is_arithmetic
    }
}

/// Where writing changes nothing that stays.
const DEVICES: [&str; 5] = ["/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty", "/dev/full"];

fn is_descriptor(word: &Word) -> bool {
    let text = word.text().unwrap_or_default();
    let number = text.strip_suffix('-').unwrap_or(&text);
    !text.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether what was read of a word is the name of a variable, perhaps with the `+` of `+=`.
fn is_name(word: &Word) -> bool {
    let Some(text) = word.text().filter(|_| !word.is_quoted) else { return false };
    let name = text.strip_suffix('+').unwrap_or(&text);
    !name.is_empty()
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !name.starts_with(|c: char| c.is_ascii_digit())
}

/// Whether two names stand side by side, as in no sum.
fn has_two_names(chars: &[char]) -> bool {
    let text: String = chars.iter().collect();
    let words: Vec<&str> = text.split_whitespace().collect();
    let ends = |word: &str| word.ends_with(|c: char| c.is_alphanumeric() || c == '_');
    let begins = |word: &str| word.starts_with(|c: char| c.is_alphabetic() || c == '_');
    words.windows(2).any(|pair| ends(pair[0]) && begins(pair[1]))
}

#[cfg(test)]
mod tests;
