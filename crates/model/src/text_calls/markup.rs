//! The forms in which models write calls as text.
//!
//! Envelopes (`<tool_call>`, `<tools>`, `<function_calls>`, DSML, `[TOOL_CALLS]`) are stepped over, whether they are closed
//! or not; what matters is that nothing stands between them but calls. A call is a JSON object with a name and arguments, or
//! a list of them; `<invoke name="…">` with parameters; `<function=…>` with parameters or JSON; or `name[ARGS]{…}`.

use mainstay_session::message::ToolSpec;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::raw::Fields;

/// A call as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) name: String,
    /// JSON text.
    pub(super) arguments: String,
    /// Where in the text it ends.
    pub(super) end: usize,
}

/// Tags that hold calls and say nothing themselves.
const ENVELOPES: &[&str] =
    &["tool_call", "tool_calls", "tools", "function_call", "function_calls", "toolcall"];

/// Marks that stand before calls and say nothing themselves.
const MARKS: &[&str] = &["[TOOL_CALLS]", "<|python_tag|>"];

/// What stands in no answer but before a call.
const MARKERS: &[&str] = &[
    "<tool_call",
    "<tools>",
    "<toolcall>",
    "<function_call",
    "<function=",
    "<invoke name=",
    "[TOOL_CALLS]",
    "<|python_tag|>",
    "<|tool_call",
    "<\u{ff5c}tool",
    "<\u{ff5c}DSML",
    "<\u{2016}DSML",
    "<|DSML",
];

/// What a JSON object that is a call may hold.
const FIELDS: &[&str] = &[
    "name",
    "tool",
    "tool_name",
    "function",
    "arguments",
    "parameters",
    "args",
    "input",
    "id",
    "type",
    "index",
];

/// The calls of a text that holds nothing else. The tools' schemas say which parameters are text.
pub(super) fn whole(text: &str, tools: &[ToolSpec]) -> Option<Vec<Written>> {
    let mut scan = Scan { text, at: 0, calls: Vec::new(), in_fence: false, tools };
    while scan.skip_nothing() {
        scan.call()?;
    }
    let is_closed = scan.at == text.len();
    Some(scan.calls).filter(|calls| is_closed && !calls.is_empty())
}

/// Where the first mark of a call stands that is not in a fence and not within a line; `name[ARGS]` begins at its line.
pub(super) fn find_marker(text: &str) -> Option<usize> {
    let mut at = 0;
    let mut in_fence = false;
    for line in text.split_inclusive('\n') {
        let begun = line.trim_start();
        in_fence ^= begun.starts_with("```");
        let is_args = begun.find("[ARGS]").is_some_and(|end| is_name(&begun[..end]));
        if !in_fence && (is_args || MARKERS.iter().any(|marker| begun.starts_with(marker))) {
            return Some(at + line.len() - begun.len());
        }
        at += line.len();
    }
    None
}

/// How much of the end of a text may become a marker, or is one with all behind it: from where it must not be shown yet.
pub(super) fn marker_from(text: &str) -> Option<usize> {
    let starts = text.char_indices().filter(|(_, c)| matches!(c, '<' | '[')).map(|(at, _)| at);
    starts.into_iter().find(|at| {
        let rest = &text[*at..];
        MARKERS.iter().any(|marker| may_begin(rest, marker))
    })
}

/// Whether a text that goes on may become nothing but calls that no marker tells: JSON, alone or in a fence, and whatever else
/// stands in a fence.
pub(super) fn may_become_calls(text: &str) -> bool {
    let begun = text.trim_start();
    let Some(fenced) = begun.strip_prefix("```") else {
        return "```".starts_with(begun) || may_become_call(begun);
    };
    // The word behind the fence tells nothing.
    let fenced = fenced.trim_start_matches('`');
    let Some((_, inside)) = fenced.split_once('\n') else { return !fenced.contains('`') };
    let inside = inside.trim_start();
    may_become_call(inside) || MARKERS.iter().any(|marker| may_begin(inside, marker))
}

/// The same for one that begins at once: with JSON, or with `name[ARGS]`.
fn may_become_call(text: &str) -> bool {
    let (name, behind) = text.split_at(text.find('[').unwrap_or(text.len()));
    may_become_json(text) || is_name(name) && may_begin(behind, "[ARGS]")
}

/// Whether a text begins with a mark, as far as it goes.
fn may_begin(text: &str, mark: &str) -> bool {
    text.starts_with(mark) || mark.starts_with(text)
}

/// The same for JSON: objects, or lists of some, of no field but those that a call has, one behind the other.
fn may_become_json(text: &str) -> bool {
    let mut rest = text;
    loop {
        match behind_json(rest) {
            Some(behind) if behind.is_empty() || behind.starts_with('<') => return true,
            Some(behind) => rest = behind,
            None => return false,
        }
    }
}

/// What stands behind one that is closed, but for the end of a fence; nothing where it goes on. None if it is no call.
fn behind_json(text: &str) -> Option<&str> {
    let list = text.strip_prefix('[').map(str::trim_start);
    let (object, fields_at) = list.map_or((text, 1), |inside| (inside, 2));
    if !object.is_empty() && !object.starts_with('{') {
        return None;
    }
    let (mut at, mut depth, mut is_field) = (0, fields_at - 1, false);
    while let Some(c) = object[at..].chars().next() {
        at += c.len_utf8();
        match c {
            '"' => {
                let string = &object[at..];
                let end = string_end(string);
                let fits =
                    |known: &&str| end.map_or(known.starts_with(string), |end| **known == string[..end]);
                if is_field && depth == fields_at && !FIELDS.iter().any(&fits) {
                    return None;
                }
                is_field = false;
                at += end.map_or(string.len(), |end| end + 1);
            }
            '{' | '[' => {
                depth += 1;
                is_field = true;
            }
            ',' => is_field = true,
            '}' | ']' => {
                depth -= 1;
                if depth == 0 {
                    return Some(object[at..].trim_start().trim_start_matches('`').trim_start());
                }
            }
            _ => {}
        }
    }
    Some("")
}

/// Where a JSON string ends whose first quote is left out.
fn string_end(string: &str) -> Option<usize> {
    let mut is_escaped = false;
    string.bytes().position(|byte| {
        let is_end = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        is_end
    })
}

fn is_name(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'))
}

struct Scan<'a> {
    text: &'a str,
    at: usize,
    calls: Vec<Written>,
    in_fence: bool,
    tools: &'a [ToolSpec],
}

impl<'a> Scan<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn skip(&mut self, bytes: usize) {
        self.at += bytes;
    }

    /// Steps over what says nothing, and says whether anything is left.
    fn skip_nothing(&mut self) -> bool {
        loop {
            self.skip(self.rest().len() - self.rest().trim_start().len());
            let rest = self.rest();
            if let Some(mark) = MARKS.iter().find(|mark| rest.starts_with(**mark)) {
                self.skip(mark.len());
            } else if let Some(tag) = Tag::at(rest).filter(|tag| ENVELOPES.contains(&tag.name)) {
                self.skip(tag.len);
            } else if let Some(fence) = rest.strip_prefix("```") {
                let info = if self.in_fence { 0 } else { fence.find('\n').unwrap_or(fence.len()) };
                self.in_fence = !self.in_fence;
                self.skip(3 + info);
            } else {
                return !rest.is_empty();
            }
        }
    }

    fn call(&mut self) -> Option<()> {
        match self.rest().as_bytes().first()? {
            b'{' | b'[' => self.json_calls(),
            b'<' => self.element(),
            _ => self.with_args(),
        }
    }

    /// A JSON object, or a list of them.
    fn json_calls(&mut self) -> Option<()> {
        let json = self.json()?;
        let items = if json.starts_with('[') { crate::raw::items(json) } else { vec![json] };
        for item in &items {
            let (name, arguments) = of_object(item)?;
            self.calls.push(Written { name, arguments, end: self.at });
        }
        (!items.is_empty()).then_some(())
    }

    /// One JSON value, which is stepped over.
    fn json(&mut self) -> Option<&'a str> {
        let rest = self.rest();
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<&RawValue>();
        let value = values.next()?.ok()?.get();
        self.skip(values.byte_offset());
        Some(value)
    }

    /// `<invoke name="…">` or `<function=…>`.
    fn element(&mut self) -> Option<()> {
        let tag = Tag::at(self.rest()).filter(|tag| !tag.closes)?;
        let name = match tag.name {
            "invoke" => tag.attribute("name")?,
            "function" => tag.value()?,
            _ => return None,
        };
        self.skip(tag.len);
        let arguments = if self.rest().trim_start().starts_with('{') {
            self.skip(self.rest().len() - self.rest().trim_start().len());
            self.json()?.to_owned()
        } else {
            self.parameters(name)?
        };
        self.skip(self.rest().len() - self.rest().trim_start().len());
        let close = Tag::at(self.rest()).filter(|close| close.closes && close.name == tag.name)?;
        self.skip(close.len);
        self.calls.push(Written { name: name.to_owned(), arguments, end: self.at });
        Some(())
    }

    /// `<parameter name="…">value</parameter>` or `<parameter=…>value</parameter>`, as often as they come.
    fn parameters(&mut self, tool: &str) -> Option<String> {
        let schema = self.tools.iter().find(|known| known.name == tool);
        let schema: Value =
            schema.and_then(|tool| serde_json::from_str(&tool.schema).ok()).unwrap_or_default();
        let mut arguments = Map::new();
        loop {
            let rest = self.rest().trim_start();
            let Some(tag) = Tag::at(rest).filter(|tag| !tag.closes && tag.name == "parameter") else {
                return Some(Value::Object(arguments).to_string());
            };
            let name = tag.attribute("name").or_else(|| tag.value())?;
            let is_text =
                schema["properties"][name]["type"] == "string" || tag.attribute("string") == Some("true");
            self.skip(self.rest().len() - rest.len() + tag.len);
            let (value, close) = closing(self.rest(), "parameter")?;
            self.skip(value.len() + close);
            let value = value.strip_prefix('\n').unwrap_or(value);
            let value = value.strip_suffix('\n').unwrap_or(value);
            let parsed =
                serde_json::from_str(value).ok().filter(|value: &Value| !is_text && !value.is_string());
            arguments.insert(name.to_owned(), parsed.unwrap_or_else(|| Value::from(value)));
        }
    }

    /// `name[ARGS]{…}`.
    fn with_args(&mut self) -> Option<()> {
        let (name, _) = self.rest().split_once("[ARGS]").filter(|(name, _)| is_name(name))?;
        self.skip(name.len() + "[ARGS]".len());
        let arguments = self.json().filter(|json| json.starts_with('{'))?.to_owned();
        self.calls.push(Written { name: name.to_owned(), arguments, end: self.at });
        Some(())
    }
}

/// The name and arguments of a JSON object that is a call.
fn of_object(json: &str) -> Option<(String, String)> {
    let is_of_call = |fields: &Fields<'_>| fields.iter().all(|(name, _)| FIELDS.contains(&name));
    let outer = Fields::of(json).filter(is_of_call)?;
    let fields = outer.object("function").unwrap_or(outer);
    if !is_of_call(&fields) {
        return None;
    }
    let name = ["name", "tool", "tool_name", "function"].iter().find_map(|field| fields.text(field))?;
    let arguments =
        ["arguments", "parameters", "args", "input"].iter().find_map(|field| fields.get(field))?;
    let arguments =
        crate::raw::text(arguments).map_or_else(|| arguments.to_owned(), |text| text.into_owned());
    Some((name.into_owned(), arguments))
}

/// The text up to a closing tag, and the tag's length.
fn closing<'a>(text: &'a str, name: &str) -> Option<(&'a str, usize)> {
    let ends = text.match_indices("</").map(|(at, _)| at);
    ends.into_iter().find_map(|at| {
        let tag = Tag::at(&text[at..]).filter(|tag| tag.closes && tag.name == name)?;
        Some((&text[..at], tag.len))
    })
}

/// A tag at the beginning of a text, with or without DeepSeek's `｜DSML｜` before its name.
struct Tag<'a> {
    closes: bool,
    name: &'a str,
    /// What stands behind the name.
    rest: &'a str,
    len: usize,
}

impl<'a> Tag<'a> {
    fn at(text: &'a str) -> Option<Self> {
        let inner = text.strip_prefix('<')?;
        let end = inner.find('>')?;
        let (closes, inner) = match inner[..end].strip_prefix('/') {
            Some(inner) => (true, inner),
            None => (false, &inner[..end]),
        };
        let is_bar = |c: char| matches!(c, '\u{ff5c}' | '\u{2016}' | '|');
        let bare = inner.trim_start_matches(is_bar);
        let inner = bare.strip_prefix("DSML").map_or(inner, |dsml| dsml.trim_start_matches(is_bar));
        let name = inner.find(|c: char| !c.is_ascii_alphabetic() && c != '_').unwrap_or(inner.len());
        let (name, rest) = inner.split_at(name);
        (!name.is_empty()).then_some(Tag { closes, name, rest, len: end + 2 })
    }

    /// The value of an attribute in double quotes.
    fn attribute(&self, name: &str) -> Option<&'a str> {
        let (_, value) = self.rest.split_once(&format!(" {name}=\""))?;
        value.split_once('"').map(|(value, _)| value)
    }

    /// What stands behind `=`.
    fn value(&self) -> Option<&'a str> {
        self.rest.strip_prefix('=').map(|value| value.trim().trim_matches('"'))
    }
}
