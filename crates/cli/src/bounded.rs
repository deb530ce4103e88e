//! Reading what a flag or a setting names, which may be a device or a pipe without an end.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The bytes of a file that has at most `most`; more are an error, and are not read.
pub(crate) fn read(path: &Path, most: usize) -> io::Result<Vec<u8>> {
    up_to(&mut File::open(path)?, most)
}

/// What a reader has to say, if that is at most `most` bytes.
pub(crate) fn up_to(reader: &mut impl Read, most: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.take(most as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > most {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it has more than {}", size(most))));
    }
    Ok(bytes)
}

/// A number of bytes in the largest unit that tells it whole.
fn size(bytes: usize) -> String {
    match bytes {
        _ if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes >= 1 << 10 && bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} bytes"),
    }
}
