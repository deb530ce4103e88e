//! Small answers over Responses, each with one oddity seen in the field, cut in every way.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use mainstay_model::decoder::{Close, Feed, Progress};
use mainstay_model::responses::decode::ResponsesDecoder;
use mainstay_model::{Attempt, Delta};
use mainstay_session::message::{Content, Ended, ErrorClass, Finish, ToolCall, Usage};
use proptest::prelude::*;
use serde_json::{Value, json};

fn event(event: &Value) -> String {
    format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or("message"))
}

/// What is decoded, and what was shown, from a body that is cut in two ways.
fn decode(body: &str) -> (Attempt, String) {
    let run = |size: usize| {
        let mut feed = Feed::new(ResponsesDecoder::default());
        let mut shown = String::new();
        let mut show = |delta: Delta<'_>| match delta {
            Delta::Text(text) => shown.push_str(text),
            Delta::Reasoning(text) => shown.push_str(&format!("({text})")),
            Delta::CallStarted(name) => shown.push_str(&format!("[{name}]")),
        };
        body.as_bytes().chunks(size).for_each(|chunk| {
            feed.push(chunk, &mut show);
        });
        (feed.close(Close::End, &mut show), shown)
    };
    let whole = run(body.len().max(1));
    assert_eq!(run(1), whole);
    whole
}

fn stream(events: &[Value]) -> (Attempt, String) {
    decode(&events.iter().map(event).collect::<String>())
}

fn added(index: u32, item: Value) -> Value {
    json!({"type": "response.output_item.added", "output_index": index, "item": item})
}

fn done(index: u32, item: Value) -> Value {
    json!({"type": "response.output_item.done", "output_index": index, "item": item})
}

fn delta(kind: &str, index: u32, delta: &str) -> Value {
    json!({"type": format!("response.{kind}.delta"), "output_index": index, "delta": delta})
}

fn completed() -> Value {
    json!({"type": "response.completed", "response": {"status": "completed"}})
}

fn message(text: &str) -> Value {
    json!({"type": "message", "content": [{"type": "output_text", "text": text}]})
}

fn function(call_id: &str, arguments: &str) -> Value {
    json!({"type": "function_call", "call_id": call_id, "name": "read", "arguments": arguments})
}

fn text(text: &str) -> Content {
    Content::Text { text: text.to_owned() }
}

fn call(id: &str, arguments: &str) -> Content {
    Content::Call(ToolCall {
        id: id.to_owned(),
        name: "read".to_owned(),
        arguments: arguments.to_owned(),
        opaque: None,
    })
}

fn failure(attempt: &Attempt) -> (ErrorClass, &str) {
    match &attempt.ended {
        Ended::Failed { class, message } => (*class, message),
        other => panic!("{other:?}"),
    }
}

/// An id ties an item to the encrypted reasoning before it, and is worth its bytes in the log only there.
#[test]
fn an_id_that_ties_nothing_is_not_kept() {
    let mut said = message("Now I look.");
    said["id"] = json!("msg_1");
    said["status"] = json!("completed");
    let mut phased = said.clone();
    phased["phase"] = json!("commentary");
    let mut own = function("call_1", "{}");
    own["id"] = json!("fc_1");
    let (attempt, _) = stream(&[done(0, said), done(1, phased), done(2, own), completed()]);
    let phase = Content::Opaque { raw: r#"{"phase":"commentary","type":"message"}"#.to_owned() };
    let expected = [text("Now I look."), phase, text("Now I look."), call("call_1", "{}")];
    assert_eq!(attempt.content, expected);
}

#[test]
fn all_kinds_of_items_come_out_in_order() {
    let reasoning = json!({"type": "reasoning", "id": "rs_1", "encrypted_content": "x", "summary": [
        {"type": "summary_text", "text": "One."}, {"type": "summary_text", "text": "Two."}]});
    let said = json!({"type": "message", "id": "msg_1", "phase": "commentary", "role": "assistant",
        "content": [{"type": "output_text", "text": "a"}, {"type": "output_text", "text": "ñ"}]});
    let search = json!({"type": "web_search_call", "id": "ws_1", "status": "completed"});
    let mut own = function("call_1", "{}");
    own["id"] = json!("fc_1");
    let usage = json!({"input_tokens": 9, "output_tokens": 4, "input_tokens_details": {"cached_tokens": 3}});
    let part = |index: u32, text: &str| json!({"type": "response.reasoning_summary_text.delta", "output_index": 0, "summary_index": index, "delta": text});
    let (attempt, shown) = stream(&[
        json!({"type": "response.created", "response": {"id": "resp_1", "status": "in_progress"}}),
        added(0, json!({"type": "reasoning", "id": "rs_0", "summary": []})),
        part(0, "One."),
        part(1, "Two."),
        done(0, reasoning.clone()),
        added(1, json!({"type": "message", "id": "msg_0", "content": []})),
        delta("output_text", 1, "a"),
        delta("output_text", 1, "ñ"),
        done(1, said),
        done(2, search.clone()),
        added(
            3,
            json!({"type": "function_call", "id": "fc_0", "call_id": "call_1", "name": "read", "arguments": ""}),
        ),
        delta("function_call_arguments", 3, "{}"),
        done(3, own),
        json!({"type": "response.completed", "response": {"status": "completed", "usage": usage}}),
    ]);
    let opaque = |raw: &Value| raw.to_string();
    let envelope = json!({"type": "message", "id": "msg_1", "phase": "commentary", "role": "assistant"});
    assert_eq!(
        attempt,
        Attempt {
            content: vec![
                Content::Reasoning { text: "One.\n\nTwo.".to_owned(), opaque: Some(opaque(&reasoning)) },
                Content::Opaque { raw: opaque(&envelope) },
                text("añ"),
                Content::Opaque { raw: opaque(&search) },
                Content::Call(ToolCall {
                    id: "call_1".to_owned(),
                    name: "read".to_owned(),
                    arguments: "{}".to_owned(),
                    opaque: Some(r#"{"id":"fc_1"}"#.to_owned()),
                }),
            ],
            finish: Finish::ToolCalls,
            usage: Some(Usage { input_tokens: 9, cached_tokens: 3, output_tokens: 4, ..Usage::default() }),
            ended: Ended::Complete,
            retry_after: None,
        }
    );
    assert_eq!(shown, "(One.)(\n\n)(Two.)añ[read]");
}

/// H03, H06: each row is a list of events and the answer that they are.
#[test]
fn items_are_told_apart_however_they_are_numbered() {
    let bare =
        |kind: &str, item: Value| json!({"type": format!("response.output_item.{kind}"), "item": item});
    let named = |id: &str| json!({"type": "message", "id": id, "content": []});
    let by_id =
        |id: &str, text: &str| json!({"type": "response.output_text.delta", "item_id": id, "delta": text});
    let rows = [
        (
            "one index for all",
            vec![done(0, message("a")), done(0, function("A", "{}"))],
            vec![text("a"), call("A", "{}")],
        ),
        (
            "one index for two calls",
            vec![done(0, function("A", "{}")), done(0, function("B", "{}"))],
            vec![call("A", "{}"), call("B", "{}")],
        ),
        (
            "the same item twice",
            vec![done(0, function("A", "{}")), done(0, function("A", "{}"))],
            vec![call("A", "{}")],
        ),
        (
            "no index",
            vec![
                bare("added", function("A", "")),
                bare("done", function("A", "{}")),
                bare("done", message("a")),
            ],
            vec![call("A", "{}"), text("a")],
        ),
        (
            "ids alone",
            vec![
                bare("added", named("m1")),
                bare("added", named("m2")),
                by_id("m1", "a"),
                by_id("m2", "b"),
                by_id("m1", "c"),
            ],
            vec![text("ac"), text("b")],
        ),
        (
            "out of order",
            vec![done(1, function("A", "{}")), done(0, message("a"))],
            vec![text("a"), call("A", "{}")],
        ),
        (
            "deltas alone",
            vec![delta("output_text", 0, "a"), delta("function_call_arguments", 1, "{}")],
            vec![
                text("a"),
                Content::Call(ToolCall {
                    id: String::new(),
                    name: String::new(),
                    arguments: "{}".to_owned(),
                    opaque: None,
                }),
            ],
        ),
        (
            "empty arguments at the end",
            vec![
                added(0, function("A", "")),
                delta("function_call_arguments", 0, "{\"a\":1}"),
                done(0, function("A", "")),
            ],
            vec![call("A", "{\"a\":1}")],
        ),
        (
            "arguments as an object",
            vec![done(
                0,
                json!({"type": "function_call", "call_id": "A", "name": "read", "arguments": {"a": 1}}),
            )],
            vec![call("A", "{\"a\":1}")],
        ),
        (
            "no arguments",
            vec![done(
                0,
                json!({"type": "function_call", "call_id": "A", "name": "read", "arguments": null}),
            )],
            vec![call("A", "")],
        ),
        (
            "unknown things",
            vec![
                json!({"type": "response.new_thing", "x": [1]}),
                json!({"type": "keepalive"}),
                done(0, message("a")),
                json!({"x": 1}),
                json!([]),
            ],
            vec![text("a")],
        ),
        ("an empty message", vec![done(0, message(""))], vec![]),
    ];
    for (name, events, content) in rows {
        let (attempt, _) = stream(&[events, vec![completed()]].concat());
        // Only a call of which the end never came is cut.
        assert_eq!((attempt.content, attempt.ended), (content, Ended::Complete), "{name}");
        let cut = name == "deltas alone";
        assert_eq!(attempt.finish == Finish::MaxTokens, cut, "{name}");
    }
}

/// What no delta told is shown when the item is whole, and the list at the end counts where no item came.
#[test]
fn what_was_not_streamed_is_shown_at_the_end() {
    let (_, shown) = stream(&[delta("output_text", 0, "Hel"), done(0, message("Hello")), completed()]);
    assert_eq!(shown, "Hello");
    let last =
        json!({"type": "response.completed", "response": {"output": [message("Hi"), function("A", "{}")]}});
    let (attempt, shown) = stream(&[last]);
    assert_eq!((attempt.content, shown.as_str()), (vec![text("Hi"), call("A", "{}")], "Hi[read]"));
    let output =
        json!({"type": "response.completed", "response": {"output": [message("Hello"), message("b")]}});
    let (attempt, _) = stream(&[delta("output_text", 0, "Hel"), done(1, message("b")), output]);
    assert_eq!(attempt.content, [text("Hello"), text("b")]);
}

/// H09
#[test]
fn pings_of_any_kind_are_no_content() {
    let mut feed = Feed::new(ResponsesDecoder::default());
    let mut push = |bytes: &str| feed.push(bytes.as_bytes(), &mut |_| {});
    let created = event(&json!({"type": "response.created", "response": {}}));
    for ping in
        [": ping\n\n", "data: ping\n\n", "event: ping\n\n", "data: {\"type\":\"keepalive\"}\n\n", &created]
    {
        assert_eq!(push(ping), Progress::Nothing, "{ping:?}");
    }
    assert_eq!(push(&event(&delta("output_text", 0, ""))), Progress::Nothing);
    assert_eq!(push(&event(&delta("output_text", 0, "a"))), Progress::Content);
    let tool = json!({"type": "response.code_interpreter_call.interpreting", "output_index": 1});
    assert_eq!(push(&event(&tool)), Progress::Content);
    assert_eq!(push(&event(&completed())), Progress::Done);
    assert_eq!(push("data: [DONE]\n\n"), Progress::Done);
    assert_eq!(feed.close(Close::End, &mut |_| {}).ended, Ended::Complete);
}

/// H01: without a terminal event an answer is an error with what had come, whatever else ended it.
#[test]
fn an_answer_without_its_end_is_cut() {
    for body in ["", "data: [DONE]\n\n"] {
        let begun = event(&delta("output_text", 0, "Hel"));
        let (attempt, _) = decode(&format!("{begun}{body}"));
        assert_eq!(failure(&attempt).0, ErrorClass::CutStream);
        assert_eq!((attempt.content, attempt.finish), (vec![text("Hel")], Finish::Unknown));
    }
    let (attempt, _) =
        decode(&json!({"object": "response", "status": "in_progress", "output": []}).to_string());
    assert_eq!(failure(&attempt).0, ErrorClass::CutStream);
    let (attempt, _) = decode("{\"object\":\"response\",\"out");
    assert_eq!(failure(&attempt).0, ErrorClass::CutStream);
}

/// H01, W06: the calls of an answer that was cut are never to be run, even where they parse.
#[test]
fn an_answer_that_was_cut_runs_no_call() {
    let ended = |reason: &str| json!({"type": "response.incomplete", "response": {"status": "incomplete", "incomplete_details": {"reason": reason}}});
    let mut cut = function("A", "{}");
    cut["status"] = json!("incomplete");
    for (events, finish) in [
        (vec![done(0, function("A", "{}")), ended("max_output_tokens")], Finish::MaxTokens),
        (vec![done(0, function("A", "{}")), ended("new_reason")], Finish::MaxTokens),
        (vec![done(0, function("A", "{}")), ended("content_filter")], Finish::Refusal),
        (vec![done(0, cut), completed()], Finish::MaxTokens),
        (vec![done(0, function("A", "{}")), completed()], Finish::ToolCalls),
    ] {
        let (attempt, _) = stream(&events);
        assert_eq!((attempt.ended, attempt.finish), (Ended::Complete, finish));
    }
}

/// H10: an error inside a stream that began with 200, in all its shapes.
#[test]
fn an_error_inside_a_stream_is_an_error() {
    let failed =
        |error: Value| json!({"type": "response.failed", "response": {"status": "failed", "error": error}});
    let (rate, flat) = ("rate_limit_exceeded", "please try again in 7s");
    for (events, class, says) in [
        (vec![failed(json!({"code": rate, "message": flat}))], ErrorClass::Rate, flat),
        (vec![json!({"type": "error", "code": rate, "message": flat})], ErrorClass::Rate, flat),
        (vec![json!({"type": "error", "error": {"code": rate, "message": flat}})], ErrorClass::Rate, flat),
        (vec![json!({"error": {"code": rate, "message": flat}})], ErrorClass::Rate, flat),
        (vec![failed(json!({"code": "server_error", "message": "oops"}))], ErrorClass::Overload, "oops"),
        (vec![failed(Value::Null)], ErrorClass::Overload, "did not say why"),
        (
            vec![failed(json!({"code": "invalid_prompt", "message": "flagged"}))],
            ErrorClass::RefusedContent,
            "flagged",
        ),
        (vec![failed(json!({"code": "image_parse_error", "message": "odd"}))], ErrorClass::BadRequest, "odd"),
        (
            vec![
                json!({"type": "error", "code": "x", "message": "first"}),
                failed(json!({"code": rate, "message": flat})),
            ],
            ErrorClass::Rate,
            flat,
        ),
        (
            vec![json!({"type": "error", "code": "x", "message": "first"}), failed(Value::Null)],
            ErrorClass::Overload,
            "first",
        ),
        (
            vec![json!({"type": "response.cancelled", "response": {"status": "cancelled"}})],
            ErrorClass::CutStream,
            "cancelled",
        ),
    ] {
        let (attempt, _) = stream(&[vec![delta("output_text", 0, "Hel")], events].concat());
        assert_eq!(failure(&attempt).0, class, "{attempt:?}");
        assert!(failure(&attempt).1.contains(says), "{attempt:?}");
        assert_eq!(attempt.content, [text("Hel")]);
        assert_eq!(attempt.retry_after.is_some(), class == ErrorClass::Rate);
    }
    let (attempt, _) = decode("event: error\ndata: upstream is gone\n\n");
    assert_eq!(failure(&attempt), (ErrorClass::Overload, "upstream is gone"));
}

#[test]
fn a_document_may_be_an_answer_an_error_or_neither() {
    let answer = json!({"output": [message("Hi")], "usage": {"input_tokens": 1, "output_tokens": 2}});
    let (attempt, shown) = decode(&answer.to_string());
    assert_eq!((attempt.content, attempt.ended, shown.as_str()), (vec![text("Hi")], Ended::Complete, "Hi"));
    for (body, class) in [
        (json!({"error": {"message": "quota exceeded"}}), ErrorClass::Quota),
        (json!([{"error": {"message": "quota exceeded"}}]), ErrorClass::Quota),
        (json!({"detail": "not found"}), ErrorClass::BadRequest),
        (json!({"choices": []}), ErrorClass::BadRequest),
        (json!({"status": "failed", "output": [], "error": {"code": "server_error"}}), ErrorClass::Overload),
    ] {
        assert_eq!(failure(&decode(&body.to_string()).0).0, class, "{body}");
    }
}

#[test]
fn a_refusal_is_text_that_says_so() {
    let item = json!({"type": "message", "content": [{"type": "refusal", "refusal": "I will not."}]});
    let (attempt, shown) = stream(&[delta("refusal", 0, "I will"), done(0, item), completed()]);
    assert_eq!((attempt.content, attempt.finish), (vec![text("I will not.")], Finish::Refusal));
    assert_eq!(shown, "I will not.");
}

/// Several events in one, as some servers forget the blank line between them.
#[test]
fn events_that_are_not_parted_are_read_one_by_one() {
    let (first, last) = (delta("output_text", 0, "a"), completed());
    let (attempt, _) = decode(&format!("data: {first}\ndata: {last}\n\n"));
    assert_eq!((attempt.content, attempt.ended), (vec![text("a")], Ended::Complete));
    let (attempt, _) = decode(&format!("data: {first}\n\ndata: {{\"type\":\"respo\n\n"));
    assert_eq!(failure(&attempt).0, ErrorClass::CutStream);
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-2i64..3).prop_map(Value::from),
        "(message|reasoning|function_call|web_search_call|error|failed|incomplete|a|)".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        let names = "(type|id|item|output_index|item_id|delta|response|status|output|error|content|summary|arguments|name|call_id|usage|text)";
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            proptest::collection::btree_map(names, inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Nothing that a server sends makes the decoder panic, and how it is cut does not matter.
    #[test]
    fn anything_is_survived(events in proptest::collection::vec((0usize..9, any_value()), 0..8), whole in any::<bool>()) {
        let kinds = [
            "response.output_item.added", "response.output_item.done", "response.output_text.delta",
            "response.function_call_arguments.delta", "response.reasoning_text.delta", "response.completed",
            "response.failed", "error", "response.x",
        ];
        let events: Vec<Value> = events.into_iter().map(|(kind, mut value)| {
            if let Some(fields) = value.as_object_mut() {
                fields.insert("type".to_owned(), json!(kinds[kind]));
            }
            value
        }).collect();
        let body = if whole { events.iter().map(Value::to_string).collect() } else { events.iter().map(event).collect::<String>() };
        decode(&body);
    }
}
