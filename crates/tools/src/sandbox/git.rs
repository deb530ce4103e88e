//! The repository around a workspace: what git must write to work, and what in it makes programs run later.
//!
//! What a `.git` file names is believed only if it names the workspace back, or lies in the repository around it: else
//! a repository could open any directory to its commands.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What git is told of a workspace.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Git {
    /// Directories that git writes.
    pub(super) directories: Vec<PathBuf>,
    /// What in them, there or not, makes programs run: hooks, configuration, and what would lead to others.
    pub(super) protected: Vec<PathBuf>,
}

/// The most submodules that are looked for, and how deep.
const MODULES: usize = 200;
const DEPTH: usize = 6;

/// Looks at the nearest `.git` upwards.
pub(super) fn of(workspace: &Path) -> Git {
    let Some(root) = workspace.ancestors().find(|path| path.join(".git").symlink_metadata().is_ok()) else {
        return Git::default();
    };
    let entry = root.join(".git");
    let Ok(kind) = entry.symlink_metadata() else { return Git::default() };
    if kind.is_dir() {
        return if is_ours(&entry) { of_directories(vec![entry]) } else { Git::default() };
    }
    let mut git = if kind.is_file() { of_directories(named_by(root, &entry)) } else { Git::default() };
    git.protected.push(entry);
    git
}

/// The directories that a `.git` file names: that of the worktree and the common one, or that of the submodule.
fn named_by(root: &Path, entry: &Path) -> Vec<PathBuf> {
    let Some(directory) = target(entry, root, "gitdir:") else { return Vec::new() };
    let enclosing = root.ancestors().skip(1).map(|path| path.join(".git/modules"));
    if enclosing.filter(|modules| is_ours(modules)).any(|modules| directory.starts_with(modules)) {
        return vec![directory];
    }
    let names_back = target(&directory.join("gitdir"), &directory, "").is_some_and(|back| back == entry);
    let common = target(&directory.join("commondir"), &directory, "");
    match common {
        Some(common)
            if names_back
                && is_ours(&common)
                && common.join("objects").is_dir()
                && directory.parent() == Some(&common.join("worktrees")) =>
        {
            vec![directory, common]
        }
        Some(_) | None => Vec::new(),
    }
}

/// The path that a small file holds behind a word, resolved.
fn target(file: &Path, from: &Path, word: &str) -> Option<PathBuf> {
    let is_small = fs::metadata(file).is_ok_and(|metadata| metadata.is_file() && metadata.len() < 8192);
    let text = is_small.then(|| fs::read_to_string(file).ok()).flatten()?;
    let path = text.trim_end().strip_prefix(word)?.trim_start();
    from.join(path).canonicalize().ok()
}

fn is_ours(path: &Path) -> bool {
    let owner = path.symlink_metadata().ok().filter(fs::Metadata::is_dir).map(|metadata| metadata.uid());
    owner == Some(rustix::process::geteuid().as_raw())
}

fn of_directories(directories: Vec<PathBuf>) -> Git {
    let mut protected = Vec::new();
    for directory in &directories {
        let names = ["hooks", "config", "config.worktree", "info"];
        protected.extend(names.map(|name| directory.join(name)));
        // A worktree's own directory has one, the others must not.
        protected.push(directory.join("commondir"));
        let mut modules = Vec::new();
        find_modules(&directory.join("modules"), DEPTH, &mut modules);
        for module in modules {
            protected.extend(["hooks", "config", "commondir"].map(|name| module.join(name)));
        }
    }
    Git { directories, protected }
}

/// The directories of submodules: those below `modules` that have a `HEAD`.
fn find_modules(below: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    let Ok(names) = fs::read_dir(below) else { return };
    for entry in names.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        if found.len() >= MODULES {
            return;
        }
        let path = entry.path();
        if path.join("HEAD").is_file() {
            find_modules(&path.join("modules"), depth, found);
            found.push(path);
        } else if depth > 0 {
            find_modules(&path, depth - 1, found);
        }
    }
}
