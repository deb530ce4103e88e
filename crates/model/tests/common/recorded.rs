//! Compares what a decoder or a model makes of the recorded answers of real providers in `../shared/wire` with what the
//! recordings' manifest says they are.
//!
//! The recordings are no part of this repository. Without them there is nothing to compare, which is said; in CI they must
//! be there.

use std::path::PathBuf;
use std::time::Duration;

use mainstay_model::decoder::{Close, Decoder, Feed};
use mainstay_model::{Attempt, Delta, Model};
use mainstay_session::arguments::parse_arguments;
use mainstay_session::message::{Content, Ended, ErrorClass, Finish, ToolCall, Usage};
use mainstay_session::request::Request;
use mainstay_testkit::wire::{Reply, WireServer};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

/// Decodes every recorded answer over a wire format: whole, in the recorded pieces, byte by byte and in random cuts.
pub fn compare_answers<D: Decoder>(api: &str, decoder: impl Fn() -> D) {
    compare_answers_with(api, decoder, differences);
}

/// The same, where `differences` says what is wrong with an attempt and with what was shown of it.
pub fn compare_answers_with<D: Decoder>(
    api: &str,
    decoder: impl Fn() -> D,
    differences: impl Fn(&Value, &Attempt, &str) -> Vec<String>,
) {
    let entries = recordings();
    let mut wrong = Vec::new();
    let answers = entries.iter().filter(|entry| entry["api"] == api && entry["status"] == 200);
    let mut passed = 0;
    for entry in answers {
        let body = body(entry);
        let before = wrong.len();
        let (whole, shown) = decode(decoder(), &[&body]);
        wrong.extend(
            differences(entry, &whole, &shown).into_iter().map(|what| format!("{}: {what}", entry["file"])),
        );
        let mut cuts = vec![("recorded", recorded_chunks(entry, &body)), ("bytes", body.chunks(1).collect())];
        cuts.extend((1..=3).map(|seed| ("random", random_chunks(seed, &body))));
        for (name, chunks) in cuts {
            let again = decode(decoder(), &chunks);
            if again != (whole.clone(), shown.clone()) {
                wrong.push(format!("{}: differs when cut into {name} pieces", entry["file"]));
            }
        }
        passed += usize::from(wrong.len() == before);
    }
    eprintln!("{passed} recorded answers over {api} decoded as they should");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Replays every recorded refusal over a wire format from a server and compares what is concluded. `model` makes the
/// model for a base address.
pub async fn compare_refusals<M: Model>(api: &str, model: impl Fn(String) -> M) {
    let mut wrong = Vec::new();
    let mut count = 0;
    for entry in recordings().iter().filter(|entry| entry["api"] == api && entry["status"] != 200) {
        count += 1;
        let server = WireServer::start([reply(entry)]).await.unwrap();
        let model = model(server.base_url());
        let request =
            Request { system: "s", tools: &[], messages: Vec::new(), previous: None, dropped_answers: 0 };
        let encoded = model.encode(&request);
        let attempt = model.stream(&encoded, &mut |_| {}, &CancellationToken::new()).await;
        let Ended::Failed { class, message } = &attempt.ended else { panic!("{attempt:?}") };
        let delay = entry["retry_after_s"].as_f64().map(Duration::from_secs_f64);
        if *class != class_named(entry["error_class"].as_str().unwrap()) || attempt.retry_after != delay {
            wrong.push(format!("{}: {class:?} {:?} {message}", entry["file"], attempt.retry_after));
        }
    }
    eprintln!("{count} recorded refusals over {api} compared");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The recorded response; how its body was framed is the server's own matter.
fn reply(entry: &Value) -> Reply {
    let status = u16::try_from(entry["status"].as_u64().unwrap()).unwrap();
    let body = std::fs::read(folder().join(entry["file"].as_str().unwrap())).unwrap();
    let headers = entry["headers"].as_object().unwrap().iter();
    let own = ["content-length", "transfer-encoding", "content-type"];
    headers
        .filter(|(name, _)| !own.contains(&name.as_str()))
        .fold(Reply::json(status, body), |reply, (name, value)| reply.header(name, value.as_str().unwrap()))
}

pub fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/wire")
}

pub fn recordings() -> Vec<Value> {
    match std::fs::read_to_string(folder().join("MANIFEST.jsonl")) {
        Ok(manifest) => manifest.lines().map(|line| serde_json::from_str(line).unwrap()).collect(),
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "the recordings must be there in CI: {error}");
            eprintln!("the recordings in ../shared/wire are absent: nothing is compared");
            Vec::new()
        }
    }
}

pub fn body(entry: &Value) -> Vec<u8> {
    std::fs::read(folder().join(entry["file"].as_str().unwrap())).unwrap()
}

/// The attempt and everything that was shown.
pub fn decode<D: Decoder>(decoder: D, chunks: &[&[u8]]) -> (Attempt, String) {
    let mut feed = Feed::new(decoder);
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

pub fn class_named(name: &str) -> ErrorClass {
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
    let (mut text, mut reasoning, mut calls, mut kinds) =
        (String::new(), String::new(), Vec::new(), Vec::new());
    let mut all = String::new();
    for content in &attempt.content {
        match content {
            Content::Text { text: piece } => {
                text.push_str(piece);
                all.push_str(piece);
                kinds.push("text");
            }
            Content::Reasoning { text: piece, .. } => {
                reasoning.push_str(piece);
                all.push_str(piece);
                // A block with nothing but opaque state has no kind in the recordings.
                kinds.extend((!piece.is_empty()).then_some("reasoning"));
            }
            Content::Call(call) => {
                calls.push(call.clone());
                all.push_str(&format!("[{}]", call.name));
                kinds.push("tool_use");
            }
            // What Google's own tools did has no kind in the recordings.
            Content::Opaque { .. } if entry["api"] == "gemini" => {}
            Content::Opaque { .. } => kinds.push("opaque"),
        }
    }
    let said = if expect["refusal"] == "" { &expect["text"] } else { &expect["refusal"] };
    compare("text", digest(&text, said), said.to_string());
    compare("reasoning", digest(&reasoning, &expect["reasoning"]), expect["reasoning"].to_string());
    compare("calls", shown_calls(&calls, expect), expect["tool_calls"].to_string());
    let blocks = expect["blocks"].as_array().unwrap().iter().map(|kind| kind.as_str().unwrap());
    let blocks: Vec<&str> = blocks.map(|kind| if kind == "refusal" { "text" } else { kind }).collect();
    kinds.dedup_by(|a, b| a == b && *a != "tool_use");
    compare("the order of blocks", format!("{kinds:?}"), format!("{blocks:?}"));
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
        if is_complete {
            compare("finish", format!("{:?}", attempt.finish), format!("{:?}", finish_of(expect)));
        }
        compare("completeness", is_complete.to_string(), expect["complete"].to_string());
    }
    let may_run = attempt.ended == Ended::Complete
        && !matches!(attempt.finish, Finish::MaxTokens | Finish::Refusal)
        // Gemini itself knows no such tool; the loop says so to the model and runs nothing.
        && expect["stop_raw"] != "UNEXPECTED_TOOL_CALL"
        && !calls.is_empty()
        && calls.iter().all(|call| parse_arguments(&call.arguments).is_ok());
    compare("run_calls", may_run.to_string(), expect["run_calls"].to_string());
    wrong
}

pub fn digest(text: &str, expected: &Value) -> String {
    if !expected.is_object() {
        return Value::from(text).to_string();
    }
    use sha2::Digest;
    let hash: String = sha2::Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect();
    serde_json::json!({"chars": text.chars().count(), "bytes": text.len(), "sha256": hash}).to_string()
}

/// The calls in the form of the manifest. A missing id or name is null or empty there; the kind of nothing is taken over.
pub fn shown_calls(calls: &[ToolCall], expect: &Value) -> String {
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

pub fn finish_of(expect: &Value) -> Finish {
    match expect["stop"].as_str().unwrap() {
        "end_turn" => Finish::EndTurn,
        "tool_use" => Finish::ToolCalls,
        "max_tokens" => Finish::MaxTokens,
        "content_filter" | "refusal" => Finish::Refusal,
        _ => Finish::Unknown,
    }
}

pub fn usage_of(entry: &Value) -> Option<Usage> {
    let usage = &entry["expect"]["usage"];
    let count = |name: &str| usage[name].as_u64();
    // The manifest repeats what was reported; these servers report reasoning beside the rest of the answer.
    let is_apart = entry["provider"] == "xai" || entry["api"] == "gemini";
    let reasoning = count("reasoning").filter(|_| is_apart).unwrap_or(0);
    (count("input").is_some() || count("output").is_some()).then(|| Usage {
        input_tokens: count("input_total").unwrap_or(0),
        cached_tokens: count("cache_read").unwrap_or(0),
        cache_written_tokens: count("cache_write").filter(|_| entry["api"] == "anthropic").unwrap_or(0),
        output_tokens: count("output").unwrap_or(0) + reasoning,
    })
}
