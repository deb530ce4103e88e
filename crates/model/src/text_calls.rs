//! Calls that a model wrote as text: bare JSON, a fence, `<tool_call>`, DSML and their like.
//!
//! Local servers often pass on as text what their model meant as a call. [`read`] tells such an answer from one that only
//! speaks of calls: it is a call if nothing else is in it, it names an offered tool, and its arguments fit the tool's
//! schema. Whether such an answer is taken for calls or only reported is a [`TextCallRule`], which follows from the
//! settings. What was taken becomes [`Content::Call`] before it is logged, with the text as received in the call's opaque
//! value, so that a log is read the same whatever the settings are later; no encoder sends that value.
//!
//! [`Gate`] keeps the beginnings of such calls from being shown as an answer while it streams.

mod gate;
mod markup;

use mainstay_session::message::{Content, ToolCall, ToolSpec};
use serde_json::{Value, json};

pub use self::gate::Gate;
use self::markup::{Written, find_marker, whole};
use crate::settings::TextCallRule;

/// How much of an answer is searched for calls, in bytes, and at how many places a call behind other text may begin.
const SEARCHED: usize = 64 << 10;
const PLACES: usize = 64;

/// What an answer without calls is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reading {
    /// What it says.
    Text,
    /// Calls that were written as text: the content with the calls in the text's place.
    Calls(Vec<Content>),
    /// A call that was written as text, and is not taken for one.
    Untaken(Untaken),
}

/// A call that was written as text and not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Untaken {
    /// The tool that it names.
    pub tool: String,
    /// Why it was not taken for a call.
    pub why: WhyNot,
}

/// Why a call that was written as text is not taken for one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WhyNot {
    /// The settings do not let text be calls.
    Setting,
    /// Something else stands beside it, or it is not written to its end.
    NotWhole,
    /// Its arguments do not fit the tool's schema; what is wrong with them.
    Misfit(String),
}

/// Reads the content of a whole answer.
pub fn read(content: &[Content], tools: &[ToolSpec], rule: TextCallRule) -> Reading {
    if rule == TextCallRule::Ignore || content.iter().any(|block| block.as_call().is_some()) {
        return Reading::Text;
    }
    let text: String = content.iter().filter_map(Content::as_text).collect();
    if text.trim().is_empty() {
        return read_thought(content, tools);
    }
    if let Some(calls) = whole(&text, tools) {
        return match unfit(&calls, tools) {
            None if rule == TextCallRule::Take => Reading::Calls(with_calls(content, &text, calls)),
            None => untaken(&calls[0].name, WhyNot::Setting),
            Some(Unfit::Arguments(tool, what)) => untaken(&tool, WhyNot::Misfit(what)),
            Some(Unfit::Name) => in_part(&text, tools),
        };
    }
    in_part(&text, tools)
}

/// Some models write their calls where they think, and then say nothing.
fn read_thought(content: &[Content], tools: &[ToolSpec]) -> Reading {
    let thought = content.iter().rev().find_map(|block| match block {
        Content::Reasoning { text, .. } => Some(text.as_str()),
        Content::Text { .. } | Content::Call(_) | Content::Opaque { .. } => None,
    });
    thought.map_or(Reading::Text, |thought| marked(thought, tools).unwrap_or(Reading::Text))
}

/// Looks for a call behind other text, or one that is not written to its end.
fn in_part(text: &str, tools: &[ToolSpec]) -> Reading {
    if let Some(reading) = marked(text, tools) {
        return reading;
    }
    if text.len() > SEARCHED {
        return Reading::Text;
    }
    let begins = |line: &&str| line.trim_start().starts_with(['{', '[', '`', '<']);
    let places =
        text.split_inclusive('\n').filter(begins).map(|line| line.as_ptr() as usize - text.as_ptr() as usize);
    let places: Vec<usize> = places.collect();
    let found = places.iter().rev().take(PLACES).find_map(|at| {
        let calls = whole(&text[*at..], tools)?;
        unfit(&calls, tools).is_none().then(|| calls[0].name.clone())
    });
    found.map_or(Reading::Text, |name| untaken(&name, WhyNot::NotWhole))
}

/// A call that is told by its markup, where an offered tool is named behind it.
fn marked(text: &str, tools: &[ToolSpec]) -> Option<Reading> {
    let marked = text[find_marker(text)?..].to_lowercase();
    let tool = tools.iter().find(|tool| names(&marked, &tool.name.to_lowercase()))?;
    Some(untaken(&tool.name, WhyNot::NotWhole))
}

/// Whether a text holds a name as a word of its own.
fn names(text: &str, name: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    !name.is_empty()
        && text
            .match_indices(name)
            .any(|(at, _)| !text[..at].ends_with(is_word) && !text[at + name.len()..].starts_with(is_word))
}

fn untaken(tool: &str, why: WhyNot) -> Reading {
    Reading::Untaken(Untaken { tool: tool.to_owned(), why })
}

/// The content with calls in the place of its text. Each call keeps its piece of the text; together they are all of it.
fn with_calls(content: &[Content], text: &str, calls: Vec<Written>) -> Vec<Content> {
    let last = calls.len() - 1;
    let mut begun = 0;
    let calls = calls.into_iter().enumerate().map(|(place, call)| {
        let end = if place == last { text.len() } else { call.end };
        let raw = json!({ "text_call": text[begun..end] }).to_string();
        begun = end;
        Content::Call(ToolCall {
            id: String::new(),
            name: call.name,
            arguments: call.arguments,
            opaque: Some(raw),
        })
    });
    let others = content.iter().filter(|block| block.as_text().is_none()).cloned();
    others.chain(calls.collect::<Vec<_>>()).collect()
}

enum Unfit {
    /// A tool is named that is not offered.
    Name,
    /// The arguments do not fit this tool.
    Arguments(String, String),
}

/// What is wrong with the first call that cannot be one.
fn unfit(calls: &[Written], tools: &[ToolSpec]) -> Option<Unfit> {
    calls.iter().find_map(|call| match tools.iter().find(|tool| tool.name == call.name) {
        None => Some(Unfit::Name),
        Some(tool) => {
            misfit(&call.arguments, &tool.schema).map(|what| Unfit::Arguments(tool.name.clone(), what))
        }
    })
}

/// What of the arguments does not fit a schema, by its outermost rules: what is required, which names there are, which
/// type each has. It tells a call from a JSON answer; the tool reads the arguments itself, by all of its rules.
fn misfit(arguments: &str, schema: &str) -> Option<String> {
    let Ok(Value::Object(arguments)) = serde_json::from_str(arguments) else {
        return Some("its arguments are no JSON object".to_owned());
    };
    let schema: Value = serde_json::from_str(schema).unwrap_or_default();
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    if let Some(missing) = required.into_iter().find(|name| !arguments.contains_key(*name)) {
        return Some(format!("it lacks `{missing}`"));
    }
    arguments.iter().find_map(|(name, value)| match schema["properties"].get(name) {
        None if schema["properties"].is_object() && schema["additionalProperties"] != true => {
            Some(format!("the tool has no `{name}`"))
        }
        Some(property) if !is_of_type(value, &property["type"]) => {
            Some(format!("`{name}` is of another type"))
        }
        _ => None,
    })
}

fn is_of_type(value: &Value, types: &Value) -> bool {
    let is = |kind: &Value| match kind.as_str() {
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        Some("boolean") => value.is_boolean(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        Some("null") => value.is_null(),
        _ => true,
    };
    match types {
        Value::Array(types) => types.iter().any(is),
        kind => is(kind),
    }
}

#[cfg(test)]
mod tests;
