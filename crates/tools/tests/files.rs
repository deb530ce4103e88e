//! read, write and edit through the seam that the loop uses, on real files.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::HashMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use mainstay_session::log::{Durability, Spill};
use mainstay_session::message::ContentHash;
use mainstay_session::plan::PlanInView;
use mainstay_tools::{CallContext, Edit, FileMemory, Jobs, Read, Tool, ToolError, ToolOutput, Write};
use proptest::prelude::*;
use serde_json::json;
use tokio_util::sync::CancellationToken;

/// A workspace with the three tools of one session, which remembers what results declare as the fold does.
struct Workspace {
    _outer: tempfile::TempDir,
    root: PathBuf,
    outside: PathBuf,
    seen: Arc<Mutex<HashMap<PathBuf, ContentHash>>>,
    context: CallContext,
    read: Read,
    write: Write,
    edit: Edit,
}

impl Workspace {
    fn new() -> Self {
        let outer = tempfile::tempdir().unwrap();
        let base = outer.path().canonicalize().unwrap();
        let (root, outside) = (base.join("ws"), base.join("out"));
        fs::create_dir(&root).unwrap();
        fs::create_dir(&outside).unwrap();
        let seen = Arc::new(Mutex::new(HashMap::new()));
        let looked_up = seen.clone();
        let context = CallContext {
            workspace: root.clone(),
            readable: Vec::new(),
            plan: PlanInView::default(),
            seen: Arc::new(move |path: &Path| looked_up.lock().unwrap().get(path).cloned()),
            intent: Arc::new(|_| Ok(())),
            jobs: Arc::new(Jobs::new(base.join("session/jobs"), 0, Arc::new(|_| ()))),
            spill: Spill::of_session(&base.join("session"), Durability::Relaxed),
            takes_images: true,
            max_result_bytes: 1 << 20,
            cancel: CancellationToken::new(),
        };
        let memory = Arc::new(FileMemory::default());
        Workspace {
            _outer: outer,
            root,
            outside,
            seen,
            context,
            read: Read,
            write: Write::new(memory.clone()),
            edit: Edit::new(memory),
        }
    }

    fn put(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.root.join(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        fs::read(self.root.join(name)).unwrap()
    }

    async fn call(&self, tool: &dyn Tool, arguments: serde_json::Value) -> Result<ToolOutput, ToolError> {
        let result = tool.run(&arguments.to_string(), &self.context).await;
        if let Ok(output) = &result {
            for file in &output.referenced_files {
                if let Some(hash) = &file.hash {
                    self.seen.lock().unwrap().insert(file.path.0.clone(), hash.clone());
                }
            }
        }
        result
    }

    async fn read(&self, path: &str) -> Result<ToolOutput, ToolError> {
        self.call(&self.read, json!({ "path": path })).await
    }

    async fn write(&self, path: &str, content: &str) -> Result<ToolOutput, ToolError> {
        self.call(&self.write, json!({ "path": path, "content": content })).await
    }

    async fn edit(&self, path: &str, old: &str, new: &str) -> Result<ToolOutput, ToolError> {
        self.call(&self.edit, json!({ "path": path, "edits": [{ "old": old, "new": new }] })).await
    }

    /// Reads, then edits.
    async fn change(&self, path: &str, old: &str, new: &str) -> Result<ToolOutput, ToolError> {
        self.read(path).await.unwrap();
        self.edit(path, old, new).await
    }
}

fn whole(error: ToolError) -> String {
    format!("{}\n{}", error.summary, error.content.unwrap_or_default())
}

/// U01, U12: a link and its target are one file, by its canonical absolute path.
#[tokio::test]
async fn success_declares_exactly_the_canonical_path() {
    let ws = Workspace::new();
    let path = ws.put("real.txt", "one\n");
    symlink("real.txt", ws.root.join("link.txt")).unwrap();
    for name in ["real.txt", "./real.txt", "link.txt", path.to_str().unwrap()] {
        let output = ws.read(name).await.unwrap();
        assert_eq!(output.referenced_files.len(), 1);
        assert_eq!(output.referenced_files[0].path.0, path);
        assert_eq!(output.referenced_files[0].hash, Some(ContentHash::of(b"one\n")));
    }
    let output = ws.edit("link.txt", "one", "two").await.unwrap();
    assert_eq!(output.referenced_files[0].path.0, path);
    let output = ws.write("sub/dir/new.txt", "x").await.unwrap();
    assert_eq!(output.referenced_files[0].path.0, ws.root.join("sub/dir/new.txt"));
    assert_eq!(output.summary, "Created sub/dir/new.txt: 1 line");
}

/// U02
#[test]
fn a_string_is_a_summary_and_declares_no_file() {
    let output = ToolOutput::from("done".to_owned());
    assert_eq!(output, ToolOutput { summary: "done".to_owned(), ..ToolOutput::default() });
}

/// U08: an error has no place for a file.
#[tokio::test]
async fn failed_calls_help() {
    let ws = Workspace::new();
    ws.put("main.rs", "x");
    let error = ws.read("mian.rs").await.unwrap_err();
    assert_eq!(whole(error), "mian.rs does not exist\nSimilar names in the same directory: main.rs");
    let error = ws.read("no/dir/x").await.unwrap_err();
    assert_eq!(whole(error), "no/dir/x does not exist\nIts directory no/dir does not exist either.");
    fs::create_dir(ws.root.join("d")).unwrap();
    ws.put("d/a", "");
    assert_eq!(
        whole(ws.read("d").await.unwrap_err()),
        "d is a directory with 1 entry; read one file in it\na"
    );
    let error = ws.call(&ws.write, json!({})).await.unwrap_err();
    assert_eq!(
        whole(error),
        "the arguments do not fit; nothing was done\n`path`: missing, expected a string\n\
         `content`: missing, expected a string\n\
         expected: {\"path\": \"src/main.rs\", \"content\": \"the whole file\"}"
    );
}

/// W06
#[tokio::test]
async fn odd_arguments_run_nothing() {
    let ws = Workspace::new();
    for arguments in ["", "null", "[]", "{\"path\":\"a\",\"content\":\"li", "3"] {
        assert!(ws.write.run(arguments, &ws.context).await.is_err(), "{arguments}");
    }
    assert_eq!(fs::read_dir(&ws.root).unwrap().count(), 0);
}

#[tokio::test]
async fn reading_shows_the_text_and_says_what_it_is() {
    let ws = Workspace::new();
    ws.put("a", "one\ntwo\nthree\n");
    let output = ws.read("a").await.unwrap();
    assert_eq!((output.summary.as_str(), output.content.as_deref()), ("a: 3 lines", Some("one\ntwo\nthree")));
    let output = ws.call(&ws.read, json!({"path": "a", "offset": 2, "limit": "1"})).await.unwrap();
    assert_eq!(output.summary, "a: lines 2-2 of 3; go on with offset 3 (Read `limit` \"1\" as a number.)");
    assert_eq!(output.content.as_deref(), Some("two"));
    let error = ws.call(&ws.read, json!({"path": "a", "offset": 9})).await.unwrap_err();
    assert_eq!(error.summary, "offset 9 is past the end: a has 3 lines");
    ws.put("empty", "");
    assert_eq!(ws.read("empty").await.unwrap().summary, "empty is empty");
    for (bytes, summary, content) in [
        (&b"a\r\nb\r\n"[..], "f: 2 lines (CRLF line endings, kept by write and edit)", "a\nb"),
        (b"a\r\nb\n", "f: 2 lines (mixed line endings: 1 CRLF, 1 LF)", "a\nb"),
        (b"\xEF\xBB\xBFhi\n", "f: 1 line (byte order mark, kept by write and edit)", "hi"),
        (b"\xFF\xFEh\0i\0\n\0", "f: 1 line (UTF-16, kept by write and edit)", "hi"),
        (b"hi", "f: 1 line (no newline at the end)", "hi"),
        (
            b"caf\xE9\n",
            "f: 1 line (not UTF-8: U+FFFD stands for bytes that cannot be shown and stay as they are)",
            "caf\u{fffd}",
        ),
    ] {
        ws.put("f", bytes);
        let output = ws.read("f").await.unwrap();
        assert_eq!((output.summary.as_str(), output.content.as_deref()), (summary, Some(content)));
    }
}

/// U16, E12: bounded, cut at character borders, with a way to go on inside a line.
#[tokio::test]
async fn long_files_are_cut_at_characters_and_can_be_continued() {
    let ws = Workspace::new();
    ws.put("ja", "日本語のとても長い行です。\n".repeat(9_000));
    let output = ws.read("ja").await.unwrap();
    assert!(output.summary.contains("go on with offset"), "{}", output.summary);
    assert!(output.content.as_ref().unwrap().len() <= 50 * 1024);
    assert!(!output.content.unwrap().contains('\u{fffd}'));

    let line: String = (0..50_000).map(|n| char::from(b'a' + (n % 26) as u8)).collect::<String>() + "日本";
    ws.put("min.json", &line);
    let output = ws.read("min.json").await.unwrap();
    let text = output.content.unwrap();
    assert_eq!(&text[..2_000], &line[..2_000]);
    assert!(text.ends_with(" […line 1 goes on for 48002 characters: offset 1, column 2001…]"), "{text}");
    let mut got = line[..2_000].to_owned();
    while got.len() < line.len() {
        let column = got.chars().count() + 1;
        let output = ws.call(&ws.read, json!({"path": "min.json", "offset": 1, "column": column})).await;
        let text = output.unwrap().content.unwrap();
        got.push_str(text.split(" […line").next().unwrap());
    }
    assert_eq!(got, line);
}

/// E12
#[tokio::test]
async fn devices_pipes_and_binaries_are_refused_without_hanging() {
    let ws = Workspace::new();
    let pipe = std::ffi::CString::new(ws.root.join("pipe").as_os_str().as_bytes()).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::from(0o600), 0)
        .unwrap();
    ws.put("elf", b"\x7fELF\x02\x01\0\0");
    for (name, why) in [
        ("pipe", "pipe is a named pipe, not a regular file; it was not opened"),
        ("elf", "elf is an ELF program or library of 8 bytes, not text; it was not read"),
    ] {
        assert_eq!(ws.read(name).await.unwrap_err().summary, why);
    }
    assert!(ws.write("pipe", "x").await.is_err());
    let sparse = fs::File::create(ws.root.join("sparse")).unwrap();
    sparse.set_len(10 << 30).unwrap();
    assert!(ws.read("sparse").await.unwrap_err().summary.contains("binary"));
    let mut context = ws.context.clone();
    context.readable = vec![PathBuf::from("/dev")];
    let error = ws.read.run(r#"{"path":"/dev/zero"}"#, &context).await.unwrap_err();
    assert_eq!(error.summary, "/dev/zero is a device, not a regular file; it was not opened");
}

/// E13: a unique look-alike is taken and told; of two neither.
#[tokio::test]
async fn look_alike_names_are_taken_only_where_they_are_unique() {
    let ws = Workspace::new();
    ws.put("v\u{a0}13.05.txt", "space\n");
    let output = ws.read("v 13.05.txt").await.unwrap();
    assert!(output.summary.contains("looks the same"), "{}", output.summary);
    ws.put("a\u{308}.txt", "nfd\n");
    assert_eq!(ws.read("ä.txt").await.unwrap().content.unwrap(), "nfd");
    ws.put("ä.txt", "nfc\n");
    assert_eq!(ws.read("ä.txt").await.unwrap().content.unwrap(), "nfc");
    ws.put("v\u{2009}13.05.txt", "thin\n");
    assert!(whole(ws.read("v 13.05.txt").await.unwrap_err()).contains("Similar names"));
}

/// E14
#[tokio::test]
async fn names_that_are_not_utf8_are_shown_reversibly() {
    let ws = Workspace::new();
    let name = std::ffi::OsStr::from_bytes(b"a\xffz.txt");
    fs::write(ws.root.join(name), "odd\n").unwrap();
    let output = ws.read("a\\xFFz.txt").await.unwrap();
    assert_eq!(output.content.as_deref(), Some("odd"));
    let json = serde_json::to_string(&output.referenced_files).unwrap();
    let back: Vec<mainstay_session::message::ReferencedFile> = serde_json::from_str(&json).unwrap();
    assert_eq!(back[0].path.0, ws.root.join(name));
}

/// W01, E01, E02, E03: every byte outside the replaced span stays.
#[tokio::test]
async fn edits_keep_every_other_byte() {
    let ws = Workspace::new();
    let cases: [(&[u8], &str, &str, &[u8]); 14] = [
        (
            b"a = 1\r\nb = 2\r\nc = 3\r\n",
            "b = 2\nc = 3",
            "b = 22\nc = 3\nd = 4",
            b"a = 1\r\nb = 22\r\nc = 3\r\nd = 4\r\n",
        ),
        (
            b"a = 1\r\nb = 2\r\nc = 3",
            "b = 2\nc = 3",
            "b = 22\nc = 3\nd = 4",
            b"a = 1\r\nb = 22\r\nc = 3\r\nd = 4",
        ),
        (b"a\nb\n", "b", "b\nc", b"a\nb\nc\n"),
        (b"a\r\nb\nc\r\n", "b\n", "x\ny\n", b"a\r\nx\ny\nc\r\n"),
        (b"a\nb\r\nc\n", "b", "x\ny", b"a\nx\r\ny\r\nc\n"),
        (b"a\rb\rc\r", "b\nc", "x\ny", b"a\rx\ry\r"),
        (b"\xEF\xBB\xBFhello\nworld\n", "world", "there", b"\xEF\xBB\xBFhello\nthere\n"),
        (b"\xEF\xBB\xBFhello\nworld\n", "hello\nworld", "x", b"\xEF\xBB\xBFx\n"),
        (b"const x = 1\n// \xD6\xD0\xCE\xC4\n", "x = 1", "x = 2", b"const x = 2\n// \xD6\xD0\xCE\xC4\n"),
        (b"// caf\xE9\nx\n", "x", "y", b"// caf\xE9\ny\n"),
        (b"// \xA9\r\nx\r\n", "x", "y\nz", b"// \xA9\r\ny\r\nz\r\n"),
        (b"\xFF\xFEa\0\r\0\n\0\xe9\0", "a", "\u{1F600}", b"\xFF\xFE\x3d\xd8\x00\xde\r\0\n\0\xe9\0"),
        (b"a\nb", "b", "c", b"a\nc"),
        (b"a\r\r\nb\r\r\n", "b", "c", b"a\r\r\nc\r\r\n"),
    ];
    for (before, old, new, after) in cases {
        ws.put("f", before);
        ws.change("f", old, new).await.unwrap_or_else(|e| panic!("{before:?}: {e:?}"));
        assert_eq!(ws.bytes("f").escape_ascii().to_string(), after.escape_ascii().to_string());
    }
    ws.put("gbk", b"\xD6\x41bc\n");
    assert!(ws.change("gbk", "Abc", "x").await.unwrap_err().summary.contains("half of a character"));
    assert!(ws.change("gbk", "bc", "é").await.unwrap_err().summary.contains("not UTF-8"));
    assert_eq!(ws.bytes("gbk"), b"\xD6\x41bc\n");
}

/// W01, E10: mode and links stay; several hard links stay one file.
#[tokio::test]
async fn edits_keep_mode_and_links() {
    let ws = Workspace::new();
    for mode in [0o755, 0o600, 0o444] {
        let path = ws.put(&format!("m{mode:o}"), "a\n");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        ws.change(&format!("m{mode:o}"), "a", "b").await.unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, mode);
    }
    ws.put("target", "a\n");
    symlink("target", ws.root.join("link")).unwrap();
    ws.change("link", "a", "b").await.unwrap();
    assert!(fs::symlink_metadata(ws.root.join("link")).unwrap().is_symlink());
    assert_eq!(ws.bytes("target"), b"b\n");
    ws.put("h1", "a\n");
    fs::hard_link(ws.root.join("h1"), ws.root.join("h2")).unwrap();
    ws.change("h1", "a", "bb").await.unwrap();
    assert_eq!(ws.bytes("h2"), b"bb\n");
    ws.change("h2", "bb", "c").await.unwrap();
    assert_eq!(ws.bytes("h1"), b"c\n");
    let left: Vec<_> = fs::read_dir(&ws.root).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().contains("mainstay")), "{left:?}");
}

/// W02, E06: the second edit is not stale, what changed the file is the first.
#[tokio::test]
async fn parallel_edits_through_several_names_are_all_present() {
    let ws = Workspace::new();
    let text: String = (1..=100).map(|n| format!("{n}\n")).collect();
    ws.put("f", &text);
    symlink("f", ws.root.join("s")).unwrap();
    ws.read("f").await.unwrap();
    let (a, b, c) = tokio::join!(
        ws.edit("f", "50\n", "FIFTY\n"),
        ws.edit("./f", "75", "SEVENTY-FIVE"),
        ws.edit("s", "99", "X")
    );
    for result in [a, b, c] {
        result.unwrap();
    }
    let expected = text.replace("50\n", "FIFTY\n").replace("75", "SEVENTY-FIVE").replace("99", "X");
    assert_eq!(String::from_utf8(ws.bytes("f")).unwrap(), expected);
}

/// W03, E07, E08
#[tokio::test]
async fn ambiguous_empty_and_idle_edits_are_refused() {
    let ws = Workspace::new();
    ws.put("f", "import a\nimport a\nx\n");
    let error = ws.change("f", "import a", "b").await.unwrap_err();
    assert_eq!(
        error.summary,
        "f: `old` occurs 2 times, on lines 1, 2; quote more of the lines around the one that is meant, or set replace_all"
    );
    assert!(ws.edit("f", "", "b").await.unwrap_err().summary.contains("`old` is empty"));
    assert!(ws.edit("f", "x", "x").await.unwrap_err().summary.contains("are the same"));
    let cancelling = json!({"path": "f", "edits": [{"old": "x", "new": "y"}, {"old": "y", "new": "x"}]});
    let error = ws.call(&ws.edit, cancelling).await.unwrap_err();
    assert_eq!(error.summary, "f: the edits match but together change nothing");
    let error = ws.edit("f", "import z", "q").await.unwrap_err();
    assert_eq!(whole(error), "f: `old` does not occur in the file\nThe nearest text, lines 1-1:\nimport a");
    assert_eq!(ws.bytes("f"), b"import a\nimport a\nx\n");
    ws.edit("f", "import a\nx", "import b\nx").await.unwrap();
    let all = json!({"path": "f", "edits": [{"old": "import", "new": "use", "replace_all": true}]});
    assert_eq!(ws.call(&ws.edit, all).await.unwrap().summary, "Edited f: 2 replacements (+2 -2 lines)");
    assert_eq!(ws.bytes("f"), b"use a\nuse b\nx\n");
}

#[tokio::test]
async fn several_edits_are_all_made_or_none() {
    let ws = Workspace::new();
    ws.put("f", "a\nb\nc\n");
    ws.read("f").await.unwrap();
    let edits =
        |second: &str| json!({"path": "f", "edits": [{"old": "a", "new": "A"}, {"old": second, "new": "X"}]});
    let error = ws.call(&ws.edit, edits("zzz")).await.unwrap_err();
    assert!(error.summary.starts_with("f: edit 2 of 2: `old` does not occur"), "{}", error.summary);
    assert_eq!(ws.bytes("f"), b"a\nb\nc\n");
    let output = ws.call(&ws.edit, edits("c")).await.unwrap();
    assert_eq!(output.content.as_deref(), Some("@@ -1,3 +1,3 @@\n-a\n+A\n b\n-c\n+X"));
}

#[tokio::test]
async fn white_space_aside_whole_lines_match_and_it_is_said() {
    let ws = Workspace::new();
    ws.put("f", "fn f() {\n    if a {\n        b();\n    }\n}\n");
    let output = ws.change("f", "if a {\n    b();\n}", "if a {\n    c();\n}").await.unwrap();
    assert!(output.summary.contains("(Lines 2-4 matched except for white space.)"), "{}", output.summary);
    assert_eq!(String::from_utf8(ws.bytes("f")).unwrap(), "fn f() {\n    if a {\n        c();\n    }\n}\n");
    ws.put("g", "  x = 1\n    x = 1\n");
    let error = ws.change("g", "x  =  1", "y").await.unwrap_err();
    assert!(error.summary.contains("2 times (white space aside), on lines 1, 2"), "{}", error.summary);
}

/// E04, E05, E15, U15: contents count, times do not.
#[tokio::test]
async fn a_file_must_be_as_it_was_read() {
    let ws = Workspace::new();
    let path = ws.put("f", "select 1\nx\n");
    let unread = ws.edit("f", "x", "y").await.unwrap_err();
    assert_eq!(unread.summary, "f has not been read yet; read it first, then change it");
    assert!(ws.write("f", "new").await.is_err());
    ws.read("f").await.unwrap();
    fs::File::open(&path).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
    ws.edit("f", "x", "y").await.unwrap();
    ws.edit("f", "y", "z").await.unwrap();
    ws.write("f", "select 1\n").await.unwrap();
    ws.put("f", "SELECT 1\n");
    let first = ws.edit("f", "select 1", "select 2").await.unwrap_err();
    let second = ws.edit("f", "select 1", "select 2").await.unwrap_err();
    assert_eq!(
        whole(first.clone()),
        "f has changed since it was last read; read it again, then change it\n\
         As it is now: The nearest text, lines 1-1:\nSELECT 1"
    );
    assert_ne!(first.summary, second.summary);
    assert!(ws.write("f", "x").await.is_err());
    assert_eq!(ws.bytes("f"), b"SELECT 1\n");
    ws.change("f", "SELECT 1", "SELECT 2").await.unwrap();
}

/// W05, E09: refused, and nothing is made outside.
#[tokio::test]
async fn paths_that_lead_out_are_refused_and_create_nothing() {
    let ws = Workspace::new();
    fs::write(ws.outside.join("victim"), "v\n").unwrap();
    symlink(ws.outside.join("victim"), ws.root.join("notes.md")).unwrap();
    symlink(&ws.outside, ws.root.join("d")).unwrap();
    symlink(ws.outside.join("not-yet"), ws.root.join("draft")).unwrap();
    symlink("../out/not-yet", ws.root.join("relative")).unwrap();
    symlink("circle", ws.root.join("circle")).unwrap();
    for path in [
        "notes.md",
        "d/victim",
        "d/new/deep",
        "draft",
        "relative",
        "../out/x",
        "/etc/hostname",
        "a/../../out/x",
        "circle",
    ] {
        assert!(ws.read(path).await.is_err(), "{path}");
        assert!(ws.write(path, "x").await.is_err(), "{path}");
        assert!(ws.edit(path, "v", "x").await.is_err(), "{path}");
    }
    let error = ws.write("d/new", "x").await.unwrap_err();
    assert_eq!(
        whole(error),
        format!(
            "d/new is outside the workspace; nothing was done\nIt leads to {}. The workspace is {}.",
            ws.outside.join("new").display(),
            ws.root.display()
        )
    );
    assert_eq!(fs::read(ws.outside.join("victim")).unwrap(), b"v\n");
    assert_eq!(fs::read_dir(&ws.outside).unwrap().count(), 1);
    fs::create_dir(ws.root.join("in")).unwrap();
    symlink("in", ws.root.join("inner")).unwrap();
    symlink("in/later", ws.root.join("dangling")).unwrap();
    ws.write("inner/x", "1").await.unwrap();
    ws.write("dangling", "2").await.unwrap();
    assert_eq!((ws.bytes("in/x"), ws.bytes("in/later")), (b"1".to_vec(), b"2".to_vec()));
}

/// W05: a link that is swapped in while calls run never leads out.
#[tokio::test]
async fn swapped_links_never_lead_out() {
    let ws = Workspace::new();
    let (dir, link) = (ws.root.join("dir"), ws.root.join("link"));
    fs::create_dir(&dir).unwrap();
    symlink(&ws.outside, &link).unwrap();
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let swapping = {
        let (stop, dir, link) = (stop.clone(), dir.clone(), link.clone());
        std::thread::spawn(move || {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                rustix::fs::renameat_with(
                    rustix::fs::CWD,
                    &dir,
                    rustix::fs::CWD,
                    &link,
                    rustix::fs::RenameFlags::EXCHANGE,
                )
                .unwrap();
            }
        })
    };
    for n in 0..300 {
        let _ = ws.write(&format!("dir/f{n}"), "x").await;
        let _ = ws.write(&format!("link/sub/f{n}"), "x").await;
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    swapping.join().unwrap();
    assert_eq!(fs::read_dir(&ws.outside).unwrap().count(), 0);
}

#[tokio::test]
async fn overwriting_keeps_the_form_of_the_file() {
    let ws = Workspace::new();
    for (before, content, after) in [
        (&b"a\r\nb\r\n"[..], "x\ny\n", &b"x\r\ny\r\n"[..]),
        (b"\xEF\xBB\xBFa\n", "b\n", b"\xEF\xBB\xBFb\n"),
        (b"\xFF\xFEa\0", "b", b"\xFF\xFEb\0"),
        (b"a\r\nb\n", "x\ny\n", b"x\ny\n"),
    ] {
        ws.put("f", before);
        ws.read("f").await.unwrap();
        ws.write("f", content).await.unwrap();
        assert_eq!(ws.bytes("f"), after);
    }
    ws.put("latin", b"caf\xE9\n");
    ws.read("latin").await.unwrap();
    assert!(ws.write("latin", "caf\u{fffd}!\n").await.is_err());
    assert_eq!(ws.bytes("latin"), b"caf\xE9\n");
    assert_eq!(ws.write("f", "x\ny\n").await.unwrap().summary, "f unchanged: it already held exactly this");
}

#[tokio::test]
async fn other_names_for_arguments_are_read_and_told() {
    let ws = Workspace::new();
    ws.put("f", "a\n");
    ws.read("f").await.unwrap();
    let flat = json!({"file_path": "f", "old_string": "a", "new_string": "b", "replace_all": "false"});
    let output = ws.call(&ws.edit, flat).await.unwrap();
    assert_eq!(
        output.summary,
        "Edited f: 1 replacement (+1 -1 lines) (Read `file_path` as `path`, `old_string` as `old`, `new_string` as `new`, a single edit as `edits`.)"
    );
    let text = json!({"path": "f", "edits": "[{\"old\":\"b\",\"new\":\"c\"}]"});
    ws.call(&ws.edit, text).await.unwrap();
    let error = ws.call(&ws.edit, json!({"path": "f", "edits": [{"old": 1, "x": 2}]})).await.unwrap_err();
    assert!(whole(error).contains("`edits[0]`: `old`: expected a string, the number 1 came; `new`: missing"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// W01, law 7: around a marked span every byte stays, whatever the file's encoding and line endings are.
    #[test]
    fn bytes_outside_an_edit_stay(
        before in file_bytes(),
        after in file_bytes(),
        marked in any::<bool>(),
        new in "[a-z\n]{0,12}",
    ) {
        let before = if marked { [b"\xEF\xBB\xBF".to_vec(), before].concat() } else { before };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let ws = Workspace::new();
            ws.put("f", [&before[..], b"\n@SPAN@", &after[..]].concat());
            ws.change("f", "@SPAN@", &new).await.unwrap();
            let bytes = ws.bytes("f");
            assert!(bytes.starts_with(&[&before[..], b"\n"].concat()));
            assert!(bytes.ends_with(&after));
            let middle = &bytes[before.len() + 1..bytes.len() - after.len()];
            assert_eq!(String::from_utf8_lossy(middle).replace("\r\n", "\n").replace('\r', "\n"), new);
        });
    }
}

fn file_bytes() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(b"\n".to_vec()),
        Just(b"\r\n".to_vec()),
        Just(b"\r".to_vec()),
        Just("é€😀".as_bytes().to_vec()),
        Just(b"\xE9".to_vec()),
        Just(b"\xD6\xD0\xCE\x41".to_vec()),
        "[a-zA-Z {}();]{0,8}".prop_map(String::into_bytes),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}
