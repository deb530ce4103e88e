//! What an agent tells its front end while a turn runs.

use std::time::Duration;

use mainstay_session::entry::{Answer, Compaction, Notice, StopReason, Totals};
use mainstay_session::message::{ErrorClass, Image, ToolCall, ToolResult, Usage};
use mainstay_session::plan::{Plan, PlanInView};

use crate::permission::Denial;

/// Something that happened. What is told here is in the log by then, deltas, retries and running output excepted.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A turn began.
    TurnStarted,
    /// What the user said is in the log, and before the model with the next request.
    Prompt {
        /// The text as it is sent.
        text: String,
        /// The images behind it.
        images: Vec<Image>,
        /// Whether it was said while a turn was running.
        steering: bool,
    },
    /// A piece of the answer's text, for display only.
    TextDelta(String),
    /// A piece of the answer's reasoning, for display only.
    ReasoningDelta(String),
    /// An attempt at an answer ended, whole or not.
    Answer {
        /// The step within the turn, from 1.
        step: u64,
        /// What came.
        answer: Answer,
    },
    /// A request failed and is sent again.
    Retry {
        /// Which retry this is, from 1.
        retry: u32,
        /// How many there are at most.
        of: u32,
        /// What kind of failure it was.
        class: ErrorClass,
        /// What the provider said.
        message: String,
        /// How long is waited first.
        delay: Duration,
    },
    /// A tool call begins.
    ToolStarted {
        /// The step within the turn.
        step: u64,
        /// The call.
        call: ToolCall,
    },
    /// A call that runs has printed something, for display only: its result says what came of it. Told a few times a second
    /// at most.
    ToolOutput {
        /// The step within the turn.
        step: u64,
        /// The call.
        call: ToolCall,
        /// The last lines so far, all of them anew each time, without what would steer a terminal.
        lines: String,
    },
    /// A tool call ended.
    ToolCompleted {
        /// The step within the turn.
        step: u64,
        /// The call.
        call: ToolCall,
        /// What it brought.
        result: ToolResult,
    },
    /// A call was denied: by a rule, or because nobody could be asked. Told before the call is.
    Denied(Denial),
    /// The plan changed.
    Plan {
        /// The plan in view.
        view: PlanInView,
        /// What is different from before.
        changes: Vec<PlanChange>,
    },
    /// The window is full, and the conversation is summarised.
    CompactionStarted {
        /// Why.
        reason: &'static str,
        /// How many tokens the next request would take.
        before: u64,
    },
    /// A compaction ended, with room made or not.
    Compacted(Compaction),
    /// The runtime added text to the history.
    Notice(Notice),
    /// Something is not as it should be, and the turn goes on.
    Warning(String),
    /// A turn ended.
    TurnCompleted(TurnReport),
}

/// How a turn came out.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TurnReport {
    /// Why it ended.
    pub stop_reason: StopReason,
    /// What failed, for [`StopReason::Error`] and [`StopReason::Refusal`].
    pub failure: Option<TurnFailure>,
    /// What the turn used.
    pub usage: Usage,
    /// What the turn cost, in billionths of a US dollar; none where that is not known of every answer.
    pub cost: Option<u64>,
    /// Calls that were denied in this turn.
    pub denied: u64,
    /// The text of the turn's last answer, cut short where the user cancelled it; empty if there was none, or if it was a
    /// call written as text ([`TurnFailure::TextCall`]).
    pub text: String,
    /// The plan at the end.
    pub plan: PlanInView,
    /// Totals of the session.
    pub totals: Totals,
}

impl TurnReport {
    /// A turn that ended for a reason, with nothing else known of it. For front ends that are tried without an agent.
    pub fn new(stop_reason: StopReason) -> Self {
        TurnReport {
            stop_reason,
            failure: None,
            usage: Usage::default(),
            cost: None,
            denied: 0,
            text: String::new(),
            plan: PlanInView::default(),
            totals: Totals::default(),
        }
    }
}

/// What ended a turn that failed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum TurnFailure {
    /// The model could not be asked, or did not answer.
    Model {
        /// What kind of failure it was.
        class: ErrorClass,
        /// What the provider said.
        message: String,
        /// How long the provider asks to wait, where it does.
        retry_after: Option<Duration>,
    },
    /// The answer was a call written as text that was not run, and so was the one before it in the turn.
    TextCall {
        /// What happened, and which setting helps.
        message: String,
    },
    /// The conversation does not fit the model's window and cannot be made to.
    Window {
        /// What takes the room, and what can be done.
        message: String,
    },
    /// The answer does not have the form that it must have, after it was asked for again.
    AnswerForm {
        /// What is wrong with the last one.
        message: String,
    },
    /// The session log could not be written.
    Log {
        /// What happened.
        message: String,
    },
}

impl TurnFailure {
    /// What happened, in one line.
    pub fn message(&self) -> &str {
        match self {
            TurnFailure::Model { message, .. }
            | TurnFailure::TextCall { message }
            | TurnFailure::Window { message }
            | TurnFailure::AnswerForm { message }
            | TurnFailure::Log { message } => message,
        }
    }

    /// The name of its kind, for events.
    pub fn class(&self) -> &'static str {
        match self {
            TurnFailure::Model { class, .. } => class.as_str(),
            TurnFailure::TextCall { .. } => "text_call",
            TurnFailure::Window { .. } => "overflow",
            TurnFailure::AnswerForm { .. } => "answer_form",
            TurnFailure::Log { .. } => "log",
        }
    }

    /// How long the provider asks to wait, where it does.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            TurnFailure::Model { retry_after, .. } => *retry_after,
            TurnFailure::TextCall { .. }
            | TurnFailure::Window { .. }
            | TurnFailure::AnswerForm { .. }
            | TurnFailure::Log { .. } => None,
        }
    }
}

/// One difference between two plans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanChange {
    /// The item.
    pub id: String,
    /// What happened to it.
    pub kind: PlanChangeKind,
}

/// What happened to an item of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlanChangeKind {
    /// It is new.
    Added,
    /// It is gone.
    Removed,
    /// Its status is another.
    Status,
    /// Its text is another.
    Text,
}

impl PlanChangeKind {
    /// The name used in events.
    pub fn as_str(self) -> &'static str {
        match self {
            PlanChangeKind::Added => "added",
            PlanChangeKind::Removed => "removed",
            PlanChangeKind::Status => "status",
            PlanChangeKind::Text => "text",
        }
    }
}

/// The differences between two plans, by item id: what is new or changed in the order of the new plan, then what is gone.
pub fn plan_changes(old: &Plan, new: &Plan) -> Vec<PlanChange> {
    let find = |plan: &Plan, id: &str| plan.items.iter().find(|item| item.id == id).cloned();
    let mut changes = Vec::new();
    for item in &new.items {
        let mut change = |kind| changes.push(PlanChange { id: item.id.clone(), kind });
        match find(old, &item.id) {
            None => change(PlanChangeKind::Added),
            Some(before) => {
                if before.status != item.status {
                    change(PlanChangeKind::Status);
                }
                if before.content != item.content || before.active_form != item.active_form {
                    change(PlanChangeKind::Text);
                }
            }
        }
    }
    let gone = old.items.iter().filter(|item| find(new, &item.id).is_none());
    changes.extend(gone.map(|item| PlanChange { id: item.id.clone(), kind: PlanChangeKind::Removed }));
    changes
}
