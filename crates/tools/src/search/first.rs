//! The first results by path, whatever the order in which they are found.
//!
//! Several threads find files in an order that nobody can foretell. Each keeps those that come first by path, up to a
//! limit; put together and cut again they are the first of all, the same at every run.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Files in the order of their paths, until their weights reach a limit.
pub(super) struct First<T> {
    limit: u64,
    weight: u64,
    items: BTreeMap<ByPath, (u64, T)>,
}

impl<T> First<T> {
    pub(super) fn new(limit: u64) -> Self {
        First { limit, weight: 0, items: BTreeMap::new() }
    }

    /// Whether a file would be kept, so that nothing is made of it in vain.
    pub(super) fn wants(&self, path: &Path) -> bool {
        self.weight < self.limit
            || self.items.last_key_value().is_some_and(|(last, _)| by_path(path, &last.0).is_lt())
    }

    /// Takes a file in. Those before which the limit is reached go.
    pub(super) fn insert(&mut self, path: PathBuf, weight: u64, item: T) {
        self.weight += weight;
        self.items.insert(ByPath(path), (weight, item));
        while let Some(last) = self.items.last_entry()
            && self.weight - last.get().0 >= self.limit
        {
            self.weight -= last.remove().0;
        }
    }

    /// Takes in what another thread kept.
    pub(super) fn merge(&mut self, other: Self) {
        for (path, (weight, item)) in other.items {
            self.insert(path.0, weight, item);
        }
    }

    /// The files by path, with what was kept of them.
    pub(super) fn into_items(self) -> impl Iterator<Item = (PathBuf, T)> {
        self.items.into_iter().map(|(path, (_, item))| (path.0, item))
    }
}

/// A path, ordered component by component, so that a directory's files stand together.
struct ByPath(PathBuf);

impl Ord for ByPath {
    fn cmp(&self, other: &Self) -> Ordering {
        by_path(&self.0, &other.0)
    }
}

impl PartialOrd for ByPath {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for ByPath {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for ByPath {}

/// Compares as `Path` does, without taking the paths apart: a separator comes before every byte of a name.
fn by_path(one: &Path, other: &Path) -> Ordering {
    let rank = |byte: &u8| if *byte == b'/' { 0 } else { *byte };
    one.as_os_str().as_bytes().iter().map(rank).cmp(other.as_os_str().as_bytes().iter().map(rank))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_by_path_are_kept_in_whatever_order_they_come() {
        let names = ["a", "a/b", "a/b/c", "a.b", "a b", "b", "b/\u{e9}", "b/z", "c"];
        let mut sorted = names.map(PathBuf::from);
        sorted.sort();
        for shift in 0..names.len() {
            let (mut one, mut two) = (First::new(4), First::new(4));
            for (index, name) in names.iter().cycle().skip(shift).take(names.len()).enumerate() {
                let half = if index % 2 == 0 { &mut one } else { &mut two };
                half.insert(PathBuf::from(name), 1, ());
            }
            one.merge(two);
            let kept: Vec<PathBuf> = one.into_items().map(|(path, ())| path).collect();
            assert_eq!(kept, sorted[..4]);
        }
    }

    #[test]
    fn weights_count_towards_the_limit_and_the_one_that_reaches_it_stays() {
        let mut first = First::new(5);
        first.insert("c".into(), 3, ());
        first.insert("b".into(), 3, ());
        assert!(first.wants(Path::new("a")) && !first.wants(Path::new("d")));
        first.insert("a".into(), 3, ());
        first.insert("d".into(), 1, ());
        assert_eq!(
            first.into_items().map(|(path, ())| path).collect::<Vec<_>>(),
            ["a", "b"].map(PathBuf::from)
        );
    }
}
