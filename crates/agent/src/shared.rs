//! The session's log as the parts of an agent share it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mainstay_model::{Encoded, Model};
use mainstay_session::entry::Body;
use mainstay_session::ids::Seq;
use mainstay_session::log::{AppendError, Log, Taken};
use mainstay_session::request::request_with;
use mainstay_session::state::SessionState;

use crate::pictures::SessionPictures;
use crate::setup::Clock;

/// A log that the loop, running calls and notifiers write to, one entry at a time.
#[derive(Clone)]
pub(crate) struct SharedLog {
    log: Arc<Mutex<Log>>,
    pictures: SessionPictures,
    clock: Clock,
}

impl SharedLog {
    pub(crate) fn new(log: Log, clock: Clock) -> Self {
        let pictures = SessionPictures::new(log.spill());
        SharedLog { log: Arc::new(Mutex::new(log)), pictures, clock }
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

    /// Accepts what other processes have left for the session.
    pub(crate) fn take_inbox(&self) -> Result<Taken, AppendError> {
        let now = (self.clock)();
        self.lock().take_inbox(now)
    }

    pub(crate) fn sync(&self) -> Result<(), AppendError> {
        self.lock().sync()
    }

    /// Encodes the request that follows from the state.
    pub(crate) fn encode(&self, model: &dyn Model) -> Encoded {
        model.encode(&request_with(self.lock().state(), &|image| self.pictures.find(image)))
    }

    pub(crate) fn read<T>(&self, look: impl FnOnce(&SessionState) -> T) -> T {
        look(self.lock().state())
    }
}
