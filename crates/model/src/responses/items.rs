//! What both directions know of items.

use crate::raw::Fields;

/// Whether a reasoning item can be told again to a provider that has not stored it.
///
/// It needs the encrypted reasoning, or the reasoning itself where the model is an open one. An item without either is
/// only a reference, and is refused with "Items are not persisted when `store` is set to false".
pub(super) fn is_returnable_reasoning(item: &Fields<'_>) -> bool {
    let is_encrypted = item.text("encrypted_content").is_some_and(|content| !content.is_empty());
    is_encrypted || !item.items("content").is_empty()
}

/// Whether an item asks a client for something that is not the result of a function: what we never offer, and so
/// cannot answer.
pub(super) fn awaits_client(item: &Fields<'_>) -> bool {
    match item.text("type").as_deref() {
        Some(
            "custom_tool_call"
            | "local_shell_call"
            | "shell_call"
            | "apply_patch_call"
            | "computer_call"
            | "mcp_approval_request",
        ) => true,
        Some("tool_search_call") => item.text("execution").as_deref() == Some("client"),
        _ => false,
    }
}

/// A message item without its content, verbatim: its id and its phase, which must go back with its text.
///
/// There is none where the item has neither.
pub(super) fn envelope(raw: &str) -> Option<String> {
    let item = Fields::of(raw)?;
    item.get("id").or_else(|| item.get("phase"))?;
    let fields = item.iter().filter(|(name, _)| *name != "content");
    let fields: Option<Vec<String>> =
        fields.map(|(name, value)| Some(format!("{}:{value}", serde_json::to_string(name).ok()?))).collect();
    Some(format!("{{{}}}", fields?.join(",")))
}
