//! `exec --json`: what happens, as one JSON object a line (see `docs/exec-json.md`).

use mainstay_agent::session::entry::{Answer, StopReason};
use mainstay_agent::session::message::{
    Content, ContentHash, Ended, FilePath, Finish, Outcome, ReferencedFile, ToolCall, ToolResult, Usage,
};
use mainstay_agent::session::plan::{PlanInView, PlanItem};
use mainstay_agent::{Event, PlanChange, TurnReport};
use serde::Serialize;
use serde_json::value::RawValue;

use super::exit_code;
use super::form::Form;
use crate::output::{in_dollars, out_bytes};

/// The version of the events' form. Additions do not change it.
pub(crate) const SCHEMA: u32 = 1;

/// One event.
#[derive(Serialize)]
#[serde(tag = "type")]
pub(crate) enum Line<'a> {
    #[serde(rename = "session.started")]
    SessionStarted {
        schema: u32,
        version: &'a str,
        session_id: &'a str,
        segment: u32,
        model: &'a str,
        cwd: &'a str,
        resumed: bool,
    },
    #[serde(rename = "turn.started")]
    TurnStarted {},
    #[serde(rename = "answer.delta")]
    AnswerDelta { text: &'a str },
    #[serde(rename = "answer")]
    Answer {
        step: u64,
        text: String,
        reasoning: String,
        tool_calls: Vec<Call<'a>>,
        stop_reason: &'a str,
        usage: Option<Tokens>,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<Failure<'a>>,
    },
    #[serde(rename = "tool.started")]
    ToolStarted { step: u64, call_id: &'a str, name: &'a str, arguments: &'a str },
    #[serde(rename = "tool.completed")]
    ToolCompleted {
        step: u64,
        call_id: &'a str,
        outcome: Outcome,
        summary: &'a str,
        referenced_files: Vec<File<'a>>,
        exit_code: Option<i32>,
        duration_ms: u64,
    },
    #[serde(rename = "plan")]
    Plan { items: &'a [PlanItem], completed: usize, total: usize, carried: bool, changes: Vec<Change<'a>> },
    #[serde(rename = "notice")]
    Notice { kind: &'a str, body: &'a str },
    #[serde(rename = "compaction")]
    Compaction {
        method: &'a str,
        before: u64,
        after: Option<u64>,
        failure: Option<&'a str>,
        reused: Option<(u32, u32)>,
    },
    #[serde(rename = "error")]
    Error { message: &'a str, class: &'a str, retry_after: Option<f64> },
    #[serde(rename = "turn.completed")]
    TurnCompleted {
        stop_reason: &'a str,
        exit_code: u8,
        usage: Tokens,
        cost: Option<f64>,
        denied: u64,
        plan: Counts,
        #[serde(skip_serializing_if = "Option::is_none")]
        output: Option<Box<RawValue>>,
    },
}

#[derive(Serialize)]
pub(crate) struct Call<'a> {
    id: &'a str,
    name: &'a str,
    arguments: &'a str,
}

impl<'a> Call<'a> {
    fn of(call: &'a ToolCall) -> Self {
        Call { id: &call.id, name: &call.name, arguments: &call.arguments }
    }
}

#[derive(Serialize)]
pub(crate) struct Failure<'a> {
    class: &'a str,
    message: &'a str,
}

/// A file that a call touched. Its hash is told in hexadecimal, however the log has it.
#[derive(Serialize)]
pub(crate) struct File<'a> {
    path: &'a FilePath,
    #[serde(skip_serializing_if = "Option::is_none")]
    hash: Option<&'a str>,
}

impl<'a> File<'a> {
    fn of(file: &'a ReferencedFile) -> Self {
        File { path: &file.path, hash: file.hash.as_ref().map(ContentHash::as_str) }
    }
}

#[derive(Serialize)]
pub(crate) struct Change<'a> {
    id: &'a str,
    change: &'a str,
}

/// Tokens with every count, also those that a log leaves out.
#[derive(Serialize)]
pub(crate) struct Tokens {
    input_tokens: u64,
    cached_tokens: u64,
    output_tokens: u64,
}

impl From<Usage> for Tokens {
    fn from(usage: Usage) -> Self {
        let Usage { input_tokens, cached_tokens, cache_written_tokens: _, output_tokens } = usage;
        Tokens { input_tokens, cached_tokens, output_tokens }
    }
}

#[derive(Serialize)]
pub(crate) struct Counts {
    completed: usize,
    total: usize,
}

/// Writes one event to stdout.
pub(crate) fn write(line: &Line<'_>) {
    // An event's types cannot fail to serialise.
    let Ok(mut text) = serde_json::to_vec(line) else { return };
    text.push(b'\n');
    out_bytes(&text);
}

/// Writes what an agent's event is on stdout, if it is anything there.
///
/// `form` is the one that the answer must have; what has it is told as the turn's output.
pub(crate) fn show(event: &Event, with_deltas: bool, signal: Option<u8>, form: Option<&Form>) {
    match event {
        Event::TurnStarted => write(&Line::TurnStarted {}),
        Event::TextDelta(text) if with_deltas => write(&Line::AnswerDelta { text }),
        Event::Answer { step, answer } => write(&answer_line(*step, answer)),
        Event::ToolStarted { step, call } => {
            let ToolCall { id, name, arguments, .. } = call;
            write(&Line::ToolStarted { step: *step, call_id: id, name, arguments });
        }
        Event::ToolCompleted { step, call, result } => write(&tool_line(*step, call, result)),
        Event::Plan { view, changes } => write(&plan_line(view, changes)),
        Event::Notice(notice) => write(&Line::Notice { kind: notice.about.as_str(), body: &notice.text }),
        Event::Compacted(done) => write(&Line::Compaction {
            method: &done.method,
            before: done.before,
            after: done.after,
            failure: done.failure.as_deref(),
            reused: done.reused,
        }),
        Event::TurnCompleted(report) => completed(report, signal, form),
        _ => {}
    }
}

fn answer_line(step: u64, answer: &Answer) -> Line<'_> {
    let reasoning = answer.content.iter().filter_map(|block| match block {
        Content::Reasoning { text, .. } => Some(text.as_str()),
        Content::Text { .. } | Content::Call(_) | Content::Opaque { .. } => None,
    });
    let (stop_reason, error) = match &answer.ended {
        Ended::Complete => (finish(answer.finish), None),
        Ended::Cancelled => ("cancelled", None),
        Ended::Failed { class, message } => ("error", Some(Failure { class: class.as_str(), message })),
    };
    Line::Answer {
        step,
        text: answer.text(),
        reasoning: reasoning.collect(),
        tool_calls: answer.calls().map(Call::of).collect(),
        stop_reason,
        usage: answer.usage.map(Tokens::from),
        error,
    }
}

fn finish(finish: Finish) -> &'static str {
    match finish {
        Finish::EndTurn => "end_turn",
        Finish::ToolCalls => "tool_calls",
        Finish::MaxTokens => "max_tokens",
        Finish::Refusal => "refusal",
        Finish::Unknown => "unknown",
    }
}

fn tool_line<'a>(step: u64, call: &'a ToolCall, result: &'a ToolResult) -> Line<'a> {
    Line::ToolCompleted {
        step,
        call_id: &call.id,
        outcome: result.outcome,
        summary: &result.summary,
        referenced_files: result.referenced_files.iter().map(File::of).collect(),
        exit_code: result.exit_code,
        duration_ms: result.duration_ms,
    }
}

fn plan_line<'a>(view: &'a PlanInView, changes: &'a [PlanChange]) -> Line<'a> {
    Line::Plan {
        items: &view.plan.items,
        completed: view.plan.completed(),
        total: view.plan.items.len(),
        carried: view.carried,
        changes: changes
            .iter()
            .map(|change| Change { id: &change.id, change: change.kind.as_str() })
            .collect(),
    }
}

fn completed(report: &TurnReport, signal: Option<u8>, form: Option<&Form>) {
    if let Some(failure) = &report.failure {
        write(&Line::Error {
            message: failure.message(),
            class: failure.class(),
            retry_after: failure.retry_after().map(|delay| delay.as_secs_f64()),
        });
    }
    write(&Line::TurnCompleted {
        stop_reason: report.stop_reason.as_str(),
        exit_code: exit_code(report, signal),
        usage: report.usage.into(),
        cost: report.cost.map(in_dollars),
        denied: report.denied,
        plan: Counts { completed: report.plan.plan.completed(), total: report.plan.plan.items.len() },
        output: form
            .filter(|_| report.stop_reason != StopReason::Error)
            .and_then(|form| form.document(&report.text).ok())
            .map(on_one_line),
    });
}

/// A document without line breaks between its tokens, since an event is one line.
fn on_one_line(document: Box<RawValue>) -> Box<RawValue> {
    if !document.get().contains(['\n', '\r']) {
        return document;
    }
    let value = serde_json::from_str::<serde_json::Value>(document.get());
    value.ok().and_then(|value| serde_json::value::to_raw_value(&value).ok()).unwrap_or(document)
}
