//! Makes sessions to measure with, in a data directory: `sessions KIND HOME WORKSPACE`.
//!
//! - `long`: one of 100 segments and 200 MB
//! - `line`: one that holds a line of 12 MB
//! - `many`: 5,000 of one to four turns
//!
//! Prints the id of the last one. `docs/performance.md` says what was measured on them.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr, missing_docs, unreachable_pub)]

#[path = "../benches/made/mod.rs"]
mod made;

use std::path::{Path, PathBuf};

use made::Made;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kind, home, workspace] = arguments.as_slice() else { return usage() };
    let (home, workspace) = (PathBuf::from(home), Path::new(workspace).canonicalize().unwrap());
    let session = match kind.as_str() {
        "long" => long(&home, &workspace),
        "line" => line(&home, &workspace),
        "many" => many(&home, &workspace),
        _ => return usage(),
    };
    println!("{}", session.log.state().header.as_ref().unwrap().session);
}

fn usage() {
    eprintln!("usage: sessions long|line|many HOME WORKSPACE");
    std::process::exit(2);
}

/// Segments of 2 MB, each of ten turns of forty rounds.
fn long(home: &Path, workspace: &Path) -> Made {
    let mut session = Made::new(home, workspace, 1);
    for segment in 1..=100 {
        for turn in 1..=10 {
            session.prompt(&format!("Task {turn} of segment {segment}"));
            for _ in 0..40 {
                session.round(4500);
            }
            session.end("Done.");
        }
        if segment < 100 {
            session.next_segment();
        }
    }
    session
}

fn line(home: &Path, workspace: &Path) -> Made {
    let mut session = Made::new(home, workspace, 1);
    session.prompt("Read it all");
    session.round(12 << 20);
    session.end("Done.");
    session
}

fn many(home: &Path, workspace: &Path) -> Made {
    for number in 1..5000 {
        small(home, workspace, number);
    }
    small(home, workspace, 5000)
}

fn small(home: &Path, workspace: &Path, number: u32) -> Made {
    let mut session = Made::new(home, workspace, number);
    for turn in 0..=number % 4 {
        session.prompt(&format!("Mend fault {number}, part {turn}"));
        for _ in 0..5 {
            session.round(1000);
        }
        session.end(&format!("Fault {number} is mended."));
    }
    session
}
