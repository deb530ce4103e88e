//! A clock that stands still until it is moved.

use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;

/// A clock for tests. Clones show the same time.
#[derive(Clone, Debug)]
pub struct FixedClock(Arc<Mutex<Timestamp>>);

impl FixedClock {
    /// A clock that shows this time.
    pub fn at(time: Timestamp) -> Self {
        FixedClock(Arc::new(Mutex::new(time)))
    }

    /// The time it shows.
    pub fn now(&self) -> Timestamp {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves it forward.
    pub fn step(&self, seconds: i64) {
        let mut time = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *time += jiff::SignedDuration::from_secs(seconds);
    }

    /// The clock as a function, as an agent is given it.
    pub fn as_fn(&self) -> Arc<dyn Fn() -> Timestamp + Send + Sync> {
        let clock = self.clone();
        Arc::new(move || clock.now())
    }
}

impl Default for FixedClock {
    fn default() -> Self {
        FixedClock::at(Timestamp::from_millisecond(1_796_029_200_125).unwrap_or_default())
    }
}
