//! The files in play: which ones tools touched last.
//!
//! A pure list. What counts as a touch, and that a path is canonical, is decided where the list is kept up to date.

use serde::{Deserialize, Serialize};

use crate::message::ReferencedFile;

#[cfg(test)]
mod tests;

/// The most recently touched files, distinct by path, the most recent first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RecentFiles {
    files: Vec<ReferencedFile>,
}

impl RecentFiles {
    /// How many files are kept.
    pub const LIMIT: usize = 20;

    /// Puts a file at the front, with the hash it comes with; beyond [`RecentFiles::LIMIT`] the oldest is dropped.
    pub fn touch(&mut self, file: ReferencedFile) {
        self.files.retain(|known| known.path != file.path);
        self.files.insert(0, file);
        self.files.truncate(Self::LIMIT);
    }

    /// The files, the most recent first.
    pub fn iter(&self) -> impl Iterator<Item = &ReferencedFile> {
        self.files.iter()
    }

    /// The `n` most recent files, or all if there are fewer.
    pub fn first(&self, n: usize) -> &[ReferencedFile] {
        &self.files[..n.min(self.files.len())]
    }

    /// How many files there are.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }
}
