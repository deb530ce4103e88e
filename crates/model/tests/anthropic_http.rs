//! A request over Anthropic Messages on its way, against a server on the loopback interface.

#![allow(clippy::unwrap_used, clippy::panic, reason = "the helpers of tests are tests")]

use std::borrow::Cow;
use std::time::Duration;

use mainstay_model::{AnthropicModel, Attempt, Delta, Model, ModelSettings, Secret};
use mainstay_session::message::{Content, Ended, ErrorClass, Finish, Usage};
use mainstay_session::request::{Message, Request};
use mainstay_testkit::wire::{Reply, WireServer};
use tokio_util::sync::CancellationToken;

const HELLO: [&str; 4] = [
    r#"{"type":"message_start","message":{"content":[],"usage":{"input_tokens":9,"output_tokens":1}}}"#,
    r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"Hello ñ"}}"#,
    r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":2}}"#,
    r#"{"type":"message_stop"}"#,
];

fn events(events: &[&str]) -> String {
    events.iter().map(|event| format!("data: {event}\n\n")).collect()
}

fn settings(base_url: &str) -> ModelSettings {
    ModelSettings::new("anthropic", "claude-opus-5", base_url, 200_000)
}

async fn ask(settings: ModelSettings, on_delta: &mut (dyn FnMut(Delta<'_>) + Send)) -> Attempt {
    let model = AnthropicModel::new(settings).unwrap();
    assert_eq!((model.name(), model.api()), ("anthropic/claude-opus-5", "anthropic"));
    let messages = vec![Message::User { text: Cow::Borrowed("hello"), pictures: Vec::new() }];
    let encoded = model.encode(&Request {
        system: "Be good.",
        tools: &[],
        messages,
        previous: None,
        dropped_answers: 0,
    });
    model.stream(&encoded, on_delta, &CancellationToken::new()).await
}

async fn ask_server(reply: Reply) -> Attempt {
    let server = WireServer::start([reply]).await.unwrap();
    ask(settings(&server.base_url()), &mut |_| {}).await
}

fn failure(attempt: &Attempt) -> (ErrorClass, &str) {
    match &attempt.ended {
        Ended::Failed { class, message } => (*class, message),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_answer_streams_in() {
    let server = WireServer::start([Reply::stream(events(&HELLO)).pieces_of(1)]).await.unwrap();
    let mut settings = settings(&format!("{}/", server.base_url()));
    let key = "k".repeat(20);
    settings.key = Some(Secret::new(&key));
    let mut shown = String::new();
    let attempt = ask(settings, &mut |delta| {
        if let Delta::Text(text) = delta {
            shown.push_str(text);
        }
    })
    .await;
    let expected = Attempt {
        content: vec![Content::Text { text: "Hello ñ".to_owned() }],
        finish: Finish::EndTurn,
        usage: Some(Usage { input_tokens: 9, cached_tokens: 0, output_tokens: 2, ..Usage::default() }),
        ended: Ended::Complete,
        retry_after: None,
    };
    assert_eq!((attempt, shown.as_str()), (expected, "Hello ñ"));
    let received = server.received();
    assert_eq!((received[0].method.as_str(), received[0].path.as_str()), ("POST", "/v1/messages"));
    assert_eq!(received[0].header("x-api-key"), Some(key.as_str()));
    assert_eq!(received[0].header("anthropic-version"), Some("2023-06-01"));
    assert_eq!(received[0].header("authorization"), None);
    let body = received[0].json();
    assert_eq!((&body["model"], &body["stream"]), (&"claude-opus-5".into(), &true.into()));
}

#[tokio::test]
async fn the_users_headers_win() {
    let server = WireServer::start([Reply::stream(events(&HELLO))]).await.unwrap();
    let mut settings = settings(&server.base_url());
    for (name, value) in [("Anthropic-Version", "2027-01-01"), ("anthropic-beta", "x-2027")] {
        settings.headers.push((name.to_owned(), Secret::new(value)));
    }
    assert_eq!(ask(settings, &mut |_| {}).await.ended, Ended::Complete);
    let received = server.received();
    assert_eq!(received[0].header("anthropic-version"), Some("2027-01-01"));
    assert_eq!(received[0].header("anthropic-beta"), Some("x-2027"));
}

/// The key stands in no error and in no text of the model's own.
#[tokio::test]
async fn a_refused_key_is_said_without_the_key() {
    let key = "k".repeat(20);
    let body = format!(
        r#"{{"type":"error","error":{{"type":"authentication_error","message":"invalid x-api-key: {key}"}}}}"#
    );
    let server = WireServer::start([Reply::json(401, body)]).await.unwrap();
    let mut settings = settings(&server.base_url());
    settings.key = Some(Secret::new(&key));
    assert!(!format!("{settings:?}").contains(&key));
    let attempt = ask(settings, &mut |_| {}).await;
    let (class, message) = failure(&attempt);
    assert_eq!(class, ErrorClass::Credentials);
    assert!(message.contains("key of provider `anthropic`") && !message.contains(&key), "{message}");

    let without =
        ask_server(Reply::json(401, r#"{"error":{"message":"x-api-key header is required"}}"#)).await;
    assert!(failure(&without).1.contains("has no key configured"), "{without:?}");
}

#[tokio::test]
async fn a_wrong_address_is_explained() {
    let server =
        WireServer::start([Reply::json(404, r#"{"type":"error","error":{"type":"not_found_error"}}"#)]);
    let server = server.await.unwrap();
    let whole_path = format!("{}/messages", server.base_url());
    let attempt = ask(settings(&whole_path), &mut |_| {}).await;
    let (class, message) = failure(&attempt);
    assert_eq!(class, ErrorClass::BadRequest);
    for part in
        ["/v1/messages/messages answered", "ends with the version, such as /v1, and holds nothing behind it"]
    {
        assert!(message.contains(part), "{message}");
    }
    let page = ask_server(Reply::new(200, "text/html", "<html></html>")).await;
    assert!(failure(&page).1.contains("ends with the version"), "{page:?}");
    let refused = AnthropicModel::new(settings("api.anthropic.com/v1")).err().unwrap().to_string();
    assert!(refused.contains("not an http or https address"), "{refused}");
}

/// H01, H10: a cut stream and an error in one keep what had come, and an overloaded provider says how long to wait.
#[tokio::test]
async fn what_had_come_is_kept() {
    let half = events(&HELLO[..2]);
    let cut = ask_server(Reply::stream(half.as_str()).cut_after(half.len())).await;
    assert_eq!(failure(&cut).0, ErrorClass::CutStream);
    assert_eq!(cut.content.len(), 1);
    let error = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    let failed = ask_server(Reply::stream(format!("{half}event: error\ndata: {error}\n\n"))).await;
    assert_eq!((failure(&failed).0, failed.content.len()), (ErrorClass::Overload, 1));
    let busy = ask_server(Reply::json(529, error).header("retry-after", "7")).await;
    assert_eq!((failure(&busy).0, busy.retry_after), (ErrorClass::Overload, Some(Duration::from_secs(7))));
}

/// Thinking in silence is waited for as a first token is, however long; what had begun to speak must go on.
#[tokio::test]
async fn silent_thinking_is_waited_for() {
    let thinking =
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":""}}"#;
    let stalled = |begin: &str| {
        let body = events(&[HELLO[0], begin]) + "event: ping\ndata: {\"type\":\"ping\"}\n\n";
        Reply::stream(body.as_str()).stall_after(body.len())
    };
    for (begin, limit) in [(thinking, "first_token_timeout"), (HELLO[1], "idle_timeout")] {
        let server = WireServer::start([stalled(begin)]).await.unwrap();
        let mut settings = settings(&server.base_url());
        settings.first_token_timeout = Some(Duration::from_millis(80));
        settings.idle_timeout = Some(Duration::from_millis(50));
        let attempt = ask(settings, &mut |_| {}).await;
        assert!(failure(&attempt).1.contains(limit), "{attempt:?}");
    }
}

/// A server that keeps the connection open after the end does not hold up the turn.
#[tokio::test]
async fn nothing_is_awaited_after_the_end() {
    let body = events(&HELLO);
    let attempt = ask_server(Reply::stream(body.as_str()).stall_after(body.len())).await;
    assert_eq!(attempt.ended, Ended::Complete);
}
