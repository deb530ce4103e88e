//! The four wire formats as a user meets them: the real program, a server of each format on this machine, and what goes
//! over the wire between them.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

#[allow(dead_code, missing_docs, unreachable_pub)]
#[path = "../../model/tests/common/anthropic_rules.rs"]
mod anthropic_rules;
#[allow(dead_code, missing_docs, unreachable_pub)]
#[path = "../../model/tests/common/rules_gemini.rs"]
mod rules_gemini;
#[allow(dead_code, missing_docs, unreachable_pub)]
#[path = "../../model/tests/common/rules_responses.rs"]
mod rules_responses;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use mainstay_testkit::wire::{Received, Reply, WireServer};
use serde_json::{Value, json};

const MAINSTAY: &str = env!("CARGO_BIN_EXE_mainstay");
const PATIENCE: Duration = Duration::from_secs(60);

/// A home, a configuration, sessions and a workspace of its own, and an environment with nothing else in it.
struct Machine {
    _dir: tempfile::TempDir,
    root: PathBuf,
    variables: BTreeMap<String, String>,
}

#[derive(Debug)]
struct Ran {
    code: i32,
    out: String,
    err: String,
}

impl Machine {
    fn new(config: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for name in ["home", "config/mainstay", "work"] {
            fs::create_dir_all(root.join(name)).unwrap();
        }
        fs::write(root.join("config/mainstay/config.toml"), config).unwrap();
        Machine { _dir: dir, root, variables: BTreeMap::new() }
    }

    fn with(mut self, name: &str, value: &str) -> Self {
        self.variables.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Runs the program while the servers of this test go on answering.
    async fn run(&self, arguments: &[&str]) -> Ran {
        let mut command = Command::new(MAINSTAY);
        command
            .args(arguments)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.root.join("home"))
            .env("MAINSTAY_HOME", self.root.join("data"))
            .env("XDG_CONFIG_HOME", self.root.join("config"))
            .envs(&self.variables)
            .current_dir(self.root.join("work"))
            .stdin(Stdio::null());
        let running = tokio::task::spawn_blocking(move || command.output().unwrap());
        let output = tokio::time::timeout(PATIENCE, running).await.expect("it ends").unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Ran { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
    }

    /// The entries of the one session that are of a kind.
    fn entries(&self, kind: &str) -> Vec<Value> {
        let mut lines = Vec::new();
        for file in files_below(&self.root.join("data")) {
            if file.extension().is_some_and(|extension| extension == "jsonl") {
                lines.extend(fs::read_to_string(file).unwrap().lines().map(str::to_owned));
            }
        }
        let entries = lines.iter().map(|line| serde_json::from_str::<Value>(line).unwrap());
        entries.filter(|entry| entry["kind"] == kind).collect()
    }
}

fn files_below(dir: &Path) -> Vec<PathBuf> {
    let Ok(names) = fs::read_dir(dir) else { return Vec::new() };
    let paths = names.map(|name| name.unwrap().path());
    paths.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

/// A wire format, with what a server of it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wire {
    Chat,
    Anthropic,
    Responses,
    Gemini,
}

const WIRES: [Wire; 4] = [Wire::Chat, Wire::Anthropic, Wire::Responses, Wire::Gemini];

impl Wire {
    fn api(self) -> &'static str {
        match self {
            Wire::Chat => "openai-chat",
            Wire::Anthropic => "anthropic",
            Wire::Responses => "openai-responses",
            Wire::Gemini => "gemini",
        }
    }

    fn path(self) -> &'static str {
        match self {
            Wire::Chat => "/v1/chat/completions",
            Wire::Anthropic => "/v1/messages",
            Wire::Responses => "/v1/responses",
            Wire::Gemini => "/v1/models/m:streamGenerateContent?alt=sse",
        }
    }

    /// What only this model may read: a signature, or encrypted reasoning.
    fn mark(self) -> &'static str {
        match self {
            Wire::Chat => "reasoned-by-chat",
            Wire::Anthropic => "c2lnbmVkLWJ5LWFudGhyb3BpYw==",
            Wire::Responses => "ZW5jcnlwdGVkLWJ5LXJlc3BvbnNlcw==",
            Wire::Gemini => "c2lnbmVkLWJ5LWdlbWluaQ==",
        }
    }

    /// An answer that reasons and reads a file.
    fn reads(self, path: &str) -> Reply {
        let arguments = json!({"path": path}).to_string();
        let mark = self.mark();
        match self {
            Wire::Chat => Reply::chat_stream([
                json!({"choices": [{"delta": {"role": "assistant", "reasoning_content": mark}}]}).to_string().as_str(),
                json!({"choices": [{"delta": {"tool_calls": [
                    {"index": 0, "id": "call-1", "type": "function", "function": {"name": "read", "arguments": arguments}}
                ]}}]})
                .to_string()
                .as_str(),
                r#"{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}"#,
            ]),
            Wire::Anthropic => anthropic(
                &[
                    json!({"type": "thinking", "thinking": "hm", "signature": mark}),
                    json!({"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": path}}),
                ],
                "tool_use",
            ),
            Wire::Responses => responses(&[
                json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": mark}),
                json!({"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "read",
                       "arguments": arguments, "status": "completed"}),
            ]),
            Wire::Gemini => gemini(&[json!({
                "functionCall": {"name": "read", "args": {"path": path}},
                "thoughtSignature": mark,
            })], 100),
        }
    }

    /// An answer of text alone.
    fn says(self, text: &str) -> Reply {
        match self {
            Wire::Chat => Reply::chat_stream([
                json!({"choices": [{"delta": {"content": text}}]}).to_string().as_str(),
                r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#,
                r#"{"choices":[],"usage":{"prompt_tokens":100,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":80}}}"#,
            ]),
            Wire::Anthropic => anthropic(&[json!({"type": "text", "text": text})], "end_turn"),
            Wire::Responses => responses(&[json!({
                "type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
                "content": [{"type": "output_text", "text": text, "annotations": []}],
            })]),
            Wire::Gemini => gemini(&[json!({"text": text})], 100),
        }
    }

    fn check(self, body: &Value) -> Result<(), String> {
        match self {
            Wire::Chat => check_chat(body),
            Wire::Anthropic => anthropic_rules::check_anthropic(body),
            Wire::Responses => rules_responses::check_responses(body),
            Wire::Gemini => rules_gemini::check_gemini(body),
        }
    }

    /// How an error comes.
    fn error(self, status: u16, message: &str) -> Reply {
        let body = match self {
            Wire::Chat | Wire::Responses => json!({"error": {"message": message, "type": "x", "code": null}}),
            Wire::Anthropic => json!({"type": "error", "error": {"type": "x", "message": message}}),
            Wire::Gemini => json!({"error": {"code": status, "message": message, "status": "X"}}),
        };
        Reply::json(status, body.to_string())
    }
}

fn events(events: &[Value]) -> Reply {
    let event = |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap());
    Reply::stream(events.iter().map(event).collect::<String>())
}

fn anthropic(blocks: &[Value], stop_reason: &str) -> Reply {
    let usage = json!({"input_tokens": 20, "cache_read_input_tokens": 80, "output_tokens": 2});
    let mut stream = vec![json!({"type": "message_start", "message": {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": null, "usage": usage
    }})];
    for (index, block) in blocks.iter().enumerate() {
        let (start, deltas) = match block["type"].as_str().unwrap() {
            "thinking" => (
                json!({"type": "thinking", "thinking": "", "signature": ""}),
                vec![
                    json!({"type": "thinking_delta", "thinking": block["thinking"]}),
                    json!({"type": "signature_delta", "signature": block["signature"]}),
                ],
            ),
            "tool_use" => (
                json!({"type": "tool_use", "id": block["id"], "name": block["name"], "input": {}}),
                vec![json!({"type": "input_json_delta", "partial_json": block["input"].to_string()})],
            ),
            _ => (
                json!({"type": "text", "text": ""}),
                vec![json!({"type": "text_delta", "text": block["text"]})],
            ),
        };
        stream.push(json!({"type": "content_block_start", "index": index, "content_block": start}));
        for delta in deltas {
            stream.push(json!({"type": "content_block_delta", "index": index, "delta": delta}));
        }
        stream.push(json!({"type": "content_block_stop", "index": index}));
    }
    stream.push(json!({"type": "message_delta", "delta": {"stop_reason": stop_reason}, "usage": {"output_tokens": 2}}));
    stream.push(json!({"type": "message_stop"}));
    events(&stream)
}

fn responses(items: &[Value]) -> Reply {
    let mut stream =
        vec![json!({"type": "response.created", "response": {"id": "resp_1", "status": "in_progress"}})];
    for (index, item) in items.iter().enumerate() {
        stream.push(json!({"type": "response.output_item.added", "output_index": index, "item": item}));
        stream.push(json!({"type": "response.output_item.done", "output_index": index, "item": item}));
    }
    stream.push(json!({"type": "response.completed", "response": {
        "id": "resp_1", "status": "completed", "output": items,
        "usage": {"input_tokens": 100, "input_tokens_details": {"cached_tokens": 80}, "output_tokens": 2, "total_tokens": 102},
    }}));
    events(&stream)
}

fn gemini(parts: &[Value], tokens: u64) -> Reply {
    let chunk = json!({
        "candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}],
        "usageMetadata": {"promptTokenCount": tokens, "cachedContentTokenCount": 80, "candidatesTokenCount": 2, "totalTokenCount": 102},
    });
    Reply::stream(format!("data: {chunk}\r\n\r\n"))
}

/// What Chat Completions demands of the order of messages.
fn check_chat(body: &Value) -> Result<(), String> {
    let messages = body["messages"].as_array().ok_or("no messages")?;
    let mut open: Vec<&str> = Vec::new();
    for (place, message) in messages.iter().enumerate() {
        let role = message["role"].as_str().ok_or("no role")?;
        match role {
            "tool" => {
                let id = message["tool_call_id"].as_str().ok_or("no id")?;
                let at = open
                    .iter()
                    .position(|open| *open == id)
                    .ok_or(format!("message {place} answers no call"))?;
                open.remove(at);
            }
            _ if !open.is_empty() => {
                return Err(format!("message {place} stands before the results of {open:?}"));
            }
            "system" if place > 0 => return Err(format!("message {place} is a system message")),
            "assistant" => {
                let calls = message["tool_calls"].as_array().into_iter().flatten();
                open = calls.filter_map(|call| call["id"].as_str()).collect();
            }
            _ => {}
        }
    }
    open.is_empty().then_some(()).ok_or(format!("no results of {open:?}"))
}

async fn server(replies: impl IntoIterator<Item = Reply>) -> WireServer {
    WireServer::start(replies).await.unwrap()
}

fn provider(name: &str, wire: Wire, base_url: &str, more: &str) -> String {
    format!("[providers.{name}]\napi = {:?}\nbase_url = {base_url:?}\n{more}\n", wire.api())
}

/// A key that no file of this repository holds.
fn key() -> String {
    format!("{}-{}", "ky", "0123456789abcdef".repeat(2))
}

fn body(request: &Received) -> String {
    String::from_utf8(request.body.clone()).unwrap()
}

/// Each turn is another model's, over another format, twice around: nothing that was said is lost, every request is one
/// that its provider takes, and what only one model can read goes to no other.
#[tokio::test]
async fn models_and_formats_may_change_from_turn_to_turn() {
    let mut servers = Vec::new();
    let mut config = String::new();
    for (place, wire) in WIRES.into_iter().enumerate() {
        let replies = (0..2).flat_map(|round| {
            [wire.reads("notes.txt"), wire.says(&format!("answer {round} of {}", wire.api()))]
        });
        let server = server(replies.collect::<Vec<_>>()).await;
        config.push_str(&provider(&format!("p{place}"), wire, &server.base_url(), ""));
        servers.push(server);
    }
    let machine = Machine::new(&config);
    fs::write(machine.root.join("work/notes.txt"), "these are the notes").unwrap();
    let mut said: Vec<String> = Vec::new();
    for round in 0..2 {
        for (place, wire) in WIRES.into_iter().enumerate() {
            let prompt = format!("prompt {round} for {}", wire.api());
            let model = format!("p{place}/m");
            let mut arguments = vec!["exec", "--model", &model];
            if round + place > 0 {
                arguments.push("--last");
            }
            arguments.push(&prompt);
            let ran = machine.run(&arguments).await;
            let answer = format!("answer {round} of {}", wire.api());
            assert_eq!((ran.code, ran.out.trim_end()), (0, answer.as_str()), "{}", ran.err);
            let received = servers[place].received();
            let requests = &received[received.len() - 2..];
            said.push(prompt.clone());
            for request in requests {
                assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", wire.path()));
                wire.check(&request.json())
                    .unwrap_or_else(|why| panic!("{wire:?}: {why}\n{}", body(request)));
                for text in &said {
                    assert!(body(request).contains(text), "{wire:?} was not told {text:?}");
                }
                for other in WIRES.into_iter().filter(|other| *other != wire) {
                    assert!(!body(request).contains(other.mark()), "{wire:?} got what is {other:?}'s");
                }
            }
            let has_mark = |request: &Received| body(request).contains(wire.mark());
            assert_eq!(
                (has_mark(&requests[0]), has_mark(&requests[1])),
                (round > 0, true),
                "{wire:?} {round}"
            );
            let read = body(&requests[1]).matches("these are the notes").count();
            assert_eq!(read, said.len() / 2 + 1, "each turn's result is there once");
            said.push(answer);
        }
    }
    let models = machine.entries("model");
    let models: Vec<&str> = models.iter().map(|entry| entry["model"].as_str().unwrap()).collect();
    assert_eq!(models, ["p0/m", "p1/m", "p2/m", "p3/m", "p0/m", "p1/m", "p2/m", "p3/m"]);

    let report: Value =
        serde_json::from_str(&machine.run(&["history", "--cache", "--json"]).await.out).unwrap();
    let rows = report["requests"].as_array().unwrap();
    assert_eq!(rows.len(), 16);
    for (place, row) in rows.iter().enumerate() {
        let is_first = place % 2 == 0 && place > 0;
        assert_eq!(row["break"].is_object(), is_first, "{row}");
        if is_first {
            let from = format!("p{}/m", (place / 2 + 3) % 4);
            let to = format!("p{}/m", place / 2 % 4);
            assert_eq!(row["break"]["reason"], format!("model changed: {from} → {to}"), "{row}");
            assert!(row["break"]["unit"].is_u64(), "both were built anew as they were sent: {row}");
        }
    }
    assert_eq!(report["totals"]["unexplained"], 0);
}

/// A session that stays with its model keeps the prefix, over every format, also over a resume.
#[tokio::test]
async fn the_cache_report_shows_what_was_kept() {
    for wire in WIRES {
        let replies = [wire.reads("f"), wire.says("one"), wire.reads("f"), wire.says("two")];
        let server = server(replies).await;
        let machine =
            Machine::new(&format!("model = \"p/m\"\n{}", provider("p", wire, &server.base_url(), "")));
        fs::write(machine.root.join("work/f"), "text").unwrap();
        for arguments in [&["exec", "one"][..], &["exec", "--last", "two"]] {
            let ran = machine.run(arguments).await;
            assert_eq!(ran.code, 0, "{}", ran.err);
        }
        let text = machine.run(&["history", "--cache"]).await.out;
        assert!(text.contains("4 requests; each opens with all of the one before"), "{wire:?}\n{text}");
        let report: Value =
            serde_json::from_str(&machine.run(&["history", "--cache", "--json"]).await.out).unwrap();
        let rows = report["requests"].as_array().unwrap();
        assert_eq!(rows[0]["shared"], Value::Null);
        for pair in rows.windows(2) {
            assert_eq!(pair[0]["units"], pair[1]["shared"], "{wire:?} {report}");
            assert!(pair[1]["units"].as_u64() > pair[0]["units"].as_u64());
        }
        let last = &rows[3];
        assert_eq!((&last["input_tokens"], &last["cached_tokens"]), (&json!(100), &json!(80)), "{wire:?}");
        assert_eq!(last["cached_share"], 0.8, "{wire:?}");
    }
}

/// A break that nothing explains is named to the byte; one that a setting explains names that.
#[tokio::test]
async fn the_cache_report_names_the_byte_where_a_prefix_breaks() {
    let server = server((0..3).map(|_| Wire::Chat.says("ok"))).await;
    let with = |setting: &str| {
        let model = format!("[providers.p.models.m]\n{setting}");
        format!("model = \"p/m\"\n{}", provider("p", Wire::Chat, &server.base_url(), &model))
    };
    let machine = Machine::new(&with("alternate_roles = true"));
    machine.run(&["exec", "first words"]).await;
    fs::write(machine.root.join("config/mainstay/config.toml"), with("alternate_roles = false")).unwrap();
    machine.run(&["exec", "--last", "second words"]).await;
    let text = machine.run(&["history", "--cache"]).await.out;
    assert!(text.contains("! prefix broken: setting changed: alternate_roles"), "{text}");
    assert!(
        text.contains("2 requests; 1 of them with a broken prefix, for reasons that the log names"),
        "{text}"
    );

    let report: Value =
        serde_json::from_str(&machine.run(&["history", "--cache", "--json"]).await.out).unwrap();
    let part = &report["requests"][1]["break"];
    assert_eq!(
        (&part["explained"], &part["settings"]),
        (&json!(true), &json!(["alternate_roles"])),
        "{part}"
    );
    let (was, is) = (part["was"].as_str().unwrap(), part["is"].as_str().unwrap());
    let common = was.chars().zip(is.chars()).take_while(|(was, is)| was == is).count();
    assert!(part["byte"].as_u64().unwrap() >= common as u64 && common < was.len(), "{part}");
}

/// A server behind TLS whose certificate `name` signed, which gives one answer to each of its clients.
struct TlsServer {
    base_url: String,
    authority: String,
}

impl TlsServer {
    fn start(answer: &'static [u8]) -> Self {
        let mut authority = rcgen::CertificateParams::new(Vec::new()).unwrap();
        authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let authority_key = rcgen::KeyPair::generate().unwrap();
        let authority = rcgen::CertifiedIssuer::self_signed(authority, authority_key).unwrap();
        let server_key = rcgen::KeyPair::generate().unwrap();
        let server = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let server = server.signed_by(&server_key, &authority).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![server.der().clone()],
                rustls::pki_types::PrivateKeyDer::try_from(server_key.serialize_der()).unwrap(),
            )
            .unwrap();
        let config = Arc::new(config);
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let base_url = format!("https://localhost:{}/v1", listener.local_addr().unwrap().port());
        std::thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                let mut session = rustls::ServerConnection::new(config.clone()).unwrap();
                // A client that does not trust the certificate ends the handshake.
                let _ = answer_one(&mut rustls::Stream::new(&mut session, &mut stream), answer);
            }
        });
        TlsServer { base_url, authority: authority.pem() }
    }
}

/// Reads a request and answers it.
fn answer_one(stream: &mut (impl Read + Write), answer: &[u8]) -> std::io::Result<()> {
    let mut length = 0;
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap();
        }
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let stream = reader.into_inner();
    write!(
        stream,
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        answer.len()
    )?;
    stream.write_all(answer)?;
    stream.flush()
}

/// A company's own authority is trusted where the configuration or the environment names it, and not otherwise.
#[tokio::test]
async fn certificates_of_an_own_authority_are_trusted_where_they_are_named() {
    let answer = b"data: {\"choices\":[{\"delta\":{\"content\":\"hello over TLS\"}}]}\n\n\
                   data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    let server = TlsServer::start(answer);
    let model = "model = \"p/m\"\n";
    let provider = |more: &str| provider("p", Wire::Chat, &server.base_url, more);
    let configured = |config: String| {
        let machine = Machine::new(&config);
        fs::write(machine.root.join("config/mainstay/own.pem"), &server.authority).unwrap();
        machine
    };

    let unknown = configured(format!("{model}{}", provider(""))).run(&["exec", "x"]).await;
    assert_eq!(unknown.code, 69, "{}", unknown.err);
    assert!(unknown.err.contains("does not trust the server's certificate"), "{}", unknown.err);
    assert!(unknown.err.contains("ca_certificates"), "{}", unknown.err);

    let own = "ca_certificates = \"own.pem\"\n";
    for machine in
        [configured(format!("{own}{model}{}", provider(""))), configured(format!("{model}{}", provider(own)))]
    {
        let ran = machine.run(&["exec", "x"]).await;
        assert_eq!((ran.code, ran.out.as_str()), (0, "hello over TLS\n"), "{}", ran.err);
    }
    let machine = configured(format!("{model}{}", provider("")));
    let file = machine.root.join("config/mainstay/own.pem").display().to_string();
    for name in ["SSL_CERT_FILE", "MAINSTAY_CA_CERTIFICATES"] {
        let machine = configured(format!("{model}{}", provider(""))).with(name, &file);
        let ran = machine.run(&["exec", "x"]).await;
        assert_eq!((ran.code, ran.out.as_str()), (0, "hello over TLS\n"), "{name}: {}", ran.err);
    }

    let machine = configured(format!("{own}{model}{}", provider("")));
    fs::write(machine.root.join("config/mainstay/own.pem"), "no certificate").unwrap();
    let none = machine.run(&["exec", "x"]).await;
    assert_eq!(none.code, 78, "{}", none.err);
    assert!(none.err.contains("the certificates of provider `p` cannot be used"), "{}", none.err);
}

/// The proxies of the environment are used, for plain and for encrypted addresses, and never for this machine.
#[tokio::test]
async fn proxies_of_the_environment_are_used_but_never_for_this_machine() {
    let key = key();
    let proxy = server([Wire::Chat.says("over the proxy"), Reply::json(502, "")]).await;
    let local = server([Wire::Chat.says("direct")]).await;
    let address = proxy.base_url().trim_end_matches("/v1").to_owned();
    let keyed = "api_key_env = \"P_KEY\"";
    let plain = provider("plain", Wire::Chat, "http://model.example/v1", keyed);
    let secret = provider("secret", Wire::Chat, "https://model.example/v1", keyed);
    let near = provider("near", Wire::Chat, &local.base_url(), keyed);
    let machine = Machine::new(&format!("{plain}{secret}{near}"))
        .with("P_KEY", &key)
        .with("HTTP_PROXY", &address)
        .with("HTTPS_PROXY", &address);

    let ran = machine.run(&["exec", "--model", "plain/m", "x"]).await;
    assert_eq!((ran.code, ran.out.as_str()), (0, "over the proxy\n"), "{}", ran.err);
    assert_eq!(proxy.received()[0].path, "http://model.example/v1/chat/completions");

    let ran = machine.run(&["exec", "--model", "near/m", "x"]).await;
    assert_eq!((ran.code, ran.out.as_str()), (0, "direct\n"), "{}", ran.err);
    assert_eq!(proxy.received().len(), 1, "a server on this machine is asked directly");

    let ran = machine.run(&["exec", "--model", "secret/m", "x"]).await;
    assert_eq!(ran.code, 69, "{}", ran.err);
    let tunnel = &proxy.received()[1];
    assert_eq!((tunnel.method.as_str(), tunnel.path.as_str()), ("CONNECT", "model.example:443"));
    assert!(!format!("{tunnel:?}").contains(&key), "the proxy sees no key");

    let far = Machine::new(&plain)
        .with("P_KEY", &key)
        .with("HTTP_PROXY", &address)
        .with("NO_PROXY", "model.example");
    let before = proxy.received().len();
    let _ = far.run(&["exec", "--model", "plain/m", "x"]).await;
    assert_eq!(proxy.received().len(), before, "NO_PROXY is obeyed");
}

/// D20: a key and the value of a header are sent, and stand nowhere else: not in the log, not in what is printed, whether the
/// answer is one, an error that quotes them, or an error inside an answer that began.
#[tokio::test]
async fn keys_are_never_logged_nor_shown() {
    for wire in WIRES {
        let (key, header) = (key(), format!("hd-{}", "fedcba98".repeat(3)));
        let quoted =
            |status| wire.error(status, &format!("Incorrect API key provided: {key}, with {header}."));
        // The key stands where the message is cut off.
        let long = wire.error(400, &format!("{} {key}", "x".repeat(585)));
        let inside = match wire {
            Wire::Chat => format!("data: {{\"error\":{{\"message\":\"bad {key}\",\"code\":400}}}}\n\n"),
            Wire::Anthropic => format!(
                "event: error\ndata: {{\"type\":\"error\",\"error\":{{\"type\":\"invalid_request_error\",\"message\":\"bad {key}\"}}}}\n\n"
            ),
            Wire::Responses => format!(
                "event: error\ndata: {{\"type\":\"error\",\"code\":\"invalid_request_error\",\"message\":\"bad {key}\"}}\n\n"
            ),
            Wire::Gemini => format!(
                "data: {{\"error\":{{\"code\":400,\"message\":\"bad {key}\",\"status\":\"INVALID_ARGUMENT\"}}}}\n\n"
            ),
        };
        let replies = [
            wire.says("fine"),
            quoted(401),
            quoted(401),
            long,
            Reply::stream(inside),
            wire.error(503, &format!("busy with {key}")),
            wire.says("fine"),
        ];
        let server = server(replies).await;
        let more = format!("api_key_env = \"P_KEY\"\nheaders = {{ X-Team = \"{header}\" }}");
        let config = format!("model = \"p/m\"\n{}", provider("p", wire, &server.base_url(), &more));
        let machine = Machine::new(&config).with("P_KEY", &key);
        let json = ["exec", "--json", "--last", "x"];
        let plain = ["exec", "--last", "x"];
        let runs = [(&["exec", "x"][..], 0), (&plain, 77), (&json, 77), (&plain, 1), (&json, 1), (&json, 0)];
        for (arguments, code) in runs {
            let ran = machine.run(arguments).await;
            assert_eq!(ran.code, code, "{wire:?} {arguments:?} {}{}", ran.out, ran.err);
            for text in [&ran.out, &ran.err] {
                // Not even a part of one.
                assert!(
                    !text.contains(&key[..8]) && !text.contains(&header[..8]),
                    "{wire:?} {arguments:?}: {text}"
                );
            }
        }
        let sent = server.received();
        assert_eq!(sent.len(), 7, "{wire:?}");
        for request in sent {
            assert!(request.headers.iter().any(|(_, value)| value.contains(&key)), "the key is sent");
            assert_eq!(request.header("x-team"), Some(header.as_str()));
            assert!(!request.path.contains(&key) && !body(&request).contains(&key));
        }
        let files = files_below(&machine.root.join("data"));
        assert!(files.len() > 2, "{files:?}");
        for file in files {
            let text = String::from_utf8_lossy(&fs::read(&file).unwrap()).into_owned();
            assert!(!text.contains(&key[..8]) && !text.contains(&header[..8]), "{wire:?} {}", file.display());
        }
    }
}

/// What a failure means is told by the exit code, over every format, and the line says what to check.
#[tokio::test]
async fn failures_end_with_the_code_of_their_class() {
    for wire in WIRES {
        for (reply, code, says) in [
            (wire.error(401, "no such key"), 77, "provider `p` has no key configured"),
            (wire.error(402, "pay first"), 69, "no credit left"),
            (
                wire.error(429, "slow down").header("retry-after", "31"),
                75,
                "the provider asks to wait 31 s: try again at ",
            ),
            (wire.error(400, "max_tokens is odd"), 1, "max_tokens is odd"),
            (wire.error(404, "no such model"), 1, "base_url of provider `p`"),
            (Reply::new(200, "text/html", "<html>hello</html>"), 1, "answered with a web page"),
            (
                Reply::json(307, "").header("location", "https://elsewhere.example/v1"),
                1,
                "redirects to https://elsewhere.example/v1",
            ),
        ] {
            let server = server([reply]).await;
            let machine =
                Machine::new(&format!("model = \"p/m\"\n{}", provider("p", wire, &server.base_url(), "")));
            let ran = machine.run(&["exec", "x"]).await;
            assert_eq!((ran.code, ran.out.as_str()), (code, ""), "{wire:?} {}", ran.err);
            assert!(ran.err.contains(says), "{wire:?}: no {says:?} in {}", ran.err);
            let other = ran.err.contains("wants api = \"openai-chat\"");
            assert_eq!(
                other,
                wire == Wire::Responses && says.starts_with("base_url"),
                "{wire:?} {}",
                ran.err
            );
            assert_eq!(server.received().len(), 1, "{wire:?}: it is not tried again");
        }
    }
}

/// What is tried again is said, with the class, the wait and which try it is, also where events are printed; after the last
/// try it ends with 75.
#[tokio::test]
async fn retries_are_said_and_end() {
    let busy = || Wire::Chat.error(503, "busy").header("retry-after", "0");
    let server = server((0..8).map(|_| busy())).await;
    let machine =
        Machine::new(&format!("model = \"p/m\"\n{}", provider("p", Wire::Chat, &server.base_url(), "")));
    for arguments in [&["exec", "x"][..], &["exec", "--json", "x"]] {
        let ran = machine.run(arguments).await;
        assert_eq!(ran.code, 75, "{}", ran.err);
        for retry in 1..=3 {
            let line = format!(
                "retry {retry} of 3 in 0.0 s (overload): {}/chat/completions answered HTTP 503: busy",
                server.base_url()
            );
            assert_eq!(
                ran.err.lines().filter(|said| **said == line).count(),
                1,
                "no {line:?} in\n{}",
                ran.err
            );
        }
    }
    assert_eq!(server.received().len(), 8);
    let long = Wire::Chat.error(429, "Please try again in 2h.");
    server.push(long);
    let ran = machine.run(&["exec", "--json", "x"]).await;
    assert_eq!(ran.code, 75);
    let error: Value = ran
        .out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .find(|event: &Value| event["type"] == "error")
        .unwrap();
    assert_eq!((&error["class"], &error["retry_after"]), (&json!("rate"), &json!(7200.0)), "{error}");
}

/// A session that goes on with a model of a smaller window is made to fit before that model is asked.
#[tokio::test]
async fn a_model_with_a_smaller_window_gets_what_fits_it() {
    let read = gemini(&[json!({"text": "ok"})], 25_000);
    let large = server([Wire::Gemini.reads("f"), Wire::Gemini.reads("g"), read]).await;
    let small = server([Wire::Chat.says("The files f and g were read."), Wire::Chat.says("fine")]).await;
    let config = format!(
        "{}[providers.large.models.m]\ncontext_window = 200000\n{}[providers.small.models.m]\ncontext_window = 8000\n",
        provider("large", Wire::Gemini, &large.base_url(), ""),
        provider("small", Wire::Chat, &small.base_url(), ""),
    );
    let machine = Machine::new(&config);
    for name in ["f", "g"] {
        fs::write(machine.root.join("work").join(name), "some words of a line\n".repeat(2_000)).unwrap();
    }
    let ran = machine.run(&["exec", "--model", "large/m", "read both"]).await;
    assert_eq!(ran.code, 0, "{}", ran.err);
    let ran = machine.run(&["exec", "--last", "--model", "small/m", "and now?"]).await;
    assert_eq!((ran.code, ran.out.as_str()), (0, "fine\n"), "{}", ran.err);
    for request in small.received() {
        Wire::Chat.check(&request.json()).unwrap();
        assert!(request.body.len() < 8_000 * 4, "{} bytes", request.body.len());
    }
    let report = machine.run(&["history", "--cache", "--json"]).await.out;
    let report: Value = serde_json::from_str(&report).unwrap();
    let last = report["requests"].as_array().unwrap().last().unwrap().clone();
    let reason = last["break"]["reason"].as_str().unwrap();
    assert!(reason.contains("compaction") && reason.contains("model changed: large/m → small/m"), "{last}");
}

/// `--effort` reaches each provider in its own field, and a change of it is an entry.
#[tokio::test]
async fn an_effort_is_sent_and_logged() {
    for wire in WIRES {
        let server = server((0..3).map(|_| wire.says("ok"))).await;
        let model = "[providers.p.models.m]\neffort = \"low\"\nmax_output = 60000";
        let machine =
            Machine::new(&format!("model = \"p/m\"\n{}", provider("p", wire, &server.base_url(), model)));
        for arguments in [
            &["exec", "x"][..],
            &["exec", "--last", "--effort", "high", "x"],
            &["exec", "--last", "--effort", "high", "x"],
        ] {
            let ran = machine.run(arguments).await;
            assert_eq!(ran.code, 0, "{wire:?} {}", ran.err);
        }
        let efforts: Vec<Value> =
            machine.entries("model").iter().map(|entry| entry["effort"].clone()).collect();
        assert_eq!(efforts, ["low", "high"], "{wire:?}");
        let sent: Vec<Value> = server.received().iter().map(Received::json).collect();
        let field = |body: &Value| match wire {
            Wire::Chat => body["reasoning_effort"].clone(),
            Wire::Anthropic => body["thinking"].clone(),
            Wire::Responses => body["reasoning"]["effort"].clone(),
            Wire::Gemini => body["generationConfig"]["thinkingConfig"].clone(),
        };
        assert!(!field(&sent[0]).is_null() && !field(&sent[1]).is_null(), "{wire:?} {}", sent[1]);
        assert_ne!(field(&sent[0]), field(&sent[1]), "{wire:?}");
        assert_eq!(field(&sent[1]), field(&sent[2]), "{wire:?}");
    }
}

/// Other settings of a model and a provider reach the wire.
#[tokio::test]
async fn settings_reach_the_wire() {
    for wire in WIRES {
        let server = server([wire.says("ok")]).await;
        let more = "headers = { X-Team = \"core\" }\nfirst_token_timeout = 5\nidle_timeout = 5\n\
                    [providers.p.models.m]\nmax_output = 1234\ntemperature = 0.5\nextra_body = { extra_field = 7 }\ntext_calls = \"off\"";
        let machine =
            Machine::new(&format!("model = \"p/m\"\n{}", provider("p", wire, &server.base_url(), more)));
        let ran = machine.run(&["exec", "x"]).await;
        assert_eq!(ran.code, 0, "{wire:?} {}", ran.err);
        let request = &server.received()[0];
        assert_eq!(request.header("x-team"), Some("core"));
        let body = request.json();
        let (limit, temperature) = match wire {
            Wire::Chat | Wire::Anthropic => (&body["max_tokens"], &body["temperature"]),
            Wire::Responses => (&body["max_output_tokens"], &body["temperature"]),
            Wire::Gemini => {
                (&body["generationConfig"]["maxOutputTokens"], &body["generationConfig"]["temperature"])
            }
        };
        assert_eq!((limit, temperature), (&json!(1234), &json!(0.5)), "{wire:?} {body}");
        assert_eq!(body["extra_field"], 7, "{wire:?}");
    }
}
