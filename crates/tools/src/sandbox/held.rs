//! The sandbox as the supervisor holds it, from its start to its end.
//!
//! What is protected is protected by mounts, and a mount is lost when what it covers is replaced or removed from outside:
//! `git config` in another terminal writes a new file and renames it. So, before each command, everything is looked at
//! again ([`Held::renew`]).

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use mainstay_session::message::FilePath;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, openat, unlinkat};
use rustix::mount::{UnmountFlags, unmount};

use super::confine::Confinement;
use super::continued::Continued;
use super::layout::{Layout, SHARED_MEMORY, installed};
use super::namespaces::{Place, cover, hide};
use super::sockets::hidden_folders;
use super::temporary::Claim;
use super::{Aside, CUTS_ARE_HELD, Fate, Protection, SandboxReport, Way, aside, namespaces};
use crate::sys;

/// The first version of Landlock that holds signals.
const SIGNALS_ARE_HELD: u32 = 6;

/// What commands are put under, made ready.
pub(crate) struct Held {
    layout: Layout,
    confinement: Confinement,
    way: Way,
    /// Those of the beginning that are hidden.
    sockets: BTreeSet<PathBuf>,
    /// What git would go on with, as it was when the command began; none where no command is to be looked after.
    continued: Option<Continued>,
    unlooked: Unlooked,
    /// The directory that the temporary one lies in, as it is outside.
    around: Option<OwnedFd>,
    _claim: Option<Claim>,
}

impl Held {
    /// Makes everything ready in this process, and says what is in force. After a failure the process is of no use.
    pub(crate) fn enter(
        way: Way,
        layout: Layout,
        sockets: Vec<FilePath>,
    ) -> Result<(Self, SandboxReport), String> {
        let around = layout.tmp.as_path().parent().and_then(|parent| {
            openat(CWD, parent, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).ok()
        });
        let claim = Claim::lay(layout.tmp.as_path()).ok();
        let sockets = sockets.into_iter().map(|path| path.0).collect();
        if way != Way::Plain && !Place::mounts_are_told() {
            return Err("the kernel does not say what is a mount (Linux 5.8 does)".to_owned());
        }
        let has_own_terminals = match way {
            Way::Namespaces => namespaces::enter(&layout, &sockets).map_err(|error| error.to_string())?,
            Way::Bubblewrap => {
                namespaces::share();
                false
            }
            Way::Plain => false,
        };
        let confinement = Confinement::new(way != Way::Plain, has_own_terminals)?;
        let report = report(way, &layout);
        let unlooked = Unlooked::none().map_err(|error| format!("commands cannot be counted: {error}"))?;
        let continued = None;
        let held = Held { layout, confinement, way, sockets, continued, unlooked, around, _claim: claim };
        Ok((held, report))
    }

    /// Puts a command, which was just forked, under it.
    pub(crate) fn apply(&self) -> Result<(), String> {
        self.confinement.apply(&self.layout)
    }

    /// Makes good, before a command, what has changed outside: what is protected is mounted again where its mount was
    /// lost, sockets that have come are hidden. What has come to be where nothing was is the user's if the command
    /// `is_alone`, for what other commands made was moved away when they ended: then it is protected from now on.
    ///
    /// # Errors
    ///
    /// What cannot be made good here. It may be in a new process.
    pub(crate) fn renew(&mut self, sockets: &[FilePath], is_alone: bool) -> Result<(), String> {
        let continued = Continued::now(&self.layout);
        self.renew_protected(is_alone)?;
        self.hide_sockets(sockets, is_alone)?;
        self.unlooked.add().map_err(|error| format!("commands cannot be counted: {error}"))?;
        self.continued = Some(continued);
        Ok(())
    }

    /// That the command, for which all was made good, did not begin.
    pub(crate) fn not_begun(&mut self) {
        if self.continued.take().is_some() {
            self.unlooked.take();
        }
    }

    /// Hides the sockets of the beginning, and these, where they lie open.
    fn hide_sockets(&self, more: &[FilePath], is_alone: bool) -> Result<(), String> {
        if self.way == Way::Plain {
            // There are none for commands, and what was mounted here would be for everybody.
            return Ok(());
        }
        for socket in self.sockets.iter().map(PathBuf::as_path).chain(more.iter().map(FilePath::as_path)) {
            if Place::at(socket) != Place::Open {
                continue;
            }
            match hide(socket) {
                // Nothing can be mounted from within. With the next process it will be.
                Err(_) if self.way == Way::Bubblewrap && !is_alone => {}
                hidden => hidden.map_err(|error| error.to_string())?,
            }
        }
        Ok(())
    }

    fn renew_protected(&mut self, is_alone: bool) -> Result<(), String> {
        if self.way != Way::Plain {
            for place in self.layout.movable() {
                if Place::at(place) == Place::Open {
                    covered(place, false)?;
                }
            }
            let protected = std::mem::take(&mut self.layout.protected);
            for place in protected {
                match Place::at(place.as_path()) {
                    Place::Nothing => {
                        self.layout.absent.push(place);
                        continue;
                    }
                    Place::Link => return Err(became_link(place.as_path())),
                    Place::Open => covered(place.as_path(), true)?,
                    Place::Mount => {}
                }
                self.layout.protected.push(place);
            }
        }
        let absent = std::mem::take(&mut self.layout.absent);
        for place in absent {
            match (Place::at(place.as_path()), self.way) {
                (Place::Nothing, _) => self.layout.absent.push(place),
                (Place::Mount, _) => self.layout.protected.push(place),
                _ if !is_alone => self.layout.absent.push(place),
                (Place::Link, _) => return Err(became_link(place.as_path())),
                (Place::Open, Way::Plain) => {
                    return Err(format!("{place} has come to be and cannot be protected here"));
                }
                (Place::Open, Way::Namespaces | Way::Bubblewrap) => {
                    self.protect_anew(place.as_path())?;
                    self.layout.protected.push(place);
                }
            }
        }
        Ok(())
    }

    /// Protects what was not there when the sandbox was made.
    fn protect_anew(&self, place: &Path) -> Result<(), String> {
        let mut on_the_way: Vec<&Path> = self.layout.on_the_way(place).collect();
        on_the_way.reverse();
        for folder in on_the_way {
            if Place::at(folder) == Place::Open {
                covered(folder, false)?;
            }
        }
        covered(place, true)
    }

    /// Moves what the command made though it must not out of the way, and says what it was. Without a command that began
    /// here there is nothing: what has come to be since is the user's.
    pub(crate) fn put_aside(&mut self) -> Vec<Aside> {
        let Some(before) = self.continued.take() else { return Vec::new() };
        let now = Continued::now(&self.layout);
        let mut asides = self.put_absent_aside();
        let planted = before.planted(&now);
        // One that lay behind a link went with it.
        let planted = planted.iter().filter(|path| Place::at(path) != Place::Nothing);
        asides.extend(planted.filter_map(|path| aside::put_aside(&self.layout, path)));
        let hidden = before.hidden(&now).map(|path| FilePath(path.clone()));
        asides.extend(hidden.map(|path| Aside { path, fate: Fate::Unseen }));
        self.unlooked.take();
        asides
    }

    /// The same, when no command is left, of those whose keepers were killed before they had looked. What git would
    /// have gone on with when they began is known to nobody any more, so only what must not be there at all is moved; if
    /// no keeper was killed so, all there is is the user's.
    pub(crate) fn put_aside_of_lost(&mut self) {
        if self.unlooked.take() {
            self.put_absent_aside();
        }
    }

    fn put_absent_aside(&self) -> Vec<Aside> {
        let came_to_be = |path: &&Path| !matches!(Place::at(path), Place::Nothing | Place::Mount);
        let absent = self.layout.absent.iter().map(FilePath::as_path).filter(came_to_be);
        absent.filter_map(|path| aside::put_aside(&self.layout, path)).collect()
    }

    /// How often somebody tried so far to reach a network that is not there; none where nobody counts it.
    pub(crate) fn tries_of_network(&self) -> Option<u64> {
        if self.way == Way::Plain {
            return None;
        }
        let old = fs::read_to_string("/proc/self/net/snmp").ok()?;
        let mut lines = old.lines().filter_map(|line| line.strip_prefix("Ip: "));
        let (names, values) = (lines.next()?, lines.next()?);
        let mut all = names.split(' ').zip(values.split(' '));
        let (_, old) = all.find(|(name, _)| *name == "OutNoRoutes")?;
        let new = fs::read_to_string("/proc/self/net/snmp6").unwrap_or_default();
        let new = new.lines().find_map(|line| line.strip_prefix("Ip6OutNoRoutes"));
        Some(old.parse::<u64>().ok()? + new.map_or(0, |value| value.trim().parse().unwrap_or(0)))
    }

    /// Ends it, when no command is left. (Within bubblewrap the directory itself is the agent's to remove.)
    pub(crate) fn end(&self) {
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

/// How many commands have begun, in all keepers of a supervisor, whose end nobody has looked at. It outlives a keeper that
/// is killed.
struct Unlooked(OwnedFd);

impl Unlooked {
    fn none() -> rustix::io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK | EventfdFlags::SEMAPHORE;
        eventfd(0, flags).map(Unlooked)
    }

    /// One more.
    fn add(&self) -> rustix::io::Result<()> {
        rustix::io::write(&self.0, &1_u64.to_ne_bytes()).map(|_| ())
    }

    /// One fewer; false if there was none.
    fn take(&self) -> bool {
        rustix::io::read(&self.0, &mut [0; 8]).is_ok()
    }
}

fn covered(place: &Path, is_read_only: bool) -> Result<(), String> {
    let why = |error| format!("{} was replaced and cannot be protected again: {error}", place.display());
    cover(place, is_read_only).map_err(why)
}

fn became_link(place: &Path) -> String {
    format!("{} is protected and has become a link", place.display())
}

fn report(way: Way, layout: &Layout) -> SandboxReport {
    let (landlock, seccomp) = (sys::landlock_version(), sys::has_seccomp_filters());
    let unseen: Vec<String> =
        Continued::now(layout).unseen().map(|path| path.display().to_string()).collect();
    let protected = match (layout.protects(), way) {
        _ if layout.is_partly_open || !unseen.is_empty() => Protection::Open,
        (false, _) => Protection::Nothing,
        (true, Way::Namespaces | Way::Bubblewrap) => Protection::Held,
        // What is not there yet is moved away in any case, should it come.
        (true, Way::Plain) if layout.protected.is_empty() => Protection::Held,
        (true, Way::Plain) => Protection::Open,
    };
    let mut lacking = layout.notes.clone();
    lacking.extend(unseen.into_iter().take(3).map(|path| {
        format!("{path} cannot be looked at as a whole, so what commands make there for git to go on with is not held")
    }));
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
pub(crate) fn bubblewrap(layout: &Layout, sockets: &[FilePath]) -> Result<(PathBuf, Vec<OsString>), String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let may_be_written = |path: &Path| layout.writable.iter().any(|root| path.starts_with(root.as_path()));
    let bwrap = installed("bwrap", &path, may_be_written).ok_or("bubblewrap is not installed")?;
    let words = ["--unshare-net", "--unshare-ipc", "--ro-bind", "/", "/", "--dev-bind", "/dev", "/dev"];
    let mut words: Vec<OsString> = words.into_iter().map(OsString::from).collect();
    let mut bind = |how: &str, from: &OsStr, to: &Path| {
        words.extend([OsString::from(how), from.to_owned(), to.into()]);
    };
    let shared_memory = Path::new(SHARED_MEMORY);
    // In the order of their depth: what is bound to an outer place hides what lies in it.
    let places: BTreeSet<&Path> =
        layout.writable.iter().chain(&layout.pinned).map(FilePath::as_path).collect();
    for place in places {
        if place != shared_memory {
            bind("--bind", place.as_os_str(), place);
        }
    }
    for place in &layout.protected {
        bind("--ro-bind", place.as_path().as_os_str(), place.as_path());
    }
    for socket in sockets {
        bind("--ro-bind", OsStr::new("/dev/null"), socket.as_path());
    }
    if layout.may_write(shared_memory) {
        words.extend(["--perms", "1777", "--tmpfs", SHARED_MEMORY].map(OsString::from));
    }
    for folder in hidden_folders() {
        words.extend(["--tmpfs".into(), folder.into(), "--remount-ro".into(), folder.into()]);
    }
    words.push("--".into());
    Ok((bwrap, words))
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
            let may_be_written =
                |path: &Path| layout.writable.iter().any(|root| path.starts_with(root.as_path()));
            installed("bwrap", &list, may_be_written)
        };
        let [workspace, plain, bin] = ["workspace", "plain", "bin"].map(|name| top_path.join(name));
        let depth = std::env::current_dir()?.components().count() - 1;
        let relative = Path::new(&"../".repeat(depth)).join(bin.strip_prefix("/").unwrap_or(&bin));
        assert!(relative.join("bwrap").is_file());
        assert_eq!(found(&[&relative, Path::new(""), &workspace, &plain]), None);
        assert_eq!(found(&[&relative, &workspace, &plain, &bin]), Some(bin.join("bwrap")));
        Ok(())
    }

    /// Where nothing can be mounted for commands alone, nothing is mounted.
    #[test]
    fn without_mounts_a_socket_stays_what_it_is() -> std::io::Result<()> {
        let top = tempfile::tempdir()?;
        let socket = top.path().canonicalize()?.join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket)?;
        let sandbox = Sandbox::new(SandboxMode::WorkspaceWrite, top.path().canonicalize()?.join("workspace"));
        let layout = Layout::of(&sandbox, top.path().join("tmp"));
        let (mut held, _) = Held::enter(Way::Plain, layout, Vec::new()).map_err(std::io::Error::other)?;
        assert_eq!(held.renew(&[FilePath(socket.clone())], true), Ok(()));
        assert_eq!(Place::at(&socket), Place::Open);
        Ok(())
    }
}
