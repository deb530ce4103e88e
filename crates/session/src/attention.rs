//! When and in which words the runtime calls for the model's attention.
//!
//! [`Attention`] is the fold's part of it: how many steps passed without a plan write, all of it a function of the log.
//! Whether a reminder is due follows from that, the plan and the settings; nothing here adds one. The texts are exact
//! and final: what is returned is logged and sent. Each is one runtime block, says what is the case and asks for no
//! answer; text from elsewhere cannot leave it.

use serde::{Deserialize, Serialize};

use crate::conversation::Item;
use crate::lookalike::{begins_with, runtime_block};
use crate::plan::{Plan, PlanInView, is_plan_tool, item_line, one_line, render};

#[cfg(test)]
mod tests;

/// When the model is reminded of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionSettings {
    /// Whether the plan tool can be called. Without it there are no reminders.
    pub plan_tool: bool,
    /// After how many counting steps the reminder comes; 0 for never.
    pub reminder_after: u32,
    /// After how many more it comes again; none, or 0, for never.
    pub reminder_repeat: Option<u32>,
}

impl Default for AttentionSettings {
    fn default() -> Self {
        AttentionSettings { plan_tool: true, reminder_after: 3, reminder_repeat: None }
    }
}

/// What the log says about the model's attention to the plan.
///
/// A step counts when all its calls have results, if it made a call other than a plan write, had no accepted plan
/// write, and left an unfinished item in the plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attention {
    /// How many steps counted since the last accepted plan write.
    #[serde(default)]
    pub counting_steps: u32,
    /// How many there were when the last reminder since then was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reminded_at: Option<u32>,
    /// The step whose calls do not all have results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<StepTally>,
}

/// What a step has shown while its calls run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepTally {
    /// How many calls have no result.
    pub open: u32,
    /// Whether a call is none of the plan tool.
    pub other_calls: bool,
    /// Whether a plan write was accepted.
    pub accepted_write: bool,
}

impl Attention {
    /// Begins a step with a complete answer's calls, given by the names of their tools. Without calls it is no step.
    pub fn begin_step<'a>(&mut self, calls: impl Iterator<Item = &'a str>) {
        let mut tally = StepTally::default();
        for name in calls {
            tally.open += 1;
            tally.other_calls |= !is_plan_tool(name);
        }
        self.step = (tally.open > 0).then_some(tally);
    }

    /// Takes in the first result of a call, with the plan as it is after that result.
    pub fn result(&mut self, accepted_write: bool, plan_has_unfinished: bool) {
        if accepted_write {
            self.written();
        }
        let Some(mut tally) = self.step.take() else {
            return;
        };
        tally.open = tally.open.saturating_sub(1);
        tally.accepted_write |= accepted_write;
        if tally.open > 0 {
            self.step = Some(tally);
        } else if tally.other_calls && !tally.accepted_write && plan_has_unfinished {
            self.counting_steps = self.counting_steps.saturating_add(1);
        }
    }

    /// Takes in that the plan was written, by a call of whatever step.
    pub fn written(&mut self) {
        self.counting_steps = 0;
        self.reminded_at = None;
    }

    /// Takes in that a reminder was given.
    pub fn reminded(&mut self) {
        self.reminded_at = Some(self.counting_steps);
    }

    /// Forgets all, as a checkpoint does: the model reads the plan anew there.
    pub fn reset(&mut self) {
        *self = Attention::default();
    }

    /// Whether a reminder belongs before the next request.
    pub fn is_due(&self, plan: &Plan, settings: &AttentionSettings) -> bool {
        if !settings.plan_tool || settings.reminder_after == 0 || !plan.has_unfinished() {
            return false;
        }
        let due_at = match (self.reminded_at, settings.reminder_repeat) {
            (None, _) => settings.reminder_after,
            (Some(at), Some(repeat)) if repeat > 0 => at.saturating_add(repeat),
            (Some(_), _) => return false,
        };
        self.counting_steps >= due_at
    }
}

/// The reminder: the plan as it is.
pub fn reminder_text(plan: &Plan) -> String {
    runtime_block(&format!("Refresh your current plan before continuing.\n\n{}", render(plan)))
}

/// What is told of the plan after a compaction: its unfinished items. None if nothing is unfinished.
pub fn carried_text(plan: &Plan) -> Option<String> {
    let items: Vec<String> = plan.unfinished().map(|item| format!("- {}", item_line(item))).collect();
    if items.is_empty() {
        return None;
    }
    Some(runtime_block(&format!("{CARRIED_HEAD} are unfinished and still stand:\n{}", items.join("\n"))))
}

/// What a conversation is still to be told of the plan that was carried into it: nothing, unless the notice behind the
/// checkpoint was lost.
pub fn untold_carried_text(view: &PlanInView, history: &[Item]) -> Option<String> {
    let is_told = |item: &Item| matches!(item, Item::Notice { text } if begins_with(text, &[CARRIED_HEAD]));
    if !view.carried || history.iter().any(is_told) { None } else { carried_text(&view.plan) }
}

/// That a turn goes on because plan items are unfinished.
pub fn continuation_text(plan: &Plan) -> String {
    runtime_block(&format!(
        "The turn was to end, but items of the session plan are unfinished. Go on with them, or write the plan as it now \
         is.\n\n{}",
        render(plan)
    ))
}

/// What the model is told of a call that it wrote as text; `why` says why that was not run.
pub fn text_call_text(tool: &str, why: &str) -> String {
    runtime_block(&format!(
        "Your last answer holds a call of `{tool}` that is written as text. It was not run: {why}. Make the call as a tool \
         call, with nothing else in the answer; if you meant no call, say so in other words."
    ))
}

const CARRIED_HEAD: &str = "The conversation so far was summarised. These items of the session plan";

/// How what the runtime says of the plan begins; a compaction says it anew.
pub(crate) const PLAN_HEADS: [&str; 3] = [
    "Refresh your current plan before continuing.",
    CARRIED_HEAD,
    "The turn was to end, but items of the session plan are unfinished.",
];

/// A notification, with who sent it (see [`crate::entry::InboxMessage::source`]).
pub fn notification_text(source: &str, text: &str) -> String {
    let heading = match source {
        "" => "Notification:".to_owned(),
        "program" => "Notification from the program that runs this session:".to_owned(),
        "process" => "Notification from another process:".to_owned(),
        "job" => "Notification from a background job:".to_owned(),
        "child" => "Notification from a child session:".to_owned(),
        other => format!("Notification from {}:", one_line(other)),
    };
    runtime_block(&format!("{heading}\n{text}"))
}
