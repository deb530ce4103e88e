//! The repository around a workspace: what git must write to work, and what in it makes programs run later.
//!
//! What a `.git` file names is believed only if it names the workspace back, or lies in the repository around it: else
//! a repository could open any directory to its commands.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::paths::is_missing;
use crate::repository::{git_directory, small_file};

/// What git is told of a workspace.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Git {
    /// Directories that git writes.
    pub(super) directories: Vec<PathBuf>,
    /// What in them, there or not, makes programs run: hooks, configuration, and what would lead to others.
    pub(super) protected: Vec<PathBuf>,
    /// Those of the repository around the workspace, whether git may write them or not.
    pub(super) around: Vec<PathBuf>,
    /// The directories of repositories and of linked worktrees in them.
    pub(super) repositories: Vec<PathBuf>,
    /// The directory in which the repository is checked out.
    pub(super) root: Option<PathBuf>,
    /// Why that is not all: too much to look at, or a link where git keeps directories.
    pub(super) unseen: Option<String>,
}

/// A repository whose configuration git is asked for.
#[derive(Debug)]
pub(super) struct Repository {
    /// Where it is checked out, as far as that is known; else where it lies.
    pub(super) root: PathBuf,
    /// Its directories.
    pub(super) directories: Vec<PathBuf>,
    /// Whether git is told where it lies, and does not find that out from where it is checked out.
    pub(super) is_named: bool,
}

impl Git {
    /// The repository around the workspace, and each other part of it that has a configuration of its own, or is
    /// checked out elsewhere.
    pub(super) fn parts(&self, root: &Path) -> impl Iterator<Item = Repository> {
        let directories = self.directories.clone();
        let first = Repository { root: root.to_owned(), directories, is_named: false };
        let parts = self.repositories.iter().filter(|part| !self.around.contains(part));
        std::iter::once(first).chain(parts.map(|part| Repository {
            root: checked_out(part),
            directories: vec![part.clone()],
            is_named: true,
        }))
    }
}

/// Where a repository of a submodule or of a linked worktree is checked out; where it lies, if it does not say.
fn checked_out(directory: &Path) -> PathBuf {
    let linked = named_in(directory, "gitdir").and_then(|file| file.parent().map(Path::to_owned));
    linked.or_else(|| work_tree(directory)).unwrap_or_else(|| directory.to_owned())
}

/// The most submodules and linked worktrees that are looked for, and how deep.
const MOST_PARTS: usize = 200;
const DEPTH: usize = 6;

/// What in any repository makes programs run, or leads git to another one, or hides files from who looks at it. (`gitdir` is
/// of a linked worktree. The rest of `info` is written by `git gc`.)
const OF_REPOSITORIES: [&str; 9] = [
    "hooks",
    "config",
    "config.worktree",
    "info/attributes",
    "info/exclude",
    "info/grafts",
    "info/sparse-checkout",
    "commondir",
    "gitdir",
];

/// The same of a linked worktree, which has its hooks and its configuration from the repository.
const OF_WORKTREES: [&str; 3] = ["config.worktree", "commondir", "gitdir"];

/// Looks at the nearest `.git` upwards.
pub(super) fn of(workspace: &Path) -> Git {
    let Some(root) = workspace.ancestors().find(|path| path.join(".git").symlink_metadata().is_ok()) else {
        return Git::default();
    };
    let entry = root.join(".git");
    let Ok(kind) = entry.symlink_metadata() else { return Git::default() };
    if kind.is_dir() {
        let is_ours = is_ours(&entry);
        let mut git = Git { root: Some(root.to_owned()), ..of_directories(vec![entry]) };
        git.directories.retain(|_| is_ours);
        return git;
    }
    let mut git = if kind.is_file() { of_directories(named_by(root, &entry)) } else { Git::default() };
    git.protected.push(entry);
    git.root = Some(root.to_owned());
    git
}

/// The directories that a `.git` file names: that of the worktree and the common one, or that of the submodule.
fn named_by(root: &Path, entry: &Path) -> Vec<PathBuf> {
    let Some(directory) = git_directory(entry).and_then(|path| path.canonicalize().ok()) else {
        return Vec::new();
    };
    let mut enclosing = root.ancestors().skip(1).map(|path| path.join(".git/modules"));
    let is_in =
        |modules: PathBuf| is_ours(&modules) && directory != modules && directory.starts_with(&modules);
    let is_module = directory.join("HEAD").symlink_metadata().is_ok_and(|head| head.is_file());
    if is_module && work_tree(&directory).is_some_and(|named| named == root) && enclosing.any(is_in) {
        return vec![directory];
    }
    let names_back = named_in(&directory, "gitdir").is_some_and(|back| back == entry);
    let common = named_in(&directory, "commondir");
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

/// The path that a file in a git directory holds, resolved.
fn named_in(directory: &Path, file: &str) -> Option<PathBuf> {
    directory.join(small_file(&directory.join(file))?.trim()).canonicalize().ok()
}

/// The directory that a submodule's configuration says it is checked out in, resolved.
fn work_tree(directory: &Path) -> Option<PathBuf> {
    let of = |name: &str| core_worktree(&small_file(&directory.join(name))?);
    let path = of("config.worktree").or_else(|| of("config"))?;
    directory.join(path).canonicalize().ok()
}

/// The last `worktree` in a section `[core]`.
fn core_worktree(configuration: &str) -> Option<String> {
    let (mut is_core, mut found) = (false, None);
    for line in configuration.lines().map(str::trim) {
        if line.starts_with('[') {
            is_core = line.to_lowercase().starts_with("[core]");
        } else if let (true, Some((key, value))) = (is_core, line.split_once('='))
            && key.trim().eq_ignore_ascii_case("worktree")
        {
            found = Some(value.trim().trim_matches('"').to_owned());
        }
    }
    found
}

fn is_ours(path: &Path) -> bool {
    let user = rustix::process::geteuid();
    path.symlink_metadata()
        .is_ok_and(|metadata| metadata.is_dir() && (user.is_root() || metadata.uid() == user.as_raw()))
}

fn of_directories(directories: Vec<PathBuf>) -> Git {
    let mut parts = Parts::default();
    for directory in &directories {
        parts.add_repository(directory, DEPTH);
    }
    let Parts { protected, repositories, unseen, .. } = parts;
    let around = directories.clone();
    Git { directories, around, protected, repositories, root: None, unseen }
}

/// The repositories of submodules below a directory, and whether those are all.
pub(super) fn modules_in(directory: &Path) -> (Vec<PathBuf>, bool) {
    let mut parts = Parts::default();
    parts.add_modules(directory, DEPTH);
    (parts.repositories, parts.unseen.is_none())
}

/// What is found while looking through repositories.
#[derive(Default)]
struct Parts {
    seen: usize,
    repositories: Vec<PathBuf>,
    protected: Vec<PathBuf>,
    unseen: Option<String>,
}

impl Parts {
    fn add_repository(&mut self, directory: &Path, depth: usize) {
        self.protected.extend(OF_REPOSITORIES.map(|name| directory.join(name)));
        self.repositories.push(directory.to_owned());
        self.add_modules(&directory.join("modules"), depth);
        for worktree in self.folders_in(&directory.join("worktrees")) {
            self.protected.extend(OF_WORKTREES.map(|name| worktree.join(name)));
            self.repositories.push(worktree.clone());
            self.add_modules(&worktree.join("modules"), depth);
        }
    }

    /// The directories of submodules: those below `modules` that have a `HEAD`, or may have one.
    fn add_modules(&mut self, below: &Path, depth: usize) {
        for path in self.folders_in(below) {
            if depth == 0 {
                self.leave(&path, "lies too deep");
            } else if path.join("HEAD").symlink_metadata().map_or_else(|error| !is_missing(&error), |_| true)
            {
                self.add_repository(&path, depth - 1);
            } else {
                self.add_modules(&path, depth - 1);
            }
        }
    }

    fn folders_in(&mut self, folder: &Path) -> Vec<PathBuf> {
        if folder.is_symlink() {
            self.leave(folder, "is a link");
            return Vec::new();
        }
        let mut folders = match folders_below(folder) {
            Ok(folders) => folders,
            Err(error) => {
                self.leave(folder, &format!("cannot be looked through ({error})"));
                return Vec::new();
            }
        };
        if let Some(link) = folders.iter().find(|path| path.is_symlink()) {
            self.leave(link, "is a link");
        }
        folders.retain(|path| !path.is_symlink());
        self.seen += folders.len();
        if self.seen > MOST_PARTS {
            self.leave(folder, "holds too many directories");
            folders.clear();
        }
        folders
    }

    fn leave(&mut self, path: &Path, why: &str) {
        let said = format!("{} {why}, so what git finds there is not protected", path.display());
        self.unseen.get_or_insert(said);
    }
}

/// The directories in a directory, and links that may lead to some; none if it is not there.
fn folders_below(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if is_missing(&error) => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut folders = Vec::new();
    for entry in entries {
        let entry = entry?;
        let kind = entry.file_type()?;
        // A link whose end cannot be seen is taken for one that leads to a directory.
        let may_lead =
            || fs::metadata(entry.path()).map_or_else(|error| !is_missing(&error), |end| end.is_dir());
        if kind.is_dir() || (kind.is_symlink() && may_lead()) {
            folders.push(entry.path());
        }
    }
    Ok(folders)
}
