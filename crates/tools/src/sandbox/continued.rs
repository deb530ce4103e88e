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
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use mainstay_session::message::FilePath;
use rustix::fs::{FsWord, statfs};

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
    /// What is there now. Directories in which nothing has come or gone since they were looked through are not read again.
    pub(super) fn now(layout: &Layout, folders: &mut Folders) -> Self {
        let mut now = Continued::default();
        for repository in layout.repositories.iter().map(FilePath::as_path) {
            for file in FILES.map(|name| repository.join(name)) {
                match programs_in(&file) {
                    Ok(lines) => drop(now.lines.insert(file, lines)),
                    Err(error) if is_missing(&error) => {}
                    Err(_) => drop(now.unseen.insert(file)),
                }
            }
            let written = WRITTEN.map(|name| (name, true)).into_iter().chain(FLAT.map(|name| (name, false)));
            for (folder, is_deep) in written.map(|(name, is_deep)| (joined(repository, name), is_deep)) {
                let is_all = now.add_links(folders, &folder, is_deep, &mut { MOST_WRITTEN });
                now.unseen.extend((!is_all).then_some(folder));
            }
            let modules = repository.join("modules");
            let (found, is_all) = git::modules_in(&modules);
            now.others.extend(found);
            now.unseen.extend((!is_all).then_some(modules));
        }
        now
    }

    /// Adds the links in a directory; below it too, if it is to be so. Whether there were entries `left` for all of it.
    fn add_links(&mut self, folders: &mut Folders, folder: &Path, is_deep: bool, left: &mut usize) -> bool {
        let found = match folders.look(folder, *left, SystemTime::now()) {
            Ok(Some(found)) => found,
            Ok(None) => return false,
            Err(error) => {
                self.unseen.extend((!is_missing(&error)).then(|| folder.to_owned()));
                return true;
            }
        };
        *left -= found.entries;
        self.others.extend(found.links.iter().cloned());
        !is_deep || found.folders.iter().all(|below| self.add_links(folders, below, is_deep, left))
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

/// What directories held when they were looked through.
#[derive(Debug, Default)]
pub(super) struct Folders(BTreeMap<PathBuf, Rc<Folder>>);

#[derive(Debug)]
struct Folder {
    /// The device, the number and the time of the last change.
    stamp: (u64, u64, SystemTime),
    /// Whether a further change would have another time: that one was over, and the file system is one of those on which no
    /// command can set it.
    is_settled: bool,
    links: Vec<PathBuf>,
    folders: Vec<PathBuf>,
    entries: usize,
}

/// How exact the times of changes are: two seconds at worst.
const SETTLED: Duration = Duration::from_secs(3);

/// File systems of this machine's kernel, by the numbers that statfs(2) tells: bcachefs, btrfs, ext, f2fs, overlay, tmpfs, XFS.
const TRUSTED: [FsWord; 7] =
    [0xca45_1a4e, 0x9123_683e, 0xef53, 0xf2f5_2010, 0x794c_7630, 0x0102_1994, 0x5846_5342];

impl Folders {
    /// What a directory holds `now`; nothing if that is more than `most` entries.
    fn look(&mut self, path: &Path, most: usize, now: SystemTime) -> io::Result<Option<Rc<Folder>>> {
        let metadata = fs::metadata(path)?;
        let changed = Duration::new(
            u64::try_from(metadata.ctime()).unwrap_or_default(),
            u32::try_from(metadata.ctime_nsec()).unwrap_or_default(),
        );
        let changed = SystemTime::UNIX_EPOCH + changed;
        let stamp = (metadata.dev(), metadata.ino(), changed);
        if let Some(known) = self.0.get(path)
            && known.is_settled
            && known.stamp == stamp
        {
            return Ok((known.entries <= most).then(|| known.clone()));
        }
        let is_over = now.duration_since(changed).is_ok_and(|age| age > SETTLED);
        let is_settled = is_over && statfs(path).is_ok_and(|system| TRUSTED.contains(&system.f_type));
        let mut folder = Folder { stamp, is_settled, links: Vec::new(), folders: Vec::new(), entries: 0 };
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            folder.entries += 1;
            if folder.entries > most {
                return Ok(None);
            }
            let kind = entry.file_type()?;
            if kind.is_symlink() {
                folder.links.push(entry.path());
            } else if kind.is_dir() {
                folder.folders.push(entry.path());
            }
        }
        let folder = Rc::new(folder);
        self.0.insert(path.to_owned(), folder.clone());
        Ok(Some(folder))
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
    use std::os::unix::fs::symlink;

    use super::*;

    /// A directory that has just changed is read again, however often; one that is at rest only when something comes or goes.
    #[test]
    fn what_comes_is_seen_whether_a_directory_is_known_or_not() -> io::Result<()> {
        let top = tempfile::tempdir()?;
        let mut folders = Folders::default();
        let mut now = SystemTime::now();
        let mut look = |most, now| folders.look(top.path(), most, now);
        let links = |found: Option<Rc<Folder>>| found.map(|found| found.links.len());
        assert_eq!(links(look(9, now)?), Some(0));
        symlink("x", top.path().join("first"))?;
        assert_eq!(links(look(9, now)?), Some(1), "within one tick of the clock, perhaps");
        // That time passes is pretended; the clock of the file system must move too.
        let other = tempfile::tempdir()?;
        let changed = |path: &Path| fs::metadata(path).map(|it| (it.ctime(), it.ctime_nsec()));
        let first = changed(top.path())?;
        while changed(other.path())? <= first {
            fs::write(other.path().join("x"), "")?;
            fs::remove_file(other.path().join("x"))?;
        }
        now += 2 * SETTLED;
        let known = look(9, now)?;
        assert_eq!(links(known.clone()), Some(1));
        assert!(known.zip(look(9, now)?).is_some_and(|(one, other)| Rc::ptr_eq(&one, &other)));
        assert_eq!(links(look(0, now)?), None);
        symlink("x", top.path().join("second"))?;
        assert_eq!(links(look(9, now)?), Some(2));
        assert_eq!(links(look(1, now)?), None);
        fs::remove_file(top.path().join("first"))?;
        assert_eq!(links(look(9, now)?), Some(1));
        Ok(())
    }

    #[test]
    fn lines_that_run_something_are_known() {
        let lines = ["pick 1 x", "exec make", "\tx make", "# exec x", "x", "execute", "fixup 2 exec"];
        assert_eq!(lines.map(is_exec), [false, true, true, false, true, false, false]);
    }
}
