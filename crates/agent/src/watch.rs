//! Files that the model read or wrote, looked at before each request: where something else changed one, the model is told
//! once, with what is different.
//!
//! Contents decide, not times: a file is read again only if its stamp is another, and a touched file is not told of. What
//! a file held is remembered within bounds, for the diff; a resumed session tells of a change without one.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use mainstay_session::entry::{FileMark, Notice, NoticeKind};
use mainstay_session::message::{ContentHash, FilePath};
use mainstay_session::state::SessionState;
use mainstay_session::world::{FileNews, files_text};
use mainstay_tools::look::{Stamp, line_diff, read_regular};

/// The largest file that is watched. The hash of a larger one is compared when a tool is to change it.
const WATCHED_BYTES: u64 = 4 << 20;

/// The largest file of which the contents are remembered, and the most that is remembered of all.
const REMEMBERED_FILE: usize = 256 << 10;
const REMEMBERED: usize = 8 << 20;

/// How much of one notice the diffs may take, in bytes.
const DIFFS: usize = 6_000;

/// What is remembered of the files of one session.
#[derive(Default)]
pub(crate) struct Watch {
    files: HashMap<PathBuf, Looked>,
    remembered: usize,
}

struct Looked {
    stamp: Stamp,
    hash: ContentHash,
    text: Option<Vec<u8>>,
}

/// What the model knows of files.
pub(crate) struct Known {
    seen: BTreeMap<FilePath, ContentHash>,
    told: BTreeMap<FilePath, Option<ContentHash>>,
}

impl Known {
    /// What it knows in a state. A copy, so that no file is read while the log is held.
    pub(crate) fn of(state: &SessionState) -> Self {
        Known { seen: state.seen.clone(), told: state.told_files.clone() }
    }
}

/// A file that holds something else than the model knows.
struct Changed {
    path: PathBuf,
    now: Option<ContentHash>,
    news: FileNews,
}

impl Watch {
    /// The notice of all files that changed since the model read, wrote or was last told of them; none if none did.
    pub(crate) fn notice(&mut self, known: &Known) -> Option<Notice> {
        let known = known.seen.iter().map(|(path, seen)| {
            let known = known.told.get(path).cloned().unwrap_or_else(|| Some(seen.clone()));
            (path.as_path(), known)
        });
        let mut left = DIFFS;
        let changed: Vec<Changed> =
            known.filter_map(|(path, known)| self.compare(path, known, &mut left)).collect();
        if changed.is_empty() {
            return None;
        }
        let text = files_text(changed.iter().map(|file| (FilePath(file.path.clone()), &file.news)));
        let files =
            changed.into_iter().map(|file| FileMark { path: FilePath(file.path), hash: file.now }).collect();
        Some(Notice { about: NoticeKind::FilesChanged { files }, text })
    }

    fn compare(&mut self, path: &Path, known: Option<ContentHash>, left: &mut usize) -> Option<Changed> {
        let stamp = Stamp::of(path);
        if let (Some(stamp), Some(looked)) = (&stamp, self.files.get(path))
            && looked.stamp == *stamp
        {
            return (known.as_ref() != Some(&looked.hash)).then(|| self.changed(path, None, left));
        }
        match stamp {
            Some(stamp) if stamp.size() > WATCHED_BYTES => None,
            Some(_) => {
                let before = self.files.remove(path);
                let before = before.and_then(|looked| self.forget(looked));
                self.look(path)?;
                let is_known = self.files.get(path).map(|looked| &looked.hash) == known.as_ref();
                (!is_known).then(|| self.changed(path, before, left))
            }
            None if known.is_none() => None,
            None => {
                if let Some(looked) = self.files.remove(path) {
                    self.forget(looked);
                }
                Some(Changed { path: path.to_owned(), now: None, news: FileNews::Gone })
            }
        }
    }

    fn changed(&self, path: &Path, before: Option<Vec<u8>>, left: &mut usize) -> Changed {
        let looked = self.files.get(path);
        let now = looked.and_then(|looked| looked.text.as_ref());
        let diff = before.zip(now).and_then(|(before, now)| line_diff(&before, now));
        let news = match diff.filter(|diff| diff.len() <= *left) {
            Some(diff) => {
                *left -= diff.len();
                FileNews::Diff(diff)
            }
            None => FileNews::Changed,
        };
        Changed { path: path.to_owned(), now: looked.map(|looked| looked.hash.clone()), news }
    }

    /// Reads a file and remembers it. What cannot be read now is looked at again before the next request.
    fn look(&mut self, path: &Path) -> Option<()> {
        let (stamp, bytes) = read_regular(path, WATCHED_BYTES + 1).ok()?;
        let hash = ContentHash::of(&bytes);
        let is_kept = bytes.len() <= REMEMBERED_FILE && self.remembered + bytes.len() <= REMEMBERED;
        let text = is_kept.then_some(bytes);
        self.remembered += text.as_ref().map_or(0, Vec::len);
        self.files.insert(path.to_owned(), Looked { stamp, hash, text });
        Some(())
    }

    fn forget(&mut self, looked: Looked) -> Option<Vec<u8>> {
        self.remembered -= looked.text.as_ref().map_or(0, Vec::len);
        looked.text
    }
}
