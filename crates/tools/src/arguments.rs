//! From the JSON text of a call to typed values.
//!
//! Strict about meaning, tolerant about shape: names that other agents use are accepted where they cannot mean anything
//! else, numbers and booleans may come as strings where only one reading exists, and what was read differently from
//! how it came is told in the result. Everything that is wrong is said at once: which field, what came, what was
//! expected.

use serde_json::{Map, Value};

use crate::tool::ToolError;

/// How other agents call the path of a file.
pub(crate) const PATH: [&str; 5] = ["file_path", "filename", "file", "target_file", "absolute_path"];

/// Fields by which models explain a call to a person. They change nothing and are passed over in silence.
const REMARKS: [&str; 4] = ["description", "explanation", "reason", "thought"];

/// The arguments of one call, taken out field by field.
#[derive(Debug)]
pub struct Arguments {
    fields: Map<String, Value>,
    problems: Vec<String>,
    read_as: Vec<String>,
}

impl Arguments {
    /// Parses the text of a call's arguments. Empty text and `null` are an object without fields.
    ///
    /// # Errors
    ///
    /// The text is not JSON or not an object; the error says what came.
    pub fn parse(text: &str) -> Result<Self, ToolError> {
        let value = if text.trim().is_empty() {
            Value::Null
        } else {
            serde_json::from_str(text).map_err(|error| {
                ToolError::from(format!("the arguments are not valid JSON ({error}); send one JSON object"))
            })?
        };
        Self::of(unwrapped(value))
    }

    /// Takes an object that came as part of a call that was parsed already.
    ///
    /// # Errors
    ///
    /// It is something else; the error says what.
    pub fn of(value: Value) -> Result<Self, ToolError> {
        let mut fields = match value {
            Value::Object(fields) => fields,
            Value::Null => Map::new(),
            other => {
                return Err(ToolError::from(format!("expected one JSON object, {} came", described(&other))));
            }
        };
        fields.retain(|_, value| !value.is_null());
        Ok(Arguments { fields, problems: Vec::new(), read_as: Vec::new() })
    }

    /// Takes a field by its name, or by another name for it, which the result then tells. Letter case and underscores
    /// make no difference.
    pub fn take(&mut self, name: &str, others: &[&str]) -> Option<Value> {
        if let Some(value) = self.fields.remove(name) {
            return Some(value);
        }
        let wanted: Vec<String> = std::iter::once(&name).chain(others).map(|name| folded(name)).collect();
        let came = self.fields.keys().find(|came| wanted.contains(&folded(came)))?.clone();
        self.read_as.push(format!("`{came}` as `{name}`"));
        self.fields.remove(&came)
    }

    /// Takes a text that must be there. What is missing or of another kind becomes a problem, and the text is empty.
    pub fn text(&mut self, name: &str, others: &[&str]) -> String {
        match self.take(name, others) {
            Some(Value::String(text)) => text,
            Some(other) => {
                self.problem(format!("`{name}`: expected a string, {} came", described(&other)));
                String::new()
            }
            None => {
                self.problem(format!("`{name}`: missing, expected a string"));
                String::new()
            }
        }
    }

    /// Takes a text that may be absent.
    pub fn optional_text(&mut self, name: &str, others: &[&str]) -> Option<String> {
        match self.take(name, others)? {
            Value::String(text) => Some(text),
            other => {
                self.problem(format!("`{name}`: expected a string, {} came", described(&other)));
                None
            }
        }
    }

    /// Takes a whole number, not below `least`, that may be absent. A string of decimal digits is a number.
    pub fn optional_number(&mut self, name: &str, others: &[&str], least: i64) -> Option<u64> {
        let value = self.take(name, others)?;
        let number = whole_number(&value).filter(|number| *number >= least);
        if number.is_none() {
            let came = described(&value);
            self.problem(format!("`{name}`: expected a whole number from {least}, {came} came"));
        } else if value.is_string() {
            self.read_as.push(format!("`{name}` {value} as a number"));
        }
        number.and_then(|number| u64::try_from(number).ok())
    }

    /// Takes a boolean that may be absent, `false` then. The strings `true` and `false` are booleans.
    pub fn flag(&mut self, name: &str, others: &[&str]) -> bool {
        match self.take(name, others) {
            Some(Value::Bool(flag)) => flag,
            Some(Value::String(text)) if text.trim().eq_ignore_ascii_case("true") => true,
            Some(Value::String(text)) if text.trim().eq_ignore_ascii_case("false") => false,
            Some(other) => {
                self.problem(format!("`{name}`: expected true or false, {} came", described(&other)));
                false
            }
            None => false,
        }
    }

    /// Adds something that is wrong with the call.
    pub fn problem(&mut self, problem: String) {
        self.problems.push(problem);
    }

    /// Says that something was read in another way than it came, as "`this` as `that`".
    pub fn read_as(&mut self, how: &str) {
        self.read_as.push(how.to_owned());
    }

    /// Ends the decoding: what was read differently, in one sentence, where anything was.
    ///
    /// # Errors
    ///
    /// All problems at once, those of unknown fields included, and the `shape` that was expected.
    pub fn finish(mut self, shape: &str) -> Result<Option<String>, ToolError> {
        for name in self.fields.keys() {
            if !REMARKS.contains(&name.as_str()) {
                self.problems.push(format!("`{}`: no such field", clipped(name)));
            }
        }
        if self.problems.is_empty() {
            return Ok((!self.read_as.is_empty()).then(|| format!("(Read {}.)", self.read_as.join(", "))));
        }
        self.problems.push(format!("expected: {shape}"));
        Err(ToolError {
            summary: "the arguments do not fit; nothing was done".to_owned(),
            content: Some(self.problems.join("\n")),
            exit_code: None,
        })
    }
}

/// A field's name without what spellings differ in: `filePath` and `file_path` are one.
fn folded(name: &str) -> String {
    name.chars().filter(|c| *c != '_').flat_map(char::to_lowercase).collect()
}

/// Some gateways encode the object twice.
fn unwrapped(value: Value) -> Value {
    match value {
        Value::String(text) => match serde_json::from_str(&text) {
            Ok(Value::Object(fields)) => Value::Object(fields),
            _ => Value::String(text),
        },
        other => other,
    }
}

fn whole_number(value: &Value) -> Option<i64> {
    match value {
        Value::Number(number) => number.as_i64().or_else(|| {
            let float = number.as_f64()?;
            // Within these bounds every whole float is exactly one integer.
            #[expect(clippy::cast_possible_truncation, reason = "whole and bounded, as just checked")]
            (float.fract() == 0.0 && float.abs() < 9.0e15).then_some(float as i64)
        }),
        Value::String(text) => {
            let digits = text.trim();
            let only_digits = digits.strip_prefix('-').unwrap_or(digits).bytes().all(|b| b.is_ascii_digit());
            if only_digits { digits.parse().ok() } else { None }
        }
        _ => None,
    }
}

/// A value as an error names it.
pub(crate) fn described(value: &Value) -> String {
    let kind = match value {
        Value::Null => return "null".to_owned(),
        Value::Bool(flag) => return format!("the boolean {flag}"),
        Value::Number(number) => return format!("the number {number}"),
        Value::String(text) if text.is_empty() => return "an empty string".to_owned(),
        Value::String(text) => return format!("the string {:?}", clipped(text)),
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    };
    format!("{kind} ({})", clipped(&value.to_string()))
}

fn clipped(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// W06: nothing at all is an object without fields; anything else that is no object is refused.
    #[test]
    fn absent_arguments_are_an_empty_object_and_others_are_refused() {
        for text in ["", "  ", "null", "{}", "\"{}\""] {
            assert_eq!(Arguments::parse(text).unwrap().finish("{}").unwrap(), None, "{text:?}");
        }
        for text in ["[]", "3", "\"x\"", "{\"a\":", "true"] {
            assert!(Arguments::parse(text).is_err(), "{text:?}");
        }
    }

    /// H13: only what has one reading is coerced.
    #[test]
    fn scalars_as_strings_are_coerced_only_where_one_reading_exists() {
        let text = r#"{"offset":"500","limit":"NaN","all":"true","n":"0x10","f":2.5,"g":3.0,"h":"-1"}"#;
        let mut arguments = Arguments::parse(text).unwrap();
        assert_eq!(arguments.optional_number("offset", &[], 1), Some(500));
        assert_eq!(arguments.optional_number("limit", &[], 1), None);
        assert!(arguments.flag("all", &[]));
        assert_eq!(arguments.optional_number("n", &[], 1), None);
        assert_eq!(arguments.optional_number("f", &[], 1), None);
        assert_eq!(arguments.optional_number("g", &[], 1), Some(3));
        assert_eq!(arguments.optional_number("h", &[], 0), None);
        let error = arguments.finish("{offset, limit}").unwrap_err();
        assert_eq!(
            error.content.unwrap(),
            "`limit`: expected a whole number from 1, the string \"NaN\" came\n\
             `n`: expected a whole number from 1, the string \"0x10\" came\n\
             `f`: expected a whole number from 1, the number 2.5 came\n\
             `h`: expected a whole number from 0, the string \"-1\" came\n\
             expected: {offset, limit}"
        );
    }

    #[test]
    fn other_names_are_read_and_told_and_unknown_ones_refused() {
        let mut arguments =
            Arguments::parse(r#"{"file_path":"a","description":"why","encoding":"x"}"#).unwrap();
        assert_eq!(arguments.text("path", &["file_path"]), "a");
        let error = arguments.finish("{path}").unwrap_err();
        assert_eq!(error.content.unwrap(), "`encoding`: no such field\nexpected: {path}");
        let mut arguments = Arguments::parse(r#"{"file_path":"a"}"#).unwrap();
        arguments.text("path", &["file_path"]);
        assert_eq!(arguments.finish("{path}").unwrap().unwrap(), "(Read `file_path` as `path`.)");
    }
}
