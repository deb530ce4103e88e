//! Work that does not get anywhere: plans written again and again, and calls that are denied one after the other.
//!
//! The counts are a function of the log and run through the whole session, across turns and compactions; what a detector
//! forgets at each prompt, it never finds. A call that ran, whatever came of it, is work and sets both back.

use serde::{Deserialize, Serialize};

use crate::ids::Seq;
use crate::message::{Outcome, ToolResult};

/// From how many plan writes in a row, with no other call between them, the model is warned. A full plan that is worked
/// off by thinking alone takes 13.
const WARNED_FROM: u32 = 14;

/// After how many of them a further one is refused.
const REFUSED_AFTER: u32 = 24;

/// After how many refused ones the turn ends.
const ENDS_AFTER: u32 = REFUSED_AFTER + 3;

/// How many plan writes each new turn makes up for: a user who talks about the plan only may do so.
const FREE_PER_TURN: u32 = 2;

/// In how many answers in a row calls may be denied, and nothing else run, before the turn ends.
const DENIED_ANSWERS: u32 = 6;

/// What the model reads behind a plan write that it should have left.
pub const WARNING: &str = "The plan was written many times with no other call in between. Do the work now, or answer the \
                           user; soon further writes are refused.";

/// What the model reads instead of the plan, after too many of them.
pub const REFUSAL: &str = "The plan was not written: it was written many times with no other call in between. Call another \
                           tool to do the work, or answer the user; then it can be written again.";

/// How long nothing but plan writes and denied calls came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Idleness {
    /// Plan writes, accepted or not, since another call last ran.
    #[serde(default)]
    pub plan_writes: u32,
    /// Answers of this turn with a denied call, since a call other than a plan write last ran.
    #[serde(default)]
    pub denied: u32,
    /// The last of those answers.
    #[serde(default)]
    pub denied_in: Seq,
}

/// What was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Called {
    /// The plan tool.
    Plan,
    /// Another tool.
    Tool,
    /// A tool that there is not.
    Nothing,
}

impl Idleness {
    /// Whether nothing ever was idle, as in most sessions.
    pub fn is_none(&self) -> bool {
        *self == Idleness::default()
    }

    /// Takes in the first result of a call. A call of a tool that there is not is no work.
    pub fn result(&mut self, called: Called, result: &ToolResult) {
        if called == Called::Plan {
            self.plan_writes = self.plan_writes.saturating_add(1).min(ENDS_AFTER);
        }
        match result.outcome {
            Outcome::Denied if self.denied_in != result.answer || self.denied == 0 => {
                self.denied = self.denied.saturating_add(1);
                self.denied_in = result.answer;
            }
            // The model saw no denial yet when it made several calls in one answer.
            Outcome::Denied => {}
            Outcome::Ok | Outcome::Error if called == Called::Tool => *self = Idleness::default(),
            Outcome::Ok | Outcome::Error | Outcome::Interrupted => {}
        }
    }

    /// Takes in that a turn began.
    pub fn turn_began(&mut self) {
        self.plan_writes = self.plan_writes.saturating_sub(FREE_PER_TURN);
        self.denied = 0;
    }

    /// Whether the model is warned behind the next plan write.
    pub fn warns_of_plan_writes(&self) -> bool {
        self.plan_writes + 1 >= WARNED_FROM
    }

    /// Whether the next plan write is refused.
    pub fn refuses_plan_writes(&self) -> bool {
        self.plan_writes >= REFUSED_AFTER
    }

    /// Whether the turn ends for it.
    pub fn ends_the_turn(&self) -> bool {
        self.plan_writes >= ENDS_AFTER || self.denied >= DENIED_ANSWERS
    }
}
