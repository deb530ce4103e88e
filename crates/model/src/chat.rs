//! OpenAI Chat Completions, and the many servers that imitate it.
//!
//! [`encode`] writes a request so that it only grows; [`decode`] reads what servers really send. Calls that a local
//! model writes as text are not looked for here: text is text until a setting says otherwise.

pub mod decode;
pub mod encode;

use futures_util::future::BoxFuture;
use mainstay_session::request::Request;
use tokio_util::sync::CancellationToken;

use crate::http::{Auth, Endpoint};
use crate::model::{Attempt, Delta, Encoded, Model};
use crate::settings::{ModelSettings, SettingsError};

/// The name of this wire format in the configuration.
pub const API: &str = "openai-chat";

/// A model behind a server that speaks Chat Completions.
pub struct ChatModel {
    name: String,
    settings: ModelSettings,
    endpoint: Endpoint,
}

impl ChatModel {
    /// Makes the model. Connects to nothing yet.
    ///
    /// Fails where the address, a header or the key cannot be used.
    pub fn new(settings: ModelSettings) -> Result<Self, SettingsError> {
        let endpoint = Endpoint::new(&settings, "chat/completions", Auth::Bearer)?;
        Ok(ChatModel { name: format!("{}/{}", settings.provider, settings.name), settings, endpoint })
    }
}

impl Model for ChatModel {
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
        Box::pin(self.endpoint.ask(&request.body, decode::ChatDecoder::default(), on_delta, cancel))
    }
}
