//! Tests of the list of recent files.

use std::path::PathBuf;

use proptest::prelude::*;

use super::*;
use crate::message::{ContentHash, FilePath};

fn file(path: impl Into<PathBuf>) -> ReferencedFile {
    ReferencedFile::from(path.into())
}

fn touched(paths: impl IntoIterator<Item = String>) -> RecentFiles {
    let mut recent = RecentFiles::default();
    for path in paths {
        recent.touch(file(path));
    }
    recent
}

/// U04
#[test]
fn a_touch_moves_to_the_front_without_duplicates() {
    let recent = touched(["/a", "/b", "/c", "/a"].map(str::to_owned));
    assert_eq!(recent.first(9), [file("/a"), file("/c"), file("/b")]);
    assert_eq!(recent.first(2), [file("/a"), file("/c")]);
}

/// U04
#[test]
fn the_twenty_first_file_drops_the_oldest() {
    let recent = touched((1..=21).map(|n| format!("/{n}")));
    assert_eq!(recent.len(), RecentFiles::LIMIT);
    assert_eq!(recent.first(1), [file("/21")]);
    assert_eq!(recent.iter().last(), Some(&file("/2")));
}

#[test]
fn the_last_hash_counts() {
    let mut recent = touched(["/a".to_owned(), "/b".to_owned()]);
    let hashed = ReferencedFile { path: FilePath("/a".into()), hash: Some(ContentHash::of(b"new")) };
    recent.touch(hashed.clone());
    assert_eq!(recent.first(9), [hashed, file("/b")]);
}

#[test]
fn the_list_is_a_plain_array_in_json() {
    assert_eq!(serde_json::to_string(&touched(["/a".to_owned()])).unwrap(), r#"[{"path":"/a"}]"#);
    assert_eq!(serde_json::from_str::<RecentFiles>("[]").unwrap(), RecentFiles::default());
}

proptest! {
    /// U04
    #[test]
    fn the_list_is_the_last_touches(paths in prop::collection::vec(0u8..30, 0..80)) {
        let mut expected = Vec::new();
        for path in paths.iter().rev() {
            if !expected.contains(path) && expected.len() < RecentFiles::LIMIT {
                expected.push(*path);
            }
        }
        let recent = touched(paths.iter().map(|n| format!("/{n}")));
        let kept: Vec<_> = recent.iter().cloned().collect();
        let expected: Vec<_> = expected.iter().map(|n| file(format!("/{n}"))).collect();
        prop_assert_eq!(kept, expected);
    }
}
