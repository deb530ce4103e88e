//! A bench for agents: a workspace, a still clock, a world that can be changed, and all that was told.
#![allow(
    clippy::unwrap_used,
    dead_code,
    unreachable_pub,
    reason = "a test's support may fail loudly; not every test uses all of it"
)]

use std::path::Path;
use std::sync::{Arc, Mutex};

use mainstay_agent::permission::{Action, Rule, RuleText};
use mainstay_agent::{
    Agent, Approve, CommandSandbox, Event, Interceptor, Setup, SurroundingsNow, TurnReport, Verdict,
};
use mainstay_model::{Encoded, Model};
use mainstay_session::attention::AttentionSettings;
use mainstay_session::entry::{Body, Entry, NoticeKind, StopReason};
use mainstay_session::log::{Durability, entries, read};
use mainstay_session::message::{ToolCall, ToolResult};
use mainstay_session::request::request;
use mainstay_session::state::SessionState;
use mainstay_testkit::clock::FixedClock;
use mainstay_testkit::models::{self, RecordingModel};
use mainstay_testkit::tools;
use mainstay_testkit::workspace::Workspace;
use mainstay_tools::{TodoWrite, Tool, ToolKind};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

pub struct Bench {
    pub workspace: Workspace,
    pub clock: FixedClock,
    pub world: Arc<Mutex<SurroundingsNow>>,
    pub events: Arc<Mutex<Vec<Event>>>,
}

impl Bench {
    pub fn new() -> Self {
        let world = SurroundingsNow { date: "2026-11-30".to_owned(), instructions: Vec::new() };
        Bench {
            workspace: Workspace::new(),
            clock: FixedClock::default(),
            world: Arc::new(Mutex::new(world)),
            events: Arc::default(),
        }
    }

    /// A setup with the plan tool and `work`, which succeeds.
    pub fn setup(&self, model: Arc<dyn Model>) -> Setup {
        let world = self.world.clone();
        let events = self.events.clone();
        Setup {
            data_home: self.workspace.data_home(),
            workspace: self.workspace.path(),
            model,
            tools: vec![Arc::new(TodoWrite), tools::succeeds("work", ToolKind::Other)],
            interceptors: Vec::new(),
            approve: Approve::All,
            rules: Arc::default(),
            sandbox: CommandSandbox::None,
            approver: None,
            attention: AttentionSettings::default(),
            max_steps: 60,
            max_time: None,
            prices: None,
            max_cost: None,
            answer_form: None,
            require_plan: None,
            durability: Durability::Always,
            clock: self.clock.as_fn(),
            surroundings: Arc::new(move || world.lock().unwrap().clone()),
            on_event: Arc::new(move |event| events.lock().unwrap().push(event.clone())),
            program: "test".to_owned(),
            is_child: false,
        }
    }

    /// A recorded script with the setup for it.
    pub fn scripted(&self, answers: &Value) -> (Setup, Arc<RecordingModel>) {
        let model = RecordingModel::new(models::script(answers));
        (self.setup(model.clone()), model)
    }

    pub fn events(&self) -> Vec<Event> {
        self.events.lock().unwrap().clone()
    }
}

pub fn with_tool(mut setup: Setup, tool: Arc<dyn Tool>) -> Setup {
    setup.tools.push(tool);
    setup
}

/// Runs one turn of a new session.
pub async fn run(setup: Setup, prompt: &str) -> (Agent, TurnReport) {
    let mut agent = Agent::create(setup).unwrap();
    let report = go(&mut agent, prompt).await;
    (agent, report)
}

pub async fn go(agent: &mut Agent, prompt: &str) -> TurnReport {
    agent.run(prompt, &CancellationToken::new()).await
}

/// Ends the agent and goes on with its session.
pub fn resume(agent: Agent, setup: Setup) -> (Agent, mainstay_agent::Resumed) {
    let dir = agent.dir();
    drop(agent);
    Agent::resume(&dir, setup).unwrap()
}

/// An answer of a script that makes calls of `(name, arguments)`.
pub fn calls(calls: &[(&str, Value)]) -> Value {
    let calls: Vec<Value> =
        calls.iter().map(|(name, arguments)| json!({"name": name, "arguments": arguments})).collect();
    json!({"calls": calls})
}

pub fn text(text: &str) -> Value {
    json!({"text": text})
}

pub fn work() -> Value {
    calls(&[("work", json!({}))])
}

/// The arguments of a plan write, given by content and status.
pub fn todos(items: &[(&str, &str)]) -> Value {
    let items: Vec<Value> = (1..)
        .zip(items)
        .map(|(id, (content, status))| json!({"id": id.to_string(), "content": content, "status": status}))
        .collect();
    json!({"todos": items})
}

pub fn plan(items: &[(&str, &str)]) -> Value {
    calls(&[("todo_write", todos(items))])
}

pub fn open_plan() -> Value {
    plan(&[("build", "in_progress"), ("test", "pending")])
}

/// All entries of the session's log; every line must be whole.
pub fn log(dir: &Path) -> Vec<Entry> {
    let mut all = Vec::new();
    entries(dir, |_, entry| all.push(entry.unwrap())).unwrap();
    all
}

pub fn kinds(dir: &Path) -> Vec<String> {
    log(dir).iter().map(|entry| name(&entry.body)).collect()
}

/// A kind's name, that of a notice with what it is about.
pub fn name(body: &Body) -> String {
    match body {
        Body::Notice(notice) => notice.about.as_str().to_owned(),
        body => body.kind().to_owned(),
    }
}

pub fn replayed(dir: &Path) -> SessionState {
    read(dir).unwrap().0
}

pub fn results(dir: &Path) -> Vec<ToolResult> {
    let of = |entry: Entry| match entry.body {
        Body::ToolResult(result) => Some(result),
        _ => None,
    };
    log(dir).into_iter().filter_map(of).collect()
}

pub fn reminders(dir: &Path) -> Vec<String> {
    let of = |entry: Entry| match entry.body {
        Body::Notice(notice) if notice.about == NoticeKind::Reminder => Some(notice.text),
        _ => None,
    };
    log(dir).into_iter().filter_map(of).collect()
}

/// Before which requests, counted from 1, the log has a reminder.
pub fn reminded_before(dir: &Path) -> Vec<usize> {
    let mut answers = 0;
    let mut places = Vec::new();
    for entry in log(dir) {
        match &entry.body {
            Body::Answer(_) => answers += 1,
            Body::Notice(notice) if notice.about == NoticeKind::Reminder => places.push(answers + 1),
            _ => {}
        }
    }
    places
}

/// What must hold of every session whenever no turn runs: live state is the replayed one, every call has exactly one
/// result, and each request opens with all units of the one before it.
pub fn assert_sound(agent: &Agent) {
    let dir = agent.dir();
    let replay = replayed(&dir);
    agent.read(|live| assert_eq!(*live, replay, "live state is not the replayed state"));
    assert!(replay.open_calls().is_empty(), "calls without a result: {:?}", replay.open_calls());
    let mut answered: Vec<_> = results(&dir).iter().map(ToolResult::call_ref).collect();
    let count = answered.len();
    answered.sort();
    answered.dedup();
    assert_eq!(answered.len(), count, "a call has two results");
    assert_prefix(&dir);
}

/// T14, law 3: the units of each request open the next one.
pub fn assert_prefix(dir: &Path) {
    let mut before = None;
    for entry in log(dir) {
        if let Body::Answer(answer) = entry.body {
            let mark = answer.request.unwrap();
            if let Some(units) = before {
                assert_eq!(mark.shared, units, "the request of entry {} does not open alike", entry.seq);
            }
            before = Some(mark.units);
        }
    }
}

/// Law 2: the request that follows from the log as it lies on the disk.
pub fn request_from_disk(dir: &Path, model: &dyn Model) -> Encoded {
    model.encode(&request(&replayed(dir)))
}

/// Lets everything else go on until something is the case.
pub async fn until(is_so: impl Fn() -> bool) {
    for _ in 0..10_000 {
        if is_so() {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("it never was so");
}

/// An interceptor that denies calls of one tool.
pub struct Denies(pub &'static str);

impl Interceptor for Denies {
    fn pre_tool_call(&self, call: &ToolCall) -> Verdict {
        if call.name == self.0 {
            Verdict::Deny { reason: format!("`{}` is not allowed here", self.0) }
        } else {
            Verdict::Allow
        }
    }
}

/// A rule without examples.
pub fn rule(tool: &str, pattern: Option<&str>, action: Action, origin: &str) -> Rule {
    let text = RuleText {
        tool: tool.to_owned(),
        pattern: pattern.map(str::to_owned),
        action,
        origin: origin.to_owned(),
        matching: Vec::new(),
        other: Vec::new(),
    };
    Rule::new(text).unwrap()
}

pub fn assert_stopped(report: &TurnReport, stop_reason: StopReason) {
    assert_eq!(report.stop_reason, stop_reason, "{:?}", report.failure);
}
