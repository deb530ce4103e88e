//! Ordinary git commands in the sandbox: what need not be refused works, what must be says which place was meant and
//! what would allow it, and nothing waits for a person.

use std::fs;
use std::time::{Duration, Instant};

use mainstay_tools::sandbox::{Sandbox, SandboxMode, Way};

use crate::bench::Bench;
use crate::escapes::git;

fn bench(way: Way) -> Bench {
    Bench::with(|root| {
        let around = root.parent().unwrap();
        git(around, &["init", "-q", "--template=", "library"]);
        git(&around.join("library"), &["commit", "-q", "--allow-empty", "-m", "first"]);
        git(root, &["init", "-q", "-b", "main", "--template=/usr/share/git-core/templates"]);
        for folder in [".git/hooks", ".git/info"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        for (key, value) in [("user.name", "a"), ("user.email", "a@b.c"), ("protocol.file.allow", "always")] {
            git(root, &["config", key, value]);
        }
        fs::write(root.join(".gitignore"), ".session\n").unwrap();
        fs::write(root.join("file"), "1\n").unwrap();
        git(root, &["add", "."]);
        git(root, &["commit", "-qm", "first"]);
        git(root, &["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", "../library", "sub"]);
        git(root, &["commit", "-qm", "second"]);
        git(root, &["branch", "start"]);
        Sandbox { ways: vec![way], ..Sandbox::new(SandboxMode::WorkspaceWrite, root.to_owned()) }
    })
}

/// What works, one after the other.
const WORKS: [&str; 26] = [
    "git status --short && git log --oneline && git diff HEAD~1 --stat && git show --stat && git blame file",
    "git submodule status && git submodule foreach -q git status",
    "echo 2 >> file && git add -A && git commit -qm third",
    "echo 3 >> file && git commit -qam fourth && git commit -q --amend -m fifth",
    "git checkout -q -b topic && echo t > topic && git add topic && git commit -qm topic",
    "git switch -q main && echo m > other && git add other && git commit -qm other",
    "git merge -q --no-edit topic",
    "git switch -q -c rebased HEAD~1 && echo r > r && git add r && git commit -qm r && git rebase -q main",
    "git rebase -q --exec true HEAD~1",
    "echo s >> file && git stash -q && git stash pop -q && git restore file",
    "git cherry-pick --no-commit topic; git reset -q --hard && git clean -fdq -e .session",
    "git revert --no-edit HEAD",
    "git tag v1 && git tag -a v2 -m v2 && git tag -d v1",
    "git branch copy && git branch -f copy main && git branch -r && git branch --list",
    "git gc -q && git prune && git repack -adq && git pack-refs --all && git fsck --no-progress",
    "git worktree add -q wt -b wt && cd wt && echo w > w && git add w && git commit -qm w",
    "git worktree list && git worktree remove wt && git worktree prune",
    "cd sub && git checkout -q -b in-sub && git -c user.name=a -c user.email=a@b.c commit -q --allow-empty -m in",
    "git clone -q . $TMPDIR/clone && git clone -q ../library nested && rm -rf nested",
    "git bisect start HEAD HEAD~1 && git bisect run true; git bisect reset",
    "git notes add -m note && git reflog -3 && git archive HEAD | tar t",
    "git format-patch -q -1 -o patches && git am --abort 2>/dev/null; git apply --check -R patches/*; rm -r patches",
    "git rm -q --cached file && git mv other moved && git reset -q --hard",
    "git config user.name && git config --list --local && git remote -v",
    "git fetch -q ../library HEAD && git pull -q --no-rebase --no-edit --allow-unrelated-histories ../library HEAD",
    "git init -q $TMPDIR/new && git -C $TMPDIR/new config user.name x",
];

/// What must be refused, with the place that its result names.
const REFUSED: [(&str, &str); 9] = [
    ("git config user.name b", ".git/config"),
    ("git remote add origin /x", ".git/config"),
    ("git branch -u main start", ".git/config"),
    ("git branch -m main trunk", ".git/config"),
    ("git submodule update", ".git/modules/sub/config"),
    ("git config core.hooksPath .husky", ".git/config"),
    ("git submodule deinit -q sub", ".git/config"),
    ("echo x > .git/hooks/post-commit", ".git/hooks"),
    ("git sparse-checkout set a", ".git/config"),
];

pub(crate) async fn ordinary_git_works(way: Way) {
    let bench = bench(way);
    for command in WORKS {
        let said = bench.run(command).await;
        assert!(said.starts_with("exit code 0"), "{command}\n{said}");
        assert!(!said.contains("[sandbox"), "{command}\n{said}");
    }
}

pub(crate) async fn git_that_is_refused_names_the_place_and_the_setting(way: Way) {
    if way == Way::Plain {
        return;
    }
    let bench = bench(way);
    let before = fs::read_to_string(bench.place.root.join(".git/config")).unwrap();
    for (command, place) in REFUSED {
        let said = bench.run(command).await;
        let place = bench.place.root.join(place).display().to_string();
        let named = said.lines().any(|line| {
            line.starts_with(&format!("[sandbox: {place}"))
                && line.ends_with(
                    "is protected from commands; the user can change it, or allow it with `--sandbox off`]",
                )
        });
        assert!(named, "{command}\n{said}");
        assert_eq!(fs::read_to_string(bench.place.root.join(".git/config")).unwrap(), before, "{command}");
    }
}

/// F03: whatever the user's own shell exports, no editor, no pager and no question keeps a command waiting.
pub(crate) async fn git_waits_for_nobody(way: Way) {
    let bench = bench(way);
    fs::write(
        bench.place.root.join("profile"),
        "export GIT_EDITOR='sleep 60' EDITOR='sleep 60' PAGER='sleep 60'\n",
    )
    .unwrap();
    for (command, expected) in [
        ("echo x >> file; git commit -a", "editor"),
        ("git commit --amend", "editor"),
        ("git tag -a v9", "editor"),
        ("git stash -q; git rebase -i HEAD~1", "editor"),
        ("git log -1 --format=%s", "second"),
        ("git fetch -q https://u@127.0.0.1:1/x", "exit code 128"),
        ("git merge --no-ff --edit $(git commit-tree -p HEAD -m x 'HEAD^{tree}')", "editor"),
    ] {
        let begun = Instant::now();
        let said = bench.run(command).await;
        assert!(begun.elapsed() < Duration::from_secs(20), "{command}\n{said}");
        assert!(said.contains(expected), "{command}\n{said}");
        let has_hint = said.contains("[commands have no editor: ");
        assert_eq!(has_hint, expected == "editor", "{command}\n{said}");
    }
}
