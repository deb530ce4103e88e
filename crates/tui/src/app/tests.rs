//! The interface as a value, message by message.

mod any;

use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use mainstay_agent::session::entry::{Answer, Compaction, Notice, NoticeKind, StopReason};
use mainstay_agent::session::ids::CallRef;
use mainstay_agent::session::message::{
    Content, Ended, ErrorClass, Finish, Outcome, ToolCall, ToolResult, Usage,
};
use mainstay_agent::session::plan::{Plan, PlanInView, PlanItem, PlanItemStatus};
use mainstay_agent::{Approval, ApprovalRequest, Event, TurnFailure, TurnReport};
use proptest::prelude::*;

use super::*;

/// An interface, with all that it asked for since it was looked at last.
pub(crate) struct Desk {
    pub(crate) app: App,
    pub(crate) effects: Vec<Effect>,
    now: Duration,
}

impl Desk {
    pub(crate) fn new(columns: u16, rows: u16) -> Self {
        let session = Opened {
            id: Some("3f2a9c01".to_owned()),
            model: "local/qwen3-coder".to_owned(),
            window: 200_000,
            used: 24_000,
            workspace: "/work".into(),
            approve: "auto",
            hold: Some(Hold::No),
            ..Opened::default()
        };
        let app =
            App::new((columns, rows), session, vec!["earlier one".to_owned(), "earlier two".to_owned()]);
        Desk { app, effects: Vec::new(), now: Duration::ZERO }
    }

    pub(crate) fn send(&mut self, msg: Msg) -> &mut Self {
        let effects = self.app.update(msg, self.now);
        self.effects.extend(effects);
        self
    }

    pub(crate) fn wait(&mut self, millis: u64) -> &mut Self {
        self.now += Duration::from_millis(millis);
        self.send(Msg::Tick)
    }

    pub(crate) fn tell(&mut self, told: Told) -> &mut Self {
        self.send(Msg::Session(Box::new(told)))
    }

    pub(crate) fn event(&mut self, event: Event) -> &mut Self {
        self.tell(Told::Event(event))
    }

    pub(crate) fn key(&mut self, code: KeyCode) -> &mut Self {
        self.send(Msg::Key(KeyEvent::new(code, KeyModifiers::NONE)))
    }

    pub(crate) fn ctrl(&mut self, c: char) -> &mut Self {
        self.send(Msg::Key(KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL)))
    }

    pub(crate) fn write(&mut self, text: &str) -> &mut Self {
        text.chars().for_each(|c| {
            self.key(KeyCode::Char(c));
        });
        self
    }

    /// A message is sent, and the turn has begun.
    pub(crate) fn working(columns: u16, rows: u16) -> Self {
        let mut desk = Desk::new(columns, rows);
        desk.write("do it").key(KeyCode::Enter);
        desk.event(Event::TurnStarted);
        desk.event(Event::Prompt { text: "do it".to_owned(), images: Vec::new(), steering: false });
        desk
    }

    /// The effects since the last look, but what is printed and looked at.
    fn asked(&mut self) -> Vec<String> {
        let effects = std::mem::take(&mut self.effects);
        let words = effects
            .iter()
            .filter(|e| !matches!(e, Effect::Print(_) | Effect::LookAtBranch | Effect::Remember(_)));
        words.map(|effect| format!("{effect:?}")).collect()
    }

    /// What was printed since the last look.
    fn printed(&mut self) -> String {
        let effects = std::mem::take(&mut self.effects);
        let rows = effects.iter().filter_map(|effect| match effect {
            Effect::Print(rows) => Some(rows),
            _ => None,
        });
        rows.flatten().map(|row| format!("{}\n", row.line)).collect()
    }
}

pub(crate) fn item(id: u32, content: &str, status: PlanItemStatus) -> PlanItem {
    PlanItem { id: id.to_string(), content: content.to_owned(), status, active_form: String::new() }
}

/// A plan of `all` items of which `done` are done and the next is in progress.
pub(crate) fn plan(done: u32, all: u32) -> PlanInView {
    let status = |n: u32| match n.cmp(&done) {
        std::cmp::Ordering::Less => PlanItemStatus::Completed,
        std::cmp::Ordering::Equal => PlanItemStatus::InProgress,
        std::cmp::Ordering::Greater => PlanItemStatus::Pending,
    };
    let items = (0..all).map(|n| item(n + 1, &format!("Item number {}", n + 1), status(n))).collect();
    PlanInView { plan: Plan { items }, carried: false, resends: 0 }
}

pub(crate) fn call(name: &str, arguments: &str) -> ToolCall {
    ToolCall { id: "c".to_owned(), name: name.to_owned(), arguments: arguments.to_owned(), opaque: None }
}

pub(crate) fn request(tool: &str, about: &str, diff: Option<&str>, patterns: &[&str]) -> ApprovalRequest {
    ApprovalRequest {
        call: call(tool, "{}"),
        tool: tool.to_owned(),
        about: about.to_owned(),
        why: "`--approve auto` asks before commands that no sandbox holds".to_owned(),
        diff: diff.map(str::to_owned),
        patterns: patterns.iter().map(|pattern| (*pattern).to_owned()).collect(),
    }
}

pub(crate) fn result(outcome: Outcome, summary: &str, content: Option<&str>) -> ToolResult {
    ToolResult::new(CallRef { answer: 1, call: 0 }, outcome, summary.to_owned(), content.map(str::to_owned))
}

pub(crate) fn answer(text: &str, ended: Ended) -> Event {
    let content = vec![Content::Text { text: text.to_owned() }];
    let usage = Some(Usage { input_tokens: 50_000, output_tokens: 100, ..Usage::default() });
    let (model, finish) = (String::new(), Finish::EndTurn);
    let answer = Answer { model, content, finish, usage, ended, cost: None, request: None, duration_ms: 0 };
    Event::Answer { step: 1, answer }
}

pub(crate) fn report(stop_reason: StopReason, plan: PlanInView, failure: Option<TurnFailure>) -> Event {
    let mut report = TurnReport::new(stop_reason);
    (report.failure, report.plan) = (failure, plan);
    Event::TurnCompleted(report)
}

fn idle(done: u64) -> Told {
    Told::Idle { jobs: Vec::new(), done }
}

#[test]
fn a_message_is_sent_and_kept_until_it_is_in_the_log() {
    let mut desk = Desk::new(80, 24);
    desk.write("hello").key(KeyCode::Enter);
    assert_eq!(desk.asked(), [r#"Do(Prompt { text: "hello", images: [] })"#]);
    assert_eq!(desk.app.unsent().1.collect::<Vec<_>>(), ["hello"]);
    desk.event(Event::TurnStarted).event(Event::Prompt {
        text: "hello".to_owned(),
        images: Vec::new(),
        steering: false,
    });
    assert_eq!(desk.app.unsent().1.count(), 0);
    assert_eq!(desk.printed(), "› hello\n");
}

/// What could not be logged is the user's again.
#[test]
fn a_message_that_reached_no_log_comes_back() {
    let mut desk = Desk::new(80, 24);
    desk.write("hello").key(KeyCode::Enter).write(" more");
    desk.tell(idle(0));
    assert_eq!(desk.app.editor.whole(), " more", "the order is still to be carried out");
    desk.tell(idle(1));
    assert_eq!(desk.app.editor.whole(), "hello\n more");
}

/// C13, and steering: what is written meanwhile waits in sight, can be taken back, and is delivered once, in order.
#[test]
fn messages_wait_can_be_taken_back_and_are_delivered_in_order() {
    let mut desk = Desk::working(80, 24);
    desk.effects.clear();
    desk.event(Event::CompactionStarted { reason: "step", before: 9 });
    for text in ["one", "two", "three"] {
        desk.write(text).key(KeyCode::Enter);
    }
    assert_eq!(desk.asked(), [r#"Queue("one")"#, r#"Queue("two")"#, r#"Queue("three")"#]);
    desk.key(KeyCode::Up);
    assert_eq!(desk.asked(), ["TakeBack"]);
    desk.send(Msg::TakenBack("three".to_owned()));
    assert_eq!(
        (desk.app.queue.clone(), desk.app.editor.whole()),
        (vec!["one".to_owned(), "two".to_owned()], "three".to_owned())
    );
    for text in ["one", "two"] {
        desk.event(Event::Prompt { text: text.to_owned(), images: Vec::new(), steering: true });
    }
    assert_eq!(desk.app.queue, Vec::<String>::new());
    assert_eq!(desk.printed(), "\n› one\n\n› two\n");
}

#[test]
fn messages_that_cannot_be_delivered_go_back_to_the_editor() {
    let mut desk = Desk::working(80, 24);
    desk.write("one").key(KeyCode::Enter).write("being written");
    desk.tell(Told::Returned(vec!["one".to_owned()]));
    assert_eq!(desk.app.queue, Vec::<String>::new());
    assert_eq!(desk.app.editor.whole(), "one\nbeing written");
}

#[test]
fn escape_cancels_and_ctrl_c_twice_leaves() {
    let mut desk = Desk::working(80, 24);
    desk.effects.clear();
    desk.key(KeyCode::Esc);
    assert_eq!(desk.asked(), ["Cancel"]);
    desk.event(report(StopReason::Cancelled, PlanInView::default(), None)).tell(idle(1));
    desk.write("unfinished").ctrl('c');
    assert_eq!(desk.asked(), Vec::<String>::new());
    desk.key(KeyCode::Up);
    assert_eq!(desk.app.editor.whole(), "unfinished", "what was cleared is found again");
    desk.ctrl('c').wait(3_000).ctrl('c');
    assert_eq!(desk.asked(), Vec::<String>::new(), "too slow to be one gesture");
    desk.ctrl('c');
    assert_eq!(desk.asked(), ["Quit(0)"]);
}

/// What is too large for the file of earlier messages is found again all the same.
#[test]
fn a_large_paste_that_was_cleared_comes_back() {
    let mut desk = Desk::new(80, 24);
    let pasted = "a line\n".repeat(20_000);
    desk.send(Msg::Paste(pasted.clone())).ctrl('c').key(KeyCode::Up);
    assert_eq!(desk.app.editor.whole(), pasted);
    assert_eq!(desk.asked(), Vec::<String>::new());
}

/// What leaves at once while nothing runs cancels first while something does.
#[test]
fn ctrl_d_leaves_no_turn_at_once() {
    let mut desk = Desk::working(80, 24);
    desk.effects.clear();
    desk.ctrl('d');
    assert_eq!(desk.asked(), ["Cancel"]);
    desk.ctrl('d');
    assert_eq!(desk.asked(), ["Quit(130)"]);
}

#[test]
fn an_answer_is_printed_block_by_block_and_a_cut_one_is_said() {
    let mut desk = Desk::working(80, 24);
    desk.effects.clear();
    desk.event(Event::TextDelta("First *block*.\n\nSec\n".to_owned()));
    assert_eq!(desk.printed(), "\nFirst block.\n");
    assert_eq!(desk.app.stream, "Sec\n");
    desk.event(Event::TextDelta("tion.".to_owned()));
    desk.event(answer("First *block*.\n\nSec\ntion.", Ended::Complete));
    assert_eq!(desk.printed(), "\nSec tion.\n");
    assert_eq!(desk.app.session.used, 50_100);
    desk.event(Event::TextDelta("Half".to_owned()));
    let cut = Ended::Failed { class: ErrorClass::CutStream, message: String::new() };
    desk.event(answer("Half", cut));
    assert_eq!(desk.printed(), "\n… the answer was cut; what came of it does not count\n");
    assert_eq!(desk.app.stream, "");
}

/// What stands behind code waits for its colours, so that the order stays.
#[test]
fn code_waits_for_its_colours_and_what_follows_waits_for_it() {
    let mut desk = Desk::working(80, 24);
    desk.effects.clear();
    desk.event(answer("", Ended::Complete));
    desk.event(Event::TextDelta("Look:\n\n```rust\nfn x() {}\n```\n\nDone.".to_owned()));
    desk.event(answer("", Ended::Complete));
    assert_eq!(desk.printed(), "\nLook:\n\n");
    assert_eq!(desk.app.committing().len(), 3);
    desk.send(Msg::Coloured(0, vec![Row::new("COLOURED", crate::theme::PLAIN)]));
    assert_eq!(desk.printed(), "COLOURED\n\nDone.\n");
}

/// B01: a reminder is shown as what the runtime said, never as the model's words.
#[test]
fn a_reminder_is_no_answer() {
    let mut desk = Desk::working(80, 24);
    desk.effects.clear();
    let text =
        "<system-reminder>\nRefresh your current plan before continuing.\n</system-reminder>".to_owned();
    desk.event(Event::Notice(Notice { about: NoticeKind::Reminder, text }));
    assert_eq!(desk.printed(), "\n◦ reminder: the plan was brought back before the model\n");
    desk.ctrl('o');
    assert!(desk.printed().contains("what the runtime told the model"));
}

#[test]
fn a_call_is_a_line_and_opens_to_all_of_it() {
    let mut desk = Desk::working(80, 24);
    desk.effects.clear();
    let bash = call("bash", r#"{"command":"cargo test\necho"}"#);
    desk.event(Event::ToolStarted { step: 1, call: bash.clone() });
    let output: String = (1..=9).map(|n| format!("line {n}\u{1b}[2J\n")).collect();
    desk.event(Event::ToolCompleted {
        step: 1,
        call: bash,
        result: result(Outcome::Error, "exit code 1", Some(&output)),
    });
    let short = desk.printed();
    assert!(short.starts_with("\n✗ bash cargo test … · exit code 1\n    … 3 lines before"), "{short}");
    assert!(short.ends_with("    line 9\\u{1b}[2J\n"), "{short}");
    desk.ctrl('o');
    assert!(desk.printed().contains("line 1\\u{1b}[2J\n"));
    desk.ctrl('o');
    assert_eq!(desk.app.hint(), Some("there is nothing more to open"));
}

#[test]
fn a_question_takes_no_key_that_was_not_meant_for_it() {
    let mut desk = Desk::working(80, 24);
    desk.tell(Told::Ask(7, request("bash", "cargo test", None, &["cargo test *"])));
    desk.effects.clear();
    desk.write("y");
    assert_eq!(desk.asked(), Vec::<String>::new(), "typed before it could be read");
    desk.wait(500).write("y");
    assert_eq!(desk.asked(), Vec::<String>::new(), "the pause begins anew with each key");
    desk.wait(700).write("y");
    assert_eq!(desk.asked(), ["Answer(7, Once)"]);
    assert!(!desk.app.asks());
    assert_eq!(desk.app.editor.whole(), "yy", "what was typed is not lost");
}

/// Whoever is in the middle of a sentence grants nothing by its letters, its pauses and its end.
#[test]
fn typing_answers_no_question() {
    let asked = |desk: &mut Desk| {
        desk.tell(Told::Ask(7, request("bash", "rm -rf docs", None, &["rm *"])));
        desk.effects.clear();
    };
    let mut desk = Desk::working(80, 24);
    desk.write("please sto");
    asked(&mut desk);
    for c in "p, yes no, stop\u{8}".chars() {
        let code = if c == '\u{8}' { KeyCode::Backspace } else { KeyCode::Char(c) };
        desk.wait(180).key(code);
    }
    desk.wait(180).key(KeyCode::Enter).write("y").wait(1_000).key(KeyCode::Enter);
    assert_eq!(desk.asked(), Vec::<String>::new(), "an Enter behind a sentence is no answer");
    assert!(desk.app.asks());
    assert_eq!(desk.app.editor.whole(), "please stop, yes no, sto\ny\n");

    let mut paused = Desk::working(80, 24);
    asked(&mut paused);
    paused.wait(700).write("please");
    assert_eq!(paused.app.editor.whole(), "please", "the letter that chose belongs to the word");
    paused.wait(700).key(KeyCode::Enter).send(Msg::Paste("yes\nyes".to_owned())).write("y");
    assert_eq!(paused.asked(), Vec::<String>::new());
    assert_eq!(paused.app.editor.whole(), "please\nyes\nyesy");
    paused.wait(700).key(KeyCode::Down).key(KeyCode::Enter);
    assert_eq!(paused.asked(), ["Answer(7, Once)"]);

    let mut waiting = Desk::working(80, 24);
    waiting.write("half a sentence").wait(5_000);
    asked(&mut waiting);
    waiting.wait(700).key(KeyCode::Enter);
    assert_eq!(waiting.asked(), Vec::<String>::new(), "Enter was for the sentence");
    waiting.wait(700).write("y");
    assert_eq!(waiting.asked(), ["Answer(7, Once)"]);
}

/// A question that goes takes nothing away that was written about it, and that of another question is no matter of it.
#[test]
fn a_withdrawn_question_leaves_its_word() {
    let mut desk = Desk::working(80, 24);
    desk.tell(Told::Ask(8, request("bash", "cargo test", None, &[]))).wait(700).write("nnot now");
    desk.tell(Told::Withdrawn(7));
    assert!(desk.app.asks());
    desk.tell(Told::Withdrawn(8));
    assert!(!desk.app.asks());
    assert_eq!(desk.app.editor.whole(), "not now");
}

#[test]
fn every_answer_can_be_given_by_key_and_by_choice() {
    let answers: [(&[KeyCode], &str); 5] = [
        (&[KeyCode::Char('s'), KeyCode::Enter], "Answer(7, Session)"),
        (&[KeyCode::Char('P'), KeyCode::Enter], "Answer(7, Project)"),
        (&[KeyCode::Down, KeyCode::Enter], "Answer(7, Session)"),
        (&[KeyCode::Char('n'), KeyCode::Char('x'), KeyCode::Enter], r#"Answer(7, No { word: "x" })"#),
        (&[KeyCode::Esc], "Cancel"),
    ];
    for (keys, expected) in answers {
        let mut desk = Desk::working(80, 24);
        desk.tell(Told::Ask(7, request("bash", "cargo test", None, &["cargo test *"]))).wait(700);
        desk.effects.clear();
        keys.iter().for_each(|code| {
            desk.key(*code);
        });
        assert_eq!(desk.asked(), [expected]);
    }
    let mut once_only = Desk::working(80, 24);
    once_only.tell(Told::Ask(7, request("bash", "rm -r x", None, &[]))).wait(700);
    once_only.effects.clear();
    once_only.write("s");
    assert_eq!(once_only.asked(), Vec::<String>::new(), "no lasting permission can be given for it");
    assert!(matches!(Approval::Once, Approval::Once) && once_only.app.asks());
}

/// A18, A26: the plan stays in view after its turn, and goes when it is done.
#[test]
fn an_unfinished_plan_outlives_its_turn() {
    let mut desk = Desk::working(80, 24);
    desk.event(Event::Plan { view: plan(1, 3), changes: Vec::new() });
    desk.event(report(StopReason::EndTurn, plan(1, 3), None)).tell(idle(1));
    assert_eq!(desk.app.session.plan, plan(1, 3));
    assert!(!desk.app.is_interrupted);
    desk.write("go on").key(KeyCode::Enter);
    desk.event(Event::TurnStarted);
    desk.event(report(StopReason::Cancelled, plan(1, 3), None));
    assert!(desk.app.is_interrupted);
}

#[test]
fn commands_need_an_idle_session_and_say_so() {
    let mut desk = Desk::working(80, 24);
    desk.effects.clear();
    desk.write("/compact keep it").key(KeyCode::Enter);
    assert_eq!(desk.asked(), Vec::<String>::new());
    assert!(desk.app.hint().is_some_and(|hint| hint.contains("not while the model works")));
    desk.tell(idle(1));
    desk.write("/compact keep it").key(KeyCode::Enter);
    assert_eq!(desk.asked(), [r#"Do(Compact(Some("keep it")))"#]);
    desk.tell(idle(2)).write("/nope").key(KeyCode::Enter);
    assert_eq!(desk.app.hint(), Some("/nope is no command; /help lists them, Up brings it back"));
    desk.effects.clear();
    desk.write("/cost").key(KeyCode::Enter);
    assert!(desk.printed().contains("tokens in"), "the next command is not glued to it");
    desk.key(KeyCode::Up).key(KeyCode::Up);
    assert_eq!(desk.app.editor.whole(), "/nope", "what was typed is not lost");
}

/// Nobody is left with an interface that carries nothing out.
#[test]
fn the_end_of_the_session_thread_is_said_before_the_way_out() {
    let mut desk = Desk::working(80, 24);
    desk.event(Event::TextDelta("```rust\nfn x() {}\n```\n\nMore\n\n".to_owned()));
    desk.effects.clear();
    desk.send(Msg::Gone);
    assert!(matches!(desk.effects.last(), Some(Effect::Quit(1))), "{:?}", desk.effects);
    let printed = desk.printed();
    assert!(printed.contains("fn x() {}") && printed.contains("the session's thread ended"), "{printed}");
}

/// A hint is for what was done last: whatever comes next ends it.
#[test]
fn a_hint_goes_with_the_next_key_and_the_next_turn() {
    let hinted = || {
        let mut desk = Desk::new(80, 24);
        desk.write("/nope").key(KeyCode::Enter);
        assert!(desk.app.hint().is_some());
        desk
    };
    assert_eq!(hinted().write("x").app.hint(), None);
    assert_eq!(hinted().event(Event::TurnStarted).app.hint(), None);
    assert_eq!(hinted().event(report(StopReason::EndTurn, plan(0, 0), None)).app.hint(), None);
    assert_eq!(hinted().wait(5_000).app.hint(), None);
}

#[test]
fn names_are_completed() {
    let mut desk = Desk::new(80, 24);
    desk.write("see @ma");
    assert_eq!(desk.asked()[0], "LoadFiles");
    desk.send(Msg::Files(vec!["README.md".to_owned(), "src/main.rs".to_owned()]));
    desk.key(KeyCode::Tab);
    assert_eq!(desk.app.editor.whole(), "see @src/main.rs ");
    desk.ctrl('u').write("/com");
    desk.key(KeyCode::Enter);
    assert_eq!(desk.asked(), ["Do(Compact(None))"]);
}

/// A session of another directory works there, and says so.
#[test]
fn a_session_that_works_elsewhere_says_where() {
    let opened =
        |workspace: &str| Told::Opened(Box::new(Opened { workspace: workspace.into(), ..Opened::default() }));
    let mut desk = Desk::new(80, 24);
    assert!(!desk.tell(opened("/work")).printed().contains("works in"));
    assert!(desk.tell(opened("/else\nwhere")).printed().contains("this session works in /else\\nwhere"));
}

/// The end of a turn makes the names old, and takes none from whoever is completing one just then.
#[test]
fn names_are_completed_while_they_are_looked_for_again() {
    let mut desk = Desk::new(80, 24);
    desk.write("@m").send(Msg::Files(vec!["notes.md".to_owned()]));
    desk.asked();
    desk.tell(Told::Idle { jobs: Vec::new(), done: u64::MAX }).write("d");
    assert!(desk.asked().contains(&"LoadFiles".to_owned()));
    desk.key(KeyCode::Tab);
    assert_eq!(desk.app.editor.whole(), "@notes.md ");
}

#[test]
fn earlier_messages_are_found_and_what_was_being_written_is_kept() {
    let mut desk = Desk::new(80, 24);
    desk.write("new").key(KeyCode::Up);
    assert_eq!(desk.app.editor.whole(), "earlier two");
    desk.key(KeyCode::Up).key(KeyCode::Up);
    assert_eq!(desk.app.editor.whole(), "earlier one");
    desk.key(KeyCode::Down).key(KeyCode::Down);
    assert_eq!(desk.app.editor.whole(), "new");
}

#[test]
fn a_compaction_says_before_and_after() {
    let mut desk = Desk::working(80, 24);
    desk.effects.clear();
    desk.event(Event::CompactionStarted { reason: "step", before: 180_000 });
    desk.event(Event::Compacted(Compaction {
        reason: "step".to_owned(),
        method: "model".to_owned(),
        before: 180_000,
        counted: None,
        after: Some(12_300),
        window: None,
        reused: None,
        failure: None,
    }));
    assert_eq!(
        desk.printed(),
        "\n◦ compacted: 180k tokens became 12.3k; the model summarised the conversation\n"
    );
}

/// F08: what a call prints is shown under it while it runs, inert, and is gone with its result.
#[test]
fn a_running_call_shows_what_it_prints() {
    let mut desk = Desk::working(80, 24);
    let (bash, other) = (call("bash", r#"{"command":"make"}"#), call("read", r#"{"path":"a"}"#));
    let prints = |desk: &mut Desk, call: &ToolCall, lines: &str| {
        desk.event(Event::ToolOutput { step: 1, call: call.clone(), lines: lines.to_owned() });
    };
    desk.event(Event::ToolStarted { step: 1, call: bash.clone() });
    prints(&mut desk, &bash, "one\ntwo\u{1b}[2J\tx");
    let output = |desk: &Desk| desk.app.work.as_ref().unwrap().calls[0].output.clone();
    assert_eq!(output(&desk), ["one", r"two\u{1b}[2J    x"]);
    prints(&mut desk, &bash, "three");
    prints(&mut desk, &other, "of a call that is not known");
    assert_eq!(output(&desk), ["three"]);
    desk.event(Event::ToolCompleted {
        step: 1,
        call: bash.clone(),
        result: result(Outcome::Ok, "exit code 0", None),
    });
    prints(&mut desk, &bash, "late");
    assert!(desk.app.work.as_ref().unwrap().calls.is_empty());
}

/// How long a question was open is the user's time: neither the call nor the turn took it.
#[test]
fn the_time_of_a_question_does_not_count() {
    let mut desk = Desk::working(80, 24);
    let bash = call("bash", "{}");
    desk.wait(6_000).event(Event::ToolStarted { step: 1, call: bash.clone() });
    desk.wait(1_000).tell(Told::Ask(7, request("bash", "make", None, &[])));
    desk.wait(600_000).write("y").wait(2_000);
    let since = desk.app.work.as_ref().unwrap().calls[0].since;
    assert_eq!(desk.app.now - since, Duration::from_secs(3));
    desk.event(Event::ToolCompleted {
        step: 1,
        call: bash,
        result: result(Outcome::Ok, "exit code 0", None),
    });
    desk.effects.clear();
    desk.event(report(StopReason::EndTurn, plan(0, 0), None));
    assert_eq!(desk.printed(), "9 s · 0 tokens\n");
}

/// An image is attached by its name; where the model looks at none, a path stays a path.
#[test]
fn a_dropped_image_is_named_in_the_text() {
    let mut desk = Desk::new(80, 24);
    desk.send(Msg::Paste("'/tmp/my shot.png'".to_owned()));
    assert_eq!(desk.app.editor.whole(), "'/tmp/my shot.png'");
    desk.ctrl('u');
    desk.app.session.takes_images = true;
    desk.send(Msg::Paste("/tmp/my\\ shot.png ".to_owned())).write("look");
    assert_eq!(desk.app.editor.whole(), "@\"/tmp/my shot.png\" look");
    desk.app.begin(Phase::Working);
    desk.asked();
    desk.key(KeyCode::Enter);
    assert_eq!(desk.asked(), Vec::<String>::new());
    assert_eq!(desk.app.editor.whole(), "@\"/tmp/my shot.png\" look", "it waits where it was written");
    assert!(desk.app.hint().is_some_and(|hint| hint.contains("begins a turn")));
    desk.app.work = None;
    desk.key(KeyCode::Enter);
    let sent = r#"Do(Prompt { text: "@\"/tmp/my shot.png\" look", images: ["/tmp/my shot.png"] })"#;
    assert_eq!(desk.asked(), [sent]);
}

/// An image that only a paste behind a placeholder names goes nowhere; that is said, and in a running turn the message is
/// a message like any other.
#[test]
fn an_image_that_is_not_to_be_seen_is_not_sent() {
    let log = "@/tmp/hidden.png\n".repeat(9);
    for is_running in [false, true] {
        let mut desk = Desk::new(80, 24);
        desk.app.session.takes_images = true;
        if is_running {
            desk.app.begin(Phase::Working);
        }
        desk.send(Msg::Paste(log.clone())).write(" and this");
        desk.asked();
        desk.key(KeyCode::Enter);
        let text = format!("{log} and this");
        let sent = match is_running {
            true => format!("Queue({text:?})"),
            false => format!("Do(Prompt {{ text: {text:?}, images: [] }})"),
        };
        assert_eq!(desk.asked(), [sent]);
        assert!(desk.app.hint().is_some_and(|hint| hint.contains("inside a paste")));
    }
    let mut desk = Desk::new(80, 24);
    desk.send(Msg::Paste(log.clone())).write(" like @seen.png");
    desk.key(KeyCode::Enter);
    let text = format!("{log} like @seen.png");
    assert!(desk.asked().contains(&format!("Do(Prompt {{ text: {text:?}, images: [\"seen.png\"] }})")));
}

/// What an answer that came in pieces of so many characters left in the scrollback, row by row, and how many rows stood
/// below it at most.
fn streamed(text: &str, columns: u16, pieces: usize) -> (Vec<String>, usize) {
    let mut desk = Desk::working(columns, 24);
    let (mut rows, mut most) = (Vec::new(), 0);
    let take = |desk: &mut Desk, rows: &mut Vec<String>| loop {
        let effects = std::mem::take(&mut desk.effects);
        if effects.is_empty() {
            return;
        }
        for effect in effects {
            match effect {
                Effect::Print(printed) => {
                    let lines = printed.iter().flat_map(|row| row.wrapped(usize::from(columns)));
                    rows.extend(lines.map(|line| line.to_string().trim_end().to_owned()));
                }
                Effect::Colour(code) => {
                    desk.send(Msg::Coloured(code.id, plain_code(&code.text)));
                }
                _ => {}
            }
        }
    };
    take(&mut desk, &mut rows);
    let characters: Vec<char> = text.chars().collect();
    for piece in characters.chunks(pieces) {
        desk.event(Event::TextDelta(piece.iter().collect()));
        take(&mut desk, &mut rows);
        let coming = desk.app.coming();
        most = most.max(coming.iter().map(|row| row.wrapped(usize::from(columns)).len()).sum());
    }
    desk.event(answer(text, Ended::Complete));
    take(&mut desk, &mut rows);
    (rows, most)
}

/// A long block is printed while it comes. What is there in the end is what is there if all of it came at once, and little
/// of it waits meanwhile.
#[test]
fn a_long_block_is_printed_while_it_comes() {
    let sentence =
        "The *parser* reads a `block` after the [other](https://example.invalid/x), snake_case, 2 * 3 < 4. ";
    let wide = "解析器は、一つのブロックを**順に**読み、文字の間だけで切る。";
    let line = "    let value = parser.next_block(&mut state, options)?; // 日本語\n\n";
    let texts = [
        ("paragraph", format!("# Title\n\n{}\n\nEnd.", sentence.repeat(60).trim())),
        ("lines", format!("{}\n\nEnd.", "A line of it, not too long.\n- not".replace("- ", "").repeat(90))),
        ("wide", format!("{}\n\n{}", wide.repeat(50), wide.repeat(50))),
        ("code", format!("Look:\n\n```rust\n{}```\n\nEnd.", line.repeat(40))),
        ("open code", format!("~~~~\n{}", line.repeat(40))),
        ("list", format!("{}\nEnd.", "- one *item* of many\n".repeat(40))),
        ("table", {
            let row = |cell: &str| format!("|{}\n", format!(" {cell} |").repeat(24));
            format!("{}{}{}\nEnd.", row("Heading of it"), row("-----"), row("cell").repeat(9))
        }),
        ("brackets", format!("{}\n\nEnd.", "See [1] and a[0] of them, said so. ".repeat(60).trim())),
    ];
    for (name, text) in texts {
        for columns in [40, 80, 133] {
            let whole = streamed(&text, columns, usize::MAX).0;
            for pieces in [3, 70] {
                let (rows, most) = streamed(&text, columns, pieces);
                assert_eq!(rows, whole, "{name} at {columns} columns in pieces of {pieces}");
                assert!(
                    ["list", "table"].contains(&name) || most <= 16,
                    "{name} at {columns} columns: {most} rows wait"
                );
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..ProptestConfig::default() })]

    /// Whatever comes and however it is cut, no word is lost, doubled or out of its place.
    #[test]
    fn no_word_of_an_answer_is_lost(
        parts in prop::collection::vec(prop::sample::select(vec![
            "one two three four five six seven eight nine ten ", "a sentence of it. ", "解析器は順に読み、", "\n", "\n\n", "# ",
            "- ", "1. ", "> ", "| a | b |\n", "|---|---|\n", "```rust\n", "```\n", "~~~\n", "*", "**", "_", "`", "[", "]", "(x)",
            "<b>", "&amp;", "---\n", "===\n", "    ", "\\", "e\u{301}", "👩‍👩‍👧",
        ]), 1..120),
        pieces in 1usize..60,
        columns in 20u16..100,
    ) {
        let text = parts.concat();
        let words = |rows: Vec<String>| {
            rows.concat().chars().filter(|c| c.is_alphabetic()).collect::<String>()
        };
        let whole = words(streamed(&text, columns, usize::MAX).0);
        prop_assert_eq!(words(streamed(&text, columns, pieces).0), whole, "{:?}", text);
    }
}

/// What opens and finds no end for long holds nothing up.
#[test]
fn a_mark_without_an_end_holds_a_paragraph_up_for_some_screens_only() {
    let text =
        format!("It begins with a [bracket. {}", "Then come words and words without an end. ".repeat(1_000));
    let (rows, most) = streamed(&text, 80, 4);
    assert_eq!(rows, streamed(&text, 80, usize::MAX).0);
    assert!(most <= 60, "{most}");
}

/// `/model` offers what is configured, and its name is completed; nothing is looked for on the way of a key.
#[test]
fn a_model_is_chosen_from_those_that_are_configured() {
    let offers = || {
        ["local/qwen3-coder", "far/other"]
            .map(|name| ModelOffer { name: name.to_owned(), about: "window 9".to_owned() })
    };
    let mut desk = Desk::new(80, 24);
    desk.write("/model").key(KeyCode::Enter);
    assert_eq!(desk.asked(), ["LoadModels"]);
    desk.send(Msg::Models(Ok(offers().to_vec()))).key(KeyCode::Enter);
    assert_eq!(desk.app.hint(), Some("it answers already"));
    desk.write("/model").key(KeyCode::Enter);
    desk.send(Msg::Models(Ok(offers().to_vec()))).key(KeyCode::Down).key(KeyCode::Enter);
    assert_eq!(desk.asked(), ["LoadModels", r#"Do(Model("far/other"))"#]);

    let mut typed = Desk::new(80, 24);
    typed.write("/model oth");
    assert_eq!(typed.asked(), ["LoadModels"], "once");
    typed.send(Msg::Models(Ok(offers().to_vec()))).key(KeyCode::Tab).key(KeyCode::Enter);
    assert_eq!(typed.asked(), [r#"Do(Model("far/other"))"#]);

    let mut none = Desk::new(80, 24);
    none.write("/model").key(KeyCode::Enter).send(Msg::Models(Ok(Vec::new())));
    assert!(none.printed().contains("no other model is configured"));
    none.write("/model").key(KeyCode::Enter).send(Msg::Models(Err("the configuration is wrong".to_owned())));
    assert!(none.printed().contains("✗ the configuration is wrong"));

    let mut working = Desk::working(80, 24);
    working.effects.clear();
    working.write("/model").key(KeyCode::Enter);
    assert_eq!(working.asked(), Vec::<String>::new());
}

/// Who leaves other programs so leaves this one; in a sentence the word is a word.
#[test]
fn exit_and_quit_alone_leave() {
    for (text, effect) in [
        ("exit", "Quit(0)"),
        ("quit", "Quit(0)"),
        ("exit now", r#"Do(Prompt { text: "exit now", images: [] })"#),
    ] {
        let mut desk = Desk::new(80, 24);
        desk.write(text).key(KeyCode::Enter);
        assert_eq!(desk.asked(), [effect], "{text}");
    }
}

#[test]
fn a_new_session_is_asked_for() {
    let mut desk = Desk::new(80, 24);
    desk.write("/new").key(KeyCode::Enter);
    assert_eq!(desk.asked(), ["Do(New)"]);
    desk.tell(Told::Opened(Box::default())).tell(idle(1));
    assert_eq!((desk.app.session.id.clone(), desk.app.work.is_some()), (None, false));
}
