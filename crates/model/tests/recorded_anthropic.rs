//! Decodes the recorded answers of Anthropic Messages servers in `../shared/wire` and compares with what they say.
//!
//! The recordings are no part of this repository. Without them the tests pass with a note, but not in CI.

#![allow(clippy::unwrap_used, clippy::print_stderr, missing_docs)]

use std::path::PathBuf;

use mainstay_model::anthropic::decode::AnthropicDecoder;
use mainstay_model::decoder::{Close, Feed};
use mainstay_model::{Attempt, Delta};
use mainstay_session::arguments::parse_arguments;
use mainstay_session::message::{Content, Ended, ErrorClass, Finish, Usage};
use serde_json::{Value, json};

/// D17, H01, H04, H06, H08, H09, H10, H14, I01
#[test]
fn every_recorded_answer_decodes_to_what_it_says_however_it_is_cut() {
    let mut wrong = Vec::new();
    let mut passed = 0;
    for entry in recordings().iter().filter(|entry| entry["api"] == "anthropic" && entry["status"] == 200) {
        let body = body(entry);
        let before = wrong.len();
        let (whole, shown) = decode(&[&body]);
        let differences = differences(entry, &whole, &shown);
        wrong.extend(differences.into_iter().map(|what| format!("{}: {what}", entry["file"])));
        let mut cuts = vec![("recorded", recorded_chunks(entry, &body)), ("bytes", body.chunks(1).collect())];
        cuts.extend((1..=3).map(|seed| ("random", random_chunks(seed, &body))));
        for (name, chunks) in cuts {
            if decode(&chunks) != (whole.clone(), shown.clone()) {
                wrong.push(format!("{}: differs when cut into {name} pieces", entry["file"]));
            }
        }
        passed += usize::from(wrong.len() == before);
    }
    eprintln!("{passed} recorded answers over Anthropic Messages decoded as they should");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/wire")
}

fn recordings() -> Vec<Value> {
    match std::fs::read_to_string(folder().join("MANIFEST.jsonl")) {
        Ok(manifest) => manifest.lines().map(|line| serde_json::from_str(line).unwrap()).collect(),
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "the recordings must be there in CI: {error}");
            eprintln!("the recordings in ../shared/wire are absent: nothing is compared");
            Vec::new()
        }
    }
}

fn body(entry: &Value) -> Vec<u8> {
    std::fs::read(folder().join(entry["file"].as_str().unwrap())).unwrap()
}

/// The attempt and everything that was shown.
fn decode(chunks: &[&[u8]]) -> (Attempt, String) {
    let mut feed = Feed::new(AnthropicDecoder::default());
    let mut shown = String::new();
    let mut show = |delta: Delta<'_>| match delta {
        Delta::Text(text) | Delta::Reasoning(text) => shown.push_str(text),
        Delta::CallStarted(name) => shown.push_str(&format!("[{name}]")),
    };
    for chunk in chunks {
        feed.push(chunk, &mut show);
    }
    let attempt = feed.close(Close::End, &mut show);
    (attempt, shown)
}

fn recorded_chunks<'a>(entry: &Value, body: &'a [u8]) -> Vec<&'a [u8]> {
    let mut rest = body;
    let mut chunks = Vec::new();
    for length in entry["chunks"].as_array().into_iter().flatten() {
        let (chunk, left) = rest.split_at(usize::try_from(length.as_u64().unwrap()).unwrap().min(rest.len()));
        chunks.push(chunk);
        rest = left;
    }
    chunks.push(rest);
    chunks
}

fn random_chunks(seed: u64, body: &[u8]) -> Vec<&[u8]> {
    let mut state = seed;
    let mut rest = body;
    let mut chunks = Vec::new();
    while !rest.is_empty() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let length = usize::try_from(state >> 33).unwrap() % 97 + 1;
        let (chunk, left) = rest.split_at(length.min(rest.len()));
        chunks.push(chunk);
        rest = left;
    }
    chunks
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
    compare("usage", format!("{:?}", attempt.usage), format!("{:?}", usage_of(&expect["usage"])));
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

fn digest(text: &str, expected: &Value) -> String {
    if !expected.is_object() {
        return Value::from(text).to_string();
    }
    use sha2::Digest;
    let hash: String = sha2::Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect();
    json!({"chars": text.chars().count(), "bytes": text.len(), "sha256": hash}).to_string()
}

fn class_named(name: &str) -> ErrorClass {
    match name {
        "auth" => ErrorClass::Credentials,
        "rate_limit" => ErrorClass::Rate,
        "overloaded" => ErrorClass::Overload,
        "context_length" => ErrorClass::Overflow,
        "invalid_request" | "not_found" => ErrorClass::BadRequest,
        other => panic!("unknown class {other}"),
    }
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

fn usage_of(usage: &Value) -> Option<Usage> {
    let count = |name: &str| usage[name].as_u64();
    (count("input").is_some() || count("output").is_some()).then(|| Usage {
        input_tokens: count("input_total").unwrap_or(0),
        cached_tokens: count("cache_read").unwrap_or(0),
        output_tokens: count("output").unwrap_or(0),
    })
}
