//! Systems other than Linux have no sandbox: commands never count as held there.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use mainstay_session::message::FilePath;

use super::layout::Layout;
use super::{Aside, Protection, SandboxReport, Way};

/// Nothing that could be held.
pub(crate) struct Held {
    layout: Layout,
}

impl Held {
    pub(crate) fn enter(_: Way, layout: Layout, _: Vec<FilePath>) -> Result<(Self, SandboxReport), String> {
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

    pub(crate) fn renew(&mut self, _: &[FilePath], _: bool) -> Result<(), String> {
        Ok(())
    }

    pub(crate) fn not_begun(&mut self) {}

    pub(crate) fn put_aside(&mut self) -> Vec<Aside> {
        Vec::new()
    }

    pub(crate) fn put_aside_of_lost(&mut self) {}

    pub(crate) fn tries_of_network(&self) -> Option<u64> {
        None
    }

    pub(crate) fn end(&self) {
        let _ = std::fs::remove_dir_all(self.layout.tmp.as_path());
    }
}

/// Nothing is hidden.
#[derive(Debug)]
pub(crate) struct Sockets;

impl Sockets {
    pub(crate) fn now(_: &Layout) -> io::Result<Self> {
        Ok(Sockets)
    }

    pub(crate) fn first(&self) -> Vec<FilePath> {
        Vec::new()
    }

    pub(crate) fn since(&self) -> io::Result<Vec<FilePath>> {
        Ok(Vec::new())
    }
}

pub(crate) fn bubblewrap(_: &Layout, _: &[FilePath]) -> Result<(PathBuf, Vec<OsString>), String> {
    Err("bubblewrap is not for this system".to_owned())
}
