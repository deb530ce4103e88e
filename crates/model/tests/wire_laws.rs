//! The laws of requests, tried on generated logs in every wire format: whatever a session can hold, each provider takes
//! the request that follows from it; it only grows; and what belongs to one model goes to no other.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

mod common;
#[path = "../../session/tests/common/mod.rs"]
mod sessions;

use std::sync::Arc;

use common::dialects::{ANTHROPIC, CHAT, Dialect, GEMINI, RESPONSES, dialects};
use mainstay_model::Encoded;
use mainstay_session::entry::Body;
use mainstay_session::message::{Content, ContentHash, Image, RequestMark};
use mainstay_session::request::{IMAGE_BYTES, Message, Request, request_with};
use mainstay_session::state::SessionState;
use proptest::prelude::*;
use sessions::{Op, Session, Written, any_ops, temp_dir};

/// A step of a session, and what decides about its model, its images and what of it is opaque.
type Step = (Op, u8);

fn any_steps(most: usize) -> impl Strategy<Value = Vec<Step>> {
    (any_ops(most), proptest::collection::vec(any::<u8>(), most))
        .prop_map(|(ops, dice)| ops.into_iter().zip(dice).collect())
}

/// Writes a session in which several models answered, each in its own format.
fn write_all(home: &std::path::Path, steps: &[Step]) -> Session {
    let mut session = Session::create(home);
    for (number, (op, die)) in steps.iter().enumerate() {
        let written = match op.at(session.state()) {
            Written::Entry(lane, mut body) => {
                dress(&mut body, number, *die);
                Written::Entry(lane, body)
            }
            other => other,
        };
        session.write(written);
    }
    session
}

fn dress(body: &mut Body, number: usize, die: u8) {
    match body {
        Body::Answer(answer) => {
            let format = usize::from(die) % FORMATS.len();
            // Now and then the model was spoken to in another format than today.
            let of = if die >= 240 { format + 1 } else { format };
            answer.model = FORMATS[of % FORMATS.len()].to_owned();
            for (place, block) in answer.content.iter_mut().enumerate() {
                make_opaque(block, FORMATS[format], &format!("{number}x{place}"), die);
            }
        }
        Body::UserPrompt(prompt) if die.is_multiple_of(5) => prompt.images = images(die),
        Body::ToolResult(result) if die.is_multiple_of(7) => result.images = images(die),
        _ => {}
    }
}

const FORMATS: [&str; 4] = [CHAT, ANTHROPIC, RESPONSES, GEMINI];

/// Puts in the place of an opaque value one that the format of a model really has. `secret-N` occurs nowhere else.
fn make_opaque(block: &mut Content, format: &str, n: &str, die: u8) {
    // A provider may write half of a surrogate pair, and whether it takes it back is not to be found out.
    let text = if die.is_multiple_of(11) { r"h\ud99cm" } else { r"h\u006dm" };
    let is_even = die.is_multiple_of(2);
    let reasoning = match format {
        CHAT if is_even => format!(r#"{{"reasoning_content":"{text} secret-{n}"}}"#),
        CHAT => {
            format!(
                r#"{{"reasoning_details":[{{"type":"reasoning.text","text":"{text}","signature":"secret-{n}"}}]}}"#
            )
        }
        ANTHROPIC => format!(r#"{{"type":"thinking","thinking":"{text}","signature":"secret-{n}"}}"#),
        RESPONSES => format!(
            r#"{{"id":"rs_{n}","type":"reasoning","summary":[{{"type":"summary_text","text":"{text}"}}],"encrypted_content":"secret-{n}"}}"#
        ),
        _ if is_even => format!(r#"{{"text":"{text}","thoughtSignature":"secret-{n}"}}"#),
        _ => format!(r#"{{"thoughtSignature":"secret-{n}"}}"#),
    };
    let own = match format {
        // Over Chat Completions no such block is ever read.
        CHAT => "{}".to_owned(),
        ANTHROPIC if is_even => format!(r#"{{ "type":"redacted_thinking","data":"secret-{n}" }}"#),
        ANTHROPIC => {
            format!(r#"{{"type":"server_tool_use","id":"secret-{n}","name":"web_search","input":{{}}}}"#)
        }
        RESPONSES if is_even => {
            format!(r#"{{"type":"message","role":"assistant","id":"secret-{n}","status":"completed"}}"#)
        }
        RESPONSES => format!(r#"{{"type":"web_search_call","id":"secret-{n}","status":"completed"}}"#),
        _ => format!(r#"{{"executableCode":{{"language":"PYTHON","code":"secret-{n}"}}}}"#),
    };
    let of_call = match format {
        CHAT => format!(r#"{{"extra_content":{{"google":{{"thought_signature":"secret-{n}"}}}}}}"#),
        ANTHROPIC => format!(r#"{{"tool_use":{{"caller":{{"type":"direct","of":"secret-{n}"}}}}}}"#),
        RESPONSES => format!(r#"{{"id":"fc_{n}","status":"completed","of":"secret-{n}"}}"#),
        _ => format!(r#"{{"thoughtSignature":"secret-{n}"}}"#),
    };
    match block {
        Content::Reasoning { opaque: Some(opaque), .. } => *opaque = reasoning,
        Content::Call(call) if call.opaque.is_some() => call.opaque = Some(of_call),
        Content::Opaque { raw } => *raw = own,
        Content::Reasoning { .. } | Content::Call(_) | Content::Text { .. } => {}
    }
}

/// Two images, of which a dozen are more than a request holds.
fn images(die: u8) -> Vec<Image> {
    let image = |n: u8| Image {
        media_type: "image/png".to_owned(),
        hash: ContentHash::of(&[die, n]),
        bytes: 1 << 20 << (die % 3),
    };
    vec![image(0), image(1)]
}

fn request(state: &SessionState) -> Request<'_> {
    request_with(state, &|image| Some(Arc::from(&image.hash.as_str()[..8])))
}

/// The states in which a request can be made: every call has a result.
fn borders(session: &Session) -> impl Iterator<Item = &SessionState> {
    session.states.iter().filter(|state| state.open_calls().is_empty())
}

fn write(dialect: &Dialect, state: &SessionState, previous: Option<&RequestMark>) -> Encoded {
    dialect.encode(&Request { previous, ..request(state) })
}

/// What an answer of `model` holds that only its provider understands, by its secret.
fn opaques(state: &SessionState) -> Vec<(String, String, String)> {
    let mut all = Vec::new();
    for step in state.history.iter().filter_map(|item| item.as_step()) {
        for block in &step.content {
            let raw = match block {
                Content::Reasoning { opaque: Some(raw), .. } | Content::Opaque { raw } => raw,
                Content::Call(call) => match &call.opaque {
                    Some(raw) => raw,
                    None => continue,
                },
                _ => continue,
            };
            let secret =
                raw.find("secret-").map(|at| raw[at..].chars().take_while(|c| !"\" ".contains(*c)).collect());
            all.extend(secret.map(|secret: String| (step.model.clone(), secret, raw.clone())));
        }
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    /// L10, T12, N05, B07, B08, D17, D18, I06, H12, H14: whatever a session can hold, in whichever formats its models
    /// spoke, every provider takes the request that follows.
    #[test]
    fn any_log_is_a_valid_request_in_every_format(steps in any_steps(30)) {
        let home = temp_dir();
        let session = write_all(home.path(), &steps);
        for state in &session.states {
            for dialect in dialects() {
                let encoded = write(&dialect, state, None);
                if let Err(why) = dialect.check(&encoded) {
                    return Err(TestCaseError::fail(why));
                }
            }
        }
    }

    /// T14, law 3, J03: the units of a request open those of the next, live and from the log, in every format.
    #[test]
    fn any_log_gives_requests_that_only_grow_in_every_format(steps in any_steps(40)) {
        let home = temp_dir();
        let session = write_all(home.path(), &steps);
        let (resumed, _) = mainstay_session::log::read(session.log.dir()).unwrap();
        for dialect in dialects() {
            let mut before: Option<(&SessionState, RequestMark)> = None;
            for state in borders(&session) {
                // A next segment and a rewind begin anew.
                let goes_on = |earlier: &SessionState| {
                    earlier.header == state.header && state.history.starts_with(&earlier.history)
                };
                let previous = before.as_ref().filter(|(earlier, _)| goes_on(earlier));
                let mark = write(&dialect, state, previous.map(|(_, mark)| mark)).mark;
                if let Some((_, previous)) = previous {
                    prop_assert_eq!(mark.shared, previous.units, "{}: {:#?}", dialect.name, request(state));
                }
                before = Some((state, mark));
            }
            let live = write(&dialect, session.log.state(), None);
            prop_assert_eq!(write(&dialect, &resumed, None), live);
        }
    }

    /// L10, D19, I01, I02: what only one provider understands goes back to its model byte for byte or not at all, and to
    /// no other model.
    #[test]
    fn what_belongs_to_one_model_goes_to_no_other(steps in any_steps(30)) {
        let home = temp_dir();
        let session = write_all(home.path(), &steps);
        let state = session.log.state();
        for dialect in dialects() {
            let body = String::from_utf8(write(&dialect, state, None).body).unwrap();
            for (model, secret, raw) in opaques(state) {
                let times = body.matches(&format!("{secret}\"")).count();
                if model != dialect.model {
                    prop_assert_eq!(times, 0, "{} of {} in {}", &secret, &model, dialect.name);
                } else if times > 0 && dialect.model == ANTHROPIC && !raw.starts_with(r#"{"tool_use"#) {
                    prop_assert!(body.contains(&raw), "{} is altered in {}", &raw, &body);
                }
            }
        }
    }

    /// C12: a request shows images until it has enough of them, and tells of the others.
    #[test]
    fn the_images_of_a_request_stay_within_what_it_can_hold(steps in any_steps(40)) {
        let home = temp_dir();
        let session = write_all(home.path(), &steps);
        let request = request(session.log.state());
        let pictures = request.messages.iter().flat_map(|message| match message {
            Message::User { pictures, .. } | Message::Result { pictures, .. } => pictures.as_slice(),
            Message::Answer { .. } => &[],
        });
        let shown: u64 = pictures.filter(|picture| picture.data.is_some()).map(|picture| picture.image.bytes).sum();
        prop_assert!(shown <= IMAGE_BYTES);
    }
}
