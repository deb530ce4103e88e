//! Which places are meant by a sandbox: what may be written, and what in it may not.
//!
//! Made when the supervisor starts, from the file system as it is then; `held.rs` follows what changes outside. All paths are absolute and free of links.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use globset::GlobBuilder;
use mainstay_session::message::FilePath;
use rustix::fs::{Access, access};
use serde::{Deserialize, Serialize};

use super::git::{self, Git};
use super::{Sandbox, SandboxMode, configuration};
use crate::paths::resolved;

/// The places of one session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Layout {
    pub(crate) mode: SandboxMode,
    /// The session's own temporary directory.
    pub(crate) tmp: FilePath,
    /// What may be written, `tmp` included; a place before what lies in it.
    pub(crate) writable: Vec<FilePath>,
    /// What in those may not be written; a place before what lies in it.
    pub(crate) protected: Vec<FilePath>,
    /// Directories on the way to those: not to be moved away.
    pub(crate) pinned: Vec<FilePath>,
    /// What in those must not come to be.
    pub(crate) absent: Vec<FilePath>,
    /// The directories of repositories, in which git keeps how to go on, and makes the repositories of submodules.
    pub(crate) repositories: Vec<FilePath>,
    /// Whether something is to be protected that is in neither: a link, or more than can be named.
    pub(crate) is_partly_open: bool,
    /// What was asked for and cannot be done: a sentence each.
    pub(crate) notes: Vec<String>,
}

/// Where memory is shared as files.
pub(super) const SHARED_MEMORY: &str = "/dev/shm";

/// What is never written as a whole, whatever is asked for: the kernel's own files, and all there is.
const NEVER_WRITABLE: [&str; 3] = ["/proc", "/sys", "/dev"];

/// The most places that patterns may name, and that are looked at for it.
const MOST_NAMED: usize = 200;
const MOST_LOOKED_AT: usize = 100_000;

/// The most files below a protected directory that are looked at for other names.
const MOST_LINKED: usize = 20_000;

/// Where there is much that nobody wrote: left out if there is too much else.
pub(super) const OF_BUILDS: [&str; 2] = ["node_modules", "target"];

impl Layout {
    /// The places that a sandbox means now.
    pub(crate) fn of(sandbox: &Sandbox, tmp: PathBuf) -> Self {
        let mut notes = Vec::new();
        let mut writable = vec![tmp.clone()];
        writable.extend(Path::new(SHARED_MEMORY).is_dir().then(|| PathBuf::from(SHARED_MEMORY)));
        let mut forbidden = Vec::new();
        let mut open = Vec::new();
        let mut repositories = Vec::new();
        if sandbox.mode == SandboxMode::WorkspaceWrite {
            let git = git::of(&sandbox.workspace);
            if let Some(root) = &git.root {
                forbidden.extend(led_to(root, &git, sandbox, &mut open));
            }
            writable.extend(git.directories);
            for path in std::iter::once(&sandbox.workspace).chain(&sandbox.writable) {
                match path.canonicalize() {
                    Ok(path) if is_never_writable(&path) => {
                        notes.push(format!(
                            "commands may not write {}, whatever is asked for",
                            path.display()
                        ));
                    }
                    Ok(path) => writable.push(path),
                    Err(error) => notes.push(format!(
                        "{} is to be writable for commands and cannot be used: {error}",
                        path.display()
                    )),
                }
            }
            forbidden.extend(git.protected);
            open.extend(git.unseen);
            repositories = git.repositories.into_iter().map(FilePath).collect();
            forbidden.push(sandbox.workspace.join(".mainstay"));
            forbidden.extend(named(sandbox, &mut open, &mut notes));
        }
        let closed = sandbox.closed.iter().map(|path| resolved(path));
        forbidden.extend(closed.filter(|closed| !writable.iter().any(|path| path.starts_with(closed))));
        Layout { repositories, ..Layout::sorted(sandbox.mode, tmp, writable, forbidden, open, notes) }
    }

    fn sorted(
        mode: SandboxMode,
        tmp: PathBuf,
        mut writable: Vec<PathBuf>,
        mut forbidden: Vec<PathBuf>,
        mut open: Vec<String>,
        mut notes: Vec<String>,
    ) -> Self {
        writable.sort();
        writable.dedup();
        forbidden.retain(|path| writable.iter().any(|root| path.starts_with(root)));
        forbidden.sort();
        forbidden.dedup();
        let (mut protected, mut absent, mut pinned) = (Vec::new(), Vec::new(), Vec::new());
        for path in forbidden {
            match path.symlink_metadata() {
                Ok(kind) if kind.is_symlink() || has_link_on_the_way(&path) => {
                    let said = "is to be protected but is, or lies behind, a link, which can be replaced";
                    open.push(format!("{} {said}", path.display()));
                }
                Ok(_) => {
                    open.extend(other_names(&path, MOST_LINKED));
                    protected.push(path);
                }
                Err(_) => absent.push(path),
            }
        }
        for path in protected.iter().chain(&absent) {
            let writable = writable.iter().map(PathBuf::as_path);
            pinned.extend(on_the_way(path, writable).filter(|way| way.is_dir()).map(Path::to_owned));
        }
        pinned.retain(|path| !writable.contains(path) && !protected.contains(path));
        pinned.sort();
        pinned.dedup();
        let is_partly_open = !open.is_empty();
        notes.append(&mut open);
        let all = |paths: Vec<PathBuf>| paths.into_iter().map(FilePath).collect();
        Layout {
            mode,
            tmp: FilePath(tmp),
            writable: all(writable),
            protected: all(protected),
            pinned: all(pinned),
            absent: all(absent),
            repositories: Vec::new(),
            is_partly_open,
            notes,
        }
    }

    /// Whether a path lies in what may be written.
    pub(crate) fn may_write(&self, path: &Path) -> bool {
        self.writable.iter().any(|root| path.starts_with(root.as_path())) && self.forbids(path).is_none()
    }

    /// The protected place that a path is or lies in.
    pub(crate) fn forbids(&self, path: &Path) -> Option<&Path> {
        let all = self.protected.iter().chain(&self.absent).map(FilePath::as_path);
        all.into_iter().find(|place| path.starts_with(place))
    }

    /// What may be written and lies in nothing else that may: no command can replace these.
    pub(crate) fn outermost(&self) -> impl Iterator<Item = &Path> {
        let all = self.writable.iter().map(FilePath::as_path);
        all.filter(|path| {
            !path.ancestors().skip(1).any(|above| self.writable.iter().any(|root| root.as_path() == above))
        })
    }

    /// The directories on the way to a place, those that may be written as a whole left out; the nearest first.
    pub(super) fn on_the_way<'a>(&'a self, place: &'a Path) -> impl Iterator<Item = &'a Path> {
        on_the_way(place, self.writable.iter().map(FilePath::as_path))
    }

    /// The directories that are mounts so that they cannot be moved, an outer one before what lies in it.
    pub(super) fn movable(&self) -> impl Iterator<Item = &Path> {
        let is_inside = |path: &&Path| !self.outermost().any(|root| root == *path);
        let mut all: Vec<&Path> =
            self.writable.iter().chain(&self.pinned).map(FilePath::as_path).filter(is_inside).collect();
        all.sort();
        all.into_iter()
    }

    /// Whether anything inside of what may be written is kept from commands.
    pub(crate) fn protects(&self) -> bool {
        !self.protected.is_empty() || !self.absent.is_empty()
    }
}

fn on_the_way<'a>(
    place: &'a Path,
    writable: impl Iterator<Item = &'a Path> + Clone,
) -> impl Iterator<Item = &'a Path> {
    let inside = move |way: &&Path| writable.clone().any(|root| way.starts_with(root) && *way != root);
    place.ancestors().skip(1).take_while(inside)
}

fn has_link_on_the_way(path: &Path) -> bool {
    path.parent().is_some_and(|folder| resolved(folder) != folder)
}

/// That a file at or below a path can be written by another name: whoever packs an archive can give it one. Or that there
/// is more than can be looked at for it.
fn other_names(path: &Path, most: usize) -> Option<String> {
    let mut files = ignore::WalkBuilder::new(path).standard_filters(false).build().flatten();
    let mut linked = files
        .by_ref()
        .take(most)
        .filter(|entry| entry.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.nlink() > 1));
    if let Some(file) = linked.next() {
        let said = "is to be protected but has another name (a hard link), by which it can be changed";
        return Some(format!("{} {said}", file.path().display()));
    }
    let said = "is to be protected but holds too much to be looked through for files that have another name";
    files.next().map(|_| format!("{} {said}", path.display()))
}

fn is_never_writable(path: &Path) -> bool {
    path == Path::new("/") || NEVER_WRITABLE.iter().any(|place| path.starts_with(place))
}

/// Where the configuration leads that git has for these repositories: what it is read from, and the directories of hooks.
fn led_to(root: &Path, repositories: &Git, sandbox: &Sandbox, open: &mut Vec<String>) -> Vec<PathBuf> {
    let may_be_written = |path: &Path| {
        std::iter::once(&sandbox.workspace).chain(&sandbox.writable).any(|root| path.starts_with(root))
    };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let Some(git) = installed("git", &path, may_be_written) else {
        open.extend(installed("git", &path, |_| false).map(|git| {
            format!(
                "what git reads its configuration from is not protected: commands may write {}",
                git.display()
            )
        }));
        return Vec::new();
    };
    let mut found = Vec::new();
    for repository in repositories.parts(root) {
        let mut places = match configuration::led_to(&repository, &git) {
            Ok(places) => places,
            Err(why) => {
                open.push(format!("what git reads its configuration from is not protected: {why}"));
                // The others would be waited for as long.
                break;
            }
        };
        let holds_all =
            |place: &PathBuf| repository.root.starts_with(place) || sandbox.workspace.starts_with(place);
        if let Some(place) = places.iter().find(|place| holds_all(place) && may_be_written(place)) {
            open.push(format!(
                "{} is where git's hooks lie, and holds all that commands write",
                place.display()
            ));
        }
        places.retain(|place| !holds_all(place));
        found.append(&mut places);
    }
    found
}

/// A program in a list of directories; never one that depends on where this runs, or that commands could have made.
pub(super) fn installed(
    name: &str,
    directories: &OsStr,
    may_be_written: impl Fn(&Path) -> bool,
) -> Option<PathBuf> {
    let all = std::env::split_paths(directories).filter(|folder| folder.is_absolute());
    let real = all.filter_map(|folder| folder.join(name).canonicalize().ok());
    real.filter(|path| path.is_file() && access(path, Access::EXEC_OK).is_ok())
        .find(|path| !may_be_written(path))
}

/// What the user's patterns name: a directory for `directory/**`, what is there for other patterns.
fn named(sandbox: &Sandbox, open: &mut Vec<String>, notes: &mut Vec<String>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut globs = globset::GlobSetBuilder::new();
    let mut has_globs = false;
    for pattern in &sandbox.protected {
        let whole = pattern.strip_suffix("/**").unwrap_or(pattern);
        if !whole.contains(['*', '?', '[', '{', '\\']) {
            found.push(sandbox.workspace.join(whole));
        } else if let Ok(glob) =
            GlobBuilder::new(pattern).literal_separator(true).case_insensitive(true).build()
        {
            globs.add(glob);
            has_globs = true;
        }
    }
    if let (true, Ok(globs)) = (has_globs, globs.build()) {
        let matched = matching(&sandbox.workspace, &globs, &[]).or_else(|| {
            notes.push(
                "`protected` is not looked for in node_modules and target: they are too large".to_owned(),
            );
            matching(&sandbox.workspace, &globs, &OF_BUILDS)
        });
        if matched.as_ref().is_none_or(|matched| matched.len() > MOST_NAMED) {
            open.push("`protected` names more places than can be kept from commands".to_owned());
        }
        found.extend(matched.into_iter().flatten().take(MOST_NAMED));
    }
    found
}

/// What patterns match in a workspace, ignored files too; none if there is too much to look at.
fn matching(
    workspace: &Path,
    globs: &globset::GlobSet,
    skipped: &'static [&'static str],
) -> Option<Vec<PathBuf>> {
    let mut walk = ignore::WalkBuilder::new(workspace);
    walk.standard_filters(false).filter_entry(move |entry| {
        let is_objects = entry.path().ends_with(".git/objects");
        !is_objects && !skipped.iter().any(|name| entry.file_name() == *name)
    });
    let mut found = Vec::new();
    for (looked_at, entry) in walk.build().flatten().enumerate() {
        if looked_at > MOST_LOOKED_AT {
            return None;
        }
        let seen = entry.path().strip_prefix(workspace).unwrap_or(entry.path());
        if globs.is_match(seen) {
            found.push(entry.into_path());
        }
    }
    Some(found)
}

/// Removes a directory of commands with all that is in it, whatever they did to it.
pub(crate) fn remove_all(folder: &Path) {
    if fs::remove_dir_all(folder).is_err() && !folder.is_symlink() {
        open_up(folder);
        // What is left then is not this user's, or is a mount.
        let _ = fs::remove_dir_all(folder);
    }
}

fn open_up(folder: &Path) {
    let _ = fs::set_permissions(folder, fs::Permissions::from_mode(0o700));
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.for_each(|entry| open_up(&entry.path()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_looked_through_for_other_names_is_said() -> std::io::Result<()> {
        let top = tempfile::tempdir()?;
        // The directory itself counts too.
        for number in 1..10 {
            fs::write(top.path().join(number.to_string()), "")?;
        }
        assert_eq!(other_names(top.path(), 10), None);
        fs::write(top.path().join("more"), "")?;
        let said = other_names(top.path(), 10).unwrap_or_default();
        assert!(said.contains("holds too much to be looked through"), "{said}");
        Ok(())
    }
}
