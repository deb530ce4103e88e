//! What commands need in the sandbox works, what is refused is said, and what was made for them goes with them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};
use std::time::{Duration, Instant, SystemTime};

use mainstay_tools::sandbox::{Protection, Sandbox, SandboxMode, Way};

use crate::bench::Bench;
use crate::may_lack;
use crate::place::{SOON, children_of, kill};

pub(crate) async fn what_holds_is_reported(way: Way) {
    let bench = Bench::new(way, SandboxMode::WorkspaceWrite);
    let report = bench.report().await;
    println!("  {report:?}");
    assert!(report.landlock > 0 || may_lack("landlock"), "the kernel has no Landlock");
    assert!(report.seccomp || may_lack("seccomp"), "the kernel takes no filter of system calls");
    if report.landlock == 0 || !report.seccomp {
        assert!(!report.is_enforced() && !report.lacking.is_empty(), "{report:?}");
        return;
    }
    assert_eq!((report.way, report.mode), (way, SandboxMode::WorkspaceWrite));
    // Without a pid namespace signals are kept in by Landlock, from its version 6 on.
    let has_all = way == Way::Namespaces || (way == Way::Bubblewrap && report.landlock >= 6);
    assert_eq!(report.lacking.is_empty(), has_all, "{report:?}");
    // There is nothing to protect yet; what comes is moved away.
    assert_eq!((report.protected, report.is_enforced()), (Protection::Held, true));
    let reading = Bench::new(way, SandboxMode::ReadOnly).report().await;
    assert_eq!((reading.protected, reading.is_enforced()), (Protection::Nothing, true));
}

pub(crate) async fn builds_and_tests_find_what_they_need(way: Way) {
    let bench = Bench::new(way, SandboxMode::WorkspaceWrite);
    let (user, group) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    for (command, expected) in [
        ("id -u; id -g", format!("{user}\n{group}")),
        ("mkdir -p a/b && echo x > a/b/c && mv a/b d && ln d/c e && cat e && rm -r a d", "x".to_owned()),
        ("echo x > $TMPDIR/f && cp $TMPDIR/f . && cat f && stat -c %a $TMPDIR", "x\n700".to_owned()),
        ("cat < $(mktemp) && echo x | tee /dev/null /dev/full 2>/dev/null", "x".to_owned()),
        (
            "echo x > /dev/shm/mainstay-$$ && cat /dev/shm/mainstay-$$ && rm /dev/shm/mainstay-$$",
            "x".to_owned(),
        ),
        ("head -c 4 /dev/urandom | wc -c; head -c 2 /dev/zero | wc -c", "4\n2".to_owned()),
        ("cat <(echo x) && cat <<< y", "x\ny".to_owned()),
        ("sleep 5 & kill $! && wait $! || echo $?", "143".to_owned()),
        ("ulimit -n > /dev/null && (ulimit -c 0) && nice -n 1 echo x", "x".to_owned()),
        ("bash -c 'trap \"echo caught\" USR1; kill -USR1 $$'", "caught".to_owned()),
    ] {
        let said = bench.run(command).await;
        let content = said.split_once('\n').map_or("", |(_, content)| content);
        assert_eq!(content, expected, "{command}\n{said}");
    }
    let loopback = bench.run("$ATTACK loopback").await;
    let pair = bench.run("$ATTACK pair").await;
    assert!(pair.contains("fine"), "{pair}");
    let trace = bench.run("$ATTACK own-child").await;
    assert!(trace.contains("fine"), "a debugger may trace what it started: {trace}");
    match way {
        Way::Namespaces => {
            assert!(loopback.contains("fine"), "{loopback}");
            let terminal = bench.run("$ATTACK terminal").await;
            assert!(terminal.contains("fine"), "{terminal}");
        }
        Way::Bubblewrap => assert!(loopback.contains("fine"), "{loopback}"),
        Way::Plain => assert!(loopback.contains("refused: "), "{loopback}"),
    }
}

/// A server that runs as a job is reached by later calls.
pub(crate) async fn calls_and_jobs_share_a_loopback(way: Way) {
    if way == Way::Plain {
        return;
    }
    let bench = Bench::new(way, SandboxMode::WorkspaceWrite);
    let program = std::env::current_exe().unwrap();
    bench.place.start(&format!("{} --attack serve port", program.display())).await;
    bench.place.wait_for("port").await;
    let said = bench.run("$ATTACK tcp 127.0.0.1:$(cat port)").await;
    assert!(said.contains("GOT IN"), "{said}");
}

pub(crate) async fn what_was_refused_is_named_with_its_setting(way: Way) {
    let bench = Bench::new(way, SandboxMode::WorkspaceWrite);
    let out = bench.outside.display().to_string();
    let allow = |path: &str| {
        format!(
            "[sandbox: writing outside the workspace is not allowed (workspace-write): {out}/{path}{}; the user can allow it \
             with sandbox.writable = [{out:?}]]",
            if out.starts_with("/tmp/") { "; $TMPDIR can be written" } else { "" }
        )
    };
    for (command, note) in [
        ("echo x > $OUT/new", Some(allow("new"))),
        ("touch $OUT/victim2; false", Some(allow("victim2"))),
        ("cat $OUT/missing", None),
        ("echo 'cannot open /etc/shadow: Permission denied'; exit 1", None),
        ("echo \"wrote $PWD/x: Permission denied\"; exit 1", None),
        ("echo x > /proc/version; false", None),
        ("echo 'Permission denied'; exit 1", None),
        ("echo \"$OUT/new: Permission denied\"", None),
    ] {
        let said = bench.run(command).await;
        let last = said.lines().last().unwrap_or_default();
        let is_as_expected = match &note {
            Some(note) => last == note,
            // As root, whom nothing else keeps from it, it may be the sandbox.
            None => {
                !last.starts_with("[sandbox: ")
                    || (command.contains("shadow") && rustix::process::geteuid().is_root())
            }
        };
        assert!(is_as_expected, "{command}\n{said}");
    }
    if way != Way::Plain {
        // Where the command stood when it said so is not known.
        let said = bench.run("cd $OUT; mkdir made").await;
        assert!(
            said.contains("[sandbox: it may have been refused to write outside of what it may"),
            "{said}"
        );
    }
    let said = bench.run("echo 'curl: (6) Could not resolve host: example.com'; exit 6").await;
    assert!(
        said.contains("which may be why it failed; the user can allow more with `--sandbox off`]"),
        "{said}"
    );
    let reading = Bench::new(way, SandboxMode::ReadOnly);
    let said = reading.run("echo x > new").await;
    assert!(said.contains("commands may write nothing but $TMPDIR (read-only): "), "{said}");
    assert!(said.contains("`--sandbox workspace-write`]"), "{said}");
}

/// However the session ends.
pub(crate) async fn the_temporary_directory_ends_with_the_session(way: Way) {
    let bench = Bench::new(way, SandboxMode::WorkspaceWrite);
    let said =
        bench.run("mkdir -p $TMPDIR/a/b && touch $TMPDIR/a/b/c && chmod 0 $TMPDIR/a/b && echo $TMPDIR").await;
    let tmp = PathBuf::from(said.lines().last().unwrap());
    assert!(tmp.is_dir(), "{said}");
    drop(bench);
    gone(&tmp);
    if way != Way::Namespaces {
        return;
    }
    let (mut agent, tmp) = agent_with_command();
    kill(agent.id());
    agent.wait().unwrap();
    gone(&tmp);
    // Nobody is left who could remove it, so the next session does; not as long as it may be somebody's.
    let (mut agent, tmp) = agent_with_command();
    let supervisor = children_of(agent.id());
    let keepers = children_of(supervisor[0]);
    supervisor.iter().chain(&keepers).copied().for_each(kill);
    let age =
        || fs::File::open(&tmp).unwrap().set_modified(SystemTime::now() - Duration::from_secs(120)).unwrap();
    age();
    Bench::new(way, SandboxMode::WorkspaceWrite).report().await;
    assert!(tmp.is_dir(), "the agent holds it");
    kill(agent.id());
    agent.wait().unwrap();
    age();
    Bench::new(way, SandboxMode::WorkspaceWrite).report().await;
    gone(&tmp);
}

/// A start that nobody waits for any more.
pub(crate) async fn a_cancelled_start_leaves_no_directory(way: Way) {
    let bench = Bench::new(way, SandboxMode::WorkspaceWrite);
    let root = bench.place.root.clone();
    let program = bench.top().join("slow");
    fs::write(&program, format!("#!/bin/sh\necho $TMPDIR > {}/where\nexec sleep 3\n", root.display()))
        .unwrap();
    fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let sandbox = Sandbox { ways: vec![way], ..Sandbox::new(SandboxMode::WorkspaceWrite, root.clone()) };
    let slow = mainstay_tools::Supervisor::of_program(program, Vec::new()).within(Some(sandbox));
    let where_it_is = async {
        loop {
            match fs::read_to_string(root.join("where")) {
                Ok(text) if text.ends_with('\n') => break PathBuf::from(text.trim()),
                _ => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    };
    let tmp = tokio::select! {
        report = slow.report() => panic!("{report:?}"),
        tmp = where_it_is => tmp,
    };
    assert!(tmp.to_string_lossy().contains("mainstay-commands-"), "{tmp:?}");
    gone(&tmp);
}

/// An agent whose command does not end, and the command's temporary directory.
fn agent_with_command() -> (Child, PathBuf) {
    let dir = tempfile::tempdir().unwrap().keep();
    let root = dir.canonicalize().unwrap();
    let agent = spawn_agent(&root, Way::Namespaces, "echo $TMPDIR > where; exec sleep 60");
    let begun = Instant::now();
    let tmp = loop {
        assert!(begun.elapsed() < SOON);
        match fs::read_to_string(root.join("where")) {
            Ok(text) if text.ends_with('\n') => break PathBuf::from(text.trim()),
            _ => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    assert!(tmp.is_dir());
    fs::remove_dir_all(root).unwrap();
    (agent, tmp)
}

fn gone(path: &Path) {
    let begun = Instant::now();
    while path.exists() {
        assert!(begun.elapsed() < SOON, "{} is still there", path.display());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A process that is an agent, runs one command in a workspace, and says there by a file when that has `ended`.
pub(crate) fn spawn_agent(workspace: &Path, way: Way, command: &str) -> Child {
    let way = match way {
        Way::Namespaces => "namespaces",
        Way::Bubblewrap => "bubblewrap",
        Way::Plain => "plain",
    };
    let mut agent = Command::new(std::env::current_exe().unwrap());
    agent.arg("--as-agent").arg(workspace).args([way, command]).spawn().unwrap()
}

/// What such a process does. It goes on until others kill it.
pub(crate) fn agent(workspace: &Path, way: Way, command: &str) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let sandbox =
        Sandbox { ways: vec![way], ..Sandbox::new(SandboxMode::WorkspaceWrite, workspace.to_owned()) };
    let mut place = crate::place::Place::of(workspace.to_owned());
    let supervisor = mainstay_tools::Supervisor::new(Vec::new()).within(Some(sandbox));
    place.bash = mainstay_tools::Bash::new(std::sync::Arc::new(supervisor));
    runtime.block_on(async { place.run(command).await }).ok();
    fs::write(workspace.join("ended"), "").ok();
    std::thread::sleep(Duration::from_secs(60));
    ExitCode::SUCCESS
}
