//! Messages from other processes: files in the session's `inbox`, whole or not there.
//!
//! Whoever sends one needs no lock and no running session. The one writer logs a message under the name of its file, and
//! removes the file only when the entry is on the disk; killed in between, it finds the file again and knows the name.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{AppendError, Log, private_subdir, reading, rename, sync_folder, write_private};
use crate::entry::{Body, InboxMessage};
use crate::failpoint;

/// The longest text that is taken from a file, in bytes.
pub const MESSAGE_BYTES: usize = 64 << 10;

/// The longest file that is looked at: text escaped as JSON, and some more.
const FILE_BYTES: u64 = 8 * MESSAGE_BYTES as u64;

/// A message as its file holds it.
#[derive(Serialize, Deserialize)]
struct Message {
    text: String,
    #[serde(default)]
    wake: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ts: Option<jiff::Timestamp>,
}

/// Why a message could not be left.
#[derive(Debug, thiserror::Error)]
pub enum LeaveError {
    /// There is no session in that folder.
    #[error(transparent)]
    NoSession(#[from] reading::ReadError),
    /// It is longer than a session takes.
    #[error("the text has {bytes} bytes, and a notification at most {MESSAGE_BYTES}")]
    TooLong {
        /// How long it is.
        bytes: usize,
    },
    /// The file could not be written.
    #[error("cannot leave the notification in {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
}

/// Leaves a message for the session in `dir`, whether or not a process works on it. It is on the disk when this returns.
///
/// # Errors
///
/// If there is no session, the text is too long, or the file cannot be written. Then nothing is left.
pub fn leave_message(dir: &Path, text: &str, wake: bool, now: jiff::Timestamp) -> Result<(), LeaveError> {
    reading::segments(dir)?;
    if text.len() > MESSAGE_BYTES {
        return Err(LeaveError::TooLong { bytes: text.len() });
    }
    // Names sort by the time at which they were made, and so messages are taken in order.
    let millis = u64::try_from(now.as_millisecond()).unwrap_or(0);
    let nanos = u32::try_from(millis % 1000 * 1_000_000).unwrap_or(0);
    let id = uuid::Uuid::new_v7(uuid::Timestamp::from_unix(uuid::NoContext, millis / 1000, nanos));
    let inbox = inbox_dir(dir);
    let path = inbox.join(id.hyphenated().to_string());
    let unfinished = path.with_extension("new");
    let message = Message { text: text.to_owned(), wake, ts: Some(now) };
    let write = || -> io::Result<()> {
        private_subdir(&inbox)?;
        write_private(&unfinished, &serde_json::to_vec(&message)?, true, "inbox.write")?;
        rename(&unfinished, &path, "inbox.rename")?;
        sync_folder(&inbox, "inbox.folder.sync")?;
        sync_folder(dir, "folder.sync")
    };
    write().map_err(|source| {
        // What is left of the attempt is of no use, and is not to be told: whoever is refused says it again. That it cannot
        // be removed either changes nothing.
        let _ = fs::remove_file(&unfinished);
        let _ = fs::remove_file(&path);
        LeaveError::Write { path: path.clone(), source }
    })
}

/// What was found in the inbox.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// How many messages were accepted.
    pub accepted: usize,
    /// Whether one of them starts a turn.
    pub wakes: bool,
    /// Files that are no message; they stay, under these names.
    pub unreadable: Vec<PathBuf>,
}

impl Log {
    /// Accepts what other processes have left, the oldest first. Each message is accepted once, whenever a process is
    /// killed: its file goes only when its entry is on the disk, and an entry's id is never accepted again.
    ///
    /// # Errors
    ///
    /// If a message cannot be logged or made durable. Its file stays, and is taken the next time.
    pub fn take_inbox(&mut self, now: jiff::Timestamp) -> Result<Taken, AppendError> {
        let mut taken = Taken::default();
        let waiting = waiting(&self.dir);
        if waiting.is_empty() {
            return Ok(taken);
        }
        self.check_writable()?;
        let mut logged = Vec::new();
        for (id, path) in waiting {
            if self.state.inbox_ids.contains(&id) {
                logged.push(path);
                continue;
            }
            match read_message(&path) {
                Ok(Message { text, wake, .. }) => {
                    let source = "process".to_owned();
                    self.append(Body::Inbox(InboxMessage { id, text, wake, source }), now)?;
                    logged.push(path);
                    taken.accepted += 1;
                    taken.wakes |= wake;
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(_unreadable) => taken.unreadable.push(put_away(&path)),
            }
        }
        self.sync()?;
        for path in logged {
            // One that stays is known by its id, and tried again the next time.
            let _ = failpoint::pass("inbox.remove").and_then(|()| fs::remove_file(path));
        }
        Ok(taken)
    }
}

/// How many messages wait for the session in `dir`.
pub fn waiting_messages(dir: &Path) -> usize {
    waiting(dir).len()
}

fn inbox_dir(dir: &Path) -> PathBuf {
    dir.join("inbox")
}

/// The messages that wait, by id, the oldest first. A folder that cannot be read holds none.
fn waiting(dir: &Path) -> Vec<(String, PathBuf)> {
    let Ok(names) = fs::read_dir(inbox_dir(dir)) else { return Vec::new() };
    let mut waiting: Vec<(String, PathBuf)> = names
        .filter_map(Result::ok)
        .filter_map(|entry| {
            let id = entry.file_name().into_string().ok()?;
            let uuid = uuid::Uuid::parse_str(&id).ok()?;
            (uuid.hyphenated().to_string() == id).then(|| (id, entry.path()))
        })
        .collect();
    waiting.sort_unstable();
    waiting
}

fn read_message(path: &Path) -> io::Result<Message> {
    let invalid = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
    // What is no file, such as a pipe, could keep the session waiting.
    if !fs::symlink_metadata(path)?.is_file() {
        return Err(invalid("it is no file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(FILE_BYTES + 1).read_to_end(&mut bytes)?;
    let message: Message = serde_json::from_slice(&bytes)?;
    if message.text.len() > MESSAGE_BYTES {
        return Err(invalid("it is too long"));
    }
    Ok(message)
}

/// Renames what is no message, so that it is not looked at again; where that fails it stays as it was.
fn put_away(path: &Path) -> PathBuf {
    let aside = path.with_extension("unreadable");
    if fs::rename(path, &aside).is_ok() { aside } else { path.to_owned() }
}
