//! Reminders, changes of the world and notifications: what the runtime says, when, and in which order.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::*;
use mainstay_agent::{Agent, Interceptor, Setup, TurnFailure};
use mainstay_model::Model;
use mainstay_session::entry::{Instruction, StopReason};
use mainstay_session::history::{History, HistoryMessage};
use mainstay_session::log::Fault;
use mainstay_session::message::{ErrorClass, FilePath};
use mainstay_session::state::SessionState;
use mainstay_testkit::models::{PushModel, RecordingModel, count_of, messages, texts};
use mainstay_tools::ToolKind;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

fn script(parts: &[&[Value]]) -> Value {
    Value::Array(parts.concat())
}

/// T03 A14 A15: the third step without a write brings one reminder before the next request; the second brings none.
#[tokio::test]
async fn the_third_step_without_a_write_is_followed_by_a_reminder() {
    for (steps, expected) in [(2, vec![]), (3, vec![5]), (4, vec![5])] {
        let bench = Bench::new();
        let (setup, _) = bench.scripted(&script(&[&[open_plan()], &vec![work(); steps], &[text("done")]]));
        let (agent, report) = run(setup, "go").await;
        assert_stopped(&report, StopReason::EndTurn);
        assert_eq!(reminded_before(&agent.dir()), expected, "after {steps} steps");
        assert_eq!(report.plan.plan.completed(), 0);
        assert_sound(&agent);
    }
}

/// T04 B10 J03: the reminder is in the log before the request is sent, in the request, in history.json and get_history,
/// and at the same place after resume.
#[tokio::test]
async fn the_reminder_is_everywhere_at_its_place() {
    let bench = Bench::new();
    let answers = script(&[&[open_plan()], &vec![work(); 3], &[text("done"), text("again")]]);
    let (setup, model) = bench.scripted(&answers);
    let (agent, _) = run(setup.clone(), "go").await;
    let reminder = reminders(&agent.dir()).remove(0);
    let request = messages(&model.sent()[4]);
    assert_eq!(texts(&model.sent()[4]).last().unwrap().1, reminder);
    let in_history = |history: &History| {
        let said = HistoryMessage::User { text: reminder.clone(), images: Vec::new() };
        history.messages.iter().filter(|message| **message == said).count()
    };
    assert_eq!(in_history(&agent.get_history()), 1);
    let document = std::fs::read(agent.dir().join("history.json")).unwrap();
    assert_eq!(in_history(&serde_json::from_slice(&document).unwrap()), 1);
    let kinds = kinds(&agent.dir());
    let place = kinds.iter().position(|kind| kind == "reminder").unwrap();
    assert_eq!(kinds[place + 1], "answer");
    let (mut agent, _) = resume(agent, setup);
    go(&mut agent, "more").await;
    let resumed = messages(model.sent().last().unwrap());
    assert_eq!(resumed[..request.len()], request[..]);
    assert_eq!(reminders(&agent.dir()).len(), 1);
    assert_sound(&agent);
}

/// T05 B03: twenty further steps bring no second reminder.
#[tokio::test]
async fn a_reminder_is_not_repeated() {
    let bench = Bench::new();
    let (setup, _) = bench.scripted(&script(&[&[open_plan()], &vec![work(); 23], &[text("done")]]));
    let (agent, _) = run(setup, "go").await;
    assert_eq!(reminded_before(&agent.dir()), [5]);
}

/// T06: after an accepted write the next reminder needs three new steps.
#[tokio::test]
async fn a_write_starts_the_count_anew() {
    let bench = Bench::new();
    let other = plan(&[("build", "completed"), ("test", "in_progress")]);
    let steps: [&[Value]; 6] =
        [&[open_plan()], &[work(), work()], &[other], &[work(), work()], &[work()], &[text("x")]];
    let (setup, _) = bench.scripted(&script(&steps));
    let (agent, _) = run(setup, "go").await;
    assert_eq!(reminded_before(&agent.dir()), [8]);
}

/// T07 T08: a refused write neither resets nor counts; a step with an accepted write and other calls is a write.
#[tokio::test]
async fn refused_writes_and_mixed_steps_are_counted_right() {
    let refused = || plan(&[("x", "finito")]);
    let mixed = || calls(&[("work", json!({})), ("todo_write", todos(&[("c", "pending")]))]);
    let refused_beside_work = || calls(&[("work", json!({})), ("todo_write", todos(&[("c", "finito")]))]);
    let cases: Vec<(Vec<Value>, Vec<usize>)> = vec![
        (vec![work(), work(), refused(), work(), text("x")], vec![6]),
        (vec![work(), work(), refused(), refused(), text("x")], vec![]),
        (vec![work(), work(), mixed(), work(), work(), work(), text("x")], vec![8]),
        (vec![work(), work(), refused_beside_work(), text("x")], vec![5]),
    ];
    for (place, (steps, expected)) in cases.into_iter().enumerate() {
        let bench = Bench::new();
        let (setup, _) = bench.scripted(&script(&[&[open_plan()], &steps]));
        let (agent, _) = run(setup, "go").await;
        assert_eq!(reminded_before(&agent.dir()), expected, "case {place}");
        assert_sound(&agent);
    }
}

/// T07: a denied write neither resets nor counts.
#[tokio::test]
async fn a_denied_write_neither_resets_nor_counts() {
    let bench = Bench::new();
    let (setup, _) = bench.scripted(&script(&[&[
        open_plan(),
        text("ok"),
        work(),
        work(),
        plan(&[("x", "pending")]),
        work(),
        text("ok"),
    ]]));
    let (agent, _) = run(setup.clone(), "go").await;
    let mut denying = setup;
    denying.interceptors.push(Arc::new(Denies("todo_write")));
    let (mut agent, _) = resume(agent, denying);
    go(&mut agent, "on").await;
    assert_eq!(reminded_before(&agent.dir()), [7]);
}

/// T09: answers without calls, prompts, notifications and retries do not count.
#[tokio::test(start_paused = true)]
async fn only_steps_with_calls_count() {
    let bench = Bench::new();
    let error = json!({"error": {"class": "overload", "message": "busy"}});
    let (setup, _) = bench.scripted(&json!([
        open_plan(),
        work(),
        text("one"),
        text("two"),
        text("three"),
        error,
        error,
        work(),
        text("four"),
        text("five"),
    ]));
    let (mut agent, _) = run(setup, "1").await;
    for prompt in ["2", "3"] {
        agent.notifier().notify("something happened", false).unwrap();
        go(&mut agent, prompt).await;
    }
    let report = go(&mut agent, "4").await;
    assert_stopped(&report, StopReason::EndTurn);
    go(&mut agent, "5").await;
    agent.read(|state| assert_eq!(state.attention.counting_steps, 2));
    assert!(reminders(&agent.dir()).is_empty());
    assert_sound(&agent);
}

/// T10 T02 A17: steps while nothing is unfinished do not prime the counter.
#[tokio::test]
async fn steps_without_unfinished_items_do_not_prime_the_counter() {
    for first in [plan(&[("a", "completed")]), work()] {
        let bench = Bench::new();
        let steps = script(&[&[first], &vec![work(); 10], &[open_plan(), work(), work(), text("x")]]);
        let (setup, _) = bench.scripted(&steps);
        let (agent, _) = run(setup, "go").await;
        assert!(reminders(&agent.dir()).is_empty());
    }
}

/// B04: the reminder can be switched off and the tool still works.
#[tokio::test]
async fn the_reminder_can_be_switched_off() {
    let bench = Bench::new();
    let (mut setup, _) = bench.scripted(&script(&[&[open_plan()], &vec![work(); 50], &[text("done")]]));
    setup.attention.reminder_after = 0;
    let (agent, report) = run(setup, "go").await;
    assert!(reminders(&agent.dir()).is_empty());
    assert_eq!(report.plan.plan.items.len(), 2);
}

/// B03: a write before every second step leaves no room for a reminder.
#[tokio::test]
async fn regular_writes_are_never_reminded_of() {
    let bench = Bench::new();
    let mut steps = Vec::new();
    for step in 0..20 {
        let (a, b) = if step % 2 == 0 { ("in_progress", "pending") } else { ("pending", "in_progress") };
        steps.extend([plan(&[("a", a), ("b", b)]), work()]);
    }
    steps.push(text("done"));
    let (setup, _) = bench.scripted(&Value::Array(steps));
    let (agent, report) = run(setup, "go").await;
    assert_stopped(&report, StopReason::EndTurn);
    assert!(reminders(&agent.dir()).is_empty());
}

/// T19: with a repeat the reminders come at 3, 27 and 51 steps, also over a resume.
#[tokio::test]
async fn a_repeat_comes_after_as_many_further_steps() {
    let bench = Bench::new();
    let answers =
        script(&[&[open_plan()], &vec![work(); 26], &[text("rest")], &vec![work(); 26], &[text("done")]]);
    let (mut setup, _) = bench.scripted(&answers);
    setup.attention.reminder_repeat = Some(24);
    let (agent, _) = run(setup.clone(), "go").await;
    let (mut agent, _) = resume(agent, setup);
    go(&mut agent, "on").await;
    // The n-th request follows n - 2 counting steps; the answer without calls in between adds one.
    assert_eq!(reminded_before(&agent.dir()), [5, 30, 54]);
    assert_sound(&agent);
}

/// T15: a reminder that becomes due with the last step starts no request.
#[tokio::test]
async fn a_reminder_starts_nothing() {
    let bench = Bench::new();
    let (mut setup, model) = bench.scripted(&script(&[&[open_plan()], &vec![work(); 9]]));
    setup.max_steps = 4;
    let (mut agent, report) = run(setup, "go").await;
    assert_stopped(&report, StopReason::MaxSteps);
    assert!(reminders(&agent.dir()).is_empty());
    assert_eq!(model.sent().len(), 4);
    assert!(agent.wake(&CancellationToken::new()).await.is_none());
    assert_eq!(model.sent().len(), 4);
    go(&mut agent, "on").await;
    assert_eq!(reminded_before(&agent.dir()), [5]);
}

struct Adds;

impl Interceptor for Adds {
    fn pending_history_appends(&self, state: &SessionState, _: u64) -> Vec<String> {
        if state.turns == 2 && state.steps == 0 { vec!["from an interceptor".to_owned()] } else { Vec::new() }
    }
}

fn tell_of_tomorrow(bench: &Bench) {
    let mut world = bench.world.lock().unwrap();
    world.date = "2026-12-01".to_owned();
    let path = FilePath(bench.workspace.path().join("AGENTS.md"));
    world.instructions = vec![Instruction { path, text: "Be brief.".to_owned() }];
}

/// T13: results, then notifications, then changes of the world, then the user's text, then the reminder, then the answer.
#[tokio::test]
async fn what_is_new_is_told_in_its_order() {
    let bench = Bench::new();
    let (mut setup, model) = bench.scripted(&script(&[&[open_plan()], &vec![work(); 9]]));
    setup.max_steps = 4;
    setup.interceptors.push(Arc::new(Adds));
    let (mut agent, _) = run(setup, "go").await;
    agent.notifier().notify("first", false).unwrap();
    agent.notifier().notify("second", true).unwrap();
    tell_of_tomorrow(&bench);
    go(&mut agent, "the prompt").await;
    let kinds = kinds(&agent.dir());
    let end = kinds.iter().position(|kind| kind == "turn_end").unwrap();
    let expected = [
        "turn_end",
        "inbox",
        "inbox",
        "notification",
        "notification",
        "interceptor",
        "instructions",
        "date",
        "user_prompt",
        "reminder",
        "answer",
    ];
    assert_eq!(kinds[end - 1], "tool_result");
    assert_eq!(kinds[end..end + expected.len()], expected);
    let tail: Vec<String> = texts(&model.sent()[4])
        .into_iter()
        .rev()
        .take_while(|(role, _)| role == "user")
        .map(|(_, text)| text)
        .collect();
    let signs =
        ["Refresh your", "the prompt", "The date is now", "Be brief", "an interceptor", "second", "first"];
    assert_eq!(tail.len(), signs.len());
    assert!(tail.iter().zip(signs).all(|(text, sign)| text.contains(sign)), "{tail:?}");
    assert_sound(&agent);
}

/// J01 J02 J04 B09: a new date and new instructions are each told once, at the end, and the prefix stays, also on resume.
#[tokio::test]
async fn a_changed_world_is_told_once() {
    let bench = Bench::new();
    let (setup, model) = bench.scripted(&script(&[&vec![text("ok"); 9]]));
    let (mut agent, _) = run(setup.clone(), "1").await;
    bench.clock.step(61);
    go(&mut agent, "2").await;
    tell_of_tomorrow(&bench);
    let (mut agent, _) = resume(agent, setup);
    go(&mut agent, "3").await;
    go(&mut agent, "4").await;
    let told =
        kinds(&agent.dir()).into_iter().filter(|kind| kind == "date" || kind == "instructions").count();
    assert_eq!(told, 2);
    let sent = model.sent();
    for pair in sent.windows(2) {
        let (before, after) = (messages(&pair[0]), messages(&pair[1]));
        assert_eq!(after[..before.len()], before[..]);
    }
    bench.world.lock().unwrap().instructions.clear();
    go(&mut agent, "5").await;
    go(&mut agent, "6").await;
    assert_eq!(count_of(model.sent().last().unwrap(), "are gone"), 1);
    assert_sound(&agent);
}

/// T17: if the reminder cannot be logged, no request is sent, the period stands where it was, and the error is told.
#[tokio::test]
async fn without_the_log_no_request_is_sent() {
    let bench = Bench::new();
    let (mut setup, model) =
        bench.scripted(&script(&[&[open_plan()], &vec![work(); 3], &[text("done"), text("more")]]));
    setup.max_steps = 4;
    let (mut agent, _) = run(setup.clone(), "go").await;
    let before = agent.read(Clone::clone);
    // The prompt is the first entry of the turn, so it is what cannot be written; nor can anything else.
    for _ in 0..40 {
        agent.notifier().inject(Fault::ShortWrite(7));
    }
    let report = go(&mut agent, "on").await;
    assert_stopped(&report, StopReason::Error);
    assert!(matches!(report.failure, Some(TurnFailure::Log { .. })));
    assert!(report.failure.unwrap().message().contains("cannot write the session log"));
    assert_eq!(model.sent().len(), 4);
    agent.read(|state| assert_eq!((&state.attention, state.last_seq), (&before.attention, before.last_seq)));
    assert_eq!(replayed(&agent.dir()).attention, before.attention);
}

/// T17 L05: when the disk has room again, what waited is written in order and the session goes on.
#[tokio::test]
async fn the_session_goes_on_when_the_log_can_be_written() {
    let bench = Bench::new();
    let steps = script(&[&[open_plan()], &vec![work(); 3], &[text("done"), text("more")]]);
    let (mut setup, model) = bench.scripted(&steps);
    setup.max_steps = 4;
    let (mut agent, _) = run(setup, "go").await;
    agent.notifier().inject(Fault::ShortWrite(7));
    agent.notifier().inject(Fault::ShortWrite(0));
    let report = go(&mut agent, "on").await;
    assert_stopped(&report, StopReason::Error);
    assert_eq!(model.sent().len(), 4);
    let report = go(&mut agent, "again").await;
    assert_stopped(&report, StopReason::EndTurn);
    assert_eq!(reminded_before(&agent.dir()), [5]);
    assert_sound(&agent);
}

/// N01: two notifications before a request are told in order, once.
#[tokio::test]
async fn notifications_are_told_in_order_and_once() {
    let bench = Bench::new();
    let (setup, model) = bench.scripted(&script(&[&[work(), text("a"), text("b")]]));
    let mut agent = Agent::create(setup).unwrap();
    let notifier = agent.notifier();
    notifier.notify("news: one", false).unwrap();
    notifier.notify("news: two", false).unwrap();
    go(&mut agent, "go").await;
    go(&mut agent, "on").await;
    let sent = texts(model.sent().last().unwrap());
    let place = |sign: &str| {
        let places: Vec<usize> = (0..sent.len()).filter(|&at| sent[at].1.contains(sign)).collect();
        assert_eq!(places.len(), 1, "{sign}");
        places[0]
    };
    assert!(place("news: one") < place("news: two"));
    assert_sound(&agent);
}

/// N02: a notification that was accepted is there after the agent ended without a turn, and is delivered once.
#[tokio::test]
async fn an_accepted_notification_survives() {
    let bench = Bench::new();
    let (setup, model) = bench.scripted(&script(&[&[text("a"), text("b")]]));
    let agent = Agent::create(setup.clone()).unwrap();
    agent.notifier().notify("the build is broken", true).unwrap();
    let (mut agent, _) = resume(agent, setup.clone());
    agent.read(|state| assert_eq!(state.inbox.len(), 1));
    go(&mut agent, "go").await;
    let (mut agent, _) = resume(agent, setup);
    assert!(agent.wake(&CancellationToken::new()).await.is_none());
    go(&mut agent, "on").await;
    assert_eq!(count_of(model.sent().last().unwrap(), "the build is broken"), 1);
}

/// N04: a waking notification makes one turn without a prompt; a silent one waits.
#[tokio::test]
async fn only_a_waking_notification_makes_a_turn() {
    let bench = Bench::new();
    let (setup, model) = bench.scripted(&script(&[&[text("a"), text("b")]]));
    let mut agent = Agent::create(setup).unwrap();
    let never = CancellationToken::new();
    agent.notifier().notify("silent", false).unwrap();
    assert!(agent.wake(&never).await.is_none());
    agent.notifier().notify("waking", true).unwrap();
    agent.woken().await;
    let report = agent.wake(&never).await.unwrap();
    assert_stopped(&report, StopReason::EndTurn);
    assert!(agent.wake(&never).await.is_none());
    assert_eq!(model.sent().len(), 1);
    assert!(!kinds(&agent.dir()).contains(&"user_prompt".to_owned()));
    agent.read(|state| assert_eq!((state.turns, state.turn_is_open), (1, false)));
    assert_sound(&agent);
}

/// N01: a notification that comes while a tool runs is told before the next request of the same turn.
#[tokio::test]
async fn a_notification_in_mid_turn_is_told_in_the_same_turn() {
    let bench = Bench::new();
    let (model, mut asks) = PushModel::new();
    let (tool, mut held) = mainstay_testkit::tools::held("slow", ToolKind::Other);
    let mut agent = Agent::create(with_tool(bench.setup(model), tool)).unwrap();
    let notifier = agent.notifier();
    let drive = async {
        asks.next().await.calls(&[("slow", "{}")]);
        let call = held.begun().await;
        notifier.notify("meanwhile", true).unwrap();
        call.release("slow is done");
        let ask = asks.next().await;
        let told = count_of(&ask.encoded, "meanwhile");
        ask.text("ok");
        told
    };
    let (report, was_told) = tokio::join!(go(&mut agent, "go"), drive);
    assert_stopped(&report, StopReason::EndTurn);
    assert_eq!(was_told, 1);
    assert!(agent.wake(&CancellationToken::new()).await.is_none());
}

/// Law 2: every request, retried ones included, is what the log on the disk gives at the moment it is sent.
#[tokio::test(start_paused = true)]
async fn every_request_follows_from_the_log_on_the_disk() {
    let bench = Bench::new();
    let inner = mainstay_testkit::models::script(&json!([
        open_plan(), work(), {"error": {"class": "rate", "message": "slow down", "retry_after_ms": 700}}, work(), work(),
        {"text": "thinking", "calls": [{"name": "nowhere", "arguments": "{broken"}]}, text("done"), work(), text("bye"),
    ]));
    let home = bench.workspace.data_home();
    let (disk, other) = (Arc::new(std::sync::Mutex::new(Vec::new())), inner.clone());
    let seen = disk.clone();
    let model = RecordingModel::with(inner, move |_| {
        let session = std::fs::read_dir(home.join("sessions")).unwrap().next().unwrap().unwrap().path();
        seen.lock().unwrap().push(request_from_disk(&session, other.as_ref()));
    });
    let setup = bench.setup(model.clone());
    let (agent, _) = run(setup.clone(), "go <system-reminder>x</system-reminder>").await;
    agent.notifier().notify("hello", false).unwrap();
    tell_of_tomorrow(&bench);
    let (mut agent, _) = resume(agent, setup);
    go(&mut agent, "on").await;
    assert_eq!(model.sent().len(), 9);
    assert_eq!(*disk.lock().unwrap(), model.sent());
    assert_sound(&agent);
}

/// R11: after a resume the count of steps and whether a reminder was given are what they were.
#[tokio::test]
async fn attention_survives_a_resume() {
    for steps in [1, 2, 3, 5] {
        let bench = Bench::new();
        let (mut setup, _) = bench.scripted(&script(&[&[open_plan()], &vec![work(); 12]]));
        setup.max_steps = 1 + steps;
        let (agent, _) = run(setup.clone(), "go").await;
        let before = agent.read(|state| state.attention.clone());
        let (agent, _) = resume(agent, setup);
        agent.read(|state| assert_eq!(state.attention, before));
    }
}

/// R12: after every turn history.json, get_history and the projection of the replayed log are equal.
#[tokio::test(start_paused = true)]
async fn the_history_is_the_same_wherever_it_is_read() {
    let bench = Bench::new();
    let failure = json!({"error": {"class": "bad_request", "message": "no"}});
    let (setup, _) =
        bench.scripted(&json!([open_plan(), work(), work(), work(), text("a"), work(), text("b"), failure]));
    let mut agent = Agent::create(setup).unwrap();
    for prompt in ["1", "2", "3"] {
        agent.notifier().notify("psst", false).unwrap();
        go(&mut agent, prompt).await;
        let document: History =
            serde_json::from_slice(&std::fs::read(agent.dir().join("history.json")).unwrap()).unwrap();
        assert_eq!(document, agent.get_history());
        assert_eq!(document, History::of(&replayed(&agent.dir())));
    }
}

/// H11: a retry repeats the very same request.
#[tokio::test(start_paused = true)]
async fn a_retry_sends_the_same_bytes() {
    let bench = Bench::new();
    let (model, mut asks) = PushModel::new();
    let setup: Setup = bench.setup(model.clone());
    let mut agent = Agent::create(setup).unwrap();
    let drive = async {
        let first = asks.next().await;
        let body = first.encoded.body.clone();
        bench.clock.step(86_400);
        first.fail(ErrorClass::Overload, Some(Duration::from_secs(5)));
        let second = asks.next().await;
        assert_eq!(second.encoded.body, body);
        second.text("ok");
    };
    let (report, ()) = tokio::join!(go(&mut agent, "go"), drive);
    assert_stopped(&report, StopReason::EndTurn);
    assert_eq!(model.name(), "push/test");
}
