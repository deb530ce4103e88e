//! One segment's file: whole lines or nothing.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::Durability;
use crate::failpoint;

/// A segment opened for writing.
#[derive(Debug)]
pub(super) struct LogFile {
    file: File,
    /// Where it lies.
    path: PathBuf,
    /// The length of what is whole. The file may be longer only after a failed write whose rest could not be cut off.
    len: u64,
    has_rest: bool,
    /// Whether all of it is on the disk. Of a file that was opened that is not known.
    is_synced: bool,
    /// What was written since the last sync.
    unsynced: Vec<u8>,
    /// Whether a sync failed since the last that did not. The kernel may have dropped what it could not write while calling
    /// it clean, so all of that is written again before any other sync counts.
    is_doubtful: bool,
    durability: Durability,
    #[cfg(any(test, feature = "faults"))]
    faults: std::collections::VecDeque<Fault>,
}

/// A failure of the disk, for tests.
#[cfg(any(test, feature = "faults"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The next write writes this many bytes and then finds the disk full.
    ShortWrite(usize),
    /// The next sync fails.
    Sync,
}

impl LogFile {
    /// Opens a segment whose first `len` bytes are whole lines.
    pub(super) fn open(path: &Path, len: u64, durability: Durability) -> io::Result<Self> {
        let file = File::options().write(true).open(path)?;
        Ok(LogFile::new(file, path, len, Vec::new(), durability))
    }

    /// Writes a new file of whole lines, which the first sync makes durable.
    pub(super) fn create(path: &Path, lines: &[u8], durability: Durability) -> io::Result<Self> {
        let file = File::options().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        failpoint::write("segment.write", lines, |from, part| file.write_all_at(part, from as u64))?;
        let unsynced = if durability == Durability::Always { lines.to_vec() } else { Vec::new() };
        Ok(LogFile::new(file, path, lines.len() as u64, unsynced, durability))
    }

    fn new(file: File, path: &Path, len: u64, unsynced: Vec<u8>, durability: Durability) -> Self {
        LogFile {
            file,
            path: path.to_owned(),
            len,
            has_rest: false,
            is_synced: false,
            unsynced,
            is_doubtful: false,
            durability,
            #[cfg(any(test, feature = "faults"))]
            faults: std::collections::VecDeque::new(),
        }
    }

    /// Writes a line. If that fails it is cut off again and tried once more; then nothing of it remains.
    ///
    /// A file that was removed, moved, cut or written by another is not written on: what is put there would be lost, or
    /// would put itself in the place of what is there.
    pub(super) fn append(&mut self, line: &[u8]) -> io::Result<()> {
        self.cut_rest()?;
        self.check_untouched()?;
        if let Err(_first) = self.write(line) {
            self.has_rest = true;
            self.cut_rest()?;
            if let Err(error) = self.write(line) {
                self.has_rest = true;
                // If the rest cannot be cut off now, it is before the next write, or when the session is opened.
                let _ = self.cut_rest();
                return Err(error);
            }
        }
        self.len += line.len() as u64;
        self.is_synced = false;
        if self.durability == Durability::Always {
            self.unsynced.extend_from_slice(line);
        }
        Ok(())
    }

    /// Waits until all that was written is on the disk. A sync that fails is tried once more.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        if self.is_synced {
            return Ok(());
        }
        if self.is_doubtful || self.sync_data().is_err() {
            self.is_doubtful = true;
            failpoint::pass("log.rewrite")?;
            self.file.write_all_at(&self.unsynced, self.len - self.unsynced.len() as u64)?;
            self.sync_data()?;
        }
        self.is_doubtful = false;
        self.is_synced = true;
        self.unsynced.clear();
        Ok(())
    }

    /// Moves it to another name. Once it is there, nothing fails any more.
    pub(super) fn rename(&mut self, path: &Path) -> io::Result<()> {
        failpoint::pass("segment.rename")?;
        fs::rename(&self.path, path)?;
        path.clone_into(&mut self.path);
        Ok(())
    }

    fn check_untouched(&self) -> io::Result<()> {
        let found = self.file.metadata()?;
        if found.nlink() == 0 {
            return Err(io::Error::other("the file was removed while the session was open"));
        }
        // Whoever goes on with the session finds it by its path, and so do spill and inbox.
        let is_there = |there: Metadata| (there.dev(), there.ino()) == (found.dev(), found.ino());
        if !fs::metadata(&self.path).is_ok_and(is_there) {
            return Err(io::Error::other("the session's folder was moved while the session was open"));
        }
        if found.len() != self.len {
            let why = format!(
                "another program changed the file while the session was open: it has {} bytes, not {}",
                found.len(),
                self.len
            );
            return Err(io::Error::other(why));
        }
        Ok(())
    }

    fn cut_rest(&mut self) -> io::Result<()> {
        if self.has_rest {
            failpoint::pass("log.cut")?;
            self.file.set_len(self.len)?;
            self.has_rest = false;
        }
        Ok(())
    }

    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        #[cfg(any(test, feature = "faults"))]
        self.fail_to_write(line)?;
        failpoint::write("log.append", line, |from, part| {
            self.file.write_all_at(part, self.len + from as u64)
        })
    }

    fn sync_data(&mut self) -> io::Result<()> {
        #[cfg(any(test, feature = "faults"))]
        self.fail_to_sync()?;
        failpoint::pass("log.sync")?;
        self.file.sync_data()
    }
}

#[cfg(any(test, feature = "faults"))]
impl LogFile {
    pub(super) fn inject(&mut self, fault: Fault) {
        self.faults.push_back(fault);
    }

    fn fail_to_write(&mut self, line: &[u8]) -> io::Result<()> {
        if let Some(Fault::ShortWrite(bytes)) = self.faults.front().copied() {
            self.faults.pop_front();
            self.file.write_all_at(&line[..bytes.min(line.len())], self.len)?;
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        Ok(())
    }

    fn fail_to_sync(&mut self) -> io::Result<()> {
        if self.faults.front() == Some(&Fault::Sync) {
            self.faults.pop_front();
            // As a kernel may: what was not on the disk is dropped, and is no longer known to be missing there.
            let lost = vec![0; self.unsynced.len()];
            self.file.write_all_at(&lost, self.len - self.unsynced.len() as u64)?;
            return Err(io::Error::other("the disk failed"));
        }
        Ok(())
    }
}
