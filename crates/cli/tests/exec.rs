//! `exec` for programs: the form of its events, its limits, its answers in a given form, its images, its money.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use common::{Machine, Ran, bash, ended, plan, say};
use mainstay_testkit::wire::{Reply, WireServer};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// The published schema, with every object closed, so that a field that it does not name is found.
fn strict_schema() -> jsonschema::Validator {
    fn close(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                if fields.contains_key("properties") {
                    fields.insert("additionalProperties".to_owned(), false.into());
                }
                fields.values_mut().for_each(close);
            }
            Value::Array(items) => items.iter_mut().for_each(close),
            _ => {}
        }
    }
    let mut schema: Value =
        serde_json::from_str(include_str!("../../../docs/exec-json.schema.json")).unwrap();
    close(&mut schema);
    jsonschema::validator_for(&schema).unwrap()
}

#[track_caller]
fn assert_valid(schema: &jsonschema::Validator, events: &[Value]) {
    for event in events {
        let errors: Vec<String> = schema.iter_errors(event).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{event}\n{errors:#?}");
    }
}

/// A server that answers, with the tokens that it counts, and a machine whose model it is.
struct Priced {
    server: WireServer,
    machine: Machine,
}

fn counted(text: &str, call: bool, usage: &Value) -> Reply {
    let tool_calls = json!([{"index": 0, "id": "c", "function": {"name": "bash", "arguments": "{\"command\": \"true\"}"}}]);
    let delta = if call { json!({ "tool_calls": tool_calls }) } else { json!({ "content": text }) };
    let reason = if call { "tool_calls" } else { "stop" };
    let first = json!({"choices": [{"delta": delta, "finish_reason": reason}]}).to_string();
    let last = json!({"choices": [], "usage": usage}).to_string();
    Reply::chat_stream([first.as_str(), last.as_str()])
}

impl Priced {
    async fn new(replies: Vec<Reply>, prices: &str) -> Self {
        let server = WireServer::start(replies).await.unwrap();
        let machine = Machine::new();
        machine.configure(&format!(
            "model = \"p/m\"\napprove = \"all\"\n[providers.p]\napi = \"openai-chat\"\nbase_url = {:?}\n\
             [providers.p.models.m]\n{prices}\n",
            server.base_url()
        ));
        Priced { server, machine }
    }

    /// Runs the program while the server goes on answering.
    async fn run(&self, arguments: &[&str]) -> Ran {
        let mut command = self.machine.command(arguments);
        let running = tokio::task::spawn_blocking(move || command.output().unwrap());
        tokio::time::timeout(Duration::from_secs(60), running).await.expect("it ends").unwrap().into()
    }
}

const PRICES: &str = "input_price = 2.0\ncached_price = 0.5\noutput_price = 10";

fn usage(input: u64, cached: u64, output: u64) -> Value {
    json!({"prompt_tokens": input, "completion_tokens": output, "prompt_tokens_details": {"cached_tokens": cached}})
}

/// Every event of runs that end in every way has the published form, and every stop reason has its exit code.
#[tokio::test]
async fn events_have_their_published_form_however_a_run_ends() {
    let schema = strict_schema();
    let (mut reasons, mut kinds) = (BTreeSet::new(), BTreeSet::new());
    let mut take = |ran: &Ran, reason: &str, code: i32| {
        let events = ran.events();
        assert_valid(&schema, &events);
        let last = events.last().unwrap();
        assert_eq!((last["stop_reason"].as_str(), ran.code), (Some(reason), code), "{}{}", ran.out, ran.err);
        assert_eq!(last["exit_code"], code);
        reasons.insert(reason.to_owned());
        kinds.extend(events.iter().map(|event| event["type"].as_str().unwrap().to_owned()));
    };
    let read = json!({"calls": [{"name": "read", "arguments": {"path": "gone"}}]});
    let long = "x".repeat(40_000);
    let failing = |class: &str| json!([{"text": "Hal", "error": {"class": class, "message": "no"}}]);
    let small = json!({"context_window": 16000, "answers": [bash(&format!("echo {long}")), bash(&format!("echo {long}")),
        bash(&format!("echo {long}")), say("Done.")], "summaries": [say("So far so good.")]});
    for (answers, flags, reason, code) in [
        (json!([{"reasoning": "hm", "text": "ok"}]), &["--deltas"][..], "end_turn", 0),
        (json!([read, bash("exit 3"), plan(&[("a", "completed")]), say("ok")]), &[], "end_turn", 0),
        (json!([bash("true"), say("ok")]), &["--approve", "ask"], "end_turn", 0),
        (small, &[], "end_turn", 0),
        (json!([{"text": "half", "finish": "max_tokens"}]), &[], "max_tokens", 4),
        (json!([bash("true"), bash("true"), bash("true")]), &["--max-steps", "2"], "max_steps", 4),
        (json!([bash("sleep 300"), say("late")]), &["--max-time", "1s"], "max_time", 4),
        (json!([{"text": "no", "finish": "refusal"}]), &[], "refusal", 1),
        (json!([read, read, read, read]), &[], "repeated_failure", 1),
        (json!([plan(&[("a", "pending")]), say("1"), say("2")]), &["--require-plan=1"], "plan_unfinished", 3),
        (failing("credentials"), &["--deltas"], "error", 77),
        (failing("quota"), &[], "error", 69),
        (failing("bad_request"), &[], "error", 1),
        (
            json!([{"error": {"class": "rate", "message": "wait", "retry_after_ms": 90_000_000}}]),
            &[],
            "error",
            75,
        ),
        (json!([say("no JSON")]), &["--output-schema", "any.json"], "error", 1),
    ] {
        let machine = Machine::scripted(answers);
        fs::write(machine.work("any.json"), "true").unwrap();
        let ran = machine.run(&[&["exec", "--json"], flags, &["go"]].concat());
        take(&ran, reason, code);
    }
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let machine = Machine::scripted(json!([bash("touch here; sleep 300")]));
        let child = machine.start(&["exec", "--json", "go"]);
        machine.wait_for("here");
        kill_process(Pid::from_raw(child.id().cast_signed()).unwrap(), signal).unwrap();
        take(&ended(child), "cancelled", code);
    }
    let replies = vec![counted("", true, &usage(1_000, 0, 100)), counted("late", false, &usage(0, 0, 0))];
    let priced = Priced::new(replies, PRICES).await;
    take(&priced.run(&["exec", "--json", "--max-cost", "0.003", "go"]).await, "max_cost", 4);

    let all = ["end_turn", "max_tokens", "max_steps", "max_cost", "max_time", "refusal", "cancelled"];
    let all = all.into_iter().chain(["repeated_failure", "plan_unfinished", "error"]);
    assert_eq!(reasons, all.map(str::to_owned).collect());
    let all = ["session.started", "turn.started", "answer.delta", "answer", "tool.started", "tool.completed"];
    let all = all.into_iter().chain(["plan", "notice", "compaction", "error", "turn.completed"]);
    assert_eq!(kinds, all.map(str::to_owned).collect());
}

/// A failure before the session is one event of that form.
#[test]
fn an_early_end_has_the_published_form() {
    let schema = strict_schema();
    let machine = Machine::new();
    let unset = &["exec", "--json", "--model", "openai/m", "x"];
    for (arguments, class, code) in [
        (&["exec", "--json", "x"][..], "configuration", 78),
        (&["exec", "--json", ""], "usage", 2),
        (unset, "credentials", 77),
    ] {
        let ran = machine.run(arguments);
        let events = ran.events();
        assert_valid(&schema, &events);
        assert_eq!(
            (ran.code, events.len(), events[0]["class"].as_str()),
            (code, 1, Some(class)),
            "{}",
            ran.err
        );
    }
}

#[tokio::test]
async fn what_a_turn_cost_is_told_where_it_is_known() {
    let replies = || {
        vec![counted("one", false, &usage(1_000, 400, 100)), counted("two", false, &usage(2_000, 2_000, 0))]
    };
    // 600 fresh tokens at 2 dollars a million, 400 cached ones at 0.50, 100 of output at 10.
    let priced = Priced::new(replies(), PRICES).await;
    let ran = priced.run(&["exec", "x"]).await;
    ran.ended(0, "one\n", &["; 1000 tokens in (400 cached), 100 out, $0.0024; to go on"]);
    let ran = priced.run(&["exec", "--json", "--last", "y"]).await;
    assert_eq!(ran.events().last().unwrap()["cost"], 0.001);
    let ran = priced.run(&["sessions", "--json"]).await;
    let row: Value = serde_json::from_str(ran.out.trim()).unwrap();
    assert_eq!(
        (&row["cost"], &row["input_tokens"], &row["cached_tokens"]),
        (&json!(0.0034), &json!(3_000), &json!(2_400))
    );
    assert!(priced.run(&["sessions"]).await.out.contains("$0.0034"));

    let unpriced = Priced::new(replies(), "").await;
    let ran = unpriced.run(&["exec", "x"]).await;
    assert!(ran.code == 0 && !ran.err.contains('$'), "{}", ran.err);
    let ran = unpriced.run(&["exec", "--json", "--last", "y"]).await;
    assert_eq!(ran.events().last().unwrap()["cost"], Value::Null);
    let row: Value = serde_json::from_str(unpriced.run(&["sessions", "--json"]).await.out.trim()).unwrap();
    assert_eq!(row["cost"], Value::Null);
}

#[tokio::test]
async fn a_limit_of_cost_holds_or_is_refused() {
    let step = || counted("", true, &usage(1_000, 0, 100));
    let priced = Priced::new((0..9).map(|_| step()).collect(), PRICES).await;
    let ran = priced.run(&["exec", "--max-cost", "$0.005", "x"]).await;
    ran.failed(4, &[": max_cost; ", "2000 tokens in", "$0.0060"]);
    assert_eq!(priced.server.received().len(), 2, "each step costs 0.003 dollars");

    // A provider that counts nothing keeps no limit.
    let silent = json!({"choices": [{"delta": {"tool_calls": [{"index": 0, "id": "c", "function":
        {"name": "bash", "arguments": "{\"command\": \"true\"}"}}]}, "finish_reason": "tool_calls"}]})
    .to_string();
    let priced = Priced::new(vec![Reply::chat_stream([silent.as_str()]), step()], PRICES).await;
    let ran = priced.run(&["exec", "--max-cost", "1", "x"]).await;
    ran.failed(4, &["warning: the provider did not count the tokens of an answer", ": max_cost; "]);

    let unpriced = Priced::new(vec![], "").await;
    let ran = unpriced.run(&["exec", "--max-cost", "1", "x"]).await;
    ran.failed(78, &["--max-cost: what p/m costs is not known", "input_price", "[providers.p.models.\"m\"]"]);
    let half = Priced::new(vec![], "input_price = 1").await;
    half.run(&["exec", "x"]).await.failed(78, &["says a price and lacks `output_price`"]);
    let machine = Machine::scripted(json!([say("ok")]));
    machine.run(&["exec", "--max-cost", "1", "x"]).failed(78, &["costs is not known"]);
    for wrong in ["0", "-1", "much", ""] {
        machine
            .run(&["exec", &format!("--max-cost={wrong}"), "x"])
            .failed(2, &["--max-cost", "such as 0.50"]);
    }
    for wrong in ["0", "0s", "-1s", "soon", ""] {
        machine.run(&["exec", &format!("--max-time={wrong}"), "x"]).failed(2, &["--max-time", "such as 90s"]);
    }
}

const FORM: &str = r#"{
  "type": "object",
  "required": ["lines"],
  "properties": { "lines": { "type": "integer" } },
  "additionalProperties": false
}"#;

/// The model is told of the form, asked again where its answer does not have it, and the bare document is handed on.
#[test]
fn an_answer_has_the_form_that_it_must_have() {
    let machine = Machine::scripted(json!([
        bash("true"),
        say("There are two."),
        say("{\"lines\": \"2\"}"),
        say("```json\n{\"lines\": 2}\n```"),
    ]));
    fs::write(machine.work("form.json"), FORM).unwrap();
    let ran = machine.run(&["exec", "--output-schema", "form.json", "-o", "answer.json", "count"]);
    ran.ended(0, "{\"lines\": 2}\n", &[": end_turn; "]);
    assert_eq!(fs::read_to_string(machine.work("answer.json")).unwrap(), "{\"lines\": 2}\n");
    let notices: Vec<Value> =
        machine.entries().into_iter().filter(|entry| entry["about"]["notice"] == "answer_form").collect();
    let texts: Vec<&str> = notices.iter().map(|notice| notice["text"].as_str().unwrap()).collect();
    assert_eq!(texts.len(), 3, "{:#?}", machine.entries());
    assert!(texts.iter().all(|text| text.contains(FORM)));
    assert!(texts[1].contains("it is not one JSON document"), "{}", texts[1]);
    assert!(texts[2].contains("at /lines: \"2\" is not of type \"integer\""), "{}", texts[2]);
    let kinds: Vec<String> =
        machine.entries().iter().map(|e| e["kind"].as_str().unwrap().to_owned()).collect();
    let place = |kind: &str| kinds.iter().position(|other| other == kind).unwrap();
    assert!(place("notice") < place("user_prompt"), "told before the prompt: {kinds:?}");

    let machine = Machine::scripted(json!([say("{\"lines\":\n 2}")]));
    fs::write(machine.work("form.json"), FORM).unwrap();
    let ran = machine.run(&["exec", "--json", "--output-schema", "form.json", "count"]);
    assert_eq!(ran.events().last().unwrap()["output"], json!({"lines": 2}));
}

#[test]
fn an_answer_that_keeps_not_to_its_form_is_not_handed_on() {
    let machine = Machine::scripted(json!([say("a"), say("b"), say("c"), say("d")]));
    fs::write(machine.work("form.json"), FORM).unwrap();
    fs::write(machine.work("answer.json"), "of another run").unwrap();
    let arguments = ["exec", "--output-schema", "form.json", "-o", "answer.json"];
    let ran = machine.run(&[&arguments[..], &["count"]].concat());
    ran.failed(1, &["error: the answer does not have the form", "mainstay history", ": error; "]);
    assert_eq!(fs::read_to_string(machine.work("answer.json")).unwrap(), "", "nothing old is taken for new");
    let ran = machine.run(&["exec", "--json", "--last", "--output-schema", "form.json", "count"]);
    let events = ran.events();
    let [.., error, last] = events.as_slice() else { panic!("{}", ran.out) };
    assert_eq!(
        (&error["class"], &last["stop_reason"], last.get("output")),
        (&json!("answer_form"), &json!("error"), None)
    );
    // A limit is a limit: the answer that does not fit is not handed on either.
    let machine = Machine::scripted(json!([say("a"), say("b")]));
    fs::write(machine.work("form.json"), FORM).unwrap();
    machine.run(&[&arguments[..], &["--max-steps", "1", "x"]].concat()).failed(4, &[": max_steps; "]);
}

/// The least PNG: one pixel.
const PIXEL: &[u8] = &[
    0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A, 0x00, 0x00, 0x00, 0x0D, 0x49, 0x48, 0x44, 0x52, 0x00,
    0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x01, 0x08, 0x00, 0x00, 0x00, 0x00, 0x3A, 0x7E, 0x9B, 0x55, 0x00,
    0x00, 0x00, 0x0A, 0x49, 0x44, 0x41, 0x54, 0x78, 0x9C, 0x63, 0x60, 0x00, 0x00, 0x00, 0x02, 0x00, 0x01,
    0x48, 0xAF, 0xA4, 0x71, 0x00, 0x00, 0x00, 0x00, 0x49, 0x45, 0x4E, 0x44, 0xAE, 0x42, 0x60, 0x82,
];

#[tokio::test]
async fn images_go_with_the_prompt() {
    let seeing = Priced::new(vec![counted("A dot.", false, &usage(1, 0, 1))], "images = true").await;
    fs::write(seeing.machine.work("dot.png"), PIXEL).unwrap();
    let ran = seeing.run(&["exec", "--image", "dot.png", "--image", "dot.png", "what is it?"]).await;
    ran.ended(0, "A dot.\n", &[]);
    let sent = seeing.server.received()[0].json().to_string();
    assert_eq!(sent.matches("data:image/png;base64,iVBORw0KGgo").count(), 2, "{sent}");

    let blind = Priced::new(vec![], "").await;
    fs::write(blind.machine.work("dot.png"), PIXEL).unwrap();
    fs::write(blind.machine.work("cut.png"), &PIXEL[..40]).unwrap();
    fs::write(blind.machine.work("text.png"), "text").unwrap();
    fs::write(blind.machine.work("large.png"), vec![0; 4 << 20]).unwrap();
    for (file, code, part) in [
        ("dot.png", 78, "p/m is not said to take images"),
        ("gone.png", 2, "--image gone.png: cannot be read"),
        (".", 2, "--image .: "),
        ("cut.png", 2, "the PNG image is damaged or cut off"),
        ("text.png", 2, "it is no PNG, JPEG, GIF or WebP image"),
        ("large.png", 2, "it has more than 3840 KiB"),
    ] {
        blind.run(&["exec", "--image", file, "x"]).await.failed(code, &[part]);
    }
    assert!(!blind.machine.root.join("data/sessions").exists(), "nothing was begun");
}

#[test]
fn the_answer_goes_to_a_file_too() {
    let machine = Machine::scripted(json!([say("one\ntwo"), say("three")]));
    machine.run(&["exec", "-o", "out.txt", "x"]).ended(0, "one\ntwo\n", &[]);
    assert_eq!(fs::read_to_string(machine.work("out.txt")).unwrap(), "one\ntwo\n");
    let ran = machine.run(&["exec", "--json", "--last", "--output", "out.txt", "x"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(fs::read_to_string(machine.work("out.txt")).unwrap(), "three\n");
    // What another run left never stands for the answer of a run that could not begin.
    for flags in [
        &["--model", "script:gone.json"][..],
        &["--output-schema", "gone.json"],
        &["--max-cost", "1"],
        &["--session", "zz"],
    ] {
        fs::write(machine.work("out.txt"), "stale").unwrap();
        let ran = machine.run(&[&["exec", "-o", "out.txt"], flags, &["x"]].concat());
        assert!([2, 78].contains(&ran.code), "{flags:?}: {}", ran.err);
        assert_eq!(fs::read_to_string(machine.work("out.txt")).unwrap(), "", "{flags:?}");
    }
    let machine = Machine::scripted(json!([say("one")]));
    for target in ["gone/out.txt", "."] {
        machine
            .run(&["exec", "-o", target, "x"])
            .failed(2, &["--output", "cannot be written", "nothing was run"]);
    }
    assert!(!machine.root.join("data/sessions").exists(), "nothing was begun");
    // A full disk shows when the answer is there, and not before.
    if fs::metadata("/dev/full").is_ok() {
        let ran = machine.run(&["exec", "-o", "/dev/full", "x"]);
        ran.ended(1, "one\n", &["error: the answer could not be written to /dev/full", "mainstay history"]);
    }
}

/// A denial is told once, at the end.
#[test]
fn a_denial_is_told_once() {
    let machine = Machine::scripted(json!([bash("touch sentinel"), say("I could not.")]));
    let ran = machine.run(&["exec", "--approve", "ask", "x"]);
    ran.ended(0, "I could not.\n", &["1 call denied, see below"]);
    assert_eq!(ran.err.matches("denied:").count(), 1, "{}", ran.err);
}

#[test]
fn many_sessions_that_fit_are_not_listed_as_if_they_were_all() {
    let machine = Machine::scripted(json!([say("ok")]));
    (0..7).for_each(|_| assert_eq!(machine.run(&["exec", "x"]).code, 0));
    machine.run(&["exec", "--session", "0", "y"]).failed(
        2,
        &[
            "7 sessions have `0` in their ids",
            "and 2 more; `mainstay sessions` lists all",
            "give more of the id",
        ],
    );
}

/// What does not arrive where stdout leads is said, by every command, and is no success.
#[test]
fn output_that_is_lost_is_said() {
    let Ok(full) =
        fs::metadata("/dev/full").and_then(|_| fs::OpenOptions::new().write(true).open("/dev/full"))
    else {
        return;
    };
    let machine = Machine::scripted(json!([say("one"), say("two")]));
    machine.run(&["exec", "begin"]).ended(0, "one\n", &[]);
    for arguments in [
        &["exec", "--last", "x"][..],
        &["exec", "--json", "--last", "x"],
        &["sessions"],
        &["history"],
        &["history", "--json"],
        &["models"],
        &["completions", "bash"],
        &["--help"],
        &["--version"],
    ] {
        let ran: Ran = machine.command(arguments).stdout(full.try_clone().unwrap()).output().unwrap().into();
        assert_eq!(ran.code, 1, "{arguments:?}: {}", ran.err);
        assert!(ran.err.contains("cannot write to stdout"), "{arguments:?}: {}", ran.err);
    }
}

/// The line that says how to go on can be followed: where no model is configured, the session's own answers.
#[test]
fn a_session_goes_on_with_its_own_model() {
    let machine = Machine::scripted(json!([say("one"), say("two")]));
    machine.configure("");
    let model = format!("script:{}", machine.root.join("script.json").display());
    machine.run(&["exec", "--model", &model, "begin"]).ended(0, "one\n", &[]);
    machine.run(&["exec", "--last", "go on"]).ended(0, "two\n", &[]);
}

/// A prompt without an end is refused, and not taken into memory until there is none.
#[test]
fn an_endless_prompt_is_refused() {
    let machine = Machine::scripted(json!([say("one")]));
    let endless = fs::File::open("/dev/zero").unwrap();
    let ran: Ran = machine.command(&["exec", "-"]).stdin(endless).output().unwrap().into();
    ran.failed(2, &["it has more than 64 MiB"]);
}
