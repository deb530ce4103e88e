//! The terminal interface as its user meets it: the real program on a pseudo-terminal, read back by a terminal emulator.
//!
//! Each test has a machine of its own and a scripted model. Whatever is waited for has a deadline; nothing sleeps for a
//! result.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::fs::{self, File};
use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use mainstay_testkit::wire::{Reply, WireServer};
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use serde_json::{Value, json};

const MAINSTAY: &str = env!("CARGO_BIN_EXE_mainstay");
const PATIENCE: Duration = Duration::from_secs(40);

/// A home, a workspace and sessions in a temporary folder.
struct Machine {
    _dir: tempfile::TempDir,
    root: PathBuf,
}

impl Machine {
    fn new(script: &Value) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for name in ["home", "config/mainstay", "work"] {
            fs::create_dir_all(root.join(name)).unwrap();
        }
        fs::write(root.join("script.json"), script.to_string()).unwrap();
        let config = format!("model = \"script:{}\"\n", root.join("script.json").display());
        fs::write(root.join("config/mainstay/config.toml"), config).unwrap();
        Machine { _dir: dir, root }
    }

    fn equip<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("TERM", "xterm-256color")
            .env("HOME", self.root.join("home"))
            .env("MAINSTAY_HOME", self.root.join("data"))
            .env("XDG_CONFIG_HOME", self.root.join("config"))
            .current_dir(self.root.join("work"))
    }

    /// Starts the program on a terminal of 80 by 24.
    fn start(&self, arguments: &[&str]) -> Tty {
        self.start_with(arguments, &[])
    }

    /// The same with these variables in its environment.
    fn start_with(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Tty {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let master = File::from(master);
        tcsetwinsize(&master, winsize(80, 24)).unwrap();
        let slave = || Stdio::from(File::options().read(true).write(true).open(&name).unwrap());
        // It becomes the leader of a session of its own, with this terminal.
        let mut command = Command::new("setsid");
        command.args(["--ctty", MAINSTAY]).args(arguments).stdin(slave()).stdout(slave()).stderr(slave());
        let child = self.equip(&mut command).envs(variables.iter().copied()).spawn().unwrap();
        let shown = Arc::new((Mutex::new(Shown::new()), Condvar::new()));
        let (mut reading, heard) = (master.try_clone().unwrap(), shown.clone());
        std::thread::spawn(move || {
            let mut bytes = [0; 65536];
            while let Ok(n @ 1..) = reading.read(&mut bytes) {
                let mut shown = heard.0.lock().unwrap();
                shown.parser.process(&bytes[..n]);
                shown.bytes.extend_from_slice(&bytes[..n]);
                heard.1.notify_all();
            }
        });
        Tty { master, child, shown, name: name.into() }
    }

    /// Runs the program without a terminal, to its end.
    fn run(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(MAINSTAY);
        let output = self.equip(command.args(arguments)).stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Configures a model that a server on this machine serves; what it is said of it goes into its table.
    fn use_server(&self, base_url: &str, said: &str) {
        let config = format!(
            "model = \"p/m\"\n[providers.p]\napi = \"openai-chat\"\nbase_url = \"{base_url}\"\n\
             [providers.p.models.m]\ncontext_window = 32768\n{said}\n"
        );
        fs::write(self.root.join("config/mainstay/config.toml"), config).unwrap();
    }

    /// All lines of the newest session's log.
    fn log(&self) -> Vec<Value> {
        let mut sessions: Vec<PathBuf> = fs::read_dir(self.root.join("data/sessions"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        sessions.sort();
        let mut segments: Vec<PathBuf> = fs::read_dir(sessions.last().unwrap())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|ext| ext == "jsonl"))
            .collect();
        segments.sort();
        let text: String = segments.iter().map(|path| fs::read_to_string(path).unwrap()).collect();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    fn of_kind(&self, kind: &str) -> Vec<Value> {
        self.log().into_iter().filter(|line| line["kind"] == kind).collect()
    }
}

/// What came, and what a terminal shows of it.
struct Shown {
    parser: vt100::Parser,
    bytes: Vec<u8>,
}

impl Shown {
    fn new() -> Self {
        let size = |n| NonZeroU16::new(n).unwrap();
        Shown { parser: vt100::Parser::new(size(24), size(80), 2_000), bytes: Vec::new() }
    }
}

/// The program on its terminal.
struct Tty {
    master: File,
    child: Child,
    shown: Arc<(Mutex<Shown>, Condvar)>,
    /// The terminal's file.
    name: PathBuf,
}

impl Tty {
    fn type_in(&mut self, bytes: impl AsRef<[u8]>) {
        self.master.write_all(bytes.as_ref()).unwrap();
    }

    fn screen(&self) -> String {
        self.shown.0.lock().unwrap().parser.screen().contents()
    }

    fn bytes(&self) -> Vec<u8> {
        self.shown.0.lock().unwrap().bytes.clone()
    }

    /// Waits until the screen shows what is expected.
    #[track_caller]
    fn until(&self, what: &str, is_there: impl Fn(&str) -> bool) -> String {
        self.until_shown(what, |shown| is_there(&shown.parser.screen().contents()))
    }

    /// The same for all that came. `is_there` must not look at this terminal itself.
    #[track_caller]
    fn until_shown(&self, what: &str, is_there: impl Fn(&Shown) -> bool) -> String {
        let deadline = Instant::now() + PATIENCE;
        let mut shown = self.shown.0.lock().unwrap();
        loop {
            let screen = shown.parser.screen().contents();
            if is_there(&shown) {
                return screen;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "no {what} in:\n{screen}");
            shown = self.shown.1.wait_timeout(shown, left).unwrap().0;
        }
    }

    #[track_caller]
    fn sees(&self, text: &str) -> String {
        self.until(text, |screen| screen.contains(text))
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Waits for the end, and gives the exit code.
    fn ended(&mut self) -> i32 {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code().unwrap_or(-1);
            }
            assert!(Instant::now() < deadline, "it does not end:\n{}", self.screen());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Asserts that the terminal is as it was: pastes, keys, cursor, title.
    #[track_caller]
    fn is_restored(&self) {
        self.until("restored terminal", |_| true);
        let deadline = Instant::now() + PATIENCE;
        loop {
            let bytes = String::from_utf8_lossy(&self.bytes()).into_owned();
            let last = |on: &str, off: &str| bytes.rfind(off) > bytes.rfind(on);
            if last("\x1b[?2004h", "\x1b[?2004l")
                && last("\x1b[>1u", "\x1b[<1u")
                && last("\x1b[?25l", "\x1b[?25h")
            {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "not restored: {:?}",
                &bytes[bytes.len().saturating_sub(200)..]
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Tty {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn winsize(columns: u16, rows: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

fn plan(statuses: [&str; 3]) -> Value {
    let items: Vec<Value> = statuses
        .iter()
        .enumerate()
        .map(|(n, status)| json!({"id": n.to_string(), "content": format!("Item {n}"), "status": status}))
        .collect();
    json!({"name": "todo_write", "arguments": {"todos": items}})
}

fn bash(command: &str) -> Value {
    json!({"name": "bash", "arguments": {"command": command}})
}

/// A whole task: a plan, a file, a command that is asked about, an answer, and the way out and back in. A26.
#[test]
fn a_whole_task_and_the_way_back() {
    let machine = Machine::new(&json!([
        {"text": "I begin.", "calls": [plan(["in_progress", "pending", "pending"]),
            {"name": "write", "arguments": {"path": "a.txt", "content": "日本語\n"}}]},
        {"calls": [bash("cat a.txt; printf '\\033]0;evil\\007'")]},
        {"text": "All **done**.", "calls": []},
        {"text": "And on."},
    ]));
    let mut tty = machine.start(&["--sandbox", "off"]);
    tty.sees("Say what to do");
    tty.type_in("make a file\r");
    let asked = tty.sees("Run this command?");
    assert!(asked.contains("✓ write a.txt"), "{asked}");
    assert!(asked.contains("Plan 0/3") && asked.contains("▸ Item 0"), "{asked}");
    assert!(!machine.root.join("work/evil").exists());
    // Who looks elsewhere hears that he is waited for, and sees it in the title.
    let title = "\x1b]2;? mainstay: work\x07";
    tty.until_shown("title", |shown| String::from_utf8_lossy(&shown.bytes).contains(title));
    // A key that comes with the question is not meant for it.
    std::thread::sleep(Duration::from_millis(800));
    tty.type_in("y");
    let done = tty.sees("All done.");
    assert!(done.contains("› make a file") && done.contains("    日本語"), "{done}");
    tty.until("an idle session with its plan", |screen| {
        screen.contains("Say what to do") && screen.contains("Plan 0/3")
    });
    tty.type_in("\x03\x03");
    assert_eq!(tty.ended(), 0);
    let left = tty.sees("to go on: mainstay resume");
    assert!(left.contains("plan 0/3") && left.contains(" --sandbox off"), "{left}");
    tty.is_restored();
    let bytes = String::from_utf8_lossy(&tty.bytes()).into_owned();
    assert!(!bytes.contains("\x1b]0;evil"), "an output reached the terminal as a control");

    let mut again = machine.start(&["resume", "--last"]);
    let shown = again.until("the conversation and its plan", |screen| {
        screen.contains("All done.") && screen.contains("▸ Item 0") && screen.contains("Plan 0/3")
    });
    assert!(shown.contains("› make a file"), "{shown}");
    again.type_in("go on\r");
    again.sees("And on.");
    again.type_in("/quit\r");
    assert_eq!(again.ended(), 0);
}

/// Steering: a message that is sent while the model works is shown, can be taken back, and is delivered once.
#[test]
fn a_message_sent_meanwhile_is_delivered_at_the_next_border() {
    let machine = Machine::new(&json!([
        {"text": "Looking.", "delay_ms": 1500, "calls": [{"name": "glob", "arguments": {"pattern": "*"}}]},
        {"text": "I heard you.", "delay_ms": 300},
    ]));
    let mut tty = machine.start(&[]);
    tty.sees("Say what to do");
    tty.type_in("begin\r");
    tty.sees("working");
    tty.type_in("first word\r");
    tty.type_in("second word\r");
    tty.sees("waits: second word");
    tty.type_in("\x1b[A");
    tty.until("the second word back in the input", |screen| {
        screen.contains("› second word") && !screen.contains("waits: second")
    });
    let done = tty.sees("I heard you.");
    assert!(done.contains("› first word"), "{done}");
    let prompts = machine.of_kind("user_prompt");
    let texts: Vec<&str> = prompts.iter().map(|prompt| prompt["text"].as_str().unwrap()).collect();
    assert_eq!(texts, ["begin", "first word"]);
    assert_eq!(prompts[1]["steering"], true);
}

#[test]
fn escape_cancels_and_the_session_goes_on() {
    let machine = Machine::new(&json!([
        {"text": "never", "delay_ms": 60_000},
    ]));
    let mut tty = machine.start(&[]);
    tty.sees("Say what to do");
    tty.type_in("begin\r");
    tty.sees("working");
    tty.type_in("typed meanwhile\r");
    tty.sees("waits: typed meanwhile");
    tty.type_in("\x1b");
    tty.sees("cancelled; what was done stays");
    tty.type_in(", and more");
    tty.sees("› typed meanwhile, and more");
    assert_eq!(machine.of_kind("turn_end")[0]["stop_reason"], "cancelled");
    assert_eq!(machine.of_kind("user_prompt").len(), 1, "what waited was sent all the same");
}

/// The same in the middle of a command, which is ended with all that it started.
#[test]
fn escape_cancels_a_command_and_what_waits_comes_back() {
    let machine =
        Machine::new(&json!([{"calls": [bash("echo begun; sleep 60; touch late")]}, {"text": "never"}]));
    let mut tty = machine.start(&["--sandbox", "off", "--approve", "all"]);
    tty.sees("Say what to do");
    tty.type_in("begin\r");
    tty.sees("    begun");
    tty.type_in("typed meanwhile\r");
    tty.sees("waits: typed meanwhile");
    tty.type_in("\x1b");
    tty.sees("cancelled; what was done stays");
    tty.type_in(", and more");
    let shown = tty.sees("› typed meanwhile, and more");
    assert!(shown.contains("◼ bash echo begun"), "{shown}");
    assert_eq!(machine.of_kind("user_prompt").len(), 1, "what waited was sent all the same");
    assert_eq!(machine.of_kind("tool_result")[0]["outcome"], "interrupted");
}

/// A no goes to the model with its word, and nothing ran.
#[test]
fn a_no_with_a_word_reaches_the_model() {
    let machine = Machine::new(&json!([
        {"calls": [bash("touch ran")]},
        {"text": "As you wish."},
    ]));
    let mut tty = machine.start(&["--sandbox", "off"]);
    tty.sees("Say what to do");
    tty.type_in("begin\r");
    tty.sees("Run this command?");
    std::thread::sleep(Duration::from_millis(800));
    tty.type_in("n");
    tty.sees("no, because:");
    tty.type_in("not here\r");
    tty.sees("As you wish.");
    assert!(!machine.root.join("work/ran").exists());
    let result = &machine.of_kind("tool_result")[0];
    assert_eq!(result["outcome"], "denied");
    assert!(result["summary"].as_str().unwrap().ends_with("not here"), "{result}");
}

/// F03: a command that wants a terminal gets none, and the interface's own is untouched.
#[test]
fn a_command_cannot_reach_the_terminal() {
    let machine = Machine::new(&json!([
        {"calls": [bash("read x </dev/tty; echo got=$x; stty -a </dev/tty; cat")]},
        {"text": "It had none."},
    ]));
    let mut tty = machine.start(&["--approve", "all"]);
    tty.sees("Say what to do");
    tty.type_in("begin\r");
    tty.sees("It had none.");
    let result = machine.of_kind("tool_result")[0].to_string();
    assert!(result.contains("got=\\n") || result.contains("got=\""), "{result}");
    tty.type_in("still typing");
    tty.sees("› still typing");
}

/// A resize in the middle of a turn: what comes after is drawn for the new size, and nothing is lost.
#[test]
fn a_resize_in_the_middle_of_a_turn() {
    let machine = Machine::new(&json!([
        {"text": "One.", "delay_ms": 300, "calls": [plan(["in_progress", "pending", "pending"])]},
        {"text": "Two.", "delay_ms": 1500},
    ]));
    let mut tty = machine.start(&[]);
    tty.sees("Say what to do");
    tty.type_in("begin\r");
    tty.sees("Plan 0/3");
    for (columns, rows) in [(40u16, 10u16), (120, 40), (60, 20)] {
        {
            let size = |n| NonZeroU16::new(n).unwrap();
            let mut shown = tty.shown.0.lock().unwrap();
            shown.parser.screen_mut().set_size(size(rows), size(columns));
        }
        tcsetwinsize(&tty.master, winsize(columns, rows)).unwrap();
        tty.type_in("x");
        tty.until("what is typed", |screen| screen.contains("› x"));
    }
    let done = tty.until("the end of the turn", |screen| screen.contains("Two.") && screen.contains("› xxx"));
    assert_eq!(done.matches("Plan 0/3").count(), 1, "{done}");
    assert!(done.contains("One."), "{done}");
}

/// The program in tmux, which breaks its lines anew when its window gets another size.
struct Tmux<'a>(&'a Machine);

impl<'a> Tmux<'a> {
    /// Starts the program in a window of 80 by 24; none where there is no tmux.
    fn start(machine: &'a Machine) -> Option<Self> {
        let tmux = Tmux(machine);
        let begun = tmux.command(&["new-session", "-d", "-x", "80", "-y", "24", "-s", "s", MAINSTAY]);
        match begun {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                assert!(std::env::var_os("CI").is_none(), "tmux is needed in CI");
                return None;
            }
            begun => assert!(begun.unwrap().status.success()),
        }
        tmux.command(&["set", "-g", "status", "off"]).unwrap();
        Some(tmux)
    }

    fn command(&self, arguments: &[&str]) -> std::io::Result<std::process::Output> {
        let mut command = Command::new("tmux");
        command.arg("-S").arg(self.0.root.join("tmux")).args(["-f", "/dev/null"]).args(arguments);
        self.0.equip(&mut command).stdin(Stdio::null()).output()
    }

    /// Waits until the scrollback and the screen together hold what is expected.
    #[track_caller]
    fn until(&self, what: &str, is_there: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let shown = self.command(&["capture-pane", "-t", "s", "-p", "-S", "-"]).unwrap().stdout;
            let shown = String::from_utf8(shown).unwrap();
            if is_there(&shown) {
                return shown;
            }
            assert!(Instant::now() < deadline, "no {what} in:\n{shown}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Tmux<'_> {
    fn drop(&mut self) {
        let _ = self.command(&["kill-server"]);
    }
}

/// However the window is resized in the middle of an answer, slowly or at once, the scrollback holds the conversation once,
/// and the live area is where it is seen and nowhere else.
#[test]
fn a_resize_leaves_nothing_in_the_scrollback() {
    let items = plan(["in_progress", "pending", "pending"]);
    let call = json!({"index": 0, "id": "c1", "type": "function",
        "function": {"name": "todo_write", "arguments": items["arguments"].to_string()}});
    let event = |delta: Value, finish: Value| {
        json!({"choices": [{"delta": delta, "finish_reason": finish}]}).to_string()
    };
    let first = [
        event(
            json!({"content": (0..20).map(|n| format!("Paragraph {n}.\n\n")).collect::<String>()}),
            Value::Null,
        ),
        event(json!({"tool_calls": [call]}), json!("tool_calls")),
    ];
    let words: String = (0..300).map(|n| format!("word{n:03} ")).collect();
    let code: String =
        (0..60).map(|n| format!("let line{n:03} = next(&mut state, options, more, and, more)?;\n")).collect();
    let second = [event(json!({"content": format!("{words}\n\n```rust\n{code}")}), Value::Null)];
    let stalls = Reply::chat_stream(second.iter().map(String::as_str));
    let size = stalls.body().len();
    let stalls = stalls.stall_after(size - "data: [DONE]\n\n".len());
    let server = Served::start(vec![Reply::chat_stream(first.iter().map(String::as_str)), stalls]);
    let machine = Machine::new(&json!([]));
    machine.use_server(&server.base_url, "");
    let Some(tmux) = Tmux::start(&machine) else { return };
    tmux.until("the interface", |shown| shown.contains("approve auto"));
    tmux.command(&["send-keys", "-t", "s", "begin", "Enter"]).unwrap();
    tmux.until("the stream", |shown| shown.contains("line059"));
    let resize = |columns: &str, rows: &str| {
        tmux.command(&["resize-window", "-t", "s", "-x", columns, "-y", rows]).unwrap();
    };
    for pause in [0, 600] {
        for (columns, rows) in
            [("40", "24"), ("100", "30"), ("60", "12"), ("40", "10"), ("120", "40"), ("80", "24")]
        {
            resize(columns, rows);
            std::thread::sleep(Duration::from_millis(pause));
        }
    }
    tmux.command(&["send-keys", "-t", "s", "Escape"]).unwrap();
    let all = tmux.until("the end", |shown| {
        shown.contains("cancelled; what was done stays") && shown.contains("Say what to do")
    });
    let once = |part: String| assert_eq!(all.matches(&part).count(), 1, "{part} in:\n{all}");
    for part in ["› begin", "new plan 0/3", "Plan 0/3", "Item 1", "Say what to do", "approve auto"] {
        once(part.to_owned());
    }
    (0..20).for_each(|n| once(format!("Paragraph {n}.")));
    (0..300).for_each(|n| once(format!("word{n:03}")));
    (0..60).for_each(|n| once(format!("line{n:03}")));
}

/// A paste of 1 MB: shown as one thing at once, sent whole.
#[test]
fn a_paste_of_a_megabyte() {
    let machine = Machine::new(&json!([{"text": "That is long."}]));
    let mut tty = machine.start(&[]);
    tty.sees("Say what to do");
    let begun = Instant::now();
    let text = "0123456789 日本語 line\n".repeat(40_000);
    tty.type_in(format!("\x1b[200~{text}\x1b[201~"));
    tty.sees("[paste 1: 40000 lines]");
    let pasted = begun.elapsed();
    assert!(pasted < Duration::from_secs(15), "{pasted:?}");
    tty.type_in(" what is it?\r");
    tty.sees("That is long.");
    let prompt = &machine.of_kind("user_prompt")[0];
    let whole = match prompt["spill"].as_str() {
        Some(hash) => {
            let session =
                fs::read_dir(machine.root.join("data/sessions")).unwrap().next().unwrap().unwrap().path();
            fs::read_to_string(session.join("spill").join(hash)).unwrap()
        }
        None => prompt["text"].as_str().unwrap().to_owned(),
    };
    assert_eq!(whole.len(), text.len() + " what is it?".len());
}

/// Killed with SIGKILL in the middle of a turn, with something half written and something that waits: both are back, and
/// the session goes on.
#[test]
fn nothing_typed_is_lost_to_a_kill() {
    let machine = Machine::new(&json!([
        {"text": "Begun.", "calls": [plan(["completed", "in_progress", "pending"])]},
        {"text": "never", "delay_ms": 60_000},
    ]));
    let mut tty = machine.start(&[]);
    tty.sees("Say what to do");
    tty.type_in("begin\r");
    tty.sees("Plan 1/3");
    tty.type_in("sent meanwhile\r");
    tty.sees("waits: sent meanwhile");
    tty.type_in("half a sen");
    tty.sees("› half a sen");
    let drafts = machine.root.join("data/drafts");
    let deadline = Instant::now() + PATIENCE;
    let is_kept = || {
        let files = fs::read_dir(&drafts).into_iter().flatten().flatten();
        files.filter_map(|file| fs::read_to_string(file.path()).ok()).any(|text| text.contains("half a sen"))
    };
    while !is_kept() {
        assert!(Instant::now() < deadline, "the draft is not kept");
        std::thread::sleep(Duration::from_millis(20));
    }
    kill_process(tty.pid(), Signal::KILL).unwrap();
    tty.ended();
    let mut new = machine.start(&[]);
    let shown = new.sees("Say what to do");
    assert!(!shown.contains("half a sen"), "a new session has the draft of another one: {shown}");
    new.type_in("\x03\x03");
    assert_eq!(new.ended(), 0);
    let mut again = machine.start(&["resume", "--last"]);
    let shown = again.until("what was written, and the session", |screen| {
        screen.contains("half a sen") && screen.contains("sent meanwhile") && screen.contains("interrupted")
    });
    assert!(shown.contains("▸ Item 1"), "{shown}");
    again.type_in("\x03\x03");
    assert_eq!(again.ended(), 0);
}

/// A26: who comes back after a crash is told what is open there, can go on with it or leave it, and hears what is asked about.
#[test]
fn a_plain_start_names_the_session_that_was_interrupted() {
    let machine = Machine::new(&json!([
        {"text": "Begun.", "calls": [plan(["completed", "in_progress", "pending"])]},
        {"text": "never", "delay_ms": 60_000},
    ]));
    let mut killed = machine.start(&["--approve", "all"]);
    killed.sees("Say what to do");
    killed.type_in("mend the parser\r");
    killed.sees("Plan 1/3");
    // What was sent is a draft until that is seen in the log.
    let drafts =
        || fs::read_dir(machine.root.join("data/drafts")).unwrap().map(|entry| entry.unwrap().path());
    let deadline = Instant::now() + PATIENCE;
    while drafts().any(|path| path.extension().is_some_and(|ext| ext == "json")) {
        assert!(Instant::now() < deadline, "the draft stays");
        std::thread::sleep(Duration::from_millis(20));
    }
    kill_process(killed.pid(), Signal::KILL).unwrap();
    killed.ended();
    let mut tty = machine.start(&[]);
    let opened = tty.sees("goes on with it");
    assert!(opened.contains("was interrupted here, plan 1/3: “mend the parser”; /resume or"), "{opened}");
    tty.type_in("/resume\r");
    tty.sees("Go on with which session?");
    tty.type_in("\r");
    let resumed = tty.sees("approve = auto holds from here on");
    assert!(resumed.contains("the session was interrupted"), "{resumed}");
    tty.until("the plan", |screen| screen.contains("Plan 1/3 · interrupted") && screen.contains("Say what"));
    tty.type_in("/new\r");
    let anew = tty.until("a new session", |screen| {
        screen.contains("your next message begins a new session; /resume offers the one before")
            && !screen.contains("Plan 1/3 · interrupted")
    });
    assert!(anew.contains("approve auto"), "{anew}");
    assert_eq!(fs::read_dir(machine.root.join("data/sessions")).unwrap().count(), 1);
    tty.type_in("another thing\r");
    tty.sees("Plan 1/3");
    assert_eq!(fs::read_dir(machine.root.join("data/sessions")).unwrap().count(), 2);
    tty.type_in("exit\r");
    assert_eq!(tty.ended(), 0);
    assert_eq!(machine.of_kind("user_prompt").len(), 1, "`exit` was sent to the model");

    let after = machine.start(&[]);
    after.sees("approve auto");
    assert!(
        !after.screen().contains("was interrupted here"),
        "that one was left in order:\n{}",
        after.screen()
    );
}

/// A command that waited for an answer when its agent died was not run, and the session that goes on says so.
#[test]
fn a_command_that_waited_for_an_answer_was_not_run() {
    let machine = Machine::new(&json!([{"calls": [bash("touch ran")]}]));
    let mut killed = machine.start(&["--sandbox", "off"]);
    killed.sees("Say what to do");
    killed.type_in("begin\r");
    killed.sees("Run this command?");
    kill_process(killed.pid(), Signal::KILL).unwrap();
    killed.ended();
    let tty = machine.start(&["resume", "--last"]);
    let shown = tty.sees("approve = auto holds from here on");
    assert!(shown.contains("! bash touch ran: it was not run"), "{shown}");
    assert!(shown.contains("The command had not been started."), "{shown}");
    assert!(!machine.root.join("work/ran").exists());
}

/// The models that are configured are offered, with what is known of them; a key that is not set is seen before.
#[test]
fn models_are_offered() {
    let machine = Machine::new(&json!([{"text": "One."}]));
    let path = machine.root.join("config/mainstay/config.toml");
    let more = "[providers.far]\napi = \"openai-chat\"\nbase_url = \"http://127.0.0.1:9/v1\"\napi_key_env = \"FAR_KEY\"\n\
                [providers.far.models.large]\ncontext_window = 32768\n";
    fs::write(&path, format!("{}{more}", fs::read_to_string(&path).unwrap())).unwrap();
    let mut tty = machine.start_with(&[], &[("FAR_KEY", "k")]);
    tty.sees("approve auto");
    tty.type_in("/model\r");
    let offered = tty.sees("Which model answers from here on?");
    assert!(offered.contains("  far/large  window 32768; configured; FAR_KEY is set"), "{offered}");
    assert!(offered.contains("(answers now)"), "{offered}");
    tty.type_in("large\r");
    tty.sees("far/large answers from here on");
    tty.type_in("/model lar");
    tty.sees("▸ far/large");
    tty.type_in("\x15/quit\r");
    assert_eq!(tty.ended(), 0);
}

#[test]
fn signals_give_the_terminal_back() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::HUP, 129)] {
        let machine = Machine::new(&json!([{"text": "never", "delay_ms": 60_000}]));
        let mut tty = machine.start(&[]);
        tty.sees("Say what to do");
        tty.type_in("begin\r");
        tty.sees("working");
        kill_process(tty.pid(), signal).unwrap();
        assert_eq!(tty.ended(), code);
        tty.is_restored();
        assert_eq!(machine.of_kind("turn_end")[0]["stop_reason"], "cancelled");
    }
}

#[test]
fn without_a_terminal_it_says_what_to_use() {
    let machine = Machine::new(&json!([]));
    for (arguments, instead) in [(&[][..], "mainstay exec \"…\""), (&["resume"][..], "mainstay exec --last")]
    {
        let mut command = Command::new(MAINSTAY);
        let output = machine.equip(command.args(arguments)).stdin(Stdio::null()).output().unwrap();
        let words = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{words}");
        assert!(words.contains("the interface needs a terminal") && words.contains(instead), "{words}");
    }
}

/// A session that cannot be taken again is not left for a new one: the message comes back, and goes to it once it is there.
#[test]
fn a_session_that_is_out_of_reach_for_a_while_stays_the_session() {
    let machine = Machine::new(&json!([{"text": "First."}, {"text": "Second."}, {"text": "Third."}]));
    let mut tty = machine.start(&[]);
    tty.sees("Say what to do");
    tty.type_in("begin\r");
    tty.until("the end of the turn", |screen| screen.contains("First.") && screen.contains("Say what to do"));
    let sessions = machine.root.join("data/sessions");
    let session = fs::read_dir(&sessions).unwrap().next().unwrap().unwrap().path();
    let aside = machine.root.join("aside");
    fs::rename(&session, &aside).unwrap();
    tty.type_in(format!("/model script:{}\r", machine.root.join("script.json").display()));
    let failed = tty.until("why it failed", |screen| {
        screen.contains("cannot be gone on with") && screen.contains("Say what to do")
    });
    assert!(!failed.contains("answers from here on"), "{failed}");
    tty.type_in("still there?\r");
    tty.until("the message back in the input", |screen| screen.lines().any(|line| line == "› still there?"));
    let _ = fs::remove_dir_all(&session);
    fs::rename(&aside, &session).unwrap();
    tty.type_in("\r");
    tty.until("the answer", |screen| screen.contains("Second."));
    assert_eq!(fs::read_dir(&sessions).unwrap().count(), 1);
    let prompts = machine.of_kind("user_prompt");
    let texts: Vec<&str> = prompts.iter().map(|prompt| prompt["text"].as_str().unwrap()).collect();
    assert_eq!(texts, ["begin", "still there?"]);
}

/// What is said on leaving works: with no model configured, a session goes on with the one it was begun with.
#[test]
fn a_session_goes_on_with_its_own_model_where_none_is_configured() {
    let machine = Machine::new(&json!([{"text": "First."}, {"text": "Second."}]));
    fs::write(machine.root.join("config/mainstay/config.toml"), "").unwrap();
    let model = format!("script:{}", machine.root.join("script.json").display());
    let mut tty = machine.start(&["--model", &model]);
    tty.sees("Say what to do");
    tty.type_in("begin\r");
    tty.until("the end of the turn", |screen| screen.contains("First.") && screen.contains("Say what to do"));
    tty.type_in("/quit\r");
    assert_eq!(tty.ended(), 0);
    let left = tty.sees("to go on: mainstay resume ");
    let id = left.split("mainstay resume ").nth(1).unwrap().split_whitespace().next().unwrap();
    let mut again = machine.start(&["resume", id]);
    again.until("the conversation", |screen| screen.contains("First.") && screen.contains("Say what to do"));
    again.type_in("go on\r");
    again.until("the answer", |screen| screen.contains("Second."));
    assert_eq!(machine.of_kind("user_prompt").len(), 2);
}

/// What a command prints is seen while it runs, and gives way to its result.
#[test]
fn a_running_command_shows_what_it_prints() {
    let command = "printf '10 %%\\r20 %%\\n\\033]0;evil\\007second\\n'; while [ ! -e go ]; do sleep 0.02; done; echo last";
    let machine = Machine::new(&json!([{"calls": [bash(command)]}, {"text": "It ran."}]));
    let mut tty = machine.start(&["--sandbox", "off", "--approve", "all"]);
    tty.sees("Say what to do");
    tty.type_in("begin\r");
    let running = tty.until("its output", |screen| screen.contains("    20 %\n    second"));
    assert!(running.contains("• bash printf") && !running.contains("    10 %"), "{running}");
    assert_eq!(machine.of_kind("tool_result"), Vec::<Value>::new());
    fs::write(machine.root.join("work/go"), "").unwrap();
    let done = tty.until("its result", |screen| screen.contains("    last") && screen.contains("It ran."));
    assert!(done.contains("✓ bash printf") && !done.contains("• bash"), "{done}");
    let bytes = String::from_utf8_lossy(&tty.bytes()).into_owned();
    assert!(!bytes.contains("\x1b]0;evil"), "an output reached the terminal as a control");
}

/// A session is chosen, and goes on with its own model, where none is configured.
#[test]
fn a_session_is_chosen_where_no_model_is_configured() {
    let machine = Machine::new(&json!([{"text": "First."}, {"text": "Second."}]));
    fs::write(machine.root.join("config/mainstay/config.toml"), "").unwrap();
    let model = format!("script:{}", machine.root.join("script.json").display());
    let mut tty = machine.start(&["--model", &model]);
    tty.sees("Say what to do");
    tty.type_in("begin it\r");
    tty.until("the end of the turn", |screen| screen.contains("First.") && screen.contains("Say what to do"));
    tty.type_in("/quit\r");
    assert_eq!(tty.ended(), 0);
    let mut again = machine.start(&["resume"]);
    let offered = again.sees("Go on with which session?");
    assert!(offered.contains("▸") && offered.contains("begin it") && !offered.contains("✗"), "{offered}");
    again.type_in("\r");
    again.until("the conversation", |screen| screen.contains("First.") && screen.contains("Say what to do"));
    again.type_in("go on\r");
    again.sees("Second.");
    again.type_in("/quit\r");
    assert_eq!(again.ended(), 0);
    let mut none = machine.start(&["resume"]);
    none.sees("Go on with which session?");
    none.type_in("\x1b");
    none.sees("Say what to do");
    none.type_in("a new one\r");
    none.until("why not", |screen| {
        screen.contains("no model is configured") && screen.contains("› a new one")
    });
}

/// N04: a silent notification waits for the next turn; a waking one begins it, and tells both in order.
#[test]
fn only_a_waking_notification_begins_a_turn() {
    let machine = Machine::new(&json!([{"text": "First."}, {"text": "Woken."}]));
    let mut tty = machine.start(&[]);
    tty.sees("Say what to do");
    tty.type_in("begin\r");
    tty.until("the end of the turn", |screen| screen.contains("First.") && screen.contains("Say what to do"));
    let sessions = fs::read_dir(machine.root.join("data/sessions")).unwrap().next().unwrap().unwrap();
    let id = sessions.file_name().into_string().unwrap();
    machine.run(&["notify", &id, "the build is green", "--silent"]);
    let deadline = Instant::now() + PATIENCE;
    while machine.of_kind("inbox").is_empty() {
        assert!(Instant::now() < deadline, "the notification was not accepted");
        std::thread::sleep(Duration::from_millis(20));
    }
    // Whatever it had begun would be carried out before this.
    tty.type_in("/cost\r");
    tty.sees("tokens in");
    assert_eq!((machine.of_kind("answer").len(), machine.of_kind("notice").len()), (1, 0));
    machine.run(&["notify", &id, "look at it"]);
    let woken = tty.until("a turn", |screen| screen.contains("Woken.") && screen.contains("Say what to do"));
    assert_eq!(woken.matches("◦ a notification was delivered").count(), 2, "{woken}");
    let notices: Vec<String> =
        machine.of_kind("notice").iter().map(|notice| notice["text"].to_string()).collect();
    assert!(notices[0].contains("the build is green") && notices[1].contains("look at it"), "{notices:?}");
    assert_eq!(machine.of_kind("answer").len(), 2);
}

/// Ctrl-L: what another program wrote on the screen goes, and the conversation is there again.
#[test]
fn the_screen_is_drawn_anew() {
    let machine = Machine::new(&json!([{"text": "First line.\n\nSecond line."}]));
    let mut tty = machine.start(&["--sandbox", "off"]);
    tty.sees("Say what to do");
    tty.type_in("begin\r");
    let words =
        |screen: &str| screen.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect::<Vec<_>>();
    let before = words(&tty.until("the end of the turn", |screen| {
        screen.contains("Second") && screen.contains("Say what to do") && screen.contains("approve auto")
    }));
    let mut other = File::options().write(true).open(&tty.name).unwrap();
    other.write_all(b"\x1b[3;1Hwall: rubbish\x1b[5;1H\x1b[31mmore rubbish\x1b[K").unwrap();
    tty.sees("more rubbish");
    tty.type_in("\x0c");
    tty.until("the screen as it was", |screen| words(screen) == before);
}

/// The conversation from before a compaction is shown too.
#[test]
fn history_reaches_beyond_the_segment() {
    let machine = Machine::new(&json!({
        "answers": [{"calls": [bash("seq 1 4000")]}, {"text": "First answer."}],
        "summaries": [{"text": "The user asked for one thing, and it was done without any trouble."}],
    }));
    let mut tty = machine.start(&["--sandbox", "off", "--approve", "all"]);
    tty.sees("Say what to do");
    tty.type_in("the very first\r");
    tty.until("an answer", |screen| screen.contains("First answer.") && screen.contains("Say what to do"));
    tty.type_in("/compact\r");
    tty.until("a summary", |screen| screen.contains("◦ compacted:") && screen.contains("Say what to do"));
    tty.type_in("/quit\r");
    assert_eq!(tty.ended(), 0);
    let mut again = machine.start(&["resume", "--last"]);
    let shown = again.sees("Say what to do");
    assert!(!shown.contains("◦ compacted:"), "{shown}");
    again.type_in("/history\r");
    let whole = again
        .until("all of it", |screen| screen.contains("◦ compacted:") && screen.contains("Say what to do"));
    assert!(whole.contains("› the very first") && whole.contains("First answer."), "{whole}");
}

/// While a conversation is read from its beginning, which may take long, what jobs print is taken from their pipes. Here
/// the log is a pipe that nobody writes to, so that reading it takes as long as it is wanted to.
#[test]
fn jobs_go_on_while_the_history_is_read() {
    let job = "while [ ! -e go ]; do sleep 0.05; done; seq 1 200000; touch over; while [ ! -e end ]; do sleep 0.05; done";
    let call = json!({"name": "bash", "arguments": {"command": job, "background": true}});
    let machine = Machine::new(&json!([{"calls": [call]}, {"text": "It runs."}]));
    let mut tty = machine.start(&["--sandbox", "off", "--approve", "all"]);
    tty.sees("Say what to do");
    tty.type_in("begin\r");
    tty.until("a job", |screen| screen.contains("It runs.") && screen.contains("Say what to do"));
    let sessions = fs::read_dir(machine.root.join("data/sessions")).unwrap();
    let session =
        sessions.map(|entry| entry.unwrap().path()).find(|path| path.join("0001.jsonl").exists()).unwrap();
    let (log, aside) = (session.join("0001.jsonl"), session.join("aside"));
    fs::rename(&log, &aside).unwrap();
    mknodat(CWD, &log, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    tty.type_in("/history\r");
    // Opened as soon as it is read.
    let deadline = Instant::now() + PATIENCE;
    let mut pipe = loop {
        match rustix::fs::open(&log, OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty()) {
            Ok(pipe) => break File::from(pipe),
            Err(error) => assert!(Instant::now() < deadline, "nobody reads the log: {error}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let work = machine.root.join("work");
    fs::write(work.join("go"), "").unwrap();
    while !work.join("over").exists() {
        assert!(Instant::now() < deadline, "the job hangs in what it prints");
        std::thread::sleep(Duration::from_millis(20));
    }
    fs::rename(&aside, &log).unwrap();
    pipe.write_all(&fs::read(&log).unwrap()).unwrap();
    drop(pipe);
    tty.until("the history", |screen| screen.matches("› begin").count() == 2);
}

/// How far commands are held is what this machine enforces, known with the first turn.
#[test]
fn the_sandbox_is_shown_as_it_is_enforced() {
    let machine =
        Machine::new(&json!([{"text": "One.", "delay_ms": 200, "calls": [bash("true")]}, {"text": "Two."}]));
    let mut tty = machine.start(&["--approve", "all"]);
    tty.sees("sandbox?");
    let doctor = {
        let mut command = Command::new(MAINSTAY);
        let output = machine.equip(command.arg("doctor")).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let enforced = doctor.lines().find_map(|line| line.strip_prefix("enforced"));
    let is_enforced = enforced.unwrap_or_else(|| panic!("{doctor}")).trim_start().starts_with("yes");
    let (status, words) = match is_enforced {
        true => ("· sandbox · approve", "which this machine enforces"),
        false => ("· sandbox in part · approve", "not enforced in full"),
    };
    tty.type_in("begin\r");
    let shown = tty.until(status, |screen| screen.contains("Two.") && screen.contains(status));
    assert!(!shown.contains("sandbox?"), "{shown}");
    tty.type_in("/permissions\r");
    // A line of it may be broken anywhere between words.
    tty.until(words, |screen| screen.split_whitespace().collect::<Vec<_>>().join(" ").contains(words));
    let off = machine.start(&["--sandbox", "off"]);
    off.sees("no sandbox");
}

/// An image that a message names goes with it where the model looks at images; elsewhere the message comes back.
#[test]
fn images_go_with_a_message() {
    let machine = Machine::new(&json!([]));
    let dot = machine.root.join("my dot.png");
    fs::write(&dot, PIXEL).unwrap();
    fs::write(machine.root.join("work/dot.png"), PIXEL).unwrap();
    let say = json!({"choices": [{"delta": {"content": "A dot."}, "finish_reason": "stop"}]}).to_string();
    let server = Served::start(vec![Reply::chat_stream([say.as_str()])]);
    machine.use_server(&server.base_url, "images = true");
    let mut tty = machine.start(&[]);
    // It is known by then what the model takes.
    tty.sees("approve auto");
    // As a terminal pastes a file that is dropped on it.
    tty.type_in(format!("\x1b[200~'{}'\x1b[201~", dot.display()));
    tty.until("the name", |screen| screen.contains("my dot.png\""));
    tty.type_in("and @dot.png, what are they?\r");
    let shown = tty.sees("A dot.");
    assert_eq!(shown.matches("▣ PNG image, 67 bytes").count(), 2, "{shown}");
    let prompt = &machine.of_kind("user_prompt")[0];
    assert_eq!(prompt["images"].as_array().unwrap().len(), 2, "{prompt}");
    tty.type_in("/quit\r");
    assert_eq!(tty.ended(), 0);

    machine.use_server(&server.base_url, "");
    let mut blind = machine.start(&[]);
    blind.sees("Say what to do");
    blind.type_in("see @dot.png\r");
    let refused =
        blind.until("why not", |screen| screen.contains("not sent") && screen.contains("› see @dot.png"));
    assert!(refused.contains("p/m is not said to take images"), "{refused}");
    assert_eq!(fs::read_dir(machine.root.join("data/sessions")).unwrap().count(), 1, "nothing was begun");
}

/// Whatever terminal it is said to be: sixteen colours at most, none where none are wanted, no other screen, no ground.
#[test]
fn any_terminal_gets_what_it_understands() {
    let text = "Some `code`.\n\n```rust\nfn main() { let s = \"x\"; } // 日本語\n```\n\nDone.";
    let script = json!([{"calls": [bash("false"), bash("true")]}, {"text": text}]);
    type Case<'a> = (&'a [(&'a str, &'a str)], &'a [&'a str]);
    let cases: [Case<'_>; 6] = [
        (&[("TERM", "screen")], &[]),
        (&[("TERM", "xterm-16color")], &[]),
        (&[("TERM", "linux")], &[]),
        (&[("TERM", "xterm-256color"), ("COLORFGBG", "0;15")], &["33m", "36m"]),
        (&[("TERM", "tmux-256color"), ("COLORFGBG", "15;0")], &[]),
        (&[("NO_COLOR", "1")], &["31m", "32m", "33m", "34m", "35m", "36m", "90m"]),
    ];
    for (variables, unwanted) in cases {
        let machine = Machine::new(&script);
        let mut tty = machine.start_with(&["--sandbox", "off", "--approve", "all"], variables);
        tty.sees("Say what to do");
        tty.type_in("begin\r");
        tty.until("the end", |screen| screen.contains("Done.") && screen.contains("Say what to do"));
        tty.type_in("/quit\r");
        assert_eq!(tty.ended(), 0);
        tty.is_restored();
        let bytes = String::from_utf8(tty.bytes()).unwrap();
        let never = ["38;5", "38;2", ";48;", "\x1b[48", "?1049", "?47h", "\x1b[6n", "]11;", "\x1b[2J"];
        for part in never.iter().chain(unwanted) {
            assert!(!bytes.contains(part), "{variables:?}: {part:?}");
        }
        assert!(unwanted.len() > 2 || bytes.contains(";32m"), "{variables:?}: no colours at all");
    }
    let machine = Machine::new(&script);
    let mut dumb = machine.start_with(&[], &[("TERM", "dumb")]);
    assert_eq!(dumb.ended(), 2);
    dumb.until("what to use", |screen| screen.contains("no interface") && screen.contains("mainstay exec"));
}

/// A server for the model's wire on a thread of its own.
struct Served {
    base_url: String,
    _stop: tokio::sync::oneshot::Sender<()>,
}

impl Served {
    fn start(replies: Vec<Reply>) -> Self {
        let (address, told) = std::sync::mpsc::channel();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let server = WireServer::start(replies).await.unwrap();
                address.send(server.base_url()).unwrap();
                let _ = stopped.await;
            });
        });
        Served { base_url: told.recv().unwrap(), _stop: stop }
    }
}

/// The least PNG: one pixel.
const PIXEL: &[u8] = &[
    0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A, 0x00, 0x00, 0x00, 0x0D, 0x49, 0x48, 0x44, 0x52, 0x00,
    0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x01, 0x08, 0x00, 0x00, 0x00, 0x00, 0x3A, 0x7E, 0x9B, 0x55, 0x00,
    0x00, 0x00, 0x0A, 0x49, 0x44, 0x41, 0x54, 0x78, 0x9C, 0x63, 0x60, 0x00, 0x00, 0x00, 0x02, 0x00, 0x01,
    0x48, 0xAF, 0xA4, 0x71, 0x00, 0x00, 0x00, 0x00, 0x49, 0x45, 0x4E, 0x44, 0xAE, 0x42, 0x60, 0x82,
];

/// C13: what is typed while the summary is made waits in sight, and is delivered once, in order, after it; if no room is made,
/// it is the user's again.
#[test]
fn messages_typed_during_a_compaction_wait_for_its_end() {
    let summary = "The user asked for one thing, and it was done without any trouble.";
    let much = vec![json!({"calls": [bash("seq 1 4000")]})];
    for (before, is_made) in [(much, true), (Vec::new(), false)] {
        let answers =
            [before, vec![json!({"text": "First answer."}), json!({"text": "I heard both."})]].concat();
        let machine = Machine::new(&json!({
            "answers": answers,
            "summaries": [{"text": summary, "delay_ms": 1500}],
        }));
        let mut tty = machine.start(&["--sandbox", "off", "--approve", "all"]);
        tty.sees("Say what to do");
        tty.type_in("begin\r");
        tty.until("an answer", |screen| {
            screen.contains("First answer.") && screen.contains("Say what to do")
        });
        tty.type_in("/compact\r");
        tty.sees("making room");
        tty.type_in("word one\r");
        tty.type_in("word two\r");
        tty.sees("waits: word two");
        let prompts = || -> Vec<String> {
            let texts = machine.of_kind("user_prompt");
            texts.iter().map(|prompt| prompt["text"].as_str().unwrap().to_owned()).collect()
        };
        if is_made {
            let done =
                tty.until("both", |screen| screen.contains("I heard both.") && screen.contains("Say what"));
            assert!(done.find("◦ compacted:").unwrap() < done.find("› word one").unwrap(), "{done}");
            assert_eq!(prompts(), ["begin", "word one", "word two"]);
        } else {
            tty.until("both back", |screen| {
                screen.contains("not summarised") && screen.contains("› word one\n  word two")
            });
            assert_eq!(prompts(), ["begin"]);
        }
    }
}

/// Names are completed, the text is edited elsewhere, and what was done is taken back, file by file and message by message.
#[test]
fn what_was_done_can_be_taken_back() {
    let machine = Machine::new(&json!([
        {"calls": [{"name": "write", "arguments": {"path": "made.txt", "content": "x\n"}}]},
        {"text": "First."}, {"text": "Second."}, {"text": "Third."},
    ]));
    fs::write(machine.root.join("work/.gitignore"), "hidden.md\n").unwrap();
    fs::write(machine.root.join("work/hidden.md"), "").unwrap();
    fs::write(machine.root.join("work/notes.md"), "").unwrap();
    let mut tty = machine.start_with(&[], &[("VISUAL", "sed -i s/draft/read/")]);
    tty.sees("Say what to do");
    tty.type_in("draft @md");
    let offered = tty.sees("@notes.md");
    assert!(!offered.contains("hidden"), "{offered}");
    tty.type_in("\t\x07");
    tty.sees("› read @notes.md");
    tty.type_in("\r");
    let idle =
        |word: &'static str| move |screen: &str| screen.contains(word) && screen.contains("Say what to do");
    tty.until("an answer", idle("First."));
    tty.type_in("second message\r");
    tty.until("an answer", idle("Second."));
    assert!(machine.root.join("work/made.txt").exists());
    tty.type_in("/rewind\r");
    tty.until("the messages", |screen| {
        screen.contains("Go back to") && screen.contains("  1  read @notes.md")
    });
    tty.type_in("\r");
    tty.until("the message", |screen| {
        screen.contains("stands at the end of turn 1") && screen.contains("› second message")
    });
    tty.type_in("\x15/undo\r");
    tty.until("what was undone", idle("removed "));
    assert!(!machine.root.join("work/made.txt").exists());
    tty.type_in("/fork\r");
    let copied = tty.until("the copy", idle("this is the copy"));
    assert!(copied.contains("↶ undone: removed made.txt"), "{copied}");
    tty.type_in("/undo\r");
    tty.until("why not", idle("✗ /undo: no change of a file is left to take back"));
    assert_eq!(fs::read_dir(machine.root.join("data/sessions")).unwrap().count(), 2);
    tty.type_in("/quit\r");
    assert_eq!(tty.ended(), 0);
}
