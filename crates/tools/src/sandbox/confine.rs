//! What each command is put under between fork and exec: capabilities taken away, Landlock, and the filter of calls.
//!
//! It runs in a process of one thread that was just forked. If any part fails the command must not run.

use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreated, RulesetCreatedAttr, Scope,
};
use rustix::thread::{CapabilitySet, CapabilitySets};
use seccompiler::BpfProgram;

use super::layout::Layout;
use super::syscalls::{Sockets, filter};

/// The newest rules of Landlock that are known here; what the kernel does not know of them is left out.
const NEWEST: ABI = ABI::V9;

/// Devices that hold nothing.
const DEVICES: [&str; 6] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

/// Terminals, if they are the sandbox's own.
const TERMINALS: [&str; 2] = ["/dev/ptmx", "/dev/pts"];

/// The capabilities that a command of root keeps: to own and to change what the file system lets it.
const KEPT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::NET_BIND_SERVICE);

/// What is made ready before.
pub(super) struct Confinement {
    filter: BpfProgram,
    has_own_network: bool,
    has_own_terminals: bool,
}

impl Confinement {
    /// For commands that have, or have not, a network and terminals of their own.
    pub(super) fn new(has_own_network: bool, has_own_terminals: bool) -> Result<Self, String> {
        let sockets = if has_own_network { Sockets::OfOwnNetwork } else { Sockets::None };
        let filter = filter(sockets).map_err(|error| format!("no filter of calls can be made: {error}"))?;
        Ok(Confinement { filter, has_own_network, has_own_terminals })
    }

    /// Puts this process, for good, under what holds commands.
    pub(super) fn apply(&self, layout: &Layout) -> Result<(), String> {
        rustix::thread::set_no_new_privs(true).map_err(|error| format!("no_new_privs: {error}"))?;
        drop_capabilities().map_err(|error| format!("capabilities: {error}"))?;
        self.restrict(layout).map_err(|error| format!("Landlock: {error}"))?;
        seccompiler::apply_filter(&self.filter).map_err(|error| format!("seccomp: {error}"))
    }

    fn restrict(&self, layout: &Layout) -> Result<(), landlock::RulesetError> {
        let mut ruleset = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(NEWEST))?
            .scope(Scope::from_all(NEWEST))?;
        if !self.has_own_network {
            ruleset = ruleset.handle_access(AccessNet::from_all(NEWEST))?;
        }
        let mut ruleset = allow(ruleset.create()?, Path::new("/"), AccessFs::from_read(NEWEST))?;
        // Not what makes devices: root could make that of a disk.
        let write = AccessFs::from_all(NEWEST) & !(AccessFs::MakeChar | AccessFs::MakeBlock);
        // Commands could put a link in the place of a root that lies in another, which allows it anyway.
        for root in layout.outermost() {
            ruleset = allow(ruleset, root, write)?;
        }
        let terminals = TERMINALS.into_iter().filter(|_| self.has_own_terminals);
        for device in DEVICES.into_iter().chain(terminals) {
            let access = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev;
            ruleset = allow(ruleset, Path::new(device), access)?;
        }
        ruleset.restrict_self()?;
        Ok(())
    }
}

/// A place that is not there allows nothing.
fn allow(
    ruleset: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, landlock::RulesetError> {
    match PathFd::new(path) {
        Ok(place) if path.is_dir() => ruleset.add_rule(PathBeneath::new(place, access)),
        Ok(place) => ruleset.add_rule(PathBeneath::new(place, access & AccessFs::from_file(NEWEST))),
        Err(_absent) => Ok(ruleset),
    }
}

/// Takes from root, and from who is as good as root in a namespace, all but what files need.
///
/// Whoever may not change the bounding set (a container that kept no `CAP_SETPCAP`) leaves it as it is: after
/// `no_new_privs` no program gets more than was permitted before it, root's neither (capabilities(7), and
/// <https://docs.kernel.org/userspace-api/no_new_privs.html>).
fn drop_capabilities() -> rustix::io::Result<()> {
    let held = rustix::thread::capabilities(None)?;
    if held.permitted.is_empty() {
        return Ok(());
    }
    let bounded = if held.effective.contains(CapabilitySet::SETPCAP) { 0..64 } else { 0..0 };
    for number in bounded {
        let one = CapabilitySet::from_bits_retain(1 << number);
        if KEPT.contains(one) {
            continue;
        }
        match rustix::thread::remove_capability_from_bounding_set(one) {
            Ok(()) => {}
            // Beyond the last that the kernel knows, or already gone and not to be asked about.
            Err(rustix::io::Errno::INVAL) => break,
            Err(rustix::io::Errno::PERM) if !held.permitted.contains(one) => {}
            Err(error) => return Err(error),
        }
    }
    rustix::thread::clear_ambient_capability_set()?;
    let kept = held.permitted & KEPT;
    rustix::thread::set_capabilities(
        None,
        CapabilitySets {
            effective: held.effective & kept,
            permitted: kept,
            inheritable: CapabilitySet::empty(),
        },
    )
}
