//! What a model needs to know to be asked: the address, the key, the name, the limits.
//!
//! The values come from whoever read the configuration; nothing here reads files or the environment.

use std::fmt;
use std::time::Duration;

use reqwest::Url;
use serde_json::{Map, Value};

/// A value that must not be shown: a key. Its `Debug` text is a mask, and it has no `Display`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Takes a key.
    pub fn new(value: impl Into<String>) -> Self {
        Secret(value.into())
    }

    /// The key itself, to be sent and nothing else.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(***)")
    }
}

/// The settings of one model at one provider.
#[derive(Clone, Debug)]
pub struct ModelSettings {
    /// The provider's name in the configuration.
    pub provider: String,
    /// The model's name as the provider knows it.
    pub name: String,
    /// The address with the version, such as `http://127.0.0.1:8080/v1`; the wire format's path is added.
    pub base_url: String,
    /// The key, where the provider wants one.
    pub key: Option<Secret>,
    /// Further headers of each request. Their values count as secrets.
    pub headers: Vec<(String, Secret)>,
    /// The size of the context window in tokens.
    pub context_window: u64,
    /// The longest answer in tokens; the provider's default where absent.
    pub max_output: Option<u64>,
    /// How hard a reasoning model shall think, in the provider's words (`low`, `medium`, `high`).
    pub effort: Option<String>,
    /// The sampling temperature.
    pub temperature: Option<f64>,
    /// Whether the model takes images.
    pub images: bool,
    /// Whether user texts in a row become one message of several parts, since the server demands that roles alternate.
    pub alternate_roles: bool,
    /// What becomes of a call that the model wrote as text.
    pub text_calls: TextCalls,
    /// Whether call ids are sent as nine letters and digits, which Mistral demands.
    pub short_call_ids: bool,
    /// Whether the output limit is sent as `max_completion_tokens`, which OpenAI demands, and not as `max_tokens`.
    pub completion_limit: bool,
    /// Further fields of each request's body. They replace fields of the same name, and `null` leaves one out; `model`,
    /// `messages`, `tools` and `stream` cannot be replaced.
    pub extra_body: Map<String, Value>,
    /// Certificates in PEM that are trusted beside those of the system; may be empty.
    pub ca_certificates: Vec<u8>,
    /// How long the first content may take. By default 600 s, and no limit for a server on this machine; zero is no limit.
    pub first_token_timeout: Option<Duration>,
    /// How long a begun answer may pause. By default 120 s; zero is no limit. Pings and comments are no content.
    pub idle_timeout: Option<Duration>,
}

impl ModelSettings {
    /// Settings with defaults for everything that need not be said. Images are sent to the providers whose models all take
    /// them; roles alternate and the two spellings that only
    /// OpenAI and Mistral demand follow from those providers' names.
    pub fn new(
        provider: impl Into<String>,
        name: impl Into<String>,
        base_url: impl Into<String>,
        context_window: u64,
    ) -> Self {
        let provider = provider.into();
        ModelSettings {
            name: name.into(),
            base_url: base_url.into(),
            key: None,
            headers: Vec::new(),
            context_window,
            max_output: None,
            effort: None,
            temperature: None,
            images: matches!(provider.as_str(), "anthropic" | "openai" | "gemini"),
            alternate_roles: true,
            text_calls: TextCalls::Auto,
            short_call_ids: provider == "mistral",
            completion_limit: provider == "openai",
            extra_body: Map::new(),
            ca_certificates: Vec::new(),
            first_token_timeout: None,
            idle_timeout: None,
            provider,
        }
    }

    /// What becomes of a call that this model wrote as text.
    pub fn text_call_rule(&self) -> TextCallRule {
        match self.text_calls {
            TextCalls::On => TextCallRule::Take,
            TextCalls::Off => TextCallRule::Ignore,
            TextCalls::Auto if self.is_local() => TextCallRule::Take,
            TextCalls::Auto => TextCallRule::Report,
        }
    }

    /// Whether it is a server of those that run small models, which write calls as text.
    fn is_local(&self) -> bool {
        matches!(self.provider.as_str(), "ollama" | "llamacpp" | "lmstudio")
            || Url::parse(&self.base_url).is_ok_and(|url| is_loopback(&url))
    }
}

/// Whether an address is on this machine.
pub(crate) fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost"
        || host.ends_with(".localhost")
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Whether requests can go over what a variable such as `HTTPS_PROXY` says. Where they cannot, they would go without it.
pub fn is_proxy(value: &str) -> bool {
    let value = if value.contains("://") { value.to_owned() } else { format!("http://{value}") };
    let schemes = ["http", "https", "socks4", "socks4a", "socks5", "socks5h"];
    Url::parse(&value).is_ok_and(|url| schemes.contains(&url.scheme()) && url.has_host())
}

/// The setting `text_calls`: whether an answer that is nothing but a call written as text is a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TextCalls {
    /// It is with the providers `ollama`, `llamacpp` and `lmstudio` and at loopback addresses; elsewhere it is reported.
    #[default]
    Auto,
    /// It is, wherever the model runs.
    On,
    /// It is text and nothing else.
    Off,
}

/// What becomes of a call that a model wrote as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextCallRule {
    /// It is run where it is the whole answer and fits an offered tool, and reported otherwise.
    Take,
    /// It is reported and not run.
    Report,
    /// It is an answer like any other.
    Ignore,
}

/// The settings cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// The address is none.
    #[error("base_url `{url}` of provider `{provider}` is not an http or https address: {why}")]
    Address {
        /// Whose address it is.
        provider: String,
        /// The address, without user name and password.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// A header cannot be sent.
    #[error("header `{name}` of provider `{provider}` has a name or value that cannot be sent over HTTP")]
    Header {
        /// Whose header it is.
        provider: String,
        /// Its name.
        name: String,
    },
    /// The key cannot be sent.
    #[error(
        "the key of provider `{provider}` holds characters that cannot be sent over HTTP, such as a line break"
    )]
    Key {
        /// Whose key it is.
        provider: String,
    },
    /// What should be certificates is something else.
    #[error("the certificates of provider `{provider}` cannot be used: {why}")]
    Certificates {
        /// Whose they are.
        provider: String,
        /// What is wrong with them.
        why: String,
    },
    /// No HTTP client could be made.
    #[error("no HTTP client for provider `{provider}`: {why}")]
    Client {
        /// The provider.
        provider: String,
        /// What went wrong.
        why: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    /// I03: local servers pass calls on as text, and so does whatever runs on this machine.
    #[test]
    fn text_is_taken_for_calls_where_small_models_run() {
        let rule = |provider: &str, url: &str| ModelSettings::new(provider, "m", url, 8_000).text_call_rule();
        for (provider, url, expected) in [
            ("ollama", "http://192.0.2.1:11434/v1", TextCallRule::Take),
            ("llamacpp", "http://127.0.0.1:8080/v1", TextCallRule::Take),
            ("lmstudio", "https://example.invalid/v1", TextCallRule::Take),
            ("own", "http://localhost:8000/v1", TextCallRule::Take),
            ("own", "http://[::1]:8000/v1", TextCallRule::Take),
            ("own", "https://example.invalid/v1", TextCallRule::Report),
            ("openai", "https://example.invalid/v1", TextCallRule::Report),
            ("own", "no address", TextCallRule::Report),
        ] {
            assert_eq!(rule(provider, url), expected, "{provider} {url}");
        }
        let mut settings = ModelSettings::new("ollama", "m", "http://127.0.0.1:1/v1", 8_000);
        settings.text_calls = TextCalls::Off;
        assert_eq!(settings.text_call_rule(), TextCallRule::Ignore);
        settings = ModelSettings { text_calls: TextCalls::On, ..ModelSettings::new("x", "m", "", 8_000) };
        assert_eq!(settings.text_call_rule(), TextCallRule::Take);
    }

    #[test]
    fn a_secret_never_shows_in_debug_output() {
        let mut settings = ModelSettings::new("local", "m", "http://127.0.0.1:1/v1", 8_000);
        settings.key = Some(Secret::new("hush".repeat(3)));
        settings.headers.push(("x-org".to_owned(), Secret::new("hush".repeat(2))));
        assert!(!format!("{settings:?}").contains("hush"));
    }
}
