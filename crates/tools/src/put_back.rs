//! Puts a file back to what it held before a tool changed it, if it still is what the tool wrote.

use std::path::Path;

use mainstay_session::message::ContentHash;

use crate::files::{Snapshot, alone, replace};
use crate::place::Place;
use crate::tool::ToolError;

/// The hash of what the file at `path` holds now; none if there is none.
///
/// # Errors
///
/// If the path is not a plain one inside the workspace, or what lies there cannot be read.
pub fn hash_now(workspace: &Path, path: &Path) -> Result<Option<ContentHash>, ToolError> {
    Ok(Snapshot::take(&place(workspace, path)?)?.map(|now| now.hash))
}

/// Puts `then` where a file holds what has the hash `now`; removes the file where `then` is none. Mode and hard links
/// stay.
///
/// # Errors
///
/// If the file holds something else, or cannot be written. Then it is as it was.
pub fn put_back(
    workspace: &Path,
    path: &Path,
    now: Option<&ContentHash>,
    then: Option<&[u8]>,
) -> Result<(), ToolError> {
    let place = place(workspace, path)?;
    alone(&place, || {
        let old = Snapshot::take(&place)?;
        if old.as_ref().map(|old| &old.hash) != now {
            return Err(ToolError::from(format!("{} was changed in this moment", place.shown)));
        }
        match then {
            Some(bytes) => replace(&place, old.as_ref(), bytes),
            None => place.remove(),
        }
    })
}

fn place(workspace: &Path, path: &Path) -> Result<Place, ToolError> {
    Place::inside(workspace, path)
        .ok_or_else(|| ToolError::from(format!("{} is not in the workspace", path.display())))
}
