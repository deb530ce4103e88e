//! Whether to send a request again, and when.
//!
//! A pure policy: it neither waits nor draws a random number, so that the loop's tests decide both.

use std::time::Duration;

use mainstay_session::message::ErrorClass;

/// How often a request is sent again at most.
pub const MAX_RETRIES: u32 = 3;

/// How long one request may wait for all its retries together.
pub const MAX_WAITING: Duration = Duration::from_secs(30);

/// The wait before the first retry, where the provider names none; each further one is four times as long.
const FIRST_WAIT: Duration = Duration::from_millis(500);

/// What to do after a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Send the request again after this time.
    Wait(Duration),
    /// Another attempt makes no sense, or there were enough.
    GiveUp,
    /// The provider asks for a wait that is longer than what is left: a person should try again after it.
    TooLong(Duration),
}

/// Decides what follows from the `failures`-th failed attempt in a row (from 1).
///
/// `waited` is the time spent waiting for this request's retries so far. `jitter`, from 0 to 1, spreads the waits of many
/// clients: up to a quarter is added, so a provider's own delay is never undercut.
pub fn after_failure(
    failures: u32,
    class: ErrorClass,
    retry_after: Option<Duration>,
    waited: Duration,
    jitter: f64,
) -> Retry {
    if !class.is_retryable() || failures > MAX_RETRIES {
        return Retry::GiveUp;
    }
    let left = MAX_WAITING.saturating_sub(waited);
    let asked = retry_after.unwrap_or_else(|| FIRST_WAIT * 4u32.pow(failures.saturating_sub(1)));
    if asked > left {
        return match retry_after {
            Some(delay) => Retry::TooLong(delay),
            None => Retry::GiveUp,
        };
    }
    let spread = if jitter.is_finite() { jitter.clamp(0.0, 1.0) * 0.25 } else { 0.0 };
    Retry::Wait(asked.mul_f64(1.0 + spread).min(left))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn waits_grow_and_end_after_three_retries() {
        let decide = |failures| after_failure(failures, ErrorClass::Overload, None, Duration::ZERO, 0.0);
        assert_eq!(decide(1), Retry::Wait(SECOND / 2));
        assert_eq!(decide(2), Retry::Wait(SECOND * 2));
        assert_eq!(decide(3), Retry::Wait(SECOND * 8));
        assert_eq!(decide(4), Retry::GiveUp);
    }

    #[test]
    fn what_a_retry_cannot_mend_is_given_up() {
        for class in [
            ErrorClass::Credentials,
            ErrorClass::Quota,
            ErrorClass::Overflow,
            ErrorClass::RefusedContent,
            ErrorClass::BadRequest,
        ] {
            assert_eq!(after_failure(1, class, Some(SECOND), Duration::ZERO, 0.0), Retry::GiveUp);
        }
    }

    #[test]
    fn the_provider_s_delay_is_kept_but_never_beyond_the_budget() {
        let decide = |delay: u64, waited: u64, jitter| {
            after_failure(
                1,
                ErrorClass::Rate,
                Some(SECOND * delay as u32),
                Duration::from_secs(waited),
                jitter,
            )
        };
        assert_eq!(decide(11, 0, 0.0), Retry::Wait(SECOND * 11));
        assert_eq!(decide(8, 0, 1.0), Retry::Wait(SECOND * 10));
        assert_eq!(decide(30, 0, 1.0), Retry::Wait(SECOND * 30));
        assert_eq!(decide(31, 0, 0.0), Retry::TooLong(SECOND * 31));
        assert_eq!(decide(11, 20, 0.0), Retry::TooLong(SECOND * 11));
        assert_eq!(decide(0, 30, 0.5), Retry::Wait(Duration::ZERO));
    }

    #[test]
    fn all_waits_of_one_request_stay_within_the_budget() {
        for jitter in [0.0, 0.3, 1.0, f64::NAN, 7.0] {
            let mut waited = Duration::ZERO;
            let mut failures = 1;
            while let Retry::Wait(wait) =
                after_failure(failures, ErrorClass::Rate, Some(SECOND * 9), waited, jitter)
            {
                waited += wait;
                failures += 1;
            }
            assert!(waited <= MAX_WAITING && failures <= MAX_RETRIES + 1);
        }
    }
}
