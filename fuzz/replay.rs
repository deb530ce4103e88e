//! Replays the inputs that a fuzz target keeps in `seeds`: each must hold what the target demands. The tests of the crates
//! that have targets take this file in.

use std::path::PathBuf;

/// Checks every seed of a target, and fails if there is none.
pub(crate) fn replay(target: &str, check: fn(&[u8])) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target);
    let mut count = 0;
    for file in std::fs::read_dir(&folder).unwrap() {
        let path = file.unwrap().path();
        let data = std::fs::read(&path).unwrap();
        if std::panic::catch_unwind(|| check(&data)).is_err() {
            panic!("{} does not hold", path.display());
        }
        count += 1;
    }
    assert!(count > 0, "{} is empty", folder.display());
}
