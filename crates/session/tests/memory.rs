//! What opening a session takes in memory. A file of its own, since memory is counted for the whole process.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

#[allow(dead_code, unreachable_pub, missing_docs, reason = "the benches use it too")]
#[path = "../benches/made/mod.rs"]
mod made;

use std::fs;
use std::io::BufReader;
use std::sync::Mutex;

use made::Made;
use mainstay_session::entry::{Body, Grant};
use mainstay_session::log::{Durability, Log, export, import, read, whole_conversation};

const LINE: usize = 12 << 20;

/// Held while memory is counted.
static ALONE: Mutex<()> = Mutex::new(());

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
    // The kernel's counts are a few pages apart.
    (memory("VmHWM").saturating_sub(before), made)
}

/// L08, D08: a session whose one line is all there is takes twice that line in memory while it is opened, and what it
/// keeps once.
#[test]
fn a_line_of_12_mb_is_in_memory_twice_at_most() {
    let _alone = ALONE.lock();
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

/// D09: a session of any age is shown and imported line by line.
#[test]
fn an_old_session_is_never_in_memory_whole() {
    let _alone = ALONE.lock();
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut session = Made::new(here.path(), here.path(), 1);
    session.prompt("Read it all");
    (0..24).for_each(|_| session.round(1 << 20));
    (0..4).for_each(|_| session.round(40));
    session.append(Body::Grant(Grant { tool: "bash".into(), pattern: "*".into(), scope: "session".into() }));
    session.next_segment();
    session.end("Done.");
    let dir = session.log.dir().to_owned();
    drop(session);
    let allowed = 12 << 20;
    // The allocator keeps what the session took; held, it cannot hide what is taken next.
    let held: Vec<Vec<u8>> = (0..32).map(|_| vec![1; 1 << 20]).collect();
    let file = here.path().join("export");
    export(&dir, false, "", made::beginning(), &mut fs::File::create(&file).unwrap()).unwrap();
    let mut from = BufReader::new(fs::File::open(&file).unwrap());
    let (taken, imported) = peak(|| import(there.path(), &mut from).unwrap());
    assert!(taken <= allowed, "the import took {taken} bytes, more than {allowed}");
    assert_eq!(imported.grants.len(), 1);
    let (taken, whole) = peak(|| whole_conversation(&dir, usize::MAX).unwrap());
    assert!(taken > allowed, "all of it took only {taken} bytes");
    drop(whole);
    let (taken, whole) = peak(|| whole_conversation(&dir, 4).unwrap());
    assert!(taken <= allowed, "the conversation took {taken} bytes, more than {allowed}");
    assert_eq!((whole.left_out, whole.passages.len()), (26, 4));
    drop(held);
}
