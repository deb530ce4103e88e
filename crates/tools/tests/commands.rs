//! bash through the seam that the loop uses, with real processes.
//!
//! The program is its own supervisor, so it brings its own `main`. As root, where commands live in a pid namespace, it
//! runs all cases a second time as an ordinary user, where they do not. `cargo test … --test commands NAME` runs the
//! cases with this part of a name.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "tests")]

use std::fs;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use mainstay_session::log::{Durability, Spill};
use mainstay_session::plan::PlanInView;
use mainstay_tools::{
    Bash, CallContext, StartedProcess, Supervisor, Tool, ToolError, ToolOutput, is_running,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// Long enough for a loaded machine, far shorter than what the commands would take if nobody ended them.
const SOON: Duration = Duration::from_secs(8);

fn main() -> ExitCode {
    mainstay_tools::supervise_if_asked();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["--as-agent", workspace, command, rest @ ..] => agent(workspace, command, rest.contains(&"dies")),
        ["--cases", part] => cases(part),
        rest => {
            let part = rest.iter().find(|argument| !argument.starts_with('-')).unwrap_or(&"");
            both_ways(part)
        }
    }
}

/// Runs all cases as whoever this is, and if that is root also as an ordinary user.
fn both_ways(part: &str) -> ExitCode {
    let program = std::env::current_exe().unwrap();
    let mut runs = vec![("as it is", Command::new(&program))];
    let place = tempfile::tempdir().unwrap();
    if rustix::process::getuid().is_root() {
        let copy = place.path().join("commands");
        fs::copy(&program, &copy).unwrap();
        let all = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(place.path(), all).unwrap();
        let mut ordinary = Command::new("setpriv");
        ordinary.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(copy);
        if Command::new("setpriv").arg("--version").output().is_ok() {
            runs.push(("as an ordinary user", ordinary));
        } else {
            println!("as an ordinary user: skipped, there is no setpriv");
        }
    }
    let mut all_passed = true;
    for (how, mut command) in runs {
        println!("\n{how}:");
        command.args(["--cases", part]).env("CASES_API_KEY", "in no command").env("HOME", "/nowhere");
        all_passed &= command.status().unwrap().success();
    }
    if all_passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn cases(part: &str) -> ExitCode {
    let (mut passed, mut failed) = (0, 0);
    for (name, case) in CASES.iter().filter(|(name, _)| name.contains(part)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let begun = Instant::now();
        let result = std::panic::catch_unwind(AssertUnwindSafe(|| runtime.block_on(case(Place::new()))));
        let word = if result.is_ok() { "ok" } else { "FAILED" };
        println!("{name} … {word} ({} ms)", begun.elapsed().as_millis());
        if result.is_ok() { passed += 1 } else { failed += 1 }
    }
    println!("{passed} passed, {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A process that runs one command, for others to kill.
fn agent(workspace: &str, command: &str, dies: bool) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut place = Place::of(PathBuf::from(workspace));
    if dies {
        place.context.intent = Arc::new(|_| {
            let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
            Ok(())
        });
    }
    let _ = runtime.block_on(place.run(command));
    ExitCode::SUCCESS
}

type Case = fn(Place) -> futures_util::future::BoxFuture<'static, ()>;

macro_rules! cases {
    ($($name:ident),* $(,)?) => { &[$((stringify!($name), |place| Box::pin($name(place)))),*] };
}

const CASES: &[(&str, Case)] = cases![
    output_and_exit_code_are_told,
    a_child_that_keeps_the_output_is_not_waited_for,
    what_a_shell_does_not_wait_for_may_finish,
    a_timeout_ends_the_whole_tree_and_keeps_what_was_printed,
    nothing_waits_for_a_person,
    input_is_empty,
    a_flood_is_bounded,
    a_cut_is_between_characters,
    bytes_that_are_no_text_are_said,
    terminal_control_is_taken_out,
    a_vanished_directory_is_said,
    timeouts_are_milliseconds,
    long_and_impossible_commands,
    nothing_is_done_before_the_intent_is_logged,
    a_refused_intent_is_the_end,
    a_cancelled_command_is_ended,
    a_dropped_call_ends_its_command,
    closed_output_is_no_end,
    nothing_is_left_behind_by_many_calls,
    daemons_end_with_their_command,
    what_forks_without_end_is_ended,
    a_killed_keeper_is_said_and_replaced,
    a_killed_supervisor_is_replaced,
    nothing_outlives_a_killed_agent,
    an_agent_killed_before_the_command_goes_runs_nothing,
    keys_are_in_no_command,
    commands_start_afresh,
];

/// A workspace, and a bash for it.
struct Place {
    _dir: Option<tempfile::TempDir>,
    root: PathBuf,
    context: CallContext,
    bash: Bash,
    /// Children that were there before it.
    before: Vec<u32>,
    /// A number that only this place's commands have in their command lines.
    mark: String,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        Place { _dir: Some(dir), ..Place::of(root) }
    }

    fn of(root: PathBuf) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let context = CallContext {
            workspace: root.clone(),
            readable: Vec::new(),
            plan: PlanInView::default(),
            seen: Arc::new(|_: &Path| None),
            intent: Arc::new(|_| Ok(())),
            spill: Spill::of_session(&root.join(".session"), Durability::Relaxed),
            takes_images: false,
            max_result_bytes: 50 << 10,
            cancel: CancellationToken::new(),
        };
        let mark = format!("9{:07}{:03}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let bash = Bash::new(Arc::new(Supervisor::new(Vec::new())));
        Place { _dir: None, root, context, bash, before: children_of(std::process::id()), mark }
    }

    async fn call(&self, arguments: Value) -> Result<ToolOutput, ToolError> {
        self.bash.run(&arguments.to_string(), &self.context).await
    }

    /// Runs a command in which `MARK` stands for this place's number.
    async fn run(&self, command: &str) -> Result<ToolOutput, ToolError> {
        self.call(json!({"command": command.replace("MARK", &self.mark)})).await
    }

    async fn run_for(&self, command: &str, timeout_ms: u64) -> Result<ToolOutput, ToolError> {
        self.call(json!({"command": command.replace("MARK", &self.mark), "timeout_ms": timeout_ms})).await
    }

    /// What the model reads of a command, whether it failed or not.
    async fn text(&self, command: &str) -> String {
        text(self.run(command).await)
    }

    fn has(&self, name: &str) -> bool {
        self.root.join(name).exists()
    }

    async fn wait_for(&self, name: &str) {
        let begun = Instant::now();
        while !self.has(name) {
            assert!(begun.elapsed() < SOON, "{name} did not appear");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Asserts that none of this place's commands is alive two seconds from now at the latest.
    fn assert_no_process(&self) {
        let begun = Instant::now();
        loop {
            let alive = processes(|line| line.contains(&self.mark));
            if alive.is_empty() {
                return;
            }
            assert!(begun.elapsed() < Duration::from_secs(2), "still running: {alive:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The supervisor, which is the one child that this place has.
    fn supervisor(&self) -> u32 {
        let own: Vec<u32> =
            children_of(std::process::id()).into_iter().filter(|pid| !self.before.contains(pid)).collect();
        assert_eq!(own.len(), 1, "{own:?}");
        own[0]
    }

    /// The keeper of its commands, which is the one child that the supervisor has.
    fn keeper(&self) -> u32 {
        let keepers = children_of(self.supervisor());
        assert_eq!(keepers.len(), 1, "{keepers:?}");
        keepers[0]
    }

    /// This process run as an agent of its own.
    fn agent(&self, command: &str, dies: bool) -> Child {
        let mut agent = Command::new(std::env::current_exe().unwrap());
        agent.arg("--as-agent").arg(&self.root).arg(command.replace("MARK", &self.mark));
        agent.args(dies.then_some("dies")).spawn().unwrap()
    }
}

fn text(result: Result<ToolOutput, ToolError>) -> String {
    let (summary, content) = match result {
        Ok(output) => (output.summary, output.content),
        Err(error) => (error.summary, error.content),
    };
    content.map_or(summary.clone(), |content| format!("{summary}\n{content}"))
}

/// The ids and command lines of all processes, zombies excepted, that fit.
fn processes(fits: impl Fn(&str) -> bool) -> Vec<(u32, String)> {
    let pids =
        fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let line =
        |pid: u32| Some((pid, fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?.replace('\0', " ")));
    pids.filter_map(line).filter(|(pid, line)| *pid != std::process::id() && fits(line)).collect()
}

fn children_of(parent: u32) -> Vec<u32> {
    let parent = parent.to_string();
    let is_its = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)) == Some(parent.as_str())
    };
    let all = fs::read_dir("/proc").unwrap();
    all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).filter(is_its).collect()
}

fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

async fn gone(pid: u32) {
    let begun = Instant::now();
    while Path::new(&format!("/proc/{pid}")).exists() {
        assert!(begun.elapsed() < SOON, "process {pid} does not end, or is not reaped");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, future).await.expect("takes too long")
}

async fn output_and_exit_code_are_told(place: Place) {
    let output = place.run("echo out; echo err >&2; pwd").await.unwrap();
    assert_eq!((output.summary.as_str(), output.exit_code), ("exit code 0", Some(0)));
    assert_eq!(output.content.unwrap(), format!("out\nerr\n{}", place.root.display()));
    assert_eq!(place.text("true").await, "exit code 0, no output");
    let error = place.run("echo why; exit 3").await.unwrap_err();
    let expected =
        ToolError { summary: "exit code 3".into(), content: Some("why".into()), exit_code: Some(3) };
    assert_eq!(error, expected);
    let error = place.run("kill -SEGV $$").await.unwrap_err();
    assert_eq!((error.summary.as_str(), error.exit_code), ("killed by signal 11", Some(139)));
    assert_eq!(place.run("no-such-program").await.unwrap_err().exit_code, Some(127));
}

/// F01, W04
async fn a_child_that_keeps_the_output_is_not_waited_for(place: Place) {
    for (command, start) in [
        ("sleep MARK & echo done", "exit code 0\ndone\n"),
        ("(while :; do echo tick; sleep 0.05; done; sleep MARK) & echo ok", "exit code 0\n"),
        ("(trap '' TERM; sleep MARK; sleep MARK) & (sleep MARK | sleep MARK) & echo ok", "exit code 0\nok\n"),
    ] {
        let text = soon(place.text(command)).await;
        assert!(text.starts_with(start), "{text}");
        assert!(text.contains("that the command left running ended with it]"), "{text}");
        place.assert_no_process();
    }
    let text = place.text("sleep MARK & echo done").await;
    assert_eq!(text, "exit code 0\ndone\n[1 process that the command left running ended with it]");
    let text = place.text("sleep MARK & sleep MARK & :").await;
    assert_eq!(text, "exit code 0\n[2 processes that the command left running ended with it]");
}

async fn what_a_shell_does_not_wait_for_may_finish(place: Place) {
    assert_eq!(place.text("echo hi | tee >(sleep 0.02; tr h H) >/dev/null").await, "exit code 0\nHi");
}

/// F02
async fn a_timeout_ends_the_whole_tree_and_keeps_what_was_printed(place: Place) {
    for command in [
        "echo begun; trap '' TERM; (sleep 5; touch sentinel) & sleep MARK",
        "echo begun; sleep MARK | sleep MARK",
        "echo begun; setsid -w sleep MARK",
        "echo begun; kill -STOP $$; sleep MARK",
        "echo begun; (setsid sh -c 'trap \"\" TERM HUP; sleep MARK; sleep MARK' &) ; sleep MARK",
    ] {
        let error = soon(place.run_for(command, 300)).await.unwrap_err();
        assert_eq!(
            error.summary, "timed out after 300 ms and was ended; raise timeout_ms if it needs longer",
            "{command}"
        );
        assert!(error.content.as_ref().is_some_and(|text| text.starts_with("begun")), "{error:?}");
        assert_eq!(error.exit_code, None);
        place.assert_no_process();
    }
    assert!(!place.has("sentinel"));
    let error = place.run_for("trap 'echo asked; exit 0' TERM; sleep MARK & wait", 300).await.unwrap_err();
    assert_eq!(error.content.as_deref().map(|text| &text[..5]), Some("asked"), "it may end by itself");
}

/// F03, W04
async fn nothing_waits_for_a_person(place: Place) {
    assert_ne!(soon(place.run("read x </dev/tty")).await.unwrap_err().exit_code, None);
    assert_eq!(soon(place.text("tty; test -t 1 || echo none")).await, "exit code 0\nnot a tty\nnone");
    let git = "git -c init.defaultBranch=main init -q . && git config user.email a@b.invalid && git config user.name a";
    if place.run(git).await.is_ok() {
        let error = soon(place.run("echo x > x && git add x && git commit")).await.unwrap_err();
        assert!(error.content.is_some_and(|text| text.contains("editor")));
        place.run("git commit -qm first").await.unwrap();
        assert!(soon(place.run("git log")).await.unwrap().content.unwrap().contains("first"));
        assert!(soon(place.run("git rebase -i --root")).await.is_err());
    }
    for command in ["sudo -k true", "ssh -p 1 127.0.0.1 true", "su nobody -s /bin/true -c : <&-; false"] {
        assert!(soon(place.run(command)).await.is_err(), "{command}");
    }
}

/// F04, W04
async fn input_is_empty(place: Place) {
    assert_eq!(soon(place.text("cat; grep foo; (cat) & wait; echo end")).await, "exit code 0\nend");
}

/// F05, W04
async fn a_flood_is_bounded(place: Place) {
    let before = most_memory();
    let output = place.run("echo first; yes | head -c 200M; echo last").await.unwrap();
    let content = output.content.unwrap();
    assert!(content.starts_with("first\n") && content.ends_with("last"));
    assert!(content.len() < 60 << 10, "{}", content.len());
    assert!(content.contains("bytes left out"), "counts what is missing");
    let error = soon(place.run_for("yes", 300)).await.unwrap_err();
    assert!(error.summary.starts_with("timed out") && error.content.unwrap().len() < 60 << 10);
    assert!(most_memory() - before < 16 << 10, "from {before} to {} KB", most_memory());
}

fn most_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// F06
async fn a_cut_is_between_characters(mut place: Place) {
    for max in [50 << 10, 1 << 12, 1 << 20] {
        place.context.max_result_bytes = max;
        for more in 0..3 {
            let command =
                format!("head -c {} /dev/zero | tr '\\0' a; printf '€%.0s' {{1..40000}}", (1 << 20) - more);
            let text = place.text(&command).await;
            assert!(text.starts_with("exit code 0\naaa") && text.ends_with("€€"), "{max}");
            assert!(!text.contains('\u{fffd}'), "{max}");
        }
    }
}

/// F07
async fn bytes_that_are_no_text_are_said(place: Place) {
    let text = place.text(r"printf '\xff\xfe\x80ok'; exit 4").await;
    let note = "[some bytes of the output are not UTF-8 and are shown as U+FFFD]";
    assert_eq!(text, format!("exit code 4\n\u{fffd}\u{fffd}\u{fffd}ok\n{note}"));
}

/// F08
async fn terminal_control_is_taken_out(place: Place) {
    let text = place.text(r"printf 'a\033]52;c;QQ==\007b\033[6nc\xc2\x9b31md\033]0;t\nÛX\000.\n'").await;
    assert_eq!(text, "exit code 0\nabcd\nÛX.");
}

/// F09
async fn a_vanished_directory_is_said(place: Place) {
    place.run("mkdir t && cd t && rm -rf ../t").await.unwrap();
    assert_eq!(place.text("pwd").await, format!("exit code 0\n{}", place.root.display()));
    fs::remove_dir_all(&place.root).unwrap();
    let gone = format!("the workspace {} is gone, so nothing can run in it", place.root.display());
    assert_eq!(place.text("pwd").await, gone);
    fs::create_dir(&place.root).unwrap();
    assert!(place.run("pwd").await.is_ok());
}

/// F10
async fn timeouts_are_milliseconds(place: Place) {
    let call = async |timeout: Value| {
        let result = place.call(json!({"command": "echo x; sleep 0.3", "timeout_ms": timeout})).await;
        text(result)
    };
    assert!(call(json!(50)).await.starts_with("timed out after 50 ms"));
    for fine in [json!(120_000), json!(600_000), json!(null)] {
        assert_eq!(call(fine).await, "exit code 0\nx");
    }
    let cut = "[timeout_ms was cut from 900000 to 600000, the longest allowed]";
    assert_eq!(call(json!(900_000)).await, format!("exit code 0\nx\n{cut}"));
    for wrong in [json!(0), json!(-1), json!(0.5), json!("soon")] {
        let text = call(wrong.clone()).await;
        assert!(text.contains("`timeout_ms`: expected a whole number from 1"), "{wrong}: {text}");
    }
    assert!(call(json!("600")).await.contains("Read `timeout_ms` \"600\" as a number"));
}

async fn long_and_impossible_commands(place: Place) {
    let long = format!("x={}; echo ${{#x}}", "a".repeat(100_000));
    assert_eq!(place.text(&long).await, "exit code 0\n100000");
    let text = place.text(&"a".repeat(131_072)).await;
    assert!(
        text.starts_with("`command` has 131072 bytes, and the longest that can be run has 131071"),
        "{text}"
    );
    let longest = format!("#{}\necho ok", "a".repeat(131_071 - 9));
    assert_eq!(place.text(&longest).await, "exit code 0\nok");
    assert!(place.text("echo a\0b").await.contains("NUL"));
    assert_eq!(place.text("  ").await, "`command` is empty");
}

/// A command waits, before its first instruction, until its intent is logged.
async fn nothing_is_done_before_the_intent_is_logged(mut place: Place) {
    let seen = Arc::new(Mutex::new(None));
    let (sentinel, told) = (place.root.join("sentinel"), seen.clone());
    place.context.intent = Arc::new(move |process: StartedProcess| {
        // Long enough for a command that does not wait.
        std::thread::sleep(Duration::from_millis(100));
        let waits = is_running(process.pid, process.started) && !sentinel.exists();
        *told.lock().unwrap() = Some((waits, process));
        Ok(())
    });
    place.run("touch sentinel").await.unwrap();
    let (waited, process) = seen.lock().unwrap().unwrap();
    assert!(waited && place.has("sentinel"));
    assert!(!is_running(process.pid, process.started));
}

async fn a_refused_intent_is_the_end(mut place: Place) {
    let logs = place.context.intent.clone();
    place.context.intent = Arc::new(|_| Err("the disk is full".to_owned()));
    assert_eq!(
        place.text("touch sentinel").await,
        "the command was not run, since its intent could not be logged: the disk is full"
    );
    place.context.intent = logs;
    place.run("sleep 0.1").await.unwrap();
    assert!(!place.has("sentinel"));
}

async fn a_cancelled_command_is_ended(place: Place) {
    let call = place.run("echo begun; setsid sleep MARK & touch here; sleep MARK");
    let cancel = async {
        place.wait_for("here").await;
        place.context.cancel.cancel();
    };
    let (result, ()) = soon(async { tokio::join!(call, cancel) }).await;
    let error = result.unwrap_err();
    assert_eq!(error.summary, "cancelled, and ended; it may have run in part");
    assert!(error.content.is_some_and(|content| content.starts_with("begun")));
    place.assert_no_process();
}

async fn a_dropped_call_ends_its_command(place: Place) {
    let call = place.run("setsid sleep MARK & touch here; sleep MARK");
    tokio::select! {
        _ = call => panic!("it ended"),
        () = place.wait_for("here") => {}
    }
    place.assert_no_process();
    assert_eq!(place.text("echo again").await, "exit code 0\nagain");
}

async fn closed_output_is_no_end(place: Place) {
    let text = place.text("exec >&- 2>&-; sleep 0.1; touch late; exit 5").await;
    assert_eq!((text.as_str(), place.has("late")), ("exit code 5", true));
}

/// Neither descriptors nor processes.
async fn nothing_is_left_behind_by_many_calls(place: Place) {
    let descriptors = || fs::read_dir("/proc/self/fd").unwrap().count();
    place.run("true").await.unwrap();
    let before = descriptors();
    let inside = place.text("ls /proc/$$/fd; true").await;
    for _ in 0..50 {
        place.run("echo x | cat").await.unwrap();
    }
    assert_eq!(descriptors(), before);
    assert_eq!(place.text("ls /proc/$$/fd; true").await, inside);
    let (supervisor, keeper) = (place.supervisor(), place.keeper());
    let Place { bash, .. } = place;
    drop(bash);
    gone(supervisor).await;
    gone(keeper).await;
}

async fn daemons_end_with_their_command(place: Place) {
    let ways = [
        "setsid sleep MARK </dev/null >/dev/null 2>&1 &",
        "nohup sleep MARK >/dev/null 2>&1 & disown",
        "( ( setsid sh -c 'trap \"\" HUP TERM INT; cd /; while :; do sleep MARK; done' >/dev/null 2>&1 & ) & ) ; :",
    ];
    for way in ways.iter().cycle().take(30) {
        let result = soon(place.run(way)).await;
        assert!(result.is_ok(), "{result:?}");
    }
    place.assert_no_process();
}

async fn what_forks_without_end_is_ended(place: Place) {
    place.run("(while :; do sleep MARK & done) >/dev/null 2>&1 & sleep 0.1; kill $!; :").await.unwrap();
    place.assert_no_process();
    place
        .run(
            "(i=0; while [ $i -lt 100000 ]; do (sleep MARK &); i=$((i+1)); done) >/dev/null 2>&1 & sleep 0.1",
        )
        .await
        .unwrap();
    place.assert_no_process();
}

async fn a_killed_keeper_is_said_and_replaced(place: Place) {
    let call = place.run("touch here; sleep MARK");
    let killing = async {
        place.wait_for("here").await;
        let keeper = place.keeper();
        kill(keeper);
        keeper
    };
    let (result, killed) = soon(async { tokio::join!(call, killing) }).await;
    place.assert_no_process();
    assert_eq!(
        result.unwrap_err().summary,
        "the process that runs commands ended unexpectedly; the command may have run in part"
    );
    gone(killed).await;
    assert_eq!(place.text("echo again").await, "exit code 0\nagain");
    kill(place.keeper());
    assert_eq!(place.text("echo again").await, "exit code 0\nagain");
}

async fn a_killed_supervisor_is_replaced(place: Place) {
    let call = place.run("touch here; sleep 0.1; echo done");
    let killing = async {
        place.wait_for("here").await;
        let both = (place.supervisor(), place.keeper());
        kill(both.0);
        both
    };
    let (result, (supervisor, keeper)) = soon(async { tokio::join!(call, killing) }).await;
    assert_eq!(text(result), "exit code 0\ndone", "its keeper goes on");
    kill(keeper);
    assert_eq!(place.text("echo again").await, "exit code 0\nagain");
    gone(supervisor).await;
    assert_ne!(place.supervisor(), supervisor);
}

/// L02
async fn nothing_outlives_a_killed_agent(place: Place) {
    for (number, command) in [
        "touch N; sleep MARK",
        "setsid sleep MARK & touch N; sleep MARK",
        "(setsid sh -c 'trap \"\" TERM HUP; touch N; while :; do sleep MARK; done' &) ; sleep MARK",
        "trap '' TERM; exec >&- 2>&-; touch N; while :; do sleep MARK; done",
    ]
    .iter()
    .enumerate()
    {
        let name = format!("here-{number}");
        let mut agent = place.agent(&command.replace(" N;", &format!(" {name};")), false);
        place.wait_for(&name).await;
        agent.kill().unwrap();
        agent.wait().unwrap();
        place.assert_no_process();
    }
}

/// L02
async fn an_agent_killed_before_the_command_goes_runs_nothing(place: Place) {
    let mut agent = place.agent("touch sentinel; sleep MARK", true);
    agent.wait().unwrap();
    place.assert_no_process();
    let begun = Instant::now();
    while !processes(|line| line.contains("--mainstay-supervise")).is_empty() && begun.elapsed() < SOON {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(!place.has("sentinel"));
}

async fn keys_are_in_no_command(place: Place) {
    assert!(std::env::var_os("CASES_API_KEY").is_some());
    let text = place.text("env; cat /proc/$PPID/environ | tr '\\0' '\\n'").await;
    assert!(!text.contains("in no command"), "{text}");
    assert!(text.contains("GIT_EDITOR=false"));
}

/// A command finds signals, descriptors and its directory as a program that is started expects them.
async fn commands_start_afresh(place: Place) {
    let text =
        place.text("sed -n 's/^Sig\\(Blk\\|Ign\\):\t//p' /proc/self/status; ls /proc/$$/fd; true").await;
    let lines: Vec<&str> = text.lines().collect();
    // Signals 32 and 33 are the C library's own: nobody else can set them.
    let signals = |line: &str| u64::from_str_radix(line, 16).unwrap() & !(0b11 << 31);
    assert_eq!((signals(lines[1]), signals(lines[2])), (0, 0), "{text}");
    assert_eq!(lines[3..], ["0", "1", "2"], "{text}");
}
