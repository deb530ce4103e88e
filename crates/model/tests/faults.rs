//! What goes wrong on the way, in every wire format: streams that are cut at any byte, that stall, that hold errors, frames
//! that are none, events twice. An attempt says honestly what came, and whole is only what is whole.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::borrow::Cow;
use std::time::Duration;

use mainstay_model::anthropic::decode::AnthropicDecoder;
use mainstay_model::chat::decode::ChatDecoder;
use mainstay_model::decoder::{Close, Decoder, Feed};
use mainstay_model::gemini::decode::GeminiDecoder;
use mainstay_model::responses::decode::ResponsesDecoder;
use mainstay_model::{Attempt, Delta};
use mainstay_session::message::{Content, Ended, ErrorClass};
use mainstay_session::request::{Message, Request};
use mainstay_testkit::speech::{Speech, Wire};
use mainstay_testkit::wire::{Reply, WireServer};
use tokio_util::sync::CancellationToken;

fn speech() -> Speech {
    let call = |id: &str, arguments: &str| (id.to_owned(), "write".to_owned(), arguments.to_owned());
    Speech {
        reasoning: "Hm, ñ.".to_owned(),
        text: "Hello 🦀".to_owned(),
        calls: vec![call("call_a", r#"{"path":"é.rs"}"#), call("call_b", r#"{"path":"b.rs"}"#)],
    }
}

fn decode(wire: Wire, body: &[u8]) -> (Attempt, String) {
    fn with<D: Decoder>(decoder: D, body: &[u8]) -> (Attempt, String) {
        let mut feed = Feed::new(decoder);
        let mut shown = String::new();
        let mut show = |delta: Delta<'_>| {
            if let Delta::Text(text) = delta {
                shown.push_str(text);
            }
        };
        feed.push(body, &mut show);
        (feed.close(Close::End, &mut show), shown)
    }
    match wire {
        Wire::Chat => with(ChatDecoder::default(), body),
        Wire::Anthropic => with(AnthropicDecoder::default(), body),
        Wire::Responses => with(ResponsesDecoder::default(), body),
        Wire::Gemini => with(GeminiDecoder::default(), body),
    }
}

fn text(attempt: &Attempt) -> String {
    attempt.content.iter().filter_map(Content::as_text).collect()
}

fn calls(attempt: &Attempt) -> Vec<(&str, &str)> {
    let calls = attempt.content.iter().filter_map(Content::as_call);
    calls.map(|call| (call.name.as_str(), call.arguments.as_str())).collect()
}

/// H01, H10, H11: an answer that is cut at any byte is a failed attempt with what had come, and never one whose calls may
/// run; only what may follow the answer can be missing from a whole one.
#[test]
fn a_stream_cut_at_any_byte_is_an_honest_attempt() {
    for wire in Wire::ALL {
        let body = wire.stream(&speech());
        let (whole, shown) = decode(wire, body.as_bytes());
        assert_eq!(whole.ended, Ended::Complete, "{wire:?}");
        assert_eq!((text(&whole).as_str(), shown.as_str()), ("Hello 🦀", "Hello 🦀"));
        assert_eq!(calls(&whole), [("write", r#"{"path":"é.rs"}"#), ("write", r#"{"path":"b.rs"}"#)]);
        let mut was_complete = false;
        for cut in 0..body.len() {
            let (attempt, shown) = decode(wire, &body.as_bytes()[..cut]);
            assert!("Hello 🦀".starts_with(&text(&attempt)), "{wire:?} cut at {cut}: {attempt:?}");
            assert_eq!(shown, text(&attempt), "{wire:?} cut at {cut}");
            match &attempt.ended {
                Ended::Complete => {
                    assert_eq!(attempt.content, whole.content, "{wire:?} cut at {cut}");
                    assert_eq!(attempt.finish, whole.finish, "{wire:?} cut at {cut}");
                    was_complete = true;
                }
                Ended::Failed { class, .. } => {
                    assert_eq!(*class, ErrorClass::CutStream, "{wire:?} cut at {cut}: {attempt:?}");
                    assert!(!was_complete, "{wire:?}: more bytes made less at {cut}");
                }
                Ended::Cancelled => panic!("{wire:?} cut at {cut}"),
            }
        }
    }
}

/// H10: an error between any two events is an error, until the answer is whole.
#[test]
fn an_error_between_any_two_events_is_an_error() {
    for wire in Wire::ALL {
        let reply = Reply::speech(wire, &speech());
        let mut failed = 0;
        for behind in 0..=reply.events() {
            let broken = reply.clone().with_event(behind, &wire.error_event("try later"));
            let (attempt, _) = decode(wire, broken.body());
            match &attempt.ended {
                Ended::Failed { class, message } => {
                    assert_eq!(*class, ErrorClass::Overload, "{wire:?} behind {behind}: {message}");
                    assert!(message.contains("try later"), "{wire:?} behind {behind}: {message}");
                    failed += 1;
                }
                Ended::Complete => assert_eq!(calls(&attempt).len(), 2, "{wire:?} behind {behind}"),
                Ended::Cancelled => panic!(),
            }
        }
        assert!(failed + 3 >= reply.events(), "{wire:?}: {failed} of {}", reply.events());
    }
}

/// H09: pings, comments, blank data and events of unknown kinds change nothing, wherever they stand.
#[test]
fn what_is_no_event_of_the_answer_changes_nothing() {
    for wire in Wire::ALL {
        let reply = Reply::speech(wire, &speech());
        let whole = decode(wire, reply.body());
        for noise in [
            ": ping\n\n",
            "event: ping\n\n",
            "data:\n\n",
            "data: {\"type\":\"ping\"}\n\n",
            "id: 7\nretry: 1\n\n",
        ] {
            for behind in 0..=reply.events() {
                let noisy = reply.clone().with_event(behind, noise);
                assert_eq!(decode(wire, noisy.body()), whole, "{wire:?}: {noise:?} behind {behind}");
            }
        }
    }
}

/// H10: an `error` that holds nothing, which some servers send along with every piece, is none in any wire format; one that
/// holds something is one in all of them, and so is an object that is nothing but an error.
#[test]
fn what_an_error_is_is_the_same_in_every_wire_format() {
    for wire in Wire::ALL {
        let reply = Reply::speech(wire, &speech());
        let whole = decode(wire, reply.body());
        let with =
            |json: &str| decode(wire, reply.clone().with_event(1, &format!("data: {json}\n\n")).body());
        for none in ["null", "\"\"", "{}", "false", "[]"] {
            let json = format!("{{\"error\":{none}}}");
            assert_eq!(with(&json), whole, "{wire:?}: {json}");
        }
        for json in [
            r#"{"error":"gone"}"#,
            r#"{"error":{"code":"gone"}}"#,
            r#"{"error":["gone"]}"#,
            r#"{"error":true,"message":"gone"}"#,
            r#"{"type":"error","message":"gone"}"#,
            r#"{"object":"error","message":"gone"}"#,
            r#"{"message":"gone","code":1,"status":"gone"}"#,
            r#"{"detail":[{"msg":"gone"}],"request_id":"r"}"#,
        ] {
            let (attempt, _) = with(json);
            let Ended::Failed { message, .. } = &attempt.ended else {
                panic!("{wire:?}: {json}: {attempt:?}")
            };
            assert!(message.contains("gone"), "{wire:?}: {json}: {message}");
        }
    }
}

/// H10: a frame that is no JSON is never passed over as if nothing were missing: the attempt fails, or nothing was lost.
#[test]
fn a_broken_frame_loses_nothing_in_silence() {
    for wire in Wire::ALL {
        let reply = Reply::speech(wire, &speech());
        let (whole, _) = decode(wire, reply.body());
        for behind in 0..=reply.events() {
            let broken = reply.clone().with_event(behind, "data: {\"choices\":[{\"del\n\n");
            let (attempt, _) = decode(wire, broken.body());
            let is_whole = attempt.ended == Ended::Complete;
            assert!(!is_whole || attempt.content == whole.content, "{wire:?} behind {behind}: {attempt:?}");
        }
    }
}

/// I07, H05, H11: an event that comes twice doubles no call; where it cannot be told from another piece of the same, the
/// arguments no longer parse, and nothing runs.
#[test]
fn an_event_that_comes_twice_doubles_no_call() {
    for wire in Wire::ALL {
        let reply = Reply::speech(wire, &speech());
        for place in 0..reply.events() {
            let twice = reply.clone().repeat_event(place);
            let (attempt, _) = decode(wire, twice.body());
            let runnable = calls(&attempt)
                .iter()
                .filter(|(_, arguments)| mainstay_session::arguments::parse_arguments(arguments).is_ok())
                .count();
            // Gemini's calls have no ids: two equal ones are two calls.
            let most = if wire == Wire::Gemini { 3 } else { 2 };
            assert!(runnable <= most, "{wire:?}, event {place} twice: {attempt:?}");
        }
    }
}

/// H03, I06: two calls of one id are two calls.
#[test]
fn two_calls_of_one_id_are_two_calls() {
    let mut speech = speech();
    speech.calls[1].0 = "call_a".to_owned();
    for wire in Wire::ALL {
        let (attempt, _) = decode(wire, wire.stream(&speech).as_bytes());
        assert_eq!(attempt.ended, Ended::Complete, "{wire:?}");
        assert_eq!(
            calls(&attempt),
            [("write", r#"{"path":"é.rs"}"#), ("write", r#"{"path":"b.rs"}"#)],
            "{wire:?}"
        );
    }
}

async fn ask(wire: Wire, reply: Reply, idle: Duration) -> Attempt {
    let server = WireServer::start([reply]).await.unwrap();
    let mut settings = wire.settings(&server.base_url());
    settings.idle_timeout = Some(idle);
    let model = wire.model(settings).unwrap();
    let messages = vec![Message::User { text: Cow::Borrowed("go"), pictures: Vec::new() }];
    let request = Request { system: "s", tools: &[], messages, previous: None, dropped_answers: 0 };
    let encoded = model.encode(&request);
    model.stream(&encoded, &mut |_| {}, &CancellationToken::new()).await
}

/// H15: a stall inside a long call ends by the idle limit, which is named, with what had come; pings do not prolong it.
#[tokio::test]
async fn a_stall_inside_a_call_ends_by_the_idle_limit() {
    let long = format!(r#"{{"path":"a","content":"{}"}}"#, "x".repeat(30_000));
    let speech = Speech { calls: vec![("call_a".to_owned(), "write".to_owned(), long)], ..speech() };
    for wire in Wire::ALL {
        let body = wire.stream(&speech);
        let inside = body.find("xxxx").unwrap() + 8_000;
        let attempt = ask(wire, Reply::stream(body).stall_after(inside), Duration::from_millis(60)).await;
        let Ended::Failed { class: ErrorClass::CutStream, message } = &attempt.ended else {
            panic!("{attempt:?}")
        };
        assert!(message.contains("idle_timeout"), "{wire:?}: {message}");
        assert_eq!(text(&attempt), "Hello 🦀", "{wire:?}");
    }
}

/// H11: a connection that breaks is a cut stream over HTTP too, at whatever event.
#[tokio::test]
async fn a_connection_that_breaks_is_a_cut_stream() {
    for wire in Wire::ALL {
        let body = wire.stream(&speech());
        for tenth in 1..9 {
            let cut = body.len() * tenth / 10;
            let attempt =
                ask(wire, Reply::stream(body.clone()).cut_after(cut), Duration::from_secs(20)).await;
            let (same, _) = decode(wire, &body.as_bytes()[..cut]);
            let is_cut = matches!(attempt.ended, Ended::Failed { class: ErrorClass::CutStream, .. });
            assert!(is_cut || same.ended == Ended::Complete, "{wire:?} at {cut}: {attempt:?}");
        }
    }
}
