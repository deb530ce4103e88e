//! Replays the inputs that the fuzz targets keep: each must hold what the target demands.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

mod common;
#[path = "../../../fuzz/replay.rs"]
mod replay;

use common::fuzzed;
use replay::replay;

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
