//! Replays the inputs that the fuzz targets keep: each must hold what the target demands.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail loudly")]

#[allow(unreachable_pub, reason = "the fuzz targets use it too")]
#[path = "common/fuzzed.rs"]
mod fuzzed;

use std::path::PathBuf;

fn replay(target: &str, check: fn(&[u8])) {
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

/// L04, L07: any bytes can be read as a log; every whole line counts or is named, and what is written behind them is read.
#[test]
fn logs() {
    replay("log", fuzzed::log);
}

/// Any bytes can be read as a plan write; what is accepted is a plan, and the same plan when it is sent again.
#[test]
fn plan_writes() {
    replay("plan", fuzzed::plan);
}
