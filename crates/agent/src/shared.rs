//! The session's log as the parts of an agent share it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use mainstay_model::{Encoded, Model};
use mainstay_session::entry::{Body, Lane};
use mainstay_session::ids::Seq;
use mainstay_session::log::{AppendError, Log, NextSegment, Taken};
use mainstay_session::request::request_with;
use mainstay_session::state::SessionState;

use crate::event::Event;
use crate::occupancy::occupancy;
use crate::pictures::SessionPictures;
use crate::setup::{Clock, Setup};

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

    /// A handle that does not keep the session open.
    pub(crate) fn downgrade(&self) -> WeakLog {
        let SharedLog { log, pictures, clock } = self;
        WeakLog { log: Arc::downgrade(log), pictures: pictures.clone(), clock: clock.clone() }
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

    /// As [`SharedLog::append`], in any lane.
    pub(crate) fn append_in(&self, lane: Lane, body: Body) -> Result<Seq, AppendError> {
        let now = (self.clock)();
        self.lock().append_in(lane, body, now)
    }

    /// Writes `history.json` anew. It is derived: what cannot be written now is written at the end of the next turn.
    pub(crate) fn write_history(&self, setup: &Setup) {
        let written = self.lock().write_history();
        if let Err(error) = written {
            (setup.on_event)(&Event::Warning(format!("history.json is not up to date: {error}")));
        }
    }

    /// Begins the next segment.
    pub(crate) fn next_segment(&self, opening: NextSegment, rest: Vec<Body>) -> Result<(), AppendError> {
        let now = (self.clock)();
        self.lock().next_segment(opening, rest, now)
    }

    /// The request that follows from the session's state, and how full the window is with it, in tokens.
    pub(crate) fn measured(&self, model: &dyn Model) -> (Encoded, u64) {
        self.measured_of(self.lock().state(), model)
    }

    /// The request that follows from a state of this session, and how full the window is with it.
    pub(crate) fn measured_of(&self, state: &SessionState, model: &dyn Model) -> (Encoded, u64) {
        let request = request_with(state, &|image| self.pictures.find(image));
        let encoded = model.encode(&request);
        let occupancy = occupancy(state, &encoded.body, model.context_window());
        (encoded, occupancy)
    }

    pub(crate) fn read<T>(&self, look: impl FnOnce(&SessionState) -> T) -> T {
        look(self.lock().state())
    }
}

/// A log that is there as long as its agent is.
pub(crate) struct WeakLog {
    log: Weak<Mutex<Log>>,
    pictures: SessionPictures,
    clock: Clock,
}

impl WeakLog {
    /// The log, unless its agent is gone.
    pub(crate) fn upgrade(&self) -> Option<SharedLog> {
        let log = self.log.upgrade()?;
        Some(SharedLog { log, pictures: self.pictures.clone(), clock: self.clock.clone() })
    }
}
