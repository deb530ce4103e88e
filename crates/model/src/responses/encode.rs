//! Writes a request over the Responses format.
//!
//! The body ends with the tools, the instructions and then the input, and each piece of it is written once and never
//! again differently: without its closing brackets, the body of a request opens the body of the next one. See
//! `docs/request-layout.md`.
//!
//! The system text stands in `instructions`; every later text of the runtime is told in the user's role. OpenAI takes a
//! developer's message at any place, but most imitators turn the input into a chat whose template takes none there. How
//! an answer goes back is the matter of `encode/answer.rs`.

mod answer;

use std::collections::HashSet;

use mainstay_session::message::{ToolSpec, to_hex};
use mainstay_session::request::{Message, Picture, Request};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::call_ids::{CallIds, IdRule};
use crate::json::{opening, quoted, schema};
use crate::model::Encoded;
use crate::settings::ModelSettings;
use crate::units::Units;

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
        takes_images: settings.images,
        body: head(settings, request),
        units,
        calls: CallIds::new(IdRule::Word),
        items: HashSet::new(),
        open_user: false,
        any_item: false,
    };
    writer.tools(request.tools);
    writer.instructions(request.system);
    writer.body.push_str("\"input\":[");
    for message in &request.messages {
        match message {
            Message::User { text, pictures } => writer.user(text, pictures),
            Message::Answer { model, blocks } => {
                let is_own = *model == writer.model;
                let items = answer::items(blocks, is_own, &mut writer.calls, &mut writer.items);
                items.iter().for_each(|item| writer.item(item));
            }
            Message::Result { call, text, pictures, .. } => writer.result(*call, text, pictures),
        }
    }
    writer.finish()
}

/// The body up to the tools: what stays the same while the conversation grows.
fn head(settings: &ModelSettings, request: &Request<'_>) -> String {
    // OpenAI refuses to encrypt the reasoning of models that have none.
    let include = may_reason(&settings.name).then(|| json!(["reasoning.encrypted_content"]));
    let fields = vec![
        ("store".to_owned(), Some(Value::Bool(false))),
        ("include".to_owned(), include),
        ("max_output_tokens".to_owned(), settings.max_output.map(Value::from)),
        ("temperature".to_owned(), settings.temperature.map(Value::from)),
        ("reasoning".to_owned(), reasoning(settings)),
        ("prompt_cache_key".to_owned(), Some(Value::from(cache_key(request)))),
    ];
    opening(settings, fields, &["input", "instructions", "tools", "reasoning"])
}

/// How hard the model shall think. No summary is asked for unless the settings do: OpenAI refuses the whole request of
/// an organisation that is not verified ("must be verified to generate reasoning summaries").
fn reasoning(settings: &ModelSettings) -> Option<Value> {
    let effort = settings.effort.as_ref().map(|effort| ("effort".to_owned(), Value::from(effort.as_str())));
    let mut fields: Map<String, Value> = effort.into_iter().collect();
    match settings.extra_body.get("reasoning") {
        Some(Value::Object(extra)) => fields.extend(extra.clone()),
        Some(_) => return None,
        None => {}
    }
    (!fields.is_empty()).then_some(Value::Object(fields))
}

/// Whether a model of this name may be one that reasons; only OpenAI's older ones are known not to.
fn may_reason(name: &str) -> bool {
    let name = name.rsplit('/').next().unwrap_or_default();
    !["gpt-3.5", "gpt-4", "chatgpt-4"].iter().any(|family| name.starts_with(family))
}

/// Leads requests that begin alike to the same cache
/// (<https://platform.openai.com/docs/guides/prompt-caching>): sessions with the same system text and the same first
/// text, which are those that work in the same place.
fn cache_key(request: &Request<'_>) -> String {
    let mut hash = Sha256::new();
    hash.update(request.system);
    if let Some(Message::User { text, .. }) = request.messages.first() {
        hash.update([0]);
        hash.update(text.as_bytes());
    }
    format!("mainstay-{}", to_hex(&hash.finalize()[..16]))
}

struct Writer<'a> {
    model: &'a str,
    alternate_roles: bool,
    takes_images: bool,
    body: String,
    units: Units<'a>,
    calls: CallIds,
    /// The ids of the provider's items that were sent.
    items: HashSet<String>,
    /// Whether the last item is a list of the user's parts that another one may join.
    open_user: bool,
    any_item: bool,
}

impl Writer<'_> {
    /// Writes the tools. They are not strict: that would demand schemas of a special kind, with every field required.
    fn tools(&mut self, tools: &[ToolSpec]) {
        if tools.is_empty() {
            return;
        }
        self.body.push_str("\"tools\":[");
        for (place, tool) in tools.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            self.unit(&format!(
                "{comma}{{\"type\":\"function\",\"name\":{},\"description\":{},\"parameters\":{},\"strict\":false}}",
                quoted(&tool.name),
                quoted(&tool.description),
                schema(&tool.schema),
            ));
        }
        self.body.push_str("],");
    }

    fn instructions(&mut self, system: &str) {
        if !system.trim().is_empty() {
            self.unit(&format!("\"instructions\":{},", quoted(system)));
        }
    }

    /// Tells something in the user's role. Always as a list, since a string could not grow without being written anew.
    fn user(&mut self, text: &str, pictures: &[Picture<'_>]) {
        let text = (!text.trim().is_empty()).then(|| text_part(text));
        let pictures = pictures.iter().map(|picture| self.picture(picture));
        for part in text.into_iter().chain(pictures).collect::<Vec<_>>() {
            if self.open_user {
                self.unit(&format!(",{part}"));
            } else {
                self.item(&format!("{{\"type\":\"message\",\"role\":\"user\",\"content\":[{part}"));
                self.open_user = true;
            }
        }
        if !self.alternate_roles {
            self.end_user();
        }
    }

    /// Writes a result: a string, or a list where there are images to be seen
    /// (<https://platform.openai.com/docs/guides/function-calling>).
    fn result(&mut self, call: u32, text: &str, pictures: &[Picture<'_>]) {
        let Some(id) = self.calls.of_call(call).map(quoted) else { return };
        let output = if pictures.iter().any(|picture| self.is_shown(picture)) {
            let parts = pictures.iter().map(|picture| self.picture(picture));
            let parts: Vec<String> = std::iter::once(text_part(text)).chain(parts).collect();
            format!("[{}]", parts.join(","))
        } else {
            let placeholders = pictures.iter().map(Picture::placeholder);
            quoted(&std::iter::once(text.to_owned()).chain(placeholders).collect::<Vec<_>>().join("\n"))
        };
        self.item(&format!("{{\"type\":\"function_call_output\",\"call_id\":{id},\"output\":{output}}}"));
    }

    fn is_shown(&self, picture: &Picture<'_>) -> bool {
        self.takes_images && picture.data.is_some()
    }

    fn picture(&self, picture: &Picture<'_>) -> String {
        match picture.data.as_ref().filter(|_| self.takes_images) {
            Some(data) => format!(
                "{{\"type\":\"input_image\",\"detail\":\"auto\",\"image_url\":\"data:{};base64,{data}\"}}",
                picture.image.media_type
            ),
            None => text_part(&picture.placeholder()),
        }
    }

    /// Begins an item.
    fn item(&mut self, start: &str) {
        self.end_user();
        let comma = if std::mem::replace(&mut self.any_item, true) { "," } else { "" };
        self.unit(&format!("{comma}{start}"));
    }

    fn end_user(&mut self) {
        if std::mem::take(&mut self.open_user) {
            self.body.push_str("]}");
        }
    }

    fn unit(&mut self, json: &str) {
        self.units.push(json.as_bytes());
        self.body.push_str(json);
    }

    fn finish(mut self) -> Encoded {
        self.end_user();
        self.body.push_str("]}");
        Encoded { mark: self.units.finish(self.body.len()), body: self.body.into_bytes() }
    }
}

fn text_part(text: &str) -> String {
    format!("{{\"type\":\"input_text\",\"text\":{}}}", quoted(text))
}
