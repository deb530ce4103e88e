use std::borrow::Cow;

use mainstay_session::request::Block;

use super::*;

fn request(answers: usize) -> Request<'static> {
    let mut messages = vec![Message::User { text: Cow::Borrowed("go"), pictures: Vec::new() }];
    for _ in 0..answers {
        messages.push(Message::Answer { model: "script:x", blocks: vec![Block::Text(Cow::Borrowed("so"))] });
    }
    Request { system: "be good", tools: &[], messages, previous: None, dropped_answers: 0 }
}

async fn ask(model: &ScriptModel, answers: usize) -> Attempt {
    let encoded = model.encode(&request(answers));
    model.stream(&encoded, &mut |_| {}, &CancellationToken::new()).await
}

fn text(attempt: &Attempt) -> &str {
    match &attempt.content[..] {
        [Content::Text { text }] => text,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_next_answer_follows_from_the_request_alone() {
    let model = ScriptModel::from_json("script:x", r#"[{"text":"a"},{"text":"b"}]"#).unwrap();
    assert_eq!(text(&ask(&model, 1).await), "b");
    assert_eq!(text(&ask(&model, 0).await), "a");
    assert_eq!(text(&ask(&model, 0).await), "a");
    let last = ask(&model, 2).await;
    assert_eq!((text(&last), last.finish, &last.ended), (NO_MORE, Finish::EndTurn, &Ended::Complete));
}

#[tokio::test]
async fn a_failure_is_told_once_and_takes_no_place_in_the_history() {
    let script = r#"{"answers":[
        {"text":"a"},
        {"error":{"class":"rate","message":"slow down","retry_after_ms":20}},
        {"text":"half","error":{"class":"cut_stream","message":"gone"}},
        {"text":"b"}],"context_window":9000}"#;
    let model = ScriptModel::from_json("script:x", script).unwrap();
    assert_eq!(model.context_window(), 9_000);
    assert_eq!(text(&ask(&model, 0).await), "a");
    let first = ask(&model, 1).await;
    assert_eq!(first.ended, Ended::Failed { class: ErrorClass::Rate, message: "slow down".to_owned() });
    assert_eq!(first.retry_after, Some(Duration::from_millis(20)));
    let second = ask(&model, 1).await;
    assert_eq!(text(&second), "half");
    assert_ne!(second.ended, Ended::Complete);
    assert_eq!(text(&ask(&model, 1).await), "b");
    assert_eq!(text(&ask(&model, 1).await), "b");
}

#[tokio::test]
async fn calls_reasoning_and_usage_are_as_written() {
    let script = r#"[{"reasoning":"hm","text":"I look.","calls":[
        {"name":"read","arguments":{ "path" : "a \" b.rs", "n": 1.10 }},
        {"name":"write","arguments":"{\"path\":"},
        {"name":"ls","id":"mine"}],
      "usage":{"input_tokens":7,"output_tokens":2}}]"#;
    let attempt = ask(&ScriptModel::from_json("script:x", script).unwrap(), 0).await;
    let call = |id: &str, name: &str, arguments: &str| {
        Content::Call(ToolCall {
            id: id.to_owned(),
            name: name.to_owned(),
            arguments: arguments.to_owned(),
            opaque: None,
        })
    };
    let expected = [
        Content::Reasoning { text: "hm".to_owned(), opaque: None },
        Content::Text { text: "I look.".to_owned() },
        call("call_0_0", "read", r#"{"path":"a \" b.rs","n":1.10}"#),
        call("call_0_1", "write", r#"{"path":"#),
        call("mine", "ls", ""),
    ];
    assert_eq!(attempt.content, expected);
    assert_eq!(attempt.finish, Finish::ToolCalls);
    assert_eq!(
        attempt.usage,
        Some(Usage { input_tokens: 7, cached_tokens: 0, output_tokens: 2, ..Usage::default() })
    );
}

#[tokio::test]
async fn a_waiting_answer_can_be_cancelled() {
    let model = ScriptModel::from_json("script:x", r#"[{"text":"late","delay_ms":600000}]"#).unwrap();
    let encoded = model.encode(&request(0));
    let cancel = CancellationToken::new();
    cancel.cancel();
    let attempt = model.stream(&encoded, &mut |_| {}, &cancel).await;
    assert_eq!(attempt.ended, Ended::Cancelled);
    assert_eq!(attempt.content, []);
}

#[test]
fn a_bad_script_is_refused_with_its_place() {
    let error = ScriptModel::from_json("script:x", "[\n  {\"txt\": \"a\"}\n]").unwrap_err().to_string();
    assert!(error.contains("script:x") && error.contains("`txt`") && error.contains("line 2"), "{error}");
    let missing = ScriptModel::from_file(Path::new("/nowhere/at all.json")).unwrap_err().to_string();
    assert!(missing.contains("/nowhere/at all.json"), "{missing}");
}

#[test]
fn requests_are_marked_like_those_of_a_provider() {
    let model = ScriptModel::from_json("script:x", "[]").unwrap();
    let first = model.encode(&request(1));
    let mut second = request(2);
    second.previous = Some(&first.mark);
    let second = model.encode(&second);
    assert_eq!(second.mark.shared, first.mark.units);
    assert_eq!(second.mark.bytes, second.body.len() as u64);
}

#[tokio::test]
async fn an_answer_without_counts_is_counted_by_its_bytes() {
    let model = ScriptModel::from_json("script:x", r#"[{"text":"eight by"}]"#).unwrap();
    let bytes = model.encode(&request(0)).mark.bytes;
    let usage = Usage { input_tokens: bytes / 4, cached_tokens: 0, output_tokens: 2, ..Usage::default() };
    assert_eq!(ask(&model, 0).await.usage, Some(usage));
}

#[tokio::test]
async fn the_documented_example_plays_as_described() {
    let page = include_str!("../../../../docs/script-model.md");
    let lines = page.lines().skip_while(|line| *line != "    {").take_while(|line| line.starts_with("    "));
    let model = ScriptModel::from_json("script:x", &lines.collect::<String>()).unwrap();
    assert_eq!(model.context_window(), 200_000);

    let first = ask(&model, 0).await;
    let call = first.content[1].as_call().unwrap();
    assert_eq!(first.content[0].as_text(), Some("I look at the file first."));
    assert_eq!((call.name.as_str(), call.arguments.as_str()), ("read", r#"{"path":"src/lib.rs"}"#));

    let failed = ask(&model, 1).await;
    assert_eq!(failed.ended, Ended::Failed { class: ErrorClass::Rate, message: "slow down".to_owned() });
    assert_eq!((failed.retry_after, failed.usage), (Some(Duration::from_millis(500)), None));

    let last = ask(&model, 1).await;
    let said = last.content.iter().find_map(Content::as_text);
    assert_eq!((said, last.usage.unwrap().input_tokens), (Some("It is mended."), 900));
    assert_eq!(text(&ask(&model, 2).await), NO_MORE);
}
