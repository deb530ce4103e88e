//! What the program works with, resolved once from what the user wrote.
//!
//! [`Settings::resolve`] is the border: above it are words of the user with their places, below it are values that
//! hold. Nothing below reads the environment, a configuration file or a flag again.

pub(crate) mod servers;
mod discovery;
mod model;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mainstay_agent::permission::Rules;
use mainstay_agent::session::entry::{Grant, ModelChoice};
use mainstay_agent::tools::sandbox::{Sandbox, SandboxMode};
pub(crate) use model::{KeyFound, ModelConfig, Offered, ServedModel, offered};

use crate::config::builtin::BUILT_IN;
use crate::config::document::{Origin, Placed};
use crate::config::places::{Surroundings, repository_root};
use crate::config::{
    Approve, Config, Durability, Layer, ModelName, Overrides, SandboxChoice, TOOLS, defaults,
};
use crate::error::CliError;
use crate::grants;
use crate::instructions::{self, Instructions};

/// What one run works with.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Where sessions are kept; absolute, perhaps not there yet.
    pub(crate) data_home: PathBuf,
    /// The workspace, absolute and resolved.
    pub(crate) workspace: PathBuf,
    /// Where the user's configuration and instructions lie; nowhere without a home directory.
    pub(crate) config_home: Option<PathBuf>,
    /// The model that answers.
    pub(crate) model: ModelConfig,
    /// What needs consent.
    pub(crate) approve: Approve,
    /// What holds commands; nothing if there is to be no sandbox.
    pub(crate) sandbox: Option<Sandbox>,
    /// Rules, protected paths, and what was granted for this workspace.
    pub(crate) rules: Arc<Rules>,
    /// The most steps of a turn, at least 1.
    pub(crate) max_steps: u32,
    /// When the log is synced.
    pub(crate) durability: Durability,
    /// How the session plan is used.
    pub(crate) plan: PlanSettings,
    /// The tools on offer, in order; `todo_write` is among them exactly if [`PlanSettings::tool`] is on.
    pub(crate) tools: Vec<&'static str>,
    /// Variables that hold keys of providers, which no command may see; sorted.
    pub(crate) hidden_variables: Vec<String>,
}

/// How the session plan is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlanSettings {
    /// Whether the model is offered the plan tool.
    pub(crate) tool: bool,
    /// After how many steps without a plan write the reminder comes; 0 is never.
    pub(crate) reminder_after: u32,
    /// After how many further steps it comes again; 0 is never.
    pub(crate) reminder_repeat: u32,
}

impl Settings {
    /// Reads all configuration and resolves it. `directory` is what `--cwd` says, `unsaid` what stands in where no model is
    /// configured.
    ///
    /// Fails with exit code 2 for a directory that cannot be used, 77 for a missing key, 78 for anything wrong in the
    /// configuration, and where there is no model.
    pub(crate) fn resolve(
        surroundings: &Surroundings,
        directory: Option<&Path>,
        overrides: Overrides,
        unsaid: Unsaid<'_>,
    ) -> Result<Self, CliError> {
        let workspace = surroundings.workspace(directory)?;
        let config = Config::load(surroundings, &workspace, overrides)?;
        let data_home = surroundings.data_home()?;
        let named = match (&config.values.model, &unsaid) {
            (Some(name), _) => Some(name.clone()),
            (None, Unsaid::Named(name)) => name().as_deref().map(asked).transpose()?,
            (None, Unsaid::Fails | Unsaid::Logged(_)) => None,
        };
        let model = match (named, unsaid) {
            (Some(name), _) => model::resolve(&name, &config, surroundings)?,
            (None, Unsaid::Logged(Some(logged))) => ModelConfig::Logged(logged),
            (None, _) => return Err(discovery::no_model(&config, &surroundings.environment)),
        };
        let values = config.values;
        let config_home = surroundings.config_home();
        let rules = rules(&values, grants::load(config_home.as_deref(), &workspace)?)?;
        let plan = plan_settings(&values);
        let sandbox = sandbox(&values, surroundings, &workspace, &data_home);
        Ok(Settings {
            data_home,
            workspace,
            config_home,
            model,
            sandbox,
            rules: Arc::new(rules),
            approve: values.approve.as_ref().map_or(defaults::APPROVE, |approve| approve.value),
            max_steps: values.max_steps.as_ref().map_or(defaults::MAX_STEPS, |steps| steps.value),
            durability: values.durability.as_ref().map_or(defaults::DURABILITY, |when| when.value),
            plan,
            tools: TOOLS.into_iter().filter(|tool| is_offered(tool, &values, plan)).collect(),
            hidden_variables: hidden_variables(&values),
        })
    }

    /// Reads the instruction files as they are now, for a model with this context window.
    pub(crate) fn instructions(&self, context_window: u64) -> Instructions {
        let root = repository_root(&self.workspace).unwrap_or(&self.workspace);
        instructions::load(self.config_home.as_deref(), root, &self.workspace, context_window)
    }
}

/// What stands in where no model is configured.
pub(crate) enum Unsaid<'a> {
    /// Nothing: then it is an error.
    Fails,
    /// What a log says of the model, for work that asks none.
    Logged(Option<ModelChoice>),
    /// The model of this name, as it is set up now.
    Named(&'a dyn Fn() -> Option<String>),
}

/// A model's name as if `--model` had said it.
pub(crate) fn asked(name: &str) -> Result<Placed<ModelName>, CliError> {
    let value = name.parse().map_err(CliError::configuration)?;
    Ok(Placed { value, origin: Origin::Flag("model") })
}

/// What is to hold the commands of a workspace.
pub(crate) fn sandbox(
    values: &Layer,
    surroundings: &Surroundings,
    workspace: &Path,
    data_home: &Path,
) -> Option<Sandbox> {
    let mode = match values.sandbox.as_ref().map_or(defaults::SANDBOX, |sandbox| sandbox.value) {
        SandboxChoice::ReadOnly => SandboxMode::ReadOnly,
        SandboxChoice::WorkspaceWrite => SandboxMode::WorkspaceWrite,
        SandboxChoice::Off => return None,
    };
    let added = values.writable.iter().flat_map(|writable| &writable.value);
    Some(Sandbox {
        writable: added.map(|path| surroundings.expand_home(path)).collect(),
        protected: values.protected.clone(),
        closed: surroundings.config_home().into_iter().chain([data_home.to_owned()]).collect(),
        ..Sandbox::new(mode, workspace.to_owned())
    })
}

fn rules(values: &Layer, grants: Vec<Grant>) -> Result<Rules, CliError> {
    let rules = values.rules.iter().map(|rule| rule.value.clone()).collect();
    Rules::new(rules, &values.protected, grants).map_err(|error| CliError::configuration(error.to_string()))
}

fn plan_settings(values: &Layer) -> PlanSettings {
    let is_listed = values.tools.as_ref().is_none_or(|tools| tools.value.contains(&"todo_write"));
    PlanSettings {
        tool: is_listed && values.plan_tool.as_ref().is_none_or(|tool| tool.value),
        reminder_after: values.reminder_after.as_ref().map_or(defaults::REMINDER_AFTER, |steps| steps.value),
        reminder_repeat: values.reminder_repeat.as_ref().map_or(0, |steps| steps.value),
    }
}

fn is_offered(tool: &str, values: &Layer, plan: PlanSettings) -> bool {
    match tool {
        "todo_write" => plan.tool,
        _ => values.tools.as_ref().is_none_or(|tools| tools.value.contains(&tool)),
    }
}

/// Every variable that may hold a key: of the providers that are known, and of those that the user defined, used or
/// not.
fn hidden_variables(values: &Layer) -> Vec<String> {
    let known = BUILT_IN.iter().filter_map(|provider| provider.api_key_env).map(str::to_owned);
    let own = values.providers.values().filter_map(|provider| provider.api_key_env.clone());
    let names: BTreeSet<String> = known.chain(own).filter(|name| !name.is_empty()).collect();
    names.into_iter().collect()
}

#[cfg(test)]
mod tests;
