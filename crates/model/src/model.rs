//! The seam between the loop and a provider.

use std::time::Duration;

use futures_util::future::BoxFuture;
use mainstay_session::message::{Content, Ended, Finish, RequestMark, Usage};
use mainstay_session::request::Request;
use tokio_util::sync::CancellationToken;

/// A model that answers requests.
pub trait Model: Send + Sync {
    /// How the model is named in logs: `provider/name`, or `script:FILE`.
    fn name(&self) -> &str;

    /// The wire format, by its name in the configuration (`openai-chat`, …).
    fn api(&self) -> &str;

    /// The size of the context window in tokens.
    fn context_window(&self) -> u64;

    /// Whether it looks at images.
    fn takes_images(&self) -> bool {
        false
    }

    /// How hard it is told to think, in the provider's words; nothing where that is left to the provider.
    fn effort(&self) -> Option<&str> {
        None
    }

    /// Encodes a request. Pure: the same request gives the same bytes, and a request that begins like another one
    /// gives units that begin like the other's.
    fn encode(&self, request: &Request<'_>) -> Encoded;

    /// The units that [`Model::encode`] counts and hashes, byte for byte, for whoever looks for the place where two requests
    /// part. Empty where a model cannot tell.
    fn units(&self, _request: &Request<'_>) -> Vec<Vec<u8>> {
        Vec::new()
    }

    /// Sends an encoded request once and collects the answer.
    ///
    /// Never fails and never panics: whatever goes wrong is in the attempt's [`Ended`], with what had come until then.
    /// `on_delta` sees pieces as they arrive, for display only. When `cancel` fires, the future resolves soon with
    /// [`Ended::Cancelled`] and what had come. Dropping the future closes the connection.
    fn stream<'a>(
        &'a self,
        request: &'a Encoded,
        on_delta: &'a mut (dyn FnMut(Delta<'_>) + Send),
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Attempt>;
}

/// A request as one provider wants it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// The body to send.
    pub body: Vec<u8>,
    /// What it consists of.
    pub mark: RequestMark,
}

/// A piece of an answer on its way, for display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delta<'a> {
    /// A piece of text for the user.
    Text(&'a str),
    /// A piece of reasoning.
    Reasoning(&'a str),
    /// The model began to write a call of this tool.
    CallStarted(&'a str),
}

/// What one attempt at an answer brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The blocks in order; where the attempt did not end in order, what had come until then.
    pub content: Vec<Content>,
    /// How the last block ended.
    pub finish: Finish,
    /// What the provider counted, if it said so.
    pub usage: Option<Usage>,
    /// How the attempt ended. Only after [`Ended::Complete`] may its calls run.
    pub ended: Ended,
    /// How long the provider asks to wait before another attempt, wherever it said so.
    pub retry_after: Option<Duration>,
}
