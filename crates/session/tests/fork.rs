//! Forks: sessions of their own that begin with another's past.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

mod common;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use common::{
    Session, answer, header, next_segment, now, plan_arguments, prompt, session_id, temp_dir, text,
};
use mainstay_session::entry::{Parent, SessionHeader};
use mainstay_session::log::{Durability, ForkError, Log, RewindTo, fork, list, read};
use mainstay_session::request::request;
use mainstay_session::state::SessionState;

fn turn(session: &mut Session, number: usize) {
    session.append(prompt(&format!("turn {number}")));
    session.write_plan("todo_write", &plan_arguments(&format!("{}>", "x".repeat(number))));
    session.work();
    session.append(answer(vec![text("Done.")]));
    session.end_turn();
}

/// R10: a fork at a turn is the session as it was then, whatever segment the turn ended in; it goes on by itself.
#[test]
fn a_fork_restores_a_turn_and_goes_its_own_way() {
    for at in 0..=4u64 {
        let home = temp_dir();
        let mut session = Session::create(home.path());
        let mut ends = vec![session.state().clone()];
        for number in 1..=4 {
            if number == 3 {
                session.log.spill().store(b"a whole text").unwrap();
                next_segment(&mut session.log, 1);
                ends[2] = session.state().clone();
            }
            turn(&mut session, number);
            ends.push(session.state().clone());
        }
        let files = |dir: &std::path::Path| [1, 2].map(|n| fs::read(dir.join(format!("{n:04}.jsonl"))).ok());
        let before = files(session.log.dir());
        let forked = fork(home.path(), session.log.dir(), session_id(9), Some(at), now()).unwrap();
        let then = &ends[usize::try_from(at).unwrap()];
        let (state, opening) = read(&forked.dir).unwrap();
        assert_eq!(opening.damage, Vec::new());
        let own = SessionHeader {
            session: session_id(9),
            parent: Some(Parent { session: session_id(1), seq: forked.seq }),
            segment: if at < 2 { 1 } else { 2 },
            ..header(1)
        };
        let expected = SessionState { header: Some(own), ..then.clone() };
        assert_eq!((&state, forked.turn), (&expected, at), "turn {at}");
        assert_eq!(request(&state).messages, request(then).messages);
        let ino = |dir: &std::path::Path, name: &str| fs::metadata(dir.join(name)).unwrap().ino();
        assert_eq!(ino(session.log.dir(), "0001.jsonl") == ino(&forked.dir, "0001.jsonl"), at >= 2);
        assert_eq!(fs::metadata(&forked.dir).unwrap().permissions().mode() & 0o777, 0o700);
        // Both are written at the same time, and neither notices the other.
        let (log, _) = Log::open(&forked.dir, Durability::Always, now()).unwrap();
        let mut other = Session::of(log);
        turn(&mut other, 7);
        assert_eq!(files(session.log.dir()), before);
        turn(&mut session, 8);
        assert_eq!(&read(session.log.dir()).unwrap().0, session.state());
        assert_eq!(&read(&forked.dir).unwrap().0, other.state());
        assert_eq!(list(home.path()).unwrap().len(), 2);
        for back in (0..at).rev() {
            other.rewind(RewindTo::Turn(back));
            assert_eq!(
                request(other.state()).messages,
                request(&ends[usize::try_from(back).unwrap()]).messages
            );
        }
    }
}

/// D10: a session that is being worked on is forked as it is, its open call with it.
#[test]
fn a_fork_of_a_running_session_has_what_is_logged() {
    let home = temp_dir();
    let mut session = Session::create(home.path());
    turn(&mut session, 1);
    session.append(prompt("more"));
    session.append(answer(vec![common::call("c", "bash", "{}")]));
    let forked = fork(home.path(), session.log.dir(), session_id(9), None, now()).unwrap();
    let (state, _) = read(&forked.dir).unwrap();
    assert_eq!(state.history, session.state().history);
    assert_eq!(state.open_calls().len(), 1);
    assert!(state.turn_is_open);
}

/// R10: a fork follows the branch: what was left before the border is not in it, and its rewinds are.
#[test]
fn a_fork_follows_the_branch() {
    let home = temp_dir();
    let mut session = Session::create(home.path());
    for number in 1..=3 {
        turn(&mut session, number);
    }
    session.rewind(RewindTo::Turn(1));
    turn(&mut session, 6);
    let then = session.state().clone();
    turn(&mut session, 7);
    let forked = fork(home.path(), session.log.dir(), session_id(9), Some(2), now()).unwrap();
    assert_eq!(read(&forked.dir).unwrap().0.history, then.history);
}

#[test]
fn a_fork_that_cannot_be_leaves_nothing() {
    let home = temp_dir();
    let mut session = Session::create(home.path());
    turn(&mut session, 1);
    let dir = session.log.dir().to_owned();
    let error = fork(home.path(), &dir, session_id(9), Some(2), now()).unwrap_err();
    assert!(error.to_string().contains("there is no turn 2: the session has 1"), "{error}");
    let error = fork(home.path(), &dir, session_id(1), None, now()).unwrap_err();
    assert!(
        matches!(error, ForkError::Write { .. }) && error.to_string().contains("there already"),
        "{error}"
    );
    let names: Vec<_> = fs::read_dir(home.path().join("sessions")).unwrap().collect();
    assert_eq!(names.len(), 1);
}
