//! bash through the seam that the loop uses, with real processes.
//!
//! The program is its own supervisor, so it brings its own `main`. How commands are kept together depends on who runs them
//! and on what the kernel offers, so the cases are run in every variant that can be made here (`variants.rs`).
//! `cargo test … --test commands NAME` runs the cases with this part of a name.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    unreachable_pub,
    reason = "a test may fail loudly, and reports by itself"
)]

#[path = "commands/place.rs"]
mod place;

#[path = "commands/output.rs"]
mod output;

#[path = "commands/processes.rs"]
mod processes;

#[path = "commands/daemons.rs"]
mod daemons;

#[path = "commands/jobs.rs"]
mod jobs;

#[path = "commands/variants.rs"]
mod variants;

use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use place::Place;

fn main() -> ExitCode {
    mainstay_tools::supervise_if_asked();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["--as-agent", workspace, command, rest @ ..] => agent(workspace, command, rest),
        ["--cases", which, part] => cases(which, part),
        ["--without", refused, rest @ ..] => variants::go_on_without(refused, rest),
        rest => {
            let part = rest.iter().find(|argument| !argument.starts_with('-')).unwrap_or(&"");
            variants::run_all(part)
        }
    }
}

/// Runs the cases of one variant: `all`, or only those about `processes`.
fn cases(which: &str, part: &str) -> ExitCode {
    let wanted = PROCESSES.iter().chain(if which == "all" { OUTPUT } else { &[] });
    let (mut passed, mut failed) = (0, 0);
    for (name, case) in wanted.filter(|(name, _)| name.contains(part)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let begun = Instant::now();
        let result = std::panic::catch_unwind(AssertUnwindSafe(|| runtime.block_on(case(Place::new()))));
        let word = if result.is_ok() { "ok" } else { "FAILED" };
        println!("{name} … {word} ({} ms)", begun.elapsed().as_millis());
        if result.is_ok() { passed += 1 } else { failed += 1 }
    }
    println!("{passed} passed, {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A process that runs one command, for others to kill.
fn agent(workspace: &str, command: &str, rest: &[&str]) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut place = Place::of(PathBuf::from(workspace));
    if rest.contains(&"dies") {
        let note = place.root.join("waiting");
        place.context.intent = Arc::new(move |process| {
            std::fs::write(&note, process.pid.to_string()).unwrap();
            let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
            Ok(())
        });
    }
    runtime.block_on(async {
        if rest.contains(&"background") {
            place.start(command).await;
            std::future::pending::<()>().await;
        }
        let _ = place.run(command).await;
    });
    ExitCode::SUCCESS
}

type Case = fn(Place) -> futures_util::future::BoxFuture<'static, ()>;

macro_rules! cases {
    ($($module:ident: $($name:ident),+;)*) => {
        &[$($((stringify!($name), |place| Box::pin($module::$name(place)))),+),*]
    };
}

const OUTPUT: &[(&str, Case)] = cases![
    output:
        output_and_exit_code_are_told,
        what_a_shell_does_not_wait_for_may_finish,
        nothing_waits_for_a_person,
        input_is_empty,
        a_flood_is_bounded,
        a_cut_is_between_characters,
        bytes_that_are_no_text_are_said,
        terminal_control_is_taken_out,
        what_is_printed_is_told_while_it_runs,
        a_vanished_directory_is_said,
        timeouts_are_kept_to_and_said,
        long_and_impossible_commands,
        closed_output_is_no_end,
        keys_are_in_no_command,
        commands_start_afresh;
    processes:
        nothing_is_left_behind_by_many_calls;
    jobs:
        a_job_that_floods_is_bounded,
        what_is_no_job_leaves_nothing;
];

const PROCESSES: &[(&str, Case)] = cases![
    processes:
        a_child_that_keeps_the_output_is_not_waited_for,
        a_timeout_ends_the_whole_tree_and_keeps_what_was_printed,
        nothing_is_done_before_the_intent_is_logged,
        a_refused_intent_is_the_end,
        a_cancelled_command_is_ended,
        a_call_to_a_stuck_keeper_can_be_cancelled,
        why_a_command_cannot_be_started_is_said,
        a_dropped_call_ends_its_command,
        what_forks_without_end_is_ended,
        a_killed_keeper_is_said_and_replaced,
        a_killed_supervisor_is_replaced,
        nothing_outlives_a_killed_agent,
        an_agent_killed_before_the_command_goes_runs_nothing;
    daemons:
        a_hundred_daemons_leave_nothing;
    jobs:
        a_job_runs_on_and_its_end_is_told,
        jobs_are_listed_waited_for_and_stopped,
        a_job_ends_with_all_that_it_started,
        jobs_end_with_their_session;
];
