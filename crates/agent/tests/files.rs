//! The file tools through the loop: what the log carries from one call, and one process, to the next.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

mod common;

use std::fs;
use std::sync::Arc;

use common::*;
use futures_util::future::BoxFuture;
use mainstay_agent::Setup;
use mainstay_model::{Attempt, Delta, Encoded, Model, TextCallRule};
use mainstay_session::entry::StopReason;
use mainstay_session::message::{ContentHash, FileChange, FilePath, Image, Outcome};
use mainstay_session::request::Request;
use mainstay_testkit::{models, tools};
use mainstay_tools::{Edit, Read, ToolKind, Write};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

fn with_files(setup: Setup) -> Setup {
    with_tool(with_tool(with_tool(setup, Arc::new(Read)), Arc::new(Write)), Arc::new(Edit))
}

fn edit(path: &str, old: &str, new: &str) -> (&'static str, Value) {
    ("edit", json!({ "path": path, "edits": [{ "old": old, "new": new }] }))
}

fn read(path: &str) -> (&'static str, Value) {
    ("read", json!({ "path": path }))
}

/// W02, E06: several edits of one file in one answer, through several names, are all made, and each is declared.
#[tokio::test]
async fn edits_of_one_answer_build_on_each_other() {
    let bench = Bench::new();
    let file = bench.workspace.path().join("f");
    let numbers: String = (1..=100).map(|n| format!("{n}\n")).collect();
    fs::write(&file, &numbers).unwrap();
    std::os::unix::fs::symlink("f", bench.workspace.path().join("s")).unwrap();
    let edits = [edit("f", "50\n", "FIFTY\n"), edit("./f", "75", "SEVENTY-FIVE"), edit("s", "99", "X")];
    let (setup, _) = bench.scripted(&json!([calls(&[read("f")]), calls(&edits), text("done")]));
    let (agent, report) = run(with_files(setup), "go").await;
    assert_stopped(&report, StopReason::EndTurn);
    let expected = numbers.replace("50\n", "FIFTY\n").replace("75", "SEVENTY-FIVE").replace("99", "X");
    assert_eq!(fs::read_to_string(&file).unwrap(), expected);
    let changes: Vec<FileChange> =
        results(&agent.dir()).into_iter().flat_map(|result| result.changes).collect();
    assert_eq!(changes.len(), 3);
    assert!(changes.iter().all(|change| change.path == FilePath(file.clone())));
    assert!(changes.windows(2).all(|pair| pair[1].before.as_ref() == Some(&pair[0].after)));
    assert_eq!(changes[0].before, Some(ContentHash::of(numbers.as_bytes())));
    assert_eq!(changes[2].after, ContentHash::of(expected.as_bytes()));
    assert_sound(&agent);
}

/// U15: what was read before a restart can be edited after it as long as the file is the same, and not if it was changed.
#[tokio::test]
async fn what_was_read_is_known_after_a_restart() {
    for (between, outcome, summary, left) in [
        ("one\n", Outcome::Ok, "Edited f: 1 replacement (+1 -1 lines)", "two\n"),
        (
            "one, but another\n",
            Outcome::Error,
            "f has changed since it was last read; read it again, then change it",
            "one, but another\n",
        ),
    ] {
        let bench = Bench::new();
        let file = bench.workspace.path().join("f");
        fs::write(&file, "one\n").unwrap();
        let (setup, _) = bench.scripted(&json!([calls(&[read("f")]), text("done")]));
        let (agent, _) = run(with_files(setup), "look").await;
        fs::write(&file, between).unwrap();
        let change = calls(&[edit("f", "one", "two")]);
        let (setup, _) = bench.scripted(&json!([work(), work(), change, text("done")]));
        let (mut agent, _) = resume(agent, with_files(setup));
        go(&mut agent, "change it").await;
        let result = results(&agent.dir()).pop().unwrap();
        assert_eq!((result.outcome, result.summary.as_str()), (outcome, summary));
        assert_eq!(fs::read_to_string(&file).unwrap(), left);
    }
}

/// E04: the same stale edit again and again gets a stronger text, and ends the turn.
#[tokio::test]
async fn a_stale_edit_is_not_repeated_for_ever() {
    let bench = Bench::new();
    let file = bench.workspace.path().join("f");
    fs::write(&file, "select 1\n").unwrap();
    let stale = || calls(&[edit("f", "select 1", "select 2")]);
    let (setup, _) = bench.scripted(&json!([calls(&[read("f")]), text("done")]));
    let (agent, _) = run(with_files(setup), "look").await;
    fs::write(&file, "SELECT 1\n").unwrap();
    let (setup, _) = bench.scripted(&json!([work(), work(), stale(), stale(), stale(), stale()]));
    let (mut agent, _) = resume(agent, with_files(setup));
    let report = go(&mut agent, "change it").await;
    assert_stopped(&report, StopReason::RepeatedFailure);
    let told: Vec<String> = results(&agent.dir()).into_iter().skip(1).map(|result| result.text()).collect();
    let first = "f has changed since it was last read; read it again, then change it\n\
                 As it is now: The nearest text, lines 1-1:\nSELECT 1";
    let again = format!(
        "{first}\nThis very call has failed before. Do something else first: after a third failure the turn ends."
    );
    assert_eq!(told, [first, &again, &again]);
    assert_eq!(fs::read_to_string(&file).unwrap(), "SELECT 1\n");
}

/// §9: an image that was read is in the result's entry, and its bytes are in the spill; a model without eyes has none.
#[tokio::test]
async fn an_image_that_was_read_is_part_of_the_session() {
    let gif = b"GIF89a\x01\0\x01\0\x80\0\0\0\0\0\xff\xff\xff,\0\0\0\0\x01\0\x01\0\0\x02\x02D\x01\0;";
    for sees in [true, false] {
        let bench = Bench::new();
        fs::write(bench.workspace.path().join("shot"), gif).unwrap();
        let inner = models::script(&json!([calls(&[read("shot")]), text("done")]));
        let setup = bench.setup(Arc::new(Eyes { inner, sees }));
        let (agent, _) = run(with_files(setup), "look").await;
        let result = results(&agent.dir()).pop().unwrap();
        let hash = ContentHash::of(gif);
        let image = Image { media_type: "image/gif".to_owned(), hash: hash.clone(), bytes: gif.len() as u64 };
        assert_eq!(result.images, if sees { vec![image] } else { Vec::new() }, "{}", result.summary);
        assert_eq!(agent.spill().load(&hash).ok(), sees.then(|| gif.to_vec()));
        assert_sound(&agent);
    }
}

/// A model that says whether it takes images.
struct Eyes {
    inner: Arc<dyn Model>,
    sees: bool,
}

impl Model for Eyes {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn api(&self) -> &str {
        self.inner.api()
    }

    fn context_window(&self) -> u64 {
        self.inner.context_window()
    }

    fn takes_images(&self) -> bool {
        self.sees
    }

    fn text_calls(&self) -> TextCallRule {
        self.inner.text_calls()
    }

    fn effort(&self) -> Option<&str> {
        self.inner.effort()
    }

    fn encode(&self, request: &Request<'_>) -> Encoded {
        self.inner.encode(request)
    }

    fn units(&self, request: &Request<'_>) -> Vec<Vec<u8>> {
        self.inner.units(request)
    }

    fn stream<'a>(
        &'a self,
        request: &'a Encoded,
        on_delta: &'a mut (dyn FnMut(Delta<'_>) + Send),
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Attempt> {
        self.inner.stream(request, on_delta, cancel)
    }
}

/// D17: half of a surrogate pair is not written as U+FFFD, nor given to a command that may write it; a whole pair is.
#[tokio::test]
async fn half_of_a_surrogate_pair_reaches_no_file() {
    let bench = Bench::new();
    let raw = |name: &str, content: &str| {
        let arguments = format!(r#"{{"path":"f","content":"{content}"}}"#);
        json!({ "calls": [{ "name": name, "arguments": arguments }] })
    };
    let answers = [
        raw("write", r"a\ud83d"),
        raw("shell", r"\udc00"),
        raw("work", r"\udc00"),
        raw("write", r"b\ud83d\ude00"),
        text("done"),
    ];
    let (setup, _) = bench.scripted(&json!(answers));
    let setup = with_tool(with_files(setup), tools::succeeds("shell", ToolKind::Command));
    let (agent, _) = run(setup, "go").await;
    let told: Vec<String> = results(&agent.dir()).into_iter().map(|result| result.text()).collect();
    let refused = |name: &str| {
        format!(
            "`{name}` was not run: its arguments hold half of a surrogate pair, which no file can hold; send whole characters"
        )
    };
    assert_eq!(
        told,
        [refused("write"), refused("shell"), "work is done".to_owned(), "Created f: 1 line".to_owned()]
    );
    assert_eq!(fs::read_to_string(bench.workspace.path().join("f")).unwrap(), "b\u{1F600}");
}
