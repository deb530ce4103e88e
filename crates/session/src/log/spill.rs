//! Texts kept whole beside the log, each once, named by what they hold.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::{Durability, private_dir, write_private};
use crate::message::ContentHash;

/// Keeps `bytes` and says by which hash they are found. They are on the disk before an entry can name them.
pub(super) fn keep(
    dir: &Path,
    bytes: &[u8],
    durability: Durability,
) -> Result<ContentHash, (PathBuf, io::Error)> {
    let hash = ContentHash::of(bytes);
    let folder = dir.join("spill");
    let path = folder.join(hash.as_str());
    let write = || -> io::Result<()> {
        private_dir(&folder)?;
        if fs::metadata(&path).is_ok_and(|found| found.len() == bytes.len() as u64) {
            return Ok(());
        }
        let unfinished = path.with_extension("new");
        write_private(&unfinished, bytes, durability == Durability::Always)?;
        fs::rename(&unfinished, &path)?;
        if durability == Durability::Always { File::open(&folder)?.sync_all() } else { Ok(()) }
    };
    match write() {
        Ok(()) => Ok(hash),
        Err(error) => Err((path, error)),
    }
}
