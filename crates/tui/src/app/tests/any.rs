//! Whatever happens in whatever order on a screen of whatever size, the interface goes on.

use super::*;
use crate::painter::{Colours, Painter};
use crate::view::view;

/// Texts as models, tools, files and users write them, and worse.
const TEXTS: [&str; 36] = [
    "word ",
    "two words",
    "\n",
    "\n\n",
    " ",
    "\t",
    "- ",
    "- > ",
    "1. ",
    "10. > - ",
    "> ",
    ">> ",
    "# ",
    "```rust\n",
    "```\n",
    "~~~",
    "`",
    "*",
    "**",
    "[x](y)",
    "| a | b |\n",
    "|---|:-:|\n",
    "    ",
    "<b>",
    "日本語",
    "e\u{301}",
    "👩‍👩‍👧‍👦",
    "\u{200b}",
    "\u{202e}",
    "\u{1b}[31m",
    "\r",
    "\0",
    "/model ",
    "@",
    "\u{ff}",
    "a_very_long_word_without_any_gap_in_it_whatever_comes",
];

const KEYS: [KeyCode; 14] = [
    KeyCode::Enter,
    KeyCode::Esc,
    KeyCode::Tab,
    KeyCode::BackTab,
    KeyCode::Backspace,
    KeyCode::Delete,
    KeyCode::Left,
    KeyCode::Right,
    KeyCode::Up,
    KeyCode::Down,
    KeyCode::Home,
    KeyCode::End,
    KeyCode::PageUp,
    KeyCode::PageDown,
];

/// One thing that happens: its kind, a text for it, and a number.
fn happen(desk: &mut Desk, kind: u8, text: &str, n: u16) {
    let letter = char::from(b'a' + u8::try_from(n % 26).unwrap());
    match kind {
        0 => drop(desk.write(text)),
        1 | 2 => drop(desk.key(KEYS[usize::from(n) % KEYS.len()])),
        3 => drop(desk.ctrl(letter)),
        4 => drop(desk.send(Msg::Key(KeyEvent::new(KeyCode::Char(letter), KeyModifiers::ALT)))),
        5 => drop(desk.send(Msg::Paste(text.repeat(usize::from(n % 9))))),
        6 => drop(desk.send(Msg::Resize(n % 70 + 1, n / 70 % 30 + 1))),
        7 => drop(desk.wait(u64::from(n))),
        8 => drop(desk.event(Event::TurnStarted)),
        9..=11 => drop(desk.event(Event::TextDelta(text.to_owned()))),
        12 => drop(desk.event(Event::ReasoningDelta(text.to_owned()))),
        13 => drop(
            desk.event(answer(text, if n.is_multiple_of(2) { Ended::Complete } else { Ended::Cancelled })),
        ),
        14 => drop(desk.event(Event::ToolStarted { step: 1, call: call("bash", text) })),
        15 => drop(desk.event(Event::ToolCompleted {
            step: 1,
            call: call(["bash", "edit", "todo_write"][usize::from(n) % 3], text),
            result: result(Outcome::Ok, text, Some(text)),
        })),
        16 => drop(
            desk.event(Event::Plan { view: plan(u32::from(n % 5), u32::from(n % 7)), changes: Vec::new() }),
        ),
        17 => drop(desk.tell(Told::Ask(u64::from(n), request("write", text, Some(text), &[text, text])))),
        18 => drop(desk.tell(Told::Withdrawn(u64::from(n)))),
        19 => drop(desk.event(report(StopReason::EndTurn, plan(1, u32::from(n % 3)), None))),
        20 => drop(desk.tell(Told::Idle { jobs: Vec::new(), done: u64::from(n) })),
        21 => drop(desk.send(Msg::Files(vec![text.to_owned(), "notes.md".to_owned()]))),
        22 => drop(desk.tell(Told::Turns(vec![(u64::from(n), Some(text.to_owned())), (0, None)]))),
        23 => drop(
            desk.send(Msg::Models(Ok(vec![ModelOffer { name: text.to_owned(), about: text.to_owned() }]))),
        ),
        24 => drop(desk.tell(Told::Returned(vec![text.to_owned()]))),
        25 => drop(desk.send(Msg::Edited(Ok(text.to_owned())))),
        26 => drop(desk.send(Msg::Branch(Some(text.to_owned())))),
        27 => {
            let (about, text) = (NoticeKind::Reminder, text.to_owned());
            desk.event(Event::Notice(Notice { about, text }));
        }
        _ => drop(desk.event(Event::Prompt {
            text: text.to_owned(),
            images: Vec::new(),
            steering: n.is_multiple_of(2),
        })),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn nothing_ends_the_interface(
        steps in prop::collection::vec(
            (0u8..29, prop::collection::vec(prop::sample::select(&TEXTS[..]), 0..9), any::<u16>()),
            1..80,
        ),
        size in (1u16..120, 1u16..50),
    ) {
        let mut desk = Desk::new(size.0, size.1);
        let mut painter = Painter::new(Vec::new(), Colours::OnAny);
        for (kind, texts, n) in steps {
            happen(&mut desk, kind, &texts.concat(), n);
            let mut rows = Vec::new();
            for effect in std::mem::take(&mut desk.effects) {
                match effect {
                    Effect::Print(printed) => rows.extend(printed),
                    Effect::Colour(code) => drop(desk.send(Msg::Coloured(code.id, plain_code(&code.text)))),
                    _ => {}
                }
            }
            let shown = view(&desk.app);
            let (columns, screen) = desk.app.size;
            let area = shown.buffer.area;
            prop_assert!(columns < 20 || screen < 6 || area.height <= screen && area.width <= columns);
            painter.print(&rows, shown).unwrap();
        }
    }
}
