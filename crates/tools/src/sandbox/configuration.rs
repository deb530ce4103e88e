//! What git's configuration of a repository leads to: the files that it is read from, and the directory of hooks.
//!
//! Git itself is asked, since only it knows what it includes. Reading a configuration runs nothing. An answer that does
//! not come soon is not waited for: a repository can have git read from a pipe.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::git::Repository;
use crate::paths::resolved;
use crate::repository::small_file;

const PATIENCE: Duration = Duration::from_secs(2);

/// The longest answer.
const LONGEST: usize = 4 << 20;

/// The files and directories that git is led to, there or not, in a repository. Files outside of the workspace are among
/// them.
///
/// # Errors
///
/// Why git does not say, or does not say all.
pub(super) fn led_to(repository: &Repository, git: &Path) -> Result<Vec<PathBuf>, String> {
    let Repository { root, directories, is_named } = repository;
    let mut command = Command::new(git);
    if let (true, [directory]) = (is_named, directories.as_slice()) {
        // Where it is checked out need not be there.
        command.arg("-C").arg(directory).arg("--git-dir").arg(directory);
    } else {
        command.arg("-C").arg(root);
    }
    command.args(["config", "--null", "--show-origin", "--includes", "--list"]);
    for name in ["GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_CONFIG", "GIT_TRACE"] {
        command.env_remove(name);
    }
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let (answer, status) = answer_of(child.map_err(|error| error.to_string())?)?;
    if !status.success() {
        return Err(format!("`git config --list` fails in {} ({status})", root.display()));
    }
    whole(places_in(&answer, root), directories)
}

/// The same places, if the repository's own configuration is among them. Git leaves it out where it does not trust the
/// owner of the repository.
fn whole(places: Vec<PathBuf>, directories: &[PathBuf]) -> Result<Vec<PathBuf>, String> {
    let mut own = directories.iter().map(|directory| resolved(&directory.join("config")));
    let is_left_out = |file: &PathBuf| !places.contains(file) && has_settings(file);
    match own.find(is_left_out) {
        Some(file) => Err(format!("git does not say what is in {}", file.display())),
        None => Ok(places),
    }
}

/// Whether a configuration says anything but names of sections. What cannot be read may.
fn has_settings(file: &Path) -> bool {
    if file.symlink_metadata().is_err() {
        return false;
    }
    let is_setting = |line: &str| {
        let of_section = line.trim_start().strip_prefix('[').and_then(|line| line.split_once(']'));
        let line = of_section.map_or(line, |(_, rest)| rest).trim();
        !line.is_empty() && !line.starts_with(['#', ';'])
    };
    small_file(file).is_none_or(|text| text.lines().any(is_setting))
}

fn answer_of(mut child: Child) -> Result<(Vec<u8>, ExitStatus), String> {
    let answer = read(&mut child);
    if answer.is_err() {
        // It fails only if it has ended.
        let _ = child.kill();
    }
    let status = child.wait();
    Ok((answer?, status.map_err(|error| error.to_string())?))
}

fn read(child: &mut Child) -> Result<Vec<u8>, String> {
    let Some(printed) = child.stdout.as_mut() else { return Ok(Vec::new()) };
    let until = Instant::now() + PATIENCE;
    let (mut answer, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(&*printed, PollFlags::IN)], Some(&left)) {
            Ok(0) => return Err("it takes too long to say".to_owned()),
            Err(rustix::io::Errno::INTR) => continue,
            Ok(_) | Err(_) => {}
        }
        match printed.read(&mut buffer).map_err(|error| error.to_string())? {
            0 => return Ok(answer),
            length => answer.extend_from_slice(&buffer[..length]),
        }
        if answer.len() > LONGEST {
            return Err("it says too much".to_owned());
        }
    }
}

/// Reads what git prints: an origin and a setting, in turns, each with a zero behind it.
fn places_in(answer: &[u8], root: &Path) -> Vec<PathBuf> {
    let mut places = Vec::new();
    let mut fields = answer.split(|byte| *byte == 0);
    while let (Some(origin), Some(setting)) = (fields.next(), fields.next()) {
        let file = origin.strip_prefix(b"file:").map(|path| root.join(OsStr::from_bytes(path)));
        if let Some(place) = led_to_by(setting, root, file.as_deref()) {
            places.push(resolved(&place));
        }
        places.extend(file.map(|file| resolved(&file)));
    }
    places.sort();
    places.dedup();
    places
}

/// The place that a setting names, if it is one from which git runs programs or reads more settings.
fn led_to_by(setting: &[u8], root: &Path, file: Option<&Path>) -> Option<PathBuf> {
    let at = setting.iter().position(|byte| *byte == b'\n')?;
    let (key, value) = (std::str::from_utf8(&setting[..at]).ok()?, OsStr::from_bytes(&setting[at + 1..]));
    let is_include = key == "include.path" || (key.starts_with("includeif.") && key.ends_with(".path"));
    let from = match key {
        "core.hookspath" => root,
        _ if is_include => file?.parent()?,
        _ => return None,
    };
    match Path::new(value).strip_prefix("~") {
        Ok(of_home) => std::env::var_os("HOME").map(|home| Path::new(&home).join(of_home)),
        Err(_) if value.is_empty() => None,
        Err(_) => Some(from.join(value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_git_reads_and_where_hooks_lie_is_found() {
        let answer = b"file:.git/config\0core.bare\nfalse\0file:.git/config\0core.hookspath\n.husky/_\0\
            file:.git/config\0include.path\n../.gitconfig\0file:.git/config\0includeif.gitdir:/x.path\nmore\0\
            command line:\0core.pager\ncat\0file:/nowhere/gitconfig\0user.name\na\0file:x\0flag\0";
        let places =
            ["/nowhere/gitconfig", "/w/.git/config", "/w/.git/more", "/w/.gitconfig", "/w/.husky/_", "/w/x"];
        assert_eq!(places_in(answer, Path::new("/w")), places.map(PathBuf::from));
    }

    #[test]
    fn a_configuration_that_git_leaves_out_is_missed() -> std::io::Result<()> {
        let top = tempfile::tempdir()?;
        let directories = [top.path().canonicalize()?, PathBuf::from("/nowhere")];
        let file = directories[0].join("config");
        let is_whole = |text: &str, places: &[&Path]| {
            std::fs::write(&file, text)?;
            let places: Vec<PathBuf> = places.iter().map(|path| path.to_path_buf()).collect();
            std::io::Result::Ok(whole(places.clone(), &directories) == Ok(places))
        };
        let global = Path::new("/nowhere/gitconfig");
        assert!(whole(Vec::new(), &directories).is_ok(), "there is none");
        assert!(!is_whole("[core]\n\tbare = false\n", &[])?);
        assert!(!is_whole("[core]\n\tbare = false\n", &[global])?);
        assert!(!is_whole("[core] bare\n", &[global])?);
        assert!(is_whole("[core]\n\tbare = false\n", &[&file, global])?);
        assert!(is_whole("# nothing\n\n[core]\n ; here\n", &[global])?);
        Ok(())
    }
}
