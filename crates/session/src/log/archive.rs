//! Sessions that the user does not want to see: moved to the trash, and brought back. Nothing is ever deleted here.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::lock::Lock;
use super::{OpenError, ReadError, private_dir, reading, rename, session_dir, sessions_dir, sync_folder};
use crate::ids::SessionId;

/// The folder in which sessions lie that were removed.
pub fn trash_dir(data_home: &Path) -> PathBuf {
    data_home.join("trash")
}

/// Why a session was not moved to the trash, or out of it. It is where it was.
#[derive(Debug, thiserror::Error)]
pub enum TrashError {
    /// A process works on it, or its folder cannot be used.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// There is one of the same id where it was to go.
    #[error("there is a session of this id already, in {}", dir.display())]
    Exists {
        /// Its folder.
        dir: PathBuf,
    },
    /// It could not be moved.
    #[error("cannot move {}: {source}", dir.display())]
    Move {
        /// Its folder.
        dir: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
}

/// Moves a session to the trash. Says where it lies then.
///
/// # Errors
///
/// If a process works on it, or it cannot be moved.
pub fn remove(data_home: &Path, id: &SessionId, now: jiff::Timestamp) -> Result<PathBuf, TrashError> {
    let dir = session_dir(data_home, id);
    reading::segments(&dir).map_err(OpenError::Read)?;
    // Held until it has moved, so that no process begins to write to it meanwhile.
    let _lock = Lock::acquire(&dir, now).map_err(|error| error.into_open_error(&dir))?;
    move_to(&dir, &trash_dir(data_home), id)
}

/// Brings a session back from the trash. Says where it lies then.
///
/// # Errors
///
/// If it is not there, if there is one of its id again, or it cannot be moved.
pub fn restore(data_home: &Path, id: &SessionId) -> Result<PathBuf, TrashError> {
    let dir = trash_dir(data_home).join(id.as_str());
    reading::segments(&dir).map_err(OpenError::Read)?;
    move_to(&dir, &sessions_dir(data_home), id)
}

fn move_to(dir: &Path, folder: &Path, id: &SessionId) -> Result<PathBuf, TrashError> {
    let place = folder.join(id.as_str());
    if place.symlink_metadata().is_ok() {
        return Err(TrashError::Exists { dir: place });
    }
    let go = || -> io::Result<()> {
        private_dir(folder)?;
        rename(dir, &place, "session.rename")?;
        let sync = || -> io::Result<()> {
            sync_folder(folder, "sessions.sync")?;
            dir.parent().map_or(Ok(()), |parent| sync_folder(parent, "sessions.sync"))
        };
        // Whoever is told that it could not be moved finds it where it was.
        sync().inspect_err(|_| drop(fs::rename(&place, dir)))
    };
    go().map_err(|source| TrashError::Move { dir: dir.to_owned(), source })?;
    Ok(place)
}

/// Folders among the sessions that hold none: what is left where a session could not begin, or a copy was cut short.
///
/// # Errors
///
/// If the folder of sessions exists and cannot be read.
pub fn leftovers(data_home: &Path) -> io::Result<Vec<PathBuf>> {
    let folders = match fs::read_dir(sessions_dir(data_home)) {
        Ok(folders) => folders,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let is_empty = |path: &PathBuf| matches!(reading::segments(path), Err(ReadError::NoSession { .. }));
    let mut found: Vec<PathBuf> =
        folders.filter_map(Result::ok).map(|folder| folder.path()).filter(is_empty).collect();
    found.sort_unstable();
    Ok(found)
}
