//! A machine of its own for one session: a home, a workspace, a script, and runs of the real binary that can be killed.

use std::fs;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use mainstay_session::log;
use mainstay_session::request::{Message, request};
use mainstay_session::state::SessionState;
use serde_json::{Value, json};

/// The binary that is killed: the one that was built with this test, or, with this variable, another with failpoints.
const BINARY: &str = "CRASH_TEST_BINARY";

/// After this long a run hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the user says, and by which word of the answer it is seen to be done. The last turn is left alone, so that someone
/// goes on behind a kill in any of the others.
pub const TURNS: [(&str, &str); 4] = [
    ("Do the first part.", "PART-ONE"),
    ("And the rest.", "PART-TWO"),
    ("Is it done?", "PART-THREE"),
    ("Goodbye.", "PART-FOUR"),
];

/// The variable that every process of a machine has in its environment.
const MARK: &str = "CRASH_TEST_MARK";

/// What the message says that another process sends while the first turn runs.
pub const MESSAGE: &str = "The build is green.";

/// A machine.
pub struct Machine {
    _dir: tempfile::TempDir,
    pub root: PathBuf,
    answers: Vec<Value>,
    is_notified: bool,
}

/// What is to happen to a run.
#[derive(Clone, Debug, Default)]
pub struct Fault {
    /// Orders for the failpoints.
    pub orders: String,
    /// When to kill it from outside.
    pub kill_after: Option<Duration>,
}

/// How a run ended.
#[derive(Debug)]
pub struct Ended {
    pub was_killed: bool,
    pub code: Option<i32>,
    pub err: String,
    /// The names of the failpoints that it came by.
    pub trace: Vec<String>,
    /// How long it took to say that the session is there.
    pub until_started: Option<Duration>,
    pub took: Duration,
}

impl Machine {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for name in ["home", "config", "work"] {
            fs::create_dir(root.join(name)).unwrap();
        }
        fs::write(root.join("work/a.txt"), "one\ntwo\nthree\n").unwrap();
        fs::write(root.join("work/b.txt"), "alpha\nbeta\n").unwrap();
        Machine { _dir: dir, root, answers: script(), is_notified: false }
    }

    /// What is to be said next; none when all is done.
    pub fn next_prompt(&self) -> Option<&'static str> {
        let text = self.log_text();
        for (prompt, word) in TURNS {
            if !text.contains(&format!("\"text\":\"{prompt}\"")) {
                return Some(prompt);
            }
            if !text.contains(&format!("\"text\":\"{word}\"")) {
                return Some("Go on.");
            }
        }
        None
    }

    /// Runs a command that is no turn.
    pub fn run(&self, arguments: &[&str], orders: &str) -> Ended {
        let trace = self.root.join("trace");
        let _ = fs::remove_file(&trace);
        let begun = Instant::now();
        let mut command = self.command(arguments);
        command.env("MAINSTAY_FAILPOINTS_TRACE", &trace).env("MAINSTAY_FAILPOINTS", orders);
        let output = command.output().unwrap();
        Ended {
            was_killed: output.status.signal() == Some(9),
            code: output.status.code(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
            trace: fs::read_to_string(trace).unwrap_or_default().lines().map(str::to_owned).collect(),
            until_started: None,
            took: begun.elapsed(),
        }
    }

    /// Takes all turns without a fault.
    pub fn finish(&mut self) {
        while let Some(prompt) = self.next_prompt() {
            let ended = self.exec(prompt, &Fault::default());
            assert_eq!(ended.code, Some(0), "{}", ended.err);
        }
    }

    /// Runs one turn.
    pub fn exec(&mut self, prompt: &str, fault: &Fault) -> Ended {
        let script = json!({
            "answers": self.answers,
            "summaries": [{"text": "The first part is under way: a.txt is mended, new.txt is written.\n\nRead first:\n- a.txt\n\nReferences:\n- b.txt", "usage": {"input_tokens": 3000, "output_tokens": 50}}],
        });
        fs::write(self.root.join("script.json"), script.to_string()).unwrap();
        let model = format!("script:{}", self.root.join("script.json").display());
        let id = self.session().map(|dir| dir.file_name().unwrap().to_string_lossy().into_owned());
        let mut arguments = vec!["exec", "--json", "--approve", "all", "--model", &model];
        arguments.extend(id.iter().flat_map(|id| ["--session", id]));
        arguments.push(prompt);
        let mut command = self.command(&arguments);
        let trace = self.root.join("trace");
        let _ = fs::remove_file(&trace);
        command.env("MAINSTAY_FAILPOINTS_TRACE", &trace).env("MAINSTAY_FAILPOINTS", &fault.orders);
        self.attend(command, fault.kill_after)
    }

    /// Lets another process, as the script asks for, send its message while the command that waits for it runs.
    fn attend(&mut self, mut command: Command, kill_after: Option<Duration>) -> Ended {
        let (out, err) = (self.root.join("out"), self.root.join("err"));
        command.stdout(fs::File::create(&out).unwrap()).stderr(fs::File::create(&err).unwrap());
        let begun = Instant::now();
        let mut child = command.spawn().unwrap();
        let mut until_started = None;
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if until_started.is_none() && fs::metadata(&out).is_ok_and(|out| out.len() > 0) {
                until_started = Some(begun.elapsed());
            }
            if kill_after.is_some_and(|after| begun.elapsed() >= after) {
                child.kill().unwrap();
            }
            if begun.elapsed() > PATIENCE {
                child.kill().unwrap();
                child.wait().unwrap();
                panic!("a run hangs in {}", self.root.display());
            }
            self.send_what_is_waited_for();
            std::thread::sleep(Duration::from_millis(1));
        };
        let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
        Ended {
            was_killed: status.signal() == Some(9),
            code: status.code(),
            err: read(&err),
            trace: read(&self.root.join("trace")).lines().map(str::to_owned).collect(),
            until_started,
            took: begun.elapsed(),
        }
    }

    fn send_what_is_waited_for(&mut self) {
        if !self.work("ready").exists() || self.work("told").exists() {
            return;
        }
        if let (false, Some(session)) = (self.is_notified, self.session()) {
            let id = session.file_name().unwrap().to_string_lossy().into_owned();
            let output = self.command(&["notify", &id, MESSAGE]).output().unwrap();
            assert!(output.status.success(), "{output:?}");
            self.is_notified = true;
        }
        // The directory may just have vanished.
        let _ = fs::write(self.work("told"), "");
    }

    /// A run of the binary on this machine.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let binary = std::env::var_os(BINARY).unwrap_or_else(|| env!("CARGO_BIN_EXE_mainstay").into());
        let mut command = Command::new(binary);
        command
            .args(arguments)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.root.join("home"))
            .env("MAINSTAY_HOME", self.root.join("data"))
            .env("XDG_CONFIG_HOME", self.root.join("config"))
            .env(MARK, &self.root)
            .current_dir(self.root.join("work"))
            .stdin(Stdio::null());
        command
    }

    pub fn work(&self, name: &str) -> PathBuf {
        self.root.join("work").join(name)
    }

    /// The folder of the session, once it has a segment.
    pub fn session(&self) -> Option<PathBuf> {
        let names = fs::read_dir(self.root.join("data/sessions")).ok()?;
        let mut dirs = names.filter_map(|name| Some(name.ok()?.path()));
        dirs.find(|dir| dir.join("0001.jsonl").exists())
    }

    /// The segments of the session, in order.
    pub fn segments(&self) -> Vec<Vec<u8>> {
        let Some(dir) = self.session() else { return Vec::new() };
        (1..).map_while(|number| fs::read(dir.join(format!("{number:04}.jsonl"))).ok()).collect()
    }

    pub fn log_text(&self) -> String {
        self.segments().iter().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).collect()
    }

    pub fn state(&self) -> Option<(SessionState, log::Opening)> {
        log::read(&self.session()?).ok()
    }

    /// Has the model make the calls again that were cut short, once it has looked at what they were to change: as one
    /// would that reads what it is told.
    pub fn repeat(&mut self, state: &SessionState, calls: &[Value]) {
        let messages = request(state).messages;
        let told = messages.iter().filter(|message| matches!(message, Message::Answer { .. })).count();
        let place = told + usize::try_from(state.dropped_answers).unwrap();
        let changes = |call: &&Value| call["name"] == "edit" || call["name"] == "write";
        let looks: Vec<Value> = calls
            .iter()
            .filter(changes)
            .map(|call| read(call["arguments"]["path"].as_str().unwrap()))
            .collect();
        self.answers.insert(place, answer(calls));
        if !looks.is_empty() {
            self.answers.insert(place, answer(&looks));
        }
    }

    /// The processes that a run has left, by their environment.
    pub fn survivors(&self) -> Vec<String> {
        let mark = format!("{MARK}={}", self.root.display());
        let is_marked =
            |bytes: &[u8]| bytes.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes());
        let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
        let marked = processes.filter_map(|process| {
            let path = process.ok()?.path();
            let mut environment = Vec::new();
            fs::File::open(path.join("environ")).ok()?.read_to_end(&mut environment).ok()?;
            let command = fs::read_to_string(path.join("cmdline")).unwrap_or_default();
            is_marked(&environment).then(|| format!("{} {}", path.display(), command.replace('\0', " ")))
        });
        marked.collect()
    }

    /// Waits until nothing of a run is alive; says how long that took, or what is alive after two seconds.
    pub fn wait_for_the_last(&self) -> Result<Duration, String> {
        let begun = Instant::now();
        loop {
            let alive = self.survivors();
            if alive.is_empty() {
                return Ok(begun.elapsed());
            }
            if begun.elapsed() > Duration::from_secs(2) {
                return Err(format!("left running: {alive:?}"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The first answers of the model, with a compaction behind the seventh.
fn script() -> Vec<Value> {
    let item = |id: u32, content: &str, status: &str| json!({"id": id.to_string(), "content": content, "status": status});
    let plan = |statuses: [&str; 3]| {
        let todos = [
            item(1, "Mend a.txt", statuses[0]),
            item(2, "Mend b.txt", statuses[1]),
            item(3, "Sum up", statuses[2]),
        ];
        json!({"name": "todo_write", "arguments": {"todos": todos}})
    };
    let daemon = "setsid sh -c 'sleep 300 & sleep 300' >/dev/null 2>&1 & : > ready; until [ -e told ]; do sleep 0.01; done; echo told";
    let mut full = answer(&[plan(["completed", "in_progress", "pending"])]);
    full["usage"]["input_tokens"] = json!(170_000);
    vec![
        answer(&[plan(["in_progress", "pending", "pending"])]),
        answer(&[read("a.txt"), read("b.txt")]),
        answer(&[edit("a.txt", "two", "2")]),
        answer(&[json!({"name": "write", "arguments": {"path": "new.txt", "content": "new\n"}})]),
        answer(&[
            json!({"name": "bash", "arguments": {"command": "echo job; setsid sleep 300 & sleep 300", "background": true}}),
        ]),
        answer(&[bash(daemon)]),
        full,
        answer(&[edit("b.txt", "beta", "BETA"), bash("seq 1 20000")]),
        answer(&[read("a.txt"), json!({"name": "glob", "arguments": {"pattern": "*.txt"}})]),
        answer(&[plan(["completed", "completed", "in_progress"])]),
        say(TURNS[0].1),
        answer(&[bash("cat a.txt b.txt > sum.txt")]),
        answer(&[edit("a.txt", "three", "3")]),
        answer(&[plan(["completed", "completed", "completed"])]),
        say(TURNS[1].1),
        say(TURNS[2].1),
        say(TURNS[3].1),
    ]
}

fn answer(calls: &[Value]) -> Value {
    json!({"calls": calls, "usage": {"input_tokens": 3_000, "output_tokens": 10}})
}

fn say(text: &str) -> Value {
    json!({"text": text, "usage": {"input_tokens": 3_000, "output_tokens": 10}})
}

fn bash(command: &str) -> Value {
    json!({"name": "bash", "arguments": {"command": command}})
}

fn read(path: &str) -> Value {
    json!({"name": "read", "arguments": {"path": path}})
}

fn edit(path: &str, old: &str, new: &str) -> Value {
    json!({"name": "edit", "arguments": {"path": path, "edits": [{"old": old, "new": new}]}})
}
