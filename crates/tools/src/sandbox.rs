//! What holds commands: which files they may change, and that they reach no network but a loopback of their own.
//!
//! Four parts, each of which the kernel may lack. *Namespaces*: mounts that are read-only but for what may be written,
//! and a network with nothing in it; made once, by the supervisor (`namespaces.rs`), or by bubblewrap around it where the
//! kernel lets only that. *Landlock*, *capabilities* and a *filter of system calls*: put on each command between fork
//! and exec (`confine.rs`, `syscalls.rs`). `layout.rs` decides which places are meant. What is in force is a
//! [`SandboxReport`]; what is not is said there, and then commands do not count as held.
//!
//! Reading is not confined: what a command reads can leave the machine only as what the model is told.

mod git;
mod configuration;
mod layout;
mod blame;
mod temporary;
#[cfg(target_os = "linux")]
mod continued;
#[cfg(target_os = "linux")]
mod syscalls;
#[cfg(target_os = "linux")]
mod confine;
#[cfg(target_os = "linux")]
mod aside;
#[cfg(target_os = "linux")]
mod sockets;
#[cfg(target_os = "linux")]
mod namespaces;
#[cfg(target_os = "linux")]
mod held;
#[cfg(not(target_os = "linux"))]
mod elsewhere;

use std::path::PathBuf;

use mainstay_session::message::FilePath;
use serde::{Deserialize, Serialize};

pub(crate) use blame::{Signs, blame, said_of};
pub(crate) use layout::{Layout, remove_all};
pub(crate) use temporary::Temporary;

#[cfg(not(target_os = "linux"))]
pub(crate) use elsewhere::{Held, Sockets, bubblewrap};
#[cfg(target_os = "linux")]
pub(crate) use held::{Held, bubblewrap};
#[cfg(target_os = "linux")]
pub(crate) use sockets::Sockets;

/// What commands may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SandboxMode {
    /// Nothing but their own temporary directory.
    ReadOnly,
    /// The workspace too, its repository, and what the user adds.
    WorkspaceWrite,
}

impl SandboxMode {
    /// The name used in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            SandboxMode::ReadOnly => "read-only",
            SandboxMode::WorkspaceWrite => "workspace-write",
        }
    }
}

/// What is to hold the commands of one session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sandbox {
    /// What they may change.
    pub mode: SandboxMode,
    /// The workspace, absolute and resolved.
    pub workspace: PathBuf,
    /// What they may change beside it.
    pub writable: Vec<PathBuf>,
    /// Patterns of paths, seen from the workspace, that they may not change though they lie in it.
    pub protected: Vec<String>,
    /// Directories that are in no case changed: where sessions and the configuration are kept.
    pub closed: Vec<PathBuf>,
    /// The ways that may be taken, the best first.
    pub ways: Vec<Way>,
}

impl Sandbox {
    /// A sandbox for a workspace, with nothing added and nothing protected but what always is.
    pub fn new(mode: SandboxMode, workspace: PathBuf) -> Self {
        Sandbox {
            mode,
            workspace,
            writable: Vec::new(),
            protected: Vec::new(),
            closed: Vec::new(),
            ways: vec![Way::Namespaces, Way::Bubblewrap, Way::Plain],
        }
    }
}

/// How mounts and a network of their own come about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// The supervisor makes the namespaces.
    Namespaces,
    /// The supervisor runs within `bwrap`.
    Bubblewrap,
    /// Not at all.
    Plain,
}

/// What of the sandbox is in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxReport {
    /// What commands may change.
    pub mode: SandboxMode,
    /// How mounts and network were made.
    pub way: Way,
    /// The version of Landlock; 0 if the kernel has none.
    pub landlock: u32,
    /// Whether system calls are filtered.
    pub seccomp: bool,
    /// Whether paths inside the workspace are kept from commands.
    pub protected: Protection,
    /// What of it all is not held, and why: a sentence each.
    pub lacking: Vec<String>,
}

/// Whether paths inside the workspace are kept from commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protection {
    /// There is nothing to protect.
    Nothing,
    /// They are.
    Held,
    /// They are not.
    Open,
}

/// Something that a command made where nothing may be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Aside {
    /// Where it was made.
    pub(crate) path: FilePath,
    pub(crate) fate: Fate,
}

/// What has become of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Fate {
    /// It is there now.
    Moved(FilePath),
    /// It is where it was, for this reason.
    Stuck(String),
    /// Whether there is anything is not known: the place could not be looked at as a whole, as it could before.
    Unseen,
}

/// The first version of Landlock that keeps files from being cut short.
const CUTS_ARE_HELD: u32 = 3;

impl SandboxReport {
    /// Whether files are held: no file outside of what may be written can be changed, made or removed.
    pub fn files_are_held(&self) -> bool {
        match self.way {
            Way::Namespaces | Way::Bubblewrap => self.landlock > 0,
            Way::Plain => self.landlock >= CUTS_ARE_HELD,
        }
    }

    /// Whether nothing beyond a loopback of their own can be reached.
    pub fn network_is_held(&self) -> bool {
        self.seccomp
    }

    /// Whether commands count as held: files, network and protected paths are.
    pub fn is_enforced(&self) -> bool {
        self.files_are_held() && self.network_is_held() && self.protected != Protection::Open
    }
}
