//! The session's log as the parts of an agent share it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mainstay_session::entry::Body;
use mainstay_session::ids::Seq;
use mainstay_session::log::{AppendError, Log};
use mainstay_session::state::SessionState;

use crate::setup::Clock;

/// A log that the loop, running calls and notifiers write to, one entry at a time.
#[derive(Clone)]
pub(crate) struct SharedLog {
    log: Arc<Mutex<Log>>,
    clock: Clock,
}

impl SharedLog {
    pub(crate) fn new(log: Log, clock: Clock) -> Self {
        SharedLog { log: Arc::new(Mutex::new(log)), clock }
    }

    /// The log itself, for as long as the guard lives. Never held across an await.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Log> {
        // An entry is applied only after it is written, so the state is sound even if a holder panicked.
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn append(&self, body: Body) -> Result<Seq, AppendError> {
        let now = (self.clock)();
        self.lock().append(body, now)
    }

    /// Writes what could not be written before.
    pub(crate) fn flush(&self) -> Result<(), AppendError> {
        let mut log = self.lock();
        if log.unwritten() > 0 { log.sync() } else { Ok(()) }
    }

    pub(crate) fn sync(&self) -> Result<(), AppendError> {
        self.lock().sync()
    }

    pub(crate) fn read<T>(&self, look: impl FnOnce(&SessionState) -> T) -> T {
        look(self.lock().state())
    }
}
