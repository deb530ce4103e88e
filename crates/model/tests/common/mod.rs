//! What the tests of the wire formats share.

#![allow(dead_code, clippy::unwrap_used, clippy::print_stderr, missing_docs, unreachable_pub)]

pub mod answers;
pub mod anthropic_rules;
pub mod recorded;
pub mod rules_chat;
pub mod rules_gemini;
pub mod rules_responses;
pub mod dialects;
pub mod fuzzed;
