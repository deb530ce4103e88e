//! Small answers of Gemini, each with one oddity of the format, cut in every way.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

mod common;

use std::time::Duration;

use mainstay_model::decoder::{Close, Feed, Progress};
use mainstay_model::gemini::decode::GeminiDecoder;
use mainstay_model::Attempt;
use mainstay_session::message::{Content, Ended, ErrorClass, Finish, ToolCall, Usage};
use proptest::prelude::*;
use serde_json::{Value, json};

use common::answers::{self, class, text};

#[test]
fn thoughts_text_calls_and_usage_come_out_in_order() {
    let attempt = stream(&[
        parts(json!([{"text": "I ", "thought": true}])),
        parts(json!([{"text": "think", "thought": true}, {"text": "Grüße, "}])),
        parts(json!([{"text": "😀"}, {"functionCall": {"name": "read", "args": {"path": "a"}, "id": "c1"}}])),
        json!({"usageMetadata": {"promptTokenCount": 9, "cachedContentTokenCount": 3, "thoughtsTokenCount": 5}}),
        finish("STOP"),
        json!({"usageMetadata": {"candidatesTokenCount": 4}}),
    ]);
    assert_eq!(
        attempt,
        Attempt {
            content: vec![
                thought("I think", None),
                text("Grüße, 😀"),
                called("c1", "read", r#"{"path":"a"}"#, None),
            ],
            finish: Finish::ToolCalls,
            usage: Some(Usage { input_tokens: 9, cached_tokens: 3, output_tokens: 9, ..Usage::default() }),
            ended: Ended::Complete,
            retry_after: None,
        }
    );
}

/// I02: a signature stays with the part that it came on, whatever kind of part that is.
#[test]
fn signatures_are_kept_with_their_parts() {
    let bare = r#"{"text": "",  "thoughtSignature":"a\/b"}"#;
    let blank = r#"{"text":"\n","thoughtSignature":"s3"}"#;
    let thinking = r#"{"thought":true,"text":"t","thoughtSignature":"s4"}"#;
    let code = r#"{"executableCode": {"code": "1"}, "thoughtSignature": "s5"}"#;
    let parts = [
        r#"{"text":"Hel"}"#,
        r#"{"text":"lo","thoughtSignature":"s1"}"#,
        r#"{"text":"!"}"#,
        bare,
        blank,
        thinking,
        code,
        r#"{"codeExecutionResult":{"output":"1"}}"#,
        r#"{"thoughtSignature":"s6"}"#,
        r#"{"functionCall":{"name":"read"},"thoughtSignature":"s7"}"#,
        r#"{"text":"","thoughtSignature":""}"#,
    ];
    let chunk = format!(
        r#"{{"candidates":[{{"content":{{"parts":[{}]}},"finishReason":"STOP"}}]}}"#,
        parts.join(",")
    );
    let attempt = decode_all_ways(format!("data: {chunk}\r\n\r\n").as_bytes());
    assert_eq!(
        attempt.content,
        [
            text("Hel"),
            text("lo"),
            thought("", Some(r#"{"thoughtSignature":"s1"}"#)),
            text("!"),
            thought("", Some(bare)),
            text("\n"),
            thought("", Some(blank)),
            thought("t", Some(thinking)),
            Content::Opaque { raw: code.to_owned() },
            Content::Opaque { raw: r#"{"codeExecutionResult":{"output":"1"}}"#.to_owned() },
            thought("", Some(r#"{"thoughtSignature":"s6"}"#)),
            called("", "read", "", Some(r#"{"thoughtSignature":"s7"}"#)),
        ]
    );
    assert_eq!((attempt.finish, attempt.ended), (Finish::ToolCalls, Ended::Complete));
}

/// H07, H14: arguments are kept as received, and absent ones are absent.
#[test]
fn arguments_are_kept_as_received() {
    let pretty = "{\n  \"b\": 1,\n  \"a\": \"\\u00e9\"\n}";
    for (args, kept) in
        [(format!(",\"args\":{pretty}"), pretty), (",\"args\":null".to_owned(), ""), (String::new(), "")]
    {
        let call = format!(r#"{{"functionCall":{{"name":"read"{args}}}}}"#);
        let body = format!(
            "[{{\"candidates\":[{{\"content\":{{\"parts\":[{call}]}},\"finishReason\":\"STOP\"}}]}}]"
        );
        assert_eq!(decode_all_ways(body.as_bytes()).content, [called("", "read", kept, None)]);
    }
}

/// H03, H04: pieces of calls with and without an end, between parallel ones, with text between.
#[test]
fn streamed_arguments_find_their_call() {
    let call = |call: Value| json!({"functionCall": call});
    let piece = |path: &str, value: &str, more: bool| json!({"partialArgs": [{"jsonPath": path, "stringValue": value, "willContinue": more}], "willContinue": true});
    let attempt = stream(&[
        parts(
            json!([call(json!({"name": "write", "willContinue": true, "id": "a"})), {"text": "meanwhile"}]),
        ),
        parts(json!([call(piece("$.path", "a.", true)), call(piece("$.path", "rs", false))])),
        // Neither an end nor a new id: only the name tells that another call begins.
        parts(json!([
            call(json!({"name": "write", "willContinue": true})),
            call(piece("$.list[0]", "x", false))
        ])),
        parts(json!([call(json!({})), call(json!({}))])),
        parts(json!([call(json!({"name": "read", "willContinue": true, "id": "b"}))])),
        parts(json!([call(
            json!({"name": "read", "id": "b", "partialArgs": [{"jsonPath": "$.n", "numberValue": 7}]})
        )])),
        finish("STOP"),
    ]);
    assert_eq!(
        attempt.content,
        [
            called("a", "write", r#"{"path":"a.rs"}"#, None),
            text("meanwhile"),
            called("", "write", r#"{"list":["x"]}"#, None),
            called("b", "read", r#"{"n":7}"#, None),
        ]
    );
}

/// H01, H06: how an answer ended, by its finish reason and by what is in it.
#[test]
fn the_end_follows_from_the_reason_and_the_content() {
    use ErrorClass::{BadRequest, CutStream, Overload};
    let said = || parts(json!([{"text": "a"}]));
    let call = || parts(json!([{"functionCall": {"name": "read", "args": {}}}]));
    for (content, reason, expected) in [
        (Some(said()), "STOP", Ok(Finish::EndTurn)),
        (None, "STOP", Ok(Finish::EndTurn)),
        (Some(call()), "STOP", Ok(Finish::ToolCalls)),
        (Some(call()), "MAX_TOKENS", Ok(Finish::MaxTokens)),
        (None, "MAX_TOKENS", Ok(Finish::MaxTokens)),
        (Some(said()), "SAFETY", Ok(Finish::Refusal)),
        (None, "PROHIBITED_CONTENT", Ok(Finish::Refusal)),
        (Some(said()), "RECITATION", Ok(Finish::Refusal)),
        (Some(said()), "OTHER", Ok(Finish::Unknown)),
        (Some(call()), "UNEXPECTED_TOOL_CALL", Ok(Finish::Unknown)),
        (Some(said()), "SOMETHING_NEW", Ok(Finish::Unknown)),
        (None, "OTHER", Err(Overload)),
        (None, "UNEXPECTED_TOOL_CALL", Err(Overload)),
        (Some(said()), "MALFORMED_FUNCTION_CALL", Err(Overload)),
        (None, "MALFORMED_FUNCTION_CALL", Err(Overload)),
        (None, "MISSING_THOUGHT_SIGNATURE", Err(BadRequest)),
        (Some(said()), "", Err(CutStream)),
        (None, "", Err(CutStream)),
    ] {
        let chunks: Vec<Value> = content.into_iter().chain([finish(reason)]).collect();
        let attempt = stream(&chunks);
        let got = match class(&attempt) {
            Some(class) => Err(class),
            None => Ok(attempt.finish),
        };
        assert_eq!(got, expected, "{chunks:?}");
    }
    let mut malformed = finish("MALFORMED_FUNCTION_CALL");
    malformed["candidates"][0]["finishMessage"] = json!("Malformed function call: print(read");
    assert!(message(&stream(&[malformed])).contains("print(read"));
    let blocked = stream(&[
        json!({"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 7}}),
    ]);
    assert_eq!((blocked.finish, blocked.ended), (Finish::Refusal, Ended::Complete));
    assert_eq!(blocked.usage.unwrap().input_tokens, 7);
}

/// H10: an error as an event, as bare JSON between events, in an array, and as a whole answer.
#[test]
fn errors_inside_an_answer_are_errors() {
    let error = json!({"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "slow",
        "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "27s"}]}});
    let said = parts(json!([{"text": "Hel"}]));
    let event = format!("data: {said}\r\n\r\n");
    for (body, content) in [
        (format!("{event}data: {error}\r\n\r\n"), vec![text("Hel")]),
        (format!("{event}event: error\r\ndata: [{error}]\r\n\r\n"), vec![text("Hel")]),
        (format!("{event}{error:#}\r\n\r\n"), vec![text("Hel")]),
        (format!("{event}{error:#}\r\n{event}"), vec![text("Hel")]),
        (format!("[{said},\r\n{error:#}]"), vec![text("Hel")]),
        (error.to_string(), vec![]),
        (format!("[{error}]"), vec![]),
        (error["error"].to_string(), vec![]),
    ] {
        let attempt = decode_all_ways(body.as_bytes());
        assert_eq!(class(&attempt), Some(ErrorClass::Rate), "{body}");
        assert_eq!(attempt.retry_after, Some(Duration::from_secs(27)), "{body}");
        assert_eq!(attempt.content, content, "{body}");
    }
}

/// The server may leave the connection open after bare JSON: the error is seen when its last brace is.
#[test]
fn bare_json_between_events_is_seen_at_once() {
    let mut feed = Feed::new(GeminiDecoder::default());
    let mut push = |bytes: &str| feed.push(bytes.as_bytes(), &mut |_| {});
    assert_eq!(push(": ping\r\n\r\n"), Progress::Nothing);
    assert_eq!(push(&format!("data: {}\r\n\r\n", parts(json!([{"text": "a"}])))), Progress::Content);
    assert_eq!(push("{\r\n  \"error\": {\r\n \"code\": 503 }\r\n"), Progress::Nothing);
    assert_eq!(push("}"), Progress::Done);
}

/// H08, H09, I07: an answer whole, in an array, on lines, cut, and what is no answer.
#[test]
fn an_answer_without_a_stream_is_decoded_too() {
    let (one, two) = (parts(json!([{"text": "a"}])), parts(json!([{"text": "b"}])));
    let last = finish("STOP");
    for body in [
        format!("[{one}\r\n,\r\n{two:#},{last}]\r\n"),
        format!("{one}\n{two}\n{last}\n"),
        format!("\u{feff}[{one:#},{two},{last}"),
        format!("data: [{one},{two}]\n\ndata: {last}"),
        format!("data: {one}\ndata: {two}\n\ndata: {last}\n\ndata: [DONE]\n\n"),
    ] {
        let attempt = decode_all_ways(body.as_bytes());
        assert_eq!((attempt.content, attempt.ended), (vec![text("ab")], Ended::Complete), "{body}");
    }
    let cut = decode_all_ways(format!("[{one},{{\"candidates\":[").as_bytes());
    assert_eq!((class(&cut), cut.content), (Some(ErrorClass::CutStream), vec![text("a")]));
    for (body, expected) in [
        ("{}", ErrorClass::BadRequest),
        ("[]", ErrorClass::BadRequest),
        (r#"{"choices":[]}"#, ErrorClass::BadRequest),
        ("", ErrorClass::CutStream),
        ("data: {}\n\n", ErrorClass::CutStream),
        ("data: {\"candidates\":[{\n\n", ErrorClass::CutStream),
    ] {
        assert_eq!(class(&decode_all_ways(body.as_bytes())), Some(expected), "{body}");
    }
}

/// Nothing unknown fails a stream, and other candidates are not mixed in.
#[test]
fn what_is_not_known_is_passed_over() {
    let attempt = stream(&[
        json!({"modelVersion": "x", "new": [1, {"deep": null}]}),
        json!({"candidates": [{"index": 1, "content": {"parts": [{"text": "other"}]}}, {"index": 0, "safetyRatings": []}]}),
        json!({"candidates": [7, null, {"content": "text"}, {"content": {"parts": {"text": "x"}}}]}),
        parts(json!([{}, 7, null, {"text": 7}, {"text": null}, {"thought": true}, {"functionCall": null}])),
        parts(json!([{"text": "a", "new": 1}, {"newKind": {"x": 1}}, {"functionCall": "odd"}])),
        json!({"candidates": [{"finishReason": "STOP", "citationMetadata": {}}], "usageMetadata": {"promptTokenCount": "x"}}),
    ]);
    let opaque = |raw: &str| Content::Opaque { raw: raw.to_owned() };
    assert_eq!(
        attempt.content,
        [
            opaque(r#"{"functionCall":null}"#),
            text("a"),
            opaque(r#"{"newKind":{"x":1}}"#),
            opaque(r#"{"functionCall":"odd"}"#)
        ]
    );
    assert_eq!((attempt.ended, attempt.usage), (Ended::Complete, None));
}

/// The longest answers come in very many pieces: none may cost a look at all those before it.
#[test]
fn many_pieces_are_as_fast_as_few() {
    let mut feed = Feed::new(GeminiDecoder::default());
    let mut push = |chunk: Value| {
        feed.push(format!("data: {chunk}\r\n\r\n").as_bytes(), &mut |_| {});
    };
    push(parts(json!([{"functionCall": {"name": "write", "willContinue": true}}])));
    for place in 0..8_000 {
        let piece = json!({"partialArgs": [
            {"jsonPath": "$.content", "stringValue": "{}".repeat(20), "willContinue": true},
            {"jsonPath": format!("$.list[{place}]"), "numberValue": place},
        ], "willContinue": true});
        push(parts(json!([{"functionCall": piece}, {"text": "a"}, {"text": "t", "thoughtSignature": "s"}])));
    }
    push(finish("STOP"));
    let attempt = feed.close(Close::End, &mut |_| {});
    let Some(Content::Call(call)) = attempt.content.first() else { panic!("no call") };
    let arguments = mainstay_session::arguments::parse_arguments(&call.arguments).unwrap();
    assert_eq!(arguments["content"].as_str().unwrap().len(), 8_000 * 40);
    assert_eq!(arguments["list"].as_array().unwrap().len(), 8_000);
}

/// Parts of answers, whole and broken, that the property puts together.
const PARTS: &[&[u8]] = &[
    b"data: ",
    b"\n\n",
    b"\r\n",
    b"\r",
    b": ping\n",
    b"[DONE]",
    b"{\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"a\xc3\xb1\\ud83d\"}]}}]}",
    b"{\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"\\ude00\"},{\"text\":\"t\",\"thought\":true}]}}]}",
    b"{\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"\",\"thoughtSignature\":\"s\"}]},\"finishReason\":\"STOP\"}]}",
    b"{\"candidates\":[{\"content\":{\"parts\":[{\"functionCall\":{\"name\":\"n\",\"willContinue\":true}}]}}]}",
    b"{\"candidates\":[{\"content\":{\"parts\":[{\"functionCall\":{\"partialArgs\":[{\"jsonPath\":\"$.a[1]\",\"stringValue\":\"x\"}]}}]}}]}",
    b"{\"candidates\":[{\"content\":{\"parts\":[{\"functionCall\":{\"args\":{\"x\": 1}}}]}}]}",
    b"{\"promptFeedback\":{\"blockReason\":\"SAFETY\"}}",
    b"{\"error\":{\"message\":\"quota\"}}",
    b"{\"usageMetadata\":{\"promptTokenCount\":1e3}}",
    b"{",
    b"[",
    b",",
    b"]}",
    b"\"",
    b"\\",
    b"\xff",
    b"\xf0\x9f\x98",
    b"\xef\xbb\xbf",
    b"<",
    b" ",
];

proptest! {
    // There is no place for files of failed cases next to integration tests; a failure prints its case.
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 512, ..ProptestConfig::default() })]

    /// H08: any bytes in any pieces never panic, and give what they give in one piece.
    #[test]
    fn the_cuts_never_matter(
        parts in prop::collection::vec(prop::sample::select(PARTS), 0..20),
        noise in prop::collection::vec(any::<u8>(), 0..8),
        lengths in prop::collection::vec(1_usize..40, 1..8),
    ) {
        let mut body = parts.concat();
        body.extend(noise);
        let mut pieces = Vec::new();
        let mut rest = body.as_slice();
        for length in lengths.iter().cycle() {
            let (piece, left) = rest.split_at((*length).min(rest.len()));
            pieces.push(piece);
            rest = left;
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(decode(&pieces), decode(&[&body]));
    }
}

fn parts(parts: Value) -> Value {
    json!({"candidates": [{"content": {"role": "model", "parts": parts}}]})
}

fn finish(reason: &str) -> Value {
    json!({"candidates": [{"content": {"role": "model"}, "finishReason": reason}]})
}

fn stream(chunks: &[Value]) -> Attempt {
    let body: String = chunks.iter().map(|chunk| format!("data: {chunk}\r\n\r\n")).collect();
    decode_all_ways(body.as_bytes())
}

fn decode_all_ways(body: &[u8]) -> Attempt {
    answers::decode_all_ways::<GeminiDecoder>(body)
}

fn decode(pieces: &[&[u8]]) -> (Attempt, String) {
    answers::decode::<GeminiDecoder>(pieces)
}

fn message(attempt: &Attempt) -> &str {
    match &attempt.ended {
        Ended::Failed { message, .. } => message,
        Ended::Complete | Ended::Cancelled => "",
    }
}

fn thought(text: &str, opaque: Option<&str>) -> Content {
    Content::Reasoning { text: text.to_owned(), opaque: opaque.map(str::to_owned) }
}

fn called(id: &str, name: &str, arguments: &str, opaque: Option<&str>) -> Content {
    let (id, name, arguments) = (id.to_owned(), name.to_owned(), arguments.to_owned());
    Content::Call(ToolCall { id, name, arguments, opaque: opaque.map(str::to_owned) })
}
