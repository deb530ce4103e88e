//! Requests over Responses: their bytes, the rules of the format, and that they only grow.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

mod common;

use std::borrow::Cow;
use std::sync::Arc;

use common::recorded;
use common::rules_responses::check_responses;
use mainstay_model::responses::decode::ResponsesDecoder;
use mainstay_model::responses::encode::encode;
use mainstay_model::{Model, ModelSettings, ResponsesModel, Secret};
use mainstay_session::arguments::object_or_empty;
use mainstay_session::message::{Content, ContentHash, Ended, Image, RequestMark, ToolSpec};
use mainstay_session::request::{Block, Message, Picture, Request};
use mainstay_testkit::wire::{Reply, WireServer};
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

const ME: &str = "local/m";

/// An item of reasoning as OpenAI writes it, with white space that must come back.
const REASONING: &str = r#"{"id":"rs_1", "type":"reasoning","encrypted_content":"gAA\u002b","summary":[]}"#;

const ENVELOPE: &str =
    r#"{"id":"msg_1","type":"message","status":"completed","role":"assistant","phase":"commentary"}"#;

fn settings() -> ModelSettings {
    ModelSettings::new("local", "m", "http://127.0.0.1:1/v1", 8_000)
}

fn user(text: &str) -> Message<'_> {
    Message::User { text: Cow::Borrowed(text), pictures: Vec::new() }
}

fn text(text: &str) -> Block<'_> {
    Block::Text(Cow::Borrowed(text))
}

fn reasoning(opaque: &str) -> Block<'_> {
    Block::Reasoning { text: "hm", opaque: Some(opaque) }
}

fn call<'a>(id: &'a str, name: &'a str, opaque: Option<&'a str>) -> Block<'a> {
    Block::Call { id, name, arguments: Cow::Borrowed(r#"{"path": "a"}"#), opaque }
}

fn result(call: u32, text: &str) -> Message<'_> {
    Message::Result {
        call,
        id: "",
        name: "",
        text: Cow::Borrowed(text),
        pictures: Vec::new(),
        is_error: false,
    }
}

/// An answer with the results of its calls.
fn step<'a>(model: &'a str, blocks: Vec<Block<'a>>) -> Vec<Message<'a>> {
    let calls = blocks.iter().filter(|block| matches!(block, Block::Call { .. })).count();
    let results = (0..calls).map(|n| result(u32::try_from(n).unwrap(), "done"));
    std::iter::once(Message::Answer { model, blocks }).chain(results).collect()
}

fn body(settings: &ModelSettings, messages: Vec<Message<'_>>) -> Value {
    let request = Request { system: "Be good.", tools: &[], messages, previous: None, dropped_answers: 0 };
    serde_json::from_slice(&encode(ME, settings, &request).body).unwrap()
}

/// The items of the input, which must keep the rules.
fn input(messages: Vec<Message<'_>>) -> Vec<Value> {
    let body = body(&settings(), messages);
    assert_eq!(check_responses(&body), Ok(()), "{body}");
    body["input"].as_array().unwrap().clone()
}

fn types(items: &[Value]) -> Vec<&str> {
    items.iter().map(|item| item["type"].as_str().unwrap()).collect()
}

fn image() -> Image {
    Image { media_type: "image/png".to_owned(), hash: ContentHash::of(b"png"), bytes: 3 }
}

fn read_tool() -> ToolSpec {
    ToolSpec {
        name: "read".to_owned(),
        description: "Reads a file.".to_owned(),
        schema: r#"{"type":"object","required":["path"]}"#.to_owned(),
    }
}

/// A turn with everything in it.
fn turn(image: &Image) -> Vec<Message<'_>> {
    let shown = || vec![Picture { image, data: Some(Arc::from("cG5n")) }];
    let mut list = vec![
        user("world"),
        Message::User { text: Cow::Borrowed("do it"), pictures: shown() },
        Message::Answer {
            model: ME,
            blocks: vec![
                reasoning(REASONING),
                Block::Opaque(ENVELOPE),
                text("I look."),
                call("call_1", "read", Some(r#"{"id":"fc_1","status":"completed"}"#)),
                call("", "functions.read", None),
            ],
        },
        result(0, "text a"),
        result(1, "text b"),
        user("<system-reminder>x</system-reminder>"),
    ];
    list.extend(step("other/m", vec![reasoning(REASONING), text("Hi"), call("call_1", "read", None)]));
    if let Some(Message::Result { pictures, .. }) = list.last_mut() {
        *pictures = shown();
    }
    list
}

/// I01, I06, B07, D19
#[test]
fn a_whole_request_reads_as_the_servers_expect() {
    let mut settings = settings();
    settings.max_output = Some(512);
    settings.effort = Some("low".to_owned());
    settings.images = true;
    settings.extra_body =
        serde_json::from_str(r#"{"text":{"verbosity":"low"},"input":"x","temperature":0.5}"#).unwrap();
    let (image, tools) = (image(), [read_tool()]);
    let request = Request {
        system: "Be good.",
        tools: &tools,
        messages: turn(&image),
        previous: None,
        dropped_answers: 0,
    };
    let encoded = encode(ME, &settings, &request);
    let body = String::from_utf8(encoded.body).unwrap();
    assert_eq!(check_responses(&serde_json::from_str(&body).unwrap()), Ok(()));
    // The hash is in the logs of sessions: a change of it is a new version of the projection.
    assert_eq!(encoded.mark.hash, "9de4ca165e7a8e58");
    insta::assert_snapshot!(body.replace(",{\"", ",\n{\"").replace("],\"", "],\n\""), @r#"
    {"model":"m","stream":true,"store":false,"include":["reasoning.encrypted_content"],
    "max_output_tokens":512,"reasoning":{"effort":"low"},"prompt_cache_key":"mainstay-31beeae15e3680d1cb249998bb9b4810","temperature":0.5,"text":{"verbosity":"low"},"tools":[{"type":"function","name":"read","description":"Reads a file.","parameters":{"type":"object","required":["path"]},"strict":false}],
    "instructions":"Be good.","input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"world"},
    {"type":"input_text","text":"do it"},
    {"type":"input_image","detail":"auto","image_url":"data:image/png;base64,cG5n"}]},
    {"id":"rs_1", "type":"reasoning","encrypted_content":"gAA\u002b","summary":[]},
    {"id":"msg_1","type":"message","status":"completed","role":"assistant","phase":"commentary","content":[{"type":"output_text","text":"I look.","annotations":[]}]},
    {"type":"function_call","call_id":"call_1","name":"read","arguments":"{\"path\": \"a\"}","id":"fc_1","status":"completed"},
    {"type":"function_call","call_id":"c00000002","name":"functions_read","arguments":"{\"path\": \"a\"}"},
    {"type":"function_call_output","call_id":"call_1","output":"text a"},
    {"type":"function_call_output","call_id":"c00000002","output":"text b"},
    {"type":"message","role":"user","content":[{"type":"input_text","text":"<system-reminder>x</system-reminder>"}]},
    {"type":"message","role":"assistant","content":[{"type":"output_text","text":"Hi","annotations":[]}]},
    {"type":"function_call","call_id":"c00000003","name":"read","arguments":"{\"path\": \"a\"}"},
    {"type":"function_call_output","call_id":"c00000003","output":[{"type":"input_text","text":"done"},
    {"type":"input_image","detail":"auto","image_url":"data:image/png;base64,cG5n"}]}]}
    "#);
}

/// What a result shows stands in its output; a model that takes no images is told of it.
#[test]
fn an_image_that_cannot_be_shown_is_told_of() {
    let image = image();
    let told = Picture { image: &image, data: None }.placeholder();
    let items = input(turn(&image));
    assert_eq!(items[0]["content"][2], json!({"type": "input_text", "text": told}));
    assert_eq!(items.last().unwrap()["output"], json!(format!("done\n{told}")));
}

/// I01: reasoning goes back with the items it led to, and each of these with its id; or else none of it does.
#[test]
fn reasoning_goes_back_with_what_it_led_to_or_not_at_all() {
    let go = |blocks| {
        let items = input([vec![user("go")], step(ME, blocks)].concat());
        items[1..].to_vec()
    };
    let envelope = || Block::Opaque(ENVELOPE);
    let plain =
        r#"{"id":"rs_2","type":"reasoning","content":[{"type":"reasoning_text","text":"hm"}],"summary":[]}"#;
    let reference = r#"{"id":"rs_3","type":"reasoning","summary":[]}"#;
    let search = r#"{"id":"ws_1","type":"web_search_call","status":"completed"}"#;
    let custom = r#"{"id":"ctc_1","type":"custom_tool_call","call_id":"c","name":"n","input":"x"}"#;
    let (rs, call) = (|| reasoning(REASONING), || call("c1", "read", Some(r#"{"id":"fc_1"}"#)));
    for (blocks, expected) in [
        (vec![rs(), call()], vec!["reasoning", "function_call", "function_call_output"]),
        (vec![rs(), envelope(), text("a")], vec!["reasoning", "message"]),
        // A message without an id would not be known as what the reasoning led to.
        (vec![rs(), text("a")], vec!["message"]),
        (vec![rs(), envelope()], vec![]),
        (vec![rs()], vec![]),
        (vec![envelope(), text("a"), rs()], vec!["message"]),
        (vec![reasoning(reference), call()], vec!["function_call", "function_call_output"]),
        (vec![reasoning(plain), text("a")], vec!["reasoning", "message"]),
        (
            vec![rs(), Block::Opaque(search), envelope(), text("a")],
            vec!["reasoning", "web_search_call", "message"],
        ),
        (vec![reasoning(reference), Block::Opaque(search), envelope(), text("a")], vec!["message"]),
        (vec![rs(), Block::Opaque(custom)], vec![]),
        (
            vec![reasoning(r#"{"reasoning_content":"hm"}"#), call()],
            vec!["function_call", "function_call_output"],
        ),
        (vec![reasoning("no JSON"), Block::Opaque("[]"), text("a")], vec!["message"]),
        // An interleaved answer keeps its order.
        (
            vec![rs(), call(), envelope(), text("a")],
            vec!["reasoning", "function_call", "message", "function_call_output"],
        ),
        // Elsewhere results must follow their calls directly.
        (vec![call(), envelope(), text("a")], vec!["message", "function_call", "function_call_output"]),
    ] {
        let items = go(blocks);
        assert_eq!(types(&items), expected);
        let has_encrypted = items.iter().any(|item| item.get("encrypted_content").is_some());
        for item in
            items.iter().filter(|item| ["message", "function_call"].iter().any(|t| item["type"] == *t))
        {
            assert_eq!(item.get("id").is_some(), has_encrypted, "{item}");
        }
    }
}

/// The phase of a message goes back even where its id does not.
#[test]
fn the_phase_of_a_message_goes_back() {
    let answer =
        |model| input([vec![user("go")], step(model, vec![Block::Opaque(ENVELOPE), text("a")])].concat());
    assert_eq!(answer(ME)[1]["phase"], "commentary");
    assert_eq!(answer("other/m")[1].get("phase"), None);
}

/// Items that come twice are refused, so the second answer goes back without them.
#[test]
fn no_item_is_sent_twice() {
    let answer = || step(ME, vec![reasoning(REASONING), call("c1", "read", None)]);
    let items = input([vec![user("go")], answer(), answer()].concat());
    assert_eq!(
        types(&items),
        [
            "message",
            "reasoning",
            "function_call",
            "function_call_output",
            "function_call",
            "function_call_output"
        ]
    );
}

/// D18: nothing blank is sent.
#[test]
fn no_blank_item_is_sent() {
    let items = input([vec![user("a"), user(" \n")], step(ME, vec![text("\n")]), vec![user("b")]].concat());
    let parts = json!([{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]);
    assert_eq!(items, [json!({"type": "message", "role": "user", "content": parts})]);
}

/// B08: user texts in a row are a message each where roles need not alternate.
#[test]
fn roles_alternate_where_the_setting_says_so() {
    let mut free = settings();
    free.alternate_roles = false;
    let body = body(&free, vec![user("a"), user("b")]);
    assert_eq!(check_responses(&body), Ok(()));
    assert_eq!(body["input"].as_array().unwrap().len(), 2);
}

/// OpenAI refuses to encrypt the reasoning of a model that has none.
#[test]
fn encrypted_reasoning_is_asked_for_where_there_may_be_some() {
    for (name, asks) in
        [("gpt-5.5", true), ("o4-mini", true), ("gpt-4.1-nano", false), ("openai/gpt-4o", false), ("m", true)]
    {
        let mut settings = settings();
        settings.name = name.to_owned();
        assert_eq!(body(&settings, vec![]).get("include").is_some(), asks, "{name}");
    }
}

/// A summary is asked for only where the settings do, beside the effort.
#[test]
fn the_effort_and_the_extra_fields_of_reasoning_are_joined() {
    let reasoning = |effort: Option<&str>, extra: Option<Value>| {
        let mut settings = settings();
        settings.effort = effort.map(str::to_owned);
        settings.extra_body.extend(extra.map(|extra| ("reasoning".to_owned(), extra)));
        body(&settings, vec![]).get("reasoning").cloned()
    };
    let summary = || Some(json!({"summary": "auto"}));
    assert_eq!(reasoning(None, None), None);
    assert_eq!(reasoning(Some("high"), None), Some(json!({"effort": "high"})));
    assert_eq!(reasoning(None, summary()), summary());
    assert_eq!(reasoning(Some("high"), summary()), Some(json!({"effort": "high", "summary": "auto"})));
    assert_eq!(reasoning(Some("high"), Some(Value::Null)), None);
}

/// J05: sessions that work in the same place are led to the same cache, others are not, and it stays the same.
#[test]
fn the_cache_key_follows_from_how_the_request_begins() {
    let key = |messages| body(&settings(), messages)["prompt_cache_key"].clone();
    assert_eq!(key(vec![user("in /a")]), key(vec![user("in /a"), user("more")]));
    assert_ne!(key(vec![user("in /a")]), key(vec![user("in /b")]));
    let mut off = settings();
    off.extra_body.insert("prompt_cache_key".to_owned(), Value::Null);
    assert_eq!(body(&off, vec![]).get("prompt_cache_key"), None);
}

#[tokio::test]
async fn a_request_goes_to_its_path_with_its_key() {
    let stream = [
        r#"{"type":"response.output_text.delta","output_index":0,"delta":"Hi"}"#,
        r#"{"type":"response.completed","response":{"status":"completed"}}"#,
    ];
    let server = WireServer::start([Reply::chat_stream(stream).pieces_of(1)]).await.unwrap();
    let key = "k".repeat(20);
    let mut settings = ModelSettings::new("local", "m", server.base_url(), 8_000);
    settings.key = Some(Secret::new(&key));
    settings.headers.push(("X-Org".to_owned(), Secret::new("mine")));
    let model = ResponsesModel::new(settings).unwrap();
    assert_eq!((model.name(), model.api(), model.context_window()), (ME, "openai-responses", 8_000));
    let request = Request {
        system: "s",
        tools: &[],
        messages: vec![user("hello")],
        previous: None,
        dropped_answers: 0,
    };
    let encoded = model.encode(&request);
    let attempt = model.stream(&encoded, &mut |_| {}, &CancellationToken::new()).await;
    assert_eq!(attempt.content, [Content::Text { text: "Hi".to_owned() }]);
    assert_eq!(attempt.ended, Ended::Complete);
    let received = &server.received()[0];
    assert_eq!((received.method.as_str(), received.path.as_str()), ("POST", "/v1/responses"));
    assert_eq!(received.header("authorization"), Some(format!("Bearer {key}").as_str()));
    assert_eq!(received.header("content-type"), Some("application/json"));
    assert_eq!(received.header("x-org"), Some("mine"));
    assert_eq!(received.body, encoded.body);
}

/// I01: what real providers answered goes back to them in order and byte for byte.
#[test]
fn every_recorded_answer_can_go_back() {
    let mut returned = 0;
    for entry in recorded::recordings().iter().filter(|e| e["api"] == "responses" && e["status"] == 200) {
        let (attempt, _) = recorded::decode(ResponsesDecoder::default(), &[&recorded::body(entry)]);
        if attempt.ended != Ended::Complete {
            continue;
        }
        let blocks: Vec<Block<'_>> = attempt.content.iter().map(block).collect();
        let messages = [vec![user("go")], step(ME, blocks)].concat();
        input(messages.clone());
        let request = Request { system: "s", tools: &[], messages, previous: None, dropped_answers: 0 };
        let body = String::from_utf8(encode(ME, &settings(), &request).body).unwrap();
        for content in &attempt.content {
            let Content::Reasoning { opaque: Some(raw), .. } = content else { continue };
            assert!(body.contains(raw), "{}: {raw} is missing", entry["file"]);
            returned += 1;
        }
    }
    eprintln!("{returned} recorded items of reasoning go back");
}

fn block(content: &Content) -> Block<'_> {
    match content {
        Content::Text { text } => Block::Text(Cow::Borrowed(text)),
        Content::Reasoning { text, opaque } => Block::Reasoning { text, opaque: opaque.as_deref() },
        Content::Call(call) => Block::Call {
            id: &call.id,
            name: &call.name,
            arguments: object_or_empty(&call.arguments),
            opaque: call.opaque.as_deref(),
        },
        Content::Opaque { raw } => Block::Opaque(raw),
    }
}

/// The rules refuse what real servers refused, each for its own reason.
#[test]
fn the_rules_refuse_what_servers_refuse() {
    let image = image();
    let good = body(&settings(), turn(&image));
    assert_eq!(check_responses(&good), Ok(()));
    let refused = |change: &dyn Fn(&mut Value)| {
        let mut bad = good.clone();
        change(&mut bad);
        check_responses(&bad).unwrap_err()
    };
    let remove = |at: usize| move |body: &mut Value| drop(body["input"].as_array_mut().unwrap().remove(at));
    let swap = |a: usize, b: usize| move |body: &mut Value| body["input"].as_array_mut().unwrap().swap(a, b);
    let set = |path: &'static str, value: Value| {
        move |body: &mut Value| *body.pointer_mut(path).unwrap() = value.clone()
    };
    for (error, says) in [
        (refused(&remove(5)), "has no output"),
        (refused(&remove(3)), "no open call"),
        (refused(&swap(6, 9)), "between the outputs"),
        (refused(&swap(1, 2)), "no reasoning before it"),
        (refused(&|body| drop(body["input"].as_array_mut().unwrap().drain(2..7))), "followed by nothing"),
        (refused(&|body| drop(body["input"][2].as_object_mut().unwrap().remove("id"))), "whose it is"),
        (refused(&set("/input/4/call_id", json!("call_1"))), "the same `call_id`"),
        (refused(&set("/input/3/id", json!("rs_1"))), "the same id"),
        (refused(&set("/input/3/name", json!("functions.read"))), "`name`"),
        (refused(&set("/input/3/arguments", json!("[]"))), "`arguments`"),
        (refused(&set("/input/1/encrypted_content", json!(""))), "only a reference"),
        (refused(&set("/input/0/content/0/text", json!(" "))), "blank"),
        (refused(&set("/input/0/role", json!("system"))), "the role"),
        (refused(&set("/input/2/content/0/type", json!("input_text"))), "no text"),
        (refused(&set("/store", json!(true))), "stored"),
        (refused(&set("/instructions", json!(""))), "says nothing"),
    ] {
        assert!(error.contains(says), "{error}");
    }
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![Just(" ".to_owned()), "[a-c\"\\\\ñ\n]{0,6}"]
}

fn any_block() -> impl Strategy<Value = Block<'static>> {
    let item = |id: u8, kind: &str, rest: &str| -> &'static str {
        format!("{{\"type\":\"{kind}\",\"id\":\"{kind}_{id}\"{rest}}}").leak()
    };
    prop_oneof![
        any_text().prop_map(|text| Block::Text(Cow::Owned(text))),
        (any::<u8>(), 0..4u8).prop_map(move |(id, kind)| Block::Reasoning {
            text: "hm",
            opaque: match kind {
                0 => None,
                1 => Some(item(id, "reasoning", ",\"encrypted_content\":\"x\",\"summary\":[]")),
                2 => Some(item(id, "reasoning", ",\"content\":[{}],\"summary\":[]")),
                _ => Some("{\"reasoning_content\":\"x\"}"),
            },
        }),
        ("(call_0|c0000000[1-3]|f:0|)", any_text(), any_text(), any::<u8>()).prop_map(
            move |(id, name, raw, own)| Block::Call {
                id: id.leak(),
                name: name.leak(),
                arguments: Cow::Owned(object_or_empty(&raw).into_owned()),
                opaque: (own > 64).then(|| format!("{{\"id\":\"fc_{own}\"}}").leak() as &str),
            }
        ),
        (any::<u8>(), 0..5u8).prop_map(move |(id, kind)| Block::Opaque(match kind {
            0 => item(id, "message", ",\"role\":\"assistant\",\"status\":\"completed\""),
            1 => item(id, "web_search_call", ""),
            2 => item(id, "apply_patch_call", ""),
            3 => "{\"type\":\"thinking\"}",
            _ => "{\"type\":\"message\",\"role\":\"assistant\",\"phase\":\"final_answer\"}",
        })),
    ]
}

/// Messages in the order in which a session can bring them: an answer is followed by the results of its calls.
fn any_messages() -> impl Strategy<Value = Vec<Message<'static>>> {
    let answer = (any::<bool>(), proptest::collection::vec(any_block(), 1..6))
        .prop_map(|(own, blocks)| step(if own { ME } else { "other/m" }, blocks));
    let told =
        any_text().prop_map(|text| vec![Message::User { text: Cow::Owned(text), pictures: Vec::new() }]);
    proptest::collection::vec(prop_oneof![3 => answer, 1 => told], 0..8).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    /// L10: whatever the history holds, the request is one that a strict server takes.
    #[test]
    fn any_history_is_a_valid_request(list in any_messages(), alternate in any::<bool>()) {
        let mut settings = settings();
        settings.alternate_roles = alternate;
        let body = body(&settings, list);
        prop_assert_eq!(check_responses(&body), Ok(()), "{}", body);
    }

    /// T14, law 3: a history that goes on gives a request that opens with the units, and the bytes, of the one before.
    #[test]
    fn the_prompt_only_grows(list in any_messages(), cut in 0usize..20, alternate in any::<bool>()) {
        let mut settings = settings();
        settings.alternate_roles = alternate;
        let list = [vec![user("world")], list].concat();
        let borders: Vec<usize> =
            (1..=list.len()).filter(|n| !matches!(list.get(*n), Some(Message::Result { .. }))).collect();
        let border = borders[cut % borders.len()];
        let tools = [read_tool()];
        let write = |messages: &[Message<'static>], previous: Option<&RequestMark>| {
            encode(ME, &settings, &Request { system: "s", tools: &tools, messages: messages.to_vec(), previous, dropped_answers: 0 })
        };
        let before = write(&list[..border], None);
        let after = write(&list, Some(&before.mark));
        prop_assert_eq!(after.mark.shared, before.mark.units);
        let open = String::from_utf8(before.body).unwrap();
        let open = open.strip_suffix("]}]}").or_else(|| open.strip_suffix("]}")).unwrap();
        prop_assert!(String::from_utf8(after.body).unwrap().starts_with(open));
    }
}
