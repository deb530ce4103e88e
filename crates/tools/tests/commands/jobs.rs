//! Background jobs: beside other commands, told when they end, and never longer than their session.

use std::fs;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use mainstay_tools::{Jobs, StartedProcess, is_running};
use serde_json::json;

use crate::place::{Place, SOON, most_memory, soon, text};

/// A text without what differs from run to run: process ids and times.
fn steady(text: &str) -> String {
    let mut steady = String::new();
    let mut words = text.split_inclusive(' ').peekable();
    while let Some(word) = words.next() {
        let is_number = |word: &str| word.trim().trim_end_matches(['.', ',', ')']).parse::<f64>().is_ok();
        let is_time = is_number(word) && words.peek().is_some_and(|unit| unit.starts_with('s'));
        let is_pid = is_number(word) && steady.ends_with("(process ");
        steady.push_str(if is_time {
            "N "
        } else if is_pid {
            "N) "
        } else {
            word
        });
    }
    steady.trim_end().to_owned()
}

/// A job runs beside other commands, which neither wait for it nor end it.
pub(crate) async fn a_job_runs_on_and_its_end_is_told(place: Place) {
    let intents: Arc<Mutex<Vec<StartedProcess>>> = Arc::default();
    let mut place = place;
    let logged = intents.clone();
    place.context.intent = Arc::new(move |process| {
        logged.lock().unwrap().push(process);
        Ok(())
    });
    let output = place.output_of(1).display().to_string();
    let started = soon(
        place.start(r"printf 'a\033[31mb\xff\n'; while [ ! -e go ]; do sleep 0.01; done; echo last; exit 3"),
    )
    .await;
    assert_eq!(
        steady(&started),
        format!("job-1 started (process N) Its output goes to {output}, which you can read. You will be told when it ends.")
            .replace("N) Its", &format!("{})\nIts", intents.lock().unwrap()[0].pid))
    );
    let process = intents.lock().unwrap()[0].clone();
    let job = process.job.clone().unwrap();
    assert_eq!(job.number, 1);
    assert_eq!(soon(place.text("echo beside")).await, "exit code 0\nbeside");
    assert!(is_running(process.pid, process.started));
    assert_eq!(place.context.jobs.running(), std::slice::from_ref(&job));
    assert!(place.ends().is_empty());
    soon(place.text("touch go")).await;
    let waited = soon(place.text("jobs wait job-1")).await;
    assert_eq!(steady(&waited), "job-1 ended after N s with exit code 3");
    let end = place.ends.lock().unwrap().pop().unwrap();
    assert_eq!((end.job, end.is_news), (job.clone(), true));
    assert_eq!(
        steady(&end.text),
        format!(
            "job-1 (`{}`) ended after N s with exit code 3. What it printed (11 bytes) is in {output}. The last \
             lines:\n| ab\u{fffd}\n| last",
            job.command
        )
    );
    assert_eq!(fs::read_to_string(output).unwrap(), "ab\u{fffd}\nlast\n");
    assert!(place.context.jobs.running().is_empty());
    place.assert_no_process();
}

pub(crate) async fn jobs_are_listed_waited_for_and_stopped(place: Place) {
    assert_eq!(place.text("jobs").await, "there are no background jobs; `background: true` starts one");
    assert_eq!(
        place.text("jobs stop 1").await,
        "there is no job-1 in this run of the session; there are none"
    );
    soon(place.start("echo one; sleep MARK")).await;
    soon(place.start("true")).await;
    soon(place.text("wait %2")).await;
    let still = place.call(json!({"command": "jobs wait 1", "timeout_ms": 20})).await;
    assert_eq!(text(still), "job-1 is still running after 20 ms");
    let begun = Instant::now();
    while fs::metadata(place.output_of(1)).unwrap().len() == 0 {
        assert!(begun.elapsed() < SOON);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let expected = format!(
        "1 job is running, 1 ended\njob-1 (`echo one; sleep {}`) has been running for N s (process N) What it printed (4 \
         bytes) is in {}. The last lines:\n| one\njob-2 (`true`) ended after N s with exit code 0. It has printed nothing.",
        place.mark,
        place.output_of(1).display()
    );
    assert_eq!(steady(&place.text("jobs").await), expected);
    let stopped = soon(place.text("jobs stop job-1")).await;
    assert_eq!(steady(&stopped), "job-1 was stopped after N s");
    place.assert_no_process();
    assert_eq!(soon(place.text("jobs stop job-1")).await, stopped, "once more changes nothing");
    let news: Vec<bool> = place.ends.lock().unwrap().iter().map(|end| end.is_news).collect();
    assert_eq!(news, [true, false]);
    assert_eq!(
        place.text("kill %7").await,
        "there is no job-7 in this run of the session; there are job-1, job-2"
    );
    place.context.cancel.cancel();
    soon(place.start("sleep MARK")).await;
    place.assert_no_process();
}

/// A stubborn tree ends when its job is stopped, and what a job's shell leaves running ends with the shell.
pub(crate) async fn a_job_ends_with_all_that_it_started(place: Place) {
    soon(place.start("trap '' TERM HUP INT; (setsid sh -c 'trap \"\" TERM; while :; do sleep MARK; done' &); touch here; while :; do sleep MARK; done")).await;
    place.wait_for("here").await;
    soon(place.text("jobs stop 1")).await;
    place.assert_no_process();
    soon(place.start("setsid sleep MARK & echo done")).await;
    soon(place.text("jobs wait 2")).await;
    assert!(place.ends()[1].contains("ended with it: a job is as long as its shell."), "{}", place.ends()[1]);
    place.assert_no_process();
}

/// L02: whether their owner is dropped or the session's process is killed.
pub(crate) async fn jobs_end_with_their_session(mut place: Place) {
    soon(place.start("(setsid sleep MARK &); touch here; sleep MARK")).await;
    place.wait_for("here").await;
    place.context.jobs = Arc::new(Jobs::new(place.root.join("jobs"), 1, Arc::new(|_| ())));
    // No task is woken while this waits: the job ends nevertheless.
    place.assert_no_process();
    tokio::task::yield_now().await;
    assert!(place.ends().is_empty(), "nobody is there to be told");
    assert_eq!(place.text("echo again").await, "exit code 0\nagain");
    let mut agent = place.agent("(setsid sleep MARK &); touch there; sleep MARK", &["background"]);
    place.wait_for("there").await;
    agent.kill().unwrap();
    agent.wait().unwrap();
    place.assert_no_process();
}

/// F05
pub(crate) async fn a_job_that_floods_is_bounded(place: Place) {
    let before = most_memory();
    soon(place.start("yes | head -c 100M; echo end")).await;
    place.text("jobs wait 1").await;
    assert_eq!(fs::metadata(place.output_of(1)).unwrap().len(), 64 << 20);
    let end = place.ends().pop().unwrap();
    assert!(
        end.contains("The first 64 MiB of what it printed are in") && end.ends_with("\n| y\n| end"),
        "{end}"
    );
    assert!(most_memory() - before < 16 << 10, "from {before} to {} KB", most_memory());
}

/// No job, no file: what is refused, cannot be started or is one too many.
pub(crate) async fn what_is_no_job_leaves_nothing(mut place: Place) {
    let logs = place.context.intent.clone();
    place.context.intent = Arc::new(|_| Err("the disk is full".to_owned()));
    assert_eq!(
        place.start("touch sentinel").await,
        "the command was not run, since its intent could not be logged: the disk is full"
    );
    place.context.intent = logs;
    assert!(place.context.jobs.running().is_empty());
    assert_eq!(fs::read_dir(place.context.jobs.folder()).unwrap().count(), 0);
    for _ in 0..16 {
        assert!(soon(place.start("sleep MARK")).await.contains(" started (process "));
    }
    assert_eq!(
        place.start("touch sentinel").await,
        "the job was not started: 16 jobs are running; stop one first (`jobs` lists them)"
    );
    assert!(!place.has("sentinel"));
    place.context.jobs = Arc::new(Jobs::new(place.context.jobs.folder().to_owned(), 0, Arc::new(|_| ())));
    place.assert_no_process();
    // The numbers of another run of the session are not given again.
    assert!(soon(place.start("true")).await.starts_with("job-1 started"), "the first number left a gap");
    assert!(soon(place.start("true")).await.starts_with("job-18 started"));
}
