//! How long glob and grep take on a large tree, beside `rg`.
//!
//! Both search the same tree in turns, with warm caches; medians are printed, and the share of `rg`'s time that ours is.
//! Ours is measured as the loop runs it, from the text of the arguments to the result. `rg` is a process of its own, whose
//! output is read; how long an empty run of it takes is printed too. The tree has `MAINSTAY_BENCH_FILES` files (100000).

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a program for people who measure")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mainstay_session::log::{Durability, Spill};
use mainstay_session::plan::PlanInView;
use mainstay_tools::{CallContext, Glob, Grep, Jobs, Tool};
use tokio_util::sync::CancellationToken;

const ROUNDS: usize = 15;

fn main() {
    let number =
        std::env::var("MAINSTAY_BENCH_FILES").ok().and_then(|text| text.parse().ok()).unwrap_or(100_000);
    let (_kept, root) = tree(number);
    println!("{number} files, {ROUNDS} rounds, medians in ms");
    let startup = median(|| rg(&root, &["--version"]));
    println!("{:44} rg {:7.1}", "rg that only starts", startup.as_secs_f64() * 1e3);
    let cases: [(&str, &dyn Tool, &str, &[&str]); 7] = [
        ("glob, every file", &Glob, r#"{"pattern": "**"}"#, &["--files"]),
        ("glob, by ending", &Glob, r#"{"pattern": "*.rs"}"#, &["--files", "-g", "*.rs"]),
        ("glob, in one directory", &Glob, r#"{"pattern": "d7/**/*.rs"}"#, &["--files", "-g", "d7/**/*.rs"]),
        ("grep, a word that is rare", &Grep, r#"{"pattern": "needle 77"}"#, &["-n", "needle 77"]),
        ("grep, a word in every file", &Grep, r#"{"pattern": "needle"}"#, &["-n", "needle"]),
        ("grep, a class and case", &Grep, r#"{"pattern": "(?i)ITEM_\\d*7\\("}"#, &["-n", r"(?i)ITEM_\d*7\("]),
        ("grep, files only", &Grep, r#"{"pattern": "needle", "mode": "files"}"#, &["-l", "needle"]),
    ];
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let context = context(&root);
    for (name, tool, arguments, of_rg) in cases {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..=ROUNDS {
            ours.push(timed(|| {
                runtime.block_on(tool.run(arguments, &context)).unwrap();
            }));
            theirs.push(timed(|| rg(&root, of_rg)));
        }
        // The first round warms the caches.
        let (ours, theirs) = (middle(&mut ours[1..]), middle(&mut theirs[1..]));
        let (ours, theirs) = (ours.as_secs_f64() * 1e3, theirs.as_secs_f64() * 1e3);
        println!("{name:30} ours {ours:7.1}   rg {theirs:7.1}   {:4.0} %", ours / theirs * 100.0);
    }
}

fn timed(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

fn median(work: impl Fn()) -> Duration {
    middle(&mut (0..ROUNDS).map(|_| timed(&work)).collect::<Vec<_>>())
}

fn middle(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn rg(root: &Path, arguments: &[&str]) {
    let output =
        Command::new("rg").arg("--no-config").args(arguments).current_dir(root).stdin(Stdio::null()).output();
    assert!(output.unwrap().status.success());
}

fn context(root: &Path) -> CallContext {
    CallContext {
        workspace: root.to_owned(),
        readable: Vec::new(),
        plan: PlanInView::default(),
        seen: Arc::new(|_| None),
        intent: Arc::new(|_| Ok(())),
        jobs: Arc::new(Jobs::new(std::env::temp_dir().join("no-jobs"), 0, Arc::new(|_| ()))),
        spill: Spill::of_session(&root.join(".session"), Durability::Relaxed),
        takes_images: false,
        max_result_bytes: 50 << 10,
        on_output: Arc::new(|_| {}),
        cancel: CancellationToken::new(),
    }
}

/// So many names, a fifth of them ignored, of 250 files of some 4 KB, in directories of 25.
fn tree(number: usize) -> (tempfile::TempDir, PathBuf) {
    let kept = tempfile::tempdir().unwrap();
    let root = kept.path().canonicalize().unwrap();
    let original = |index: usize| root.join(format!(".originals/{index}"));
    fs::create_dir_all(root.join(".git")).unwrap();
    fs::create_dir(root.join(".originals")).unwrap();
    fs::write(root.join(".gitignore"), "*.o\nbuild/\nnode_modules/\n/dist\n").unwrap();
    for index in 0..250 {
        let body = "    let value = compute(first, second)?; // some words of a comment\n".repeat(60);
        fs::write(original(index), format!("// needle {index}\nfn item_{index}() {{\n{body}}}\n")).unwrap();
    }
    for directory in 0..number / 25 {
        let path = root.join(format!("d{}/e{}/f{directory}", directory % 20, directory % 400));
        fs::create_dir_all(&path).unwrap();
        for file in 0..25 {
            let name = format!("file{file}.{}", ["rs", "md", "txt", "c", "o"][file % 5]);
            fs::hard_link(original((directory * 25 + file) % 250), path.join(name)).unwrap();
        }
    }
    (kept, root)
}
