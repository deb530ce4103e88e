//! Replays the inputs that the fuzz targets keep: each must hold what the target demands.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

mod common;

use std::path::PathBuf;

use common::fuzzed;

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

/// H08, H10: any bytes make an attempt, the same in every cut, and what came can be logged and sent on.
#[test]
fn answers_over_chat_completions() {
    replay("chat", fuzzed::chat);
}

#[test]
fn answers_over_messages() {
    replay("anthropic", fuzzed::anthropic);
}

#[test]
fn answers_over_responses() {
    replay("responses", fuzzed::responses);
}

#[test]
fn answers_of_gemini() {
    replay("gemini", fuzzed::gemini);
}

/// L10, T14: any log makes requests that every provider takes, and that only grow.
#[test]
fn requests_from_logs() {
    replay("requests", fuzzed::requests);
}
