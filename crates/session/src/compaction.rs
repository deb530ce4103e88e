//! The words and the shapes of a compaction: what the model is asked for, what its summary says, and what the next
//! segment begins with.
//!
//! Pure. Who asks the model, reads files and decides whether the result fits is `mainstay-agent`; how the segment is
//! written is [`crate::log::Log::next_segment`].

mod summary;

use std::borrow::Cow;

use crate::attention::PLAN_HEADS;
use crate::conversation::Item;
use crate::lookalike::{begins_with, runtime_block};
use crate::message::{Content, Image, ToolResult};
use crate::plan::{Plan, one_line, render};
use crate::request::IMAGE_BYTES;
use crate::state::SessionState;

pub use summary::{FileRange, Summary, SummaryFault};

#[cfg(test)]
mod tests;

/// How the request for a summary begins.
pub const COMPACTION_REQUEST: &str = "This is a compaction request";

/// How many of the recent files the worker is told of.
pub const DEFAULT_REFERENCES: usize = 5;

/// What a worker is asked, behind the conversation as it stands: a text of its own, at most `words` words being wanted.
pub fn instruction_text(state: &SessionState, wish: Option<&str>, words: u64) -> String {
    let mut text = format!(
        "{COMPACTION_REQUEST}, made by the runtime: the conversation will be replaced by your summary. Do not go on with \
         the work. You may call `read` for what you must look at first; call nothing else.\n\n\
         Write the summary as plain text, at most {words} words, under these headings:\n\
         Goal: what the user wants, and every demand and decision of theirs that still holds.\n\
         Done: what is finished and checked. It must not be done again.\n\
         Pending: what is open, beginning with what was being done, exactly where it stopped, and the next step.\n\
         Facts: paths, names, commands, errors and findings that are needed to go on.\n\n\
         End with two lists, one path a line behind a dash:\n\
         Read first: files that must be read before going on, each with a line range (src/a.rs:10-80) if a part is \
         enough.\n\
         References: other files that matter.\n\n"
    );
    text.push_str(&format!("The session plan, which is kept by itself:\n{}\n", plan_lines(&state.plan.plan)));
    let recent: Vec<String> = state
        .recent_files
        .iter()
        .take(DEFAULT_REFERENCES)
        .map(|file| format!("- {}", one_line(&file.path.to_string())))
        .collect();
    if !recent.is_empty() {
        text.push_str(&format!("\nFiles in play, the most recent first:\n{}\n", recent.join("\n")));
    }
    if let Some(wish) = wish.filter(|wish| !wish.trim().is_empty()) {
        text.push_str(&format!("\nThe user asks of the summary: {}\n", wish.trim()));
    }
    text
}

fn plan_lines(plan: &Plan) -> String {
    if plan.items.is_empty() { "(no plan items)".to_owned() } else { render(plan) }
}

/// What a worker is told of a call that it may not make.
pub fn refused_call_text(name: &str) -> String {
    let shown: String = name.chars().take(60).collect();
    format!(
        "`{shown}` was not run: while the conversation is summarised only `read` may be called. Write the summary."
    )
}

const SUMMARY_HEAD: &str = "The conversation so far was summarised to make room.";

/// How what the runtime says of the world begins; a segment says it anew.
const WORLD_HEADS: [&str; 5] = [
    "The working directory is now ",
    "The date is now ",
    "Instruction files have changed.",
    "These instruction files are gone",
    "Background jobs that are",
];

/// How what a compaction says of files begins.
const SHOWN_HEAD: &str = "As it is now, line by line: ";
const FILES_HEAD: &str = "Files in play; read them again where you need them:";

/// The summary as the next segment tells it. Its text cannot leave the block it stands in.
pub fn summary_text(summary: &str) -> String {
    runtime_block(&format!(
        "{SUMMARY_HEAD} Go on from here; do not begin anew what is done.\n\n{}",
        summary.trim()
    ))
}

/// A file of which the next segment shows a part or only the name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CarriedFile {
    /// The path as it is shown.
    pub path: String,
    /// What is said of it behind the path: that it is gone, or has changed.
    pub remark: Option<&'static str>,
    /// What it holds today, where it is shown.
    pub text: Option<String>,
}

/// The files that a compaction hands on; none if there are none.
pub fn carried_files_text(files: &[CarriedFile]) -> Option<String> {
    let line = |file: &CarriedFile| {
        let remark = file.remark.map(|remark| format!(" ({remark})")).unwrap_or_default();
        format!("{}{remark}", one_line(&file.path))
    };
    let shown = files.iter().filter_map(|file| Some((line(file), file.text.as_ref()?)));
    // Each line of a file is marked, so that none can speak for the runtime within its block.
    let quoted =
        |text: &str| text.trim_end().lines().map(|line| format!("| {line}")).collect::<Vec<_>>().join("\n");
    let mut parts: Vec<String> =
        shown.map(|(line, text)| format!("{SHOWN_HEAD}{line}\n{}", quoted(text))).collect();
    let named: Vec<String> =
        files.iter().filter(|file| file.text.is_none()).map(|file| format!("- {}", line(file))).collect();
    if !named.is_empty() {
        parts.push(format!("{FILES_HEAD}\n{}", named.join("\n")));
    }
    (!parts.is_empty()).then(|| runtime_block(&parts.join("\n\n")))
}

/// The background jobs that run on; none if none does.
pub fn jobs_text(state: &SessionState) -> Option<String> {
    let jobs = state.jobs.iter().filter_map(|intent| intent.job.as_ref());
    let lines: Vec<String> = jobs.map(|job| format!("- {}: {}", job.id(), one_line(&job.command))).collect();
    (!lines.is_empty())
        .then(|| runtime_block(&format!("Background jobs that are still running:\n{}", lines.join("\n"))))
}

/// A summary without a model: what the user said, the plan, what was called last.
pub fn plain_summary(state: &SessionState) -> String {
    let prompts = state.history.iter().filter_map(|item| match item {
        Item::Prompt { text, .. } => Some(format!("- {}", cut(&one_line(text), 300))),
        Item::Notice { .. } | Item::Step(_) | Item::Orphan(_) => None,
    });
    let prompts: Vec<String> = prompts.collect();
    let calls: Vec<String> = state
        .history
        .iter()
        .filter_map(Item::as_step)
        .flat_map(|step| {
            step.calls()
                .map(|(_, call, result)| call_line(&call.name, &call.arguments, result))
                .collect::<Vec<_>>()
        })
        .collect();
    let last = calls.len().saturating_sub(12);
    let mut parts = vec!["No model summarised it. What the log says:".to_owned()];
    parts.extend(earlier_summary(state).map(|text| cut(text, 6_000).into_owned()));
    let mut list = |heading: &str, lines: &[String]| {
        if !lines.is_empty() {
            parts.push(format!("{heading}\n{}", lines.join("\n")));
        }
    };
    list("The user said:", &prompts[prompts.len().saturating_sub(12)..]);
    list("The last calls:", &calls[last..]);
    if !state.plan.plan.items.is_empty() {
        parts.push(format!("The plan:\n{}", render(&state.plan.plan)));
    }
    let words = state.last_text();
    if !words.trim().is_empty() {
        parts.push(format!("The last answer: {}", cut(&one_line(&words), 600)));
    }
    parts.join("\n\n")
}

/// What an earlier compaction left of the conversation.
fn earlier_summary(state: &SessionState) -> Option<&str> {
    state.history.iter().rev().find_map(|item| match item {
        Item::Notice { text } if begins_with(text, &[SUMMARY_HEAD]) => {
            let body = text.split_once("\n\n")?.1;
            Some(body.strip_suffix("</system-reminder>").unwrap_or(body).trim())
        }
        Item::Notice { .. } | Item::Prompt { .. } | Item::Step(_) | Item::Orphan(_) => None,
    })
}

fn call_line(name: &str, arguments: &str, result: Option<&ToolResult>) -> String {
    let outcome = result.map(|result| one_line(&result.summary)).unwrap_or_default();
    format!("- {} {}: {}", one_line(name), cut(&one_line(arguments), 120), cut(&outcome, 120))
}

/// At most about `max` bytes of a text, cut at a character.
fn cut(text: &str, max: usize) -> Cow<'_, str> {
    if text.len() <= max {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("{}…", &text[..text.floor_char_boundary(max)]))
}

/// The most bytes of images that a tail keeps beside the last prompt's own. A conversation is crowded only with more, so that
/// what follows a compaction is not.
const KEPT_IMAGE_BYTES: u64 = IMAGE_BYTES / 4;

/// Whether the images of a conversation are more than a request shows, and a compaction would leave out enough of them that
/// the next ones are seen. The last prompt's own are never left out.
pub fn is_crowded(history: &[Item]) -> bool {
    let last = history.iter().rposition(|item| matches!(item, Item::Prompt { .. }));
    let of = |(place, item): (usize, &Item)| (image_bytes(item), Some(place) == last);
    let (mut all, mut old) = (0u64, 0u64);
    for (bytes, is_last) in history.iter().enumerate().map(of) {
        all = all.saturating_add(bytes);
        old = old.saturating_add(if is_last { 0 } else { bytes });
    }
    all > IMAGE_BYTES && old > KEPT_IMAGE_BYTES
}

fn image_bytes(item: &Item) -> u64 {
    match item {
        Item::Prompt { images, .. } => image_bytes_of(images),
        Item::Notice { .. } => 0,
        Item::Orphan(result) => image_bytes_of(&result.images),
        Item::Step(step) => step.results.iter().flatten().map(|result| image_bytes_of(&result.images)).sum(),
    }
}

fn image_bytes_of(images: &[Image]) -> u64 {
    images.iter().fold(0, |sum, image| sum.saturating_add(image.bytes))
}

/// What a conversation is cut into: what the user said before the tail, and the tail.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// What the user said before, oldest first; always the last prompt, unless the tail has it.
    pub prompts: Vec<Item>,
    /// The last items: prompts, notifications, and steps with the results of their calls.
    pub tail: Vec<Item>,
}

/// Keeps the end of a conversation: a tail of at most `tail` bytes that begins at a border of steps, and what the user said
/// before it, the newest first, up to `prompts` bytes.
///
/// What the runtime said of the plan, of instructions and of the date is left out: the next segment says it anew. Reasoning and
/// blocks that are bound to the conversation they were made in are left out if `is_bound`.
pub fn keep(history: &[Item], tail: usize, prompts: usize, is_bound: bool) -> Kept {
    let mut size = 0;
    let mut start = history.len();
    for (place, item) in history.iter().enumerate().rev() {
        size += item_bytes(item);
        if size > tail {
            break;
        }
        start = place;
    }
    let mut kept_tail: Vec<Item> =
        history[start..].iter().filter_map(|item| in_tail(item, is_bound)).collect();
    leave_images_out(&mut kept_tail, KEPT_IMAGE_BYTES);
    let mut left = prompts;
    let mut kept = Vec::new();
    let has_last = history[start..].iter().any(|item| matches!(item, Item::Prompt { .. }));
    for item in history[..start].iter().rev() {
        let Item::Prompt { text, images } = item else { continue };
        let is_last = kept.is_empty() && !has_last;
        if !is_last && text.len() > left {
            break;
        }
        left = left.saturating_sub(text.len());
        // Only the last prompt's images are worth their room.
        let images = if is_last { images.clone() } else { Vec::new() };
        kept.push(Item::Prompt { text: text.clone(), images });
    }
    kept.reverse();
    Kept { prompts: kept, tail: kept_tail }
}

fn in_tail(item: &Item, is_bound: bool) -> Option<Item> {
    match item {
        Item::Notice { text } => {
            // The summary is of these as well.
            let is_old = begins_with(text, &[SUMMARY_HEAD, FILES_HEAD, SHOWN_HEAD]);
            (!is_old && !is_said_anew(text)).then(|| item.clone())
        }
        Item::Step(_) if is_bound => unbound(item),
        Item::Prompt { .. } | Item::Step(_) => Some(item.clone()),
        Item::Orphan(_) => None,
    }
}

/// Whether a text of the runtime is said anew in every segment.
fn is_said_anew(text: &str) -> bool {
    begins_with(text, &PLAN_HEADS) || begins_with(text, &WORLD_HEADS)
}

/// A whole conversation as it can stand in another segment: without what that says anew, and without reasoning and blocks
/// that are bound to the conversation they were made in if `is_bound`.
pub fn transplanted<'a>(history: impl Iterator<Item = &'a Item>, is_bound: bool) -> Vec<Item> {
    let fits = |item: &&Item| !matches!(item, Item::Notice { text } if is_said_anew(text));
    let free = |item: &Item| if is_bound { unbound(item) } else { Some(item.clone()) };
    history.filter(fits).filter_map(free).collect()
}

/// A step without reasoning and without blocks that are bound to the conversation they were made in; none if nothing is
/// left of it. Any other item as it is.
fn unbound(item: &Item) -> Option<Item> {
    let mut item = item.clone();
    item.unbind();
    item.as_step().is_none_or(|step| !step.content.is_empty()).then_some(item)
}

/// About how many bytes an item takes in a request.
pub fn item_bytes(item: &Item) -> usize {
    match item {
        Item::Prompt { text, .. } | Item::Notice { text } => text.len(),
        Item::Orphan(result) => result_bytes(result),
        Item::Step(step) => {
            let blocks: usize = step.content.iter().map(block_bytes).sum();
            blocks + step.results.iter().flatten().map(result_bytes).sum::<usize>()
        }
    }
}

fn block_bytes(block: &Content) -> usize {
    match block {
        Content::Text { text } => text.len(),
        Content::Reasoning { text, opaque } => opaque.as_ref().map_or(text.len(), String::len),
        Content::Call(call) => call.name.len() + call.arguments.len() + 60,
        Content::Opaque { raw } => raw.len(),
    }
}

fn result_bytes(result: &ToolResult) -> usize {
    result.summary.len() + result.content.as_ref().map_or(0, String::len)
}

/// Shortens the results of a step to `max` bytes each, the end cut off and said so. Its images stay.
pub fn shorten_step(item: &mut Item, max: usize) {
    let Item::Step(step) = item else { return };
    for result in step.results.iter_mut().flatten() {
        let images = std::mem::take(&mut result.images);
        shrink_result(result, max);
        result.images = images;
    }
}

/// Shortens the results of all steps but the last `spared` ones to `max` bytes each, the end cut off and said so, and
/// leaves their images out. Says whether anything became shorter.
pub fn shrink(history: &mut [Item], spared: usize, max: usize) -> bool {
    let steps = history.iter().filter(|item| item.as_step().is_some()).count();
    let mut is_shorter = false;
    let old = history.iter_mut().filter_map(|item| match item {
        Item::Step(step) => Some(step),
        Item::Prompt { .. } | Item::Notice { .. } | Item::Orphan(_) => None,
    });
    for step in old.take(steps.saturating_sub(spared)) {
        for result in step.results.iter_mut().flatten() {
            is_shorter |= shrink_result(result, max);
        }
    }
    is_shorter
}

/// Leaves old images out: those of all prompts but the last, and of results what is more than `max` bytes, newest first.
fn leave_images_out(tail: &mut [Item], mut max: u64) {
    let mut is_last_prompt = true;
    for item in tail.iter_mut().rev() {
        match item {
            Item::Prompt { images, .. } => {
                if !std::mem::take(&mut is_last_prompt) {
                    images.clear();
                }
            }
            Item::Step(step) => {
                for result in step.results.iter_mut().rev().flatten() {
                    max = leave_image_out(result, max);
                }
            }
            Item::Notice { .. } | Item::Orphan(_) => {}
        }
    }
}

/// Leaves a result's images out if they have more than `max` bytes, and says how many bytes are left for others.
fn leave_image_out(result: &mut ToolResult, max: u64) -> u64 {
    let bytes = image_bytes_of(&result.images);
    if bytes > max {
        result.images.clear();
        let content = result.content.get_or_insert_default();
        content.push_str("\n[The image of this result was left out to make room; it can be read again.]");
    }
    max.saturating_sub(bytes)
}

fn shrink_result(result: &mut ToolResult, max: usize) -> bool {
    let mut is_shorter = !result.images.is_empty();
    result.images.clear();
    if let Some(content) = result.content.as_mut().filter(|content| content.len() > max + 80) {
        let left_out = content.len() - content.floor_char_boundary(max);
        content.truncate(content.floor_char_boundary(max));
        content.push_str(&format!("\n[{left_out} bytes of this result were left out to make room]"));
        is_shorter = true;
    }
    is_shorter
}
