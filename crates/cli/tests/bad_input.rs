//! What a user may get wrong, in every flag, command, variable and file: each gives one message that says what is wrong
//! and what to do, its exit code, and nothing on stdout.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

mod common;

use std::fs;
use std::os::unix::fs::symlink;

use common::{Machine, Ran, say};
use serde_json::json;

/// A machine with a session of two turns, and the session's short id.
fn with_session() -> (Machine, String) {
    let machine = Machine::scripted(json!([say("one"), say("two"), say("three")]));
    assert_eq!(machine.run(&["exec", "Do one."]).code, 0);
    assert_eq!(machine.run(&["exec", "--last", "Do two."]).code, 0);
    let line = machine.run(&["sessions", "--json"]).out;
    let id =
        serde_json::from_str::<serde_json::Value>(&line).unwrap()["session_id"].as_str().unwrap().to_owned();
    (machine, id[id.len() - 8..].to_owned())
}

/// Runs each row and holds it against its code and the words of its message.
fn hold(machine: &Machine, rows: &[(&[&str], i32, &[&str])]) {
    for (arguments, code, parts) in rows {
        one_message(&machine.run(arguments), arguments, *code, parts);
    }
}

#[track_caller]
fn one_message(ran: &Ran, what: &dyn std::fmt::Debug, code: i32, parts: &[&str]) {
    assert_eq!((ran.code, ran.out.as_str()), (code, ""), "{what:?}: {}", ran.err);
    assert_eq!(ran.err.matches("error: ").count(), 1, "{what:?}: {}", ran.err);
    for part in parts {
        assert!(ran.err.contains(part), "{what:?}: no {part:?} in:\n{}", ran.err);
    }
}

#[test]
fn every_flag_of_a_turn_says_what_it_takes() {
    let (machine, id) = with_session();
    machine.configure("approve = \"all\"\n");
    fs::create_dir(machine.work("dir")).unwrap();
    fs::write(machine.work("text"), "words").unwrap();
    let model = "PROVIDER/NAME, such as ollama/qwen3-coder, or script:FILE";
    let time = "must be a time above 0, such as 90s, 10m or 1h30m";
    let cost = "must be an amount of US dollars above 0, such as 0.50";
    let schema = "name a file that holds a JSON Schema";
    let image = "name a PNG, JPEG, GIF or WebP file";
    let script = "docs/script-model.md describes the format";
    let script_flag = format!("script:{}", machine.root.join("script.json").display());
    let with = |flags: &[&str]| -> Vec<String> {
        let base = ["exec", "--model", &script_flag];
        base.iter().chain(flags).map(|word| (*word).to_owned()).chain(["Do it.".to_owned()]).collect()
    };
    let rows: &[(&[&str], i32, &[&str])] = &[
        (&["--effort", ""], 2, &["--effort"]),
        (&["--cwd", "text"], 2, &["text", "it is not a directory", "--cwd DIR"]),
        (&["--cwd", "gone"], 2, &["gone", "No such file", "--cwd DIR"]),
        (&["--approve", "yes"], 2, &["'yes'", "ask, edits, auto, all"]),
        (&["--sandbox", "none"], 2, &["'none'", "read-only, workspace-write, off"]),
        (&["--max-steps", "0"], 2, &["--max-steps", "0 is not in 1.."]),
        (&["--max-steps", "-1"], 2, &["--max-steps", "-1 is not in 1.."]),
        (&["--max-steps", "1.5"], 2, &["--max-steps", "'1.5'"]),
        (&["--max-steps", "99999999999999999999"], 2, &["--max-steps", "too large"]),
        (&["--max-cost", "0"], 2, &[cost]),
        (&["--max-cost", "-1"], 2, &["'-1'", cost]),
        (&["--max-cost", "nan"], 2, &[cost]),
        (&["--max-cost", "1,5"], 2, &[cost]),
        (&["--max-cost", "1"], 78, &["--max-cost", "is not known", "`input_price`"]),
        (&["--max-time", "0"], 2, &[time]),
        (&["--max-time", "-5s"], 2, &["'-5s'", time]),
        (&["--max-time", "10x"], 2, &[time]),
        (&["--max-time", "99999999999h"], 2, &[time]),
        (&["--require-plan=x"], 2, &["--require-plan", "'x'"]),
        (&["--require-plan=-1"], 2, &["--require-plan", "-1 is not in 0.."]),
        (&["--image", "gone.png"], 2, &["--image gone.png", "No such file", image]),
        (&["--image", "dir"], 2, &["--image dir", "Is a directory", image]),
        (&["--image", "text"], 2, &["--image text", "no PNG, JPEG, GIF or WebP image"]),
        (&["--image", "/dev/zero"], 2, &["--image /dev/zero", "most that models take", "smaller"]),
        (&["--output-schema", "gone"], 2, &["--output-schema", "gone", "No such file", schema]),
        (&["--output-schema", "dir"], 2, &["--output-schema", "Is a directory", schema]),
        (&["--output-schema", "text"], 2, &["--output-schema", "is not JSON", schema]),
        (&["--output-schema", "/dev/zero"], 2, &["more than 256 KiB", schema]),
        (&["-o", "dir"], 2, &["--output", "dir", "Is a directory", "nothing was run"]),
        (&["-o", "gone/file"], 2, &["--output", "gone/file", "No such file", "nothing was run"]),
        (&["--session", ""], 2, &["id is empty", "mainstay sessions"]),
        (&["--session", "zz"], 2, &["no session has `zz`", "mainstay sessions"]),
        (&["--session", &id, "--last"], 2, &["--session", "cannot be used with '--last'"]),
        (&["--deltas"], 2, &["--json"]),
        (&["--nonsense"], 2, &["'--nonsense'"]),
    ];
    for (flags, code, parts) in rows {
        let arguments = with(flags);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        one_message(&machine.run(&arguments), &flags, *code, parts);
    }
    let models: &[(&[&str], i32, &[&str])] = &[
        (&["exec", "--model", "", "x"], 2, &[model]),
        (&["exec", "--model", "openai/", "x"], 2, &[model]),
        (&["exec", "--model", "/x", "x"], 2, &[model]),
        (&["exec", "--model", "script:", "x"], 2, &["must name a file"]),
        (&["exec", "--model", "script:gone", "x"], 78, &["gone", "No such file", script]),
        (&["exec", "--model", "script:dir", "x"], 78, &["dir", "Is a directory", script]),
        (&["exec", "--model", "script:text", "x"], 78, &["text", "line 1", script]),
        (&["exec", "--model", "script:/dev/zero", "x"], 78, &["/dev/zero", "more than 64 MiB", script]),
        (&["exec", ""], 2, &["the prompt is empty", "in quotes"]),
        (&["exec", " \n"], 2, &["the prompt is empty", "in quotes"]),
        (&["exec"], 2, &["the prompt is empty", "pipe it in"]),
        (&["exec", "fix", "the", "test"], 2, &["'the'", "in quotes"]),
    ];
    hold(&machine, models);
}

#[test]
fn every_command_says_what_it_takes() {
    let (machine, id) = with_session();
    let id = id.as_str();
    fs::create_dir(machine.work("dir")).unwrap();
    fs::write(machine.work("text"), "words").unwrap();
    assert_eq!(machine.run(&["export", id, "-o", "there.jsonl"]).code, 0);
    for command in [&["plan"][..], &["history"], &["doctor"], &["undo"], &["export"], &["compact"]] {
        let arguments: Vec<&str> = command.iter().copied().chain(["zz"]).collect();
        one_message(&machine.run(&arguments), &command, 2, &["no session has `zz`", "mainstay sessions"]);
    }
    let export = "name a file that `mainstay export` wrote";
    let rows: &[(&[&str], i32, &[&str])] = &[
        (&["nonsense"], 2, &["'nonsense'"]),
        (&["--model", "a/b", "resume", id], 2, &["--model", "stands behind it: mainstay resume"]),
        (&["--approve", "all", "exec", "x"], 2, &["--approve", "stands behind it: mainstay exec"]),
        (&["plan", "--json", "--markdown"], 2, &["--json", "--markdown"]),
        (&["fork"], 2, &["<ID>"]),
        (&["fork", "zz"], 2, &["no session has `zz`"]),
        (&["fork", id, "--turn", "99"], 2, &["no turn 99", "has 2"]),
        (&["fork", id, "--turn", "x"], 2, &["--turn", "'x'"]),
        (&["rewind", id], 2, &["--turn <N>", "--undo"]),
        (&["rewind", "zz", "--turn", "1"], 2, &["no session has `zz`"]),
        (&["rewind", id, "--turn", "99"], 2, &["no turn 99", "has 2"]),
        (&["rewind", id, "--turn", "1", "--undo"], 2, &["--turn", "--undo"]),
        (&["rewind", id, "--entry", "99999"], 2, &["no entry 99999"]),
        (&["rewind", id, "--undo"], 2, &["there is no rewind to undo"]),
        (&["undo", id, "--to", "x"], 2, &["--to", "'x'"]),
        (&["export", id, "-o", "dir"], 2, &["dir", "File exists", "-o FILE"]),
        (&["export", id, "-o", "gone/x"], 1, &["gone/x", "No such file", "-o FILE"]),
        (&["export", id, "-o", "there.jsonl"], 2, &["there.jsonl", "File exists", "-o FILE"]),
        (&["import"], 2, &["<FILE>"]),
        (&["import", "gone"], 2, &["gone", "No such file", export]),
        (&["import", "dir"], 2, &["dir", "it is a directory", export]),
        (&["import", "/dev/null"], 1, &["line 1", "nothing was imported"]),
        (&["import", "/dev/zero"], 1, &["line 1", "nothing was imported"]),
        (&["import", "text"], 1, &["line 1", "nothing was imported"]),
        (&["import", "there.jsonl"], 2, &["already", "mainstay sessions rm"]),
        (&["notify", id, " "], 2, &["the text is empty"]),
        (&["notify", "zz", "x"], 2, &["no session has `zz`"]),
        (&["compact", id, "--undo"], 2, &["no compaction to take back", "mainstay rewind"]),
        (&["sessions", "rm"], 2, &["<ID>"]),
        (&["sessions", "rm", "zz"], 2, &["no session has `zz`", "mainstay sessions"]),
        (&["sessions", "restore", "zz"], 2, &["no session has `zz`", "--trash"]),
        (&["sessions", "--search", ""], 2, &["the text to search for is empty"]),
        (&["doctor", "--repair"], 2, &["<ID>"]),
        (&["models", "x"], 2, &["'x'"]),
        (&["completions", "tcsh"], 2, &["bash", "zsh"]),
        (&["man", "gone"], 2, &["gone", "No such file", "name a directory"]),
        (&["man", "text"], 2, &["text", "Not a directory", "name a directory"]),
        (&["resume"], 2, &["needs a terminal", "mainstay exec"]),
        (&[], 2, &["needs a terminal", "mainstay exec"]),
    ];
    hold(&machine, rows);
}

#[test]
fn every_variable_says_what_it_takes() {
    let machine = Machine::scripted(json!([say("ok")]));
    let rows: &[(&str, &str, i32, &[&str])] = &[
        ("MAINSTAY_MODEL", "x", 78, &["PROVIDER/NAME", "unset MAINSTAY_MODEL"]),
        ("MAINSTAY_APPROVE", "yes", 78, &["\"auto\"", "unset MAINSTAY_APPROVE"]),
        ("MAINSTAY_MAX_STEPS", "0", 78, &["whole number from 1", "unset MAINSTAY_MAX_STEPS"]),
        ("MAINSTAY_DURABILITY", "no", 78, &["\"relaxed\"", "unset MAINSTAY_DURABILITY"]),
        ("MAINSTAY_TOOLS", "x", 78, &["read, write", "unset MAINSTAY_TOOLS"]),
        ("MAINSTAY_MODLE", "a/b", 78, &["MAINSTAY_MODLE", "did you mean MAINSTAY_MODEL?"]),
        ("MAINSTAY_SANDBOX", "read-only", 78, &["MAINSTAY_SANDBOX", "--sandbox MODE"]),
        ("MAINSTAY_HOME", "/dev/null", 1, &["cannot create a session", "/dev/null", "MAINSTAY_HOME"]),
    ];
    for (name, value, code, parts) in rows {
        let ran = machine.command(&["exec", "x"]).env(name, value).output().unwrap().into();
        one_message(&ran, name, *code, parts);
    }
    let mut homeless = machine.command(&["exec", "x"]);
    let ran = homeless.env_remove("HOME").env_remove("MAINSTAY_HOME").output().unwrap().into();
    one_message(&ran, &"HOME", 78, &["HOME is not set", "MAINSTAY_HOME"]);
}

/// What lies where a file of the configuration is looked for may be anything.
#[test]
fn every_file_that_is_read_may_be_anything() {
    for (name, is_project) in [("config/mainstay/config.toml", false), ("work/.mainstay/config.toml", true)] {
        let machine = Machine::scripted(json!([say("ok")]));
        let file = machine.root.join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        let shown = file.display().to_string();
        let place = |line: &str| format!("{shown}:{line}");
        let texts: [(&[u8], String); 4] = [
            (b"model = \n", place("1:")),
            (b"approve = \"ask\"\n\xff\n", place("2: this line is not UTF-8")),
            (b"modle = \"a/b\"\n", place("1:1: unknown key `modle`")),
            (b"\0", place("1:")),
        ];
        for (bytes, expected) in texts {
            fs::write(&file, bytes).unwrap();
            one_message(&machine.run(&["exec", "x"]), &(name, bytes), 78, &[&expected]);
        }
        fs::remove_file(&file).unwrap();
        symlink("/dev/zero", &file).unwrap();
        one_message(&machine.run(&["exec", "x"]), &(name, "a device"), 78, &[&shown, "it is not a file"]);
        fs::remove_file(&file).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &file,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        one_message(&machine.run(&["exec", "x"]), &(name, "a pipe"), 78, &[&shown, "it is not a file"]);
        fs::remove_file(&file).unwrap();
        if is_project {
            fs::write(&file, "[sandbox]\nmode = \"off\"\n").unwrap();
            one_message(
                &machine.run(&["exec", "x"]),
                &name,
                78,
                &[&shown, "may not have [sandbox]", "your own"],
            );
        }
    }
}

/// Instructions that cannot be read are left out, and that is said; the turn is done.
#[test]
fn instructions_may_be_anything() {
    let machine = Machine::scripted(json!([say("ok")]));
    let file = machine.work("AGENTS.md");
    let outside = machine.root.join("outside");
    fs::write(&outside, "x").unwrap();
    fs::create_dir(&file).unwrap();
    machine.run(&["exec", "x"]).ended(0, "ok\n", &["AGENTS.md are left out: it is not a file"]);
    fs::remove_dir(&file).unwrap();
    symlink(&outside, &file).unwrap();
    machine.run(&["exec", "x"]).ended(
        0,
        "ok\n",
        &["AGENTS.md are left out: it is a link to a place outside"],
    );
    fs::remove_file(&file).unwrap();
    fs::write(&file, "a".repeat(100_000)).unwrap();
    machine.run(&["exec", "x"]).ended(0, "ok\n", &["AGENTS.md (cut: 32768 of 100000 bytes)"]);
}
