//! Sessions for tests: short ways to write entries, and generated ones that look like what an agent writes.
#![allow(
    clippy::unwrap_used,
    dead_code,
    unreachable_pub,
    reason = "a test's support may fail loudly; not every test uses all of it"
)]

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use mainstay_session::attention::{notification_text, reminder_text};
use mainstay_session::conversation::Item;
use mainstay_session::entry::{
    Answer, Body, Compaction, FORMAT, FileMark, Grant, InboxMessage, Instruction, Job, Lane, Lost,
    ModelChoice, Notice, NoticeKind, PROJECTION, ReasoningRefused, SessionHeader, StopReason, ToolIntent,
    UserPrompt, World,
};
use mainstay_session::ids::{CallRef, Seq, SessionId};
use mainstay_session::log::{Durability, Log, NextSegment, RewindError, RewindTo, Rewound};
use mainstay_session::message::{
    Content, ContentHash, Ended, ErrorClass, FilePath, Finish, Outcome, ReferencedFile, RequestMark,
    ToolCall, ToolResult, ToolSpec, Usage,
};
use mainstay_session::plan;
use mainstay_session::state::SessionState;
use proptest::prelude::*;
use proptest::sample::Index;

pub fn now() -> Timestamp {
    "2026-11-30T09:00:00.125Z".parse().unwrap()
}

/// A folder in memory where the machine has one: the tests of every cut would wait for a disk most of the time.
pub fn temp_dir() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory).unwrap() } else { tempfile::tempdir().unwrap() }
}

pub fn session_id(number: u8) -> SessionId {
    SessionId::new(now(), [number; 10])
}

pub fn header(number: u8) -> SessionHeader {
    SessionHeader {
        format: FORMAT,
        projection: PROJECTION,
        session: session_id(number),
        segment: 1,
        cwd: path("/work/app"),
        parent: None,
        child: false,
        program: "mainstay 0.1.0".to_owned(),
    }
}

pub fn world() -> World {
    World {
        cwd: "/work/app".to_owned(),
        date: "2026-11-30".to_owned(),
        instructions: vec![Instruction { path: path("/work/app/AGENTS.md"), text: "Be brief.".to_owned() }],
        system: "You are an agent.".to_owned(),
        tools: vec![ToolSpec {
            name: "read".to_owned(),
            description: "Reads a file.".to_owned(),
            schema: r#"{"type":"object"}"#.to_owned(),
        }],
    }
}

pub fn model() -> ModelChoice {
    ModelChoice {
        model: "local/small".to_owned(),
        api: "openai-chat".to_owned(),
        context_window: 32_768,
        effort: None,
    }
}

pub fn path(text: &str) -> FilePath {
    FilePath(PathBuf::from(text))
}

/// A session's first segment with its opening.
pub fn create(home: &Path, number: u8) -> Log {
    create_with(home, header(number), Durability::Relaxed)
}

pub fn create_with(home: &Path, header: SessionHeader, durability: Durability) -> Log {
    Log::create(home, header, vec![Body::World(world()), Body::Model(model())], durability, now()).unwrap()
}

pub fn prompt(text: &str) -> Body {
    Body::UserPrompt(UserPrompt {
        text: text.to_owned(),
        spill: None,
        images: Vec::new(),
        steering: false,
        inbox: None,
    })
}

pub fn text(text: &str) -> Content {
    Content::Text { text: text.to_owned() }
}

pub fn call(id: &str, name: &str, arguments: &str) -> Content {
    Content::Call(ToolCall {
        id: id.to_owned(),
        name: name.to_owned(),
        arguments: arguments.to_owned(),
        opaque: None,
    })
}

pub fn answer(content: Vec<Content>) -> Body {
    ended(content, Ended::Complete)
}

pub fn ended(content: Vec<Content>, ended: Ended) -> Body {
    let has_calls = content.iter().any(|block| block.as_call().is_some());
    Body::Answer(Answer {
        model: "local/small".to_owned(),
        content,
        finish: if has_calls { Finish::ToolCalls } else { Finish::EndTurn },
        usage: Some(Usage { input_tokens: 100, cached_tokens: 50, output_tokens: 10 }),
        ended,
        request: Some(RequestMark { units: 3, hash: "ab".repeat(32), shared: 2, bytes: 1000 }),
        duration_ms: 12,
    })
}

pub fn failed() -> Ended {
    Ended::Failed { class: ErrorClass::Overload, message: "try later".to_owned() }
}

pub fn result(answer: Seq, call: u32, outcome: Outcome, summary: &str) -> ToolResult {
    ToolResult {
        answer,
        call,
        call_id: String::new(),
        outcome,
        summary: summary.to_owned(),
        content: None,
        images: Vec::new(),
        referenced_files: Vec::new(),
        changes: Vec::new(),
        duration_ms: 3,
        exit_code: None,
        plan: None,
    }
}

pub fn ok(answer: Seq, call: u32, summary: &str) -> Body {
    Body::ToolResult(result(answer, call, Outcome::Ok, summary))
}

pub fn touched(answer: Seq, call: u32, files: &[&str]) -> Body {
    let referenced_files = files
        .iter()
        .map(|file| ReferencedFile { path: path(file), hash: Some(ContentHash::of(file.as_bytes())) })
        .collect();
    Body::ToolResult(ToolResult { referenced_files, ..result(answer, call, Outcome::Ok, "done") })
}

/// The result that the plan tool gives to a call, as the agent logs it.
pub fn plan_result(state: &SessionState, call: CallRef, arguments: &str) -> ToolResult {
    match plan::write(&state.plan, arguments) {
        Ok(write) => ToolResult {
            content: write.content,
            plan: Some(write.plan),
            ..result(call.answer, call.call, Outcome::Ok, &write.summary)
        },
        Err(refusal) => result(call.answer, call.call, Outcome::Error, &refusal.message),
    }
}

/// The arguments of a plan write: one character an item, `x` completed, `>` in progress, `-` pending.
pub fn plan_arguments(statuses: &str) -> String {
    let items: Vec<serde_json::Value> = statuses
        .chars()
        .enumerate()
        .map(|(place, status)| {
            let status = match status {
                'x' => "completed",
                '>' => "in_progress",
                _ => "pending",
            };
            serde_json::json!({ "id": place.to_string(), "content": format!("item {place}"), "status": status })
        })
        .collect();
    serde_json::json!({ "todos": items }).to_string()
}

/// A session that is being written, with the state after each of its entries.
pub struct Session {
    pub log: Log,
    pub states: Vec<SessionState>,
}

impl Session {
    pub fn create(home: &Path) -> Self {
        Session::of(create(home, 1))
    }

    pub fn of(log: Log) -> Self {
        let states = vec![log.state().clone()];
        Session { log, states }
    }

    pub fn state(&self) -> &SessionState {
        self.log.state()
    }

    pub fn append(&mut self, body: Body) -> Seq {
        self.append_in(Lane::Main, body)
    }

    pub fn append_in(&mut self, lane: Lane, body: Body) -> Seq {
        let seq = self.log.append_in(lane, body, now()).unwrap();
        self.states.push(self.log.state().clone());
        seq
    }

    pub fn next_segment(&mut self, keep: usize) {
        next_segment(&mut self.log, keep);
        self.states.push(self.log.state().clone());
    }

    pub fn rewind(&mut self, to: RewindTo) -> Rewound {
        let rewound = self.log.rewind(to, now()).unwrap();
        self.states.push(self.log.state().clone());
        rewound
    }

    /// Goes back if there is anything to go back to.
    fn try_rewind(&mut self, to: RewindTo) {
        match self.log.rewind(to, now()) {
            Ok(_) => self.states.push(self.log.state().clone()),
            Err(
                RewindError::NoSuchTurn { .. }
                | RewindError::AlreadyThere { .. }
                | RewindError::NothingToUndo
                | RewindError::NoSuchEntry { .. },
            ) => {}
            Err(error) => panic!("{error}"),
        }
    }

    pub fn end_turn(&mut self) -> Seq {
        let end = self.state().turn_end(StopReason::EndTurn, None);
        self.append(Body::TurnEnd(end))
    }

    /// Asks for one plan write, and takes in what the plan tool says.
    pub fn write_plan(&mut self, name: &str, arguments: &str) -> CallRef {
        let answer = self.append(answer(vec![call("p", name, arguments)]));
        let call_ref = CallRef { answer, call: 0 };
        let result = plan_result(self.state(), call_ref, arguments);
        self.append(Body::ToolResult(result));
        call_ref
    }

    /// One step with a call that succeeds.
    pub fn work(&mut self) {
        let answer = self.append(answer(vec![call("w", "read", r#"{"path":"a"}"#)]));
        self.append(ok(answer, 0, "read"));
    }

    pub fn write(&mut self, written: Written) {
        match written {
            Written::Entry(lane, body) => {
                self.append_in(lane, *body);
            }
            Written::NextSegment { keep } => self.next_segment(keep),
            Written::Rewind(to) => self.try_rewind(to),
            Written::Nothing => {}
        }
    }
}

/// Starts the next segment, which keeps the last `keep` pieces of the conversation behind a summary.
pub fn next_segment(log: &mut Log, keep: usize) {
    let state = log.state();
    let from = state.history.len().saturating_sub(keep);
    let mut history = vec![Item::Notice { text: "Summary: much was done.".to_owned() }];
    history.extend(state.history[from..].iter().cloned());
    let opening = NextSegment {
        header: state.header.clone().unwrap(),
        world: state.world.clone().unwrap(),
        model: state.model.clone().unwrap(),
        checkpoint: state.checkpoint(history),
    };
    log.next_segment(opening, Vec::new(), now()).unwrap();
}

/// What a generated step of a session is, before it is known where it happens.
#[derive(Clone, Debug)]
pub enum Op {
    Prompt(String, bool),
    Answer(Vec<Content>, Ended),
    PlanAnswer(Vec<Content>),
    Intent(Index),
    Result { of: Index, outcome: Outcome, texts: (String, Option<String>), files: Vec<u8>, old: bool },
    Again(Index),
    Orphan(Outcome, String),
    Reminder,
    Notice(NoticeKind, String),
    Inbox(u8, String),
    JobEnd,
    Deliver,
    Grant,
    Compaction(bool),
    Worker(Vec<Content>),
    TurnEnd,
    NextSegment(usize),
    CloseAll,
    Lost,
    ReasoningRefused,
    Rewind(u64),
    UndoRewind,
    Restore(Index),
}

/// What an [`Op`] is at a place in a session.
pub enum Written {
    Entry(Lane, Box<Body>),
    NextSegment { keep: usize },
    Rewind(RewindTo),
    Nothing,
}

impl Op {
    /// What it is after `state`.
    pub fn at(&self, state: &SessionState) -> Written {
        let body = match self {
            Op::Prompt(text, steering) => Body::UserPrompt(UserPrompt {
                text: text.clone(),
                spill: None,
                images: Vec::new(),
                steering: *steering,
                inbox: None,
            }),
            Op::Answer(content, how) => ended(content.clone(), how.clone()),
            Op::PlanAnswer(content) => answer(content.clone()),
            Op::Intent(of) => match pick(&state.open_calls(), of) {
                Some(open) => Body::ToolIntent(ToolIntent {
                    answer: open.call_ref.answer,
                    call: open.call_ref.call,
                    pid: 4242,
                    started: 99,
                    job: (open.call_ref.call % 2 == 1)
                        .then(|| Job { number: state.last_job + 1, command: "cargo watch".to_owned() }),
                }),
                None => return Written::Nothing,
            },
            Op::Result { of, outcome, texts, files, old } => match pick(&state.open_calls(), of) {
                Some(open) => {
                    let made = self::made_result(state, &open, *outcome, texts, files, *old);
                    Body::ToolResult(made)
                }
                None => return Written::Nothing,
            },
            Op::Again(of) => match pick(&state.results().collect::<Vec<_>>(), of) {
                Some(known) => {
                    Body::ToolResult(ToolResult { summary: "again".to_owned(), ..(*known).clone() })
                }
                None => return Written::Nothing,
            },
            Op::Orphan(outcome, summary) => Body::ToolResult(result(1, 7, *outcome, summary)),
            Op::Reminder => notice(NoticeKind::Reminder, reminder_text(&state.plan.plan)),
            Op::Notice(about, text) => notice(about.clone(), text.clone()),
            Op::Inbox(id, text) => Body::Inbox(InboxMessage {
                id: id.to_string(),
                text: text.clone(),
                wake: id % 2 == 0,
                source: if id % 3 == 0 { InboxMessage::USER } else { "process" }.to_owned(),
            }),
            Op::JobEnd => match state.jobs.first().and_then(|intent| intent.job.as_ref()) {
                Some(job) => Body::Inbox(InboxMessage {
                    id: job.id(),
                    text: "it ended".to_owned(),
                    wake: true,
                    source: "job".to_owned(),
                }),
                None => return Written::Nothing,
            },
            Op::Deliver => match state.inbox.first() {
                Some(message) if message.is_steering() => Body::UserPrompt(UserPrompt {
                    text: message.text.clone(),
                    spill: None,
                    images: Vec::new(),
                    steering: true,
                    inbox: Some(message.id.clone()),
                }),
                Some(message) => notice(
                    NoticeKind::Notification { inbox: message.id.clone() },
                    notification_text(&message.source, &message.text),
                ),
                None => return Written::Nothing,
            },
            Op::Grant => Body::Grant(Grant {
                tool: "bash".to_owned(),
                pattern: "cargo *".to_owned(),
                scope: "session".to_owned(),
            }),
            Op::Compaction(fails) => Body::Compaction(Compaction {
                reason: "occupancy".to_owned(),
                method: "model".to_owned(),
                before: 30_000,
                counted: None,
                after: (!fails).then_some(5_000),
                failure: fails.then(|| "the summary was empty".to_owned()),
                window: None,
                reused: None,
            }),
            Op::Worker(content) => {
                let lane = Lane::Worker("compaction".to_owned());
                return Written::Entry(lane, Box::new(answer(content.clone())));
            }
            Op::TurnEnd => Body::TurnEnd(state.turn_end(StopReason::EndTurn, None)),
            Op::NextSegment(_) if !state.open_calls().is_empty() => return Written::Nothing,
            Op::NextSegment(keep) => return Written::NextSegment { keep: *keep },
            Op::Rewind(back) => {
                return Written::Rewind(RewindTo::Turn(state.turns.saturating_sub(*back)));
            }
            Op::Lost => Body::Lost(Lost { why: "its line could not be read".to_owned() }),
            Op::ReasoningRefused => {
                Body::ReasoningRefused(ReasoningRefused { why: "bad signature".to_owned() })
            }
            Op::UndoRewind => return Written::Rewind(RewindTo::BeforeRewind),
            Op::Restore(at) => {
                let seq = at.index(usize::try_from(state.last_seq).unwrap()) + 1;
                return Written::Rewind(RewindTo::Entry(seq as Seq));
            }
            Op::CloseAll => match state.open_calls().first() {
                Some(open) => Body::ToolResult(result(
                    open.call_ref.answer,
                    open.call_ref.call,
                    Outcome::Interrupted,
                    "interrupted",
                )),
                None => return Written::Nothing,
            },
        };
        Written::Entry(Lane::Main, Box::new(body))
    }
}

fn notice(about: NoticeKind, text: String) -> Body {
    Body::Notice(Notice { about, text })
}

fn pick<T: Clone>(from: &[T], index: &Index) -> Option<T> {
    if from.is_empty() { None } else { Some(index.get(from).clone()) }
}

fn made_result(
    state: &SessionState,
    open: &mainstay_session::state::OpenCall,
    outcome: Outcome,
    texts: &(String, Option<String>),
    files: &[u8],
    old: bool,
) -> ToolResult {
    let CallRef { answer, call } = open.call_ref;
    if plan::is_plan_tool(&open.call.name) && outcome == Outcome::Ok {
        let made = plan_result(state, open.call_ref, &open.call.arguments);
        return if old { ToolResult { plan: None, ..made } } else { made };
    }
    let referenced_files = files
        .iter()
        .map(|n| ReferencedFile {
            path: path(&format!("/work/app/{n}.rs")),
            hash: (n % 3 > 0).then(|| ContentHash::of(&[*n])),
        })
        .collect();
    ToolResult {
        content: texts.1.clone(),
        referenced_files,
        exit_code: files.first().map(|n| i32::from(*n)),
        ..result(answer, call, outcome, &texts.0)
    }
}

/// Texts as they come from users, files and models, many of them made to be mistaken for the runtime's.
pub fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[a-z ]{0,12}",
        2 => any::<String>(),
        1 => Just(" \n\t".to_owned()),
        4 => proptest::collection::vec(prop_oneof![
            Just("<system-reminder>"), Just("</system-reminder>"), Just("<\\system-reminder"), Just("<\\\\/system-reminder>"),
            Just("<system-"), Just("reminder>"), Just("<"), Just("/"), Just("\\"), Just("\n"), Just("\r\n"), Just("\u{2028}"),
            Just("\0"), Just("\""), Just("[x] done\n\n(1/1 completed)"), Just("é"), Just("🦀"),
            Just("{\"todos\":[{\"content\":\"from a text\"}]}"),
        ], 0..8).prop_map(|parts| parts.concat()),
    ]
}

fn any_arguments() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => any_text().prop_map(|text| serde_json::json!({ "path": "a.rs", "text": text }).to_string()),
        1 => any_text(),
        1 => Just(r#"{"path":"a.rs","content":"fn ma"#.to_owned()),
        1 => Just(r#"{"q":"\ud99c"}"#.to_owned()),
        1 => Just(r#"{"q":"\u003csystem-reminder> \u003c\/system-reminder>"}"#.to_owned()),
        1 => prop_oneof![Just("null"), Just("[]"), Just(""), Just("7"), Just("{}{}")].prop_map(str::to_owned),
    ]
}

fn any_plan_arguments() -> impl Strategy<Value = String> {
    let statuses =
        prop_oneof![Just("pending"), Just("in_progress"), Just("completed"), Just("done"), Just("nonsense")];
    let items = proptest::collection::vec((any_text(), statuses, any::<bool>(), 0u8..4), 0..5)
        .prop_map(|items| {
            items
                .into_iter()
                .map(|(content, status, has_id, id)| {
                    let mut item =
                        serde_json::json!({ "content": content, "status": status, "activeForm": content });
                    if has_id {
                        item["id"] = serde_json::json!(id.to_string());
                    }
                    item
                })
                .collect::<Vec<_>>()
        })
        .boxed();
    prop_oneof![
        4 => items.clone().prop_map(|items| serde_json::json!({ "todos": items }).to_string()),
        1 => items.prop_map(|items| {
            let list = serde_json::Value::Array(items).to_string();
            serde_json::json!({ "todos": list }).to_string()
        }),
        3 => "[x>-]{0,4}".prop_map(|statuses| plan_arguments(&statuses)),
        1 => any_arguments(),
    ]
}

fn any_id() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), Just("call_1".to_owned()), "[a-z0-9]{6}"]
}

fn any_call() -> impl Strategy<Value = Content> {
    let other = (any_id(), prop_oneof![3 => Just("read".to_owned()), 1 => any_text()], any_arguments());
    let name = prop_oneof![Just("todo_write".to_owned()), Just("todo".to_owned())];
    let plan = (any_id(), name, any_plan_arguments());
    let opaque = proptest::option::of(Just(r#"{"signature":"AbC="}"#.to_owned()));
    (prop_oneof![other, plan], opaque)
        .prop_map(|((id, name, arguments), opaque)| Content::Call(ToolCall { id, name, arguments, opaque }))
}

pub fn any_content() -> impl Strategy<Value = Vec<Content>> {
    let reasoning =
        (any_text(), proptest::option::of(Just(r#"{"type":"thinking","signature":"x"}"#.to_owned())))
            .prop_map(|(text, opaque)| Content::Reasoning { text, opaque });
    let said = prop_oneof![
        3 => any_text().prop_map(|text| Content::Text { text }),
        1 => reasoning,
        1 => Just(Content::Opaque { raw: r#"{"type":"redacted"}"#.to_owned() }),
    ];
    (proptest::collection::vec(said, 0..3), proptest::collection::vec(any_call(), 0..5))
        .prop_map(|(said, calls)| said.into_iter().chain(calls).collect())
}

pub fn any_outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        6 => Just(Outcome::Ok),
        1 => Just(Outcome::Error),
        1 => Just(Outcome::Denied),
        1 => Just(Outcome::Interrupted),
    ]
}

fn any_notice() -> impl Strategy<Value = Op> {
    let about = prop_oneof![
        Just(NoticeKind::Date { date: "2026-12-01".to_owned() }),
        Just(NoticeKind::FilesChanged { files: vec![FileMark { path: path("/work/app/1.rs"), hash: None }] }),
        Just(NoticeKind::Moved { cwd: path("/work/moved") }),
        Just(NoticeKind::Interceptor),
        Just(NoticeKind::Continuation),
    ];
    (about, any_text())
        .prop_map(|(about, text)| Op::Notice(about, mainstay_session::lookalike::runtime_block(&text)))
}

pub fn any_op() -> impl Strategy<Value = Op> {
    let ending = prop_oneof![6 => Just(Ended::Complete), 1 => Just(failed()), 1 => Just(Ended::Cancelled)];
    let texts = (any_text(), proptest::option::of(any_text()));
    let results =
        (any::<Index>(), any_outcome(), texts, proptest::collection::vec(0u8..30, 0..4), any::<bool>())
            .prop_map(|(of, outcome, texts, files, old)| Op::Result { of, outcome, texts, files, old });
    prop_oneof![
        3 => (any_text(), any::<bool>()).prop_map(|(text, steering)| Op::Prompt(text, steering)),
        6 => (any_content(), ending).prop_map(|(content, how)| Op::Answer(content, how)),
        4 => proptest::collection::vec(
                (prop_oneof![Just("todo"), Just("todo_write")], any_plan_arguments()), 1..3)
            .prop_map(|calls| Op::PlanAnswer(
                calls.into_iter().map(|(name, arguments)| call("p", name, &arguments)).collect())),
        2 => any::<Index>().prop_map(Op::Intent),
        1 => Just(Op::JobEnd),
        14 => results,
        1 => any::<Index>().prop_map(Op::Again),
        1 => (any_outcome(), any_text()).prop_map(|(outcome, text)| Op::Orphan(outcome, text)),
        1 => Just(Op::Reminder),
        2 => any_notice(),
        2 => (0u8..5, any_text()).prop_map(|(id, text)| Op::Inbox(id, text)),
        1 => Just(Op::Deliver),
        1 => Just(Op::Grant),
        1 => any::<bool>().prop_map(Op::Compaction),
        1 => any_content().prop_map(Op::Worker),
        2 => Just(Op::TurnEnd),
        1 => (0usize..6).prop_map(Op::NextSegment),
        3 => Just(Op::CloseAll),
        1 => Just(Op::Lost),
        1 => Just(Op::ReasoningRefused),
        2 => (0u64..4).prop_map(Op::Rewind),
        1 => Just(Op::UndoRewind),
        1 => any::<Index>().prop_map(Op::Restore),
    ]
}

pub fn any_ops(most: usize) -> impl Strategy<Value = Vec<Op>> {
    proptest::collection::vec(any_op(), 0..most)
}
