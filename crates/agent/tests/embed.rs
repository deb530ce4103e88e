//! The example of an embedding program, run as a program.
//!
//! `cargo test` builds examples before it runs tests, beside the test's own folder.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use mainstay_agent::session::entry::Body;
use mainstay_agent::session::log;
use mainstay_agent::session::message::{FilePath, Outcome, ToolResult};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(20);

/// A folder with a workspace and a script, and a place for sessions.
struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new(answers: &Value) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("work")).unwrap();
        fs::write(dir.path().join("work/note.txt"), "three short words\n").unwrap();
        fs::write(dir.path().join("script.json"), answers.to_string()).unwrap();
        Place { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn start(&self, prompt: &str) -> Child {
        let mut command = Command::new(example());
        command.args([self.path("data"), self.path("work"), self.path("script.json")]).arg(prompt);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// The folder of the one session.
    fn session(&self) -> PathBuf {
        fs::read_dir(self.path("data/sessions")).unwrap().next().unwrap().unwrap().path()
    }

    /// All entries of the one session.
    fn entries(&self) -> Vec<Body> {
        let mut bodies = Vec::new();
        log::entries(&self.session(), |_, entry| bodies.extend(entry.map(|entry| entry.body))).unwrap();
        bodies
    }

    /// The results of calls in it.
    fn results(&self) -> Vec<ToolResult> {
        let results = self.entries().into_iter();
        results
            .filter_map(|body| if let Body::ToolResult(result) = body { Some(result) } else { None })
            .collect()
    }
}

fn example() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let built = test.parent().and_then(Path::parent).unwrap().join("examples/embed");
    assert!(built.exists(), "build it first: cargo build -p mainstay-agent --examples");
    built
}

fn out(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn bash(command: &str) -> Value {
    json!({"calls": [{"name": "bash", "arguments": {"command": command}}]})
}

/// Processes of a command line that begins so.
fn running(start: &str) -> usize {
    let names = fs::read_dir("/proc").unwrap();
    let lines = names.filter_map(|name| fs::read_to_string(name.ok()?.path().join("cmdline")).ok());
    lines.filter(|line| line.starts_with(start)).count()
}

fn wait_until(what: &str, patience: Duration, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < patience, "not so in time: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// U02, U06
#[test]
fn a_program_has_tools_an_interceptor_an_approver_and_a_notifier_of_its_own() {
    let place = Place::new(&json!([
        {"calls": [{"name": "words", "arguments": {"path": "note.txt"}}]},
        bash("touch ../out; echo approved"),
        {"text": "Three."},
        {"text": "Still three."},
    ]));
    let first = out(&place.start("How many words?").wait_with_output().unwrap());
    assert!(first.starts_with("EndTurn \"Three.\" "), "{first}");
    let results = place.results();
    let note = FilePath(place.path("work/note.txt").canonicalize().unwrap());
    let (state, _) = log::read(&place.session()).unwrap();
    let touched: Vec<&FilePath> = state.recent_files.iter().map(|file| &file.path).collect();
    assert_eq!((results[0].summary.as_str(), touched), ("3 words", vec![&note]));
    assert!(results[1].content.as_deref().is_some_and(|content| content.contains("approved")));
    // Where the system has nothing to hold commands with, the approver lets them pass.
    let is_held = !place.path("out").exists();
    assert!(is_held || std::env::var_os("CI").is_none(), "{:?}", results[1]);
    let entries = place.entries();
    for part in ["The program was started.", "Be brief."] {
        let is_told = |body: &Body| matches!(body, Body::Notice(notice) if notice.text.contains(part));
        assert!(entries.iter().any(is_told), "no {part:?}");
    }
    let second = out(&place.start("And now?").wait_with_output().unwrap());
    assert!(second.starts_with("EndTurn \"Still three.\" "), "{second}");
    assert!(place.entries().len() > entries.len(), "it is the same session");
}

/// L02: whatever a program is killed in, no process that its commands started outlives it.
#[test]
fn a_program_that_is_killed_leaves_no_process() {
    // No other run of this test has the number.
    let mark = 10_000_000 + std::process::id();
    let sleeping = || running(&format!("sleep\x00{mark}"));
    let place = Place::new(&json!([
        bash(&format!("setsid sleep {mark}3 & touch here; sleep {mark}4")),
        {"text": "Going on."},
    ]));
    let mut program = place.start("Wait.");
    wait_until("the command runs", PATIENCE, || place.path("work/here").exists() && sleeping() == 2);
    program.kill().unwrap();
    program.wait().unwrap();
    wait_until("none survives", Duration::from_secs(2), || sleeping() == 0);
    let resumed = out(&place.start("Go on.").wait_with_output().unwrap());
    assert!(resumed.starts_with("EndTurn \"Going on.\" "), "{resumed}");
    assert_eq!(place.results()[0].outcome, Outcome::Interrupted);
}
