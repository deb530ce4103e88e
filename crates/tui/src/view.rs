//! What the live area below the conversation shows: a pure function of the interface's state.
//!
//! From top to bottom: what is being said and not in the scrollback yet, what is going on, messages that wait, the plan
//! (at most a third of the screen, the active item always in it), the input or what stands in its place, completions, and
//! the status line. Where there is little room the upper parts give way first.

mod overlay;

use std::time::Duration;

use mainstay_agent::Hold;
use mainstay_agent::prices::dollars;
use mainstay_agent::session::plan::{PlanItem, PlanItemStatus};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use crate::app::{App, Approving, Overlay, Phase, Running, Work};
use crate::text::{Row, plain_line, shortened, width};
use crate::theme::{ACCENT, BOLD, DIM, PLAIN, SELECTED, WARN};
use crate::transcript::{call_words, duration, plan_sign, tokens};

/// The most rows for calls that run, for what they print, and for messages that wait.
const CALLS: usize = 3;
const OUTPUT: usize = 5;
const QUEUED: usize = 3;

/// A picture of the live area.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct View {
    /// The cells.
    pub(crate) buffer: Buffer,
    /// Where the cursor is, by column and row; hidden if nowhere.
    pub(crate) cursor: Option<(u16, u16)>,
}

/// Rows that belong together, with the cursor in one of them.
#[derive(Default)]
struct Section {
    rows: Vec<Line<'static>>,
    cursor: Option<(usize, usize)>,
}

/// Draws the live area.
pub(crate) fn view(app: &App) -> View {
    let (columns, screen) = (usize::from(app.size.0.max(4)), usize::from(app.size.1.max(2)));
    let status = if screen >= 4 { vec![status(app, columns)] } else { Vec::new() };
    let mut left = screen - status.len();
    // A question needs the room more.
    let most = if app.asks() && screen < 20 { 1 } else { screen / 3 };
    let plan = plan(app, columns, most.min(left - 1));
    left -= plan.len();
    let bottom = match &app.overlay {
        Some(Overlay::Approval(approving)) => overlay::approval(approving, &app.editor, columns, left),
        Some(Overlay::Picker(picker)) => overlay::picker(picker, columns, left.min(screen * 2 / 3).max(3)),
        None => input(app, columns, (screen / 3).clamp(1, left)),
    };
    left -= bottom.rows.len().min(left);
    let completion = completion(app, columns, left.min(6));
    left -= completion.len();
    let activity = activity(app, columns, left.min(CALLS), (screen / 5).min(OUTPUT));
    let activity = &activity[..activity.len().min(left)];
    left -= activity.len();
    let queue = queue(app, columns, left.min(QUEUED));
    left -= queue.len();
    let below = [&plan, activity, &queue, &bottom.rows, &completion, &status];
    let stream = stream(app, columns, left.min(stream_rows(below, columns, screen)));
    left -= stream.len();
    let mut rows: Vec<Line<'static>> = Vec::new();
    // What is on its way to the scrollback brings its own distance.
    if screen >= 12 && left > 0 && !app.is_committing() && !app.is_begun() {
        rows.push(Line::default());
    }
    for part in [&stream, activity, &queue, &plan] {
        rows.extend_from_slice(part);
    }
    let cursor = bottom.cursor.filter(|_| !is_watching(app)).map(|(column, row)| (column, row + rows.len()));
    rows.extend(bottom.rows);
    rows.extend(completion);
    rows.extend(status);
    drawn(rows, cursor, columns, screen)
}

/// How many rows what is being said takes at most, above these: so many that a terminal that becomes half as wide, and breaks
/// all rows anew, has room for the whole live area. What has none ends up in the scrollback, where it is no part of the
/// conversation.
fn stream_rows(below: [&[Line<'static>]; 6], columns: usize, screen: usize) -> usize {
    let broken = |line: &Line<'static>| if line.width() * 2 > columns { 2 } else { 1 };
    let taken: usize = below.into_iter().flatten().map(broken).sum();
    // A small one is seldom made smaller.
    let least = if screen < 12 { 3 } else { 2 };
    (screen.saturating_sub(taken + 1) / 2).max(least)
}

/// Whether the user only looks on. There is no cursor then: a terminal that is made smaller keeps what is above the cursor,
/// and what is below it goes.
fn is_watching(app: &App) -> bool {
    app.work.is_some() && app.overlay.is_none() && app.editor.is_empty()
}

fn drawn(
    mut rows: Vec<Line<'static>>,
    cursor: Option<(usize, usize)>,
    columns: usize,
    screen: usize,
) -> View {
    let over = rows.len().saturating_sub(screen);
    rows.drain(..over);
    let to_u16 = |n: usize| u16::try_from(n).unwrap_or(u16::MAX);
    let mut buffer = Buffer::empty(Rect::new(0, 0, to_u16(columns), to_u16(rows.len())));
    for (y, line) in (0u16..).zip(&rows) {
        buffer.set_line(0, y, line, to_u16(columns));
    }
    let cursor = cursor
        .and_then(|(column, row)| Some((to_u16(column.min(columns - 1)), to_u16(row.checked_sub(over)?))));
    View { buffer, cursor }
}

/// The end of what is on its way to the scrollback.
fn stream(app: &App, columns: usize, most: usize) -> Vec<Line<'static>> {
    let mut rows: Vec<Row> = app.committing();
    rows.extend(app.coming());
    let mut lines: Vec<Line<'static>> = Vec::new();
    for row in rows.iter().rev() {
        if lines.len() >= most {
            break;
        }
        lines.extend(row.wrapped(columns).into_iter().rev());
    }
    lines.truncate(most);
    lines.reverse();
    lines
}

/// What is going on, in at most `most` rows; below the last call at most `output` rows of what it printed last.
fn activity(app: &App, columns: usize, most: usize, output: usize) -> Vec<Line<'static>> {
    let Some(work) = &app.work else { return Vec::new() };
    if most == 0 || app.asks() {
        return Vec::new();
    }
    if work.calls.is_empty() || work.is_cancelled || work.phase != Phase::Working {
        return vec![Line::styled(shortened(&doing(app, work), columns), DIM)];
    }
    let hidden = work.calls.len().saturating_sub(most);
    let row = |running: &Running| {
        let time = format!(" · {}", duration(app.now.saturating_sub(running.since)));
        let words = shortened(&call_words(&running.call), columns.saturating_sub(width(&time) + 2));
        Line::from(vec![Span::styled("• ", ACCENT), Span::styled(words, PLAIN), Span::styled(time, DIM)])
    };
    let mut rows: Vec<Line<'static>> = work.calls[hidden..].iter().map(row).collect();
    if let Some(running) = work.calls.last() {
        let earlier = running.output.len().saturating_sub(output);
        let printed = running.output[earlier..].iter();
        rows.extend(
            printed
                .map(|line| Line::styled(format!("    {}", shortened(line, columns.saturating_sub(4))), DIM)),
        );
    }
    rows
}

/// What is waited for, in words.
fn doing(app: &App, work: &Work) -> String {
    let time = duration(app.now.saturating_sub(work.since));
    if work.is_cancelled {
        return "… cancelling".to_owned();
    }
    match &work.phase {
        Phase::Retry { at, words } => {
            let left = at.saturating_sub(app.now);
            format!("… in {} s: {}", left.as_millis().div_ceil(1_000), plain_line(words))
        }
        Phase::Compacting { before } => {
            format!("… making room: summarising {} tokens · {time} · Esc cancels", tokens(*before))
        }
        Phase::Other(words) => format!("… {words} · {time}"),
        Phase::Working => {
            let thought = work.reasoning.trim_end().lines().last().map(plain_line).unwrap_or_default();
            if thought.is_empty() {
                format!("… working · {time} · Esc cancels")
            } else {
                format!("… thinking · {time} · {thought}")
            }
        }
    }
}

fn queue(app: &App, columns: usize, most: usize) -> Vec<Line<'static>> {
    let hidden = app.queue.len().saturating_sub(most);
    let line = |text: &String| {
        let first = text.lines().next().unwrap_or_default();
        let words = format!("↳ waits: {}", plain_line(&shortened(first, 300)));
        Line::styled(shortened(&words, columns), DIM)
    };
    app.queue.iter().skip(hidden).map(line).collect()
}

/// The plan, in at most `most` rows; nothing once it is done.
fn plan(app: &App, columns: usize, most: usize) -> Vec<Line<'static>> {
    let view = &app.session.plan;
    let items = &view.plan.items;
    if !view.plan.has_unfinished() || most == 0 {
        return Vec::new();
    }
    let active = items
        .iter()
        .position(|item| item.status == PlanItemStatus::InProgress)
        .or_else(|| items.iter().position(|item| item.status == PlanItemStatus::Pending))
        .unwrap_or(0);
    let mut marks = String::new();
    if view.carried {
        marks.push_str(" · carried");
    }
    if app.is_interrupted {
        marks.push_str(" · interrupted");
    }
    let count = format!("{}/{}", view.plan.completed(), items.len());
    if most < 3 {
        return short_plan(items, active, &count, &marks, columns, most);
    }
    let room = (most - 1).min(items.len());
    // What is next matters more than what was last.
    let before = if room < 4 { 0 } else { 1 };
    let first = active.saturating_sub(before).min(items.len() - room);
    let hidden = match (first, items.len() - first - room) {
        (0, 0) => String::new(),
        (above, 0) => format!(" · {above} above"),
        (0, below) => format!(" · {below} below"),
        (above, below) => format!(" · {above} above, {below} below"),
    };
    let head =
        vec![Span::styled(format!("Plan {count}"), BOLD), Span::styled(format!("{marks}{hidden}"), DIM)];
    let mut rows = vec![Line::from(head)];
    rows.extend(items[first..first + room].iter().map(|item| plan_row(item, columns)));
    rows
}

fn plan_row(item: &PlanItem, columns: usize) -> Line<'static> {
    let (sign, style) = plan_sign(item.status);
    let sign_style = if item.status == PlanItemStatus::InProgress { ACCENT } else { style };
    let words = shortened(&plain_line(item_words(item)), columns.saturating_sub(4));
    Line::from(vec![Span::styled(format!("  {sign} "), sign_style), Span::styled(words, style)])
}

fn item_words(item: &PlanItem) -> &str {
    match item.status {
        PlanItemStatus::InProgress if !item.active_form.is_empty() => &item.active_form,
        _ => &item.content,
    }
}

/// The plan in one or two rows: what is being done, then what is next.
fn short_plan(
    items: &[PlanItem],
    active: usize,
    count: &str,
    marks: &str,
    columns: usize,
    most: usize,
) -> Vec<Line<'static>> {
    let end = format!(" {count}{marks}");
    let words = shortened(&plain_line(item_words(&items[active])), columns.saturating_sub(width(&end) + 2));
    let sign = plan_sign(items[active].status).0;
    let mut rows = vec![Line::from(vec![
        Span::styled(format!("{sign} "), ACCENT),
        Span::styled(words, BOLD),
        Span::styled(shortened(&end, columns), DIM),
    ])];
    let next = items[active + 1..].iter().find(|item| item.status == PlanItemStatus::Pending);
    if let (2.., Some(next)) = (most, next) {
        rows.push(Line::styled(shortened(&format!("  next: {}", plain_line(&next.content)), columns), DIM));
    }
    rows
}

fn input(app: &App, columns: usize, most: usize) -> Section {
    if app.editor.is_empty() {
        let words = match (&app.work, columns) {
            (_, ..30) => "",
            (None, _) => "Say what to do · /help",
            (Some(_), ..60) => "Esc cancels the turn",
            (Some(_), _) => "Esc cancels; what you send waits for the next step",
        };
        let row = Line::from(vec![Span::styled("› ", ACCENT), Span::styled(words, DIM)]);
        return Section { rows: vec![row], cursor: Some((2, 0)) };
    }
    let layout = app.editor.layout(columns - 2);
    let first = (layout.row + 1).saturating_sub(most);
    let shown = layout.rows.iter().enumerate().skip(first).take(most);
    let rows = shown
        .map(|(place, text)| {
            let sign = if place == 0 { "› " } else { "  " };
            Line::from(vec![Span::styled(sign, ACCENT), Span::raw(text.clone())])
        })
        .collect();
    Section { rows, cursor: Some((layout.column + 2, layout.row - first)) }
}

fn completion(app: &App, columns: usize, most: usize) -> Vec<Line<'static>> {
    let Some(completion) = &app.completion else { return Vec::new() };
    let all = completion.offers.len();
    let has_more = all > most && most > 1;
    let room = if has_more { most - 1 } else { most };
    let first = (completion.chosen + 1).saturating_sub(room);
    let shown = completion.offers.iter().enumerate().skip(first).take(room);
    let more = has_more.then(|| {
        let words = format!("  … {} more: Up, Down", all - room);
        Line::styled(shortened(&words, columns), DIM)
    });
    shown
        .map(|(place, (offer, what))| {
            let style = if place == completion.chosen { SELECTED } else { PLAIN };
            let sign = if place == completion.chosen { "▸ " } else { "  " };
            let words = shortened(&plain_line(offer), columns.saturating_sub(2));
            let room = columns.saturating_sub(16);
            let what = if what.is_empty() || room < 12 { String::new() } else { shortened(what, room) };
            let gap = " ".repeat(14usize.saturating_sub(width(&words)));
            Line::from(vec![
                Span::styled(sign, style),
                Span::styled(words, style),
                Span::styled(if what.is_empty() { String::new() } else { format!("{gap}{what}") }, DIM),
            ])
        })
        .chain(more)
        .collect()
}

fn status(app: &App, columns: usize) -> Line<'static> {
    if let Some(hint) = app.hint() {
        return Line::styled(shortened(&plain_line(hint), columns), WARN);
    }
    if let Some(Overlay::Approval(approving)) = &app.overlay {
        return Line::styled(shortened(&awaited(approving, app.now), columns), WARN);
    }
    Line::styled(fitting_parts(status_parts(app, columns), columns).join(GAP), DIM)
}

/// What stands between two parts of the status line.
const GAP: &str = " · ";

/// The parts that there is room for, the most important first; they stay in their order.
fn fitting_parts(parts: Vec<(u8, String)>, columns: usize) -> Vec<String> {
    let mut by_importance: Vec<usize> = (0..parts.len()).collect();
    by_importance.sort_by_key(|place| parts[*place].0);
    let mut left = columns + width(GAP);
    by_importance.retain(|place| {
        let taken = width(&parts[*place].1) + width(GAP);
        let fits = taken <= left;
        left -= if fits { taken } else { 0 };
        fits
    });
    let parts = parts.into_iter().enumerate();
    parts.filter(|(place, _)| by_importance.contains(place)).map(|(_, (_, part))| part).collect()
}

/// What a question waits for.
fn awaited(approving: &Approving, now: Duration) -> String {
    if approving.is_typing(now) {
        return "you are typing, it goes into your input; pause, then answer".to_owned();
    }
    match (approving.lasting(), approving.chosen, &approving.word) {
        (Some(choice), _, None) => format!("Enter confirms: {}", choice.words().1),
        (None, None, None) => {
            let keys: String =
                approving.choices().iter().map(|choice| format!("{} ", choice.words().0)).collect();
            format!("{keys}answer; what you wrote stays in your input · Esc cancels the turn")
        }
        _ => "waiting for your answer · Esc cancels the turn".to_owned(),
    }
}

/// What the status line says, with what is left out last, where there is little room, before what is left out first: what
/// may be done unasked outlives how full the window is.
fn status_parts(app: &App, columns: usize) -> Vec<(u8, String)> {
    let session = &app.session;
    let model = shortened(&plain_line(short_model(&session.model)), (columns / 2).max(8));
    let hold = match session.hold {
        None => "sandbox?",
        Some(Hold::No) => "no sandbox",
        Some(Hold::Partly) => "sandbox in part",
        Some(Hold::Fully) => "sandbox",
    };
    let window = (session.window > 0).then(|| {
        let percent = session.used.saturating_mul(100).div_ceil(session.window).min(999);
        format!("{percent}% of {}", tokens(session.window))
    });
    let approve = (!session.approve.is_empty()).then(|| format!("approve {}", session.approve));
    let jobs = match app.jobs.len() {
        0 => None,
        1 => Some("1 job".to_owned()),
        n => Some(format!("{n} jobs")),
    };
    let parts = [
        (0, Some(model)),
        (3, window),
        (2, Some(hold.to_owned())),
        (1, approve),
        (4, session.totals.known_cost().filter(|cost| *cost > 0).map(dollars)),
        (5, jobs),
        (6, app.branch.as_deref().map(plain_line)),
        (7, session.id.clone()),
    ];
    parts.into_iter().filter_map(|(rank, part)| Some((rank, part?))).collect()
}

/// The last part of a model's name.
fn short_model(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod frames;
