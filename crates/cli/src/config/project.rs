//! What a project's file may say.
//!
//! It comes with the repository, from whoever wrote that, and takes effect without being read by anyone. So it may
//! narrow what the user allows, and never widen it, nor choose where the user's text and keys go:
//!
//! - `approve` and `max_steps` at most as free as the user's own, `durability` never less safe, `tools` only ones the
//!   user has on offer;
//! - `model` only of a provider that the user's file defines or already uses, or of a built-in local server; never
//!   `script:`, which would let the repository play the model;
//! - `[[rules]]` that ask and deny, and `protected`: these add to the user's own, and none may allow anything;
//! - `[plan]` freely; `ca_certificates`, `[sandbox]` and `[providers]` not at all.

use std::fmt::Display;

use super::builtin::BuiltIn;
use super::document::{Document, Placed};
use super::{Approve, Durability, Layer, ModelName, TOOLS, defaults, file, rules};
use crate::error::CliError;

/// Reads the project's file and holds it against the user's. `model_is_stated` says that the environment or a flag
/// chooses the model, so that the project's choice has no effect and need not be judged.
pub(super) fn read(document: &Document, user: &Layer, model_is_stated: bool) -> Result<Layer, CliError> {
    let project = document.read(|table| {
        for section in ["sandbox", "providers"] {
            if let Some(found) = table.find(section) {
                return Err(found
                    .refuse(&format!("a project's file may not have [{section}]"))
                    .hint("move it to your own config.toml if you want it"));
            }
        }
        if let Some(found) = table.find("ca_certificates") {
            return Err(found
                .refuse("a project's file may not say which servers are trusted (ca_certificates)")
                .hint("move the line to your own config.toml if you want it"));
        }
        file::read_common(table)
    })?;
    if let Some(model) = project.model.as_ref().filter(|_| !model_is_stated) {
        judge_model(model, user)?;
    }
    judge_limits(&project, user)?;
    rules::judge_project(&project.rules)?;
    Ok(project)
}

fn judge_model(model: &Placed<ModelName>, user: &Layer) -> Result<(), CliError> {
    let ModelName::Of { provider, .. } = &model.value else {
        return Err(refusal(model, "model", "a script", "a script acts as the model and may call any tool"));
    };
    let uses_already = matches!(
        user.model.as_ref().map(|model| &model.value),
        Some(ModelName::Of { provider: used, .. }) if used == provider
    );
    let local = BuiltIn::find(provider).is_some_and(BuiltIn::is_local);
    if uses_already || local || user.providers.contains_key(provider) {
        return Ok(());
    }
    let why = format!("you have not chosen {provider:?} yourself, and what you work on would be sent there");
    Err(refusal(model, "model", &model.value, &why)
        .hint(format!("to allow it, add the line [providers.{provider}] to your own config.toml")))
}

fn judge_limits(project: &Layer, user: &Layer) -> Result<(), CliError> {
    if let Some(approve) = &project.approve {
        let own = user.approve.as_ref().map_or(defaults::APPROVE, |own| own.value);
        if approve.value > own {
            return Err(refusal(approve, "approve", approve.value.as_str(), &yours(Approve::as_str(own))));
        }
    }
    if let Some(steps) = &project.max_steps {
        let own = user.max_steps.as_ref().map_or(defaults::MAX_STEPS, |own| own.value);
        if steps.value > own {
            return Err(refusal(steps, "max_steps", steps.value, &yours(own)));
        }
    }
    if let Some(durability) = project.durability.as_ref().filter(|d| d.value == Durability::Relaxed) {
        return Err(refusal(durability, "durability", "relaxed", "how safe your log is, you decide"));
    }
    if let Some(tools) = &project.tools {
        let own = user.tools.as_ref().map_or(&TOOLS[..], |own| &own.value);
        if let Some(more) = tools.value.iter().find(|tool| !own.contains(tool)) {
            return Err(refusal(tools, "tools", more, "it is not among the tools that you allow"));
        }
    }
    Ok(())
}

fn yours(own: impl Display) -> String {
    format!("that is freer than yours, which is {own}")
}

fn refusal<T>(placed: &Placed<T>, key: &str, value: impl Display, why: &str) -> CliError {
    CliError::configuration(format!(
        "{}: a project's file may not set {key} to {value}: {why}",
        placed.origin
    ))
    .hint("take the line out there; what you want yourself belongs in your own config.toml or in a flag")
}
