//! What git goes on with: files in which a command of today could name a program that the user's git runs tomorrow.
//!
//! A rebase that has stopped keeps a list of what is to be done yet, and `exec` lines in it are run by `git rebase
//! --continue`. A merge strategy that is a path names a program too. Such lines are refused if they were not there
//! when the command began; everything else in these files is git's own business.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::Layout;

/// The most that is read of such a file. What is longer is taken for one that names a program.
const LONGEST: u64 = 4 << 20;

/// Files in a git directory that say how to go on.
pub(super) const FILES: [&str; 3] =
    ["rebase-merge/git-rebase-todo", "rebase-merge/strategy", "sequencer/opts"];

/// The lines that name programs, by file.
pub(crate) type Lines = BTreeMap<PathBuf, BTreeSet<String>>;

/// What is there now.
pub(super) fn lines(layout: &Layout) -> Lines {
    let files = layout.continued.iter().map(|path| path.as_path());
    files
        .filter_map(|file| Some((file.to_owned(), programs_in(file)?)))
        .filter(|(_, lines)| !lines.is_empty())
        .collect()
}

/// The files in which there is more than there was.
pub(super) fn planted(layout: &Layout, before: &Lines) -> Vec<PathBuf> {
    let was_there = |file: &Path, line: &String| before.get(file).is_some_and(|lines| lines.contains(line));
    let now = lines(layout).into_iter();
    now.filter(|(file, lines)| !lines.iter().all(|line| was_there(file, line)))
        .map(|(file, _)| file)
        .collect()
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
    let is_todo = file.ends_with(FILES[0]);
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
