//! `[[rules]]` and `protected`: what is allowed, asked about and denied, by tool and pattern.
//!
//! A rule is checked as soon as it is read: a rule that does not do what its author thinks is a mistake in the
//! configuration, never a surprise in a session.

use mainstay_agent::permission::{Action, Rule, RuleText, check_path_pattern};

use super::TOOLS;
use super::document::{Placed, Table, Value};
use crate::error::CliError;

/// Reads `[[rules]]`.
pub(super) fn read(table: &mut Table<'_>) -> Result<Vec<Placed<Rule>>, CliError> {
    Ok(table.get("rules", |rules| rules.list(rule))?.unwrap_or_default())
}

/// Reads `protected`, patterns of paths in the workspace.
pub(super) fn read_protected(table: &mut Table<'_>) -> Result<Vec<String>, CliError> {
    let pattern = |item: &Value<'_>| {
        let text = item.text()?.to_owned();
        let checked = check_path_pattern(&text);
        checked.map(|()| text).map_err(|error| item.complain(&format!("cannot be obeyed: {error}")))
    };
    Ok(table.get("protected", |value| value.list(pattern))?.unwrap_or_default())
}

fn rule(value: &Value<'_>) -> Result<Placed<Rule>, CliError> {
    let origin = value.own_origin();
    let text = value.table(|rule| {
        let missing = |key: &str| value.complain(&format!("has a rule without `{key}`"));
        let tool = rule.get("tool", |tool| Ok(tool.text()?.to_owned()))?;
        let pattern = rule.get("pattern", |pattern| Ok(pattern.text()?.to_owned()))?;
        let action = rule.get("action", |action| action.choice(&ACTIONS))?;
        let (matching, other) = rule.section("examples", |examples| {
            let texts = |value: &Value<'_>| value.list(|item| Ok(item.text()?.to_owned()));
            let matching = examples.get("match", texts)?.unwrap_or_default();
            Ok((matching, examples.get("not", texts)?.unwrap_or_default()))
        })?;
        Ok(RuleText {
            tool: tool.ok_or_else(|| missing("tool"))?,
            pattern,
            action: action.ok_or_else(|| missing("action"))?,
            origin: origin.to_string(),
            matching,
            other,
        })
    })?;
    let tool = text.tool.clone();
    let rule = Rule::new(text).map_err(|error| value.complain(&format!("cannot be obeyed: {error}")))?;
    if !TOOLS.iter().any(|name| rule.names(name)) {
        let known = TOOLS.join(", ");
        return Err(value.complain(&format!("has a rule for the tool `{tool}`; the tools are {known}")));
    }
    Ok(Placed { value: rule, origin })
}

/// What a rule may say, by name.
const ACTIONS: [(&str, Action); 3] = [("allow", Action::Allow), ("ask", Action::Ask), ("deny", Action::Deny)];

/// Refuses a rule of a project's file that would allow something.
pub(super) fn judge_project(rules: &[Placed<Rule>]) -> Result<(), CliError> {
    match rules.iter().find(|rule| rule.value.action() == Action::Allow) {
        Some(rule) => Err(CliError::configuration(format!(
            "{}: a project's file may not allow anything: its rules may only ask and deny",
            rule.origin
        ))
        .hint("take the rule out there; if you want it yourself, put it into your own config.toml")),
        None => Ok(()),
    }
}
