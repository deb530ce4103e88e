//! From a model's configuration to the model.

use std::path::Path;
use std::sync::Arc;

use mainstay_agent::model::{
    AnthropicModel, ChatModel, GeminiModel, Model, ModelSettings, ResponsesModel, ScriptModel, Secret,
    SettingsError,
};
use mainstay_agent::session::entry::ModelChoice;

use crate::config::Api;
use crate::error::CliError;
use crate::settings::{ModelConfig, ServedModel};

/// Makes the model. Nothing is sent yet.
///
/// # Errors
///
/// If a script cannot be read or the settings cannot be used (exit code 78).
pub(crate) fn model(config: &ModelConfig) -> Result<Arc<dyn Model>, CliError> {
    match config {
        ModelConfig::Script { file } => script(file),
        ModelConfig::Logged(choice) => {
            let like_logged = |settings| ModelSettings { effort: choice.effort.clone(), ..settings };
            unasked(choice, like_logged).ok_or_else(|| {
                CliError::configuration(format!("the session's model `{}` is not known here", choice.model))
                    .hint("say which to take: --model PROVIDER/NAME")
            })
        }
        ModelConfig::Served(served) => serve(served.api, settings(served)).map_err(|error| {
            let failed = CliError::configuration(error.to_string());
            match error {
                SettingsError::Certificates { .. } => failed
                    .hint("name a file that holds one or more certificates in PEM with `ca_certificates`"),
                _ => failed,
            }
        }),
    }
}

/// Makes a model that speaks a wire format. Nothing is sent yet.
pub(crate) fn serve(api: Api, settings: ModelSettings) -> Result<Arc<dyn Model>, SettingsError> {
    Ok(match api {
        Api::Anthropic => Arc::new(AnthropicModel::new(settings)?),
        Api::OpenaiResponses => Arc::new(ResponsesModel::new(settings)?),
        Api::OpenaiChat => Arc::new(ChatModel::new(settings)?),
        Api::Gemini => Arc::new(GeminiModel::new(settings)?),
    })
}

/// Makes a model of which a log tells, to encode and measure as it did; none if its name is none. It must not be asked: it
/// has no address and no key.
pub(crate) fn unasked(
    choice: &ModelChoice,
    shaped: impl FnOnce(ModelSettings) -> ModelSettings,
) -> Option<Arc<dyn Model>> {
    let Some((_, api)) = Api::WORDS.into_iter().find(|(word, _)| *word == choice.api) else {
        let script = format!("{{\"context_window\": {}, \"answers\": []}}", choice.context_window);
        return Some(Arc::new(ScriptModel::from_json(choice.model.as_str(), &script).ok()?));
    };
    let (provider, name) = choice.model.split_once('/')?;
    let settings = ModelSettings::new(provider, name, "http://127.0.0.1", choice.context_window);
    serve(api, shaped(settings)).ok()
}

fn script(file: &Path) -> Result<Arc<dyn Model>, CliError> {
    let model = ScriptModel::from_file(file).map_err(|error| {
        CliError::configuration(error.to_string())
            .hint("name a file with a list of answers; docs/script-model.md describes the format")
    })?;
    Ok(Arc::new(model))
}

fn settings(served: &ServedModel) -> ModelSettings {
    ModelSettings {
        key: served.key.as_ref().map(|key| Secret::new(key.expose())),
        headers: served
            .headers
            .iter()
            .map(|(name, value)| (name.clone(), Secret::new(value.expose())))
            .collect(),
        max_output: served.max_output,
        effort: served.effort.clone(),
        temperature: served.temperature,
        images: served.images,
        text_calls: served.text_calls,
        alternate_roles: served.alternate_roles,
        short_call_ids: served.short_call_ids,
        completion_limit: served.completion_limit,
        extra_body: served.extra_body.clone(),
        ca_certificates: served.ca_certificates.clone(),
        // To the model crate zero is no limit, and none is its own default.
        first_token_timeout: Some(served.first_token_timeout.unwrap_or_default()),
        idle_timeout: Some(served.idle_timeout.unwrap_or_default()),
        ..ModelSettings::new(
            &served.provider,
            &served.model,
            served.base_url.to_string(),
            served.context_window,
        )
    }
}
