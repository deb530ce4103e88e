//! What changes outside while a session runs: protected places are replaced, come to be and vanish, programs begin to
//! listen on sockets, and the process that runs commands is lost. What commands make of it meanwhile is refused, or said.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::Instant;

use mainstay_tools::sandbox::{Protection, Sandbox, SandboxMode, Way};
use mainstay_tools::{Bash, Supervisor};

use crate::bench::{Bench, tree};
use crate::escapes::git;
use crate::place::{SOON, children_of, ended, gone, kill};
use crate::work::spawn_agent;

fn repository(way: Way) -> Bench {
    Bench::with(|root| {
        git(root, &["init", "-q", "--template="]);
        for folder in [".git/hooks", ".git/info", "deploy"] {
            fs::create_dir(root.join(folder)).unwrap();
        }
        fs::write(root.join("deploy/key"), "kept").unwrap();
        let protected = vec!["deploy/key".to_owned()];
        Sandbox { ways: vec![way], protected, ..Sandbox::new(SandboxMode::WorkspaceWrite, root.to_owned()) }
    })
}

/// Writes a file as most programs do: a new one takes the place of the old.
fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(new, path).unwrap();
}

/// A mount is lost when what it covers is replaced; the next command meets a new one.
pub(crate) async fn what_is_replaced_outside_stays_protected(way: Way) {
    if way == Way::Plain {
        return;
    }
    let bench = repository(way);
    let root = bench.place.root.clone();
    assert_eq!(bench.run("echo fine").await, "exit code 0\nfine");
    git(&root, &["config", "user.name", "outside"]);
    replace(&root.join("deploy/key"), "new");
    fs::rename(root.join(".git/hooks"), root.join(".git/hooks-before")).unwrap();
    fs::create_dir(root.join(".git/hooks")).unwrap();
    let guarded = [".git/config", "deploy/key", ".git/hooks"];
    let now = || guarded.map(|name| tree(&root.join(name)));
    let before = now();
    for attack in [
        "git config core.fsmonitor ./evil; echo '[core]' >> .git/config; rm -f .git/config; mv .git/config c",
        "echo x > deploy/key; rm -f deploy/key; mv deploy d; mkdir deploy; echo x > deploy/key",
        "echo x > .git/hooks/pre-commit; rmdir .git/hooks; mv .git/hooks h",
    ] {
        let said = bench.run(attack).await;
        assert_eq!(now(), before, "{attack}\n{said}");
    }
    // The whole repository is made anew, and another protected place is gone.
    fs::remove_dir_all(root.join(".git")).unwrap();
    git(&root, &["init", "-q", "--template="]);
    fs::create_dir(root.join(".git/hooks")).unwrap();
    fs::remove_dir_all(root.join("deploy")).unwrap();
    let before = tree(&root.join(".git/config"));
    let said = bench
        .run("mv .git g; mkdir -p .git; echo x > .git/config; echo x > .git/hooks/x; mkdir deploy; echo x > deploy/key")
        .await;
    assert_eq!(tree(&root.join(".git/config")), before, "{said}");
    assert!(!root.join(".git/hooks/x").exists(), "{said}");
    assert!(said.contains("deploy/key is protected; what the command made there was moved to"), "{said}");
}

/// A mount that is lost is made again for a job that runs, too.
pub(crate) async fn a_job_meets_the_new_mount(way: Way) {
    if way == Way::Plain {
        return;
    }
    let bench = repository(way);
    let root = bench.place.root.clone();
    bench.place.start("until [ -e go ]; do sleep 0.02; done; echo x >> .git/config; echo x > done").await;
    replace(&root.join(".git/config"), "# outside\n");
    let said = bench.run("touch go").await;
    if way == Way::Bubblewrap && !said.starts_with("exit code 0") {
        // From within, only root can mount; with a new process it can be done.
        assert!(said.contains(".git/config was replaced and cannot be protected again"), "{said}");
        assert!(said.contains("stop the background jobs, and call it again"), "{said}");
        return;
    }
    assert!(said.starts_with("exit code 0"), "{said}");
    bench.place.wait_for("done").await;
    assert_eq!(fs::read_to_string(root.join(".git/config")).unwrap(), "# outside\n");
}

/// What the user makes where nothing was is the user's, and protected from then on.
pub(crate) async fn what_comes_to_be_outside_is_kept(way: Way) {
    let bench = Bench::with(|root| Sandbox {
        ways: vec![way],
        ..Sandbox::new(SandboxMode::WorkspaceWrite, root.to_owned())
    });
    assert!(bench.report().await.is_enforced());
    assert_eq!(bench.run("echo fine").await, "exit code 0\nfine");
    fs::create_dir(bench.place.root.join(".mainstay")).unwrap();
    fs::write(bench.place.root.join(".mainstay/config.toml"), "kept").unwrap();
    let before = tree(&bench.place.root.join(".mainstay"));
    let attack = "echo x > .mainstay/config.toml; rm -rf .mainstay; mv .mainstay m; echo done";
    let said = bench.run(attack).await;
    assert!(bench.place.has(".mainstay/config.toml"), "{said}");
    assert_eq!(tree(&bench.place.root.join(".mainstay")), before, "{said}");
    if way == Way::Plain {
        // It was allowed since nothing was to be protected; now something is.
        assert!(said.contains("its sandbox does not hold them as the one did"), "{said}");
        assert_eq!(bench.report().await.protected, Protection::Open);
        assert_eq!(bench.run("echo fine").await, "exit code 0\nfine");
    } else {
        assert!(said.contains("done"), "{said}");
    }
}

/// What was consented to is not run under a sandbox that holds less.
pub(crate) async fn a_weaker_sandbox_is_asked_about(way: Way) {
    if way != Way::Namespaces {
        return;
    }
    let mut bench = repository(way);
    let top = bench.top().to_owned();
    let program = top.join("supervisor");
    let test = std::env::current_exe().unwrap();
    let script = format!(
        "#!/bin/sh\n[ -e {top}/weak ] && exec {test} --without unshare,clone-user \"$@\"\nexec {test} \"$@\"\n",
        top = top.display(),
        test = test.display()
    );
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let sandbox = Sandbox {
        ways: vec![Way::Namespaces, Way::Plain],
        ..Sandbox::new(SandboxMode::WorkspaceWrite, bench.place.root.clone())
    };
    bench.supervisor = Arc::new(Supervisor::of_program(program, Vec::new()).within(Some(sandbox)));
    bench.place.bash = Bash::new(bench.supervisor.clone());
    assert!(bench.report().await.is_enforced());
    assert_eq!(bench.run("echo fine").await, "exit code 0\nfine");
    fs::write(top.join("weak"), "").unwrap();
    for pid in [bench.place.keeper(), bench.place.supervisor()] {
        kill(pid);
        gone_or_ended(pid).await;
    }
    let said = bench.run("touch ran").await;
    assert!(said.contains("Call it again; the user is asked then") && !bench.place.has("ran"), "{said}");
    // Whoever asks now is told the truth, and what is allowed then runs.
    assert!(!bench.report().await.is_enforced());
    assert_eq!(bench.run("touch ran").await, "exit code 0, no output");
}

/// A kernel that does not say what is a mount: what is protected could not be looked after, so mounts are not relied on.
pub(crate) async fn where_mounts_are_not_told_none_are_made(way: Way) {
    if way != Way::Namespaces {
        return;
    }
    let mut bench = Bench::new(way, SandboxMode::WorkspaceWrite);
    let program = bench.top().join("supervisor");
    let test = std::env::current_exe().unwrap();
    fs::write(&program, format!("#!/bin/sh\nexec {} --without statx \"$@\"\n", test.display())).unwrap();
    fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let sandbox = Sandbox {
        ways: vec![Way::Namespaces, Way::Plain],
        ..Sandbox::new(SandboxMode::WorkspaceWrite, bench.place.root.clone())
    };
    bench.supervisor = Arc::new(Supervisor::of_program(program, Vec::new()).within(Some(sandbox)));
    bench.place.bash = Bash::new(bench.supervisor.clone());
    let report = bench.report().await;
    assert_eq!(report.way, Way::Plain);
    assert!(report.lacking[0].contains("the kernel does not say what is a mount"), "{report:?}");
    assert_eq!(bench.run("echo fine").await, "exit code 0\nfine");
}

/// Where commands may write the only git there is, nobody asks it, and what it would say does not count as held.
pub(crate) async fn a_git_that_commands_may_write_is_not_asked(way: Way) {
    if way == Way::Bubblewrap {
        // It lies there too.
        return;
    }
    let path = std::env::var_os("PATH").unwrap();
    let all = std::env::split_paths(&path).filter_map(|folder| folder.join("git").canonicalize().ok());
    let writable: Vec<_> = all.map(|git| git.parent().unwrap().to_owned()).collect();
    let bench = Bench::with(|root| {
        git(root, &["init", "-q", "--template="]);
        Sandbox { ways: vec![way], writable, ..Sandbox::new(SandboxMode::WorkspaceWrite, root.to_owned()) }
    });
    let report = bench.report().await;
    assert_eq!((report.protected, report.is_enforced()), (Protection::Open, false));
    assert!(report.lacking.iter().any(|lack| lack.contains(": commands may write ")), "{report:?}");
}

async fn gone_or_ended(pid: u32) {
    if children_of(std::process::id()).contains(&pid) {
        crate::place::ended(pid).await
    } else {
        gone(pid).await
    }
}

/// Programs that listen with a relative name, or whose socket was renamed or linked before the session.
pub(crate) async fn sockets_are_hidden_whatever_their_names_are(way: Way) {
    if way == Way::Plain {
        return;
    }
    let mut listeners = Vec::new();
    let bench = Bench::with(|root| {
        let deep = root.join("deep/er");
        fs::create_dir_all(&deep).unwrap();
        listeners.push(listen(&deep, "relative"));
        listeners.push(listen(root, "./dotted"));
        for name in ["renamed-before", "linked-before", "moved-before"] {
            listeners.push(listen(root, root.join(name).to_str().unwrap()));
        }
        fs::rename(root.join("renamed-before"), root.join("renamed")).unwrap();
        fs::hard_link(root.join("linked-before"), root.join("linked")).unwrap();
        fs::rename(root.join("moved-before"), deep.join("moved")).unwrap();
        Sandbox { ways: vec![way], ..Sandbox::new(SandboxMode::WorkspaceWrite, root.to_owned()) }
    });
    for name in ["deep/er/relative", "dotted", "renamed", "linked-before", "linked", "deep/er/moved"] {
        let said = bench.run(&format!("$ATTACK socket {name}")).await;
        assert!(said.contains("refused: "), "{name}\n{said}");
        assert!(std::os::unix::net::UnixStream::connect(bench.place.root.join(name)).is_ok(), "{name}");
    }
}

/// Programs that are started, or started anew, while the session runs.
pub(crate) async fn sockets_that_come_later_are_hidden(way: Way) {
    if way == Way::Plain {
        return;
    }
    let mut first = None;
    let bench = Bench::with(|root| {
        first = Some(UnixListener::bind(root.join("again")).unwrap());
        Sandbox { ways: vec![way], ..Sandbox::new(SandboxMode::WorkspaceWrite, root.to_owned()) }
    });
    let root = bench.place.root.clone();
    let reach = async |name: &str| bench.run(&format!("$ATTACK socket {name}")).await;
    assert!(reach("again").await.contains("refused: "));
    drop(first);
    fs::remove_file(root.join("again")).unwrap();
    let _again = UnixListener::bind(root.join("again")).unwrap();
    let _new = UnixListener::bind(root.join("new")).unwrap();
    let _relative = listen(&root, "later");
    for name in ["again", "new", "later"] {
        let said = reach(name).await;
        assert!(said.contains("refused: "), "{name}\n{said}");
    }
    // Those of commands are met by commands.
    let program = std::env::current_exe().unwrap();
    bench.place.start(&format!("{} --attack listen own", program.display())).await;
    bench.place.wait_for("own").await;
    let said = reach("own").await;
    assert!(said.contains("GOT IN"), "{said}");
}

/// A program that listens on a socket of this name, as seen from a directory.
fn listen(folder: &Path, name: &str) -> Listener {
    let mut program = Command::new(std::env::current_exe().unwrap());
    let child = program.args(["--attack", "listen", name]).current_dir(folder).spawn().unwrap();
    let begun = Instant::now();
    // It is there before anybody listens on it.
    while std::os::unix::net::UnixStream::connect(folder.join(name)).is_err() {
        assert!(begun.elapsed() < SOON, "{name} did not appear");
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    Listener(child)
}

/// A program that ends with this.
struct Listener(Child);

impl Drop for Listener {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// What must not come to be and cannot be moved away is said; what its directory's mode or a link hides is moved.
pub(crate) async fn what_cannot_be_moved_aside_is_said(way: Way) {
    let bench = Bench::with(|root| {
        let protected = vec!["not/there".to_owned()];
        Sandbox { ways: vec![way], protected, ..Sandbox::new(SandboxMode::WorkspaceWrite, root.to_owned()) }
    });
    let root = &bench.place.root;
    let said = bench.run("mkdir not; echo x > not/there; chmod 555 not").await;
    assert!(said.contains("not/there.refused-1; the user should look at it"), "{said}");
    assert_eq!(fs::metadata(root.join("not")).unwrap().permissions().mode() & 0o777, 0o555);
    let said = bench.run("chmod 755 not; mkdir d; rm -rf not; ln -s d not; echo x > d/there").await;
    assert!(said.contains("not/there is protected; what the command made there was moved to"), "{said}");
    assert!(root.join("not.refused-1").is_symlink() && !root.join("not").exists(), "{said}");
    let said = bench.run("for n in $(seq 999); do : > .mainstay.refused-$n; done; mkdir .mainstay").await;
    assert!(
        said.starts_with("exit code 0; it made a protected place, which could not be moved aside\n"),
        "{said}"
    );
    assert!(
        said.contains(
            ".mainstay is protected; what the command made there could not be moved away (the names"
        ),
        "{said}"
    );
    // Once a look has found nothing there, what comes to be is the user's again.
    fs::remove_dir(root.join(".mainstay")).unwrap();
    assert_eq!(bench.run("rm .mainstay.refused-1; echo fine").await, "exit code 0\nfine");
    fs::create_dir(root.join(".mainstay")).unwrap();
    let said = bench.run("true").await;
    assert!(bench.place.has(".mainstay") && !bench.place.has(".mainstay.refused-1"), "{said}");
}

/// A program that a command has git run when the user goes on with a rebase.
pub(crate) async fn nothing_is_planted_in_what_git_goes_on_with(way: Way) {
    let bench = Bench::with(|root| {
        git(root, &["init", "-q", "--template="]);
        git(root, &["commit", "-q", "--allow-empty", "-m", "first"]);
        git(root, &["worktree", "add", "-q", root.with_file_name("linked").to_str().unwrap()]);
        fs::create_dir(root.join(".git/rebase-merge")).unwrap();
        fs::write(root.join(".git/rebase-merge/git-rebase-todo"), "exec make\npick 1 x\n").unwrap();
        Sandbox { ways: vec![way], ..Sandbox::new(SandboxMode::WorkspaceWrite, root.to_owned()) }
    });
    let todo = bench.place.root.join(".git/rebase-merge/git-rebase-todo");
    assert_eq!(
        bench.run("echo 'pick 2 y' >> .git/rebase-merge/git-rebase-todo").await,
        "exit code 0, no output"
    );
    assert_eq!(fs::read_to_string(&todo).unwrap(), "exec make\npick 1 x\npick 2 y\n");
    let said = bench.run("echo ' x ./evil' >> .git/rebase-merge/git-rebase-todo").await;
    assert!(
        said.contains("git-rebase-todo is protected; what the command made there was moved to"),
        "{said}"
    );
    assert!(!todo.exists());
    let said = bench
        .run("mkdir -p .git/sequencer; printf '[options]\\nstrategy = ./evil\\n' > .git/sequencer/opts")
        .await;
    assert!(said.contains(".git/sequencer/opts is protected"), "{said}");
    let said = bench.run("mkfifo .git/sequencer/opts").await;
    assert!(said.contains(".git/sequencer/opts is protected"), "{said}");
    // Where git writes through a link.
    let links = [
        "COMMIT_EDITMSG",
        "logs/HEAD",
        "logs/refs/heads/x",
        "rebase-merge/done",
        "rebase-apply/patch",
        "sequencer/todo",
        "rr-cache/id/preimage",
        "lost-found/other/id",
        "objects/ab",
        "objects/info/commit-graph",
        "objects/pack/multi-pack-index",
        "worktrees/linked/rebase-merge/done",
    ];
    let command = "for l in LINKS; do mkdir -p $(dirname .git/$l); ln -sf $OUT/victim .git/$l; done";
    let said = bench.run(&command.replace("LINKS", &links.join(" "))).await;
    for name in links {
        let place = bench.place.root.join(".git").join(name);
        assert!(said.contains(&format!("{} is protected", place.display())) && !place.is_symlink(), "{said}");
    }
    // A repository where git would look for that of a submodule.
    let modules = ["modules/later", "modules/deep/er", "worktrees/linked/modules/later"];
    let said =
        bench.run(&format!("for m in {}; do git init -q --bare .git/$m; done", modules.join(" "))).await;
    for name in modules {
        let place = bench.place.root.join(".git").join(name);
        assert!(said.contains(&format!("{} is protected", place.display())) && !place.exists(), "{said}");
    }
    // What lies below another such thing, or behind it, goes with it.
    for (command, name) in [
        ("git init -q --bare .git/modules/whole && ln -s x .git/modules/whole/link", "modules/whole"),
        ("touch $TMPDIR/attributes $TMPDIR/exclude; ln -s $TMPDIR .git/info", "info"),
    ] {
        let said = bench.run(command).await;
        let place = bench.place.root.join(".git").join(name);
        assert!(
            said.starts_with("exit code 0; it made a protected place, which was moved aside\n"),
            "{said}"
        );
        assert!(place.with_file_name(format!("{}.refused-1", place.file_name().unwrap().display())).exists());
        assert_eq!(said.matches("[sandbox: ").count(), 1, "{said}");
    }
    let said = bench
        .run("for n in $(seq 201); do mkdir .git/modules/$n; done; git init -q --bare .git/modules/z")
        .await;
    assert!(
        said.starts_with("exit code 0; a protected place cannot be looked at as a whole since\n"),
        "{said}"
    );
    let place = bench.place.root.join(".git/modules");
    assert!(said.contains(&format!("{} cannot be looked at as a whole any more", place.display())), "{said}");
    assert!(said.contains("look for links and new repositories in it") && !said.contains("remove"), "{said}");
}

/// What a command hides by a mode is found nevertheless, or said.
pub(crate) async fn nothing_is_hidden_by_a_mode(way: Way) {
    let bench = Bench::with(|root| {
        git(root, &["init", "-q", "--template="]);
        Sandbox { ways: vec![way], ..Sandbox::new(SandboxMode::WorkspaceWrite, root.to_owned()) }
    });
    bench.run("mkdir -p .git/refs/deep .git/modules .git/rebase-merge").await;
    for (command, planted, hiding) in [
        ("ln -s $OUT/victim .git/refs/deep/link", "refs/deep/link", "refs/deep"),
        ("git init -q --bare .git/modules/dark", "modules/dark", "modules"),
        (
            "echo 'exec ./evil' > .git/rebase-merge/git-rebase-todo",
            "rebase-merge/git-rebase-todo",
            "rebase-merge",
        ),
    ] {
        let mode = if hiding == "rebase-merge" { "0600" } else { "0300" };
        let said = bench.run(&format!("{command}; chmod {mode} .git/{hiding}")).await;
        let hiding = bench.place.root.join(".git").join(hiding);
        fs::set_permissions(&hiding, PermissionsExt::from_mode(0o755)).unwrap();
        let planted = bench.place.root.join(".git").join(planted);
        let is_gone = planted.symlink_metadata().is_err();
        let unseen = |path: &Path| said.contains(&format!("{} cannot be looked at", path.display()));
        assert!(is_gone || unseen(&hiding) || unseen(&planted), "{command}\n{said}");
    }
}

/// What cannot be looked at when the session begins does not count as held.
pub(crate) async fn what_cannot_be_looked_at_whole_does_not_count_as_held(way: Way) {
    let mut unreadable = false;
    for is_too_much in [true, false] {
        let bench = Bench::with(|root| {
            git(root, &["init", "-q", "--template="]);
            let refs = root.join(".git/refs");
            if is_too_much {
                (0..10_001).for_each(|number| fs::write(refs.join(number.to_string()), "").unwrap());
            } else {
                fs::set_permissions(&refs, PermissionsExt::from_mode(0o300)).unwrap();
                unreadable = fs::read_dir(&refs).is_err();
            }
            Sandbox { ways: vec![way], ..Sandbox::new(SandboxMode::WorkspaceWrite, root.to_owned()) }
        });
        let report = bench.report().await;
        let refs = bench.place.root.join(".git/refs");
        fs::set_permissions(&refs, PermissionsExt::from_mode(0o755)).unwrap();
        // In namespaces of its own the supervisor reads what its user may not.
        if is_too_much || (unreadable && way != Way::Namespaces) {
            assert_eq!((report.protected, report.is_enforced()), (Protection::Open, false));
            let why = format!("{} cannot be looked at as a whole", refs.display());
            assert!(report.lacking.iter().any(|lack| lack.starts_with(&why)), "{report:?}");
        }
    }
}

/// A repository with what git may go on with, all of it the user's.
fn annexed(way: Way) -> Bench {
    Bench::with(|root| {
        git(root, &["init", "-q", "--template="]);
        fs::create_dir_all(root.join(".git/rebase-merge")).unwrap();
        fs::write(root.join(".git/rebase-merge/git-rebase-todo"), "exec make\npick 1 x\n").unwrap();
        std::os::unix::fs::symlink("../annex", root.join(".git/annex")).unwrap();
        Sandbox { ways: vec![way], ..Sandbox::new(SandboxMode::WorkspaceWrite, root.to_owned()) }
    })
}

/// What the user makes when no command runs.
fn go_on(root: &Path) {
    git(root, &["init", "-q", "--bare", ".git/modules/later"]);
    std::os::unix::fs::symlink("../other", root.join(".git/other")).unwrap();
    fs::create_dir_all(root.join(".git/sequencer")).unwrap();
    fs::write(root.join(".git/sequencer/opts"), "strategy = ./own\n").unwrap();
    fs::create_dir(root.join(".mainstay")).unwrap();
    fs::write(root.join(".mainstay/config.toml"), "kept").unwrap();
}

fn descendants(of: u32) -> Vec<u32> {
    let children = children_of(of);
    let below: Vec<u32> = children.iter().flat_map(|child| descendants(*child)).collect();
    [children, below].concat()
}

/// Ends a session as a program that ends does, or by force.
async fn end(bench: &mut Bench) {
    let supervisor = bench.place.supervisor();
    let all = [vec![supervisor], descendants(supervisor)].concat();
    bench.supervisor = Arc::new(Supervisor::new(Vec::new()));
    bench.place.bash = Bash::new(bench.supervisor.clone());
    for pid in all {
        ended(pid).await;
    }
}

async fn end_agent(agent: &mut Child) {
    let all = descendants(agent.id());
    kill(agent.id());
    agent.wait().unwrap();
    for pid in all {
        ended(pid).await;
    }
}

/// However a session ends, what the user has in a repository, and made since the last command, stays as it is.
pub(crate) async fn the_end_of_a_session_moves_nothing_of_the_users(way: Way) {
    for commands in [&[][..], &["echo fine"]] {
        let mut bench = annexed(way);
        let root = bench.place.root.clone();
        bench.report().await;
        for command in commands {
            assert_eq!(bench.run(command).await, "exit code 0\nfine");
        }
        go_on(&root);
        let before = tree(&root);
        end(&mut bench).await;
        assert_eq!(tree(&root), before, "{commands:?}");
    }
    for (command, sign) in [("true", "ended"), ("touch begun; exec sleep 60", "begun")] {
        let bench = annexed(way);
        let root = &bench.place.root;
        let mut agent = spawn_agent(root, way, command);
        bench.place.wait_for(sign).await;
        if sign == "ended" {
            go_on(root);
        }
        let before = tree(root);
        end_agent(&mut agent).await;
        assert_eq!(tree(root), before, "{command}");
    }
}

/// Kills the keeper whose command runs below this supervisor.
async fn lose_command(supervisor: u32, way: Way) {
    // `bwrap` waits for the process that it runs.
    let supervisor = if way == Way::Bubblewrap { children_of(supervisor)[0] } else { supervisor };
    let keepers = children_of(supervisor);
    assert_eq!(keepers.len(), 1, "{keepers:?}");
    let all = descendants(keepers[0]);
    kill(keepers[0]);
    for pid in [keepers, all].concat() {
        ended(pid).await;
    }
}

/// What a command made whose keeper, or whose agent, was killed before anybody looked.
pub(crate) async fn what_a_lost_command_made_is_moved_at_the_end(way: Way) {
    let command = "mkdir .mainstay; touch .mainstay/x begun; exec sleep 60";
    for is_keeper_killed in [true, false] {
        let bench = annexed(way);
        let root = &bench.place.root;
        let mut agent = spawn_agent(root, way, command);
        bench.place.wait_for("begun").await;
        if is_keeper_killed {
            lose_command(children_of(agent.id())[0], way).await;
            bench.place.wait_for("ended").await;
        }
        let git = tree(&root.join(".git"));
        end_agent(&mut agent).await;
        assert!(bench.place.has(".mainstay.refused-1/x") && !bench.place.has(".mainstay"));
        assert_eq!(tree(&root.join(".git")), git);
    }
}

/// After a command was lost, others run on, whatever changes outside; and when another supervisor has come, what the user
/// makes is the user's again.
pub(crate) async fn a_lost_command_does_not_bar_the_next(way: Way) {
    if way == Way::Plain {
        return;
    }
    let bench = repository(way);
    let lost = bench.run("touch begun; exec sleep 60");
    let lose = async {
        bench.place.wait_for("begun").await;
        lose_command(bench.place.supervisor(), way).await;
    };
    let (said, ()) = tokio::join!(lost, lose);
    assert!(said.contains("ended unexpectedly"), "{said}");
    let supervisor = bench.place.supervisor();
    replace(&bench.place.root.join(".git/config"), "# outside\n");
    assert_eq!(bench.run("echo fine").await, "exit code 0\nfine");
    if bench.place.supervisor() != supervisor {
        fs::create_dir(bench.place.root.join(".mainstay")).unwrap();
        assert_eq!(bench.run("echo fine").await, "exit code 0\nfine");
        assert!(bench.place.has(".mainstay"));
    }
}

/// A protected file that has another name, as an archive can give it.
pub(crate) async fn a_file_with_two_names_does_not_count_as_kept(way: Way) {
    for (name, other) in [(".git/config", "innocent"), (".git/hooks/pre-commit", "deep/innocent")] {
        let bench = Bench::with(|root| {
            git(root, &["init", "-q", "--template="]);
            fs::create_dir_all(root.join(".git/hooks")).unwrap();
            fs::create_dir(root.join("deep")).unwrap();
            fs::write(root.join(".git/hooks/pre-commit"), "").unwrap();
            fs::hard_link(root.join(name), root.join(other)).unwrap();
            Sandbox { ways: vec![way], ..Sandbox::new(SandboxMode::WorkspaceWrite, root.to_owned()) }
        });
        let report = bench.report().await;
        assert_eq!((report.protected, report.is_enforced()), (Protection::Open, false), "{name}");
        assert!(
            report.lacking.iter().any(|lack| lack.contains("has another name (a hard link)")),
            "{report:?}"
        );
    }
}

/// Hooks that lie elsewhere, and configuration that is read from elsewhere.
pub(crate) async fn where_gits_configuration_leads_is_protected(way: Way) {
    if way == Way::Plain {
        return;
    }
    let bench = Bench::with(|root| {
        git(root, &["init", "-q", "--template="]);
        for (key, value) in [
            ("core.hooksPath", ".husky/_"),
            ("include.path", "../shared.cfg"),
            ("include.path", "../later.cfg"),
        ] {
            git(root, &["config", "--add", key, value]);
        }
        fs::create_dir_all(root.join(".husky/_")).unwrap();
        fs::write(root.join("shared.cfg"), "[alias]\n\tx = log\n").unwrap();
        git(root, &["commit", "-q", "--allow-empty", "-m", "first"]);
        git(root, &["worktree", "add", "-q", "linked"]);
        git(root, &["init", "-q", "--template=", "--bare", ".git/modules/module"]);
        fs::create_dir(root.join("module")).unwrap();
        let module = root.join(".git/modules/module");
        for (key, value) in [("bare", "false"), ("worktree", "../../../module"), ("hooksPath", "hooks")] {
            git(&module, &["config", &format!("core.{key}"), value]);
        }
        Sandbox { ways: vec![way], ..Sandbox::new(SandboxMode::WorkspaceWrite, root.to_owned()) }
    });
    assert_eq!(bench.report().await.protected, Protection::Held);
    let root = &bench.place.root;
    let now = || [".husky/_", "shared.cfg"].map(|name| tree(&root.join(name)));
    let before = now();
    for attack in [
        "echo x > .husky/_/pre-commit; mv .husky h; mkdir -p .husky/_; echo x > .husky/_/pre-commit",
        "echo '[core]' > shared.cfg; rm -f shared.cfg; mv shared.cfg s",
        "echo '[core]' > later.cfg",
    ] {
        let said = bench.run(attack).await;
        assert_eq!(now(), before, "{attack}\n{said}");
        assert!(!root.join("later.cfg").exists(), "{said}");
    }
    for hooks in ["linked/.husky/_", "module/hooks"] {
        let said = bench.run(&format!("mkdir -p {hooks}; echo x > {hooks}/pre-commit")).await;
        assert!(said.contains(&format!("{hooks} is protected; what the command made")), "{said}");
        assert!(!root.join(hooks).exists(), "{said}");
    }
    // One that holds everything cannot be protected.
    let all = Bench::with(|other| {
        git(other, &["init", "-q"]);
        git(other, &["config", "core.hooksPath", "."]);
        Sandbox { ways: vec![way], ..Sandbox::new(SandboxMode::WorkspaceWrite, other.to_owned()) }
    });
    assert_eq!(all.report().await.protected, Protection::Open);
    // Nor can what git does not say.
    let broken = Bench::with(|other| {
        git(other, &["init", "-q"]);
        fs::write(other.join(".git/config"), "[core\n").unwrap();
        Sandbox { ways: vec![way], ..Sandbox::new(SandboxMode::WorkspaceWrite, other.to_owned()) }
    });
    let report = broken.report().await;
    assert_eq!(report.protected, Protection::Open);
    assert!(report.lacking.iter().any(|lack| lack.contains("`git config --list` fails in ")), "{report:?}");
}

/// That a network was tried is known, whatever the exit code says.
pub(crate) async fn a_tried_network_is_said_though_all_went_well(way: Way) {
    let bench = Bench::new(way, SandboxMode::WorkspaceWrite);
    let tried = bench.run("$ATTACK tcp 1.1.1.1:80; $ATTACK udp 8.8.8.8:53; true").await;
    let local = bench.run("$ATTACK loopback; true").await;
    let note = "[sandbox: commands reach nothing but a loopback of their own (workspace-write); while this ran, something \
                tried to reach more; the user can allow more with `--sandbox off`]";
    assert_eq!(tried.ends_with(note), way != Way::Plain, "{tried}");
    assert!(tried.starts_with("exit code 0\n") && !local.contains("sandbox"), "{local}");
}
