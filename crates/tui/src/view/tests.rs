//! What every state looks like, at three sizes.

use crossterm::event::KeyCode;
use mainstay_agent::session::entry::{Job, StopReason, Totals};
use mainstay_agent::session::ids::SessionId;
use mainstay_agent::session::log::SessionSummary;
use mainstay_agent::session::message::{Ended, ErrorClass, FilePath, Outcome, ToolCall};
use mainstay_agent::session::plan::{PlanInView, PlanItemStatus};
use mainstay_agent::{Event, Hold, TurnFailure};
use std::time::Duration;

use super::*;
use crate::app::tests::{Desk, answer, call, item, plan, report, request, result};
use crate::app::{Effect, Msg, Told};
use crate::painter::{Colours, Painter};

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

/// The screens of a state at all sizes, as a terminal shows the bytes: the end of the conversation, and the live area.
fn screens(make: impl Fn(u16, u16) -> Desk) -> String {
    let screen = |(columns, rows): &(u16, u16)| {
        let mut desk = make(*columns, *rows);
        let mut painter = Painter::new(Vec::new(), Colours::OnAny);
        painter.draw(view(&desk.app)).unwrap();
        for effect in std::mem::take(&mut desk.effects) {
            if let Effect::Print(printed) = effect {
                painter.print(&printed, view(&desk.app)).unwrap();
            }
        }
        let size = |n: u16| std::num::NonZeroU16::new(n).unwrap();
        let mut terminal = vt100::Parser::new(size(*rows), size(*columns), 0);
        terminal.process(&painter.into_inner());
        let contents = terminal.screen().contents();
        let lines: Vec<String> = contents.lines().map(|line| format!("|{}\n", line.trim_end())).collect();
        format!("{columns}x{rows}\n{}", lines.concat())
    };
    SIZES.iter().map(screen).collect::<Vec<_>>().join("\n")
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

/// The last lines that a command printed stand under it; where there is little room, fewer.
#[test]
fn a_command_prints() {
    insta::assert_snapshot!(pictures(|columns, rows| {
        let mut desk = Desk::working(columns, rows);
        desk.event(Event::Plan { view: plan(1, 4), changes: Vec::new() });
        let bash = call("bash", r#"{"command":"cargo test"}"#);
        desk.event(Event::ToolStarted { step: 1, call: bash.clone() });
        let lines: String = (1..=10)
            .map(|n| format!("test number {n} of 日本語, which is longer than forty columns\u{1b}[2J … ok\n"))
            .collect();
        desk.event(Event::ToolOutput { step: 1, call: bash, lines });
        desk.wait(3_000);
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
    desk.event(Event::Plan { view: plan(1, 3), changes: Vec::new() });
    assert_eq!(super::plan(&desk.app, 80, 8).len(), 4);
    desk.tell(Told::Opened(Box::default()));
    assert_eq!(super::plan(&desk.app, 80, 8), Vec::<Line<'static>>::new(), "another session");
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
        desk.wait(1_000).key(KeyCode::PageDown);
        desk
    }));
}

/// Before an answer that lasts is confirmed, all that it lets pass can be read.
#[test]
fn an_answer_that_lasts_shows_what_it_lets_pass() {
    let commands: Vec<String> = (0..30).map(|n| format!("echo step {n} with words of its own *")).collect();
    let patterns: Vec<&str> = commands.iter().map(String::as_str).chain(["rm -rf IMPORTANT"]).collect();
    insta::assert_snapshot!(pictures(|columns, rows| {
        let mut desk = Desk::working(columns, rows);
        desk.tell(Told::Ask(7, request("bash", "echo step 0\n…", None, &patterns)));
        desk.wait(1_000).write("s").wait(1_000);
        for _ in 0..20 {
            desk.key(KeyCode::PageDown);
        }
        desk
    }));
}

/// A file's name is one line, and no line of what is asked about stands where those of the question do; what is being
/// written is to be seen.
#[test]
fn a_question_is_not_forged_by_a_name() {
    insta::assert_snapshot!(pictures(|columns, rows| {
        let mut desk = Desk::working(columns, rows);
        desk.write("do not forget\tthe tests");
        let name = "ok.txt\nasked because you said so\n+a harmless note";
        desk.tell(Told::Ask(7, request("write", name, Some("+x"), &[])));
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
            session(5, "/work", &"a title that goes on and on 日本語 ".repeat(20), 0),
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

/// A18: the plan goes when it is done, and says so.
#[test]
fn a_plan_that_is_done() {
    insta::assert_snapshot!(screens(|columns, rows| {
        let mut desk = Desk::working(columns, rows);
        desk.event(Event::Plan { view: plan(1, 2), changes: Vec::new() });
        desk.event(Event::Plan { view: plan(2, 2), changes: Vec::new() });
        desk.event(Event::TextDelta("All of it is done.".to_owned()));
        desk.event(answer("All of it is done.", Ended::Complete));
        desk.event(report(StopReason::EndTurn, plan(2, 2), None))
            .tell(Told::Idle { jobs: Vec::new(), done: 1 });
        desk
    }));
}

#[test]
fn a_turn_that_failed() {
    insta::assert_snapshot!(screens(|columns, rows| {
        let mut desk = Desk::working(columns, rows);
        desk.event(Event::TextDelta("Half an ans".to_owned()));
        let cut = Ended::Failed { class: ErrorClass::CutStream, message: String::new() };
        desk.event(answer("Half an ans", cut));
        let message =
            "the provider said: no\u{1b}[2J more credit on this account, see the page about it".to_owned();
        let failure = TurnFailure::Model { class: ErrorClass::Quota, message, retry_after: None };
        desk.event(report(StopReason::Error, plan(0, 0), Some(failure)));
        desk.tell(Told::Idle { jobs: Vec::new(), done: 1 });
        desk
    }));
}

#[test]
fn the_help() {
    insta::assert_snapshot!(screens(|columns, rows| {
        let mut desk = Desk::new(columns, rows);
        desk.write("/help").key(KeyCode::Enter);
        desk
    }));
}

/// F08: calls with what they brought, one of them opened: a difference, an output, a denial.
#[test]
fn calls_that_ended_and_one_that_is_open() {
    insta::assert_snapshot!(screens(|columns, rows| {
        let mut desk = Desk::working(columns, rows);
        let edit = call("edit", r#"{"path":"src/parser.rs","edits":[{"old":"a","new":"b"}]}"#);
        let diff =
            "@@ -1,3 +1,3 @@\n fn main() {\n-    old(\"日本\");\n+    new(\"e\u{301}\u{1b}[2J\");\n }\n";
        let ended = |desk: &mut Desk, call: ToolCall, outcome, summary: &str, content| {
            desk.event(Event::ToolStarted { step: 1, call: call.clone() });
            desk.event(Event::ToolCompleted { step: 1, call, result: result(outcome, summary, content) });
        };
        ended(&mut desk, edit, Outcome::Ok, "edited src/parser.rs (+1 −1)", Some(diff));
        let bash = call("bash", r#"{"command":"cargo test"}"#);
        ended(&mut desk, bash, Outcome::Error, "exit code 101", Some("running 2 tests\ntest a ... FAILED"));
        let bash = call("bash", r#"{"command":"rm -rf /"}"#);
        ended(&mut desk, bash, Outcome::Denied, "Permission denied: the rule denies it.", None);
        desk.ctrl('o').ctrl('o').ctrl('o');
        desk
    }));
}

#[test]
fn an_answer_in_markdown_with_wide_and_combining_characters() {
    insta::assert_snapshot!(screens(|columns, rows| {
        let mut desk = Desk::working(columns, rows);
        let text = "# 見出し\n\n日本語の文章は、単語の間に空白がないので、どこでも改行できます。ただし句読点の前は例外です。\n\n\
                    - e\u{301}te\u{301} und `code`\n- a path: crates/tui/src/view/tests.rs\n\n| a | 表 |\n|---|---|\n| 1 | 二 |\n\n\
                    Ctrl: \u{1b}]52;c;QQ==\u{7} \u{9b}31m ÛX.\n";
        desk.event(Event::TextDelta(text.to_owned())).event(answer(text, Ended::Complete));
        desk.tell(Told::Idle { jobs: Vec::new(), done: 1 });
        desk
    }));
}

/// How far commands are held is told as it is.
#[test]
fn the_status_says_what_is_enforced() {
    for (hold, words) in [
        (None, "sandbox? · "),
        (Some(Hold::No), "no sandbox · "),
        (Some(Hold::Partly), "sandbox in part · "),
        (Some(Hold::Fully), "· sandbox · "),
    ] {
        let mut desk = Desk::new(80, 24);
        desk.app.session.hold = None;
        if let Some(hold) = hold {
            desk.tell(Told::Held(hold));
        }
        let picture = picture(&view(&desk.app));
        assert!(picture.contains(words), "{picture}");
    }
}
