//! What the fuzz targets check. It lies with the tests of `mainstay-model` and `mainstay-session`, which replay the seeds
//! with it.
#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../../crates/model/tests/common/anthropic_rules.rs"]
pub mod anthropic_rules;
#[path = "../../crates/model/tests/common/dialects.rs"]
pub mod dialects;
#[path = "../../crates/model/tests/common/fuzzed.rs"]
pub mod fuzzed;
#[path = "../../crates/model/tests/common/rules_chat.rs"]
pub mod rules_chat;
#[path = "../../crates/model/tests/common/rules_gemini.rs"]
pub mod rules_gemini;
#[path = "../../crates/model/tests/common/rules_responses.rs"]
pub mod rules_responses;
#[path = "../../crates/session/tests/common/fuzzed.rs"]
pub mod session;
