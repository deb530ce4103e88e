//! Commands that tell of models and of the command line itself.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{Machine, Ran};
use mainstay_testkit::wire::{Reply, WireServer};
use serde_json::{Value, json};

#[tokio::test]
async fn models_are_those_of_the_configuration_and_of_servers_on_this_machine() {
    let models = json!({"data": [{"id": "org/served"}, {"id": "both"}]}).to_string();
    let server =
        WireServer::start([Reply::json(200, models.clone()), Reply::json(200, models)]).await.unwrap();
    let machine = Machine::new();
    machine.configure(&format!(
        r#"model = "mine/both"
[providers.mine]
api = "openai-chat"
base_url = {:?}
[providers.mine.models.both]
context_window = 65536
input_price = 0.5
output_price = 1
[providers.far]
api = "anthropic"
base_url = "https://models.example.com/v1"
api_key_env = "FAR_KEY"
[providers.far.models."a b"]
[providers.broken.models.m]
"#,
        server.base_url()
    ));
    let run = |arguments: &'static [&'static str]| {
        let mut command = machine.command(arguments);
        command.env("ANTHROPIC_API_KEY", "value-of-it");
        let running = tokio::task::spawn_blocking(move || Ran::from(command.output().unwrap()));
        async { tokio::time::timeout(Duration::from_secs(30), running).await.expect("it ends").unwrap() }
    };
    let ran = run(&["models"]).await;
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(!ran.out.contains("value-of-it"));
    let row = |start: &str| {
        ran.out.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{}", ran.out))
    };
    let address = server.base_url();
    let address = address.strip_prefix("http://").unwrap().split('/').next().unwrap();
    let words = |start: &str| row(start).split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ");
    assert_eq!(words("mine/both "), format!("mine/both 65536 0.50 - 1.00 chosen; served at {address}"));
    assert_eq!(words("mine/org/served "), format!("mine/org/served 32768 - - - served at {address}"));
    assert_eq!(words("far/a b "), "far/a b 32768 - - - configured; FAR_KEY is not set");
    assert!(row("broken/m ").contains("lacks `api`"), "{}", ran.out);
    assert_eq!(
        words("anthropic/claude-opus-5-5 "),
        "anthropic/claude-opus-5-5 1000000 4.00 0.20 20.00 ANTHROPIC_API_KEY is set"
    );
    assert!(!ran.out.contains("openai/"), "no key of it is set: {}", ran.out);
    assert_eq!(server.received()[0].path, "/v1/models");

    let ran = run(&["models", "--json"]).await;
    let rows: Vec<Value> = ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let both = rows.iter().find(|row| row["model"] == "mine/both").unwrap();
    assert_eq!(
        *both,
        json!({"model": "mine/both", "chosen": true, "configured": true, "served_at": address, "context_window": 65536,
            "input_price": 0.5, "cached_price": null, "cache_write_price": null, "output_price": 1.0,
            "api_key_env": null, "key_is_set": null, "error": null})
    );
    let machine = Machine::new();
    machine.configure("modle = 1");
    machine.run(&["models"]).failed(78, &["did you mean `model`?"]);
}

/// Each shell takes its script, where it is there to be asked.
#[test]
fn completions_are_scripts_of_their_shells() {
    let machine = Machine::new();
    for (shell, flag) in [("bash", "-n"), ("zsh", "-n"), ("fish", "-n"), ("elvish", ""), ("powershell", "")] {
        let ran = machine.run(&["completions", shell]);
        assert!(
            ran.code == 0 && ran.out.contains("output-schema") && ran.err.is_empty(),
            "{shell}: {}",
            ran.err
        );
        let script = machine.work("script");
        fs::write(&script, &ran.out).unwrap();
        let checked = Command::new(shell).arg(flag).arg(&script).stdin(Stdio::null()).output();
        if let Some(output) = checked.ok().filter(|_| !flag.is_empty()) {
            assert!(output.status.success(), "{shell}: {}", String::from_utf8_lossy(&output.stderr));
        }
    }
    machine.run(&["completions", "ksh"]).failed(2, &["ksh", "possible values: bash"]);
    machine.run(&["completions"]).failed(2, &["<SHELL>"]);
    let mut child = machine.start(&["completions", "bash"]);
    drop(child.stdout.take());
    let ran = common::ended(child);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
}

#[test]
fn there_is_a_manual_page_for_each_command() {
    let machine = Machine::new();
    fs::create_dir(machine.work("man1")).unwrap();
    let ran = machine.run(&["man", "man1"]);
    assert!(ran.code == 0 && ran.out.contains("mainstay.1"), "{}{}", ran.out, ran.err);
    for (page, part) in [
        ("mainstay", "mainstay\\-exec(1)"),
        ("mainstay-exec", "output\\-schema"),
        ("mainstay-sessions-rm", "trash"),
        ("mainstay-undo", "entry"),
        ("mainstay-undo", ".SH NOTES\nOnly changes by `write` and `edit`"),
        ("mainstay", ".SH EXAMPLES\n.nf\n  mainstay "),
    ] {
        let text = fs::read_to_string(machine.work(&format!("man1/{page}.1"))).unwrap();
        assert!(text.contains(".TH") && text.contains(part) && !text.contains("EXTRA"), "{page}:\n{text}");
    }
    machine.run(&["man", "gone"]).failed(2, &["cannot write pages to", "gone", "name a directory"]);
}

/// `undo --list` shows the entries that `--to` takes.
#[test]
fn changes_of_files_are_listed_with_their_entries() {
    let write = |path: &str, content: &str| json!({"calls": [{"name": "write", "arguments": {"path": path, "content": content}}]});
    let machine = Machine::scripted(json!([
        write("new/a", "1"),
        write("new/a", "2"),
        common::say("ok"),
        common::say("no change")
    ]));
    machine.run(&["exec", "x"]);
    let id = machine.entries()[0]["session"].as_str().unwrap().to_owned();
    let listed = machine.run(&["undo", &id, "--list"]).out;
    let file = machine.work("new/a").display().to_string();
    let rows: Vec<Vec<&str>> = listed.lines().map(|line| line.split_whitespace().collect()).collect();
    let seqs: Vec<String> = machine
        .entries()
        .iter()
        .filter(|entry| entry["changes"].is_array())
        .map(|entry| entry["seq"].to_string())
        .collect();
    let expected = [
        vec!["TURN", "ENTRY", "CHANGE", "NOW", "PATH"],
        vec!["1", seqs[0].as_str(), "made", "in", "effect", file.as_str()],
        vec!["1", seqs[1].as_str(), "changed", "in", "effect", file.as_str()],
    ];
    assert_eq!(rows, expected);
    let ran = machine.run(&["undo", &id, "--to", &seqs[0]]);
    assert_eq!(
        (ran.code, fs::read_to_string(machine.work("new/a")).unwrap().as_str()),
        (0, "1"),
        "{}",
        ran.err
    );
    assert_eq!(machine.run(&["undo", &id, "--to", "2"]).code, 0);
    assert!(!machine.work("new/a").exists() && machine.work("new").is_dir(), "directories stay");
    machine
        .run(&["undo", &id, "--to", "9999"])
        .failed(2, &["there is no entry 9999", "--list` shows what was changed"]);
}
