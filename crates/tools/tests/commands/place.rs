//! A workspace with a bash of its own, and a look at the processes of this machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use mainstay_session::log::{Durability, Spill};
use mainstay_session::plan::PlanInView;
use mainstay_tools::{Bash, CallContext, JobEnd, Jobs, Supervisor, Tool, ToolError, ToolOutput};
use rustix::process::{Pid, Signal};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// Long enough for a loaded machine, far shorter than what the commands would take if nobody ended them.
pub(crate) const SOON: Duration = Duration::from_secs(8);

/// A workspace, and a bash for it.
pub(crate) struct Place {
    _dir: Option<tempfile::TempDir>,
    pub(crate) root: PathBuf,
    pub(crate) context: CallContext,
    pub(crate) bash: Bash,
    /// The ends of its jobs.
    pub(crate) ends: Arc<Mutex<Vec<JobEnd>>>,
    /// Children that were there before it.
    before: Vec<u32>,
    /// A number that only this place's commands have in their command lines.
    pub(crate) mark: String,
}

impl Place {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        Place { _dir: Some(dir), ..Place::of(root) }
    }

    pub(crate) fn of(root: PathBuf) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let ends: Arc<Mutex<Vec<JobEnd>>> = Arc::default();
        let told = ends.clone();
        let session = root.join(".session");
        // One that an agent has begun.
        std::fs::create_dir_all(&session).unwrap();
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
            on_output: Arc::new(|_| {}),
            cancel: CancellationToken::new(),
        };
        let mark = format!("9{:07}{:03}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let bash = Bash::new(Arc::new(Supervisor::new(Vec::new())));
        Place { _dir: None, root, context, bash, ends, before: children_of(std::process::id()), mark }
    }

    pub(crate) async fn call(&self, arguments: Value) -> Result<ToolOutput, ToolError> {
        self.bash.run(&arguments.to_string(), &self.context).await
    }

    /// Runs a command in which `MARK` stands for this place's number.
    pub(crate) async fn run(&self, command: &str) -> Result<ToolOutput, ToolError> {
        self.call(json!({"command": command.replace("MARK", &self.mark)})).await
    }

    /// Starts a job in which `MARK` stands for this place's number.
    pub(crate) async fn start(&self, command: &str) -> String {
        text(self.call(json!({"command": command.replace("MARK", &self.mark), "background": true})).await)
    }

    pub(crate) fn output_of(&self, job: u32) -> PathBuf {
        self.context.jobs.folder().join(format!("job-{job}.log"))
    }

    pub(crate) fn ends(&self) -> Vec<String> {
        self.ends.lock().unwrap().iter().map(|end| end.text.clone()).collect()
    }

    pub(crate) async fn run_for(&self, command: &str, timeout_ms: u64) -> Result<ToolOutput, ToolError> {
        self.call(json!({"command": command.replace("MARK", &self.mark), "timeout_ms": timeout_ms})).await
    }

    /// What the model reads of a command, whether it failed or not.
    pub(crate) async fn text(&self, command: &str) -> String {
        text(self.run(command).await)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.root.join(name).exists()
    }

    pub(crate) async fn wait_for(&self, name: &str) {
        let begun = Instant::now();
        while !self.has(name) {
            assert!(begun.elapsed() < SOON, "{name} did not appear");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// How many descriptors a process has open, this one if none is named.
    pub(crate) fn descriptors(&self, of: Option<u32>) -> usize {
        let of = of.map_or("self".to_owned(), |pid| pid.to_string());
        fs::read_dir(format!("/proc/{of}/fd")).unwrap().count()
    }

    /// Asserts that none of this place's commands is alive two seconds from now at the latest.
    pub(crate) fn assert_no_process(&self) {
        let begun = Instant::now();
        loop {
            let alive = processes_with(&self.mark);
            if alive.is_empty() {
                return;
            }
            assert!(begun.elapsed() < Duration::from_secs(2), "still running: {alive:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// What lies in the spill.
    pub(crate) fn kept(&self) -> Vec<PathBuf> {
        let names = fs::read_dir(self.context.spill.folder());
        names.map(|names| names.map(|name| name.unwrap().path()).collect()).unwrap_or_default()
    }

    /// The supervisor, which is the one child that this place has.
    pub(crate) fn supervisor(&self) -> u32 {
        let own: Vec<u32> =
            children_of(std::process::id()).into_iter().filter(|pid| !self.before.contains(pid)).collect();
        assert_eq!(own.len(), 1, "{own:?}");
        own[0]
    }

    /// The keeper of its commands, which is the one child that the supervisor has, once those of ended jobs and dropped
    /// calls are done.
    pub(crate) fn keeper(&self) -> u32 {
        let begun = Instant::now();
        loop {
            match children_of(self.supervisor()).as_slice() {
                [keeper] => return *keeper,
                others => assert!(begun.elapsed() < SOON, "{others:?}"),
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// This process run as an agent of its own.
    pub(crate) fn agent(&self, command: &str, rest: &[&str]) -> Child {
        let mut agent = Command::new(std::env::current_exe().unwrap());
        agent.arg("--as-agent").arg(&self.root).arg(command.replace("MARK", &self.mark));
        agent.args(rest).spawn().unwrap()
    }
}

pub(crate) fn text(result: Result<ToolOutput, ToolError>) -> String {
    let (summary, content) = match result {
        Ok(output) => (output.summary, output.content),
        Err(error) => (error.summary, error.content),
    };
    content.map_or(summary.clone(), |content| format!("{summary}\n{content}"))
}

/// The ids and command lines of all processes, zombies excepted, that have this in their command line or, since that can
/// be changed, in their environment.
pub(crate) fn processes_with(mark: &str) -> Vec<(u32, String)> {
    let pids =
        fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let text = |pid: u32, name: &str| {
        let bytes = fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).replace('\0', " ")
    };
    pids.filter(|pid| *pid != std::process::id())
        .map(|pid| (pid, text(pid, "cmdline"), text(pid, "environ")))
        .filter(|(_, line, environment)| line.contains(mark) || environment.contains(mark))
        .map(|(pid, line, _)| (pid, line))
        .collect()
}

pub(crate) fn children_of(parent: u32) -> Vec<u32> {
    let parent = parent.to_string();
    let is_its = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)) == Some(parent.as_str())
    };
    let all = fs::read_dir("/proc").unwrap();
    all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).filter(is_its).collect()
}

pub(crate) fn kill(pid: u32) {
    send(pid, Signal::KILL);
}

pub(crate) fn send(pid: u32, signal: Signal) {
    rustix::process::kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), signal).unwrap();
}

/// Waits until a process has ended, whether or not its new parent has asked about it yet.
pub(crate) async fn ended(pid: u32) {
    let begun = Instant::now();
    let state = || fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    while !(state().is_empty() || state().contains(") Z ")) {
        assert!(begun.elapsed() < SOON, "process {pid} does not end");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until nothing is left of a process.
pub(crate) async fn gone(pid: u32) {
    let begun = Instant::now();
    while Path::new(&format!("/proc/{pid}")).exists() {
        assert!(begun.elapsed() < SOON, "process {pid} does not end, or is not reaped");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, future).await.expect("takes too long")
}

pub(crate) fn most_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
