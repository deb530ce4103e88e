//! One call, whose arguments come whole or, from Gemini 3 on, in pieces that name a place in them.
//!
//! A piece is a value and a JSON path (`$.recipe.steps[3]`); a string may come in several pieces for the same path
//! (<https://docs.cloud.google.com/vertex-ai/generative-ai/docs/multimodal/function-calling>, "Streaming function call
//! arguments"). A piece that cannot be placed spoils the call: its arguments are then no object, so that it does not run
//! with arguments that the model did not write.

use std::collections::HashSet;

use mainstay_session::message::ToolCall;
use serde_json::{Map, Value};

use crate::raw::{self, Fields};

/// How deep a path may go. Deeper JSON is not read back either.
const MAX_DEPTH: usize = 100;

/// How many items of arrays a call may leave out.
const MAX_GAPS: usize = 1_000;

/// A call that is being written.
#[derive(Debug)]
pub(super) struct Call {
    id: String,
    name: String,
    /// The JSON text of the signature.
    signature: Option<String>,
    arguments: Arguments,
}

#[derive(Debug)]
enum Arguments {
    /// As received; empty if none were.
    Whole(String),
    Built(Built),
    /// The piece that could not be placed.
    Spoilt(String),
}

/// Arguments put together from pieces.
#[derive(Debug)]
struct Built {
    root: Value,
    /// The paths whose string goes on.
    open: HashSet<String>,
    gaps: usize,
}

impl Call {
    /// Begins the call that this piece opens.
    pub(super) fn new(piece: &Fields<'_>) -> Self {
        Call {
            id: piece.text("id").unwrap_or_default().into_owned(),
            name: piece.text("name").unwrap_or_default().into_owned(),
            signature: None,
            arguments: Arguments::Whole(String::new()),
        }
    }

    /// The tool's name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Whether a piece belongs to this call, which is open: only a beginning names the tool.
    pub(super) fn is_continued_by(&self, piece: &Fields<'_>) -> bool {
        let id = piece.text("id").unwrap_or_default();
        piece.text("name").unwrap_or_default().is_empty() || (!id.is_empty() && *id == *self.id)
    }

    /// Takes what a piece holds of signature and arguments.
    pub(super) fn add(&mut self, piece: &Fields<'_>, signature: Option<&str>) {
        if self.signature.is_none() {
            self.signature = signature.map(str::to_owned);
        }
        if let Some(args) = piece.get("args") {
            self.arguments = Arguments::Whole(args.to_owned());
        }
        for json in piece.items("partialArgs") {
            self.place(json);
        }
    }

    /// The call as it is.
    pub(super) fn finish(self) -> ToolCall {
        ToolCall {
            id: self.id,
            name: self.name,
            arguments: match self.arguments {
                Arguments::Whole(json) => json,
                Arguments::Built(built) => built.root.to_string(),
                Arguments::Spoilt(piece) => format!("[{piece}]"),
            },
            opaque: self.signature.map(|signature| format!("{{\"thoughtSignature\":{signature}}}")),
        }
    }

    fn place(&mut self, json: &str) {
        let is_placed = match &mut self.arguments {
            Arguments::Spoilt(_) => return,
            Arguments::Built(built) => built.place(json).is_some(),
            Arguments::Whole(whole) => {
                let root = serde_json::from_str(whole).unwrap_or_else(|_| Value::Object(Map::new()));
                let mut built = Built { root, open: HashSet::new(), gaps: 0 };
                let is_placed = built.place(json).is_some();
                self.arguments = Arguments::Built(built);
                is_placed
            }
        };
        if !is_placed {
            self.arguments = Arguments::Spoilt(json.to_owned());
        }
    }
}

impl Built {
    fn place(&mut self, json: &str) -> Option<()> {
        let piece = Fields::of(json)?;
        let path = piece.text("jsonPath")?;
        let steps = steps(&path)?;
        let node = walk(&mut self.root, steps, &mut self.gaps)?;
        let goes_on = piece.get("willContinue") == Some("true");
        let went_on = if goes_on { !self.open.insert(path.into_owned()) } else { self.open.remove(&*path) };
        match (value(&piece)?, node) {
            (Some(Value::String(more)), Value::String(text)) if went_on => text.push_str(&more),
            (Some(value), node) => *node = value,
            (None, _) => {}
        }
        Some(())
    }
}

/// The value of a piece, if it has one; none at all where it cannot be read.
fn value(piece: &Fields<'_>) -> Option<Option<Value>> {
    if let Some(text) = piece.get("stringValue") {
        return raw::text(text).map(|text| Some(Value::String(text.into_owned())));
    }
    if piece.iter().any(|(name, _)| name == "nullValue") {
        return Some(Some(Value::Null));
    }
    match piece.iter().find(|(name, _)| name.ends_with("Value")) {
        Some((_, json)) => serde_json::from_str(json).ok().map(Some),
        None => Some(None),
    }
}

/// One step of a path.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    Key(String),
    Index(usize),
}

/// Reads a path: `$`, then `.name`, `[3]`, `['name']` or `["name"]`, at least once.
fn steps(path: &str) -> Option<Vec<Place>> {
    let mut rest = path.strip_prefix('$')?;
    let mut steps = Vec::new();
    while !rest.is_empty() {
        let step;
        (step, rest) = step_of(rest)?;
        steps.push(step);
        if steps.len() > MAX_DEPTH {
            return None;
        }
    }
    (!steps.is_empty()).then_some(steps)
}

fn step_of(path: &str) -> Option<(Place, &str)> {
    if let Some(name) = path.strip_prefix('.') {
        let end = name.find(['.', '[']).unwrap_or(name.len());
        return (end > 0).then(|| (Place::Key(name[..end].to_owned()), &name[end..]));
    }
    let inner = path.strip_prefix('[')?;
    let Some(quote) = inner.chars().next().filter(|c| matches!(c, '\'' | '"')) else {
        let (digits, rest) = inner.split_once(']')?;
        return Some((Place::Index(digits.parse().ok()?), rest));
    };
    let mut key = String::new();
    let mut chars = inner[1..].char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => key.push(chars.next()?.1),
            _ if c == quote => {
                return inner[1..][at + 1..].strip_prefix(']').map(|rest| (Place::Key(key), rest));
            }
            _ => key.push(c),
        }
    }
    None
}

/// Goes to a place and makes what is missing on the way.
fn walk<'v>(root: &'v mut Value, steps: Vec<Place>, gaps: &mut usize) -> Option<&'v mut Value> {
    let mut node = root;
    for step in steps {
        node = match (step, node) {
            (Place::Key(key), Value::Object(object)) => object.entry(key).or_insert(Value::Null),
            (Place::Key(key), node @ Value::Null) => {
                *node = Value::Object(Map::new());
                node.as_object_mut()?.entry(key).or_insert(Value::Null)
            }
            (Place::Index(index), node @ (Value::Null | Value::Array(_))) => {
                if node.is_null() {
                    *node = Value::Array(Vec::new());
                }
                let array = node.as_array_mut()?;
                *gaps = gaps.saturating_add(index.saturating_sub(array.len()));
                if *gaps > MAX_GAPS {
                    return None;
                }
                if index >= array.len() {
                    array.resize(index + 1, Value::Null);
                }
                array.get_mut(index)?
            }
            _ => return None,
        };
    }
    Some(node)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put_together(pieces: &[&str]) -> String {
        let mut call = Call::new(&Fields::of("{}").unwrap());
        let json = format!("{{\"partialArgs\":[{}]}}", pieces.join(","));
        call.add(&Fields::of(&json).unwrap(), None);
        call.finish().arguments
    }

    #[test]
    fn pieces_are_put_where_their_paths_say() {
        assert_eq!(
            put_together(&[
                r#"{"jsonPath":"$.recipe.steps[0].text","stringValue":"mi","willContinue":true}"#,
                r#"{"jsonPath":"$.recipe.steps[0].text","stringValue":"x","willContinue":true}"#,
                r#"{"jsonPath":"$.recipe.steps[0].text","stringValue":""}"#,
                r#"{"jsonPath":"$.recipe.steps[2]","nullValue":"NULL_VALUE"}"#,
                r#"{"jsonPath":"$['a.b'][\"c\\]\"]","numberValue":1.5}"#,
                r#"{"jsonPath":"$.n","numberValue":3}"#,
                r#"{"jsonPath":"$.ok","boolValue":true}"#,
                r#"{"jsonPath":"$.list","structValue":{"x":[1]}}"#,
                r#"{"jsonPath":"$.begun","willContinue":true}"#,
                r#"{"jsonPath":"$.n","numberValue":4}"#,
            ]),
            r#"{"a.b":{"c]":1.5},"begun":null,"list":{"x":[1]},"n":4,"ok":true,"recipe":{"steps":[{"text":"mix"},null,null]}}"#,
        );
    }

    /// H02: a call is not run with arguments that nobody wrote.
    #[test]
    fn a_piece_that_cannot_be_placed_spoils_the_call() {
        let deep = format!(r#"{{"jsonPath":"${}","numberValue":1}}"#, ".a".repeat(MAX_DEPTH + 1));
        for piece in [
            "7",
            r#"{"stringValue":"x"}"#,
            r#"{"jsonPath":"","stringValue":"x"}"#,
            r#"{"jsonPath":"$","stringValue":"x"}"#,
            r#"{"jsonPath":"$..a","stringValue":"x"}"#,
            r#"{"jsonPath":"$.a[","stringValue":"x"}"#,
            r#"{"jsonPath":"$.a[-1]","stringValue":"x"}"#,
            r#"{"jsonPath":"$.a[4000000000]","stringValue":"x"}"#,
            r#"{"jsonPath":"$['a","stringValue":"x"}"#,
            r#"{"jsonPath":"$[0]","stringValue":"x"}"#,
            r#"{"jsonPath":"$.n.a","stringValue":"x"}"#,
            r#"{"jsonPath":"$.a","numberValue":1e999}"#,
            deep.as_str(),
        ] {
            let arguments = put_together(&[r#"{"jsonPath":"$.n","numberValue":1}"#, piece, piece]);
            assert_eq!(arguments, format!("[{piece}]"));
            assert!(mainstay_session::arguments::parse_arguments(&arguments).is_err());
        }
    }
}
