//! What an embedding program sets up: what is refused before anything is logged, and what stands in for what was forgotten.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::sync::Arc;

use common::{Bench, calls, results};
use mainstay_agent::model::ScriptModel;
use mainstay_agent::{
    Agent, Approve, BoxFuture, BuiltinOptions, CallContext, CancellationToken, Outcome, SandboxMode, Setup,
    SetupError, StartError, Tool, ToolError, ToolKind, ToolOutput, ToolSpec, block_on,
};
use mainstay_testkit::tools;
use serde_json::json;

/// A tool of an embedding program that says what it is told to say of itself.
struct Own {
    name: &'static str,
    schema: &'static str,
}

impl Tool for Own {
    fn spec(&self) -> ToolSpec {
        ToolSpec { name: self.name.into(), description: "Does it.".into(), schema: self.schema.into() }
    }

    fn run<'a>(&'a self, _: &'a str, _: &'a CallContext) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async { Ok("done".into()) })
    }
}

fn scripted(answers: &serde_json::Value, bench: &Bench) -> Setup {
    let model = ScriptModel::from_json("script:test", &answers.to_string()).unwrap();
    Setup::new(bench.workspace.data_home(), bench.workspace.path(), Arc::new(model)).unwrap()
}

/// A model must be able to learn how a tool is called.
#[test]
fn a_tool_that_no_model_can_call_is_refused() {
    let refused = |own: Own| {
        let bench = Bench::new();
        let mut setup = scripted(&json!([]), &bench);
        setup.tools.push(Arc::new(own));
        match Agent::create(setup) {
            Err(StartError::Setup(error)) => error,
            _ => panic!("it was not refused"),
        }
    };
    for name in ["", "two words", "naïve", "a.b", &"a".repeat(65)] {
        let name: &'static str = Box::leak(name.to_owned().into_boxed_str());
        let error = refused(Own { name, schema: "{}" });
        assert_eq!(error, SetupError::ToolName { name: name.to_owned() });
    }
    for schema in ["", "not json", "[]", "{"] {
        let error = refused(Own { name: "own", schema });
        assert!(matches!(&error, SetupError::Schema { name, .. } if name == "own"), "{schema}: {error}");
    }
}

/// Where `main` does not ask whether it is to supervise, as here, the program would start itself again and again.
#[test]
fn a_program_that_forgot_to_supervise_is_told_so() {
    let bench = Bench::new();
    let setup = scripted(
        &json!([{"calls": [{"name": "bash", "arguments": {"command": "true"}}]}, {"text": "So."}]),
        &bench,
    );
    let mut agent = Agent::create(Setup { approve: Approve::All, ..setup }).unwrap();
    block_on(agent.run("Run it.", &CancellationToken::new())).unwrap();
    let [result] = results(&agent.dir()).try_into().unwrap();
    assert_eq!(result.outcome, Outcome::Error);
    assert!(result.summary.contains("supervise_if_asked()"), "{}", result.summary);
}

/// Sessions may lie in a place that is named from here and is not there yet.
#[test]
fn the_place_of_sessions_may_be_relative() {
    let bench = Bench::new();
    let relative = format!("../../target/tmp/setup-{}", std::process::id());
    let model = ScriptModel::from_json("script:test", r#"[{"text": "Hello."}]"#).unwrap();
    let setup = Setup::new(&relative, bench.workspace.path(), Arc::new(model)).unwrap();
    assert!(setup.data_home.is_absolute());
    // As a program may set it itself.
    let mut agent = Agent::create(Setup { data_home: relative.clone().into(), ..setup }).unwrap();
    let report = block_on(agent.run("Say hello.", &CancellationToken::new())).unwrap();
    assert_eq!(report.text, "Hello.", "{:?}", report.failure);
    drop(agent);
    std::fs::remove_dir_all(relative).unwrap();
}

/// What one call of `block_on` began goes on in the next.
#[test]
fn work_goes_on_from_one_block_on_to_the_next() {
    let begun = block_on(async {
        Some(tokio::spawn(async {
            tokio::task::yield_now().await;
            7
        }))
    });
    let task = begun.unwrap().unwrap();
    assert_eq!(block_on(task).unwrap().unwrap(), 7);
}

/// A sandbox is around `bash` alone; what a program brought of its own stays.
#[test]
fn commands_are_held_and_other_tools_stay() {
    let bench = Bench::new();
    let mut setup = scripted(&json!([]), &bench);
    setup.tools.push(Arc::new(Own { name: "own", schema: "{}" }));
    let names = |setup: &Setup| setup.tools.iter().map(|tool| tool.spec().name).collect::<Vec<_>>();
    let before = names(&setup);
    setup.hold_commands(SandboxMode::ReadOnly, BuiltinOptions::default()).unwrap();
    assert_eq!(names(&setup), before);
    assert!(matches!(setup.sandbox, mainstay_agent::CommandSandbox::Supervised(_)));
}

/// What another tool runs would pass as if it were held.
#[test]
fn commands_of_another_tool_are_not_said_to_be_held() {
    let bench = Bench::new();
    let mut setup = scripted(&json!([]), &bench);
    setup.tools.push(tools::succeeds("run", ToolKind::Command));
    let error = setup.hold_commands(SandboxMode::ReadOnly, BuiltinOptions::default()).unwrap_err();
    assert_eq!(error, SetupError::NotHeld { name: "run".to_owned() });
}

/// Nobody knows what a tool of a program's own changes; so where all that changes something is asked about, it is.
#[tokio::test]
async fn a_tool_of_ones_own_is_asked_about_where_all_is() {
    for (approve, outcome) in [(Approve::Ask, Outcome::Denied), (Approve::Auto, Outcome::Ok)] {
        let bench = Bench::new();
        let (setup, _) = bench.scripted(&json!([calls(&[("work", json!({}))]), {"text": "So."}]));
        let mut agent = Agent::create(Setup { approve, ..setup }).unwrap();
        agent.run("Do it.", &CancellationToken::new()).await;
        let [result] = results(&agent.dir()).try_into().unwrap();
        assert_eq!(result.outcome, outcome, "{}", result.summary);
    }
}
