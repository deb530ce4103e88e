//! The entries of a session log: everything that is ever remembered is one of these.
//!
//! Every kind here has a place in [`crate::state::SessionState::apply`], which matches them exhaustively. A kind this
//! build does not know is kept as [`Body::Unknown`], so that an older build never loses what a newer one wrote.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::attention::Attention;
use crate::conversation::{Item, Step};
use crate::idleness::Idleness;
use crate::ids::{CallRef, Seq, SessionId};
use crate::message::{
    Content, ContentHash, Ended, FilePath, Finish, Image, RequestMark, ToolCall, ToolResult, ToolSpec, Usage,
    form, is_zero,
};
use crate::plan::{Plan, PlanInView};
use crate::recent::RecentFiles;

/// The version of the log format that this build writes. It reads all before it.
pub const FORMAT: u32 = 2;

/// The version of the projection of a log to a request (see `docs/request-layout.md`).
pub const PROJECTION: u32 = 1;

/// One line of the log.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Its place in the session.
    pub seq: Seq,
    /// When it was written, by the wall clock. Informative only.
    pub ts: When,
    /// Whose conversation it belongs to.
    pub lane: Lane,
    /// What it says.
    pub body: Body,
}

/// When an entry was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// At this time.
    At(jiff::Timestamp),
    /// So many milliseconds after the last entry before it that says [`When::At`]. Most entries do, in fewer bytes.
    After(u32),
}

impl From<jiff::Timestamp> for When {
    fn from(ts: jiff::Timestamp) -> Self {
        When::At(ts)
    }
}

/// Tells the time of entries that are read in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    last: Option<jiff::Timestamp>,
}

impl Clock {
    /// When the next entry was written; none where no entry before it said a time.
    pub fn read(&mut self, when: When) -> Option<jiff::Timestamp> {
        match when {
            When::At(ts) => {
                self.last = Some(ts);
                Some(ts)
            }
            When::After(ms) => self.last?.checked_add(jiff::SignedDuration::from_millis(i64::from(ms))).ok(),
        }
    }
}

/// Whose conversation an entry belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Lane {
    /// The session's own.
    #[default]
    Main,
    /// That of a worker, by name: kept in the log, no part of the session's history.
    Worker(String),
}

/// What an entry says. The wire name of each kind is its variant in snake case.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// Opens every segment.
    Session(SessionHeader),
    /// The world as the model is told of it; one in every segment.
    World(World),
    /// What an earlier segment hands on; fourth in every segment but the first.
    Checkpoint(Box<Checkpoint>),
    /// Which model answers from here on.
    Model(ModelChoice),
    /// What the user said.
    UserPrompt(UserPrompt),
    /// One attempt of the model at an answer, whole or not.
    Answer(Answer),
    /// A command is about to run.
    ToolIntent(ToolIntent),
    /// A tool call has ended.
    ToolResult(ToolResult),
    /// Text that the runtime adds for the model's attention.
    Notice(Notice),
    /// A notification was accepted.
    Inbox(InboxMessage),
    /// The user gave a permission.
    Grant(Grant),
    /// A compaction was tried.
    Compaction(Compaction),
    /// The provider refused reasoning that it had signed; from here on it is left out.
    ReasoningRefused(ReasoningRefused),
    /// The session went back to an earlier border of turns.
    Rewind(Rewind),
    /// A turn has ended.
    TurnEnd(TurnEnd),
    /// Stands for an entry that could not be read any more when the session was repaired.
    Lost(Lost),
    /// A kind, or a version of a kind, that this build does not know.
    Unknown(Unknown),
}

impl Body {
    /// The kind's name in the log.
    pub fn kind(&self) -> &str {
        match self {
            Body::Session(_) => "session",
            Body::World(_) => "world",
            Body::Checkpoint(_) => "checkpoint",
            Body::Model(_) => "model",
            Body::UserPrompt(_) => "user_prompt",
            Body::Answer(_) => "answer",
            Body::ToolIntent(_) => "tool_intent",
            Body::ToolResult(_) => "tool_result",
            Body::Notice(_) => "notice",
            Body::Inbox(_) => "inbox",
            Body::Grant(_) => "grant",
            Body::Compaction(_) => "compaction",
            Body::ReasoningRefused(_) => "reasoning_refused",
            Body::Rewind(_) => "rewind",
            Body::TurnEnd(_) => "turn_end",
            Body::Lost(_) => "lost",
            Body::Unknown(unknown) => &unknown.kind,
        }
    }
}

/// Opens a segment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionHeader {
    /// The version of the log format.
    pub format: u32,
    /// The version of the projection.
    pub projection: u32,
    /// Whose log this is.
    pub session: SessionId,
    /// Which segment this is, from 1.
    pub segment: u32,
    /// The workspace.
    pub cwd: FilePath,
    /// The session and entry that this one was forked from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
    /// Whether another session started this one; such sessions are not offered for resuming.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub child: bool,
    /// The version of the program that wrote it, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub program: String,
}

/// Where a session was forked from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    /// The other session.
    pub session: SessionId,
    /// The last of its entries that this session shares.
    pub seq: Seq,
}

/// The world as the model is told of it at the start of a segment. Its bytes never change within one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct World {
    /// The workspace, as the text for the model names it.
    pub cwd: String,
    /// The date, as `2026-11-30`.
    pub date: String,
    /// Instruction files in the order in which they are told.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub instructions: Vec<Instruction>,
    /// The system text.
    pub system: String,
    /// The tools on offer, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolSpec>,
}

/// One instruction file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instruction {
    /// Where it lies.
    pub path: FilePath,
    /// Its text, cut to the limit.
    pub text: String,
}

/// A call that failed, by what was called.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailingCall {
    /// The hash of the tool's name and arguments, whatever white space and order of fields they were written with.
    pub call: ContentHash,
    /// How many answers in a row it failed in.
    pub times: u32,
    /// The answer it failed in last.
    #[serde(default)]
    pub answer: Seq,
}

/// What one segment hands on to the next: all of the state but the conversation, of which it names what is kept.
///
/// The new segment's own header, world and model entries stand beside it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// The conversation to begin with. Its plan writes are text; they change no plan.
    pub history: Vec<Item>,
    /// The unfinished items of the plan.
    pub plan: Plan,
    /// The files that tools touched last.
    #[serde(default)]
    pub recent_files: RecentFiles,
    /// What each file held when the model last read or wrote it, as pairs, since a path need not be a JSON key.
    #[serde(default)]
    pub seen: Vec<(FilePath, ContentHash)>,
    /// Files of which the model was told what they hold now, since they changed outside.
    #[serde(default)]
    pub told_files: Vec<FileMark>,
    /// Notifications that wait for delivery.
    #[serde(default)]
    pub inbox: Vec<InboxMessage>,
    /// The ids of all notifications ever accepted.
    #[serde(default)]
    pub inbox_ids: BTreeSet<String>,
    /// Commands that were about to run and have no result.
    #[serde(default)]
    pub running: Vec<ToolIntent>,
    /// Background jobs that run on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<ToolIntent>,
    /// The number of the last background job.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub last_job: u32,
    /// Permissions that the user gave.
    #[serde(default)]
    pub grants: Vec<Grant>,
    /// What the session has used.
    #[serde(default)]
    pub totals: Totals,
    /// Attempts at a compaction since the last that made room.
    #[serde(default)]
    pub failed_compactions: u32,
    /// How many tokens the last request before the last attempt had.
    #[serde(default)]
    pub compacted_from: Option<u64>,
    /// How many answers of the session are no longer in the conversation.
    #[serde(default)]
    pub dropped_answers: u64,
    /// The window that a provider's refusal showed, where it is smaller than the configured one.
    #[serde(default)]
    pub learned_window: Option<u64>,
    /// The size of the context window with which the session began.
    #[serde(default)]
    pub first_window: Option<u64>,
    /// How many turns have begun.
    #[serde(default)]
    pub turns: u64,
    /// Whether a turn goes on.
    #[serde(default)]
    pub turn_is_open: bool,
    /// Whole answers in the turn that goes on.
    #[serde(default)]
    pub steps: u64,
    /// The beginning of the first prompt.
    #[serde(default)]
    pub title: String,
    /// The beginning of the last answer's text.
    #[serde(default)]
    pub last_words: String,
    /// The call that failed last.
    #[serde(default)]
    pub failing: Option<FailingCall>,
    /// How long nothing but plan writes and denied calls came.
    #[serde(default, skip_serializing_if = "Idleness::is_none")]
    pub idleness: Idleness,
    /// What a rewind restores beyond what a compaction hands on; none in a checkpoint that a compaction wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored: Option<Restored>,
}

/// What of an earlier state a rewind restores that a compaction would not hand on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restored {
    /// The plan in view, completed items included.
    pub plan: PlanInView,
    /// The last call whose plan write was accepted.
    #[serde(default)]
    pub plan_written_by: Option<CallRef>,
    /// When the plan is due to be brought back before the model.
    #[serde(default)]
    pub attention: Attention,
    /// The world as the model was last told of it.
    #[serde(default)]
    pub told: Told,
}

/// The parts of the world that may change while a segment lasts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// The date.
    pub date: String,
    /// The instruction files.
    pub instructions: Vec<InstructionMark>,
    /// The workspace, as the text for the model names it.
    #[serde(default)]
    pub cwd: String,
}

/// Which model answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelChoice {
    /// `provider/name`, or `script:FILE`.
    pub model: String,
    /// The wire format, by its name in the configuration.
    pub api: String,
    /// The size of its context window in tokens.
    pub context_window: u64,
    /// Other settings that shape its answers, for people who read the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effort: Option<String>,
}

/// What the user said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserPrompt {
    /// The exact text that is sent.
    pub text: String,
    /// The whole text in the session's spill, where `text` is only its head and tail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spill: Option<ContentHash>,
    /// Images that the model sees behind the text, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Image>,
    /// Whether it was said while a turn was running.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub steering: bool,
    /// The inbox entry that accepted it, if it was said while a turn was running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inbox: Option<String>,
}

/// One attempt of the model at an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// Which model made it, `provider/name`; empty for the one that the last model entry names.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub model: String,
    /// Its blocks in order. For an attempt that failed, what had come until then.
    pub content: Vec<Content>,
    /// How its last block ended.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub finish: Finish,
    /// What the provider counted.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "form::usage")]
    pub usage: Option<Usage>,
    /// What it cost by the prices of then, in billionths of a US dollar; none where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<u64>,
    /// How the attempt ended.
    #[serde(default, skip_serializing_if = "Ended::is_complete")]
    pub ended: Ended,
    /// What was sent for it.
    #[serde(default, rename = "sent", alias = "request", skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestMark>,
    /// How long it took, by a monotonic clock.
    #[serde(default, rename = "took", alias = "duration_ms", skip_serializing_if = "is_zero")]
    pub duration_ms: u64,
}

impl Answer {
    /// Which model made it, where `choice` is the last model entry before it.
    pub fn made_by<'a>(&'a self, choice: Option<&'a ModelChoice>) -> &'a str {
        match choice {
            Some(choice) if self.model.is_empty() => &choice.model,
            Some(_) | None => &self.model,
        }
    }

    /// The step that this answer begins as the entry `seq`: of one that the user cancelled its text, of one that failed
    /// nothing. `choice` is the model that was asked.
    pub fn into_step(mut self, seq: Seq, choice: Option<&ModelChoice>) -> Option<Step> {
        match self.ended {
            Ended::Complete => {}
            Ended::Cancelled => {
                let is_said =
                    |block: &Content| matches!(block, Content::Text { text } if !text.trim().is_empty());
                self.content.retain(is_said);
            }
            Ended::Failed { .. } => return None,
        }
        Some(Step::new(seq, self.made_by(choice).to_owned(), self.content))
    }

    /// The calls, in order; a call's place here is its [`CallRef::call`].
    pub fn calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.content.iter().filter_map(Content::as_call)
    }

    /// The text blocks, joined.
    pub fn text(&self) -> String {
        self.content.iter().filter_map(Content::as_text).collect()
    }
}

/// A command is about to run: its process exists and waits for this entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolIntent {
    /// The answer entry that asked for the call.
    #[serde(default = "form::entry_before", skip_serializing_if = "form::is_entry_before")]
    pub answer: Seq,
    /// The call's place among that answer's calls.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub call: u32,
    /// The process as the agent sees it.
    pub pid: u32,
    /// When the process started, in clock ticks since boot, so that a reused pid is told apart.
    pub started: u64,
    /// The background job that it is to be. Then an accepted result of the call does not end the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<Job>,
}

/// A command that runs on while the session does other things.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Its number, which no other job of the session has.
    pub number: u32,
    /// The command in one short line, for people and for the model.
    pub command: String,
}

impl Job {
    /// Its name, `job-1`. The notification of its end has this id, so that it is told once.
    pub fn id(&self) -> String {
        format!("{JOB_PREFIX}{}", self.number)
    }

    /// The number of the job whose end has this id, if it is one.
    pub fn number_in(id: &str) -> Option<u32> {
        id.strip_prefix(JOB_PREFIX)?.parse().ok()
    }
}

const JOB_PREFIX: &str = "job-";

impl ToolIntent {
    /// Which call this is of.
    pub fn call_ref(&self) -> CallRef {
        CallRef { answer: self.answer, call: self.call }
    }
}

/// Text that the runtime adds for the model's attention, exactly as it is sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// What it is about.
    pub about: NoticeKind,
    /// The exact text.
    pub text: String,
}

/// What a notice is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "notice", rename_all = "snake_case")]
pub enum NoticeKind {
    /// The plan, after it went untouched for some steps.
    Reminder,
    /// The unfinished items of the plan, after a compaction.
    PlanCarried,
    /// A notification was delivered.
    Notification {
        /// The inbox entry that it delivers.
        inbox: String,
    },
    /// The date changed.
    Date {
        /// The date from now on.
        date: String,
    },
    /// Instruction files changed.
    Instructions {
        /// All instruction files from now on, with the hash of their text.
        files: Vec<InstructionMark>,
    },
    /// Files changed outside since they were read.
    FilesChanged {
        /// What each of them holds now.
        files: Vec<FileMark>,
    },
    /// The session works in another directory from here on.
    Moved {
        /// Which.
        cwd: FilePath,
    },
    /// Something an interceptor added.
    Interceptor,
    /// The model is asked to go on, since plan items are unfinished.
    Continuation,
    /// The model is told what form its answer must have, or that it does not have it.
    AnswerForm,
    /// The model is told that a call it wrote as text was not run.
    TextCall,
    /// A worker is asked for a summary.
    Compaction,
}

impl NoticeKind {
    /// The name used in logs and events.
    pub fn as_str(&self) -> &'static str {
        match self {
            NoticeKind::Reminder => "reminder",
            NoticeKind::PlanCarried => "plan_carried",
            NoticeKind::Notification { .. } => "notification",
            NoticeKind::Date { .. } => "date",
            NoticeKind::Instructions { .. } => "instructions",
            NoticeKind::FilesChanged { .. } => "files_changed",
            NoticeKind::Moved { .. } => "moved",
            NoticeKind::Interceptor => "interceptor",
            NoticeKind::Continuation => "continuation",
            NoticeKind::AnswerForm => "answer_form",
            NoticeKind::TextCall => "text_call",
            NoticeKind::Compaction => "compaction",
        }
    }
}

/// A file by what it holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileMark {
    /// Where it lies.
    pub path: FilePath,
    /// The hash of what it holds; none if it is gone, or is no file that can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<ContentHash>,
}

/// An instruction file by what it says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstructionMark {
    /// Where it lies.
    pub path: FilePath,
    /// The hash of its text.
    pub hash: ContentHash,
}

/// A notification, or what the user said while a turn was running: durable from here on, and delivered later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InboxMessage {
    /// Its id; a second message of the same id is the same message.
    pub id: String,
    /// What it says.
    pub text: String,
    /// Whether it starts a turn when none is running.
    pub wake: bool,
    /// Who sent it: `program`, `process`, `job`, `child`; [`InboxMessage::USER`] is delivered as a prompt.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source: String,
}

impl InboxMessage {
    /// The source of what the user said while a turn was running.
    pub const USER: &str = "user";

    /// Whether the user said it: then it is delivered by a [`UserPrompt`] instead of a [`Notice`].
    pub fn is_steering(&self) -> bool {
        self.source == InboxMessage::USER
    }
}

/// A permission that the user gave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The tool.
    pub tool: String,
    /// What may be done with it.
    pub pattern: String,
    /// For how long: `once`, `session`, `project`.
    pub scope: String,
}

impl Grant {
    /// The scope of a permission for one call alone.
    pub const ONCE: &str = "once";

    /// Whether it allows calls other than the one that it was given for.
    pub fn lasts(&self) -> bool {
        self.scope != Grant::ONCE
    }
}

/// A compaction was tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compaction {
    /// Why it was tried: `turn_start`, `step`, `images`, `overflow`, `asked`, `undo`.
    pub reason: String,
    /// How: `model` (the model's own summary), `folded` (that of a shortened conversation), `shrink` (old tool outputs were
    /// shortened), `plain` (a summary without a model), `undo` (the conversation from before the last one).
    pub method: String,
    /// Estimated tokens before.
    pub before: u64,
    /// What the provider had counted for the last request before, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted: Option<u64>,
    /// Estimated tokens after, if it came that far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    /// The window that the provider's refusal showed, where one led to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
    /// How many units of the conversation the request for the summary reused, of how many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reused: Option<(u32, u32)>,
    /// What went wrong, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// Why a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The model had no more calls.
    EndTurn,
    /// The output limit cut an answer.
    MaxTokens,
    /// The limit of steps was reached.
    MaxSteps,
    /// The limit of cost was reached.
    MaxCost,
    /// The limit of time was reached.
    MaxTime,
    /// The model or the provider declined.
    Refusal,
    /// The user cancelled.
    Cancelled,
    /// The model repeated a failing call.
    RepeatedFailure,
    /// Plan items stayed unfinished although that was asked for.
    PlanUnfinished,
    /// Something failed.
    Error,
}

impl StopReason {
    /// The name used in logs and events.
    pub fn as_str(self) -> &'static str {
        match self {
            StopReason::EndTurn => "end_turn",
            StopReason::MaxTokens => "max_tokens",
            StopReason::MaxSteps => "max_steps",
            StopReason::MaxCost => "max_cost",
            StopReason::MaxTime => "max_time",
            StopReason::Refusal => "refusal",
            StopReason::Cancelled => "cancelled",
            StopReason::RepeatedFailure => "repeated_failure",
            StopReason::PlanUnfinished => "plan_unfinished",
            StopReason::Error => "error",
        }
    }
}

/// The session went back: what stands between `to` and this entry is no part of its conversation any more.
///
/// Plan, recent files, counters and the hashes of what was read are again what they were then. What was used, permissions,
/// deliveries and commands that run stay as they are, and no file of the workspace is touched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rewind {
    /// How many turns the session has from here on.
    pub turn: u64,
    /// The entry behind which it goes on.
    pub to: Seq,
    /// The last entry of what was left.
    pub from: Seq,
    /// The rewind that this one takes back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undoes: Option<Seq>,
    /// Whether the checkpoint of this segment restores what stood in another one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_checkpoint: bool,
}

/// A turn has ended. Holds what a listing shows, so that a listing reads only a log's tail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnEnd {
    /// Why.
    pub stop_reason: StopReason,
    /// The session in a few words: the beginning of its first prompt.
    pub title: String,
    /// How many turns there have been.
    pub turns: u64,
    /// Completed items of the plan.
    pub plan_completed: u32,
    /// All items of the plan.
    pub plan_total: u32,
    /// Totals of the session so far.
    pub totals: Totals,
    /// The beginning of the last answer's text.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub last_words: String,
    /// What failed, where something did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The workspace, where it is another than the segment began with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<FilePath>,
    /// Whether the agent ended before the turn did, and the next one wrote this.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut_short: bool,
}

/// The provider no longer takes what it had signed or sealed. All of it is left out of the conversation so far: the first
/// bytes of the next request are others, this once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReasoningRefused {
    /// What the provider said.
    pub why: String,
}

/// Stands for an entry that is gone, so that the numbers of the others are whole. What it was is not known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// What is known of it, for people.
    pub why: String,
}

/// What a session has used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Answers received, whole or not.
    pub answers: u64,
    /// Tool calls that have a result.
    pub tool_calls: u64,
    /// Tokens.
    pub usage: Usage,
    /// Calls that were denied.
    #[serde(default)]
    pub denied: u64,
    /// What the answers cost of which that is known, in billionths of a US dollar.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cost: u64,
    /// Answers of which it is not known what they cost.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unpriced: u64,
}

impl Totals {
    /// What was used since `before`, which counted less.
    pub fn since(self, before: Totals) -> Totals {
        Totals {
            answers: self.answers.saturating_sub(before.answers),
            tool_calls: self.tool_calls.saturating_sub(before.tool_calls),
            usage: self.usage.since(before.usage),
            denied: self.denied.saturating_sub(before.denied),
            cost: self.cost.saturating_sub(before.cost),
            unpriced: self.unpriced.saturating_sub(before.unpriced),
        }
    }

    /// What all of it cost, in billionths of a US dollar; none unless that is known of every answer.
    pub fn known_cost(&self) -> Option<u64> {
        (self.unpriced == 0 && self.answers > 0).then_some(self.cost)
    }
}

/// An entry of a kind, or of a version of a kind, that this build does not know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown {
    /// The kind's name.
    pub kind: String,
    /// Whether a build that does not know it must not write to the session.
    pub must: bool,
}
