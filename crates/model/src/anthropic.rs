//! Anthropic Messages, and the servers that imitate it.
//!
//! [`encode`] writes a request so that it only grows; [`decode`] reads what servers really send. The provider's own tools
//! are never offered; what an answer holds of them is returned as it came.

pub mod decode;
pub mod encode;

use mainstay_session::request::Request;

use crate::http::Route;
use crate::model::Encoded;
use crate::served::{Served, WireFormat};
use crate::settings::ModelSettings;

/// The name of this wire format in the configuration.
pub const API: &str = "anthropic";

/// The version of the wire format (<https://platform.claude.com/docs/en/api/versioning>).
const VERSION: &str = "2023-06-01";

/// The wire format.
pub struct Anthropic;

/// A model behind a server that speaks Anthropic Messages.
pub type AnthropicModel = Served<Anthropic>;

impl WireFormat for Anthropic {
    const API: &'static str = API;

    type Decoder = decode::AnthropicDecoder;

    fn route(_settings: &ModelSettings) -> Route {
        Route {
            path: "messages".to_owned(),
            key_header: Some("x-api-key"),
            header: Some(("anthropic-version", VERSION)),
            query: None,
        }
    }

    fn encode(model: &str, settings: &ModelSettings, request: &Request<'_>) -> Encoded {
        encode::encode(model, settings, request)
    }

    fn units(model: &str, settings: &ModelSettings, request: &Request<'_>) -> Vec<Vec<u8>> {
        encode::units(model, settings, request)
    }
}
