//! Anthropic Messages, and the servers that imitate it.
//!
//! [`encode`] writes a request so that it only grows; [`decode`] reads what servers really send. The provider's own tools
//! are never offered; what an answer holds of them is returned as it came.

pub mod decode;
pub mod encode;

use futures_util::future::BoxFuture;
use mainstay_session::request::Request;
use tokio_util::sync::CancellationToken;

use crate::http::{Auth, Endpoint};
use crate::model::{Attempt, Delta, Encoded, Model};
use crate::settings::{ModelSettings, SettingsError};

/// The name of this wire format in the configuration.
pub const API: &str = "anthropic";

/// The version of the wire format (<https://platform.claude.com/docs/en/api/versioning>).
const VERSION: &str = "2023-06-01";

/// A model behind a server that speaks Anthropic Messages.
pub struct AnthropicModel {
    name: String,
    settings: ModelSettings,
    endpoint: Endpoint,
}

impl AnthropicModel {
    /// Makes the model. Connects to nothing yet.
    ///
    /// The key goes into the header `x-api-key`; a header of the settings may say another `anthropic-version`. Fails where
    /// the address, a header or the key cannot be used.
    pub fn new(settings: ModelSettings) -> Result<Self, SettingsError> {
        let endpoint = Endpoint::new(&settings, "messages", Auth::Header("x-api-key"))?
            .with_header("anthropic-version", VERSION);
        Ok(AnthropicModel { name: format!("{}/{}", settings.provider, settings.name), settings, endpoint })
    }
}

impl Model for AnthropicModel {
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
        Box::pin(self.endpoint.ask(&request.body, decode::AnthropicDecoder::default(), on_delta, cancel))
    }
}
