//! The end of what a running command has printed so far, told to whoever looks on.
//!
//! It is for the eye: a few lines, at most ten times a second, and nothing for a command that ends sooner. Taking bytes in
//! is a copy of a bounded number of them, whatever a command prints; what they say is looked at only when it is told. The
//! result of the command is `output.rs`'s matter and has nothing to do with this.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::output::inert;
use crate::tool::OnOutput;

/// How often what is new is told at most.
const EVERY: Duration = Duration::from_millis(100);

/// The most bytes that are held.
const HELD: usize = 8 << 10;

/// The most lines that are told.
const LINES: usize = 10;

/// Somebody looks on while a command prints.
pub(crate) struct LookingOn {
    on_output: OnOutput,
    end: Mutex<End>,
    printed: Notify,
}

/// The end of an output.
#[derive(Debug, Default)]
struct End {
    bytes: VecDeque<u8>,
    /// Whether there was more before it.
    is_cut: bool,
    is_news: bool,
}

impl LookingOn {
    pub(crate) fn new(on_output: OnOutput) -> Self {
        LookingOn { on_output, end: Mutex::default(), printed: Notify::new() }
    }

    /// Takes the next bytes.
    pub(crate) fn push(&self, bytes: &[u8]) {
        self.end.lock().unwrap_or_else(PoisonError::into_inner).push(bytes);
        self.printed.notify_one();
    }

    /// Tells what is new, again and again, until it is dropped.
    pub(crate) async fn tell(&self) -> Infallible {
        loop {
            self.printed.notified().await;
            tokio::time::sleep(EVERY).await;
            let news = self.end.lock().unwrap_or_else(PoisonError::into_inner).news();
            if let Some(lines) = news {
                (self.on_output)(&lines);
            }
        }
    }
}

impl End {
    fn push(&mut self, bytes: &[u8]) {
        let last = &bytes[bytes.len().saturating_sub(HELD)..];
        let excess = (self.bytes.len() + last.len()).saturating_sub(HELD);
        self.is_cut |= excess > 0 || last.len() < bytes.len();
        self.bytes.drain(..excess.min(self.bytes.len()));
        self.bytes.extend(last);
        self.is_news = true;
    }

    /// The last lines, if anything came since this was asked.
    fn news(&mut self) -> Option<String> {
        if !std::mem::take(&mut self.is_news) {
            return None;
        }
        let lines = last_lines(self.bytes.make_contiguous(), self.is_cut);
        (!lines.trim().is_empty()).then_some(lines)
    }
}

/// The last lines of some bytes, as a terminal would have them: what a carriage return went back over is gone.
fn last_lines(bytes: &[u8], is_cut: bool) -> String {
    let is_break = |byte: &u8| *byte == b'\n';
    // The first line may begin inside of a character or a control sequence. Both end with a line at the latest.
    let whole = match bytes.iter().position(is_break) {
        Some(end) if is_cut => &bytes[end + 1..],
        Some(_) | None => bytes,
    };
    let whole = whole.strip_suffix(b"\n").unwrap_or(whole);
    let mut lines: Vec<&[u8]> = whole.rsplit(is_break).take(LINES).map(overwritten).collect();
    lines.reverse();
    inert(&lines.join(&b'\n')).0
}

/// What a line shows whose writer went back to its beginning.
fn overwritten(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    line.iter().rposition(|byte| *byte == b'\r').map_or(line, |at| &line[at + 1..])
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// F08: what is shown while a command runs steers no terminal either.
    #[test]
    fn the_last_lines_are_those_that_a_terminal_would_show() {
        for (printed, shown) in [
            ("one\ntwo\n", "one\ntwo"),
            ("one\ntw", "one\ntw"),
            ("1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n", "3\n4\n5\n6\n7\n8\n9\n10\n11\n12"),
            ("10 %\r20 %\r30 %", "30 %"),
            ("10 %\r20 %\r", "20 %"),
            ("done\r\nnext\r\n", "done\nnext"),
            ("\u{1b}[31mred\u{1b}[0m \u{1b}]52;c;QQ==\u{7}\u{9b}2Jend", "red end"),
            ("日本語\n", "日本語"),
        ] {
            assert_eq!(last_lines(printed.as_bytes(), false), shown, "{printed:?}");
        }
    }

    /// F05: whatever is printed, little is held, and a line that is cut in front is left out.
    #[test]
    fn little_is_held_of_much() {
        let mut end = End::default();
        (0..100).for_each(|n| end.push(format!("€ line {n} {}\n", "x".repeat(5_000)).as_bytes()));
        end.push(&[b'y'; 100_000]);
        end.push(b"\nlast\n");
        assert_eq!(end.bytes.len(), HELD);
        assert_eq!(end.news().as_deref(), Some("last"));
        assert_eq!(end.news(), None, "nothing came since");
        end.push(b"  \n");
        assert!(end.news().is_some_and(|lines| lines.starts_with("last")));
        assert_eq!(last_lines("日本".as_bytes().split_at(1).1, true), "\u{fffd}\u{fffd}本");
    }

    /// However often something is printed, it is told at most ten times a second, and the end is told too.
    #[tokio::test(start_paused = true)]
    async fn what_is_printed_is_told_now_and_then() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let heard = told.clone();
        let looking_on =
            LookingOn::new(Arc::new(move |lines: &str| heard.lock().unwrap().push(lines.to_owned())));
        let printing = async {
            for n in 0..1_000 {
                looking_on.push(format!("{n}\n").as_bytes());
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            tokio::time::sleep(Duration::from_secs(60)).await;
        };
        tokio::select! {
            () = printing => {}
            never = looking_on.tell() => match never {},
        }
        let told = told.lock().unwrap();
        assert!((9..=11).contains(&told.len()), "{} times", told.len());
        assert!(told.last().unwrap().ends_with("\n999"), "{told:?}");
    }
}
