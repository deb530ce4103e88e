//! The fold: what a session is, as a function of its entries.
//!
//! [`SessionState::apply`] is the only way state changes. It cannot fail: any sequence of readable entries, whatever is
//! missing between them, gives a state. Opening a session applies the entries of its current segment; a running agent
//! applies each entry as it writes it. So live state equals replayed state at every entry.

mod borders;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::arguments::parse_arguments;
use crate::attention::Attention;
use crate::conversation::{Item, Step};
use crate::entry::{
    Answer, Body, Checkpoint, Compaction, Entry, FORMAT, FailingCall, FileMark, Grant, InboxMessage,
    InstructionMark, Job, Lane, ModelChoice, Notice, NoticeKind, PROJECTION, SessionHeader, StopReason,
    ToolIntent, Totals, TurnEnd, UserPrompt, World,
};
use crate::idleness::{Called, Idleness};
use crate::ids::{CallRef, Seq};
use crate::lookalike::restore_arguments;
use crate::message::{
    ContentHash, Ended, FilePath, Outcome, ReferencedFile, RequestMark, ToolCall, ToolResult,
};
use crate::plan::{self, Plan, PlanInView};
use crate::recent::RecentFiles;

pub use crate::entry::Told;
pub use borders::Border;

/// How much of a text is kept as a title or as last words, in characters.
const EXCERPT: usize = 80;

/// All that is known of a session.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionState {
    /// The last entry applied; 0 before the first.
    pub last_seq: Seq,
    /// The header of the current segment.
    pub header: Option<SessionHeader>,
    /// The world as the segment's opening tells it.
    pub world: Option<World>,
    /// The world as the model was last told of it.
    pub told: Told,
    /// Which model answers.
    pub model: Option<ModelChoice>,
    /// The conversation.
    pub history: Vec<Item>,
    /// The plan in view.
    pub plan: PlanInView,
    /// The last call whose plan write was accepted.
    pub plan_written_by: Option<CallRef>,
    /// When the plan is due to be brought back before the model.
    pub attention: Attention,
    /// The files that tools touched last.
    pub recent_files: RecentFiles,
    /// What each file held when the model last read or wrote it.
    pub seen: BTreeMap<FilePath, ContentHash>,
    /// Files of which the model was told what they hold now, since they changed outside after it read or wrote them;
    /// none for one that is gone.
    pub told_files: BTreeMap<FilePath, Option<ContentHash>>,
    /// Notifications that wait for delivery, oldest first.
    pub inbox: Vec<InboxMessage>,
    /// The ids of all notifications ever accepted.
    pub inbox_ids: BTreeSet<String>,
    /// Commands that were about to run and have no result.
    pub running: BTreeMap<CallRef, ToolIntent>,
    /// Background jobs whose end is not known, in the order of their starts. All have a [`ToolIntent::job`].
    pub jobs: Vec<ToolIntent>,
    /// The number of the last background job; 0 before the first.
    pub last_job: u32,
    /// Permissions that the user gave.
    pub grants: Vec<Grant>,
    /// What the session has used.
    pub totals: Totals,
    /// Attempts at a compaction since the last that made room: the answer behind it was counted smaller.
    pub failed_compactions: u32,
    /// How many tokens the last request before the last attempt had.
    pub compacted_from: Option<u64>,
    /// How many tokens there were after it, by estimate.
    pub compacted_to: Option<u64>,
    /// How many answers of the session are no longer in the conversation.
    pub dropped_answers: u64,
    /// The window that a provider's refusal showed, where it is smaller than the configured one.
    pub learned_window: Option<u64>,
    /// What the provider counted for the last whole answer of this segment.
    pub counted: Option<Counted>,
    /// The size of the context window with which the session began: the caps of texts follow from it.
    pub first_window: Option<u64>,
    /// How many turns have begun.
    pub turns: u64,
    /// Whether a turn has begun and not ended.
    pub turn_is_open: bool,
    /// Whole answers in the current turn.
    pub steps: u64,
    /// The beginning of the first prompt.
    pub title: String,
    /// The beginning of the last answer's text.
    pub last_words: String,
    /// What was sent for the last answer.
    pub last_request: Option<RequestMark>,
    /// The call that failed last, and how often in a row it failed alike.
    pub failing: Option<FailingCall>,
    /// How long nothing but plan writes and denied calls came.
    pub idleness: Idleness,
    /// Where the session can go back to within its current segment, oldest first.
    pub borders: Vec<Arc<Border>>,
    /// The rewind by which the session came to the branch it is on; none if it never went back.
    pub branch: Option<Seq>,
    /// The entry that the current segment goes on from, in an earlier one; 0 in the first.
    pub goes_on_from: Seq,
    /// Whether the current segment's checkpoint was read.
    pub has_checkpoint: bool,
    /// What was read that this build must know to write to the session, and does not; in words.
    pub must: Option<String>,
}

/// What a provider counted for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// The tokens of the request.
    pub input_tokens: u64,
    /// The bytes of the request's body.
    pub bytes: u64,
}

impl SessionState {
    /// Applies one entry.
    pub fn apply(&mut self, entry: &Entry) {
        self.take(entry.clone());
    }

    /// Applies one entry that nobody needs any more, so that its texts are moved and not copied.
    pub(crate) fn take(&mut self, entry: Entry) {
        self.last_seq = self.last_seq.max(entry.seq);
        if let Some(what) = unknown_that_matters(&entry.body) {
            self.must = Some(what);
        }
        if entry.seq == Seq::MAX {
            self.must = Some("the last number that an entry can have".to_owned());
        }
        match entry.lane {
            Lane::Main => self.take_main(entry.seq, entry.body),
            Lane::Worker(_) => self.take_worker(&entry.body),
        }
    }

    /// The calls of the conversation that have no result, in order.
    pub fn open_calls(&self) -> Vec<OpenCall> {
        let steps: Vec<&Step> = self.history.iter().filter_map(Item::as_step).collect();
        let mut open = Vec::new();
        for (place, step) in steps.iter().enumerate() {
            // An answer is asked for only when every call before it has ended, and so does a turn.
            let has_ended = place + 1 < steps.len() || !self.turn_is_open;
            for (call_ref, call, result) in step.calls() {
                if result.is_none() {
                    let intent = self.running.get(&call_ref).cloned();
                    open.push(OpenCall { call_ref, call: call.clone(), intent, has_ended });
                }
            }
        }
        open
    }

    /// All results of the conversation, in the order of their calls.
    pub fn results(&self) -> impl Iterator<Item = &ToolResult> {
        self.history.iter().flat_map(|item| match item {
            Item::Step(step) => step.results.iter().flatten().collect::<Vec<_>>(),
            Item::Orphan(result) => vec![result],
            Item::Prompt { .. } | Item::Notice { .. } => Vec::new(),
        })
    }

    /// The text of the last answer of the conversation; empty if there is none, or it has none.
    pub fn last_text(&self) -> String {
        self.last_step().map(Step::text).unwrap_or_default()
    }

    /// The last answer of the conversation, with the results of its calls.
    pub fn last_step(&self) -> Option<&Step> {
        self.history.iter().rev().find_map(Item::as_step)
    }

    /// What the next segment begins with, given the conversation that it keeps.
    pub fn checkpoint(&self, history: Vec<Item>) -> Checkpoint {
        let answers = |items: &[Item]| items.iter().filter(|item| item.as_step().is_some()).count() as u64;
        let dropped_answers = self.dropped_answers.saturating_add(answers(&self.history));
        Checkpoint {
            dropped_answers: dropped_answers.saturating_sub(answers(&history)),
            compacted_from: self.compacted_from,
            learned_window: self.learned_window,
            history,
            plan: Plan { items: self.plan.plan.unfinished().cloned().collect() },
            recent_files: self.recent_files.clone(),
            seen: self.seen.iter().map(|(path, hash)| (path.clone(), hash.clone())).collect(),
            told_files: self
                .told_files
                .iter()
                .map(|(path, hash)| FileMark { path: path.clone(), hash: hash.clone() })
                .collect(),
            inbox: self.inbox.clone(),
            inbox_ids: self.inbox_ids.clone(),
            running: self.running.values().cloned().collect(),
            jobs: self.jobs.clone(),
            last_job: self.last_job,
            grants: self.grants.clone(),
            totals: self.totals,
            failed_compactions: self.failed_compactions,
            first_window: self.first_window,
            turns: self.turns,
            turn_is_open: self.turn_is_open,
            steps: self.steps,
            title: self.title.clone(),
            last_words: self.last_words.clone(),
            failing: self.failing.clone(),
            idleness: self.idleness,
            restored: None,
        }
    }

    /// In how many answers in a row this very call has failed, up to now.
    pub fn failures_in_a_row(&self, call: &ToolCall) -> u32 {
        self.failing
            .as_ref()
            .filter(|failing| failing.call == identity(call))
            .map_or(0, |failing| failing.times)
    }

    /// What the end of a turn says of the session.
    pub fn turn_end(&self, stop_reason: StopReason, error: Option<String>) -> TurnEnd {
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        TurnEnd {
            stop_reason,
            title: self.title.clone(),
            turns: self.turns,
            plan_completed: count(self.plan.plan.completed()),
            plan_total: count(self.plan.plan.items.len()),
            totals: self.totals,
            last_words: self.last_words.clone(),
            error,
            cwd: self.header.as_ref().filter(|_| self.has_moved()).map(|header| header.cwd.clone()),
            cut_short: false,
        }
    }

    /// Whether the session works in another directory than its segment began with.
    fn has_moved(&self) -> bool {
        self.world.as_ref().is_some_and(|world| world.cwd != self.told.cwd)
    }

    fn take_main(&mut self, seq: Seq, body: Body) {
        match body {
            Body::Session(header) => self.enter_segment(seq, header),
            Body::World(world) => {
                self.enter_world(world);
                self.mark_beginning(seq);
            }
            Body::Checkpoint(checkpoint) => {
                self.restore(*checkpoint);
                self.borders.clear();
                self.mark_closed(seq);
            }
            Body::Model(model) => {
                self.first_window.get_or_insert(model.context_window);
                if self.model.as_ref().is_some_and(|before| before.model != model.model) {
                    self.learned_window = None;
                    // Another tokeniser, another layout.
                    self.counted = None;
                }
                self.model = Some(model);
                self.mark_beginning(seq);
            }
            Body::UserPrompt(prompt) => self.hear(prompt),
            Body::Answer(answer) => self.answered(seq, answer),
            Body::ToolIntent(intent) => {
                self.last_job = self.last_job.max(intent.job.as_ref().map_or(0, |job| job.number));
                self.running.insert(intent.call_ref(), intent);
            }
            Body::ToolResult(result) => self.ended(result),
            Body::Notice(notice) => {
                let opens_segment =
                    self.borders.last().is_some_and(|border| border.seq.checked_add(1) == Some(seq));
                let is_carried = notice.about == NoticeKind::PlanCarried;
                self.noticed(notice);
                if opens_segment && is_carried {
                    self.mark_closed(seq);
                }
            }
            Body::Inbox(message) => {
                self.end_job(&message.id);
                if self.inbox_ids.insert(message.id.clone()) {
                    self.inbox.push(message);
                }
            }
            Body::Grant(grant) => self.grants.push(grant),
            Body::Compaction(compaction) => self.compacted(&compaction),
            Body::ReasoningRefused(_) => self.history.iter_mut().for_each(Item::unbind),
            Body::Rewind(rewind) => self.rewound(seq, &rewind),
            Body::TurnEnd(_) => {
                self.turn_is_open = false;
                self.mark_closed(seq);
            }
            Body::Lost(_) | Body::Unknown(_) => {}
        }
    }

    /// A worker's conversation costs what it costs and changes nothing else.
    fn take_worker(&mut self, body: &Body) {
        if let Body::Answer(answer) = body {
            self.count_answer(answer);
        }
    }

    fn enter_segment(&mut self, seq: Seq, header: SessionHeader) {
        // One within a segment says which format follows (see `docs/session-log.md`).
        if self.header.as_ref().is_none_or(|before| before.segment != header.segment) {
            self.goes_on_from = seq.saturating_sub(1);
            self.has_checkpoint = false;
        }
        self.header = Some(header);
    }

    /// Before anything is said the session can go back to nothing.
    fn mark_beginning(&mut self, seq: Seq) {
        if self.turns == 0 && self.history.is_empty() {
            self.mark_closed(seq);
        }
    }

    fn mark_closed(&mut self, seq: Seq) {
        if !self.turn_is_open {
            self.mark_border(seq);
        }
    }

    fn enter_world(&mut self, world: World) {
        self.told = Told {
            date: world.date.clone(),
            instructions: world
                .instructions
                .iter()
                .map(|file| InstructionMark {
                    path: file.path.clone(),
                    hash: ContentHash::of(file.text.as_bytes()),
                })
                .collect(),
            cwd: world.cwd.clone(),
        };
        self.world = Some(world);
    }

    fn restore(&mut self, kept: Checkpoint) {
        self.has_checkpoint = true;
        self.history = kept.history;
        self.plan = PlanInView { carried: !kept.plan.items.is_empty(), plan: kept.plan, resends: 0 };
        self.plan_written_by = None;
        self.attention = Attention::default();
        if let Some(restored) = kept.restored {
            self.plan = restored.plan;
            self.plan_written_by = restored.plan_written_by;
            self.attention = restored.attention;
            self.told = restored.told;
        }
        self.recent_files = kept.recent_files;
        self.seen = kept.seen.into_iter().collect();
        self.told_files = kept.told_files.into_iter().map(|file| (file.path, file.hash)).collect();
        self.inbox = kept.inbox;
        self.inbox_ids = kept.inbox_ids;
        self.running = kept.running.into_iter().map(|intent| (intent.call_ref(), intent)).collect();
        self.jobs = kept.jobs;
        self.last_job = kept.last_job;
        self.grants = kept.grants;
        self.totals = kept.totals;
        self.failed_compactions = kept.failed_compactions;
        self.compacted_from = kept.compacted_from;
        self.compacted_to = None;
        self.dropped_answers = kept.dropped_answers;
        self.learned_window = kept.learned_window;
        self.counted = None;
        self.first_window = kept.first_window.or(self.first_window);
        self.turns = kept.turns;
        self.turn_is_open = kept.turn_is_open;
        self.steps = kept.steps;
        self.title = kept.title;
        self.last_words = kept.last_words;
        self.failing = kept.failing;
        self.idleness = kept.idleness;
        self.last_request = None;
    }

    fn hear(&mut self, prompt: UserPrompt) {
        if let Some(id) = &prompt.inbox {
            self.delivered(id);
        }
        self.open_turn();
        if self.title.is_empty() {
            self.title = excerpt(&prompt.text);
        }
        self.history.push(Item::Prompt { text: prompt.text, images: prompt.images });
    }

    fn delivered(&mut self, id: &str) {
        self.inbox.retain(|message| message.id != *id);
        // The entry that accepted it may be lost; what was delivered is never accepted again.
        self.inbox_ids.insert(id.to_owned());
    }

    fn open_turn(&mut self) {
        if !self.turn_is_open {
            self.turn_is_open = true;
            self.turns = self.turns.saturating_add(1);
            self.steps = 0;
            self.failing = None;
            self.idleness.turn_began();
        }
    }

    fn count_answer(&mut self, answer: &Answer) {
        self.totals.answers = self.totals.answers.saturating_add(1);
        if let Some(usage) = answer.usage {
            self.totals.usage.add(usage);
        }
        match answer.cost {
            Some(cost) => self.totals.cost = self.totals.cost.saturating_add(cost),
            None => self.totals.unpriced = self.totals.unpriced.saturating_add(1),
        }
    }

    fn answered(&mut self, seq: Seq, answer: Answer) {
        self.count_answer(&answer);
        if answer.request.is_some() {
            self.last_request.clone_from(&answer.request);
        }
        if answer.ended == Ended::Complete {
            self.count_request(&answer);
        }
        let words = excerpt(&answer.text());
        let is_complete = answer.ended == Ended::Complete;
        let Some(step) = answer.into_step(seq, self.model.as_ref()) else { return };
        if !step.results.is_empty() {
            self.attention.begin_step(step.calls().map(|(_, call, _)| call.name.as_str()));
        }
        if is_complete {
            self.steps = self.steps.saturating_add(1);
        }
        if !words.is_empty() {
            self.last_words = words;
        }
        self.history.push(Item::Step(step));
    }

    /// Takes in how large the provider found a request, and whether the last compaction made room.
    fn count_request(&mut self, answer: &Answer) {
        let input_tokens = answer.usage.map_or(0, |usage| usage.input_tokens);
        let bytes = answer.request.as_ref().map_or(0, |mark| mark.bytes);
        self.counted = (input_tokens > 0 && bytes > 0).then_some(Counted { input_tokens, bytes });
        let now = if input_tokens > 0 { Some(input_tokens) } else { self.compacted_to };
        // Either there is less than before, or there is what was to be expected.
        let expected = self.compacted_to.map_or(0, |to| to.saturating_add(to / 4));
        if let (Some(from), Some(now)) = (self.compacted_from, now)
            && (now < from - from / 8 || now <= expected)
        {
            self.failed_compactions = 0;
            self.compacted_from = None;
        }
    }

    fn compacted(&mut self, compaction: &Compaction) {
        self.compacted_from = Some(compaction.counted.unwrap_or(compaction.before));
        self.compacted_to = compaction.after;
        if let Some(window) = compaction.window {
            self.learned_window = Some(self.learned_window.map_or(window, |known| known.min(window)));
        }
        // What the user asked for is no sign that the conversation does not shrink.
        if !matches!(compaction.reason.as_str(), "asked" | "undo") {
            self.failed_compactions = self.failed_compactions.saturating_add(1);
        }
    }

    /// Takes in a result. The first result of a call counts; any later one changes nothing.
    fn ended(&mut self, result: ToolResult) {
        self.run_on(&result);
        let Some(step) = self.step_mut(result.answer) else {
            self.ended_without_call(result);
            return;
        };
        let call = step.call_at(result.call).cloned();
        let (Some(call), Some(None)) = (call, step.results.get(result.call as usize)) else {
            return;
        };
        self.count_result(&result);
        self.count_failures(&call, &result);
        self.idleness.result(self.called(&call), &result);
        let written = accepted_plan(&call, &result);
        let is_written = written.is_some();
        if let Some(plan) = written {
            self.write_plan(result.call_ref(), plan);
        }
        // A result that comes after a later step began tells nothing of that step.
        if self.last_step_with_calls() == Some(result.answer) {
            self.attention.result(is_written, self.plan.plan.has_unfinished());
        }
        self.remember_files(&result);
        self.close_call(result);
    }

    /// Puts a result with its call.
    fn close_call(&mut self, result: ToolResult) {
        let Some(step) = self.step_mut(result.answer) else { return };
        if let Some(slot) = step.results.get_mut(result.call as usize) {
            *slot = Some(result);
        }
        // Recency goes by the order of the calls, whichever ended first, so it is settled when the last has ended.
        if step.results.iter().all(Option::is_some) {
            let touched: Vec<ReferencedFile> =
                step.results.iter().flatten().flat_map(touched).cloned().collect();
            self.touch_files(&touched);
        }
    }

    /// Takes in that a call has ended: its command too, unless it is a background job, which has just begun.
    fn run_on(&mut self, result: &ToolResult) {
        let Some(intent) = self.running.remove(&result.call_ref()) else { return };
        // The end of a short one may be known before the call that started it has ended.
        let runs_on = intent.job.as_ref().is_some_and(|job| !self.inbox_ids.contains(&job.id()));
        if runs_on && result.outcome == Outcome::Ok {
            self.jobs.push(intent);
        }
    }

    /// Takes in what tells the end of a background job, if the id is that of one.
    fn end_job(&mut self, id: &str) {
        if let Some(number) = Job::number_in(id) {
            self.last_job = self.last_job.max(number);
            self.jobs.retain(|intent| intent.job.as_ref().is_none_or(|job| job.number != number));
        }
    }

    /// Takes in a result whose call is lost. What it says of itself still holds.
    fn ended_without_call(&mut self, result: ToolResult) {
        let is_known =
            |item: &Item| matches!(item, Item::Orphan(known) if known.call_ref() == result.call_ref());
        if self.history.iter().any(is_known) {
            return;
        }
        self.count_result(&result);
        if let (Outcome::Ok, Some(plan)) = (result.outcome, &result.plan) {
            self.write_plan(result.call_ref(), plan.clone());
        }
        self.remember_files(&result);
        self.touch_files(touched(&result));
        self.history.push(Item::Orphan(result));
    }

    fn last_step_with_calls(&self) -> Option<Seq> {
        self.history.iter().rev().find_map(|item| match item {
            Item::Step(step) if !step.results.is_empty() => Some(step.answer),
            Item::Step(_) | Item::Prompt { .. } | Item::Notice { .. } | Item::Orphan(_) => None,
        })
    }

    fn step_mut(&mut self, answer: Seq) -> Option<&mut Step> {
        self.history.iter_mut().rev().find_map(|item| match item {
            Item::Step(step) if step.answer == answer => Some(step),
            Item::Step(_) | Item::Prompt { .. } | Item::Notice { .. } | Item::Orphan(_) => None,
        })
    }

    fn count_result(&mut self, result: &ToolResult) {
        self.totals.tool_calls = self.totals.tool_calls.saturating_add(1);
        if result.outcome == Outcome::Denied {
            self.totals.denied = self.totals.denied.saturating_add(1);
        }
    }

    fn called(&self, call: &ToolCall) -> Called {
        let tools = self.world.as_ref().map(|world| &world.tools);
        match tools {
            _ if plan::is_plan_tool(&call.name) => Called::Plan,
            Some(tools) if !tools.iter().any(|tool| tool.name == call.name) => Called::Nothing,
            Some(_) | None => Called::Tool,
        }
    }

    fn count_failures(&mut self, call: &ToolCall, result: &ToolResult) {
        let has_failed = match result.outcome {
            Outcome::Ok => false,
            Outcome::Error | Outcome::Denied => true,
            Outcome::Interrupted => return,
        };
        if !has_failed {
            self.failing = None;
            return;
        }
        let what = identity(call);
        let answer = result.answer;
        self.failing = match self.failing.take() {
            // The model saw no error yet when it made the same call twice in one answer.
            Some(failing) if failing.call == what && failing.answer == answer => Some(failing),
            Some(failing) if failing.call == what => {
                Some(FailingCall { times: failing.times.saturating_add(1), answer, ..failing })
            }
            Some(_) | None => Some(FailingCall { call: what, times: 1, answer }),
        };
    }

    /// Makes `plan` the plan in view, unless a later call has already written it: of two writes the one whose call
    /// stands later holds, whichever ended first.
    fn write_plan(&mut self, by: CallRef, plan: Plan) {
        if self.plan_written_by.is_some_and(|last| last > by) {
            return;
        }
        self.attention.written();
        let is_resend = self.plan.plan == plan && !self.plan.carried;
        let resends = if is_resend { self.plan.resends.saturating_add(1) } else { 0 };
        self.plan = PlanInView { plan, carried: false, resends };
        self.plan_written_by = Some(by);
    }

    /// What the model has seen of a file holds from the moment the call ended.
    fn remember_files(&mut self, result: &ToolResult) {
        for file in touched(result) {
            if let Some(hash) = &file.hash {
                let path = self.whole_path(&file.path);
                self.told_files.remove(&path);
                self.seen.insert(path, hash.clone());
            }
        }
    }

    fn touch_files(&mut self, files: &[ReferencedFile]) {
        for file in files {
            let path = self.whole_path(&file.path);
            self.recent_files.touch(ReferencedFile { path, hash: file.hash.clone() });
        }
    }

    /// Results name files below the workspace from there.
    fn whole_path(&self, path: &FilePath) -> FilePath {
        self.header.as_ref().map_or_else(|| path.clone(), |header| path.seen_from(&header.cwd))
    }

    /// What was known of files below the directory before is known of those below the new one.
    fn moved(&mut self, cwd: &FilePath) {
        let before = std::path::PathBuf::from(std::mem::take(&mut self.told.cwd));
        self.told.cwd = cwd.as_path().display().to_string();
        let there = |path: &FilePath| match path.as_path().strip_prefix(&before) {
            Ok(rest) => FilePath(cwd.as_path().join(rest)),
            Err(_elsewhere) => path.clone(),
        };
        self.seen = self.seen.iter().map(|(path, hash)| (there(path), hash.clone())).collect();
        self.told_files = self.told_files.iter().map(|(path, hash)| (there(path), hash.clone())).collect();
        let recent: Vec<_> = self.recent_files.iter().cloned().collect();
        self.recent_files = RecentFiles::default();
        for file in recent.into_iter().rev() {
            self.recent_files.touch(ReferencedFile { path: there(&file.path), ..file });
        }
        if let Some(header) = &mut self.header {
            header.cwd = cwd.clone();
        }
    }

    fn noticed(&mut self, notice: Notice) {
        match notice.about {
            NoticeKind::Reminder => self.attention.reminded(),
            NoticeKind::Notification { inbox } => {
                self.end_job(&inbox);
                self.delivered(&inbox);
                self.open_turn();
            }
            NoticeKind::Date { date } => self.told.date = date,
            NoticeKind::Instructions { files } => self.told.instructions = files,
            NoticeKind::FilesChanged { files } => {
                self.told_files.extend(files.into_iter().map(|file| (file.path, file.hash)));
            }
            NoticeKind::Moved { cwd } => self.moved(&cwd),
            NoticeKind::PlanCarried
            | NoticeKind::Interceptor
            | NoticeKind::Continuation
            | NoticeKind::AnswerForm
            | NoticeKind::TextCall
            | NoticeKind::Compaction => {}
        }
        self.history.push(Item::Notice { text: notice.text });
    }
}

/// The files that a result declares; a call that failed declares none.
fn touched(result: &ToolResult) -> &[ReferencedFile] {
    if result.outcome == Outcome::Ok { &result.referenced_files } else { &[] }
}

/// A call that has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenCall {
    /// Which call.
    pub call_ref: CallRef,
    /// What was called.
    pub call: ToolCall,
    /// The command that was about to run, if it came that far.
    pub intent: Option<ToolIntent>,
    /// Whether the session went on behind it: then it did end, and the record of its result is lost.
    pub has_ended: bool,
}

/// The same for two calls that ask the same of the same tool.
fn identity(call: &ToolCall) -> ContentHash {
    let arguments = parse_arguments(&call.arguments).map(|value| value.to_string());
    let arguments = arguments.unwrap_or_else(|_unreadable| call.arguments.clone());
    ContentHash::of(format!("{}\n{arguments}", call.name).as_bytes())
}

/// The plan that an accepted write made. The canonical plan in the result is authoritative; arguments are decoded only
/// where an older log has none, and ignored where they no longer fit.
fn accepted_plan(call: &ToolCall, result: &ToolResult) -> Option<Plan> {
    if result.outcome != Outcome::Ok || !plan::is_plan_tool(&call.name) {
        return None;
    }
    result.plan.clone().or_else(|| plan::from_arguments(&restore_arguments(&call.arguments)))
}

/// What of an entry this build must know to write behind it, and does not.
fn unknown_that_matters(body: &Body) -> Option<String> {
    match body {
        Body::Unknown(unknown) if unknown.must => {
            Some(format!("an entry of the kind `{}`, which this version does not know", unknown.kind))
        }
        Body::Session(header) if header.format > FORMAT => {
            Some(format!("log format {}, and this version writes format {FORMAT}", header.format))
        }
        // Under an older projection the requests of this session would change.
        Body::Session(header) if header.projection > PROJECTION => {
            Some(format!("projection {}, and this version makes projection {PROJECTION}", header.projection))
        }
        _ => None,
    }
}

/// The beginning of a text, for people: of its first line that holds something, without control characters.
pub fn excerpt(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let mut short: String = line.chars().filter(|c| !c.is_control()).take(EXCERPT).collect();
    if line.chars().count() > EXCERPT {
        short.push('…');
    }
    short
}
