//! From settings to what an agent is given to work with.

use std::sync::Arc;

use mainstay_agent::session::attention::AttentionSettings;
use mainstay_agent::session::log::Durability;
use mainstay_agent::tools::{BuiltinOptions, builtin_tools_on};
use mainstay_agent::{Approve, CommandSandbox, Setup, SurroundingsNow};

use crate::config;
use crate::error::CliError;
use crate::output::say;
use crate::provider;
use crate::settings::{ModelConfig, Settings};

/// Builds the model and the tools, and lists the instruction files on stderr where a person is likely to read it.
pub(crate) fn setup(settings: &Settings, require_plan: Option<u32>) -> Result<Setup, CliError> {
    let (setup, notes) = prepared(settings, require_plan)?;
    notes.iter().for_each(|note| say(note));
    Ok(setup)
}

/// Builds the model and the tools. The lines are for the user: warnings, and the instruction files.
pub(crate) fn prepared(
    settings: &Settings,
    require_plan: Option<u32>,
) -> Result<(Setup, Vec<String>), CliError> {
    let model = provider::model(&settings.model)?;
    let context_window = model.context_window();
    let instructions = settings.instructions(context_window);
    let mut notes: Vec<String> =
        instructions.warnings.iter().map(|warning| format!("warning: {warning}")).collect();
    if !instructions.list.is_empty() {
        notes.push(format!("instructions: {}", instructions.list.join(", ")));
    }
    let options = BuiltinOptions {
        hidden_variables: settings.hidden_variables.clone(),
        supervisor: None,
        sandbox: settings.sandbox.clone(),
    };
    let supervisor = options.to_supervisor();
    let tools = builtin_tools_on(supervisor.clone());
    let again = settings.clone();
    let surroundings = move || SurroundingsNow {
        date: jiff::ZonedDateTime::now().date().to_string(),
        instructions: again.instructions(context_window).files,
    };
    let setup = Setup {
        data_home: settings.data_home.clone(),
        workspace: settings.workspace.clone(),
        model,
        tools: tools.into_iter().filter(|tool| settings.tools.contains(&tool.spec().name.as_str())).collect(),
        interceptors: Vec::new(),
        approve: approve(settings.approve),
        rules: settings.rules.clone(),
        sandbox: match &settings.sandbox {
            Some(_) => CommandSandbox::of(supervisor),
            None => CommandSandbox::None,
        },
        approver: None,
        attention: attention(settings),
        max_steps: u64::from(settings.max_steps),
        max_time: None,
        prices: match &settings.model {
            ModelConfig::Served(served) => served.prices,
            ModelConfig::Script { .. } | ModelConfig::Logged(_) => None,
        },
        max_cost: None,
        answer_form: None,
        require_plan,
        durability: match settings.durability {
            config::Durability::Always => Durability::Always,
            config::Durability::Relaxed => Durability::Relaxed,
        },
        clock: Arc::new(jiff::Timestamp::now),
        surroundings: Arc::new(surroundings),
        on_event: Arc::new(|_| {}),
        program: format!("mainstay {}", env!("CARGO_PKG_VERSION")),
        is_child: false,
    };
    Ok((setup, notes))
}

fn approve(approve: config::Approve) -> Approve {
    match approve {
        config::Approve::Ask => Approve::Ask,
        config::Approve::Edits => Approve::Edits,
        config::Approve::Auto => Approve::Auto,
        config::Approve::All => Approve::All,
    }
}

fn attention(settings: &Settings) -> AttentionSettings {
    AttentionSettings {
        plan_tool: settings.plan.tool,
        reminder_after: settings.plan.reminder_after,
        reminder_repeat: Some(settings.plan.reminder_repeat).filter(|steps| *steps > 0),
    }
}
