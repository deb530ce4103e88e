//! Paths without `.`, `..` and links, as far as they are there.

use std::io;
use std::path::{Component, Path, PathBuf};

/// A path without `.` and `..`, by its text alone.
pub(crate) fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    plain
}

/// The same, with the links of what is there of it resolved.
pub(crate) fn resolved(path: &Path) -> PathBuf {
    let plain = plain(path);
    let there = plain.ancestors().find_map(|place| Some((place, place.canonicalize().ok()?)));
    match there.map(|(place, real)| (plain.strip_prefix(place).map(Path::to_owned), real)) {
        Some((Ok(rest), real)) if rest.as_os_str().is_empty() => real,
        Some((Ok(rest), real)) => real.join(rest),
        Some((Err(_), _)) | None => plain,
    }
}

/// Whether an error says that nothing is there. Every other leaves that open.
pub(crate) fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}
