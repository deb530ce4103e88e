//! Takes a compaction back: a new segment begins with the conversation from before it, and what came since.

use std::path::Path;

use mainstay_session::attention::carried_text;
use mainstay_session::compaction::transplanted;
use mainstay_session::entry::{Body, Compaction, Entry, Lane, Restored, Told, World};
use mainstay_session::log::{ReadError, read_segment, segment_entries};
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
        let Some(head) = head_of(&state, &dir, segment)?.filter(|_| segment > 1) else {
            return Err(CompactError::NoCompaction);
        };
        let before = read_segment(&dir, segment - 1)?;
        let all = before.history.iter().chain(&state.history[head..]);
        let mut candidate = candidate(self, &state, transplanted(all, self.binds_thinking()), &[]);
        // A segment's plan is what the one before it left, finished items aside, until the model writes it.
        let (view, attention) = match state.plan_written_by {
            None => (before.plan, before.attention),
            Some(_) => (state.plan.clone(), state.attention.clone()),
        };
        candidate.opening.checkpoint.plan = Plan { items: view.plan.unfinished().cloned().collect() };
        // Finished items are back as well, and when the model is reminded next.
        candidate.opening.checkpoint.restored = Some(Restored {
            plan: view,
            plan_written_by: state.plan_written_by.or(before.plan_written_by),
            attention,
            told: told_by(&candidate.opening.world),
        });
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

/// What a world tells of itself.
fn told_by(world: &World) -> Told {
    let mut state = SessionState::default();
    let body = Body::World(world.clone());
    state.apply(&Entry { seq: 1, ts: jiff::Timestamp::UNIX_EPOCH.into(), lane: Lane::Main, body });
    state.told
}

/// How many items of the conversation are the head that a compaction gave the segment; none if it was no compaction.
fn head_of(state: &SessionState, dir: &Path, segment: u32) -> Result<Option<usize>, ReadError> {
    let mut head = None;
    let mut is_compaction = false;
    segment_entries(dir, segment, |_, entry| match entry.map(|entry| entry.body) {
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
