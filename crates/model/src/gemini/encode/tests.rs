use std::borrow::Cow;
use std::sync::Arc;

use mainstay_session::message::{ContentHash, Image};
use serde_json::{Value, json};

use super::*;

const ME: &str = "gemini/gemini-3-pro-preview";

fn settings(name: &str) -> ModelSettings {
    ModelSettings::new("gemini", name, "http://127.0.0.1:1/v1beta", 8_000)
}

fn user(text: &str) -> Message<'_> {
    Message::User { text: Cow::Borrowed(text), pictures: Vec::new() }
}

fn text(text: &str) -> Block<'_> {
    Block::Text(Cow::Borrowed(text))
}

fn carrier(opaque: &str) -> Block<'_> {
    Block::Reasoning { text: "", opaque: Some(opaque) }
}

fn call_block<'a>(id: &'a str, name: &'a str, arguments: &'a str, opaque: Option<&'a str>) -> Block<'a> {
    Block::Call { id, name, arguments: Cow::Borrowed(arguments), opaque }
}

fn result<'a>(call: u32, name: &'a str, text: &'a str) -> Message<'a> {
    Message::Result { call, id: "", name, text: Cow::Borrowed(text), pictures: Vec::new(), is_error: false }
}

fn image(media_type: &str) -> Image {
    Image { media_type: media_type.to_owned(), hash: ContentHash::of(b"x"), bytes: 1 }
}

fn picture(image: &Image) -> Picture<'_> {
    Picture { image, data: Some(Arc::from("eA==")) }
}

fn encoded(settings: &ModelSettings, tools: &[ToolSpec], messages: Vec<Message<'_>>) -> String {
    let model = format!("{}/{}", settings.provider, settings.name);
    let request = Request { system: "Be good.", tools, messages, previous: None, dropped_answers: 0 };
    String::from_utf8(encode(&model, settings, &request).body).unwrap()
}

fn contents(name: &str, messages: Vec<Message<'_>>) -> Value {
    let body: Value = serde_json::from_str(&encoded(&settings(name), &[], messages)).unwrap();
    body["contents"].clone()
}

/// Everything that a request can hold, in its order.
#[test]
fn a_whole_request_reads_as_gemini_expects() {
    let mut settings = settings("gemini-3-pro-preview");
    settings.max_output = Some(512);
    settings.temperature = Some(0.5);
    settings.effort = Some("low".to_owned());
    settings.extra_body = serde_json::from_str(r#"{"safetySettings":[],"contents":1}"#).unwrap();
    let tools = ["read", "mcp__a__find"].map(|name| ToolSpec {
        name: name.to_owned(),
        description: "Reads a file.".to_owned(),
        schema: r#"{"type":"object","required":["path"]}"#.to_owned(),
    });
    let (png, gif) = (image("image/png"), image("image/gif"));
    let messages = vec![
        user("world"),
        Message::User { text: Cow::Borrowed("look"), pictures: vec![picture(&png), picture(&gif)] },
        Message::Answer {
            model: ME,
            blocks: vec![
                Block::Reasoning { text: "hm", opaque: None },
                Block::Reasoning {
                    text: "so",
                    opaque: Some(r#"{"thought":true,"text":"so","thoughtSignature":"s0"}"#),
                },
                text("I "),
                text("look."),
                carrier(r#"{"thoughtSignature":"s1"}"#),
                Block::Opaque(r#"{"executableCode": {"code":"1"}, "thoughtSignature": "s2"}"#),
                call_block("8hd01vsf", "read", r#"{"path": "a"}"#, Some(r#"{"thoughtSignature":"s\/3"}"#)),
                call_block("", "functions.read", "{}", None),
            ],
        },
        Message::Result {
            call: 0,
            id: "8hd01vsf",
            name: "read",
            text: Cow::Borrowed("text a"),
            pictures: vec![picture(&png), picture(&gif)],
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
        user("go on"),
        Message::Answer {
            model: ME,
            blocks: vec![text("Done."), carrier(r#"{"text":"","thoughtSignature":"s4"}"#)],
        },
        user("thanks"),
    ];
    let body = encoded(&settings, &tools, messages);
    insta::assert_snapshot!(body.replace(",{\"", ",\n{\""), @r#"
    {"generationConfig":{"maxOutputTokens":512,"temperature":0.5,"thinkingConfig":{"includeThoughts":true,"thinkingLevel":"low"}},"safetySettings":[],"tools":[{"functionDeclarations":[{"name":"read","description":"Reads a file.","parametersJsonSchema":{"type":"object","required":["path"]}},
    {"name":"mcp__a__find","description":"Reads a file.","parametersJsonSchema":{"type":"object","required":["path"]}}]}],"systemInstruction":{"parts":[{"text":"Be good."}]},"contents":[{"role":"user","parts":[{"text":"world"},
    {"text":"look"},
    {"inlineData":{"mimeType":"image/png","data":"eA=="}},
    {"text":"[An image of type image/gif with 1 bytes stands here; it is not shown to this model.]"}]},
    {"role":"model","parts":[{"thought":true,"text":"so","thoughtSignature":"s0"},
    {"text":"I "},
    {"text":"look.","thoughtSignature":"s1"},
    {"executableCode": {"code":"1"}, "thoughtSignature": "s2"},
    {"functionCall":{"id":"8hd01vsf","name":"read","args":{"path": "a"}},"thoughtSignature":"s\/3"},
    {"functionCall":{"id":"c00000002","name":"functions_read","args":{}}}]},
    {"role":"user","parts":[{"functionResponse":{"id":"8hd01vsf","name":"read","response":{"output":"text a\n[An image of type image/gif with 1 bytes stands here; it is not shown to this model.]"},"parts":[{"inlineData":{"mimeType":"image/png","data":"eA=="}}]}},
    {"functionResponse":{"id":"c00000002","name":"functions_read","response":{"error":"no such tool"}}},
    {"text":"<system-reminder>x</system-reminder>"},
    {"text":"go on"}]},
    {"role":"model","parts":[{"text":"Done."},
    {"text":"","thoughtSignature":"s4"}]},
    {"role":"user","parts":[{"text":"thanks"}]}]}
    "#);
}

/// I02: a signature goes back on the part that it came on, and only to the model that wrote it.
#[test]
fn signatures_return_to_their_own_model_only() {
    let answer = |model| {
        let blocks = vec![
            text("a"),
            carrier(r#"{"thoughtSignature":"s1"}"#),
            text("b"),
            carrier(r#"{"text": "", "thoughtSignature": "s2"}"#),
            carrier(r#"{"thoughtSignature":"s3"}"#),
            Block::Opaque(r#"{"inlineData":{}}"#),
            call_block("c1", "read", "{}", None),
            call_block("c2", "read", "{}", Some(r#"{"thoughtSignature":"s4"}"#)),
        ];
        vec![user("go"), Message::Answer { model, blocks }]
    };
    let parts = |name: &str, model| contents(name, answer(model))[1]["parts"].clone();
    let call = |id: &str| json!({"id": id, "name": "read", "args": {}});
    assert_eq!(
        parts("gemini-3-pro-preview", ME),
        json!([
            {"text": "a", "thoughtSignature": "s1"},
            {"text": "b"},
            {"text": "", "thoughtSignature": "s2"},
            {"text": "", "thoughtSignature": "s3"},
            {"inlineData": {}},
            {"functionCall": call("c1"), "thoughtSignature": "skip_thought_signature_validator"},
            {"functionCall": call("c2"), "thoughtSignature": "s4"},
        ])
    );
    assert_eq!(
        parts("gemini-3-pro-preview", "other/m"),
        json!([
            {"text": "a"},
            {"text": "b"},
            {"functionCall": call("c1"), "thoughtSignature": "skip_thought_signature_validator"},
            {"functionCall": call("c2")},
        ])
    );
    let before_3 = parts("gemini-2.5-flash", "other/m");
    assert_eq!(before_3[2], json!({"functionCall": call("c1")}));
}

/// D18, D19: what another wire format wrote, blank text and thoughts without a signature are left out.
#[test]
fn what_gemini_does_not_take_is_left_out() {
    let foreign = [
        r#"{"reasoning_content":"hm"}"#,
        r#"{"type":"thinking","thinking":"x","signature":"s"}"#,
        r#"{"text":"x"}"#,
        r#"{"thoughtSignature":7}"#,
        "[]",
        "{",
    ];
    for opaque in foreign {
        let blocks = vec![
            carrier(opaque),
            Block::Opaque(opaque),
            Block::Reasoning { text: "hm", opaque: None },
            text(" \n"),
        ];
        let all = contents(
            "gemini-3-pro-preview",
            vec![user("a"), Message::Answer { model: ME, blocks }, user("b")],
        );
        assert_eq!(all, json!([{"role": "user", "parts": [{"text": "a"}, {"text": "b"}]}]), "{opaque}");
    }
}

/// B08: what follows one another in one role is one content, and the first content is the user's.
#[test]
fn roles_alternate_from_the_user_on() {
    let answer = |said| Message::Answer { model: ME, blocks: vec![text(said)] };
    let all = contents(
        "gemini-2.5-pro",
        vec![answer("a"), answer("b"), user("c"), user(" "), user("d"), answer("e")],
    );
    assert_eq!(
        all,
        json!([
            {"role": "user", "parts": [{"text": OPENING}]},
            {"role": "model", "parts": [{"text": "a"}, {"text": "b"}]},
            {"role": "user", "parts": [{"text": "c"}, {"text": "d"}]},
            {"role": "model", "parts": [{"text": "e"}]},
        ])
    );
}

/// Models before Gemini 3 see the images of results behind all results, and before any text.
#[test]
fn images_of_results_stand_where_the_model_takes_them() {
    let (png, gif) = (image("image/png"), image("image/gif"));
    let turn = || {
        vec![
            user("go"),
            Message::Answer {
                model: ME,
                blocks: vec![call_block("a", "read", "{}", None), call_block("b", "read", "{}", None)],
            },
            Message::Result {
                call: 0,
                id: "a",
                name: "read",
                text: Cow::Borrowed("one"),
                pictures: vec![picture(&png), picture(&gif)],
                is_error: false,
            },
            result(1, "read", "two"),
        ]
    };
    let inline = json!({"inlineData": {"mimeType": "image/png", "data": "eA=="}});
    let one = format!("one\n{}", picture(&gif).placeholder());
    let response = |id: &str, output: &str| json!({"id": id, "name": "read", "response": {"output": output}});
    let old = contents("gemini-2.5-pro", turn())[2]["parts"].clone();
    assert_eq!(
        old,
        json!([
            {"functionResponse": response("a", &one)},
            {"functionResponse": response("b", "two")},
            inline,
        ])
    );
    let new = contents("gemini-3-pro-preview", turn())[2]["parts"].clone();
    let mut with_image = response("a", &one);
    with_image["parts"] = json!([inline]);
    assert_eq!(new, json!([{"functionResponse": with_image}, {"functionResponse": response("b", "two")}]));
    let mut blind = settings("gemini-3-pro-preview");
    blind.images = false;
    let blind = encoded(&blind, &[], turn());
    assert!(!blind.contains("inlineData") && blind.contains("of type image/png"), "{blind}");
}

/// H12: whatever name the model wrote, the call and its response carry the same one, and Gemini takes it.
#[test]
fn names_are_made_callable() {
    for (name, sent) in [
        ("read", "read"),
        ("_x", "_x"),
        ("functions.read", "functions_read"),
        ("", "unnamed"),
        ("2nd", "_2nd"),
        ("-a", "_-a"),
    ] {
        assert_eq!(callable_name(name), sent);
    }
    assert_eq!(callable_name(&"7".repeat(300)).len(), 64);
}

/// I06: ids that repeat or are missing become unique, and a response carries its call's.
#[test]
fn every_call_has_an_id_of_its_own() {
    let step = || {
        let blocks = ["same", "same", ""].map(|id| call_block(id, "read", "{}", None)).to_vec();
        let answer = Message::Answer { model: ME, blocks };
        [vec![answer], (0..3).map(|call| result(call, "read", "ok")).collect()].concat()
    };
    let all = contents("gemini-3.5-flash", [vec![user("go")], step(), step()].concat());
    let ids = |content: &Value, field: &str| -> Vec<String> {
        let parts = content["parts"].as_array().unwrap().iter();
        parts.map(|part| part[field]["id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids(&all[1], "functionCall"), ["same", "c00000002", "c00000003"]);
    assert_eq!(ids(&all[3], "functionCall"), ["c00000004", "c00000005", "c00000006"]);
    for at in [1, 3] {
        assert_eq!(ids(&all[at], "functionCall"), ids(&all[at + 1], "functionResponse"));
    }
}

/// J01, J03: the same request gives the same bytes, whenever and in whichever process it is written.
#[test]
fn encoding_is_a_function_of_the_request() {
    let messages = || {
        let blocks =
            vec![text("I look."), call_block("c1", "read", "{}", Some(r#"{"thoughtSignature":"s"}"#))];
        vec![user("a"), Message::Answer { model: ME, blocks }, result(0, "read", "ok"), user("b")]
    };
    let write = || {
        let request =
            Request { system: "s", tools: &[], messages: messages(), previous: None, dropped_answers: 0 };
        encode(ME, &settings("gemini-3-pro-preview"), &request)
    };
    assert_eq!(write(), write());
    // The hash is in the logs of sessions: a change of it is a new version of the projection.
    assert_eq!(write().mark.hash, "1ab0c13ae2a85976");
}
