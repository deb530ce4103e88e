//! Logs of format 1 are read to what they were read to by the version that wrote them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail loudly")]

mod common;

use std::fs;
use std::path::Path;

use mainstay_session::entry::{Body, Entry, FORMAT, When};
use mainstay_session::line;
use mainstay_session::log::{self, Durability, Log};

/// A session that holds every kind, in a folder of its own.
fn old_session(home: &Path) -> std::path::PathBuf {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/format-1");
    let dir = log::session_dir(home, &common::session_id(1));
    fs::create_dir_all(&dir).unwrap();
    for name in ["0001.jsonl", "0002.jsonl"] {
        fs::copy(fixture.join(name), dir.join(name)).unwrap();
    }
    dir
}

/// L07: the snapshot was made by the version that wrote format 1.
#[test]
fn an_old_log_is_read_to_the_same_state() {
    let home = common::temp_dir();
    let dir = old_session(home.path());
    let mut bodies = Vec::new();
    log::entries(&dir, |_, entry| {
        let entry = entry.unwrap();
        bodies.push((entry.seq, entry.body));
    })
    .unwrap();
    let (state, opening) = log::read(&dir).unwrap();
    assert_eq!(opening.damage, []);
    insta::assert_debug_snapshot!("entries_of_format_1", bodies);
    insta::assert_debug_snapshot!("state_of_format_1", state);
}

/// L07: a fork of an old session that was gone on with is a session of its own.
#[test]
fn a_fork_of_an_old_log_that_was_gone_on_with_has_its_own_name() {
    let home = common::temp_dir();
    let dir = old_session(home.path());
    let (mut log, _) = Log::open(&dir, Durability::Relaxed, common::now()).unwrap();
    log.append(common::prompt("more"), common::now()).unwrap();
    let original = log.state().header.clone().unwrap().session;
    drop(log);
    let forked = log::fork(home.path(), &dir, common::session_id(9), None, common::now()).unwrap();
    let (state, opening) = log::read(&forked.dir).unwrap();
    let header = state.header.unwrap();
    assert_eq!((header.session, header.format), (common::session_id(9), FORMAT));
    assert_eq!(header.parent.unwrap().session, original);
    assert_eq!(opening.damage, []);
}

/// L07: what is written behind an old log says first of which format it is, so that an older version does not write
/// behind it; not a byte of what was there changes, and what was known stays.
#[test]
fn an_old_log_is_gone_on_with() {
    let home = common::temp_dir();
    let dir = old_session(home.path());
    let before = fs::read(dir.join("0002.jsonl")).unwrap();
    let (mut log, _) = Log::open(&dir, Durability::Relaxed, common::now()).unwrap();
    let old = log.state().clone();
    log.append(common::prompt("more"), common::now()).unwrap();
    log.append(common::prompt("and more"), common::now()).unwrap();

    let after = fs::read(dir.join("0002.jsonl")).unwrap();
    let added = after.strip_prefix(&before[..]).unwrap();
    let added: Vec<Entry> = added
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| line::decode(line).unwrap())
        .collect();
    let Body::Session(header) = &added[0].body else { panic!("{:?}", added[0]) };
    assert_eq!((header.format, header.segment, added.len()), (FORMAT, 2, 3));
    let (new, opening) = log::read(&dir).unwrap();
    assert_eq!((&new, opening.damage), (log.state(), Vec::new()));
    assert_eq!((new.goes_on_from, new.has_checkpoint), (old.goes_on_from, old.has_checkpoint));
    assert_eq!(new.plan, old.plan);
}

/// What stands in a log most often says its time by what passed, at most ten minutes of it, and only behind an entry of the
/// same process that says it in full. A list tells the time of the last entry all the same.
#[test]
fn the_time_of_frequent_entries_is_told_from_the_last_that_says_it() {
    let home = common::temp_dir();
    let mut log = common::create(home.path(), 1);
    let at =
        |millis: i64| jiff::Timestamp::from_millisecond(common::now().as_millisecond() + millis).unwrap();
    let calls = || common::answer(vec![common::call("c", "read", "{}"), common::call("d", "read", "{}")]);
    log.append(common::prompt("go"), at(10)).unwrap();
    let answer = log.append(calls(), at(510)).unwrap();
    log.append(common::ok(answer, 0, "done"), at(400)).unwrap();
    log.append(common::ok(answer, 1, "done"), at(600_010)).unwrap();
    drop(log);
    let dir = log::session_dir(home.path(), &common::session_id(1));
    let (mut log, _) = Log::open(&dir, Durability::Relaxed, at(0)).unwrap();
    let answer = log.append(calls(), at(700_000)).unwrap();
    log.append(common::ok(answer, 0, "done"), at(700_001)).unwrap();
    drop(log);
    assert_eq!(log::list(home.path()).unwrap()[0].last, Some(at(700_001)));
    let (mut log, _) = Log::open(&dir, Durability::Relaxed, at(0)).unwrap();
    log.append(common::prompt("a clock that was set back"), at(700_002)).unwrap();
    log.append(common::ok(answer, 1, "done"), at(0)).unwrap();
    drop(log);

    let mut times = Vec::new();
    log::entries(&dir, |_, entry| times.push(entry.unwrap().ts)).unwrap();
    let expected = [
        When::At(at(10)),
        When::After(500),
        When::After(390),
        When::At(at(600_010)),
        When::At(at(700_000)),
        When::After(1),
        When::At(at(700_002)),
        When::At(at(0)),
    ];
    assert_eq!(times[3..], expected);
}

/// Files below the workspace are named from there, and known by their whole path.
#[test]
fn files_below_the_workspace_are_named_from_there() {
    let home = common::temp_dir();
    let mut log = common::create(home.path(), 1);
    log.append(common::prompt("go"), common::now()).unwrap();
    let files = ["/work/app/src/a.rs", "/work/application/b.rs", "/work/app"];
    let answer = log.append(common::answer(vec![common::call("c", "read", "{}")]), common::now()).unwrap();
    log.append(common::touched(answer, 0, &files), common::now()).unwrap();
    let dir = log.dir().to_owned();
    let text = fs::read_to_string(dir.join("0001.jsonl")).unwrap();
    let named: Vec<bool> = ["\"src/a.rs\"", "\"/work/application/b.rs\"", "\"/work/app\""]
        .iter()
        .map(|path| text.lines().last().unwrap().contains(*path))
        .collect();
    assert_eq!(named, [true; 3]);
    let (state, _) = log::read(&dir).unwrap();
    assert_eq!(&state, log.state());
    let seen: Vec<_> = state.seen.keys().cloned().collect();
    let mut expected: Vec<_> = files.iter().map(|file| common::path(file)).collect();
    expected.sort_unstable();
    assert_eq!(seen, expected);
}
