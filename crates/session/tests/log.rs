//! The session's files: what survives damage, full disks, other writers and other versions.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{
    Session, answer, call, create, create_with, header, next_segment, now, ok, plan_arguments, prompt,
    temp_dir, text,
};
use mainstay_session::conversation::Item;
use mainstay_session::entry::{
    Answer, Body, Entry, FORMAT, Lane, PROJECTION, Rewind, SessionHeader, StopReason, Unknown, UserPrompt,
};
use mainstay_session::line::{self, LineFault};
use mainstay_session::log::{
    AppendError, DamageKind, Durability, Fault, Log, OpenError, ReadError, RewindTo, entries, list, read,
};
use mainstay_session::state::SessionState;
use proptest::prelude::*;

fn segment(dir: &Path, number: u32) -> PathBuf {
    dir.join(format!("{number:04}.jsonl"))
}

/// A whole line, given up to its checksum.
fn sealed(start: &str) -> Vec<u8> {
    format!("{start},\"crc\":\"{:08x}\"}}\n", crc32fast::hash(start.as_bytes())).into_bytes()
}

fn add(dir: &Path, number: u32, bytes: &[u8]) {
    let mut whole = fs::read(segment(dir, number)).unwrap();
    whole.extend_from_slice(bytes);
    fs::write(segment(dir, number), whole).unwrap();
}

fn lines(dir: &Path, number: u32) -> Vec<Vec<u8>> {
    let bytes = fs::read(segment(dir, number)).unwrap();
    bytes.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect()
}

fn prompts(state: &SessionState) -> Vec<&str> {
    let prompts = state.history.iter().filter_map(|item| match item {
        Item::Prompt { text, .. } => Some(text.as_str()),
        Item::Notice { .. } | Item::Step(_) | Item::Orphan(_) => None,
    });
    prompts.collect()
}

/// A closed session with the prompts `one` to `three` on lines 4 to 6.
fn three_prompts(home: &Path) -> PathBuf {
    let mut session = Session::create(home);
    for text in ["one", "two", "three"] {
        session.append(prompt(text));
    }
    session.log.dir().to_owned()
}

/// Reopening keeps what is there, says the same of it again, and goes on readably.
fn assert_goes_on(dir: &Path, number: u32) {
    let before = fs::read(segment(dir, number)).unwrap();
    let (mut log, first) = Log::open(dir, Durability::Relaxed, now()).unwrap();
    assert_eq!(fs::read(segment(dir, number)).unwrap(), before);
    log.append(prompt("and on"), now()).unwrap();
    let live = log.state().clone();
    drop(log);
    let (state, second) = read(dir).unwrap();
    assert_eq!((state, second), (live, first));
    assert!(fs::read(segment(dir, number)).unwrap().starts_with(&before));
}

/// L04, D01, D03: what is damaged in the middle is reported with its line and hides nothing behind it.
#[test]
fn damage_in_the_middle_is_reported_and_hides_nothing() {
    type Change = fn(&mut Vec<Vec<u8>>);
    type IsExpected = fn(&DamageKind) -> bool;
    type Case = (&'static str, Change, &'static [(u64, IsExpected)], &'static [&'static str]);
    const BAD: IsExpected = |kind| matches!(kind, DamageKind::BadLine(_));
    let cases: [Case; 9] = [
        ("replaced", |lines| lines[4] = b"garbage\n".to_vec(), &[(5, BAD)], &["one", "three"]),
        ("inserted", |lines| lines.insert(4, b"garbage\n".to_vec()), &[(5, BAD)], &["one", "two", "three"]),
        ("one bit", |lines| lines[4][40] ^= 1, &[(5, BAD)], &["one", "three"]),
        ("NULs", |lines| lines[4] = [vec![0; 900], b"\n".to_vec()].concat(), &[(5, BAD)], &["one", "three"]),
        ("empty lines", |lines| lines.insert(4, b"\n\n".to_vec()), &[], &["one", "two", "three"]),
        (
            "fused",
            |lines| {
                lines[4].truncate(30);
                let next = lines.remove(5);
                lines[4].extend(next);
            },
            &[(5, BAD)],
            &["one"],
        ),
        (
            "a raw newline within",
            |lines| {
                let at = lines[4].len() / 2;
                lines[4].insert(at, b'\n');
            },
            &[(5, BAD), (6, BAD)],
            &["one", "three"],
        ),
        (
            "gone",
            |lines| {
                lines.remove(3);
                lines.remove(3);
            },
            &[(4, |kind| *kind == DamageKind::Missing { from: 4, to: 5 })],
            &["three"],
        ),
        (
            "repeated",
            |lines| lines.push(lines[4].clone()),
            &[(7, |kind| *kind == DamageKind::OutOfOrder { seq: 5 })],
            &["one", "two", "three"],
        ),
    ];
    for (name, change, expected, left) in cases {
        let home = temp_dir();
        let dir = three_prompts(home.path());
        let mut changed = lines(&dir, 1);
        change(&mut changed);
        fs::write(segment(&dir, 1), changed.concat()).unwrap();
        let (state, opening) = read(&dir).unwrap();
        assert_eq!(prompts(&state), left, "{name}");
        assert_eq!(opening.damage.len(), expected.len(), "{name}: {:?}", opening.damage);
        for (damage, (line, is_expected)) in opening.damage.iter().zip(expected) {
            assert!(
                damage.segment == 1 && damage.line == *line && is_expected(&damage.kind),
                "{name}: {damage}"
            );
            assert!(damage.to_string().contains("0001.jsonl"), "{damage}");
        }
        assert_goes_on(&dir, 1);
    }
}

/// L04: the newline alone makes a line; one that was lost with its line is set aside, whatever is in it.
#[test]
fn a_torn_tail_is_set_aside_once_and_kept() {
    for torn in [&b"{\"seq\":7,\"ts\""[..], &[0; 300], b"\xff\xfe", b"}"] {
        let home = temp_dir();
        let dir = three_prompts(home.path());
        let whole = fs::read(segment(&dir, 1)).unwrap();
        add(&dir, 1, torn);
        let (_, opening) = read(&dir).unwrap();
        assert!(matches!(opening.damage[0].kind, DamageKind::TornTail { kept: None, .. }));
        let (log, opening) = Log::open(&dir, Durability::Relaxed, now()).unwrap();
        let DamageKind::TornTail { bytes, kept: Some(kept) } = &opening.damage[0].kind else {
            panic!("{opening:?}")
        };
        assert_eq!((*bytes, opening.damage[0].line), (torn.len() as u64, 7));
        assert_eq!(fs::read(kept).unwrap(), torn);
        assert_eq!(fs::metadata(kept).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read(segment(&dir, 1)).unwrap(), whole);
        drop(log);
        add(&dir, 1, b"another");
        let (_, opening) = Log::open(&dir, Durability::Relaxed, now()).unwrap();
        assert!(opening.damage[0].to_string().contains("torn-2"), "{}", opening.damage[0]);
        assert_goes_on(&dir, 1);
    }
}

/// L04, D05: without a header a session cannot go on; it is refused as it is, and nothing takes its place.
#[test]
fn a_log_without_a_header_is_refused_and_left_alone() {
    for bytes in [&b""[..], b"\n", b"\n\n\n", b"\0\0\0\0", b"garbage\n"] {
        let home = temp_dir();
        let dir = three_prompts(home.path());
        fs::write(segment(&dir, 1), bytes).unwrap();
        assert!(matches!(read(&dir), Err(ReadError::NoHeader { .. })), "{bytes:?}");
        assert!(matches!(
            Log::open(&dir, Durability::Relaxed, now()),
            Err(OpenError::Read(ReadError::NoHeader { .. }))
        ));
        assert_eq!(fs::read(segment(&dir, 1)).unwrap(), bytes);
    }
}

/// L04, D05: a header alone is a session without a conversation.
#[test]
fn a_log_with_its_header_only_goes_on() {
    let home = temp_dir();
    let dir = three_prompts(home.path());
    let header = lines(&dir, 1)[0].clone();
    fs::write(segment(&dir, 1), header).unwrap();
    assert_goes_on(&dir, 1);
    assert_eq!(prompts(&read(&dir).unwrap().0), ["and on"]);
}

/// L04, D08: a line may be as long as it likes, good or bad.
#[test]
fn a_very_long_line_is_read_or_skipped() {
    let home = temp_dir();
    let mut session = Session::create(home.path());
    let long = "x".repeat(12 << 20);
    session.append(prompt(&long));
    let dir = session.log.dir().to_owned();
    let live = session.state().clone();
    drop(session);
    assert!(read(&dir).unwrap().0 == live);
    add(&dir, 1, &[long.as_bytes(), b"\n"].concat());
    let (state, opening) = read(&dir).unwrap();
    assert!(state == live);
    assert_eq!(opening.damage.len(), 1);
    assert_eq!(opening.damage[0].line, 5);
}

/// L04: where part of a later segment's opening is gone, the segment before it is read first and nothing is lost.
#[test]
fn a_damaged_opening_falls_back_on_the_segment_before() {
    for broken in [&[0usize][..], &[1], &[2], &[3], &[0, 1, 2, 3], &[0, 1, 2, 3, 4]] {
        let home = temp_dir();
        let mut session = Session::create(home.path());
        session.append(prompt("before"));
        session.write_plan("todo", &plan_arguments("x>-"));
        session.next_segment(0);
        session.append(prompt("after"));
        let dir = session.log.dir().to_owned();
        drop(session);
        let mut changed = lines(&dir, 2);
        for line in broken {
            changed[*line] = b"garbage\n".to_vec();
        }
        fs::write(segment(&dir, 2), changed.concat()).unwrap();
        let (state, opening) = read(&dir).unwrap();
        assert_eq!(opening.damage.len(), broken.len(), "{broken:?}: {:?}", opening.damage);
        assert_eq!(prompts(&state).last(), Some(&"after"), "{broken:?}");
        assert_eq!(prompts(&state).contains(&"before"), broken.contains(&3), "{broken:?}");
        let unfinished: Vec<&str> = state.plan.plan.unfinished().map(|item| item.id.as_str()).collect();
        assert_eq!(unfinished, ["1", "2"], "{broken:?}");
        assert!(state.header.is_some() && state.world.is_some() && state.model.is_some(), "{broken:?}");
        assert_goes_on(&dir, 2);
    }
}

/// L04: a segment that is not this session's business is not read.
#[test]
fn other_files_in_the_folder_are_no_segments() {
    let home = temp_dir();
    let dir = three_prompts(home.path());
    for name in ["1.jsonl", "+2.jsonl", "copy.jsonl", "0002.jsonl.new", "0002.jsonl.torn-1", "00003.jsonl"] {
        fs::write(dir.join(name), "garbage\n").unwrap();
    }
    let (state, opening) = read(&dir).unwrap();
    assert_eq!((prompts(&state).len(), opening.damage.len()), (3, 0));
    assert_goes_on(&dir, 1);
}

/// L05, D04: what a full disk cut short leaves nothing, changes nothing, and is written in order when there is space.
#[test]
fn a_full_disk_keeps_the_order() {
    let whole =
        line::encode(&Entry { seq: 5, ts: now().into(), lane: Lane::Main, body: prompt("two") }).unwrap();
    for written in 0..=whole.len() {
        let home = temp_dir();
        let mut log = create(home.path(), 1);
        log.append(prompt("one"), now()).unwrap();
        let (before, state) = (fs::read(segment(log.dir(), 1)).unwrap(), log.state().clone());
        log.inject(Fault::ShortWrite(written));
        log.inject(Fault::ShortWrite(written));
        let error = log.append(prompt("two"), now()).unwrap_err();
        assert!(matches!(error, AppendError::Write { .. }) && error.to_string().contains("0001.jsonl"));
        assert_eq!(log.state(), &state);
        assert_eq!(log.unwritten(), 1);
        assert_eq!(fs::read(segment(log.dir(), 1)).unwrap(), before);

        log.inject(Fault::ShortWrite(written));
        log.inject(Fault::ShortWrite(written));
        log.append(prompt("three"), now()).unwrap_err();
        assert_eq!(log.unwritten(), 2);
        assert_eq!(log.append(prompt("four"), now()).unwrap(), 7);
        assert_eq!(log.unwritten(), 0);
        assert_eq!(prompts(log.state()), ["one", "two", "three", "four"]);
        let (replayed, opening) = read(log.dir()).unwrap();
        assert_eq!((&replayed, opening.damage), (log.state(), Vec::new()));
    }
}

/// L05: one failure is tried again at once; a process that dies with entries it could not write leaves no gap.
#[test]
fn one_failure_is_not_seen_and_unwritten_entries_leave_no_gap() {
    let home = temp_dir();
    let mut log = create(home.path(), 1);
    log.inject(Fault::ShortWrite(9));
    log.append(prompt("one"), now()).unwrap();
    for _ in 0..2 {
        log.inject(Fault::ShortWrite(0));
    }
    log.append(prompt("lost"), now()).unwrap_err();
    let dir = log.dir().to_owned();
    drop(log);
    let (mut log, opening) = Log::open(&dir, Durability::Relaxed, now()).unwrap();
    assert!(opening.damage.is_empty());
    log.append(prompt("two"), now()).unwrap();
    let (state, opening) = read(&dir).unwrap();
    assert_eq!((prompts(&state), opening.damage.len()), (vec!["one", "two"], 0));
}

/// L05: after a failed sync what was written is written again; a second failure is an error, and the next sync counts.
#[test]
fn a_failed_sync_is_tried_once_more() {
    let home = temp_dir();
    let mut log = create_with(home.path(), header(1), Durability::Always);
    log.inject(Fault::Sync);
    log.sync().unwrap();
    log.append(prompt("one"), now()).unwrap();
    log.inject(Fault::Sync);
    log.sync().unwrap();
    log.append(prompt("two"), now()).unwrap();
    log.inject(Fault::Sync);
    log.inject(Fault::Sync);
    let error = log.sync().unwrap_err();
    assert!(matches!(error, AppendError::Sync { .. }));
    log.append(prompt("three"), now()).unwrap();
    log.sync().unwrap();
    let (state, opening) = read(log.dir()).unwrap();
    assert_eq!((&state, opening.damage), (log.state(), Vec::new()));
}

/// Law 5: what another process wrote before it was killed is on the disk after the first sync, too.
#[test]
fn the_first_sync_of_an_opened_log_is_one() {
    let home = temp_dir();
    let dir = create_with(home.path(), header(1), Durability::Always).dir().to_owned();
    let (mut log, _) = Log::open(&dir, Durability::Always, now()).unwrap();
    log.inject(Fault::Sync);
    log.inject(Fault::Sync);
    assert!(matches!(log.sync().unwrap_err(), AppendError::Sync { .. }));
    log.sync().unwrap();
}

/// L05: the opening of a session has not been synced yet when the first sync fails, so it is written again too.
#[test]
fn the_first_sync_covers_the_opening() {
    let home = temp_dir();
    let mut log = create_with(home.path(), header(1), Durability::Always);
    let path = segment(log.dir(), 1);
    let whole = fs::read(&path).unwrap();
    // What a kernel that drops the pages it could not write leaves of the file.
    fs::write(&path, vec![0; whole.len()]).unwrap();
    log.inject(Fault::Sync);
    log.sync().unwrap();
    assert_eq!(fs::read(&path).unwrap(), whole);
}

/// L06, D10: one writer; readers need no lock.
#[test]
fn a_second_writer_is_refused_with_the_first_named() {
    let home = temp_dir();
    let mut log = create(home.path(), 1);
    let dir = log.dir().to_owned();
    let Err(OpenError::InUse { holder }) = Log::open(&dir, Durability::Relaxed, now()) else {
        panic!("two writers")
    };
    assert_eq!((holder.pid, holder.started.as_str()), (std::process::id(), "2026-11-30T09:00:00Z"));
    log.append(prompt("one"), now()).unwrap();
    assert_eq!(prompts(&read(&dir).unwrap().0), ["one"]);
    assert_eq!(list(home.path()).unwrap().len(), 1);
    drop(log);
    Log::open(&dir, Durability::Relaxed, now()).unwrap();
}

/// L06: the lock of a process that was killed is free, and nothing needs to be cleaned up.
#[test]
fn the_lock_of_a_killed_process_is_free() {
    let home = temp_dir();
    let dir = three_prompts(home.path());
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "hold_the_lock_until_killed", "--ignored", "--nocapture"])
        .env("MAINSTAY_TEST_SESSION", &dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let is_held = output.lines().any(|line| line.unwrap().ends_with("held"));
    assert!(is_held);
    let Err(OpenError::InUse { holder }) = Log::open(&dir, Durability::Relaxed, now()) else {
        panic!("two writers")
    };
    assert_eq!(holder.pid, child.id());
    assert_eq!(prompts(&read(&dir).unwrap().0).len(), 3);
    child.kill().unwrap();
    child.wait().unwrap();
    Log::open(&dir, Durability::Relaxed, now()).unwrap();
}

#[test]
#[ignore = "the other process of the test above"]
fn hold_the_lock_until_killed() {
    let Some(dir) = std::env::var_os("MAINSTAY_TEST_SESSION") else { return };
    let _log = Log::open(Path::new(&dir), Durability::Relaxed, now()).unwrap();
    println!("held");
    let _ = std::io::stdin().read(&mut [0]);
}

/// L07, D11: kinds, versions and fields that this build does not know cost nothing else, and stay.
#[test]
fn what_another_version_wrote_is_kept_and_the_rest_is_read() {
    let home = temp_dir();
    let dir = three_prompts(home.path());
    let strange = [
        sealed(r#"{"seq":7,"ts":"2026-11-30T09:00:00Z","kind":"telemetry","x":[1,{"y":null}]"#),
        sealed(r#"{"seq":8,"ts":"2026-11-30T09:00:00Z","kind":"user_prompt","v":2,"parts":["four"]"#),
        sealed(r#"{"seq":9,"ts":"2026-11-30T09:00:00Z","kind":"user_prompt","text":"five","new":{"a":1}"#),
        sealed(
            r#"{"seq":10,"ts":"2026-11-30T09:00:00+02:00","kind":"answer","model":"a/b","content":[{"type":"text","text":"hi","cache":true}],"finish":"end_turn","ended":{"how":"complete"}"#,
        ),
        sealed(
            r#"{"seq":11,"ts":"2026-11-30T09:00:00Z","kind":"tool_result","answer":10,"call":3,"outcome":"ok","summary":"s""#,
        ),
    ];
    add(&dir, 1, &strange.concat());
    let (mut log, opening) = Log::open(&dir, Durability::Relaxed, now()).unwrap();
    assert_eq!(opening.damage, Vec::new());
    assert_eq!(prompts(log.state()), ["one", "two", "three", "five"]);
    assert_eq!(log.state().last_text(), "hi");
    assert_eq!(log.append(prompt("six"), now()).unwrap(), 12);
    drop(log);
    assert_eq!(lines(&dir, 1)[6..11], strange);
    let mut unknown = Vec::new();
    entries(&dir, |_, entry| {
        if let Ok(Entry { body: Body::Unknown(Unknown { kind, must: false }), .. }) = entry {
            unknown.push(kind);
        }
    })
    .unwrap();
    assert_eq!(unknown, ["telemetry", "user_prompt"]);
}

/// L07: what a build must know to write, and does not, makes the session read-only, in every lane, byte for byte.
#[test]
fn a_kind_marked_must_makes_the_session_read_only() {
    let newer_header = {
        let header = SessionHeader { format: FORMAT + 1, ..header(1) };
        line::encode(&Entry { seq: 7, ts: now().into(), lane: Lane::Main, body: Body::Session(header) })
            .unwrap()
    };
    for (kind, must) in [
        ("`merge`", sealed(r#"{"seq":7,"ts":"2026-11-30T09:00:00Z","kind":"merge","must":true,"x":1"#)),
        (
            "`answer`",
            sealed(r#"{"seq":7,"ts":"2026-11-30T09:00:00Z","kind":"answer","lane":"w","v":9,"must":true"#),
        ),
        ("log format 3", newer_header),
    ] {
        let home = temp_dir();
        let dir = three_prompts(home.path());
        add(&dir, 1, &must);
        add(&dir, 1, b"{torn");
        let before = fs::read(segment(&dir, 1)).unwrap();
        let (mut log, _) = Log::open(&dir, Durability::Relaxed, now()).unwrap();
        assert_eq!(prompts(log.state()), ["one", "two", "three"]);
        let error = log.append(prompt("no"), now()).unwrap_err();
        assert!(matches!(&error, AppendError::ReadOnly { what } if what.contains(kind)), "{error}");
        assert!(error.to_string().contains("read-only"));
        assert!(matches!(log.write_history(), Err(AppendError::ReadOnly { .. })));
        let opening = mainstay_session::log::NextSegment {
            header: header(1),
            world: common::world(),
            model: common::model(),
            checkpoint: log.state().checkpoint(Vec::new()),
        };
        assert!(matches!(log.next_segment(opening, Vec::new(), now()), Err(AppendError::ReadOnly { .. })));
        assert_eq!((log.unwritten(), log.segment()), (0, 1));
        drop(log);
        assert_eq!(fs::read(segment(&dir, 1)).unwrap(), before);
        let names: Vec<_> = fs::read_dir(&dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        assert!(names.iter().all(|name| name == "0001.jsonl" || name == "lock"), "{names:?}");
    }
}

/// D17: half a surrogate pair in a line is replaced when it is read; a whole one and the raw arguments stay.
#[test]
fn half_a_surrogate_pair_does_not_lose_the_line() {
    let home = temp_dir();
    let dir = three_prompts(home.path());
    add(
        &dir,
        1,
        &sealed(
            r#"{"seq":7,"ts":"2026-11-30T09:00:00Z","kind":"user_prompt","text":"\ud800 \ud83d\ude00 \\ud800""#,
        ),
    );
    let (state, opening) = read(&dir).unwrap();
    assert_eq!(prompts(&state)[3], "\u{fffd} 😀 \\ud800");
    assert!(opening.damage.is_empty());
}

/// A session is never written over another one, and its files are its owner's alone.
#[test]
fn creating_refuses_a_session_that_exists() {
    let home = temp_dir();
    let mut log = create(home.path(), 1);
    log.append(prompt("one"), now()).unwrap();
    let again = |home| Log::create(home, header(1), Vec::new(), Durability::Relaxed, now());
    assert!(again(home.path()).is_err());
    let dir = log.dir().to_owned();
    drop(log);
    let error = again(home.path()).unwrap_err();
    assert!(error.source.kind() == std::io::ErrorKind::AlreadyExists, "{error}");
    assert_eq!(prompts(&read(&dir).unwrap().0), ["one"]);
    for (path, mode) in [(&dir, 0o700), (&segment(&dir, 1), 0o600), (&dir.join("lock"), 0o600)] {
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, mode, "{}", path.display());
    }
}

/// D08: a failed opening makes no session and no file.
#[test]
fn opening_what_is_no_session_leaves_no_trace() {
    let home = temp_dir();
    for dir in [home.path().join("none"), home.path().to_owned()] {
        let error = Log::open(&dir, Durability::Relaxed, now()).unwrap_err();
        assert!(matches!(error, OpenError::Read(ReadError::NoSession { .. })), "{error}");
    }
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
}

/// L05: a segment that cannot be started leaves the old one current, live and on disk.
#[test]
fn a_segment_that_cannot_be_started_leaves_the_old_one() {
    let home = temp_dir();
    let mut session = Session::create(home.path());
    session.append(prompt("one"));
    let dir = session.log.dir().to_owned();
    let obstacle = dir.join("0002.jsonl.new");
    fs::create_dir(&obstacle).unwrap();
    let before = session.state().clone();
    let opening = || mainstay_session::log::NextSegment {
        header: SessionHeader { projection: 0, ..header(1) },
        world: common::world(),
        model: common::model(),
        checkpoint: before.checkpoint(Vec::new()),
    };
    assert!(matches!(session.log.next_segment(opening(), Vec::new(), now()), Err(AppendError::Write { .. })));
    assert_eq!((session.log.state(), session.log.segment()), (&before, 1));
    session.append(prompt("two"));
    assert_eq!(&read(&dir).unwrap().0, session.state());
    fs::remove_dir(&obstacle).unwrap();
    session.log.next_segment(opening(), vec![prompt("three")], now()).unwrap();
    let (state, opening) = read(&dir).unwrap();
    assert_eq!((&state, opening.damage.len()), (session.state(), 0));
    let header = state.header.unwrap();
    assert_eq!((header.segment, header.format, header.projection), (2, FORMAT, PROJECTION));
    assert_eq!(lines(&dir, 2).len(), 5);
}

/// L05: entries that wait are written to the segment they belong to before the next one starts.
#[test]
fn waiting_entries_come_before_the_next_segment() {
    let home = temp_dir();
    let mut session = Session::create(home.path());
    for _ in 0..2 {
        session.log.inject(Fault::ShortWrite(3));
    }
    session.log.append(prompt("late"), now()).unwrap_err();
    next_segment(&mut session.log, 0);
    assert_eq!(lines(session.log.dir(), 1).len(), 4);
    assert_eq!(session.state().last_seq, 8);
    assert_eq!(session.log.append(prompt("on"), now()).unwrap(), 9);
}

/// R06, R12: everything but the segments can be made again.
#[test]
fn derived_files_can_be_deleted() {
    let home = temp_dir();
    let mut session = Session::create(home.path());
    session.append(prompt("one"));
    session.write_plan("todo_write", &plan_arguments("x>-"));
    session.log.write_history().unwrap();
    let dir = session.log.dir().to_owned();
    let document = fs::read(dir.join("history.json")).unwrap();
    let history: mainstay_session::history::History = serde_json::from_slice(&document).unwrap();
    assert_eq!(history, mainstay_session::history::History::of(session.state()));
    let live = session.state().clone();
    drop(session);
    fs::remove_file(dir.join("history.json")).unwrap();
    fs::remove_file(dir.join("lock")).unwrap();
    let (log, _) = Log::open(&dir, Durability::Relaxed, now()).unwrap();
    assert_eq!(log.state(), &live);
    log.write_history().unwrap();
    assert_eq!(fs::read(dir.join("history.json")).unwrap(), document);
}

/// D09: the same text is kept once, whole, and for its owner alone.
#[test]
fn a_spilled_text_is_kept_once() {
    let home = temp_dir();
    let log = create_with(home.path(), header(1), Durability::Always);
    let hash = log.spill().store(b"a long text").unwrap();
    assert_eq!(log.spill().store(b"a long text").unwrap(), hash);
    let mut pieces = log.spill().create().unwrap();
    pieces.write(b"a long").unwrap();
    pieces.write(b" text").unwrap();
    assert_eq!(pieces.finish().unwrap(), hash);
    let mut given_up = log.spill().create().unwrap();
    given_up.write(b"half").unwrap();
    drop(given_up);
    let folder = log.spill().folder().to_owned();
    assert_eq!(folder, log.dir().join("spill"));
    assert_eq!(log.spill().load(&hash).unwrap(), b"a long text");
    // What a log names need not be a hash, and must not lead elsewhere.
    let elsewhere = [
        format!("../spill/{}", hash.as_str()),
        log.spill().path(&hash).display().to_string(),
        "../lock".into(),
    ];
    for name in elsewhere {
        let found = log
            .spill()
            .load(&mainstay_session::message::ContentHash(name.clone()))
            .map_err(|error| error.kind());
        assert_eq!(found, Err(std::io::ErrorKind::NotFound), "{name}");
    }
    assert_eq!(fs::read(folder.join(hash.as_str())).unwrap(), b"a long text");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    assert_eq!(fs::metadata(folder.join(hash.as_str())).unwrap().permissions().mode() & 0o777, 0o600);
}

/// D05, D15: a list tells real sessions from stubs, children, interrupted ones and such as cannot be read.
#[test]
fn a_list_says_what_each_session_is() {
    let home = temp_dir();
    let at = |minute: i64| now() + jiff::SignedDuration::from_mins(minute);
    let mut done = create(home.path(), 1);
    done.append(prompt("Fix the bug\nsoon"), at(1)).unwrap();
    let asked = done.append(answer(vec![text("Done.")]), at(2)).unwrap();
    assert_eq!(asked, 5);
    let end = done.state().turn_end(StopReason::EndTurn, None);
    done.append(Body::TurnEnd(end), at(3)).unwrap();
    done.append(Body::Model(common::model()), at(4)).unwrap();
    drop(create(home.path(), 2));
    let mut child = create_with(home.path(), SessionHeader { child: true, ..header(3) }, Durability::Relaxed);
    child.append(prompt("look"), at(20)).unwrap();
    let mut cut = create(home.path(), 4);
    cut.append(prompt("one"), at(10)).unwrap();
    // More than what a list reads of a tail.
    cut.append(prompt(&"long ".repeat(40_000)), at(11)).unwrap();
    let empty = create(home.path(), 5);
    fs::write(segment(empty.dir(), 1), "").unwrap();
    let garbage = create(home.path(), 6);
    fs::write(segment(garbage.dir(), 1), "garbage\n").unwrap();
    let mut compacted = create(home.path(), 7);
    compacted.append(prompt("compact me"), at(5)).unwrap();
    let end = compacted.state().turn_end(StopReason::EndTurn, None);
    compacted.append(Body::TurnEnd(end), at(6)).unwrap();
    next_segment(&mut compacted, 0);
    fs::write(home.path().join("sessions/notes.txt"), "").unwrap();

    // While a writer has it, an open turn is no interruption.
    if cfg!(target_os = "linux") {
        let running = list(home.path()).unwrap();
        let running = running.iter().find(|s| s.id == common::session_id(4)).unwrap();
        assert!(running.is_running && !running.is_interrupted);
    }
    drop(cut);
    let sessions = list(home.path()).unwrap();
    let find = |number: u8| sessions.iter().find(|s| s.id == common::session_id(number)).unwrap();
    assert_eq!(sessions.len(), 7);
    assert_eq!((&sessions[0].id, &sessions[1].id), (&common::session_id(3), &common::session_id(4)));

    let done = find(1);
    assert_eq!((done.title.as_str(), done.last_words.as_str()), ("Fix the bug", "Done."));
    assert_eq!((done.turns, done.totals.answers), (1, 1));
    assert!(done.has_prompt && !done.is_interrupted && !done.is_child);
    assert_eq!((done.created, done.last), (Some(now()), Some(at(4))));
    assert_eq!(done.cwd, Some(common::path("/work/app")));
    assert!(!find(2).has_prompt && !find(2).is_interrupted);
    assert!(find(3).is_child && find(3).has_prompt);
    assert!(find(4).has_prompt && find(4).is_interrupted && !find(4).is_running);
    assert_eq!(find(4).title, "one");
    for unreadable in [find(5), find(6)] {
        assert_eq!((unreadable.has_prompt, &unreadable.cwd, unreadable.last), (false, &None, None));
    }
    assert_eq!((find(7).title.as_str(), find(7).turns), ("compact me", 1));
    assert!(find(7).has_prompt && !find(7).is_interrupted);
    assert_eq!(list(&home.path().join("none")).unwrap(), Vec::new());
}

/// D08: a list reads the head and the tail of a log. Between them is a hole that nobody would wait for.
#[test]
fn a_list_reads_no_more_than_head_and_tail() {
    const HOLE: u64 = 1 << 40;
    let home = temp_dir();
    let mut log = create(home.path(), 1);
    log.append(prompt("Fix the bug"), now()).unwrap();
    let head = fs::metadata(segment(log.dir(), 1)).unwrap().len();
    log.append(answer(vec![text("Done.")]), now()).unwrap();
    let end = log.state().turn_end(StopReason::EndTurn, None);
    log.append(Body::TurnEnd(end), now()).unwrap();
    let path = segment(log.dir(), 1);
    drop(log);
    let tail = fs::read(&path).unwrap().split_off(usize::try_from(head).unwrap());
    let file = fs::File::options().write(true).open(&path).unwrap();
    // Not every file system has holes of this size.
    if file.set_len(HOLE).is_err() {
        return;
    }
    file.write_all_at(&[b"\n", tail.as_slice()].concat(), HOLE).unwrap();
    let found = list(home.path()).unwrap().remove(0);
    let shown = (found.title.as_str(), found.last_words.as_str(), found.turns, found.has_prompt);
    assert_eq!(shown, ("Fix the bug", "Done.", 1, true));
}

/// D15: a session that went back before its first turn is no stub: its user spoke to it, and can return to that.
#[test]
fn a_session_that_went_back_to_its_beginning_is_real() {
    let home = temp_dir();
    let mut log = create(home.path(), 1);
    log.append(prompt("Fix the bug"), now()).unwrap();
    let end = log.state().turn_end(StopReason::EndTurn, None);
    log.append(Body::TurnEnd(end), now()).unwrap();
    log.rewind(RewindTo::Turn(0), now()).unwrap();
    let found = list(home.path()).unwrap().remove(0);
    assert_eq!((found.has_prompt, found.turns, found.title.as_str()), (true, 0, ""));
}

fn any_entry() -> impl Strategy<Value = Entry> {
    let lane = prop_oneof![Just(Lane::Main), any::<String>().prop_map(Lane::Worker)];
    let millis = -62_000_000_000_000i64..253_000_000_000_000;
    (common::any_op(), any::<u64>(), millis, lane).prop_map(|(op, seq, millis, lane)| {
        let mut state = SessionState::default();
        state.apply(&Entry {
            seq: 1,
            ts: now().into(),
            lane: Lane::Main,
            body: answer(vec![call("", "todo", &plan_arguments("x>")), call("b", "read", "{}")]),
        });
        let body = match op.at(&state) {
            common::Written::Entry(_, body) => *body,
            common::Written::NextSegment { .. } => {
                Body::Checkpoint(Box::new(state.checkpoint(state.history.clone())))
            }
            common::Written::Rewind(_) => {
                Body::Rewind(Rewind { turn: 1, to: 2, from: 9, undoes: Some(7), by_checkpoint: true })
            }
            common::Written::Nothing => ok(1, 0, "a\u{2028}b"),
        };
        Entry { seq, ts: jiff::Timestamp::from_millisecond(millis).unwrap().into(), lane, body }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// D03: any entry is one line, and reads back as it was.
    #[test]
    fn an_entry_is_one_line_and_reads_back(entry in any_entry()) {
        let line = line::encode(&entry).unwrap();
        prop_assert_eq!(line.iter().position(|byte| *byte == b'\n'), Some(line.len() - 1));
        prop_assert_eq!(line::decode(&line[..line.len() - 1]), Ok(entry));
        let json: serde_json::Value = serde_json::from_slice(&line).unwrap();
        prop_assert!(json.is_object());
    }

    /// L04: no changed byte goes unseen, and nothing that is no line brings the reader down.
    #[test]
    fn a_changed_byte_is_seen(entry in any_entry(), at in any::<prop::sample::Index>(), flip in 1u8..) {
        let mut line = line::encode(&entry).unwrap();
        line.pop();
        let at = at.index(line.len());
        line[at] ^= flip;
        prop_assert!(line::decode(&line).is_err());
    }

    #[test]
    fn any_bytes_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(line::decode(&bytes).is_err());
    }
}

/// L07: a right checksum over what is no entry is told apart from a damaged line.
#[test]
fn what_is_wrong_with_a_line_is_said() {
    let strip = |line: Vec<u8>| line.strip_suffix(b"\n").unwrap().to_vec();
    assert_eq!(line::decode(b""), Err(LineFault::NoChecksum));
    let not_an_entry = strip(sealed(r#"{"seq":1,"ts":"2026-11-30T09:00:00Z","kind":"user_prompt","text":7"#));
    assert!(matches!(line::decode(&not_an_entry), Err(LineFault::NotAnEntry(_))));
    let mut wrong = strip(sealed(r#"{"seq":1"#));
    wrong[2] = b'S';
    assert!(matches!(line::decode(&wrong), Err(LineFault::WrongChecksum { .. })));
}

/// L07: the examples of the format's page are lines that this build reads, of every kind.
#[test]
fn the_documented_examples_are_entries() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/session-log.md");
    let page = fs::read_to_string(page).unwrap();
    let examples = page.lines().filter_map(|line| line.strip_prefix("    {\"seq\""));
    let kinds: std::collections::BTreeSet<String> = examples
        .filter(|line| !line.contains("\"crc\""))
        .map(|line| {
            let line = sealed(&format!("{{\"seq\"{}", line.strip_suffix('}').unwrap()));
            let entry = line::decode(line.strip_suffix(b"\n").unwrap()).unwrap();
            assert!(!matches!(entry.body, Body::Unknown(_)), "{}", entry.body.kind());
            entry.body.kind().to_owned()
        })
        .collect();
    assert_eq!(kinds.len(), 16, "{kinds:?}");
}

/// The format: a change of any byte here is a new version of the format (see `docs/session-log.md`).
#[test]
fn the_format_is_what_it_was() {
    let home = temp_dir();
    let mut session = Session::create(home.path());
    session.append(Body::UserPrompt(UserPrompt {
        text: "Hi\n\"é\"".to_owned(),
        spill: None,
        images: Vec::new(),
        steering: true,
        inbox: None,
    }));
    let calls = vec![
        text("I plan."),
        call(
            "c1",
            "todo_write",
            r#"{"todos":[{"id":"1","content":"Test","status":"in_progress","activeForm":"Testing"}]}"#,
        ),
        call("c2", "read", "{}"),
    ];
    let Body::Answer(asked) = answer(calls) else { unreachable!() };
    let asked = Answer { request: None, ..asked };
    let arguments = asked.calls().next().unwrap().arguments.clone();
    let seq = session.append(Body::Answer(asked));
    session.append(common::touched(seq, 1, &["/a"]));
    let call_ref = mainstay_session::ids::CallRef { answer: seq, call: 0 };
    session.append(Body::ToolResult(common::plan_result(session.log.state(), call_ref, &arguments)));
    session.append_in(Lane::Worker("compaction".to_owned()), prompt("sum up"));
    session.append(common::ended(Vec::new(), common::failed()));
    let end = session.state().turn_end(StopReason::Error, Some("gave up".to_owned()));
    session.append(Body::TurnEnd(end));
    session.next_segment(0);
    let dir = session.log.dir();
    let text = [fs::read(segment(dir, 1)).unwrap(), fs::read(segment(dir, 2)).unwrap()].concat();
    insta::assert_snapshot!(String::from_utf8(text).unwrap());
}

/// D10: a log that was removed, or that another program wrote to, is not written on, and a removed lock file lets no
/// second writer in.
#[test]
fn what_happens_to_the_files_under_a_writer_is_noticed() {
    let home = common::temp_dir();
    let mut log = common::create(home.path(), 1);
    let path = log.dir().join("0001.jsonl");
    fs::remove_file(log.dir().join("lock")).unwrap();
    let second = Log::open(log.dir(), Durability::Always, common::now());
    assert!(matches!(second, Err(OpenError::InUse { .. })));

    let whole = fs::read(&path).unwrap();
    fs::write(&path, [&whole[..], b"a stranger's line\n"].concat()).unwrap();
    let error = log.append(common::prompt("one"), common::now()).unwrap_err();
    assert!(error.to_string().contains("another program changed the file"), "{error}");
    fs::write(&path, &whole).unwrap();
    log.append(common::prompt("two"), common::now()).unwrap();

    fs::remove_file(&path).unwrap();
    let error = log.append(common::prompt("three"), common::now()).unwrap_err();
    assert!(error.to_string().contains("was removed"), "{error}");
    drop(home);
}
