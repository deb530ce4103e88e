//! See `plan` in `crates/session/tests/common/fuzzed.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mainstay_fuzz::session::plan(data));
