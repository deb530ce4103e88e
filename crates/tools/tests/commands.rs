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
    Bash, CallContext, JobEnd, Jobs, StartedProcess, Supervisor, Tool, ToolError, ToolOutput, is_running,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// Long enough for a loaded machine, far shorter than what the commands would take if nobody ended them.
const SOON: Duration = Duration::from_secs(8);

fn main() -> ExitCode {
    mainstay_tools::supervise_if_asked();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["--as-agent", workspace, command, rest @ ..] => agent(workspace, command, rest),
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
fn agent(workspace: &str, command: &str, rest: &[&str]) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut place = Place::of(PathBuf::from(workspace));
    if rest.contains(&"dies") {
        place.context.intent = Arc::new(|_| {
            let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
            Ok(())
        });
    }
    runtime.block_on(async {
        if rest.contains(&"background") {
            place.start(command).await;
            std::future::pending::<()>().await;
        }
        let _ = place.run(command).await;
    });
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
    timeouts_are_kept_to_and_said,
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
    a_job_runs_on_and_its_end_is_told,
    jobs_are_listed_waited_for_and_stopped,
    a_job_ends_with_all_that_it_started,
    jobs_end_with_their_session,
    a_job_that_floods_is_bounded,
    what_is_no_job_leaves_nothing,
    keys_are_in_no_command,
    commands_start_afresh,
];

/// A workspace, and a bash for it.
struct Place {
    _dir: Option<tempfile::TempDir>,
    root: PathBuf,
    context: CallContext,
    bash: Bash,
    /// The ends of its jobs.
    ends: Arc<Mutex<Vec<JobEnd>>>,
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
        let ends: Arc<Mutex<Vec<JobEnd>>> = Arc::default();
        let told = ends.clone();
        let session = root.join(".session");
        let on_end = move |end| told.lock().unwrap().push(end);
        let context = CallContext {
            workspace: root.clone(),
            readable: Vec::new(),
            plan: PlanInView::default(),
            seen: Arc::new(|_: &Path| None),
            intent: Arc::new(|_| Ok(())),
            jobs: Arc::new(Jobs::new(session.join("jobs"), 0, Arc::new(on_end))),
            spill: Spill::of_session(&session, Durability::Relaxed),
            takes_images: false,
            max_result_bytes: 50 << 10,
            cancel: CancellationToken::new(),
        };
        let mark = format!("9{:07}{:03}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let bash = Bash::new(Arc::new(Supervisor::new(Vec::new())));
        Place { _dir: None, root, context, bash, ends, before: children_of(std::process::id()), mark }
    }

    async fn call(&self, arguments: Value) -> Result<ToolOutput, ToolError> {
        self.bash.run(&arguments.to_string(), &self.context).await
    }

    /// Runs a command in which `MARK` stands for this place's number.
    async fn run(&self, command: &str) -> Result<ToolOutput, ToolError> {
        self.call(json!({"command": command.replace("MARK", &self.mark)})).await
    }

    /// Starts a job in which `MARK` stands for this place's number.
    async fn start(&self, command: &str) -> String {
        text(self.call(json!({"command": command.replace("MARK", &self.mark), "background": true})).await)
    }

    fn output_of(&self, job: u32) -> PathBuf {
        self.context.jobs.folder().join(format!("job-{job}.log"))
    }

    fn ends(&self) -> Vec<String> {
        self.ends.lock().unwrap().iter().map(|end| end.text.clone()).collect()
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

    /// What lies in the spill.
    fn kept(&self) -> Vec<PathBuf> {
        let names = fs::read_dir(self.context.spill.folder());
        names.map(|names| names.map(|name| name.unwrap().path()).collect()).unwrap_or_default()
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
    fn agent(&self, command: &str, rest: &[&str]) -> Child {
        let mut agent = Command::new(std::env::current_exe().unwrap());
        agent.arg("--as-agent").arg(&self.root).arg(command.replace("MARK", &self.mark));
        agent.args(rest).spawn().unwrap()
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
        assert!(
            text.contains(
                "that the command left running ended with it; `background: true` keeps a command running]"
            ),
            "{text}"
        );
        place.assert_no_process();
    }
    let text = place.text("sleep MARK & echo done").await;
    assert_eq!(
        text,
        "exit code 0\ndone\n[1 process that the command left running ended with it; `background: true` keeps a command running]"
    );
    let text = place.text("sleep MARK & sleep MARK & :").await;
    assert_eq!(
        text,
        "exit code 0\n[2 processes that the command left running ended with it; `background: true` keeps a command running]"
    );
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
            error.summary, "timed out after 300 ms and was ended; timeout_ms is in milliseconds; raise it",
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
    let kept = place.kept();
    assert!(content.contains("bytes are left out here, from line"), "counts what is missing");
    assert!(content.contains(&format!("The first 64 MiB of it are in {}", kept[0].display())));
    assert_eq!((kept.len(), fs::metadata(&kept[0]).unwrap().len()), (1, 64 << 20));
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

/// F10: the units are tried where they are read.
async fn timeouts_are_kept_to_and_said(place: Place) {
    let call = async |arguments: Value| {
        let mut all = json!({"command": "echo x; sleep 0.3"});
        all.as_object_mut().unwrap().extend(arguments.as_object().unwrap().clone());
        text(place.call(all).await)
    };
    assert!(call(json!({"timeout_ms": 50})).await.starts_with("timed out after 50 ms"));
    let cut = "[timeout_ms was cut from 900000 to 600000, the longest allowed; `background` has no limit]";
    assert_eq!(call(json!({"timeout_ms": 900_000})).await, format!("exit code 0\nx\n{cut}"));
    let seconds =
        "[(Read `timeout` 5 as `timeout_ms` 5000 (without a unit, in seconds since it is below 1000).)]";
    assert_eq!(call(json!({"timeout": 5})).await, format!("exit code 0\nx\n{seconds}"));
    let text = call(json!({"timeout_ms": 0})).await;
    assert!(text.contains("`timeout_ms`: expected a whole number from 1"), "{text}");
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
    let (waited, process) = seen.lock().unwrap().take().unwrap();
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
        let mut agent = place.agent(&command.replace(" N;", &format!(" {name};")), &[]);
        place.wait_for(&name).await;
        agent.kill().unwrap();
        agent.wait().unwrap();
        place.assert_no_process();
    }
}

/// L02
async fn an_agent_killed_before_the_command_goes_runs_nothing(place: Place) {
    let mut agent = place.agent("touch sentinel; sleep MARK", &["dies"]);
    agent.wait().unwrap();
    place.assert_no_process();
    let begun = Instant::now();
    while !processes(|line| line.contains("--mainstay-supervise")).is_empty() && begun.elapsed() < SOON {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(!place.has("sentinel"));
}

/// A text without what differs from run to run: process ids and times.
fn steady(text: &str) -> String {
    let mut steady = String::new();
    let mut words = text.split_inclusive(' ').peekable();
    while let Some(word) = words.next() {
        let is_number = |word: &str| word.trim().trim_end_matches(['.', ',', ')']).parse::<f64>().is_ok();
        let is_time = is_number(word) && words.peek().is_some_and(|unit| unit.starts_with('s'));
        let is_pid = is_number(word) && steady.ends_with("(process ");
        steady.push_str(if is_time {
            "N "
        } else if is_pid {
            "N) "
        } else {
            word
        });
    }
    steady.trim_end().to_owned()
}

/// A job runs beside other commands, which neither wait for it nor end it.
async fn a_job_runs_on_and_its_end_is_told(place: Place) {
    let intents: Arc<Mutex<Vec<StartedProcess>>> = Arc::default();
    let mut place = place;
    let logged = intents.clone();
    place.context.intent = Arc::new(move |process| {
        logged.lock().unwrap().push(process);
        Ok(())
    });
    let output = place.output_of(1).display().to_string();
    let started = soon(
        place.start(r"printf 'a\033[31mb\xff\n'; while [ ! -e go ]; do sleep 0.01; done; echo last; exit 3"),
    )
    .await;
    assert_eq!(
        steady(&started),
        format!("job-1 started (process N) Its output goes to {output}, which you can read. You will be told when it ends.")
            .replace("N) Its", &format!("{})\nIts", intents.lock().unwrap()[0].pid))
    );
    let process = intents.lock().unwrap()[0].clone();
    let job = process.job.clone().unwrap();
    assert_eq!(job.number, 1);
    assert_eq!(soon(place.text("echo beside")).await, "exit code 0\nbeside");
    assert!(is_running(process.pid, process.started));
    assert_eq!(place.context.jobs.running(), std::slice::from_ref(&job));
    assert!(place.ends().is_empty());
    soon(place.text("touch go")).await;
    let waited = soon(place.text("jobs wait job-1")).await;
    assert_eq!(steady(&waited), "job-1 ended after N s with exit code 3");
    let end = place.ends.lock().unwrap().pop().unwrap();
    assert_eq!((end.job, end.is_news), (job.clone(), true));
    assert_eq!(
        steady(&end.text),
        format!(
            "job-1 (`{}`) ended after N s with exit code 3. What it printed (11 bytes) is in {output}. The last \
             lines:\n| ab\u{fffd}\n| last",
            job.command
        )
    );
    assert_eq!(fs::read_to_string(output).unwrap(), "ab\u{fffd}\nlast\n");
    assert!(place.context.jobs.running().is_empty());
    place.assert_no_process();
}

async fn jobs_are_listed_waited_for_and_stopped(place: Place) {
    assert_eq!(place.text("jobs").await, "there are no background jobs; `background: true` starts one");
    assert_eq!(
        place.text("jobs stop 1").await,
        "there is no job-1 in this run of the session; there are none"
    );
    soon(place.start("echo one; sleep MARK")).await;
    soon(place.start("true")).await;
    soon(place.text("wait %2")).await;
    let still = place.call(json!({"command": "jobs wait 1", "timeout_ms": 20})).await;
    assert_eq!(text(still), "job-1 is still running after 20 ms");
    let begun = Instant::now();
    while fs::metadata(place.output_of(1)).unwrap().len() == 0 {
        assert!(begun.elapsed() < SOON);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let expected = format!(
        "1 job is running, 1 ended\njob-1 (`echo one; sleep {}`) has been running for N s (process N) What it printed (4 \
         bytes) is in {}. The last lines:\n| one\njob-2 (`true`) ended after N s with exit code 0. It has printed nothing.",
        place.mark,
        place.output_of(1).display()
    );
    assert_eq!(steady(&place.text("jobs").await), expected);
    let stopped = soon(place.text("jobs stop job-1")).await;
    assert_eq!(steady(&stopped), "job-1 was stopped after N s");
    place.assert_no_process();
    assert_eq!(soon(place.text("jobs stop job-1")).await, stopped, "once more changes nothing");
    let news: Vec<bool> = place.ends.lock().unwrap().iter().map(|end| end.is_news).collect();
    assert_eq!(news, [true, false]);
    assert_eq!(
        place.text("kill %7").await,
        "there is no job-7 in this run of the session; there are job-1, job-2"
    );
    place.context.cancel.cancel();
    soon(place.start("sleep MARK")).await;
    place.assert_no_process();
}

/// A stubborn tree ends when its job is stopped, and what a job's shell leaves running ends with the shell.
async fn a_job_ends_with_all_that_it_started(place: Place) {
    soon(place.start("trap '' TERM HUP INT; (setsid sh -c 'trap \"\" TERM; while :; do sleep MARK; done' &); touch here; while :; do sleep MARK; done")).await;
    place.wait_for("here").await;
    soon(place.text("jobs stop 1")).await;
    place.assert_no_process();
    soon(place.start("setsid sleep MARK & echo done")).await;
    soon(place.text("jobs wait 2")).await;
    assert!(place.ends()[1].contains("ended with it: a job is as long as its shell."), "{}", place.ends()[1]);
    place.assert_no_process();
}

/// L02: whether their owner is dropped or the session's process is killed.
async fn jobs_end_with_their_session(mut place: Place) {
    soon(place.start("(setsid sleep MARK &); touch here; sleep MARK")).await;
    place.wait_for("here").await;
    place.context.jobs = Arc::new(Jobs::new(place.root.join("jobs"), 1, Arc::new(|_| ())));
    // No task is woken while this waits: the job ends nevertheless.
    place.assert_no_process();
    tokio::task::yield_now().await;
    assert!(place.ends().is_empty(), "nobody is there to be told");
    assert_eq!(place.text("echo again").await, "exit code 0\nagain");
    let mut agent = place.agent("(setsid sleep MARK &); touch there; sleep MARK", &["background"]);
    place.wait_for("there").await;
    agent.kill().unwrap();
    agent.wait().unwrap();
    place.assert_no_process();
}

/// F05
async fn a_job_that_floods_is_bounded(place: Place) {
    let before = most_memory();
    soon(place.start("yes | head -c 100M; echo end")).await;
    place.text("jobs wait 1").await;
    assert_eq!(fs::metadata(place.output_of(1)).unwrap().len(), 64 << 20);
    let end = place.ends().pop().unwrap();
    assert!(
        end.contains("The first 64 MiB of what it printed are in") && end.ends_with("\n| y\n| end"),
        "{end}"
    );
    assert!(most_memory() - before < 16 << 10, "from {before} to {} KB", most_memory());
}

/// No job, no file: what is refused, cannot be started or is one too many.
async fn what_is_no_job_leaves_nothing(mut place: Place) {
    let logs = place.context.intent.clone();
    place.context.intent = Arc::new(|_| Err("the disk is full".to_owned()));
    assert_eq!(
        place.start("touch sentinel").await,
        "the command was not run, since its intent could not be logged: the disk is full"
    );
    place.context.intent = logs;
    assert!(place.context.jobs.running().is_empty());
    assert_eq!(fs::read_dir(place.context.jobs.folder()).unwrap().count(), 0);
    for _ in 0..16 {
        assert!(soon(place.start("sleep MARK")).await.contains(" started (process "));
    }
    assert_eq!(
        place.start("touch sentinel").await,
        "the job was not started: 16 jobs are running; stop one first (`jobs` lists them)"
    );
    assert!(!place.has("sentinel"));
    place.context.jobs = Arc::new(Jobs::new(place.context.jobs.folder().to_owned(), 0, Arc::new(|_| ())));
    place.assert_no_process();
    // The numbers of another run of the session are not given again.
    assert!(soon(place.start("true")).await.starts_with("job-1 started"), "the first number left a gap");
    assert!(soon(place.start("true")).await.starts_with("job-18 started"));
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
