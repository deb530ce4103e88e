//! What must hold for any bytes: of a log, and of the arguments of a plan write.
//!
//! The fuzz targets in `fuzz/` call these with bytes of their own making, `replay_seeds.rs` with those that are kept.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use mainstay_session::entry::{Body, Entry, UserPrompt};
use mainstay_session::line;
use mainstay_session::log::{self, DamageKind, Durability, Log};
use mainstay_session::plan::{
    self, MAX_ACTIVE_FORM_CHARS, MAX_CONTENT_CHARS, MAX_ID_CHARS, MAX_ITEMS, PlanInView, PlanItemStatus,
};
use mainstay_session::state::SessionState;

/// Reads bytes as the segments of a session. No line that is whole is lost: each is applied, or told of; and what is
/// written behind them changes nothing of them.
///
/// A line of the bytes that begins with `!` is one with the right checksum, one that is `#` ends a segment.
pub fn log(data: &[u8]) {
    let segments = segments(data);
    let home = temp_dir();
    let dir = home.path().join("sessions/01a22bae-b6fd-7101-8101-010101010101");
    fs::create_dir_all(&dir).unwrap();
    for (number, bytes) in (1..).zip(&segments) {
        fs::write(segment(&dir, number), bytes).unwrap();
    }
    every_line_is_shown(&dir, &segments);
    let Ok((state, opening)) = log::read(&dir) else { return };
    let damaged: BTreeSet<(u32, u64)> = opening
        .damage
        .iter()
        .filter(|damage| matches!(damage.kind, DamageKind::BadLine(_) | DamageKind::OutOfOrder { .. }))
        .map(|damage| (damage.segment, damage.line))
        .collect();
    // An opening that is not whole has the segment before read first.
    let is_told =
        (0..segments.len()).any(|start| folded(&segments, start) == (state.clone(), damaged.clone()));
    assert!(is_told, "no fold of the lines gives what was read: {damaged:?} {state:#?}");
    is_gone_on_with(&dir, &segments, &state);
    is_repaired(&dir, segments.len());
}

/// The state that the lines from a segment on make, and the lines that have no part in it.
fn folded(segments: &[Vec<u8>], start: usize) -> (SessionState, BTreeSet<(u32, u64)>) {
    let (mut state, mut untold) = (SessionState::default(), BTreeSet::new());
    for (number, bytes) in (1..).zip(segments).skip(start) {
        for (place, line) in (1..).zip(lines(bytes)) {
            match line::decode(line) {
                Ok(entry) if entry.seq > state.last_seq => state.apply(&entry),
                Ok(_) => assert!(untold.insert((number, place))),
                Err(_) if line.is_empty() => {}
                Err(_) => assert!(untold.insert((number, place))),
            }
        }
    }
    (state, untold)
}

/// Each line is shown once, in its place, and one that is an entry is written again as what it says.
fn every_line_is_shown(dir: &Path, segments: &[Vec<u8>]) {
    let expected: Vec<&[u8]> = segments.iter().flat_map(|bytes| lines(bytes)).collect();
    let mut shown = Vec::new();
    log::entries(dir, |line, entry| {
        assert_eq!(entry, line::decode(line));
        if let Ok(entry) = &entry {
            is_written_again(entry);
        }
        shown.push(line.to_vec());
    })
    .unwrap();
    assert_eq!(shown, expected);
}

fn is_written_again(entry: &Entry) {
    if matches!(entry.body, Body::Unknown(_)) {
        return;
    }
    let line = line::encode(entry).unwrap();
    assert_eq!(line::decode(line.strip_suffix(b"\n").unwrap()).as_ref(), Ok(entry));
}

/// A writer leaves every line as it is, and what it adds is read behind it.
fn is_gone_on_with(dir: &Path, segments: &[Vec<u8>], before: &SessionState) {
    let Ok((mut writer, _)) = Log::open(dir, Durability::Relaxed, jiff::Timestamp::UNIX_EPOCH) else {
        return;
    };
    assert_eq!(writer.state(), before);
    let body = Body::UserPrompt(UserPrompt {
        text: "go on".to_owned(),
        spill: None,
        images: Vec::new(),
        steering: false,
        inbox: None,
    });
    let appended = writer.append(body, jiff::Timestamp::UNIX_EPOCH);
    assert_eq!(appended.is_err(), before.must.is_some());
    let live = writer.state().clone();
    drop(writer);
    for (number, bytes) in (1..).zip(segments) {
        let now = fs::read(segment(dir, number)).unwrap();
        let whole = &bytes[..bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1)];
        assert!(now.starts_with(whole), "segment {number} was changed");
    }
    let (again, _) = log::read(dir).unwrap();
    assert_eq!(again, live, "what was written is read back");
}

/// A repair keeps every line that is an entry, in its segment, and a second one has nothing to do.
fn is_repaired(dir: &Path, count: usize) {
    let good = || -> Vec<BTreeSet<Vec<u8>>> {
        let good = |bytes: Vec<u8>| {
            lines(&bytes).filter(|line| line::decode(line).is_ok()).map(<[u8]>::to_vec).collect()
        };
        (1u32..).take(count).map(|number| good(fs::read(segment(dir, number)).unwrap())).collect()
    };
    let before = good();
    let id = dir.file_name().unwrap().to_str().unwrap().parse().unwrap();
    match log::repair(dir, &id, jiff::Timestamp::UNIX_EPOCH) {
        Ok(_) => {}
        Err(log::RepairError::Newer { .. } | log::RepairError::Open(_)) => return,
        Err(error @ log::RepairError::Write { .. }) => panic!("{error}"),
    }
    assert!(before.iter().zip(good()).all(|(before, after)| before.is_subset(&after)), "a good line is gone");
    let again = log::repair(dir, &id, jiff::Timestamp::UNIX_EPOCH).unwrap();
    assert_eq!(again.segments, [], "what was repaired is repaired again");
}

fn segments(data: &[u8]) -> Vec<Vec<u8>> {
    let mut segments = vec![Vec::new()];
    for line in data.split_inclusive(|byte| *byte == b'\n') {
        let mut sealed = Vec::new();
        match line {
            b"#\n" if segments.len() < 3 => {
                segments.push(Vec::new());
                continue;
            }
            [b'!', rest @ .., b'\n'] => {
                sealed.extend_from_slice(rest);
                sealed
                    .extend_from_slice(format!(",\"crc\":\"{:08x}\"}}\n", crc32fast::hash(rest)).as_bytes());
            }
            line => sealed.extend_from_slice(line),
        }
        segments.last_mut().unwrap().extend(sealed);
    }
    segments
}

/// The lines that have an end, without it.
fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split_inclusive(|byte| *byte == b'\n').filter_map(|line| line.strip_suffix(b"\n"))
}

fn segment(dir: &Path, number: u32) -> PathBuf {
    dir.join(format!("{number:04}.jsonl"))
}

/// In memory where the system has such a place, since a fuzzer makes many.
fn temp_dir() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Reads bytes as the arguments of a plan write. What is accepted keeps every rule of a plan, reads the same wherever it is
/// read, and sent again it is the same plan, with nothing to say about how it was spelled.
pub fn plan(data: &[u8]) {
    let arguments = String::from_utf8_lossy(data);
    let view = PlanInView::default();
    let read = plan::from_arguments(&arguments);
    let written = match plan::write(&view, &arguments) {
        Ok(written) => written,
        Err(refusal) => {
            assert_eq!(read, None);
            assert!(!refusal.message.trim().is_empty());
            return;
        }
    };
    assert_eq!(read.as_ref(), Some(&written.plan));
    assert_eq!(written.summary, plan::render(&written.plan));
    is_normalised(&written.plan);

    let rendered = serde_json::json!({ "todos": &written.plan }).to_string();
    let view = PlanInView { plan: written.plan, ..view };
    let again = plan::write(&view, &rendered).unwrap();
    assert_eq!((&again.plan, again.unchanged), (&view.plan, true));
    assert_eq!(again.content.as_deref(), Some("unchanged: the plan already was as sent"));
    assert_eq!(again.summary, written.summary);
    let logged: plan::Plan = serde_json::from_str(&serde_json::to_string(&view.plan).unwrap()).unwrap();
    assert_eq!(logged, view.plan);
}

fn is_normalised(plan: &plan::Plan) {
    let items = &plan.items;
    let ids: BTreeSet<&str> = items.iter().map(|item| item.id.as_str()).collect();
    assert_eq!(ids.len(), items.len(), "ids are unique");
    assert!(items.len() <= MAX_ITEMS);
    assert!(items.iter().filter(|item| item.status == PlanItemStatus::InProgress).count() <= 1);
    for item in items {
        let is_text = |text: &str, most: usize| text.trim() == text && text.chars().count() <= most;
        assert!(is_text(&item.id, MAX_ID_CHARS) && !item.id.is_empty(), "{item:?}");
        assert!(is_text(&item.content, MAX_CONTENT_CHARS) && !item.content.is_empty(), "{item:?}");
        assert!(is_text(&item.active_form, MAX_ACTIVE_FORM_CHARS), "{item:?}");
    }
    let lines = plan::render(plan).lines().count();
    assert_eq!(lines, if items.is_empty() { 1 } else { items.len() + 2 }, "an item stays on its line");
}
