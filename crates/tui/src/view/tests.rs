//! What every state looks like, at three sizes.

use crossterm::event::KeyCode;
use mainstay_agent::Event;
use mainstay_agent::session::entry::{Job, Totals};
use mainstay_agent::session::ids::SessionId;
use mainstay_agent::session::log::SessionSummary;
use mainstay_agent::session::message::{ErrorClass, FilePath};
use mainstay_agent::session::plan::{PlanInView, PlanItemStatus};
use std::time::Duration;

use super::*;
use crate::app::tests::{Desk, call, item, plan, request};
use crate::app::{Msg, Told};

const SIZES: [(u16, u16); 3] = [(40, 10), (80, 24), (120, 40)];

/// A picture as text: each row between bars, `█` where the cursor is.
fn picture(view: &View) -> String {
    let area = view.buffer.area;
    let mut text = String::new();
    for y in 0..area.height {
        text.push('|');
        let mut x = 0;
        while x < area.width {
            let symbol = view.buffer[(x, y)].symbol();
            let columns = u16::try_from(width(symbol)).unwrap().max(1);
            text.push_str(if view.cursor == Some((x, y)) { "█" } else { symbol });
            x += columns;
        }
        while text.ends_with(' ') {
            text.pop();
        }
        text.push('\n');
    }
    text
}

/// The pictures of a state at all sizes. Each keeps to its screen.
fn pictures(make: impl Fn(u16, u16) -> Desk) -> String {
    SIZES
        .iter()
        .map(|(columns, rows)| {
            let desk = make(*columns, *rows);
            let view = view(&desk.app);
            assert!(view.buffer.area.height <= *rows, "{} rows", view.buffer.area.height);
            format!("{columns}x{rows}\n{}", picture(&view))
        })
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn idle() {
    insta::assert_snapshot!(pictures(Desk::new));
}

#[test]
fn working_with_a_plan_a_stream_and_messages_that_wait() {
    insta::assert_snapshot!(pictures(|columns, rows| {
        let mut desk = Desk::working(columns, rows);
        desk.event(Event::Plan { view: plan(1, 4), changes: Vec::new() });
        desk.event(Event::TextDelta("I look at **the parser** first, since that is where 日本語 text was cut in the middle of a character.".to_owned()));
        desk.write("and mind the tests").key(KeyCode::Enter).write("being writ");
        desk.app.session.totals = Totals { answers: 1, cost: 1_234_500_001, ..Totals::default() };
        desk.app.branch = Some("fix/parser".to_owned());
        desk.app.jobs = vec![Job { number: 1, command: "npm run dev".to_owned() }];
        desk.wait(12_000);
        desk
    }));
}

#[test]
fn calls_that_run() {
    insta::assert_snapshot!(pictures(|columns, rows| {
        let mut desk = Desk::working(columns, rows);
        for (name, arguments) in [
            ("read", r#"{"path":"src/main.rs"}"#),
            ("grep", r#"{"pattern":"fn .*","path":"src"}"#),
            ("bash", r#"{"command":"cargo test -p mainstay-session --all-targets -- --nocapture\nsecond"}"#),
            ("evil", "{\"a\":\"\u{1b}]52;c;QQ==\u{7}\"}"),
        ] {
            desk.event(Event::ToolStarted { step: 1, call: call(name, arguments) });
        }
        desk.wait(65_000);
        desk
    }));
}

/// A27: twelve items, the active one in the middle; its text has line ends, controls and 400 wide characters.
#[test]
fn a_long_plan_never_hides_the_active_item() {
    insta::assert_snapshot!(pictures(|columns, rows| {
        let mut desk = Desk::working(columns, rows);
        let mut view = plan(6, 12);
        view.plan.items[6] =
            item(7, &format!("Mend\n\tthe\u{1b}[2J {}", "項目".repeat(200)), PlanItemStatus::InProgress);
        desk.event(Event::Plan { view, changes: Vec::new() });
        desk
    }));
}

/// A27: thirty items, as an older log may have; at most a third of the screen, the active one in it at every place.
#[test]
fn wherever_the_active_item_is_it_is_shown() {
    for (columns, rows) in SIZES.into_iter().chain([(20, 6), (10, 4)]) {
        for active in 0..30 {
            let mut desk = Desk::working(columns, rows);
            desk.event(Event::Plan { view: plan(active, 30), changes: Vec::new() });
            let lines = super::plan(&desk.app, usize::from(columns), usize::from(rows) / 3);
            assert!(lines.len() <= usize::from(rows) / 3, "{columns}x{rows}");
            let is_shown = lines.iter().any(|line| line.to_string().contains(['▸']));
            assert!(is_shown, "{columns}x{rows}, item {active}: {lines:?}");
        }
    }
}

/// A17, A18: a plan that is done takes no room; that of a session before is none of this one's.
#[test]
fn a_done_plan_takes_no_room() {
    let mut desk = Desk::new(80, 24);
    desk.event(Event::Plan { view: plan(3, 3), changes: Vec::new() });
    assert_eq!(super::plan(&desk.app, 80, 8), Vec::<Line<'static>>::new());
}

#[test]
fn a_plan_that_was_carried_over_and_interrupted() {
    insta::assert_snapshot!(pictures(|columns, rows| {
        let mut desk = Desk::new(columns, rows);
        desk.app.session.plan = PlanInView { carried: true, ..plan(1, 3) };
        desk.app.is_interrupted = true;
        desk
    }));
}

#[test]
fn a_question_about_an_edit() {
    let diff: String = (1..40).map(|n| format!("-old {n}\n+new 日本 {n}\n")).collect();
    insta::assert_snapshot!(pictures(|columns, rows| {
        let mut desk = Desk::working(columns, rows);
        desk.event(Event::Plan { view: plan(1, 4), changes: Vec::new() });
        desk.tell(Told::Ask(7, request("edit", "src/parser\u{1b}[31m.rs", Some(&diff), &["src/*"])));
        desk.wait(1_000).key(KeyCode::Down).key(KeyCode::PageDown);
        desk
    }));
}

#[test]
fn a_question_about_a_command() {
    insta::assert_snapshot!(pictures(|columns, rows| {
        let mut desk = Desk::working(columns, rows);
        desk.tell(Told::Ask(
            7,
            request("bash", "cargo test\necho 'and more' && rm -r target", None, &["cargo test *", "echo *"]),
        ));
        desk
    }));
}

/// Who types is told so, and who grants something that lasts is told what Enter does.
#[test]
fn a_question_says_what_it_takes_for_an_answer() {
    let last = |desk: &Desk| picture(&view(&desk.app)).lines().last().unwrap_or_default().to_owned();
    let mut desk = Desk::working(80, 24);
    desk.tell(Told::Ask(7, request("bash", "cargo test", None, &["cargo test *"])));
    assert_eq!(last(&desk), "|waiting for your answer · Esc cancels the turn");
    desk.write("x");
    assert_eq!(last(&desk), "|you are typing, it goes into your input; pause, then answer");
    desk.wait(700);
    assert_eq!(last(&desk), "|y s p n answer; what you wrote stays in your input · Esc cancels the turn");
    desk.write("p");
    assert_eq!(last(&desk), "|Enter confirms: yes, and the like in this project");
}

#[test]
fn a_no_with_a_word() {
    insta::assert_snapshot!(pictures(|columns, rows| {
        let mut desk = Desk::working(columns, rows);
        desk.tell(Told::Ask(7, request("bash", "rm -r target", None, &[]))).wait(1_000);
        desk.write("n").write("use cargo clean");
        desk
    }));
}

#[test]
fn sessions_to_choose_from() {
    let session = |n: u32, cwd: &str, title: &str, done: u32| SessionSummary {
        id: format!("01931234-0000-7000-8000-0000{n:08x}").parse::<SessionId>().unwrap(),
        dir: format!("/data/{n}").into(),
        cwd: Some(FilePath(cwd.into())),
        is_child: false,
        has_prompt: n != 9,
        created: None,
        last: Some(jiff::Timestamp::from_second(1_000_000 - i64::from(n) * 4_000).unwrap()),
        title: title.to_owned(),
        turns: 2,
        plan_completed: done,
        plan_total: 3,
        totals: Totals { answers: 3, cost: 12_340_000, unpriced: u64::from(n % 2), ..Totals::default() },
        last_words: "It is\u{1b}[2J mended.".to_owned(),
        is_interrupted: n == 2,
        is_running: n == 3,
    };
    insta::assert_snapshot!(pictures(|columns, rows| {
        let mut desk = Desk::new(columns, rows);
        desk.app.today = Some(jiff::Timestamp::from_second(1_000_000).unwrap());
        let sessions = vec![
            session(1, "/elsewhere", "other work", 3),
            session(2, "/work", "mend the parser 日本語", 1),
            session(3, "/work", "add a changelog", 0),
            session(9, "/work", "a stub", 0),
            SessionSummary { is_running: true, ..session(4, "/work", "where I am", 0) },
        ];
        desk.app.session.id = Some("00000004".to_owned());
        desk.tell(Told::Sessions(sessions)).key(KeyCode::Down);
        desk
    }));
}

#[test]
fn turns_to_go_back_before() {
    insta::assert_snapshot!(pictures(|columns, rows| {
        let mut desk = Desk::new(columns, rows);
        desk.tell(Told::Turns((0..30).map(|n| (n, Some(format!("message {n}\nsecond line")))).collect()));
        (0..12).for_each(|_| {
            desk.key(KeyCode::Down);
        });
        desk
    }));
}

#[test]
fn completions() {
    insta::assert_snapshot!(pictures(|columns, rows| {
        let mut desk = Desk::new(columns, rows);
        desk.write("/").key(KeyCode::Down);
        desk
    }));
}

#[test]
fn a_retry_counts_down() {
    insta::assert_snapshot!(pictures(|columns, rows| {
        let mut desk = Desk::working(columns, rows);
        let message = "slow down\u{7}".to_owned();
        let delay = Duration::from_secs(8);
        desk.event(Event::Retry { retry: 2, of: 3, class: ErrorClass::Rate, message, delay });
        desk.wait(3_000);
        desk
    }));
}

#[test]
fn a_compaction_goes_on() {
    insta::assert_snapshot!(pictures(|columns, rows| {
        let mut desk = Desk::working(columns, rows);
        desk.event(Event::CompactionStarted { reason: "step", before: 181_234 }).wait(4_000);
        desk
    }));
}

#[test]
fn text_of_several_lines_with_a_long_paste() {
    insta::assert_snapshot!(pictures(|columns, rows| {
        let mut desk = Desk::new(columns, rows);
        desk.write("first 日本語 e\u{301} line").ctrl('j').write("see ");
        desk.send(Msg::Paste("x\n".repeat(12_345)));
        desk.write(" and then a line that is longer than forty columns are");
        desk
    }));
}

/// At every size, however small, there is a picture that fits, with the cursor in it.
#[test]
fn any_size_will_do() {
    for columns in 1..50 {
        for rows in 1..16 {
            let mut desk = Desk::working(columns, rows);
            desk.event(Event::Plan { view: plan(1, 4), changes: Vec::new() });
            desk.event(Event::TextDelta("日本語 text that is longer than the line\n\nmore".to_owned()));
            desk.write("some text 日本").key(KeyCode::Enter).write("@");
            let check = |desk: &Desk| {
                let view = view(&desk.app);
                assert!(view.buffer.area.height <= rows.max(2), "{columns}x{rows}");
                if let Some((x, y)) = view.cursor {
                    assert!(x < view.buffer.area.width && y < view.buffer.area.height, "{columns}x{rows}");
                }
            };
            check(&desk);
            desk.tell(Told::Ask(7, request("edit", "a.rs", Some("-a\n+b\n"), &["*"])));
            check(&desk);
            desk.tell(Told::Withdrawn(7)).tell(Told::Turns(vec![(0, Some("one".to_owned()))]));
            check(&desk);
        }
    }
}
