//! The way to a provider over HTTP: one request, one answer, however long it streams.
//!
//! Nothing is retried here and nothing is logged. The connection is kept for the next request where the answer ended in
//! order, and closed where the attempt was dropped, cancelled or stalled. Redirects are not followed, so that a key never
//! goes to another address than the configured one. Proxies are those of the environment, but never for this machine.

use std::error::Error;
use std::sync::OnceLock;
use std::time::Duration;

use jiff::Timestamp;
use mainstay_session::message::{Ended, ErrorClass};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Certificate, Client, Response, Url};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::decoder::{Close, Decoder, Feed, OnDelta, Progress};
use crate::delay::DelayHeaders;
use crate::failure::{self, Failure};
use crate::model::Attempt;
use crate::settings::{ModelSettings, Secret, SettingsError, is_loopback};

const FIRST_TOKEN_TIMEOUT: Duration = Duration::from_secs(600);
const IDLE_TIMEOUT: Duration = Duration::from_secs(120);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// How long counts may follow once the answer is whole, and the end of the stream once nothing more is announced.
const GRACE_AFTER_FINISH: Duration = Duration::from_secs(10);
const GRACE_AFTER_DONE: Duration = Duration::from_secs(1);

/// How much of an error's body is read, and for how long.
const ERROR_BODY_LIMIT: usize = 64 * 1024;
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// What is shorter stands in too many texts to be a secret.
const LEAST_SECRET: usize = 6;

/// What stands in the place of a secret.
const MASK: &str = "***";

/// How requests of a wire format get to a provider.
#[derive(Clone, Debug, Default)]
pub struct Route {
    /// What is added to the path of the settings' address.
    pub path: String,
    /// The query of the address.
    pub query: Option<&'static str>,
    /// The header that takes the key, in lower case; a bearer token where there is none.
    pub key_header: Option<&'static str>,
    /// A header that every request has, unless the settings say another value.
    pub header: Option<(&'static str, &'static str)>,
}

/// A token of text or code holds fewer bytes than this on average in any language.
const SURELY_BYTES_PER_TOKEN: u64 = 6;

/// An address that answers requests of one wire format.
pub(crate) struct Endpoint {
    provider: String,
    url: Url,
    shown_url: String,
    headers: HeaderMap,
    has_key: bool,
    secrets: Vec<Secret>,
    certificates: Vec<Certificate>,
    is_loopback: bool,
    context_window: u64,
    first_token_timeout: Option<Duration>,
    idle_timeout: Option<Duration>,
    /// Made for the first request: certificates take longer to load than all the rest of the start.
    client: OnceLock<Client>,
}

impl Endpoint {
    /// Prepares the way below the settings' address.
    pub(crate) fn new(settings: &ModelSettings, route: &Route) -> Result<Self, SettingsError> {
        let mut url = endpoint_url(settings, &route.path)?;
        if let Some(query) = route.query {
            url.set_query(Some(query));
        }
        let is_loopback = is_loopback(&url);
        let first = if is_loopback { Duration::ZERO } else { FIRST_TOKEN_TIMEOUT };
        Ok(Endpoint {
            provider: settings.provider.clone(),
            shown_url: shown(&url),
            headers: headers(settings, route)?,
            has_key: settings.key.is_some(),
            secrets: settings
                .key
                .iter()
                .chain(settings.headers.iter().map(|(_, value)| value))
                .cloned()
                .collect(),
            certificates: certificates(settings)?,
            is_loopback,
            context_window: settings.context_window,
            first_token_timeout: limit(settings.first_token_timeout.unwrap_or(first)),
            idle_timeout: limit(settings.idle_timeout.unwrap_or(IDLE_TIMEOUT)),
            client: OnceLock::new(),
            url,
        })
    }

    /// Sends a body and collects the answer. Never fails: see [`crate::model::Model::stream`].
    pub(crate) async fn ask<D: Decoder>(
        &self,
        body: &[u8],
        decoder: D,
        on_delta: &mut OnDelta<'_>,
        cancel: &CancellationToken,
    ) -> Attempt {
        let mut feed = Feed::new(decoder);
        let close = tokio::select! {
            biased;
            () = cancel.cancelled() => Close::Cancelled,
            close = self.exchange(body, &mut feed, on_delta, cancel) => close,
        };
        let mut attempt = feed.close(close, on_delta);
        if let Ended::Failed { message, .. } = &mut attempt.ended {
            *message = self.without_secrets(message);
        }
        attempt
    }

    async fn exchange<D: Decoder>(
        &self,
        body: &[u8],
        feed: &mut Feed<D>,
        on_delta: &mut OnDelta<'_>,
        cancel: &CancellationToken,
    ) -> Close {
        let mut deadline = self.first_token_timeout.map(|limit| Instant::now() + limit);
        let client = match self.client() {
            Ok(client) => client,
            Err(failure) => return Close::Failed(failure),
        };
        let sending = client.post(self.url.clone()).headers(self.headers.clone()).body(body.to_vec()).send();
        let mut response = match within(deadline, sending).await {
            Some(Ok(response)) => response,
            Some(Err(error)) => return Close::Failed(self.unreachable(error)),
            None => return Close::Failed(self.never_began()),
        };
        if !response.status().is_success() {
            return Close::Failed(self.refusal(response, body).await);
        }
        if header(response.headers(), "content-type").is_some_and(|kind| kind.starts_with("text/html")) {
            return Close::Failed(self.page());
        }
        loop {
            // A server that never pauses gives nobody else a turn.
            if cancel.is_cancelled() {
                return Close::Cancelled;
            }
            let chunk = match within(deadline, response.chunk()).await {
                Some(Ok(Some(chunk))) => chunk,
                Some(Ok(None)) => return Close::End,
                Some(Err(error)) => return Close::Failed(self.broken(&error)),
                None => return self.after_silence(feed.progress()),
            };
            let brought = feed.push(&chunk, on_delta);
            if feed.is_page() {
                return Close::Failed(self.page());
            }
            if feed.is_too_long() {
                return Close::End;
            }
            deadline = self.next_deadline(deadline, brought);
            // What is always ready never runs into a time limit by itself.
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return self.after_silence(feed.progress());
            }
        }
    }

    /// Pings do not move the deadline; the end of the answer draws it near.
    fn next_deadline(&self, deadline: Option<Instant>, brought: Progress) -> Option<Instant> {
        let now = Instant::now();
        match brought {
            Progress::Nothing => deadline,
            Progress::Content => self.idle_timeout.map(|limit| now + limit),
            Progress::Finished => Some(now + GRACE_AFTER_FINISH),
            Progress::Done => Some(now + GRACE_AFTER_DONE),
        }
    }

    fn after_silence(&self, progress: Progress) -> Close {
        match progress {
            Progress::Nothing => Close::Failed(self.never_began()),
            Progress::Content => Close::Failed(self.stalled("idle_timeout", self.idle_timeout)),
            Progress::Finished | Progress::Done => Close::End,
        }
    }

    fn client(&self) -> Result<&Client, Failure> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let client = self.new_client().map_err(|error| {
            let message = format!("no HTTP client for {}: {}", self.shown_url, root(&error));
            Failure::new(ErrorClass::Network, message)
        })?;
        Ok(self.client.get_or_init(|| client))
    }

    /// What a response says that is no answer.
    async fn refusal(&self, mut response: Response, sent: &[u8]) -> Failure {
        let status = response.status().as_u16();
        let headers = delay_headers(response.headers());
        let location = header(response.headers(), "location");
        let mut body = Vec::new();
        let until = Some(Instant::now() + ERROR_BODY_TIMEOUT);
        while let Some(Ok(Some(chunk))) = within(until, response.chunk()).await {
            body.extend_from_slice(&chunk);
            if body.len() > ERROR_BODY_LIMIT {
                break;
            }
        }
        let body = String::from_utf8_lossy(&body);
        let mut failure = failure::of_response(status, &headers, &body, Timestamp::now());
        failure.message = format!("{} answered {}", self.shown_url, failure.message);
        if failure.class == ErrorClass::Rate && self.exceeds_window(sent) {
            failure.class = ErrorClass::Overflow;
            failure.message.push_str("; the request is larger than the model's context window");
        }
        failure.message.push_str(&self.hint(status, failure.class, location.as_deref()));
        failure
    }

    /// Whether a request is surely too large for the model: some providers count one against the tokens of a minute
    /// before they look at its size, and call it a rate limit.
    fn exceeds_window(&self, body: &[u8]) -> bool {
        let strings = body.split(|byte| *byte == b'"').filter(|string| !is_base64(string));
        let bytes: usize = strings.map(<[u8]>::len).sum();
        bytes as u64 / SURELY_BYTES_PER_TOKEN > self.context_window
    }

    fn page(&self) -> Failure {
        let message = format!(
            "{} answered with a web page; check that base_url of provider `{}` ends with the version, such as /v1",
            self.shown_url, self.provider
        );
        Failure::new(ErrorClass::BadRequest, message)
    }

    /// What to check, where the status tells.
    fn hint(&self, status: u16, class: ErrorClass, location: Option<&str>) -> String {
        let provider = &self.provider;
        match (status, class) {
            (_, ErrorClass::Credentials) if self.has_key || self.headers.contains_key(AUTHORIZATION) => {
                format!("; check the key of provider `{provider}`")
            }
            (_, ErrorClass::Credentials) => format!("; provider `{provider}` has no key configured"),
            (300..400, _) => {
                let to = location.map(|location| format!(" to {location}")).unwrap_or_default();
                format!(
                    "; redirects{to} are not followed: set base_url of provider `{provider}` to the final address"
                )
            }
            (404 | 405, _) => {
                let other = match self.url.path().ends_with("/responses") {
                    true => "; a server that knows Chat Completions alone wants api = \"openai-chat\"",
                    false => "",
                };
                format!(
                    "; check the model's name, and that base_url of provider `{provider}` ends with the version, such as /v1, and holds nothing behind it{other}"
                )
            }
            _ => String::new(),
        }
    }

    /// Says what failed and no more: such a failure is retried, and its text is shown each time.
    fn unreachable(&self, error: reqwest::Error) -> Failure {
        let what = if error.is_connect() { "cannot reach" } else { "lost the connection to" };
        let cause = root(&error.without_url());
        let hint = self.mismatch(&cause).unwrap_or_default();
        Failure::new(ErrorClass::Network, format!("{what} {}: {cause}{hint}", self.shown_url))
    }

    /// What to change, where the address and the server do not speak the same protocol.
    fn mismatch(&self, cause: &str) -> Option<&'static str> {
        match self.url.scheme() {
            "https"
                if cause.contains("InvalidContentType")
                    || (self.is_loopback && cause.contains("tls handshake eof")) =>
            {
                Some("; the server does not speak TLS there: base_url must begin with http://")
            }
            "http" if cause.contains("invalid HTTP version") => {
                Some("; the server does not speak plain HTTP there: base_url may have to begin with https://")
            }
            _ if cause.contains("invalid peer certificate") => Some(
                "; this machine does not trust the server's certificate: name the authority's in ca_certificates",
            ),
            _ => None,
        }
    }

    fn broken(&self, error: &reqwest::Error) -> Failure {
        Failure::cut(format!("the connection to {} broke off: {}", self.shown_url, root(error)))
    }

    fn never_began(&self) -> Failure {
        self.stalled("first_token_timeout", self.first_token_timeout)
    }

    fn stalled(&self, setting: &str, limit: Option<Duration>) -> Failure {
        let seconds = limit.unwrap_or_default().as_secs_f64();
        let provider = &self.provider;
        Failure::cut(format!(
            "{} sent nothing of an answer for {seconds} s ({setting} of provider `{provider}`)",
            self.shown_url
        ))
    }

    /// Providers quote keys in their errors. A message that is cut off may end with a part of one.
    fn without_secrets(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in self.secrets.iter().map(Secret::reveal).filter(|secret| secret.len() >= LEAST_SECRET) {
            text = text.replace(secret, MASK);
            let Some(whole) = text.strip_suffix('…') else { continue };
            let parts = (LEAST_SECRET..secret.len()).rev().filter_map(|len| secret.get(..len));
            if let Some(rest) = parts.into_iter().find_map(|part| whole.strip_suffix(part)) {
                text = format!("{rest}{MASK}…");
            }
        }
        text
    }

    /// Plain HTTP gets a TLS setup without any certificate, which costs nothing; loading the system's takes longer than
    /// the whole rest of the start. They are those of the system, or those that `SSL_CERT_FILE` and `SSL_CERT_DIR` name.
    fn new_client(&self) -> Result<Client, reqwest::Error> {
        let mut builder = Client::builder()
            .user_agent(concat!("mainstay/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_nodelay(true);
        if self.is_loopback {
            builder = builder.no_proxy();
        }
        if self.url.scheme() == "https" {
            // Another part of the program may have installed one already, which is as good.
            let _ = rustls::crypto::ring::default_provider().install_default();
            builder = builder.tls_certs_merge(self.certificates.iter().cloned());
        } else if let Some(tls) = tls_without_certificates() {
            builder = builder.tls_backend_preconfigured(tls);
        }
        builder.build()
    }
}

/// Whether a string of a body holds an image or a signature, whose tokens do not follow from its length.
fn is_base64(string: &[u8]) -> bool {
    let data = string.rsplit(|byte| *byte == b',').next().unwrap_or_default();
    data.len() > 200 && data.iter().all(|byte| byte.is_ascii_alphanumeric() || b"+/-_=".contains(byte))
}

/// Waits for something, but not beyond the deadline.
async fn within<T>(deadline: Option<Instant>, future: impl Future<Output = T>) -> Option<T> {
    match deadline {
        Some(deadline) => tokio::time::timeout_at(deadline, future).await.ok(),
        None => Some(future.await),
    }
}

fn limit(limit: Duration) -> Option<Duration> {
    (!limit.is_zero()).then_some(limit)
}

/// The certificates of the settings. A text without any is a mistake, and one that cannot be read is too.
fn certificates(settings: &ModelSettings) -> Result<Vec<Certificate>, SettingsError> {
    if settings.ca_certificates.is_empty() {
        return Ok(Vec::new());
    }
    let refused = |why: String| SettingsError::Certificates { provider: settings.provider.clone(), why };
    let found = Certificate::from_pem_bundle(&settings.ca_certificates)
        .map_err(|error| refused(format!("they are not PEM: {}", root(&error))))?;
    match found.is_empty() {
        true => Err(refused("there is no `BEGIN CERTIFICATE` in the file".to_owned())),
        false => Ok(found),
    }
}

fn tls_without_certificates() -> Option<rustls::ClientConfig> {
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config =
        rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().ok()?;
    Some(config.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth())
}

fn endpoint_url(settings: &ModelSettings, path: &str) -> Result<Url, SettingsError> {
    let refused = |url: &str, why: String| SettingsError::Address {
        provider: settings.provider.clone(),
        url: url.to_owned(),
        why,
    };
    let mut url = Url::parse(&settings.base_url).map_err(|error| {
        let shown = if settings.base_url.contains('@') { "…" } else { &settings.base_url };
        refused(shown, error.to_string())
    })?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(refused(&shown(&url), format!("its scheme is `{}`", url.scheme())));
    }
    url.set_path(&format!("{}/{path}", url.path().trim_end_matches('/')));
    Ok(url)
}

/// The address without what may be secret in it.
fn shown(url: &Url) -> String {
    let mut url = url.clone();
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.set_fragment(None);
    url.to_string()
}

fn headers(settings: &ModelSettings, route: &Route) -> Result<HeaderMap, SettingsError> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(key) = &settings.key {
        let (name, value) = match route.key_header {
            None => (AUTHORIZATION, format!("Bearer {}", key.reveal())),
            Some(name) => (HeaderName::from_static(name), key.reveal().to_owned()),
        };
        let value =
            secret_value(&value).ok_or_else(|| SettingsError::Key { provider: settings.provider.clone() })?;
        headers.insert(name, value);
    }
    for (name, value) in &settings.headers {
        let refused = || SettingsError::Header { provider: settings.provider.clone(), name: name.clone() };
        let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| refused())?;
        headers.insert(header, secret_value(value.reveal()).ok_or_else(refused)?);
    }
    if let Some((name, value)) = route.header {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    Ok(headers)
}

fn secret_value(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

fn delay_headers(headers: &HeaderMap) -> DelayHeaders {
    DelayHeaders {
        retry_after: header(headers, "retry-after"),
        retry_after_ms: header(headers, "retry-after-ms"),
        reset: header(headers, "x-ratelimit-reset"),
        date: header(headers, "date"),
    }
}

fn header(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name)?.to_str().ok().map(str::to_owned)
}

/// The innermost cause, which says what happened; those around it say that something did.
fn root(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_masked_whole_and_where_a_message_was_cut_in_it() {
        let mut settings = ModelSettings::new("p", "m", "http://127.0.0.1:1/v1", 8_000);
        let key = "abcdefgh".repeat(2);
        settings.key = Some(Secret::new(&key));
        settings.headers = vec![("x-short".to_owned(), Secret::new("v1"))];
        let endpoint = Endpoint::new(&settings, &Route::default()).unwrap();
        for (text, expected) in [
            (format!("bad {key}, {key}!"), "bad ***, ***!".to_owned()),
            ("at /v1/x".to_owned(), "at /v1/x".to_owned()),
            (format!("bad {}…", &key[..9]), "bad ***…".to_owned()),
            (format!("bad {}…", &key[..5]), format!("bad {}…", &key[..5])),
            (format!("bad {}", &key[..9]), format!("bad {}", &key[..9])),
            (format!("bad {key}…"), "bad ***…".to_owned()),
        ] {
            assert_eq!(endpoint.without_secrets(&text), expected);
        }
    }
}
