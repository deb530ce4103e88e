//! Writes a request for a Chat Completions server.
//!
//! The body ends with the tools and then the messages, and each piece of it is written once and never again differently:
//! without its closing brackets, the body of a request opens the body of the next one. See `docs/request-layout.md`.
//!
//! A system message stands only at the start; every later text of the runtime is told in the user's role. Many servers
//! reject a system message elsewhere, and folding it into the first one would change bytes that were sent.
//!
//! Where roles must alternate, servers refuse a user's text right behind results ("Unexpected role 'user' after role
//! 'tool'"), and their templates count neither results nor answers with calls. So a short answer stands between the two,
//! and a short text of the user's between two answers.

use mainstay_session::message::ToolSpec;
use mainstay_session::request::{Block, Message, Picture, Request};
use serde_json::{Value, json};

use crate::call_ids::{CallIds, IdRule};
use crate::json::{opening, quoted, schema, sendable_name};
use crate::model::Encoded;
use crate::raw::{self, Fields};
use crate::settings::ModelSettings;
use crate::units::Units;

/// What stands between results and a text of the user's where roles must alternate.
const RECEIVED: &str = "(results received)";

/// What the user says between two answers where roles must alternate. Sessions hardly bring this about: a prompt must
/// have been blank.
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
        alternate_roles: settings.alternate_roles,
        body: head(settings),
        units,
        ids: CallIds::new(if settings.short_call_ids { IdRule::Nine } else { IdRule::Forty }),
        takes_images: settings.images,
        shown: Vec::new(),
        open_user: false,
        last: None,
    };
    writer.tools(request.tools);
    writer.body.push_str("\"messages\":[");
    if !request.system.trim().is_empty() {
        let content = quoted(request.system);
        writer.message(Role::System, &format!("{{\"role\":\"system\",\"content\":{content}}}"));
    }
    for message in &request.messages {
        match message {
            Message::User { text, pictures } => writer.user(text, pictures),
            Message::Answer { model, blocks } => writer.answer(model, blocks),
            Message::Result { call, text, pictures, .. } => writer.result(*call, text, pictures),
        }
    }
    writer.finish()
}

/// The body up to the tools: what does not depend on the conversation.
fn head(settings: &ModelSettings) -> String {
    let limit = if settings.completion_limit { "max_completion_tokens" } else { "max_tokens" };
    let fields = vec![
        ("stream_options".to_owned(), Some(json!({"include_usage": true}))),
        (limit.to_owned(), settings.max_output.map(Value::from)),
        ("temperature".to_owned(), settings.temperature.map(Value::from)),
        ("reasoning_effort".to_owned(), settings.effort.clone().map(Value::from)),
    ];
    opening(settings, fields, &["messages", "tools"])
}

struct Writer<'a> {
    model: &'a str,
    alternate_roles: bool,
    body: String,
    units: Units<'a>,
    ids: CallIds,
    takes_images: bool,
    /// Images of the results since the last answer, as parts: a tool's message holds text alone.
    shown: Vec<String>,
    /// Whether the last message is a list of user texts that another one may join.
    open_user: bool,
    /// Whose message is the last one.
    last: Option<Role>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    System,
    User,
    Assistant,
    Tool,
}

impl Writer<'_> {
    fn tools(&mut self, tools: &[ToolSpec]) {
        if tools.is_empty() {
            return;
        }
        self.body.push_str("\"tools\":[");
        for (place, tool) in tools.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            self.unit(&format!(
                "{comma}{{\"type\":\"function\",\"function\":{{\"name\":{},\"description\":{},\"parameters\":{}}}}}",
                quoted(&tool.name),
                quoted(&tool.description),
                schema(&tool.schema),
            ));
        }
        self.body.push_str("],");
    }

    fn user(&mut self, text: &str, pictures: &[Picture<'_>]) {
        self.show();
        let mut parts: Vec<String> = text_part(text).into_iter().collect();
        parts.extend(pictures.iter().map(|picture| self.picture(picture)));
        match parts.as_slice() {
            [_] if pictures.is_empty() && !self.alternate_roles => {
                self.message(Role::User, &format!("{{\"role\":\"user\",\"content\":{}}}", quoted(text)));
            }
            _ => parts.iter().for_each(|part| self.user_part(part)),
        }
        self.end_user_unless_alternating();
    }

    /// The images of results stand behind all results, in the user's role.
    fn show(&mut self) {
        for part in std::mem::take(&mut self.shown) {
            self.user_part(&part);
        }
        self.end_user_unless_alternating();
    }

    /// Adds a part to the user's message, which is begun where there is none. Always a list, since a string could not
    /// grow without being written anew.
    fn user_part(&mut self, part: &str) {
        if self.open_user {
            return self.unit(&format!(",{part}"));
        }
        if self.alternate_roles && self.last == Some(Role::Tool) {
            let content = quoted(RECEIVED);
            self.message(Role::Assistant, &format!("{{\"role\":\"assistant\",\"content\":{content}}}"));
        }
        self.message(Role::User, &format!("{{\"role\":\"user\",\"content\":[{part}"));
        self.open_user = true;
    }

    fn end_user_unless_alternating(&mut self) {
        if !self.alternate_roles && std::mem::take(&mut self.open_user) {
            self.body.push_str("]}");
        }
    }

    fn picture(&self, picture: &Picture<'_>) -> String {
        match picture.data.as_ref().filter(|_| self.takes_images) {
            Some(data) => format!(
                "{{\"type\":\"image_url\",\"image_url\":{{\"url\":\"data:{};base64,{data}\"}}}}",
                picture.image.media_type
            ),
            None => part(&picture.placeholder()),
        }
    }

    fn answer(&mut self, model: &str, blocks: &[Block<'_>]) {
        self.show();
        let mut text = String::new();
        let mut calls = Vec::new();
        let mut returned = Returned::default();
        let is_same_model = model == self.model;
        self.ids.begin_answer();
        for block in blocks {
            match block {
                Block::Text(piece) => text.push_str(piece),
                Block::Reasoning { opaque, .. } if is_same_model => returned.add(*opaque),
                Block::Call { id, name, arguments, opaque } => {
                    let id = self.ids.assign(id);
                    calls.push(call(&id, name, arguments, opaque.filter(|_| is_same_model)));
                }
                // Reasoning of another model, and blocks of another wire format.
                Block::Reasoning { .. } | Block::Opaque(_) => {}
            }
        }
        let has_text = !text.trim().is_empty();
        if !has_text && calls.is_empty() {
            return;
        }
        if self.alternate_roles && !matches!(self.last, Some(Role::User | Role::Tool)) {
            self.user_part(&part(CONTINUE));
        }
        let content = if has_text { quoted(&text) } else { "null".to_owned() };
        self.message(Role::Assistant, &format!("{{\"role\":\"assistant\",\"content\":{content}"));
        for field in returned.fields() {
            self.unit(&field);
        }
        for (place, call) in calls.iter().enumerate() {
            let before = if place == 0 { ",\"tool_calls\":[" } else { "," };
            self.unit(&format!("{before}{call}"));
        }
        self.body.push_str(if calls.is_empty() { "}" } else { "]}" });
    }

    fn result(&mut self, call: u32, text: &str, pictures: &[Picture<'_>]) {
        let shown: Vec<String> = pictures.iter().map(|picture| self.picture(picture)).collect();
        self.shown.extend(shown);
        let Some(id) = self.ids.of_call(call).map(quoted) else { return };
        let content = quoted(text);
        self.message(
            Role::Tool,
            &format!("{{\"role\":\"tool\",\"tool_call_id\":{id},\"content\":{content}}}"),
        );
    }

    /// Begins a message.
    fn message(&mut self, role: Role, start: &str) {
        if std::mem::take(&mut self.open_user) {
            self.body.push_str("]}");
        }
        let comma = if self.last.replace(role).is_some() { "," } else { "" };
        self.unit(&format!("{comma}{start}"));
    }

    fn unit(&mut self, json: &str) {
        self.units.push(json.as_bytes());
        self.body.push_str(json);
    }

    fn finish(mut self) -> Encoded {
        self.show();
        if self.alternate_roles && self.last == Some(Role::Assistant) {
            // Like a closing bracket, this is written anew each time: what comes next may stand in its place.
            let content = part(CONTINUE);
            self.body.push_str(&format!(",{{\"role\":\"user\",\"content\":[{content}]}}"));
        }
        self.body.push_str(if self.open_user { "]}]}" } else { "]}" });
        Encoded { mark: self.units.finish(self.body.len()), body: self.body.into_bytes() }
    }
}

fn text_part(text: &str) -> Option<String> {
    (!text.trim().is_empty()).then(|| part(text))
}

fn part(text: &str) -> String {
    format!("{{\"type\":\"text\",\"text\":{}}}", quoted(text))
}

/// What goes back to the model that wrote it, as it came: fields of the message.
#[derive(Default)]
struct Returned(Vec<(String, String)>);

impl Returned {
    /// Adds the fields of a block. A field that came in several blocks becomes one: strings and lists are joined.
    fn add(&mut self, opaque: Option<&str>) {
        let Some(fields) = opaque.and_then(Fields::of) else { return };
        for (name, value) in fields.iter() {
            if !matches!(name, "reasoning_content" | "reasoning_details") {
                continue;
            }
            match self.0.iter_mut().find(|(known, _)| known == name) {
                Some((_, before)) => *before = joined(before, value).unwrap_or_else(|| value.to_owned()),
                None => self.0.push((name.to_owned(), value.to_owned())),
            }
        }
    }

    /// The fields, each with the comma that parts it from what stands before.
    fn fields(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|(name, value)| format!(",\"{name}\":{value}"))
    }
}

fn joined(before: &str, after: &str) -> Option<String> {
    if let (Some(before), Some(after)) = (before.strip_suffix('"'), after.strip_prefix('"')) {
        return Some(format!("{before}{after}"));
    }
    let list: Vec<&str> = raw::items(before).into_iter().chain(raw::items(after)).collect();
    (!list.is_empty()).then(|| format!("[{}]", list.join(",")))
}

fn call(id: &str, name: &str, arguments: &str, opaque: Option<&str>) -> String {
    let extra = opaque.and_then(Fields::of).and_then(|fields| fields.get("extra_content"));
    let extra = extra.map(|extra| format!(",\"extra_content\":{extra}")).unwrap_or_default();
    format!(
        "{{\"id\":{},\"type\":\"function\",\"function\":{{\"name\":{},\"arguments\":{}}}{extra}}}",
        quoted(id),
        quoted(&sendable_name(name)),
        quoted(arguments),
    )
}

#[cfg(test)]
mod tests;
