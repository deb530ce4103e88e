//! A look at a file that a tool once touched: what it is now, without opening anything but regular files.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// What tells, without reading a file, that it may hold something else than before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// The stamp of the regular file at `path`; none if there is none. A link at its end is not followed.
    pub fn of(path: &Path) -> Option<Stamp> {
        std::fs::symlink_metadata(path).ok().filter(Metadata::is_file).as_ref().map(Stamp::from)
    }

    /// How many bytes the file has.
    pub fn size(&self) -> u64 {
        self.size
    }
}

impl From<&Metadata> for Stamp {
    fn from(metadata: &Metadata) -> Self {
        Stamp {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

/// The bytes of the regular file at `path`, at most `most` of them, with the stamp it had before they were read. Does not
/// hang, whatever lies there.
///
/// # Errors
///
/// If there is no regular file, or it cannot be read.
pub fn read_regular(path: &Path, most: u64) -> io::Result<(Stamp, Vec<u8>)> {
    let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW | libc::O_NOCTTY;
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
    }
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok((Stamp::from(&metadata), bytes))
}

/// A diff of two texts in unified form, line by line, cut to a few thousand bytes; none if they are too large for it or
/// do not differ in their lines.
pub fn line_diff(old: &[u8], new: &[u8]) -> Option<String> {
    crate::diff::lines(old, new).map(|diff| diff.text).filter(|text| !text.is_empty())
}
