//! Decodes the recorded answers of real providers in `../shared/wire` and compares with what they say.
//!
//! The recordings are no part of this repository. Without them the tests pass with a note, but not in CI.

#![allow(clippy::unwrap_used, clippy::print_stderr, missing_docs)]

use std::path::PathBuf;

use mainstay_model::decoder::{Close, Feed};
use mainstay_model::responses::decode::ResponsesDecoder;
use mainstay_model::{Attempt, Delta};
use mainstay_session::arguments::parse_arguments;
use mainstay_session::message::{Content, Ended, ErrorClass, Finish, ToolCall, Usage};
use serde_json::Value;

/// D17, H01, H04, H05, H06, H07, H08, H09, H10, H14, I01
#[test]
fn every_recorded_answer_decodes_to_what_it_says_however_it_is_cut() {
    let entries = recordings();
    let mut wrong = Vec::new();
    let answers = entries.iter().filter(|entry| entry["api"] == "responses" && entry["status"] == 200);
    let mut passed = 0;
    for entry in answers {
        let body = body(entry);
        let before = wrong.len();
        let (whole, shown) = decode(&[&body]);
        wrong.extend(
            differences(entry, &whole, &shown).into_iter().map(|what| format!("{}: {what}", entry["file"])),
        );
        let mut cuts = vec![("recorded", recorded_chunks(entry, &body)), ("bytes", body.chunks(1).collect())];
        cuts.extend((1..=3).map(|seed| ("random", random_chunks(seed, &body))));
        for (name, chunks) in cuts {
            let again = decode(&chunks);
            if again != (whole.clone(), shown.clone()) {
                wrong.push(format!("{}: differs when cut into {name} pieces", entry["file"]));
            }
        }
        passed += usize::from(wrong.len() == before);
    }
    eprintln!("{passed} recorded answers over Responses decoded as they should");
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
    let mut feed = Feed::new(ResponsesDecoder::default());
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

fn class_named(name: &str) -> ErrorClass {
    match name {
        "auth" => ErrorClass::Credentials,
        "quota" => ErrorClass::Quota,
        "rate_limit" => ErrorClass::Rate,
        // A call that the provider itself refused to pass on may come out better the next time.
        "overloaded" | "server" | "bad_tool_call" => ErrorClass::Overload,
        "context_length" | "request_too_large" => ErrorClass::Overflow,
        "content_filter" => ErrorClass::RefusedContent,
        "invalid_request" | "not_found" | "output_limit" => ErrorClass::BadRequest,
        other => panic!("unknown class {other}"),
    }
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
    let (mut opaque, mut envelopes) = (0, 0);
    for content in &attempt.content {
        match content {
            Content::Text { text: piece } => {
                text.push_str(piece);
                all.push_str(piece);
                kinds.push("message".to_owned());
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
            Content::Opaque { raw } if field(raw, "type") == "message" => envelopes += 1,
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
    compare(
        "messages",
        envelopes.to_string(),
        blocks.iter().filter(|kind| *kind == "message").count().to_string(),
    );
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

fn digest(text: &str, expected: &Value) -> String {
    if !expected.is_object() {
        return Value::from(text).to_string();
    }
    use sha2::Digest;
    let hash: String = sha2::Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect();
    serde_json::json!({"chars": text.chars().count(), "bytes": text.len(), "sha256": hash}).to_string()
}

/// The calls in the form of the manifest. A missing id or name is null or empty there; the kind of nothing is taken over.
fn shown_calls(calls: &[ToolCall], expect: &Value) -> String {
    let shown = calls.iter().enumerate().map(|(at, call)| {
        let expected = &expect["tool_calls"][at];
        let text = |got: &str, wanted: &Value| if got.is_empty() { wanted.clone() } else { Value::from(got) };
        let mut shown = serde_json::json!({
            "id": text(&call.id, &expected["id"]),
            "name": text(&call.name, &expected["name"]),
            "arguments": parse_arguments(&call.arguments).unwrap_or_default(),
        });
        if call.arguments == "null" {
            // Means no arguments here, and just null there.
            shown["arguments"] = Value::Null;
        } else if shown["arguments"].is_null() {
            shown["arguments_raw"] = Value::from(call.arguments.as_str());
        }
        shown
    });
    Value::Array(shown.collect()).to_string()
}

fn finish_of(expect: &Value) -> Finish {
    match expect["stop"].as_str().unwrap() {
        "end_turn" => Finish::EndTurn,
        "tool_use" => Finish::ToolCalls,
        "max_tokens" => Finish::MaxTokens,
        "content_filter" | "refusal" => Finish::Refusal,
        _ => Finish::Unknown,
    }
}

fn usage_of(entry: &Value) -> Option<Usage> {
    let usage = &entry["expect"]["usage"];
    let count = |name: &str| usage[name].as_u64();
    (count("input").is_some() || count("output").is_some()).then(|| Usage {
        input_tokens: count("input_total").unwrap_or(0),
        cached_tokens: count("cache_read").unwrap_or(0),
        output_tokens: count("output").unwrap_or(0),
    })
}
