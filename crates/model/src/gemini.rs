//! Google's Gemini API, `streamGenerateContent`.
//!
//! [`encode`] writes a request so that it only grows; [`decode`] reads what Google's servers really send. The older
//! `v1beta` and Vertex AI differ in the address alone.

pub mod decode;
pub mod encode;

use mainstay_session::request::Request;

use crate::http::Route;
use crate::model::Encoded;
use crate::served::{Served, WireFormat};
use crate::settings::ModelSettings;

/// The name of this wire format in the configuration.
pub const API: &str = "gemini";

/// The wire format.
pub struct Gemini;

/// A model behind a server that speaks Gemini's API.
pub type GeminiModel = Served<Gemini>;

impl WireFormat for Gemini {
    const API: &'static str = API;

    type Decoder = decode::GeminiDecoder;

    fn route(settings: &ModelSettings) -> Route {
        // A name with a slash (`tunedModels/NAME`) stands for itself.
        let folder = if settings.name.contains('/') { "" } else { "models/" };
        Route {
            path: format!("{folder}{}:streamGenerateContent", settings.name),
            query: Some("alt=sse"),
            key_header: Some("x-goog-api-key"),
            header: None,
        }
    }

    fn encode(model: &str, settings: &ModelSettings, request: &Request<'_>) -> Encoded {
        encode::encode(model, settings, request)
    }

    fn units(model: &str, settings: &ModelSettings, request: &Request<'_>) -> Vec<Vec<u8>> {
        encode::units(model, settings, request)
    }
}
