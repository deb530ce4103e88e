//! The way to a provider, against a server on the loopback interface.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::borrow::Cow;
use std::time::Duration;

use mainstay_model::{Attempt, ChatModel, Delta, Model, ModelSettings, Secret};
use mainstay_session::message::{Content, Ended, ErrorClass, Finish, Usage};
use mainstay_session::request::{Message, Request};
use mainstay_testkit::wire::{Reply, WireServer, closed_port};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_util::sync::CancellationToken;

const HELLO: [&str; 3] = [
    r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":"Hel"}}]}"#,
    r#"{"choices":[{"index":0,"delta":{"content":"lo ñ"}}]}"#,
    r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":2}}"#,
];

fn settings(base_url: &str) -> ModelSettings {
    ModelSettings::new("local", "m", base_url, 8_000)
}

async fn ask_with(
    model: &ChatModel,
    cancel: &CancellationToken,
    on_delta: &mut (dyn FnMut(Delta<'_>) + Send),
) -> Attempt {
    let messages = vec![Message::User { text: Cow::Borrowed("hello"), pictures: Vec::new() }];
    let encoded = model.encode(&Request {
        system: "Be good.",
        tools: &[],
        messages,
        previous: None,
        dropped_answers: 0,
    });
    model.stream(&encoded, on_delta, cancel).await
}

async fn ask(settings: ModelSettings) -> Attempt {
    let model = ChatModel::new(settings).unwrap();
    ask_with(&model, &CancellationToken::new(), &mut |_| {}).await
}

async fn ask_server(reply: Reply) -> Attempt {
    let server = WireServer::start([reply]).await.unwrap();
    ask(settings(&server.base_url())).await
}

fn failure(attempt: &Attempt) -> (ErrorClass, &str) {
    match &attempt.ended {
        Ended::Failed { class, message } => (*class, message),
        other => panic!("{other:?}"),
    }
}

fn text(text: &str) -> Vec<Content> {
    vec![Content::Text { text: text.to_owned() }]
}

#[tokio::test]
async fn an_answer_streams_in_and_the_connection_is_kept() {
    let replies = [Reply::chat_stream(HELLO).pieces_of(1), Reply::chat_stream(HELLO)];
    let server = WireServer::start(replies).await.unwrap();
    let mut settings = settings(&format!("{}/", server.base_url()));
    let key = "k".repeat(20);
    settings.key = Some(Secret::new(&key));
    settings.headers.push(("X-Org".to_owned(), Secret::new("mine")));
    let model = ChatModel::new(settings).unwrap();
    let mut shown = String::new();
    let attempt = ask_with(&model, &CancellationToken::new(), &mut |delta| {
        if let Delta::Text(text) = delta {
            shown.push_str(text);
        }
    })
    .await;
    let expected = Attempt {
        content: text("Hello ñ"),
        finish: Finish::EndTurn,
        usage: Some(Usage { input_tokens: 9, cached_tokens: 0, output_tokens: 2, ..Usage::default() }),
        ended: Ended::Complete,
        retry_after: None,
    };
    assert_eq!(attempt, expected);
    assert_eq!(shown, "Hello ñ");
    assert_eq!(ask_with(&model, &CancellationToken::new(), &mut |_| {}).await, expected);
    let received = server.received();
    assert_eq!((received.len(), server.connections()), (2, 1));
    assert_eq!((received[0].method.as_str(), received[0].path.as_str()), ("POST", "/v1/chat/completions"));
    assert_eq!(received[0].header("authorization"), Some(format!("Bearer {key}").as_str()));
    assert_eq!(received[0].header("x-org"), Some("mine"));
    assert_eq!(received[0].json()["messages"][0]["role"], "system");
    assert_eq!(received[0].body, received[1].body);
}

#[tokio::test]
async fn a_whole_json_answer_to_a_streaming_request_is_taken() {
    let body = r#"{"choices":[{"message":{"content":"Hi"},"finish_reason":"stop"}]}"#;
    let attempt = ask_server(Reply::json(200, body).pieces_of(7)).await;
    assert_eq!((attempt.content, attempt.ended), (text("Hi"), Ended::Complete));
}

#[tokio::test]
async fn a_refused_key_is_said_without_the_key() {
    let key = "k".repeat(20);
    let body = format!(r#"{{"error":{{"message":"Incorrect API key provided: {key}."}}}}"#);
    let server = WireServer::start([Reply::json(401, body)]).await.unwrap();
    let mut settings = settings(&server.base_url());
    settings.key = Some(Secret::new(&key));
    let attempt = ask(settings).await;
    let (class, message) = failure(&attempt);
    assert_eq!(class, ErrorClass::Credentials);
    assert!(message.contains("key of provider `local`") && !message.contains(&key), "{message}");
}

#[tokio::test]
async fn the_wait_that_a_provider_asks_for_is_handed_on() {
    let attempt =
        ask_server(Reply::json(429, r#"{"error":{"message":"slow"}}"#).header("retry-after", "7")).await;
    assert_eq!(failure(&attempt).0, ErrorClass::Rate);
    assert_eq!(attempt.retry_after, Some(Duration::from_secs(7)));
}

#[tokio::test]
async fn a_wrong_address_is_explained() {
    let attempt = ask_server(Reply::json(404, r#"{"detail":"Not Found"}"#)).await;
    let (class, message) = failure(&attempt);
    assert_eq!(class, ErrorClass::BadRequest);
    assert!(message.contains("base_url") && message.contains("Not Found"), "{message}");

    for (kind, body) in
        [("text/html; charset=utf-8", "hello"), ("application/json", "\u{feff}\n <!doctype html>")]
    {
        let page = ask_server(Reply::new(200, kind, body).pieces_of(1)).await;
        let (class, message) = failure(&page);
        assert_eq!(class, ErrorClass::BadRequest);
        assert!(message.contains("answered with a web page"), "{message}");
    }

    let redirect = ask_server(Reply::json(307, "").header("location", "https://other.invalid/v1")).await;
    let (class, message) = failure(&redirect);
    assert_eq!(class, ErrorClass::BadRequest);
    assert!(message.contains("https://other.invalid/v1"), "{message}");
}

#[tokio::test]
async fn a_closed_port_is_named() {
    let address = closed_port().unwrap();
    let attempt = ask(settings(&format!("http://user:{}@{address}/v1", "p".repeat(12)))).await;
    let (class, message) = failure(&attempt);
    assert_eq!(class, ErrorClass::Network);
    let url = format!("http://{address}/v1/chat/completions");
    // Without advice, since the text is shown again at each retry.
    assert_eq!(message, format!("cannot reach {url}: Connection refused (os error 111)"));
}

/// H01: a stream that breaks off is an error with what had come.
#[tokio::test]
async fn a_cut_stream_keeps_what_had_come() {
    let whole = format!("data: {}\n\ndata: {}", HELLO[0], HELLO[1]);
    let attempt = ask_server(Reply::stream(whole.as_str()).cut_after(whole.len() - 5)).await;
    assert_eq!(failure(&attempt).0, ErrorClass::CutStream);
    assert_eq!(attempt.content, text("Hel"));

    let ended = ask_server(Reply::stream(format!("data: {}\n\n", HELLO[0]))).await;
    assert_eq!(failure(&ended).0, ErrorClass::CutStream);
    assert_eq!(ended.content, text("Hel"));
}

/// H15: a stream that stalls ends after the idle limit.
#[tokio::test]
async fn a_stalled_stream_ends() {
    let body = format!("data: {}\n\n: ping\n\n", HELLO[0]);
    let server = WireServer::start([Reply::stream(body.as_str()).stall_after(body.len())]).await.unwrap();
    let mut settings = settings(&server.base_url());
    settings.idle_timeout = Some(Duration::from_millis(50));
    let attempt = ask(settings).await;
    assert_eq!(failure(&attempt).0, ErrorClass::CutStream);
    assert!(failure(&attempt).1.contains("(idle_timeout of provider"), "{attempt:?}");
    assert_eq!(attempt.content, text("Hel"));
}

#[tokio::test]
async fn an_answer_that_never_begins_ends() {
    let server = WireServer::start([Reply::stream(": ping\n\n").stall_after(8)]).await.unwrap();
    let mut settings = settings(&server.base_url());
    settings.first_token_timeout = Some(Duration::from_millis(50));
    let attempt = ask(settings).await;
    assert_eq!(failure(&attempt).0, ErrorClass::CutStream);
    assert!(failure(&attempt).1.contains("(first_token_timeout of provider"), "{attempt:?}");
}

/// A server that says the answer is whole but keeps the connection open does not hold up the turn.
#[tokio::test]
async fn nothing_is_awaited_after_the_end() {
    let body = format!("data: {}\n\ndata: {}\n\ndata: [DONE]\n\n", HELLO[0], HELLO[2]);
    let attempt = ask_server(Reply::stream(body.as_str()).stall_after(body.len())).await;
    assert_eq!((attempt.content, attempt.ended), (text("Hel"), Ended::Complete));
}

/// H10: an error inside a stream that began with 200.
#[tokio::test]
async fn an_error_inside_a_stream_is_an_error() {
    let attempt =
        ask_server(Reply::chat_stream([HELLO[0], r#"{"error":{"code":502,"message":"upstream"}}"#])).await;
    assert_eq!(failure(&attempt), (ErrorClass::Overload, "HTTP 502: upstream"));
    assert_eq!(attempt.content, text("Hel"));
}

#[tokio::test]
async fn cancelling_returns_at_once_with_what_had_come() {
    let body = format!("data: {}\n\n", HELLO[0]);
    let server = WireServer::start([Reply::stream(body.as_str()).stall_after(body.len())]).await.unwrap();
    let model = ChatModel::new(settings(&server.base_url())).unwrap();
    let cancel = CancellationToken::new();
    let attempt = ask_with(&model, &cancel, &mut |_| cancel.cancel()).await;
    assert_eq!(attempt.ended, Ended::Cancelled);
    assert_eq!(attempt.content, text("Hel"));
}

/// A server on the loopback interface that answers whatever comes with these bytes.
async fn server_of(answer: &'static [u8]) -> std::net::SocketAddr {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 16 * 1024]).await;
            let _ = stream.write_all(answer).await;
        }
    });
    address
}

/// A wrong scheme is said.
#[tokio::test]
async fn the_wrong_scheme_is_explained() {
    let plain = server_of(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").await;
    // A TLS alert: unexpected message.
    let tls = server_of(&[0x15, 3, 3, 0, 2, 2, 10]).await;
    let silent = server_of(b"").await;
    for (url, advice) in [
        (format!("https://{plain}/v1"), "base_url must begin with http://"),
        (format!("https://{silent}/v1"), "base_url must begin with http://"),
        (format!("http://{tls}/v1"), "base_url may have to begin with https://"),
    ] {
        let attempt = ask(settings(&url)).await;
        let (class, message) = failure(&attempt);
        assert_eq!(class, ErrorClass::Network, "{message}");
        assert!(message.contains(advice), "{message}");
    }
}

/// Some providers count a prompt that fits no window against the tokens of a minute, where waiting cannot help.
#[tokio::test]
async fn a_prompt_larger_than_the_window_is_no_matter_of_rate() {
    let server = WireServer::start(std::iter::repeat_n(Reply::json(429, "{}"), 3)).await.unwrap();
    let model = ChatModel::new(ModelSettings::new("local", "m", server.base_url(), 8_000)).unwrap();
    // An image, or a signature, has fewer tokens than its length says.
    let image = format!("data:image/png;base64,{}", "QUJD".repeat(20_000));
    for (text, expected) in [
        ("word ".repeat(4_000), ErrorClass::Rate),
        (image, ErrorClass::Rate),
        ("word ".repeat(16_000), ErrorClass::Overflow),
    ] {
        let messages = vec![Message::User { text: Cow::Borrowed(&text), pictures: Vec::new() }];
        let encoded =
            model.encode(&Request { system: "", tools: &[], messages, previous: None, dropped_answers: 0 });
        let attempt = model.stream(&encoded, &mut |_| {}, &CancellationToken::new()).await;
        assert_eq!(failure(&attempt).0, expected, "{attempt:?}");
    }
}

/// A server that sends without a pause is heard no longer than it may be, and can be cancelled.
#[tokio::test]
async fn a_flood_ends() {
    let text = "x".repeat(64 * 1024);
    let event = format!(r#"data: {{"choices":[{{"index":0,"delta":{{"content":"{text}"}}}}]}}"#);
    let flood = Reply::stream(format!("{event}\n\n").repeat(400));
    let server = WireServer::start([flood]).await.unwrap();
    let model = ChatModel::new(settings(&server.base_url())).unwrap();
    let cancel = CancellationToken::new();
    let attempt = ask_with(&model, &cancel, &mut |_| cancel.cancel()).await;
    assert_eq!(attempt.ended, Ended::Cancelled);
    let Content::Text { text } = &attempt.content[0] else { panic!("{attempt:?}") };
    assert!(text.len() < 4 * 1024 * 1024, "{} bytes came after the cancellation", text.len());

    let pings = Reply::stream(": ping\n\n".repeat(4 * 1024 * 1024));
    let server = WireServer::start([pings]).await.unwrap();
    let mut settings = settings(&server.base_url());
    settings.first_token_timeout = Some(Duration::from_millis(20));
    let attempt = ask(settings).await;
    assert!(failure(&attempt).1.contains("(first_token_timeout of provider"), "{attempt:?}");
}

#[test]
fn unusable_settings_are_refused_with_a_reason() {
    let refused = |settings| ChatModel::new(settings).err().unwrap().to_string();
    assert!(refused(settings("127.0.0.1:8080/v1")).contains("not an http or https address"));
    assert!(refused(settings("ftp://127.0.0.1/v1")).contains("`ftp`"));
    let mut keyed = settings("http://127.0.0.1:1/v1");
    keyed.key = Some(Secret::new("a\nb"));
    assert!(refused(keyed).contains("key of provider `local`"));
}
