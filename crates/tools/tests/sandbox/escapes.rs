//! What commands try to get out. Each thing that is tried on files works where there is no sandbox, which is tried too.

use std::fs;
use std::path::Path;

use mainstay_tools::sandbox::{Protection, Sandbox, SandboxMode, Way};
use mainstay_tools::{Bash, Supervisor};

use crate::bench::{Bench, tree};
use crate::place::text;

/// What is tried on the files outside, and whether the way without mounts holds it.
const ON_FILES: &[(&str, bool)] = &[
    ("echo x > $OUT/new", true),
    ("echo x >> $OUT/victim", true),
    (": > $OUT/victim", true),
    ("truncate -s 1 $OUT/victim", true),
    ("rm -f $OUT/victim", true),
    ("mkdir $OUT/made", true),
    ("rmdir $OUT/folder", true),
    ("mkfifo $OUT/fifo", true),
    ("ln -s /etc/passwd $OUT/link", true),
    ("ln -s $OUT/victim link; echo x > link", true),
    ("ln -s $OUT folder-link; echo x > folder-link/new", true),
    ("ln -s $OUT/not-yet dangling; echo x > dangling", true),
    ("echo x > f; mv f $OUT/f", true),
    ("mv $OUT/victim taken", true),
    ("mv $OUT/folder taken-folder", true),
    ("echo x > g; ln g $OUT/g", true),
    ("ln $OUT/victim hard; echo x > hard", true),
    ("echo x > h; mv --exchange h $OUT/victim 2>&1 || $ATTACK exchange h $OUT/victim", true),
    ("echo x > /proc/self/root$OUT/new", true),
    ("cd $OUT; echo x > /proc/self/cwd/new", true),
    ("echo x > ../outside/new", true),
    ("exec 7<$OUT; echo x > /proc/self/fd/7/new", true),
    ("cp --preserve=all /bin/true $OUT/copied", true),
    ("sed -i s/kept/lost/ $OUT/victim", true),
    ("chmod 777 $OUT/victim", false),
    ("touch -d 2001-01-01 $OUT/victim", false),
];

/// E09, W05: writes, links, renames and hard links outside.
pub(crate) async fn nothing_outside_is_changed(way: Way) {
    for (attack, holds_without_mounts) in ON_FILES {
        let bench = Bench::new(way, SandboxMode::WorkspaceWrite);
        let before = bench.outside_now();
        let said = bench.run(attack).await;
        if way != Way::Plain || *holds_without_mounts {
            assert_eq!(bench.outside_now(), before, "{attack}\n{said}");
        }
        // The same without a sandbox, so that this test can fail.
        let mut free = Bench::new(way, SandboxMode::WorkspaceWrite);
        free.place.bash = Bash::new(std::sync::Arc::new(Supervisor::new(Vec::new())));
        let before = free.outside_now();
        let said = free.run(attack).await;
        assert_ne!(free.outside_now(), before, "this shows nothing: {attack}\n{said}");
    }
}

pub(crate) async fn nothing_is_changed_in_read_only_mode(way: Way) {
    let bench = Bench::new(way, SandboxMode::ReadOnly);
    fs::write(bench.place.root.join("mine"), "kept").unwrap();
    let before = tree(&bench.place.root);
    for attack in ["echo x > mine", "rm -f mine", "mkdir new", "mv mine yours", "echo x > $OUT/victim"] {
        bench.run(attack).await;
    }
    assert_eq!(tree(&bench.place.root), before);
    let said = bench.run("echo x > $TMPDIR/f && cat $TMPDIR/f && echo x > /dev/null && echo fine").await;
    assert_eq!(said, "exit code 0\nx\nfine");
}

/// Calls that lead around what holds commands: each is refused, and the program goes on.
pub(crate) async fn no_call_leads_out(way: Way) {
    let bench = Bench::new(way, SandboxMode::WorkspaceWrite);
    let said = bench.run("$ATTACK calls").await;
    assert!(!said.contains("GOT IN") && said.contains("all calls were tried"), "{said}");
    for attack in [
        "unshare -Ur true && echo GOT IN",
        "unshare -Urm sh -c \"mount -t tmpfs none $OUT && echo x > $OUT/new && echo GOT IN\"",
        "unshare -n true && echo GOT IN",
        "mount -t tmpfs none . && echo GOT IN",
        "mount -o remount,rw / && echo GOT IN",
        "umount . 2>/dev/null && echo GOT IN",
        "nsenter -t $AGENT -m -n true && echo GOT IN",
        "mknod disk b 254 0 && echo GOT IN",
        "mknod disk c 1 1 && echo GOT IN",
        "chroot . true 2>&1 | grep -v 'not permitted' && echo GOT IN",
        "$SUID --attack root && echo GOT IN",
        "echo core > /proc/sys/kernel/core_pattern && echo GOT IN",
        "echo 1 > /sys/kernel/mm/transparent_hugepage/defrag && echo GOT IN",
        "cat /proc/sys/kernel/core_pattern > /proc/sys/kernel/core_pattern && echo GOT IN",
        "(echo x > /dev/kmsg) && echo GOT IN",
        "for t in /dev/pts/[0-9]* /dev/tty[0-9]* /dev/ttyS*; do (echo > $t) 2>/dev/null && echo GOT IN $t; done",
        "for d in /dev/vd* /dev/sd* /dev/mem /dev/nvme*; do (: < $d) 2>/dev/null && (echo > $d) 2>/dev/null && echo GOT IN $d; done",
    ] {
        let said = bench.run(attack).await;
        assert!(!said.contains("GOT IN"), "{attack}\n{said}");
    }
}

/// TCP and UDP, and sockets with and without a place in the file system.
pub(crate) async fn nothing_beyond_its_own_loopback_is_reached(way: Way) {
    let bench = Bench::new(way, SandboxMode::WorkspaceWrite);
    for attack in [
        "$ATTACK tcp $TCP",
        "$ATTACK udp $UDP",
        "$ATTACK tcp 1.1.1.1:80",
        "$ATTACK abstract $ABSTRACT",
        "$ATTACK socket $SOCKET",
        "echo x > /dev/tcp/${TCP/://} && echo GOT IN",
    ] {
        let said = bench.run(attack).await;
        assert!(!said.contains("GOT IN"), "{attack}\n{said}");
        assert!(!bench.was_reached(), "{attack}\n{said}");
        assert!(!attack.starts_with("$ATTACK") || said.contains("refused: "), "{attack}\n{said}");
    }
}

/// The agent, the supervisor and other processes: signals, memory, traces, limits, what their `/proc` leads to.
pub(crate) async fn other_processes_are_out_of_reach(way: Way) {
    let bench = Bench::new(way, SandboxMode::WorkspaceWrite);
    let report = bench.report().await;
    let before = bench.outside_now();
    let holds_signals = way == Way::Namespaces || report.landlock >= 6;
    assert_eq!(!holds_signals, report.lacking.iter().any(|lack| lack.contains("signals")), "{report:?}");
    for who in ["$AGENT", "$SUPERVISOR"] {
        for attack in [
            "kill -0 WHO && echo GOT IN",
            "kill -CONT WHO && echo GOT IN",
            "$ATTACK ptrace WHO",
            "$ATTACK memory WHO",
            "$ATTACK limits WHO",
            "cat /proc/WHO/environ && echo GOT IN",
            "echo x > /proc/WHO/root$OUT/new && echo GOT IN",
            "echo x > /proc/WHO/cwd/new && echo GOT IN",
            "ls -l /proc/WHO/fd/ && echo GOT IN",
        ] {
            if attack.starts_with("kill") && !holds_signals {
                continue;
            }
            let attack = attack.replace("WHO", who);
            let said = bench.run(&attack).await;
            assert!(!said.contains("GOT IN"), "{attack}\n{said}");
        }
    }
    assert_eq!(bench.outside_now(), before);
}

/// Memory that programs outside share as files.
pub(crate) async fn shared_memory_of_others_is_not_met(way: Way) {
    if way == Way::Plain {
        return;
    }
    let bench = Bench::new(way, SandboxMode::WorkspaceWrite);
    let name = format!("/dev/shm/mainstay-test-{}-{way:?}", std::process::id());
    fs::write(&name, "kept").unwrap();
    let said = bench.run(&format!("cat {name}; echo x > {name}; cat {name}")).await;
    let kept = fs::read_to_string(&name).unwrap();
    fs::remove_file(&name).unwrap();
    assert_eq!(kept, "kept");
    assert!(said.ends_with("\nx"), "{said}");
}

/// Hooks and configuration of git, the project's own, what the user lists, and where sessions are kept.
pub(crate) async fn protected_places_stay_as_they_are(way: Way) {
    let bench = Bench::with(|root| {
        let git = |arguments: &[&str]| {
            let mut command = std::process::Command::new("git");
            command.current_dir(root).args(["-c", "user.name=a", "-c", "user.email=a@b.c"]).args(arguments);
            assert!(command.output().unwrap().status.success());
        };
        git(&["init", "-q", "--template=/usr/share/git-core/templates"]);
        for folder in [".git/hooks", "deploy/deep", "home/sessions/s", ".mainstay"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        for file in
            ["deploy/key", "deploy/deep/key", "a.pem", "home/sessions/s/0001.jsonl", ".mainstay/config.toml"]
        {
            fs::write(root.join(file), "kept").unwrap();
        }
        fs::write(root.join("file"), "x").unwrap();
        git(&["add", "file"]);
        git(&["commit", "-qm", "first"]);
        let protected = ["deploy/**", "*.pem", "not-there/key"].map(str::to_owned).to_vec();
        let closed = vec![root.join("home")];
        Sandbox {
            ways: vec![way],
            protected,
            closed,
            ..Sandbox::new(SandboxMode::WorkspaceWrite, root.to_owned())
        }
    });
    let report = bench.report().await;
    if way == Way::Plain {
        assert_eq!((report.protected, report.is_enforced()), (Protection::Open, false));
        return;
    }
    assert_eq!((report.protected, report.is_enforced()), (Protection::Held, true));
    // Git itself works.
    let said = bench
        .run("echo y > file && git add file && git -c user.name=a -c user.email=a@b.c commit -qm second && git checkout -qb b && git log --oneline | wc -l")
        .await;
    assert!(said.starts_with("exit code 0\n") && said.contains("2"), "{said}");
    let root = &bench.place.root;
    let guarded = ["deploy", "a.pem", "home", ".mainstay", ".git/hooks", ".git/config"];
    let now = || guarded.map(|name| tree(&root.join(name)));
    let before = now();
    for attack in [
        "echo '#!/bin/sh' > .git/hooks/pre-commit",
        "rm -rf .git/hooks",
        "mv .git/hooks .git/hooks2",
        "git config core.fsmonitor ./evil",
        "git config --global core.hooksPath x; git config core.hooksPath x",
        "printf '[core]\\nfsmonitor=./x' > .git/config",
        "cp .git/config c; mv c .git/config",
        "ln -sf ../c .git/config",
        "mv .git .git2; mkdir .git",
        "rm -rf .git",
        "echo x > .mainstay/config.toml; rm -rf .mainstay; mv .mainstay m",
        "echo x > deploy/key; echo x > deploy/new; rm -rf deploy; mv deploy d2",
        "rm -f a.pem; echo x > a.pem; mv a.pem b; ln a.pem c; echo x > c",
        "echo x >> home/sessions/s/0001.jsonl; rm -rf home; mv home h2; : > home/sessions/s/0001.jsonl",
    ] {
        let said = bench.run(attack).await;
        assert_eq!(now(), before, "{attack}\n{said}");
    }
    // What must not come to be does not stay.
    let said = bench.run("mkdir not-there; echo x > not-there/key; echo evil > .git/commondir").await;
    for (name, kept) in [("not-there/key", "x\n"), (".git/commondir", "evil\n")] {
        assert!(
            said.contains(&format!(
                "{} is protected; what the command made there was moved to",
                root.join(name).display()
            )),
            "{said}"
        );
        assert!(!root.join(name).exists());
        let aside = root.join(format!("{name}.refused-1"));
        assert_eq!(fs::read_to_string(aside).unwrap(), kept);
    }
}

/// A linked worktree's repository may be written; what a `.git` file merely claims is not believed.
pub(crate) async fn a_worktree_opens_only_its_own_repository(way: Way) {
    if way == Way::Plain {
        return;
    }
    let bench = Bench::with(|root| {
        let git = |arguments: &[&str]| {
            let mut command = std::process::Command::new("git");
            command.args(["-c", "user.name=a", "-c", "user.email=a@b.c"]).args(arguments);
            let output = command.output().unwrap();
            assert!(output.status.success(), "{output:?}");
        };
        let main = root.parent().unwrap().join("main");
        let (main, root_text) = (main.to_str().unwrap(), root.to_str().unwrap());
        git(&["init", "-q", main]);
        git(&["-C", main, "commit", "-q", "--allow-empty", "-m", "first"]);
        git(&["-C", main, "worktree", "add", "-q", root_text]);
        Sandbox { ways: vec![way], ..Sandbox::new(SandboxMode::WorkspaceWrite, root.to_owned()) }
    });
    let commit = "git -c user.name=a -c user.email=a@b.c commit -q --allow-empty -m second";
    assert_eq!(bench.run(commit).await, "exit code 0, no output");
    let before = tree(&bench.top().join("main/.git/hooks"));
    bench
        .run("echo x > $TOP/main/.git/hooks/pre-commit; echo x > $TOP/main/new; echo gitdir: / > .git")
        .await;
    assert_eq!(tree(&bench.top().join("main/.git/hooks")), before);
    assert!(!bench.top().join("main/new").exists());

    let liar = Bench::with(|root| {
        let outside = root.parent().unwrap().join("outside");
        fs::write(root.join(".git"), format!("gitdir: {}\n", outside.display())).unwrap();
        Sandbox { ways: vec![way], ..Sandbox::new(SandboxMode::WorkspaceWrite, root.to_owned()) }
    });
    let before = liar.outside_now();
    let said = text(liar.place.run(&format!("echo x > {}/new", liar.outside.display())).await);
    assert_eq!(liar.outside_now(), before, "{said}");
}

pub(crate) fn git(directory: &Path, arguments: &[&str]) {
    let mut command = std::process::Command::new("git");
    command.arg("-C").arg(directory).args(["-c", "user.name=a", "-c", "user.email=a@b.c"]).args(arguments);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// What in a repository says where another part of it is: of linked worktrees and of submodules.
pub(crate) async fn git_is_led_to_no_other_repository(way: Way) {
    if way == Way::Plain {
        return;
    }
    let bench = Bench::with(|root| {
        git(root, &["init", "-q"]);
        git(root, &["commit", "-q", "--allow-empty", "-m", "first"]);
        git(root, &["worktree", "add", "-q", root.with_file_name("linked").to_str().unwrap()]);
        git(root, &["init", "-q", "--template=", "--bare", ".git/modules/deep/module"]);
        fs::create_dir_all(root.join(".git/modules/deep/module/info")).unwrap();
        Sandbox { ways: vec![way], ..Sandbox::new(SandboxMode::WorkspaceWrite, root.to_owned()) }
    });
    assert_eq!(bench.report().await.protected, Protection::Held);
    let guarded = [".git/worktrees/linked", ".git/modules/deep/module"];
    let now = || {
        let files = guarded.map(|name| tree(&bench.place.root.join(name)));
        files.map(|files| {
            let is_put_aside = |path: &Path| path.to_string_lossy().contains(".refused-");
            let kept = files.into_iter().filter(|(path, _)| path.is_file() && !is_put_aside(path));
            kept.collect::<Vec<_>>()
        })
    };
    let before = now();
    for attack in [
        "echo ../../../evil > .git/worktrees/linked/commondir",
        "echo x > c; mv c .git/worktrees/linked/commondir",
        "rm -f .git/worktrees/linked/commondir",
        "echo /x > .git/worktrees/linked/gitdir",
        "echo '[core]' > .git/worktrees/linked/config.worktree",
        "mv .git/worktrees .git/w; mkdir -p .git/worktrees/linked",
        "mv .git/worktrees/linked .git/worktrees/l",
        "echo x > .git/modules/deep/module/commondir",
        "echo '[core]' > .git/modules/deep/module/config.worktree",
        "echo '* filter=x' > .git/modules/deep/module/info/attributes",
        "mv .git/modules/deep/module .git/modules/deep/m",
    ] {
        let said = bench.run(attack).await;
        assert_eq!(now(), before, "{attack}\n{said}");
    }
}

/// A submodule's repository may be written, but not on its word alone.
pub(crate) async fn a_submodule_opens_only_its_own_repository(way: Way) {
    if way == Way::Plain {
        return;
    }
    let of = |gitdir: &'static str| {
        Bench::with(move |root| {
            let around = root.parent().unwrap();
            git(around, &["init", "-q"]);
            for name in ["workspace", "other"] {
                git(around, &["init", "-q", "--template=", "--bare", &format!(".git/modules/{name}")]);
                let directory = around.join(".git/modules").join(name);
                git(&directory, &["config", "core.bare", "false"]);
                git(&directory, &["config", "core.worktree", &format!("../../../{name}")]);
            }
            fs::write(root.join(".git"), format!("gitdir: {gitdir}\n")).unwrap();
            Sandbox { ways: vec![way], ..Sandbox::new(SandboxMode::WorkspaceWrite, root.to_owned()) }
        })
    };
    let own = of("../.git/modules/workspace");
    assert_eq!(own.report().await.protected, Protection::Held);
    let commit = "git -c user.name=a -c user.email=a@b.c commit -q --allow-empty -m first";
    assert_eq!(own.run(commit).await, "exit code 0, no output");
    for liar in ["../.git/modules", "../.git/modules/other"].map(of) {
        let modules = liar.top().join(".git/modules");
        let before = tree(&modules);
        let said = liar.run("echo x > $TOP/.git/modules/new; echo x > $TOP/.git/modules/other/new").await;
        assert_eq!(tree(&modules), before, "{said}");
    }
}

/// A program's socket in a directory that the user lets commands write.
pub(crate) async fn sockets_of_others_are_hidden_where_commands_may_write(way: Way) {
    let bench = Bench::with(|root| {
        let writable = vec![root.parent().unwrap().to_owned()];
        Sandbox { ways: vec![way], writable, ..Sandbox::new(SandboxMode::WorkspaceWrite, root.to_owned()) }
    });
    for attack in [
        "$ATTACK socket $SOCKET",
        "ln $SOCKET other && $ATTACK socket other",
        "mv $SOCKET other && $ATTACK socket other",
        "mv $TOP/outside $TOP/o; $ATTACK socket $SOCKET",
    ] {
        let said = bench.run(attack).await;
        assert!(!said.contains("GOT IN"), "{attack}\n{said}");
    }
}

/// A directory that may be written, and lies in another, is replaced by a link.
pub(crate) async fn a_replaced_directory_opens_nothing(way: Way) {
    let bench = Bench::with(|root| {
        git(root, &["init", "-q"]);
        fs::create_dir(root.join("inner")).unwrap();
        let writable = vec![root.join("inner")];
        Sandbox { ways: vec![way], writable, ..Sandbox::new(SandboxMode::WorkspaceWrite, root.to_owned()) }
    });
    let before = bench.outside_now();
    for name in [".git", "inner"] {
        bench.run(&format!("mv {name} moved-{name}; ln -s $OUT {name}")).await;
        let said = bench.run(&format!("echo x > {name}/new; echo x > $OUT/new")).await;
        assert_eq!(bench.outside_now(), before, "{name}\n{said}");
    }
}

/// A pattern covers ignored files; what cannot be kept does not count as kept.
pub(crate) async fn what_a_pattern_names_is_kept_or_said(way: Way) {
    let of = |protected: &'static str| {
        Bench::with(move |root| {
            git(root, &["init", "-q"]);
            fs::write(root.join(".gitignore"), "secret\nmany\n").unwrap();
            fs::create_dir_all(root.join("deep/many")).unwrap();
            fs::write(root.join("deep/secret"), "kept").unwrap();
            (0..300).for_each(|number| fs::write(root.join(format!("deep/many/{number}.x")), "").unwrap());
            std::os::unix::fs::symlink("deep/secret", root.join("link")).unwrap();
            let protected = vec![protected.to_owned()];
            Sandbox {
                ways: vec![way],
                protected,
                ..Sandbox::new(SandboxMode::WorkspaceWrite, root.to_owned())
            }
        })
    };
    for unkept in ["link", "l*k", "**/*.x"] {
        let report = of(unkept).report().await;
        assert_eq!((report.protected, report.is_enforced()), (Protection::Open, false), "{unkept}");
    }
    if way != Way::Plain {
        let bench = of("**/secret");
        assert_eq!(bench.report().await.protected, Protection::Held);
        let said = bench.run("echo x > deep/secret; rm -f deep/secret").await;
        assert_eq!(fs::read_to_string(bench.place.root.join("deep/secret")).unwrap(), "kept", "{said}");
    }
}
