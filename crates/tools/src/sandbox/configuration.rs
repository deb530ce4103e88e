//! What git's configuration of a repository leads to: the files that it is read from, and the directory of hooks.
//!
//! Git itself is asked, since only it knows what it includes. Reading a configuration runs nothing. An answer that does
//! not come soon is not waited for: a repository can have git read from a pipe.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::layout::resolved;

const PATIENCE: Duration = Duration::from_secs(2);

/// The longest answer.
const LONGEST: usize = 4 << 20;

/// The files and directories that git is led to, there or not. Files outside of the workspace are among them.
///
/// # Errors
///
/// Why git does not say.
pub(super) fn led_to(root: &Path, git: &Path) -> Result<Vec<PathBuf>, String> {
    let mut command = Command::new(git);
    command.arg("-C").arg(root).args(["config", "--null", "--show-origin", "--includes", "--list"]);
    for name in ["GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_CONFIG", "GIT_TRACE"] {
        command.env_remove(name);
    }
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let answer = answer_of(child.map_err(|error| error.to_string())?)?;
    Ok(places_in(&answer, root))
}

fn answer_of(mut child: Child) -> Result<Vec<u8>, String> {
    let answer = read(&mut child);
    if answer.is_err() {
        // It fails only if it has ended.
        let _ = child.kill();
    }
    let _ = child.wait();
    answer
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
}
