//! `mainstay plan`: the session plan as it stands.

use mainstay_agent::session::log::SessionSummary;
use mainstay_agent::session::plan::{self, PlanInView, PlanItemStatus};
use serde::Serialize;

use crate::error::CliError;
use crate::history::read;
use crate::output::{inert, out, say};

/// How the plan is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlanForm {
    /// As the model reads it.
    Text,
    /// One JSON object.
    Json,
    /// A task list in Markdown.
    Markdown,
}

#[derive(Serialize)]
struct Document<'a> {
    session_id: &'a str,
    items: &'a [mainstay_agent::session::plan::PlanItem],
    completed: usize,
    total: usize,
    carried: bool,
    interrupted: bool,
}

/// Shows a session's plan.
pub(crate) fn plan(session: &SessionSummary, form: PlanForm) -> Result<(), CliError> {
    let state = read(session)?;
    let view = &state.plan;
    match form {
        PlanForm::Text => out(&plan::render(&view.plan)),
        PlanForm::Markdown => out(&markdown(view)),
        PlanForm::Json => {
            let document = Document {
                session_id: session.id.as_str(),
                items: &view.plan.items,
                completed: view.plan.completed(),
                total: view.plan.items.len(),
                carried: view.carried,
                interrupted: state.turn_is_open,
            };
            out(&serde_json::to_string(&document).unwrap_or_default());
        }
    }
    if form == PlanForm::Text && view.carried {
        say("(carried over from before a compaction; the model has not written it since)");
    }
    if form == PlanForm::Text && state.turn_is_open {
        say("(the session's last turn has not ended)");
    }
    Ok(())
}

fn markdown(view: &PlanInView) -> String {
    let line = |item: &mainstay_agent::session::plan::PlanItem| {
        let content = inert(&item.content);
        match item.status {
            PlanItemStatus::Completed => format!("- [x] {content}"),
            PlanItemStatus::InProgress => format!("- [ ] **{content}**"),
            PlanItemStatus::Pending => format!("- [ ] {content}"),
        }
    };
    view.plan.items.iter().map(line).collect::<Vec<_>>().join("\n")
}
