//! What the user wrote, in files, in the environment and on the command line, as one set of values.
//!
//! Four layers, each over the one before: the user's `config.toml`, the project's `.mainstay/config.toml`, variables
//! of the environment, flags. A value remembers where it was said. The project's file comes with whatever repository
//! one happens to stand in, so it may narrow what the user allows but never widen it ([`project`]). What nobody
//! said stays unsaid: [`crate::settings`] resolves these values, with [`defaults`], to what the program works with.
//!
//! `docs/configuration.md` is the reference for users; a test holds it and the known keys together.

pub(crate) mod places;
pub(crate) mod document;
pub(crate) mod base_url;
pub(crate) mod builtin;
pub(crate) mod prices;
pub(crate) mod defaults;
mod environment;
mod file;
mod project;
mod rules;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use mainstay_agent::model::TextCalls;
use mainstay_agent::permission::Rule;

use crate::error::CliError;
use base_url::BaseUrl;
use document::{Document, Origin, Placed};
use places::{Surroundings, repository_root};

/// The tools that this version has, in the order in which they are advertised.
pub(crate) const TOOLS: [&str; 7] = ["read", "write", "edit", "glob", "grep", "bash", "todo_write"];

/// Which model: `PROVIDER/NAME`, or `script:FILE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ModelName {
    /// A file with answers.
    Script(PathBuf),
    /// A model of a provider.
    Of {
        /// The provider's name in the configuration.
        provider: String,
        /// The model's name as the provider knows it; may hold slashes.
        model: String,
    },
}

impl FromStr for ModelName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(file) = text.strip_prefix("script:") {
            return match file.is_empty() {
                true => Err("must name a file after script:".to_owned()),
                false => Ok(ModelName::Script(PathBuf::from(file))),
            };
        }
        match text.trim().split_once('/') {
            Some((provider, model)) if !provider.is_empty() && !model.is_empty() => {
                Ok(ModelName::Of { provider: provider.to_owned(), model: model.to_owned() })
            }
            _ => Err("must be PROVIDER/NAME, such as ollama/qwen3-coder, or script:FILE".to_owned()),
        }
    }
}

impl fmt::Display for ModelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ModelName::Script(file) => write!(f, "script:{}", file.display()),
            ModelName::Of { provider, model } => write!(f, "{provider}/{model}"),
        }
    }
}

/// What needs the user's consent, from the strictest to the freest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum Approve {
    /// Edits and commands ask
    Ask,
    /// Edits in the workspace pass, commands ask
    Edits,
    /// Edits pass, commands pass inside an enforced sandbox and else ask
    Auto,
    /// Everything passes
    All,
}

impl Approve {
    /// All of them by name.
    pub(crate) const WORDS: [(&'static str, Approve); 4] =
        [("ask", Approve::Ask), ("edits", Approve::Edits), ("auto", Approve::Auto), ("all", Approve::All)];

    /// The name used in the configuration.
    pub(crate) fn as_str(self) -> &'static str {
        word_of(&Self::WORDS, self)
    }
}

/// What holds commands, from the strictest to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum SandboxChoice {
    /// Commands change nothing but their own temporary directory
    ReadOnly,
    /// They change the workspace too, and reach no network
    WorkspaceWrite,
    /// Nothing holds them
    Off,
}

impl SandboxChoice {
    /// All of them by name.
    pub(crate) const WORDS: [(&'static str, SandboxChoice); 3] = [
        ("read-only", SandboxChoice::ReadOnly),
        ("workspace-write", SandboxChoice::WorkspaceWrite),
        ("off", SandboxChoice::Off),
    ];

    /// The name used in the configuration.
    pub(crate) fn as_str(self) -> &'static str {
        word_of(&Self::WORDS, self)
    }
}

/// When the log is synced to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durability {
    /// Before the first side effect of a step and at the end of a turn.
    Always,
    /// When the operating system sees fit.
    Relaxed,
}

impl Durability {
    /// Both of them by name.
    pub(crate) const WORDS: [(&'static str, Durability); 2] =
        [("always", Durability::Always), ("relaxed", Durability::Relaxed)];
}

/// A wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Api {
    /// Anthropic Messages.
    Anthropic,
    /// OpenAI Responses.
    OpenaiResponses,
    /// OpenAI Chat Completions and the many servers that imitate it.
    OpenaiChat,
    /// Google Gemini.
    Gemini,
}

impl Api {
    /// All of them by name.
    pub(crate) const WORDS: [(&'static str, Api); 4] = [
        ("anthropic", Api::Anthropic),
        ("openai-responses", Api::OpenaiResponses),
        ("openai-chat", Api::OpenaiChat),
        ("gemini", Api::Gemini),
    ];
}

fn word_of<T: Copy + PartialEq>(words: &[(&'static str, T)], of: T) -> &'static str {
    words.iter().find(|(_, value)| *value == of).map_or("", |(word, _)| word)
}

/// A text that never shows in debug output: a key, or a header's value.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

impl Secret {
    /// Hides a text.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Secret(text.into())
    }

    /// The text, for the one place that sends it.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// What one layer says, or several merged ones. What it does not say is `None`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layer {
    /// `model`.
    pub(crate) model: Option<Placed<ModelName>>,
    /// `approve`.
    pub(crate) approve: Option<Placed<Approve>>,
    /// `durability`.
    pub(crate) durability: Option<Placed<Durability>>,
    /// `max_steps`, from 1.
    pub(crate) max_steps: Option<Placed<u32>>,
    /// `tools`, each one of [`TOOLS`].
    pub(crate) tools: Option<Placed<Vec<&'static str>>>,
    /// `plan.tool`.
    pub(crate) plan_tool: Option<Placed<bool>>,
    /// `plan.reminder_after`; 0 is never.
    pub(crate) reminder_after: Option<Placed<u32>>,
    /// `plan.reminder_repeat`; 0 is never.
    pub(crate) reminder_repeat: Option<Placed<u32>>,
    /// `rules`, of all layers.
    pub(crate) rules: Vec<Placed<Rule>>,
    /// `protected`, of all layers.
    pub(crate) protected: Vec<String>,
    /// `sandbox.mode`.
    pub(crate) sandbox: Option<Placed<SandboxChoice>>,
    /// `sandbox.writable`.
    pub(crate) writable: Option<Placed<Vec<PathBuf>>>,
    /// `ca_certificates`: a file in PEM, relative to where it was said.
    pub(crate) ca_certificates: Option<Placed<PathBuf>>,
    /// `--effort`, over that of the model.
    pub(crate) effort: Option<String>,
    /// `providers`, by name. Only the user's file has them.
    pub(crate) providers: BTreeMap<String, ProviderLayer>,
}

impl Layer {
    /// This layer over another one.
    fn over(self, lower: Layer) -> Layer {
        Layer {
            model: self.model.or(lower.model),
            approve: self.approve.or(lower.approve),
            durability: self.durability.or(lower.durability),
            max_steps: self.max_steps.or(lower.max_steps),
            tools: self.tools.or(lower.tools),
            plan_tool: self.plan_tool.or(lower.plan_tool),
            reminder_after: self.reminder_after.or(lower.reminder_after),
            reminder_repeat: self.reminder_repeat.or(lower.reminder_repeat),
            rules: [self.rules, lower.rules].concat(),
            protected: [self.protected, lower.protected].concat(),
            sandbox: self.sandbox.or(lower.sandbox),
            writable: self.writable.or(lower.writable),
            ca_certificates: self.ca_certificates.or(lower.ca_certificates),
            effort: self.effort.or(lower.effort),
            providers: if self.providers.is_empty() { lower.providers } else { self.providers },
        }
    }
}

/// `[providers.NAME]`.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProviderLayer {
    /// `api`.
    pub(crate) api: Option<Api>,
    /// `base_url`.
    pub(crate) base_url: Option<BaseUrl>,
    /// `api_key_env`; an empty name says that no key is wanted.
    pub(crate) api_key_env: Option<String>,
    /// `headers`, by name in lower case.
    pub(crate) headers: BTreeMap<String, Secret>,
    /// `first_token_timeout` in seconds; 0 is none.
    pub(crate) first_token_timeout: Option<u64>,
    /// `idle_timeout` in seconds; 0 is none.
    pub(crate) idle_timeout: Option<u64>,
    /// `ca_certificates`, in place of the one at the top.
    pub(crate) ca_certificates: Option<Placed<PathBuf>>,
    /// `models`, by name.
    pub(crate) models: BTreeMap<String, ModelLayer>,
}

/// `[providers.NAME.models."MODEL"]`.
#[derive(Clone, Debug, Default)]
pub(crate) struct ModelLayer {
    /// `context_window` in tokens, at least [`defaults::MIN_WINDOW`].
    pub(crate) context_window: Option<u64>,
    /// `max_output` in tokens.
    pub(crate) max_output: Option<u64>,
    /// `effort`, as the provider names it.
    pub(crate) effort: Option<String>,
    /// `temperature`.
    pub(crate) temperature: Option<f64>,
    /// `images`.
    pub(crate) images: Option<bool>,
    /// `alternate_roles`.
    pub(crate) alternate_roles: Option<bool>,
    /// `text_calls`.
    pub(crate) text_calls: Option<TextCalls>,
    /// `extra_body`.
    pub(crate) extra_body: serde_json::Map<String, serde_json::Value>,
    /// `input_price` and the like.
    pub(crate) prices: PriceLayer,
}

/// What a model costs, in US dollars for a million tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct PriceLayer {
    /// `input_price`.
    pub(crate) input: Option<f64>,
    /// `cached_price`.
    pub(crate) cached: Option<f64>,
    /// `cache_write_price`.
    pub(crate) cache_write: Option<f64>,
    /// `output_price`.
    pub(crate) output: Option<f64>,
}

/// What the command line says about configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Overrides {
    /// `--model`.
    pub(crate) model: Option<ModelName>,
    /// `--approve`.
    pub(crate) approve: Option<Approve>,
    /// `--sandbox`.
    pub(crate) sandbox: Option<SandboxChoice>,
    /// `--max-steps`.
    pub(crate) max_steps: Option<u32>,
    /// `--effort`.
    pub(crate) effort: Option<String>,
}

impl Overrides {
    fn layer(self) -> Layer {
        Layer {
            model: said(self.model, "--model"),
            approve: said(self.approve, "--approve"),
            sandbox: said(self.sandbox, "--sandbox"),
            max_steps: said(self.max_steps, "--max-steps"),
            effort: self.effort,
            ..Layer::default()
        }
    }
}

fn said<T>(value: Option<T>, flag: &'static str) -> Option<Placed<T>> {
    value.map(|value| Placed { value, origin: Origin::Flag(flag) })
}

/// All layers, merged.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// What they say together.
    pub(crate) values: Layer,
    /// The user's file, whether or not it exists; none without a home directory.
    pub(crate) user_file: Option<PathBuf>,
}

impl Config {
    /// Reads and merges all layers. Fails, with exit code 78, at the first thing that is wrong in any of them: what is
    /// misspelt is never ignored.
    pub(crate) fn load(
        surroundings: &Surroundings,
        workspace: &Path,
        overrides: Overrides,
    ) -> Result<Self, CliError> {
        let user_file = surroundings.config_home().map(|home| home.join("config.toml"));
        let user = match user_file.as_deref().map(Document::open).transpose()?.flatten() {
            Some(document) => file::read(&document)?,
            None => Layer::default(),
        };
        let stated = overrides.layer().over(environment::read(&surroundings.environment)?);
        let project = match Document::open(&project_file(workspace))? {
            Some(document) => project::read(&document, &user, stated.model.is_some())?,
            None => Layer::default(),
        };
        Ok(Config { values: stated.over(project).over(user), user_file })
    }
}

/// Where the project's file lies: at the repository's root, or in the workspace where there is no repository.
fn project_file(workspace: &Path) -> PathBuf {
    repository_root(workspace).unwrap_or(workspace).join(".mainstay/config.toml")
}

#[cfg(test)]
mod tests;
