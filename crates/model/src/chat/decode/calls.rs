//! Puts the pieces of tool calls together.
//!
//! A piece belongs to the call with the same index, in principle. In practice the index is missing, or the same for all
//! parallel calls, and ids and names are repeated in every piece: a piece begins a new call where its id or name
//! contradicts the call it would belong to. Ids and names are never concatenated.

use mainstay_session::arguments::parse_arguments;
use mainstay_session::message::ToolCall;

use crate::decoder::OnDelta;
use crate::model::Delta;
use crate::raw::{Fields, Pieces};

/// The calls of one answer, in the order in which they began.
#[derive(Debug, Default)]
pub(super) struct Calls(Vec<Call>);

#[derive(Debug, Default)]
struct Call {
    index: Option<i64>,
    legacy: bool,
    id: String,
    name: String,
    arguments: Pieces,
    shape: Shape,
    opaque: Option<String>,
}

/// A piece of a call.
struct Piece<'a> {
    index: Option<i64>,
    id: String,
    name: String,
    /// JSON text: a string, an object, or nothing.
    arguments: &'a str,
}

impl Calls {
    /// Takes a piece; returns the place of the call that it began, if it began one.
    pub(super) fn piece(&mut self, call: &Fields<'_>, on_delta: &mut OnDelta<'_>) -> Option<usize> {
        let function = call.object("function");
        let piece = Piece {
            index: call.number("index"),
            id: call.text("id").unwrap_or_default().into_owned(),
            name: function.as_ref().and_then(|f| f.text("name")).unwrap_or_default().into_owned(),
            arguments: function.as_ref().and_then(|f| f.get("arguments")).unwrap_or_default(),
        };
        let found = self.find(&piece);
        let place = found.unwrap_or_else(|| {
            self.0.push(Call { index: piece.index, ..Call::default() });
            self.0.len() - 1
        });
        let target = &mut self.0[place];
        target.add(piece, on_delta);
        if let Some(extra) = call.get("extra_content").filter(|extra| extra.starts_with('{')) {
            target.opaque = Some(format!("{{\"extra_content\":{extra}}}"));
        }
        found.is_none().then_some(place)
    }

    /// Takes a piece of the one call that the format knew before it knew several.
    pub(super) fn legacy_piece(
        &mut self,
        function: &Fields<'_>,
        on_delta: &mut OnDelta<'_>,
    ) -> Option<usize> {
        let piece = Piece {
            index: None,
            id: String::new(),
            name: function.text("name").unwrap_or_default().into_owned(),
            arguments: function.get("arguments").unwrap_or_default(),
        };
        if piece.name.is_empty() && piece.arguments.len() <= 2 {
            return None;
        }
        let found = self.0.iter().position(|call| call.legacy);
        let place = found.unwrap_or(self.0.len());
        if found.is_none() {
            self.0.push(Call { legacy: true, ..Call::default() });
        }
        self.0[place].add(piece, on_delta);
        found.is_none().then_some(place)
    }

    /// Whether there is any call.
    pub(super) fn any(&self) -> bool {
        !self.0.is_empty()
    }

    /// The calls as they are.
    pub(super) fn finish(self) -> Vec<Option<ToolCall>> {
        let call = |call: Call| ToolCall {
            id: call.id,
            name: call.name,
            arguments: call.arguments.finish(),
            opaque: call.opaque,
        };
        self.0.into_iter().map(|each| Some(call(each))).collect()
    }

    fn find(&self, piece: &Piece<'_>) -> Option<usize> {
        let place = match piece.index {
            Some(index) => self.0.iter().rposition(|call| call.index == Some(index) && !call.legacy)?,
            None => self.0.len().checked_sub(1)?,
        };
        (!self.0[place].is_contradicted_by(piece)).then_some(place)
    }
}

impl Call {
    /// Whether the piece must be the beginning of another call.
    fn is_contradicted_by(&self, piece: &Piece<'_>) -> bool {
        let differs = |mine: &str, theirs: &str| !mine.is_empty() && !theirs.is_empty() && mine != theirs;
        if differs(&self.name, &piece.name) {
            return true;
        }
        if differs(&self.id, &piece.id) {
            // Some servers give every piece an id of its own; only a beginning names the tool and begins an object.
            return piece.index.is_none() || (!piece.name.is_empty() && !self.is_continued_by(piece));
        }
        if piece.name.is_empty() {
            return piece.index.is_none() && !piece.id.is_empty() && self.id.is_empty();
        }
        // The tool is named again: a repetition, unless both hold whole arguments that differ or nothing ties them.
        let untied = piece.index.is_none() && piece.id.is_empty();
        untied || (self.is_whole() && piece.is_whole_and_differs_from(self.arguments.as_str()))
    }

    /// Whether the arguments have begun, and the piece can only be more of them.
    fn is_continued_by(&self, piece: &Piece<'_>) -> bool {
        let begun = self.arguments.as_str();
        let next = crate::raw::text(piece.arguments).unwrap_or_default();
        let next = next.trim_start();
        !begun.trim().is_empty() && !self.is_whole() && !next.is_empty() && !next.starts_with('{')
    }

    fn add(&mut self, piece: Piece<'_>, on_delta: &mut OnDelta<'_>) {
        if self.id.is_empty() {
            self.id = piece.id;
        }
        if self.name.is_empty() && !piece.name.is_empty() {
            self.name = piece.name;
            on_delta(Delta::CallStarted(&self.name));
        }
        self.add_arguments(piece.arguments);
    }

    fn add_arguments(&mut self, json: &str) {
        let before = self.arguments.as_str();
        if json.starts_with(['{', '[']) {
            let json = compact(json);
            if before != json {
                self.arguments.push_plain(&json);
                self.shape.see(&json);
            }
            return;
        }
        let is_new_object = json.starts_with("\"{");
        if is_new_object && before.trim() == "{}" {
            // An empty object that stood in until the real arguments came.
            self.arguments.clear();
            self.shape = Shape::default();
        } else if is_new_object && self.is_whole() && crate::raw::text(json).as_deref() == Some(before) {
            return;
        }
        let more = self.arguments.push(json);
        self.shape.see(more);
    }

    /// Whether the arguments are a whole object that is written out. Costs a look at all of them only where they are.
    fn is_whole(&self) -> bool {
        self.shape == Shape::Closed && is_whole(self.arguments.as_str())
    }
}

/// Where in the JSON text of an object its writing stands, so that no piece costs a look at all those before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// At this depth, and inside or outside a string.
    Open { depth: usize, string: InString },
    /// Behind the last brace.
    Closed,
    /// No object, or more than one.
    Broken,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InString {
    No,
    Yes,
    Escaped,
}

impl Default for Shape {
    fn default() -> Self {
        Shape::Open { depth: 0, string: InString::No }
    }
}

impl Shape {
    fn see(&mut self, text: &str) {
        for byte in text.bytes() {
            *self = self.after(byte);
        }
    }

    fn after(self, byte: u8) -> Self {
        let Shape::Open { depth, string } = self else {
            return if byte.is_ascii_whitespace() { self } else { Shape::Broken };
        };
        match (string, byte) {
            (InString::Escaped, _) => Shape::Open { depth, string: InString::Yes },
            (InString::Yes, b'\\') => Shape::Open { depth, string: InString::Escaped },
            (InString::Yes, b'"') => Shape::Open { depth, string: InString::No },
            (InString::Yes, _) => self,
            (InString::No, b'{') => Shape::Open { depth: depth + 1, string },
            (InString::No, b'}') if depth == 1 => Shape::Closed,
            (InString::No, b'}') if depth > 1 => Shape::Open { depth: depth - 1, string },
            (InString::No, _) if depth == 0 && !byte.is_ascii_whitespace() => Shape::Broken,
            (InString::No, b'"') => Shape::Open { depth, string: InString::Yes },
            (InString::No, _) => self,
        }
    }
}

impl Piece<'_> {
    fn is_whole_and_differs_from(&self, other: &str) -> bool {
        match crate::raw::text(self.arguments) {
            Some(text) => is_whole(&text) && text != other,
            None => self.arguments.starts_with('{') && compact(self.arguments) != other,
        }
    }
}

/// The same JSON without white space between its parts.
fn compact(json: &str) -> String {
    let (mut in_string, mut escaped) = (false, false);
    json.chars()
        .filter(|&c| {
            let is_kept = in_string || !c.is_ascii_whitespace();
            in_string ^= c == '"' && !escaped;
            escaped = in_string && c == '\\' && !escaped;
            is_kept
        })
        .collect()
}

/// Whether these arguments are a whole object that is written out.
fn is_whole(arguments: &str) -> bool {
    arguments.trim_end().ends_with('}') && parse_arguments(arguments).is_ok()
}
