//! Damage anywhere: what is said of it, and what a repair does.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{Session, answer, now, prompt, session_id, temp_dir, text};
use mainstay_session::entry::{Body, Clock};
use mainstay_session::line;
use mainstay_session::log::{
    DamageKind, Durability, Log, RepairError, RewindTo, entries, inspect, read, read_segment, repair,
};
use mainstay_session::message::ContentHash;

/// Two segments of two turns each; its folder.
fn session(home: &Path) -> PathBuf {
    let mut session = Session::create(home);
    for number in 0..4 {
        if number == 2 {
            session.next_segment(9);
        }
        session.append(prompt(&format!("turn {number}")));
        session.work();
        session.append(answer(vec![text("Done.")]));
        session.end_turn();
    }
    session.log.dir().to_owned()
}

fn lines(dir: &Path, segment: u32) -> Vec<Vec<u8>> {
    let bytes = fs::read(dir.join(format!("{segment:04}.jsonl"))).unwrap();
    bytes.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect()
}

fn write(dir: &Path, segment: u32, lines: &[Vec<u8>]) {
    fs::write(dir.join(format!("{segment:04}.jsonl")), lines.concat()).unwrap();
}

fn good_lines(dir: &Path) -> Vec<Vec<u8>> {
    let mut good = Vec::new();
    entries(dir, |bytes, entry| {
        if entry.is_ok_and(|entry| !matches!(entry.body, Body::Lost(_))) {
            good.push(bytes.to_vec());
        }
    })
    .unwrap();
    good
}

/// L04: every line of every segment damaged, cut out, doubled or torn in its turn: what is lost is said with its place, a
/// repair keeps every good line and the old bytes, and a second one finds nothing to do.
#[test]
fn damage_anywhere_is_said_and_repaired() {
    let home = temp_dir();
    let dir = session(home.path());
    assert!(inspect(&dir).unwrap().is_sound());
    let whole = [lines(&dir, 1), lines(&dir, 2)];
    for segment in [1u32, 2] {
        let count = whole[segment as usize - 1].len();
        for place in 0..count {
            for how in ["garbled", "gone", "twice", "torn"] {
                let mut damaged = whole[segment as usize - 1].clone();
                match how {
                    "garbled" => damaged[place].truncate(9),
                    "gone" => drop(damaged.remove(place)),
                    "twice" => damaged.insert(place, damaged[place].clone()),
                    _ => {
                        damaged.truncate(place + 1);
                        damaged[place].pop();
                    }
                }
                if how == "garbled" {
                    damaged[place].push(b'\n');
                }
                let what = format!("line {} of segment {segment} {how}", place + 1);
                write(&dir, segment, &damaged);
                let is_last = segment == 2 && place + 1 == count;
                let found = inspect(&dir).unwrap();
                // A last line that is gone cannot be missed.
                let unseen = how == "gone" && is_last;
                assert_eq!(found.is_sound(), unseen, "{what}: {:?}", found.damage);
                let good = good_lines(&dir);
                let old = fs::read(dir.join(format!("{segment:04}.jsonl"))).unwrap();
                let done = repair(&dir, &session_id(1), now()).unwrap();
                if !unseen {
                    assert_eq!(
                        done.segments.iter().map(|(n, _)| *n).collect::<Vec<_>>(),
                        [segment],
                        "{what}"
                    );
                    assert_eq!(fs::read(&done.segments[0].1).unwrap(), old, "{what}");
                }
                let after = inspect(&dir).unwrap();
                assert!(after.is_sound(), "{what}: {:?}", after.damage);
                let now_good = good_lines(&dir);
                assert!(good.iter().all(|line| now_good.contains(line)), "{what}");
                assert_eq!(repair(&dir, &session_id(1), now()).unwrap().segments, [], "{what}");
                let (mut log, opening) = Log::open(&dir, Durability::Relaxed, now()).unwrap();
                assert_eq!(opening.damage, [], "{what}");
                log.append(prompt("on"), now()).unwrap();
                drop(log);
                for (_, kept) in done.segments {
                    fs::remove_file(kept).unwrap();
                }
                write(&dir, 1, &whole[0]);
                write(&dir, 2, &whole[1]);
            }
        }
    }
}

/// L04: good lines that stand behind later ones are put where their numbers say, a header among them, so that nothing is
/// lost by their having been moved.
#[test]
fn lines_that_were_moved_are_put_back() {
    let home = temp_dir();
    let dir = session(home.path());
    let state = read(&dir).unwrap().0;
    let whole = [lines(&dir, 1), lines(&dir, 2)];
    for segment in [1u32, 2] {
        let lines = &whole[segment as usize - 1];
        for place in 1..lines.len() {
            let mut moved = lines.clone();
            moved.swap(place - 1, place);
            write(&dir, segment, &moved);
            let what = format!("line {place} of segment {segment} behind the next");
            assert!(!inspect(&dir).unwrap().is_sound(), "{what}");
            let done = repair(&dir, &session_id(1), now()).unwrap();
            assert_eq!((done.segments.len(), done.lost, done.headers), (1, 0, 0), "{what}");
            assert_eq!(fs::read(dir.join(format!("{segment:04}.jsonl"))).unwrap(), lines.concat(), "{what}");
            assert!(read(&dir).unwrap().0 == state, "{what}");
            fs::remove_file(&done.segments[0].1).unwrap();
        }
    }
}

/// L04: an editor or a transfer that ended every line with a carriage return has damaged nothing.
#[test]
fn carriage_returns_are_passed_over() {
    let home = temp_dir();
    let dir = session(home.path());
    let state = read(&dir).unwrap().0;
    for segment in [1, 2] {
        let path = dir.join(format!("{segment:04}.jsonl"));
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replace('\n', "\r\n")).unwrap();
    }
    assert!(inspect(&dir).unwrap().is_sound());
    let (mut log, opening) = Log::open(&dir, Durability::Relaxed, now()).unwrap();
    assert_eq!((log.state() == &state, opening.damage), (true, Vec::new()));
    log.append(prompt("on"), now()).unwrap();
    assert_eq!(read(&dir).unwrap().0, *log.state());
}

/// L04: an empty line is passed over whatever ends it, and a line that another repeats but for its end is no other.
#[test]
fn a_carriage_return_makes_no_other_line() {
    let home = temp_dir();
    let dir = session(home.path());
    let (sound, state) = (lines(&dir, 1), read(&dir).unwrap().0);
    let ended = |line: &[u8]| [line.strip_suffix(b"\n").unwrap(), b"\r\n"].concat();
    let mut spaced = sound.clone();
    spaced.insert(2, b"\r\n".to_vec());
    spaced.push(b"\r\n".to_vec());
    write(&dir, 1, &spaced);
    assert!(inspect(&dir).unwrap().is_sound());
    assert_eq!(read_segment(&dir, 1).unwrap().last_seq, sound.len() as u64);
    repair(&dir, &session_id(1), now()).unwrap();
    assert_eq!((lines(&dir, 1), read(&dir).unwrap().0), (sound.clone(), state));
    let mut twice = sound.clone();
    twice.insert(3, ended(&sound[2]));
    write(&dir, 1, &twice);
    repair(&dir, &session_id(1), now()).unwrap();
    assert_eq!(lines(&dir, 1), sound);
}

/// L04: a session without a readable header goes on after a repair, with all the rest.
#[test]
fn a_lost_header_is_made_again() {
    let home = temp_dir();
    let dir = session(home.path());
    fs::remove_file(dir.join("0002.jsonl")).unwrap();
    let (before, _) = read(&dir).unwrap();
    let mut damaged = lines(&dir, 1);
    damaged[0][3] = b'X';
    write(&dir, 1, &damaged);
    read(&dir).unwrap_err();
    let done = repair(&dir, &session_id(1), now()).unwrap();
    assert_eq!((done.headers, done.lost), (1, 0));
    let (after, opening) = read(&dir).unwrap();
    assert_eq!(opening.damage, []);
    assert_eq!((&after.history, after.turns), (&before.history, before.turns));
    let (old, new) = (before.header.unwrap(), after.header.unwrap());
    assert_eq!((new.session, new.cwd, new.projection), (old.session, old.cwd, old.projection));
}

/// A repaired span can be gone back across; an entry that says something else under a number that was there stays.
#[test]
fn a_repaired_session_can_go_back() {
    let home = temp_dir();
    let dir = session(home.path());
    let mut damaged = lines(&dir, 2);
    let place = damaged.len() - 2;
    let entry = line::decode(damaged[place].strip_suffix(b"\n").unwrap()).unwrap();
    damaged[place] = b"nonsense\n".to_vec();
    let other = mainstay_session::entry::Entry { seq: entry.seq - 2, body: prompt("a stranger's"), ..entry };
    damaged.push(line::encode(&other).unwrap());
    write(&dir, 2, &damaged);
    let (mut log, _) = Log::open(&dir, Durability::Relaxed, now()).unwrap();
    log.rewind(RewindTo::Turn(2), now()).unwrap_err();
    assert!(matches!(repair(&dir, &session_id(1), now()), Err(RepairError::Open(_))), "it is in use");
    drop(log);
    repair(&dir, &session_id(1), now()).unwrap();
    let found = inspect(&dir).unwrap();
    assert_eq!(found.lost.len(), 1);
    assert!(matches!(found.damage[..], [ref one] if matches!(one.kind, DamageKind::OutOfOrder { .. })));
    assert!(fs::read(dir.join("0002.jsonl")).unwrap().ends_with(&line::encode(&other).unwrap()));
}

#[test]
fn what_entries_name_and_is_not_there_is_said() {
    let home = temp_dir();
    let mut session = Session::create(home.path());
    let spill = session.log.spill();
    let (there, changed) = (spill.store(b"there").unwrap(), spill.store(b"changed").unwrap());
    let gone = ContentHash::of(b"gone");
    let mut seqs = Vec::new();
    for hash in [&there, &changed, &gone] {
        let Body::UserPrompt(said) = prompt("x") else { unreachable!() };
        let said = mainstay_session::entry::UserPrompt { spill: Some(hash.clone()), ..said };
        seqs.push(session.append(Body::UserPrompt(said)));
    }
    fs::write(spill.path(&changed), "other").unwrap();
    let found = inspect(session.log.dir()).unwrap();
    assert_eq!(found.missing, [(seqs[2], gone)]);
    assert_eq!(found.changed, [spill.path(&changed)]);
    assert!(!found.is_sound() && found.damage.is_empty());
}

/// L04: a segment that is gone, or that holds nothing any more, is damage, and is said when the session is opened too.
#[test]
fn a_segment_that_is_gone_or_empty_is_said() {
    let home = temp_dir();
    let dir = session(home.path());
    let (first, second) = (lines(&dir, 1), lines(&dir, 2));
    fs::remove_file(dir.join("0001.jsonl")).unwrap();
    let found = inspect(&dir).unwrap();
    assert!(!found.is_sound() && matches!(found.damage[0].kind, DamageKind::Gone), "{:?}", found.damage);
    assert_eq!(found.damage[0].segment, 1);
    write(&dir, 1, &first);
    write(&dir, 2, &[]);
    let found = inspect(&dir).unwrap();
    assert!(
        matches!(found.damage[..], [ref one] if matches!(one.kind, DamageKind::Empty)),
        "{:?}",
        found.damage
    );
    let (_, opening) = read(&dir).unwrap();
    assert_eq!(opening.damage, found.damage);
    let done = repair(&dir, &session_id(1), now()).unwrap();
    assert_eq!((done.segments.len(), done.lost), (1, 1));
    assert!(inspect(&dir).unwrap().is_sound());
    let (mut log, opening) = Log::open(&dir, Durability::Relaxed, now()).unwrap();
    assert_eq!(opening.damage, []);
    log.append(prompt("on"), now()).unwrap();
    drop(log);
    write(&dir, 2, &second);
    assert!(inspect(&dir).unwrap().is_sound());
}

/// L08: opening a session reads its current segment alone. Where the first one was stands something that no one could read.
#[test]
fn opening_reads_the_current_segment_alone() {
    let home = temp_dir();
    let dir = session(home.path());
    let (whole, _) = read(&dir).unwrap();
    fs::remove_file(dir.join("0001.jsonl")).unwrap();
    fs::create_dir(dir.join("0001.jsonl")).unwrap();
    let (alone, opening) = read(&dir).unwrap();
    assert_eq!((alone, opening.damage), (whole, Vec::new()));
    let (log, _) = Log::open(&dir, Durability::Relaxed, now()).unwrap();
    assert_eq!(log.segment(), 2);
}

/// D22: an entry that is lost is none to go back to, though others around it are there.
#[test]
fn a_lost_entry_is_not_gone_back_to() {
    let home = temp_dir();
    let dir = session(home.path());
    let mut first = lines(&dir, 1);
    let lost = first.len() as u64;
    first.pop();
    write(&dir, 1, &first);
    let (mut log, _) = Log::open(&dir, Durability::Relaxed, now()).unwrap();
    let before = log.state().clone();
    log.rewind(RewindTo::Entry(lost), now()).unwrap_err();
    assert_eq!(*log.state(), before);
}

/// A repair long after says nothing of when the entries behind a gap were written.
#[test]
fn what_stands_behind_a_gap_keeps_its_time() {
    let home = temp_dir();
    let dir = session(home.path());
    let times = || {
        let (mut clock, mut times) = (Clock::default(), Vec::new());
        entries(&dir, |_, entry| {
            let entry = entry.unwrap();
            times.push((entry.seq, clock.read(entry.ts)));
        })
        .unwrap();
        times
    };
    let before = times();
    let mut damaged = lines(&dir, 1);
    let counted = |line: &Vec<u8>| String::from_utf8_lossy(line).contains("\"at\":");
    // A line between two that count from one before it.
    let place = (1..damaged.len() - 1).find(|at| damaged[at - 1..=at + 1].iter().all(counted)).unwrap();
    damaged.remove(place);
    write(&dir, 1, &damaged);
    repair(&dir, &session_id(1), now() + jiff::SignedDuration::from_hours(24)).unwrap();
    let gone = before[place].0;
    let others = |times: Vec<(u64, Option<jiff::Timestamp>)>| -> Vec<_> {
        times.into_iter().filter(|(seq, _)| *seq != gone).collect()
    };
    assert_eq!(others(times()), others(before));
}
