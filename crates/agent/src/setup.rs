//! What an agent is given to work with.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mainstay_model::Model;
use mainstay_session::attention::AttentionSettings;
use mainstay_session::entry::{FORMAT, Instruction, ModelChoice, PROJECTION, SessionHeader, World};
use mainstay_session::ids::SessionId;
use mainstay_session::log::Durability;
use mainstay_session::message::{FilePath, ToolSpec};
use mainstay_session::plan::is_plan_tool;
use mainstay_session::state::SessionState;
use mainstay_session::world::system_text;
use mainstay_tools::sandbox::{Sandbox, SandboxMode};
use mainstay_tools::{Bash, BuiltinOptions, Supervisor, Tool, ToolKind, builtin_tools};

use crate::event::Event;
use crate::form::AnswerForm;
use crate::interceptor::Interceptor;
use crate::permission::{Approve, Approver, Rules};
use crate::prices::Prices;

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

/// The tool that runs commands.
const BASH: &str = "bash";

/// What an agent is given to work with.
#[derive(Clone)]
pub struct Setup {
    /// Where sessions lie, absolute: `$MAINSTAY_HOME`.
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
    /// What the user wrote of permissions.
    pub rules: Arc<Rules>,
    /// What is known of the sandbox around commands: where it is enforced, `auto` lets them pass.
    pub sandbox: CommandSandbox,
    /// Who is asked about calls; where there is nobody, what would be asked about is denied.
    pub approver: Option<Arc<dyn Approver>>,
    /// When the plan is brought back before the model.
    pub attention: AttentionSettings,
    /// The most steps of a turn.
    pub max_steps: u64,
    /// The longest a turn may take.
    pub max_time: Option<Duration>,
    /// What the model costs, where that is known.
    pub prices: Option<Prices>,
    /// The most a turn may cost, in billionths of a US dollar. It ends after the step that reaches it, and after a whole
    /// answer of which nobody knows what it cost; so set no limit where there are no prices.
    pub max_cost: Option<u64>,
    /// The form that the answer of a turn must have; none: any.
    pub answer_form: Option<AnswerForm>,
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

/// What is known of the sandbox around commands.
#[derive(Clone, Debug, Default)]
pub enum CommandSandbox {
    /// There is none.
    #[default]
    None,
    /// Whoever made the setup answers for it that one is enforced.
    Enforced,
    /// What the supervisor of the commands says, once it is asked.
    Supervised(Arc<Supervised>),
}

/// How far commands are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Not at all, and that is what was asked for.
    No,
    /// Not as far as was asked for: the machine lacks something, or it cannot be known.
    Partly,
    /// Files, network and protected places are.
    Fully,
}

/// A supervisor that is asked about its sandbox.
#[derive(Debug)]
pub struct Supervised {
    supervisor: Arc<Supervisor>,
    /// What was told to be lacking.
    told: Mutex<Vec<String>>,
}

impl CommandSandbox {
    /// The sandbox of this supervisor, if it is to have one.
    pub fn of(supervisor: Arc<Supervisor>) -> Self {
        CommandSandbox::Supervised(Arc::new(Supervised { supervisor, told: Mutex::default() }))
    }

    /// How far it holds every command, as it is enforced and not as it is configured. Starts the supervisor, if it does not
    /// run yet.
    pub async fn hold(&self) -> Hold {
        self.looked_at().await.0
    }

    /// Whether it holds every command. What it lacks is told to `on_event`, once, and again if it comes to lack something
    /// else: the process that holds commands may have been lost, and the next one hold less.
    pub(crate) async fn is_enforced(&self, on_event: impl Fn(&Event)) -> bool {
        let (hold, lacking) = self.looked_at().await;
        let is_enforced = hold == Hold::Fully;
        if let CommandSandbox::Supervised(supervised) = self
            && !lacking.is_empty()
            && supervised.is_news(&lacking)
        {
            let what = if is_enforced {
                "the sandbox holds commands, with less than it could have"
            } else {
                "the sandbox does not hold commands fully"
            };
            on_event(&Event::Warning(format!("{what}: {}", lacking.join("; "))));
        }
        is_enforced
    }

    /// How far it holds, and what it lacks.
    async fn looked_at(&self) -> (Hold, Vec<String>) {
        let supervised = match self {
            CommandSandbox::None => return (Hold::No, Vec::new()),
            CommandSandbox::Enforced => return (Hold::Fully, Vec::new()),
            CommandSandbox::Supervised(supervised) => supervised,
        };
        match supervised.supervisor.report().await {
            Ok(Some(report)) if report.is_enforced() => (Hold::Fully, report.lacking),
            Ok(Some(report)) => (Hold::Partly, report.lacking),
            Ok(None) => (Hold::No, Vec::new()),
            Err(error) => (Hold::Partly, vec![error.to_string()]),
        }
    }
}

impl Supervised {
    fn is_news(&self, lacking: &[String]) -> bool {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let is_news = *told != lacking;
        *told = lacking.to_vec();
        is_news
    }
}

/// A setup that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// No provider takes a tool of this name.
    #[error("no tool can be named `{name}`: a name is 1 to 64 letters, digits, `_` and `-`")]
    ToolName {
        /// The name.
        name: String,
    },
    /// What a tool says of its arguments is no JSON Schema of an object.
    #[error("the schema of the tool `{name}` is no JSON object: {why}")]
    Schema {
        /// The tool's name.
        name: String,
        /// What is wrong.
        why: String,
    },
    /// A tool runs commands, and not in the sandbox that is to hold them.
    #[error("the commands of the tool `{name}` would not be held: only those of `bash` are")]
    NotHeld {
        /// The tool's name.
        name: String,
    },
    /// Two tools have one name.
    #[error("two tools are named `{name}`; each needs a name of its own")]
    TwoTools {
        /// The name.
        name: String,
    },
    /// The plan tool has another name, or another tool has one of its names.
    #[error(
        "the tool `{name}` cannot have this name: `todo_write` and `todo` are the plan tool, and it has no other"
    )]
    PlanName {
        /// The name.
        name: String,
    },
}

impl Setup {
    /// A setup with the built-in tools, the system's clock and the limits of the `mainstay` program; every field may then be
    /// set to something else. Nobody is asked for approval, nothing holds commands (see [`Setup::hold_commands`]), no
    /// instruction files are read, and the date is that of UTC. Where commands are to run, `main` begins with
    /// [`mainstay_tools::supervise_if_asked`].
    ///
    /// ```
    /// use std::sync::Arc;
    /// use mainstay_agent::{Setup, model::ScriptModel};
    ///
    /// # let dir = std::env::temp_dir();
    /// let model = ScriptModel::from_json("script:hello", r#"[{"text": "Hello."}]"#)?;
    /// let mut setup = Setup::new(dir.join("data"), &dir, Arc::new(model))?;
    /// setup.max_steps = 20;
    /// setup.on_event = Arc::new(|event| println!("{event:?}"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If there is no such workspace, or a relative path starts nowhere.
    pub fn new(
        data_home: impl Into<PathBuf>,
        workspace: impl AsRef<Path>,
        model: Arc<dyn Model>,
    ) -> io::Result<Setup> {
        Ok(Setup {
            data_home: std::path::absolute(data_home.into())?,
            workspace: workspace.as_ref().canonicalize()?,
            model,
            tools: builtin_tools(&BuiltinOptions::default()),
            interceptors: Vec::new(),
            approve: Approve::default(),
            rules: Arc::default(),
            sandbox: CommandSandbox::None,
            approver: None,
            attention: AttentionSettings::default(),
            max_steps: 500,
            max_time: None,
            prices: None,
            max_cost: None,
            answer_form: None,
            require_plan: None,
            durability: Durability::Always,
            clock: Arc::new(jiff::Timestamp::now),
            surroundings: Arc::new(|| {
                let now = jiff::Timestamp::now().to_string();
                let date = now.split('T').next().unwrap_or_default().to_owned();
                SurroundingsNow { date, instructions: Vec::new() }
            }),
            on_event: Arc::new(|_| {}),
            program: concat!("mainstay-agent ", env!("CARGO_PKG_VERSION")).to_owned(),
            is_child: false,
        })
    }

    /// Puts a sandbox around the commands of `bash`: they change what `mode` lets them and never the sessions, and reach no
    /// network. Under [`Approve::Auto`] they then pass where the system enforces that; where it cannot, an
    /// [`Event::Warning`] says what is lacking. `options` say how commands are supervised and which variables they do not
    /// see: `bash` is made anew with them.
    ///
    /// # Errors
    ///
    /// If another tool runs commands too: those would pass as if they were held.
    pub fn hold_commands(&mut self, mode: SandboxMode, options: BuiltinOptions) -> Result<(), SetupError> {
        let runs_commands = |tool: &&mut Arc<dyn Tool>| tool.kind() == ToolKind::Command;
        let names = self.tools.iter_mut().filter(runs_commands).map(|tool| tool.spec().name);
        if let Some(name) = names.into_iter().find(|name| name != BASH) {
            return Err(SetupError::NotHeld { name });
        }
        let sandbox =
            Sandbox { closed: vec![self.data_home.clone()], ..Sandbox::new(mode, self.workspace.clone()) };
        let supervisor = BuiltinOptions { sandbox: Some(sandbox), ..options }.to_supervisor();
        for tool in self.tools.iter_mut().filter(runs_commands) {
            *tool = Arc::new(Bash::new(supervisor.clone()));
        }
        self.sandbox = CommandSandbox::of(supervisor);
        Ok(())
    }

    /// The tool that a model means by a name.
    pub(crate) fn tool(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        let is_alias = |tool: &Arc<dyn Tool>| tool.kind() == ToolKind::Plan && is_plan_tool(name);
        let by_name = self.tools.iter().find(|tool| tool.spec().name == name);
        by_name.or_else(|| self.tools.iter().find(|tool| is_alias(tool)))
    }

    pub(crate) fn kind_of(&self, name: &str) -> Option<ToolKind> {
        self.tool(name).map(|tool| tool.kind())
    }

    /// The header of a session's first segment.
    pub(crate) fn header(&self, session: SessionId) -> SessionHeader {
        SessionHeader {
            format: FORMAT,
            projection: PROJECTION,
            session,
            segment: 1,
            cwd: FilePath(self.workspace.clone()),
            parent: None,
            child: self.is_child,
            program: self.program.clone(),
        }
    }

    /// The world as it is now.
    pub(crate) fn world(&self) -> World {
        let now = (self.surroundings)();
        let has_plan = self.tools.iter().any(|tool| tool.kind() == ToolKind::Plan);
        World {
            cwd: self.workspace.display().to_string(),
            date: now.date,
            instructions: now.instructions,
            system: system_text(has_plan),
            tools: self.tools.iter().map(|tool| tool.spec()).collect(),
        }
    }

    /// The model as a log names it.
    pub(crate) fn choice(&self) -> ModelChoice {
        ModelChoice {
            model: self.model.name().to_owned(),
            api: self.model.api().to_owned(),
            context_window: self.model.context_window(),
            effort: self.model.effort().map(str::to_owned),
        }
    }

    /// The names of the tools that the model was told of and that are there.
    pub(crate) fn offered(&self, state: &SessionState) -> Vec<String> {
        let told = state.world.iter().flat_map(|world| &world.tools);
        told.filter(|spec| self.tool(&spec.name).is_some()).map(|spec| spec.name.clone()).collect()
    }

    /// Whether the model can write the plan: the segment told it of the tool, and the tool is there. Where it cannot, it
    /// is neither reminded of the plan nor kept at it.
    pub(crate) fn plan_is_on(&self, state: &SessionState) -> bool {
        let is_plan = |name: &String| self.kind_of(name) == Some(ToolKind::Plan);
        self.attention.plan_tool && self.offered(state).iter().any(is_plan)
    }

    /// Checks that every tool can be told to a model, that every name means one tool, and that only the plan tool has the
    /// plan tool's names: a log tells plan writes by them.
    pub(crate) fn check(&self) -> Result<(), SetupError> {
        let mut names = BTreeSet::new();
        for tool in &self.tools {
            let ToolSpec { name, schema, .. } = tool.spec();
            if !is_sendable(&name) {
                return Err(SetupError::ToolName { name });
            }
            if let Err(error) = serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(&schema) {
                return Err(SetupError::Schema { name, why: error.to_string() });
            }
            if is_plan_tool(&name) != (tool.kind() == ToolKind::Plan) {
                return Err(SetupError::PlanName { name });
            }
            if !names.insert(name.clone()) {
                return Err(SetupError::TwoTools { name });
            }
        }
        Ok(())
    }
}

/// Whether every provider takes a name for a tool.
fn is_sendable(name: &str) -> bool {
    let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    (1..=64).contains(&name.len()) && name.bytes().all(is_fine)
}
