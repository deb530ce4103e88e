//! How a plan reads, for the model and for people: one line per item, and a count.

use std::fmt::Write;

use super::{Plan, PlanItem, PlanItemStatus};

/// Renders a plan: a line per item, an empty line, `(k/n completed)`; `(no plan items)` for an empty one.
///
/// An item stays on its line whatever its text holds (see [`one_line`]). There is no newline at the end.
pub fn render(plan: &Plan) -> String {
    if plan.items.is_empty() {
        return "(no plan items)".to_owned();
    }
    let mut text = String::new();
    for item in &plan.items {
        text.push_str(&marked_line(item));
        text.push('\n');
    }
    let _ = write!(text, "\n({}/{} completed)", plan.completed(), plan.items.len());
    text
}

/// Names an item on one line, with its id and status: `id 2, pending: Write tests`.
pub fn item_line(item: &PlanItem) -> String {
    format!("id {}, {}: {}", one_line(&item.id), item.status.as_str(), one_line(&item.content))
}

fn marked_line(item: &PlanItem) -> String {
    let content = one_line(&item.content);
    match item.status {
        PlanItemStatus::Completed => format!("[x] {content}"),
        PlanItemStatus::InProgress if item.active_form.is_empty() => format!("[>] {content}"),
        PlanItemStatus::InProgress => format!("[>] {content} ({})", one_line(&item.active_form)),
        PlanItemStatus::Pending => format!("[ ] {content}"),
    }
}

/// Writes a text on one line: control characters, line separators and bidirectional controls become visible escapes
/// (`\n`, `\t`, `\u{1b}`); everything else stays as it is.
pub fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        if must_be_shown(c) {
            line.extend(c.escape_default());
        } else {
            line.push(c);
        }
    }
    line
}

/// Whether a character would break the line, move the cursor or reorder what is around it.
fn must_be_shown(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{2028}' | '\u{2029}'
            | '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
