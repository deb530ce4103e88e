//! glob and grep through the seam that the loop uses, on real trees. That they find what ripgrep finds is tried in
//! `corpus.rs`; here it is how they are asked and what they tell.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mainstay_session::log::{Durability, Spill};
use mainstay_session::plan::PlanInView;
use mainstay_tools::search::globs::Globs;
use mainstay_tools::search::pattern::{Pattern, Reading};
use mainstay_tools::search::{Stop, Wanted, files, lines};
use mainstay_tools::{
    BuiltinOptions, CallContext, Glob, Grep, Jobs, Read, Tool, ToolError, ToolKind, ToolOutput, builtin_tools,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

struct Workspace {
    _outer: tempfile::TempDir,
    root: PathBuf,
    outside: PathBuf,
    context: CallContext,
}

impl Workspace {
    /// A workspace that is a repository, with these files; each holds the line `needle`.
    fn with(names: &[&str]) -> Self {
        let outer = tempfile::tempdir().unwrap();
        let base = outer.path().canonicalize().unwrap();
        let (root, outside) = (base.join("ws"), base.join("out"));
        fs::create_dir_all(root.join(".git")).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::create_dir(base.join("session")).unwrap();
        let context = CallContext {
            workspace: root.clone(),
            readable: Vec::new(),
            plan: PlanInView::default(),
            seen: Arc::new(|_| None),
            intent: Arc::new(|_| Ok(())),
            jobs: Arc::new(Jobs::new(std::env::temp_dir().join("no-jobs"), 0, Arc::new(|_| ()))),
            spill: Spill::of_session(&base.join("session"), Durability::Relaxed),
            takes_images: false,
            max_result_bytes: 1 << 20,
            on_output: Arc::new(|_| {}),
            cancel: CancellationToken::new(),
        };
        let ws = Workspace { _outer: outer, root, outside, context };
        for name in names {
            ws.put(name, "needle\n");
        }
        ws
    }

    fn put(&self, name: impl AsRef<OsStr>, bytes: impl AsRef<[u8]>) {
        let path = self.root.join(Path::new(name.as_ref()));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    async fn glob(&self, arguments: Value) -> Result<ToolOutput, ToolError> {
        Glob.run(&arguments.to_string(), &self.context).await
    }

    async fn grep(&self, arguments: Value) -> Result<ToolOutput, ToolError> {
        Grep.run(&arguments.to_string(), &self.context).await
    }

    /// The paths that a pattern finds.
    async fn found(&self, pattern: &str) -> Vec<String> {
        let output = self.glob(json!({ "pattern": pattern })).await.unwrap();
        output.content.unwrap_or_default().lines().map(str::to_owned).collect()
    }
}

fn whole(output: ToolOutput) -> String {
    assert!(output.referenced_files.is_empty(), "finding is not touching");
    match output.content {
        Some(content) => format!("{}\n{content}", output.summary),
        None => output.summary,
    }
}

fn whole_error(error: ToolError) -> String {
    format!("{}\n{}", error.summary, error.content.unwrap_or_default())
}

/// U01: neither declares a file, both only read; and they stand where the model is told of them.
#[tokio::test]
async fn they_only_read_and_declare_nothing() {
    let tools = builtin_tools(&BuiltinOptions::default());
    let names: Vec<String> = tools.iter().map(|tool| tool.spec().name).collect();
    assert_eq!(names, ["read", "write", "edit", "glob", "grep", "bash", "todo_write"]);
    assert_eq!((Glob.kind(), Grep.kind()), (ToolKind::Read, ToolKind::Read));
    for spec in [Glob.spec(), Grep.spec()] {
        serde_json::from_str::<Value>(&spec.schema).unwrap();
    }
    let ws = Workspace::with(&["a.rs"]);
    assert_eq!(whole(ws.glob(json!({"pattern": "*.rs"})).await.unwrap()), "1 file matches\na.rs");
    let found = whole(ws.grep(json!({"pattern": "needle"})).await.unwrap());
    assert_eq!(found, "1 line matches in 1 file\na.rs\n1:needle");
}

#[tokio::test]
async fn files_come_by_path_at_most_a_hundred_with_the_total() {
    let ws = Workspace::with(&[]);
    for number in 0..120 {
        ws.put(format!("d{}/f{number:03}.txt", number % 3), "needle\nneedle\n");
    }
    let output = ws.glob(json!({"pattern": "*.txt"})).await.unwrap();
    let cut = "; the first 100 by path are shown: narrow the pattern or the path";
    assert_eq!(output.summary, format!("120 files match{cut}"));
    let shown: Vec<String> = output.content.unwrap().lines().map(str::to_owned).collect();
    let all: Vec<String> =
        (0..3).flat_map(|d| (d..120).step_by(3).map(move |f| format!("d{d}/f{f:03}.txt"))).collect();
    assert_eq!(shown, all[..100]);

    let output = ws.grep(json!({"pattern": "needle"})).await.unwrap();
    let cut = "by path are shown: narrow the pattern, the path or the glob";
    assert_eq!(output.summary, format!("240 lines match in 120 files; the first 100 {cut}"));
    let content = output.content.unwrap();
    assert_eq!(content.matches(":needle").count(), 100);
    assert!(content.starts_with("d0/f000.txt\n1:needle\n2:needle\n\nd0/f003.txt\n"), "{content}");
    let output = ws.grep(json!({"pattern": "needle", "mode": "files", "limit": 2})).await.unwrap();
    assert_eq!(whole(output), format!("120 files match; the first 2 files {cut}\nd0/f000.txt\nd0/f003.txt"));
    let output = ws.grep(json!({"pattern": "needle", "mode": "counts", "path": "d1", "glob": "f00*"})).await;
    assert_eq!(
        whole(output.unwrap()),
        "6 lines match in 3 files\nd1/f001.txt:2\nd1/f004.txt:2\nd1/f007.txt:2"
    );
    let output = ws.grep(json!({"pattern": "needle", "limit": 3})).await.unwrap();
    assert_eq!(output.content.unwrap(), "d0/f000.txt\n1:needle\n2:needle\n\nd0/f003.txt\n1:needle");
}

#[tokio::test]
async fn lines_come_with_their_context() {
    let ws = Workspace::with(&[]);
    ws.put("a", (1..=20).map(|n| format!("line {n}\n")).collect::<String>());
    let output = ws.grep(json!({"pattern": "line (5|7|15)$", "context": 1})).await.unwrap();
    assert_eq!(
        whole(output),
        "3 lines match in 1 file\na\n4-line 4\n5:line 5\n6-line 6\n7:line 7\n8-line 8\n--\n14-line 14\n15:line 15\n16-line 16"
    );
    let output = ws.grep(json!({"pattern": "line (5|7|15)$", "context": 1, "limit": 1})).await.unwrap();
    assert_eq!(output.content.unwrap(), "a\n4-line 4\n5:line 5\n6-line 6");
}

/// G01
#[tokio::test]
async fn a_pattern_that_looks_like_a_flag_is_a_pattern() {
    let ws = Workspace::with(&[]);
    ws.put("args", "--ctx-size 4096\n-1\nfn f() -> u8\n");
    for (pattern, line) in
        [("--ctx-size|--n-predict", "1:--ctx-size 4096"), ("-1", "2:-1"), ("->", "3:fn f() -> u8")]
    {
        let output = ws.grep(json!({ "pattern": pattern })).await.unwrap();
        assert_eq!(output.content.unwrap(), format!("args\n{line}"));
    }
    ws.put("-n", "");
    assert_eq!(ws.found("-n").await, ["-n"]);
}

/// G02, G03: links are not followed, which is told, and one that is named is.
#[tokio::test]
async fn links_are_told_and_followed_only_if_named() {
    let ws = Workspace::with(&["real/a.txt"]);
    fs::write(ws.outside.join("secret.txt"), "needle\n").unwrap();
    for (target, link) in [(".", "loop"), ("self", "self"), ("/", "all"), ("real", "link"), ("../out", "out")]
    {
        symlink(target, ws.root.join(link)).unwrap();
    }
    let note = "(5 links not followed: all, link, loop, …)";
    let output = ws.glob(json!({"pattern": "**/*.txt"})).await.unwrap();
    assert_eq!(whole(output), format!("1 file matches {note}\nreal/a.txt"));
    let output = ws.grep(json!({"pattern": "needle"})).await.unwrap();
    assert_eq!(whole(output), format!("1 line matches in 1 file {note}\nreal/a.txt\n1:needle"));
    let output = ws.grep(json!({"pattern": "needle", "path": "link"})).await.unwrap();
    assert_eq!(whole(output), "1 line matches in 1 file\nreal/a.txt\n1:needle");
    for path in ["out", "all", "../out", "/etc"] {
        let error = ws.glob(json!({"pattern": "*", "path": path})).await.unwrap_err();
        assert!(error.summary.ends_with("is outside the workspace; nothing was done"), "{}", error.summary);
        assert!(ws.grep(json!({"pattern": "x", "path": path})).await.is_err());
    }
    let mut context = ws.context.clone();
    context.readable = vec![ws.outside.clone()];
    let output = Glob.run(r#"{"pattern": "*", "path": "../out"}"#, &context).await.unwrap();
    assert_eq!(output.content.unwrap(), ws.outside.join("secret.txt").to_str().unwrap());
}

/// G04: what is ignored is never opened, as the system tells that watches both directories.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn ignored_directories_are_never_entered() {
    use rustix::fs::inotify::{CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init};
    let ws = Workspace::with(&["src/a.js", "node_modules/m/b.js"]);
    ws.put(".gitignore", "node_modules/\n");
    let watch = init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
    let mut watched = Vec::new();
    for directory in ["node_modules", "node_modules/m", "src"] {
        watched
            .push(add_watch(&watch, ws.root.join(directory), WatchFlags::OPEN | WatchFlags::ACCESS).unwrap());
    }
    assert_eq!(ws.found("**/*.js").await, ["src/a.js"]);
    assert_eq!(ws.found("**").await, ["src/a.js"]);
    ws.grep(json!({"pattern": "needle", "glob": "*.js"})).await.unwrap();
    let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
    let mut reader = Reader::new(&watch, &mut buffer);
    let mut seen = Vec::new();
    while let Ok(event) = reader.next() {
        assert!(!event.events().contains(ReadFlags::IGNORED));
        seen.push(event.wd());
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen, watched[2..]);
    // Named, it is searched: as `rg` does, and as the result of a vain search says.
    let output = ws.glob(json!({"pattern": "*.js", "path": "node_modules"})).await.unwrap();
    assert_eq!(output.content.unwrap(), "node_modules/m/b.js");
    let none = ws.glob(json!({"pattern": "b.js"})).await.unwrap().summary;
    assert!(
        none.starts_with("No file matches b.js in the workspace (ignored files are not listed unless"),
        "{none}"
    );
}

/// G05: an ignore file that nobody can read to its end holds nobody up, and one with bad lines counts for the others.
#[tokio::test]
async fn hostile_ignore_files_hold_nobody_up() {
    let ws = Workspace::with(&["pipe/a", "zero/a", "bad/a", "bad/b", "link/a", "link/b", "free/a"]);
    let pipe = ws.root.join("pipe/.gitignore");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::from(0o600), 0)
        .unwrap();
    symlink("/dev/zero", ws.root.join("zero/.ignore")).unwrap();
    ws.put("bad/.gitignore", "[\nb\n");
    symlink("../bad/.gitignore", ws.root.join("link/.gitignore")).unwrap();
    let found =
        tokio::time::timeout(Duration::from_secs(20), ws.glob(json!({"pattern": "?"}))).await.unwrap();
    let why = "is no regular file or too large for an ignore file; its directory was not searched";
    assert_eq!(
        whole(found.unwrap()),
        format!(
            "3 files match (2 not read: pipe/.gitignore ({why}), zero/.ignore ({why}))\nbad/a\nfree/a\nlink/a"
        )
    );
    let output = ws.glob(json!({"pattern": "*", "path": "pipe"})).await.unwrap();
    assert!(output.summary.contains("1 not read: pipe/.gitignore"), "{}", output.summary);
}

/// G06: a real name with brackets is found by writing it, as glob, as path and as glob of grep.
#[tokio::test]
async fn metacharacters_in_real_names_are_literal_too() {
    let page = "app/(app)/[slug]/layout.tsx";
    let ws = Workspace::with(&[page, "app/(app)/s/layout.tsx", "[foo", "{a,b}.rs", "a.rs", "x/back\\slash"]);
    assert_eq!(ws.found(page).await, [page, "app/(app)/s/layout.tsx"]);
    for (pattern, found) in [
        ("app/(app)/[slug]/*.tsx", &[page, "app/(app)/s/layout.tsx"][..]),
        ("**/[slug]/*.{ts,tsx}", &[page, "app/(app)/s/layout.tsx"]),
        ("**/\\[slug\\]/*", &[page]),
        ("[foo", &["[foo"]),
        ("{a,b}.rs", &["a.rs", "{a,b}.rs"]),
        ("{a", &[]),
        ("x/back\\slash", &["x/back\\slash"]),
    ] {
        assert_eq!(ws.found(pattern).await, found, "{pattern}");
    }
    for path in [page, "app/(app)/[slug]", "./app/(app)/[slug]/"] {
        let output = ws.grep(json!({"pattern": "needle", "path": path})).await.unwrap();
        assert_eq!(output.content.unwrap(), format!("{page}\n1:needle"));
    }
    let output =
        ws.grep(json!({"pattern": "needle", "glob": "**/[slug]/**", "mode": "files"})).await.unwrap();
    assert_eq!(output.content.unwrap(), format!("{page}\napp/(app)/s/layout.tsx"));
}

/// G07: an expression that is too large is refused, a costly one ends in time over long lines, and every search ends
/// when the call is cancelled.
#[tokio::test]
async fn pathological_patterns_end() {
    let ws = Workspace::with(&[]);
    for pattern in ["(((((a{90}){90}){90}){90}){90}", "\\w{1000}{1000}"] {
        let error = ws.grep(json!({ "pattern": pattern })).await.unwrap_err();
        assert!(error.summary.ends_with("nothing was searched"), "{}", whole_error(error));
    }
    let line: String =
        (0..200_000_u32).map(|n| char::from(b'a' + (n % 1_009 * (n % 997) % 23) as u8)).collect();
    ws.put("long", format!("{line}beta{line}\n"));
    ws.put("many", "a line of some words and no hit at all\n".repeat(20_000));
    let started = Instant::now();
    let output = ws.grep(json!({"pattern": ".{0,120}(alpha|beta|zzz).{0,300}"})).await.unwrap();
    assert_eq!(output.summary, "1 line matches in 1 file");
    assert!(output.content.unwrap().len() < 1_000);
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
    ws.context.cancel.cancel();
    for result in [ws.grep(json!({"pattern": "(x+x+)+y"})).await, ws.glob(json!({"pattern": "*"})).await] {
        assert_eq!(result.unwrap_err().summary, "cancelled while searching");
    }
}

/// G07: a search that shall end opens nothing more.
#[test]
fn a_stopped_search_brings_what_it_has() {
    let ws = Workspace::with(&["a", "b/c"]);
    let globs = Arc::new(Globs::new::<&str>(&ws.root, &[]).unwrap());
    let stop = Stop::default();
    assert_eq!(files(&ws.root, &globs, 9, &stop).total, 2);
    stop.run_out_of_time();
    assert!(!stop.is_cancelled());
    assert!(files(&ws.root, &globs, 9, &stop).total < 2);
    let pattern = Pattern::new("needle", Reading::default()).unwrap();
    let found = lines(&ws.root, &globs, &pattern, Wanted::Files, 9, &stop).unwrap();
    assert_eq!((found.searched, found.files), (0, 0));
}

/// G08, E12, F06: a hit in a line without end is shown with what surrounds it, cut between characters, with the column at
/// which read goes on; bytes that are no text are shown as such.
#[tokio::test]
async fn a_hit_in_an_endless_line_is_shown_with_its_surroundings() {
    let ws = Workspace::with(&[]);
    let long = format!("{}日本needle語{}\nneedle\n", "é".repeat(1_250_000), "ü".repeat(1_250_000));
    ws.put("long", &long);
    ws.put("latin", b"caf\xe9 needle \xff\n");
    let output = ws.grep(json!({"pattern": "needle"})).await.unwrap();
    assert_eq!(output.summary, "3 lines match in 2 files");
    let content = output.content.unwrap();
    assert!(content.len() < 2_000, "{}", content.len());
    let shown: Vec<&str> = content.lines().collect();
    assert_eq!(shown[..4], ["latin", "1:caf\u{fffd} needle \u{fffd}", "", "long"]);
    let (excerpt, place) = shown[4].split_once(" [from column ").unwrap();
    assert_eq!(excerpt.chars().filter(|c| *c == '\u{fffd}').count(), 0);
    assert!(
        excerpt.starts_with("1:…é") && excerpt.contains("é日本needle語ü") && excerpt.ends_with("ü…"),
        "{excerpt}"
    );
    let column: usize = place.split_once(' ').unwrap().0.parse().unwrap();
    assert_eq!(place, format!("{column} of a line of 2500009 characters]"));
    let read =
        Read.run(&json!({"path": "long", "column": column, "limit": 1}).to_string(), &ws.context).await;
    let text = read.unwrap().content.unwrap();
    assert!(text.starts_with(excerpt["1:".len()..].trim_matches('…')));
    assert_eq!(shown[5], "2:needle");
}

/// U16: a result has no more bytes than the call allows, and ends with a whole line.
#[tokio::test]
async fn results_are_cut_between_lines() {
    let mut ws = Workspace::with(&[]);
    ws.put("ja", "日本語のとても長い行です。\n".repeat(90));
    for number in 0..90 {
        ws.put(format!("とても長い名前のファイル{number}"), "");
    }
    ws.context.max_result_bytes = 2_048;
    let grep = ws.grep(json!({"pattern": "長い"})).await.unwrap();
    let glob = ws.glob(json!({"pattern": "とても*"})).await.unwrap();
    for (output, total) in [(grep, 90), (glob, 90)] {
        let lines = output.content.as_ref().unwrap().lines().filter(|line| *line != "ja").count();
        assert!(output.summary.contains(&format!("{total} ")), "{}", output.summary);
        assert!(output.summary.contains(&format!("the first {lines} by path")), "{}", output.summary);
        assert!(output.summary.len() + output.content.unwrap().len() < 2_048);
    }
}

/// E14, F08: odd names are listed so that they steer no terminal and stay one line, and read takes them as listed.
#[tokio::test]
async fn odd_names_are_shown_escaped_and_can_be_read() {
    let ws = Workspace::with(&[]);
    for name in [&b"a\xffz.txt"[..], b"new\nline.txt", b"\x1b]0;t\x07.txt"] {
        ws.put(OsStr::from_bytes(name), "needle\n");
    }
    let shown = ["\\x1B]0;t\\x07.txt", "a\\xFFz.txt", "new\\x0Aline.txt"];
    assert_eq!(ws.found("*.txt").await, shown);
    let output = ws.grep(json!({"pattern": "needle", "mode": "files"})).await.unwrap();
    assert_eq!(output.content.unwrap(), shown.join("\n"));
    for name in shown {
        let read = Read.run(&json!({ "path": name }).to_string(), &ws.context).await.unwrap();
        assert_eq!(read.content.unwrap(), "needle");
        let found = ws.grep(json!({"pattern": "needle", "path": name})).await.unwrap();
        assert_eq!(found.content.unwrap(), format!("{name}\n1:needle"));
    }
}

/// W07: a binary file that was named says whether it matches; one that was come upon is counted.
#[tokio::test]
async fn binary_files_are_told_not_shown() {
    let ws = Workspace::with(&["a"]);
    ws.put("elf", b"\x7fELF\0needle\n");
    let output = ws.grep(json!({"pattern": "needle"})).await.unwrap();
    assert_eq!(
        whole(output),
        "1 line matches in 1 file (1 binary file not searched to the end)\na\n1:needle"
    );
    let output = ws.grep(json!({"pattern": "needle", "path": "elf"})).await.unwrap();
    assert_eq!(
        whole(output),
        "1 line matches in 1 file\nelf\n(binary: it matches, but has no lines to show)"
    );
    let output = ws.grep(json!({"pattern": "none", "path": "elf"})).await.unwrap();
    assert_eq!(whole(output), "No match in elf");
    let pipe = ws.root.join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::from(0o600), 0)
        .unwrap();
    let error = ws.grep(json!({"pattern": "x", "path": "pipe"})).await.unwrap_err();
    assert_eq!(error.summary, "pipe is a named pipe, not a regular file; it was not opened");
}

#[tokio::test]
async fn patterns_that_span_lines_are_searched_across_them() {
    let ws = Workspace::with(&[]);
    ws.put("a", "fn one(\n    a: u8,\n) {}\nfn two() {}\n");
    let output = ws.grep(json!({"pattern": "fn one\\(\\n.*u8"})).await.unwrap();
    assert_eq!(whole(output), "1 match in 1 file\na\n1:fn one(\n2:    a: u8,");
    let output = ws.grep(json!({"pattern": "one.*two", "multiline": true})).await.unwrap();
    assert_eq!(
        whole(output),
        "1 match in 1 file (Read `multiline` as (?s) across lines.)\na\n1:fn one(\n2:    a: u8,\n3:) {}\n4:fn two() {}"
    );
    ws.put("b", "start\n".to_owned() + &"x\n".repeat(500) + "end\n");
    let output = ws.grep(json!({"pattern": "(?s)start\\n.*end", "path": "b"})).await.unwrap();
    let content = output.content.unwrap();
    assert!(content.ends_with("20:x\n[… 482 more lines of this match …]"), "{content}");
}

#[tokio::test]
async fn other_agents_names_are_read_and_told() {
    let ws = Workspace::with(&["a.rs", "b.py", "c.txt"]);
    let call = json!({
        "query": "NEEDLE", "directory": ".", "include": "*.{rs,py}", "output_mode": "files_with_matches",
        "head_limit": "5", "-i": true, "-n": true, "-A": 2,
    });
    assert_eq!(
        whole(ws.grep(call).await.unwrap()),
        "2 files match (Read `-i` as (?i) in `pattern`, `query` as `pattern`, `directory` as `path`, `include` as \
         `glob`, `-A` as `context`, `output_mode` as `mode`, `head_limit` as `limit`, `limit` \"5\" as a number.)\n\
         a.rs\nb.py"
    );
    for (call, files) in [
        (json!({"pattern": "needle", "mode": "files", "type": "py"}), "b.py"),
        (json!({"pattern": "needle", "mode": "files", "glob": "*.rs, *.txt"}), "a.rs\nc.txt"),
        (json!({"pattern": "needle", "mode": "files", "glob": ["*.rs", "*.py"]}), "a.rs\nb.py"),
        (json!({"pattern": "needle", "mode": "files", "glob": "!*.rs"}), "b.py\nc.txt"),
        (json!({"pattern": "Need", "mode": "files", "case_sensitive": false, "glob": "a*"}), "a.rs"),
    ] {
        assert_eq!(ws.grep(call.clone()).await.unwrap().content.unwrap(), files, "{call}");
    }
    ws.put("d", "a(b\n");
    let output = ws.grep(json!({"pattern": "a(b", "literal": true})).await.unwrap();
    assert_eq!(
        whole(output),
        "1 line matches in 1 file (Read `literal` as `pattern` as plain text.)\nd\n1:a(b"
    );
    let absolute = format!("{}/*.rs", ws.root.display());
    for pattern in ["./a.rs", "/a.rs", absolute.as_str()] {
        assert_eq!(ws.found(pattern).await, ["a.rs"], "{pattern}");
    }
}

#[tokio::test]
async fn hidden_files_are_found_by_naming_them() {
    let ws = Workspace::with(&[".github/workflows/ci.yml", ".env", "a", ".git/HEAD"]);
    assert_eq!(ws.found("**").await, ["a"]);
    assert_eq!(ws.found(".github/**/*.yml").await, [".github/workflows/ci.yml"]);
    assert_eq!(ws.found(".*").await, [".env"]);
    let output = ws.grep(json!({"pattern": "needle", "path": ".github"})).await.unwrap();
    assert_eq!(output.content.unwrap(), ".github/workflows/ci.yml\n1:needle");
    let output = ws.grep(json!({"pattern": "needle", "glob": ".env*", "mode": "files"})).await.unwrap();
    assert_eq!(output.content.unwrap(), ".env");
}

#[tokio::test]
async fn what_is_wrong_is_said_with_what_to_do() {
    let ws = Workspace::with(&["src/main.rs", "x.log"]);
    ws.put(".gitignore", "*.log\n");
    let hint = "ignored files are not listed unless `path` is the ignored directory";
    let hidden = "nor are hidden ones unless the pattern names them";
    for (call, told) in [
        (json!({"pattern": "*.py"}), format!("No file matches *.py in the workspace ({hint}, {hidden})")),
        (
            json!({"pattern": "src"}),
            "No file matches src in the workspace (src is a directory; its files match src/**, unless they are \
             ignored)"
                .to_owned(),
        ),
        (
            json!({"pattern": "x.log"}),
            "No file matches x.log in the workspace (x.log exists but is ignored, by .gitignore or the like)".to_owned(),
        ),
        (json!({"pattern": "*.py", "path": "src"}), format!("No file matches *.py in src ({hint}, {hidden})")),
    ] {
        assert_eq!(whole(ws.glob(call).await.unwrap()), told);
    }
    assert_eq!(ws.found("src/").await, ["src/main.rs"]);
    for (call, told) in [
        (json!({"pattern": ""}), "the glob \"\" is empty; use * for every file\n"),
        (json!({"pattern": "../*"}), "the glob \"../*\" leads up; set `path` to the directory instead\n"),
        (
            json!({"pattern": "*", "path": "src/main.rs"}),
            "src/main.rs is a file; name the directory to look in, or read the file\n",
        ),
        (
            json!({"pattern": "*", "path": "scr"}),
            "scr does not exist\nSimilar names in the same directory: src",
        ),
        (
            json!({"patern": "*"}),
            "the arguments do not fit; nothing was done\n`pattern`: missing, expected a string\n`patern`: no such \
             field\nexpected: {\"pattern\": \"src/**/*.rs\", \"path\": \"directory, the workspace if absent\"}",
        ),
    ] {
        assert_eq!(whole_error(ws.glob(call).await.unwrap_err()), told);
    }
    for (call, told) in [
        (
            json!({"pattern": "nothing"}),
            "No match in 1 file of the workspace (ignored and hidden files are searched only if `path` or `glob` names them)",
        ),
        (json!({"pattern": "nothing", "path": "src/main.rs"}), "No match in src/main.rs"),
        (
            json!({"pattern": "needle", "glob": "*.py", "path": "src"}),
            "No match in 0 files of src (no file matches the glob *.py; ignored and hidden files are searched only if `path` or `glob` names them)",
        ),
    ] {
        assert_eq!(whole(ws.grep(call).await.unwrap()), told);
    }
    let error = whole_error(ws.grep(json!({"pattern": "foo(bar"})).await.unwrap_err());
    assert!(error.contains("unclosed group"), "{error}");
    assert!(error.ends_with("To search for this very text: foo\\(bar"), "{error}");
    let error = whole_error(ws.grep(json!({"pattern": "(?=x)"})).await.unwrap_err());
    assert!(error.contains("look-around"), "{error}");
    let error = ws.grep(json!({"pattern": ""})).await.unwrap_err();
    assert!(error.summary.starts_with("`pattern` is empty and would match every line"), "{}", error.summary);
    let error = whole_error(ws.grep(json!({"pattern": "x", "mode": "lien", "limit": 0})).await.unwrap_err());
    assert!(error.contains("`mode`: expected lines, files or counts, \"lien\" came"), "{error}");
    assert!(error.contains("`limit`: expected a whole number from 1, the number 0 came"), "{error}");
}
