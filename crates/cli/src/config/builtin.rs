//! The providers that need no `[providers.NAME]`, and the context windows of models that are widely used.
//!
//! Addresses, variables and sizes are those of each provider's own documentation, which is named beside them. A user's
//! `[providers.NAME]` of the same name overrides single keys. A window that is not known is assumed small: one that is
//! too small compacts early, one that is too large overflows.

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
    /// Whether all its models take images.
    pub(crate) images: bool,
    /// Whether user messages in a row must be merged into one. Off only where the provider's documentation allows
    /// any order.
    pub(crate) alternate_roles: bool,
    /// Whether call ids must be nine letters and digits.
    pub(crate) short_call_ids: bool,
    /// Whether Chat Completions wants the output limit as `max_completion_tokens`.
    pub(crate) completion_limit: bool,
    /// The context window of a model of which nothing is known, in tokens: what all current models of the provider
    /// have at least.
    pub(crate) context_window: u64,
    /// The context windows of model families; see [`BuiltIn::window`].
    pub(crate) windows: &'static [(&'static str, u64)],
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

    /// The context window of a model: that of the longest family name that its own begins with, where no word is cut
    /// (`gpt-5` is the family of `gpt-5.1-codex` and not of `gpt-50`).
    pub(crate) fn window(&self, model: &str) -> u64 {
        let is_of = |family: &str| {
            let rest = model.strip_prefix(family);
            rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_alphanumeric()))
        };
        let families = self.windows.iter().filter(|(family, _)| is_of(family));
        families.max_by_key(|(family, _)| family.len()).map_or(self.context_window, |(_, window)| *window)
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
    images: false,
    alternate_roles: true,
    short_call_ids: false,
    completion_limit: false,
    context_window: HOSTED_WINDOW,
    windows: &[],
    example: "NAME",
};

const LOCAL: BuiltIn = BuiltIn { context_window: UNKNOWN_WINDOW, ..HOSTED };

/// All of them, hosted ones first. `script` is a model without a provider and not among them.
pub(crate) const BUILT_IN: [BuiltIn; 11] = [
    // https://platform.claude.com/docs/en/api/overview; sizes: https://platform.claude.com/docs/en/about-claude/models/overview
    // and, for models that have one, https://platform.claude.com/docs/en/models/opus-5/overview and its neighbours.
    BuiltIn {
        name: "anthropic",
        api: Api::Anthropic,
        base_url: "https://api.anthropic.com/v1",
        api_key_env: Some("ANTHROPIC_API_KEY"),
        images: true,
        alternate_roles: false,
        context_window: 200_000,
        windows: &[("claude-opus-5", 1_000_000), ("claude-fable-5", 1_000_000)],
        example: "claude-opus-5-5",
        ..HOSTED
    },
    // https://platform.openai.com/docs/api-reference/responses; sizes: https://platform.openai.com/docs/models. Of the
    // 400,000 tokens of GPT-5, 128,000 are the answer's, so a prompt has 272,000. GPT-5.4 and 5.5 take more, at twice the
    // price for all of it: whoever wants that says so. `max_tokens` is deprecated for `max_completion_tokens`, and
    // reasoning models refuse it: https://platform.openai.com/docs/api-reference/chat/create.
    BuiltIn {
        name: "openai",
        api: Api::OpenaiResponses,
        base_url: "https://api.openai.com/v1",
        api_key_env: Some("OPENAI_API_KEY"),
        images: true,
        alternate_roles: false,
        completion_limit: true,
        windows: &[
            ("gpt-5", 272_000),
            ("gpt-5-chat", HOSTED_WINDOW),
            ("gpt-5.1-chat", HOSTED_WINDOW),
            ("gpt-5.2-chat", HOSTED_WINDOW),
            ("gpt-5.3-chat", HOSTED_WINDOW),
            ("gpt-5.3-codex-spark", HOSTED_WINDOW),
            ("gpt-4.1", 1_047_576),
            ("o3", 200_000),
            ("o4-mini", 200_000),
        ],
        example: "gpt-5.1",
        ..HOSTED
    },
    // https://ai.google.dev/gemini-api/docs/api-key; sizes: https://ai.google.dev/gemini-api/docs/models, input limit.
    BuiltIn {
        name: "gemini",
        api: Api::Gemini,
        base_url: "https://generativelanguage.googleapis.com/v1beta",
        api_key_env: Some("GEMINI_API_KEY"),
        images: true,
        alternate_roles: false,
        windows: &[
            ("gemini-2.0-flash", 1_048_576),
            ("gemini-2.5-pro", 1_048_576),
            ("gemini-2.5-flash", 1_048_576),
            ("gemini-2.5-flash-image", 32_768),
            ("gemini-3-flash-preview", 1_048_576),
            ("gemini-3-pro-preview", 1_048_576),
        ],
        example: "gemini-2.5-flash",
        ..HOSTED
    },
    // https://openrouter.ai/docs/quickstart. Its models are everybody's, so nothing is taken for granted.
    BuiltIn {
        name: "openrouter",
        base_url: "https://openrouter.ai/api/v1",
        api_key_env: Some("OPENROUTER_API_KEY"),
        example: "anthropic/claude-sonnet-4.5",
        ..HOSTED
    },
    // https://api-docs.deepseek.com; sizes: https://api-docs.deepseek.com/quick_start/pricing.
    BuiltIn {
        name: "deepseek",
        base_url: "https://api.deepseek.com/v1",
        api_key_env: Some("DEEPSEEK_API_KEY"),
        windows: &[("deepseek-v4", 1_000_000)],
        example: "deepseek-v4-flash",
        ..HOSTED
    },
    // https://console.groq.com/docs/openai; all models with tools have 131,072: https://console.groq.com/docs/models.
    BuiltIn {
        name: "groq",
        base_url: "https://api.groq.com/openai/v1",
        api_key_env: Some("GROQ_API_KEY"),
        example: "openai/gpt-oss-120b",
        ..HOSTED
    },
    // https://docs.mistral.ai/api; sizes: https://docs.mistral.ai/getting-started/models. It answers other ids with "Tool
    // call id was … but must be a-z, A-Z, 0-9, with a length of 9".
    BuiltIn {
        name: "mistral",
        base_url: "https://api.mistral.ai/v1",
        api_key_env: Some("MISTRAL_API_KEY"),
        short_call_ids: true,
        example: "devstral-medium-latest",
        ..HOSTED
    },
    // https://docs.x.ai/docs/api-reference; sizes: https://docs.x.ai/developers/models. Not all its models take images.
    BuiltIn {
        name: "xai",
        base_url: "https://api.x.ai/v1",
        api_key_env: Some("XAI_API_KEY"),
        alternate_roles: false,
        windows: &[("grok-4", 256_000), ("grok-4.5", 500_000), ("grok-4.7", 500_000)],
        example: "grok-4.7",
        ..HOSTED
    },
    // https://docs.ollama.com/api/openai-compatibility, https://docs.ollama.com/context-length
    BuiltIn { name: "ollama", base_url: "http://127.0.0.1:11434/v1", ..LOCAL },
    // https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md
    BuiltIn { name: "llamacpp", base_url: "http://127.0.0.1:8080/v1", ..LOCAL },
    // https://lmstudio.ai/docs/developer/openai-compat
    BuiltIn { name: "lmstudio", base_url: "http://127.0.0.1:1234/v1", ..LOCAL },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_that_of_the_nearest_family() {
        for (provider, model, window) in [
            ("anthropic", "claude-sonnet-4-5-20250929", 200_000),
            ("anthropic", "claude-opus-4-1", 200_000),
            ("anthropic", "claude-opus-5-5", 1_000_000),
            ("anthropic", "claude-opus-50", 200_000),
            ("openai", "gpt-5", 272_000),
            ("openai", "gpt-5.1-codex-max", 272_000),
            ("openai", "gpt-5-chat-latest", 128_000),
            ("openai", "gpt-50", 128_000),
            ("openai", "gpt-4o", 128_000),
            ("openai", "gpt-4.1-mini", 1_047_576),
            ("gemini", "gemini-2.5-flash-lite", 1_048_576),
            ("gemini", "gemini-2.5-flash-image", 32_768),
            ("gemini", "gemini-9", 128_000),
            ("xai", "grok-4-0709", 256_000),
            ("xai", "grok-4.7", 500_000),
            ("xai", "grok-3", 128_000),
            ("deepseek", "deepseek-v4-pro", 1_000_000),
            ("deepseek", "deepseek-chat", 128_000),
            ("openrouter", "openai/gpt-5.1", 128_000),
            ("ollama", "gpt-5", 32_768),
        ] {
            assert_eq!(BuiltIn::find(provider).unwrap().window(model), window, "{provider}/{model}");
        }
    }
}
