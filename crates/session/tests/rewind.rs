//! Going back: to a turn, across segments, and back again.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

mod common;

use std::fs;
use std::path::Path;

use common::{Session, answer, call, model, now, ok, plan_arguments, prompt, temp_dir, text};
use mainstay_session::conversation::Item;
use mainstay_session::entry::{Answer, Body, Grant, InboxMessage, Notice, NoticeKind};
use mainstay_session::log::{
    DamageKind, Durability, Log, Passage, RewindError, RewindTo, WholeConversation, read, whole_conversation,
};
use mainstay_session::message::Ended;
use mainstay_session::request::request;
use mainstay_session::state::SessionState;

/// What a rewind brings back, all that a request follows from included.
fn what_returns(state: &SessionState) -> SessionState {
    SessionState {
        last_seq: 0,
        header: None,
        world: None,
        model: None,
        inbox: Vec::new(),
        inbox_ids: Default::default(),
        running: Default::default(),
        grants: Vec::new(),
        totals: Default::default(),
        last_request: None,
        // What was counted belongs to requests of the segment before.
        counted: None,
        compacted_to: None,
        jobs: Vec::new(),
        last_job: 0,
        learned_window: None,
        borders: Vec::new(),
        branch: None,
        goes_on_from: 0,
        has_checkpoint: false,
        ..state.clone()
    }
}

/// A turn with a plan write of its own, some work and a file of its own.
fn turn(session: &mut Session, number: usize) {
    session.append(prompt(&format!("turn {number}")));
    session.write_plan("todo_write", &plan_arguments(&format!("{}>", "x".repeat(number))));
    let asked = session.append(answer(vec![common::call("r", "read", r#"{"path":"a"}"#)]));
    session.append(common::touched(asked, 0, &[&format!("/work/app/{number}.rs")]));
    session.work();
    session.append(answer(vec![text(&format!("Turn {number} is done."))]));
    session.end_turn();
}

/// A session of so many turns, with the state at the end of each; 0 is before the first.
fn turns(home: &Path, count: usize) -> (Session, Vec<SessionState>) {
    let mut session = Session::create(home);
    let mut ends = vec![session.state().clone()];
    for number in 1..=count {
        turn(&mut session, number);
        ends.push(session.state().clone());
    }
    (session, ends)
}

#[track_caller]
fn stands_at(session: &Session, then: &SessionState) {
    let (replayed, opening) = read(session.log.dir()).unwrap();
    assert_eq!(opening.damage, Vec::new());
    assert_eq!(&replayed, session.state(), "live and replayed");
    assert_eq!(what_returns(session.state()), what_returns(then));
    assert_eq!(request(session.state()).messages, request(then).messages);
}

/// R10: plan, counter, recent files, hashes of what was read and the request are those of the end of the turn, live and
/// replayed, for every turn.
#[test]
fn a_rewind_restores_a_turn() {
    for back_to in 0..4 {
        let home = temp_dir();
        let (mut session, ends) = turns(home.path(), 4);
        let totals = session.state().totals;
        let rewound = session.rewind(RewindTo::Turn(back_to as u64));
        assert_eq!((rewound.turn, rewound.left, rewound.is_new_segment), (back_to as u64, 4, false));
        stands_at(&session, &ends[back_to]);
        assert_eq!(session.state().totals, totals, "what was used stays used");
        assert_eq!(request(session.state()).previous, None, "the next request is compared with none");
        turn(&mut session, 9);
        assert_eq!(session.state().turns, back_to as u64 + 1);
    }
}

/// R10, D22: what was left never comes back by itself: not by resuming, not by going back once more.
#[test]
fn replay_follows_the_branch_the_session_is_on() {
    let home = temp_dir();
    let (mut session, ends) = turns(home.path(), 3);
    session.rewind(RewindTo::Turn(1));
    turn(&mut session, 5);
    let other = session.state().clone();
    turn(&mut session, 6);
    assert!(!format!("{:?}", session.state().history).contains("turn 2"));
    session.rewind(RewindTo::Turn(2));
    stands_at(&session, &other);
    session.rewind(RewindTo::Turn(1));
    stands_at(&session, &ends[1]);
    let dir = session.log.dir().to_owned();
    let state = session.state().clone();
    drop(session);
    let (log, _) = Log::open(&dir, Durability::Always, now()).unwrap();
    assert_eq!(log.state(), &state);
}

/// R10: what is not of the conversation stays: permissions, notifications and what they are known by.
#[test]
fn grants_and_deliveries_do_not_rewind() {
    let home = temp_dir();
    let (mut session, _) = turns(home.path(), 1);
    session.append(Body::Grant(Grant {
        tool: "bash".to_owned(),
        pattern: "cargo *".to_owned(),
        scope: "session".to_owned(),
    }));
    let message = |id: &str| {
        Body::Inbox(InboxMessage {
            id: id.to_owned(),
            text: "The build is done.".to_owned(),
            wake: true,
            source: "process".to_owned(),
        })
    };
    session.append(message("told"));
    let about = NoticeKind::Notification { inbox: "told".to_owned() };
    session.append(Body::Notice(Notice { about, text: "The build is done.".to_owned() }));
    session.append(answer(vec![text("Good.")]));
    session.end_turn();
    session.append(message("waits"));
    for new_segment in [false, true] {
        if new_segment {
            session.rewind(RewindTo::BeforeRewind);
        } else {
            session.rewind(RewindTo::Turn(1));
        }
        session.append(message("told"));
        let state = session.state();
        assert_eq!(state.grants.len(), 1);
        let waiting: Vec<&str> = state.inbox.iter().map(|message| message.id.as_str()).collect();
        assert_eq!(waiting, ["waits"]);
    }
}

/// R10: across a compaction's border a new segment restores the older one, and a compaction is undone like that too.
#[test]
fn a_rewind_across_a_segment_restores_the_older_one() {
    for back_to in 0..6 {
        let home = temp_dir();
        let (mut session, mut ends) = turns(home.path(), 2);
        session.next_segment(2);
        ends[2] = session.state().clone();
        for number in 3..=4 {
            turn(&mut session, number);
            ends.push(session.state().clone());
        }
        session.next_segment(1);
        ends[4] = session.state().clone();
        turn(&mut session, 5);
        ends.push(session.state().clone());
        turn(&mut session, 6);
        let rewound = session.rewind(RewindTo::Turn(back_to as u64));
        assert_eq!(rewound.is_new_segment, back_to < 4, "turn {back_to}");
        stands_at(&session, &ends[back_to]);
        // From there the older turns are still found, and those that were left are not.
        for older in (0..back_to).rev() {
            session.rewind(RewindTo::Turn(older as u64));
            stands_at(&session, &ends[older]);
        }
    }
    let home = temp_dir();
    let (mut session, ends) = turns(home.path(), 3);
    session.next_segment(1);
    let before = session.state().goes_on_from;
    session.rewind(RewindTo::Entry(before));
    stands_at(&session, &ends[3]);
}

/// R10: a border of an abandoned segment is not taken for one of the branch.
#[test]
fn turns_are_counted_along_the_branch() {
    let home = temp_dir();
    let (mut session, ends) = turns(home.path(), 5);
    session.next_segment(1);
    session.rewind(RewindTo::Turn(2));
    turn(&mut session, 8);
    turn(&mut session, 9);
    session.rewind(RewindTo::BeforeRewind);
    session.rewind(RewindTo::Turn(3));
    stands_at(&session, &ends[3]);
}

/// R10, D22: going back can be undone, one after the other, also after the session went on.
#[test]
fn a_rewind_is_undone() {
    let home = temp_dir();
    let (mut session, ends) = turns(home.path(), 4);
    session.rewind(RewindTo::Turn(3));
    session.rewind(RewindTo::Turn(1));
    turn(&mut session, 7);
    let went_on = session.state().clone();
    let undone = session.rewind(RewindTo::BeforeRewind);
    assert_eq!((undone.turn, undone.left), (3, 2));
    stands_at(&session, &ends[3]);
    session.rewind(RewindTo::BeforeRewind);
    stands_at(&session, &ends[4]);
    let none = session.log.rewind(RewindTo::BeforeRewind, now()).unwrap_err();
    assert!(matches!(none, RewindError::NothingToUndo), "{none}");
    session.rewind(RewindTo::Entry(undone.from));
    stands_at(&session, &went_on);
}

/// A25, D22: an interrupted session goes back, and the undo gives its open calls back.
#[test]
fn an_interrupted_turn_is_left_and_given_back() {
    let home = temp_dir();
    let (mut session, ends) = turns(home.path(), 1);
    session.append(prompt("more"));
    session.append(answer(vec![common::call("c", "bash", r#"{"command":"true"}"#)]));
    let interrupted = session.state().clone();
    session.rewind(RewindTo::Turn(1));
    stands_at(&session, &ends[1]);
    assert!(session.state().open_calls().is_empty() && !session.state().turn_is_open);
    session.rewind(RewindTo::BeforeRewind);
    stands_at(&session, &interrupted);
    assert_eq!(session.state().open_calls(), interrupted.open_calls());
}

#[test]
fn what_is_not_there_is_refused_and_changes_nothing() {
    let home = temp_dir();
    let (mut session, _) = turns(home.path(), 2);
    session.next_segment(1);
    let before = session.state().clone();
    let opening = before.last_seq - 3;
    for (to, says) in [
        (RewindTo::Turn(3), "there is no turn 3: the session has 2"),
        (RewindTo::Turn(2), "the session already stands at the end of turn 2"),
        (RewindTo::BeforeRewind, "there is no rewind to undo"),
        (RewindTo::Entry(0), "there is no entry 0 to go back to"),
        (RewindTo::Entry(999), "there is no entry 999 to go back to"),
        (RewindTo::Entry(opening), "to go back to"),
    ] {
        let error = session.log.rewind(to, now()).unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
        assert_eq!(session.state(), &before);
    }
}

/// Rewind refuses where something between there and here cannot be read.
#[test]
fn a_damaged_span_is_not_crossed() {
    let home = temp_dir();
    let (session, ends) = turns(home.path(), 3);
    let dir = session.log.dir().to_owned();
    let damaged = ends[2].last_seq as usize + 2;
    drop(session);
    let file = dir.join("0001.jsonl");
    let text = fs::read_to_string(&file).unwrap();
    let lines: Vec<String> = text
        .lines()
        .enumerate()
        .map(
            |(place, line)| {
                if place == damaged { line.replace("\"seq\"", "\"sex\"") } else { line.to_owned() }
            },
        )
        .collect();
    fs::write(&file, lines.join("\n") + "\n").unwrap();
    let (mut log, _) = Log::open(&dir, Durability::Always, now()).unwrap();
    for turn in 0..3 {
        let error = log.rewind(RewindTo::Turn(turn), now()).unwrap_err();
        let RewindError::Damaged { damage } = error else { panic!("{error}") };
        assert!(matches!(damage.kind, DamageKind::BadLine(_)) && damage.line == damaged as u64 + 1);
    }
    drop(log);
    // Damage behind which the session went on for a whole turn does not stand between that turn and here.
    let (log, _) = Log::open(&dir, Durability::Always, now()).unwrap();
    let mut session = Session::of(log);
    turn(&mut session, 4);
    session.rewind(RewindTo::Turn(3));
    assert_eq!(session.state().turns, 3);
}

/// R08: a log with rewinds, and a segment that restores, cut at every byte: what is whole stands, as it was then.
#[test]
fn a_log_with_rewinds_cut_anywhere_keeps_its_branch() {
    let home = temp_dir();
    let (mut session, _) = turns(home.path(), 2);
    session.rewind(RewindTo::Turn(1));
    turn(&mut session, 5);
    cut_everywhere(&session, &home.path().join("first"), None);
    let before = session.state().clone();
    session.rewind(RewindTo::BeforeRewind);
    session.append(prompt("on"));
    cut_everywhere(&session, &home.path().join("second"), Some(&before));
}

fn cut_everywhere(whole: &Session, dir: &Path, before: Option<&SessionState>) {
    let name = format!("{:04}.jsonl", whole.log.segment());
    let bytes = fs::read(whole.log.dir().join(&name)).unwrap();
    fs::create_dir(dir).unwrap();
    for segment in 1..whole.log.segment() {
        let name = format!("{segment:04}.jsonl");
        fs::copy(whole.log.dir().join(&name), dir.join(&name)).unwrap();
    }
    let header = bytes.iter().position(|byte| *byte == b'\n').unwrap();
    let checkpoint = bytes.windows(24).position(|window| window == br#"","kind":"checkpoint","h"#.as_slice());
    // The laws' tests cut at every byte; here the ends of lines matter, and some places within.
    let is_near_end =
        |cut: &usize| bytes[cut - 2..(cut + 2).min(bytes.len())].contains(&b'\n') || cut.is_multiple_of(17);
    for cut in (header + 1..=bytes.len()).filter(is_near_end) {
        fs::write(dir.join(&name), &bytes[..cut]).unwrap();
        let (state, _) = read(dir).unwrap();
        let is_opened = checkpoint.is_none_or(|at| bytes[at..cut.max(at)].contains(&b'\n'));
        match (is_opened, before) {
            (true, _) => {
                let live = whole.states.iter().find(|live| live.last_seq == state.last_seq);
                // Within the opening of a segment there is no live state.
                assert!(live.is_none_or(|live| *live == state), "cut at {cut}");
                assert!(live.is_some() || before.is_some() || state.last_seq < 3, "cut at {cut}");
            }
            (false, Some(before)) => assert_eq!(what_returns(&state), what_returns(before), "cut at {cut}"),
            (false, None) => panic!("cut at {cut}"),
        }
    }
}

/// What the session can go back before is what is on its branch: after a rewind, the turns that were left are gone.
#[test]
fn the_turns_in_view_are_those_of_the_branch() {
    let home = temp_dir();
    let (mut session, _) = turns(home.path(), 3);
    let in_view = |session: &Session| -> Vec<(u64, String)> {
        let owned = |(turn, text): (u64, Option<&str>)| (turn, text.unwrap_or("-").to_owned());
        session.state().turns_in_view().into_iter().map(owned).collect()
    };
    let of = |turns: &[(u64, &str)]| -> Vec<(u64, String)> {
        turns.iter().map(|(turn, text)| (*turn, (*text).to_owned())).collect()
    };
    assert_eq!(in_view(&session), of(&[(0, "turn 1"), (1, "turn 2"), (2, "turn 3")]));
    session.log.rewind(RewindTo::Turn(1), now()).unwrap();
    assert_eq!(in_view(&session), of(&[(0, "turn 1")]));
    turn(&mut session, 7);
    // What the runtime says first is not what the turn was begun with; and one may be begun by a notification alone.
    let notice = |inbox: &str| {
        Body::Notice(Notice {
            about: NoticeKind::Notification { inbox: inbox.to_owned() },
            text: "told".to_owned(),
        })
    };
    session.append(notice("a"));
    turn(&mut session, 8);
    session.append(notice("b"));
    session.append(answer(vec![text("I see.")]));
    session.end_turn();
    assert_eq!(in_view(&session), of(&[(0, "turn 1"), (1, "turn 7"), (2, "turn 8"), (3, "-")]));
}

/// Across segments, and with what was left behind: all that was said, once and in order.
#[test]
fn the_whole_conversation_is_more_than_a_segments() {
    let home = temp_dir();
    let (mut session, _) = turns(home.path(), 2);
    let whole =
        |session: &Session| Vec::from(whole_conversation(session.log.dir(), usize::MAX).unwrap().passages);
    let said = |history: &[Item]| history.iter().cloned().map(Passage::Said).collect::<Vec<_>>();
    // As the fold has it: an answer that does not say who gave it, and one that was cancelled.
    session.append(Body::Model(model()));
    for (ended, content) in
        [(Ended::Complete, vec![text("here")]), (Ended::Cancelled, vec![text(" "), text("he")])]
    {
        let Body::Answer(given) = answer(content) else { unreachable!() };
        session.append(Body::Answer(Answer { model: String::new(), ended, ..given }));
    }
    let first = said(&session.state().history);
    assert_eq!(whole(&session), first);
    session.next_segment(1);
    turn(&mut session, 3);
    let grown = whole(&session);
    assert_eq!(grown[..first.len()], first);
    let prompts = |passages: &[Passage]| {
        let text = |passage: &Passage| match passage {
            Passage::Said(Item::Prompt { text, .. }) => Some(text.clone()),
            Passage::Said(_) | Passage::Compacted(_) | Passage::WentBack(_) => None,
        };
        passages.iter().filter_map(text).collect::<Vec<_>>()
    };
    assert_eq!(prompts(&grown), ["turn 1", "turn 2", "turn 3"]);
    session.rewind(RewindTo::Turn(1));
    turn(&mut session, 4);
    let rewound = whole(&session);
    assert_eq!(rewound[..grown.len()], grown);
    assert_eq!(prompts(&rewound), ["turn 1", "turn 2", "turn 3", "turn 4"]);
    assert_eq!(rewound.iter().filter(|passage| matches!(passage, Passage::WentBack(_))).count(), 1);
}

/// However much is left out, what is given is the end of all, with no result of what is left out in it.
#[test]
fn the_last_of_the_whole_conversation_is_its_end() {
    let home = temp_dir();
    let (mut session, _) = turns(home.path(), 3);
    let asked = session.append(answer(vec![call("c1", "read", "{}"), call("c2", "read", "{}")]));
    session.append(ok(asked, 0, "first"));
    session.append(prompt("between"));
    session.append(ok(asked, 1, "second"));
    session.append(ok(asked + 100, 0, "lost"));
    let whole = |most| whole_conversation(session.log.dir(), most).unwrap();
    let all = whole(usize::MAX);
    assert_eq!(all.left_out, 0);
    assert!(matches!(all.passages.back(), Some(Passage::Said(Item::Orphan(_)))), "{all:?}");
    for most in 0..=all.passages.len() {
        let left_out = all.passages.len() - most;
        let passages = all.passages.iter().skip(left_out).cloned().collect();
        assert_eq!(whole(most), WholeConversation { left_out, passages });
    }
}
