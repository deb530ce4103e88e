//! `exec --output-schema`: the answer is a JSON document that fits a JSON Schema.
//!
//! The model is told the schema in words, in every wire format alike, since what providers offer instead refuses schemas
//! or tools, each in its own way. What it answers is judged here. A code fence around the whole is forgiven, since models
//! write it whatever they are told.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use jsonschema::Validator;
use mainstay_agent::AnswerForm;
use mainstay_agent::tools::bounded;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::error::{CliError, USAGE};
use crate::output::shortened;

/// How often the model is asked to mend its answer.
const AGAIN: u32 = 2;
/// The most bytes of a schema: the model reads all of it.
const MAX_BYTES: usize = 256 << 10;
/// How many faults of an answer are named.
const FAULTS: usize = 5;

/// A schema to hold answers against.
#[derive(Clone)]
pub(crate) struct Form {
    text: Arc<str>,
    validator: Arc<Validator>,
}

impl Form {
    /// Reads a schema.
    ///
    /// # Errors
    ///
    /// If it cannot be read, or is no JSON Schema (exit code 2).
    pub(crate) fn open(file: &Path) -> Result<Self, CliError> {
        let name = file.display();
        let wrong = |what: String| CliError::new(USAGE, format!("--output-schema {name}: {what}"));
        let hint = "name a file that holds a JSON Schema";
        let bytes = File::open(file)
            .and_then(|file| bounded::up_to(file, MAX_BYTES))
            .map_err(|error| wrong(format!("cannot be read: {error}")).hint(hint))?;
        let text = String::from_utf8(bytes).map_err(|_| wrong("is not UTF-8".to_owned()).hint(hint))?;
        let schema: Value =
            serde_json::from_str(&text).map_err(|error| wrong(format!("is not JSON: {error}")).hint(hint))?;
        let validator = jsonschema::validator_for(&schema).map_err(|error| {
            wrong(format!("is no JSON Schema: {}", shortened(&error.to_string(), 300)))
                .hint("see https://json-schema.org; references may lead only to places in the same file")
        })?;
        Ok(Form { text: text.trim().into(), validator: Arc::new(validator) })
    }

    /// The form as an agent asks for it.
    pub(crate) fn asked(&self) -> AnswerForm {
        let form = self.clone();
        AnswerForm {
            told: format!(
                "The answer that ends this turn must be one JSON document and nothing else: no words before or after \
                 it, no code fence. It must fit this JSON Schema:\n\n{}",
                self.text
            ),
            check: Arc::new(move |text| form.document(text).map(|_| ())),
            again: AGAIN,
        }
    }

    /// The document that an answer is, as it was written.
    ///
    /// # Errors
    ///
    /// What of it does not fit, for the model to read.
    pub(crate) fn document(&self, answer: &str) -> Result<Box<RawValue>, String> {
        let text = unfenced(answer.trim());
        if text.is_empty() {
            return Err("it is empty.".to_owned());
        }
        let document: Box<RawValue> =
            serde_json::from_str(text).map_err(|error| format!("it is not one JSON document: {error}."))?;
        let value: Value = serde_json::from_str(text).map_err(|error| format!("it is not JSON: {error}."))?;
        let mut faults: Vec<String> = self
            .validator
            .iter_errors(&value)
            .map(|error| match error.instance_path().as_str() {
                "" => format!("- {}", shortened(&error.to_string(), 300)),
                place => format!("- at {place}: {}", shortened(&error.to_string(), 300)),
            })
            .collect();
        if faults.is_empty() {
            return Ok(document);
        }
        faults.sort();
        if faults.len() > FAULTS {
            let more = faults.len() - FAULTS;
            faults.truncate(FAULTS);
            faults.push(format!("- and {more} more"));
        }
        Err(format!("it does not fit the schema:\n{}", faults.join("\n")))
    }
}

/// What a code fence around the whole text holds; the text where there is none.
fn unfenced(text: &str) -> &str {
    let inside = || {
        let (first, rest) = text.strip_prefix("```")?.split_once('\n')?;
        let is_named = first.trim().chars().all(|c| c.is_ascii_alphanumeric());
        rest.trim_end().strip_suffix("```").filter(|_| is_named).map(str::trim)
    };
    inside().unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(schema: &str) -> Result<Form, CliError> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("schema.json");
        std::fs::write(&file, schema).unwrap();
        Form::open(&file)
    }

    #[test]
    fn what_fits_is_the_bare_document() {
        let form = form(
            r#"{"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}, "additionalProperties": false}"#,
        )
        .unwrap();
        let document = |answer| form.document(answer).map(|document| document.get().to_owned());
        for answer in ["{\"n\": 1}", "\n {\"n\": 1}\n", "```json\n{\"n\": 1}\n```", "```\n{\"n\": 1}```\n"] {
            assert_eq!(document(answer), Ok("{\"n\": 1}".to_owned()), "{answer}");
        }
        for (answer, why) in [
            ("", "it is empty."),
            ("Here: {\"n\": 1}", "it is not one JSON document: expected value at line 1 column 1."),
            (
                "{\"n\": 1} {\"n\": 2}",
                "it is not one JSON document: trailing characters at line 1 column 10.",
            ),
            ("[]", "it does not fit the schema:\n- [] is not of type \"object\""),
            (
                "{\"n\": 1.5, \"m\": 2}",
                "it does not fit the schema:\n- Additional properties are not allowed ('m' was unexpected)\n- at /n: 1.5 is not of type \"integer\"",
            ),
        ] {
            assert_eq!(document(answer), Err(why.to_owned()), "{answer}");
        }
    }

    #[test]
    fn faults_are_named_up_to_a_bound() {
        let form = form(r#"{"items": {"type": "string"}}"#).unwrap();
        let why = form.document("[1,2,3,4,5,6,7]").unwrap_err();
        assert_eq!(why.lines().count(), 2 + FAULTS, "{why}");
        assert!(why.ends_with("- and 2 more"), "{why}");
    }

    #[test]
    fn a_file_that_is_no_schema_is_refused() {
        for (schema, part) in [
            ("", "is not JSON: EOF"),
            ("{\"type\": \"objekt\"}", "is no JSON Schema"),
            ("7", "is no JSON Schema"),
            ("{\"$ref\": \"https://example.com/x.json\"}", "is no JSON Schema"),
            ("{\"$ref\": \"file:///etc/hostname\"}", "is no JSON Schema"),
        ] {
            let error = form(schema).err().unwrap_or_else(|| panic!("{schema}"));
            assert_eq!(error.code, USAGE);
            assert!(error.message.contains(part), "{error}");
        }
        let error = Form::open(Path::new("/nowhere/schema.json")).err().unwrap();
        assert!(error.message.contains("cannot be read"), "{error}");
    }
}
