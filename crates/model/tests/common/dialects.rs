//! The wire formats side by side: how each writes a request, and what its provider demands of one.

use mainstay_model::{Encoded, ModelSettings};
use mainstay_session::request::Request;
use serde_json::Value;

use super::anthropic_rules::check_anthropic;
use super::rules_chat::{ChatRules, check_chat};
use super::rules_gemini::{check_gemini, check_gemini_3};
use super::rules_responses::check_responses;

pub const CHAT: &str = "local/small";
pub const ANTHROPIC: &str = "anthropic/claude-opus-5";
pub const RESPONSES: &str = "openai/gpt-5.1";
pub const GEMINI: &str = "gemini/gemini-3-pro";
const OLDER_GEMINI: &str = "gemini/gemini-2.5-pro";

/// A wire format with the settings that shape its requests.
pub struct Dialect {
    /// What it is called in a failure.
    pub name: &'static str,
    /// The model that is asked.
    pub model: &'static str,
    pub settings: ModelSettings,
    encode: fn(&str, &ModelSettings, &Request<'_>) -> Encoded,
    check: fn(&Value, &ModelSettings) -> Result<(), String>,
}

impl Dialect {
    /// Writes a request.
    pub fn encode(&self, request: &Request<'_>) -> Encoded {
        (self.encode)(self.model, &self.settings, request)
    }

    /// Says which rule of the provider's an encoded request breaks, if it breaks one.
    pub fn check(&self, encoded: &Encoded) -> Result<(), String> {
        let body = serde_json::from_slice(&encoded.body).map_err(|error| format!("no JSON: {error}"))?;
        (self.check)(&body, &self.settings).map_err(|why| format!("{}: {why}\n{body:#}", self.name))
    }
}

/// All formats, each with the settings that make a difference.
pub fn dialects() -> Vec<Dialect> {
    let settings = |model: &str| {
        let (provider, name) = model.split_once('/').unwrap();
        ModelSettings { images: true, ..ModelSettings::new(provider, name, "http://127.0.0.1:1/v1", 32_768) }
    };
    let chat = |name, settings| Dialect {
        name,
        model: CHAT,
        settings,
        encode: mainstay_model::chat::encode::encode,
        check: |body, settings| {
            let rules = ChatRules { alternate: settings.alternate_roles, nine: settings.short_call_ids };
            check_chat(body, rules)
        },
    };
    let responses = |name, settings| Dialect {
        name,
        model: RESPONSES,
        settings,
        encode: mainstay_model::responses::encode::encode,
        check: |body, _| check_responses(body),
    };
    let free = |model| ModelSettings { alternate_roles: false, ..settings(model) };
    vec![
        chat("chat, as OpenAI takes it", free(CHAT)),
        chat("chat, alternating", settings(CHAT)),
        chat("chat, as Mistral takes it", ModelSettings { short_call_ids: true, ..settings(CHAT) }),
        chat("chat, without images", ModelSettings { images: false, ..settings(CHAT) }),
        Dialect {
            name: "messages",
            model: ANTHROPIC,
            settings: settings(ANTHROPIC),
            encode: mainstay_model::anthropic::encode::encode,
            check: |body, _| check_anthropic(body),
        },
        responses("responses", free(RESPONSES)),
        responses("responses, alternating", settings(RESPONSES)),
        Dialect {
            name: "gemini",
            model: GEMINI,
            settings: settings(GEMINI),
            encode: mainstay_model::gemini::encode::encode,
            check: |body, _| check_gemini_3(body),
        },
        Dialect {
            name: "gemini, older",
            model: OLDER_GEMINI,
            settings: settings(OLDER_GEMINI),
            encode: mainstay_model::gemini::encode::encode,
            check: |body, _| check_gemini(body),
        },
    ]
}
