//! OpenAI Responses, and the servers that imitate it.
//!
//! [`encode`] writes a request so that it only grows; [`decode`] reads the typed events of an answer and keeps what must
//! go back unchanged. Nothing is stored at the provider and nothing is referred to by its id there: each request tells
//! the whole conversation.

mod items;
pub mod decode;
pub mod encode;

use futures_util::future::BoxFuture;
use mainstay_session::request::Request;
use tokio_util::sync::CancellationToken;

use crate::http::{Auth, Endpoint};
use crate::model::{Attempt, Delta, Encoded, Model};
use crate::settings::{ModelSettings, SettingsError};

/// The name of this wire format in the configuration.
pub const API: &str = "openai-responses";

/// A model behind a server that speaks Responses.
pub struct ResponsesModel {
    name: String,
    settings: ModelSettings,
    endpoint: Endpoint,
}

impl ResponsesModel {
    /// Makes the model. Connects to nothing yet.
    ///
    /// Fails where the address, a header or the key cannot be used.
    pub fn new(settings: ModelSettings) -> Result<Self, SettingsError> {
        let endpoint = Endpoint::new(&settings, "responses", Auth::Bearer)?;
        Ok(ResponsesModel { name: format!("{}/{}", settings.provider, settings.name), settings, endpoint })
    }
}

impl Model for ResponsesModel {
    fn name(&self) -> &str {
        &self.name
    }

    fn api(&self) -> &str {
        API
    }

    fn context_window(&self) -> u64 {
        self.settings.context_window
    }

    fn takes_images(&self) -> bool {
        self.settings.images
    }

    fn effort(&self) -> Option<&str> {
        self.settings.effort.as_deref()
    }

    fn encode(&self, request: &Request<'_>) -> Encoded {
        encode::encode(&self.name, &self.settings, request)
    }

    fn units(&self, request: &Request<'_>) -> Vec<Vec<u8>> {
        encode::units(&self.name, &self.settings, request)
    }

    fn stream<'a>(
        &'a self,
        request: &'a Encoded,
        on_delta: &'a mut (dyn FnMut(Delta<'_>) + Send),
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Attempt> {
        Box::pin(self.endpoint.ask(&request.body, decode::ResponsesDecoder::default(), on_delta, cancel))
    }
}
