//! The commands that change sessions, killed and failed at each place where they write, sync or rename something: what they
//! were to do is done or not, and can be done again.

#![allow(clippy::unwrap_used, unreachable_pub, reason = "a test may fail loudly")]
#![allow(dead_code, reason = "shared with the test that kills")]

#[path = "crash/check.rs"]
mod check;
#[path = "crash/machine.rs"]
mod machine;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use machine::Machine;
use mainstay_session::log;

/// A command that changes sessions.
struct Case {
    /// What it is called with; `ID` stands for the session.
    arguments: &'static [&'static str],
    /// What is done before, in the same words.
    before: &'static [&'static [&'static str]],
    /// Whether it does several things, of which some may be done.
    has_parts: bool,
}

const CASES: [Case; 10] = [
    case(&["notify", "ID", "Look at this."], &[]),
    case(&["rewind", "ID", "--turn", "2"], &[]),
    // Across a segment's border.
    case(&["rewind", "ID", "--turn", "0"], &[]),
    case(&["rewind", "ID", "--undo"], &[&["rewind", "ID", "--turn", "2"]]),
    case(&["compact", "ID", "--undo"], &[]),
    case(&["fork", "ID", "--turn", "1"], &[]),
    case(&["undo", "ID"], &[]),
    case(&["sessions", "rm", "ID"], &[]),
    case(
        &["import", "../export.jsonl"],
        &[&["export", "ID", "-o", "../export.jsonl"], &["sessions", "rm", "ID"], &["TRASH"]],
    ),
    Case { arguments: &["doctor", "ID", "--repair"], before: &[&["DAMAGE"]], has_parts: true },
];

const fn case(arguments: &'static [&'static str], before: &'static [&'static [&'static str]]) -> Case {
    Case { arguments, before, has_parts: false }
}

/// Law 5, L01, L05, D22: whatever is killed or fails when, a command has been done or it has not, and then it can be.
#[test]
fn commands_are_done_or_not() {
    let faults: Vec<String> = std::thread::scope(|scope| {
        let halves = [0, 1].map(|half| {
            scope.spawn(move || {
                let mut machine = Machine::new();
                machine.finish();
                save(&machine, "saved");
                let cases = CASES.iter().skip(half).step_by(2);
                cases.flat_map(|case| faults_of(&machine, case)).collect::<Vec<_>>()
            })
        });
        halves.into_iter().flat_map(|half| half.join().unwrap()).collect()
    });
    assert!(faults.is_empty(), "{faults:#?}");
}

fn faults_of(machine: &Machine, case: &Case) -> Vec<String> {
    put_back(machine, "saved");
    let id = machine.session().unwrap().file_name().unwrap().to_string_lossy().into_owned();
    let words = |arguments: &[&str]| -> Vec<String> {
        arguments.iter().map(|word| word.replace("ID", &id)).collect()
    };
    for arguments in case.before {
        match *arguments {
            ["DAMAGE"] => damage(machine),
            ["TRASH"] => fs::remove_dir_all(machine.root.join("data/trash")).unwrap(),
            arguments => assert_eq!(run(machine, &words(arguments), "").code, Some(0)),
        }
    }
    save(machine, "prepared");
    let arguments = words(case.arguments);
    let before = world(machine);
    let ended = run(machine, &arguments, "");
    assert_eq!(ended.code, Some(0), "{arguments:?}: {}", ended.err);
    let after = world(machine);
    assert!(before != after, "{arguments:?} does nothing");
    let mut faults = Vec::new();
    let places: BTreeSet<String> = ended.trace.into_iter().collect();
    assert!(places.len() > 2, "{arguments:?} comes by {places:?}");
    for (place, action) in places.iter().flat_map(|place| [(place, "#1=kill"), (place, "=eio")]) {
        put_back(machine, "prepared");
        let orders = format!("{place}{action}");
        let ended = run(machine, &arguments, &orders);
        let now = world(machine);
        let wrong = match (ended.was_killed, ended.code) {
            _ if now != before && now != after && !case.has_parts => {
                Some(format!("something between: {now}"))
            }
            (true, _) => None,
            (false, Some(0)) if now != after => Some("it says that it is done, and is not".to_owned()),
            (false, Some(0)) => None,
            _ if now == after => Some(format!("it is done and says that it is not: {}", ended.err)),
            _ if !ended.err.contains("Input/output error") => {
                Some(format!("it does not say why: {}", ended.err))
            }
            _ => None,
        };
        faults.extend(wrong.map(|wrong| format!("{arguments:?}, {orders}: {wrong}")));
        if now != after {
            let again = run(machine, &arguments, "");
            if again.code != Some(0) || world(machine) != after {
                faults.push(format!(
                    "{arguments:?}, {orders}: not again: {}{}",
                    again.err,
                    first_difference(&after, &world(machine))
                ));
            }
        }
    }
    faults
}

fn first_difference(a: &str, b: &str) -> String {
    format!("{:?}", a.lines().zip(b.lines()).find(|(a, b)| a != b))
}

fn run(machine: &Machine, arguments: &[String], orders: &str) -> machine::Ended {
    machine.run(&arguments.iter().map(String::as_str).collect::<Vec<_>>(), orders)
}

/// Cuts the last line short and spoils one in the middle of the first segment.
fn damage(machine: &Machine) {
    let dir = machine.session().unwrap();
    let mut bytes = fs::read(dir.join("0001.jsonl")).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(dir.join("0001.jsonl"), bytes).unwrap();
    let mut bytes = fs::read(dir.join("0002.jsonl")).unwrap();
    bytes.truncate(bytes.len() - 20);
    fs::write(dir.join("0002.jsonl"), bytes).unwrap();
}

/// All that a user can see: sessions, their states and messages, the trash, and the files of the workspace.
fn world(machine: &Machine) -> String {
    let mut world = String::new();
    for folder in ["data/sessions", "data/trash"] {
        let mut sessions: Vec<String> = fs::read_dir(machine.root.join(folder))
            .into_iter()
            .flatten()
            .map(|entry| entry.unwrap().path())
            .filter(|path| !path.file_name().unwrap().to_string_lossy().starts_with('.'))
            .map(|path| session(machine, &path))
            .collect();
        sessions.sort();
        world.push_str(&format!("{folder}:\n{}", sessions.concat()));
    }
    for name in ["a.txt", "b.txt", "new.txt", "sum.txt"] {
        world.push_str(&fs::read_to_string(machine.work(name)).unwrap_or_default());
    }
    world
}

fn session(machine: &Machine, dir: &Path) -> String {
    let mut damage = Vec::new();
    let mut entries = 0;
    let _ = log::entries(dir, |_, entry| match entry {
        Ok(_) => entries += 1,
        Err(fault) => damage.push(fault.to_string()),
    });
    let state = log::read(dir).map(|(state, _)| state).map_err(|error| error.to_string());
    let waiting = log::waiting_messages(dir);
    let id = dir.file_name().unwrap().to_string_lossy().into_owned();
    let root = machine.root.display().to_string();
    format!("{state:?} {waiting} {entries} {damage:?}\n").replace(&id, "ID").replace(&root, "/R")
}

fn save(machine: &Machine, name: &str) {
    copy(&machine.root, &machine.root.join(name), ["data", "work"]);
}

fn put_back(machine: &Machine, name: &str) {
    copy(&machine.root.join(name), &machine.root, ["data", "work"]);
}

fn copy(from: &Path, to: &Path, names: [&str; 2]) {
    fs::create_dir_all(to).unwrap();
    for name in names {
        let _ = fs::remove_dir_all(to.join(name));
        let copied = Command::new("cp").arg("-a").arg(from.join(name)).arg(to.join(name)).status().unwrap();
        assert!(copied.success());
    }
}
