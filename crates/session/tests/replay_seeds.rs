//! Replays the inputs that the fuzz targets keep: each must hold what the target demands.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail loudly")]

#[allow(unreachable_pub, reason = "the fuzz targets use it too")]
#[path = "common/fuzzed.rs"]
mod fuzzed;
#[path = "../../../fuzz/replay.rs"]
mod replay;

use replay::replay;

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
