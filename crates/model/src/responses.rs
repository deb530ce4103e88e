//! OpenAI Responses, and the servers that imitate it.
//!
//! [`decode`] reads the typed events of an answer and keeps what must go back unchanged. Nothing is stored at the
//! provider and nothing is referred to by its id there: each request tells the whole conversation.

mod items;
pub mod decode;
