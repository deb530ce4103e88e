//! Exports and imports: the same session elsewhere, or nothing.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

mod common;

use std::fs;
use std::path::Path;

use common::{Session, answer, call, now, ok, prompt, temp_dir, text};
use mainstay_session::entry::{Body, Entry, FORMAT, Grant};
use mainstay_session::line;
use mainstay_session::log::{
    ExportError, ImportError, ReadError, entries, export, import, list, read, remove, restore, search,
    session_dir,
};
use mainstay_session::message::Content;

/// A session of two segments with whole texts beside it.
fn session(home: &Path) -> Session {
    let mut session = Session::create(home);
    session.append(prompt("Fix é\n\"the\" bug"));
    session.log.spill().store("a whole text".as_bytes()).unwrap();
    session.log.spill().store(&[0, 159, 146, 150]).unwrap();
    session.log.spill().store("é".repeat(600_000).as_bytes()).unwrap();
    session.append(answer(vec![text("Done.")]));
    session.end_turn();
    session.next_segment(1);
    session.append(prompt("more"));
    session.end_turn();
    session.log.write_history().unwrap();
    session
}

fn exported(dir: &Path, masked: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    export(dir, masked, "test", now(), &mut bytes).unwrap();
    bytes
}

/// All files of a folder but the lock, by name.
fn files(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for folder in [dir.to_owned(), dir.join("spill")] {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            if entry.path().is_file() && entry.file_name() != "lock" {
                all.push((entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()));
            }
        }
    }
    all.sort();
    all
}

/// What was permitted elsewhere, or is only said to have been, allows nothing here: neither an entry nor a checkpoint does.
#[test]
fn an_import_brings_no_permission_along() {
    let (here, there) = (temp_dir(), temp_dir());
    let mut session = session(here.path());
    let grant = |pattern: &str, scope: &str| {
        Body::Grant(Grant { tool: "bash".to_owned(), pattern: pattern.to_owned(), scope: scope.to_owned() })
    };
    session.append(grant("*", "session"));
    session.append(grant("true", "once"));
    session.next_segment(1);
    session.append(grant("make", "project"));
    let imported = import(there.path(), &mut exported(session.log.dir(), false).as_slice()).unwrap();
    let given = ["*", "make"].map(|pattern| ("bash".to_owned(), pattern.to_owned()));
    assert_eq!(imported.grants, given);
    let (state, opening) = read(&session_dir(there.path(), &imported.id)).unwrap();
    let mut expected = session.state().clone();
    expected.grants.iter_mut().for_each(|grant| grant.scope = Grant::ONCE.to_owned());
    assert_eq!((state == expected, opening.damage), (true, Vec::new()));
}

/// L07: a line that is written anew stands under a header that says of which format it is; all else of an old log is what
/// it was.
#[test]
fn an_import_says_which_format_it_wrote() {
    let (here, there) = (temp_dir(), temp_dir());
    let mut session = session(here.path());
    let grant = Grant { tool: "bash".to_owned(), pattern: "*".to_owned(), scope: "session".to_owned() };
    session.append(Body::Grant(grant));
    let dir = session.log.dir().to_owned();
    drop(session);
    let path = dir.join("0001.jsonl");
    let older = |line: &[u8], format| {
        let mut entry = line::decode(line).unwrap();
        if let Body::Session(header) = &mut entry.body {
            header.format = format;
        }
        line::encode(&entry).unwrap()
    };
    let formats = |dir: &Path| {
        let mut formats = Vec::new();
        entries(dir, |_, entry| {
            if let Ok(Entry { body: Body::Session(header), .. }) = entry {
                formats.push((header.segment, header.format));
            }
        })
        .unwrap();
        formats
    };
    for segment in [1, 2] {
        let path = dir.join(format!("{segment:04}.jsonl"));
        let bytes = fs::read(&path).unwrap();
        let lines = bytes.split_inclusive(|byte| *byte == b'\n');
        let old = lines.map(|line| older(line.strip_suffix(b"\n").unwrap(), FORMAT - 1)).collect::<Vec<_>>();
        fs::write(&path, old.concat()).unwrap();
    }
    assert_eq!(formats(&dir), [(1, FORMAT - 1), (2, FORMAT - 1)]);
    let imported = import(there.path(), &mut exported(&dir, false).as_slice()).unwrap();
    let new = session_dir(there.path(), &imported.id);
    // The permission is in the second segment, so nothing of the first is written anew.
    assert_eq!(formats(&new), [(1, FORMAT - 1), (2, FORMAT)]);
    assert_eq!(fs::read(new.join("0001.jsonl")).unwrap(), fs::read(path).unwrap());
}

#[test]
fn an_import_is_the_session_byte_for_byte() {
    let (here, there) = (temp_dir(), temp_dir());
    let session = session(here.path());
    let bytes = exported(session.log.dir(), false);
    let id = import(there.path(), &mut bytes.as_slice()).unwrap().id;
    let dir = session_dir(there.path(), &id);
    assert_eq!(files(&dir), files(session.log.dir()));
    assert_eq!(&read(&dir).unwrap().0, session.state());
    let before = files(&dir);
    let error = import(there.path(), &mut bytes.as_slice()).unwrap_err();
    assert!(matches!(error, ImportError::Exists { .. }), "{error}");
    assert_eq!(files(&dir), before);
}

/// A line that was changed, cut out, put twice or is missing, at every line and at many bytes: nothing is left of it.
#[test]
fn what_is_not_whole_leaves_nothing() {
    let (here, there) = (temp_dir(), temp_dir());
    let session = session(here.path());
    let bytes = exported(session.log.dir(), false);
    let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    let mut broken: Vec<Vec<u8>> = (0..10).map(|n| bytes[..bytes.len() * n / 10].to_vec()).collect();
    for place in 0..lines.len() {
        let without = [&lines[..place], &lines[place + 1..]].concat().concat();
        let mut changed: Vec<Vec<u8>> = lines.iter().map(|line| line.to_vec()).collect();
        let middle = changed[place].len() / 2;
        changed[place][middle] ^= 1;
        let twice = [&lines[..=place], &lines[place..]].concat().concat();
        broken.extend([without, changed.concat(), twice]);
    }
    broken.push([&bytes[..], b"{}\n"].concat());
    for bytes in broken {
        import(there.path(), &mut bytes.as_slice()).unwrap_err();
        let left = fs::read_dir(there.path().join("sessions")).map(|names| names.count()).unwrap_or(0);
        assert_eq!(left, 0);
    }
}

fn sealed(start: &str) -> String {
    format!("{start},\"crc\":\"{:08x}\"}}\n", crc32fast::hash(start.as_bytes()))
}

/// W05: no name leads out of the session's folder, or to a file that a session does not have.
#[test]
fn a_name_that_is_no_sessions_is_refused() {
    let home = temp_dir();
    let head =
        sealed(&format!(r#"{{"export":1,"session":"{}","ts":"2026-11-30T09:00:00Z""#, common::session_id(1)));
    for name in [
        "../evil",
        "/etc/passwd",
        "spill/../../evil",
        "spill/x",
        "lock",
        "inbox/x",
        "0001.jsonl/..",
        "0000.jsonl",
        "1.jsonl",
        "0001.jsonl.torn-01",
        "",
        ".",
        "spill/",
        "history.json/x",
    ] {
        let line = sealed(&format!(r#"{{"file":{},"text":"x""#, serde_json::to_string(name).unwrap()));
        let error = import(home.path(), &mut (head.clone() + &line).as_bytes()).unwrap_err();
        assert!(
            error.to_string().starts_with("line 2 is not of an export: a session has no file"),
            "{error}"
        );
    }
    let newer =
        sealed(&format!(r#"{{"export":2,"session":"{}","ts":"2026-11-30T09:00:00Z""#, common::session_id(1)));
    let error = import(home.path(), &mut newer.as_bytes()).unwrap_err();
    assert!(matches!(error, ImportError::Newer { version: 2 }), "{error}");
    let other = sealed(r#"{"export":1,"session":"../../x","ts":"2026-11-30T09:00:00Z""#);
    import(home.path(), &mut other.as_bytes()).unwrap_err();
    let empty = head + &sealed(r#"{"files":0"#);
    let error = import(home.path(), &mut empty.as_bytes()).unwrap_err();
    assert!(matches!(error, ImportError::NoSession(ReadError::NoSession { .. })), "{error}");
    assert_eq!(fs::read_dir(home.path().join("sessions")).unwrap().count(), 0);
}

/// D20: a masked export holds no secret but where only the provider can read, and is a session that opens; what was named
/// by its hash is found under its new one.
#[test]
fn a_masked_export_holds_no_secret_and_opens() {
    let (here, there) = (temp_dir(), temp_dir());
    let secret = format!("AKIA{}", "B2".repeat(8));
    let mut session = Session::create(here.path());
    let whole = session.log.spill().store(format!("keys: {secret}").as_bytes()).unwrap();
    session.log.spill().store(&[&[0xff], secret.as_bytes()].concat()).unwrap();
    session.append(prompt(&format!("use {secret}; the whole is in spill/{}", whole.as_str())));
    let opaque = format!(r#"{{"signature":"{secret}"}}"#);
    let asked = session.append(answer(vec![
        call("c", "bash", &format!(r#"{{"command":"export K=\"{secret}\""}}"#)),
        Content::Reasoning { text: "hm".to_owned(), opaque: Some(opaque.clone()) },
    ]));
    session.append(ok(asked, 0, &format!("Bearer {secret}")));
    session.end_turn();
    let dir = session.log.dir().to_owned();
    let file = dir.join("0001.jsonl");
    let bad = format!("a bad line with {secret}\n").into_bytes();
    fs::write(&file, [fs::read(&file).unwrap(), bad].concat()).unwrap();
    let mut bytes = Vec::new();
    let done = export(&dir, true, "test", now(), &mut bytes).unwrap();
    assert_eq!((done.files, done.unmasked), (3, 1));
    let id = import(there.path(), &mut bytes.as_slice()).unwrap().id;
    let there = session_dir(there.path(), &id);
    let text = fs::read_to_string(there.join("0001.jsonl")).unwrap();
    assert_eq!(text.matches(&secret).count(), 1, "only in what goes back to the provider");
    let (state, opening) = read(&there).unwrap();
    assert_eq!(opening.damage.len(), 1);
    let mainstay_session::conversation::Item::Prompt { text, .. } = &state.history[0] else { panic!() };
    let hash = text.rsplit('/').next().unwrap();
    assert!(text.starts_with("use ***; "));
    assert_eq!(fs::read_to_string(there.join("spill").join(hash)).unwrap(), "keys: ***");
    let step = state.history[1].as_step().unwrap();
    assert_eq!(step.calls().next().unwrap().1.arguments, r#"{"command":"export K=\"***\""}"#);
    let kept = step
        .content
        .iter()
        .any(|block| matches!(block, Content::Reasoning { opaque: Some(o), .. } if *o == opaque));
    assert!(kept);
    let none = export(&there.join("none"), false, "test", now(), &mut Vec::new()).unwrap_err();
    assert!(matches!(none, ExportError::Read(_)), "{none}");
}

/// D16: a session goes to the trash whole, comes back whole, and nothing is written over.
#[test]
fn the_trash_keeps_all() {
    let home = temp_dir();
    let session = session(home.path());
    let (id, dir) = (session.state().header.clone().unwrap().session, session.log.dir().to_owned());
    let before = files(&dir);
    remove(home.path(), &id, now()).unwrap_err();
    drop(session);
    let place = remove(home.path(), &id, now()).unwrap();
    assert_eq!((files(&place), dir.exists(), list(home.path()).unwrap().len()), (before.clone(), false, 0));
    remove(home.path(), &id, now()).unwrap_err();
    restore(home.path(), &id).unwrap();
    assert_eq!((files(&dir), place.exists()), (before, false));
    restore(home.path(), &id).unwrap_err();
}

/// D15: a folder without a log is no session.
#[test]
fn a_stub_is_not_listed() {
    let home = temp_dir();
    let session = session(home.path());
    let stub = session_dir(home.path(), &common::session_id(7));
    fs::create_dir_all(&stub).unwrap();
    fs::write(stub.join("lock"), "").unwrap();
    assert_eq!(list(home.path()).unwrap().len(), 1);
    assert_eq!(mainstay_session::log::leftovers(home.path()).unwrap(), [stub]);
    drop(session);
}

#[test]
fn sessions_are_found_by_what_was_said() {
    let home = temp_dir();
    let mut one = Session::of(common::create(home.path(), 1));
    one.append(prompt("Fix the Retry loop\nin \"net.rs\""));
    one.append(answer(vec![text("The ÜBERTRAGUNG waits."), call("c", "bash", r#"{"command":"hidden"}"#)]));
    one.end_turn();
    one.next_segment(0);
    let mut two = Session::of(common::create(home.path(), 2));
    two.append(prompt("something else"));
    two.end_turn();
    let all = list(home.path()).unwrap();
    let found =
        |text: &str| -> Vec<String> { search(&all, text).into_iter().map(|found| found.excerpt).collect() };
    assert_eq!(found("retry LOOP"), ["Fix the Retry loop in \"net.rs\""]);
    assert_eq!(found("loop\nin \"NET"), ["Fix the Retry loop in \"net.rs\""]);
    assert_eq!(found("übertragung"), ["The ÜBERTRAGUNG waits."]);
    assert_eq!(found("hidden"), Vec::<String>::new());
    assert_eq!(found("e").len(), 2);
    assert_eq!(found("user_prompt"), Vec::<String>::new());
    assert_eq!(found("a.*b"), Vec::<String>::new());
}
