//! From a model's configuration to the model.

use std::path::Path;
use std::sync::Arc;

use mainstay_agent::model::{ChatModel, Model, ModelSettings, ScriptModel, Secret};

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
        ModelConfig::Served(served) => match served.api {
            Api::OpenaiChat => chat(served),
            Api::Anthropic | Api::OpenaiResponses | Api::Gemini => Err(CliError::configuration(format!(
                "provider `{}` speaks a format that is not spoken yet",
                served.provider
            ))
            .hint("use its OpenAI-compatible address with api = \"openai-chat\"")),
        },
    }
}

fn script(file: &Path) -> Result<Arc<dyn Model>, CliError> {
    let model = ScriptModel::from_file(file).map_err(|error| {
        CliError::configuration(error.to_string()).hint("docs/script-model.md describes the format")
    })?;
    Ok(Arc::new(model))
}

fn chat(served: &ServedModel) -> Result<Arc<dyn Model>, CliError> {
    let settings = ModelSettings {
        key: served.key.as_ref().map(|key| Secret::new(key.expose())),
        headers: served
            .headers
            .iter()
            .map(|(name, value)| (name.clone(), Secret::new(value.expose())))
            .collect(),
        max_output: served.max_output,
        effort: served.effort.clone(),
        temperature: served.temperature,
        alternate_roles: served.alternate_roles,
        extra_body: served.extra_body.clone(),
        // To the model crate zero is no limit, and none is its own default.
        first_token_timeout: Some(served.first_token_timeout.unwrap_or_default()),
        idle_timeout: Some(served.idle_timeout.unwrap_or_default()),
        ..ModelSettings::new(
            &served.provider,
            &served.model,
            served.base_url.to_string(),
            served.context_window,
        )
    };
    let model = ChatModel::new(settings).map_err(|error| CliError::configuration(error.to_string()))?;
    Ok(Arc::new(model))
}
