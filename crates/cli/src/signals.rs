//! Work that takes its time: on a runtime of one thread, and cancelled by Ctrl-C and SIGTERM.

use std::io::{self, IsTerminal, stderr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::error::CliError;
use crate::output::say;

/// Exit code after Ctrl-C.
pub(crate) const INTERRUPTED: u8 = 130;
/// Exit code after SIGTERM.
const TERMINATED: u8 = 143;

/// Does work to its end.
///
/// # Errors
///
/// If the operating system gives no runtime, and as the work fails.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T, CliError>>) -> Result<T, CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| CliError::new(1, format!("cannot start: {error}")))?;
    runtime.block_on(work)
}

/// Does work that a signal cancels, however early it comes. `code` then holds the signal's exit code.
pub(crate) async fn cancellable<T>(
    code: Arc<AtomicU8>,
    work: impl AsyncFnOnce(&CancellationToken) -> T,
) -> T {
    let cancel = CancellationToken::new();
    let listener = Signals::catch().map(|signals| tokio::spawn(signals.listen(cancel.clone(), code)));
    let done = work(&cancel).await;
    if let Ok(listener) = listener {
        listener.abort();
    }
    done
}

/// Ctrl-C and SIGTERM, caught.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Catches them from now on.
    fn catch() -> io::Result<Self> {
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// The first of them cancels the turn; the second ends the program at once.
    async fn listen(mut self, cancel: CancellationToken, code: Arc<AtomicU8>) {
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
