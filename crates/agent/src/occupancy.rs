//! How full the window is: what the provider counted last, and an estimate for what has come since.
//!
//! The estimate errs on the side of more: 3.5 bytes a token, fewer for long runs without a space (base 64, hashes), as
//! many for an image as the largest costs. It is corrected by what the provider counts. Figures a provider cannot mean
//! (none, or more than the window) are passed over.

use mainstay_session::state::SessionState;

/// Bytes per token of ordinary text in any language.
const BYTES_PER_TOKEN: f64 = 3.5;

/// Bytes per token of runs that hold no words: measured tokenisers make 1.3 to 2 characters of base 64 one token.
const DENSE_BYTES_PER_TOKEN: f64 = 2.0;

/// From how many letters and digits in a row on a run counts as dense. Names in programs are shorter.
const DENSE_RUN: usize = 48;

/// What stands before the bytes of an image in the requests of the wire formats.
const IMAGE_MARKS: [&[u8]; 2] = [b";base64,", b"\"data\":\""];

/// The most tokens that an image costs.
const IMAGE_TOKENS: u64 = 5_000;

/// The smallest window in which anything can be done.
const SMALLEST_WINDOW: u64 = 2_000;

/// The thresholds of a window, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Thresholds {
    /// The window as it is configured, or as a refusal showed it to be.
    pub(crate) window: u64,
    /// From here on a turn does not begin without a compaction.
    pub(crate) low: u64,
    /// From here on no step is taken without one.
    pub(crate) high: u64,
}

impl Thresholds {
    /// A window's thresholds. Behind the higher one there is room for the instruction, a worker's reads and the summary: a
    /// fifth of the window, 40,000 tokens at most.
    pub(crate) fn of(state: &SessionState, window: u64) -> Self {
        let window = state.learned_window.map_or(window, |learned| learned.min(window)).max(SMALLEST_WINDOW);
        let high = window - (window / 5).min(40_000);
        Thresholds { window, low: high - (window / 10).min(20_000), high }
    }
}

/// How full a window is with a state's request, whose body is `body`, in tokens.
pub(crate) fn occupancy(state: &SessionState, body: &[u8], window: u64) -> u64 {
    let Some(counted) = state.counted.filter(|counted| counted.input_tokens <= window) else {
        return estimate(body);
    };
    let known = usize::try_from(counted.bytes).unwrap_or(usize::MAX).min(body.len());
    let growth = estimate(&body[known..]);
    // What an estimate of the counted part would have been off by, the part to come is taken to be off by as well.
    let factor = counted.input_tokens as f64 / (counted.bytes as f64 / BYTES_PER_TOKEN).max(1.0);
    counted.input_tokens + scaled(growth, factor.clamp(1.0, 3.0))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
fn scaled(tokens: u64, factor: f64) -> u64 {
    (tokens as f64 * factor) as u64
}

/// About how many tokens some bytes are; never less than half of the truth. The bytes of an image, as requests hold them,
/// are taken for what an image costs.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
pub(crate) fn estimate(bytes: &[u8]) -> u64 {
    let (mut dense, mut images, mut image_bytes) = (0, 0, 0);
    let mut end_run = |from: usize, to: usize| {
        let run = to - from;
        if run >= DENSE_RUN && IMAGE_MARKS.iter().any(|mark| bytes[..from].ends_with(mark)) {
            image_bytes += run;
            images += IMAGE_TOKENS.min(run as u64 / 4);
        } else if run >= DENSE_RUN {
            dense += run;
        }
    };
    let mut from = 0;
    for (place, byte) in bytes.iter().enumerate() {
        if !(byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=' | b'_' | b'-')) {
            end_run(from, place);
            from = place + 1;
        }
    }
    end_run(from, bytes.len());
    let plain = (bytes.len() - dense - image_bytes) as f64 / BYTES_PER_TOKEN;
    images + (plain + dense as f64 / DENSE_BYTES_PER_TOKEN).ceil() as u64
}

#[cfg(test)]
mod tests {
    use mainstay_session::state::Counted;

    use super::*;

    fn counted(input_tokens: u64, bytes: u64) -> SessionState {
        SessionState { counted: Some(Counted { input_tokens, bytes }), ..SessionState::default() }
    }

    /// C15: what the provider counted is the anchor, and what it cannot mean is passed over.
    #[test]
    fn the_providers_count_is_the_anchor() {
        let body = "word ".repeat(1_000);
        let whole = estimate(body.as_bytes());
        assert_eq!(occupancy(&SessionState::default(), body.as_bytes(), 8_000), whole);
        assert_eq!(occupancy(&counted(1_000, 5_000), body.as_bytes(), 8_000), 1_000);
        assert_eq!(occupancy(&counted(10_400, 5_000), body.as_bytes(), 8_000), whole);
        let more = occupancy(&counted(1_000, 4_000), body.as_bytes(), 8_000);
        assert!((1_280..1_300).contains(&more), "{more}");
        // A provider that counts twice as much as was estimated will do so for what comes.
        let dear = occupancy(&counted(2_286, 4_000), body.as_bytes(), 8_000);
        assert!((2_850..2_870).contains(&dear), "{dear}");
    }

    /// C15: neither Japanese nor base 64 is estimated at less than half of what tokenisers make of it.
    #[test]
    fn dense_text_is_not_underestimated() {
        assert!(estimate("漢字を数える".repeat(1_000).as_bytes()) >= 3_000);
        let base64 = "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo".repeat(100);
        assert!(estimate(base64.as_bytes()) >= base64.len() as u64 * 3 / 8);
    }

    /// C16: an image costs what an image costs, not what its bytes would as text.
    #[test]
    fn images_are_counted_as_images() {
        let body = format!("{{\"data\":\"{}\"}}", "A".repeat(1_000_000));
        let tokens = occupancy(&SessionState::default(), body.as_bytes(), 200_000);
        assert!((5_000..5_100).contains(&tokens), "{tokens}");
        let grown = format!("{}{body}", "word ".repeat(1_000));
        let tokens = occupancy(&counted(1_000, 5_000), grown.as_bytes(), 200_000);
        assert!((6_000..6_100).contains(&tokens), "{tokens}");
    }

    #[test]
    fn thresholds_leave_room() {
        let of = |window| Thresholds::of(&SessionState::default(), window);
        assert_eq!(of(200_000), Thresholds { window: 200_000, low: 140_000, high: 160_000 });
        assert_eq!(of(8_192), Thresholds { window: 8_192, low: 5_735, high: 6_554 });
        let learned = SessionState { learned_window: Some(4_096), ..SessionState::default() };
        assert_eq!(Thresholds::of(&learned, 8_192).window, 4_096);
    }
}
