//! Decodes the recorded answers of real servers over Responses and compares with what they say.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

mod common;

use common::recorded::{class_named, compare_answers_with, compare_refusals, digest, finish_of, shown_calls};
use mainstay_model::responses::decode::ResponsesDecoder;
use mainstay_model::{Attempt, ModelSettings, ResponsesModel};
use mainstay_session::arguments::parse_arguments;
use mainstay_session::message::{Content, Ended, Finish, Usage};
use serde_json::Value;

/// D17, H01, H04, H05, H06, H07, H08, H09, H10, H14, I01
#[test]
fn every_recorded_answer_decodes_to_what_it_says_however_it_is_cut() {
    compare_answers_with("responses", ResponsesDecoder::default, differences);
}

#[tokio::test]
async fn every_recorded_refusal_is_understood() {
    let model = |base_url| ResponsesModel::new(ModelSettings::new("p", "m", base_url, 8_000)).unwrap();
    compare_refusals("responses", model).await;
}

fn differences(entry: &Value, attempt: &Attempt, shown: &str) -> Vec<String> {
    let expect = &entry["expect"];
    let mut wrong = Vec::new();
    let mut compare = |what: &str, got: String, wanted: String| {
        if got != wanted {
            wrong.push(format!("{what} is {got}, expected {wanted}"));
        }
    };
    let (mut text, mut reasoning, mut all) = (String::new(), String::new(), String::new());
    let (mut calls, mut kinds) = (Vec::new(), Vec::new());
    let (mut opaque, mut envelopes, mut tied) = (0, 0, 0);
    for content in &attempt.content {
        match content {
            Content::Text { text: piece } => {
                text.push_str(piece);
                all.push_str(piece);
                kinds.push("message".to_owned());
                tied += usize::from(opaque > 0);
            }
            Content::Reasoning { text: piece, opaque: item } => {
                reasoning.push_str(piece);
                all.push_str(piece);
                opaque += usize::from(
                    item.as_deref().is_some_and(|item| !field(item, "encrypted_content").is_null()),
                );
                kinds.push("reasoning".to_owned());
            }
            Content::Call(call) => {
                calls.push(call.clone());
                all.push_str(&format!("[{}]", call.name));
                kinds.push("function_call".to_owned());
            }
            Content::Opaque { raw } if field(raw, "type") == "message" => {
                envelopes += usize::from(!field(raw, "id").is_null());
            }
            Content::Opaque { raw } => kinds.push(field(raw, "type").as_str().unwrap().to_owned()),
        }
    }
    let said = if expect["refusal"] == "" { &expect["text"] } else { &expect["refusal"] };
    compare("text", digest(&text, said), said.to_string());
    compare("reasoning", digest(&reasoning, &expect["reasoning"]), expect["reasoning"].to_string());
    // What only another kind of client can run is kept, but is no call of ours.
    let foreign = ["apply_patch_call", "custom_tool_call", "tool_search_call", "mcp_approval_request"];
    let is_foreign = kinds.iter().any(|kind| foreign.contains(&kind.as_str()));
    if !kinds.iter().any(|kind| foreign[..2].contains(&kind.as_str())) {
        compare("calls", shown_calls(&calls, expect), expect["tool_calls"].to_string());
    }
    // Reasoning that is neither readable nor of use is not kept.
    let mut blocks: Vec<String> = serde_json::from_value(expect["blocks"].clone()).unwrap();
    if !kinds.contains(&"reasoning".to_owned())
        && reasoning.is_empty()
        && expect["opaque"]["encrypted_content"].is_null()
    {
        blocks.retain(|kind| kind != "reasoning");
    }
    compare("the order of blocks", format!("{kinds:?}"), format!("{blocks:?}"));
    compare("messages tied to reasoning", envelopes.to_string(), tied.to_string());
    compare(
        "encrypted reasoning",
        opaque.to_string(),
        expect["opaque"]["encrypted_content"].as_u64().unwrap_or(0).to_string(),
    );
    compare("usage", format!("{:?}", attempt.usage), format!("{:?}", usage_of(entry)));
    compare("what was shown", digest(shown, &Value::Null), digest(&all, &Value::Null));
    if expect["kind"] == "error" {
        let class = class_named(entry["error_class"].as_str().unwrap());
        let got = match &attempt.ended {
            Ended::Failed { class, .. } => Some(*class),
            Ended::Complete | Ended::Cancelled => None,
        };
        compare("class", format!("{got:?}"), format!("{:?}", Some(class)));
    } else {
        let is_complete = attempt.ended == Ended::Complete;
        let finish = if is_foreign { Finish::Unknown } else { finish_of(expect) };
        compare("finish", format!("{:?}", attempt.finish), format!("{finish:?}"));
        compare("completeness", is_complete.to_string(), expect["complete"].to_string());
    }
    let may_run = attempt.ended == Ended::Complete
        && !matches!(attempt.finish, Finish::MaxTokens | Finish::Refusal)
        && !calls.is_empty()
        && calls.iter().all(|call| parse_arguments(&call.arguments).is_ok());
    compare("run_calls", may_run.to_string(), (expect["run_calls"] == true && !is_foreign).to_string());
    wrong
}

fn field(json: &str, name: &str) -> Value {
    serde_json::from_str::<Value>(json).unwrap()[name].clone()
}

fn usage_of(entry: &Value) -> Option<Usage> {
    let usage = &entry["expect"]["usage"];
    let count = |name: &str| usage[name].as_u64();
    (count("input").is_some() || count("output").is_some()).then(|| Usage {
        input_tokens: count("input_total").unwrap_or(0),
        cached_tokens: count("cache_read").unwrap_or(0),
        output_tokens: count("output").unwrap_or(0),
        ..Usage::default()
    })
}
