//! What a provider's error means: which class it is, what it says, and how long it asks to wait.
//!
//! Providers agree on little: the same failure comes with different statuses, types and codes. The text is looked at
//! where the status misleads: a prompt too large for the window that comes as 429, a bad key that comes as 400.

use std::time::Duration;

use jiff::Timestamp;
use mainstay_session::arguments::clean_surrogates;
use mainstay_session::message::{Ended, ErrorClass};
use serde_json::Value;

use crate::delay::{self, DelayHeaders};

/// How much of a provider's text is kept, in characters.
const MESSAGE_LIMIT: usize = 600;

/// Why an attempt failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What kind of failure it is.
    pub class: ErrorClass,
    /// What happened, for a person to read.
    pub message: String,
    /// How long the provider asks to wait.
    pub retry_after: Option<Duration>,
}

impl Failure {
    /// A failure that names no delay.
    pub fn new(class: ErrorClass, message: impl Into<String>) -> Self {
        Failure { class, message: message.into(), retry_after: None }
    }

    /// The stream ended, or became unreadable, before the answer did.
    pub(crate) fn cut(message: impl Into<String>) -> Self {
        Failure::new(ErrorClass::CutStream, message)
    }
}

/// The failure of an attempt, if there is one. What fails behind the first one follows from it, and says less.
#[derive(Debug, Default)]
pub(crate) struct FirstFailure(Option<Failure>);

impl FirstFailure {
    /// Takes a failure, if it is the first.
    pub(crate) fn note(&mut self, failure: Failure) {
        self.0.get_or_insert(failure);
    }

    /// Takes a failure that says more than any before.
    pub(crate) fn replace(&mut self, failure: Failure) {
        self.0 = Some(failure);
    }

    /// Whether the attempt has failed.
    pub(crate) fn is_some(&self) -> bool {
        self.0.is_some()
    }

    /// How the attempt ended if it ends here.
    pub(crate) fn ended(&self) -> Ended {
        match &self.0 {
            Some(failure) => Ended::Failed { class: failure.class, message: failure.message.clone() },
            None => Ended::Complete,
        }
    }

    /// How long the provider asks to wait.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        self.0.as_ref().and_then(|failure| failure.retry_after)
    }
}

/// Reads the body of a response whose status says that it failed.
pub(crate) fn of_response(status: u16, headers: &DelayHeaders, body: &str, now: Timestamp) -> Failure {
    let report = Report::read(body, Some(status));
    let retry_after = headers.delay(now).or_else(|| report.delay(now));
    Failure { class: report.class(retry_after.is_some()), message: report.text(), retry_after }
}

/// Reads an error object from inside an answer that began in order.
pub(crate) fn of_object(json: &str, now: Timestamp) -> Failure {
    let report = Report::read(json, None);
    let retry_after = report.delay(now);
    Failure { class: report.class(retry_after.is_some()), message: report.text(), retry_after }
}

/// The beginning of a text on one line, for a message.
pub(crate) fn excerpt(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MESSAGE_LIMIT) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// An error as a provider reports it, in any of the envelopes seen.
struct Report {
    status: Option<u16>,
    kind: String,
    code: String,
    message: String,
    /// What Google says beside the message: reasons and the names of quotas.
    reasons: String,
    error: Value,
}

impl Report {
    fn read(body: &str, status: Option<u16>) -> Self {
        let outer = match serde_json::from_str(&clean_surrogates(body)) {
            Ok(Value::Array(items)) => items.into_iter().next().unwrap_or_default(),
            Ok(value) => value,
            Err(_) => Value::String(body.to_owned()),
        };
        // The envelope's own fields stand in where the inner error lacks them: xAI has `code` beside an `error` text.
        let inner = outer.get("error").filter(|error| !error.is_null()).unwrap_or(&outer);
        let field = |name: &str| inner.get(name).or_else(|| outer.get(name)).and_then(plain);
        let message = field("message").or_else(|| field("detail")).or_else(|| plain(inner));
        let message = page_title(body).or(message);
        let message = match (upstream(inner), message) {
            (Some(upstream), Some(message)) => Some(format!("{message}: {upstream}")),
            (upstream, message) => message.or(upstream),
        };
        let inner_status = inner.get("status").and_then(plain);
        let code = field("code").or_else(|| inner_status.clone()).unwrap_or_default();
        let http = |text: &String| text.parse().ok().filter(|code| (400..600).contains(code));
        Report {
            status: status
                .filter(|status| *status >= 300)
                .or_else(|| http(&code))
                .or_else(|| inner_status.as_ref().and_then(http)),
            kind: field("type").or(inner_status).unwrap_or_default(),
            code,
            message: message.unwrap_or_default(),
            reasons: reasons(inner),
            error: inner.clone(),
        }
    }

    fn delay(&self, now: Timestamp) -> Option<Duration> {
        delay::in_error(&self.error, &self.message, now)
    }

    fn text(&self) -> String {
        let said =
            if self.message.is_empty() { excerpt(&self.error.to_string()) } else { excerpt(&self.message) };
        match self.status {
            Some(status) => format!("HTTP {status}: {said}"),
            None => said,
        }
    }

    fn class(&self, names_delay: bool) -> ErrorClass {
        let text = format!("{} {} {} {}", self.kind, self.code, self.message, self.reasons).to_lowercase();
        let says = |signs: &[&str]| signs.iter().any(|sign| text.contains(sign));
        if says(OVERFLOW) || self.status == Some(413) || requests_more_than_the_limit(&text) {
            return ErrorClass::Overflow;
        }
        if says(REFUSED) {
            return ErrorClass::RefusedContent;
        }
        // Gemini calls every limit a quota, and names a delay even where the day's is used up.
        let comes_back = (names_delay || says(PER_MINUTE)) && !says(PER_DAY);
        if self.status == Some(402) || (says(QUOTA) && !comes_back) {
            return ErrorClass::Quota;
        }
        if matches!(self.status, Some(401 | 403)) || says(CREDENTIALS) {
            return ErrorClass::Credentials;
        }
        if self.status == Some(429) || says(RATE) {
            return ErrorClass::Rate;
        }
        // The model wrote a call that the provider's own check refused: another sample may pass.
        if says(&["tool_use_failed"]) {
            return ErrorClass::Overload;
        }
        match self.status {
            // A time-out, a clash with another request, too early, and Google's word for a request that it gave up.
            Some(408 | 409 | 425 | 499) => ErrorClass::Overload,
            // What a server cannot do it cannot do a second later either.
            Some(300..=499 | 501 | 505) => ErrorClass::BadRequest,
            Some(_) => ErrorClass::Overload,
            None if says(BAD_REQUEST) => ErrorClass::BadRequest,
            None => ErrorClass::Overload,
        }
    }
}

const OVERFLOW: &[&str] = &[
    "context_length",
    "context length",
    "exceed_context",
    "context size",
    "context window",
    "exceed context limit",
    "maximum context",
    "too_many_prompt_tokens",
    "prompt is too long",
    "prompt too long",
    "input is too long",
    "request too large",
    "request_too_large",
    "total length of all messages is too long",
    "exceeds the maximum number of tokens",
    "input token count",
];
const REFUSED: &[&str] = &[
    "content_filter",
    "content filter",
    "content management policy",
    "content_policy",
    "content policy",
    "responsibleai",
    "moderation",
    "data_inspection_failed",
];
const QUOTA: &[&str] = &[
    "insufficient_quota",
    "insufficient balance",
    "insufficient credit",
    "credit balance",
    "payment required",
    "billing",
    "quota exceeded",
    "exceeded your current quota",
];
const PER_MINUTE: &[&str] = &["per minute", "perminute", "per second", "persecond"];
const PER_DAY: &[&str] = &["perday", "per day"];
const CREDENTIALS: &[&str] = &[
    "invalid api key",
    "invalid_api_key",
    "incorrect api key",
    "api key not valid",
    "api key expired",
    "api_key_invalid",
    "authentication",
    "unauthorized",
    "permission_denied",
    "permission_error",
];
const RATE: &[&str] = &["rate limit", "rate_limit", "ratelimit", "too many requests", "resource_exhausted"];
const BAD_REQUEST: &[&str] = &["invalid_request", "invalid request", "not_found", "not found", "unsupported"];

/// Whether a refusal is about reasoning that the provider had signed or sealed itself, and does not take back: an altered or
/// expired signature, a key that was changed, a field that the model does not know.
pub fn refuses_reasoning(message: &str) -> bool {
    let text = message.to_lowercase();
    let names = |signs: &[&str]| signs.iter().any(|sign| text.contains(sign));
    if names(REASONING_SETTINGS) {
        return false;
    }
    names(&["thinking", "thought", "reasoning", "encrypted content", "encrypted_content"])
        && names(REASONING_FAULTS)
}

/// What a request asks of reasoning. A refusal of these is about a setting, and stays whatever is left out.
const REASONING_SETTINGS: &[&str] = &[
    "effort",
    "budget",
    "max_tokens",
    "reasoning.summary",
    "thinking.type",
    "thinking_level",
    "enable_thinking",
    "tool_choice",
];

const REASONING_FAULTS: &[&str] = &[
    "signature",
    "cannot be modified",
    "could not be verified",
    "could not be decrypted",
    "invalid_encrypted_content",
    "without its required following item",
    "unsupported",
    "not supported",
    "not permitted",
    "extra inputs",
    "unknown field",
    "unrecognized",
];

/// Whether a limit on tokens per minute is smaller than this one request, as in `Limit 30000, Requested 41000`.
fn requests_more_than_the_limit(text: &str) -> bool {
    let number_after = |word: &str| -> Option<u64> {
        let rest = text.get(text.find(word)? + word.len()..)?.trim_start_matches([':', ' ']);
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest[..end].parse().ok()
    };
    match (number_after("limit "), number_after("requested ")) {
        (Some(limit), Some(requested)) => text.contains("tokens") && requested > limit,
        _ => false,
    }
}

/// What the provider behind a gateway said (OpenRouter: `metadata.raw`, itself often JSON in a string).
fn upstream(error: &Value) -> Option<String> {
    let raw = match error.get("metadata")?.get("raw")? {
        Value::String(raw) => raw.clone(),
        other => other.to_string(),
    };
    let report = Report::read(&raw, None);
    Some(report.message).filter(|message| !message.trim().is_empty()).or(Some(raw))
}

fn reasons(error: &Value) -> String {
    let details = error.get("details").and_then(Value::as_array);
    let mut reasons = Vec::new();
    for detail in details.into_iter().flatten() {
        let violations = detail.get("violations").and_then(Value::as_array).into_iter().flatten();
        let quotas = violations.filter_map(|violation| violation.get("quotaId"));
        reasons.extend(detail.get("reason").into_iter().chain(quotas).filter_map(Value::as_str));
    }
    reasons.join(" ")
}

/// Whether a body is a web page, whatever its content type says. No answer of any wire format begins like one.
pub(crate) fn is_page(body: &str) -> bool {
    body.trim_start_matches('\u{feff}').trim_start().starts_with('<')
}

/// The title of a web page, which is all that a person can read of one in one line.
fn page_title(body: &str) -> Option<String> {
    if !is_page(body) {
        return None;
    }
    let lower = body.to_ascii_lowercase();
    let title = lower.find("<title").and_then(|start| {
        let start = start + lower[start..].find('>')? + 1;
        let end = start + lower[start..].find("</title")?;
        Some(body[start..end].trim()).filter(|title| !title.is_empty())
    });
    Some(title.map_or_else(|| "a web page".to_owned(), |title| format!("a web page, \"{title}\"")))
}

fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()).filter(|text| !text.trim().is_empty()),
        Value::Number(number) => Some(number.to_string()),
        Value::Array(_) => Some(value.to_string()),
        Value::Null | Value::Bool(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// D19: what is refused of the conversation is told from what is refused of the settings.
    #[test]
    fn refused_reasoning_is_told_from_refused_settings() {
        for (message, expected) in [
            ("HTTP 400: messages.1.content.0: Invalid `signature` in `thinking` block", true),
            (
                "`thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified",
                true,
            ),
            ("The encrypted content for item rs_1 could not be verified.", true),
            ("Item 'rs_1' of type 'reasoning' was provided without its required following item.", true),
            ("Thought signature is not valid", true),
            ("property 'reasoning_content' is unsupported", true),
            ("Unsupported parameter: 'reasoning_effort' is not supported with this model.", false),
            ("Unsupported value: 'reasoning.effort' does not support 'minimal'", false),
            ("thinking.enabled.budget_tokens: Extra inputs are not permitted", false),
            ("`max_tokens` must be greater than `thinking.budget_tokens`", false),
            ("Reasoning is a fine thing", false),
            ("Invalid signature of the request", false),
        ] {
            assert_eq!(refuses_reasoning(message), expected, "{message}");
        }
    }

    fn classify(status: u16, body: &str) -> ErrorClass {
        of_response(status, &DelayHeaders::default(), body, Timestamp::UNIX_EPOCH).class
    }

    #[test]
    fn the_class_follows_from_status_and_text() {
        use ErrorClass::*;
        for (status, body, class) in [
            (401, r#"{"error":{"message":"nope"}}"#, Credentials),
            (403, "", Credentials),
            (
                400,
                r#"{"code":"Client specified an invalid argument","error":"Incorrect API key provided"}"#,
                Credentials,
            ),
            (402, r#"{"error":{"message":"Insufficient Balance"}}"#, Quota),
            (
                429,
                r#"{"error":{"code":"insufficient_quota","message":"You exceeded your current quota"}}"#,
                Quota,
            ),
            (
                429,
                r#"[{"error":{"message":"You exceeded your current quota","details":[{"retryDelay":"27s"}]}}]"#,
                Rate,
            ),
            (429, r#"{"error":{"message":"slow"}}"#, Rate),
            (
                429,
                r#"{"error":{"message":"Request too large for m on tokens per min (TPM): Limit 3, Requested 4"}}"#,
                Overflow,
            ),
            (429, r#"{"error":{"message":"tokens per minute: Limit 30000, Requested 41000"}}"#, Overflow),
            (429, r#"{"error":{"message":"tokens: Limit 30000, Used 29000, Requested 2000"}}"#, Rate),
            (413, "<html>", Overflow),
            (
                400,
                r#"{"error":{"message":"input length and `max_tokens` exceed context limit: 178959 + 64000 > 200000"}}"#,
                Overflow,
            ),
            (400, r#"{"error":{"message":"max_tokens is too large: 100000"}}"#, BadRequest),
            (404, r#"{"detail":"Not Found"}"#, BadRequest),
            (307, "", BadRequest),
            (409, r#"{"error":{"code":409,"status":"ABORTED","message":"clash"}}"#, Overload),
            (499, "", Overload),
            (501, r#"{"error":{"status":"UNIMPLEMENTED","message":"no"}}"#, BadRequest),
            (
                429,
                r#"{"error":{"status":"RESOURCE_EXHAUSTED","message":"Quota exceeded for requests per minute"}}"#,
                Rate,
            ),
            (
                429,
                r#"{"error":{"message":"You exceeded your current quota","details":[{"violations":[{"quotaId":"GenerateRequestsPerDayPerProject"}]},{"retryDelay":"27s"}]}}"#,
                Quota,
            ),
            (400, r#"{"error":{"message":"?","details":[{"reason":"API_KEY_INVALID"}]}}"#, Credentials),
            (
                400,
                r#"{"error":{"message":"Provider returned error","metadata":{"raw":"{\"error\":{\"message\":\"prompt is too long\"}}"}}}"#,
                Overflow,
            ),
            (500, "oops", Overload),
            (529, "", Overload),
            (400, r#"{"error":{"code":"content_filter","message":"x"}}"#, RefusedContent),
        ] {
            assert_eq!(classify(status, body), class, "{status} {body}");
        }
    }

    /// H10: an error inside a stream that began with 200 is classed by what it says.
    #[test]
    fn an_error_inside_a_stream_is_classed_by_its_content() {
        use ErrorClass::*;
        for (body, class) in [
            (r#"{"error":{"message":"quota exceeded"}}"#, Quota),
            (r#"{"error":{"code":502,"message":"upstream"}}"#, Overload),
            (r#"{"error":{"code":"429","message":"slow"}}"#, Rate),
            (r#"{"error":{"type":"invalid_request_error","message":"no"}}"#, BadRequest),
            (r#"{"type":"error","error":{"type":"permission_error","message":"no"}}"#, Credentials),
            (r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#, Overload),
            (r#"{"type":"error","error":{"type":"rate_limit_error","message":"slow"}}"#, Rate),
            (r#"{"error":"boom"}"#, Overload),
            (r#"{"error":{"message":"\ud800"}}"#, Overload),
        ] {
            assert_eq!(of_object(body, Timestamp::UNIX_EPOCH).class, class, "{body}");
        }
    }

    #[test]
    fn the_message_says_what_the_provider_said() {
        let failure = |status: u16, body: &str| {
            of_response(status, &DelayHeaders::default(), body, Timestamp::UNIX_EPOCH).message
        };
        assert_eq!(failure(400, r#"{"error":"a\n b","code":"x"}"#), "HTTP 400: a b");
        assert_eq!(failure(422, r#"{"detail":[{"msg":"no"}]}"#), r#"HTTP 422: [{"msg":"no"}]"#);
        assert!(failure(500, &"x".repeat(10_000)).len() < 700);
        for (raw, said) in [
            (r#""{\"error\":{\"message\":\"no such tool\"}}""#, "no such tool"),
            (r#""upstream is down""#, "upstream is down"),
            (r#"{"detail":"gone"}"#, "gone"),
        ] {
            let body =
                format!(r#"{{"error":{{"message":"Provider returned error","metadata":{{"raw":{raw}}}}}}}"#);
            assert_eq!(failure(502, &body), format!("HTTP 502: Provider returned error: {said}"));
        }
        let page = "\n<!DOCTYPE html><head><Title lang=en>502 Bad\nGateway</Title></head><body>İ</body>";
        assert_eq!(failure(502, page), "HTTP 502: a web page, \"502 Bad Gateway\"");
        assert_eq!(failure(502, "<html></html>"), "HTTP 502: a web page");
    }
}
