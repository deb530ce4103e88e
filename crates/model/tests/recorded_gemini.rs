//! Decodes the recorded answers of Google's servers and compares with what they say.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

mod common;

use mainstay_model::gemini::decode::GeminiDecoder;
use mainstay_model::{GeminiModel, ModelSettings};

/// D17, H06, H08, H09, H10, H14, I02
#[test]
fn every_recorded_answer_decodes_to_what_it_says_however_it_is_cut() {
    common::recorded::compare_answers("gemini", GeminiDecoder::default);
}

#[tokio::test]
async fn every_recorded_refusal_is_understood() {
    let model = |base_url| GeminiModel::new(ModelSettings::new("gemini", "m", base_url, 8_000)).unwrap();
    common::recorded::compare_refusals("gemini", model).await;
}
