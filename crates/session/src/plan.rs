//! The session plan: what it is, how it reads, and how a write by the model becomes one.
//!
//! A [`Plan`] is a value; the fold in [`crate::state`] decides which one is current. [`write()`] turns the arguments of a
//! call into one, or says why it cannot; [`render()`] is the only way a plan is put into words.

use serde::{Deserialize, Serialize};

mod decode;
mod python;
mod render;
mod write;

pub use decode::{MAX_ACTIVE_FORM_CHARS, MAX_CONTENT_CHARS, MAX_ID_CHARS, MAX_ITEMS};
pub use render::{item_line, one_line, render};
pub use write::{PlanRefusal, PlanWrite, from_arguments, write};

#[cfg(test)]
mod tests;

/// The names under which the plan tool may be called. The first is the one that is advertised.
pub const PLAN_TOOL_NAMES: [&str; 2] = ["todo_write", "todo"];

/// Whether a call by this name is a write of the plan.
pub fn is_plan_tool(name: &str) -> bool {
    PLAN_TOOL_NAMES.contains(&name)
}

/// The session plan: an ordered list of items.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Plan {
    /// The items in the order in which they were written.
    pub items: Vec<PlanItem>,
}

/// One item of the plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanItem {
    /// The item's id, unique within the plan.
    pub id: String,
    /// What is to be done, trimmed, never empty.
    pub content: String,
    /// How far it is.
    pub status: PlanItemStatus,
    /// What is being done, in words for the time it is in progress; may be empty.
    #[serde(default, rename = "activeForm", skip_serializing_if = "String::is_empty")]
    pub active_form: String,
}

/// How far an item of the plan is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanItemStatus {
    /// Not begun.
    Pending,
    /// Being worked on; at most one item is.
    InProgress,
    /// Done.
    Completed,
}

impl PlanItemStatus {
    /// The name used in calls, logs and events.
    pub fn as_str(self) -> &'static str {
        match self {
            PlanItemStatus::Pending => "pending",
            PlanItemStatus::InProgress => "in_progress",
            PlanItemStatus::Completed => "completed",
        }
    }
}

impl Plan {
    /// Whether some item is not completed.
    pub fn has_unfinished(&self) -> bool {
        self.unfinished().next().is_some()
    }

    /// The items that are not completed.
    pub fn unfinished(&self) -> impl Iterator<Item = &PlanItem> {
        self.items.iter().filter(|item| item.status != PlanItemStatus::Completed)
    }

    /// How many items are completed.
    pub fn completed(&self) -> usize {
        self.items.len() - self.unfinished().count()
    }
}

/// The plan in view, with what the fold remembers about its writes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanInView {
    /// The plan.
    pub plan: Plan,
    /// Whether it was handed on by a compaction and the model has not written it since.
    #[serde(default)]
    pub carried: bool,
    /// How many accepted writes in a row left the plan as it was.
    #[serde(default)]
    pub resends: u32,
}
