//! The model that answers, with all that is needed to ask it.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mainstay_agent::Prices;
use mainstay_agent::model::{TextCalls, is_proxy};
use mainstay_agent::session::entry::ModelChoice;
use mainstay_agent::tools::bounded;

use crate::config::base_url::BaseUrl;
use crate::config::builtin::{BUILT_IN, BuiltIn, UNKNOWN_WINDOW};
use crate::config::document::{Origin, Placed, nearest};
use crate::config::places::{Environment, Surroundings};
use crate::config::{
    Api, Config, ModelLayer, ModelName, PriceLayer, ProviderLayer, Secret, defaults, prices,
};
use crate::error::{self, CliError};

/// Which model answers.
#[derive(Clone, Debug)]
pub(crate) enum ModelConfig {
    /// A file with answers.
    Script {
        /// The file, absolute.
        file: PathBuf,
    },
    /// A model that a provider serves.
    Served(Box<ServedModel>),
    /// The model that a session's log names, where none is configured and none will be asked.
    Logged(ModelChoice),
}

/// A model that a provider serves.
#[derive(Clone, Debug)]
pub(crate) struct ServedModel {
    /// The provider's name in the configuration.
    pub(crate) provider: String,
    /// The model's name as the provider knows it.
    pub(crate) model: String,
    /// What the provider speaks.
    pub(crate) api: Api,
    /// Its address.
    pub(crate) base_url: BaseUrl,
    /// The key, where one is wanted: printable ASCII.
    pub(crate) key: Option<Secret>,
    /// Headers to send along, by name in lower case.
    pub(crate) headers: BTreeMap<String, Secret>,
    /// How long to wait for the first piece of an answer; none is for ever.
    pub(crate) first_token_timeout: Option<Duration>,
    /// How long to wait for each further piece; none is for ever.
    pub(crate) idle_timeout: Option<Duration>,
    /// The context window in tokens, at least 8,000.
    pub(crate) context_window: u64,
    /// The most tokens of an answer; none leaves it to the provider.
    pub(crate) max_output: Option<u64>,
    /// How hard to think, as the provider names it.
    pub(crate) effort: Option<String>,
    /// The sampling temperature; none leaves it to the provider.
    pub(crate) temperature: Option<f64>,
    /// Whether it takes images.
    pub(crate) images: bool,
    /// Whether user messages in a row are merged into one.
    pub(crate) alternate_roles: bool,
    /// Whether call ids are sent as nine letters and digits.
    pub(crate) short_call_ids: bool,
    /// Whether Chat Completions wants the output limit as `max_completion_tokens`.
    pub(crate) completion_limit: bool,
    /// Whether a call that the model writes as text is taken as a call.
    pub(crate) text_calls: TextCalls,
    /// Certificates in PEM that are trusted beside those of the system; may be empty.
    pub(crate) ca_certificates: Vec<u8>,
    /// Members to add to the body of a request.
    pub(crate) extra_body: serde_json::Map<String, serde_json::Value>,
    /// What it costs, where that is known.
    pub(crate) prices: Option<Prices>,
}

/// Resolves the model of a name. Fails with exit code 77 for a key that is missing or unusable, else 78.
pub(super) fn resolve(
    name: &Placed<ModelName>,
    config: &Config,
    surroundings: &Surroundings,
) -> Result<ModelConfig, CliError> {
    match &name.value {
        ModelName::Script(file) => Ok(ModelConfig::Script { file: surroundings.current_dir.join(file) }),
        ModelName::Of { provider, model } => {
            let provider = Provider::find(provider, name, config)?;
            let key = provider.key(&surroundings.environment)?;
            let ca_certificates = provider.certificates(config, &surroundings.current_dir)?;
            check_proxies(&provider.base_url, &surroundings.environment)?;
            let effort = config.values.effort.clone();
            let served = provider.serve(model, effort)?;
            Ok(ModelConfig::Served(Box::new(ServedModel { key, ca_certificates, ..served })))
        }
    }
}

/// The variables that name proxies, each in the two ways that count; the first that is set does.
const HTTP_PROXIES: [&str; 2] = ["HTTP_PROXY", "http_proxy"];
const HTTPS_PROXIES: [&str; 2] = ["HTTPS_PROXY", "https_proxy"];
const ALL_PROXIES: [&str; 2] = ["ALL_PROXY", "all_proxy"];

/// Refuses what names no proxy: requests to this address would go past the one that was meant. What it says may hold a
/// password.
fn check_proxies(base_url: &BaseUrl, environment: &Environment) -> Result<(), CliError> {
    if base_url.is_loopback() {
        return Ok(());
    }
    let is_https = base_url.to_string().starts_with("https:");
    let asked = [if is_https { HTTPS_PROXIES } else { HTTP_PROXIES }, ALL_PROXIES];
    let set = |name: &&str| environment.get(name).map(|value| (name.to_string(), value.to_owned()));
    let of_each = asked.iter().filter_map(|names| names.iter().find_map(set));
    for (name, value) in of_each {
        if !value.to_str().is_some_and(is_proxy) {
            let why = format!("the variable {name} does not name a proxy");
            return Err(CliError::configuration(why)
                .hint("write it as http://HOST:PORT, https://HOST:PORT or socks5://HOST:PORT")
                .hint(format!("or take it away: unset {name}")));
        }
    }
    Ok(())
}

/// A model as it would be asked, for whoever chooses one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Offered {
    /// Its window in tokens, as configured or assumed.
    pub(crate) context_window: u64,
    /// What it costs, where that is known.
    pub(crate) prices: Option<Prices>,
    /// Its key, where one is wanted.
    pub(crate) key: Option<KeyFound>,
}

/// Whether the variable of a key is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyFound {
    /// The variable.
    pub(crate) variable: String,
    /// Whether it holds something.
    pub(crate) is_set: bool,
}

/// Resolves what is known of a model, without its key. Fails with exit code 78 where it could not be asked.
pub(crate) fn offered(
    name: &Placed<ModelName>,
    config: &Config,
    environment: &Environment,
) -> Result<Option<Offered>, CliError> {
    let ModelName::Of { provider, model } = &name.value else { return Ok(None) };
    let provider = Provider::find(provider, name, config)?;
    let key = provider.key_variable().map(|variable| KeyFound {
        variable: variable.to_owned(),
        is_set: environment.get(variable).is_some_and(|value| !value.is_empty()),
    });
    let ServedModel { context_window, prices, .. } = provider.serve(model, None)?;
    Ok(Some(Offered { context_window, prices, key }))
}

/// A provider: what is built in, and what the user says over it.
struct Provider<'a> {
    name: &'a str,
    built_in: Option<&'static BuiltIn>,
    own: ProviderLayer,
    api: Api,
    base_url: BaseUrl,
    file: String,
}

impl<'a> Provider<'a> {
    fn find(name: &'a str, asked: &Placed<ModelName>, config: &Config) -> Result<Self, CliError> {
        let file = config
            .user_file
            .as_ref()
            .map_or_else(|| "config.toml".to_owned(), |file| file.display().to_string());
        let built_in = BuiltIn::find(name);
        let own = match (config.values.providers.get(name), built_in) {
            (Some(own), _) => own.clone(),
            (None, Some(_)) => ProviderLayer::default(),
            (None, None) => return Err(unknown(name, asked, config)),
        };
        let lacks = |key: &str, example: &str| {
            CliError::configuration(format!("[providers.{name}] in {file} lacks `{key}`"))
                .hint(format!("add a line such as: {key} = {example:?}"))
        };
        let api = own.api.or(built_in.map(|known| known.api)).ok_or_else(|| lacks("api", "openai-chat"))?;
        let base_url = match (&own.base_url, built_in) {
            (Some(url), _) => url.clone(),
            (None, Some(known)) => BaseUrl::parse(known.base_url).map_err(CliError::configuration)?,
            (None, None) => return Err(lacks("base_url", "http://127.0.0.1:8080/v1")),
        };
        Ok(Provider { name, built_in, own, api, base_url, file })
    }

    /// The model, without a key and without certificates. `effort` goes over what the configuration says.
    fn serve(self, model: &str, effort: Option<String>) -> Result<ServedModel, CliError> {
        let mut said = self.own.models.get(model).cloned().unwrap_or_default();
        let loopback = self.base_url.is_loopback();
        let silence = if loopback { None } else { Some(defaults::FIRST_TOKEN_TIMEOUT) };
        Ok(ServedModel {
            provider: self.name.to_owned(),
            model: model.to_owned(),
            api: self.api,
            key: None,
            ca_certificates: Vec::new(),
            first_token_timeout: limit(self.own.first_token_timeout, silence),
            idle_timeout: limit(self.own.idle_timeout, Some(defaults::IDLE_TIMEOUT)),
            context_window: said
                .context_window
                .unwrap_or_else(|| self.built_in.map_or(UNKNOWN_WINDOW, |known| known.window(model))),
            prices: self.prices(model, &said)?,
            max_output: said.max_output,
            effort: effort.or(said.effort.take()),
            temperature: said.temperature,
            images: said.images.unwrap_or(self.built_in.is_some_and(|known| known.images)),
            alternate_roles: said
                .alternate_roles
                .unwrap_or(self.built_in.is_none_or(|known| known.alternate_roles)),
            short_call_ids: self.built_in.is_some_and(|known| known.short_call_ids),
            completion_limit: self.built_in.is_some_and(|known| known.completion_limit),
            text_calls: said.text_calls.unwrap_or_default(),
            extra_body: said.extra_body,
            base_url: self.base_url,
            headers: self.own.headers,
        })
    }

    /// The variable of the key, if the provider wants one.
    fn key_variable(&self) -> Option<&str> {
        let known = self.built_in.and_then(|known| known.api_key_env);
        self.own.api_key_env.as_deref().or(known).filter(|name| !name.is_empty())
    }

    /// The key, if the provider wants one.
    fn key(&self, environment: &Environment) -> Result<Option<Secret>, CliError> {
        let Some(variable) = self.key_variable() else { return Ok(None) };
        let text = environment.get(variable).map(|value| value.to_string_lossy().trim().to_owned());
        let Some(key) = text.filter(|key| !key.is_empty()) else {
            return Err(self.keyless(variable));
        };
        if !key.chars().all(|c| c.is_ascii_graphic()) {
            let what = format!("the key in {variable} holds a space or another character that no key has");
            return Err(CliError::new(error::CREDENTIALS, what).hint("set the variable to the key alone"));
        }
        Ok(Some(Secret::new(key)))
    }

    fn keyless(&self, variable: &str) -> CliError {
        let what =
            format!("provider {:?} wants an API key, and the variable {variable} is not set", self.name);
        CliError::new(error::CREDENTIALS, what).hint(format!("set it: export {variable}=YOUR-KEY")).hint(
            format!(
                "or name another variable with api_key_env in [providers.{}] of {}",
                self.name, self.file
            ),
        )
    }

    /// What the model costs: as it is said, over what is known of the provider's own address.
    fn prices(&self, model: &str, said: &ModelLayer) -> Result<Option<Prices>, CliError> {
        let is_own =
            |known: &&BuiltIn| self.own.base_url.is_none() && self.own.api.is_none_or(|api| api == known.api);
        let known = self.built_in.filter(is_own).and_then(|known| prices::known(known.name, model));
        let PriceLayer { input, cached, cache_write, output } = said.prices;
        if said.prices == PriceLayer::default() {
            return Ok(known);
        }
        let (Some(input), Some(output)) =
            (input.or(known.map(|known| known.input)), output.or(known.map(|known| known.output)))
        else {
            let lacks = if input.is_none() { "input_price" } else { "output_price" };
            let table = format!("[providers.{}.models.{model:?}]", self.name);
            return Err(CliError::configuration(format!(
                "{table} in {} says a price and lacks `{lacks}`",
                self.file
            ))
            .hint(format!("add a line such as: {lacks} = 1.50, in US dollars for a million tokens")));
        };
        Ok(Some(Prices {
            cached: cached.or(known.and_then(|known| known.cached)),
            cache_write: cache_write.or(known.and_then(|known| known.cache_write)),
            ..Prices::new(input, output)
        }))
    }

    /// The text of the file that `ca_certificates` names, which is looked for from where it was said.
    fn certificates(&self, config: &Config, current_dir: &Path) -> Result<Vec<u8>, CliError> {
        let said = self.own.ca_certificates.as_ref().or(config.values.ca_certificates.as_ref());
        let Some(Placed { value, origin }) = said else { return Ok(Vec::new()) };
        let path = match origin {
            Origin::File(file, _) => file.parent().unwrap_or(current_dir).join(value),
            Origin::Variable(_) | Origin::Flag(_) => current_dir.join(value),
        };
        File::open(&path).and_then(|file| bounded::up_to(file, MOST_CERTIFICATES)).map_err(|cause| {
            CliError::configuration(format!(
                "{origin}: `ca_certificates`: cannot read {}: {cause}",
                path.display()
            ))
            .hint("name a file that holds one or more certificates in PEM")
        })
    }
}

/// The most bytes of a file with certificates: a system's whole store has about 200 KB.
const MOST_CERTIFICATES: usize = 4 << 20;

fn unknown(name: &str, asked: &Placed<ModelName>, config: &Config) -> CliError {
    let own = config.values.providers.keys().map(String::as_str);
    let names: Vec<&str> = own.chain(BUILT_IN.iter().map(|known| known.name)).collect();
    let mut error = CliError::configuration(format!(
        "{}: there is no provider {name:?} (model {})",
        asked.origin, asked.value
    ));
    if let Some(near) = nearest(name, &names) {
        error = error.hint(format!("did you mean {near:?}?"));
    }
    error.hint(format!("there are: {}", names.join(", "))).hint(format!(
        "define it with [providers.{name}] in {}, with api and base_url",
        config.user_file.as_ref().map_or_else(|| "config.toml".to_owned(), |file| file.display().to_string())
    ))
}

/// A timeout in seconds, where 0 is none.
fn limit(said: Option<u64>, unsaid: Option<Duration>) -> Option<Duration> {
    match said {
        Some(0) => None,
        Some(seconds) => Some(Duration::from_secs(seconds)),
        None => unsaid,
    }
}
