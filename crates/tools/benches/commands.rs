//! What the sandbox costs a command: the time from the call to its result, with and without one, taken in turns.
//!
//! `cargo bench -p mainstay-tools --bench commands`

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a bench may fail loudly, and reports by itself"
)]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mainstay_session::log::{Durability, Spill};
use mainstay_session::plan::PlanInView;
use mainstay_tools::sandbox::{Sandbox, SandboxMode};
use mainstay_tools::{Bash, CallContext, Jobs, Supervisor, Tool};
use tokio_util::sync::CancellationToken;

const ROUNDS: usize = 300;

fn main() {
    mainstay_tools::supervise_if_asked();
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    let sandbox = Sandbox::new(SandboxMode::WorkspaceWrite, root.clone());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let ways = [("without", None), ("within", Some(sandbox))];
        let mut all = Vec::new();
        for (name, sandbox) in ways {
            let bash = Bash::new(Arc::new(Supervisor::new(Vec::new()).within(sandbox)));
            let begun = Instant::now();
            bash.run(r#"{"command": "true"}"#, &context(&root)).await.unwrap();
            println!("{name} a sandbox: the first command took {:.1} ms", millis(begun.elapsed()));
            all.push((name, bash, Vec::new()));
        }
        for _ in 0..ROUNDS {
            for (_, bash, times) in &mut all {
                let begun = Instant::now();
                bash.run(r#"{"command": "true"}"#, &context(&root)).await.unwrap();
                times.push(begun.elapsed());
            }
        }
        for (name, _, mut times) in all {
            times.sort();
            let part = |of: usize| millis(times[ROUNDS * of / 10]);
            println!(
                "{name} a sandbox: median {:.2} ms, from {:.2} to {:.2} ms (1st to 9th tenth)",
                part(5),
                part(1),
                part(9)
            );
        }
    });
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}

fn context(root: &Path) -> CallContext {
    let session = root.join(".session");
    CallContext {
        workspace: root.to_owned(),
        readable: Vec::new(),
        plan: PlanInView::default(),
        seen: Arc::new(|_: &Path| None),
        intent: Arc::new(|_| Ok(())),
        jobs: Arc::new(Jobs::new(session.join("jobs"), 0, Arc::new(|_| {}))),
        spill: Spill::of_session(&session, Durability::Relaxed),
        takes_images: false,
        max_result_bytes: 50 << 10,
        on_output: Arc::new(|_| {}),
        cancel: CancellationToken::new(),
    }
}
