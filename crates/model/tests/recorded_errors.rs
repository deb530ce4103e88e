//! Replays the recorded refusals of real providers in `../shared/wire` over HTTP and compares what is concluded.
//!
//! The recordings are no part of this repository. Without them the test passes with a note, but not in CI.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "the helpers of tests are tests")]

use std::path::PathBuf;
use std::time::Duration;

use mainstay_model::{ChatModel, Model, ModelSettings};
use mainstay_session::message::{Ended, ErrorClass};
use mainstay_session::request::Request;
use mainstay_testkit::wire::{Reply, WireServer};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

#[tokio::test]
async fn every_recorded_refusal_is_understood() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for entry in recordings().iter().filter(|entry| entry["api"] == "chat" && entry["status"] != 200) {
        count += 1;
        let server = WireServer::start([reply(entry)]).await.unwrap();
        let model = ChatModel::new(ModelSettings::new("p", "m", server.base_url(), 8_000)).unwrap();
        let request = Request { system: "s", tools: &[], messages: Vec::new(), previous: None };
        let encoded = model.encode(&request);
        let attempt = model.stream(&encoded, &mut |_| {}, &CancellationToken::new()).await;
        let Ended::Failed { class, message } = &attempt.ended else { panic!("{attempt:?}") };
        let delay = entry["retry_after_s"].as_f64().map(Duration::from_secs_f64);
        if *class != expected(entry["error_class"].as_str().unwrap()) || attempt.retry_after != delay {
            wrong.push(format!("{}: {class:?} {:?} {message}", entry["file"], attempt.retry_after));
        }
    }
    eprintln!("{count} recorded refusals over Chat Completions compared");
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

fn expected(class: &str) -> ErrorClass {
    match class {
        "auth" => ErrorClass::Credentials,
        "rate_limit" => ErrorClass::Rate,
        "context_length" => ErrorClass::Overflow,
        "not_found" | "invalid_request" => ErrorClass::BadRequest,
        // The model wrote a call that the provider's check refused; another sample may pass.
        "bad_tool_call" => ErrorClass::Overload,
        other => panic!("no recorded refusal over Chat Completions was a `{other}` before"),
    }
}
