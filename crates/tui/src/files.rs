//! Names of files for completion behind an `@`.
//!
//! The walk is that of the search tools: what `.gitignore` hides is not offered. It runs off the thread that draws.

use std::path::Path;

use mainstay_agent::tools::repository::{git_directory, small_file};

use crate::text::width;

/// The most files that are looked at.
const MOST: usize = 50_000;

/// The files of a workspace by their paths from it; those whose names are not UTF-8 are left out.
pub(crate) fn list(workspace: &Path) -> Vec<String> {
    let mut files = Vec::new();
    for entry in ignore::WalkBuilder::new(workspace).require_git(false).build().flatten() {
        if files.len() >= MOST {
            break;
        }
        let is_file = entry.file_type().is_some_and(|kind| kind.is_file());
        if let (true, Ok(path)) = (is_file, entry.path().strip_prefix(workspace))
            && let Some(text) = path.to_str()
        {
            files.push(text.to_owned());
        }
    }
    files.sort();
    files
}

/// The git branch that a workspace is on, or the beginning of the commit; none outside of a repository.
pub(crate) fn branch(workspace: &Path) -> Option<String> {
    let git = workspace.ancestors().map(|dir| dir.join(".git")).find(|git| git.exists())?;
    let dir = git_directory(&git)?;
    let head = small_file(&dir.join("HEAD"))?;
    let head = head.trim();
    Some(head.strip_prefix("ref: refs/heads/").map_or_else(|| head.chars().take(8).collect(), str::to_owned))
}

/// The names that fit what was typed, the best first.
pub(crate) fn fitting<'a>(names: impl IntoIterator<Item = &'a str>, typed: &str, most: usize) -> Vec<String> {
    let typed: Vec<char> = typed.to_lowercase().chars().collect();
    let mut found: Vec<(i64, &str)> =
        names.into_iter().filter_map(|name| score(name, &typed).map(|score| (score, name))).collect();
    found.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.len().cmp(&b.1.len())).then(a.1.cmp(b.1)));
    found.into_iter().take(most).map(|(_, name)| name.to_owned()).collect()
}

/// How well a name fits: none if it lacks one of the characters in their order. Runs, beginnings of words and the last
/// part of a path count more.
fn score(name: &str, typed: &[char]) -> Option<i64> {
    let mut score = 0;
    let mut wanted = typed.iter().peekable();
    let mut run = 0;
    let mut before = '/';
    let file_name = name.rfind('/').map_or(0, |at| at + 1);
    for (at, c) in name.char_indices() {
        let Some(next) = wanted.peek() else { break };
        if c.to_lowercase().eq(std::iter::once(**next)) {
            let begins =
                matches!(before, '/' | '_' | '-' | '.' | ' ') || before.is_lowercase() && c.is_uppercase();
            run += 1;
            score += 1 + run * 2 + if begins { 6 } else { 0 } + if at >= file_name { 4 } else { 0 };
            wanted.next();
        } else {
            run = 0;
        }
        before = c;
    }
    let gone = i64::try_from(width(name)).unwrap_or(i64::MAX) / 8;
    wanted.peek().is_none().then_some(score - gone)
}

#[cfg(test)]
mod tests {
    use mainstay_testkit::workspace::Workspace;

    use super::*;

    #[test]
    fn the_best_fit_comes_first() {
        let names = ["docs/main-stay.md", "src/main.rs", "src/domain.rs", "tests/binary.rs"];
        assert_eq!(fitting(names, "main", 3), ["src/main.rs", "docs/main-stay.md", "src/domain.rs"]);
        assert_eq!(fitting(names, "tb", 9), ["tests/binary.rs"]);
        assert_eq!(fitting(names, "", 1).len(), 1);
        assert_eq!(fitting(names, "xyz", 3), Vec::<String>::new());
    }

    #[test]
    fn the_branch_is_found_in_a_repository_and_in_a_linked_worktree() {
        let workspace = Workspace::new();
        assert_eq!(branch(&workspace.path()), None);
        workspace.write("main/.git/HEAD", "ref: refs/heads/fix/parser\n");
        workspace.write("main/.git/worktrees/x/HEAD", "0123456789abcdef\n");
        workspace.write("linked/.git", "gitdir: ../main/.git/worktrees/x\n");
        std::fs::create_dir_all(workspace.path().join("main/src")).unwrap();
        assert_eq!(branch(&workspace.path().join("main/src")).as_deref(), Some("fix/parser"));
        assert_eq!(branch(&workspace.path().join("linked")).as_deref(), Some("01234567"));
    }

    /// What only looks like a repository holds nobody up.
    #[test]
    fn a_pipe_in_the_place_of_a_repository_is_no_branch() {
        let workspace = Workspace::new();
        workspace.write("odd/.git/config", "");
        std::fs::create_dir_all(workspace.path().join("odder")).unwrap();
        for pipe in ["odd/.git/HEAD", "odder/.git"] {
            let path = workspace.path().join(pipe);
            let made = std::process::Command::new("mkfifo").arg(path).status().unwrap();
            assert!(made.success());
        }
        let path = workspace.path();
        let (sender, found) = std::sync::mpsc::channel();
        std::thread::spawn(move || sender.send(["odd", "odder"].map(|name| branch(&path.join(name)))));
        assert_eq!(found.recv_timeout(std::time::Duration::from_secs(10)), Ok([None, None]));
    }

    #[test]
    fn ignored_files_are_not_offered() {
        let workspace = Workspace::new();
        for name in [".gitignore", "src/a.rs", "target/b.o"] {
            workspace.write(name, if name == ".gitignore" { "target\n" } else { "" });
        }
        assert_eq!(list(&workspace.path()), ["src/a.rs"]);
    }
}
