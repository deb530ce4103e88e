//! Opens files below a directory without being led out of it.
//!
//! What a walk saw may be something else a moment later. A name on the way that has become a link makes opening fail,
//! and a pipe or a device that took a file's place wakes nobody and is not waited for.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags};

const FILE: OFlags = OFlags::RDONLY
    .union(OFlags::CLOEXEC)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY);
const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW);

/// A directory whose files are opened.
#[derive(Debug)]
pub(super) struct Root {
    path: PathBuf,
    directory: OwnedFd,
}

impl Root {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let directory = rustix::fs::openat(CWD, path, DIRECTORY, Mode::empty())?;
        Ok(Root { path: path.to_owned(), directory })
    }

    /// Opens a file by its absolute path.
    pub(super) fn file(&self, path: &Path) -> io::Result<File> {
        let below = path.strip_prefix(&self.path).map_err(io::Error::other)?;
        #[cfg(target_os = "linux")]
        {
            use rustix::fs::ResolveFlags;
            use rustix::io::Errno;
            let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
            match rustix::fs::openat2(&self.directory, below, FILE, Mode::empty(), beneath) {
                Ok(file) => return Ok(File::from(file)),
                // Older kernels do not have it, and some sandboxes forbid what they do not know.
                Err(Errno::NOSYS | Errno::PERM | Errno::AGAIN) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.step_by_step(below)
    }

    fn step_by_step(&self, below: &Path) -> io::Result<File> {
        let name = below.file_name().ok_or(io::ErrorKind::IsADirectory)?;
        let mut directory = self.directory.try_clone()?;
        for component in below.parent().into_iter().flat_map(Path::components) {
            directory = rustix::fs::openat(&directory, component.as_os_str(), DIRECTORY, Mode::empty())?;
        }
        Ok(File::from(rustix::fs::openat(&directory, name, FILE, Mode::empty())?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// E09: both ways to open agree, and neither follows a link, be it the last name or one on the way.
    #[test]
    fn a_link_is_not_followed_and_a_pipe_not_waited_for() {
        let outer = tempfile::tempdir().unwrap();
        let root = outer.path().join("root");
        std::fs::create_dir_all(root.join("a")).unwrap();
        std::fs::create_dir(outer.path().join("out")).unwrap();
        for file in ["root/a/f", "out/f"] {
            std::fs::write(outer.path().join(file), "x").unwrap();
        }
        std::os::unix::fs::symlink("f", root.join("a/link")).unwrap();
        std::os::unix::fs::symlink("../out", root.join("out")).unwrap();
        let pipe = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(CWD, root.join("pipe"), pipe, Mode::from(0o600), 0).unwrap();
        let opened = Root::open(&root).unwrap();
        for (name, opens) in
            [("a/f", true), ("pipe", true), ("a/link", false), ("out/f", false), ("no", false)]
        {
            assert_eq!(opened.file(&root.join(name)).is_ok(), opens, "{name}");
            assert_eq!(opened.step_by_step(Path::new(name)).is_ok(), opens, "{name}");
        }
    }
}
