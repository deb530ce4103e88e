//! Writes a request for Gemini's `streamGenerateContent`.
//!
//! The body ends with the tools, the system text and then the contents, and each piece of it is written once and never
//! again differently: without its closing brackets, the body of a request opens the body of the next one. See
//! `docs/request-layout.md`.
//!
//! Contents of the user and of the model alternate, so what follows one another in one role becomes parts of one
//! content. The results of an answer's calls stand together right behind it, before any text
//! (<https://ai.google.dev/gemini-api/docs/function-calling>). What carries a signature goes back as it came, and only to
//! the model that wrote it (<https://ai.google.dev/gemini-api/docs/thought-signatures>); summaries of thoughts without
//! one do not go back at all.

mod head;

use std::borrow::Cow;

use mainstay_session::arguments::clean_surrogates;
use mainstay_session::message::ToolSpec;
use mainstay_session::request::{Block, Message, Picture, Request};

use self::head::Generation;
use crate::call_ids::{CallIds, IdRule};
use crate::json::{quoted, schema, sendable_name};
use crate::model::Encoded;
use crate::raw::Fields;
use crate::settings::ModelSettings;
use crate::units::Units;

/// What stands in for the signature of a call that Gemini did not write, or that came without one: Gemini 3 refuses an
/// answer whose first call has none (<https://ai.google.dev/gemini-api/docs/thought-signatures>, "FAQs").
const NO_SIGNATURE: &str = "\"skip_thought_signature_validator\"";

/// What stands before an answer that nothing stands before: the first content must be the user's.
const OPENING: &str = "(the conversation begins with an answer)";

/// The images that Gemini reads (<https://ai.google.dev/gemini-api/docs/image-understanding>).
const IMAGES: &[&str] = &["image/png", "image/jpeg", "image/webp"];

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
        generation: Generation::of(&settings.name),
        takes_images: settings.images,
        body: head::write(settings),
        units,
        ids: CallIds::new(IdRule::Word),
        shown: Vec::new(),
        open: None,
    };
    writer.tools(request.tools);
    writer.system(request.system);
    writer.body.push_str("\"contents\":[");
    for message in &request.messages {
        match message {
            Message::User { text, pictures } => writer.user(text, pictures),
            Message::Answer { model, blocks } => writer.answer(model, blocks),
            Message::Result { call, name, text, pictures, is_error, .. } => {
                writer.result(*call, name, text, pictures, *is_error);
            }
        }
    }
    writer.finish()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    User,
    Model,
}

struct Writer<'a> {
    model: &'a str,
    generation: Generation,
    takes_images: bool,
    body: String,
    units: Units<'a>,
    ids: CallIds,
    /// Images of the results since the last answer, as parts, for models whose results hold text alone.
    shown: Vec<String>,
    /// Whose content is open; none before the first.
    open: Option<Role>,
}

impl Writer<'_> {
    fn tools(&mut self, tools: &[ToolSpec]) {
        if tools.is_empty() {
            return;
        }
        self.body.push_str("\"tools\":[{\"functionDeclarations\":[");
        for (place, tool) in tools.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            // `parameters` would take a part of OpenAPI's schemas alone.
            self.unit(&format!(
                "{comma}{{\"name\":{},\"description\":{},\"parametersJsonSchema\":{}}}",
                quoted(&tool.name),
                quoted(&tool.description),
                schema(&tool.schema),
            ));
        }
        self.body.push_str("]}],");
    }

    fn system(&mut self, text: &str) {
        if !text.trim().is_empty() {
            self.unit(&format!("\"systemInstruction\":{{\"parts\":[{{\"text\":{}}}]}},", quoted(text)));
        }
    }

    fn user(&mut self, text: &str, pictures: &[Picture<'_>]) {
        self.show();
        if !text.trim().is_empty() {
            self.part(Role::User, &text_part(text));
        }
        for picture in pictures {
            let part = self.picture(picture).unwrap_or_else(|| text_part(&picture.placeholder()));
            self.part(Role::User, &part);
        }
    }

    /// The images of results stand behind all results.
    fn show(&mut self) {
        for part in std::mem::take(&mut self.shown) {
            self.part(Role::User, &part);
        }
    }

    /// An image as a part, if this model looks at it.
    fn picture(&self, picture: &Picture<'_>) -> Option<String> {
        let media_type = picture.image.media_type.as_str();
        let data = picture.data.as_ref().filter(|_| self.takes_images && IMAGES.contains(&media_type))?;
        Some(format!("{{\"inlineData\":{{\"mimeType\":{},\"data\":\"{data}\"}}}}", quoted(media_type)))
    }

    fn answer(&mut self, model: &str, blocks: &[Block<'_>]) {
        self.show();
        self.ids.begin_answer();
        for part in self.parts(model == self.model, blocks) {
            self.part(Role::Model, &part);
        }
    }

    /// The parts of an answer that go back.
    fn parts(&mut self, is_same_model: bool, blocks: &[Block<'_>]) -> Vec<String> {
        let mut parts = Vec::new();
        let mut any_call = false;
        let mut text_before = None;
        for block in blocks {
            let before = text_before.take();
            match block {
                Block::Text(text) if text.trim().is_empty() => {}
                Block::Text(text) => {
                    parts.push(text_part(text));
                    text_before = Some(text.as_ref());
                }
                Block::Reasoning { opaque: Some(opaque), .. } | Block::Opaque(opaque) if is_same_model => {
                    let carrier = Carrier::of(opaque);
                    if let (Some(Carrier::Signature(_)), Some(_)) = (&carrier, before) {
                        parts.pop();
                    }
                    parts.extend(carrier.map(|carrier| carrier.into_part(before)));
                }
                Block::Call { id, name, arguments, opaque } => {
                    let own = opaque.filter(|_| is_same_model).and_then(signature);
                    let must_sign =
                        !std::mem::replace(&mut any_call, true) && self.generation.wants_signatures();
                    let id = self.ids.assign(id);
                    parts.push(call(&id, name, arguments, own.or(must_sign.then_some(NO_SIGNATURE))));
                }
                // Thoughts without a signature, and what another model wrote.
                Block::Reasoning { .. } | Block::Opaque(_) => {}
            }
        }
        parts
    }

    fn result(&mut self, call: u32, name: &str, text: &str, pictures: &[Picture<'_>], is_error: bool) {
        let Some(id) = self.ids.of_call(call).map(quoted) else { return };
        let mut text = Cow::Borrowed(text);
        let mut images = Vec::new();
        for picture in pictures {
            match self.picture(picture) {
                Some(part) => images.push(part),
                None => text.to_mut().push_str(&format!("\n{}", picture.placeholder())),
            }
        }
        let mut nested = String::new();
        if self.generation.takes_images_in_results() && !images.is_empty() {
            nested = format!(",\"parts\":[{}]", images.join(","));
        } else {
            self.shown.append(&mut images);
        }
        let (name, text) = (quoted(&callable_name(name)), quoted(&text));
        let field = if is_error { "error" } else { "output" };
        self.part(
            Role::User,
            &format!(
                "{{\"functionResponse\":{{\"id\":{id},\"name\":{name},\"response\":{{\"{field}\":{text}}}{nested}}}}}"
            ),
        );
    }

    /// Adds a part to the role's content, which is begun where it is not open.
    fn part(&mut self, role: Role, json: &str) {
        if self.open.is_none() && role == Role::Model {
            self.part(Role::User, &text_part(OPENING));
        }
        let start = match (self.open.replace(role), role) {
            (Some(open), role) if open == role => ",",
            (None, _) => "{\"role\":\"user\",\"parts\":[",
            (Some(Role::User), _) => ",{\"role\":\"model\",\"parts\":[",
            (Some(Role::Model), _) => ",{\"role\":\"user\",\"parts\":[",
        };
        if start.starts_with(",{") {
            self.body.push_str("]}");
        }
        self.unit(&format!("{start}{json}"));
    }

    fn unit(&mut self, json: &str) {
        self.units.push(json.as_bytes());
        self.body.push_str(json);
    }

    fn finish(mut self) -> Encoded {
        self.show();
        self.body.push_str(if self.open.is_some() { "]}]}" } else { "]}" });
        Encoded { mark: self.units.finish(self.body.len()), body: self.body.into_bytes() }
    }
}

/// What an opaque value of an answer stands for.
enum Carrier<'a> {
    /// A part that goes back as it came.
    Part(Cow<'a, str>),
    /// The signature of the text before.
    Signature(&'a str),
}

impl<'a> Carrier<'a> {
    /// Reads an opaque value; none where another wire format wrote it.
    fn of(opaque: &'a str) -> Option<Self> {
        let fields = Fields::of(opaque)?;
        let signature = signature(opaque);
        let is_data = |name: &str| {
            matches!(
                name,
                "executableCode"
                    | "codeExecutionResult"
                    | "inlineData"
                    | "fileData"
                    | "toolCall"
                    | "toolResponse"
            )
        };
        let is_text = fields.get("text").is_some_and(|text| text.starts_with('"'));
        if fields.iter().any(|(name, _)| is_data(name)) || (is_text && signature.is_some()) {
            return Some(Carrier::Part(clean_surrogates(opaque)));
        }
        signature.map(Carrier::Signature)
    }

    /// The part that goes back. A signature goes to the text before, or stands with an empty one.
    fn into_part(self, before: Option<&str>) -> String {
        match self {
            Carrier::Part(part) => part.into_owned(),
            Carrier::Signature(signature) => signed_text(before.unwrap_or_default(), signature),
        }
    }
}

/// The JSON text of the signature in an opaque value.
fn signature(opaque: &str) -> Option<&str> {
    Fields::of(opaque)?.get("thoughtSignature").filter(|signature| signature.starts_with('"'))
}

fn text_part(text: &str) -> String {
    format!("{{\"text\":{}}}", quoted(text))
}

fn signed_text(text: &str, signature: &str) -> String {
    format!("{{\"text\":{},\"thoughtSignature\":{signature}}}", quoted(text))
}

fn call(id: &str, name: &str, arguments: &str, signature: Option<&str>) -> String {
    let signature =
        signature.map(|signature| format!(",\"thoughtSignature\":{signature}")).unwrap_or_default();
    format!(
        "{{\"functionCall\":{{\"id\":{},\"name\":{},\"args\":{arguments}}}{signature}}}",
        quoted(id),
        quoted(&callable_name(name)),
    )
}

/// A tool's name as Gemini takes it: it begins with a letter or an underscore
/// (<https://docs.cloud.google.com/vertex-ai/generative-ai/docs/reference/rpc/google.cloud.aiplatform.v1#functiondeclaration>).
fn callable_name(name: &str) -> Cow<'_, str> {
    let name = sendable_name(name);
    if name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        return name;
    }
    Cow::Owned(format!("_{}", &name[..name.len().min(63)]))
}

#[cfg(test)]
mod tests;
