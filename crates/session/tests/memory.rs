//! What opening a session takes in memory. A file of its own, since memory is counted for the whole process.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

#[allow(dead_code, unreachable_pub, missing_docs, reason = "the benches use it too")]
#[path = "../benches/made/mod.rs"]
mod made;

use std::fs;

use made::Made;
use mainstay_session::log::{Durability, Log, read};

const LINE: usize = 12 << 20;

/// What the kernel says of this process's memory, in bytes.
fn memory(field: &str) -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
}

/// How much more memory something took at its peak than there was before.
fn peak<T>(run: impl FnOnce() -> T) -> (usize, T) {
    // Sets the peak back to what there is now (proc_pid_clear_refs(5)).
    fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = memory("VmRSS");
    let made = run();
    (memory("VmHWM") - before, made)
}

/// L08, D08: a session whose one line is all there is takes twice that line in memory while it is opened, and what it
/// keeps once.
#[test]
fn a_line_of_12_mb_is_in_memory_twice_at_most() {
    let home = tempfile::tempdir().unwrap();
    let dir = {
        let mut session = Made::new(home.path(), home.path(), 1);
        session.prompt("Read it all");
        session.round(LINE);
        session.end("Done.");
        session.log.dir().to_owned()
    };
    let allowed = LINE * 2 + (2 << 20);
    let (taken, state) = peak(|| read(&dir).unwrap().0);
    assert!(taken <= allowed, "reading took {taken} bytes, more than {allowed}");
    assert_eq!(state.results().next().unwrap().content.as_ref().map(String::len), Some(LINE));
    drop(state);
    let now = made::beginning();
    let (taken, log) = peak(|| Log::open(&dir, Durability::Always, now).unwrap());
    assert!(taken <= allowed, "opening took {taken} bytes, more than {allowed}");
    drop(log);
}
