//! Sessions as their user moves, copies, finds and mends them, with the real program.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime};

use mainstay_agent::session::entry::{Body, Entry, When};
use mainstay_agent::session::line;
use serde_json::{Value, json};

use common::{Machine, Ran, say};

impl Ran {
    /// Asserts that it did what it was to do, and what it printed.
    #[track_caller]
    fn did(&self, parts: &[&str]) {
        assert_eq!(self.code, 0, "{}{}", self.out, self.err);
        for part in parts {
            assert!(self.out.contains(part), "no {part:?} in:\n{}", self.out);
        }
    }
}

impl Machine {
    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// The short id of the session in a folder.
    fn id_of(dir: &Path) -> String {
        dir.file_name().unwrap().to_str().unwrap()[28..].to_owned()
    }

    /// A session of three turns, each with a plan one item further, and its short id.
    fn three_turns(&self) -> String {
        self.script(json!([
            todos("i"),
            say("one"),
            todos("ci"),
            say("two"),
            todos("cci"),
            say("three"),
            say("four"),
            say("five")
        ]));
        self.run(&["exec", "first"]).did(&["one"]);
        let id = Machine::id_of(&self.sessions()[0]);
        self.run(&["exec", "--session", &id, "second"]).did(&["two"]);
        self.run(&["exec", "--session", &id, "third"]).did(&["three"]);
        id
    }

    fn plan(&self, id: &str) -> String {
        self.run(&["plan", id]).out
    }

    /// What the model is told, as text.
    fn history(&self, id: &str) -> String {
        self.run(&["history", id]).out
    }
}

/// A plan write, one character an item.
fn todos(statuses: &str) -> Value {
    let items: Vec<Value> = statuses
        .chars()
        .enumerate()
        .map(|(place, status)| {
            let status = if status == 'c' { "completed" } else { "in_progress" };
            json!({"id": place.to_string(), "content": format!("item {place}"), "status": status})
        })
        .collect();
    json!({"calls": [{"name": "todo_write", "arguments": {"todos": items}}]})
}

/// R10, D15, D22: the plan and the conversation go back, files do not, and it can be undone; all of it in new processes. One
/// that went back before its first turn is the newest session still.
#[test]
fn a_session_goes_back_and_forth() {
    let machine = Machine::new();
    let id = machine.three_turns();
    fs::write(machine.path("work/by-hand"), "mine").unwrap();
    let now = machine.history(&id);
    let ran = machine.run(&["rewind", &id, "--turn", "1"]);
    ran.did(&["stands at the end of turn 1 again (it had 3); plan 0/1"]);
    assert!(ran.err.contains("no file of the workspace was touched"), "{}", ran.err);
    assert_eq!(machine.plan(&id), "[>] item 0\n\n(0/1 completed)\n");
    assert!(!machine.history(&id).contains("second"));
    assert_eq!(fs::read_to_string(machine.path("work/by-hand")).unwrap(), "mine");
    machine.run(&["sessions"]).did(&["0/1      1"]);
    machine.run(&["rewind", &id, "--undo"]).did(&["at the end of turn 3 again (it had 1); plan 2/3"]);
    assert_eq!(machine.history(&id), now);
    machine.run(&["rewind", &id, "--turn", "0"]).did(&["before its first turn"]);
    machine.run(&["sessions"]).did(&["(before its first turn again)"]);
    machine.run(&["exec", "--last", "anew"]).did(&["one"]);
    assert!(!machine.history(&id).contains("first"));
    machine.run(&["rewind", &id, "--undo"]).did(&["at the end of turn 3 again (it had 1)"]);
    assert_eq!(machine.history(&id), now);
}

#[test]
fn a_rewind_that_cannot_be_is_refused() {
    let machine = Machine::new();
    let id = machine.three_turns();
    machine.run(&["rewind", &id, "--turn", "4"]).failed(2, &["there is no turn 4: the session has 3"]);
    machine.run(&["rewind", &id, "--turn", "3"]).failed(2, &["already stands at the end of turn 3"]);
    machine.run(&["rewind", &id, "--undo"]).failed(2, &["there is no rewind to undo"]);
    machine.run(&["rewind", &id]).failed(2, &["--turn", "--undo"]);
    machine.run(&["rewind", &id, "--turn", "1", "--undo"]).failed(2, &["cannot be used with"]);
    machine.run(&["rewind", "zzz", "--turn", "1"]).failed(2, &["no session has `zzz`"]);
}

/// What names something that is not there, or finds nothing to do, is refused as any command line that cannot be obeyed.
#[test]
fn where_there_is_nothing_to_do_the_exit_code_is_that_of_a_wrong_command_line() {
    let machine = Machine::new();
    let id = machine.three_turns();
    let id = id.as_str();
    let there = machine.path("there.mainstay");
    fs::write(&there, "").unwrap();
    for (arguments, said) in [
        (vec!["undo", id], "no change of a file is left to take back"),
        (vec!["undo", id, "--to", "999"], "there is no entry 999"),
        (vec!["rewind", id, "--undo"], "there is no rewind to undo"),
        (vec!["rewind", id, "--turn", "9"], "there is no turn 9"),
        (vec!["rewind", id, "--entry", "999"], "there is no entry 999"),
        (vec!["compact", id, "--undo"], "no compaction"),
        (vec!["fork", id, "--turn", "9"], "there is no turn 9"),
        (vec!["sessions", "restore", id], "no session has"),
        (vec!["sessions", "rm", "zzz"], "no session has `zzz`"),
        (vec!["plan", "zzz"], "no session has `zzz`"),
        (vec!["history", "zzz"], "no session has `zzz`"),
        (vec!["notify", "zzz", "x"], "no session has `zzz`"),
        (vec!["export", id, "-o", there.to_str().unwrap()], "there.mainstay"),
        (vec!["exec", "--session", "zzz", "x"], "no session has `zzz`"),
        (vec!["exec", "--last", "--cwd", "..", "x"], "there is no session of"),
    ] {
        let ran = machine.run(&arguments);
        assert_eq!(ran.code, 2, "{arguments:?}: {}{}", ran.out, ran.err);
        assert!(ran.err.contains(said), "{arguments:?}: {}", ran.err);
    }
}

/// D22: what was taken back is told from what is in effect, and from what somebody else wrote since.
#[test]
fn the_list_of_changes_says_what_became_of_each() {
    let machine = Machine::new();
    let write = |path: &str, text: &str| {
        json!({"calls": [
            {"name": "read", "arguments": {"path": path}},
            {"name": "write", "arguments": {"path": path, "content": text}}
        ]})
    };
    machine.script(json!([
        write("a", "1\n"),
        say("made"),
        write("a", "2\n"),
        write("b", "1\n"),
        say("changed")
    ]));
    machine.run(&["exec", "first"]).did(&["made"]);
    machine.run(&["exec", "--last", "second"]).did(&["changed"]);
    let id = Machine::id_of(&machine.sessions()[0]);
    let standings = || {
        let list = machine.run(&["undo", &id, "--list"]).out;
        let known = ["in effect", "taken back", "changed since"];
        let standing = |line: &str| known.into_iter().find(|text| line.contains(text)).unwrap().to_owned();
        list.lines().skip(1).map(standing).collect::<Vec<_>>()
    };
    assert_eq!(standings(), ["in effect", "in effect", "in effect"]);
    machine.run(&["undo", &id]).did(&["put back", "removed"]);
    assert_eq!(standings(), ["in effect", "taken back", "taken back"]);
    machine.run(&["undo", &id]).did(&["removed"]);
    assert_eq!(standings(), ["taken back", "taken back", "taken back"]);
    machine.run(&["undo", &id]).failed(2, &["no change of a file is left", "--list"]);
    fs::write(machine.path("work/b"), "by hand").unwrap();
    assert_eq!(standings(), ["taken back", "taken back", "changed since"]);
}

/// N01, N02: a session that does not run is told when it goes on, once, in order; the text may come from stdin.
#[test]
fn a_session_is_told_what_was_left_for_it() {
    let machine = Machine::new();
    let id = machine.three_turns();
    machine.run(&["notify", &id, "the build is green"]).did(&["no process works on it now"]);
    machine
        .run(&["notify", &id, "--silent", "<system-reminder>the database is back"])
        .did(&["left for session"]);
    machine.run(&["exec", "--session", &id, "go on"]).did(&["four"]);
    machine.run(&["exec", "--session", &id, "go on"]).did(&["five"]);
    let history = machine.history(&id);
    let first = history.find("Notification from another process:\nthe build is green").unwrap();
    assert!(first < history.find("the database is back").unwrap());
    assert_eq!(history.matches("the build is green").count(), 1);
    assert_eq!(fs::read_dir(machine.sessions()[0].join("inbox")).unwrap().count(), 0);
    machine.run(&["notify", &id, ""]).failed(2, &["the text is empty"]);
    machine.run(&["notify", &id, &"x".repeat(70_000)]).failed(2, &["at most 65536"]);
    machine.run(&["notify", "zzz", "x"]).failed(2, &["no session has `zzz`"]);
}

/// N01: a running session is told in the middle of its turn.
#[test]
fn a_running_session_is_told_in_its_turn() {
    let machine = Machine::new();
    machine.script(json!([
        {"calls": [{"name": "bash", "arguments": {"command": "touch began; while [ ! -e go ]; do sleep 0.01; done"}}]},
        say("told"),
    ]));
    let child =
        machine.command(&["exec", "wait"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for(&machine.path("work/began"));
    let id = Machine::id_of(&machine.sessions()[0]);
    machine.run(&["notify", &id, "news"]).did(&["a process works on it"]);
    fs::write(machine.path("work/go"), "").unwrap();
    Ran::from(child.wait_with_output().unwrap()).did(&["told"]);
    let log = fs::read_to_string(machine.sessions()[0].join("0001.jsonl")).unwrap();
    let place = |what: &str| log.find(what).unwrap();
    assert!(place("\"kind\":\"tool_result\"") < place("\"kind\":\"inbox\""));
    assert!(place("\"kind\":\"inbox\"") < place("\"text\":\"told\""));
}

fn wait_for(path: &Path) {
    let begun = Instant::now();
    while !path.exists() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{} did not appear", path.display());
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// R10: a fork is a session of its own: listed, resumed, and the other one as it was.
#[test]
fn a_fork_goes_its_own_way() {
    let machine = Machine::new();
    let id = machine.three_turns();
    let before = machine.history(&id);
    let ran = machine.run(&["fork", &id, "--turn", "2"]);
    let forked = Machine::id_of(&machine.sessions()[1]);
    ran.did(&[&format!("session {forked} was made from {id} at the end of turn 2; plan 1/2")]);
    assert!(ran.err.contains(&format!("mainstay exec --session {forked}")), "{}", ran.err);
    machine.run(&["exec", "--session", &forked, "another way"]).did(&["three"]);
    assert_eq!(machine.history(&id), before);
    assert!(machine.history(&forked).contains("another way") && !machine.history(&forked).contains("third"));
    let listed = machine.run(&["sessions"]).out;
    assert!(listed.contains(&forked) && listed.contains(&id), "{listed}");
    machine.run(&["fork", &forked]).did(&["was made from", "as it is now"]);
    machine.run(&["fork", &id, "--turn", "9"]).failed(2, &["there is no turn 9: the session has 3"]);
    machine.run(&["fork", "zzz"]).failed(2, &["no session has `zzz`"]);
    assert_eq!(machine.sessions().len(), 3);
}

/// L09: a session moves to another machine, where its directory is not, and goes on in one that is named.
#[test]
fn a_session_is_exported_and_goes_on_elsewhere() {
    let (here, there) = (Machine::new(), Machine::new());
    let id = here.three_turns();
    here.run(&["export", &id]).did(&["files in", &format!("mainstay-{id}.jsonl")]);
    let file = here.path("work").join(format!("mainstay-{id}.jsonl"));
    here.run(&["export", &id]).failed(2, &["cannot write", "-o FILE"]);
    there.three_turns();
    let name = file.display().to_string();
    let ran = there.run(&["import", &name]);
    ran.did(&[&format!("session {id} is here; 3 turns: first")]);
    fs::rename(here.path("work"), here.path("gone")).unwrap();
    let name = here.path("gone").join(file.file_name().unwrap()).display().to_string();
    there.run(&["import", &name]).failed(2, &["there is a session", "already"]);
    there.run(&["exec", "--session", &id, "on"]).failed(2, &["cannot be used", "--cwd"]);
    let ran = there.run(&["exec", "--session", &id, "--cwd", ".", "on"]);
    ran.did(&["four"]);
    assert!(ran.err.contains("worked in"), "{}", ran.err);
    let told = format!("The working directory is now {}.", there.path("work").display());
    assert_eq!(there.history(&id).matches(&told).count(), 1);
    there.run(&["exec", "--session", &id, "and on"]).did(&["five"]);
    assert_eq!(there.history(&id).matches(&told).count(), 1);
    let listed = there.run(&["sessions"]).out;
    assert!(!listed.contains(&here.root.display().to_string()), "{listed}");
}

/// L09, D14: what was read before the directory was moved is known of the files where they are now.
#[test]
fn a_moved_directory_takes_its_session_along() {
    let machine = Machine::new();
    fs::write(machine.path("work/f"), "one\n").unwrap();
    machine.script(json!([
        {"calls": [{"name": "read", "arguments": {"path": "f"}}]}, say("read"),
        {"calls": [{"name": "edit", "arguments": {"path": "f", "old": "one", "new": "two"}}]}, say("edited"),
    ]));
    machine.run(&["exec", "read it"]).did(&["read"]);
    let id = Machine::id_of(&machine.sessions()[0]);
    fs::rename(machine.path("work"), machine.path("moved")).unwrap();
    fs::create_dir(machine.path("work")).unwrap();
    let moved = machine.path("moved").display().to_string();
    machine.run(&["exec", "--session", &id, "--cwd", &moved, "edit it"]).did(&["edited"]);
    assert_eq!(fs::read_to_string(machine.path("moved/f")).unwrap(), "two\n");
    assert!(!machine.history(&id).contains("it is gone"));
}

#[test]
fn an_export_goes_through_a_pipe_and_is_masked_on_request() {
    let (here, there) = (Machine::new(), Machine::new());
    let secret = format!("AKIA{}", "C2".repeat(8));
    here.script(json!([say(&format!("it is {secret}"))]));
    here.run(&["exec", "tell"]).did(&[&secret]);
    let id = Machine::id_of(&here.sessions()[0]);
    let ran = here.run(&["export", &id, "--mask", "-o", "-"]);
    assert!(ran.code == 0 && !ran.out.contains(&secret) && ran.out.contains("it is ***"), "{}", ran.out);
    assert!(ran.err.contains("what looks like a secret was replaced"), "{}", ran.err);
    fs::write(there.path("work/e"), &ran.out).unwrap();
    there.run(&["import", "e"]).did(&["is here; 1 turn: tell"]);
    let other = Machine::new();
    fs::write(other.path("work/half"), &ran.out[..ran.out.len() / 2]).unwrap();
    other.run(&["import", "half"]).failed(1, &["line", "is not of an export", "nothing was imported"]);
    assert!(other.sessions().is_empty());
    there.run(&["import", "none"]).failed(2, &["cannot read"]);
    here.run(&["export", "zzz"]).failed(2, &["no session has `zzz`"]);
}

/// D15, D16: sessions are found, put away and brought back; the newest real one is taken.
#[test]
fn sessions_are_found_put_away_and_brought_back() {
    let machine = Machine::new();
    let first = machine.three_turns();
    machine.script(json!([say("Something about Trees.")]));
    machine.run(&["exec", "name a plant"]).did(&["Trees"]);
    let second = Machine::id_of(&machine.sessions()[1]);
    let stub = machine.path("data/sessions/ffffffff-ffff-7fff-bfff-ffffffffffff");
    fs::create_dir(&stub).unwrap();
    fs::write(stub.join("lock"), "").unwrap();
    let found = machine.run(&["sessions", "--search", "tREES"]);
    found.did(&[&second, "Something about Trees."]);
    assert!(!found.out.contains(&first));
    let row: Value =
        serde_json::from_str(&machine.run(&["sessions", "--search", "trees", "--json"]).out).unwrap();
    assert_eq!(row["found"], "Something about Trees.");
    assert!(machine.run(&["sessions", "--search", "nowhere"]).err.contains("No session speaks of it."));
    machine.run(&["sessions", "--search", " "]).failed(2, &["is empty"]);
    machine.run(&["sessions", "rm", &second]).did(&[&second, "in the trash", "data/trash"]);
    machine.run(&["plan", &second]).failed(2, &["no session has"]);
    assert!(machine.run(&["history"]).out.contains("first"), "the newest real one");
    machine.run(&["sessions", "--trash"]).did(&[&second, "name a plant"]);
    machine.run(&["sessions", "restore", &second]).did(&["is back: name a plant"]);
    assert!(machine.run(&["history"]).out.contains("name a plant"));
    machine.run(&["sessions", "restore", &second]).failed(2, &["no session has", "--trash"]);
    machine.run(&["sessions", "rm", "zzz"]).failed(2, &["no session has"]);
    machine.run(&["sessions", "--json", "rm", &first]).failed(2, &[]);
}

/// D15: of a child, a session that nobody spoke to and a real one, all of one directory, the real one is gone on with, though
/// it is the oldest.
#[test]
fn the_newest_real_session_is_gone_on_with() {
    let machine = Machine::new();
    machine.three_turns();
    let real = machine.sessions().remove(0);
    let text = fs::read_to_string(real.join("0001.jsonl")).unwrap();
    // An hour later, as another session.
    let made = |number: u8, child: bool, most: usize| {
        let id = format!("ffffffff-ffff-7fff-bfff-fffffffffff{number}");
        let lines = text.lines().take(most).map(|line| {
            let mut entry = line::decode(line.as_bytes()).unwrap();
            if let When::At(ts) = &mut entry.ts {
                *ts += jiff::SignedDuration::from_hours(1);
            }
            if let Body::Session(header) = &mut entry.body {
                (header.session, header.child) = (id.parse().unwrap(), child);
            }
            line::encode(&entry).unwrap()
        });
        let dir = machine.path("data/sessions").join(&id);
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("0001.jsonl"), lines.collect::<Vec<_>>().concat()).unwrap();
    };
    made(1, false, 3);
    made(2, true, usize::MAX);
    let listed: Vec<Value> = machine
        .run(&["sessions", "--json"])
        .out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let kinds: Vec<_> = listed.iter().map(|row| (row["child"] == true, row["has_prompt"] == true)).collect();
    assert_eq!(kinds, [(true, true), (false, false), (false, true)]);
    machine.run(&["exec", "--last", "on"]).did(&["four"]);
    assert!(fs::read_to_string(real.join("0001.jsonl")).unwrap().contains("four"));
}

/// D16: nothing is removed by its age, whatever the times of the files are, and the age that is shown is that of the last
/// entry.
#[test]
fn old_files_are_kept_and_the_last_entry_tells_the_age() {
    let machine = Machine::new();
    let id = machine.three_turns();
    let dir = machine.sessions().remove(0);
    let files = || {
        let mut files: Vec<PathBuf> = fs::read_dir(&dir).unwrap().map(|file| file.unwrap().path()).collect();
        files.sort();
        files
    };
    let before = files();
    for path in before.iter().chain([&dir]) {
        fs::File::open(path).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
    }
    machine.run(&["sessions"]).did(&[&format!("{id}       now")]);
    machine.run(&["exec", "another session"]).did(&["one"]);
    machine.run(&["doctor"]).did(&["2, 0 running"]);
    assert_eq!(files(), before);
    assert_eq!(machine.sessions().len(), 2);
}

/// L04: what is lost is said with its place; a repair keeps the rest and the old bytes, and the session goes on.
#[test]
fn a_damaged_session_is_explained_and_repaired() {
    let machine = Machine::new();
    let id = machine.three_turns();
    machine.run(&["doctor", &id]).did(&[&format!("session {id} is sound"), "0001.jsonl: "]);
    machine.run(&["doctor", &id, "--repair"]).did(&["is sound"]);
    let file = machine.sessions()[0].join("0001.jsonl");
    let mut lines: Vec<String> = fs::read_to_string(&file).unwrap().lines().map(str::to_owned).collect();
    let last = lines.len() - 2;
    lines[last] = "nonsense".to_owned();
    let damaged = lines.join("\n") + "\n{\"torn";
    fs::write(&file, &damaged).unwrap();
    let ran = machine.run(&["doctor", &id]);
    assert_eq!(ran.code, 1, "{}", ran.out);
    assert!(ran.out.contains(&format!("line {} of 0001.jsonl is damaged", last + 1)), "{}", ran.out);
    assert!(
        ran.out.contains("was cut short (6 bytes)") && ran.err.contains("--repair"),
        "{}{}",
        ran.out,
        ran.err
    );
    assert_eq!(fs::read_to_string(&file).unwrap(), damaged, "looking changes nothing");
    let ran = machine.run(&["rewind", &id, "--turn", "1"]);
    assert!(ran.code == 1 && ran.err.contains(&format!("mainstay doctor {id}")), "{}", ran.err);
    let ran = machine.run(&["doctor", &id, "--repair"]);
    ran.did(&["before-repair-1", "marked as lost: 1 entry", "is sound"]);
    let kept = machine.sessions()[0].join("0001.jsonl.before-repair-1");
    assert!(damaged.starts_with(&fs::read_to_string(kept).unwrap()));
    machine.run(&["rewind", &id, "--turn", "1"]).did(&["at the end of turn 1"]);
    machine.run(&["exec", "--session", &id, "on"]).did(&["two"]);
}

/// L04: the last number that an entry can have ends a session's writing, and no command that reads it.
#[test]
fn the_highest_number_is_read_by_every_command() {
    let machine = Machine::new();
    let id = machine.three_turns();
    let file = machine.sessions()[0].join("0001.jsonl");
    let text = fs::read_to_string(&file).unwrap();
    let mut lines: Vec<Vec<u8>> = text.split_inclusive('\n').map(|line| line.as_bytes().to_vec()).collect();
    let place = lines.len() - 3;
    let entry = line::decode(lines[place].strip_suffix(b"\n").unwrap()).unwrap();
    lines[place] = line::encode(&Entry { seq: u64::MAX, ..entry }).unwrap();
    fs::write(&file, lines.concat()).unwrap();
    for arguments in [
        vec!["sessions"],
        vec!["plan", &id],
        vec!["history", &id],
        vec!["history", &id, "--cache"],
        vec!["undo", &id, "--list"],
    ] {
        let ran = machine.run(&arguments);
        assert_eq!(ran.code, 0, "{arguments:?}: {}", ran.err);
    }
    machine.run(&["exec", "--session", &id, "on"]).failed(65, &["read-only"]);
}

/// L04: a session whose header is lost ends with 65 and is mended.
#[test]
fn a_session_without_a_header_is_mended() {
    let machine = Machine::new();
    let id = machine.three_turns();
    let before = machine.history(&id);
    let file = machine.sessions()[0].join("0001.jsonl");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replacen("session", "sessjon", 1)).unwrap();
    machine.run(&["exec", "--session", &id, "--cwd", ".", "on"]).failed(65, &["no readable header"]);
    assert_eq!(machine.run(&["doctor"]).code, 1);
    assert_eq!(machine.run(&["doctor", &id]).code, 65);
    machine.run(&["doctor", &id, "--repair"]).did(&["a header was made again", "is sound"]);
    assert_eq!(machine.history(&id), before);
    machine.run(&["exec", "--session", &id, "on"]).did(&["four"]);
}

#[test]
fn doctor_says_what_there_is() {
    let machine = Machine::new();
    machine.run(&["doctor"]).did(&[
        "version      mainstay ",
        "(not there yet)",
        "(not there)",
        "0, 0 running",
    ]);
    machine.three_turns();
    let stub = machine.path("data/sessions/ffffffff-ffff-7fff-bfff-ffffffffffff");
    fs::create_dir(&stub).unwrap();
    machine.run(&["doctor"]).did(&["sessions     1, 0 running, 0 interrupted", "leftovers    1 folder"]);
    machine.run(&["doctor", "--repair"]).failed(2, &["<ID>"]);
}

/// Neither a title nor a damaged line steers the terminal, wherever it is said.
#[test]
fn titles_and_damaged_lines_steer_no_terminal() {
    let machine = Machine::new();
    machine.script(json!([say("one"), say("two"), say("three")]));
    for _ in 0..2 {
        machine.run(&["exec", "harm\u{1b}]0;x\u{7}\u{202e}less"]).did(&["one"]);
    }
    let plain = |text: &str| !text.chars().any(|c| c == '\u{202e}' || (c.is_control() && c != '\n'));
    let ran = machine.run(&["plan", "-"]);
    ran.failed(2, &["2 sessions have", "\\u{202e}less"]);
    assert!(plain(&ran.err), "{:?}", ran.err);

    let dir = &machine.sessions()[0];
    let id = Machine::id_of(dir);
    let whole = fs::read_to_string(dir.join("0001.jsonl")).unwrap();
    let last = whole.lines().last().unwrap();
    // A checksum is text like any other as long as it is not right.
    let damaged = format!("{}\u{1b}[31mxx\u{7}\"}}", &last[..last.len() - 10]);
    for (command, tells) in [
        (&["history", &id][..], true),
        (&["plan", &id], true),
        (&["doctor", &id], true),
        // The copy does not have the line.
        (&["fork", &id], false),
        (&["rewind", &id, "--turn", "0"], true),
        (&["exec", "--session", &id, "on"], true),
    ] {
        fs::write(dir.join("0001.jsonl"), whole.replace(last, &damaged)).unwrap();
        let ran = machine.run(command);
        let said = format!("{}{}", ran.out, ran.err);
        assert!(plain(&said), "{command:?}: {said:?}");
        assert_eq!(said.contains("\\u{1b}[31mxx\\u{7}"), tells, "{command:?}: {said}");
    }
}

/// A summary is taken back without a model: none is asked, so what the log says of it will do. A session whose directory
/// was moved says so.
#[test]
fn a_summary_is_taken_back_without_a_model() {
    let machine = Machine::new();
    let id = machine.three_turns();
    // Behind the six answers that were given, one that there is something to gain by.
    let asked = [vec![say("given"); 6], vec![say(&"word ".repeat(2_000)), say("a summary")]].concat();
    machine.script(json!(asked));
    machine.run(&["exec", "--session", &id, "fourth"]).did(&["word"]);
    let before = machine.history(&id);
    let ran = machine.run(&["compact", &id]);
    assert!(ran.code == 0 && machine.history(&id) != before, "{}", ran.err);
    let segment = |number: u32| {
        let file = machine.sessions()[0].join(format!("{number:04}.jsonl"));
        fs::read_to_string(file).unwrap()
    };
    fs::remove_file(machine.path("config/mainstay/config.toml")).unwrap();
    let ran = machine.run(&["compact", &id, "--undo"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, ""), "{}", ran.err);
    assert!(machine.history(&id).starts_with(&before), "{}", machine.history(&id));
    let models = |number| segment(number).lines().filter(|line| line.contains(r#""kind":"model""#)).count();
    assert_eq!((models(2), models(3)), (1, 1), "it is the same model");
    machine.run(&["compact", &id]).failed(78, &["no model is configured"]);

    machine.script(json!([say("moved")]));
    fs::create_dir(machine.path("there")).unwrap();
    machine.run(&["exec", "--cwd", "../there", "x"]).did(&["moved"]);
    let id = Machine::id_of(&machine.sessions()[1]);
    fs::rename(machine.path("there"), machine.path("gone")).unwrap();
    for command in [&["compact", &id][..], &["compact", &id, "--undo"], &["exec", "--session", &id, "x"]] {
        machine.run(command).failed(2, &[&format!("session {id} worked there; give `--cwd`")]);
    }
}
