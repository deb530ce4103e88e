//! See `chat` in `crates/model/tests/common/fuzzed.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mainstay_fuzz::fuzzed::chat(data));
