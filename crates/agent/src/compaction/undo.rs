//! Takes a compaction back: a new segment begins with the conversation from before it, and what came since.

use mainstay_session::attention::carried_text;
use mainstay_session::compaction::unbound;
use mainstay_session::conversation::Item;
use mainstay_session::entry::{Body, Compaction};
use mainstay_session::log::{ReadError, entries, read_segment};
use mainstay_session::plan::Plan;
use mainstay_session::state::SessionState;

use super::segment::candidate;
use super::{CompactError, Compactor};
use crate::event::{Event, TurnFailure};
use crate::occupancy::Thresholds;

impl Compactor<'_> {
    /// Takes the last compaction back.
    pub(crate) fn undo(&self) -> Result<Compaction, CompactError> {
        let state = self.log.read(SessionState::clone);
        let (dir, segment) = {
            let log = self.log.lock();
            (log.dir().to_owned(), log.segment())
        };
        let Some(head) = head_of(&state, &dir)?.filter(|_| segment > 1) else {
            return Err(CompactError::NoCompaction);
        };
        let before = read_segment(&dir, segment - 1)?;
        let plan = if state.plan.carried { &before.plan.plan } else { &state.plan.plan };
        let all = before.history.iter().chain(&state.history[head..]);
        let items: Vec<Item> = match self.binds_thinking() {
            true => all.filter_map(unbound).collect(),
            false => all.cloned().collect(),
        };
        let mut candidate = candidate(self, &state, items, &[]);
        candidate.opening.checkpoint.plan = Plan { items: plan.unfinished().cloned().collect() };
        let Thresholds { window, high, .. } = Thresholds::of(&state, self.setup.model.context_window());
        if candidate.tokens > high {
            let message = format!(
                "the conversation from before takes about {} tokens, and no more than {high} of {window} may be taken",
                candidate.tokens
            );
            return Err(CompactError::Failed(TurnFailure::Window { message }));
        }
        let (_, now) = self.log.measured(self.setup.model.as_ref());
        let done = Compaction {
            reason: "undo".to_owned(),
            method: "undo".to_owned(),
            before: now,
            counted: None,
            after: Some(candidate.tokens),
            failure: None,
            window: None,
            reused: None,
        };
        self.log.next_segment(candidate.opening, vec![Body::Compaction(done.clone())])?;
        self.emit(Event::Compacted(done.clone()));
        Ok(done)
    }
}

/// How many items of the conversation are the head that a compaction gave the segment; none if it was no compaction.
fn head_of(state: &SessionState, dir: &std::path::Path) -> Result<Option<usize>, ReadError> {
    let mut head = None;
    let mut is_compaction = false;
    entries(dir, |_, entry| match entry.map(|entry| entry.body) {
        Ok(Body::Checkpoint(checkpoint)) => {
            is_compaction = false;
            head = Some(checkpoint.history.len() + usize::from(carried_text(&checkpoint.plan).is_some()));
        }
        Ok(Body::Compaction(compaction)) if compaction.after.is_some() && head.is_some() => {
            is_compaction |= compaction.method != "undo";
        }
        Ok(_) | Err(_) => {}
    })?;
    Ok(head.filter(|head| is_compaction && *head <= state.history.len()))
}
