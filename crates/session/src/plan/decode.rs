//! Reads the arguments of a plan write: strict about what a plan may be, tolerant about how it is spelled.
//!
//! A pure function of the arguments, so that a call reads the same live and from an old log. Every fault is found, not
//! only the first, since each refusal costs the model a whole answer. Nothing is merged with the plan before, and
//! nothing that was read in an uncommon way goes unsaid.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::{Plan, PlanItem, PlanItemStatus, one_line, python};

/// How many items a plan may have.
pub const MAX_ITEMS: usize = 12;
/// How many characters the content of an item may have.
pub const MAX_CONTENT_CHARS: usize = 500;
/// How many characters the active form of an item may have.
pub const MAX_ACTIVE_FORM_CHARS: usize = 200;
/// How many characters an item's id may have.
pub const MAX_ID_CHARS: usize = 64;

/// The names under which the list may come; the first is the one that is documented for the model.
const LIST_NAMES: [&str; 2] = ["todos", "items"];
const CONTENT_NAMES: [&str; 5] = ["content", "title", "text", "task", "step"];
const ACTIVE_FORM_NAMES: [&str; 2] = ["activeForm", "active_form"];

const SHAPE: &str = r#"expected {"todos": [{"id": "1", "content": "Write tests", "status": "pending"}]}"#;

/// What some arguments say.
#[derive(Debug)]
pub(super) struct Reading {
    /// The plan.
    pub(super) plan: Plan,
    /// The places of the items whose ids did not come with the call, from 0.
    pub(super) assigned: Vec<usize>,
    /// Which words were read as which others.
    pub(super) synonyms: Vec<String>,
}

/// Reads arguments, or lists all that is wrong with them.
pub(super) fn decode(arguments: &str) -> Result<Reading, Vec<String>> {
    let values = list_of(arguments).map_err(|fault| vec![fault])?;
    let mut findings = Findings::default();
    let drafts: Vec<Draft> =
        values.iter().enumerate().map(|(place, value)| read_item(place + 1, value, &mut findings)).collect();
    check_list(&drafts, &mut findings.faults);
    if !findings.faults.is_empty() {
        return Err(findings.faults);
    }
    let (plan, assigned) = with_ids(drafts);
    Ok(Reading { plan, assigned, synonyms: findings.synonyms })
}

#[derive(Default)]
struct Findings {
    faults: Vec<String>,
    synonyms: Vec<String>,
}

/// An item as far as it came.
struct Draft {
    id: Option<String>,
    content: String,
    status: PlanItemStatus,
    active_form: String,
}

fn list_of(arguments: &str) -> Result<Vec<Value>, String> {
    let fields: Map<String, Value> = match arguments.trim() {
        "" => Map::new(),
        text => serde_json::from_str(text)
            .map_err(|error| format!("the arguments are not a JSON object ({error}); {SHAPE}"))?,
    };
    match first_named(&fields, &LIST_NAMES) {
        Some((name, value)) => {
            as_list(value).ok_or_else(|| format!("`{name}` is {}, not a list; {SHAPE}", described(value)))
        }
        None => Err(format!("`todos` is missing{}; {SHAPE}", what_came_instead(&fields))),
    }
}

/// Reads a list, a list written as text, or a single item in place of a list.
fn as_list(value: &Value) -> Option<Vec<Value>> {
    match value {
        Value::Array(values) => Some(values.clone()),
        Value::Object(_) => Some(vec![value.clone()]),
        Value::String(text) => match serde_json::from_str(text).ok().or_else(|| python::read(text))? {
            Value::Array(values) => Some(values),
            item @ Value::Object(_) => Some(vec![item]),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        },
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

fn what_came_instead(fields: &Map<String, Value>) -> String {
    let there = fields.iter().filter(|(_, value)| !value.is_null());
    let names: Vec<String> = there.take(MAX_ITEMS).map(|(name, _)| quoted(name)).collect();
    if names.is_empty() { String::new() } else { format!(" (there is only {})", names.join(", ")) }
}

fn read_item(number: usize, value: &Value, findings: &mut Findings) -> Draft {
    let Value::Object(fields) = value else {
        findings.faults.push(format!(
            "item {number}: it is {}; every item is an object with `content` and `status`",
            described(value)
        ));
        return Draft {
            id: None,
            content: String::new(),
            status: PlanItemStatus::Pending,
            active_form: String::new(),
        };
    };
    Draft {
        id: read_id(number, fields, findings),
        content: read_content(number, fields, findings),
        status: read_status(number, fields, findings),
        active_form: read_active_form(number, fields, findings),
    }
}

fn read_id(number: usize, fields: &Map<String, Value>, findings: &mut Findings) -> Option<String> {
    let id = match fields.get("id")? {
        Value::Null => return None,
        Value::String(text) => text.trim().to_owned(),
        Value::Number(number) => number.to_string(),
        other @ (Value::Bool(_) | Value::Array(_) | Value::Object(_)) => {
            findings
                .faults
                .push(format!("item {number}: id is {}; a text or a number is wanted", described(other)));
            return None;
        }
    };
    if id.chars().any(char::is_control) {
        findings.faults.push(format!("item {number}: id {} holds control characters", quoted(&id)));
    }
    check_length(number, "id", &id, MAX_ID_CHARS, findings);
    (!id.is_empty()).then_some(id)
}

fn read_content(number: usize, fields: &Map<String, Value>, findings: &mut Findings) -> String {
    let Some((name, value)) = first_named(fields, &CONTENT_NAMES) else {
        findings.faults.push(format!("item {number}: content is missing; every item needs a text"));
        return String::new();
    };
    let content = read_text(number, "content", value, findings);
    if content.as_deref() == Some("") {
        findings.faults.push(format!("item {number}: content is empty; every item needs a text"));
    }
    if name != CONTENT_NAMES[0] {
        findings.synonyms.push(format!("item {number}: `{name}` read as content"));
    }
    let content = content.unwrap_or_default();
    check_length(number, "content", &content, MAX_CONTENT_CHARS, findings);
    content
}

fn read_status(number: usize, fields: &Map<String, Value>, findings: &mut Findings) -> PlanItemStatus {
    const ALLOWED: &str = "allowed are pending, in_progress and completed";
    let text = match fields.get("status") {
        None | Some(Value::Null) => return PlanItemStatus::Pending,
        Some(Value::String(text)) => text,
        Some(other) => {
            findings.faults.push(format!("item {number}: status is {}; {ALLOWED}", described(other)));
            return PlanItemStatus::Pending;
        }
    };
    let word = text.trim().to_lowercase();
    let Some(status) = status_named(&word) else {
        let came = quoted(text);
        findings.faults.push(if matches!(word.as_str(), "cancelled" | "canceled") {
            format!(
                "item {number}: there is no status {came}; leave a cancelled item out of the list; {ALLOWED}"
            )
        } else {
            format!("item {number}: status {came} is unknown; {ALLOWED}")
        });
        return PlanItemStatus::Pending;
    };
    if word != status.as_str() {
        findings.synonyms.push(format!("item {number}: status {} read as {}", quoted(text), status.as_str()));
    }
    status
}

/// The status that a word in lower case stands for. These are the documented synonyms (`docs/glossary.md`).
fn status_named(word: &str) -> Option<PlanItemStatus> {
    match word.replace([' ', '-'], "_").as_str() {
        "pending" | "todo" | "open" | "not_started" => Some(PlanItemStatus::Pending),
        "in_progress" | "inprogress" | "doing" | "active" | "started" => Some(PlanItemStatus::InProgress),
        "completed" | "complete" | "done" | "finished" => Some(PlanItemStatus::Completed),
        _ => None,
    }
}

fn read_active_form(number: usize, fields: &Map<String, Value>, findings: &mut Findings) -> String {
    let Some((_, value)) = first_named(fields, &ACTIVE_FORM_NAMES) else {
        return String::new();
    };
    let active_form = read_text(number, "activeForm", value, findings).unwrap_or_default();
    check_length(number, "activeForm", &active_form, MAX_ACTIVE_FORM_CHARS, findings);
    active_form
}

/// Reads a text, trimmed. Anything else is a fault.
fn read_text(number: usize, field: &str, value: &Value, findings: &mut Findings) -> Option<String> {
    let Value::String(text) = value else {
        findings.faults.push(format!("item {number}: {field} is {}; a text is wanted", described(value)));
        return None;
    };
    Some(text.trim().to_owned())
}

fn check_length(number: usize, field: &str, text: &str, limit: usize, findings: &mut Findings) {
    let length = text.chars().count();
    if length > limit {
        findings
            .faults
            .push(format!("item {number}: {field} has {length} characters; at most {limit} are allowed"));
    }
}

/// Checks what no item can show alone.
fn check_list(drafts: &[Draft], faults: &mut Vec<String>) {
    if drafts.len() > MAX_ITEMS {
        faults.push(format!(
            "Keep the session plan short (max {MAX_ITEMS} items): {} came; completed ones may be left out",
            drafts.len()
        ));
    }
    let mut numbers: HashMap<&str, usize> = HashMap::new();
    for (number, draft) in (1..).zip(drafts) {
        if let Some(id) = &draft.id
            && let Some(first) = numbers.insert(id, number)
        {
            faults.push(format!("item {number}: id {} is already that of item {first}", quoted(id)));
        }
    }
    let in_progress: Vec<String> = (1..)
        .zip(drafts)
        .filter(|(_, draft)| draft.status == PlanItemStatus::InProgress)
        .map(|(number, _)| number.to_string())
        .take(MAX_ITEMS)
        .collect();
    if in_progress.len() > 1 {
        faults.push(format!("Only one plan item can be in_progress: items {} are", in_progress.join(", ")));
    }
}

/// Gives an id to each item that came without one: its number, or the next one that no item of the call has.
fn with_ids(drafts: Vec<Draft>) -> (Plan, Vec<usize>) {
    let mut taken: Vec<String> = drafts.iter().filter_map(|draft| draft.id.clone()).collect();
    let mut assigned = Vec::new();
    let mut items = Vec::with_capacity(drafts.len());
    for (place, draft) in drafts.into_iter().enumerate() {
        let id = draft.id.unwrap_or_else(|| {
            let mut number = place + 1;
            while taken.contains(&number.to_string()) {
                number += 1;
            }
            taken.push(number.to_string());
            assigned.push(place);
            number.to_string()
        });
        items.push(PlanItem {
            id,
            content: draft.content,
            status: draft.status,
            active_form: draft.active_form,
        });
    }
    (Plan { items }, assigned)
}

/// The first of some fields that is there and not null, with its name.
fn first_named<'a>(
    fields: &'a Map<String, Value>,
    names: &[&'static str],
) -> Option<(&'static str, &'a Value)> {
    names.iter().find_map(|&name| match fields.get(name) {
        None | Some(Value::Null) => None,
        Some(value) => Some((name, value)),
    })
}

fn described(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(truth) => truth.to_string(),
        Value::Number(number) => format!("the number {number}"),
        Value::String(text) => format!("the text {}", quoted(text)),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}

/// What came, on one line and cut to what is needed to recognise it.
fn quoted(text: &str) -> String {
    const SHOWN: usize = 60;
    let mut start: String = text.chars().take(SHOWN).collect();
    if start.len() < text.len() {
        start.push('…');
    }
    format!("`{}`", one_line(&start))
}
