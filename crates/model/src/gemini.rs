//! Google's Gemini API, `streamGenerateContent`.
//!
//! [`encode`] writes a request so that it only grows; [`decode`] reads what Google's servers really send. The older
//! `v1beta` and Vertex AI differ in the address alone.

pub mod decode;
pub mod encode;

use futures_util::future::BoxFuture;
use mainstay_session::request::Request;
use tokio_util::sync::CancellationToken;

use crate::http::{Auth, Endpoint};
use crate::model::{Attempt, Delta, Encoded, Model};
use crate::settings::{ModelSettings, SettingsError};

/// The name of this wire format in the configuration.
pub const API: &str = "gemini";

/// A model behind a server that speaks Gemini's API.
pub struct GeminiModel {
    name: String,
    settings: ModelSettings,
    endpoint: Endpoint,
}

impl GeminiModel {
    /// Makes the model. Connects to nothing yet. A name with a slash (`tunedModels/NAME`) stands for itself; any other is
    /// one of `models/`.
    ///
    /// Fails where the address, a header or the key cannot be used.
    pub fn new(settings: ModelSettings) -> Result<Self, SettingsError> {
        let folder = if settings.name.contains('/') { "" } else { "models/" };
        let path = format!("{folder}{}:streamGenerateContent", settings.name);
        let endpoint = Endpoint::new(&settings, &path, Auth::Header("x-goog-api-key"))?.with_query("alt=sse");
        Ok(GeminiModel { name: format!("{}/{}", settings.provider, settings.name), settings, endpoint })
    }
}

impl Model for GeminiModel {
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
        Box::pin(self.endpoint.ask(&request.body, decode::GeminiDecoder::default(), on_delta, cancel))
    }
}
