//! `exec` for people: progress on stderr while a terminal watches, the answer on stdout at the end.

use std::io::{IsTerminal, stderr};

use mainstay_agent::Event;
use mainstay_agent::session::entry::{Compaction, NoticeKind};
use mainstay_agent::session::message::{Ended, Outcome, ToolCall};
use mainstay_agent::session::plan;

use crate::output::{inert, inert_lines, say, shortened};

/// How much of a line of progress is shown, in characters.
const WIDTH: usize = 100;

/// Says on stderr what an event means: to a terminal all of it, elsewhere only what the user must know.
pub(crate) fn show(event: &Event) {
    match event {
        event if says_what_is_wrong(event) => {}
        event if stderr().is_terminal() => progress(event),
        _ => {}
    }
}

/// Says on stderr what is not as it should be while the turn goes on, also where a program reads the events: no event
/// tells of it. Says nothing, and that, of any other event.
pub(crate) fn says_what_is_wrong(event: &Event) -> bool {
    match event {
        Event::Warning(message) => say(&format!("warning: {}", inert(message))),
        Event::Retry { retry, of, class, message, delay } => say(&format!(
            "retry {retry} of {of} in {:.1} s ({}): {}",
            delay.as_secs_f64(),
            class.as_str(),
            shortened(&inert(message), 300)
        )),
        _ => return false,
    }
    true
}

fn progress(event: &Event) {
    match event {
        Event::Answer { answer, .. }
            if answer.ended == Ended::Complete && answer.calls().next().is_some() =>
        {
            let text = answer.text();
            if !text.trim().is_empty() {
                say(&inert_lines(text.trim()));
            }
        }
        Event::ToolStarted { call, .. } if !plan::is_plan_tool(&call.name) => {
            say(&format!("• {}", call_line(call)))
        }
        Event::ToolCompleted { result, .. } if result.outcome != Outcome::Ok => {
            let first = result.summary.lines().next().unwrap_or_default();
            say(&format!("  {}", shortened(&inert(first), WIDTH)));
        }
        Event::Plan { view, .. } => {
            plan::render(&view.plan)
                .lines()
                .filter(|line| !line.is_empty())
                .for_each(|line| say(&format!("  {line}")));
        }
        Event::CompactionStarted { before, .. } => {
            say(&format!("making room: the next request would take about {before} tokens"));
        }
        Event::Compacted(done) => say(&compacted_line(done)),
        Event::Notice(notice) => {
            let what = match notice.about {
                NoticeKind::Reminder => "the plan was brought back before the model",
                NoticeKind::PlanCarried => "the unfinished plan was carried over",
                NoticeKind::Notification { .. } => "a notification was delivered",
                NoticeKind::Date { .. } => "the model was told of the new date",
                NoticeKind::Instructions { .. } => "the model was told that instruction files changed",
                NoticeKind::FilesChanged { .. } => "the model was told that files changed",
                NoticeKind::Moved { .. } => "the model was told of the new directory",
                NoticeKind::Interceptor => "a text was added to the history",
                NoticeKind::Continuation => "the plan is unfinished; the model was asked to go on",
                NoticeKind::AnswerForm => "the model was told what form its answer must have",
                NoticeKind::TextCall => "the model was told that a call it wrote as text was not run",
                NoticeKind::Compaction => "the model was asked for a summary",
            };
            say(&format!("  ({what})"));
        }
        _ => {}
    }
}

/// What a compaction brought, in one line.
pub(crate) fn compacted_line(done: &Compaction) -> String {
    let Some(after) = done.after else {
        return format!("no room was made: {}", inert(done.failure.as_deref().unwrap_or_default()));
    };
    let how = match done.method.as_str() {
        "model" => "the model summarised the conversation",
        "folded" => "the model summarised a shortened conversation",
        "shrink" => "old outputs were shortened",
        "undo" => "the conversation from before the compaction is back",
        _ => "the conversation was summarised without a model",
    };
    let reused = match done.reused {
        Some((shared, whole)) if whole > 0 => {
            format!("; {} % of the prompt was reused", u64::from(shared) * 100 / u64::from(whole))
        }
        _ => String::new(),
    };
    let why = match &done.failure {
        Some(tried) => format!(" (not otherwise: {})", inert(tried)),
        None => String::new(),
    };
    format!("compacted: about {} tokens became {after}; {how}{reused}{why}", done.before)
}

fn call_line(call: &ToolCall) -> String {
    let arguments = call.arguments.trim();
    shortened(&format!("{} {}", inert(&call.name), inert(arguments)), WIDTH)
}
