//! The terminal's state: taken over at the start, given back at the end, however that comes.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::terminal::{disable_raw_mode, enable_raw_mode};

/// Pastes are told apart from typing, keys are told with their modifiers, and the title can be put back. A terminal
/// that knows one of them not ignores it.
const ENTER: &str = "\x1b[?2004h\x1b[>1u\x1b[22;2t";
const LEAVE: &str = "\x1b[?2004l\x1b[<1u\x1b[23;2t\x1b[?2026l\x1b[?7h\x1b[0m\x1b[?25h";

static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// The terminal, taken over until this is dropped.
#[derive(Debug)]
pub(crate) struct Terminal(());

impl Terminal {
    /// Takes it over. A panic gives it back first, so that its words can be read.
    pub(crate) fn take() -> io::Result<Terminal> {
        enter()?;
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            leave();
            before(info);
        }));
        Ok(Terminal(()))
    }

    /// Gives it to somebody else for a while.
    pub(crate) fn lend<T>(&self, work: impl FnOnce() -> T) -> io::Result<T> {
        leave();
        let done = work();
        enter()?;
        Ok(done)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        leave();
    }
}

fn enter() -> io::Result<()> {
    enable_raw_mode()?;
    IS_TAKEN.store(true, Ordering::SeqCst);
    let mut out = io::stdout().lock();
    out.write_all(ENTER.as_bytes())?;
    out.flush()
}

/// Gives the terminal back, once.
fn leave() {
    if IS_TAKEN.swap(false, Ordering::SeqCst) {
        // A terminal that is gone needs nothing back.
        let mut out = io::stdout().lock();
        let _ = out.write_all(LEAVE.as_bytes()).and_then(|()| out.flush());
        let _ = disable_raw_mode();
    }
}

#[cfg(test)]
mod tests;
