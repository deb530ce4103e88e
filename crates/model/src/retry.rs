//! When a failed request is sent again, and after how long.

use std::time::Duration;

use mainstay_session::message::ErrorClass;

/// The most attempts after the first.
pub const MAX_RETRIES: u32 = 3;

/// The most time that is spent waiting for one answer.
pub const MAX_WAITING: Duration = Duration::from_secs(30);

/// The wait before the first retry, where the provider names none; it doubles with each one.
const FIRST_WAIT: Duration = Duration::from_millis(500);

/// What to do after an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Wait this long, then send the request again.
    Wait(Duration),
    /// Another attempt makes no sense, or there were enough.
    GiveUp,
    /// The provider asks to wait longer than anyone should be kept waiting.
    TooLong(Duration),
}

/// Decides after attempt `attempt` (from 1) failed.
///
/// `asked` is the delay that the provider named, `waited` what has been waited for this answer so far, `jitter` a
/// number in [0, 1) that spreads many clients over time.
pub fn decide(attempt: u32, class: ErrorClass, asked: Option<Duration>, waited: Duration, jitter: f64) -> Decision {
    if !class.is_retryable() || attempt > MAX_RETRIES {
        return Decision::GiveUp;
    }
    let left = MAX_WAITING.saturating_sub(waited);
    let wanted = match asked {
        // A little more than what was asked for, never less.
        Some(asked) => asked + FIRST_WAIT.mul_f64(jitter),
        None => FIRST_WAIT * 2_u32.saturating_pow(attempt.saturating_sub(1)),
    };
    match asked {
        Some(asked) if asked > left => Decision::TooLong(asked),
        Some(_) => Decision::Wait(wanted.min(left)),
        None if left.is_zero() => Decision::GiveUp,
        None => Decision::Wait(wanted.mul_f64(0.5 + jitter / 2.0).min(left)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn waits_double_and_end_after_three_retries() {
        let waits: Vec<Decision> =
            (1..=4).map(|attempt| decide(attempt, ErrorClass::Overload, None, Duration::ZERO, 1.0)).collect();
        let wait = |millis| Decision::Wait(Duration::from_millis(millis));
        assert_eq!(waits, [wait(500), wait(1000), wait(2000), Decision::GiveUp]);
    }

    #[test]
    fn what_waiting_cannot_mend_is_given_up() {
        for class in [ErrorClass::Credentials, ErrorClass::Quota, ErrorClass::Overflow, ErrorClass::BadRequest] {
            assert_eq!(decide(1, class, Some(S), Duration::ZERO, 0.0), Decision::GiveUp, "{class:?}");
        }
    }

    #[test]
    fn the_providers_delay_is_kept_unless_it_is_too_long() {
        assert_eq!(decide(1, ErrorClass::Rate, Some(S * 7), Duration::ZERO, 0.0), Decision::Wait(S * 7));
        assert_eq!(decide(1, ErrorClass::Rate, Some(S * 31), Duration::ZERO, 0.0), Decision::TooLong(S * 31));
        assert_eq!(decide(2, ErrorClass::Rate, Some(S * 20), S * 20, 0.0), Decision::TooLong(S * 20));
    }

    /// Law 8: whatever the provider says, the waiting for one answer has an end.
    #[test]
    fn no_answer_is_waited_for_longer_than_the_bound() {
        for asked in [None, Some(S), Some(S * 10), Some(S * 29)] {
            let mut waited = Duration::ZERO;
            for attempt in 1.. {
                match decide(attempt, ErrorClass::Rate, asked, waited, 0.99) {
                    Decision::Wait(wait) => waited += wait,
                    Decision::GiveUp | Decision::TooLong(_) => break,
                }
            }
            assert!(waited <= MAX_WAITING, "{asked:?}: {waited:?}");
        }
    }
}
