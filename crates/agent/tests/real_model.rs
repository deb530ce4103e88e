//! A real model behind a real server, neither of them ours: what is asserted is protocol and state, never that the model is
//! clever. Not part of a normal run:
//!
//!     MAINSTAY_REAL_MODEL=http://127.0.0.1:18999/v1 cargo test -p mainstay-agent --test real_model -- --ignored --nocapture
//!
//! `MAINSTAY_REAL_WIRES=chat` names the protocols to try, parted by commas; all of `chat,messages,responses` otherwise. A
//! server whose calls come back as text is tried with `chat` alone.
#![allow(clippy::unwrap_used, clippy::print_stderr, missing_docs, reason = "a test may fail loudly")]

mod common;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use common::*;
use mainstay_agent::{Agent, Setup};
use mainstay_session::entry::{Answer, Body};
use mainstay_session::message::Outcome;
use mainstay_session::plan::Plan;
use mainstay_testkit::speech::Wire;
use mainstay_tools::{BuiltinOptions, builtin_tools};
use serde_json::Value;

const URL: &str = "MAINSTAY_REAL_MODEL";
const CHILD: &str = "MAINSTAY_REAL_CHILD";

const TURNS: [&str; 4] = [
    "Call todo_write with two todos: \"write the file\" with status in_progress, and \"read the file\" with status pending.",
    "Call write to create the file note.txt with the content: hello",
    "Call read with the path note.txt.",
    "Call todo_write with the same two todos, both with status completed.",
];

fn setup(wire: Wire, place: &Path) -> Setup {
    let settings = mainstay_model::ModelSettings {
        temperature: Some(0.0),
        max_output: Some(300),
        ..mainstay_model::ModelSettings::new("llamacpp", "local", std::env::var(URL).unwrap(), 8_192)
    };
    let mut setup = Bench::new().setup(wire.model(settings).unwrap());
    setup.data_home = place.join("data");
    setup.workspace = place.join("work");
    let named = |name: &str| ["todo_write", "read", "write"].contains(&name);
    setup.tools = builtin_tools(&BuiltinOptions::default());
    setup.tools.retain(|tool| named(&tool.spec().name));
    setup.max_steps = 4;
    setup.clock = Arc::new(jiff::Timestamp::now);
    setup
}

fn wire_named(name: &str) -> Wire {
    match name {
        "messages" => Wire::Anthropic,
        "responses" => Wire::Responses,
        _ => Wire::Chat,
    }
}

/// The process that is killed: it takes the first two turns, says so, and hangs.
#[tokio::test]
#[ignore = "a part of the test below"]
async fn a_process_that_is_killed() {
    let Ok(what) = std::env::var(CHILD) else { return };
    let (wire, place) = what.split_once(' ').unwrap();
    let mut agent = Agent::create(setup(wire_named(wire), Path::new(place))).unwrap();
    for turn in &TURNS[..2] {
        let report = go(&mut agent, turn).await;
        eprintln!("{wire}: {:?}: {}", report.stop_reason, report.text);
    }
    println!("\nSESSION {}", agent.dir().display());
    std::future::pending::<()>().await;
}

/// Runs the first turns in a process of their own and ends that with SIGKILL; the session's folder.
fn killed(wire: &str, place: &Path) -> PathBuf {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", "a_process_that_is_killed"])
        .env(CHILD, format!("{wire} {}", place.display()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let found = lines.map_while(Result::ok).find_map(|line| line.strip_prefix("SESSION ").map(PathBuf::from));
    child.kill().unwrap();
    child.wait().unwrap();
    found.unwrap()
}

fn answers(dir: &Path) -> Vec<Answer> {
    let answer = |body: Body| match body {
        Body::Answer(answer) => Some(answer),
        _ => None,
    };
    log(dir).into_iter().filter_map(|entry| answer(entry.body)).collect()
}

/// L01, T14, R01: a session of four turns with a real model, killed between the second and the third: the plan is the last
/// accepted write, the file is what was last written, requests only grow, and the server finds at least 80 % of the request
/// before in its cache, also behind the kill.
#[tokio::test]
#[ignore = "needs a server with a real model"]
async fn four_turns_with_a_kill_between() {
    let wires = std::env::var("MAINSTAY_REAL_WIRES").unwrap_or_else(|_| "chat,messages,responses".to_owned());
    for wire in wires.split(',') {
        let temp = tempfile::tempdir().unwrap();
        let place = temp.path().canonicalize().unwrap();
        std::fs::create_dir_all(place.join("work")).unwrap();
        let dir = killed(wire, &place);
        let before = answers(&dir).len();
        let (mut agent, resumed) = Agent::resume(&dir, setup(wire_named(wire), &place)).unwrap();
        assert!(resumed.damage.is_empty() && !resumed.was_interrupted, "{resumed:?}");
        for turn in &TURNS[2..] {
            let report = go(&mut agent, turn).await;
            eprintln!("{wire}: {:?}: {}", report.stop_reason, report.text);
        }
        assert_sound(&agent);
        let all = answers(&dir);
        for (place, pair) in all.windows(2).enumerate() {
            let (Some(one), Some(other)) = (pair[0].usage, pair[1].usage) else { continue };
            let kill = if place + 1 == before { " (behind the kill)" } else { "" };
            eprintln!("{wire}: {} of {} tokens cached{kill}", other.cached_tokens, one.input_tokens);
            assert!(other.cached_tokens * 5 >= one.input_tokens * 4, "{wire}: {other:?} after {one:?}");
        }
        let accepted: Option<Plan> = results(&dir).into_iter().filter_map(|result| result.plan).next_back();
        agent.read(|state| assert_eq!(state.plan.plan, accepted.clone().unwrap_or_default()));
        eprintln!("{wire}: plan {:?}", accepted.map(|plan| (plan.completed(), plan.items.len())));
        let state = replayed(&dir);
        let steps = state.history.iter().filter_map(|item| item.as_step());
        let written = steps.flat_map(|step| step.calls().collect::<Vec<_>>()).filter(|(_, call, result)| {
            call.name == "write" && result.is_some_and(|result| result.outcome == Outcome::Ok)
        });
        let last: Option<Value> =
            written.map(|(_, call, _)| serde_json::from_str(&call.arguments).unwrap()).next_back();
        let last = last.unwrap_or_else(|| panic!("{wire}: the model wrote no file"));
        let file = std::fs::read_to_string(place.join("work").join(last["path"].as_str().unwrap())).unwrap();
        assert_eq!(file, last["content"].as_str().unwrap(), "{wire}");
        eprintln!("{wire}: file {file:?}, {} answers", all.len());
    }
}
