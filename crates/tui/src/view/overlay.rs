//! What stands in the place of the input: a question, or a list.

use ratatui::text::{Line, Span};

use super::Section;
use crate::app::{Approving, Choice, PickKind, Picker};
use crate::editor::Editor;
use crate::text::{Row, plain, plain_line, shortened, width};
use crate::theme::{ACCENT, BOLD, DIM, PLAIN, SELECTED, WARN};
use crate::transcript::diff_style;

/// A question about a call in at most `most` rows, with the end of what is being written meanwhile. The answers are always in
/// it; what is asked about gives way.
pub(super) fn approval(approving: &Approving, draft: &Editor, columns: usize, most: usize) -> Section {
    let request = &approving.request;
    let (answers, cursor) = match &approving.word {
        Some(word) => {
            let label = "no, because: ";
            let room = columns.saturating_sub(width(label)).max(2);
            let layout = word.layout(room);
            let text = layout.rows.get(layout.row).cloned().unwrap_or_default();
            let row = Line::from(vec![Span::styled(label, WARN), Span::raw(text)]);
            (vec![row], Some(width(label) + layout.column))
        }
        None if most < 12 => (vec![short_answers(approving, columns)], None),
        None => (answers(approving, columns), None),
    };
    let question = match request.tool.as_str() {
        "bash" => "Run this command?".to_owned(),
        "edit" | "write" => "Change this file?".to_owned(),
        tool => format!("Run {}?", plain_line(tool)),
    };
    let written = draft_row(draft, columns).filter(|_| most >= 6);
    let mut rows = vec![Line::styled(shortened(&question, columns), BOLD.patch(WARN))];
    let left = most.saturating_sub(rows.len() + answers.len() + usize::from(written.is_some()));
    rows.extend(subject(approving, columns, left));
    let cursor = cursor.map(|column| (column, rows.len()));
    rows.extend(answers);
    rows.extend(written);
    Section { rows, cursor }
}

/// The last line of what is being written, which comes back when the question is answered.
fn draft_row(draft: &Editor, columns: usize) -> Option<Line<'static>> {
    let text = draft.whole();
    let last = text.trim_end().lines().next_back()?;
    let label = "in your input: ";
    let room = columns.saturating_sub(width(label));
    let excess = width(last).saturating_sub(room);
    let end: String = last.chars().skip(if excess > 0 { excess + 1 } else { 0 }).collect();
    let end = if excess > 0 { format!("…{end}") } else { end };
    Some(Line::from(vec![
        Span::styled(shortened(label, columns), DIM),
        Span::raw(shortened(&plain_line(&end), room)),
    ]))
}

/// What would pass from here on, if that is about to be confirmed; else what would run or change, why it is asked, and the
/// difference. As far as it was scrolled.
fn subject(approving: &Approving, columns: usize, most: usize) -> Vec<Line<'static>> {
    let request = &approving.request;
    let indented = |line: &str, style| Row::of(vec![Span::styled(format!("  {line}"), style)]).indented(4);
    if approving.lasting().is_some() {
        let head = Row::new("From here on these pass unasked:", WARN);
        let patterns = request.patterns.iter().map(|pattern| indented(&plain_line(pattern), PLAIN));
        return scrolled(std::iter::once(head).chain(patterns), approving.scroll, columns, most);
    }
    // The name of a file is one line, whatever is in it; no line of others stands where those of the question do.
    let about: Vec<Row> = match request.tool.as_str() {
        "edit" | "write" => vec![indented(&plain_line(&request.about), PLAIN)],
        _ => plain(&request.about).map(|line| indented(&line, PLAIN)).collect(),
    };
    let why = Row::new(&format!("asked because {}", request.why), DIM);
    let diff = request.diff.as_deref().unwrap_or_default();
    let diff = plain(diff).map(|line| indented(&line, diff_style(&line)));
    scrolled(about.into_iter().chain([why]).chain(diff), approving.scroll, columns, most)
}

/// Rows in at most `most` lines, the first always in it.
fn scrolled(
    rows: impl Iterator<Item = Row>,
    scroll: usize,
    columns: usize,
    most: usize,
) -> Vec<Line<'static>> {
    let mut lines = rows.flat_map(|row| row.wrapped(columns));
    // What it is about is never scrolled away.
    let mut shown: Vec<Line<'static>> = lines.next().into_iter().collect();
    let lines: Vec<Line<'static>> = lines.collect();
    let room = most.saturating_sub(shown.len());
    if lines.len() <= room {
        shown.extend(lines);
        return shown;
    }
    let room = room.saturating_sub(1);
    let first = scroll.min(lines.len() - room);
    let below = lines.len() - first - room;
    shown.extend(lines.into_iter().skip(first).take(room));
    if shown.len() < most {
        let words = format!("  … {first} rows above, {below} below: PgUp, PgDn");
        shown.push(Line::styled(shortened(&words, columns), DIM));
    }
    shown.truncate(most);
    shown
}

fn answers(approving: &Approving, columns: usize) -> Vec<Line<'static>> {
    let patterns: Vec<String> =
        approving.request.patterns.iter().map(|pattern| plain_line(pattern)).collect();
    let patterns = patterns.join(", ");
    let row = |(place, choice): (usize, &Choice)| {
        let (key, words) = choice.words();
        let is_chosen = Some(place) == approving.chosen;
        let style = if is_chosen { SELECTED } else { PLAIN };
        let sign = if is_chosen { "▸" } else { " " };
        let head = format!("{sign} {key}  {words}");
        let room = columns.saturating_sub(width(&head));
        let about = match choice {
            Choice::Session | Choice::Project if width(&patterns) + 2 <= room => format!(": {patterns}"),
            Choice::Session | Choice::Project => format!(" ({key} shows what)"),
            Choice::Once | Choice::No => String::new(),
        };
        Line::from(vec![
            Span::styled(shortened(&head, columns), style),
            Span::styled(shortened(&about, room), DIM),
        ])
    };
    approving.choices().iter().enumerate().map(row).collect()
}

fn short_answers(approving: &Approving, columns: usize) -> Line<'static> {
    let mut spans = Vec::new();
    for (place, choice) in approving.choices().iter().enumerate() {
        let word = match choice {
            Choice::Once => "y once",
            Choice::Session => "s session",
            Choice::Project => "p project",
            Choice::No => "n no",
        };
        let is_chosen = Some(place) == approving.chosen;
        let style = if is_chosen { SELECTED } else { PLAIN };
        let sign = if is_chosen { "▸" } else { " " };
        spans.push(Span::styled(format!("{sign}{word} "), style));
    }
    let used: usize = spans.iter().map(Span::width).sum();
    if used < columns { Line::from(spans) } else { Line::styled(shortened("y/s/p/n", columns), SELECTED) }
}

/// A list in at most `most` rows, the chosen one always in it.
pub(super) fn picker(picker: &Picker, columns: usize, most: usize) -> Section {
    let title = match picker.kind {
        PickKind::Sessions => "Go on with which session? ",
        PickKind::Models => "Which model answers from here on? ",
        PickKind::Turns => "Go back to before which message? Files stay as they are. ",
    };
    let typed = plain_line(&picker.filter);
    let title = shortened(title, columns.saturating_sub(width(&typed) + 1));
    let cursor = Some((width(&title) + width(&typed), 0));
    let mut rows = vec![Line::from(vec![Span::styled(title, BOLD), Span::styled(typed, ACCENT)])];
    let shown = picker.fits();
    let room = most.saturating_sub(2).max(1);
    let first = (picker.chosen + 1).saturating_sub(room);
    for (place, row) in shown.iter().enumerate().skip(first).take(room) {
        let is_chosen = place == picker.chosen;
        let style = if is_chosen { SELECTED } else { PLAIN };
        let sign = if is_chosen { "▸ " } else { "  " };
        // What it ends with is what the row is known by elsewhere.
        let words = shortened(&row.words, columns.saturating_sub(2 + width(&row.end)));
        rows.push(Line::styled(shortened(&format!("{sign}{words}{}", row.end), columns), style));
    }
    if shown.is_empty() {
        rows.push(Line::styled("  nothing fits", DIM));
    }
    if most >= 3 {
        let words =
            format!("{} of {} · Enter takes it, Esc leaves, typing narrows", picker.chosen + 1, shown.len());
        rows.push(Line::styled(shortened(&words, columns), DIM));
    }
    Section { rows, cursor }
}
