use std::borrow::Cow;

use mainstay_session::arguments::object_or_empty;
use mainstay_session::message::RequestMark;
use proptest::prelude::*;

use super::*;

const ME: &str = "local/m";

fn settings() -> ModelSettings {
    ModelSettings::new("local", "m", "http://127.0.0.1:1/v1", 8_000)
}

fn user(text: &str) -> Message<'_> {
    Message::User { text: Cow::Borrowed(text), pictures: Vec::new() }
}

fn call_block<'a>(id: &'a str, name: &'a str, arguments: &'a str) -> Block<'a> {
    Block::Call { id, name, arguments: Cow::Borrowed(arguments), opaque: None }
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

fn encoded(settings: &ModelSettings, messages: Vec<Message<'_>>) -> Value {
    let request = Request { system: "Be good.", tools: &[], messages, previous: None, dropped_answers: 0 };
    serde_json::from_slice(&encode(ME, settings, &request).body).unwrap()
}

fn messages(settings: &ModelSettings, list: Vec<Message<'_>>) -> Value {
    encoded(settings, list)["messages"].clone()
}

/// A turn with reasoning and two calls, told over and over in the tests.
fn turn() -> Vec<Message<'static>> {
    vec![
        user("world"),
        user("do it"),
        Message::Answer {
            model: ME,
            blocks: vec![
                Block::Reasoning { text: "hm", opaque: Some(r#"{"reasoning_content":"h\u006d"}"#) },
                Block::Text(Cow::Borrowed("I look.")),
                call_block("call_1", "read", r#"{"path": "a"}"#),
                call_block("", "functions.read", "{}"),
            ],
        },
        result(0, "text a"),
        result(1, "text b"),
        user("<system-reminder>x</system-reminder>"),
    ]
}

#[test]
fn a_whole_request_reads_as_the_servers_expect() {
    let mut settings = settings();
    settings.max_output = Some(512);
    settings.effort = Some("low".to_owned());
    settings.extra_body = serde_json::from_str(r#"{"top_k":3,"model":"x","temperature":0.5}"#).unwrap();
    let tools = [ToolSpec {
        name: "read".to_owned(),
        description: "Reads a file.".to_owned(),
        schema: r#"{"type":"object","required":["path"]}"#.to_owned(),
    }];
    let request =
        Request { system: "Be good.", tools: &tools, messages: turn(), previous: None, dropped_answers: 0 };
    let body = String::from_utf8(encode(ME, &settings, &request).body).unwrap();
    insta::assert_snapshot!(body.replace(",{\"role\"", ",\n{\"role\""), @r#"
    {"model":"m","stream":true,"stream_options":{"include_usage":true},"max_tokens":512,"reasoning_effort":"low","temperature":0.5,"top_k":3,"tools":[{"type":"function","function":{"name":"read","description":"Reads a file.","parameters":{"type":"object","required":["path"]}}}],"messages":[{"role":"system","content":"Be good."},
    {"role":"user","content":[{"type":"text","text":"world"},{"type":"text","text":"do it"}]},
    {"role":"assistant","content":"I look.","reasoning_content":"h\u006d","tool_calls":[{"id":"call_1","type":"function","function":{"name":"read","arguments":"{\"path\": \"a\"}"}},{"id":"c00000002","type":"function","function":{"name":"functions_read","arguments":"{}"}}]},
    {"role":"tool","tool_call_id":"call_1","content":"text a"},
    {"role":"tool","tool_call_id":"c00000002","content":"text b"},
    {"role":"assistant","content":"(results received)"},
    {"role":"user","content":[{"type":"text","text":"<system-reminder>x</system-reminder>"}]}]}
    "#);
}

/// B08: user texts in a row are one message where roles must alternate, and a message each where they need not.
#[test]
fn roles_alternate_where_the_setting_says_so() {
    let list = || vec![user("a"), user("b"), user(" \n"), user("c")];
    let part = |text: &str| json!({"type": "text", "text": text});
    let merged = messages(&settings(), list());
    assert_eq!(merged[1], json!({"role": "user", "content": [part("a"), part("b"), part("c")]}));
    let mut free = settings();
    free.alternate_roles = false;
    let apart = messages(&free, list());
    assert_eq!(apart[3], json!({"role": "user", "content": "c"}));
    assert_eq!(apart.as_array().unwrap().len(), 4);
}

/// B07: there is one system message, and it is the first.
#[test]
fn a_system_message_stands_only_at_the_start() {
    let all = messages(&settings(), turn());
    let roles: Vec<&str> = all.as_array().unwrap().iter().map(|m| m["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool", "tool", "assistant", "user"]);
}

/// B08: where roles must alternate, an answer stands between results and what the user says next; where they need not, none
/// does.
#[test]
fn results_are_parted_from_the_user_s_texts_where_roles_must_alternate() {
    let received = json!({"role": "assistant", "content": "(results received)"});
    let strict = messages(&settings(), turn());
    assert_eq!(strict[5], received);
    let mut free = settings();
    free.alternate_roles = false;
    let free = messages(&free, turn());
    assert!(!free.as_array().unwrap().contains(&received), "{free}");
}

/// I01, D19: reasoning goes back unchanged to the model that wrote it, and to no other.
#[test]
fn reasoning_returns_to_its_own_model_only() {
    let answer = |model| {
        let parts = [r#"{"reasoning_content":"a\n"}"#, r#"{"reasoning_content":"b","role":"system"}"#];
        let mut blocks: Vec<Block<'_>> =
            parts.iter().map(|opaque| Block::Reasoning { text: "x", opaque: Some(opaque) }).collect();
        blocks.push(Block::Call {
            id: "c1",
            name: "read",
            arguments: Cow::Borrowed("{}"),
            opaque: Some(r#"{"extra_content":{"google":{"thought_signature":"s"}}}"#),
        });
        Message::Answer { model, blocks }
    };
    let own = &messages(&settings(), vec![user("go"), answer(ME)])[2];
    assert_eq!(own["reasoning_content"], "a\nb");
    assert_eq!(own["role"], "assistant");
    assert_eq!(own["content"], Value::Null);
    assert_eq!(own["tool_calls"][0]["extra_content"]["google"]["thought_signature"], "s");
    let other = &messages(&settings(), vec![user("go"), answer("other/m")])[2];
    assert_eq!(other.get("reasoning_content"), None);
    assert_eq!(other["tool_calls"][0].get("extra_content"), None);
}

/// D18: an answer with nothing to send back is left out.
#[test]
fn no_blank_message_is_sent() {
    let blank = |blocks| vec![user("a"), Message::Answer { model: ME, blocks }, user("b")];
    for blocks in [
        vec![Block::Reasoning { text: "hm", opaque: Some(r#"{"reasoning_content":"hm"}"#) }],
        vec![Block::Text(Cow::Borrowed("\n"))],
        vec![Block::Opaque("{}")],
        vec![],
    ] {
        let all = messages(&settings(), blank(blocks));
        assert_eq!(all.as_array().unwrap().len(), 2, "{all}");
    }
}

/// I06: ids that repeat, are missing or hold odd characters become unique, and results carry the same ones.
#[test]
fn every_call_has_a_sendable_id_of_its_own() {
    let step = |ids: &[&'static str]| {
        let mut list = vec![Message::Answer {
            model: ME,
            blocks: ids.iter().map(|id| call_block(id, "read", "{}")).collect(),
        }];
        list.extend((0..ids.len()).map(|n| result(u32::try_from(n).unwrap(), "ok")));
        list
    };
    let list = || {
        let mut list = vec![user("go")];
        list.extend(step(&["functions.add:0", "functions.add:0", "", "call_0", "c00000009"]));
        list.extend(step(&["call_0", "c00000001", "x".repeat(65).leak(), "abc123DEF"]));
        list
    };
    let ids = |settings: &ModelSettings| -> (Vec<String>, Vec<String>) {
        let all = messages(settings, list());
        let all = all.as_array().unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let calls = all.iter().filter_map(|m| m["tool_calls"].as_array()).flatten();
        let results = all.iter().filter(|m| m["role"] == "tool");
        (calls.map(|call| text(&call["id"])).collect(), results.map(|m| text(&m["tool_call_id"])).collect())
    };
    let (calls, results) = ids(&settings());
    assert_eq!(calls, results);
    assert_eq!(
        calls,
        [
            "c00000001",
            "c00000002",
            "c00000003",
            "call_0",
            "c00000009",
            "c00000006",
            "c00000007",
            "c00000008",
            "abc123DEF"
        ]
    );
    let mut strict = settings();
    strict.short_call_ids = true;
    let (calls, results) = ids(&strict);
    assert_eq!(calls, results);
    assert!(
        calls.iter().all(|id| id.len() == 9 && id.bytes().all(|b| b.is_ascii_alphanumeric())),
        "{calls:?}"
    );
}

/// H12: whatever name the model wrote, a strict server takes it back.
#[test]
fn names_are_made_sendable() {
    for (name, sent) in [
        ("read", "read"),
        ("functions.read", "functions_read"),
        ("read file", "read_file"),
        ("", "unnamed"),
        ("läs", "l_s"),
    ] {
        assert_eq!(sendable_name(name), sent);
    }
    assert_eq!(sendable_name(&"ä".repeat(300)).len(), 64);
}

/// J01, J03: the same request gives the same bytes, whenever and in whichever process it is written.
#[test]
fn encoding_is_a_function_of_the_request() {
    let request =
        || Request { system: "s", tools: &[], messages: turn(), previous: None, dropped_answers: 0 };
    let one = encode(ME, &settings(), &request());
    assert_eq!(one, encode(ME, &settings(), &request()));
    // The hash is in the logs of sessions: a change of it is a new version of the projection.
    assert_eq!(one.mark.hash, "455ce536b357ff14");
}

/// J05: two sessions share the tools and the system text, whatever their first texts are.
#[test]
fn what_sessions_share_stands_first() {
    let tools = [ToolSpec { name: "read".to_owned(), description: String::new(), schema: "{}".to_owned() }];
    let body = |text| {
        let request = Request {
            system: "s",
            tools: &tools,
            messages: vec![user(text)],
            previous: None,
            dropped_answers: 0,
        };
        String::from_utf8(encode(ME, &settings(), &request).body).unwrap()
    };
    let (one, other) = (body("in /a"), body("in /b"));
    let shared = one.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
    assert!(
        one[..shared].contains("\"tools\":[{")
            && one[..shared].contains("\"role\":\"system\",\"content\":\"s\"")
    );
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![Just(" ".to_owned()), "[a-c\"\\\\ñ\n]{0,6}"]
}

fn any_block() -> impl Strategy<Value = Block<'static>> {
    prop_oneof![
        any_text().prop_map(|text| Block::Text(Cow::Owned(text))),
        (any_text(), any::<bool>()).prop_map(|(text, own)| Block::Reasoning {
            text: text.clone().leak(),
            opaque: own.then(|| format!("{{\"reasoning_content\":{}}}", quoted(&text)).leak() as &str),
        }),
        ("(call_0|c0000000[1-3]|f:0|)", any_text(), any_text()).prop_map(|(id, name, raw)| Block::Call {
            id: id.leak(),
            name: name.leak(),
            arguments: Cow::Owned(object_or_empty(&raw).into_owned()),
            opaque: None,
        }),
        Just(Block::Opaque("{\"type\":\"thinking\"}")),
    ]
}

/// Messages in the order in which a session can bring them: an answer is followed by the results of its calls.
fn any_messages() -> impl Strategy<Value = Vec<Message<'static>>> {
    let answer = (any::<bool>(), proptest::collection::vec(any_block(), 1..5)).prop_map(|(own, blocks)| {
        let calls = blocks.iter().filter(|block| matches!(block, Block::Call { .. })).count();
        let mut list = vec![Message::Answer { model: if own { ME } else { "other/m" }, blocks }];
        list.extend((0..calls).map(|n| result(u32::try_from(n).unwrap(), "done")));
        list
    });
    let text =
        any_text().prop_map(|text| vec![Message::User { text: Cow::Owned(text), pictures: Vec::new() }]);
    proptest::collection::vec(prop_oneof![answer, text], 0..8).prop_map(|parts| parts.concat())
}

fn is_valid(messages: &[Value], alternate: bool) {
    let mut ids = std::collections::HashSet::new();
    let mut open: Vec<String> = Vec::new();
    let mut before = "";
    for (place, message) in messages.iter().enumerate() {
        let role = message["role"].as_str().unwrap();
        assert_eq!(role == "system", place == 0, "system only first");
        if role == "tool" {
            let id = message["tool_call_id"].as_str().unwrap();
            assert_eq!(
                open.first().map(String::as_str),
                Some(id),
                "results follow in the order of the calls"
            );
            open.remove(0);
        } else {
            assert!(open.is_empty(), "every call has its result before anything else");
            assert!(!alternate || role != "user" || before != "user", "roles alternate");
        }
        match &message["content"] {
            Value::Null => assert!(!message["tool_calls"].as_array().unwrap().is_empty()),
            Value::String(text) => assert!(!text.trim().is_empty()),
            Value::Array(parts) => {
                assert!(
                    !parts.is_empty() && parts.iter().all(|p| !p["text"].as_str().unwrap().trim().is_empty())
                );
            }
            other => panic!("{other}"),
        }
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            let id = call["id"].as_str().unwrap().to_owned();
            let is_sendable = |text: &str| {
                !text.is_empty()
                    && text.len() <= 64
                    && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b))
            };
            assert!(is_sendable(&id) && is_sendable(call["function"]["name"].as_str().unwrap()));
            let arguments: Value =
                serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
            assert!(arguments.is_object());
            assert!(ids.insert(id.clone()), "ids are unique");
            open.push(id);
        }
        before = role;
    }
}

proptest! {
    /// L10: whatever the history holds, the request is one that a strict server takes.
    #[test]
    fn any_history_is_a_valid_request(list in any_messages(), alternate in any::<bool>(), short in any::<bool>()) {
        let mut settings = settings();
        settings.alternate_roles = alternate;
        settings.short_call_ids = short;
        let all = messages(&settings, list);
        is_valid(all.as_array().unwrap(), alternate);
    }

    /// Law 3: a history that goes on gives a request that opens with the units, and the bytes, of the one before.
    #[test]
    fn the_prompt_only_grows(list in any_messages(), cut in 0usize..20, alternate in any::<bool>()) {
        let mut settings = settings();
        settings.alternate_roles = alternate;
        let borders: Vec<usize> =
            (0..=list.len()).filter(|n| !matches!(list.get(*n), Some(Message::Result { .. }))).collect();
        let border = borders[cut % borders.len()];
        let write = |messages: &[Message<'static>], previous: Option<&RequestMark>| {
            encode(ME, &settings, &Request { system: "s", tools: &[], messages: messages.to_vec(), previous, dropped_answers: 0 })
        };
        let before = write(&list[..border], None);
        let after = write(&list, Some(&before.mark));
        prop_assert_eq!(after.mark.shared, before.mark.units);
        let open = String::from_utf8(before.body).unwrap();
        let open = open.trim_end_matches([']', '}']);
        // Written anew each time, as the brackets are.
        let open = open.strip_suffix(r#",{"role":"user","content":[{"type":"text","text":"(continue)""#).unwrap_or(open);
        let open = open.trim_end_matches([']', '}']);
        prop_assert!(String::from_utf8(after.body).unwrap().starts_with(open));
    }
}
