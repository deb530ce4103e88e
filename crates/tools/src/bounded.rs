//! Reading what may have no end: no more than so many bytes, and of a file nothing that would have to be waited for.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// All that a reader has, if that is at most `most` bytes.
///
/// # Errors
///
/// If it cannot be read; of the kind [`ErrorKind::FileTooLarge`], if it is more. Then not much more was read.
pub fn up_to(reader: impl Read, most: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.take(most as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > most {
        return Err(io::Error::new(ErrorKind::FileTooLarge, format!("it has more than {}", size(most))));
    }
    Ok(bytes)
}

/// The bytes of a regular file that has at most `most`. A pipe or a device that takes its place meanwhile is not waited for.
///
/// # Errors
///
/// If it cannot be opened or read; of the kind [`ErrorKind::InvalidInput`] if it is no regular file, and as [`up_to`].
pub fn regular_file(path: &Path, most: usize) -> io::Result<Vec<u8>> {
    let no_file = || io::Error::new(ErrorKind::InvalidInput, "it is no file");
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        // A socket cannot be opened.
        Err(Errno::NXIO) => return Err(no_file()),
        Err(error) => return Err(error.into()),
    };
    if file.metadata()?.is_file() { up_to(file, most) } else { Err(no_file()) }
}

/// A number of bytes in the largest unit that tells it whole.
fn size(bytes: usize) -> String {
    match bytes {
        _ if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes >= 1 << 10 && bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_read_than_there_may_be() {
        assert_eq!(up_to(&b"bytes"[..], 5).unwrap(), b"bytes");
        let mut rest = io::repeat(0).take(100);
        let error = up_to(&mut rest, 8).unwrap_err();
        assert_eq!(
            (error.kind(), error.to_string().as_str()),
            (ErrorKind::FileTooLarge, "it has more than 8 bytes")
        );
        assert_eq!(rest.limit(), 91);
        let sizes = [64 << 10, 4 << 20, 3840 << 10, 1025].map(size);
        assert_eq!(sizes, ["64 KiB", "4 MiB", "3840 KiB", "1025 bytes"]);
    }

    #[test]
    fn only_a_regular_file_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "text").unwrap();
        assert_eq!(regular_file(&file, 4).unwrap(), b"text");
        assert_eq!(regular_file(&file, 3).unwrap_err().kind(), ErrorKind::FileTooLarge);
        assert_eq!(regular_file(dir.path(), 4).unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(regular_file(Path::new("/dev/zero"), 4).unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(regular_file(&dir.path().join("gone"), 4).unwrap_err().kind(), ErrorKind::NotFound);
        let socket = dir.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert_eq!(regular_file(&socket, 4).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}
