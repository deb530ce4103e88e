//! What a session that was killed must have in common with one that was not.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::fs;
use std::sync::LazyLock;

use mainstay_model::{Model, ScriptModel};
use mainstay_session::conversation::Step;
use mainstay_session::entry::{Body, Entry, NoticeKind};
use mainstay_session::history::History;
use mainstay_session::ids::{CallRef, Seq};
use mainstay_session::log;
use mainstay_session::message::{Outcome, ToolCall, ToolResult};
use mainstay_session::request::request;
use mainstay_session::state::SessionState;
use regex::Regex;
use serde_json::{Value, json};

use crate::machine::{Ended, Fault, MESSAGE, Machine, TURNS};

/// What is another each time: times, numbers of processes, made-up ids, and sums over texts that hold a path.
static VOLATILE: LazyLock<Regex> = LazyLock::new(|| {
    let parts = [
        r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
        r"\b(started|pid|duration_ms|bytes): (Some\()?[0-9]+",
        r"\b20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z",
        r"\bprocess [0-9]+",
        // How many of its processes a command had started when it ended.
        r"\b[0-9]+ process(es)? that",
        r#"\bhash: "[0-9a-f]+""#,
    ];
    Regex::new(&parts.join("|")).unwrap()
});

/// A run that nothing happened to.
pub struct Reference {
    /// Each entry, by segment and number, with the state at it and the request that follows; more than one where calls run
    /// at the same time.
    at: HashMap<(u32, Seq), Vec<At>>,
    end: End,
    /// The failpoints that the process of each turn came by.
    pub traces: Vec<Vec<String>>,
    /// How long the process of each turn took.
    pub took: Vec<std::time::Duration>,
    machine: Machine,
}

/// How a session stands at an entry.
struct At {
    entry: String,
    state: SessionState,
}

/// What must be the same at the end, whatever happened on the way.
#[derive(Debug, PartialEq)]
pub struct End {
    plan: String,
    counting_steps: u64,
    recent_files: String,
    seen: String,
    title: String,
    last_words: String,
    /// What waits, runs or is open.
    waiting: [usize; 4],
    /// How often the message of the other process was told, in the whole log.
    told: usize,
    turn_is_open: bool,
    files: BTreeMap<String, String>,
}

impl Reference {
    pub fn make() -> Self {
        let mut machine = Machine::new();
        let (mut traces, mut took) = (Vec::new(), Vec::new());
        for (prompt, _) in TURNS {
            let ended = machine.exec(prompt, &Fault::default());
            assert_eq!(ended.code, Some(0), "{}", ended.err);
            machine.wait_for_the_last().unwrap();
            traces.push(ended.trace);
            took.push(ended.took);
        }
        assert_eq!(machine.next_prompt(), None);
        assert!(machine.segments().len() > 1, "there was no compaction");
        let mut at: HashMap<(u32, Seq), Vec<At>> = HashMap::new();
        for (segment, entries) in entries(&machine) {
            for order in orders(entries) {
                let mut state = SessionState::default();
                for entry in order {
                    state.apply(&entry);
                    let known = at.entry((segment, entry.seq)).or_default();
                    let shown = shown(&machine, &(entry.seq, &entry.lane, &entry.body));
                    if !known.iter().any(|at| at.entry == shown && at.state == state) {
                        known.push(At { entry: shown, state: state.clone() });
                    }
                }
            }
        }
        Reference { at, end: End::of(&machine), traces, took, machine }
    }

    /// L01: what a killed process has left is, entry for entry, what an uninterrupted one had at this place; so are the
    /// state that follows, and the request.
    pub fn check_prefix(&self, machine: &Machine) -> Result<(), String> {
        let mut last = None;
        for (segment, entries) in entries(machine) {
            for entry in entries {
                let (found, known) = (
                    shown(machine, &(entry.seq, &entry.lane, &entry.body)),
                    self.at.get(&(segment, entry.seq)),
                );
                let known = known.map_or(&[][..], Vec::as_slice);
                if !known.iter().any(|at| at.entry == found) {
                    return same("entry", known.first().map(|at| &at.entry), &found);
                }
                last = Some((known, found));
            }
        }
        let (Some((known, entry)), Some((state, _))) = (last, machine.state()) else { return Ok(()) };
        let checks = known.iter().filter(|at| at.entry == entry).map(|at| {
            same("state", Some(&shown(&self.machine, &at.state)), &shown(machine, &state))?;
            same("request", Some(&next_request(&self.machine, &at.state)), &next_request(machine, &state))
        });
        // Where calls run at the same time, one of the orders of their results is that of this run.
        checks.reduce(Result::or).unwrap_or(Ok(()))
    }

    /// What must hold at the end. Without `files` a tool was told that its disk failed, so files may be others.
    pub fn check_end(&self, machine: &Machine, with_files: bool) -> Result<(), String> {
        let (mut wanted, mut found) = (format!("{:#?}", self.end), format!("{:#?}", End::of(machine)));
        if !with_files {
            let cut = |text: &mut String| {
                let [recent, title] = ["    recent_files", "    title"].map(|name| text.find(name).unwrap());
                text.replace_range(recent..title, "");
                text.truncate(text.find("    files").unwrap());
            };
            [&mut wanted, &mut found].into_iter().for_each(cut);
        }
        same("end", Some(&wanted), &found)
    }
}

/// The orders in which a segment's entries can come: results of calls that run at the same time come in either.
fn orders(entries: Vec<Entry>) -> Vec<Vec<Entry>> {
    let answer = |entry: &Entry| match &entry.body {
        Body::ToolResult(result) => Some(result.answer),
        _ => None,
    };
    let pairs = (1..entries.len())
        .filter(|at| answer(&entries[*at]).is_some_and(|a| answer(&entries[*at - 1]) == Some(a)));
    let pairs: Vec<usize> = pairs.collect();
    let mut orders = vec![entries];
    for at in pairs {
        let mut swapped = orders.clone();
        for order in &mut swapped {
            let (before, behind) = order.split_at_mut(at);
            std::mem::swap(&mut before[at - 1].body, &mut behind[0].body);
        }
        orders.append(&mut swapped);
    }
    orders
}

impl End {
    fn of(machine: &Machine) -> End {
        let (state, _) = machine.state().unwrap();
        let names = ["a.txt", "b.txt", "new.txt", "sum.txt"];
        let file = |name: &str| (name.to_owned(), fs::read_to_string(machine.work(name)).unwrap_or_default());
        let is_the_message = |entry: &Entry| {
            matches!(&entry.body, Body::Notice(notice)
                if matches!(notice.about, NoticeKind::Notification { .. }) && notice.text.contains(MESSAGE))
        };
        End {
            plan: shown(machine, &state.plan),
            counting_steps: state.attention.counting_steps.into(),
            recent_files: shown(machine, &state.recent_files),
            seen: shown(machine, &state.seen),
            title: state.title.clone(),
            last_words: state.last_words.clone(),
            waiting: [state.inbox.len(), state.jobs.len(), state.running.len(), state.open_calls().len()],
            told: entries(machine)
                .iter()
                .flat_map(|(_, entries)| entries)
                .filter(|e| is_the_message(e))
                .count(),
            turn_is_open: state.turn_is_open,
            files: names.into_iter().map(file).collect(),
        }
    }
}

/// All entries, by segment. A line that is none is missing here, and is damage elsewhere.
pub fn entries(machine: &Machine) -> Vec<(u32, Vec<Entry>)> {
    let Some(dir) = machine.session() else { return Vec::new() };
    let read = |segment: usize| {
        let segment = u32::try_from(segment + 1).unwrap();
        let mut entries = Vec::new();
        log::segment_entries(&dir, segment, |_, entry| entries.extend(entry.ok())).unwrap();
        (segment, entries)
    };
    (0..machine.segments().len()).map(read).collect()
}

/// A value in words, without what is another each time.
pub fn shown(machine: &Machine, value: &impl Debug) -> String {
    plain(machine, &format!("{value:#?}"))
}

fn plain(machine: &Machine, text: &str) -> String {
    let mut text = text.replace(&machine.root.display().to_string(), "/R");
    if let Some(session) = machine.session() {
        text = text.replace(&*session.file_name().unwrap().to_string_lossy(), "SESSION");
    }
    // Most lines hold nothing of the kind, and the longest take the most time.
    let marks =
        ["Z", "started: ", "pid: ", "duration_ms: ", "bytes: ", "process", "hash: ", "id: ", "inbox", "-7"];
    let shown = |line: &str| match marks.iter().any(|mark| line.contains(mark)) {
        true => VOLATILE.replace_all(line, "…").into_owned(),
        false => line.to_owned(),
    };
    text.split_inclusive('\n').map(shown).collect()
}

/// The bytes of the next request, as they go to a server of Chat Completions.
fn next_request(machine: &Machine, state: &SessionState) -> String {
    let model = ScriptModel::from_json("script:x", "[]").unwrap();
    plain(machine, &String::from_utf8(model.encode(&request(state)).body).unwrap())
}

fn same(what: &str, wanted: Option<&String>, found: &String) -> Result<(), String> {
    match wanted {
        Some(wanted) if wanted == found => Ok(()),
        Some(wanted) => {
            let differ = |(a, b): &(&str, &str)| a != b;
            let first = wanted.lines().zip(found.lines()).find(differ);
            Err(format!("another {what}: wanted and found {first:#?}"))
        }
        None => Err(format!("the reference has no such {what}: {found}")),
    }
}

/// L03: each call that was open at the kill got one result, which says so.
pub fn check_closed(machine: &Machine, open: &[CallRef]) -> Result<(), String> {
    let all = entries(machine);
    for call_ref in open {
        let results: Vec<Outcome> = all
            .iter()
            .flat_map(|(_, entries)| entries)
            .filter_map(|entry| match &entry.body {
                Body::ToolResult(result) if result.call_ref() == *call_ref => Some(result.outcome),
                _ => None,
            })
            .collect();
        if results != [Outcome::Interrupted] {
            return Err(format!("the open call {call_ref:?} has the results {results:?}"));
        }
    }
    Ok(())
}

/// The calls of a state that have no result, as a script has them.
pub fn open_calls(state: &SessionState) -> Vec<(CallRef, Value)> {
    state.open_calls().iter().map(|open| (open.call_ref, scripted(&open.call))).collect()
}

/// The calls of the last answer whose results say that they were cut short.
pub fn interrupted_calls(state: &SessionState) -> Vec<(CallRef, Value)> {
    let is_cut =
        |result: Option<&ToolResult>| result.is_some_and(|result| result.outcome == Outcome::Interrupted);
    let calls = state.last_step().into_iter().flat_map(Step::calls);
    calls.filter(|(_, _, result)| is_cut(*result)).map(|(at, call, _)| (at, scripted(call))).collect()
}

fn scripted(call: &ToolCall) -> Value {
    json!({"name": call.name, "arguments": serde_json::from_str::<Value>(&call.arguments).unwrap()})
}

/// Law 4: whatever has been done stands in the log, as an answer that asked for it, and a command's intent too.
pub fn check_nothing_unlogged(machine: &Machine) -> Result<(), String> {
    let text = machine.log_text();
    let holds =
        |name: &str, part: &str| fs::read_to_string(machine.work(name)).is_ok_and(|file| file.contains(part));
    let effects = [
        (holds("a.txt", "2"), r#"\"new\":\"2\""#, ""),
        (machine.work("new.txt").exists(), r#""name":"write""#, ""),
        (machine.work("ready").exists(), ": > ready", "tool_intent"),
        (holds("b.txt", "BETA"), r#"\"new\":\"BETA\""#, ""),
        (machine.work("sum.txt").exists(), "sum.txt", "tool_intent"),
        (holds("a.txt", "3"), r#"\"new\":\"3\""#, ""),
    ];
    for (is_done, call, kind) in effects {
        if is_done && !(text.contains(call) && text.contains(kind)) {
            return Err(format!("{call} was done, and is not in the log"));
        }
    }
    Ok(())
}

/// Law 7 and `write`'s promise: a file is the old one or the new one.
pub fn check_files_are_whole(machine: &Machine) -> Result<(), String> {
    let versions: [(&str, &[&str]); 3] = [
        ("a.txt", &["one\ntwo\nthree\n", "one\n2\nthree\n", "one\n2\n3\n", "one\ntwo\n3\n"]),
        ("b.txt", &["alpha\nbeta\n", "alpha\nBETA\n"]),
        ("new.txt", &["", "new\n"]),
    ];
    for (name, versions) in versions {
        let found = fs::read_to_string(machine.work(name)).unwrap_or_default();
        if !versions.contains(&found.as_str()) {
            return Err(format!("{name} is half-written: {found:?}"));
        }
    }
    Ok(())
}

/// What stands in a log stays there, byte for byte; only what is behind the last newline goes.
pub fn check_kept(machine: &Machine, before: &[Vec<u8>]) -> Result<(), String> {
    let after = machine.segments();
    for (number, before) in before.iter().enumerate() {
        let whole = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        if !after.get(number).is_some_and(|after| after.starts_with(&before[..whole])) {
            return Err(format!("segment {} has lost what it held", number + 1));
        }
    }
    Ok(())
}

/// The log is whole, and `history.json` says what it says.
pub fn check_sound(machine: &Machine, ended: &Ended) -> Result<(), String> {
    let dir = machine.session().unwrap();
    let (state, opening) = machine.state().unwrap();
    if !opening.damage.is_empty() {
        return Err(format!("damage: {:?}", opening.damage));
    }
    let history = serde_json::from_slice::<History>(&fs::read(dir.join("history.json")).unwrap_or_default());
    if ended.code == Some(0) && !history.is_ok_and(|history| history == History::of(&state)) {
        return Err("history.json is not the history".to_owned());
    }
    Ok(())
}

/// All requests of the session grew, but where the log says why one did not.
pub fn check_requests_grew(machine: &Machine) -> Result<(), String> {
    let id = machine.session().unwrap().file_name().unwrap().to_string_lossy().into_owned();
    let output = machine.command(&["history", &id, "--cache"]).output().unwrap();
    let table = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() || table.contains("nothing in the log explains it") {
        return Err(format!("a request did not grow: {table}"));
    }
    Ok(())
}
