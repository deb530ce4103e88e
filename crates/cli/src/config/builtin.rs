//! The providers that need no `[providers.NAME]`.
//!
//! Addresses and variables are those of each provider's own documentation. A user's `[providers.NAME]` of the same
//! name overrides single keys.

use super::Api;

/// A provider that is known without configuration.
#[derive(Debug)]
pub(crate) struct BuiltIn {
    /// What stands before the `/` of a model's name.
    pub(crate) name: &'static str,
    /// What it speaks.
    pub(crate) api: Api,
    /// Its address, with the version.
    pub(crate) base_url: &'static str,
    /// The variable that holds the key; none for a local server.
    pub(crate) api_key_env: Option<&'static str>,
    /// Whether user messages in a row must be merged into one. Off only where the provider's documentation allows
    /// any order.
    pub(crate) alternate_roles: bool,
    /// The context window of a model of which nothing is known, in tokens: what all current models of the provider
    /// have at least.
    pub(crate) context_window: u64,
    /// A model to name in advice.
    pub(crate) example: &'static str,
}

impl BuiltIn {
    /// The provider of a name.
    pub(crate) fn find(name: &str) -> Option<&'static BuiltIn> {
        BUILT_IN.iter().find(|provider| provider.name == name)
    }

    /// Whether it is a server on this machine, where no key is wanted and small models write calls as text.
    pub(crate) fn is_local(&self) -> bool {
        self.api_key_env.is_none()
    }
}

/// The context window that is assumed where neither the user nor the provider says anything.
pub(crate) const UNKNOWN_WINDOW: u64 = 32_768;

/// The context window that is assumed for hosted models.
pub(crate) const HOSTED_WINDOW: u64 = 128_000;

const HOSTED: BuiltIn = BuiltIn {
    name: "",
    api: Api::OpenaiChat,
    base_url: "",
    api_key_env: None,
    alternate_roles: true,
    context_window: HOSTED_WINDOW,
    example: "NAME",
};

const LOCAL: BuiltIn = BuiltIn { context_window: UNKNOWN_WINDOW, ..HOSTED };

/// All of them, hosted ones first. `script` is a model without a provider and not among them.
pub(crate) const BUILT_IN: [BuiltIn; 11] = [
    BuiltIn {
        name: "anthropic",
        api: Api::Anthropic,
        base_url: "https://api.anthropic.com/v1",
        api_key_env: Some("ANTHROPIC_API_KEY"),
        alternate_roles: false,
        ..HOSTED
    },
    BuiltIn {
        name: "openai",
        base_url: "https://api.openai.com/v1",
        api_key_env: Some("OPENAI_API_KEY"),
        alternate_roles: false,
        example: "gpt-5.1",
        ..HOSTED
    },
    BuiltIn {
        name: "gemini",
        api: Api::Gemini,
        base_url: "https://generativelanguage.googleapis.com/v1beta",
        api_key_env: Some("GEMINI_API_KEY"),
        alternate_roles: false,
        ..HOSTED
    },
    BuiltIn {
        name: "openrouter",
        base_url: "https://openrouter.ai/api/v1",
        api_key_env: Some("OPENROUTER_API_KEY"),
        example: "anthropic/claude-sonnet-4.5",
        ..HOSTED
    },
    BuiltIn {
        name: "deepseek",
        base_url: "https://api.deepseek.com/v1",
        api_key_env: Some("DEEPSEEK_API_KEY"),
        example: "deepseek-chat",
        ..HOSTED
    },
    BuiltIn {
        name: "groq",
        base_url: "https://api.groq.com/openai/v1",
        api_key_env: Some("GROQ_API_KEY"),
        example: "openai/gpt-oss-120b",
        ..HOSTED
    },
    BuiltIn {
        name: "mistral",
        base_url: "https://api.mistral.ai/v1",
        api_key_env: Some("MISTRAL_API_KEY"),
        example: "devstral-medium-latest",
        ..HOSTED
    },
    BuiltIn {
        name: "xai",
        base_url: "https://api.x.ai/v1",
        api_key_env: Some("XAI_API_KEY"),
        alternate_roles: false,
        example: "grok-4",
        ..HOSTED
    },
    BuiltIn { name: "ollama", base_url: "http://127.0.0.1:11434/v1", ..LOCAL },
    BuiltIn { name: "llamacpp", base_url: "http://127.0.0.1:8080/v1", ..LOCAL },
    BuiltIn { name: "lmstudio", base_url: "http://127.0.0.1:1234/v1", ..LOCAL },
];
