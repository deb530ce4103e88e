//! What is sent to Gemini: by which way, and that any history gives a request that its documentation allows and that only
//! grows.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

mod common;

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use common::rules_gemini::{check_gemini, check_gemini_3};
use mainstay_model::{GeminiModel, Model, ModelSettings, Secret};
use mainstay_session::arguments::object_or_empty;
use mainstay_session::message::{
    Content, ContentHash, Ended, ErrorClass, Finish, Image, RequestMark, ToolSpec, Usage,
};
use mainstay_session::request::{Block, Message, Picture, Request};
use mainstay_testkit::wire::{Reply, WireServer};
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

fn model(name: &str, base_url: &str) -> GeminiModel {
    let mut settings = ModelSettings::new("gemini", name, base_url, 8_000);
    settings.key = Some(Secret::new("k".repeat(20)));
    settings.effort = Some("low".to_owned());
    GeminiModel::new(settings).unwrap()
}

fn user(text: &str) -> Message<'_> {
    Message::User { text: Cow::Borrowed(text), pictures: Vec::new() }
}

#[tokio::test]
async fn the_address_the_key_and_the_query_are_those_of_the_api() {
    let chunks = [
        r#"{"candidates":[{"content":{"role":"model","parts":[{"text":"Hel"}]}}]}"#,
        r#"{"candidates":[{"content":{"parts":[{"text":"lo"}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":9,"candidatesTokenCount":2}}"#,
    ];
    let body: String = chunks.map(|chunk| format!("data: {chunk}\r\n\r\n")).concat();
    let server = WireServer::start(std::iter::repeat_n(Reply::stream(body), 2)).await.unwrap();
    for name in ["gemini-2.5-flash", "tunedModels/a b?c"] {
        let model = model(name, &format!("{}/", server.base_url()));
        assert_eq!((model.name(), model.api()), (format!("gemini/{name}").as_str(), "gemini"));
        let request = Request {
            system: "s",
            tools: &[],
            messages: vec![user("hi")],
            previous: None,
            dropped_answers: 0,
        };
        let encoded = model.encode(&request);
        let attempt = model.stream(&encoded, &mut |_| {}, &CancellationToken::new()).await;
        assert_eq!(attempt.content, [Content::Text { text: "Hello".to_owned() }]);
        assert_eq!((attempt.finish, attempt.ended), (Finish::EndTurn, Ended::Complete));
        assert_eq!(
            attempt.usage,
            Some(Usage { input_tokens: 9, cached_tokens: 0, output_tokens: 2, ..Usage::default() })
        );
    }
    let received = server.received();
    let paths: Vec<&str> = received.iter().map(|request| request.path.as_str()).collect();
    assert_eq!(
        paths,
        [
            "/v1/models/gemini-2.5-flash:streamGenerateContent?alt=sse",
            "/v1/tunedModels/a%20b%3Fc:streamGenerateContent?alt=sse",
        ]
    );
    assert_eq!(received[0].header("x-goog-api-key"), Some("k".repeat(20).as_str()));
    assert_eq!(received[0].header("authorization"), None);
    assert_eq!(received[0].json()["contents"], json!([{"role": "user", "parts": [{"text": "hi"}]}]));
}

/// H01: a connection that breaks takes nothing from an answer that is whole; any other is cut, and keeps what had come.
#[tokio::test]
async fn only_what_is_whole_survives_a_broken_connection() {
    let said = r#"{"candidates":[{"content":{"parts":[{"text":"a"}]}}]}"#;
    let end = r#"{"candidates":[{"finishReason":"STOP"}]}"#;
    for (chunks, is_whole) in [(vec![said, end, said], true), (vec![said, said], false)] {
        let body: String = chunks.iter().map(|chunk| format!("data: {chunk}\r\n\r\n")).collect();
        let cut = body.len() - 9;
        let server = WireServer::start([Reply::stream(body).cut_after(cut)]).await.unwrap();
        let model = model("gemini-2.5-flash", &server.base_url());
        let request = Request {
            system: "s",
            tools: &[],
            messages: vec![user("hi")],
            previous: None,
            dropped_answers: 0,
        };
        let attempt = model.stream(&model.encode(&request), &mut |_| {}, &CancellationToken::new()).await;
        assert_eq!(attempt.content, [Content::Text { text: "a".to_owned() }]);
        match attempt.ended {
            Ended::Complete => assert!(is_whole),
            Ended::Failed { class, .. } => assert_eq!((class, is_whole), (ErrorClass::CutStream, false)),
            Ended::Cancelled => panic!("nobody cancelled"),
        }
    }
}

static PNG: LazyLock<Image> = LazyLock::new(|| image("image/png"));
static GIF: LazyLock<Image> = LazyLock::new(|| image("image/gif"));

fn image(media_type: &str) -> Image {
    Image { media_type: media_type.to_owned(), hash: ContentHash::of(b"x"), bytes: 1 }
}

fn any_pictures() -> impl Strategy<Value = Vec<Picture<'static>>> {
    let picture = |(is_png, is_there): (bool, bool)| Picture {
        image: if is_png { &PNG } else { &GIF },
        data: is_there.then(|| Arc::from("eA==")),
    };
    proptest::collection::vec(any::<(bool, bool)>().prop_map(picture), 0..3)
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![Just(" ".to_owned()), "[a-c\"\\\\ñ\n]{0,6}"]
}

/// What may stand in an opaque value: what this format writes, what others write, and nonsense.
fn any_opaque() -> impl Strategy<Value = Option<&'static str>> {
    prop::sample::select(vec![
        None,
        Some(r#"{"thoughtSignature":"c2ln"}"#),
        Some(r#"{"text": "", "thoughtSignature": "c2ln"}"#),
        Some(r#"{"text":"\ud800","thought":true,"thoughtSignature":"c2ln"}"#),
        Some(r#"{"executableCode":{"code":"1"},"thoughtSignature":"c2ln"}"#),
        Some(r#"{"codeExecutionResult":{"output":"1"}}"#),
        Some(r#"{"reasoning_content":"hm"}"#),
        Some(r#"{"type":"thinking","thinking":"hm","signature":"x"}"#),
        Some(r#"{"type":"reasoning","encrypted_content":"x"}"#),
        Some("[]"),
        Some("{"),
    ])
}

fn any_block() -> impl Strategy<Value = Block<'static>> {
    prop_oneof![
        any_text().prop_map(|text| Block::Text(Cow::Owned(text))),
        (any_text(), any_opaque()).prop_map(|(text, opaque)| Block::Reasoning { text: text.leak(), opaque }),
        ("(call_0|c0000000[1-3]|f:0|)", any_text(), any_text(), any_opaque()).prop_map(
            |(id, name, raw, opaque)| Block::Call {
                id: id.leak(),
                name: name.leak(),
                arguments: Cow::Owned(object_or_empty(&raw).into_owned()),
                opaque,
            }
        ),
        any_opaque().prop_map(|opaque| Block::Opaque(opaque.unwrap_or("{}"))),
    ]
}

fn results(
    blocks: &[Block<'static>],
    pictures: &[Picture<'static>],
    is_error: bool,
) -> Vec<Message<'static>> {
    let names = blocks.iter().filter_map(|block| match block {
        Block::Call { id, name, .. } => Some((*id, *name)),
        Block::Text(_) | Block::Reasoning { .. } | Block::Opaque(_) => None,
    });
    let result = |(call, (id, name))| Message::Result {
        call,
        id,
        name,
        text: Cow::Borrowed("done"),
        pictures: pictures.to_vec(),
        is_error,
    };
    (0..).zip(names).map(result).collect()
}

/// Messages in the order in which a session can bring them: an answer is followed by the results of its calls.
fn any_messages() -> impl Strategy<Value = Vec<Message<'static>>> {
    let models =
        prop::sample::select(vec!["gemini/gemini-3-pro-preview", "gemini/gemini-2.5-pro", "other/m"]);
    let answer = (models, proptest::collection::vec(any_block(), 1..5), any_pictures(), any::<bool>())
        .prop_map(|(model, blocks, pictures, is_error)| {
            let results = results(&blocks, &pictures, is_error);
            [vec![Message::Answer { model, blocks }], results].concat()
        });
    let text = (any_text(), any_pictures())
        .prop_map(|(text, pictures)| vec![Message::User { text: Cow::Owned(text), pictures }]);
    proptest::collection::vec(prop_oneof![answer, text], 0..8).prop_map(|parts| parts.concat())
}

fn tools() -> Vec<ToolSpec> {
    ["read", "todo_write"]
        .map(|name| ToolSpec {
            name: name.to_owned(),
            description: "Does.".to_owned(),
            schema: "7".to_owned(),
        })
        .to_vec()
}

fn write(
    name: &str,
    messages: &[Message<'static>],
    previous: Option<&RequestMark>,
) -> mainstay_model::Encoded {
    let tools = tools();
    let request =
        Request { system: "s", tools: &tools, messages: messages.to_vec(), previous, dropped_answers: 0 };
    model(name, "http://127.0.0.1:1/v1beta").encode(&request)
}

proptest! {
    // There is no place for files of failed cases next to integration tests; a failure prints its case.
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 512, ..ProptestConfig::default() })]

    /// L10, I02: whatever a session holds becomes a request that Gemini takes.
    #[test]
    fn any_history_is_a_valid_request(list in any_messages()) {
        let list = [vec![user("world")], list].concat();
        for (name, check) in [
            ("gemini-2.5-pro", check_gemini as fn(&Value) -> Result<(), String>),
            ("gemini-3-pro-preview", check_gemini_3),
        ] {
            let body: Value = serde_json::from_slice(&write(name, &list, None).body).unwrap();
            prop_assert_eq!(check(&body), Ok(()), "{}", body);
        }
    }

    /// Law 3, T14: a history that goes on gives a request that opens with the units, and the bytes, of the one before.
    #[test]
    fn the_prompt_only_grows(list in any_messages(), cut in 0usize..20, is_newest in any::<bool>()) {
        let name = if is_newest { "gemini-3-pro-preview" } else { "gemini-2.5-pro" };
        let borders: Vec<usize> =
            (0..=list.len()).filter(|n| !matches!(list.get(*n), Some(Message::Result { .. }))).collect();
        let border = borders[cut % borders.len()];
        let before = write(name, &list[..border], None);
        let after = write(name, &list, Some(&before.mark));
        prop_assert_eq!(after.mark.shared, before.mark.units);
        let open = String::from_utf8(before.body).unwrap();
        let open = open.trim_end_matches([']', '}']);
        prop_assert!(String::from_utf8(after.body).unwrap().starts_with(open));
    }
}

/// The check itself refuses what Gemini refuses.
#[test]
fn the_rules_find_what_is_wrong() {
    let call = json!({"functionCall": {"id": "a", "name": "read", "args": {}}});
    let response = json!({"functionResponse": {"id": "a", "name": "read", "response": {"output": "x"}}});
    let body = |contents: Value| json!({"contents": contents});
    let turn = |parts: Value| {
        body(json!([
            {"role": "user", "parts": [{"text": "go"}]},
            {"role": "model", "parts": [call]},
            {"role": "user", "parts": parts},
        ]))
    };
    let fine = turn(json!([response, {"text": "next"}]));
    assert_eq!(check_gemini(&fine), Ok(()));
    assert!(check_gemini_3(&fine).unwrap_err().contains("thoughtSignature"));
    for (body, why) in [
        (json!({"contents": [], "stream": true}), "unknown field stream"),
        (body(json!([])), "contents is empty"),
        (body(json!([{"role": "model", "parts": [{"text": "a"}]}])), "role user"),
        (body(json!([{"role": "user", "parts": []}])), "no parts"),
        (body(json!([{"role": "user", "parts": [{"text": " "}]}])), "blank text"),
        (body(json!([{"role": "user", "parts": [{"text": "a", "inlineData": {}}]}])), "a part holds"),
        (body(json!([{"role": "user", "parts": [call]}])), "a call of the user"),
        (body(json!([{"role": "user", "parts": [response]}])), "1 responses to 0 calls"),
        (turn(json!([{"text": "next"}])), "0 responses to 1 calls"),
        (turn(json!([{"text": "next"}, response])), "behind other parts"),
        (
            turn(json!([{"functionResponse": {"id": "a", "name": "write", "response": {}}}])),
            "names \"write\"",
        ),
        (turn(json!([{"functionResponse": {"id": "b", "name": "read", "response": {}}}])), "carries \"b\""),
        (turn(json!([{"functionResponse": {"id": "a", "name": "read", "response": "x"}}])), "no object"),
        (json!({"contents": fine["contents"], "generationConfig": {"temperature": 3}}), "temperature"),
        (
            json!({"contents": fine["contents"], "tools": [{"functionDeclarations": [{"name": "2", "description": ""}]}]}),
            "with the name",
        ),
    ] {
        let error = check_gemini(&body).unwrap_err();
        assert!(error.contains(why), "{error}: {body}");
    }
}
