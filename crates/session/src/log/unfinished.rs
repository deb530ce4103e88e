//! A session's folder that is being made: beside its place, under a name that is no session's, and gone if it is dropped.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{private_dir, rename, sessions_dir, sync_folder};

/// The folder. Dropped before its end it is removed with all that it holds.
#[derive(Debug)]
pub(super) struct Unfinished {
    pub(super) dir: PathBuf,
}

impl Unfinished {
    /// Makes an empty folder. `name` must be the maker's own.
    pub(super) fn create(data_home: &Path, name: &str) -> io::Result<Self> {
        let sessions = sessions_dir(data_home);
        private_dir(&sessions)?;
        let dir = sessions.join(format!(".{name}.new"));
        // What a killed process left of the same is of no use.
        let _ = fs::remove_dir_all(&dir);
        private_dir(&dir)?;
        Ok(Unfinished { dir })
    }

    /// Moves it to its place, whole and on the disk. Nothing is ever written over.
    pub(super) fn finish(&self, place: &Path) -> io::Result<PathBuf> {
        if place.symlink_metadata().is_ok() {
            let why = format!("{} is there already", place.display());
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
        }
        let spill = self.dir.join("spill");
        if spill.is_dir() {
            sync_folder(&spill, "folder.sync")?;
        }
        sync_folder(&self.dir, "folder.sync")?;
        rename(&self.dir, place, "session.rename")?;
        if let Some(parent) = place.parent() {
            // Left where it is it would be there although whoever asked for it was told that it is not.
            sync_folder(parent, "sessions.sync").inspect_err(|_| drop(fs::rename(place, &self.dir)))?;
        }
        Ok(place.to_owned())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // Once it is in its place there is nothing here.
        let _ = fs::remove_dir_all(&self.dir);
    }
}
