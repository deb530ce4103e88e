//! A write of the plan: what it makes of the plan in view, and what the model reads about it.
//!
//! A write replaces the whole list. It changes nothing by itself: its result, once logged, does.

use super::decode::{Reading, decode};
use super::{Plan, PlanInView, PlanItem, PlanItemStatus, item_line, render};

/// How many writes in a row may leave the plan as it is; the next one is refused.
const MAX_RESENDS: u32 = 2;

/// More faults than this are counted, not listed.
const MAX_FAULTS: usize = 20;

/// An accepted write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanWrite {
    /// The plan from here on.
    pub plan: Plan,
    /// The plan, rendered, and nothing else.
    pub summary: String,
    /// All else that the model should know: ids assigned, words read as others, unfinished items that are gone.
    pub content: Option<String>,
    /// Whether the plan is the one that was in view.
    pub unchanged: bool,
}

/// Why a write was refused. The plan in view stays as it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PlanRefusal {
    /// All that is wrong, for the model to read; several faults stand on lines of their own.
    pub message: String,
}

/// Reads the arguments of a plan write, JSON text of an object, and compares them with the plan in view.
///
/// # Errors
///
/// Refuses what is no plan, with every fault found, and a third re-send in a row of the plan as it is.
pub fn write(view: &PlanInView, arguments: &str) -> Result<PlanWrite, PlanRefusal> {
    let reading = decode(arguments).map_err(|faults| refusal(&faults))?;
    let unchanged = reading.plan == view.plan;
    if unchanged && view.resends >= MAX_RESENDS {
        return Err(PlanRefusal {
            message: "the plan is unchanged and was sent again too often; continue the work, and write the plan when \
                      something in it changes"
                .to_owned(),
        });
    }
    let content = remarks(&view.plan, &reading, unchanged);
    Ok(PlanWrite { summary: render(&reading.plan), plan: reading.plan, content, unchanged })
}

/// Reads the plan out of the arguments of an accepted write of which only those are left, as in old logs.
pub fn from_arguments(arguments: &str) -> Option<Plan> {
    decode(arguments).ok().map(|reading| reading.plan)
}

fn refusal(faults: &[String]) -> PlanRefusal {
    if let [fault] = faults {
        return PlanRefusal { message: format!("the plan was not changed: {fault}") };
    }
    let mut message = format!("the plan was not changed: {} faults", faults.len());
    for fault in faults.iter().take(MAX_FAULTS) {
        message.push_str("\n- ");
        message.push_str(fault);
    }
    if faults.len() > MAX_FAULTS {
        message.push_str(&format!("\n- and {} more", faults.len() - MAX_FAULTS));
    }
    PlanRefusal { message }
}

fn remarks(before: &Plan, reading: &Reading, unchanged: bool) -> Option<String> {
    let mut remarks = Vec::new();
    if unchanged {
        remarks.push("unchanged: the plan already was as sent".to_owned());
    } else if reading.plan.items.is_empty() {
        remarks.push("the plan is cleared".to_owned());
    }
    remarks.extend(ids_assigned(reading));
    remarks.extend(reading.synonyms.iter().cloned());
    if !unchanged {
        remarks.extend(listed("unfinished and no longer in the plan:", dropped(before, reading)));
        remarks.extend(listed("still pending before completed items:", left_behind(&reading.plan)));
    }
    (!remarks.is_empty()).then(|| remarks.join("\n"))
}

fn ids_assigned(reading: &Reading) -> Option<String> {
    if reading.assigned.is_empty() {
        return None;
    }
    let ids: Vec<String> = reading
        .assigned
        .iter()
        .map(|&place| format!("item {} is `{}`", place + 1, reading.plan.items[place].id))
        .collect();
    Some(format!("ids assigned: {}", ids.join(", ")))
}

fn listed(heading: &str, items: Vec<&PlanItem>) -> Option<String> {
    if items.is_empty() {
        return None;
    }
    let lines: Vec<String> = items.into_iter().map(|item| format!("- {}", item_line(item))).collect();
    Some(format!("{heading}\n{}", lines.join("\n")))
}

/// The unfinished items of the plan before that the write leaves out.
///
/// Each new item stands for at most one old one: that of its id and text, else of its text, else of its id. Texts are
/// compared without case and spacing, so that a title written differently is no loss; an id that did not come with the
/// call says nothing.
fn dropped<'a>(before: &'a Plan, reading: &Reading) -> Vec<&'a PlanItem> {
    let mut unmatched: Vec<usize> = (0..reading.plan.items.len()).collect();
    let mut missing: Vec<&PlanItem> = before.items.iter().collect();
    // An unfinished item goes first, for where two have one text it is the one that is likely to be sent again.
    missing.sort_by_key(|item| item.status == PlanItemStatus::Completed);
    for (by_id, by_text) in [(true, true), (false, true), (true, false)] {
        missing.retain(|old| {
            let found = unmatched.iter().position(|&place| {
                let new = &reading.plan.items[place];
                (!by_id || (new.id == old.id && !reading.assigned.contains(&place)))
                    && (!by_text || comparable(&new.content) == comparable(&old.content))
            });
            if let Some(at) = found {
                unmatched.remove(at);
            }
            found.is_none()
        });
    }
    missing.retain(|item| item.status != PlanItemStatus::Completed);
    missing
}

fn comparable(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase()
}

/// The items that are still pending although a later one is completed.
fn left_behind(plan: &Plan) -> Vec<&PlanItem> {
    let last = plan.items.iter().rposition(|item| item.status == PlanItemStatus::Completed).unwrap_or(0);
    plan.items[..last].iter().filter(|item| item.status == PlanItemStatus::Pending).collect()
}
