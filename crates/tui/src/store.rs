//! What the interface keeps for its user: earlier messages, and what is being written.
//!
//! Both lie in the data home, readable by nobody else. A draft is a file of its own for each running interface, with a
//! lock beside it that the operating system frees when the process dies; so the next interface with the same session, or
//! with none as yet in the same workspace, finds what was being written in one that was killed. What cannot be written is not kept, and nothing fails by it.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::editor::Editor;

/// How many earlier messages are offered.
const EARLIER: usize = 500;
/// How large the file of earlier messages may get before its older half goes.
const EARLIER_BYTES: u64 = 1 << 20;

/// What is being written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Draft {
    /// Where.
    pub(crate) workspace: PathBuf,
    /// In which session, by the end of its id; none where none had begun.
    #[serde(default)]
    pub(crate) session: Option<String>,
    /// The text.
    pub(crate) editor: Editor,
    /// Messages that were sent and had not reached the session's log.
    #[serde(default)]
    pub(crate) waiting: Vec<String>,
}

impl Draft {
    fn is_empty(&self) -> bool {
        self.editor.is_empty() && self.waiting.is_empty()
    }
}

/// The files.
#[derive(Debug)]
pub(crate) struct Store {
    home: PathBuf,
    name: String,
    /// Held as long as this interface runs.
    lock: Option<File>,
    is_saved: bool,
}

impl Store {
    /// The files below a data home. `name` is one that no other running interface has.
    pub(crate) fn new(data_home: &Path, name: String) -> Self {
        Store { home: data_home.to_owned(), name, lock: None, is_saved: false }
    }

    /// Earlier messages, the last one last.
    pub(crate) fn earlier(&self) -> Vec<String> {
        let text = fs::read_to_string(self.earlier_path()).unwrap_or_default();
        let mut all: Vec<String> =
            text.lines().rev().take(EARLIER).filter_map(|line| serde_json::from_str(line).ok()).collect();
        all.reverse();
        all
    }

    /// Keeps a message.
    pub(crate) fn remember(&self, text: &str) -> io::Result<()> {
        make_private_dir(&self.home)?;
        let path = self.earlier_path();
        let mut file = OpenOptions::new().create(true).append(true).mode(0o600).open(&path)?;
        file.write_all(format!("{}\n", serde_json::to_string(text)?).as_bytes())?;
        if file.metadata()?.len() > EARLIER_BYTES {
            let all = fs::read_to_string(&path)?;
            let half = all.len() / 2;
            let from =
                all.as_bytes()[half..].iter().position(|byte| *byte == b'\n').map_or(0, |at| half + at + 1);
            write_private(&path, &all.as_bytes()[from..])?;
        }
        Ok(())
    }

    /// Takes over what was being written in this session by the interface that died last, if one did; without a session,
    /// what was being written in this workspace before one began.
    pub(crate) fn adopt(&self, workspace: &Path, session: Option<&str>) -> Option<Draft> {
        let mut found: Vec<(std::time::SystemTime, PathBuf)> = fs::read_dir(self.drafts())
            .ok()?
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|ext| ext == "json"))
            .filter_map(|path| Some((path.metadata().ok()?.modified().ok()?, path)))
            .collect();
        found.sort();
        found.into_iter().rev().find_map(|(_, path)| take_dead(&path, workspace, session))
    }

    /// Keeps what is being written.
    pub(crate) fn save(&mut self, draft: &Draft) -> io::Result<()> {
        let path = self.drafts().join(format!("{}.json", self.name));
        if draft.is_empty() {
            if std::mem::take(&mut self.is_saved) {
                fs::remove_file(path)?;
            }
            return Ok(());
        }
        if self.lock.is_none() {
            make_private_dir(&self.home)?;
            make_private_dir(&self.drafts())?;
            let file = OpenOptions::new()
                .create(true)
                .truncate(false)
                .write(true)
                .mode(0o600)
                .open(path.with_extension("lock"))?;
            file.try_lock().map_err(io::Error::from)?;
            self.lock = Some(file);
        }
        write_private(&path, &serde_json::to_vec(draft)?)?;
        self.is_saved = true;
        Ok(())
    }

    /// Leaves nothing behind but a draft that is still kept.
    pub(crate) fn close(&mut self) {
        if self.lock.take().is_some() && !self.is_saved {
            let _ = fs::remove_file(self.drafts().join(format!("{}.lock", self.name)));
        }
    }

    fn earlier_path(&self) -> PathBuf {
        self.home.join("messages.jsonl")
    }

    fn drafts(&self) -> PathBuf {
        self.home.join("drafts")
    }
}

impl Drop for Store {
    /// Frees the lock here and now: closed alone, a child that is just being begun could have a copy of it for a moment.
    fn drop(&mut self) {
        let _ = self.lock.take().map(|lock| lock.unlock());
    }
}

/// The draft at `path`, if nobody writes it any more and it is of this session, or of this workspace and no session. It is
/// gone from there then.
fn take_dead(path: &Path, workspace: &Path, session: Option<&str>) -> Option<Draft> {
    let lock_path = path.with_extension("lock");
    if let Ok(lock) = File::open(&lock_path) {
        lock.try_lock().ok()?;
    }
    let draft: Draft = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
    if draft.session.as_deref() != session || session.is_none() && draft.workspace != workspace {
        return None;
    }
    let _ = fs::remove_file(path);
    let _ = fs::remove_file(lock_path);
    Some(draft)
}

fn make_private_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Replaces a file at once: a reader finds what was there or what is there.
fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let dir = path.parent().unwrap_or(Path::new("."));
    // Made readable by its owner only.
    let mut file = tempfile::NamedTempFile::new_in(dir)?;
    file.write_all(bytes)?;
    file.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn draft(text: &str) -> Draft {
        let waiting = vec!["sent".to_owned()];
        Draft { workspace: PathBuf::from("/w"), session: None, editor: Editor::with(text), waiting }
    }

    #[test]
    fn a_draft_outlives_its_interface_and_is_found_once() {
        let home = tempfile::tempdir().unwrap();
        let store = |name: &str| Store::new(home.path(), name.to_owned());
        let mut first = store("a");
        first.save(&draft("half a sen")).unwrap();
        let second = store("b");
        assert_eq!(second.adopt(Path::new("/w"), None), None, "its interface lives");
        drop(first);
        assert_eq!(second.adopt(Path::new("/elsewhere"), None), None);
        assert_eq!(second.adopt(Path::new("/w"), None), Some(draft("half a sen")));
        assert_eq!(second.adopt(Path::new("/w"), None), None);
        assert_eq!(fs::read_dir(home.path().join("drafts")).unwrap().count(), 0);
    }

    /// A draft of a session is found with that session, wherever it works by then, and with nothing else.
    #[test]
    fn a_draft_of_a_session_stays_with_it() {
        let home = tempfile::tempdir().unwrap();
        let store = |name: &str| Store::new(home.path(), name.to_owned());
        let of_session = Draft { session: Some("3f2a9c01".to_owned()), ..draft("for this one") };
        store("a").save(&of_session).unwrap();
        let next = store("b");
        let here = Path::new("/w");
        assert_eq!(next.adopt(here, None), None, "a new session");
        assert_eq!(next.adopt(here, Some("00000000")), None, "another session");
        assert_eq!(next.adopt(Path::new("/moved"), Some("3f2a9c01")), Some(of_session));
        store("c").save(&draft("for none")).unwrap();
        assert_eq!(next.adopt(here, Some("3f2a9c01")), None);
        assert_eq!(next.adopt(here, None), Some(draft("for none")));
    }

    #[test]
    fn messages_are_kept_for_their_user_alone() {
        let home = tempfile::tempdir().unwrap();
        let store = Store::new(&home.path().join("new"), "a".to_owned());
        assert_eq!(store.earlier(), Vec::<String>::new());
        for text in ["one", "two\nlines"] {
            store.remember(text).unwrap();
        }
        assert_eq!(store.earlier(), ["one", "two\nlines"]);
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&store.earlier_path()), 0o600);
        let mut store = store;
        store.save(&draft("x")).unwrap();
        assert_eq!(mode(&store.drafts().join("a.json")), 0o600);
        store.save(&Draft::default()).unwrap();
        store.close();
        assert_eq!(fs::read_dir(store.drafts()).unwrap().count(), 0);
    }

    #[test]
    fn the_file_of_messages_does_not_grow_without_end() {
        let home = tempfile::tempdir().unwrap();
        let store = Store::new(home.path(), "a".to_owned());
        for n in 0..40 {
            store.remember(&format!("{n} {}", "x".repeat(40_000))).unwrap();
        }
        assert!(store.earlier_path().metadata().unwrap().len() <= EARLIER_BYTES + 50_000);
        assert!(store.earlier().last().unwrap().starts_with("39 "));
    }
}
