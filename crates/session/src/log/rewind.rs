//! Going back: to a border of turns, to any entry, and back from having gone back.
//!
//! Within the current segment it is one appended entry, which the fold obeys. Across a segment's border the next segment
//! restores the state that an older one had. Nothing that was left is removed, so going back can be undone; no file of
//! the workspace is touched.

use std::path::Path;

use super::reading::{Damage, ReadError, damage_behind, for_each_line, segments, state_at};
use super::{AppendError, Log, NextSegment, segment_path};
use crate::entry::{Body, Rewind};
use crate::ids::Seq;
use crate::line;
use crate::state::SessionState;

/// Where to go back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RewindTo {
    /// The end of a turn of the branch that the session is on; 0 is before the first.
    Turn(u64),
    /// Where the session stood before the last rewind that was not taken back.
    BeforeRewind,
    /// The session as it was at an entry, on whatever branch: so a compaction is undone, too.
    Entry(Seq),
}

/// Where the session stands after it went back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rewound {
    /// How many turns it has.
    pub turn: u64,
    /// How many it had.
    pub left: u64,
    /// The last entry of what was left.
    pub from: Seq,
    /// Whether a new segment was started for it.
    pub is_new_segment: bool,
}

/// Why a session cannot go back.
#[derive(Debug, thiserror::Error)]
pub enum RewindError {
    /// There is no such turn.
    #[error("there is no turn {turn}: the session has {turns}")]
    NoSuchTurn {
        /// The turn that was asked for.
        turn: u64,
        /// How many there are.
        turns: u64,
    },
    /// There is no such entry, or nothing to restore at it.
    #[error("there is no entry {seq} to go back to")]
    NoSuchEntry {
        /// The entry that was asked for.
        seq: Seq,
    },
    /// It stands there.
    #[error("the session already stands at the end of turn {turn}")]
    AlreadyThere {
        /// The turn.
        turn: u64,
    },
    /// No rewind waits to be taken back.
    #[error("there is no rewind to undo")]
    NothingToUndo,
    /// Between there and here, or where the older state stands, something cannot be read, so what would be left or
    /// restored is not known.
    #[error("the session is damaged there: {damage}")]
    Damaged {
        /// The first damage.
        damage: Damage,
    },
    /// The log could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The log could not be written.
    #[error(transparent)]
    Append(#[from] AppendError),
}

/// Where a session can be cut or gone back to, found in its log.
pub(super) struct Target {
    pub(super) seq: Seq,
    pub(super) turn: u64,
    /// Whether the current segment's fold has the border.
    is_here: bool,
    undoes: Option<Seq>,
}

impl Log {
    /// Goes back. The entry that says so is on the disk when this returns.
    ///
    /// The conversation, the plan, recent files, counters and the hashes of what was read are what they were; what was
    /// used, permissions, deliveries and running commands stay, and so do the files of the workspace.
    ///
    /// # Errors
    ///
    /// If there is nothing to go back to, if the span between there and here is damaged, or if the log cannot be read or
    /// written. Then the session stands where it stood.
    pub fn rewind(&mut self, to: RewindTo, now: jiff::Timestamp) -> Result<Rewound, RewindError> {
        self.check_writable()?;
        // What waits to be written belongs to what is left.
        self.sync()?;
        let target = find(&self.dir, &self.state, to)?;
        if let Some(damage) = damage_behind(&self.dir, target.seq)?.into_iter().next() {
            return Err(RewindError::Damaged { damage });
        }
        let (left, from) = (self.state.turns, self.state.last_seq);
        let rewind = Rewind {
            turn: target.turn,
            to: target.seq,
            from,
            undoes: target.undoes,
            by_checkpoint: !target.is_here,
        };
        if target.is_here {
            self.append(Body::Rewind(rewind), now)?;
        } else {
            self.restore(rewind, now)?;
        }
        self.sync()?;
        Ok(Rewound { turn: target.turn, left, from, is_new_segment: !target.is_here })
    }

    /// Starts a segment that begins with the state at an older entry.
    fn restore(&mut self, rewind: Rewind, now: jiff::Timestamp) -> Result<(), RewindError> {
        let (then, damage) = state_at(&self.dir, rewind.to)?;
        if let Some(damage) = damage.into_iter().next() {
            return Err(RewindError::Damaged { damage });
        }
        let missing = || RewindError::NoSuchEntry { seq: rewind.to };
        // The entry itself may be among what is lost.
        if then.last_seq != rewind.to {
            return Err(missing());
        }
        if then.goes_on_from > 0 && !then.has_checkpoint {
            return Err(missing());
        }
        let opening = NextSegment {
            checkpoint: then.to_restore(&self.state),
            header: self.state.header.clone().ok_or_else(missing)?,
            world: then.world.ok_or_else(missing)?,
            model: self.state.model.clone().or(then.model).ok_or_else(missing)?,
        };
        Ok(self.start_segment(opening, [Body::Rewind(rewind)].into_iter(), now)?)
    }
}

/// Finds where to go back to.
fn find(dir: &Path, state: &SessionState, to: RewindTo) -> Result<Target, RewindError> {
    match to {
        RewindTo::Turn(turn) => {
            let last = state.borders.last().filter(|border| border.turn == turn);
            if last.is_some_and(|border| border.is_end_of(state)) {
                return Err(RewindError::AlreadyThere { turn });
            }
            border(dir, state, turn)
        }
        RewindTo::BeforeRewind => {
            let (undoes, from) = last_rewind(dir)?.ok_or(RewindError::NothingToUndo)?;
            let (then, _) = state_at(dir, from)?;
            Ok(Target { seq: from, turn: then.turns, is_here: false, undoes: Some(undoes) })
        }
        RewindTo::Entry(seq) if seq == 0 || seq >= state.last_seq => Err(RewindError::NoSuchEntry { seq }),
        RewindTo::Entry(seq) => {
            let (then, _) = state_at(dir, seq)?;
            Ok(Target { seq, turn: then.turns, is_here: false, undoes: None })
        }
    }
}

/// Finds the end of a turn of the branch that a state is on: in its segment, or in those that it goes on from.
pub(super) fn border(dir: &Path, state: &SessionState, turn: u64) -> Result<Target, RewindError> {
    let none = RewindError::NoSuchTurn { turn, turns: state.turns };
    let in_segment = |state: &SessionState, is_here| {
        let border = state.borders.iter().find(|border| border.turn == turn)?;
        Some(Target { seq: border.seq, turn, is_here, undoes: None })
    };
    if let Some(target) = in_segment(state, true) {
        return Ok(target);
    }
    let mut before = state.goes_on_from;
    while turn <= state.turns && before > 0 {
        let (then, _) = state_at(dir, before)?;
        if let Some(target) = in_segment(&then, false) {
            return Ok(target);
        }
        // Each segment goes on from an earlier one; a damaged log must not lead round in circles.
        if then.goes_on_from >= before {
            break;
        }
        before = then.goes_on_from;
    }
    Err(none)
}

/// The last rewind that was not taken back, with the last entry of what it left.
fn last_rewind(dir: &Path) -> Result<Option<(Seq, Seq)>, ReadError> {
    let mut rewinds: Vec<(Seq, Seq)> = Vec::new();
    for segment in segments(dir)? {
        let path = segment_path(dir, segment);
        for_each_line(&path, |line| {
            if let Some((seq, rewind)) = as_rewind(line) {
                match rewind.undoes {
                    None => rewinds.push((seq, rewind.from)),
                    Some(undone) => rewinds.retain(|(seq, _)| *seq < undone),
                }
            }
        })
        .map_err(|source| ReadError::Io { path, source })?;
    }
    Ok(rewinds.pop())
}

/// The line's rewind, if it is one. Most lines are not, which their beginning tells.
fn as_rewind(line: &[u8]) -> Option<(Seq, Rewind)> {
    const KIND: &[u8] = br#""kind":"rewind""#;
    let head = &line[..line.len().min(128)];
    head.windows(KIND.len()).find(|window| *window == KIND)?;
    let entry = line::decode(line).ok()?;
    match entry.body {
        Body::Rewind(rewind) => Some((entry.seq, rewind)),
        _ => None,
    }
}
