//! Reads a TOML file key by key and knows where each stands.
//!
//! Every complaint names the file, the line and the column, what was expected and what was found. A [`Table`] remembers
//! which keys it was asked for; what is left over at its end is an unknown key, and the nearest known one is offered.
//! It knows nothing of what the keys mean.

use std::fmt;
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use crate::error::CliError;

/// The most bytes a configuration file may have.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// A value with where it was said.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Placed<T> {
    /// The value.
    pub(crate) value: T,
    /// Where it was said.
    pub(crate) origin: Origin,
}

/// Where a setting was said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// In a file, at a line counted from 1.
    File(PathBuf, usize),
    /// In a variable of the environment.
    Variable(&'static str),
    /// On the command line.
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::File(path, line) => write!(f, "{}:{line}", path.display()),
            Origin::Variable(name) | Origin::Flag(name) => f.write_str(name),
        }
    }
}

/// The text of a configuration file.
#[derive(Debug)]
pub(crate) struct Document {
    path: PathBuf,
    text: String,
}

impl Document {
    /// Reads a file; `None` where there is none. Fails where it cannot be read, is not a file, has more than 1 MiB or
    /// is not UTF-8.
    pub(crate) fn open(path: &Path) -> Result<Option<Self>, CliError> {
        let unreadable = |why: &dyn fmt::Display| {
            CliError::configuration(format!("{}: cannot be read: {why}", path.display()))
        };
        // Asked before opening: opening a FIFO would wait for a writer.
        let metadata = match std::fs::metadata(path) {
            Ok(metadata) => metadata,
            Err(cause) if is_absence(&cause) => return Ok(None),
            Err(cause) => return Err(unreadable(&cause)),
        };
        if !metadata.is_file() {
            return Err(unreadable(&"it is not a file"));
        }
        if metadata.len() > MAX_FILE_BYTES {
            return Err(unreadable(&"it has more than 1 MiB"));
        }
        let bytes = std::fs::read(path).map_err(|cause| unreadable(&cause))?;
        let text = String::from_utf8(bytes).map_err(|cause| {
            let line = line_and_column(cause.as_bytes(), cause.utf8_error().valid_up_to()).0;
            CliError::configuration(format!("{}:{line}: this line is not UTF-8", path.display()))
        })?;
        Ok(Some(Document::new(path, &text)))
    }

    /// A document from its text.
    pub(crate) fn new(path: &Path, text: &str) -> Self {
        Document { path: path.to_owned(), text: text.strip_prefix('\u{feff}').unwrap_or(text).to_owned() }
    }

    /// Reads the whole document with `read`, which asks the table for every key it knows.
    pub(crate) fn read<T>(
        &self,
        read: impl FnOnce(&mut Table<'_>) -> Result<T, CliError>,
    ) -> Result<T, CliError> {
        let root = DeTable::parse(&self.text).map_err(|error| {
            self.complain(error.span().map_or(0, |span| span.start), &error.message().replace('\n', ", "))
        })?;
        let mut table = Table::new(self, String::new(), root.get_ref());
        let value = read(&mut table)?;
        table.finish()?;
        Ok(value)
    }

    fn complain(&self, offset: usize, what: &str) -> CliError {
        let (line, column) = line_and_column(self.text.as_bytes(), offset);
        CliError::configuration(format!("{}:{line}:{column}: {what}", self.path.display()))
    }
}

/// A table that is being read.
#[derive(Debug)]
pub(crate) struct Table<'a> {
    document: &'a Document,
    name: String,
    rest: Vec<Value<'a>>,
    known: Vec<&'static str>,
}

impl<'a> Table<'a> {
    fn new(document: &'a Document, name: String, table: &'a DeTable<'a>) -> Self {
        let mut rest: Vec<Value<'a>> = table
            .iter()
            .map(|(key, value)| Value {
                document,
                table: name.clone(),
                key: key.get_ref().to_string(),
                key_at: key.span(),
                value_at: value.span(),
                value: value.get_ref(),
            })
            .collect();
        rest.sort_by_key(|value| value.key_at.start);
        Table { document, name, rest, known: Vec::new() }
    }

    /// Takes the value of a key that is known here, if it is set.
    pub(crate) fn take(&mut self, key: &'static str) -> Option<Value<'a>> {
        self.known.push(key);
        let found = self.rest.iter().position(|value| value.key == key)?;
        Some(self.rest.remove(found))
    }

    /// The value of a key that is not known here but wants a word of its own.
    pub(crate) fn find(&self, key: &str) -> Option<&Value<'a>> {
        self.rest.iter().find(|value| value.key == key)
    }

    /// Takes all that is left, in the order of the file, for a table whose keys are names that the user chose.
    pub(crate) fn take_all(&mut self) -> Vec<Value<'a>> {
        std::mem::take(&mut self.rest)
    }

    /// Reads a key with `read`, if it is set.
    pub(crate) fn get<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&Value<'a>) -> Result<T, CliError>,
    ) -> Result<Option<T>, CliError> {
        self.take(key).map(|value| read(&value)).transpose()
    }

    /// As [`Table::get`], with where the value was said.
    pub(crate) fn place<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&Value<'a>) -> Result<T, CliError>,
    ) -> Result<Option<Placed<T>>, CliError> {
        self.get(key, |value| Ok(Placed { value: read(value)?, origin: value.origin() }))
    }

    /// Reads a table inside this one with `read`, if it is set, and refuses what `read` did not ask for.
    pub(crate) fn section<T: Default>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&mut Table<'a>) -> Result<T, CliError>,
    ) -> Result<T, CliError> {
        Ok(self.get(key, |value| value.table(read))?.unwrap_or_default())
    }

    fn finish(&self) -> Result<(), CliError> {
        let Some(unknown) = self.rest.first() else { return Ok(()) };
        let place = if self.name.is_empty() { String::new() } else { format!(" in [{}]", self.name) };
        let error =
            self.document.complain(unknown.key_at.start, &format!("unknown key `{}`{place}", unknown.key));
        let known = format!("known here: {}", self.known.join(", "));
        Err(match nearest(&unknown.key, &self.known) {
            Some(near) => error.hint(format!("did you mean `{near}`?")).hint(known),
            None => error.hint(known),
        })
    }
}

/// One value of a table.
#[derive(Debug)]
pub(crate) struct Value<'a> {
    document: &'a Document,
    table: String,
    key: String,
    key_at: Range<usize>,
    value_at: Range<usize>,
    value: &'a DeValue<'a>,
}

impl<'a> Value<'a> {
    /// The last part of its key.
    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    /// Where it stands.
    pub(crate) fn origin(&self) -> Origin {
        let line = line_and_column(self.document.text.as_bytes(), self.key_at.start).0;
        Origin::File(self.document.path.clone(), line)
    }

    /// Where the value itself stands, for one of a list.
    pub(crate) fn own_origin(&self) -> Origin {
        let line = line_and_column(self.document.text.as_bytes(), self.value_at.start).0;
        Origin::File(self.document.path.clone(), line)
    }

    /// An error about the value: "KEY must be EXPECTED, found …".
    pub(crate) fn unexpected(&self, expected: &str) -> CliError {
        self.complain(&format!("must be {expected}, found {}", describe(self.value)))
    }

    /// An error about the value: "KEY WHAT".
    pub(crate) fn complain(&self, what: &str) -> CliError {
        self.document.complain(self.value_at.start, &format!("`{}` {what}", self.path()))
    }

    /// An error about the key, with its text as it is.
    pub(crate) fn refuse(&self, what: &str) -> CliError {
        self.document.complain(self.key_at.start, what)
    }

    /// A text that is not blank.
    pub(crate) fn text(&self) -> Result<&'a str, CliError> {
        self.string()
            .filter(|text| !text.trim().is_empty())
            .ok_or_else(|| self.unexpected("a text that is not blank"))
    }

    /// A text, which may be empty.
    pub(crate) fn any_text(&self) -> Result<&'a str, CliError> {
        self.string().ok_or_else(|| self.unexpected("a text"))
    }

    /// One of some words.
    pub(crate) fn choice<T: Copy>(&self, words: &[(&'static str, T)]) -> Result<T, CliError> {
        let found = self.string().and_then(|text| words.iter().find(|(word, _)| *word == text));
        found.map(|(_, choice)| *choice).ok_or_else(|| {
            self.unexpected(&alternatives(&words.iter().map(|(word, _)| *word).collect::<Vec<_>>()))
        })
    }

    /// A whole number in a range.
    pub(crate) fn whole(&self, range: RangeInclusive<u64>) -> Result<u64, CliError> {
        let number = match self.value {
            DeValue::Integer(digits) => u64::from_str_radix(digits.as_str(), digits.radix()).ok(),
            _ => None,
        };
        number.filter(|number| range.contains(number)).ok_or_else(|| {
            self.unexpected(&format!("a whole number from {} to {}", range.start(), range.end()))
        })
    }

    /// A number in a range, whole or not.
    pub(crate) fn number(&self, range: RangeInclusive<f64>) -> Result<f64, CliError> {
        let number = match self.value {
            DeValue::Integer(digits) if digits.radix() == 10 => digits.as_str().parse().ok(),
            DeValue::Float(digits) => digits.as_str().parse().ok(),
            _ => None,
        };
        number
            .filter(|number| range.contains(number))
            .ok_or_else(|| self.unexpected(&format!("a number from {} to {}", range.start(), range.end())))
    }

    /// `true` or `false`.
    pub(crate) fn boolean(&self) -> Result<bool, CliError> {
        self.value.as_bool().ok_or_else(|| self.unexpected("true or false"))
    }

    /// A list of texts, read one by one with `read`.
    pub(crate) fn list<T>(
        &self,
        read: impl Fn(&Value<'a>) -> Result<T, CliError>,
    ) -> Result<Vec<T>, CliError> {
        let items = self.value.as_array().ok_or_else(|| self.unexpected("a list of texts"))?;
        items
            .iter()
            .map(|item| Value { value_at: item.span(), value: item.get_ref(), ..self.same_key() })
            .map(|item| read(&item))
            .collect()
    }

    /// A table, read with `read`; what `read` does not ask for is refused.
    pub(crate) fn table<T>(
        &self,
        read: impl FnOnce(&mut Table<'a>) -> Result<T, CliError>,
    ) -> Result<T, CliError> {
        let inner = self.value.as_table().ok_or_else(|| self.unexpected("a table"))?;
        let mut table = Table::new(self.document, self.path(), inner);
        let value = read(&mut table)?;
        table.finish()?;
        Ok(value)
    }

    /// Any value, as JSON. Dates become texts; JSON has no other numbers than finite ones.
    pub(crate) fn json(&self) -> Result<serde_json::Value, CliError> {
        to_json(self.value).ok_or_else(|| self.unexpected("a value that JSON can hold"))
    }

    fn string(&self) -> Option<&'a str> {
        self.value.as_str()
    }

    /// The whole key, as it would stand in front of `=` at the top of the file.
    fn path(&self) -> String {
        let bare = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let key = match self.key.chars().all(bare) && !self.key.is_empty() {
            true => self.key.clone(),
            false => format!("{:?}", self.key),
        };
        if self.table.is_empty() { key } else { format!("{}.{key}", self.table) }
    }

    fn same_key(&self) -> Self {
        Value {
            document: self.document,
            table: self.table.clone(),
            key: self.key.clone(),
            key_at: self.key_at.clone(),
            value_at: self.value_at.clone(),
            value: self.value,
        }
    }
}

/// Some words as a sentence wants them: `"a", "b" or "c"`.
pub(crate) fn alternatives(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
    match quoted.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

/// The word that was probably meant, if one is near enough.
pub(crate) fn nearest<'w>(word: &str, candidates: &[&'w str]) -> Option<&'w str> {
    let reach = (word.chars().count() / 3).max(1);
    let plain = |text: &str| text.to_lowercase().replace('-', "_");
    let distances =
        candidates.iter().map(|candidate| (distance(&plain(word), &plain(candidate)), *candidate));
    let slip = distances.filter(|(distance, _)| *distance <= reach).min().map(|(_, candidate)| candidate);
    // `api_key` for `api_key_env`: too far for a slip, but begun the same way.
    let begun = |candidate: &&&str| word.len() > 3 && candidate.starts_with(word);
    slip.or_else(|| candidates.iter().find(begun).copied())
}

/// How many letters must be put in, taken out, changed or swapped with the next to make one word of the other.
fn distance(left: &str, right: &str) -> usize {
    let left: Vec<char> = left.chars().collect();
    let right: Vec<char> = right.chars().collect();
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=right.len()).collect();
    for i in 0..left.len() {
        let mut row = vec![i + 1];
        for j in 0..right.len() {
            let change = above[j] + usize::from(left[i] != right[j]);
            let mut least = change.min(above[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && left[i] == right[j - 1] && left[i - 1] == right[j] {
                least = least.min(before[j - 1] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut above, row);
    }
    above[right.len()]
}

/// Whether an error means that there is no such file, rather than that it cannot be read.
fn is_absence(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory)
}

/// Line and column, both from 1, of a byte; columns count characters.
fn line_and_column(text: &[u8], offset: usize) -> (usize, usize) {
    let before = &text[..offset.min(text.len())];
    let line_start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
    let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
    (line, 1 + String::from_utf8_lossy(&before[line_start..]).chars().count())
}

fn describe(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) if text.chars().count() <= 60 => format!("{text:?}"),
        DeValue::String(_) => "a longer text".to_owned(),
        DeValue::Integer(digits) => digits.to_string(),
        DeValue::Float(digits) => digits.to_string(),
        DeValue::Boolean(boolean) => boolean.to_string(),
        DeValue::Datetime(date) => format!("the date {date}"),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}

fn to_json(value: &DeValue<'_>) -> Option<serde_json::Value> {
    Some(match value {
        DeValue::String(text) => serde_json::Value::from(text.as_ref()),
        DeValue::Integer(digits) => i64::from_str_radix(digits.as_str(), digits.radix()).ok()?.into(),
        DeValue::Float(digits) => serde_json::Number::from_f64(digits.as_str().parse().ok()?)?.into(),
        DeValue::Boolean(boolean) => (*boolean).into(),
        DeValue::Datetime(date) => date.to_string().into(),
        DeValue::Array(items) => {
            items.iter().map(|item| to_json(item.get_ref())).collect::<Option<Vec<_>>>()?.into()
        }
        DeValue::Table(table) => serde_json::Value::Object(
            table
                .iter()
                .map(|(key, value)| Some((key.get_ref().to_string(), to_json(value.get_ref())?)))
                .collect::<Option<_>>()?,
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_finds_slips_and_leaves_other_words_alone() {
        let keys = ["approve", "durability", "max_steps", "model", "tools"];
        let table = [
            ("aprove", Some("approve")),
            ("max-steps", Some("max_steps")),
            ("Model", Some("model")),
            ("modle", Some("model")),
            ("tool", Some("tools")),
            ("durab", Some("durability")),
            ("ap", None),
            ("colour", None),
            ("", None),
        ];
        for (word, expected) in table {
            assert_eq!(nearest(word, &keys), expected, "{word}");
        }
    }

    #[test]
    fn places_are_counted_in_characters_from_one() {
        let text = "a = 1\nπ = 2\r\nb".as_bytes();
        let table = [(0, (1, 1)), (4, (1, 5)), (6, (2, 1)), (8, (2, 2)), (14, (3, 1)), (99, (3, 2))];
        for (offset, expected) in table {
            assert_eq!(line_and_column(text, offset), expected, "{offset}");
        }
    }

    #[test]
    fn a_file_that_is_none_is_said_so() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        assert!(Document::open(&path).unwrap().is_none());
        assert!(Document::open(&path.join("below")).unwrap().is_none());

        std::fs::write(&path, b"a = 1\nb = \"\xff\"\n").unwrap();
        let error = Document::open(&path).unwrap_err();
        assert_eq!(error.message, format!("{}:2: this line is not UTF-8", path.display()));
        assert!(Document::open(&path.join("below")).unwrap().is_none(), "a file is no directory");

        std::fs::write(&path, vec![b'#'; (1 << 20) + 1]).unwrap();
        let error = Document::open(&path).unwrap_err();
        assert_eq!(error.message, format!("{}: cannot be read: it has more than 1 MiB", path.display()));

        let error = Document::open(dir.path()).unwrap_err();
        assert_eq!(error.message, format!("{}: cannot be read: it is not a file", dir.path().display()));
    }
}
