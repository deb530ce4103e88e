//! Decodes the recorded answers of real servers over Anthropic Messages and compares with what they say.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "the helpers of tests are tests")]

mod common;

use std::borrow::Cow;

use common::anthropic_rules::check_anthropic;
use common::recorded::{
    body, class_named, compare_answers_with, compare_refusals, decode, digest, folder, recordings, usage_of,
};
use mainstay_model::anthropic::decode::AnthropicDecoder;
use mainstay_model::{AnthropicModel, Attempt, Model, ModelSettings};
use mainstay_session::arguments::{object_or_empty, parse_arguments};
use mainstay_session::message::{Content, Ended, Finish};
use mainstay_session::request::{Block, Message, Request};
use serde_json::{Value, json};

/// D17, H01, H04, H06, H08, H09, H10, H14, I01
#[test]
fn every_recorded_answer_decodes_to_what_it_says_however_it_is_cut() {
    compare_answers_with("anthropic", AnthropicDecoder::default, differences);
}

#[tokio::test]
async fn every_recorded_refusal_is_understood() {
    let model = |base_url| AnthropicModel::new(ModelSettings::new("p", "m", base_url, 8_000)).unwrap();
    compare_refusals("anthropic", model).await;
}

/// I01, D19: an answer goes back as the real server took it back in the recorded request of the next turn.
#[test]
fn recorded_answers_go_back_as_the_provider_took_them() {
    let entries = recordings();
    for next in entries.iter().filter(|entry| entry["api"] == "anthropic" && !entry["follows"].is_null()) {
        let before = format!("{}.", next["follows"].as_str().unwrap());
        let is_before = |entry: &&Value| entry["file"].as_str().unwrap().starts_with(&before);
        let (attempt, _) =
            decode(AnthropicDecoder::default(), &[&body(entries.iter().find(is_before).unwrap())]);
        let request = std::fs::read(folder().join(next["request"].as_str().unwrap())).unwrap();
        let mut request: Value = serde_json::from_slice(&request).unwrap();
        assert_eq!(sent_back(&attempt), request["messages"][1].take(), "{}", next["file"]);
    }
}

/// What is never sent from here: documents, the provider's own tools, the beginning of an answer.
const FOREIGN: &[&str] = &["citations-null-start", "pause-turn", "tool-search", "stop-sequence"];

/// The rules hold for what real servers took, as far as it is written as it is here: content in lists.
#[test]
fn requests_that_were_taken_keep_the_rules() {
    let (mut checked, mut wrong) = (0, Vec::new());
    for entry in recordings().iter().filter(|entry| entry["api"] == "anthropic" && entry["status"] == 200) {
        let is_own = |file: &&str| !FOREIGN.iter().any(|name| file.contains(name));
        let Some(file) = entry["request"].as_str().filter(is_own) else { continue };
        let body: Value = serde_json::from_slice(&std::fs::read(folder().join(file)).unwrap()).unwrap();
        let messages = body["messages"].as_array().unwrap();
        if messages.iter().all(|message| message["content"].is_array()) {
            match check_anthropic(&body) {
                Ok(()) => checked += 1,
                Err(why) => wrong.push(format!("{file}: {why}")),
            }
        }
    }
    eprintln!("{checked} recorded requests keep the rules");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The message that an answer becomes in the next request.
fn sent_back(attempt: &Attempt) -> Value {
    let model = AnthropicModel::new(ModelSettings::new("p", "m", "http://127.0.0.1:1/v1", 200_000)).unwrap();
    let blocks: Vec<Block<'_>> = attempt
        .content
        .iter()
        .map(|content| match content {
            Content::Text { text } => Block::Text(Cow::Borrowed(text)),
            Content::Reasoning { text, opaque } => Block::Reasoning { text, opaque: opaque.as_deref() },
            Content::Opaque { raw } => Block::Opaque(raw),
            Content::Call(call) => Block::Call {
                id: &call.id,
                name: &call.name,
                arguments: object_or_empty(&call.arguments),
                opaque: call.opaque.as_deref(),
            },
        })
        .collect();
    let told = Message::User { text: Cow::Borrowed("go"), pictures: Vec::new() };
    let messages = vec![told, Message::Answer { model: model.name(), blocks }];
    let encoded =
        model.encode(&Request { system: "", tools: &[], messages, previous: None, dropped_answers: 0 });
    let body =
        String::from_utf8(encoded.body).unwrap().replace(",\"cache_control\":{\"type\":\"ephemeral\"}", "");
    serde_json::from_str::<Value>(&body).unwrap()["messages"][1].take()
}

/// What was read, in the form of the manifest's `expect`.
fn told(attempt: &Attempt) -> Value {
    let (mut text, mut reasoning) = (String::new(), String::new());
    let (mut calls, mut blocks, mut server_items) = (Vec::new(), Vec::new(), Vec::new());
    let mut opaque = serde_json::Map::new();
    let mut count = |name: &str| {
        let known = opaque.get(name).and_then(Value::as_u64).unwrap_or(0);
        opaque.insert(name.to_owned(), json!(known + 1));
    };
    for content in &attempt.content {
        match content {
            Content::Text { text: piece } => {
                text.push_str(piece);
                blocks.push(json!("text"));
            }
            Content::Reasoning { text: piece, opaque } => {
                reasoning.push_str(piece);
                blocks.push(json!("thinking"));
                if let Some(raw) = opaque {
                    let block: Value = serde_json::from_str(raw).unwrap();
                    assert_eq!(block["thinking"], **piece, "what is kept is what was shown");
                    count("signature");
                }
            }
            Content::Call(call) => {
                let mut shown = json!({"id": call.id, "name": call.name});
                match parse_arguments(&call.arguments) {
                    Ok(arguments) => shown["arguments"] = arguments,
                    Err(_) => {
                        shown["arguments"] = Value::Null;
                        shown["arguments_raw"] = json!(call.arguments);
                    }
                }
                calls.push(shown);
                blocks.push(json!("tool_use"));
            }
            Content::Opaque { raw } => {
                let block: Value = serde_json::from_str(raw).unwrap();
                let kind = block["type"].as_str().unwrap();
                if kind.ends_with("_tool_use") {
                    server_items.push(block["name"].clone());
                    assert!(block["input"].is_object(), "{raw}");
                } else if kind == "redacted_thinking" {
                    count(kind);
                }
                blocks.push(json!(kind));
            }
        }
    }
    json!({
        "text": text,
        "reasoning": reasoning,
        "tool_calls": calls,
        "server_items": server_items,
        "blocks": blocks,
        "opaque": opaque,
    })
}

fn differences(entry: &Value, attempt: &Attempt, shown: &str) -> Vec<String> {
    let expect = &entry["expect"];
    let told = told(attempt);
    let mut wrong = Vec::new();
    let mut compare = |what: &str, got: String, wanted: String| {
        if got != wanted {
            wrong.push(format!("{what} is {got}, expected {wanted}"));
        }
    };
    for name in ["text", "reasoning"] {
        let got = digest(told[name].as_str().unwrap(), &expect[name]);
        compare(name, got, expect[name].to_string());
    }
    for name in ["tool_calls", "server_items", "blocks", "opaque"] {
        compare(name, told[name].to_string(), expect[name].to_string());
    }
    compare("usage", format!("{:?}", attempt.usage), format!("{:?}", usage_of(entry)));
    // What was shown of a message that never ended cannot be taken back.
    if !entry["quirks"].as_array().unwrap().contains(&json!("second-message-start-restarted")) {
        compare("what was shown", shown.to_owned(), all_text(attempt));
    }
    let is_complete = attempt.ended == Ended::Complete;
    if expect["kind"] == "error" {
        let got = match &attempt.ended {
            Ended::Failed { class, .. } => Some(*class),
            Ended::Complete | Ended::Cancelled => None,
        };
        let class = class_named(entry["error_class"].as_str().unwrap());
        compare("class", format!("{got:?}"), format!("{:?}", Some(class)));
    } else {
        compare("completeness", is_complete.to_string(), expect["complete"].to_string());
        compare("finish", format!("{:?}", attempt.finish), format!("{:?}", finish_of(expect)));
    }
    let calls: Vec<_> = attempt.content.iter().filter_map(Content::as_call).collect();
    let may_run = is_complete
        && !matches!(attempt.finish, Finish::MaxTokens | Finish::Refusal)
        && !calls.is_empty()
        && calls.iter().all(|call| parse_arguments(&call.arguments).is_ok());
    compare("run_calls", may_run.to_string(), expect["run_calls"].to_string());
    wrong
}

fn all_text(attempt: &Attempt) -> String {
    let shown = |content: &Content| match content {
        Content::Text { text } | Content::Reasoning { text, .. } => text.clone(),
        Content::Call(call) => format!("[{}]", call.name),
        Content::Opaque { .. } => String::new(),
    };
    attempt.content.iter().map(shown).collect()
}

fn finish_of(expect: &Value) -> Finish {
    match expect["stop"].as_str().unwrap() {
        "end_turn" | "stop_sequence" => Finish::EndTurn,
        "tool_use" => Finish::ToolCalls,
        "max_tokens" => Finish::MaxTokens,
        "refusal" => Finish::Refusal,
        "pause" => Finish::Unknown,
        other => panic!("no recorded answer stopped for `{other}` before"),
    }
}
