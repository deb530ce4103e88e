//! What happens to sessions in the field, met by the real binary: interrupted, resumed many times, two at once.

#![allow(clippy::unwrap_used, unreachable_pub, reason = "a test may fail loudly")]
#![allow(dead_code, reason = "shared with the test that kills")]

#[path = "crash/check.rs"]
mod check;
#[path = "crash/machine.rs"]
mod machine;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use machine::Machine;
use mainstay_session::log;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// A run with answers of its own, which play in a file of that name.
fn command(machine: &Machine, name: &str, answers: &Value, arguments: &[&str]) -> Command {
    let script = machine.root.join(name);
    fs::write(&script, answers.to_string()).unwrap();
    let model = format!("script:{}", script.display());
    let mut command = machine.command(&["exec", "--approve", "all", "--model", &model]);
    command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn wait_for(path: &Path) {
    let begun = Instant::now();
    while !path.exists() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{} did not appear", path.display());
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn done(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn sessions(machine: &Machine) -> Vec<PathBuf> {
    let names = fs::read_dir(machine.root.join("data/sessions")).unwrap();
    let mut sessions: Vec<PathBuf> = names.map(|name| name.unwrap().path()).collect();
    sessions.sort();
    sessions
}

fn bash(command: &str) -> Value {
    json!({"calls": [{"name": "bash", "arguments": {"command": command}}]})
}

/// A25: Ctrl-C while a command runs, the second of five items in progress: the plan is the same after it, in the next process,
/// and in the model's view.
#[test]
fn an_interrupt_leaves_the_plan() {
    let machine = Machine::new();
    let item = |n: usize, status: &str| json!({"content": format!("Item {n}"), "status": status});
    let statuses = ["completed", "in_progress", "pending", "pending", "pending"];
    let todos: Vec<Value> = statuses.iter().enumerate().map(|(n, status)| item(n + 1, status)).collect();
    let plan = json!({"calls": [{"name": "todo_write", "arguments": {"todos": todos}}]});
    let answers = json!([plan, bash(": > here; sleep 300"), {"text": "I go on."}]);
    let child: Child = command(&machine, "s", &answers, &["Work."]).spawn().unwrap();
    wait_for(&machine.work("here"));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(130));
    machine.wait_for_the_last().unwrap();
    let shown = "[x] Item 1\n[>] Item 2\n[ ] Item 3\n[ ] Item 4\n[ ] Item 5\n\n(1/5 completed)\n";
    let plan = || done(&machine.command(&["plan"]).output().unwrap());
    assert_eq!(plan(), shown);
    done(&command(&machine, "s", &answers, &["--last", "Go on."]).output().unwrap());
    assert_eq!(plan(), shown);
    let history = done(&machine.command(&["history"]).output().unwrap());
    assert!(history.contains("[>] Item 2"), "{history}");
}

/// D09: ten times resumed, a session grows by what is new and by no copy; the same long output is kept whole once.
#[test]
fn a_session_that_is_resumed_grows_by_what_is_new() {
    let machine = Machine::new();
    let long = bash("seq 1 30000");
    let mut answers = vec![long.clone(), long, json!({"text": "Twice."})];
    answers.extend((0..10).map(|_| json!({"text": "Yes."})));
    let answers = Value::Array(answers);
    done(&command(&machine, "s", &answers, &["Count."]).output().unwrap());
    let session = sessions(&machine).remove(0);
    let log = session.join("0001.jsonl");
    let len = || fs::metadata(&log).unwrap().len();
    let grown: Vec<u64> = (0..10)
        .map(|_| {
            let before = len();
            done(&command(&machine, "s", &answers, &["--last", "And?"]).output().unwrap());
            len() - before
        })
        .collect();
    assert!(grown.iter().all(|bytes| *bytes < 2_000), "{grown:?}");
    let mut kinds = Vec::new();
    log::entries(&session, |_, entry| kinds.push(entry.unwrap().body.kind().to_owned())).unwrap();
    for once in ["session", "world", "model"] {
        assert_eq!(kinds.iter().filter(|kind| *kind == once).count(), 1, "{once}");
    }
    assert_eq!(fs::read_dir(session.join("spill")).unwrap().count(), 1);
}

/// D20: whatever a session keeps is for its owner alone.
#[test]
fn all_files_of_a_session_are_private() {
    let mut machine = Machine::new();
    machine.finish();
    done(
        &machine
            .command(&[
                "notify",
                "--silent",
                sessions(&machine)[0].file_name().unwrap().to_str().unwrap(),
                "x",
            ])
            .output()
            .unwrap(),
    );
    let mut folders = vec![machine.root.join("data")];
    let mut names = Vec::new();
    while let Some(folder) = folders.pop() {
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&folder), 0o700, "{}", folder.display());
        for path in fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                names.push(path.file_name().unwrap().to_string_lossy().into_owned());
                folders.push(path);
            } else {
                assert_eq!(mode(&path), 0o600, "{}", path.display());
            }
        }
    }
    for folder in ["spill", "jobs", "inbox"] {
        assert!(names.iter().any(|name| name == folder), "there is no {folder}");
    }
}

/// D24: a session that is begun while another streams takes nothing from it; both answers are whole.
#[test]
fn a_session_begun_while_another_streams_takes_nothing_from_it() {
    let machine = Machine::new();
    let slow = json!([bash(": > here"), {"text": "The slow answer.", "delay_ms": 1500}]);
    let first = command(&machine, "slow", &slow, &["Slowly."]).spawn().unwrap();
    wait_for(&machine.work("here"));
    let second =
        command(&machine, "fast", &json!([{"text": "The fast answer."}]), &["Fast."]).output().unwrap();
    assert_eq!(done(&second), "The fast answer.\n");
    assert_eq!(done(&first.wait_with_output().unwrap()), "The slow answer.\n");
    let ends: Vec<String> = sessions(&machine)
        .iter()
        .map(|dir| {
            let (state, opening) = log::read(dir).unwrap();
            assert!(opening.damage.is_empty() && !state.turn_is_open);
            state.last_words
        })
        .collect();
    assert_eq!(ends, ["The slow answer.", "The fast answer."]);
}

/// E15: what another session wrote between the reading and the writing of a file is not written over.
#[test]
fn a_file_that_another_session_changed_is_not_written_over() {
    let machine = Machine::new();
    let call = |name: &str, arguments: Value| json!({"calls": [{"name": name, "arguments": arguments}]});
    let read = call("read", json!({"path": "a.txt"}));
    let write = |content: &str| call("write", json!({"path": "a.txt", "content": content}));
    let edit = call("edit", json!({"path": "a.txt", "edits": [{"old": "theirs", "new": "mine"}]}));
    let wait = bash(": > here; until [ -e there ]; do sleep 0.01; done");
    let first = json!([read, wait, write("mine\n"), edit, {"text": "Done."}]);
    let first = command(&machine, "first", &first, &["Write."]).spawn().unwrap();
    wait_for(&machine.work("here"));
    let second = json!([read, write("theirs\n"), {"text": "Written."}]);
    assert_eq!(done(&command(&machine, "second", &second, &["Write too."]).output().unwrap()), "Written.\n");
    fs::write(machine.work("there"), "").unwrap();
    done(&first.wait_with_output().unwrap());
    assert_eq!(fs::read_to_string(machine.work("a.txt")).unwrap(), "theirs\n");
    let (state, _) = log::read(&sessions(&machine)[0]).unwrap();
    let refused = state
        .results()
        .filter(|result| result.summary.contains("has changed since it was last read"))
        .count();
    assert_eq!(refused, 2);
}
