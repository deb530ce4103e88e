//! A model behind a server, whichever wire format the server speaks.

use std::marker::PhantomData;

use futures_util::future::BoxFuture;
use mainstay_session::request::Request;
use tokio_util::sync::CancellationToken;

use crate::decoder::Decoder;
use crate::http::{Endpoint, Route};
use crate::model::{Attempt, Delta, Encoded, Model};
use crate::settings::{ModelSettings, SettingsError, TextCallRule};

/// What differs from one wire format to the next.
pub trait WireFormat: Send + Sync + 'static {
    /// The format's name in the configuration.
    const API: &'static str;

    /// Reads its answers.
    type Decoder: Decoder + Default;

    /// The way below the settings' address.
    fn route(settings: &ModelSettings) -> Route;

    /// Writes the request for the model that is called `model` in the log; see [`Model::encode`].
    fn encode(model: &str, settings: &ModelSettings, request: &Request<'_>) -> Encoded;

    /// The units of that request; see [`Model::units`].
    fn units(model: &str, settings: &ModelSettings, request: &Request<'_>) -> Vec<Vec<u8>>;
}

/// A model behind a server that speaks `F`.
pub struct Served<F> {
    name: String,
    settings: ModelSettings,
    endpoint: Endpoint,
    format: PhantomData<F>,
}

impl<F: WireFormat> Served<F> {
    /// Makes the model. Connects to nothing yet.
    ///
    /// # Errors
    ///
    /// If the address, a header, a certificate or the key cannot be used.
    pub fn new(settings: ModelSettings) -> Result<Self, SettingsError> {
        let endpoint = Endpoint::new(&settings, &F::route(&settings))?;
        let name = format!("{}/{}", settings.provider, settings.name);
        Ok(Served { name, settings, endpoint, format: PhantomData })
    }
}

impl<F: WireFormat> Model for Served<F> {
    fn name(&self) -> &str {
        &self.name
    }

    fn api(&self) -> &str {
        F::API
    }

    fn context_window(&self) -> u64 {
        self.settings.context_window
    }

    fn takes_images(&self) -> bool {
        self.settings.images
    }

    fn text_calls(&self) -> TextCallRule {
        self.settings.text_call_rule()
    }

    fn effort(&self) -> Option<&str> {
        self.settings.effort.as_deref()
    }

    fn encode(&self, request: &Request<'_>) -> Encoded {
        F::encode(&self.name, &self.settings, request)
    }

    fn units(&self, request: &Request<'_>) -> Vec<Vec<u8>> {
        F::units(&self.name, &self.settings, request)
    }

    fn stream<'a>(
        &'a self,
        request: &'a Encoded,
        on_delta: &'a mut (dyn FnMut(Delta<'_>) + Send),
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Attempt> {
        Box::pin(self.endpoint.ask(&request.body, F::Decoder::default(), on_delta, cancel))
    }
}
