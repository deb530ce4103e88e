//! Calls that a model wrote as text: run where the settings let them, never taken for an answer.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

mod common;

use std::sync::Arc;

use common::*;
use mainstay_agent::{Event, Setup, TurnFailure};
use mainstay_model::TextCallRule;
use mainstay_session::entry::{Body, StopReason};
use mainstay_session::message::{Content, Outcome};
use mainstay_testkit::models::{self, RecordingModel};
use mainstay_testkit::tools::demanding;
use serde_json::{Value, json};

const CALL: &str = "<tool_call>\n{\"name\": \"work\", \"arguments\": {}}\n</tool_call>";
const DSML: &str = "<\u{ff5c}DSML\u{ff5c}function_calls><\u{ff5c}DSML\u{ff5c}invoke name=\"work\"></\u{ff5c}DSML\u{ff5c}invoke></\u{ff5c}DSML\u{ff5c}function_calls>";

fn ruled(bench: &Bench, answers: &Value, rule: TextCallRule) -> (Setup, Arc<RecordingModel>) {
    let model = RecordingModel::with_text_calls(models::script(answers), rule);
    (bench.setup(model.clone()), model)
}

fn shown(bench: &Bench) -> String {
    let delta = |event: Event| match event {
        Event::TextDelta(text) => Some(text),
        _ => None,
    };
    bench.events().into_iter().filter_map(delta).collect()
}

fn warnings(bench: &Bench) -> Vec<String> {
    let warning = |event: Event| match event {
        Event::Warning(text) => Some(text),
        _ => None,
    };
    bench.events().into_iter().filter_map(warning).collect()
}

/// I03: a call that is the whole answer is run, the log keeps its text, and no fragment is shown; the session resumes to the
/// same request.
#[tokio::test]
async fn a_whole_call_is_run_and_keeps_its_text() {
    for call in [CALL, DSML, "```json\n{\"name\": \"work\", \"arguments\": {}}\n```"] {
        let bench = Bench::new();
        let (setup, model) = ruled(&bench, &json!([text(call), text("done")]), TextCallRule::Take);
        let (agent, report) = run(setup.clone(), "go").await;
        assert_stopped(&report, StopReason::EndTurn);
        assert_eq!((report.text.as_str(), shown(&bench).as_str()), ("done", "done"));
        let dir = agent.dir();
        let answers = log(&dir).into_iter().filter_map(|entry| match entry.body {
            Body::Answer(answer) => Some(answer),
            _ => None,
        });
        let made = answers.flat_map(|answer| answer.content).find_map(|block| match block {
            Content::Call(call) => Some(call),
            _ => None,
        });
        let opaque: Value = serde_json::from_str(&made.unwrap().opaque.unwrap()).unwrap();
        assert_eq!(opaque, json!({ "text_call": call }));
        assert_eq!(results(&dir).iter().map(|result| result.outcome).collect::<Vec<_>>(), [Outcome::Ok]);
        assert_sound(&agent);
        let (mut agent, _) = resume(agent, setup);
        go(&mut agent, "and then").await;
        assert_sound(&agent);
        assert_eq!(model.sent().len(), 3);
        assert!(!String::from_utf8(model.sent()[2].body.clone()).unwrap().contains("text_call"));
    }
}

/// I03: where text is not taken for calls the model is told once, with the setting for the user; what it does then is run.
#[tokio::test]
async fn a_call_that_is_not_taken_is_told_of_once() {
    let bench = Bench::new();
    let (setup, model) = ruled(&bench, &json!([text(DSML), work(), text("done")]), TextCallRule::Report);
    let (agent, report) = run(setup, "go").await;
    assert_stopped(&report, StopReason::EndTurn);
    assert_eq!((report.text.as_str(), shown(&bench).as_str()), ("done", "done"));
    assert_eq!(
        kinds(&agent.dir())[4..],
        ["answer", "text_call", "answer", "tool_result", "answer", "turn_end"].map(str::to_owned)
    );
    assert_eq!(models::count_of(&model.sent()[1], "was not run"), 1);
    let warned = warnings(&bench);
    assert_eq!(warned.len(), 1);
    assert!(warned[0].contains("`work`") && warned[0].contains("text_calls = \"on\""), "{warned:?}");
    assert_sound(&agent);
}

/// I03, I04: a turn whose model writes calls as text again and again ends as an error, whatever form and fault they have; no
/// more than one further request is made, and nothing is run or given out as an answer.
#[tokio::test]
async fn a_turn_never_ends_well_with_a_call_that_was_not_run() {
    let needs = "{\"name\": \"needs\", \"arguments\": {}}";
    for (call, rule) in [
        (CALL, TextCallRule::Report),
        (DSML, TextCallRule::Report),
        ("Work[ARGS]{\"n\": 1}", TextCallRule::Report),
        ("Work[ARGS]{\"n\": 1}", TextCallRule::Take),
        ("I work.\n<tool_call>{\"name\": \"work\", \"argu", TextCallRule::Take),
        (needs, TextCallRule::Take),
    ] {
        let bench = Bench::new();
        let answers = json!([text(call), text(call), text("never asked for")]);
        let (setup, model) = ruled(&bench, &answers, rule);
        let setup = with_tool(setup, demanding("needs", &["a"]));
        let (agent, report) = run(setup, "go").await;
        assert_stopped(&report, StopReason::Error);
        assert!(
            matches!(&report.failure, Some(failure @ TurnFailure::TextCall { .. }) if failure.class() == "text_call")
        );
        assert_eq!((report.text.as_str(), model.sent().len()), ("", 2), "{call}");
        assert!(results(&agent.dir()).is_empty());
        assert!(!shown(&bench).contains('<') && !shown(&bench).contains("{\"name"), "{}", shown(&bench));
        assert_sound(&agent);
    }
}

/// The next turn begins anew; with one step left nothing is asked again.
#[tokio::test]
async fn each_turn_is_told_anew_and_within_its_steps() {
    let bench = Bench::new();
    let (mut setup, model) =
        ruled(&bench, &json!([text(CALL), text(CALL), text(CALL), text("ok")]), TextCallRule::Report);
    let (mut agent, report) = run(setup.clone(), "go").await;
    assert_stopped(&report, StopReason::Error);
    assert_stopped(&go(&mut agent, "again").await, StopReason::EndTurn);
    assert_eq!(model.sent().len(), 4);
    let bench = Bench::new();
    (setup, _) = ruled(&bench, &json!([text(CALL)]), TextCallRule::Report);
    setup.max_steps = 1;
    let (_, report) = run(setup, "go").await;
    assert_stopped(&report, StopReason::Error);
}

/// `off` looks at nothing, and an answer that was cut by the limit is told as that.
#[tokio::test]
async fn what_is_no_call_by_the_settings_is_an_answer() {
    let bench = Bench::new();
    let (setup, _) = ruled(&bench, &json!([text(CALL)]), TextCallRule::Ignore);
    let (_, report) = run(setup, "go").await;
    assert_stopped(&report, StopReason::EndTurn);
    assert_eq!((report.text.as_str(), shown(&bench).as_str()), (CALL, CALL));
    let bench = Bench::new();
    let cut = json!([{"text": "<tool_call>\n{\"name\": \"work\"", "finish": "max_tokens"}]);
    let (setup, _) = ruled(&bench, &cut, TextCallRule::Take);
    let (_, report) = run(setup, "go").await;
    assert_stopped(&report, StopReason::MaxTokens);
}
