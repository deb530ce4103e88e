//! OpenAI Responses, and the servers that imitate it.
//!
//! [`encode`] writes a request so that it only grows; [`decode`] reads the typed events of an answer and keeps what must
//! go back unchanged. Nothing is stored at the provider and nothing is referred to by its id there: each request tells
//! the whole conversation.

mod items;
pub mod decode;
pub mod encode;

use mainstay_session::request::Request;

use crate::http::Route;
use crate::model::Encoded;
use crate::served::{Served, WireFormat};
use crate::settings::ModelSettings;

/// The name of this wire format in the configuration.
pub const API: &str = "openai-responses";

/// The wire format.
pub struct Responses;

/// A model behind a server that speaks Responses.
pub type ResponsesModel = Served<Responses>;

impl WireFormat for Responses {
    const API: &'static str = API;

    type Decoder = decode::ResponsesDecoder;

    fn route(_settings: &ModelSettings) -> Route {
        Route { path: "responses".to_owned(), ..Route::default() }
    }

    fn encode(model: &str, settings: &ModelSettings, request: &Request<'_>) -> Encoded {
        encode::encode(model, settings, request)
    }

    fn units(model: &str, settings: &ModelSettings, request: &Request<'_>) -> Vec<Vec<u8>> {
        encode::units(model, settings, request)
    }
}
