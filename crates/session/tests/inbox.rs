//! Messages from other processes: accepted once, in order, whatever is killed when.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

mod common;

use std::fs;
use std::path::Path;

use common::{create, now, temp_dir};
use jiff::ToSpan;
use mainstay_session::log::{
    Durability, Fault, LeaveError, Log, MESSAGE_BYTES, Taken, leave_message, read, waiting_messages,
};

fn leave(dir: &Path, millis: i64, text: &str, wake: bool) {
    leave_message(dir, text, wake, now() + millis.milliseconds()).unwrap();
}

fn waits(log: &Log) -> Vec<(&str, bool, &str)> {
    log.state().inbox.iter().map(|m| (m.text.as_str(), m.wake, m.source.as_str())).collect()
}

/// N01, N02: what was left, to a session that runs and to one that does not, is accepted in order.
#[test]
fn messages_are_accepted_in_the_order_in_which_they_were_left() {
    let home = temp_dir();
    let mut log = create(home.path(), 1);
    let dir = log.dir().to_owned();
    leave(&dir, 1, "one", false);
    leave(&dir, 2, "two\n\"é\"", true);
    assert_eq!(waiting_messages(&dir), 2);
    assert_eq!(log.take_inbox(now()).unwrap(), Taken { accepted: 2, wakes: true, unreadable: Vec::new() });
    assert_eq!(waits(&log), [("one", false, "process"), ("two\n\"é\"", true, "process")]);
    assert_eq!(log.take_inbox(now()).unwrap(), Taken::default());
    drop(log);
    leave(&dir, 3, "three", false);
    let (mut log, _) = Log::open(&dir, Durability::Always, now()).unwrap();
    assert_eq!(log.take_inbox(now()).unwrap().accepted, 1);
    assert_eq!(waits(&log).last(), Some(&("three", false, "process")));
    assert_eq!(&read(&dir).unwrap().0, log.state());
    assert_eq!(fs::read_dir(dir.join("inbox")).unwrap().count(), 0);
}

/// N02: a process killed between the entry and the removal of the file accepts the message once.
#[test]
fn a_file_that_outlived_its_entry_is_only_removed() {
    let home = temp_dir();
    let mut log = create(home.path(), 1);
    let dir = log.dir().to_owned();
    leave(&dir, 1, "once", true);
    let file = fs::read_dir(dir.join("inbox")).unwrap().next().unwrap().unwrap().path();
    let bytes = fs::read(&file).unwrap();
    log.take_inbox(now()).unwrap();
    drop(log);
    fs::write(&file, bytes).unwrap();
    let (mut log, _) = Log::open(&dir, Durability::Always, now()).unwrap();
    assert_eq!(log.take_inbox(now()).unwrap(), Taken::default());
    assert_eq!(waits(&log), [("once", true, "process")]);
    assert!(!file.exists());
}

/// L05: a message that cannot be logged stays where it is.
#[test]
fn a_full_disk_loses_no_message() {
    let home = temp_dir();
    let mut log = create(home.path(), 1);
    let dir = log.dir().to_owned();
    leave(&dir, 1, "kept", false);
    log.inject(Fault::ShortWrite(3));
    log.inject(Fault::ShortWrite(0));
    log.take_inbox(now()).unwrap_err();
    assert_eq!(waiting_messages(&dir), 1);
    log.take_inbox(now()).unwrap();
    assert_eq!((waits(&log), waiting_messages(&dir)), (vec![("kept", false, "process")], 0));
}

#[test]
fn what_is_no_message_is_put_away_and_named() {
    let home = temp_dir();
    let mut log = create(home.path(), 1);
    let inbox = log.dir().join("inbox");
    leave(log.dir(), 1, "good", false);
    let id = |number: u8| format!("0193d2a0-0000-7000-8000-0000000000{number:02}");
    fs::write(inbox.join(id(1)), "{\"text\":").unwrap();
    fs::write(inbox.join(id(2)), format!("{{\"text\":\"{}\"}}", "x".repeat(MESSAGE_BYTES + 1))).unwrap();
    std::os::unix::fs::symlink("/etc/hostname", inbox.join(id(3))).unwrap();
    fs::create_dir(inbox.join(id(4))).unwrap();
    fs::write(inbox.join("half.new"), "x").unwrap();
    let taken = log.take_inbox(now()).unwrap();
    let named: Vec<_> = (1..5).map(|number| inbox.join(id(number)).with_extension("unreadable")).collect();
    assert_eq!(taken, Taken { accepted: 1, wakes: false, unreadable: named.clone() });
    assert!(named.iter().all(|path| path.symlink_metadata().is_ok()));
    assert_eq!(log.take_inbox(now()).unwrap(), Taken::default());
    assert_eq!(waits(&log), [("good", false, "process")]);
}

#[test]
fn a_message_without_a_session_or_too_long_is_refused() {
    let home = temp_dir();
    let error = leave_message(&home.path().join("none"), "x", true, now()).unwrap_err();
    assert!(matches!(error, LeaveError::NoSession(_)), "{error}");
    let log = create(home.path(), 1);
    let error = leave_message(log.dir(), &"x".repeat(MESSAGE_BYTES + 1), true, now()).unwrap_err();
    assert!(matches!(error, LeaveError::TooLong { .. }), "{error}");
    assert!(!log.dir().join("inbox").exists());
}
