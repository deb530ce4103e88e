//! Ctrl-C and SIGTERM.

use std::io::{self, IsTerminal, stderr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::output::say;

/// Exit code after Ctrl-C.
pub(crate) const INTERRUPTED: u8 = 130;
/// Exit code after SIGTERM.
const TERMINATED: u8 = 143;

/// Ctrl-C and SIGTERM, caught.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Catches them from now on.
    pub(crate) fn catch() -> io::Result<Self> {
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// The first of them cancels the turn; the second ends the program at once.
    pub(crate) async fn listen(mut self, cancel: CancellationToken, code: Arc<AtomicU8>) {
        let first = self.next().await;
        code.store(first, Ordering::Relaxed);
        cancel.cancel();
        if stderr().is_terminal() {
            say("cancelling; once more to quit at once");
        }
        let second = self.next().await;
        std::process::exit(i32::from(second));
    }

    /// The exit code of the next one.
    async fn next(&mut self) -> u8 {
        tokio::select! {
            _ = self.interrupt.recv() => INTERRUPTED,
            _ = self.terminate.recv() => TERMINATED,
        }
    }
}
