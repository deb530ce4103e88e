//! Streams one answer for one request from one provider.
//!
//! A [`Model`] turns a provider-neutral [`Request`](mainstay_session::request::Request) into bytes and the provider's
//! stream into an [`Attempt`]. It keeps no history, knows no tool's code and never retries: the loop decides that, and
//! logs every attempt.

pub mod model;
pub mod retry;

pub use model::{Attempt, Delta, Encoded, Model};
