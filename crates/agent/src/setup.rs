//! What an agent is given to work with.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mainstay_model::Model;
use mainstay_session::attention::AttentionSettings;
use mainstay_session::entry::Instruction;
use mainstay_session::log::Durability;
use mainstay_session::plan::is_plan_tool;
use mainstay_tools::{Tool, ToolKind};

use crate::event::Event;
use crate::interceptor::Interceptor;
use crate::permission::Approve;

/// Says what time it is.
pub type Clock = Arc<dyn Fn() -> jiff::Timestamp + Send + Sync>;

/// Says how the world around the session is now. Asked before every request, so it should be quick.
pub type Surroundings = Arc<dyn Fn() -> SurroundingsNow + Send + Sync>;

/// The world around a session at some moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SurroundingsNow {
    /// The local date, as `2026-11-30`.
    pub date: String,
    /// The instruction files that hold for the workspace, in the order in which they are told.
    pub instructions: Vec<Instruction>,
}

/// What an agent is given to work with.
#[derive(Clone)]
pub struct Setup {
    /// Where sessions lie: `$MAINSTAY_HOME`.
    pub data_home: PathBuf,
    /// The workspace, absolute and resolved.
    pub workspace: PathBuf,
    /// Who answers.
    pub model: Arc<dyn Model>,
    /// What the model may call, in the order in which it is told. The plan tool is left out to switch the plan off.
    pub tools: Vec<Arc<dyn Tool>>,
    /// Who else sees requests and calls.
    pub interceptors: Vec<Arc<dyn Interceptor>>,
    /// What is approved in advance.
    pub approve: Approve,
    /// When the plan is brought back before the model.
    pub attention: AttentionSettings,
    /// The most steps of a turn.
    pub max_steps: u64,
    /// The longest a turn may take.
    pub max_time: Option<Duration>,
    /// How often a turn that ends with unfinished plan items is continued; none: it may end so.
    pub require_plan: Option<u32>,
    /// What is synced when.
    pub durability: Durability,
    /// The time.
    pub clock: Clock,
    /// The world.
    pub surroundings: Surroundings,
    /// Who hears what happens. Called from the loop; must return soon and must not panic.
    pub on_event: Arc<dyn Fn(&Event) + Send + Sync>,
    /// The version of the embedding program, for people who read the log.
    pub program: String,
    /// Whether another session starts this one.
    pub is_child: bool,
}

impl Setup {
    /// The tool that a model means by a name.
    pub(crate) fn tool(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        let is_alias = |tool: &Arc<dyn Tool>| tool.kind() == ToolKind::Plan && is_plan_tool(name);
        let by_name = self.tools.iter().find(|tool| tool.spec().name == name);
        by_name.or_else(|| self.tools.iter().find(|tool| is_alias(tool)))
    }

    pub(crate) fn kind_of(&self, name: &str) -> Option<ToolKind> {
        self.tool(name).map(|tool| tool.kind())
    }

    /// Whether the model can write the plan. Where it cannot, it is neither reminded of it nor kept at it.
    pub(crate) fn plan_is_on(&self) -> bool {
        self.attention.plan_tool && self.tools.iter().any(|tool| tool.kind() == ToolKind::Plan)
    }
}
