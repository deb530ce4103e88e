//! Turns an append-only log into the state of a session and the request that follows from it.
//!
//! The log is the only truth. [`state::SessionState::apply`] is the only way state changes, live and on replay;
//! [`request`] says what follows from a state; [`log`] alone touches files. Nothing here is asynchronous, and nothing
//! reads the network, the terminal, the environment or a clock.

pub mod entry;
pub mod ids;
pub mod message;
pub mod plan;
pub mod arguments;
pub mod request;
pub mod state;
