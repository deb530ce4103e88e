//! What a turn may cost, and the form that its answer must have.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use std::sync::Arc;

use common::*;
use mainstay_agent::{AnswerForm, Prices, Prompt, Setup, TurnFailure};
use mainstay_session::entry::{Body, NoticeKind, StopReason};
use mainstay_testkit::models::count_of;
use serde_json::{Value, json};

/// An answer whose tokens are counted: a thousand in, a hundred out.
fn counted(answer: Value) -> Value {
    let mut answer = answer;
    answer["usage"] = json!({"input_tokens": 1_000, "cached_tokens": 400, "output_tokens": 100});
    answer
}

fn work() -> Value {
    counted(calls(&[("work", json!({}))]))
}

/// 600 fresh tokens at 2 dollars a million, 400 cached ones at 0.50, 100 of output at 10: 0.0024 dollars.
const COST: u64 = 2_400_000;

fn priced(setup: Setup) -> Setup {
    Setup { prices: Some(Prices { cached: Some(0.5), ..Prices::new(2.0, 10.0) }), ..setup }
}

#[tokio::test]
async fn what_a_session_cost_is_known_as_long_as_every_answer_has_a_price() {
    let bench = Bench::new();
    let script = json!([
        work(),
        counted(json!({"text": "a"})),
        counted(json!({"text": "b"})),
        counted(json!({"text": "c"}))
    ]);
    let (setup, _) = bench.scripted(&script);
    let (agent, report) = run(priced(setup.clone()), "one").await;
    assert_eq!((report.cost, report.totals.known_cost()), (Some(2 * COST), Some(2 * COST)));
    let (mut agent, _) = resume(agent, priced(setup.clone()));
    let report = go(&mut agent, "two").await;
    assert_eq!(
        (report.cost, report.totals.known_cost()),
        (Some(COST), Some(3 * COST)),
        "also after a resume"
    );
    let (mut agent, _) = resume(agent, setup);
    let report = go(&mut agent, "three").await;
    assert_eq!((report.cost, report.totals.known_cost(), report.totals.cost), (None, None, 3 * COST));
}

#[tokio::test]
async fn a_turn_ends_after_the_step_that_reaches_its_limit() {
    let bench = Bench::new();
    let (setup, model) = bench.scripted(&json!([work(), work(), work(), counted(json!({"text": "late"}))]));
    let (mut agent, report) = run(Setup { max_cost: Some(COST + 1), ..priced(setup) }, "go").await;
    assert_eq!((report.stop_reason, report.cost), (StopReason::MaxCost, Some(2 * COST)));
    assert_eq!(model.sent().len(), 2);
    assert!(agent.read(|state| state.open_calls().is_empty()), "the step is finished");
    // The limit is the turn's: the next one has all of it again. An answer that ends the turn is no step too many.
    let report = go(&mut agent, "go on").await;
    assert_eq!((report.stop_reason, report.text.as_str()), (StopReason::EndTurn, "late"));
}

fn shouts(again: u32) -> AnswerForm {
    let check = |text: &str| match text.chars().any(char::is_lowercase) {
        true => Err("it has small letters.".to_owned()),
        false => Ok(()),
    };
    AnswerForm { told: "Answer in capitals.".to_owned(), check: Arc::new(check), again }
}

/// The plan comes first: a turn that goes on for its sake is not judged by its form yet.
#[tokio::test]
async fn an_answer_is_asked_for_again_until_it_has_its_form() {
    let bench = Bench::new();
    let todo =
        |status: &str| calls(&[("todo_write", json!({"todos": [{"content": "a", "status": status}]}))]);
    let script = json!([todo("pending"), {"text": "small"}, todo("completed"), {"text": "small too"}, {"text": "LOUD"}]);
    let (setup, _) = bench.scripted(&script);
    let setup = Setup { answer_form: Some(shouts(1)), require_plan: Some(2), ..setup };
    let (agent, report) = run(setup, "speak").await;
    assert_eq!((report.stop_reason, report.text.as_str()), (StopReason::EndTurn, "LOUD"));
    let mut told = Vec::new();
    mainstay_session::log::entries(&agent.dir(), |_, entry| match entry.map(|entry| entry.body) {
        Ok(Body::Notice(notice))
            if matches!(notice.about, NoticeKind::AnswerForm | NoticeKind::Continuation) =>
        {
            told.push((notice.about.as_str(), notice.text.contains("it has small letters.")));
        }
        Ok(_) | Err(_) => {}
    })
    .unwrap();
    assert_eq!(told, [("answer_form", false), ("continuation", false), ("answer_form", true)]);

    let (setup, model) = bench.scripted(&json!([{"text": "a"}, {"text": "b"}, {"text": "c"}, {"text": "D"}]));
    let (_, report) = run(Setup { answer_form: Some(shouts(2)), ..setup }, "speak").await;
    assert_eq!((report.stop_reason, model.sent().len()), (StopReason::Error, 3));
    let failure = report.failure.unwrap();
    assert!(
        matches!(failure, TurnFailure::AnswerForm { .. })
            && failure.message().ends_with("it has small letters.")
    );
}

/// "This turn" is each one: the form is told in every turn, and once in each.
#[tokio::test]
async fn the_form_of_an_answer_is_told_in_every_turn() {
    let bench = Bench::new();
    let (setup, model) =
        bench.scripted(&json!([calls(&[("work", json!({}))]), {"text": "ONE"}, {"text": "TWO"}]));
    let (mut agent, _) = run(Setup { answer_form: Some(shouts(0)), ..setup }, "speak").await;
    go(&mut agent, "again").await;
    let told: Vec<usize> = model.sent().iter().map(|one| count_of(one, "Answer in capitals.")).collect();
    assert_eq!(told, [1, 1, 2]);
}

#[test]
fn only_images_that_models_take_get_into_a_prompt() {
    assert!(Prompt::from("look").image(b"no image".to_vec()).is_err());
    assert_eq!(Prompt::from("look").text(), "look");
}
