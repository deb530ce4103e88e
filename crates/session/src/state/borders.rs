//! Borders between turns: where a session can go back to.
//!
//! The fold keeps one border for each end of a turn on the branch it is on: how long the conversation was, and all else
//! that follows a rewind, but no message. What was used, permissions, deliveries, the model and commands that run are
//! not in it: they stay as they are, wherever the session goes back to.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::SessionState;
use crate::attention::Attention;
use crate::conversation::Item;
use crate::entry::{Checkpoint, FailingCall, Restored, Rewind, Told};
use crate::idleness::Idleness;
use crate::ids::{CallRef, Seq};
use crate::message::{ContentHash, FilePath};
use crate::plan::PlanInView;
use crate::recent::RecentFiles;

/// What a session was between two turns.
#[derive(Clone, Debug, PartialEq)]
pub struct Border {
    /// The last entry before it.
    pub seq: Seq,
    /// How many turns there were; 0 before the first.
    pub turn: u64,
    /// How long the conversation was.
    items: usize,
    plan: PlanInView,
    plan_written_by: Option<CallRef>,
    attention: Attention,
    told: Told,
    recent_files: RecentFiles,
    seen: Arc<BTreeMap<FilePath, ContentHash>>,
    told_files: Arc<BTreeMap<FilePath, Option<ContentHash>>>,
    failed_compactions: u32,
    compacted_from: Option<u64>,
    compacted_to: Option<u64>,
    steps: u64,
    title: String,
    last_words: String,
    failing: Option<FailingCall>,
    idleness: Idleness,
}

impl Border {
    /// Whether a state has not moved on since.
    pub(crate) fn is_end_of(&self, state: &SessionState) -> bool {
        !state.turn_is_open && state.turns == self.turn && state.history.len() == self.items
    }
}

impl SessionState {
    /// The turns that the session can go back before, oldest first: how many there were before, and what the user began it
    /// with; nothing where a notification did. Those of earlier segments are not among them.
    pub fn turns_in_view(&self) -> Vec<(u64, Option<&str>)> {
        let ends = self.borders.iter().skip(1).map(|border| border.items).chain([self.history.len()]);
        let turns = self.borders.iter().zip(ends).filter_map(|(border, end)| {
            let said = self.history.get(border.items..end).filter(|items| !items.is_empty())?;
            let prompt = said.iter().find_map(|item| match item {
                Item::Prompt { text, .. } => Some(text.as_str()),
                Item::Notice { .. } | Item::Step(_) | Item::Orphan(_) => None,
            });
            Some((border.turn, prompt))
        });
        turns.collect()
    }

    /// Marks where the session stands as a border, in the place of one of the same turn.
    pub(super) fn mark_border(&mut self, seq: Seq) {
        let last = self.borders.last().cloned();
        if last.as_ref().is_some_and(|last| last.turn >= self.turns) {
            self.borders.retain(|border| border.turn < self.turns);
        }
        // Most turns read no new file, so most borders can share what was read.
        let seen = last.as_ref().map(|last| &last.seen).filter(|seen| ***seen == self.seen).cloned();
        let told = last.as_ref().map(|last| &last.told_files).filter(|told| ***told == self.told_files);
        self.borders.push(Arc::new(Border {
            seq,
            turn: self.turns,
            items: self.history.len(),
            plan: self.plan.clone(),
            plan_written_by: self.plan_written_by,
            attention: self.attention.clone(),
            told: self.told.clone(),
            recent_files: self.recent_files.clone(),
            seen: seen.unwrap_or_else(|| Arc::new(self.seen.clone())),
            told_files: told.cloned().unwrap_or_else(|| Arc::new(self.told_files.clone())),
            failed_compactions: self.failed_compactions,
            compacted_from: self.compacted_from,
            compacted_to: self.compacted_to,
            steps: self.steps,
            title: self.title.clone(),
            last_words: self.last_words.clone(),
            failing: self.failing.clone(),
            idleness: self.idleness,
        }));
    }

    /// Goes back. Where the record of the border is lost, it is the nearest one before: what was left never returns.
    pub(super) fn rewound(&mut self, seq: Seq, rewind: &Rewind) {
        self.branch = Some(seq);
        self.last_request = None;
        if rewind.by_checkpoint {
            self.goes_on_from = rewind.to;
            if self.has_checkpoint {
                return;
            }
        }
        let Some(border) = self.borders.iter().rev().find(|border| border.seq <= rewind.to).cloned() else {
            return;
        };
        self.borders.retain(|known| known.seq <= border.seq);
        self.history.truncate(border.items);
        self.plan = border.plan.clone();
        self.plan_written_by = border.plan_written_by;
        self.attention = border.attention.clone();
        self.told = border.told.clone();
        self.recent_files = border.recent_files.clone();
        self.seen = (*border.seen).clone();
        self.told_files = (*border.told_files).clone();
        self.failed_compactions = border.failed_compactions;
        self.compacted_from = border.compacted_from;
        self.compacted_to = border.compacted_to;
        // Perhaps another model counted it; the next answer tells anew.
        self.counted = None;
        self.turns = border.turn;
        self.turn_is_open = false;
        self.steps = border.steps;
        self.title = border.title.clone();
        self.last_words = border.last_words.clone();
        self.failing = border.failing.clone();
        self.idleness = border.idleness;
    }

    /// A checkpoint with what goes on beside the conversation as it is in this state: it was perhaps made from an earlier
    /// one, and what was accepted since must not be lost.
    pub(crate) fn with_what_runs_beside(&self, checkpoint: Checkpoint) -> Checkpoint {
        let current = self.checkpoint(Vec::new());
        Checkpoint {
            inbox: current.inbox,
            inbox_ids: current.inbox_ids,
            running: current.running,
            jobs: current.jobs,
            last_job: current.last_job,
            grants: current.grants,
            totals: current.totals,
            ..checkpoint
        }
    }

    /// The checkpoint by which a later segment of the same session, which stands at `now`, goes back to this state.
    pub(crate) fn to_restore(&self, now: &SessionState) -> Checkpoint {
        let then = now.with_what_runs_beside(self.checkpoint(self.history.clone()));
        let current = now.checkpoint(Vec::new());
        Checkpoint {
            learned_window: current.learned_window,
            first_window: current.first_window,
            restored: Some(Restored {
                plan: self.plan.clone(),
                plan_written_by: self.plan_written_by,
                attention: self.attention.clone(),
                told: self.told.clone(),
            }),
            ..then
        }
    }
}
