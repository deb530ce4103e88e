//! How long a frame takes, and what streaming costs: 200 tokens a second into a session of 10,000 lines.
//!
//! `cargo test --release -p mainstay-tui -- --ignored --nocapture frames` measures. The time of a frame is all that is done
//! for it: events taken in, the live area drawn, rows printed, bytes made.

use std::time::{Duration, Instant};

use mainstay_agent::Event;

use crate::app::tests::{Desk, plan};
use crate::app::{Effect, Msg};
use crate::painter::{Colours, Painter};
use crate::view::view;

/// The time between frames, and how many tokens come in it at 200 a second.
const FRAME: Duration = Duration::from_millis(33);
const SECONDS: u32 = 60;

/// What a model says, in tokens of about four characters.
fn texts() -> [(&'static str, String); 4] {
    let sentence = "The parser reads one block after the other, and 日本語 is cut only between characters. ";
    let line = "    let value = parser.next_block(&mut state, options)?; // 日本語\n";
    [
        ("paragraphs", format!("{}\n\n", sentence.repeat(5)).repeat(200)),
        ("one paragraph", sentence.repeat(1_000)),
        ("one list", format!("- {sentence}\n").repeat(1_000)),
        ("one block of code", format!("```rust\n{}", line.repeat(2_000))),
    ]
}

struct Measured {
    frames: Vec<Duration>,
    bytes: usize,
}

fn measure(text: &str) -> Measured {
    let mut desk = Desk::working(120, 40);
    let mut painter = Painter::new(Vec::new(), Colours::OnAny);
    desk.event(Event::Plan { view: plan(1, 6), changes: Vec::new() });
    let frame = |desk: &mut Desk, painter: &mut Painter<Vec<u8>>| {
        let mut rows = Vec::new();
        for effect in std::mem::take(&mut desk.effects) {
            match effect {
                Effect::Print(printed) => rows.extend(printed),
                // Whoever colours it has a thread of its own.
                Effect::Colour(code) => {
                    desk.send(Msg::Coloured(code.id, crate::highlight::plain_code(&code.text)));
                }
                _ => {}
            }
        }
        match rows.is_empty() {
            true => painter.draw(view(&desk.app)).unwrap(),
            false => painter.print(&rows, view(&desk.app)).unwrap(),
        }
    };
    for n in 0..10_000 {
        desk.event(Event::TextDelta(format!("Line {n} of what was said before.\n\n")));
        if n % 50 == 0 {
            frame(&mut desk, &mut painter);
        }
    }
    painter.take_bytes();
    let tokens: Vec<String> =
        text.chars().collect::<Vec<_>>().chunks(4).map(|chunk| chunk.iter().collect()).collect();
    let mut coming = tokens.iter().cycle();
    let mut measured = Measured { frames: Vec::new(), bytes: 0 };
    let mut due = 0.0;
    let all = SECONDS * 1_000 / u32::try_from(FRAME.as_millis()).unwrap();
    for _ in 0..all {
        let begun = Instant::now();
        due += 200.0 * FRAME.as_secs_f64();
        while due >= 1.0 {
            desk.event(Event::TextDelta(coming.next().unwrap().clone()));
            due -= 1.0;
        }
        frame(&mut desk, &mut painter);
        measured.frames.push(begun.elapsed());
        measured.bytes += painter.take_bytes();
    }
    measured
}

#[test]
#[ignore = "takes measurements"]
fn frames_are_quick_and_streaming_costs_little() {
    for (name, text) in texts() {
        let Measured { mut frames, bytes } = measure(&text);
        let busy: Duration = frames.iter().sum();
        let share = busy.as_secs_f64() * 100.0 / f64::from(SECONDS);
        frames.sort();
        let at = |percent: usize| frames[(frames.len() - 1) * percent / 100].as_secs_f64() * 1_000.0;
        println!(
            "{name}: frame median {:.2} ms, 99 % {:.2} ms, longest {:.2} ms; {share:.2} % of a core; {} bytes a second",
            at(50),
            at(99),
            at(100),
            bytes / usize::try_from(SECONDS).unwrap()
        );
    }
}
