//! Makes room in the window: the conversation is summarised, and the next segment goes on from the summary.
//!
//! A ladder: the model's own summary, asked on the live request's prefix; then old tool outputs shortened; then a summary
//! without a model. What is tried is judged by the request that would follow: if that does not fit, the next rung is
//! tried, and at the end the turn ends with an error that names what cannot shrink. Whether room was really made is seen
//! in what the provider counts next; after two attempts that made none, no more are made. The old segment stays as it is,
//! and is the current one until the new one is whole.

mod segment;
mod undo;
mod worker;

use std::sync::Arc;

use mainstay_session::compaction::{Summary, plain_summary, shrink, summary_text, transplanted};
use mainstay_session::conversation::Item;
use mainstay_session::entry::{Body, Compaction};
use mainstay_session::log::{AppendError, ReadError};
use mainstay_session::state::SessionState;
use mainstay_tools::Jobs;
use tokio_util::sync::CancellationToken;

use crate::event::{Event, TurnFailure, plan_changes};
use crate::occupancy::{Thresholds, estimate};
use crate::setup::Setup;
use crate::shared::SharedLog;
use segment::{Candidate, Shares};
use worker::Summarised;

/// How many attempts in a row may make no room.
const ATTEMPTS: u32 = 2;

/// To how many bytes an old result is shortened.
const SHRUNK: usize = 240;

/// How many of the last steps are spared when results are shortened.
const SPARED: usize = 2;

/// Why room is wanted.
#[derive(Clone, Debug)]
pub(crate) enum Reason<'a> {
    /// A turn begins in a window that is rather full.
    TurnStart,
    /// The next request would leave too little room.
    Step,
    /// There are more images than a request shows: without room the next ones would not be seen.
    Images,
    /// The provider refused a request as too large, in these words.
    Overflow {
        /// What it said.
        message: &'a str,
    },
    /// The user asks for it.
    Asked {
        /// What the user asks of the summary.
        wish: Option<&'a str>,
    },
}

impl Reason<'_> {
    fn name(&self) -> &'static str {
        match self {
            Reason::TurnStart => "turn_start",
            Reason::Step => "step",
            Reason::Images => "images",
            Reason::Overflow { .. } => "overflow",
            Reason::Asked { .. } => "asked",
        }
    }
}

/// What came of it.
pub(crate) enum Room {
    /// The next segment has begun.
    Made(Compaction),
    /// The user cancelled; nothing has changed.
    Cancelled,
    /// There is no room to be made, or the model could not be asked.
    Failed(TurnFailure),
}

/// Why a conversation was not summarised, or a summary not taken back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompactError {
    /// The user cancelled.
    #[error("cancelled; the conversation is as it was")]
    Cancelled,
    /// There is no room to be made, or the model could not be asked.
    #[error("{}", .0.message())]
    Failed(TurnFailure),
    /// The log cannot be written.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// The log cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// There is nothing to take back.
    #[error("there is no compaction to take back")]
    NoCompaction,
}

/// What a compaction is made with.
pub(crate) struct Compactor<'a> {
    pub(crate) setup: &'a Setup,
    pub(crate) log: &'a SharedLog,
    pub(crate) jobs: &'a Arc<Jobs>,
    pub(crate) cancel: &'a CancellationToken,
}

impl Compactor<'_> {
    /// Makes room. All calls must have results.
    ///
    /// # Errors
    ///
    /// If something cannot be logged. Then the old segment goes on.
    pub(crate) async fn run(&self, reason: Reason<'_>) -> Result<Room, AppendError> {
        let (encoded, occupancy) = self.log.measured(self.setup.model.as_ref());
        let mut state = self.log.read(SessionState::clone);
        let window = match reason {
            Reason::Overflow { message } => {
                let accepted = state.counted.map_or(0, |counted| counted.input_tokens);
                Some(learned_window(message, estimate(&encoded.body), accepted))
            }
            Reason::TurnStart | Reason::Step | Reason::Images | Reason::Asked { .. } => None,
        };
        state.learned_window = window.or(state.learned_window);
        let thresholds = Thresholds::of(&state, self.setup.model.context_window());
        if !matches!(reason, Reason::Asked { .. }) && state.failed_compactions >= ATTEMPTS {
            return Ok(Room::Failed(stuck(occupancy, estimate(&encoded.body), &thresholds)));
        }
        self.emit(Event::CompactionStarted { reason: reason.name(), before: occupancy });
        let live = estimate(&encoded.body);
        let attempt = Attempt {
            compactor: self,
            state: &state,
            thresholds,
            live,
            below: matches!(reason, Reason::Asked { .. }).then(|| live.min(occupancy)),
            tried: Vec::new(),
        };
        let room = attempt.climb(&reason, occupancy, window).await?;
        let view = self.log.read(|state| state.plan.clone());
        if view != state.plan {
            let changes = plan_changes(&state.plan.plan, &view.plan);
            self.emit(Event::Plan { view, changes });
        }
        Ok(room)
    }

    /// Whether the provider refuses signed thinking behind another beginning than the one it was made behind.
    fn binds_thinking(&self) -> bool {
        self.setup.model.api() == mainstay_model::anthropic::API
    }

    fn emit(&self, event: Event) {
        (self.setup.on_event)(&event);
    }
}

/// One way up the ladder.
struct Attempt<'a> {
    compactor: &'a Compactor<'a>,
    state: &'a SessionState,
    thresholds: Thresholds,
    /// About how many tokens the next request would have taken.
    live: u64,
    /// What must be left is less than this: what is asked for in a window with room must bring something. It is what there
    /// is by estimate and by what the provider counted, whichever is less, since what would be left is only estimated, on
    /// the side of more. In a full window what was gained is seen by what the provider counts.
    below: Option<u64>,
    /// What was tried in vain, and why.
    tried: Vec<String>,
}

impl Attempt<'_> {
    async fn climb(
        mut self,
        reason: &Reason<'_>,
        before: u64,
        window: Option<u64>,
    ) -> Result<Room, AppendError> {
        let wish = match reason {
            Reason::Asked { wish } => *wish,
            Reason::TurnStart | Reason::Step | Reason::Images | Reason::Overflow { .. } => None,
        };
        let record = |method: &str, after, reused, tried: &[String]| Compaction {
            reason: reason.name().to_owned(),
            method: method.to_owned(),
            before,
            counted: self.state.counted.map(|counted| counted.input_tokens),
            after,
            failure: (!tried.is_empty()).then(|| tried.join("; ")),
            window,
            reused,
        };
        let mut found = None;
        match worker::summarise(self.compactor, self.state, &self.thresholds, wish).await? {
            Summarised::Text { summary, method, reused } => {
                found = self.summarised(method, &summary, reused).await;
            }
            Summarised::Unusable(why) => self.tried.push(format!("model: {why}")),
            Summarised::Cancelled => return Ok(Room::Cancelled),
            Summarised::Failed(failure) => return Ok(Room::Failed(failure)),
        }
        if found.is_none() {
            found = self.shrunk();
        }
        if found.is_none() {
            found = self.plain().await;
        }
        let log = self.compactor.log;
        let Some(Found { candidate, method, reused }) = found else {
            let failed = record("plain", None, None, &self.tried);
            log.append(Body::Compaction(failed.clone()))?;
            self.compactor.emit(Event::Compacted(failed));
            return Ok(Room::Failed(self.below.map_or_else(|| self.irreducible(), nothing_gained)));
        };
        let done = record(method, Some(candidate.tokens), reused, &self.tried);
        log.next_segment(candidate.opening, vec![Body::Compaction(done.clone())])?;
        self.compactor.emit(Event::Compacted(done.clone()));
        Ok(Room::Made(done))
    }

    /// The model's summary, with as much beside it as fits.
    async fn summarised(
        &mut self,
        method: &'static str,
        summary: &Summary,
        reused: Option<(u32, u32)>,
    ) -> Option<Found> {
        for shares in Shares::of(self.available(), self.live) {
            let candidate = segment::from_summary(self.compactor, self.state, summary, &shares).await;
            if let Some(candidate) = self.checked(method, candidate) {
                return Some(Found { candidate, method, reused });
            }
        }
        None
    }

    /// The conversation as it is, with old results shortened. Only if that brings it well below where it must be.
    fn shrunk(&mut self) -> Option<Found> {
        let mut history = transplanted(self.state.history.iter(), self.compactor.binds_thinking());
        if !shrink(&mut history, SPARED, SHRUNK) {
            self.tried.push("shrink: there is nothing to shorten".to_owned());
            return None;
        }
        let candidate = segment::candidate(self.compactor, self.state, history, &[]);
        if candidate.tokens > self.thresholds.low || !self.is_smaller(&candidate) {
            self.tried.push(format!("shrink: {} tokens would be left", candidate.tokens));
            return None;
        }
        Some(Found { candidate, method: "shrink", reused: None })
    }

    async fn plain(&mut self) -> Option<Found> {
        let text = plain_summary(self.state);
        let summary = Summary { text, read_first: Vec::new(), references: Vec::new() };
        self.summarised("plain", &summary, None).await
    }

    /// The candidate, if the request that follows from it leaves room.
    fn checked(&mut self, method: &str, candidate: Candidate) -> Option<Candidate> {
        if candidate.tokens <= self.thresholds.high && self.is_smaller(&candidate) {
            return Some(candidate);
        }
        self.tried.push(format!("{method}: {} tokens would be left", candidate.tokens));
        None
    }

    fn is_smaller(&self, candidate: &Candidate) -> bool {
        self.below.is_none_or(|below| candidate.tokens < below)
    }

    /// How many tokens there are for a conversation, below the lower threshold.
    fn available(&self) -> u64 {
        self.thresholds.low.saturating_sub(self.fixed())
    }

    /// What stands before the conversation in every request.
    fn fixed(&self) -> u64 {
        segment::candidate(self.compactor, self.state, Vec::new(), &[]).tokens
    }

    fn irreducible(&self) -> TurnFailure {
        let prompt = self.state.history.iter().rev().find_map(|item| match item {
            Item::Prompt { text, .. } => Some(estimate(text.as_bytes())),
            Item::Notice { .. } | Item::Step(_) | Item::Orphan(_) => None,
        });
        let Thresholds { window, high, .. } = self.thresholds;
        TurnFailure::Window {
            message: format!(
                "the conversation cannot be made to fit the window of {window} tokens: system text, tools and instructions \
                 take about {} tokens, the last prompt about {}, and no more than {high} may be taken; use a model with a \
                 larger window, or say less at once",
                self.fixed(),
                prompt.unwrap_or(0),
            ),
        }
    }
}

/// A way to go on.
struct Found {
    candidate: Candidate,
    method: &'static str,
    reused: Option<(u32, u32)>,
}

fn nothing_gained(tokens: u64) -> TurnFailure {
    TurnFailure::Window {
        message: format!(
            "nothing would be gained: the conversation takes about {tokens} tokens, and what would be handed on as many"
        ),
    }
}

fn stuck(occupancy: u64, estimated: u64, thresholds: &Thresholds) -> TurnFailure {
    TurnFailure::Window {
        message: format!(
            "the window is full and does not shrink: after {ATTEMPTS} compactions the next request still takes {occupancy} tokens of \
             {} (about {estimated} by estimate), and no more than {} may be taken; use a model with a larger window, check its \
             context_window, or begin a new session",
            thresholds.window, thresholds.high
        ),
    }
}

/// What a refusal says of a number.
enum Said {
    /// The sum of the prompt and the answer to come is compared with it.
    Bound,
    /// It is called a limit.
    Limit,
    /// Nothing.
    Number,
}

/// The window that a refusal shows: a count that it calls a limit, which is less than another that it names; else a
/// little less than what was sent. What the provider has taken before, `accepted`, is no limit.
fn learned_window(message: &str, estimated: u64, accepted: u64) -> u64 {
    const NAMES: [&str; 6] =
        ["maximum", "limit", "context length", "context window", "context size", "n_ctx"];
    let text = message.replace([',', '_'], "").to_lowercase();
    let numbers: Vec<(u64, Said)> = text
        .match_indices(|c: char| c.is_ascii_digit())
        .filter(|(at, _)| !text[..*at].ends_with(|c: char| c.is_ascii_digit()))
        .filter_map(|(at, _)| {
            let digits = text[at..].split(|c: char| !c.is_ascii_digit()).next()?;
            let before = &text[text.floor_char_boundary(at.saturating_sub(40))..at];
            let behind = &text[at + digits.len()..text.floor_char_boundary(at + digits.len() + 12)];
            let said = if before.trim_end().ends_with('>') {
                Said::Bound
            } else if NAMES.iter().any(|name| before.contains(name) || behind.contains(name)) {
                Said::Limit
            } else {
                Said::Number
            };
            Some((digits.parse().ok()?, said))
        })
        .filter(|(number, _)| (1_024..20_000_000).contains(number))
        .collect();
    let largest = numbers.iter().map(|(number, _)| *number).max().unwrap_or(0);
    let fits = |(number, said): &&(u64, Said)| match said {
        Said::Bound => true,
        Said::Limit => *number < largest || numbers.len() == 1,
        Said::Number => false,
    };
    let named = numbers.iter().filter(fits).map(|(number, _)| *number).max();
    named.filter(|window| *window >= accepted).unwrap_or((estimated - estimated / 8).max(accepted))
}

/// The summary as an item of the next conversation.
fn summary_item(summary: &str) -> Item {
    Item::Notice { text: summary_text(&mainstay_session::secrets::mask(summary)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_tells_the_window() {
        for (message, window) in [
            ("prompt is too long: 210,000 tokens > 200,000 maximum", 200_000),
            (
                "maximum context length is 131072 tokens. However, you requested 140000 tokens (131808 in the messages, 8192 \
                 in the completion)",
                131_072,
            ),
            ("input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000", 200_000),
            ("the request exceeds the available context size (8192 tokens)", 8_192),
            (
                "This model's maximum context length is 8192 tokens. However, you requested 10455 tokens",
                8_192,
            ),
            ("context length exceeded (request 83920175)", 70_000),
            ("error 400: too large", 70_000),
        ] {
            assert_eq!(learned_window(message, 80_000, 1_000), window, "{message}");
        }
    }
}
