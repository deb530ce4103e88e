//! What is kept whole beside the log: long texts of which the log holds a part, images, and what files held before they
//! were changed. Each is a file named by the hash of what it holds, so the same bytes are there once.
//!
//! It is on the disk before its hash is given out, so an entry never names what a loss of power could take.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::{AppendError, Durability, private_file, private_subdir, rename, sync_folder};
use crate::failpoint;
use crate::message::{ContentHash, to_hex};

/// The store beside a session's log. A handle: clones write to the same folder, also at the same time.
#[derive(Clone, Debug)]
pub struct Spill {
    folder: PathBuf,
    durability: Durability,
}

/// Something could not be kept.
#[derive(Debug, thiserror::Error)]
#[error("cannot keep the whole in {}: {source}", path.display())]
pub struct SpillError {
    /// The file that was to hold it.
    pub path: PathBuf,
    /// What the operating system said.
    pub source: io::Error,
}

impl From<SpillError> for AppendError {
    fn from(SpillError { path, source }: SpillError) -> Self {
        AppendError::Write { path, source }
    }
}

impl Spill {
    /// The store of the session that lies in `dir`. The folder is made with the first thing kept.
    pub fn of_session(dir: &Path, durability: Durability) -> Self {
        Spill { folder: dir.join("spill"), durability }
    }

    /// Where everything lies.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where the bytes of this hash lie, if they are kept.
    pub fn path(&self, hash: &ContentHash) -> PathBuf {
        self.folder.join(hash.as_str())
    }

    /// Keeps `bytes` and says by which hash they are found.
    ///
    /// # Errors
    ///
    /// If they cannot be written.
    pub fn store(&self, bytes: &[u8]) -> Result<ContentHash, SpillError> {
        let hash = ContentHash::of(bytes);
        if self.has_on_disk(&hash, bytes.len() as u64)? {
            return Ok(hash);
        }
        let mut writer = self.create()?;
        writer.write(bytes)?;
        writer.finish()
    }

    /// Begins to keep what comes piece by piece.
    ///
    /// # Errors
    ///
    /// If no file can be made.
    pub fn create(&self) -> Result<SpillWriter, SpillError> {
        let path = self.folder.join(format!("{}.new", uuid::Uuid::new_v4().simple()));
        let open = || private_subdir(&self.folder).and_then(|()| private_file(&path));
        match open() {
            Ok(file) => {
                Ok(SpillWriter { spill: self.clone(), file, unfinished: path, hash: Sha256::new(), len: 0 })
            }
            Err(source) => Err(SpillError { path, source }),
        }
    }

    /// The bytes of this hash.
    ///
    /// # Errors
    ///
    /// If they are not kept, cannot be read, or are no longer what they were.
    pub fn load(&self, hash: &ContentHash) -> io::Result<Vec<u8>> {
        // What names no file here must not lead to one elsewhere.
        if !hash.is_hash() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "it is named by no hash"));
        }
        let bytes = fs::read(self.path(hash))?;
        if ContentHash::of(&bytes) == *hash {
            return Ok(bytes);
        }
        Err(io::Error::new(io::ErrorKind::InvalidData, "what is kept is damaged"))
    }

    /// Whether a file of this hash is there, on the disk: whoever made it may have been killed before that was so.
    fn has_on_disk(&self, hash: &ContentHash, len: u64) -> Result<bool, SpillError> {
        let path = self.path(hash);
        if !fs::metadata(&path).is_ok_and(|found| found.is_file() && found.len() == len) {
            return Ok(false);
        }
        if self.durability == Durability::Always {
            let sync = || -> io::Result<()> {
                failpoint::pass("spill.sync")?;
                File::open(&path)?.sync_data()?;
                sync_folder(&self.folder, "spill.folder.sync")
            };
            sync().map_err(|source| SpillError { path, source })?;
        }
        Ok(true)
    }
}

/// Something that is being kept. Dropped before its end it leaves nothing.
#[derive(Debug)]
pub struct SpillWriter {
    spill: Spill,
    file: File,
    unfinished: PathBuf,
    hash: Sha256,
    len: u64,
}

impl SpillWriter {
    /// Adds the next bytes.
    ///
    /// # Errors
    ///
    /// If they cannot be written.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), SpillError> {
        let write = failpoint::write("spill.write", bytes, |_, part| self.file.write_all(part));
        write.map_err(|source| self.failed(source))?;
        self.hash.update(bytes);
        self.len += bytes.len() as u64;
        Ok(())
    }

    /// How many bytes have come.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether nothing has come yet.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Ends it and says by which hash it is found.
    ///
    /// # Errors
    ///
    /// If it cannot be made durable or be put in its place.
    pub fn finish(self) -> Result<ContentHash, SpillError> {
        let hash = ContentHash(to_hex(&self.hash.clone().finalize()));
        if self.spill.has_on_disk(&hash, self.len)? {
            return Ok(hash);
        }
        let place = self.spill.path(&hash);
        let is_synced = self.spill.durability == Durability::Always;
        let put = || -> io::Result<()> {
            if is_synced {
                failpoint::pass("spill.sync")?;
                self.file.sync_data()?;
            }
            rename(&self.unfinished, &place, "spill.rename")?;
            if is_synced { sync_folder(&self.spill.folder, "spill.folder.sync") } else { Ok(()) }
        };
        put().map_err(|source| {
            // Whoever keeps the same bytes later must not take this for what is on the disk.
            let _ = fs::remove_file(&place);
            self.failed(source)
        })?;
        Ok(hash)
    }

    fn failed(&self, source: io::Error) -> SpillError {
        SpillError { path: self.unfinished.clone(), source }
    }
}

impl Drop for SpillWriter {
    fn drop(&mut self) {
        // After the end it lies elsewhere; otherwise what is left of it is of no use.
        let _ = fs::remove_file(&self.unfinished);
    }
}
