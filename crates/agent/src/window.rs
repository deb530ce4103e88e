//! Notices a context window that is smaller than declared: servers that cut the prompt to fit say nothing of it.
//!
//! Two signs tell. An answer that was cut when prompt and answer together had a round number of tokens has filled a window
//! of that size. And a prompt that the server counts as much shorter than it was has lost its beginning. Both are guesses, so
//! nothing follows from them but a warning.

use mainstay_session::conversation::Item;
use mainstay_session::entry::Answer;
use mainstay_session::message::Finish;
use mainstay_session::state::SessionState;

/// Windows are whole multiples of this.
const ROUND: u64 = 1024;

/// The most bytes that a token of a prompt has on average. Prose and code have three to five.
const MOST_BYTES_PER_TOKEN: u64 = 9;

/// Fewer tokens than this are what a server with a cache counts that leaves out what it had cached.
const LEAST_COUNTED: u64 = 1_000;

/// Whether the conversation holds images, of which the bytes say nothing about tokens.
pub(crate) fn has_images(state: &SessionState) -> bool {
    state.history.iter().any(|item| match item {
        Item::Prompt { images, .. } => !images.is_empty(),
        Item::Step(step) => step.results.iter().flatten().any(|result| !result.images.is_empty()),
        Item::Notice { .. } | Item::Orphan(_) => false,
    })
}

/// What to say of an answer that a smaller window than the `declared` one would explain.
pub(crate) fn warning(answer: &Answer, model: &str, declared: u64, has_images: bool) -> Option<String> {
    let usage = answer.usage?;
    let total = usage.input_tokens.saturating_add(usage.output_tokens);
    let bytes = answer.request.as_ref().map_or(0, |mark| mark.bytes);
    let is_full =
        answer.finish == Finish::MaxTokens && total >= ROUND && total % ROUND == 0 && total < declared;
    let is_cut = !has_images
        && usage.input_tokens >= LEAST_COUNTED
        && usage.input_tokens.saturating_mul(MOST_BYTES_PER_TOKEN) < bytes;
    let (window, sign) = if is_full {
        (total, format!("the answer was cut when it and its prompt had {total} tokens"))
    } else if is_cut {
        let counted = usage.input_tokens;
        let window = counted.next_power_of_two();
        (window, format!("it counted {counted} tokens in a prompt of {bytes} bytes, so it dropped a part"))
    } else {
        return None;
    };
    if window >= declared {
        return None;
    }
    Some(format!(
        "the server of {model} seems to have a context window of {window} tokens, not the {declared} of the settings: {sign}. \
         Serve the model with a larger one, such as OLLAMA_CONTEXT_LENGTH={declared} or llama-server -c {declared}, or say \
         so with context_window"
    ))
}

#[cfg(test)]
mod tests {
    use mainstay_session::message::{Ended, RequestMark, Usage};

    use super::*;

    fn answer(input: u64, output: u64, bytes: u64, finish: Finish) -> Answer {
        Answer {
            model: "ollama/m".to_owned(),
            content: Vec::new(),
            finish,
            usage: Some(Usage {
                input_tokens: input,
                cached_tokens: 0,
                output_tokens: output,
                ..Usage::default()
            }),
            cost: None,
            ended: Ended::Complete,
            request: Some(RequestMark { units: 1, hash: String::new(), shared: 0, bytes }),
            duration_ms: 1,
        }
    }

    /// I05: a full window of a round size, and a prompt that lost its beginning, are named with the likely window.
    #[test]
    fn a_window_that_is_smaller_than_declared_is_named() {
        for (answer, window) in [
            (answer(4_000, 96, 14_000, Finish::MaxTokens), Some(4_096)),
            (answer(4_000, 96, 14_000, Finish::EndTurn), None),
            (answer(4_000, 95, 14_000, Finish::MaxTokens), None),
            (answer(32_000, 768, 100_000, Finish::MaxTokens), None),
            (answer(3_900, 10, 60_000, Finish::EndTurn), Some(4_096)),
            (answer(3_900, 10, 30_000, Finish::EndTurn), None),
            // A cache that is not counted.
            (answer(120, 10, 60_000, Finish::EndTurn), None),
            (answer(20_000, 10, 400_000, Finish::EndTurn), None),
        ] {
            let warned = warning(&answer, "ollama/m", 32_768, false);
            let named =
                window.map(|window: u64| format!("a context window of {window} tokens, not the 32768"));
            assert_eq!(warned.is_some(), named.is_some(), "{answer:?}: {warned:?}");
            assert!(named.is_none_or(|named| warned.is_some_and(|warned| warned.contains(&named))));
        }
        assert_eq!(warning(&answer(3_900, 10, 60_000, Finish::EndTurn), "m", 32_768, true), None);
    }
}
