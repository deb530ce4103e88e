//! Nothing that a command starts outlives it, however it, or the agent, ends.

use std::collections::BTreeSet;
use std::fs;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mainstay_tools::{StartedProcess, is_running};
use rustix::process::{Pid, Resource, Rlimit, Signal};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::place::{Place, ended, gone, kill, send, soon, text};

/// F01, W04
pub(crate) async fn a_child_that_keeps_the_output_is_not_waited_for(place: Place) {
    for (command, start) in [
        ("sleep MARK & echo done", "exit code 0\ndone\n"),
        ("(while :; do echo tick; sleep 0.05; done; sleep MARK) & echo ok", "exit code 0\n"),
        ("(trap '' TERM; sleep MARK; sleep MARK) & (sleep MARK | sleep MARK) & echo ok", "exit code 0\nok\n"),
    ] {
        let text = soon(place.text(command)).await;
        assert!(text.starts_with(start), "{text}");
        assert!(
            text.contains(
                "that the command left running ended with it; `background: true` keeps a command running]"
            ),
            "{text}"
        );
        place.assert_no_process();
    }
    let text = place.text("sleep MARK & echo done").await;
    assert_eq!(
        text,
        "exit code 0\ndone\n[1 process that the command left running ended with it; `background: true` keeps a command running]"
    );
    let text = place.text("sleep MARK & sleep MARK & :").await;
    assert_eq!(
        text,
        "exit code 0\n[2 processes that the command left running ended with it; `background: true` keeps a command running]"
    );
}

/// F02
pub(crate) async fn a_timeout_ends_the_whole_tree_and_keeps_what_was_printed(place: Place) {
    for command in [
        "echo begun; trap '' TERM; (sleep 5; touch sentinel) & sleep MARK",
        "echo begun; sleep MARK | sleep MARK",
        "echo begun; setsid -w sleep MARK",
        "echo begun; kill -STOP $$; sleep MARK",
        "echo begun; (setsid sh -c 'trap \"\" TERM HUP; sleep MARK; sleep MARK' &) ; sleep MARK",
    ] {
        let error = soon(place.run_for(command, 300)).await.unwrap_err();
        assert_eq!(
            error.summary, "timed out after 300 ms and was ended; timeout_ms is in milliseconds; raise it",
            "{command}"
        );
        assert!(error.content.as_ref().is_some_and(|text| text.starts_with("begun")), "{error:?}");
        assert_eq!(error.exit_code, None);
        place.assert_no_process();
    }
    assert!(!place.has("sentinel"));
    let error = place.run_for("trap 'echo asked; exit 0' TERM; sleep MARK & wait", 300).await.unwrap_err();
    assert_eq!(error.content.as_deref().map(|text| &text[..5]), Some("asked"), "it may end by itself");
}

/// A command waits, before its first instruction, until its intent is logged.
pub(crate) async fn nothing_is_done_before_the_intent_is_logged(mut place: Place) {
    let seen = Arc::new(Mutex::new(None));
    let (sentinel, told) = (place.root.join("sentinel"), seen.clone());
    place.context.intent = Arc::new(move |process: StartedProcess| {
        // Long enough for a command that does not wait.
        std::thread::sleep(Duration::from_millis(100));
        let waits = is_running(process.pid, process.started) && !sentinel.exists();
        *told.lock().unwrap() = Some((waits, process));
        Ok(())
    });
    place.run("touch sentinel").await.unwrap();
    let (waited, process) = seen.lock().unwrap().take().unwrap();
    assert!(waited && place.has("sentinel"));
    assert!(!is_running(process.pid, process.started));
}

pub(crate) async fn a_refused_intent_is_the_end(mut place: Place) {
    let logs = place.context.intent.clone();
    place.context.intent = Arc::new(|_| Err("the disk is full".to_owned()));
    assert_eq!(
        place.text("touch sentinel").await,
        "the command was not run, since its intent could not be logged: the disk is full"
    );
    place.context.intent = logs;
    place.run("sleep 0.1").await.unwrap();
    assert!(!place.has("sentinel"));
}

pub(crate) async fn a_cancelled_command_is_ended(place: Place) {
    let call = place.run("echo begun; setsid sleep MARK & touch here; sleep MARK");
    let cancel = async {
        place.wait_for("here").await;
        place.context.cancel.cancel();
    };
    let (result, ()) = soon(async { tokio::join!(call, cancel) }).await;
    let error = result.unwrap_err();
    assert_eq!(error.summary, "cancelled, and ended; it may have run in part");
    assert!(error.content.is_some_and(|content| content.starts_with("begun")));
    place.assert_no_process();
}

/// Waiting for a keeper that does not answer can be cancelled, and holds up no other call.
pub(crate) async fn a_call_to_a_stuck_keeper_can_be_cancelled(mut place: Place) {
    place.run("true").await.unwrap();
    let keeper = place.keeper();
    send(keeper, Signal::STOP);
    let call = place.run("touch sentinel");
    let other = async {
        assert_eq!(place.text("echo beside").await, "exit code 0\nbeside");
        place.context.cancel.cancel();
    };
    let (result, ()) = soon(async { tokio::join!(call, other) }).await;
    assert_eq!(text(result), "cancelled before the command began; it did nothing");
    send(keeper, Signal::CONT);
    ended(keeper).await;
    assert!(!place.has("sentinel"));
    place.context.cancel = CancellationToken::new();
    assert_eq!(place.text("echo again").await, "exit code 0\nagain");
}

pub(crate) async fn why_a_command_cannot_be_started_is_said(place: Place) {
    let mut reasons = BTreeSet::new();
    // With the lowest limit there is no room for its output, with a higher one none for what else it needs.
    for most in 3..16 {
        place.run("true").await.unwrap();
        let keeper = Pid::from_raw(place.keeper().cast_signed());
        let limit = Rlimit { current: Some(most), maximum: Some(1024) };
        rustix::process::prlimit(keeper, Resource::Nofile, limit).unwrap();
        if let Err(error) = soon(place.run("true")).await {
            reasons.insert(error.summary);
        }
    }
    let not_started = |reason| format!("the command was not run: it could not be started: {reason}");
    let expected = ["Too many open files (os error 24)", "too many files are open to take its output"];
    assert_eq!(reasons, expected.map(not_started).into());
}

pub(crate) async fn a_dropped_call_ends_its_command(place: Place) {
    let call = place.run("setsid sleep MARK & touch here; sleep MARK");
    tokio::select! {
        _ = call => panic!("it ended"),
        () = place.wait_for("here") => {}
    }
    place.assert_no_process();
    assert_eq!(place.text("echo again").await, "exit code 0\nagain");
}

/// Neither descriptors nor processes, fifty times each of the ways in which a call can come out.
pub(crate) async fn nothing_is_left_behind_by_many_calls(mut place: Place) {
    place.context.max_result_bytes = 1000;
    place.run("seq 1000").await.unwrap();
    let (agent, keeper) = (place.descriptors(None), place.descriptors(Some(place.keeper())));
    let inside = place.text("ls /proc/$$/fd; true").await;
    for _ in 0..50 {
        place.run("echo x | cat").await.unwrap();
        place.run("exit 3").await.unwrap_err();
        place.run("seq 1000 $RANDOM").await.ok();
        place.run_for("sleep MARK", 5).await.unwrap_err();
        place.run("kill -9 $$").await.unwrap_err();
        place.call(json!({"command": ""})).await.unwrap_err();
    }
    assert_eq!((place.descriptors(None), place.descriptors(Some(place.keeper()))), (agent, keeper));
    let cancel = std::mem::take(&mut place.context.cancel);
    for _ in 0..50 {
        // Cancelled before and while it runs, dropped, refused by the log.
        place.context.cancel = cancel.child_token();
        place.context.cancel.cancel();
        place.run("sleep MARK").await.unwrap_err();
        place.context.cancel = cancel.child_token();
        let call = place.run("sleep MARK");
        let _ = tokio::time::timeout(Duration::from_millis(10), call).await;
        let logs = place.context.intent.clone();
        place.context.intent = Arc::new(|_| Err("no".to_owned()));
        place.run("sleep MARK").await.unwrap_err();
        place.start("sleep MARK").await;
        place.context.intent = logs;
    }
    for _ in 0..25 {
        for (command, word) in [("true", "wait"), ("sleep MARK", "stop")] {
            let started = place.start(command).await;
            let (name, _) = started.split_once(" started").unwrap();
            place.run(&format!("jobs {word} {name}")).await.unwrap();
            place.run("jobs").await.unwrap();
        }
    }
    place.run("true").await.unwrap();
    assert_eq!((place.descriptors(None), place.descriptors(Some(place.keeper()))), (agent, keeper));
    assert_eq!(place.text("ls /proc/$$/fd; true").await, inside);
    place.assert_no_process();
    let (supervisor, keeper) = (place.supervisor(), place.keeper());
    let Place { bash, .. } = place;
    drop(bash);
    gone(supervisor).await;
    ended(keeper).await;
}

pub(crate) async fn what_forks_without_end_is_ended(place: Place) {
    place.run("(while :; do sleep MARK & done) >/dev/null 2>&1 & sleep 0.1; kill $!; :").await.unwrap();
    place.assert_no_process();
    place
        .run(
            "(i=0; while [ $i -lt 100000 ]; do (sleep MARK &); i=$((i+1)); done) >/dev/null 2>&1 & sleep 0.1",
        )
        .await
        .unwrap();
    place.assert_no_process();
    // One that forks and ends, over and over, lives too short for a look at all processes.
    let chain = "export CHAIN=MARK; perl -e 'for (1 .. 1e9) { $0 = qq{link$_}; fork and exit }' & sleep 0.1";
    for _ in 0..5 {
        let told = place.text(chain).await;
        assert!(!told.contains("could not be ended"), "{told}");
        place.assert_no_process();
    }
}

pub(crate) async fn a_killed_keeper_is_said_and_replaced(place: Place) {
    let call = place.run("touch here; sleep MARK");
    let killing = async {
        place.wait_for("here").await;
        let keeper = place.keeper();
        kill(keeper);
        keeper
    };
    let (result, killed) = soon(async { tokio::join!(call, killing) }).await;
    place.assert_no_process();
    assert_eq!(
        result.unwrap_err().summary,
        "the process that runs commands ended unexpectedly; the command may have run in part"
    );
    gone(killed).await;
    assert_eq!(place.text("echo again").await, "exit code 0\nagain");
    kill(place.keeper());
    assert_eq!(place.text("echo again").await, "exit code 0\nagain");
}

pub(crate) async fn a_killed_supervisor_is_replaced(place: Place) {
    let call = place.run("touch here; sleep 0.1; echo done");
    let killing = async {
        place.wait_for("here").await;
        let both = (place.supervisor(), place.keeper());
        kill(both.0);
        both
    };
    let (result, (supervisor, keeper)) = soon(async { tokio::join!(call, killing) }).await;
    assert_eq!(text(result), "exit code 0\ndone", "its keeper goes on");
    kill(keeper);
    assert_eq!(place.text("echo again").await, "exit code 0\nagain");
    gone(supervisor).await;
    assert_ne!(place.supervisor(), supervisor);
}

/// L02
pub(crate) async fn nothing_outlives_a_killed_agent(place: Place) {
    for (number, command) in [
        "touch N; sleep MARK",
        "setsid sleep MARK & touch N; sleep MARK",
        "(setsid sh -c 'trap \"\" TERM HUP; touch N; while :; do sleep MARK; done' &) ; sleep MARK",
        "trap '' TERM; exec >&- 2>&-; touch N; while :; do sleep MARK; done",
    ]
    .iter()
    .enumerate()
    {
        let name = format!("here-{number}");
        let mut agent = place.agent(&command.replace(" N;", &format!(" {name};")), &[]);
        place.wait_for(&name).await;
        agent.kill().unwrap();
        agent.wait().unwrap();
        place.assert_no_process();
    }
}

/// L02
pub(crate) async fn an_agent_killed_before_the_command_goes_runs_nothing(place: Place) {
    let mut agent = place.agent("touch sentinel; sleep MARK", &["dies"]);
    agent.wait().unwrap();
    let waiting: u32 = fs::read_to_string(place.root.join("waiting")).unwrap().parse().unwrap();
    ended(waiting).await;
    place.assert_no_process();
    assert!(!place.has("sentinel"));
}
