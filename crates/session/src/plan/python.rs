//! Reads a list the way Python prints it, since some models send `str(list)` where JSON is due.
//!
//! Only what `repr` writes is read: lists, dicts with text keys, strings, numbers, `True`, `False` and `None`. Anything
//! else, an unknown escape included, is no such text, so nothing is ever guessed.

use serde_json::{Map, Value};

/// Deeper nesting than this is no plan.
const DEPTH: u32 = 8;

/// Reads a whole text. None if it is not exactly one value as Python prints it.
pub(super) fn read(text: &str) -> Option<Value> {
    let mut reader = Reader { rest: text };
    let value = reader.value(DEPTH)?;
    reader.skip_space();
    reader.rest.is_empty().then_some(value)
}

struct Reader<'a> {
    rest: &'a str,
}

impl Reader<'_> {
    fn value(&mut self, depth: u32) -> Option<Value> {
        let depth = depth.checked_sub(1)?;
        self.skip_space();
        match self.rest.chars().next()? {
            '[' => self.list(depth),
            '{' => self.dict(depth),
            '\'' | '"' => self.string().map(Value::String),
            _ => self.word(),
        }
    }

    fn list(&mut self, depth: u32) -> Option<Value> {
        self.take('[')?;
        let mut values = Vec::new();
        if self.take(']').is_some() {
            return Some(Value::Array(values));
        }
        loop {
            values.push(self.value(depth)?);
            if self.take(']').is_some() {
                return Some(Value::Array(values));
            }
            self.take(',')?;
        }
    }

    fn dict(&mut self, depth: u32) -> Option<Value> {
        self.take('{')?;
        let mut fields = Map::new();
        if self.take('}').is_some() {
            return Some(Value::Object(fields));
        }
        loop {
            self.skip_space();
            let key = self.string()?;
            self.take(':')?;
            fields.insert(key, self.value(depth)?);
            if self.take('}').is_some() {
                return Some(Value::Object(fields));
            }
            self.take(',')?;
        }
    }

    fn string(&mut self) -> Option<String> {
        let quote = self.next().filter(|c| matches!(c, '\'' | '"'))?;
        let mut text = String::new();
        loop {
            match self.next()? {
                '\\' => text.push(self.escape()?),
                '\n' | '\r' => return None,
                c if c == quote => return Some(text),
                c => text.push(c),
            }
        }
    }

    fn escape(&mut self) -> Option<char> {
        match self.next()? {
            c @ ('\\' | '\'' | '"') => Some(c),
            'n' => Some('\n'),
            'r' => Some('\r'),
            't' => Some('\t'),
            'x' => self.code(2),
            'u' => self.code(4),
            'U' => self.code(8),
            _ => None,
        }
    }

    fn code(&mut self, digits: usize) -> Option<char> {
        let (code, rest) = self.rest.split_at_checked(digits)?;
        if !code.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        self.rest = rest;
        char::from_u32(u32::from_str_radix(code, 16).ok()?)
    }

    /// A word without quotes: a constant or a number.
    fn word(&mut self) -> Option<Value> {
        let end = self.rest.find([',', ']', '}', ':', ' ', '\n', '\r', '\t']).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        match word {
            "None" => Some(Value::Null),
            "True" => Some(Value::Bool(true)),
            "False" => Some(Value::Bool(false)),
            _ => serde_json::from_str(word).ok().filter(Value::is_number),
        }
    }

    fn take(&mut self, expected: char) -> Option<()> {
        self.skip_space();
        self.rest = self.rest.strip_prefix(expected)?;
        Some(())
    }

    fn next(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = &self.rest[c.len_utf8()..];
        Some(c)
    }

    fn skip_space(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\n', '\r', '\t']);
    }
}
