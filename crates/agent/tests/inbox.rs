//! What comes from outside while an agent works or waits: messages of other processes, the user's text, a rewind.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

mod common;

use common::{Bench, assert_sound, assert_stopped, go, kinds, log, resume, run, text, todos};
use mainstay_agent::Agent;
use mainstay_model::Encoded;
use mainstay_session::entry::{Body, StopReason, UserPrompt};
use mainstay_session::log::{RewindTo, leave_message};
use mainstay_testkit::models::PushModel;
use mainstay_tools::ToolKind;
use serde_json::json;
use tokio_util::sync::CancellationToken;

fn sent(request: &Encoded) -> String {
    String::from_utf8_lossy(&request.body).into_owned()
}

fn prompts(agent: &Agent) -> Vec<UserPrompt> {
    let of = |body| match body {
        Body::UserPrompt(prompt) => Some(prompt),
        _ => None,
    };
    log(&agent.dir()).into_iter().filter_map(|entry| of(entry.body)).collect()
}

/// N01, N02: what another process leaves is told in order before the next request, of a running session and of a later
/// one.
#[tokio::test]
async fn another_process_reaches_a_running_and_a_later_session() {
    let bench = Bench::new();
    let (model, mut asks) = PushModel::new();
    let (tool, mut held) = mainstay_testkit::tools::held("slow", ToolKind::Other);
    let setup = common::with_tool(bench.setup(model), tool);
    let mut agent = Agent::create(setup.clone()).unwrap();
    let dir = agent.dir();
    let leave = |text: &str, wake| leave_message(&dir, text, wake, (setup.clock)()).unwrap();
    let drive = async {
        asks.next().await.calls(&[("slow", "{}")]);
        let call = held.begun().await;
        leave("the build is green", false);
        call.release("slow is done");
        let ask = asks.next().await;
        let body = sent(&ask.encoded);
        ask.text("ok");
        body
    };
    let (_, body) = tokio::join!(go(&mut agent, "go"), drive);
    assert!(body.contains("the build is green"));
    leave("later", true);
    let (mut agent, _) = resume(agent, setup.clone());
    let drive = async {
        let ask = asks.next().await;
        let body = sent(&ask.encoded);
        ask.text("seen");
        body
    };
    let (report, body) = tokio::join!(async { agent.wake(&CancellationToken::new()).await }, drive);
    assert_stopped(&report.unwrap(), StopReason::EndTurn);
    assert_eq!((body.matches("the build is green").count(), body.matches("later").count()), (1, 1));
    assert_sound(&agent);
}

/// N04: an idle agent notices what another process leaves; a silent message waits for the next turn.
#[tokio::test(start_paused = true)]
async fn an_idle_agent_is_woken_by_another_process() {
    let bench = Bench::new();
    let (setup, model) = bench.scripted(&json!([text("a"), text("b")]));
    let mut agent = Agent::create(setup.clone()).unwrap();
    let never = CancellationToken::new();
    leave_message(&agent.dir(), "silent", false, (setup.clock)()).unwrap();
    let waited = tokio::time::timeout(std::time::Duration::from_secs(5), agent.woken()).await;
    assert!(waited.is_err(), "a silent message wakes nobody");
    assert!(agent.wake(&never).await.is_none());
    leave_message(&agent.dir(), "waking", true, (setup.clock)()).unwrap();
    agent.woken().await;
    let report = agent.wake(&never).await.unwrap();
    assert_stopped(&report, StopReason::EndTurn);
    let sent = sent(model.sent().last().unwrap());
    assert!(sent.find("silent").unwrap() < sent.find("waking").unwrap());
    assert!(!kinds(&agent.dir()).contains(&"user_prompt".to_owned()));
    assert_sound(&agent);
}

/// N05, T13: what the user says while a tool runs is durable at once, and stands as their text behind the results and the
/// notices, in the same turn.
#[tokio::test]
async fn what_the_user_says_meanwhile_is_their_text_in_the_same_turn() {
    let bench = Bench::new();
    let (model, mut asks) = PushModel::new();
    let (tool, mut held) = mainstay_testkit::tools::held("slow", ToolKind::Other);
    let mut agent = Agent::create(common::with_tool(bench.setup(model), tool)).unwrap();
    let (notifier, dir) = (agent.notifier(), agent.dir());
    let drive = async {
        asks.next().await.calls(&[("slow", "{}")]);
        let call = held.begun().await;
        notifier.steer("use tabs").unwrap();
        notifier.notify("disk is full", false).unwrap();
        assert_eq!(common::replayed(&dir).inbox.len(), 2);
        call.release("slow is done");
        asks.next().await.text("done");
    };
    let (report, ()) = tokio::join!(go(&mut agent, "go"), drive);
    assert_stopped(&report, StopReason::EndTurn);
    let order = kinds(&agent.dir());
    let tail = ["tool_result", "notification", "user_prompt", "answer", "turn_end"];
    assert_eq!(order[order.len() - 5..], tail);
    let steered = prompts(&agent).pop().unwrap();
    assert_eq!((steered.text.as_str(), steered.steering, steered.inbox.is_some()), ("use tabs", true, true));
    assert!(agent.wake(&CancellationToken::new()).await.is_none());
    assert_sound(&agent);
}

/// What is said while the model gives its last answer is answered before the turn ends.
#[tokio::test]
async fn a_turn_does_not_end_over_what_the_user_said() {
    let bench = Bench::new();
    let (model, mut asks) = PushModel::new();
    let mut agent = Agent::create(bench.setup(model)).unwrap();
    let notifier = agent.notifier();
    let drive = async {
        let ask = asks.next().await;
        notifier.steer("and the tests?").unwrap();
        ask.text("done");
        asks.next().await.text("tests too");
    };
    let (report, ()) = tokio::join!(go(&mut agent, "go"), drive);
    assert_eq!((report.stop_reason, report.text.as_str()), (StopReason::EndTurn, "tests too"));
    assert_sound(&agent);
}

/// N02: what was said and not yet delivered when the process ended is the user's text of the next turn, before the new
/// prompt.
#[tokio::test]
async fn what_was_said_survives_the_process() {
    let bench = Bench::new();
    let (setup, _) = bench.scripted(&json!([text("a"), text("b")]));
    let agent = Agent::create(setup.clone()).unwrap();
    agent.notifier().steer("first this").unwrap();
    let (mut agent, _) = resume(agent, setup);
    agent.woken().await;
    go(&mut agent, "then that").await;
    let said: Vec<(String, bool)> =
        prompts(&agent).into_iter().map(|prompt| (prompt.text, prompt.steering)).collect();
    assert_eq!(said, [("first this".to_owned(), true), ("then that".to_owned(), false)]);
    assert!(agent.wake(&CancellationToken::new()).await.is_none());
    assert_sound(&agent);
}

/// R10, T14: after a rewind the request is that of the older turn and grows from there, in the same process and in the
/// next; nothing is taken for a broken prefix.
#[tokio::test]
async fn an_agent_goes_back() {
    for in_new_process in [false, true] {
        let bench = Bench::new();
        let plan = |status| common::calls(&[("todo_write", todos(&[("build", status)]))]);
        let (setup, model) =
            bench.scripted(&json!([plan("in_progress"), text("one"), plan("completed"), text("two")]));
        let (mut agent, _) = run(setup.clone(), "first").await;
        let first = agent.get_history();
        go(&mut agent, "second").await;
        agent.rewind(RewindTo::Turn(1)).unwrap();
        if in_new_process {
            (agent, _) = resume(agent, setup);
        }
        let history = agent.get_history();
        assert_eq!((history.messages, history.plan), (first.messages, first.plan));
        go(&mut agent, "second, again").await;
        let marks: Vec<_> = log(&agent.dir())
            .into_iter()
            .filter_map(|entry| match entry.body {
                Body::Answer(answer) => answer.request.map(|mark| mark.shared),
                _ => None,
            })
            .collect();
        assert_eq!(marks[marks.len() - 2], 0, "behind a rewind nothing is compared");
        let sent = sent(model.sent().last().unwrap());
        assert!(sent.contains("second, again") && !sent.contains("\"second\""));
        let replayed = common::replayed(&agent.dir());
        agent.read(|live| assert_eq!(*live, replayed));
    }
}
