//! A temporary folder with a workspace and a place for sessions in it.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// A workspace and a data home beside it, both gone when it is dropped.
#[derive(Debug)]
pub struct Workspace {
    _folder: TempDir,
    root: PathBuf,
}

impl Workspace {
    /// Makes an empty one.
    ///
    /// # Panics
    ///
    /// If the temporary folder cannot be made.
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("no temporary folder: {error}"));
        let root = folder.path().canonicalize().unwrap_or_else(|_| folder.path().to_owned());
        let workspace = Workspace { _folder: folder, root };
        for dir in [workspace.path(), workspace.data_home()] {
            fs::create_dir_all(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
        }
        workspace
    }

    /// The workspace, absolute and resolved.
    pub fn path(&self) -> PathBuf {
        self.root.join("workspace")
    }

    /// Where sessions lie.
    pub fn data_home(&self) -> PathBuf {
        self.root.join("data")
    }

    /// Writes a file of the workspace and says where it lies.
    ///
    /// # Panics
    ///
    /// If it cannot be written.
    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path().join(name);
        let parent = path.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(parent)
            .and_then(|()| fs::write(&path, bytes))
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        path
    }

    /// What a file of the workspace holds; none if there is none.
    pub fn read(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.path().join(name)).ok()
    }
}

impl Default for Workspace {
    fn default() -> Self {
        Workspace::new()
    }
}
