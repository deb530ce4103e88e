//! Writes a request for an Anthropic Messages server.
//!
//! The body ends with the tools, the system text and the messages, which is the order in which the provider caches, and
//! each piece of it is written once and never again differently: without its closing brackets and its cache anchors,
//! the body of a request opens the body of the next one. See `docs/request-layout.md`.
//!
//! Roles alternate, so everything that is told in the user's role between two answers is one message of several blocks:
//! first the results of the answer's calls, in their order, then texts. The provider's rules are at
//! <https://platform.claude.com/docs/en/api/messages/create> and at
//! <https://platform.claude.com/docs/en/agents-and-tools/tool-use/handle-tool-calls>.

mod anchors;
mod head;
mod native;

use std::borrow::Cow;

use mainstay_session::message::ToolSpec;
use mainstay_session::request::{Block, Message, Picture, Request};

use self::anchors::Anchors;
use self::native::ServerTools;
use crate::call_ids::{CallIds, IdRule};
use crate::json::{quoted, schema, sendable_name};
use crate::model::Encoded;
use crate::raw::Fields;
use crate::settings::ModelSettings;
use crate::units::Units;

/// What the user says where an answer follows nothing of the user's, or the request ends with one. Sessions do not bring
/// this about; the provider refuses a conversation that begins with an answer, and newer models one that ends with it.
const CONTINUE: &str = "(continue)";

/// Writes the request for the model that is called `model` in the log.
pub fn encode(model: &str, settings: &ModelSettings, request: &Request<'_>) -> Encoded {
    write(model, settings, request, Units::new(request.previous))
}

/// The units of the request, byte for byte.
pub fn units(model: &str, settings: &ModelSettings, request: &Request<'_>) -> Vec<Vec<u8>> {
    let mut kept = Vec::new();
    write(model, settings, request, Units::keeping(&mut kept));
    kept
}

fn write(model: &str, settings: &ModelSettings, request: &Request<'_>, units: Units<'_>) -> Encoded {
    let mut writer = Writer {
        model,
        takes_images: settings.images,
        body: head::head(settings),
        units,
        anchors: Anchors::new(settings),
        ids: CallIds::new(IdRule::Word),
        server_tools: ServerTools::default(),
        open: None,
    };
    writer.tools(request.tools);
    writer.system(request.system);
    writer.body.push_str("\"messages\":[");
    for message in &request.messages {
        match message {
            Message::User { text, pictures } => writer.user(text, pictures),
            Message::Answer { model, blocks } => writer.answer(model, blocks),
            Message::Result { call, text, pictures, is_error, .. } => {
                writer.result(*call, text, pictures, *is_error);
            }
        }
    }
    writer.finish()
}

struct Writer<'a> {
    model: &'a str,
    takes_images: bool,
    body: String,
    units: Units<'a>,
    anchors: Anchors,
    ids: CallIds,
    server_tools: ServerTools,
    /// Whose message is the last one. It ends only when another begins.
    open: Option<Role>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    User,
    Assistant,
}

/// A block of an answer.
enum Said<'a> {
    Text(String),
    Thinking(&'a str),
    Native(&'a str),
}

impl Writer<'_> {
    fn tools(&mut self, tools: &[ToolSpec]) {
        if tools.is_empty() {
            return;
        }
        self.body.push_str("\"tools\":[");
        for (place, tool) in tools.iter().enumerate() {
            let description = match tool.description.trim() {
                "" => String::new(),
                _ => format!("\"description\":{},", quoted(&tool.description)),
            };
            let json = format!(
                "{{\"name\":{},{description}\"input_schema\":{}}}",
                quoted(&tool.name),
                input_schema(&tool.schema)
            );
            self.unit(if place == 0 { "" } else { "," }, &json);
        }
        self.anchors.fix(&self.body);
        self.body.push_str("],");
    }

    fn system(&mut self, text: &str) {
        if text.trim().is_empty() {
            return;
        }
        self.body.push_str("\"system\":[");
        self.unit("", &text_block(text));
        self.anchors.fix(&self.body);
        self.body.push_str("],");
    }

    fn user(&mut self, text: &str, pictures: &[Picture<'_>]) {
        if !text.trim().is_empty() {
            self.block(Role::User, &text_block(text));
            self.anchors.offer(&self.body, self.units.count());
        }
        for picture in pictures {
            let json = picture_block(picture, self.takes_images);
            self.block(Role::User, &json);
            self.anchors.offer(&self.body, self.units.count());
        }
    }

    /// Writes an answer's blocks in their order, but its calls last: nothing may stand between them and their results.
    fn answer(&mut self, model: &str, blocks: &[Block<'_>]) {
        let is_own = model == self.model;
        let mut said = Vec::new();
        let mut calls = Vec::new();
        self.ids.begin_answer();
        self.server_tools.begin_answer(blocks);
        for block in blocks {
            match block {
                Block::Text(text) if text.trim().is_empty() => {}
                Block::Text(text) => said.push(Said::Text(text_block(text))),
                Block::Call { id, name, arguments, opaque } => {
                    let id = self.ids.assign(id);
                    calls.push(call(&id, name, arguments, opaque.filter(|_| is_own)));
                }
                // What belongs to another model, or to another wire format, is left out whole.
                Block::Reasoning { opaque, .. } => {
                    let opaque = opaque.filter(|json| is_own && native::is_thinking(json));
                    said.extend(opaque.map(Said::Thinking));
                }
                Block::Opaque(json) if is_own && native::is_thinking(json) => said.push(Said::Thinking(json)),
                Block::Opaque(json) if is_own && self.server_tools.returns(json) => {
                    said.push(Said::Native(json));
                }
                Block::Opaque(_) => {}
            }
        }
        if calls.is_empty() {
            // "The final block in an assistant message cannot be `thinking`."
            while matches!(said.last(), Some(Said::Thinking(_))) {
                said.pop();
            }
        }
        self.say(&said, &calls);
    }

    fn say(&mut self, said: &[Said<'_>], calls: &[String]) {
        if said.is_empty() && calls.is_empty() {
            return;
        }
        if self.open != Some(Role::User) {
            self.block(Role::User, &text_block(CONTINUE));
        }
        for block in said {
            match block {
                Said::Text(json) => {
                    self.block(Role::Assistant, json);
                    self.anchors.offer(&self.body, self.units.count());
                }
                Said::Thinking(json) | Said::Native(json) => self.block(Role::Assistant, json),
            }
        }
        for call in calls {
            self.block(Role::Assistant, call);
            self.anchors.offer(&self.body, self.units.count());
        }
    }

    fn result(&mut self, call: u32, text: &str, pictures: &[Picture<'_>], is_error: bool) {
        let Some(id) = self.ids.of_call(call).map(quoted) else { return };
        // An error may hold nothing but text.
        let takes_images = self.takes_images && !is_error;
        let mut parts: Vec<String> =
            Some(text).filter(|text| !text.trim().is_empty()).map(text_block).into_iter().collect();
        parts.extend(pictures.iter().map(|picture| picture_block(picture, takes_images)));
        let content = match parts.as_slice() {
            [] => String::new(),
            [_] if pictures.is_empty() => format!(",\"content\":{}", quoted(text)),
            _ => format!(",\"content\":[{}]", parts.join(",")),
        };
        let mark = if is_error { ",\"is_error\":true" } else { "" };
        self.block(Role::User, &format!("{{\"type\":\"tool_result\",\"tool_use_id\":{id}{content}{mark}}}"));
        self.anchors.offer(&self.body, self.units.count());
    }

    /// Writes a content block into the last message, or begins one where the last is another's.
    fn block(&mut self, role: Role, json: &str) {
        let name = match role {
            Role::User => "user",
            Role::Assistant => "assistant",
        };
        let before = match self.open.replace(role) {
            Some(open) if open == role => Cow::Borrowed(","),
            Some(_) => {
                self.body.push_str("]}");
                Cow::Owned(format!(",{{\"role\":\"{name}\",\"content\":["))
            }
            None => Cow::Owned(format!("{{\"role\":\"{name}\",\"content\":[")),
        };
        self.unit(&before, json);
    }

    fn unit(&mut self, before: &str, json: &str) {
        let start = self.body.len();
        self.body.push_str(before);
        self.body.push_str(json);
        self.units.push(&self.body.as_bytes()[start..]);
    }

    fn finish(mut self) -> Encoded {
        let end = match self.open {
            // Like a closing bracket, this is written anew each time: what comes next may stand in its place.
            Some(Role::Assistant) => {
                format!("]}},{{\"role\":\"user\",\"content\":[{}]}}]}}", text_block(CONTINUE))
            }
            Some(Role::User) => "]}]}".to_owned(),
            None => "]}".to_owned(),
        };
        self.body.push_str(&end);
        let mut mark = self.units.finish(self.body.len());
        self.anchors.write(&mut self.body, mark.shared);
        mark.bytes = self.body.len() as u64;
        Encoded { mark, body: self.body.into_bytes() }
    }
}

fn text_block(text: &str) -> String {
    format!("{{\"type\":\"text\",\"text\":{}}}", quoted(text))
}

fn picture_block(picture: &Picture<'_>, takes_images: bool) -> String {
    match picture.data.as_ref().filter(|_| takes_images) {
        Some(data) => format!(
            "{{\"type\":\"image\",\"source\":{{\"type\":\"base64\",\"media_type\":{},\"data\":\"{data}\"}}}}",
            quoted(&picture.image.media_type)
        ),
        None => text_block(&picture.placeholder()),
    }
}

fn call(id: &str, name: &str, arguments: &str, opaque: Option<&str>) -> String {
    let extras = opaque.and_then(Fields::of).and_then(|fields| fields.object("tool_use"));
    let extras: String = extras
        .iter()
        .flat_map(Fields::iter)
        .map(|(name, value)| format!(",{}:{value}", quoted(name)))
        .collect();
    format!(
        "{{\"type\":\"tool_use\",\"id\":{},\"name\":{},\"input\":{arguments}{extras}}}",
        quoted(id),
        quoted(&sendable_name(name)),
    )
}

/// A schema of an object, which must say that it is one.
fn input_schema(text: &str) -> Cow<'_, str> {
    let schema = schema(text);
    let fields = Fields::of(schema);
    match fields.as_ref().and_then(|fields| fields.get("type")) {
        Some("\"object\"") => Cow::Borrowed(schema),
        None if fields.is_some_and(|fields| fields.iter().next().is_some()) => {
            Cow::Owned(format!("{{\"type\":\"object\",{}", &schema[1..]))
        }
        _ => Cow::Borrowed("{\"type\":\"object\",\"properties\":{}}"),
    }
}
