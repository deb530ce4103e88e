//! Google's Gemini API, `streamGenerateContent`.
//!
//! [`decode`] reads what the servers of Google really send.

pub mod decode;

/// The name of this wire format in the configuration.
pub const API: &str = "gemini";
