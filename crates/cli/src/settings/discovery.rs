//! What to say where no model is configured: what is at hand, and the line to paste.
//!
//! Looks at the names of variables, never at their values, and asks the three usual local servers which models they
//! have.

use std::collections::BTreeMap;
use std::time::Duration;

use super::servers::{self, LocalServer};
use crate::config::Config;
use crate::config::builtin::BUILT_IN;
use crate::config::places::Environment;
use crate::error::CliError;

/// How long all local servers together may take to answer.
const PATIENCE: Duration = Duration::from_millis(200);

/// The error for a run without a model, with what is at hand on this machine.
pub(super) fn no_model(config: &Config, environment: &Environment) -> CliError {
    advise(config, environment, &servers::find(config, PATIENCE))
}

/// The error for a run without a model, given which servers answer.
pub(super) fn advise(config: &Config, environment: &Environment, servers: &[LocalServer]) -> CliError {
    let file = config
        .user_file
        .as_ref()
        .map_or_else(|| "mainstay/config.toml in $XDG_CONFIG_HOME".to_owned(), |f| f.display().to_string());
    let keyed: Vec<(&str, &str)> = keys(config)
        .into_iter()
        .filter(|(_, variable)| environment.get(variable).is_some_and(|value| !value.is_empty()))
        .collect();
    let example =
        |name: &str| BUILT_IN.iter().find(|known| known.name == name).map_or("NAME", |known| known.example);
    let line = match (servers.iter().find(|server| !server.models.is_empty()), keyed.first()) {
        (Some(server), _) => format!("{}/{}", server.provider, server.models[0]),
        (None, Some((provider, _))) => format!("{provider}/{}", example(provider)),
        (None, None) => match servers.first() {
            Some(server) => format!("{}/NAME", server.provider),
            None => "ollama/NAME".to_owned(),
        },
    };
    CliError::configuration("no model is configured")
        .hint(format!(
            "API keys in the environment: {}",
            listed(keyed.iter().map(|(provider, variable)| format!("{variable} ({provider})")))
        ))
        .hint(format!("servers on this machine: {}", listed(servers.iter().map(LocalServer::describe))))
        .hint(format!("put this line at the top of {file}:"))
        .hint(format!("    model = {line:?}"))
        .hint("or say it for one run: mainstay --model PROVIDER/NAME, mainstay exec --model PROVIDER/NAME \"…\"")
        .hint("to see it work without a model: mainstay demo")
}

/// The providers that want a key, with the variable that holds it: built-in ones first.
fn keys(config: &Config) -> Vec<(&str, &str)> {
    let own: BTreeMap<&str, &str> = config
        .values
        .providers
        .iter()
        .filter_map(|(name, own)| Some((name.as_str(), own.api_key_env.as_deref()?)))
        .collect();
    let known = BUILT_IN.iter().filter_map(|known| {
        let variable = own.get(known.name).copied().or(known.api_key_env)?;
        Some((known.name, variable))
    });
    let others = own.iter().filter(|(name, _)| !BUILT_IN.iter().any(|known| known.name == **name));
    known
        .chain(others.map(|(name, variable)| (*name, *variable)))
        .filter(|(_, variable)| !variable.is_empty())
        .collect()
}

impl LocalServer {
    fn describe(&self) -> String {
        let models = match self.models.as_slice() {
            [] => String::new(),
            few if few.len() <= 3 => format!(": {}", few.join(", ")),
            many => format!(": {} and {} more", many[..3].join(", "), many.len() - 3),
        };
        format!("{} at {}{models}", self.provider, self.address)
    }
}

fn listed(items: impl Iterator<Item = String>) -> String {
    let items: Vec<String> = items.collect();
    if items.is_empty() { "none found".to_owned() } else { items.join("; ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ProviderLayer;

    fn config() -> Config {
        Config { values: Default::default(), user_file: Some("/home/me/.config/mainstay/config.toml".into()) }
    }

    #[test]
    fn nothing_at_hand() {
        insta::assert_snapshot!(advise(&config(), &Environment::default(), &[]), @r#"
        error: no model is configured
          API keys in the environment: none found
          servers on this machine: none found
          put this line at the top of /home/me/.config/mainstay/config.toml:
              model = "ollama/NAME"
          or say it for one run: mainstay --model PROVIDER/NAME, mainstay exec --model PROVIDER/NAME "…"
          to see it work without a model: mainstay demo
        "#);
    }

    #[test]
    fn keys_are_named_and_never_shown() {
        let environment: Environment =
            [("ANTHROPIC_API_KEY", "value-a"), ("GROQ_API_KEY", "value-b"), ("XAI_API_KEY", "")]
                .into_iter()
                .collect();
        let error = advise(&config(), &environment, &[]).to_string();
        assert!(!error.contains("value-"), "{error}");
        insta::assert_snapshot!(error, @r#"
        error: no model is configured
          API keys in the environment: ANTHROPIC_API_KEY (anthropic); GROQ_API_KEY (groq)
          servers on this machine: none found
          put this line at the top of /home/me/.config/mainstay/config.toml:
              model = "anthropic/claude-opus-5-5"
          or say it for one run: mainstay --model PROVIDER/NAME, mainstay exec --model PROVIDER/NAME "…"
          to see it work without a model: mainstay demo
        "#);
    }

    #[test]
    fn keys_of_providers_that_the_user_defined_count_too() {
        let mut config = config();
        for (name, variable) in [("hosted", "HOSTED_KEY"), ("groq", "")] {
            let provider =
                ProviderLayer { api_key_env: Some(variable.to_owned()), ..ProviderLayer::default() };
            config.values.providers.insert(name.to_owned(), provider);
        }
        let environment: Environment =
            [("HOSTED_KEY", "value-a"), ("GROQ_API_KEY", "value-b")].into_iter().collect();
        insta::assert_snapshot!(advise(&config, &environment, &[]), @r#"
        error: no model is configured
          API keys in the environment: HOSTED_KEY (hosted)
          servers on this machine: none found
          put this line at the top of /home/me/.config/mainstay/config.toml:
              model = "hosted/NAME"
          or say it for one run: mainstay --model PROVIDER/NAME, mainstay exec --model PROVIDER/NAME "…"
          to see it work without a model: mainstay demo
        "#);
    }

    #[test]
    fn a_local_server_with_models_gives_the_exact_line() {
        let models = ["qwen3-coder", "b", "c", "d"].map(str::to_owned).to_vec();
        let servers = [
            LocalServer {
                provider: "llamacpp".into(),
                address: "127.0.0.1:8080".into(),
                models: vec![],
                windows: BTreeMap::new(),
            },
            LocalServer {
                provider: "ollama".into(),
                address: "127.0.0.1:11434".into(),
                models,
                windows: BTreeMap::new(),
            },
        ];
        insta::assert_snapshot!(advise(&config(), &Environment::default(), &servers), @r#"
        error: no model is configured
          API keys in the environment: none found
          servers on this machine: llamacpp at 127.0.0.1:8080; ollama at 127.0.0.1:11434: qwen3-coder, b, c and 1 more
          put this line at the top of /home/me/.config/mainstay/config.toml:
              model = "ollama/qwen3-coder"
          or say it for one run: mainstay --model PROVIDER/NAME, mainstay exec --model PROVIDER/NAME "…"
          to see it work without a model: mainstay demo
        "#);
    }
}
