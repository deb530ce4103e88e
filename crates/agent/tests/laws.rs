//! The laws of the loop, tried on generated behaviour of models, tools and users.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

mod common;

use std::sync::{Arc, Mutex};

use common::*;
use mainstay_agent::Agent;
use mainstay_model::Model;
use mainstay_session::entry::StopReason;
use mainstay_testkit::models::{RecordingModel, script};
use mainstay_testkit::tools::{demanding, fails, succeeds};
use mainstay_tools::ToolKind;
use proptest::prelude::*;
use serde_json::{Value, json};

const MAX_STEPS: u64 = 8;

fn any_call() -> impl Strategy<Value = Value> {
    let arguments = prop_oneof![
        4 => Just(json!({})),
        1 => Just(json!("{\"cut\": tr")),
        1 => Just(json!("[]")),
        1 => Just(Value::Null),
        1 => (0..3u8).prop_map(|n| json!({"n": n, "x": "<system-reminder>"})),
    ];
    let named = |name: &'static str| Just(name);
    let name = prop_oneof![
        3 => named("work"), 2 => named("look"), 1 => named("bad"), 1 => named("needs"), 1 => named("nowhere"),
        1 => named(""),
    ];
    let other = (name, arguments).prop_map(|(name, arguments)| json!({"name": name, "arguments": arguments}));
    let status = prop_oneof![Just("pending"), Just("in_progress"), Just("completed"), Just("finito")];
    let write = prop::collection::vec(("[ab]", status), 0..4).prop_map(|items| {
        let items: Vec<(&str, &str)> =
            items.iter().map(|(content, status)| (content.as_str(), *status)).collect();
        json!({"name": "todo_write", "arguments": todos(&items)})
    });
    prop_oneof![3 => other, 1 => write]
}

fn any_answer() -> impl Strategy<Value = Value> {
    let finish = prop_oneof![
        6 => Just(None),
        1 => Just(Some("max_tokens")),
        1 => Just(Some("refusal")),
        1 => Just(Some("unknown")),
    ];
    let whole = (prop::collection::vec(any_call(), 0..4), "(|text|</system-reminder>)", finish).prop_map(
        |(calls, text, finish)| {
            let mut answer = json!({"calls": calls, "text": text});
            if let Some(finish) = finish {
                answer["finish"] = json!(finish);
            }
            answer
        },
    );
    let class =
        prop_oneof![Just("overload"), Just("rate"), Just("cut_stream"), Just("bad_request"), Just("quota")];
    let failure = class.prop_map(|class| json!({"text": "half", "error": {"class": class, "message": "no"}}));
    prop_oneof![8 => whole, 1 => failure]
}

#[derive(Clone, Debug)]
enum Event {
    Prompt(String),
    Notify(bool),
    Wake,
    Resume,
    NextDay,
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => "(go|<system-reminder>|)".prop_map(Event::Prompt),
        1 => any::<bool>().prop_map(Event::Notify),
        1 => Just(Event::Wake),
        2 => Just(Event::Resume),
        1 => Just(Event::NextDay),
    ]
}

/// Plays a session and checks after each event that it is sound, that each turn kept its bounds, and that each request
/// is what the log on the disk gives.
async fn play(answers: Vec<Value>, events: Vec<Event>, require_plan: Option<u32>) {
    let bench = Bench::new();
    let inner = script(&Value::Array(answers));
    let from_disk = Arc::new(Mutex::new(Vec::new()));
    let (seen, encoder, home) = (from_disk.clone(), inner.clone(), bench.workspace.data_home());
    let model = RecordingModel::with(inner, move |_| {
        let dir = std::fs::read_dir(home.join("sessions")).unwrap().next().unwrap().unwrap().path();
        seen.lock().unwrap().push(request_from_disk(&dir, encoder.as_ref() as &dyn Model));
    });
    let mut setup = bench.setup(model.clone());
    setup.max_steps = MAX_STEPS;
    setup.require_plan = require_plan;
    setup.attention.reminder_repeat = Some(2);
    setup.tools.extend([succeeds("look", ToolKind::Read), fails("bad"), demanding("needs", &["a"])]);
    let mut agent = Agent::create(setup.clone()).unwrap();
    let mut days = 1;
    for event in events {
        let sent = model.sent().len();
        let report = match event {
            Event::Prompt(prompt) => Some(go(&mut agent, &prompt).await),
            Event::Wake => agent.wake(&Default::default()).await,
            Event::Notify(wake) => {
                agent.notifier().notify("psst </system-reminder>", wake).unwrap();
                None
            }
            Event::NextDay => {
                days += 1;
                bench.world.lock().unwrap().date = format!("2026-12-{days:02}");
                None
            }
            Event::Resume => {
                let before = agent.read(Clone::clone);
                let (resumed, found) = resume(agent, setup.clone());
                assert!(found.closed.is_empty() && !found.was_interrupted && found.damage.is_empty());
                resumed.read(|state| assert_eq!(*state, before));
                agent = resumed;
                None
            }
        };
        // Four attempts at most stand behind each step.
        let attempts = (model.sent().len() - sent) as u64;
        assert!(attempts <= MAX_STEPS * 4, "{attempts} requests in one turn");
        if let Some(report) = report {
            assert!(report.stop_reason != StopReason::Cancelled && report.stop_reason != StopReason::MaxTime);
            agent.read(|state| assert!(state.steps <= MAX_STEPS && !state.turn_is_open));
        }
        assert_sound(&agent);
    }
    assert_eq!(*from_disk.lock().unwrap(), model.sent());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Laws 1, 2, 3 and 8, T14, R07, D06: whatever a model does, each turn ends within its bounds, each request is what
    /// the log on the disk gives and opens with the one before it, each call has one result, and live state is the
    /// replayed state.
    #[test]
    fn whatever_a_model_does_the_laws_hold(
        answers in prop::collection::vec(any_answer(), 0..40),
        events in prop::collection::vec(any_event(), 1..8),
        require_plan in prop::option::of(0..3u32),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(play(answers, events, require_plan));
    }
}
