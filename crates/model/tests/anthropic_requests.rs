//! Requests over Anthropic Messages: what is written, by which rules, and that it only grows.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

mod common;

use std::borrow::Cow;
use std::sync::Arc;

use common::anthropic_rules::check_anthropic;
use mainstay_model::anthropic::encode::encode;
use mainstay_model::{Encoded, ModelSettings};
use mainstay_session::arguments::object_or_empty;
use mainstay_session::message::{ContentHash, Image, RequestMark, ToolSpec};
use mainstay_session::request::{Block, Message, Picture, Request};
use proptest::prelude::*;
use serde_json::{Value, json};

const ME: &str = "anthropic/claude-opus-5";
const THINKING: &str = r#"{"type":"thinking","thinking":"h\u006d","signature":"s\/="}"#;
const REDACTED: &str = r#"{ "type":"redacted_thinking", "data":"abc=" }"#;
const ANCHOR: &str = r#","cache_control":{"type":"ephemeral"}"#;

fn settings() -> ModelSettings {
    ModelSettings::new("anthropic", "claude-opus-5", "https://127.0.0.1:1/v1", 200_000)
}

fn read_tool() -> ToolSpec {
    ToolSpec {
        name: "read".to_owned(),
        description: "Reads a file.".to_owned(),
        schema: r#"{"type":"object","required":["path"]}"#.to_owned(),
    }
}

fn user(text: &str) -> Message<'_> {
    Message::User { text: Cow::Borrowed(text), pictures: Vec::new() }
}

fn answer<'a>(model: &'a str, blocks: Vec<Block<'a>>) -> Message<'a> {
    Message::Answer { model, blocks }
}

fn said(text: &str) -> Block<'_> {
    Block::Text(Cow::Borrowed(text))
}

fn thought(opaque: &str) -> Block<'_> {
    Block::Reasoning { text: "hm", opaque: Some(opaque) }
}

fn call<'a>(id: &'a str, name: &'a str, arguments: &'a str) -> Block<'a> {
    Block::Call { id, name, arguments: Cow::Borrowed(arguments), opaque: None }
}

fn result(call: u32, text: &str) -> Message<'_> {
    let text = Cow::Borrowed(text);
    Message::Result { call, id: "", name: "", text, pictures: Vec::new(), is_error: false }
}

fn image() -> Image {
    Image { media_type: "image/png".to_owned(), hash: ContentHash::of(b"x"), bytes: 3 }
}

fn picture<'a>(image: &'a Image, data: Option<&str>) -> Picture<'a> {
    Picture { image, data: data.map(Arc::from) }
}

fn write(settings: &ModelSettings, messages: &[Message<'_>], previous: Option<&RequestMark>) -> Encoded {
    let tools = [read_tool()];
    let request = Request {
        system: "Be good.",
        tools: &tools,
        messages: messages.to_vec(),
        previous,
        dropped_answers: 0,
    };
    encode(ME, settings, &request)
}

/// The body, which the provider would take.
fn body(settings: &ModelSettings, messages: &[Message<'_>]) -> Value {
    let body = serde_json::from_slice(&write(settings, messages, None).body).unwrap();
    check_anthropic(&body).unwrap_or_else(|why| panic!("{why}\n{body:#}"));
    body
}

/// The messages without anchors.
fn messages(list: &[Message<'_>]) -> Value {
    let body = body(&settings(), list).to_string().replace(r#""cache_control":{"type":"ephemeral"},"#, "");
    serde_json::from_str::<Value>(&body).unwrap()["messages"].take()
}

#[test]
fn a_whole_request_reads_as_the_provider_expects() {
    let (shown, lost) = (image(), image());
    let list = [
        user("world"),
        Message::User { text: Cow::Borrowed("do it"), pictures: vec![picture(&shown, Some("QUJD"))] },
        answer(
            ME,
            vec![
                thought(THINKING),
                Block::Opaque(REDACTED),
                said("I look."),
                call("toolu_1", "read", r#"{"path": "a"}"#),
                call("", "functions.read", "{}"),
            ],
        ),
        Message::Result {
            call: 0,
            id: "toolu_1",
            name: "read",
            text: Cow::Borrowed("an image"),
            pictures: vec![picture(&shown, Some("QUJD")), picture(&lost, None)],
            is_error: false,
        },
        Message::Result {
            call: 1,
            id: "",
            name: "functions.read",
            text: Cow::Borrowed("no such tool"),
            pictures: Vec::new(),
            is_error: true,
        },
        user("<system-reminder>x</system-reminder>"),
    ];
    let mut settings = settings();
    settings.effort = Some("high".to_owned());
    settings.extra_body = serde_json::from_str(r#"{"metadata":{"user_id":"u"}}"#).unwrap();
    body(&settings, &list);
    let text = String::from_utf8(write(&settings, &list, None).body).unwrap();
    let text = text.replace(",{\"role\"", ",\n{\"role\"").replace("\"messages\":[", "\n\"messages\":[\n");
    insta::assert_snapshot!(text, @r#"
    {"model":"claude-opus-5","stream":true,"max_tokens":32000,"thinking":{"display":"summarized","type":"adaptive"},"output_config":{"effort":"high"},"metadata":{"user_id":"u"},"tools":[{"name":"read","description":"Reads a file.","input_schema":{"type":"object","required":["path"]},"cache_control":{"type":"ephemeral"}}],"system":[{"type":"text","text":"Be good.","cache_control":{"type":"ephemeral"}}],
    "messages":[
    {"role":"user","content":[{"type":"text","text":"world"},{"type":"text","text":"do it"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"QUJD"}}]},
    {"role":"assistant","content":[{"type":"thinking","thinking":"h\u006d","signature":"s\/="},{ "type":"redacted_thinking", "data":"abc=" },{"type":"text","text":"I look."},{"type":"tool_use","id":"toolu_1","name":"read","input":{"path": "a"}},{"type":"tool_use","id":"c00000002","name":"functions_read","input":{}}]},
    {"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","content":[{"type":"text","text":"an image"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"QUJD"}},{"type":"text","text":"[An image of type image/png with 3 bytes stands here; it is not shown to this model.]"}]},{"type":"tool_result","tool_use_id":"c00000002","content":"no such tool","is_error":true,"cache_control":{"type":"ephemeral"}},{"type":"text","text":"<system-reminder>x</system-reminder>","cache_control":{"type":"ephemeral"}}]}]}
    "#);
}

/// T12, L10: results first, in the order of the calls, then what the runtime says; all in one message.
#[test]
fn results_come_first_and_reminders_after_them() {
    let list = [
        user("go"),
        answer(ME, vec![call("a", "read", "{}"), call("b", "read", "{}")]),
        result(0, "one"),
        result(1, "two"),
        user("<system-reminder>x</system-reminder>"),
        user("and a prompt"),
    ];
    let block =
        |id: &str, content: &str| json!({"type": "tool_result", "tool_use_id": id, "content": content});
    let text = |text: &str| json!({"type": "text", "text": text});
    assert_eq!(
        messages(&list)[2],
        json!({"role": "user", "content": [
            block("a", "one"),
            block("b", "two"),
            text("<system-reminder>x</system-reminder>"),
            text("and a prompt"),
        ]})
    );
}

/// I01, D19: thinking goes back byte for byte and in its place, to the model that wrote it, or not at all.
#[test]
fn thinking_returns_to_its_own_model_only() {
    let second = r#"{"type":"thinking","thinking":"","signature":"t"}"#;
    let blocks = || vec![thought(THINKING), said("a"), thought(second), call("c", "read", "{}")];
    let list = |model| vec![user("go"), answer(model, blocks()), result(0, "ok")];
    let own = String::from_utf8(write(&settings(), &list(ME), None).body).unwrap();
    assert!(own.contains(&format!(
        "[{THINKING},{{\"type\":\"text\",\"text\":\"a\"}},{second},{{\"type\":\"tool_use\""
    )));
    let kinds = |value: &Value| -> Vec<String> {
        let blocks = value["content"].as_array().unwrap();
        blocks.iter().map(|block| block["type"].as_str().unwrap().to_owned()).collect()
    };
    for other in ["anthropic/claude-sonnet-5", "other/claude-opus-5"] {
        assert_eq!(kinds(&messages(&list(other))[1]), ["text", "tool_use"], "{other}");
    }
    for unsigned in [
        r#"{"type":"thinking","thinking":"hm"}"#,
        r#"{"type":"thinking","thinking":"hm","signature":""}"#,
        r#"{"reasoning_content":"hm"}"#,
        r#"{"type":"reasoning","encrypted_content":"x"}"#,
        "7",
    ] {
        let list = [user("go"), answer(ME, vec![thought(unsigned), Block::Opaque(unsigned), said("a")])];
        assert_eq!(kinds(&messages(&list)[1]), ["text"], "{unsigned}");
    }
}

/// D18: nothing blank is sent, and no message of which nothing is left.
#[test]
fn no_blank_message_is_sent() {
    for blocks in [
        vec![thought(THINKING)],
        vec![thought(THINKING), Block::Opaque(REDACTED), said(" \n")],
        vec![said("\n")],
        vec![Block::Opaque("{}")],
        vec![],
    ] {
        let all = messages(&[user("a"), answer(ME, blocks), user(" "), user("b")]);
        let text = |text: &str| json!({"type": "text", "text": text});
        assert_eq!(all, json!([{"role": "user", "content": [text("a"), text("b")]}]));
    }
    let ends_with_thinking =
        [user("a"), answer(ME, vec![thought(THINKING), said("b"), thought(THINKING)]), user("c")];
    assert_eq!(messages(&ends_with_thinking)[1]["content"].as_array().unwrap().len(), 2);
}

/// L10: other models write text between and after their calls; here it stands before them.
#[test]
fn nothing_stands_behind_a_call_but_calls() {
    let blocks = vec![call("a", "read", "{}"), said("between"), call("b", "read", "{}"), said("after")];
    let all = messages(&[user("go"), answer("kimi/k2", blocks), result(0, "1"), result(1, "2")]);
    let kinds = all[1]["content"].as_array().unwrap().iter().map(|block| block["type"].clone());
    assert_eq!(kinds.collect::<Vec<_>>(), ["text", "text", "tool_use", "tool_use"]);
}

/// I06: ids that repeat, are missing or hold odd characters become unique, and results carry the same ones.
#[test]
fn every_call_has_a_sendable_id_of_its_own() {
    let step = |id| vec![answer(ME, vec![call(id, "functions.add", "{}")]), result(0, "ok")];
    let list =
        [vec![user("go")], step("functions.add:0"), step("functions.add:0"), step(""), step("x")].concat();
    let all = messages(&list);
    let ids: Vec<&Value> = (1..8).step_by(2).map(|at| &all[at]["content"][0]["id"]).collect();
    assert_eq!(ids, ["c00000001", "c00000002", "c00000003", "x"]);
    assert_eq!(all[1]["content"][0]["name"], "functions_add");
}

/// What code of the provider called goes back with the call; fields of other wire formats do not.
#[test]
fn what_a_call_has_besides_goes_back() {
    let with = |model, opaque| {
        let blocks =
            vec![Block::Call { id: "a", name: "read", arguments: Cow::Borrowed("{}"), opaque: Some(opaque) }];
        messages(&[user("go"), answer(model, blocks), result(0, "ok")])[1]["content"][0].clone()
    };
    let plain = json!({"type": "tool_use", "id": "a", "name": "read", "input": {}});
    let caller = r#"{"tool_use":{"caller":{"type":"code_execution"}}}"#;
    assert_eq!(with(ME, caller)["caller"], json!({"type": "code_execution"}));
    assert_eq!(with("other/m", caller), plain);
    assert_eq!(with(ME, r#"{"extra_content":{"google":{}}}"#), plain);
}

/// The provider's own calls go back with their results; where a pause cut one off, it is left out.
#[test]
fn server_tools_go_back_in_pairs() {
    let used = |id: &str| {
        format!(r#"{{"type":"server_tool_use","id":"{id}","name":"web_search","input":{{"q":1.0}}}}"#)
    };
    let found =
        |id: &str| format!(r#"{{"type":"web_search_tool_result","tool_use_id":"{id}","content":[]}}"#);
    let (use_1, use_2, result_1, result_2) = (used("s1"), used("s2"), found("s1"), found("s2"));
    let body_of = |list: &[Message<'_>]| {
        body(&settings(), list);
        String::from_utf8(write(&settings(), list, None).body).unwrap()
    };
    let paused = [
        user("go"),
        answer(ME, vec![Block::Opaque(&use_1), Block::Opaque(&result_1), said("a"), Block::Opaque(&use_2)]),
        user("and?"),
    ];
    let text = body_of(&paused);
    assert!(text.contains(&use_1) && text.contains(&result_1) && !text.contains(&use_2));
    let later = [
        user("go"),
        answer(ME, vec![Block::Opaque(&use_2), call("a", "read", "{}")]),
        result(0, "ok"),
        answer(ME, vec![Block::Opaque(&result_2), Block::Opaque(&result_1), said("b")]),
        user("thanks"),
    ];
    let text = body_of(&later);
    assert!(text.contains(&use_2) && text.contains(&result_2) && !text.contains(&result_1));
}

#[test]
fn images_are_shown_where_the_model_takes_them() {
    let (image, mut blind) = (image(), settings());
    blind.images = false;
    let told = |is_error| {
        let prompt =
            Message::User { text: Cow::Borrowed(" "), pictures: vec![picture(&image, Some("QUJD"))] };
        let result = Message::Result {
            call: 0,
            id: "a",
            name: "read",
            text: Cow::Borrowed("seen"),
            pictures: vec![picture(&image, Some("QUJD"))],
            is_error,
        };
        vec![prompt, answer(ME, vec![call("a", "read", "{}")]), result]
    };
    let kinds = |body: Value| {
        let kind = |value: &Value| value["type"].as_str().unwrap().to_owned();
        let messages = &body["messages"];
        (kind(&messages[0]["content"][0]), kind(&messages[2]["content"][0]["content"][1]))
    };
    let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    assert_eq!(kinds(body(&settings(), &told(false))), pair("image", "image"));
    // An error may hold nothing but text.
    assert_eq!(kinds(body(&settings(), &told(true))), pair("image", "text"));
    assert_eq!(kinds(body(&blind, &told(false))), pair("text", "text"));
}

/// A schema that does not say that it is one of an object is made to.
#[test]
fn schemas_are_those_of_objects() {
    for (schema, sent) in [
        (r#"{"type":"object","required":["path"]}"#, r#"{"type":"object","required":["path"]}"#),
        (r#"{"properties":{"a":{}}}"#, r#"{"type":"object","properties":{"a":{}}}"#),
        ("{}", r#"{"type":"object","properties":{}}"#),
        (r#"{"type":"string"}"#, r#"{"type":"object","properties":{}}"#),
        ("true", r#"{"type":"object","properties":{}}"#),
    ] {
        let tools = [ToolSpec { schema: schema.to_owned(), description: " ".to_owned(), ..read_tool() }];
        let request = Request {
            system: "",
            tools: &tools,
            messages: vec![user("a")],
            previous: None,
            dropped_answers: 0,
        };
        let text = String::from_utf8(encode(ME, &settings(), &request).body).unwrap();
        let tool = format!(r#""tools":[{{"name":"read","input_schema":{sent}{ANCHOR}}}],"messages""#);
        assert!(text.contains(&tool), "{text}");
    }
}

/// Where the anchors are: behind tool, system and the end, and where the request before had its end, however long the step.
#[test]
fn anchors_follow_the_end_of_the_conversation() {
    let anchored = |encoded: &Encoded| -> Vec<String> {
        let body: Value = serde_json::from_slice(&encoded.body).unwrap();
        check_anthropic(&body).unwrap();
        let blocks =
            body["messages"].as_array().unwrap().iter().flat_map(|m| m["content"].as_array().unwrap());
        let has = |block: &&Value| !block["cache_control"].is_null();
        assert!(has(&&body["tools"][0]) && has(&&body["system"][0]));
        blocks
            .filter(has)
            .map(|block| block["text"].as_str().or(block["content"].as_str()).unwrap().to_owned())
            .collect()
    };
    let ids: Vec<String> = (0..30).map(|n| format!("t{n}")).collect();
    let mut list = vec![user("instructions"), user("date"), user("prompt")];
    let first = write(&settings(), &list, None);
    assert_eq!(anchored(&first), ["date", "prompt"]);
    list.push(answer(ME, ids.iter().map(|id| call(id, "read", "{}")).collect()));
    list.extend(ids.iter().enumerate().map(|(n, id)| result(u32::try_from(n).unwrap(), id)));
    let second = write(&settings(), &list, Some(&first.mark));
    assert_eq!(anchored(&second), ["prompt", "t29"]);
    list.extend([answer(ME, vec![thought(THINKING), said("done")]), user("more")]);
    let third = write(&settings(), &list, Some(&second.mark));
    assert_eq!(anchored(&third), ["t29", "more"]);
    // Another conversation: nothing of it was sent.
    let other = write(&settings(), &[user("x"), user("y")], Some(&third.mark));
    assert_eq!(anchored(&other), ["x", "y"]);
    assert_eq!(anchored(&write(&settings(), &[user("x")], None)), ["x"]);
}

/// A user can hand the anchors over to the provider, or switch them off for a server that refuses them.
#[test]
fn cache_control_of_the_user_takes_the_place_of_all_anchors() {
    for (value, count) in [(json!({"type": "ephemeral", "ttl": "1h"}), 1), (Value::Null, 0)] {
        let mut settings = settings();
        settings.extra_body.insert("cache_control".to_owned(), value);
        let text = body(&settings, &[user("a"), user("b")]).to_string();
        assert_eq!(text.matches("cache_control").count(), count, "{text}");
    }
}

/// J01, J03: the same request gives the same bytes, whenever and in whichever process it is written.
#[test]
fn encoding_is_a_function_of_the_request() {
    let list = [user("world"), answer(ME, vec![thought(THINKING), call("a", "read", "{}")]), result(0, "ok")];
    let one = write(&settings(), &list, None);
    assert_eq!(one, write(&settings(), &list, None));
    // The hash is in the logs of sessions: a change of it is a new version of the projection.
    assert_eq!(one.mark.hash, "8265ae0220b246a0");
    assert_eq!(one.mark.bytes, one.body.len() as u64);
}

/// J05: two sessions share the tools and the system text, whatever their first texts are.
#[test]
fn what_sessions_share_stands_first() {
    let text = |text| String::from_utf8(write(&settings(), &[user(text)], None).body).unwrap();
    let (one, other) = (text("in /a"), text("in /b"));
    let shared = one.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
    let (tools, system) = (one.find("\"tools\":[").unwrap(), one.find("\"system\":[").unwrap());
    assert!(tools < system && system < shared && one[..shared].contains("Be good."));
}

/// The rules themselves: each way to break one is found.
#[test]
fn the_rules_refuse_what_the_provider_refuses() {
    let list = [
        user("go"),
        answer(ME, vec![thought(THINKING), said("a"), call("a", "read", "{}"), call("b", "read", "{}")]),
        result(0, "one"),
        result(1, "two"),
        user("more"),
    ];
    let good = body(&settings(), &list);
    let block = |message: usize, place: usize| format!("/messages/{message}/content/{place}");
    let changes: &[(&str, String, Value)] = &[
        ("max_tokens", "/max_tokens".to_owned(), json!(0)),
        ("name", "/tools/0/name".to_owned(), json!("a b")),
        ("schema", "/tools/0/input_schema".to_owned(), json!({})),
        ("system", "/system/0/text".to_owned(), json!(" ")),
        ("role", "/messages/0/role".to_owned(), json!("assistant")),
        ("content", "/messages/0/content".to_owned(), json!([])),
        ("blank text", block(0, 0) + "/text", json!("\n")),
        ("no block for a user", block(0, 0) + "/type", json!("thinking")),
        ("without a signature", block(1, 0) + "/signature", json!("")),
        ("behind a call", block(1, 3), json!({"type": "text", "text": "b"})),
        ("id or name", block(1, 2) + "/id", json!("a:0")),
        ("input", block(1, 2) + "/input", json!([])),
        ("used twice", block(1, 3) + "/id", json!("a")),
        ("an anchor", block(1, 0) + "/cache_control", json!({"type": "ephemeral"})),
        ("blank result", block(2, 0) + "/content", json!("")),
        ("without its call", block(2, 0) + "/tool_use_id", json!("c")),
        ("behind something else", block(2, 0), json!({"type": "text", "text": "b"})),
        ("no result right behind", block(2, 1), json!({"type": "text", "text": "b"})),
        (
            "final block",
            "/messages/1/content".to_owned(),
            json!([{"type": "redacted_thinking", "data": "x"}]),
        ),
        ("not the user's", "/messages".to_owned(), json!([good["messages"][0], good["messages"][1]])),
    ];
    for (what, pointer, value) in changes {
        let mut bad = good.clone();
        match pointer.rsplit_once('/') {
            Some((parent, "cache_control")) => {
                bad.pointer_mut(parent).unwrap()["cache_control"] = value.clone()
            }
            _ => *bad.pointer_mut(pointer).unwrap() = value.clone(),
        }
        let why = check_anthropic(&bad).expect_err(what);
        assert!(why.contains(what), "{what}: {why}");
    }
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![Just(" ".to_owned()), "[a-c\"\\\\ñ\n]{0,6}"]
}

const OPAQUE: &[&str] = &[
    THINKING,
    REDACTED,
    r#"{"type":"thinking","thinking":"x"}"#,
    r#"{"reasoning_content":"x"}"#,
    r#"{"type":"server_tool_use","id":"s1","name":"web_search","input":{}}"#,
    r#"{"type":"server_tool_use","id":"s2","name":"web_search","input":{}}"#,
    r#"{"type":"web_search_tool_result","tool_use_id":"s1","content":[]}"#,
    r#"{"type":"web_search_tool_result","tool_use_id":"s2","content":[]}"#,
    r#"{"type":"new"}"#,
    "{",
];

fn any_block() -> impl Strategy<Value = Block<'static>> {
    let opaque = || proptest::sample::select(OPAQUE);
    prop_oneof![
        any_text().prop_map(|text| Block::Text(Cow::Owned(text))),
        proptest::option::of(opaque()).prop_map(|opaque| Block::Reasoning { text: "x", opaque }),
        ("(toolu_0|c0000000[1-3]|f:0|)", any_text(), any_text()).prop_map(|(id, name, raw)| Block::Call {
            id: id.leak(),
            name: name.leak(),
            arguments: Cow::Owned(object_or_empty(&raw).into_owned()),
            opaque: None,
        }),
        opaque().prop_map(Block::Opaque),
    ]
}

/// Messages in the order in which a session can bring them: an answer is followed by the results of its calls.
fn any_messages() -> impl Strategy<Value = Vec<Message<'static>>> {
    let answer = (any::<bool>(), proptest::collection::vec(any_block(), 1..6)).prop_map(|(own, blocks)| {
        let calls = blocks.iter().filter(|block| matches!(block, Block::Call { .. })).count();
        let mut list = vec![answer(if own { ME } else { "other/m" }, blocks)];
        list.extend((0..calls).map(|n| result(u32::try_from(n).unwrap(), "done")));
        list
    });
    let text =
        any_text().prop_map(|text| vec![Message::User { text: Cow::Owned(text), pictures: Vec::new() }]);
    proptest::collection::vec(prop_oneof![answer, text], 0..10)
        .prop_map(|parts| [vec![user("world")], parts.concat()].concat())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// L10: whatever the history holds, the request is one that the provider takes.
    #[test]
    fn any_history_is_a_valid_request(list in any_messages()) {
        let body: Value = serde_json::from_slice(&write(&settings(), &list, None).body).unwrap();
        prop_assert_eq!(check_anthropic(&body), Ok(()));
    }

    /// Law 3, T14: a history that goes on gives a request that opens with the units, and the bytes, of the one before.
    #[test]
    fn the_prompt_only_grows(list in any_messages(), cut in 0_usize..20) {
        // A request ends with what the user or a tool said.
        let ends_there = |n: &usize| match &list[n - 1] {
            Message::User { text, .. } => !text.trim().is_empty(),
            Message::Result { .. } => !matches!(list.get(*n), Some(Message::Result { .. })),
            Message::Answer { .. } => false,
        };
        let borders: Vec<usize> = (1..=list.len()).filter(ends_there).collect();
        let border = borders[cut % borders.len()];
        let before = write(&settings(), &list[..border], None);
        let after = write(&settings(), &list, Some(&before.mark));
        prop_assert_eq!(check_anthropic(&serde_json::from_slice(&after.body).unwrap()), Ok(()));
        prop_assert_eq!(after.mark.shared, before.mark.units);
        let plain = |encoded: Encoded| String::from_utf8(encoded.body).unwrap().replace(ANCHOR, "");
        let open = plain(before);
        let goes_on = plain(after).starts_with(open.trim_end_matches([']', '}']));
        prop_assert!(goes_on);
    }
}
