//! What git goes on with: where a command of today could name a program that the user's git runs tomorrow, or a file that
//! it writes.
//!
//! A rebase that has stopped keeps a list of what is to be done yet, and `exec` lines in it are run by `git rebase
//! --continue`. A merge strategy that is a path names a program too. Where the repository of a submodule lies already,
//! `git submodule update --init` takes it as it is, with its hooks. And git writes through links wherever they lead: its
//! messages and logs, what of a rebase is done, what it remembers of a conflict, an index of its packs. Such things are
//! refused if they were not there when the command began; everything else in these places is git's own business.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use mainstay_session::message::FilePath;

use super::{Layout, git};
use crate::bounded::regular_file;
use crate::paths::is_missing;

/// The most that is read of such a file. What is longer, or is no file, is taken for one that names a program.
const LONGEST: usize = 4 << 20;

/// Files in a git directory that say how to go on: the list of a rebase, and merge strategies.
const FILES: [&str; 3] = ["rebase-merge/git-rebase-todo", "rebase-merge/strategy", "sequencer/opts"];

/// Directories in a git directory that are looked through for links, and how many entries of each: those in which git
/// opens files by names that can be foreseen.
const WRITTEN: [&str; 9] = [
    "logs",
    "refs",
    "rebase-merge",
    "rebase-apply",
    "sequencer",
    "rr-cache",
    "lost-found",
    "objects/info",
    "objects/pack",
];
const MOST_WRITTEN: usize = 10_000;

/// Directories of which only what lies directly in them is looked at: the git directory itself, and one that has too much
/// below it.
const FLAT: [&str; 2] = ["", "objects"];

/// What there is of it, to be compared with what there is later.
#[derive(Debug, Default)]
pub(crate) struct Continued {
    /// The lines that name programs, by file.
    lines: BTreeMap<PathBuf, BTreeSet<String>>,
    /// The repositories of submodules, and links in all repositories.
    others: BTreeSet<PathBuf>,
    /// What holds more than is looked at, or cannot be looked at.
    unseen: BTreeSet<PathBuf>,
}

impl Continued {
    /// What is there now.
    pub(super) fn now(layout: &Layout) -> Self {
        let mut now = Continued::default();
        for repository in layout.repositories.iter().map(FilePath::as_path) {
            for file in FILES.map(|name| repository.join(name)) {
                match programs_in(&file) {
                    Ok(lines) => drop(now.lines.insert(file, lines)),
                    Err(error) if is_missing(&error) => {}
                    Err(_) => drop(now.unseen.insert(file)),
                }
            }
            let folders = WRITTEN.map(|name| (name, true)).into_iter().chain(FLAT.map(|name| (name, false)));
            for (folder, is_deep) in folders.map(|(name, is_deep)| (joined(repository, name), is_deep)) {
                let mut left = Some(MOST_WRITTEN);
                now.add_links(&folder, is_deep, &mut left);
                now.unseen.extend(left.is_none().then_some(folder));
            }
            let modules = repository.join("modules");
            let (found, is_all) = git::modules_in(&modules);
            now.others.extend(found);
            now.unseen.extend((!is_all).then_some(modules));
        }
        now
    }

    /// Adds the links in a directory; below it too, if it is to be so, as long as there are entries `left`.
    fn add_links(&mut self, folder: &Path, is_deep: bool, left: &mut Option<usize>) {
        if let Err(error) = self.try_add_links(folder, is_deep, left)
            && !is_missing(&error)
        {
            self.unseen.insert(folder.to_owned());
        }
    }

    fn try_add_links(&mut self, folder: &Path, is_deep: bool, left: &mut Option<usize>) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            *left = left.and_then(|left| left.checked_sub(1));
            if left.is_none() {
                break;
            }
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_symlink() {
                self.others.insert(entry.path());
            } else if kind.is_dir() && is_deep {
                self.add_links(&entry.path(), is_deep, left);
            }
        }
        Ok(())
    }

    /// What could not be looked at, or not as a whole.
    pub(super) fn unseen(&self) -> impl Iterator<Item = &Path> {
        self.unseen.iter().map(PathBuf::as_path)
    }

    /// What is there now and was not: to be moved away. What lies below another such thing goes with it and is left out.
    pub(super) fn planted(&self, now: &Continued) -> BTreeSet<PathBuf> {
        let was_there =
            |file: &Path, line: &String| self.lines.get(file).is_some_and(|lines| lines.contains(line));
        let files = now.lines.iter();
        let files = files.filter(|(file, lines)| !lines.iter().all(|line| was_there(file, line)));
        let all = files.map(|(file, _)| file).chain(now.others.difference(&self.others));
        let all: BTreeSet<&Path> = all.map(PathBuf::as_path).collect();
        let is_below_another = |path: &&&Path| path.ancestors().skip(1).any(|above| all.contains(above));
        all.iter().filter(|path| !is_below_another(path)).map(|path| path.to_path_buf()).collect()
    }

    /// What could be looked at as a whole and cannot any more.
    pub(super) fn hidden<'a>(&'a self, now: &'a Continued) -> impl Iterator<Item = &'a PathBuf> {
        now.unseen.difference(&self.unseen)
    }
}

/// A place in a directory, or the directory itself, without a slash behind it.
fn joined(folder: &Path, name: &str) -> PathBuf {
    if name.is_empty() { folder.to_owned() } else { folder.join(name) }
}

/// The lines that name programs.
fn programs_in(file: &Path) -> io::Result<BTreeSet<String>> {
    let bytes = match regular_file(file, LONGEST) {
        Err(error) if matches!(error.kind(), ErrorKind::FileTooLarge | ErrorKind::InvalidInput) => {
            return Ok(BTreeSet::from([error.to_string()]));
        }
        read => read?,
    };
    let text = String::from_utf8_lossy(&bytes);
    let is_todo = file.ends_with(FILES[0]);
    let names_program = |line: &&str| if is_todo { is_exec(line) } else { line.contains('/') };
    Ok(text.lines().filter(names_program).map(str::to_owned).collect())
}

/// Whether git takes a line of a list for a command to be run.
fn is_exec(line: &str) -> bool {
    matches!(line.split_ascii_whitespace().next(), Some("exec" | "x"))
}

#[cfg(test)]
mod tests {
    use super::is_exec;

    #[test]
    fn lines_that_run_something_are_known() {
        let lines = ["pick 1 x", "exec make", "\tx make", "# exec x", "x", "execute", "fixup 2 exec"];
        assert_eq!(lines.map(is_exec), [false, true, true, false, true, false, false]);
    }
}
