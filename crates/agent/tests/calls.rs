//! Tool calls through the loop: which run, in what order, what is logged when, and what the model is told.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

mod common;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::*;
use mainstay_agent::{Agent, Approve, Event, Interceptor, TurnFailure, TurnReport};
use mainstay_session::entry::{Body, StopReason};
use mainstay_session::log::Fault;
use mainstay_session::message::{ErrorClass, Finish, Outcome, ToolCall, ToolResult};
use mainstay_testkit::models::{PushModel, calls_attempt, texts};
use mainstay_testkit::tools::{by, declares, demanding, fails, held, succeeds};
use mainstay_tools::{Tool, ToolError, ToolKind, ToolOutput};
use serde_json::{Value, json};

/// Counts how often it ran.
fn counting(name: &str) -> (Arc<dyn Tool>, Arc<Mutex<u32>>) {
    let ran = Arc::new(Mutex::new(0));
    let count = ran.clone();
    let tool = by(name, ToolKind::Other, move |_, _| {
        *count.lock().unwrap() += 1;
        Ok(ToolOutput::from("counted".to_owned()))
    });
    (tool, ran)
}

/// The results as the last request holds them.
fn told(sent: &mainstay_model::Encoded) -> Vec<String> {
    texts(sent).into_iter().filter(|(role, _)| role == "tool").map(|(_, text)| text).collect()
}

/// Law 4: when a tool runs, the answer that asked for it is on the disk already.
#[tokio::test]
async fn the_answer_is_on_the_disk_before_a_tool_runs() {
    let bench = Bench::new();
    let sessions = bench.workspace.data_home().join("sessions");
    let probe = by("probe", ToolKind::Other, move |_, _| {
        let dir = std::fs::read_dir(&sessions).unwrap().next().unwrap().unwrap().path();
        let open: Vec<String> = replayed(&dir).open_calls().into_iter().map(|open| open.call.name).collect();
        Ok(ToolOutput::from(open.join(" ")))
    });
    let answer = calls(&[("probe", json!({})), ("probe", json!({}))]);
    let (setup, _) = bench.scripted(&json!([answer, text("done")]));
    let (agent, _) = run(with_tool(setup, probe), "go").await;
    let saw: Vec<String> = results(&agent.dir()).into_iter().map(|result| result.summary).collect();
    assert_eq!(saw, ["probe probe", "probe"]);
}

/// T17 L05, law 4: if the answer cannot be written or made durable, none of its calls runs; each has a result when the
/// disk is well again, and the session goes on.
#[tokio::test]
async fn without_the_log_no_tool_runs() {
    for faults in [[Fault::ShortWrite(9); 2], [Fault::Sync; 2]] {
        let bench = Bench::new();
        let (tool, ran) = counting("count");
        let (model, mut asks) = PushModel::new();
        let mut agent = Agent::create(with_tool(bench.setup(model), tool)).unwrap();
        let notifier = agent.notifier();
        let drive = async {
            let ask = asks.next().await;
            faults.into_iter().for_each(|fault| notifier.inject(fault));
            ask.calls(&[("count", "{}"), ("count", "{}")]);
        };
        let (report, ()) = tokio::join!(go(&mut agent, "go"), drive);
        assert_stopped(&report, StopReason::Error);
        assert!(matches!(report.failure, Some(TurnFailure::Log { .. })));
        assert_eq!(*ran.lock().unwrap(), 0);
        let results = results(&agent.dir());
        assert_eq!(results.len(), 2);
        assert!(results.iter().all(|result| result.outcome == Outcome::Interrupted));
        assert_sound(&agent);
        let (report, ()) = tokio::join!(go(&mut agent, "on"), async { asks.next().await.text("ok") });
        assert_stopped(&report, StopReason::EndTurn);
        assert_sound(&agent);
    }
}

/// L05: while the disk is full for longer, calls stay unrun, and what waited is closed in order by the next turn.
#[tokio::test]
async fn what_waited_is_closed_by_the_next_turn() {
    let bench = Bench::new();
    let (tool, ran) = counting("count");
    let (model, mut asks) = PushModel::new();
    let mut agent = Agent::create(with_tool(bench.setup(model), tool)).unwrap();
    let notifier = agent.notifier();
    let drive = async {
        let ask = asks.next().await;
        // The answer, twice; then the attempt of the turn's end to write it, twice.
        (0..4).for_each(|_| notifier.inject(Fault::ShortWrite(0)));
        ask.calls(&[("count", "{}")]);
    };
    let (report, ()) = tokio::join!(go(&mut agent, "go"), drive);
    assert_stopped(&report, StopReason::Error);
    let (report, ()) = tokio::join!(go(&mut agent, "on"), async { asks.next().await.text("ok") });
    assert_stopped(&report, StopReason::EndTurn);
    assert_eq!(*ran.lock().unwrap(), 0);
    let kinds = kinds(&agent.dir());
    let first = kinds.iter().position(|kind| kind == "answer").unwrap();
    assert_eq!(kinds[first..first + 4], ["answer", "tool_result", "turn_end", "user_prompt"]);
    assert_sound(&agent);
}

/// Reads overlap; another call waits for those before it and is waited for by those behind it. Results are logged as
/// they come and sent in the order of the calls.
#[tokio::test]
async fn reads_overlap_and_other_calls_are_barriers() {
    let bench = Bench::new();
    let (model, mut asks) = PushModel::new();
    let (look, mut looks) = held("look", ToolKind::Read);
    let (change, mut changes) = held("change", ToolKind::Edit);
    let setup = with_tool(with_tool(bench.setup(model), look), change);
    let mut agent = Agent::create(setup).unwrap();
    let dir = agent.dir();
    let drive = async {
        let five = [
            ("look", r#"{"n":0}"#),
            ("look", r#"{"n":1}"#),
            ("change", r#"{"n":2}"#),
            ("look", r#"{"n":3}"#),
            ("look", r#"{"n":4}"#),
        ];
        asks.next().await.calls(&five);
        let (zero, one) = (looks.begun().await, looks.begun().await);
        assert!(changes.try_begun().is_none());
        one.release("1");
        until(|| results(&dir).len() == 1).await;
        assert!(changes.try_begun().is_none());
        zero.release("0");
        let two = changes.begun().await;
        assert!(looks.try_begun().is_none());
        two.release("2");
        let (three, four) = (looks.begun().await, looks.begun().await);
        four.release("4");
        until(|| results(&dir).len() == 4).await;
        three.release("3");
        let ask = asks.next().await;
        let sent = told(&ask.encoded);
        ask.text("done");
        sent
    };
    let (report, sent) = tokio::join!(go(&mut agent, "go"), drive);
    assert_stopped(&report, StopReason::EndTurn);
    assert_eq!(sent, ["0", "1", "2", "3", "4"]);
    let logged: Vec<String> = results(&agent.dir()).into_iter().map(|result| result.summary).collect();
    assert_eq!(logged, ["1", "0", "2", "4", "3"]);
    assert_sound(&agent);
}

/// H12: unknown names get a result that lists the tools, nearest first, and the turn goes on.
#[tokio::test]
async fn unknown_tools_are_answered_with_the_nearest_names() {
    let long = "x".repeat(300);
    for (name, nearest) in [
        ("shell", ""),
        ("Read", "read"),
        ("functions.read", "read"),
        ("read file", "read"),
        ("", ""),
        (&long, ""),
    ] {
        let bench = Bench::new();
        let (setup, model) = bench.scripted(&json!([calls(&[(name, json!({}))]), text("done")]));
        let setup = with_tool(setup, succeeds("read", ToolKind::Read));
        let (agent, report) = run(setup, "go").await;
        assert_stopped(&report, StopReason::EndTurn);
        let result = results(&agent.dir()).remove(0);
        assert_eq!(result.outcome, Outcome::Error);
        assert!(
            ["read", "work", "todo_write"].iter().all(|tool| result.summary.contains(tool)),
            "{}",
            result.summary
        );
        assert!(result.summary.len() < 300, "{}", result.summary);
        assert!(result.summary.contains(&format!("nearest first: {nearest}")), "{}", result.summary);
        assert_eq!(told(&model.sent()[1]), [result.summary]);
        assert_sound(&agent);
    }
}

/// H01 W06 H02: after a cut answer, or one with arguments that cannot be read, none of its calls runs, and each is told
/// why and what to do.
#[tokio::test]
async fn calls_of_a_broken_answer_do_not_run() {
    let good = ("count", "{}");
    type Case<'a> = (&'a [(&'a str, &'a str)], Finish, [&'a str; 2]);
    let cases: [Case<'_>; 6] = [
        (
            &[good, ("count", r#"{"path":"/etc/hosts","content":"line1"#)],
            Finish::MaxTokens,
            ["smaller", "smaller"],
        ),
        (&[good, good], Finish::MaxTokens, ["smaller", "smaller"]),
        (&[good, ("count", r#"{"path":"a""#)], Finish::ToolCalls, ["Send this one again", r#"{"path":"a""#]),
        (&[("count", "{path:'a'}"), good], Finish::ToolCalls, ["{path:'a'}", "Send this one again"]),
        (
            &[("count", "[]"), ("count", r#"{"a":1}{"b":2}"#)],
            Finish::Unknown,
            ["not a JSON object", r#"{"b":2}"#],
        ),
        (&[good, good], Finish::Refusal, ["refused", "refused"]),
    ];
    for (asked, finish, signs) in cases {
        let bench = Bench::new();
        let (tool, ran) = counting("count");
        let (model, mut asks) = PushModel::new();
        let mut agent = Agent::create(with_tool(bench.setup(model), tool)).unwrap();
        let drive = async {
            asks.next().await.end(calls_attempt(asked, finish));
            if finish != Finish::Refusal {
                asks.next().await.text("sorry");
            }
        };
        let (report, ()) = tokio::join!(go(&mut agent, "go"), drive);
        assert_stopped(
            &report,
            if finish == Finish::Refusal { StopReason::Refusal } else { StopReason::EndTurn },
        );
        assert_eq!(*ran.lock().unwrap(), 0);
        let results = results(&agent.dir());
        assert_eq!(results.len(), 2);
        for (result, sign) in results.iter().zip(signs) {
            assert_eq!(result.outcome, Outcome::Error);
            assert!(result.text().contains(sign), "{} / {sign}", result.text());
        }
        assert_sound(&agent);
    }
}

/// W06 H14: absent arguments are an empty object, and run only where nothing is demanded.
#[tokio::test]
async fn absent_arguments_run_only_where_nothing_is_demanded() {
    for (arguments, outcome) in [("", Outcome::Error), ("null", Outcome::Error), (r#"{"a":1}"#, Outcome::Ok)]
    {
        let bench = Bench::new();
        let answer = json!({"calls": [
            {"name": "needs", "arguments": arguments}, {"name": "free", "arguments": arguments},
        ]});
        let (setup, _) = bench.scripted(&json!([answer, text("done")]));
        let setup = with_tool(with_tool(setup, demanding("needs", &["a"])), demanding("free", &[]));
        let (agent, _) = run(setup, "go").await;
        let results = results(&agent.dir());
        assert_eq!(results[0].outcome, outcome);
        assert!(results[0].summary.contains('a'));
        let expected = if outcome == Outcome::Ok { arguments } else { "{}" };
        assert_eq!((results[1].outcome, results[1].summary.as_str()), (Outcome::Ok, expected));
    }
}

/// H11: an attempt that breaks off is tried again; its text stays out of the conversation and its calls never run.
#[tokio::test(start_paused = true)]
async fn a_broken_attempt_leaves_nothing_behind() {
    let bench = Bench::new();
    let (tool, ran) = counting("count");
    let (model, mut asks) = PushModel::new();
    let mut agent = Agent::create(with_tool(bench.setup(model), tool)).unwrap();
    let drive = async {
        let ask = asks.next().await;
        ask.say("Hel");
        let mut half = calls_attempt(&[("count", "{}")], Finish::Unknown);
        half.ended = mainstay_testkit::models::failed(ErrorClass::CutStream, None).ended;
        ask.end(half);
        asks.next().await.text("Hello.");
    };
    let (report, ()) = tokio::join!(go(&mut agent, "go"), drive);
    assert_stopped(&report, StopReason::EndTurn);
    assert_eq!(report.text, "Hello.");
    assert_eq!(*ran.lock().unwrap(), 0);
    let history = serde_json::to_string(&agent.get_history()).unwrap();
    assert_eq!(history.matches("Hel").count(), 1);
    assert_eq!(kinds(&agent.dir()).iter().filter(|kind| *kind == "answer").count(), 2);
    assert_sound(&agent);
}

/// A provider's delay is kept, failures that waiting cannot mend are not retried, and retries are bounded.
#[tokio::test(start_paused = true)]
async fn retries_are_bounded_and_keep_the_delay() {
    let second = Duration::from_secs(1);
    let cases = [
        (ErrorClass::Overload, None, 4),
        (ErrorClass::Rate, Some(second), 4),
        (ErrorClass::Rate, Some(second * 120), 1),
        (ErrorClass::Credentials, None, 1),
        (ErrorClass::BadRequest, Some(second), 1),
    ];
    for (class, retry_after, attempts) in cases {
        let bench = Bench::new();
        let (model, mut asks) = PushModel::new();
        let mut agent = Agent::create(bench.setup(model)).unwrap();
        let drive = async {
            for _ in 0..attempts {
                asks.next().await.fail(class, retry_after);
            }
        };
        let begun = tokio::time::Instant::now();
        let (report, ()) = tokio::join!(go(&mut agent, "go"), drive);
        assert_stopped(&report, StopReason::Error);
        assert!(matches!(report.failure, Some(TurnFailure::Model { class: told, .. }) if told == class));
        assert_eq!(report.text, "");
        let waited = begun.elapsed();
        assert!(attempts == 1 || waited >= retry_after.unwrap_or_default() * (attempts - 1), "{waited:?}");
        assert!(asks.try_next().is_none());
        assert_sound(&agent);
    }
}

/// The text of a failed turn is not that of the turn before.
#[tokio::test]
async fn a_failed_turn_has_no_text_of_another() {
    let bench = Bench::new();
    let failure = json!({"error": {"class": "bad_request", "message": "no"}});
    let (setup, _) = bench.scripted(&json!([text("the answer"), failure]));
    let (mut agent, report) = run(setup, "1").await;
    assert_eq!(report.text, "the answer");
    let report = go(&mut agent, "2").await;
    assert_stopped(&report, StopReason::Error);
    assert_eq!(report.text, "");
}

async fn stops(answers: Vec<Value>, tools: Vec<Arc<dyn Tool>>, max_steps: u64) -> (Agent, TurnReport, Bench) {
    let bench = Bench::new();
    let (mut setup, _) = bench.scripted(&Value::Array(answers));
    setup.tools.extend(tools);
    setup.max_steps = max_steps;
    let mut agent = Agent::create(setup).unwrap();
    let report = go(&mut agent, "go").await;
    assert_sound(&agent);
    (agent, report, bench)
}

/// H12: three identical failing calls in a row end the turn; another call in between starts the count anew.
#[tokio::test]
async fn three_identical_failures_end_the_turn() {
    let bad = || calls(&[("bad", json!({"x": 1}))]);
    let (agent, report, _bench) = stops(vec![bad(); 9], vec![fails("bad")], 60).await;
    assert_stopped(&report, StopReason::RepeatedFailure);
    assert_eq!(results(&agent.dir()).len(), 3);
    let (_, report, _bench) =
        stops(vec![bad(), bad(), work(), bad(), bad(), text("x")], vec![fails("bad")], 60).await;
    assert_stopped(&report, StopReason::EndTurn);
    // However the arguments are written; and what stands twice in one answer was not yet seen to fail.
    let spaced = json!({"calls": [{"name": "bad", "arguments": "{ \"x\" : 1 }"}]});
    let (agent, report, _bench) = stops(vec![bad(), spaced, bad(), bad()], vec![fails("bad")], 60).await;
    assert_stopped(&report, StopReason::RepeatedFailure);
    assert_eq!(results(&agent.dir()).len(), 3);
    let thrice = || calls(&[("bad", json!({})), ("bad", json!({})), ("bad", json!({}))]);
    let (agent, report, _bench) = stops(vec![thrice(), thrice(), text("x")], vec![fails("bad")], 60).await;
    assert_stopped(&report, StopReason::EndTurn);
    assert_eq!(results(&agent.dir()).len(), 6);
    let unknown = || calls(&[("shell", json!({}))]);
    let (agent, report, _bench) = stops(vec![unknown(); 9], Vec::new(), 60).await;
    assert_stopped(&report, StopReason::RepeatedFailure);
    assert_eq!(results(&agent.dir()).len(), 3);
}

/// A turn ends after its most steps, and the next one has as many again.
#[tokio::test]
async fn a_turn_ends_after_its_most_steps() {
    let (mut agent, report, _bench) = stops(vec![work(); 20], Vec::new(), 5).await;
    assert_stopped(&report, StopReason::MaxSteps);
    assert_eq!(report.totals.answers, 5);
    let report = go(&mut agent, "on").await;
    assert_stopped(&report, StopReason::MaxSteps);
    assert_eq!(report.totals.answers, 10);
}

/// U02 U03 U06 U07: a tool of any name declares files; the interceptor, the log and the recent files have them in order.
#[tokio::test]
async fn declared_files_are_tracked() {
    #[derive(Default)]
    struct Sees(Mutex<Vec<(String, Vec<PathBuf>)>>);
    impl Interceptor for Sees {
        fn post_tool_call(&self, call: &ToolCall, result: &ToolResult) {
            let paths = result.referenced_files.iter().map(|file| file.path.0.clone()).collect();
            self.0.lock().unwrap().push((call.name.clone(), paths));
        }
    }
    let bench = Bench::new();
    let paths: Vec<PathBuf> = ["a", "b", "c"].map(|name| bench.workspace.write(name, "x")).into();
    let (setup, _) =
        bench.scripted(&json!([calls(&[("zz_any", json!({})), ("work", json!({}))]), text("done")]));
    let mut setup = with_tool(setup, declares("zz_any", paths.clone()));
    let sees = Arc::new(Sees::default());
    setup.interceptors.push(sees.clone());
    let (agent, _) = run(setup.clone(), "go").await;
    assert_eq!(
        *sees.0.lock().unwrap(),
        [("zz_any".to_owned(), paths.clone()), ("work".to_owned(), Vec::new())]
    );
    let recent = |agent: &Agent| -> Vec<PathBuf> {
        agent.read(|state| state.recent_files.iter().map(|file| file.path.0.clone()).collect())
    };
    let expected: Vec<PathBuf> = paths.into_iter().rev().collect();
    assert_eq!(recent(&agent), expected);
    let (agent, _) = resume(agent, setup);
    assert_eq!(recent(&agent), expected);
}

/// U08: failed and denied calls declare nothing.
#[tokio::test]
async fn failed_and_denied_calls_declare_nothing() {
    let bench = Bench::new();
    let path = bench.workspace.write("a", "x");
    let (setup, _) =
        bench.scripted(&json!([calls(&[("touch", json!({})), ("bad", json!({}))]), text("done")]));
    let mut setup = with_tool(with_tool(setup, declares("touch", vec![path])), fails("bad"));
    setup.interceptors.push(Arc::new(Denies("touch")));
    let (agent, report) = run(setup, "go").await;
    assert_eq!(report.denied, 1);
    agent.read(|state| assert_eq!(state.recent_files.iter().count(), 0));
}

/// U13: of parallel reads the later call is the more recent, whichever ended first.
#[tokio::test]
async fn recency_goes_by_the_order_of_the_calls() {
    let bench = Bench::new();
    let (model, mut asks) = PushModel::new();
    let (look, mut looks) = held("look", ToolKind::Read);
    let mut agent = Agent::create(with_tool(bench.setup(model), look)).unwrap();
    let (a, b) = (bench.workspace.write("a", "x"), bench.workspace.write("b", "x"));
    let declare = |path: &PathBuf| {
        Ok(ToolOutput { referenced_files: vec![path.clone().into()], ..ToolOutput::default() })
    };
    let dir = agent.dir();
    let drive = async {
        asks.next().await.calls(&[("look", "{}"), ("look", "{}")]);
        let (first, second) = (looks.begun().await, looks.begun().await);
        second.end(declare(&b));
        until(|| results(&dir).len() == 1).await;
        first.end(declare(&a));
        asks.next().await.text("done");
    };
    tokio::join!(go(&mut agent, "go"), drive);
    agent.read(|state| {
        let recent: Vec<_> = state.recent_files.iter().map(|file| file.path.0.clone()).collect();
        assert_eq!(recent, [b, a]);
    });
    assert_sound(&agent);
}

/// Whatever a tool brings, the model gets a bounded part of it, and the whole lies in the spill.
#[tokio::test]
async fn a_long_result_is_cut_wherever_it_stands() {
    let long = "ä".repeat(400_000);
    let (summary, content, error) = (long.clone(), long.clone(), long.clone());
    let tools = vec![
        by("summary", ToolKind::Other, move |_, _| Ok(ToolOutput::from(summary.clone()))),
        by("content", ToolKind::Other, move |_, _| {
            Ok(ToolOutput { content: Some(content.clone()), ..ToolOutput::default() })
        }),
        by("error", ToolKind::Other, move |_, _| Err(ToolError::from(error.clone()))),
    ];
    let names = ["summary", "content", "error"];
    let answer = calls(&names.map(|name| (name, json!({}))));
    let (agent, report, _bench) = stops(vec![answer, text("done")], tools, 60).await;
    assert_stopped(&report, StopReason::EndTurn);
    for result in results(&agent.dir()) {
        let text = result.text();
        assert!(text.len() < 70_000, "{}", text.len());
        assert!(text.contains("left out"));
        let whole = text.split(" is in ").nth(1).unwrap().split("; `read`").next().unwrap();
        assert_eq!(std::fs::read_to_string(whole).unwrap(), long);
    }
}

/// Without a sandbox `auto` denies commands and says how to allow them; edits and reads pass.
#[tokio::test]
async fn commands_need_more_than_auto() {
    let bench = Bench::new();
    let all = [("run", json!({})), ("edit_it", json!({})), ("look", json!({}))];
    let (mut setup, _) = bench.scripted(&json!([calls(&all), text("done")]));
    setup.approve = Approve::Auto;
    setup.tools.extend([
        succeeds("run", ToolKind::Command),
        succeeds("edit_it", ToolKind::Edit),
        succeeds("look", ToolKind::Read),
    ]);
    let (agent, report) = run(setup, "go").await;
    let results = results(&agent.dir());
    let outcomes: Vec<Outcome> = results.iter().map(|result| result.outcome).collect();
    assert_eq!(outcomes, [Outcome::Denied, Outcome::Ok, Outcome::Ok]);
    assert!(results[0].summary.contains("--approve all"));
    assert_eq!(report.denied, 1);
}

/// What is told of a call is told once, in order, and is in the log by then.
#[tokio::test]
async fn each_call_is_told_once() {
    let bench = Bench::new();
    let (setup, _) = bench.scripted(&json!([open_plan(), work(), text("done")]));
    let (agent, _) = run(setup, "go").await;
    let told: Vec<&str> = bench
        .events()
        .iter()
        .map(|event| match event {
            Event::TurnStarted => "turn",
            Event::Prompt { text, steering: false, .. } if text == "go" => "prompt",
            Event::Answer { .. } => "answer",
            Event::ToolStarted { .. } => "started",
            Event::ToolCompleted { .. } => "completed",
            Event::Plan { .. } => "plan",
            Event::TextDelta(_) => "text",
            Event::TurnCompleted(_) => "end",
            _ => "other",
        })
        .collect();
    let expected = [
        "turn",
        "prompt",
        "answer",
        "started",
        "completed",
        "plan",
        "answer",
        "started",
        "completed",
        "text",
        "answer",
        "end",
    ];
    assert_eq!(told, expected);
    assert!(matches!(log(&agent.dir()).last().unwrap().body, Body::TurnEnd(_)));
}
