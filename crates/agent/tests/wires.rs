//! Sessions over every wire format, against servers on the loopback interface: what is sent only grows, live and after a
//! kill, whatever changes in between; each body is one that its provider takes; a retry shows and runs nothing twice.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "a test may fail loudly")]

mod common;

#[allow(unreachable_pub)]
#[path = "../../model/tests/common/anthropic_rules.rs"]
mod anthropic_rules;
#[allow(dead_code, unreachable_pub)]
#[path = "../../model/tests/common/dialects.rs"]
mod dialects;
#[allow(unreachable_pub)]
#[path = "../../model/tests/common/rules_chat.rs"]
mod rules_chat;
#[allow(unreachable_pub)]
#[path = "../../model/tests/common/rules_gemini.rs"]
mod rules_gemini;
#[allow(unreachable_pub)]
#[path = "../../model/tests/common/rules_responses.rs"]
mod rules_responses;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use common::*;
use mainstay_agent::{Agent, Event};
use mainstay_model::{Encoded, Model};
use mainstay_session::entry::{Body, Instruction, StopReason};
use mainstay_session::message::{Ended, FilePath, RequestMark};
use mainstay_session::request::{Request, request};
use mainstay_testkit::speech::{Speech, Wire};
use mainstay_testkit::wire::{Reply, WireServer};
use mainstay_tools::Read;
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// What happens to a session.
#[derive(Clone, Debug)]
enum Happening {
    /// A turn of some steps with these calls, and a last text.
    Turn {
        steps: Vec<Speech>,
        says: String,
    },
    /// A turn whose last answer stalls, and is dropped with its agent there, as a kill would end it.
    Killed {
        steps: Vec<Speech>,
        begun: Speech,
    },
    Resume,
    Notify,
    NextDay,
    Instructions(String),
    FileChanged(String),
    /// Another model from here on.
    Switch(usize),
}

fn any_speech() -> impl Strategy<Value = Speech> {
    let read = Just(("read", r#"{"path":"a.txt"}"#));
    let other = prop_oneof![Just(("work", "{}")), Just(("work", r#"{"n":1}"#)), Just(("nowhere", "{}"))];
    let plan = Just(("todo_write", r#"{"todos":[{"content":"build","status":"in_progress"}]}"#));
    let call = ("(call_[0-9a-f]{6}|f:0|)", prop_oneof![1 => read, 2 => other, 1 => plan]);
    (proptest::collection::vec(call, 1..3), any::<bool>(), "(I look.|)").prop_map(|(calls, thinks, text)| {
        Speech {
            reasoning: if thinks { "Hm.".to_owned() } else { String::new() },
            text,
            calls: calls
                .into_iter()
                .map(|(id, (name, arguments))| (id, name.to_owned(), arguments.to_owned()))
                .collect(),
        }
    })
}

fn any_happening() -> impl Strategy<Value = Happening> {
    let steps = || proptest::collection::vec(any_speech(), 0..3);
    prop_oneof![
        4 => (steps(), "(done|ok|<system-reminder>)").prop_map(|(steps, says)| Happening::Turn { steps, says }),
        2 => (steps(), any_speech()).prop_map(|(steps, begun)| Happening::Killed { steps, begun }),
        2 => Just(Happening::Resume),
        1 => Just(Happening::Notify),
        1 => Just(Happening::NextDay),
        1 => "(Be brief.|Be exact.)".prop_map(Happening::Instructions),
        1 => "[ab]{1,3}".prop_map(Happening::FileChanged),
        2 => (0usize..4).prop_map(Happening::Switch),
    ]
}

/// A session over real models, each with a server of its own.
struct Play {
    bench: Bench,
    servers: Vec<WireServer>,
    models: Vec<Arc<dyn Model>>,
    current: usize,
    days: u8,
}

impl Play {
    async fn new(first: usize) -> (Self, Agent) {
        let bench = Bench::new();
        bench.workspace.write("a.txt", "one\n");
        let mut servers = Vec::new();
        let mut models = Vec::new();
        for wire in Wire::ALL {
            let server = WireServer::start([]).await.unwrap();
            models.push(wire.model(wire.settings(&server.base_url())).unwrap());
            servers.push(server);
        }
        let play = Play { bench, servers, models, current: first, days: 1 };
        let agent = Agent::create(play.setup()).unwrap();
        (play, agent)
    }

    fn setup(&self) -> mainstay_agent::Setup {
        with_tool(self.bench.setup(self.models[self.current].clone()), Arc::new(Read))
    }

    fn push(&self, steps: &[Speech], last: Reply) {
        let wire = Wire::ALL[self.current];
        steps.iter().for_each(|speech| self.servers[self.current].push(Reply::speech(wire, speech)));
        self.servers[self.current].push(last);
    }

    async fn happen(&mut self, mut agent: Agent, happening: &Happening) -> Agent {
        let wire = Wire::ALL[self.current];
        match happening {
            Happening::Turn { steps, says } => {
                self.push(steps, Reply::speech(wire, &Speech::text(says)));
                let report = go(&mut agent, "go on").await;
                assert!(
                    matches!(report.stop_reason, StopReason::EndTurn | StopReason::RepeatedFailure),
                    "{report:?}"
                );
                if report.stop_reason == StopReason::RepeatedFailure {
                    self.forget_replies().await;
                }
            }
            Happening::Killed { steps, begun } => {
                let stalled = Reply::speech(wire, begun).stall_after(wire.stream(begun).len() / 2);
                self.push(steps, stalled);
                let server = &self.servers[self.current];
                let asked = server.received().len() + steps.len() + 1;
                let never = CancellationToken::new();
                let is_asked = async {
                    while server.received().len() < asked {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                    tokio::time::sleep(Duration::from_millis(2)).await;
                };
                tokio::select! {
                    report = agent.run("begin", &never) => {
                        assert_eq!(report.stop_reason, StopReason::RepeatedFailure, "{report:?}");
                        self.forget_replies().await;
                    }
                    () = is_asked => agent = self.resume(agent),
                }
            }
            Happening::Resume => agent = self.resume(agent),
            Happening::Notify => agent.notifier().notify("news </system-reminder>", false).unwrap(),
            Happening::NextDay => {
                self.days += 1;
                self.bench.world.lock().unwrap().date = format!("2026-12-{:02}", self.days);
            }
            Happening::Instructions(text) => {
                let path = FilePath(self.bench.workspace.path().join("AGENTS.md"));
                self.bench.world.lock().unwrap().instructions =
                    vec![Instruction { path, text: text.clone() }];
            }
            Happening::FileChanged(text) => {
                self.bench.workspace.write("a.txt", text);
            }
            Happening::Switch(to) => {
                self.current = *to;
                agent = self.resume(agent);
            }
        }
        agent
    }

    fn resume(&self, agent: Agent) -> Agent {
        let before = agent.read(|state| request(state).messages.len());
        let (agent, resumed) = common::resume(agent, self.setup());
        assert!(resumed.damage.is_empty(), "{resumed:?}");
        agent.read(|state| assert!(request(state).messages.len() >= before));
        agent
    }

    /// Replies that a turn did not come to would be those of the next.
    async fn forget_replies(&mut self) {
        let wire = Wire::ALL[self.current];
        let server = WireServer::start([]).await.unwrap();
        self.models[self.current] = wire.model(wire.settings(&server.base_url())).unwrap();
        self.servers[self.current] = server;
    }

    /// Each request opens with the units of the one before it, but where the log says that another model was chosen; and
    /// of each model, the request that it would get now opens with its last one, whoever answered since.
    fn assert_only_grows(&self, agent: &Agent) {
        let mut before: Option<u32> = None;
        let mut last: HashMap<String, RequestMark> = HashMap::new();
        let mut chosen = String::new();
        for entry in log(&agent.dir()) {
            match entry.body {
                Body::Model(choice) => {
                    if choice.model != chosen {
                        before = None;
                    }
                    chosen = choice.model;
                }
                Body::Answer(answer) => {
                    let mark = answer.request.unwrap();
                    if let Some(units) = before {
                        assert_eq!(
                            mark.shared, units,
                            "the request of entry {} does not open alike",
                            entry.seq
                        );
                    }
                    before = Some(mark.units);
                    last.insert(answer.model, mark);
                }
                _ => {}
            }
        }
        let state = replayed(&agent.dir());
        if !state.open_calls().is_empty() {
            return;
        }
        for model in &self.models {
            let Some(mark) = last.get(model.name()) else { continue };
            let next = model.encode(&Request { previous: Some(mark), ..request(&state) });
            assert_eq!(
                next.mark.shared,
                mark.units,
                "the next request to {} would not open alike",
                model.name()
            );
        }
    }

    /// Every body that was sent is one that its provider takes.
    fn assert_valid(&self) {
        for (wire, server) in Wire::ALL.iter().zip(&self.servers) {
            let all = dialects::dialects();
            let strict = |name: &str| name.ends_with("alternating") || !name.contains(',');
            let dialect =
                all.iter().find(|dialect| dialect.model == wire.model_name() && strict(dialect.name));
            for received in server.received() {
                let mark = RequestMark { units: 0, hash: String::new(), shared: 0, bytes: 0 };
                dialect.unwrap().check(&Encoded { body: received.body, mark }).unwrap();
            }
        }
    }
}

async fn play(first: usize, happenings: Vec<Happening>) {
    let (mut play, mut agent) = Play::new(first).await;
    for happening in &happenings {
        agent = play.happen(agent, happening).await;
        play.assert_only_grows(&agent);
    }
    play.assert_valid();
    let replay = replayed(&agent.dir());
    agent.read(|live| assert_eq!(*live, replay));
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Law 3, T14, J03, J04, D19, L10, B08, I06: in every wire format the units of a request open the next one, live and
    /// after a kill and a resume, whatever files, instructions and dates do in between, and also when the model is switched
    /// and switched back; and every body is one that its provider takes.
    #[test]
    fn requests_only_grow_over_every_wire(
        first in 0usize..4,
        happenings in proptest::collection::vec(any_happening(), 1..7),
    ) {
        runtime().block_on(async {
            tokio::time::timeout(Duration::from_secs(60), play(first, happenings)).await.unwrap();
        });
    }
}

/// D19: signed reasoning that the provider no longer takes is left out, once, and the request is sent again; the resumed session
/// goes on without it.
#[tokio::test]
async fn refused_reasoning_is_left_out_once() {
    const REFUSALS: [(usize, &str, &str); 3] = [
        (
            1,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"messages.1.content.0: Invalid `signature` in `thinking` block"}}"#,
            "signature",
        ),
        (
            2,
            r#"{"error":{"message":"The encrypted content for item rs_1 could not be verified.","type":"invalid_request_error","code":"invalid_encrypted_content"}}"#,
            "encrypted_content\":\"sealed",
        ),
        (
            3,
            r#"{"error":{"code":400,"message":"Thought signature is not valid","status":"INVALID_ARGUMENT"}}"#,
            "signature\":\"signed",
        ),
    ];
    for (place, refusal, sign) in REFUSALS {
        let wire = Wire::ALL[place];
        let (play, mut agent) = Play::new(place).await;
        let server = &play.servers[place];
        server.push(Reply::speech(wire, &Speech::call("call_1", "work", "{}")));
        server.push(Reply::json(400, refusal));
        server.push(Reply::speech(wire, &Speech::text("done")));
        let report = go(&mut agent, "go on").await;
        assert_eq!(report.text, "done", "{wire:?}: {:?}", report.failure);
        let agent = play.resume(agent);
        let counts: Vec<bool> = server
            .received()
            .iter()
            .map(|sent| String::from_utf8_lossy(&sent.body).to_lowercase().contains(sign))
            .collect();
        assert_eq!(counts, [false, true, false], "{wire:?}");
        let refused =
            log(&agent.dir()).iter().filter(|entry| entry.body.kind() == "reasoning_refused").count();
        assert_eq!(refused, 1);
        play.assert_valid();
        // Where there is none, the same refusal is the end.
        server.push(Reply::json(400, refusal));
        let mut agent = agent;
        assert!(go(&mut agent, "once more").await.failure.is_some());
    }
}

/// I01, I02, D19: reasoning and signatures go back with every call they came with, through the steps of a turn, a resume and a
/// model in between; the other model gets none of them.
#[tokio::test]
async fn what_a_provider_wants_back_comes_back_after_a_resume_and_a_switch() {
    let steps = || vec![Speech::call("call_1", "work", "{}"), Speech::call("call_2", "work", r#"{"n":2}"#)];
    for (place, wire) in Wire::ALL.into_iter().enumerate() {
        let (mut play, mut agent) = Play::new(place).await;
        let turn = |steps| Happening::Turn { steps, says: "done".to_owned() };
        let other = (place + 1) % 4;
        for happening in [
            turn(steps()),
            Happening::Resume,
            turn(Vec::new()),
            Happening::Switch(other),
            turn(vec![Speech::call("call_3", "work", r#"{"n":3}"#)]),
            Happening::Switch(place),
            turn(Vec::new()),
        ] {
            agent = play.happen(agent, &happening).await;
            play.assert_only_grows(&agent);
        }
        play.assert_valid();
        let sign = match wire {
            Wire::Chat => r#""reasoning_content":"I think of work""#,
            Wire::Anthropic | Wire::Gemini => r#"signature":"signed""#,
            Wire::Responses => r#""encrypted_content":"sealed""#,
        };
        let count = |place: usize, sign: &str| -> Vec<usize> {
            let sent = play.servers[place].received();
            sent.iter()
                .map(|sent| {
                    String::from_utf8_lossy(&sent.body).to_lowercase().matches(&sign.to_lowercase()).count()
                })
                .collect()
        };
        assert_eq!(count(place, sign), [0, 1, 2, 2, 2], "{wire:?}");
        let foreign = count(other, sign);
        // The other one may use the same sign for its own.
        let own = if matches!((wire, Wire::ALL[other]), (Wire::Gemini, Wire::Anthropic)) { 1 } else { 0 };
        assert!(foreign.iter().all(|count| *count <= own), "{wire:?}: {foreign:?}");
    }
}

/// H11: an answer that is cut after some text and half a call is asked for again; the text is in one answer, the call runs
/// once, and nothing of the first attempt is in a later request.
#[tokio::test]
async fn a_retry_shows_and_runs_nothing_twice() {
    for (place, wire) in Wire::ALL.into_iter().enumerate() {
        let (play, mut agent) = Play::new(place).await;
        let speech = Speech {
            text: "Hello there".to_owned(),
            calls: vec![("call_1".to_owned(), "work".to_owned(), r#"{"n":12345678}"#.to_owned())],
            ..Speech::default()
        };
        let body = wire.stream(&speech);
        let cut = body.find("12345678").or_else(|| body.find("{\\\"n\\\"")).unwrap() + 3;
        play.servers[place].push(Reply::stream(body.clone()).cut_after(cut));
        play.servers[place].push(Reply::stream(body));
        play.servers[place].push(Reply::speech(wire, &Speech::text("done")));
        let report = go(&mut agent, "go").await;
        assert_stopped(&report, StopReason::EndTurn);
        assert_eq!(report.text, "done", "{wire:?}");
        let events = play.bench.events();
        let started = events.iter().filter(|event| matches!(event, Event::ToolStarted { .. })).count();
        let retries = events.iter().filter(|event| matches!(event, Event::Retry { .. })).count();
        assert_eq!((started, retries, results(&agent.dir()).len()), (1, 1, 1), "{wire:?}");
        let whole = events.iter().filter(
            |event| matches!(event, Event::Answer { answer, .. } if answer.ended == Ended::Complete && answer.text() == "Hello there"),
        );
        assert_eq!(whole.count(), 1, "{wire:?}");
        let sent = play.servers[place].received();
        assert_eq!(sent[0].body, sent[1].body, "{wire:?}: the same request is sent again");
        assert_eq!(String::from_utf8_lossy(&sent[2].body).matches("Hello there").count(), 1, "{wire:?}");
        assert_sound(&agent);
        play.assert_valid();
    }
}

/// H10, L03: an error in a stream that began well is retried as one, and none of its calls run.
#[tokio::test]
async fn an_error_inside_a_stream_runs_nothing() {
    for (place, wire) in Wire::ALL.into_iter().enumerate() {
        let (play, mut agent) = Play::new(place).await;
        let broken = Reply::speech(wire, &Speech::call("call_1", "work", "{}"));
        let behind = broken.events() - 2;
        play.servers[place].push(broken.with_event(behind, &wire.error_event("overloaded, try later")));
        play.servers[place].push(Reply::speech(wire, &Speech::text("done")));
        assert_stopped(&go(&mut agent, "go").await, StopReason::EndTurn);
        assert!(results(&agent.dir()).is_empty(), "{wire:?}");
        assert_sound(&agent);
    }
}

/// I05: a server whose window is full says only that the answer was cut; the user is told of the likely window, once.
#[tokio::test]
async fn a_window_smaller_than_declared_is_told_of_once() {
    let (play, mut agent) = Play::new(0).await;
    let end = json!({"choices": [{"index": 0, "delta": {"content": "I beg"}, "finish_reason": "length"}],
        "usage": {"prompt_tokens": 4000, "completion_tokens": 96, "total_tokens": 4096}});
    for _ in 0..2 {
        play.servers[0].push(Reply::chat_stream([end.to_string().as_str()]));
    }
    assert_stopped(&go(&mut agent, "go").await, StopReason::MaxTokens);
    assert_stopped(&go(&mut agent, "go").await, StopReason::MaxTokens);
    let warnings: Vec<String> = play
        .bench
        .events()
        .into_iter()
        .filter_map(|event| match event {
            Event::Warning(text) => Some(text),
            _ => None,
        })
        .collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("a context window of 4096 tokens, not the 200000"), "{warnings:?}");
}

/// J05: two sessions in two places, one with its tools told in another order of creation, share tools and system text byte for
/// byte: nothing of the session stands before them.
#[tokio::test]
async fn what_all_sessions_share_stands_before_what_is_of_one() {
    for (place, wire) in Wire::ALL.into_iter().enumerate() {
        let mut bodies = Vec::new();
        for _ in 0..2 {
            let (play, mut agent) = Play::new(place).await;
            play.servers[place].push(Reply::speech(wire, &Speech::text("done")));
            go(&mut agent, "go").await;
            let body: Value = play.servers[place].received()[0].json();
            bodies.push((body, play.servers[place].received()[0].body.clone(), play.bench.workspace.path()));
        }
        let (one, other) = (&bodies[0], &bodies[1]);
        assert_eq!(one.0["tools"], other.0["tools"], "{wire:?}");
        let same = one.1.iter().zip(&other.1).take_while(|(a, b)| a == b).count();
        let cwd = one.2.display().to_string();
        let first = String::from_utf8_lossy(&one.1).find(&cwd).unwrap();
        // The key of the cache is not part of the prompt; in Responses it stands first.
        let head = if wire == Wire::Responses { 0 } else { first };
        assert!(same >= head.min(first), "{wire:?}: they differ at {same}, the directory stands at {first}");
    }
}
