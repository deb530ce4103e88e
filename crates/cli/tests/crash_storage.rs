//! Disks that fail: full, broken, or gone, at each place where the real binary writes, syncs, renames or starts something.
//!
//! After each failure the session is taken to its end on a disk that works. What a failure may not do is the same at every
//! place: leave something half-written, let a tool run that is not in the log, hang, or go unsaid.

#![allow(clippy::unwrap_used, unreachable_pub, reason = "a test may fail loudly")]
#![allow(dead_code, reason = "shared with the test that kills")]

#[path = "crash/check.rs"]
mod check;
#[path = "crash/machine.rs"]
mod machine;

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use check::Reference;
use machine::{Ended, Fault, Machine, TURNS};

static REFERENCE: LazyLock<Reference> = LazyLock::new(Reference::make);

/// What is seen of a failure.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Seen {
    /// Nothing: it was tried again, and that went well.
    Nothing,
    /// The run ends with code 1, and says so in these words.
    End(&'static str),
    /// The turn goes on: the model is told in these words, as the result of a call.
    Result(&'static str),
    /// The turn goes on, and the user is warned in these words.
    Warning(&'static str),
}

use Seen::{End, Nothing, Result, Warning};

const LOG: &str = "cannot write the session log";
const SYNC: &str = "cannot make the session log";
const CREATE: &str = "cannot create a session in";
const KEPT: &str = "could not be kept for an undo";
const WHOLE: &str = "cannot keep the whole";
const WRITE: &str = "cannot write";
const COMMAND: &str = "the command was not run";

/// Where the disk fails, in the first turn, and what is seen of it.
const FAILURES: [(&str, Seen); 39] = [
    // Once is tried again.
    ("log.append#2=enospc", Nothing),
    ("log.append.half#3=enospc", Nothing),
    ("log.append.done#3=eio", Nothing),
    ("log.sync#2=eio", Nothing),
    // Before the prompt, at the answer, at a command's intent, at a result; by a short write too, and to the end.
    ("log.append#1+=enospc", End(LOG)),
    ("log.append#2+=eio", End(LOG)),
    ("log.append.half#2+=enospc", End(LOG)),
    ("log.append.half#5+=enospc", End(LOG)),
    ("log.append#9+=enospc", End(LOG)),
    ("log.append#14+=eio", End(LOG)),
    ("log.append.half#17+=enospc", End(LOG)),
    ("log.append#20+=enospc", End(LOG)),
    // What was half-written cannot be cut off either.
    ("log.append.half#5+=enospc;log.cut=eio", End(LOG)),
    // A sync that fails twice, or fails and cannot be repaired.
    ("log.sync#1+=eio", End(SYNC)),
    ("log.sync#3+=eio", End(SYNC)),
    ("log.sync#2=eio;log.rewrite=eio", End(SYNC)),
    ("folder.sync#1=eio", End(SYNC)),
    // A session that cannot begin.
    ("folder.make#1=enospc", End(CREATE)),
    ("segment.write#1=enospc", End(CREATE)),
    ("segment.write.half#1=enospc", End(CREATE)),
    ("segment.rename#1=eio", End(CREATE)),
    // A next segment that cannot be begun.
    ("segment.write#2+=enospc", End(LOG)),
    ("segment.write.half#2+=enospc", End(LOG)),
    ("segment.rename#2+=eio", End(LOG)),
    // What is kept beside the log.
    ("spill.write#1=enospc", Result(KEPT)),
    ("spill.write.half#1=enospc", Result(KEPT)),
    ("spill.sync#1=eio", Result(KEPT)),
    ("spill.rename#1=eio", Result(KEPT)),
    ("spill.folder.sync#1=eio", Result(KEPT)),
    // Files of the workspace.
    ("file.write#1=enospc", Result(WRITE)),
    ("file.write.half#1=enospc", Result(WRITE)),
    ("file.link#1=eio", Result(WRITE)),
    ("file.rename#1=eio", Result(WRITE)),
    // Processes.
    // Once it is asked about its sandbox, once it is to run a command.
    ("supervisor.start#1=eio", Warning("the sandbox does not hold commands fully")),
    ("supervisor.start#1=eio;supervisor.start#2=eio", Result(COMMAND)),
    ("command.start#1=eio", Result(COMMAND)),
    ("command.go#1=eio", Result("may have run in part")),
    // A document that can be made again.
    ("history.write=enospc", Warning("history.json is not up to date")),
    ("history.rename=eio", Warning("history.json is not up to date")),
];

/// L05, law 4, law 5, D04, T17: on a disk that fails nothing is half-written, no tool runs unlogged, what failed is said
/// with its place, and the session goes on in order.
#[test]
fn a_disk_that_fails_is_said_and_the_session_goes_on() {
    let fault = |(orders, seen): &(&str, Seen)| Some(format!("{orders}: {}", fails(orders, *seen).err()?));
    let faults: Vec<String> = std::thread::scope(|scope| {
        let halves = [0, 1].map(|half| {
            scope.spawn(move || FAILURES.iter().skip(half).step_by(2).filter_map(fault).collect::<Vec<_>>())
        });
        halves.into_iter().flat_map(|half| half.join().unwrap()).collect()
    });
    assert!(faults.is_empty(), "{faults:#?}");
}

/// L05: a session's folder, the workspace or both that vanish while a turn runs are said, nothing is made anew in their place,
/// and once they are back the session goes on.
#[test]
fn a_directory_that_vanishes_is_said() {
    for (gone, at, words) in [
        ("data", "log.append#4", LOG),
        ("data", "log.append#12", LOG),
        ("data", "spill.write#1", LOG),
        ("data", "segment.write#2", LOG),
        ("data", "log.sync#1", SYNC),
        ("work", "log.append#4", ""),
        ("work", "file.write#1", ""),
    ] {
        let mut machine = Machine::new();
        let (place, away) = (machine.root.join(gone), machine.root.join(format!("{gone}.gone")));
        let orders = format!("{at}=vanish:{}", place.display());
        let ended = machine.exec(TURNS[0].0, &Fault { orders: orders.clone(), kill_after: None });
        machine.wait_for_the_last().unwrap();
        assert!(ended.err.contains(words), "{orders}: {}", ended.err);
        assert!(words.is_empty() || ended.code == Some(1), "{orders}: {}", ended.err);
        let made_anew = place.exists();
        assert!(!made_anew, "{orders}: something was made in the place of what vanished");
        fs::rename(&away, &place).unwrap();
        check::check_nothing_unlogged(&machine).unwrap();
        check::check_files_are_whole(&machine).unwrap();
        while let Some(prompt) = machine.next_prompt() {
            let ended = machine.exec(prompt, &Fault::default());
            assert_eq!(ended.code, Some(0), "{orders}: {}", ended.err);
            check::check_sound(&machine, &ended).unwrap();
        }
    }
}

/// Law 4: what a model asked for is on the disk before it has an effect, with `durability = "always"`; `relaxed` waits for
/// the disk where a segment follows another, and for files of the workspace.
#[test]
fn what_is_on_the_disk_before_what() {
    let always = &REFERENCE.traces[0];
    let before = |at: usize, of: [&str; 2]| {
        always[..at].iter().rev().find(|place| of.contains(&place.as_str())).unwrap()
    };
    for at in (0..always.len()).filter(|at| always[*at] == "file.write") {
        assert_eq!(before(at, ["log.append.done", "log.sync"]), "log.sync");
    }
    for at in (0..always.len()).filter(|at| always[*at] == "segment.rename").skip(1) {
        assert_eq!(before(at, ["segment.write.done", "log.sync"]), "log.sync");
    }
    for at in (0..always.len()).filter(|at| always[*at] == "spill.rename") {
        assert_eq!(before(at, ["spill.write.done", "spill.sync"]), "spill.sync");
        assert_eq!(always[at + 1], "spill.folder.sync");
    }
    assert_eq!(before(always.len(), ["log.append.done", "log.sync"]), "log.sync");
    let mut machine = Machine::new();
    fs::create_dir(machine.root.join("config/mainstay")).unwrap();
    fs::write(machine.root.join("config/mainstay/config.toml"), "durability = \"relaxed\"\n").unwrap();
    let relaxed = machine.exec(TURNS[0].0, &Fault::default());
    assert_eq!(relaxed.code, Some(0), "{}", relaxed.err);
    let count = |place: &str| relaxed.trace.iter().filter(|passed| *passed == place).count();
    assert_eq!(["log.sync", "folder.sync", "spill.sync", "file.sync"].map(count), [1, 0, 0, 3]);
}

fn fails(orders: &str, seen: Seen) -> std::result::Result<(), String> {
    let mut machine = Machine::new();
    let ended = machine.exec(TURNS[0].0, &Fault { orders: orders.to_owned(), kill_after: None });
    machine.wait_for_the_last()?;
    check::check_nothing_unlogged(&machine)?;
    check::check_files_are_whole(&machine)?;
    check_no_rest(&machine, orders)?;
    check_seen(&machine, &ended, seen)?;
    let before = machine.segments();
    if let Some((state, _)) = machine.state() {
        let cut = check::open_calls(&state).into_iter().chain(check::interrupted_calls(&state));
        let calls: Vec<_> = cut.map(|(_, call)| call).collect();
        if !calls.is_empty() {
            machine.repeat(&state, &calls);
        }
    }
    while let Some(prompt) = machine.next_prompt() {
        let ended = machine.exec(prompt, &Fault::default());
        if ended.code != Some(0) {
            return Err(format!("it does not go on: {}", ended.err));
        }
        check::check_sound(&machine, &ended)?;
    }
    check::check_kept(&machine, &before)?;
    check::check_requests_grew(&machine)?;
    REFERENCE.check_end(&machine, !matches!(seen, Result(_)))
}

fn check_seen(machine: &Machine, ended: &Ended, seen: Seen) -> std::result::Result<(), String> {
    let wrong = |why: &str| Err(format!("{why}; it ended with {:?}: {}", ended.code, ended.err));
    match seen {
        Nothing if ended.code != Some(0) || ended.err.contains("rror") => wrong("it was seen"),
        End(_) if ended.code != Some(1) => wrong("it did not end"),
        End(words) if !ended.err.contains(words) || !says_what_and_what_to_do(&ended.err) => {
            wrong("it is not said")
        }
        Warning(words) if ended.code != Some(0) || !ended.err.contains(words) => wrong("there is no warning"),
        Result(words) if ended.code != Some(0) || !machine.log_text().contains(words) => {
            wrong("the model is not told")
        }
        Nothing | End(_) | Warning(_) | Result(_) => Ok(()),
    }
}

fn says_what_and_what_to_do(err: &str) -> bool {
    let what = ["No space left on device", "Input/output error"].iter().any(|what| err.contains(what));
    what && err.contains("/sessions/") && err.contains("free some space")
}

/// Nothing that was being written is left, but where the disk did not allow to clear it away.
fn check_no_rest(machine: &Machine, orders: &str) -> std::result::Result<(), String> {
    let is_rest = |path: &Path| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        name.ends_with(".new") || name.ends_with(".tmp")
    };
    let mut rests = Vec::new();
    let mut folders = vec![machine.root.join("data"), machine.root.join("work")];
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(&folder).into_iter().flatten().map(|entry| entry.unwrap().path()) {
            if is_rest(&path) {
                rests.push(path.clone());
            }
            if path.is_dir() {
                folders.push(path);
            }
        }
    }
    let is_torn =
        machine.segments().iter().any(|segment| !segment.is_empty() && segment.last() != Some(&b'\n'));
    if !rests.is_empty() || (is_torn && !orders.contains("log.cut")) {
        return Err(format!("half-written: {rests:?}, torn: {is_torn}"));
    }
    Ok(())
}
