//! Streams one answer for one request from one provider.
//!
//! A [`Model`] turns a provider-neutral [`Request`](mainstay_session::request::Request) into bytes and the provider's
//! stream into an [`Attempt`]. It keeps no history, knows no tool's code and never retries: the loop decides that with
//! [`retry`], and logs every attempt.
//!
//! A wire format is a module with an encoder and a [`decoder::Decoder`] ([`chat`] is one); framing, error
//! classification, the way to a provider and the hashing of units are shared. Calls that came as text are read by
//! [`text_calls`].

pub mod settings;
pub mod model;
pub mod retry;
pub mod units;
mod raw;
pub mod text_calls;
mod delay;
pub mod failure;
mod sse;
pub mod decoder;
mod http;
mod json;
mod call_ids;
pub mod served;
pub mod chat;
pub mod gemini;
pub mod responses;
pub mod anthropic;
pub mod script;

pub use anthropic::AnthropicModel;
pub use chat::ChatModel;
pub use gemini::GeminiModel;
pub use http::Route;
pub use model::{Attempt, Delta, Encoded, Model};
pub use responses::ResponsesModel;
pub use script::{ScriptError, ScriptModel};
pub use settings::{ModelSettings, Secret, SettingsError, TextCallRule, TextCalls, is_proxy};
