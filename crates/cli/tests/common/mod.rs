//! A machine of its own for each test: a home, a configuration, sessions and a workspace in a temporary folder, and an
//! environment with nothing else in it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    dead_code,
    unreachable_pub,
    reason = "tests use parts of it"
)]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

pub const MAINSTAY: &str = env!("CARGO_BIN_EXE_mainstay");
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct Machine {
    _dir: tempfile::TempDir,
    pub root: PathBuf,
}

/// How a run came out.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Ran { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
    }
}

impl Ran {
    /// Asserts the exit code, what stands on stderr, and that nothing is on stdout.
    #[track_caller]
    pub fn failed(&self, code: i32, parts: &[&str]) {
        self.ended(code, "", parts);
    }

    /// Asserts the exit code, what is on stdout, and what stands on stderr.
    #[track_caller]
    pub fn ended(&self, code: i32, out: &str, parts: &[&str]) {
        assert_eq!((self.code, self.out.as_str()), (code, out), "{}", self.err);
        for part in parts {
            assert!(self.err.contains(part), "no {part:?} in:\n{}", self.err);
        }
    }

    /// The events that were printed.
    pub fn events(&self) -> Vec<Value> {
        self.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl Machine {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for name in ["home", "config/mainstay", "work"] {
            fs::create_dir_all(root.join(name)).unwrap();
        }
        Machine { _dir: dir, root }
    }

    /// A machine whose configured model gives these answers, and whose user lets everything pass.
    pub fn scripted(answers: Value) -> Self {
        let machine = Machine::new();
        machine.script(answers);
        machine
    }

    pub fn script(&self, answers: Value) {
        let file = self.root.join("script.json");
        fs::write(&file, answers.to_string()).unwrap();
        self.configure(&format!("model = \"script:{}\"\napprove = \"all\"\n", file.display()));
    }

    pub fn configure(&self, text: &str) {
        fs::write(self.root.join("config/mainstay/config.toml"), text).unwrap();
    }

    pub fn work(&self, name: &str) -> PathBuf {
        self.root.join("work").join(name)
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        self.program(Path::new(MAINSTAY), arguments)
    }

    /// Any program, in this machine's surroundings.
    pub fn program(&self, program: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.root.join("home"))
            .env("MAINSTAY_HOME", self.root.join("data"))
            .env("XDG_CONFIG_HOME", self.root.join("config"))
            .current_dir(self.root.join("work"))
            .stdin(Stdio::null());
        command
    }

    /// A command line for bash, in which `mainstay` is this build.
    pub fn shell(&self, line: &str) -> Command {
        let beside = Path::new(MAINSTAY).parent().expect("a binary lies in a directory");
        let mut path = vec![beside.to_owned()];
        path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
        let mut command = self.program(Path::new("bash"), &["-c", line]);
        command.env("PATH", std::env::join_paths(path).expect("paths of PATH"));
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Ran {
        self.command(arguments).output().unwrap().into()
    }

    /// Starts a run and keeps its output for later.
    pub fn start(&self, arguments: &[&str]) -> Child {
        self.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    pub fn wait_for(&self, name: &str) {
        let begun = Instant::now();
        while !self.work(name).exists() {
            assert!(begun.elapsed() < PATIENCE, "{name} did not appear");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// A run that reads this from a pipe.
    pub fn run_with_input(&self, arguments: &[&str], input: &[u8]) -> Ran {
        let mut command = self.command(arguments);
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        ended(child)
    }

    /// The folders of all sessions, the oldest first.
    pub fn sessions(&self) -> Vec<PathBuf> {
        let Ok(names) = fs::read_dir(self.root.join("data/sessions")) else { return Vec::new() };
        let mut dirs: Vec<PathBuf> = names.map(|name| name.unwrap().path()).collect();
        dirs.sort();
        dirs
    }

    /// All entries of the one session; each line must be whole.
    pub fn entries(&self) -> Vec<Value> {
        let [session] = <[PathBuf; 1]>::try_from(self.sessions()).unwrap();
        let mut files: Vec<PathBuf> =
            fs::read_dir(session).unwrap().map(|file| file.unwrap().path()).collect();
        files.retain(|file| file.extension().is_some_and(|extension| extension == "jsonl"));
        files.sort();
        let text: String = files.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
        assert!(text.ends_with('\n'));
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

pub fn ended(child: Child) -> Ran {
    child.wait_with_output().unwrap().into()
}

pub fn bash(command: &str) -> Value {
    json!({"calls": [{"name": "bash", "arguments": {"command": command}}]})
}

pub fn say(text: &str) -> Value {
    json!({"text": text})
}

pub fn plan(items: &[(&str, &str)]) -> Value {
    let todos: Vec<Value> =
        items.iter().map(|(content, status)| json!({"content": content, "status": status})).collect();
    json!({"calls": [{"name": "todo_write", "arguments": {"todos": todos}}]})
}
