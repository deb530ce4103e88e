//! What both directions know of items.

use crate::raw::Fields;

/// How a reasoning item can be told again to a provider that has not stored it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reasoning {
    /// It holds its reasoning encrypted, and the items behind it are tied to its id.
    Tying,
    /// It holds its reasoning as text, as those of open models do; or it has no id to be tied to.
    Free,
}

/// How a reasoning item can go back, if it can.
///
/// An item with neither kind of content is only a reference, and is refused with "Items are not persisted when `store` is
/// set to false".
pub(super) fn reasoning(item: &Fields<'_>) -> Option<Reasoning> {
    let is_encrypted = is_filled(item, "encrypted_content");
    let is_there = is_encrypted || !item.items("content").is_empty();
    if !is_there || !item.get("summary")?.starts_with('[') {
        return None;
    }
    Some(if is_encrypted && is_filled(item, "id") { Reasoning::Tying } else { Reasoning::Free })
}

fn is_filled(item: &Fields<'_>, name: &str) -> bool {
    item.text(name).is_some_and(|text| !text.is_empty())
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

/// Whether an item tells what the provider did by itself, and can be told again as it is.
pub(super) fn is_done_by_provider(item: &Fields<'_>) -> bool {
    let is_known = matches!(
        item.text("type").as_deref(),
        Some(
            "web_search_call"
                | "file_search_call"
                | "code_interpreter_call"
                | "image_generation_call"
                | "mcp_list_tools"
                | "mcp_call"
                | "compaction"
        )
    );
    is_known && is_filled(item, "id")
}

/// An item without the fields of these names, the others verbatim; none where it has none of the fields that `matter`.
pub(super) fn without(raw: &str, names: &[&str], matter: &[&str]) -> Option<String> {
    let item = Fields::of(raw)?;
    matter.iter().find_map(|name| item.get(name))?;
    let fields = item.iter().filter(|(name, _)| !names.contains(name));
    let fields: Option<Vec<String>> =
        fields.map(|(name, value)| Some(format!("{}:{value}", serde_json::to_string(name).ok()?))).collect();
    Some(format!("{{{}}}", fields?.join(",")))
}
