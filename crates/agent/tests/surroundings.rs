//! What changes around a session while it lasts: files that something else changed, and tools that are there or not.
#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

mod common;

use std::fs;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use common::{
    Bench, assert_sound, calls, go, log, reminded_before, results, resume, run, text, with_tool, work,
};
use mainstay_agent::session::entry::{Body, NoticeKind};
use mainstay_agent::{Agent, SetupError, StartError};
use mainstay_testkit::tools;
use mainstay_tools::{Read, Tool, ToolKind, builtin_tools};
use serde_json::{Value, json};

/// Texts of notices about changed files.
fn told(agent: &Agent) -> Vec<String> {
    let of = |entry: mainstay_agent::session::entry::Entry| match entry.body {
        Body::Notice(notice) if matches!(notice.about, NoticeKind::FilesChanged { .. }) => Some(notice.text),
        _ => None,
    };
    log(&agent.dir()).into_iter().filter_map(of).collect()
}

fn read(path: &str) -> Value {
    calls(&[("read", json!({"path": path}))])
}

/// B06: a file that something else changed is told of once per change, with what is different; not one that was touched,
/// nor one that our own tools changed.
#[tokio::test]
async fn a_file_changed_outside_is_told_of_once() {
    let bench = Bench::new();
    let file = bench.workspace.write("a.txt", "one\ntwo\n");
    let edit = calls(&[("edit", json!({"path": "a.txt", "old": "three", "new": "3"}))]);
    let (mut setup, _) = bench.scripted(&json!([
        read("a.txt"),
        text("read"),
        text("touched"),
        work(),
        text("told"),
        read("a.txt"),
        edit,
        text("edited"),
        text("quiet"),
        text("gone"),
        text("still gone"),
    ]));
    setup.tools.extend(
        builtin_tools(&Default::default())
            .into_iter()
            .filter(|tool| ["read", "edit"].contains(&tool.spec().name.as_str())),
    );
    let (mut agent, _) = run(setup, "read it").await;
    fs::File::options()
        .append(true)
        .open(&file)
        .unwrap()
        .set_modified(SystemTime::now() - Duration::from_secs(9))
        .unwrap();
    go(&mut agent, "touched").await;
    assert_eq!(told(&agent), Vec::<String>::new());
    fs::write(&file, "one\nthree\n").unwrap();
    go(&mut agent, "changed").await;
    let [notice] = told(&agent).try_into().unwrap();
    assert!(notice.contains("a.txt") && notice.contains("-two") && notice.contains("+three"), "{notice}");
    go(&mut agent, "edit it").await;
    assert_eq!(fs::read_to_string(&file).unwrap(), "one\n3\n");
    go(&mut agent, "our own").await;
    assert_eq!(told(&agent).len(), 1);
    fs::remove_file(&file).unwrap();
    go(&mut agent, "gone").await;
    go(&mut agent, "still gone").await;
    assert_eq!(told(&agent).len(), 2);
    assert!(told(&agent)[1].contains("it is gone"));
    assert_sound(&agent);
}

/// A file that changed while no agent ran is told of by the next one, once.
#[tokio::test]
async fn a_file_changed_between_two_runs_is_told_of() {
    let bench = Bench::new();
    let file = bench.workspace.write("a.txt", "one\n");
    let (setup, _) = bench.scripted(&json!([read("a.txt"), text("read")]));
    let (agent, _) = run(with_tool(setup, Arc::new(Read)), "read it").await;
    fs::write(&file, "two\n").unwrap();
    let (setup, _) = bench.scripted(&json!([read("a.txt"), text("read"), text("told"), text("quiet")]));
    let (mut agent, _) = resume(agent, with_tool(setup.clone(), Arc::new(Read)));
    go(&mut agent, "go on").await;
    assert_eq!(told(&agent).len(), 1);
    let (mut agent, _) = resume(agent, with_tool(setup, Arc::new(Read)));
    go(&mut agent, "and on").await;
    assert_eq!(told(&agent).len(), 1);
    assert_sound(&agent);
}

/// Whether the model is reminded of the plan depends on what it was told at the segment's start, not on what the next run
/// would offer.
#[tokio::test]
async fn a_session_begun_without_the_plan_tool_is_never_reminded() {
    let bench = Bench::new();
    let (mut setup, _) = bench.scripted(&json!([text("begun")]));
    setup.tools.retain(|tool| tool.kind() != ToolKind::Plan);
    let (agent, _) = run(setup, "begin").await;
    let steps = [text("begun"), common::open_plan(), work(), work(), work(), work(), text("done")];
    let (setup, _) = bench.scripted(&json!(steps));
    let (mut agent, _) = resume(agent, setup);
    go(&mut agent, "go on").await;
    assert_eq!(reminded_before(&agent.dir()), Vec::<usize>::new());
    assert_sound(&agent);
}

/// The names of an unknown tool's neighbours are those of tools that the model was told of.
#[tokio::test]
async fn only_offered_tools_are_suggested() {
    let bench = Bench::new();
    let (setup, _) = bench.scripted(&json!([text("begun")]));
    let (agent, _) = run(setup, "begin").await;
    let (setup, _) = bench.scripted(&json!([text("begun"), calls(&[("newer", json!({}))]), text("done")]));
    let (mut agent, _) = resume(agent, with_tool(setup, tools::succeeds("newest", ToolKind::Other)));
    go(&mut agent, "go on").await;
    let [result] = results(&agent.dir()).try_into().unwrap();
    assert!(!result.summary.contains("newest") && result.summary.contains("work"), "{}", result.summary);
}

/// P14: the plan tool's names are its own, since a log tells plan writes by them.
#[tokio::test]
async fn the_plan_tools_names_are_its_own() {
    let bench = Bench::new();
    let refused = |tool: Arc<dyn Tool>| {
        let (setup, _) = bench.scripted(&json!([]));
        match Agent::create(with_tool(setup, tool)) {
            Err(StartError::Setup(error)) => error,
            _ => panic!("it was not refused"),
        }
    };
    let name = |name: &str| name.to_owned();
    assert_eq!(
        refused(tools::succeeds("todo", ToolKind::Other)),
        SetupError::PlanName { name: name("todo") }
    );
    assert_eq!(
        refused(tools::succeeds("ledger", ToolKind::Plan)),
        SetupError::PlanName { name: name("ledger") }
    );
    assert_eq!(
        refused(tools::succeeds("work", ToolKind::Other)),
        SetupError::TwoTools { name: name("work") }
    );
}
