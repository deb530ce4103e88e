//! Turns an append-only log into the state of a session and the request that follows from it.
//!
//! The log is the only truth. [`state::SessionState::apply`] is the only way state changes, live and on replay;
//! [`request`] says what follows from a state; [`log`] alone touches files. Nothing here is asynchronous, and nothing
//! reads the network, the terminal, the environment or a clock.

pub mod ids;
pub mod lookalike;
pub mod plan;
pub mod arguments;
pub mod message;
pub mod conversation;
pub mod attention;
pub mod idleness;
pub mod recent;
pub mod entry;
pub mod world;
pub mod state;
pub mod secrets;
pub mod compaction;
pub mod line;
pub mod request;
pub mod history;
#[doc(hidden)]
pub mod failpoint;
pub mod log;
