//! Turns that are cut short: cancelled, out of time, dropped in mid-call, and what is said of their calls.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

mod common;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::*;
use mainstay_agent::{Agent, Event, Resumed, Setup};
use mainstay_model::Model;
use mainstay_session::entry::{Body, StopReason};
use mainstay_session::message::{ErrorClass, Outcome};
use mainstay_testkit::models::{Asks, PushModel, texts};
use mainstay_testkit::tools::{HeldCalls, by, held};
use mainstay_tools::{StartedProcess, ToolKind, ToolOutput};
use tokio_util::sync::CancellationToken;

struct Pushed {
    bench: Bench,
    setup: Setup,
    model: Arc<PushModel>,
    asks: Asks,
    slow: HeldCalls,
}

/// A push-driven model and a tool `slow` that runs until it is released.
fn pushed() -> Pushed {
    let bench = Bench::new();
    let (model, asks) = PushModel::new();
    let (tool, slow) = held("slow", ToolKind::Other);
    let setup = with_tool(bench.setup(model.clone()), tool);
    Pushed { bench, setup, model, asks, slow }
}

/// What follows a cut must be a session like any other.
async fn assert_goes_on(agent: &mut Agent, asks: &mut Asks) -> Vec<(String, String)> {
    let drive = async {
        let ask = asks.next().await;
        let told = texts(&ask.encoded);
        ask.text("done");
        told
    };
    let (report, told) = tokio::join!(go(agent, "and then"), drive);
    assert_stopped(&report, StopReason::EndTurn);
    assert_sound(agent);
    told
}

/// A25: cancelled while the model streams, what it said stays, and the plan too.
#[tokio::test]
async fn cancelled_while_the_model_streams() {
    let Pushed { bench, setup, mut asks, .. } = pushed();
    let mut agent = Agent::create(setup).unwrap();
    let cancel = CancellationToken::new();
    let drive = async {
        let write = todos(&[("build", "in_progress"), ("test", "pending")]).to_string();
        asks.next().await.calls(&[("todo_write", &write)]);
        let ask = asks.next().await;
        ask.say("Now I wi");
        until(|| bench.events().iter().any(|event| matches!(event, Event::TextDelta(_)))).await;
        cancel.cancel();
        ask
    };
    let (report, _ask) = tokio::join!(agent.run("go", &cancel), drive);
    assert_stopped(&report, StopReason::Cancelled);
    assert_eq!(report.plan.plan.items.len(), 2);
    assert_sound(&agent);
    let told = assert_goes_on(&mut agent, &mut asks).await;
    assert_eq!(told.iter().filter(|(_, text)| text == "Now I wi").count(), 1);
}

/// Cancelled while a tool runs: that call and those behind it have results that say what is known.
#[tokio::test]
async fn cancelled_while_a_tool_runs() {
    let Pushed { bench: _bench, setup, mut asks, mut slow, .. } = pushed();
    let mut agent = Agent::create(setup).unwrap();
    let cancel = CancellationToken::new();
    let drive = async {
        asks.next().await.calls(&[("work", "{}"), ("slow", "{}"), ("work", "{}")]);
        let call = slow.begun().await;
        cancel.cancel();
        call
    };
    let (report, _call) = tokio::join!(agent.run("go", &cancel), drive);
    assert_stopped(&report, StopReason::Cancelled);
    let results = results(&agent.dir());
    let outcomes: Vec<Outcome> = results.iter().map(|result| result.outcome).collect();
    assert_eq!(outcomes, [Outcome::Ok, Outcome::Interrupted, Outcome::Interrupted]);
    assert_eq!(results[1].summary, "cancelled while it ran");
    assert!(results[2].summary.contains("before this call began"));
    assert_sound(&agent);
    assert_goes_on(&mut agent, &mut asks).await;
}

/// Cancelled before it began, or between an answer and its calls, the turn leaves a whole log and runs nothing.
#[tokio::test]
async fn cancelled_between() {
    let Pushed { bench: _bench, setup, mut asks, mut slow, .. } = pushed();
    let mut agent = Agent::create(setup).unwrap();
    let cancel = CancellationToken::new();
    cancel.cancel();
    let report = agent.run("go", &cancel).await;
    assert_stopped(&report, StopReason::Cancelled);
    assert_sound(&agent);
    while asks.try_next().is_some() {}
    let cancel = CancellationToken::new();
    let cancel_on_answer = cancel.clone();
    let mut setup = agent.setup().clone();
    setup.on_event = Arc::new(move |event| {
        if matches!(event, Event::Answer { .. }) {
            cancel_on_answer.cancel();
        }
    });
    let (mut agent, _) = resume(agent, setup);
    let drive = async { asks.next().await.calls(&[("slow", "{}"), ("work", "{}")]) };
    let (report, ()) = tokio::join!(agent.run("go", &cancel), drive);
    assert_stopped(&report, StopReason::Cancelled);
    assert!(slow.try_begun().is_none());
    assert!(results(&agent.dir()).iter().all(|result| result.outcome == Outcome::Interrupted));
    assert_sound(&agent);
    assert_goes_on(&mut agent, &mut asks).await;
}

/// Cancelled while it waits to try again, the turn ends at once.
#[tokio::test(start_paused = true)]
async fn cancelled_while_it_waits_to_try_again() {
    let Pushed { bench: _bench, setup, mut asks, .. } = pushed();
    let mut agent = Agent::create(setup).unwrap();
    let cancel = CancellationToken::new();
    let drive = async {
        asks.next().await.fail(ErrorClass::Rate, Some(Duration::from_secs(20)));
        tokio::time::sleep(Duration::from_secs(1)).await;
        cancel.cancel();
    };
    let begun = tokio::time::Instant::now();
    let (report, ()) = tokio::join!(agent.run("go", &cancel), drive);
    assert_stopped(&report, StopReason::Cancelled);
    assert!(begun.elapsed() < Duration::from_secs(2));
    assert!(asks.try_next().is_none());
    assert_goes_on(&mut agent, &mut asks).await;
}

/// Time runs through the whole turn: two steps of forty seconds are over the minute.
#[tokio::test(start_paused = true)]
async fn a_turn_ends_when_its_time_is_up() {
    let Pushed { bench: _bench, mut setup, mut asks, mut slow, .. } = pushed();
    setup.max_time = Some(Duration::from_secs(60));
    let mut agent = Agent::create(setup).unwrap();
    let drive = async {
        asks.next().await.calls(&[("slow", "{}")]);
        let call = slow.begun().await;
        tokio::time::sleep(Duration::from_secs(40)).await;
        call.release("ok");
        asks.next().await.calls(&[("slow", "{}")]);
        slow.begun().await
    };
    let begun = tokio::time::Instant::now();
    let (report, _call) = tokio::join!(go(&mut agent, "go"), drive);
    assert_stopped(&report, StopReason::MaxTime);
    assert_eq!(begun.elapsed(), Duration::from_secs(60));
    assert_sound(&agent);
    assert_goes_on(&mut agent, &mut asks).await;
}

/// Runs a turn until `slow` runs beside a finished sibling, and drops it there.
async fn drop_in_mid_call(pushed: &mut Pushed, agent: &mut Agent) {
    let drive = async {
        pushed.asks.next().await.calls(&[("work", "{}"), ("slow", "{}"), ("work", "{}")]);
        pushed.slow.begun().await
    };
    let never = CancellationToken::new();
    let turn = agent.run("go", &never);
    tokio::select! {
        biased;
        _ = turn => panic!("the turn ended although a tool hangs"),
        _call = drive => {}
    }
}

/// L03: a call in flight when the agent ended gets one logged result that says what is known; a second resume adds
/// nothing, and a sibling that had ended keeps its result.
#[tokio::test]
async fn a_call_in_flight_is_closed_once() {
    let mut pushed = pushed();
    let setup = pushed.setup.clone();
    let mut agent = Agent::create(setup.clone()).unwrap();
    drop_in_mid_call(&mut pushed, &mut agent).await;
    let (agent, resumed) = resume(agent, setup.clone());
    assert!(resumed.was_interrupted && resumed.damage.is_empty());
    assert_eq!(resumed.closed.len(), 2);
    let (open, result) = &resumed.closed[0];
    assert_eq!((open.call.name.as_str(), result.outcome), ("slow", Outcome::Interrupted));
    assert!(result.summary.contains("the agent ended before this call did"));
    assert!(result.text().contains("may have run in part"), "{}", result.text());
    assert_sound(&agent);
    let entries = log(&agent.dir());
    assert!(
        matches!(&entries.last().unwrap().body, Body::TurnEnd(end) if end.stop_reason == StopReason::Error)
    );
    let (mut agent, resumed) = resume(agent, setup);
    assert!(!resumed.was_interrupted && resumed.closed.is_empty());
    assert_eq!(log(&agent.dir()), entries);
    let told = assert_goes_on(&mut agent, &mut pushed.asks).await;
    let results: Vec<&String> =
        told.iter().filter(|(role, _)| role == "tool").map(|(_, text)| text).collect();
    assert_eq!(results.len(), 3);
    assert_eq!(results[0], "work is done");
    assert_eq!(pushed.model.name(), "push/test");
}

/// L03 R03: what is known of a call depends on its kind: a read and a plan write changed nothing, a command that was
/// about to run is named with its process.
#[tokio::test]
async fn what_is_known_of_a_call_is_said() {
    for (kind, starts, signs) in [
        (ToolKind::Read, false, ["It changed nothing", "Interrupted"]),
        (ToolKind::Edit, false, ["may have run in part", "look at"]),
        (ToolKind::Command, false, ["had not been started", "Interrupted"]),
        (ToolKind::Command, true, ["process 4194305", "not running any more"]),
    ] {
        let bench = Bench::new();
        let (model, mut asks) = PushModel::new();
        let (begun, mut is_begun) = tokio::sync::mpsc::unbounded_channel();
        let tool = Arc::new(Hangs { kind, starts, begun });
        let setup = with_tool(bench.setup(model), tool);
        let mut agent = Agent::create(setup.clone()).unwrap();
        let never = CancellationToken::new();
        tokio::select! {
            biased;
            _ = agent.run("go", &never) => panic!("the turn ended although a tool hangs"),
            () = async {
                asks.next().await.calls(&[("hangs", "{}")]);
                is_begun.recv().await.unwrap();
            } => {}
        }
        let (agent, resumed) = resume(agent, setup);
        let said = resumed.closed[0].1.text();
        assert!(signs.iter().all(|sign| said.contains(sign)), "{said}");
        assert_sound(&agent);
    }
}

struct Hangs {
    kind: ToolKind,
    starts: bool,
    begun: tokio::sync::mpsc::UnboundedSender<()>,
}

impl mainstay_tools::Tool for Hangs {
    fn spec(&self) -> mainstay_session::message::ToolSpec {
        by("hangs", self.kind, |_, _| Ok(ToolOutput::default())).spec()
    }

    fn kind(&self) -> ToolKind {
        self.kind
    }

    fn run<'a>(
        &'a self,
        _arguments: &'a str,
        context: &'a mainstay_tools::CallContext,
    ) -> futures_util::future::BoxFuture<'a, Result<ToolOutput, mainstay_tools::ToolError>> {
        Box::pin(async move {
            if self.starts {
                // Above the highest pid that Linux gives.
                (context.intent)(StartedProcess { pid: 4_194_305, started: 1, job: None }).unwrap();
            }
            self.begun.send(()).unwrap();
            std::future::pending().await
        })
    }
}

/// N05: a turn whose future was dropped is closed by the next one of the same agent: the closure stands with its call,
/// then come notices, then the prompt.
#[tokio::test]
async fn a_dropped_turn_is_closed_by_the_next() {
    let mut pushed = pushed();
    let mut agent = Agent::create(pushed.setup.clone()).unwrap();
    drop_in_mid_call(&mut pushed, &mut agent).await;
    agent.notifier().notify("news", false).unwrap();
    let told = assert_goes_on(&mut agent, &mut pushed.asks).await;
    // Where roles alternate, the encoder puts a short answer of its own between results and what the user says.
    let told: Vec<&str> =
        told.iter().filter(|(role, _)| role != "assistant").map(|(_, text)| text.as_str()).collect();
    let tail = &told[told.len() - 5..];
    let signs = ["work is done", "Interrupted", "Interrupted", "news", "and then"];
    assert!(tail.iter().zip(signs).all(|(text, sign)| text.contains(sign)), "{tail:?}");
}

/// Dropped while the model streams, the turn leaves nothing in the way of the next.
#[tokio::test]
async fn dropped_while_the_model_streams() {
    let mut pushed = pushed();
    let mut agent = Agent::create(pushed.setup.clone()).unwrap();
    let never = CancellationToken::new();
    tokio::select! {
        biased;
        _ = agent.run("go", &never) => panic!("the turn ended without an answer"),
        _ask = pushed.asks.next() => {}
    }
    assert_goes_on(&mut agent, &mut pushed.asks).await;
    let ends = kinds(&agent.dir()).into_iter().filter(|kind| kind == "turn_end").count();
    assert_eq!(ends, 2);
}

/// L03: however often the future is polled before it is dropped, the resumed session is sound and goes on.
#[tokio::test]
async fn dropped_after_any_number_of_polls() {
    use futures_util::FutureExt;
    for polls in 0..12 {
        let bench = Bench::new();
        let ran = Arc::new(Mutex::new(0));
        let count = ran.clone();
        let tool = by("count", ToolKind::Other, move |_, _| {
            *count.lock().unwrap() += 1;
            Ok(ToolOutput::default())
        });
        let (model, mut asks) = PushModel::new();
        let setup = with_tool(bench.setup(model), tool);
        let mut agent = Agent::create(setup.clone()).unwrap();
        let never = CancellationToken::new();
        {
            let mut turn = Box::pin(agent.run("go", &never));
            for poll in 0..polls {
                if turn.as_mut().now_or_never().is_some() {
                    break;
                }
                match asks.try_next() {
                    Some(ask) if poll < 6 => ask.calls(&[("count", "{}"), ("todo_write", r#"{"todos":[]}"#)]),
                    Some(ask) => ask.text("enough"),
                    None => {}
                }
            }
        }
        let (mut agent, _) = resume(agent, setup);
        assert_sound(&agent);
        while asks.try_next().is_some() {}
        let ran_before = *ran.lock().unwrap();
        assert_goes_on(&mut agent, &mut asks).await;
        assert_eq!(*ran.lock().unwrap(), ran_before, "a call ran again");
    }
}

/// L03: who goes on the next day is told when it was, and what was asked.
#[test]
fn an_interruption_is_told_with_its_age_and_its_prompt() {
    let resumed = |ago: Option<u64>, prompt: &str| Resumed {
        damage: Vec::new(),
        closed: Vec::new(),
        ended_jobs: Vec::new(),
        was_interrupted: true,
        ago: ago.map(Duration::from_secs),
        prompt: prompt.to_owned(),
    };
    for (ago, words) in [
        (None, ", while it worked on: Mend it"),
        (Some(0), " just now, while it worked on: Mend it"),
        (Some(59), " just now, while it worked on: Mend it"),
        (Some(60), " 1 min ago, while it worked on: Mend it"),
        (Some(60 * 90), " 90 min ago, while it worked on: Mend it"),
        (Some(3_600 * 14), " 14 h ago, while it worked on: Mend it"),
        (Some(86_400 * 3 - 1), " 2 days ago, while it worked on: Mend it"),
    ] {
        assert_eq!(resumed(ago, "Mend it").interruption().as_deref(), Some(words));
    }
    assert_eq!(resumed(None, "").interruption().as_deref(), Some(""));
    assert_eq!(Resumed { was_interrupted: false, ..resumed(Some(9), "x") }.interruption(), None);
}
