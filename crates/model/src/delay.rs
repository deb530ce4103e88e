//! How long a provider asks to wait, wherever it says so: a header, a field of the error, the error's text.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

/// The response headers that say when to try again.
#[derive(Clone, Debug, Default)]
pub(crate) struct DelayHeaders {
    /// `retry-after`: seconds or an HTTP date.
    pub(crate) retry_after: Option<String>,
    /// `retry-after-ms`: milliseconds.
    pub(crate) retry_after_ms: Option<String>,
    /// `x-ratelimit-reset`: the time in milliseconds since 1970 (OpenRouter).
    pub(crate) reset: Option<String>,
    /// `date`: the server's clock, against which its dates are read.
    pub(crate) date: Option<String>,
}

impl DelayHeaders {
    /// The delay that the headers ask for; `now` is the clock to use where the server does not tell its own.
    pub(crate) fn delay(&self, now: Timestamp) -> Option<Duration> {
        let now = self.date.as_deref().and_then(http_date).unwrap_or(now);
        // Azure rounds down to `retry-after-ms: 0` beside `retry-after: 1`, so a zero says nothing.
        let millis = self.retry_after_ms.as_deref().and_then(|ms| ms.trim().parse::<f64>().ok());
        if let Some(millis) = millis.filter(|ms| *ms > 0.0) {
            return seconds(millis / 1000.0);
        }
        let after = self.retry_after.as_deref().map(str::trim);
        if let Some(delay) = after.and_then(|text| text.parse().ok()).and_then(seconds) {
            return Some(delay);
        }
        after
            .and_then(http_date)
            .and_then(|then| until(then, now))
            .or_else(|| reset(self.reset.as_deref()?, now))
    }
}

/// The delay that an error object names in one of its fields or in its text.
pub(crate) fn in_error(error: &Value, message: &str, now: Timestamp) -> Option<Duration> {
    in_fields(error, now).or_else(|| in_message(message))
}

fn in_fields(error: &Value, now: Timestamp) -> Option<Duration> {
    let details = error.get("details").and_then(Value::as_array).into_iter().flatten();
    let retry_info = details.filter_map(|detail| detail.get("retryDelay")?.as_str()).find_map(spelled);
    let metadata = error.get("metadata");
    retry_info
        .or_else(|| seconds(error.get("retry_after")?.as_f64()?))
        .or_else(|| seconds(metadata?.get("retry_after_seconds")?.as_f64()?))
        .or_else(|| reset(metadata?.get("headers")?.get("X-RateLimit-Reset")?.as_str()?, now))
}

/// Finds phrases such as `try again in 11.054s`, `976ms`, `1m30s`, `in 20 seconds`.
fn in_message(message: &str) -> Option<Duration> {
    let lower = message.to_ascii_lowercase();
    ["try again in ", "retry in ", "retry after ", "try again after ", "retry-after: "].iter().find_map(
        |phrase| {
            let at = lower.find(phrase)? + phrase.len();
            spelled(&lower[at..])
        },
    )
}

/// Reads a duration from the start of a text: numbers, each with a unit; a number without one counts seconds.
fn spelled(text: &str) -> Option<Duration> {
    let mut total: Option<f64> = None;
    let mut rest = text.trim_start();
    while rest.starts_with(|c: char| c.is_ascii_digit()) {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(end);
        let number: f64 = number.trim_end_matches('.').parse().ok()?;
        let after = after.trim_start();
        let end = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let factor = match unit {
            "ms" | "milliseconds" | "millisecond" => 0.001,
            "m" | "min" | "mins" | "minute" | "minutes" => 60.0,
            "h" | "hour" | "hours" => 3600.0,
            "d" | "day" | "days" => 86_400.0,
            _ => 1.0,
        };
        total = Some(total.unwrap_or(0.0) + number * factor);
        rest = after.trim_start_matches(' ');
    }
    total.and_then(seconds)
}

/// A count of seconds; one that is too large to be meant is as long as any wait.
fn seconds(seconds: f64) -> Option<Duration> {
    const LONGEST: f64 = 1e9;
    Duration::try_from_secs_f64(seconds.min(LONGEST)).ok()
}

fn reset(millis: &str, now: Timestamp) -> Option<Duration> {
    let millis: i64 = millis.trim().parse().ok()?;
    // Smaller numbers are counts of seconds with another meaning at every provider.
    if millis < 1_000_000_000_000 {
        return None;
    }
    until(Timestamp::from_millisecond(millis).ok()?, now)
}

fn until(then: Timestamp, now: Timestamp) -> Option<Duration> {
    Duration::try_from(then.duration_since(now)).ok().filter(|delay| !delay.is_zero())
}

fn http_date(text: &str) -> Option<Timestamp> {
    jiff::fmt::rfc2822::parse(text.trim()).ok().map(|date| date.timestamp())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn now() -> Timestamp {
        "2026-11-30T12:00:00Z".parse().unwrap()
    }

    fn secs(seconds: f64) -> Option<Duration> {
        Some(Duration::from_secs_f64(seconds))
    }

    #[test]
    fn headers_are_read_in_all_their_spellings() {
        let none = DelayHeaders::default();
        let some = |text: &str| Some(text.to_owned());
        for (headers, delay) in [
            (none.clone(), None),
            (DelayHeaders { retry_after: some("7"), ..none.clone() }, secs(7.0)),
            (DelayHeaders { retry_after: some("1"), retry_after_ms: some("0"), ..none.clone() }, secs(1.0)),
            (
                DelayHeaders { retry_after: some("1"), retry_after_ms: some("976"), ..none.clone() },
                secs(0.976),
            ),
            (DelayHeaders { retry_after: some("Mon, 30 Nov 2026 12:00:20 GMT"), ..none.clone() }, secs(20.0)),
            (
                DelayHeaders {
                    retry_after: some("Mon, 30 Nov 2026 12:00:20 GMT"),
                    date: some("Mon, 30 Nov 2026 12:00:15 GMT"),
                    ..none.clone()
                },
                secs(5.0),
            ),
            (DelayHeaders { retry_after: some("Mon, 30 Nov 2026 11:00:00 GMT"), ..none.clone() }, None),
            (DelayHeaders { reset: some("1796040012500"), ..none.clone() }, secs(12.5)),
            (DelayHeaders { reset: some("15"), ..none.clone() }, None),
            (DelayHeaders { retry_after: some("soon"), ..none.clone() }, None),
            (DelayHeaders { retry_after: some("-3"), ..none.clone() }, None),
        ] {
            assert_eq!(headers.delay(now()), delay, "{headers:?}");
        }
    }

    #[test]
    fn an_error_may_name_the_delay_in_a_field_or_in_words() {
        for (error, message, delay) in [
            (json!({}), "Please try again in 11.054s. Visit", secs(11.054)),
            (json!({}), "Please try again in 976ms.", secs(0.976)),
            (json!({}), "try again in 1m30s.", secs(90.0)),
            (json!({}), "Please retry after 20 seconds.", secs(20.0)),
            (json!({}), "Please retry in 2h 1m 3.5s", secs(7263.5)),
            (json!({}), "Please retry shortly.", None),
            (json!({"details": [{"x": 1}, {"retryDelay": "27s"}]}), "", secs(27.0)),
            (json!({"metadata": {"headers": {"X-RateLimit-Reset": "1796040001000"}}}), "", secs(1.0)),
            (json!("text"), "try again in .", None),
        ] {
            assert_eq!(in_error(&error, message, now()), delay, "{error} {message}");
        }
    }
}
