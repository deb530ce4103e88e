//! How long texts may be before the model reads only their ends: the smaller of a fixed size and a share of the window.
//!
//! The window is the one with which the session began, so that a change of the model changes no cap.

use mainstay_session::state::SessionState;
use mainstay_tools::RESULT_BYTES;

/// The least that each call of an answer may bring, however many there are.
const LEAST: usize = 1 << 10;

/// Bytes per token, for what no provider has counted yet. It errs on the safe side.
const BYTES_PER_TOKEN: f64 = 3.5;

/// A window for sessions whose log does not say it.
const UNKNOWN_WINDOW: u64 = 32_000;

/// The caps of one session, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caps {
    /// A prompt: a quarter of the window.
    pub(crate) prompt: usize,
    /// One result: a quarter of the window, and no more than [`RESULT_BYTES`].
    pub(crate) result: usize,
    /// All results of one step: half of the window.
    pub(crate) step: usize,
}

impl Caps {
    /// The caps of a session.
    pub(crate) fn of(state: &SessionState) -> Self {
        let window = state.first_window.unwrap_or(UNKNOWN_WINDOW);
        let quarter = share(window, 4);
        Caps { prompt: quarter, result: quarter.min(RESULT_BYTES), step: share(window, 2) }
    }

    /// The cap of each of the next calls of a step, of which `calls` are still to be run and whose results so far have
    /// `used` bytes.
    pub(crate) fn next(&self, used: usize, calls: usize) -> usize {
        let fair = self.step.saturating_sub(used) / calls.max(1);
        fair.clamp(LEAST.min(self.result), self.result)
    }
}

/// How many bytes one part in `parts` of a context window holds.
fn share(window: u64, parts: u64) -> usize {
    // Precision is of no matter here: windows are far below 2^52 tokens.
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let bytes = (window as f64 * BYTES_PER_TOKEN / parts as f64) as usize;
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_results_of_a_step_share_half_the_window() {
        let caps = Caps { prompt: 7_000, result: 7_000, step: 14_000 };
        assert_eq!(caps.next(0, 1), 7_000);
        assert_eq!(caps.next(0, 7), 2_000);
        assert_eq!(caps.next(10_000, 2), 2_000);
        assert_eq!(caps.next(14_000, 3), 1_024);
    }
}
