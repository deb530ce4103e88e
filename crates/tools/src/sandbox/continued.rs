//! What git goes on with: files in which a command of today could name a program that the user's git runs tomorrow.
//!
//! A rebase that has stopped keeps a list of what is to be done yet, and `exec` lines in it are run by `git rebase
//! --continue`. A merge strategy that is a path names a program too. And where the repository of a submodule lies already,
//! `git submodule update --init` takes it as it is, with its hooks. Such things are refused if they were not there
//! when the command began; everything else in these files is git's own business.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use mainstay_session::message::FilePath;

use super::{Layout, git};

/// The most that is read of such a file. What is longer is taken for one that names a program.
const LONGEST: u64 = 4 << 20;

/// What there is of it, to be compared with what there is later.
#[derive(Debug, Default)]
pub(crate) struct Continued {
    /// The lines that name programs, by file.
    lines: BTreeMap<PathBuf, BTreeSet<String>>,
    /// The repositories of submodules.
    modules: BTreeSet<PathBuf>,
}

impl Continued {
    /// What is there now.
    pub(super) fn now(layout: &Layout) -> Self {
        let files = layout.continued.iter().map(FilePath::as_path);
        let lines = files.filter_map(|file| Some((file.to_owned(), programs_in(file)?)));
        let modules = git::modules_in(layout.modules.iter().map(FilePath::as_path));
        Continued { lines: lines.collect(), modules }
    }

    /// The files and repositories in which there is now what was not there.
    pub(super) fn planted(&self, layout: &Layout) -> Vec<PathBuf> {
        let now = Continued::now(layout);
        let was_there =
            |file: &Path, line: &String| self.lines.get(file).is_some_and(|lines| lines.contains(line));
        let files = now.lines.into_iter();
        let files = files.filter(|(file, lines)| !lines.iter().all(|line| was_there(file, line)));
        let modules = now.modules.into_iter().filter(|path| !self.modules.contains(path));
        files.map(|(file, _)| file).chain(modules).collect()
    }
}

/// The lines that name programs; none if there is no such file.
fn programs_in(file: &Path) -> Option<BTreeSet<String>> {
    // A pipe that lies there is not waited for.
    let opened = fs::File::options().read(true).custom_flags(libc::O_NONBLOCK).open(file).ok()?;
    let mut bytes = Vec::new();
    opened.take(LONGEST + 1).read_to_end(&mut bytes).ok()?;
    if bytes.len() as u64 > LONGEST {
        return Some(BTreeSet::from(["too long".to_owned()]));
    }
    let text = String::from_utf8_lossy(&bytes);
    let is_todo = file.ends_with(git::CONTINUED[0]);
    let names_program = |line: &&str| if is_todo { is_exec(line) } else { line.contains('/') };
    Some(text.lines().filter(names_program).map(str::to_owned).collect())
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
