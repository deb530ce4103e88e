//! The sandbox as the supervisor holds it, from its start to its end.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use mainstay_session::message::FilePath;
use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags, access, openat, unlinkat};
use rustix::mount::{UnmountFlags, unmount};

use super::confine::Confinement;
use super::layout::{Layout, SHARED_MEMORY};
use super::{CUTS_ARE_HELD, Protection, SandboxReport, Way, namespaces};
use crate::sys;

/// The first version of Landlock that holds signals.
const SIGNALS_ARE_HELD: u32 = 6;

/// What commands are put under, made ready.
pub(crate) struct Held {
    layout: Layout,
    confinement: Confinement,
    way: Way,
    /// The directory that the temporary one lies in, as it is outside.
    around: Option<OwnedFd>,
}

impl Held {
    /// Makes everything ready in this process, and says what is in force. After a failure the process is of no use.
    pub(crate) fn enter(way: Way, layout: Layout) -> Result<(Self, SandboxReport), String> {
        let around = layout.tmp.as_path().parent().and_then(|parent| {
            openat(CWD, parent, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).ok()
        });
        let has_own_terminals = match way {
            Way::Namespaces => namespaces::enter(&layout).map_err(|error| error.to_string())?,
            Way::Bubblewrap | Way::Plain => false,
        };
        let confinement = Confinement::new(way != Way::Plain, has_own_terminals)?;
        let report = report(way, &layout);
        Ok((Held { layout, confinement, way, around }, report))
    }

    /// Puts a command, which was just forked, under it.
    pub(crate) fn apply(&self) -> Result<(), String> {
        self.confinement.apply(&self.layout)
    }

    /// Moves what a command made though it must not be out of the way.
    pub(crate) fn put_aside(&self) -> Vec<(PathBuf, PathBuf)> {
        super::put_aside(&self.layout)
    }

    /// Ends it, when no command is left. (Within bubblewrap the directory itself is the agent's to remove.)
    pub(crate) fn end(&self) {
        self.put_aside();
        let tmp = self.layout.tmp.as_path();
        super::remove_all(tmp);
        if self.way == Way::Namespaces {
            // It is a mount here, in mounts that are read-only around it.
            let _ = unmount(tmp, UnmountFlags::DETACH);
            if let (Some(around), Some(name)) = (&self.around, tmp.file_name()) {
                let _ = unlinkat(around, name, AtFlags::REMOVEDIR);
            }
        }
    }
}

fn report(way: Way, layout: &Layout) -> SandboxReport {
    let (landlock, seccomp) = (sys::landlock_version(), sys::has_seccomp_filters());
    let protected = match (layout.protects(), way) {
        _ if layout.is_partly_open => Protection::Open,
        (false, _) => Protection::Nothing,
        (true, Way::Namespaces | Way::Bubblewrap) => Protection::Held,
        // What is not there yet is moved away in any case, should it come.
        (true, Way::Plain) if layout.protected.is_empty() => Protection::Held,
        (true, Way::Plain) => Protection::Open,
    };
    let mut lacking = layout.notes.clone();
    if landlock == 0 {
        lacking.push("the kernel has no Landlock, so files are not held".to_owned());
    }
    if !seccomp {
        lacking.push("the kernel takes no filter of system calls, so the network is not held".to_owned());
    }
    if way == Way::Plain {
        if (1..CUTS_ARE_HELD).contains(&landlock) {
            lacking.push(format!(
                "Landlock {landlock} lets commands cut files short anywhere; version {CUTS_ARE_HELD} (Linux 6.2) holds that"
            ));
        }
        lacking.push(
            "commands have no loopback, so tests that start a server fail; modes, times and attributes of your files \
             outside of the workspace are not held"
                .to_owned(),
        );
    }
    if way == Way::Plain && !layout.protected.is_empty() {
        let names: Vec<String> = layout.protected.iter().take(3).map(ToString::to_string).collect();
        lacking.push(format!("protected paths are not held: {}, …", names.join(", ")));
    }
    if way != Way::Namespaces && landlock < SIGNALS_ARE_HELD {
        lacking.push("signals to your other processes are not held".to_owned());
    }
    SandboxReport { mode: layout.mode, way, landlock, seccomp, protected, lacking }
}

/// The words that start a program within `bwrap`.
///
/// # Errors
///
/// Why that cannot be.
pub(crate) fn bubblewrap(layout: &Layout) -> Result<(PathBuf, Vec<OsString>), String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let bwrap = installed("bwrap", &path, layout).ok_or("bubblewrap is not installed")?;
    let words = ["--unshare-net", "--unshare-ipc", "--ro-bind", "/", "/", "--dev-bind", "/dev", "/dev"];
    let mut words: Vec<OsString> = words.into_iter().map(OsString::from).collect();
    let mut bind = |how: &str, from: &OsStr, to: &Path| {
        words.extend([OsString::from(how), from.to_owned(), to.into()]);
    };
    let shared_memory = Path::new(SHARED_MEMORY);
    for place in layout.writable.iter().chain(&layout.pinned).map(FilePath::as_path) {
        if place != shared_memory {
            bind("--bind", place.as_os_str(), place);
        }
    }
    for place in &layout.protected {
        bind("--ro-bind", place.as_path().as_os_str(), place.as_path());
    }
    for socket in namespaces::of_others(layout).map_err(|error| error.to_string())? {
        bind("--ro-bind", OsStr::new("/dev/null"), &socket);
    }
    if layout.may_write(shared_memory) {
        words.extend(["--perms", "1777", "--tmpfs", SHARED_MEMORY].map(OsString::from));
    }
    for folder in namespaces::folders_of_sockets() {
        words.extend(["--tmpfs".into(), folder.into(), "--remount-ro".into(), folder.into()]);
    }
    words.push("--".into());
    Ok((bwrap, words))
}

/// A program in a list of directories; never one that depends on where this runs, or that commands could have made.
fn installed(name: &str, directories: &OsStr, layout: &Layout) -> Option<PathBuf> {
    let all = std::env::split_paths(directories).filter(|folder| folder.is_absolute());
    let real = all.filter_map(|folder| folder.join(name).canonicalize().ok());
    real.filter(|path| path.is_file() && access(path, Access::EXEC_OK).is_ok())
        .find(|path| !layout.writable.iter().any(|root| path.starts_with(root.as_path())))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::sandbox::{Sandbox, SandboxMode};

    #[test]
    fn only_a_program_that_is_installed_is_taken() -> std::io::Result<()> {
        let top = tempfile::tempdir()?;
        let top_path = top.path().canonicalize()?;
        for (folder, mode) in [("workspace", 0o755), ("plain", 0o644), ("bin", 0o755)] {
            fs::create_dir(top_path.join(folder))?;
            fs::write(top_path.join(folder).join("bwrap"), "")?;
            fs::set_permissions(top_path.join(folder).join("bwrap"), PermissionsExt::from_mode(mode))?;
        }
        let sandbox = Sandbox::new(SandboxMode::WorkspaceWrite, top_path.join("workspace"));
        let layout = Layout::of(&sandbox, top_path.join("tmp"));
        let found = |list: &[&Path]| {
            let list = std::env::join_paths(list).unwrap_or_default();
            installed("bwrap", &list, &layout)
        };
        let [workspace, plain, bin] = ["workspace", "plain", "bin"].map(|name| top_path.join(name));
        let depth = std::env::current_dir()?.components().count() - 1;
        let relative = Path::new(&"../".repeat(depth)).join(bin.strip_prefix("/").unwrap_or(&bin));
        assert!(relative.join("bwrap").is_file());
        assert_eq!(found(&[&relative, Path::new(""), &workspace, &plain]), None);
        assert_eq!(found(&[&relative, &workspace, &plain, &bin]), Some(bin.join("bwrap")));
        Ok(())
    }
}
