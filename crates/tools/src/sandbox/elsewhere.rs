//! Systems other than Linux have no sandbox: commands never count as held there.

use std::ffi::OsString;
use std::path::PathBuf;

use super::layout::Layout;
use super::{Protection, SandboxReport, Way};

/// Nothing that could be held.
pub(crate) struct Held {
    layout: Layout,
}

impl Held {
    pub(crate) fn enter(_: Way, layout: Layout) -> Result<(Self, SandboxReport), String> {
        let report = SandboxReport {
            mode: layout.mode,
            way: Way::Plain,
            landlock: 0,
            seccomp: false,
            protected: Protection::Open,
            lacking: vec!["there is no sandbox on this system".to_owned()],
        };
        Ok((Held { layout }, report))
    }

    pub(crate) fn apply(&self) -> Result<(), String> {
        Ok(())
    }

    pub(crate) fn put_aside(&self) -> Vec<(PathBuf, PathBuf)> {
        Vec::new()
    }

    pub(crate) fn end(&self) {
        let _ = std::fs::remove_dir_all(self.layout.tmp.as_path());
    }
}

pub(crate) fn bubblewrap(_: &Layout) -> Result<(PathBuf, Vec<OsString>), String> {
    Err("bubblewrap is not for this system".to_owned())
}
