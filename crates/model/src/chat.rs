//! OpenAI Chat Completions, and the many servers that imitate it.
//!
//! [`encode`] writes a request so that it only grows; [`decode`] reads what servers really send. Calls that a local
//! model writes as text are the matter of [`crate::text_calls`]; here text is text.

pub mod decode;
pub mod encode;

use mainstay_session::request::Request;

use crate::http::Route;
use crate::model::Encoded;
use crate::served::{Served, WireFormat};
use crate::settings::ModelSettings;

/// The name of this wire format in the configuration.
pub const API: &str = "openai-chat";

/// The wire format.
pub struct Chat;

/// A model behind a server that speaks Chat Completions.
pub type ChatModel = Served<Chat>;

impl WireFormat for Chat {
    const API: &'static str = API;

    type Decoder = decode::ChatDecoder;

    fn route(_settings: &ModelSettings) -> Route {
        Route { path: "chat/completions".to_owned(), ..Route::default() }
    }

    fn encode(model: &str, settings: &ModelSettings, request: &Request<'_>) -> Encoded {
        encode::encode(model, settings, request)
    }

    fn units(model: &str, settings: &ModelSettings, request: &Request<'_>) -> Vec<Vec<u8>> {
        encode::units(model, settings, request)
    }
}
