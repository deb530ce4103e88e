//! Small answers over Chat Completions, each with one oddity seen in the field, cut in every way.

#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use mainstay_model::Attempt;
use mainstay_model::chat::decode::ChatDecoder;
use mainstay_model::decoder::{Close, Feed, Progress};
use mainstay_session::message::{Content, Ended, ErrorClass, Finish, ToolCall, Usage};
use proptest::prelude::*;
use serde_json::{Value, json};

use common::answers::{self, class, text};

#[test]
fn text_reasoning_and_usage_come_out_in_order() {
    let attempt = stream(&[
        delta(json!({"role": "assistant", "content": ""})),
        delta(json!({"reasoning_content": "I "})),
        delta(json!({"reasoning_content": "think"})),
        delta(json!({"content": "Grüße, "})),
        delta(json!({"content": "😀"})),
        finish("stop"),
        json!({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 3}}}),
    ]);
    let opaque = Some(r#"{"reasoning_content":"I think"}"#.to_owned());
    assert_eq!(
        attempt,
        Attempt {
            content: vec![Content::Reasoning { text: "I think".to_owned(), opaque }, text("Grüße, 😀")],
            finish: Finish::EndTurn,
            usage: Some(Usage { input_tokens: 9, cached_tokens: 3, output_tokens: 4, ..Usage::default() }),
            ended: Ended::Complete,
            retry_after: None,
        }
    );
}

/// H08: also with bytes that are not UTF-8, and characters cut in two.
#[test]
fn line_ends_and_comments_do_not_matter() {
    let body = format!(": hello\n\n{}data: [DONE]\n\n", event(&delta(json!({"content": "añb"})), "\n"));
    let plain = decode_all_ways(body.as_bytes());
    assert_eq!(plain.content, [text("añb")]);
    for (from, to) in [("\n", "\r\n"), ("\n", "\r"), (": hello\n\n", "\u{feff}"), ("data: ", "data:")] {
        assert_eq!(decode_all_ways(body.replace(from, to).as_bytes()), plain, "{from:?} as {to:?}");
    }
    let broken =
        [&b"data: {\"choices\":[{\"delta\":{\"content\":\"a\xf0\x9fb\"}}]}\n\n"[..], b"data: [DONE]"]
            .concat();
    assert_eq!(decode_all_ways(&broken).content, [text("a\u{fffd}b")]);
}

/// H09
#[test]
fn pings_of_any_kind_are_no_content() {
    let mut feed = Feed::new(ChatDecoder::default());
    let mut push = |bytes: &str| feed.push(bytes.as_bytes(), &mut |_| {});
    for ping in [": PROCESSING\n\n", "data: : PROCESSING\n\n", "event: ping\n\n", "data:\n\n", "data: {}\n\n"]
    {
        assert_eq!(push(ping), Progress::Nothing, "{ping:?}");
    }
    assert_eq!(push(&event(&delta(json!({"role": "assistant", "content": ""})), "\n")), Progress::Nothing);
    assert_eq!(push(&event(&delta(json!({"content": "a"})), "\n")), Progress::Content);
    assert_eq!(push(&event(&finish("stop"), "\n")), Progress::Finished);
    assert_eq!(push(": PROCESSING\n\n"), Progress::Nothing);
    assert_eq!(push("data: [DONE]\n\n"), Progress::Done);
    assert_eq!(feed.close(Close::End, &mut |_| {}).ended, Ended::Complete);
}

/// The id, name and arguments of a call.
type Call = (&'static str, &'static str, &'static str);

/// H03, H04, H07: each row is a list of pieces and the calls that they are.
#[test]
fn pieces_of_calls_find_their_call() {
    let call = |index: Value, id: &str, name: &str, arguments: Value| {
        let mut call = json!({"index": index, "id": id, "function": {"name": name, "arguments": arguments}});
        if call["index"] == "none" {
            call.as_object_mut().unwrap().remove("index");
        }
        call
    };
    let (a, b) = (r#"{"path":"a"}"#, r#"{"path":"b"}"#);
    let both = [("A", "read", a), ("B", "read", b)];
    let rows: Vec<(&str, Vec<Value>, Vec<Call>)> = vec![
        (
            "in pieces",
            vec![
                call(json!(0), "A", "read", json!("")),
                call(json!(0), "", "", json!("{\"path\"")),
                call(json!(0), "", "", json!(":\"a\"}")),
                call(json!(1), "B", "read", json!(b)),
            ],
            both.to_vec(),
        ),
        (
            "interleaved",
            vec![
                call(json!(0), "A", "read", json!("{\"path\"")),
                call(json!(1), "B", "read", json!("{\"path\"")),
                call(json!(0), "", "", json!(":\"a\"}")),
                call(json!(1), "", "", json!(":\"b\"}")),
            ],
            both.to_vec(),
        ),
        (
            "one index for all",
            vec![call(json!(0), "A", "read", json!(a)), call(json!(0), "B", "read", json!(b))],
            both.to_vec(),
        ),
        (
            "one index for all, in pieces",
            vec![
                call(json!(0), "A", "read", json!(a)),
                call(json!(0), "B", "read", json!("")),
                call(json!(0), "", "", json!("{\"path\"")),
                call(json!(0), "", "", json!(":\"b\"}")),
            ],
            both.to_vec(),
        ),
        (
            "one index, no ids",
            vec![call(json!(0), "", "read", json!(a)), call(json!(0), "", "read", json!(b))],
            vec![("", "read", a), ("", "read", b)],
        ),
        (
            "one index and id, two names",
            vec![call(json!(0), "A", "read", json!(a)), call(json!(0), "A", "list", json!(b))],
            vec![("A", "read", a), ("A", "list", b)],
        ),
        (
            "index -1",
            vec![call(json!(-1), "A", "read", json!(a)), call(json!(-1), "B", "read", json!(b))],
            both.to_vec(),
        ),
        (
            "no index",
            vec![call(json!("none"), "A", "read", json!(a)), call(json!("none"), "B", "read", json!(b))],
            both.to_vec(),
        ),
        (
            "no index, in pieces",
            vec![
                call(json!("none"), "A", "read", json!("{\"path\"")),
                call(json!("none"), "", "", json!(":\"a\"}")),
            ],
            vec![("A", "read", a)],
        ),
        (
            "id and name with every piece",
            vec![
                call(json!(0), "A", "read", json!("{\"path\"")),
                call(json!(0), "A", "read", json!(":\"a\"}")),
            ],
            vec![("A", "read", a)],
        ),
        (
            "a new id with every piece",
            vec![
                call(json!(0), "A", "read", json!("{\"path\"")),
                call(json!(0), "X", "read", json!(":\"a\"}")),
            ],
            vec![("A", "read", a)],
        ),
        (
            "everything twice",
            vec![call(json!(0), "A", "read", json!(a)), call(json!(0), "A", "read", json!(a))],
            vec![("A", "read", a)],
        ),
        (
            "arguments twice",
            vec![call(json!(0), "A", "read", json!(a)), call(json!(0), "", "", json!(a))],
            vec![("A", "read", a)],
        ),
        (
            "an empty object first",
            vec![
                call(json!(0), "A", "read", json!({})),
                call(json!(0), "", "", json!("{\"path\"")),
                call(json!(0), "", "", json!(":\"a\"}")),
            ],
            vec![("A", "read", a)],
        ),
        ("an object", vec![call(json!(0), "A", "read", json!({"path": "a"}))], vec![("A", "read", a)]),
        ("null", vec![call(json!(0), "A", "read", Value::Null)], vec![("A", "read", "")]),
    ];
    for (name, pieces, expected) in rows {
        let mut chunks: Vec<Value> =
            pieces.into_iter().map(|piece| delta(json!({"tool_calls": [piece]}))).collect();
        chunks.push(finish("tool_calls"));
        let attempt = stream(&chunks);
        let expected: Vec<Content> =
            expected.into_iter().map(|(id, name, args)| called(id, name, args)).collect();
        assert_eq!(attempt.content, expected, "{name}");
        assert_eq!((attempt.finish, attempt.ended), (Finish::ToolCalls, Ended::Complete), "{name}");
    }
}

/// I02
#[test]
fn extra_content_is_kept_as_it_came() {
    let raw = r#"{ "google": {"thought_signature":"sig\u002f+=", "n": 1.0} }"#;
    let body = format!(
        "data: {{\"choices\":[{{\"delta\":{{\"tool_calls\":[{{\"index\":0,\"id\":\"A\",\"extra_content\":{raw},\
         \"function\":{{\"name\":\"read\",\"arguments\":\"{{}}\"}}}}]}},\"finish_reason\":\"tool_calls\"}}]}}\n\n"
    );
    let attempt = decode_all_ways(body.as_bytes());
    assert_eq!(attempt.content[0].as_call().unwrap().opaque, Some(format!("{{\"extra_content\":{raw}}}")));
}

/// I01
#[test]
fn reasoning_details_are_kept_as_they_came() {
    let first = r#"{"type":"reasoning.text","text":"why","index":0}"#;
    let second = r#"{"type":"reasoning.encrypted", "data":"abc=" }"#;
    let chunk = |detail: &str| {
        format!("data: {{\"choices\":[{{\"delta\":{{\"reasoning_details\":[{detail}]}}}}]}}\n\n")
    };
    let body = chunk(first) + &chunk(second) + "data: [DONE]\n\n";
    let opaque = Some(format!("{{\"reasoning_details\":[{first},{second}]}}"));
    assert_eq!(
        decode_all_ways(body.as_bytes()).content,
        [Content::Reasoning { text: "why".to_owned(), opaque }]
    );
}

/// D17: the halves may also be cut apart by a chunk without text.
#[test]
fn surrogate_pairs_cut_in_two_are_joined_and_lone_halves_replaced() {
    for (pieces, joined) in [
        (vec![r"a\ud83d", r"\ude00b"], "a😀b"),
        (vec![r"a\ud83d", "", r"\ude00b"], "a😀b"),
        (vec![r"\ud83d\ude00"], "😀"),
        (vec![r"a\ud83d", "b"], "a\u{fffd}b"),
        (vec![r"a\ud83d"], "a\u{fffd}"),
        (vec![r"\ude00\ud83d\ud83d\ude00"], "\u{fffd}\u{fffd}😀"),
        (vec![r"\\ud83d\n\u00e9"], "\\ud83d\né"),
    ] {
        let text_chunk =
            |piece: &&str| format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{piece}\"}}}}]}}\n\n");
        let body: String = pieces.iter().map(text_chunk).collect();
        let attempt = decode_all_ways((body + "data: [DONE]\n\n").as_bytes());
        assert_eq!(attempt.content, [text(joined)], "{pieces:?}");
        let call_chunk = |piece: &&str| {
            format!(
                "data: {{\"choices\":[{{\"delta\":{{\"tool_calls\":[{{\"index\":0,\"function\":{{\"arguments\":\"{piece}\"}}}}]}}}}]}}\n\n"
            )
        };
        let body: String = pieces.iter().map(call_chunk).collect();
        let attempt = decode_all_ways((body + "data: [DONE]\n\n").as_bytes());
        assert_eq!(attempt.content, [called("", "", joined)], "{pieces:?}");
    }
}

/// H01, H06, H14
#[test]
fn what_the_finish_reason_means_depends_on_the_calls() {
    let half = json!({"tool_calls": [{"index": 0, "id": "A", "function": {"name": "write", "arguments": "{\"path\":"}}]});
    for (piece, reason, expected) in [
        (half.clone(), json!("stop"), Finish::ToolCalls),
        (half.clone(), json!("length"), Finish::MaxTokens),
        (half.clone(), json!("tool_call"), Finish::ToolCalls),
        (half, json!("something new"), Finish::ToolCalls),
        (json!({"content": "a"}), json!("stop"), Finish::EndTurn),
        (json!({"content": "a"}), json!("content_filter"), Finish::Refusal),
        (json!({"content": "a"}), json!(""), Finish::EndTurn),
        (json!({"content": "a"}), json!("something new"), Finish::Unknown),
        (json!({"refusal": "no"}), json!("stop"), Finish::Refusal),
    ] {
        let attempt =
            stream(&[delta(piece.clone()), json!({"choices": [{"delta": {}, "finish_reason": reason}]})]);
        assert_eq!((attempt.finish, attempt.ended), (expected, Ended::Complete), "{piece} {reason}");
    }
    let rewritten =
        json!({"choices": [{"finish_reason": "tool_calls", "native_finish_reason": "max_tokens"}]});
    assert_eq!(stream(&[delta(json!({"content": "a"})), rewritten]).finish, Finish::MaxTokens);
}

/// H05
#[test]
fn a_second_finish_changes_nothing_and_may_bring_usage() {
    let whole =
        json!({"tool_calls": [{"index": 0, "id": "A", "function": {"name": "read", "arguments": "{}"}}]});
    let second = json!({"choices": [{"delta": {}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 1, "completion_tokens": 2}});
    let attempt = stream(&[delta(whole), finish("tool_calls"), second]);
    assert_eq!(attempt.content, [called("A", "read", "{}")]);
    assert_eq!(attempt.finish, Finish::ToolCalls);
    assert_eq!(
        attempt.usage,
        Some(Usage { input_tokens: 1, cached_tokens: 0, output_tokens: 2, ..Usage::default() })
    );
    let after_a_cut = stream(&[delta(json!({"content": "a"})), finish("length"), finish("stop")]);
    assert_eq!(after_a_cut.finish, Finish::MaxTokens);
}

/// H01: with what had come, which is the only thing that may be done with it.
#[test]
fn a_stream_without_an_end_is_cut() {
    let half = event(&delta(json!({"content": "Hel"})), "\n");
    let attempt = decode_all_ways(half.as_bytes());
    assert_eq!(attempt.content, [text("Hel")]);
    assert_eq!(class(&attempt), Some(ErrorClass::CutStream));
    for body in
        ["", "\n\n", ": ping\n\n", "data: [DONE]\n\n", "{\"choices\":[{\"mess", "data: {\"choices\":[{\"del"]
    {
        let attempt = decode_all_ways(body.as_bytes());
        assert_eq!((class(&attempt), attempt.content), (Some(ErrorClass::CutStream), vec![]), "{body:?}");
    }
    let damaged = format!("{half}data: {{\"choices\":[{{\"delta\":{{\n\n{}", event(&finish("stop"), "\n"));
    assert_eq!(class(&decode_all_ways(damaged.as_bytes())), Some(ErrorClass::CutStream));
    let cut_after_the_end = format!("{half}{}data: {{\"usage\":", event(&finish("stop"), "\n"));
    assert_eq!(class(&decode_all_ways(cut_after_the_end.as_bytes())), None);
}

/// H10
#[test]
fn an_error_in_a_stream_is_an_error() {
    let half = event(&delta(json!({"content": "Hel"})), "\n");
    for (error, expected) in [
        ("data: {\"error\":{\"message\":\"quota exceeded\"}}\n\n", ErrorClass::Quota),
        ("data: {\"choices\":[],\"error\":{\"message\":\"x\",\"code\":502}}\n\n", ErrorClass::Overload),
        ("event: error\ndata: rate limit reached\n\n", ErrorClass::Rate),
        ("data: {\"choices\":[{\"delta\":{},\"error\":{\"code\":401}}]}\n\n", ErrorClass::Credentials),
        ("data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"error\"}]}\n\n", ErrorClass::Overload),
        ("data: {\"detail\":\"overloaded\"}\n\n", ErrorClass::Overload),
    ] {
        let attempt = decode_all_ways(format!("{half}{error}data: [DONE]\n\n").as_bytes());
        assert_eq!((class(&attempt), attempt.content), (Some(expected), vec![text("Hel")]), "{error}");
    }
    let bare = decode_all_ways(format!("{half}{{\n\"error\": {{\"code\": 503}}\n}}\n").as_bytes());
    assert_eq!(class(&bare), Some(ErrorClass::Overload));
    let waiting = decode_all_ways(b"data: {\"error\":{\"message\":\"rate limit; try again in 2s\"}}\n\n");
    assert_eq!(waiting.retry_after, Some(std::time::Duration::from_secs(2)));
}

/// I07: an answer without a stream, in the right shape and in others.
#[test]
fn a_whole_json_answer_is_decoded_too() {
    let message = json!({"content": "a", "tool_calls": [{"id": "A", "function": {"name": "read", "arguments": {"n": [1, 2]}}}]});
    let usage = json!({"prompt_tokens": 5, "completion_tokens": 7});
    let answer =
        json!({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage});
    for body in [answer.to_string(), format!("\u{feff}\n{answer:#}\n")] {
        let attempt = decode_all_ways(body.as_bytes());
        assert_eq!(attempt.content, [text("a"), called("A", "read", r#"{"n":[1,2]}"#)]);
        assert_eq!((attempt.finish, attempt.ended), (Finish::ToolCalls, Ended::Complete));
        assert_eq!(
            attempt.usage,
            Some(Usage { input_tokens: 5, cached_tokens: 0, output_tokens: 7, ..Usage::default() })
        );
    }
    for (body, expected) in [
        (r#"{"data":{"choices":[]},"success":true}"#, ErrorClass::BadRequest),
        (r#"{"error":"model is overloaded"}"#, ErrorClass::Overload),
        (r#"[{"error":{"code":429,"status":"RESOURCE_EXHAUSTED"}}]"#, ErrorClass::Rate),
    ] {
        assert_eq!(class(&decode_all_ways(body.as_bytes())), Some(expected), "{body}");
    }
    let envelope = decode_all_ways(br#"{"data":{},"success":true}"#);
    assert!(matches!(envelope.ended, Ended::Failed { message, .. } if message.contains("success")));
}

/// The longest answers come in very many pieces: none may cost a look at all those before it.
#[test]
fn many_pieces_are_as_fast_as_few() {
    let details = |more: &str| {
        delta(
            json!({"reasoning_details": [{"type": "reasoning.text", "index": 0, "text": format!("{more}{}", "x".repeat(60))}]}),
        )
    };
    let call = |arguments: &str| {
        delta(
            json!({"tool_calls": [{"index": 0, "id": "A", "function": {"name": "write", "arguments": arguments}}]}),
        )
    };
    let mut feed = Feed::new(ChatDecoder::default());
    let mut push = |chunk: &Value| {
        feed.push(event(chunk, "\n").as_bytes(), &mut |_| {});
    };
    push(&call("{\"content\":\""));
    for _ in 0..8_000 {
        push(&details("{"));
        push(&call(&format!("{}}}", "{ ".repeat(30))));
        push(&call(&format!("{{{}}}", " ".repeat(30))));
    }
    push(&call("\"}"));
    push(&finish("stop"));
    let attempt = feed.close(Close::End, &mut |_| {});
    let [Content::Call(call), Content::Reasoning { text, opaque }] = attempt.content.as_slice() else {
        panic!("{} blocks", attempt.content.len())
    };
    assert_eq!(text.len(), 8_000 * 61);
    assert!(opaque.as_ref().unwrap().len() < text.len() + 200);
    assert!(mainstay_session::arguments::parse_arguments(&call.arguments).is_ok());
}

#[test]
fn an_answer_without_bounds_is_cut() {
    let comment = format!(":{}\n", "x".repeat(1024 * 1024 - 2));
    let piece = " ".repeat(1024 * 1024);
    for (begin, more, megabytes) in [(": ping\n", comment, 64), ("{", piece, 16)] {
        let mut feed = Feed::new(ChatDecoder::default());
        feed.push(begin.as_bytes(), &mut |_| {});
        let pushes = (1..100).find(|_| {
            feed.push(more.as_bytes(), &mut |_| {});
            feed.is_too_long()
        });
        assert_eq!(pushes, Some(megabytes), "{begin}");
        assert_eq!(class(&feed.close(Close::End, &mut |_| {})), Some(ErrorClass::CutStream));
    }
}

/// Parts of answers, whole and broken, that the property puts together.
const PARTS: &[&[u8]] = &[
    b"data: ",
    b"\n\n",
    b"\r\n",
    b"\r",
    b": ping\n",
    b"event: error\n",
    b"[DONE]",
    b"{\"choices\":[{\"delta\":{\"content\":\"a\xc3\xb1\\ud83d\"}}]}",
    b"{\"choices\":[{\"delta\":{\"content\":\"\\ude00\",\"reasoning\":\"r\"}}]}",
    b"{\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"A\",\"function\":{\"name\":\"n\",\"arguments\":\"{\\\"a\\\":\"}}]}}]}",
    b"{\"choices\":[{\"delta\":{\"tool_calls\":[{\"function\":{\"arguments\":\"1}\"}}]},\"finish_reason\":\"stop\"}]}",
    b"{\"choices\":[{\"message\":{\"content\":[{\"type\":\"text\",\"text\":\"m\"}]},\"finish_reason\":null}]}",
    b"{\"error\":{\"message\":\"quota\"}}",
    b"{\"usage\":{\"prompt_tokens\":1e3}}",
    b"{\"choices\":[{\"delta\":{\"tool_calls\":[{\"function\":{\"arguments\":{\"x\": 1}}}]}}]}",
    b"{",
    b"[",
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
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

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

    /// D17: JSON text in any pieces, as if a server had cut between any two escapes.
    #[test]
    fn text_cut_between_any_two_units_is_the_same_text(text in "[a😀é\u{10ffff}\"\\\\\n]{0,12}", cut in 1_usize..4) {
        let units: Vec<String> = text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
        let chunks = units.chunks(cut).map(|units| units.concat());
        let body: String = chunks.map(|piece| format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{piece}\"}}}}]}}\n\n")).collect();
        let (attempt, shown) = decode(&[body.as_bytes()]);
        let got: String = attempt.content.iter().filter_map(Content::as_text).collect();
        prop_assert_eq!((&got, &shown), (&text, &text));
    }
}

fn delta(delta: Value) -> Value {
    json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
}

fn finish(reason: &str) -> Value {
    json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

fn event(chunk: &Value, line_end: &str) -> String {
    format!("data: {chunk}{line_end}{line_end}")
}

fn stream(chunks: &[Value]) -> Attempt {
    let body: String = chunks.iter().map(|chunk| event(chunk, "\n")).collect();
    decode_all_ways((body + "data: [DONE]\n\n").as_bytes())
}

fn decode_all_ways(body: &[u8]) -> Attempt {
    answers::decode_all_ways::<ChatDecoder>(body)
}

fn decode(pieces: &[&[u8]]) -> (Attempt, String) {
    answers::decode::<ChatDecoder>(pieces)
}

fn called(id: &str, name: &str, arguments: &str) -> Content {
    let (id, name, arguments) = (id.to_owned(), name.to_owned(), arguments.to_owned());
    Content::Call(ToolCall { id, name, arguments, opaque: None })
}
