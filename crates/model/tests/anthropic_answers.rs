//! What the Anthropic Messages decoder makes of answers that servers send, and of what no server should.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

mod common;

use mainstay_model::Attempt;
use mainstay_model::anthropic::decode::AnthropicDecoder;
use mainstay_model::decoder::{Feed, Progress};
use mainstay_session::message::{Content, Ended, ErrorClass, Finish, ToolCall, Usage};
use proptest::prelude::*;
use serde_json::{Value, json};

use common::answers::{self, class, text};

#[test]
fn an_answer_of_every_kind_of_block_is_read() {
    let attempt = stream(&[
        start(json!({"input_tokens": 9, "cache_read_input_tokens": 30, "cache_creation_input_tokens": 4})),
        begin(0, json!({"type": "thinking", "thinking": "", "signature": ""})),
        delta(0, json!({"type": "thinking_delta", "thinking": "I th"})),
        delta(0, json!({"type": "thinking_delta", "thinking": "ink"})),
        delta(0, json!({"type": "signature_delta", "signature": "sig+/="})),
        end(0),
        begin(1, json!({"type": "redacted_thinking", "data": "abc="})),
        end(1),
        begin(2, json!({"type": "text", "text": ""})),
        delta(2, json!({"type": "text_delta", "text": "Grüße, "})),
        delta(2, json!({"type": "text_delta", "text": "😀"})),
        end(2),
        begin(3, json!({"type": "tool_use", "id": "toolu_1", "name": "read", "input": {}})),
        delta(3, json!({"type": "input_json_delta", "partial_json": ""})),
        delta(3, json!({"type": "input_json_delta", "partial_json": "{\"path\": "})),
        delta(3, json!({"type": "input_json_delta", "partial_json": "\"a\"}"})),
        end(3),
        stop("tool_use", json!({"output_tokens": 7})),
        json!({"type": "message_stop"}),
    ]);
    let thinking = r#"{"signature":"sig+/=","thinking":"I think","type":"thinking"}"#;
    assert_eq!(
        attempt,
        Attempt {
            content: vec![
                Content::Reasoning { text: "I think".to_owned(), opaque: Some(thinking.to_owned()) },
                Content::Opaque { raw: r#"{"data":"abc=","type":"redacted_thinking"}"#.to_owned() },
                text("Grüße, 😀"),
                call("toolu_1", "read", "{\"path\": \"a\"}"),
            ],
            finish: Finish::ToolCalls,
            usage: Some(Usage {
                input_tokens: 43,
                cached_tokens: 30,
                cache_written_tokens: 4,
                output_tokens: 7
            }),
            ended: Ended::Complete,
            retry_after: None,
        }
    );
}

/// I01, D19: what goes back is put together from the bytes that came, with their escapes and the order of the fields.
#[test]
fn opaque_blocks_keep_their_bytes() {
    let body = concat!(
        r#"data: {"type":"message_start","message":{"content":[]}}"#,
        "\n\n",
        r#"data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking", "thinking":"","x":1.0}}"#,
        "\n\n",
        r#"data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"a\u00e9\/"}}"#,
        "\n\n",
        r#"data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"\ud83d"}}"#,
        "\n\n",
        r#"data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"\ude00"}}"#,
        "\n\n",
        r#"data: {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"s\u002b"}}"#,
        "\n\n",
        r#"data: {"type":"content_block_start","index":1,"content_block":{ "type":"web_search_tool_result","content":[1.50] }}"#,
        "\n\n",
        r#"data: {"type":"content_block_start","index":2,"content_block":{"type":"server_tool_use","input":{},"name":"s"}}"#,
        "\n\n",
        r#"data: {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"q\": 1.0}"}}"#,
        "\n\n",
        "data: {\"type\":\"message_stop\"}\n\n",
    );
    let attempt = decode_all_ways(body.as_bytes());
    let thinking = r#"{"type":"thinking","thinking":"a\u00e9\/\ud83d\ude00","x":1.0,"signature":"s\u002b"}"#;
    let opaque = |raw: &str| Content::Opaque { raw: raw.to_owned() };
    assert_eq!(
        attempt.content,
        [
            Content::Reasoning { text: "aé/😀".to_owned(), opaque: Some(thinking.to_owned()) },
            opaque(r#"{ "type":"web_search_tool_result","content":[1.50] }"#),
            opaque(r#"{"type":"server_tool_use","input":{"q": 1.0},"name":"s"}"#),
        ]
    );
}

/// Thinking that is not shown comes with a signature alone; without one nothing goes back; an unknown piece spoils a block.
#[test]
fn only_thinking_that_can_be_verified_is_kept_for_the_provider() {
    let answer = |pieces: &[Value]| {
        let mut events = vec![start(json!({})), begin(0, json!({"type": "thinking", "thinking": ""}))];
        events.extend(pieces.iter().map(|piece| delta(0, piece.clone())));
        events.push(json!({"type": "message_stop"}));
        stream(&events).content
    };
    let thought = json!({"type": "thinking_delta", "thinking": "hm"});
    let signed = json!({"type": "signature_delta", "signature": "s"});
    let unknown = json!({"type": "watermark_delta", "mark": "x"});
    let kept = |text: &str, opaque: Option<&str>| {
        vec![Content::Reasoning { text: text.to_owned(), opaque: opaque.map(str::to_owned) }]
    };
    assert_eq!(
        answer(std::slice::from_ref(&signed)),
        kept("", Some(r#"{"thinking":"","type":"thinking","signature":"s"}"#))
    );
    assert_eq!(answer(std::slice::from_ref(&thought)), kept("hm", None));
    assert_eq!(answer(&[thought, unknown, signed]), kept("hm", None));
    assert_eq!(answer(&[]), []);
}

/// H09: a ping is no content, and neither is the beginning of thinking, which may be silent for long.
#[test]
fn pings_are_no_content() {
    let mut feed = Feed::new(AnthropicDecoder::default());
    let mut push = |event: &Value| feed.push(sse(event).as_bytes(), &mut |_| {});
    for quiet in [
        start(json!({})),
        json!({"type": "ping"}),
        begin(0, json!({"type": "thinking", "thinking": ""})),
        json!({"type": "ping"}),
        delta(0, json!({"type": "thinking_delta", "thinking": ""})),
        json!({"type": "something_new"}),
        delta(9, json!({"type": "something_new"})),
        json!(7),
        json!({}),
    ] {
        assert_eq!(push(&quiet), Progress::Nothing, "{quiet}");
    }
    assert_eq!(push(&delta(0, json!({"type": "thinking_delta", "thinking": "a"}))), Progress::Content);
    assert_eq!(push(&stop("end_turn", json!({}))), Progress::Finished);
    assert_eq!(push(&json!({"type": "message_stop"})), Progress::Done);
}

/// H01, H06, H14: the reason cuts or declines; else the presence of calls decides.
#[test]
fn what_the_stop_reason_means_depends_on_the_calls() {
    let half = begin(0, json!({"type": "tool_use", "id": "A", "name": "write", "input": {}}));
    let said = begin(0, json!({"type": "text", "text": "a"}));
    for (block, reason, expected) in [
        (&half, "tool_use", Finish::ToolCalls),
        (&half, "end_turn", Finish::ToolCalls),
        (&half, "max_tokens", Finish::MaxTokens),
        (&half, "model_context_window_exceeded", Finish::MaxTokens),
        (&half, "refusal", Finish::Refusal),
        (&half, "pause_turn", Finish::ToolCalls),
        (&half, "something_new", Finish::ToolCalls),
        (&said, "end_turn", Finish::EndTurn),
        (&said, "stop_sequence", Finish::EndTurn),
        (&said, "pause_turn", Finish::Unknown),
        (&said, "refusal", Finish::Refusal),
        (&said, "something_new", Finish::Unknown),
    ] {
        let events =
            [start(json!({})), block.clone(), stop(reason, json!({})), json!({"type": "message_stop"})];
        let attempt = stream(&events);
        assert_eq!((attempt.finish, attempt.ended), (expected, Ended::Complete), "{reason}");
    }
}

/// H01: with what had come, which is the only thing that may be done with it.
#[test]
fn a_stream_without_message_stop_is_cut() {
    let events = [
        start(json!({"input_tokens": 5})),
        begin(0, json!({"type": "text", "text": "Hel"})),
        begin(1, json!({"type": "tool_use", "id": "A", "name": "write", "input": {}})),
        delta(1, json!({"type": "input_json_delta", "partial_json": "{\"path\":"})),
        stop("tool_use", json!({"output_tokens": 3})),
    ];
    for end in 1..=events.len() {
        let attempt = stream(&events[..end]);
        assert_eq!(class(&attempt), Some(ErrorClass::CutStream), "after {end} events");
    }
    let attempt = stream(&events);
    assert_eq!(attempt.content, [text("Hel"), call("A", "write", "{\"path\":")]);
    assert_eq!(
        attempt.usage,
        Some(Usage { input_tokens: 5, cached_tokens: 0, output_tokens: 3, ..Usage::default() })
    );
    for body in
        ["", "\n\n", ": ping\n\n", "data: [DONE]\n\n", "{\"content\":[{\"ty", "data: {\"type\":\"mess"]
    {
        let attempt = decode_all_ways(body.as_bytes());
        assert_eq!((class(&attempt), attempt.content), (Some(ErrorClass::CutStream), vec![]), "{body:?}");
    }
}

/// H10: an error in a stream that began with 200 is an error, with what had come.
#[test]
fn an_error_in_a_stream_is_an_error() {
    let half = sse(&start(json!({}))) + &sse(&begin(0, json!({"type": "text", "text": "Hel"})));
    for (error, expected) in [
        (
            r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
            ErrorClass::Overload,
        ),
        (r#"{"type":"error","error":{"type":"api_error","message":"Internal"}}"#, ErrorClass::Overload),
        (r#"{"type":"error","error":{"type":"rate_limit_error","message":"slow"}}"#, ErrorClass::Rate),
        (
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 3"}}"#,
            ErrorClass::Overflow,
        ),
        (
            r#"{"type":"error","error":{"type":"authentication_error","message":"x"}}"#,
            ErrorClass::Credentials,
        ),
        (r#"{"error":{"message":"quota exceeded"}}"#, ErrorClass::Quota),
        (r#"{"detail":"overloaded"}"#, ErrorClass::Overload),
        ("rate limit reached", ErrorClass::Rate),
    ] {
        let body = format!("{half}event: error\ndata: {error}\n\ndata: {{\"type\":\"message_stop\"}}\n\n");
        let attempt = decode_all_ways(body.as_bytes());
        assert_eq!((class(&attempt), attempt.content), (Some(expected), vec![text("Hel")]), "{error}");
    }
}

/// I07: an answer without a stream, in the right shape and in others.
#[test]
fn a_whole_json_answer_is_decoded_too() {
    let body = r#" {"type":"message","content":[
        {"type":"thinking", "thinking":"hm", "signature":"s"},
        {"type":"text","text":"a"},
        {"type":"tool_use","id":"A","name":"read","input":{"n": [1, 2]}},
        {"type":"tool_use","id":"B","name":"list","input":{}}],
        "stop_reason":"tool_use","usage":{"input_tokens":5,"output_tokens":7}}"#;
    let attempt = decode_all_ways(body.as_bytes());
    let thinking = r#"{"type":"thinking", "thinking":"hm", "signature":"s"}"#.to_owned();
    assert_eq!(
        attempt.content,
        [
            Content::Reasoning { text: "hm".to_owned(), opaque: Some(thinking) },
            text("a"),
            call("A", "read", r#"{"n": [1, 2]}"#),
            call("B", "list", "{}"),
        ]
    );
    assert_eq!((attempt.finish, attempt.ended), (Finish::ToolCalls, Ended::Complete));
    assert_eq!(
        attempt.usage,
        Some(Usage { input_tokens: 5, cached_tokens: 0, output_tokens: 7, ..Usage::default() })
    );
    for (body, expected) in [
        (r#"{"content":[{"type":"text","text":"a"}]}"#, ErrorClass::CutStream),
        (r#"{"data":{},"success":true}"#, ErrorClass::BadRequest),
        (r#"{"choices":[]}"#, ErrorClass::BadRequest),
        (r#"{"type":"error","error":{"type":"overloaded_error","message":"x"}}"#, ErrorClass::Overload),
    ] {
        assert_eq!(class(&decode_all_ways(body.as_bytes())), Some(expected), "{body}");
    }
}

/// What gateways get wrong: no index or the same one for all, no beginning of a block, arguments as an object, all events in
/// one, `[DONE]` at the end.
#[test]
fn gateways_are_forgiven() {
    let expected = [text("ab"), call("A", "read", "{\"n\":1}")];
    let tool = json!({"type": "tool_use", "id": "A", "name": "read", "input": {}});
    let piece = |kind: &str, name: &str, value: Value| json!({"type": kind, name: value});
    let same_index = vec![
        start(json!({})),
        begin(0, json!({"type": "text", "text": ""})),
        delta(0, piece("text_delta", "text", json!("a"))),
        begin(0, tool.clone()),
        delta(0, piece("input_json_delta", "partial_json", json!("{\"n\":"))),
        delta(0, piece("text_delta", "text", json!("b"))),
        delta(0, piece("input_json_delta", "partial_json", json!("1}"))),
        json!({"type": "message_stop"}),
    ];
    let without_index: Vec<Value> = same_index
        .iter()
        .cloned()
        .map(|mut event| {
            event.as_object_mut().unwrap().remove("index");
            event
        })
        .collect();
    let without_beginning = vec![
        start(json!({})),
        delta(0, piece("text_delta", "text", json!("ab"))),
        begin(1, tool),
        delta(1, piece("input_json_delta", "partial_json", json!({"n": 1}))),
        json!({"type": "message_stop"}),
    ];
    for events in [same_index, without_index, without_beginning] {
        assert_eq!(stream(&events).content, expected, "{events:?}");
        let joined: String = events.iter().map(|event| format!("data: {event}\n")).collect();
        let attempt = decode_all_ways(format!("{joined}\ndata: [DONE]\n\n").as_bytes());
        assert_eq!((attempt.content.as_slice(), attempt.ended), (&expected[..], Ended::Complete));
    }
}

/// A call that code of the provider made says so, and gets it back; one that the model made needs nothing.
#[test]
fn what_a_call_has_besides_is_kept() {
    let opaque = |extra: Value| {
        let mut block = json!({"type": "tool_use", "id": "A", "name": "read", "input": {}});
        block.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        let attempt = stream(&[start(json!({})), begin(0, block), json!({"type": "message_stop"})]);
        attempt.content[0].as_call().unwrap().opaque.clone()
    };
    assert_eq!(opaque(json!({})), None);
    assert_eq!(opaque(json!({"caller": {"type": "direct"}})), None);
    let caller = r#"{"tool_use":{"caller":{"tool_id":"s","type":"code_execution"}}}"#;
    assert_eq!(
        opaque(json!({"caller": {"type": "code_execution", "tool_id": "s"}})).as_deref(),
        Some(caller)
    );
}

/// Later counts correct earlier ones, and those that are left out stay.
#[test]
fn usage_is_what_was_said_last() {
    let counted = |first: Value, last: Value| {
        stream(&[start(first), stop("end_turn", last), json!({"type": "message_stop"})]).usage
    };
    let usage = |input_tokens, cached_tokens, output_tokens| {
        Some(Usage { input_tokens, cached_tokens, output_tokens, ..Usage::default() })
    };
    assert_eq!(
        counted(json!({"input_tokens": 43}), json!({"input_tokens": 61, "output_tokens": 2})),
        usage(61, 0, 2)
    );
    let first = json!({"input_tokens": 3, "cache_read_input_tokens": 100, "output_tokens": 1});
    assert_eq!(counted(first, json!({"input_tokens": null, "output_tokens": 9})), usage(103, 100, 9));
    assert_eq!(counted(json!({}), json!({})), None);
}

/// Parts of answers, whole and broken, that the property puts together.
const PARTS: &[&[u8]] = &[
    b"data: ",
    b"\n\n",
    b"\r",
    b"event: error\n",
    b"[DONE]",
    b"{\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":1e3}}}",
    b"{\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"a\xc3\xb1\\ud83d\"}}",
    b"{\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"tool_use\",\"name\":\"n\"}}",
    b"{\"type\":\"content_block_start\",\"content_block\":{\"type\":\"thinking\",\"thinking\":7}}",
    b"{\"type\":\"content_block_start\",\"content_block\":[]}",
    b"{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"\\ude00\"}}",
    b"{\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{\"}}",
    b"{\"type\":\"content_block_delta\",\"delta\":{\"type\":\"signature_delta\",\"signature\":\"\\ud800\"}}",
    b"{\"type\":\"content_block_delta\",\"delta\":{\"type\":\"citations_delta\",\"citation\":[}}",
    b"{\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}",
    b"{\"type\":\"message_stop\"}",
    b"{\"type\":\"error\"}",
    b"{\"content\":[{\"type\":\"text\",\"text\":\"m\"}],\"stop_reason\":\"x\"}",
    b"{",
    b"]}",
    b"\"",
    b"\xff",
    b"\xf0\x9f\x98",
];

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// H08: any bytes in any pieces never panic, and give what they give in one piece.
    #[test]
    fn the_cuts_never_matter(
        parts in prop::collection::vec(prop::sample::select(PARTS), 0..24),
        noise in prop::collection::vec(any::<u8>(), 0..8),
        length in 1_usize..40,
    ) {
        let mut body = parts.concat();
        body.extend(noise);
        let pieces: Vec<&[u8]> = body.chunks(length).collect();
        prop_assert_eq!(decode(&pieces), decode(&[&body]));
    }
}

fn start(usage: Value) -> Value {
    json!({"type": "message_start", "message": {"role": "assistant", "content": [], "usage": usage}})
}

fn begin(index: i64, block: Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": block})
}

fn delta(index: i64, delta: Value) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": delta})
}

fn end(index: i64) -> Value {
    json!({"type": "content_block_stop", "index": index})
}

fn stop(reason: &str, usage: Value) -> Value {
    json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage})
}

fn sse(event: &Value) -> String {
    format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default())
}

fn stream(events: &[Value]) -> Attempt {
    let body: String = events.iter().map(sse).collect();
    decode_all_ways(body.as_bytes())
}

fn decode_all_ways(body: &[u8]) -> Attempt {
    answers::decode_all_ways::<AnthropicDecoder>(body)
}

fn decode(pieces: &[&[u8]]) -> (Attempt, String) {
    answers::decode::<AnthropicDecoder>(pieces)
}

fn call(id: &str, name: &str, arguments: &str) -> Content {
    let (id, name, arguments) = (id.to_owned(), name.to_owned(), arguments.to_owned());
    Content::Call(ToolCall { id, name, arguments, opaque: None })
}
