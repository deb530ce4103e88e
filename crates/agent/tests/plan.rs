//! The session plan through the loop.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

mod common;

use std::sync::Arc;

use common::*;
use mainstay_agent::Agent;
use mainstay_session::entry::StopReason;
use mainstay_session::message::Outcome;
use mainstay_session::plan::PlanItemStatus;
use mainstay_testkit::models::{messages, text_of};
use mainstay_tools::TodoWrite;
use serde_json::{Value, json};

/// P15 P14: one tool writes the plan under one name, and none reads it.
#[tokio::test]
async fn one_plan_tool_is_told_of() {
    let bench = Bench::new();
    let (setup, model) = bench.scripted(&json!([text("hello")]));
    run(setup, "hi").await;
    let body: Value = serde_json::from_slice(&model.sent()[0].body).unwrap();
    let tools = body["request"]["tools"].as_array().unwrap();
    let names: Vec<&str> = tools.iter().map(|tool| tool["function"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["todo_write", "work"]);
}

/// P14: a call named `todo` writes the plan, live and on replay.
#[tokio::test]
async fn the_alias_writes_the_plan() {
    let bench = Bench::new();
    let write = todos(&[("build", "in_progress")]);
    let (setup, _) = bench.scripted(&json!([calls(&[("todo", write)]), text("done")]));
    let (agent, report) = run(setup.clone(), "go").await;
    assert_stopped(&report, StopReason::EndTurn);
    assert_eq!(report.plan.plan.items[0].content, "build");
    assert_sound(&agent);
    let (agent, _) = resume(agent, setup);
    agent.read(|state| assert_eq!(state.plan, report.plan));
}

/// P18: of two writes in one answer the later call holds.
#[tokio::test]
async fn the_later_of_two_writes_holds() {
    let bench = Bench::new();
    let second = json!({"todos": [{"id": "9", "content": "b"}]});
    let two = [("todo_write", todos(&[("a", "pending")])), ("todo_write", second)];
    let (setup, _) = bench.scripted(&json!([calls(&two), text("done")]));
    let (agent, report) = run(setup, "go").await;
    let contents: Vec<&str> = report.plan.plan.items.iter().map(|item| item.content.as_str()).collect();
    assert_eq!(contents, ["b"]);
    assert_sound(&agent);
    let second = &results(&agent.dir())[1];
    assert!(
        second.content.as_deref().unwrap_or_default().contains("pending: a"),
        "the vanished item is named"
    );
}

/// P19 P11: a denied write changes nothing, live and after replay.
#[tokio::test]
async fn a_denied_write_changes_nothing() {
    let bench = Bench::new();
    let (setup, _) = bench.scripted(&json!([open_plan(), text("ok"), plan(&[("x", "pending")]), text("ok")]));
    let (mut agent, before) = run(setup.clone(), "go").await;
    let dir = agent.dir();
    let mut denying = setup.clone();
    denying.interceptors.push(Arc::new(Denies("todo_write")));
    drop(agent);
    (agent, _) = Agent::resume(&dir, denying).unwrap();
    let attention = agent.read(|state| state.attention.clone());
    let report = go(&mut agent, "again").await;
    assert_eq!((report.plan.clone(), report.denied), (before.plan, 1));
    let last = results(&dir).pop().unwrap();
    assert_eq!((last.outcome, last.summary.as_str()), (Outcome::Denied, "`todo_write` is not allowed here"));
    agent.read(|state| assert_eq!(state.attention, attention));
    assert_sound(&agent);
    let (agent, _) = resume(agent, setup);
    agent.read(|state| assert_eq!(state.plan, report.plan));
}

/// P20, A09: re-sends are accepted as unchanged, the fourth equal write is an error, and a storm of them ends the turn.
#[tokio::test]
async fn a_storm_of_equal_writes_ends() {
    let bench = Bench::new();
    let (setup, _) = bench.scripted(&Value::Array(vec![open_plan(); 20]));
    let (agent, report) = run(setup, "go").await;
    assert_stopped(&report, StopReason::RepeatedFailure);
    let results = results(&agent.dir());
    let unchanged = |at: usize| results[at].content.as_deref().is_some_and(|text| text.contains("unchanged"));
    assert_eq!([unchanged(0), unchanged(1), unchanged(2)], [false, true, true]);
    assert!(results[..3].iter().all(|result| result.outcome == Outcome::Ok));
    assert!(results[3..].iter().all(|result| result.outcome == Outcome::Error));
    assert_eq!(results.len(), 6);
    assert_eq!(report.plan.plan.items.len(), 2);
    assert_sound(&agent);
}

/// A10: the count of re-sends runs through the session, not through the turn.
#[tokio::test]
async fn re_sends_are_counted_across_turns() {
    let bench = Bench::new();
    let turn = [open_plan(), open_plan(), text("ok")];
    let (setup, _) = bench.scripted(&Value::Array(turn.iter().cloned().cycle().take(9).collect()));
    let (mut agent, _) = run(setup, "one").await;
    go(&mut agent, "two").await;
    go(&mut agent, "three").await;
    let outcomes: Vec<Outcome> = results(&agent.dir()).iter().map(|result| result.outcome).collect();
    let ok = Outcome::Ok;
    assert_eq!(outcomes, [ok, ok, ok, Outcome::Error, Outcome::Error, Outcome::Error]);
    agent.read(|state| assert_eq!(state.plan.plan.items[0].status, PlanItemStatus::InProgress));
}

/// A11: with nothing but the plan tool, writes that say nothing new come to an end.
#[tokio::test]
async fn a_model_with_only_the_plan_tool_comes_to_an_end() {
    let bench = Bench::new();
    let (mut setup, _) = bench.scripted(&Value::Array(vec![open_plan(); 60]));
    setup.tools = vec![Arc::new(TodoWrite)];
    let (agent, report) = run(setup, "go").await;
    assert_stopped(&report, StopReason::RepeatedFailure);
    assert!(results(&agent.dir()).len() <= 6);
}

/// A12: a denied plan write that is tried again and again ends the turn.
#[tokio::test]
async fn a_denied_write_is_not_tried_for_ever() {
    let bench = Bench::new();
    let (mut setup, _) = bench.scripted(&Value::Array(vec![open_plan(); 20]));
    setup.interceptors.push(Arc::new(Denies("todo_write")));
    let (agent, report) = run(setup, "go").await;
    assert_stopped(&report, StopReason::RepeatedFailure);
    assert_eq!((report.denied, results(&agent.dir()).len()), (3, 3));
}

/// A13: empty arguments are told what is missing, and the third time ends the turn.
#[tokio::test]
async fn empty_arguments_end_the_third_time() {
    for arguments in [json!({}), json!("")] {
        let bench = Bench::new();
        let (setup, _) = bench.scripted(&Value::Array(vec![calls(&[("todo_write", arguments)]); 20]));
        let (agent, report) = run(setup, "go").await;
        assert_stopped(&report, StopReason::RepeatedFailure);
        let results = results(&agent.dir());
        assert_eq!(results.len(), 3);
        assert!(results.iter().all(|result| result.text().contains("todos")), "{}", results[0].text());
    }
}

/// A22 R02: a refused write leaves the plan, and the report says how far it is whatever the model claims.
#[tokio::test]
async fn the_report_has_the_plan_whatever_the_model_claims() {
    let bench = Bench::new();
    let first = plan(&[("a", "completed"), ("b", "in_progress"), ("c", "pending")]);
    let bad = plan(&[("a", "completed"), ("b", "completed"), ("c", "finito")]);
    let (setup, _) = bench.scripted(&json!([first, bad, text("Everything is done.")]));
    let (agent, report) = run(setup.clone(), "go").await;
    let count =
        |report: &mainstay_agent::TurnReport| (report.plan.plan.completed(), report.plan.plan.items.len());
    assert_eq!(count(&report), (1, 3));
    let (agent, _) = resume(agent, setup);
    agent.read(|state| assert_eq!(state.plan, report.plan));
}

/// A28 B05 T01: without a plan the runtime never speaks of one, and nothing it does costs a request.
#[tokio::test]
async fn without_a_plan_nothing_asks_for_one() {
    let bench = Bench::new();
    let answers: Vec<Value> = std::iter::repeat_n(work(), 50).chain([text("done")]).collect();
    let (setup, model) = bench.scripted(&Value::Array(answers));
    let (agent, report) = run(setup, "go").await;
    assert_stopped(&report, StopReason::EndTurn);
    assert_eq!(model.sent().len(), 51);
    assert!(!kinds(&agent.dir()).iter().any(|kind| kind == "reminder" || kind == "continuation"));
    let last = messages(model.sent().last().unwrap());
    assert!(last.iter().filter(|message| message["role"] == "user").all(|m| !text_of(m).contains("plan")));
}

/// A28: a plan kept along with the work makes no request of its own.
#[tokio::test]
async fn planning_beside_the_work_forces_no_request() {
    let bench = Bench::new();
    let step = |status| calls(&[("todo_write", todos(&[("a", status)])), ("work", json!({}))]);
    let (setup, model) =
        bench.scripted(&json!([step("pending"), step("in_progress"), step("completed"), text("ok")]));
    let (_, report) = run(setup, "go").await;
    assert_stopped(&report, StopReason::EndTurn);
    assert_eq!(model.sent().len(), 4);
}

/// A23: a turn that must finish its plan is continued as often as allowed, and then says so.
#[tokio::test]
async fn a_required_plan_is_continued_within_bounds() {
    for (allowed, requests) in [(0, 2), (1, 3), (3, 5)] {
        let bench = Bench::new();
        let answers: Vec<Value> = [open_plan()].into_iter().chain(vec![text("that is all"); 20]).collect();
        let (mut setup, model) = bench.scripted(&Value::Array(answers));
        setup.require_plan = Some(allowed);
        let (agent, report) = run(setup, "go").await;
        assert_stopped(&report, StopReason::PlanUnfinished);
        assert_eq!(model.sent().len(), requests);
        assert_sound(&agent);
    }
}

/// A23: finished, empty or not required plans let the turn end.
#[tokio::test]
async fn a_finished_plan_is_not_continued() {
    for (first, require) in [(plan(&[("a", "completed")]), Some(2)), (work(), Some(2)), (open_plan(), None)] {
        let bench = Bench::new();
        let (mut setup, model) = bench.scripted(&json!([first, text("done")]));
        setup.require_plan = require;
        let (_, report) = run(setup, "go").await;
        assert_stopped(&report, StopReason::EndTurn);
        assert_eq!(model.sent().len(), 2);
    }
}

/// With the plan tool off there is neither a reminder nor a continuation; what was required is said to be unfinished.
#[tokio::test]
async fn with_the_plan_off_nothing_is_continued() {
    let bench = Bench::new();
    let answers: Vec<Value> =
        [open_plan(), text("ok")].into_iter().chain(vec![work(); 5]).chain([text("ok")]).collect();
    let (setup, model) = bench.scripted(&Value::Array(answers));
    let (agent, _) = run(setup.clone(), "go").await;
    let mut off = setup;
    off.tools.remove(0);
    off.require_plan = Some(2);
    let (mut agent, _) = resume(agent, off);
    let report = go(&mut agent, "on").await;
    assert_stopped(&report, StopReason::PlanUnfinished);
    assert_eq!(model.sent().len(), 8);
    let kinds = kinds(&agent.dir());
    assert!(!kinds.iter().any(|kind| kind == "reminder" || kind == "continuation"), "{kinds:?}");
    assert_eq!(report.plan.plan.items.len(), 2);
}
