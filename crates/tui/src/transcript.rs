//! What the conversation looks like in the terminal's scrollback.
//!
//! Everything that is in the log has a look of its own: what the user said, what the model said, a call with what it
//! brought, and what the runtime added. Nothing of the runtime is ever shown as the model's words, or the other way round.

use std::path::Path;
use std::time::Duration;

use mainstay_agent::prices::dollars;
use mainstay_agent::session::conversation::{Item, Step};
use mainstay_agent::session::entry::{Compaction, Job, Notice, NoticeKind, StopReason};
use mainstay_agent::session::log::{Passage, SessionSummary, WholeConversation};
use mainstay_agent::session::message::{Content, Image, Outcome, ToolCall, ToolResult};
use mainstay_agent::session::plan::{Plan, PlanItemStatus, is_plan_tool};
use mainstay_agent::undo::Undone;
use mainstay_agent::{PlanChange, PlanChangeKind, TurnReport};
use ratatui::style::Style;
use ratatui::text::Span;
use serde_json::Value;

use crate::markdown::{Piece, render};
use crate::text::{Row, plain, plain_line, shortened, width};
use crate::theme::{ACCENT, BAD, BOLD, DIM, GOOD, PLAIN, WARN};

/// How much of a prompt is shown again.
const PROMPT_LINES: usize = 30;
/// How much of an output or a difference is shown at once.
const OUTPUT_LINES: usize = 6;
const DIFF_LINES: usize = 16;
/// How much is shown where everything is asked for.
const DETAIL_LINES: usize = 2_000;
/// The columns that a call's line has at most.
const CALL_COLUMNS: usize = 200;

/// The columns that a session's title has in a sentence.
const TITLE_COLUMNS: usize = 40;

/// The columns that a call's line has where the terminal is not known.
const REPLAY_COLUMNS: usize = 80;

/// What a part of the conversation is; parts of different kinds stand apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// What the user said.
    Prompt,
    /// What the model said.
    Answer,
    /// A call and what it brought.
    Call,
    /// What the runtime or the interface says.
    Note,
}

/// What the user said, and the images that go with it.
pub(crate) fn prompt(text: &str, images: &[Image]) -> Vec<Row> {
    let lines: Vec<String> = plain(text.trim_end()).collect();
    let mut rows: Vec<Row> = lines
        .iter()
        .take(PROMPT_LINES)
        .enumerate()
        .map(|(place, line)| {
            let sign = if place == 0 { "› " } else { "  " };
            Row::of(vec![Span::styled(sign, ACCENT), Span::styled(line.clone(), BOLD)]).indented(2)
        })
        .collect();
    if lines.len() > PROMPT_LINES {
        rows.push(note(&format!("  … {} lines more", lines.len() - PROMPT_LINES)));
    }
    rows.extend(images.iter().map(|image| {
        let kind = image.media_type.rsplit('/').next().unwrap_or_default().to_uppercase();
        note(&format!("  ▣ {kind} image, {}", bytes(image.bytes)))
    }));
    rows
}

/// A number of bytes for people.
pub(crate) fn bytes(n: u64) -> String {
    match n {
        0..1_000 => format!("{n} bytes"),
        1_000..1_000_000 => format!("{}.{} KB", n / 1_000, n % 1_000 / 100),
        _ => format!("{}.{} MB", n / 1_000_000, n % 1_000_000 / 100_000),
    }
}

/// A line of the interface.
pub(crate) fn note(text: &str) -> Row {
    Row::new(text, DIM).indented(2)
}

/// A line that needs a look.
pub(crate) fn warning(text: &str) -> Row {
    Row::new(&format!("! {text}"), WARN).indented(2)
}

/// Something that failed.
pub(crate) fn failure(text: &str) -> Vec<Row> {
    plain(text).map(|line| Row::new(&line, BAD).indented(2)).collect()
}

/// What a call is about, in one line.
pub(crate) fn call_words(call: &ToolCall) -> String {
    let name = plain_line(&call.name);
    let arguments: Value = serde_json::from_str(&call.arguments).unwrap_or(Value::Null);
    let text = |names: &[&str]| {
        names.iter().find_map(|name| arguments.get(name)).and_then(Value::as_str).map(str::to_owned)
    };
    let about = match call.name.as_str() {
        "bash" => text(&["command", "cmd", "script"]).map(|command| first_line(&command)),
        "read" | "write" | "edit" => text(&["path", "file_path"]),
        "glob" | "grep" => text(&["pattern"]).map(|pattern| match text(&["path"]) {
            Some(path) => format!("{pattern} in {path}"),
            None => pattern,
        }),
        _ => None,
    };
    let about = about.unwrap_or_else(|| call.arguments.trim().to_owned());
    shortened(&format!("{name} {}", plain_line(&about)), CALL_COLUMNS)
}

fn first_line(text: &str) -> String {
    let mut lines = text.trim().lines();
    let first = lines.next().unwrap_or_default().to_owned();
    if lines.next().is_some() { format!("{first} …") } else { first }
}

/// A call with the short of what it brought; its first row fits into so many columns, unless they are few.
pub(crate) fn call(call: &ToolCall, result: &ToolResult, columns: usize) -> Vec<Row> {
    if is_plan_tool(&call.name) && result.outcome == Outcome::Ok {
        return Vec::new();
    }
    let (sign, style) = match result.outcome {
        Outcome::Ok => ("✓", GOOD),
        Outcome::Error => ("✗", BAD),
        Outcome::Denied => ("⊘", WARN),
        Outcome::Interrupted => ("◼", WARN),
    };
    let (words, remark) = (call_words(call), remark(result));
    // Half of the row is each one's, and what the other does not need.
    let room = if columns < 60 { 60 } else { columns - 2 };
    let remark = shortened(&remark, (room / 2).max(room.saturating_sub(width(&words))));
    let words = shortened(&words, room - width(&remark));
    let mut rows = vec![
        Row::of(vec![
            Span::styled(format!("{sign} "), style),
            Span::styled(words, PLAIN),
            Span::styled(remark, DIM),
        ])
        .indented(4),
    ];
    let content = result.content.as_deref().unwrap_or_default();
    match (call.name.as_str(), result.outcome) {
        ("edit" | "write", Outcome::Ok) => rows.extend(diff(content, DIFF_LINES)),
        ("bash", _) => rows.extend(tail(content, OUTPUT_LINES)),
        (_, Outcome::Ok) => {}
        (_, Outcome::Error | Outcome::Denied | Outcome::Interrupted) => {
            rows.extend(tail(content, OUTPUT_LINES))
        }
    }
    rows
}

fn remark(result: &ToolResult) -> String {
    let summary = first_line(&result.summary);
    let summary = shortened(&plain_line(&summary), CALL_COLUMNS);
    let slow = Duration::from_millis(result.duration_ms);
    let time = if slow >= Duration::from_secs(1) { format!(" · {}", duration(slow)) } else { String::new() };
    if summary.is_empty() { time } else { format!(" · {summary}{time}") }
}

/// The end of an output.
fn tail(text: &str, most: usize) -> Vec<Row> {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    let hidden = lines.len().saturating_sub(most);
    let mut rows = Vec::new();
    if hidden > 0 {
        rows.push(note(&format!("    … {hidden} lines before, Ctrl-O shows them")));
    }
    rows.extend(lines[hidden..].iter().map(|line| Row::new(&format!("    {line}"), DIM).verbatim()));
    rows
}

/// A difference, coloured.
pub(crate) fn diff(text: &str, most: usize) -> Vec<Row> {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    let mut rows: Vec<Row> = lines
        .iter()
        .take(most)
        .map(|line| Row::new(&format!("    {line}"), diff_style(line)).verbatim())
        .collect();
    if lines.len() > most {
        rows.push(note(&format!("    … {} lines more, Ctrl-O shows them", lines.len() - most)));
    }
    rows
}

/// The style of a line of a difference.
pub(crate) fn diff_style(line: &str) -> Style {
    match line.as_bytes().first() {
        Some(b'+') => GOOD,
        Some(b'-') => BAD,
        Some(b'@') => ACCENT,
        _ => DIM,
    }
}

/// A call with all that was asked and all that came.
pub(crate) fn call_detail(call: &ToolCall, result: &ToolResult) -> Vec<Row> {
    let mut rows = vec![Row::of(vec![Span::styled(format!("▾ {}", call_words(call)), BOLD)]).indented(4)];
    let arguments = match serde_json::from_str::<Value>(&call.arguments) {
        Ok(value) => serde_json::to_string_pretty(&value).unwrap_or_else(|_| call.arguments.clone()),
        Err(_) => call.arguments.clone(),
    };
    let body = format!("{arguments}\n{}", result.text());
    let lines: Vec<String> = plain(&body).collect();
    rows.extend(lines.iter().take(DETAIL_LINES).map(|line| {
        let style = if matches!(call.name.as_str(), "edit" | "write") { diff_style(line) } else { DIM };
        Row::new(&format!("  {line}"), style).verbatim()
    }));
    if lines.len() > DETAIL_LINES {
        rows.push(note(&format!("  … {} lines more", lines.len() - DETAIL_LINES)));
    }
    rows
}

/// What a write changed of the plan.
pub(crate) fn plan_change(plan: &Plan, changes: &[PlanChange]) -> Vec<Row> {
    let (done, all) = (plan.completed(), plan.items.len());
    if all == 0 {
        return vec![note("☰ the plan is empty")];
    }
    if done == all {
        return vec![Row::new(&format!("☰ plan done, {done}/{all}"), GOOD)];
    }
    let is_new = changes.len() >= all && changes.iter().all(|change| change.kind == PlanChangeKind::Added);
    let active = plan.items.iter().find(|item| item.status == PlanItemStatus::InProgress);
    let now = active.map_or(String::new(), |item| format!(": {}", plain_line(&item.content)));
    let what = if is_new { "new plan" } else { "plan" };
    let gone = changes.iter().filter(|change| change.kind == PlanChangeKind::Removed).count();
    let gone = if gone > 0 { format!(" ({gone} taken out)") } else { String::new() };
    vec![note(&format!("☰ {what} {done}/{all}{now}{gone}"))]
}

/// The whole plan.
pub(crate) fn plan(plan: &Plan, carried: bool) -> Vec<Row> {
    if plan.items.is_empty() {
        return vec![note("there is no plan")];
    }
    let carried = if carried { ", carried over by a compaction" } else { "" };
    let mut rows = vec![Row::new(&format!("Plan {}/{}{carried}", plan.completed(), plan.items.len()), BOLD)];
    rows.extend(plan.items.iter().map(|item| {
        let (sign, style) = plan_sign(item.status);
        Row::of(vec![Span::styled(format!("{sign} "), style), Span::styled(plain_line(&item.content), style)])
            .indented(2)
    }));
    rows
}

/// How an item of the plan is marked.
pub(crate) fn plan_sign(status: PlanItemStatus) -> (&'static str, Style) {
    match status {
        PlanItemStatus::Completed => ("✓", DIM),
        PlanItemStatus::InProgress => ("▸", BOLD),
        PlanItemStatus::Pending => ("○", PLAIN),
    }
}

/// What the runtime told the model, in one line.
pub(crate) fn notice(notice: &Notice) -> Row {
    note(&format!("◦ {}", notice_words(&notice.about)))
}

fn notice_words(about: &NoticeKind) -> &'static str {
    match about {
        NoticeKind::Reminder => "reminder: the plan was brought back before the model",
        NoticeKind::PlanCarried => "the unfinished plan was carried over",
        NoticeKind::Notification { .. } => "a notification was delivered",
        NoticeKind::Date { .. } => "the model was told of the new date",
        NoticeKind::Instructions { .. } => "the model was told that instruction files changed",
        NoticeKind::FilesChanged { .. } => "the model was told that files changed outside",
        NoticeKind::Moved { .. } => "the model was told of the new directory",
        NoticeKind::Interceptor => "a text was added to the conversation",
        NoticeKind::AnswerForm => "the model was told what form its answer must have",
        NoticeKind::Continuation => "the plan is unfinished; the model was asked to go on",
        NoticeKind::TextCall => "the model was told that a call it wrote as text was not run",
        NoticeKind::Compaction => "the model was asked for a summary",
    }
}

/// A text of the runtime, whole.
pub(crate) fn notice_detail(text: &str) -> Vec<Row> {
    let head = Row::new("▾ what the runtime told the model", BOLD);
    std::iter::once(head)
        .chain(plain(text).map(|line| Row::new(&format!("  {line}"), DIM).verbatim()))
        .collect()
}

/// What a compaction brought.
pub(crate) fn compacted(done: &Compaction) -> Row {
    let Some(after) = done.after else {
        let why = done.failure.as_deref().unwrap_or("it is not known why");
        return warning(&format!("no room was made: {why}"));
    };
    let how = match done.method.as_str() {
        "model" => "the model summarised the conversation",
        "folded" => "the model summarised a shortened conversation",
        "shrink" => "old outputs were shortened",
        "undo" => "the conversation from before is back",
        _ => "the conversation was summarised without a model",
    };
    note(&format!("◦ compacted: {} tokens became {}; {how}", tokens(done.before), tokens(after)))
}

/// How a turn ended, where it did not simply end.
pub(crate) fn turn_end(report: &TurnReport, took: Duration) -> Vec<Row> {
    let words = match report.stop_reason {
        StopReason::EndTurn => {
            let used = tokens(report.usage.input_tokens + report.usage.output_tokens);
            let cost = report.cost.map_or(String::new(), |cost| format!(" · {}", dollars(cost)));
            return if took >= Duration::from_secs(5) {
                vec![note(&format!("{} · {used} tokens{cost}", duration(took)))]
            } else {
                Vec::new()
            };
        }
        StopReason::Cancelled => "cancelled; what was done stays, and your next message goes on from here",
        StopReason::Error => match &report.failure {
            Some(failed) => return failure(&format!("✗ {}", failed.message())),
            None => "the turn failed",
        },
        StopReason::MaxTokens => "the model's output limit cut the answer; say \"go on\" to go on",
        StopReason::MaxSteps => "the limit of steps is reached; say \"go on\" to go on",
        StopReason::MaxCost => "the limit of cost is reached",
        StopReason::MaxTime => "the limit of time is reached",
        StopReason::Refusal => "the model or its provider declined",
        StopReason::RepeatedFailure => "stopped: the model repeated a call that fails",
        StopReason::PlanUnfinished => "the model stopped with items of the plan unfinished",
    };
    vec![warning(words)]
}

/// A file that was put back, for as long as the conversation is seen.
pub(crate) fn undone(undone: &Undone, workspace: &Path) -> Row {
    let what = if undone.is_removed { "removed" } else { "put back" };
    let path = undone.path.as_path();
    let path = path.strip_prefix(workspace).unwrap_or(path);
    Row::new(&format!("↶ undone: {what} {}", path.display()), WARN).indented(2)
}

/// The session that was interrupted before this one, and how to go on with it.
pub(crate) fn interrupted(last: &SessionSummary) -> Row {
    let id = last.id.short();
    let plan = match last.plan_total {
        0 => String::new(),
        total => format!(", plan {}/{total}", last.plan_completed),
    };
    let title = shortened(&plain_line(&last.title), TITLE_COLUMNS);
    warning(&format!(
        "session {id} was interrupted here{plan}: “{title}”; /resume or `mainstay resume {id}` goes on with it"
    ))
}

/// Background jobs that are running.
pub(crate) fn job(job: &Job) -> Row {
    note(&format!("{} runs: {}", job.id(), job.command))
}

/// The last of the conversation as the model has it.
pub(crate) fn conversation(history: &[Item], most: usize) -> Vec<(Part, Vec<Piece>)> {
    let skipped = history.len().saturating_sub(most);
    let left_out = (skipped > 0).then(|| one_note("… earlier parts are left out; /history shows them"));
    left_out.into_iter().chain(history[skipped..].iter().flat_map(item_parts)).collect()
}

/// The conversation from its first prompt on, in whatever segment it stands.
pub(crate) fn whole_conversation(whole: &WholeConversation) -> Vec<(Part, Vec<Piece>)> {
    let WholeConversation { left_out, passages } = whole;
    let left_out = (*left_out > 0).then(|| {
        one_note(&format!("… {left_out} earlier passages are left out; `mainstay export` has all of them"))
    });
    left_out.into_iter().chain(passages.iter().flat_map(passage_parts)).collect()
}

fn passage_parts(passage: &Passage) -> Vec<(Part, Vec<Piece>)> {
    match passage {
        Passage::Said(item) => item_parts(item),
        Passage::Compacted(done) => vec![(Part::Note, vec![Piece::Rows(vec![compacted(done)])])],
        Passage::WentBack(rewind) => vec![one_note(&format!(
            "↶ the session went back to the end of turn {}: what stands above from there on is no part of it",
            rewind.turn
        ))],
    }
}

fn item_parts(item: &Item) -> Vec<(Part, Vec<Piece>)> {
    match item {
        Item::Prompt { text, images } => vec![(Part::Prompt, vec![Piece::Rows(prompt(text, images))])],
        Item::Notice { text } => {
            let first = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('<'));
            let words = shortened(first.unwrap_or("a notice"), CALL_COLUMNS);
            vec![one_note(&format!("◦ told to the model: {words}"))]
        }
        Item::Step(step) => step_parts(step),
        Item::Orphan(result) => {
            let words = format!("a result whose call is lost: {}", first_line(&result.summary));
            vec![(Part::Call, vec![Piece::Rows(vec![note(&words)])])]
        }
    }
}

fn one_note(words: &str) -> (Part, Vec<Piece>) {
    (Part::Note, vec![Piece::Rows(vec![note(words)])])
}

fn step_parts(step: &Step) -> Vec<(Part, Vec<Piece>)> {
    let text: String = step.content.iter().filter_map(Content::as_text).collect();
    let mut parts = Vec::new();
    if !text.trim().is_empty() {
        parts.push((Part::Answer, render(&text)));
    }
    for (_, made, result) in step.calls() {
        let rows = match result {
            Some(result) if is_plan_tool(&made.name) => {
                result.plan.as_ref().map(|plan| plan_change(plan, &[])).unwrap_or_default()
            }
            Some(result) => call(made, result, REPLAY_COLUMNS),
            None => vec![note(&format!("… {} has no result", call_words(made)))],
        };
        if !rows.is_empty() {
            parts.push((Part::Call, vec![Piece::Rows(rows)]));
        }
    }
    parts
}

/// A length of time for people.
pub(crate) fn duration(time: Duration) -> String {
    match time.as_secs() {
        0..60 => format!("{} s", time.as_secs()),
        s @ 60..3_600 => format!("{} min {} s", s / 60, s % 60),
        s => format!("{} h {} min", s / 3_600, s % 3_600 / 60),
    }
}

/// A number of tokens for people.
pub(crate) fn tokens(n: u64) -> String {
    match n {
        0..1_000 => n.to_string(),
        1_000..100_000 => format!("{}.{}k", n / 1_000, n % 1_000 / 100),
        _ => format!("{}k", n / 1_000),
    }
}
