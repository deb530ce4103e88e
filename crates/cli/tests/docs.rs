//! The documents for users and the program say the same: flags, exit codes, events and their fields, and the examples do
//! what stands beside them.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{Machine, Ran, say};
use mainstay_testkit::wire::{Reply, WireServer};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

const README: &str = include_str!("../../../README.md");
const CI: &str = include_str!("../../../docs/ci.md");
const CONFIGURATION: &str = include_str!("../../../docs/configuration.md");
const EVENTS: &str = include_str!("../../../docs/exec-json.md");
const PERMISSIONS: &str = include_str!("../../../docs/permissions.md");
const SCHEMA: &str = include_str!("../../../docs/exec-json.schema.json");

/// The commands of the program, by the words behind its name.
const COMMANDS: [&[&str]; 20] = [
    &[],
    &["exec"],
    &["resume"],
    &["sessions"],
    &["sessions", "rm"],
    &["sessions", "restore"],
    &["plan"],
    &["history"],
    &["compact"],
    &["undo"],
    &["rewind"],
    &["fork"],
    &["export"],
    &["import"],
    &["notify"],
    &["doctor"],
    &["models"],
    &["completions"],
    &["man"],
    &["demo"],
];

fn help(command: &[&str]) -> String {
    let ran = Machine::new().run(&[command, &["--help"]].concat());
    assert_eq!(ran.code, 0, "{command:?}");
    ran.out
}

/// What stands between backticks in a text, each piece once.
fn quoted(text: &str) -> BTreeSet<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// The words of a text that look like flags.
fn flags(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let words = text.split(|c| !is_part(c)).filter(|word| word.starts_with("--") && word.len() > 4);
    words.map(|word| word.trim_end_matches('-').to_owned()).collect()
}

/// The rows of the table whose head begins with a cell; their first cells.
fn rows<'a>(text: &'a str, head: &str) -> Vec<&'a str> {
    let start = text.find(&format!("| {head} |")).unwrap_or_else(|| panic!("no table with {head}"));
    let lines = text[start..].lines().skip(2).take_while(|line| line.starts_with('|'));
    lines.map(|line| line.split('|').nth(1).unwrap().trim()).collect()
}

/// The numbers of a text.
fn numbers(text: &str) -> BTreeSet<u32> {
    text.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect()
}

/// The code block behind a line; its lines without the indentation of the page.
fn block(text: &str, behind: &str) -> String {
    let start = text.find(behind).unwrap_or_else(|| panic!("no {behind:?}"));
    let lines = text[start..].lines().skip_while(|line| !line.starts_with("    "));
    let block = lines.take_while(|line| line.starts_with("    ") || line.is_empty());
    block.map(|line| format!("{}\n", line.strip_prefix("    ").unwrap_or_default())).collect::<String>()
}

#[test]
fn every_command_is_listed_and_teaches() {
    let all = help(&[]);
    for command in COMMANDS.iter().filter(|command| !command.is_empty()) {
        let page = help(command);
        let top = command.last().unwrap();
        assert!(
            command.len() > 1 || all.lines().any(|line| line.trim_start().starts_with(top)),
            "{command:?}"
        );
        assert!(
            page.lines().all(|line| line.chars().count() <= 100),
            "{command:?} is wider than 100:\n{page}"
        );
        let is_plain = ["demo", "rm", "restore", "import"].contains(top);
        assert!(is_plain || page.contains("Examples:"), "{command:?} shows no example");
    }
    let listed = all.lines().skip_while(|line| !line.starts_with("Commands:")).skip(1);
    let listed =
        listed.take_while(|line| line.starts_with("  ")).filter_map(|line| line.split_whitespace().next());
    for command in
        listed.filter(|command| command.chars().all(|c| c.is_ascii_lowercase()) && *command != "help")
    {
        assert!(
            COMMANDS.contains(&&[command][..]) || !all.contains(&format!("  {command}  ")),
            "{command} is tried"
        );
    }
}

/// Flags that the documents speak of are there, and each of `exec` is spoken of.
#[test]
fn documented_flags_exist() {
    let known: BTreeSet<String> = COMMANDS.iter().flat_map(|command| flags(&help(command))).collect();
    // Of cargo, git, servers of models, Docker.
    let others =
        ["--workspace", "--path", "--jinja", "--port", "--add", "--global", "--porcelain", "--no-fail-fast"];
    for (name, text) in [
        ("README", README),
        ("ci", CI),
        ("configuration", CONFIGURATION),
        ("exec-json", EVENTS),
        ("permissions", PERMISSIONS),
    ] {
        for flag in flags(text).iter().filter(|flag| !others.contains(&flag.as_str())) {
            assert!(known.contains(flag), "{name} speaks of {flag}, and there is none");
        }
    }
    let documents = [README, CI, CONFIGURATION, EVENTS].concat();
    for flag in flags(&help(&["exec"])).iter().filter(|flag| *flag != "--help") {
        assert!(documents.contains(flag.as_str()), "no document speaks of {flag}");
    }
}

#[test]
fn exit_codes_are_the_same_everywhere() {
    let codes = BTreeSet::from([0, 1, 2, 3, 4, 65, 69, 75, 77, 78, 130, 143]);
    let readme: BTreeSet<u32> = rows(README, "code").into_iter().flat_map(numbers).collect();
    assert_eq!(readme, codes, "README");
    let page = help(&["exec"]);
    let (_, told) = page.split_once("Exit codes:").unwrap();
    assert_eq!(numbers(told), codes, "exec --help");
    let (_, told) = EVENTS.split_once("## Exit codes").unwrap();
    let (told, _) = told.split_once("\n## ").unwrap();
    assert_eq!(numbers(told), codes, "exec-json.md");
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    let ends = schema["$defs"]["turn.completed"]["properties"]["exit_code"]["enum"].as_array().unwrap();
    let ends: BTreeSet<u32> =
        ends.iter().map(|code| u32::try_from(code.as_u64().unwrap()).unwrap()).collect();
    let early = BTreeSet::from([2, 65, 78]);
    assert_eq!(&ends | &early, codes, "the schema has those of a turn");
}

/// The reference and the schema, against which real runs are held, name the same events, fields and words.
#[test]
fn events_are_documented_as_they_are() {
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    let definitions = schema["$defs"].as_object().unwrap();
    let names: Vec<&String> = definitions
        .iter()
        .filter(|(_, is)| !is["properties"]["type"].is_null())
        .map(|(name, _)| name)
        .collect();
    let (_, events) = EVENTS.split_once("\n## Events\n").unwrap();
    let (events, _) = events.split_once("\n## ").unwrap();
    let mut documented: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut event = "";
    for line in events.lines() {
        if let Some((name, _)) = line.strip_prefix('`').and_then(|rest| rest.split_once('`'))
            && definitions.get(name).is_some_and(|is| !is["properties"]["type"].is_null())
        {
            event = name;
            documented.entry(event).or_default();
        } else if line.starts_with("| `") {
            let cell = line.split('|').nth(1).unwrap();
            documented.get_mut(event).unwrap().extend(quoted(cell));
        }
    }
    let fields = |name: &str| -> BTreeSet<&str> {
        let properties = definitions[name]["properties"].as_object().unwrap();
        properties.keys().map(String::as_str).filter(|field| *field != "type").collect()
    };
    let expected: BTreeMap<&str, BTreeSet<&str>> =
        names.iter().map(|name| (name.as_str(), fields(name))).collect();
    assert_eq!(documented, expected);

    let words = |place: &str| -> Vec<String> {
        let list = schema.pointer(place).unwrap_or_else(|| panic!("{place}")).as_array().unwrap();
        list.iter().filter_map(|word| word.as_str().map(str::to_owned)).collect()
    };
    let said = quoted(EVENTS);
    for place in [
        "/$defs/answer/properties/stop_reason/enum",
        "/$defs/tool.completed/properties/outcome/enum",
        "/$defs/notice/properties/kind/enum",
        "/$defs/compaction/properties/method/enum",
        "/$defs/turn.completed/properties/stop_reason/enum",
        "/$defs/error/properties/class/anyOf/1/enum",
        "/$defs/error/properties/class/anyOf/2/enum",
        "/$defs/model_class/enum",
    ] {
        // What a worker is asked is shown to nobody.
        for word in words(place).iter().filter(|word| *word != "compaction") {
            assert!(said.contains(word.as_str()), "exec-json.md says nothing of {word} ({place})");
        }
    }
}

/// A number that depends on where the run was, and what is different each time.
fn redacted(line: &str, cwd: &str) -> Value {
    fn redact(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    match name.as_str() {
                        "session_id" | "duration_ms" | "input_tokens" | "version" => *value = "…".into(),
                        _ => redact(value),
                    }
                }
            }
            Value::Array(items) => items.iter_mut().for_each(redact),
            _ => {}
        }
    }
    let mut event: Value = serde_json::from_str(&line.replace(cwd, "/tmp/notes")).unwrap();
    redact(&mut event);
    event
}

/// The run that exec-json.md shows is what the program prints.
#[test]
fn the_documented_run_is_a_real_one() {
    let script = block(EVENTS, "With this `script.json`");
    let shown = block(EVENTS, "`mainstay exec --json --approve all --model script:script.json");
    let machine = Machine::new();
    fs::write(machine.work("script.json"), script).unwrap();
    fs::write(machine.work("list.txt"), "a\nb\n").unwrap();
    let prompt = "Count the lines of list.txt into count.txt.";
    let ran = machine.run(&["exec", "--json", "--approve", "all", "--model", "script:script.json", prompt]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let cwd = machine.root.join("work").display().to_string();
    let events = |text: &str| {
        text.lines().filter(|line| !line.is_empty()).map(|line| redacted(line, &cwd)).collect::<Vec<_>>()
    };
    assert_eq!(events(&ran.out), events(&shown));

    // What README shows of the same session.
    let plan = format!("$ mainstay plan\n{}", machine.run(&["plan"]).out);
    assert_eq!(block(README, "### The plan").trim_end(), plan.trim_end());
    let history = machine.run(&["history"]).out;
    let shown = block(README, "$ mainstay history");
    for line in shown.lines().filter(|line| !line.is_empty() && *line != "…") {
        let line = line.replace("/tmp/notes", &cwd);
        assert!(history.contains(&line), "no {line:?} in:\n{history}");
    }
}

/// The command lines that a document shows, without what is said of them beside.
fn command_lines(text: &str) -> Vec<&str> {
    let shown = text.lines().filter(|line| line.starts_with("    ")).map(str::trim_start);
    let lines = shown.map(|line| line.strip_prefix("$ ").unwrap_or(line));
    let commands = lines.filter(|line| line.starts_with("mainstay"));
    commands
        .map(|line| line.split("   ").next().unwrap_or(line).split("  to").next().unwrap_or(line))
        .collect()
}

/// Every command line of README does what is said of it, on a session like the one that it tells of.
#[test]
fn the_examples_of_the_readme_run() {
    let write = |text: &str| json!({"calls": [{"name": "write", "arguments": {"path": "count.txt", "content": text}}]});
    let answers = [write("2\n"), say("A retry loop."), write("3\n"), say("Done.")].into_iter();
    let machine = Machine::scripted(answers.chain((0..9).map(|_| say("Done."))).collect());
    for prompt in [&["exec", "Count."][..], &["exec", "--last", "Count again."], &["exec", "--last", "And?"]]
    {
        assert_eq!(machine.run(prompt).code, 0);
    }
    let listed = machine.run(&["sessions", "--json"]).out;
    let id: Value = serde_json::from_str(&listed).unwrap();
    let id = id["session_id"].as_str().unwrap();
    let id = &id[id.len() - 8..];
    let has_jq = Command::new("jq").arg("--version").output().is_ok();
    let needs_terminal = |line: &str| line == "mainstay" || line.starts_with("mainstay resume");
    let mut lines = command_lines(README);
    lines.retain(|line| !needs_terminal(line) && (has_jq || !line.contains("jq")));
    assert!(lines.len() > 15, "{lines:?}");
    lines.sort_by_key(|line| line.contains("sessions rm"));
    for line in lines {
        let line = line.replace("4e99b708", id).replace("--to 41", "--to 1");
        let ran: Ran = machine.shell(&format!("set -o pipefail; {line}")).output().unwrap().into();
        let is_done =
            ran.code == 0 || (line.contains("undo") && ran.err.contains("no change of a file is left"));
        assert!(is_done, "{line}: {} {}", ran.code, ran.err);
    }
}

fn git(machine: &Machine, arguments: &[&str]) {
    let mut command: Command = machine.program("git".as_ref(), arguments);
    let identity = ["GIT_AUTHOR", "GIT_COMMITTER"]
        .map(|who| [(format!("{who}_NAME"), "a"), (format!("{who}_EMAIL"), "a@b")]);
    let output = command.envs(identity.into_iter().flatten()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A checkout with a change, and the script of ci.md as it stands there.
fn to_review(base_url: &str) -> Machine {
    let review = block(CI, "The tests run it as it stands here.");
    assert!(review.starts_with("#!/bin/sh\n"), "{review}");
    let machine = Machine::new();
    machine.configure(&format!(
        "[providers.p]\napi = \"openai-chat\"\nbase_url = {base_url:?}\n[providers.p.models.m]\ninput_price = 2\noutput_price = 10\n"
    ));
    fs::write(machine.work("a.txt"), "one\n").unwrap();
    git(&machine, &["init", "-q", "-b", "main"]);
    git(&machine, &["add", "."]);
    git(&machine, &["commit", "-qm", "one"]);
    git(&machine, &["checkout", "-qb", "change"]);
    fs::write(machine.work("a.txt"), "one\ntwo\n").unwrap();
    git(&machine, &["commit", "-qam", "two"]);
    fs::write(machine.root.join("review.sh"), review).unwrap();
    machine
}

/// The script, about to run as the first process of a container would.
fn reviewing(machine: &Machine, base: &str) -> Command {
    let script = machine.root.join("review.sh").display().to_string();
    let mut command = machine.shell(&format!("exec sh {script}"));
    command.env("TMPDIR", &machine.root).env("MAINSTAY_MODEL", "p/m").env("BASE", base);
    command
}

/// Where there is nothing to compare with, nothing is asked and nothing is good.
#[test]
fn a_review_of_nothing_is_none() {
    let machine = to_review("http://127.0.0.1:9/v1");
    for (base, said) in [("nowhere", "git cannot compare with nowhere"), ("HEAD", "nothing is changed")] {
        let ran: Ran = reviewing(&machine, base).output().unwrap().into();
        assert_eq!((ran.code, ran.out), (2, format!("review: none: {said}\n")), "{}", ran.err);
    }
}

/// A signal that reaches only the shell ends the run too.
#[tokio::test]
async fn a_review_ends_with_its_job() {
    let server = WireServer::start([Reply::chat_stream(["{}"]).stall_after(0)]).await.unwrap();
    let machine = to_review(&server.base_url());
    let running = reviewing(&machine, "main").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let asked = async {
        while server.received().is_empty() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), asked).await.expect("it is asked");
    kill_process(Pid::from_child(&running), Signal::TERM).unwrap();
    let ended = tokio::task::spawn_blocking(move || running.wait_with_output().unwrap());
    let ran: Ran =
        tokio::time::timeout(Duration::from_secs(60), ended).await.expect("it ends").unwrap().into();
    assert_eq!((ran.code, ran.out.as_str()), (2, "review: none: exit code 143, cancelled\n"), "{}", ran.err);
}

/// The script of ci.md, with a server that answers as a model would.
#[tokio::test]
async fn the_review_of_a_pull_request_works_as_it_stands() {
    let answer = |text: &str| {
        let usage = json!({"prompt_tokens": 1_000, "completion_tokens": 100});
        let first = json!({"choices": [{"delta": {"content": text}, "finish_reason": "stop"}]}).to_string();
        Reply::chat_stream([first.as_str(), json!({"choices": [], "usage": usage}).to_string().as_str()])
    };
    let faulty =
        r#"{"verdict": "faulty", "findings": [{"file": "a.txt", "line": 2, "what": "It is wrong."}]}"#;
    let good = r#"{"verdict": "good", "findings": []}"#;
    let unusable = || Reply::json(401, r#"{"error": {"message": "no such key"}}"#);
    let unavailable =
        || Reply::json(529, r#"{"error": {"message": "overloaded"}}"#).header("retry-after", "9000");
    for (reply, code, out) in [
        (answer(faulty), 1, "\"a.txt\":2: \"It is wrong.\"\nreview: faulty, 1000 tokens, 0.003 dollars\n"),
        (answer(good), 0, "review: good, 1000 tokens, 0.003 dollars\n"),
        (unusable(), 2, "no such key; provider `p` has no key configured, error\n"),
        (unavailable(), 2, "overloaded, error\n"),
    ] {
        let server = WireServer::start([reply]).await.unwrap();
        let machine = to_review(&server.base_url());
        let mut command = reviewing(&machine, "main");
        let running = tokio::task::spawn_blocking(move || command.output().unwrap());
        let ran: Ran =
            tokio::time::timeout(Duration::from_secs(60), running).await.expect("it ends").unwrap().into();
        assert!((ran.code, ran.out.ends_with(out)) == (code, true), "{}{}", ran.out, ran.err);
        let sent = server.received()[0].json();
        assert!(sent["messages"].to_string().contains("+two"), "{sent}");
        let tools: Vec<&str> = sent["tools"]
            .as_array()
            .unwrap()
            .iter()
            .map(|tool| tool["function"]["name"].as_str().unwrap())
            .collect();
        assert_eq!(tools, ["read", "glob", "grep"]);
    }
}
