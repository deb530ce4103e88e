//! Anthropic Messages.
//!
//! [`decode`] reads what servers really send.

pub mod decode;
