//! Decodes the recorded answers of real servers over Chat Completions and compares with what they say.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

mod common;

use mainstay_model::chat::decode::ChatDecoder;
use mainstay_model::{ChatModel, ModelSettings};

/// D17, H01, H04, H05, H06, H07, H08, H09, H10, H14, I01
#[test]
fn every_recorded_answer_decodes_to_what_it_says_however_it_is_cut() {
    common::recorded::compare_answers("chat", ChatDecoder::default);
}

#[tokio::test]
async fn every_recorded_refusal_is_understood() {
    let model = |base_url| ChatModel::new(ModelSettings::new("p", "m", base_url, 8_000)).unwrap();
    common::recorded::compare_refusals("chat", model).await;
}
