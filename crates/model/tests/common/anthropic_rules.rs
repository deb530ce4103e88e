//! What the provider demands of a request over Anthropic Messages, each rule with the place where it is written or
//! the refusal that tells of it.
//!
//! Not a copy of the encoder: it looks at nothing but the request's JSON.

use std::collections::HashSet;

use serde_json::Value;

type Check = Result<(), String>;

/// Says which rule a request breaks first, if it breaks one.
pub fn check_anthropic(body: &Value) -> Check {
    limits(body)?;
    tools(&body["tools"])?;
    system(&body["system"])?;
    anchors(body)?;
    let messages = list(&body["messages"], "messages")?;
    roles(messages)?;
    for (place, message) in messages.iter().enumerate() {
        let at = |why: String| format!("messages.{place}: {why}");
        let blocks = list(&message["content"], "content").map_err(at)?;
        match message["role"].as_str() {
            Some("user") => user_blocks(blocks).map_err(at)?,
            _ => assistant_blocks(blocks).map_err(at)?,
        }
    }
    calls_and_results(messages)?;
    server_tools(messages)
}

fn rule(holds: bool, broken: impl FnOnce() -> String) -> Check {
    if holds { Ok(()) } else { Err(broken()) }
}

/// <https://platform.claude.com/docs/en/api/messages/create>: `model` and `max_tokens` are required.
/// <https://platform.claude.com/docs/en/build-with-claude/extended-thinking>: a budget is at least 1,024 and smaller than
/// `max_tokens`.
fn limits(body: &Value) -> Check {
    rule(body["model"].as_str().is_some_and(|name| !name.is_empty()), || "model is missing".to_owned())?;
    let max_tokens = body["max_tokens"].as_u64().unwrap_or(0);
    rule(max_tokens > 0, || "max_tokens is missing".to_owned())?;
    match body["thinking"]["budget_tokens"].as_u64() {
        Some(budget) => rule((1_024..max_tokens).contains(&budget), || format!("budget_tokens: {budget}")),
        None => Ok(()),
    }
}

/// <https://platform.claude.com/docs/en/agents-and-tools/tool-use/define-tools>: names match `^[a-zA-Z0-9_-]{1,64}$`; the
/// schema is that of an object. "tools: Tool names must be unique."
fn tools(tools: &Value) -> Check {
    let mut names = HashSet::new();
    for tool in tools.as_array().into_iter().flatten() {
        let name = tool["name"].as_str().unwrap_or_default();
        rule(is_word(name, 64) && names.insert(name), || format!("tools: the name {name:?}"))?;
        rule(tool["input_schema"]["type"] == "object", || format!("tools: the schema of {name}"))?;
    }
    rule(tools.is_null() || !names.is_empty(), || "tools: an empty list".to_owned())
}

/// <https://platform.claude.com/docs/en/api/messages/create>: a list of text blocks.
/// "system: text content blocks must contain non-whitespace text".
fn system(system: &Value) -> Check {
    let mut blocks = system.as_array().into_iter().flatten();
    blocks.try_for_each(text).map_err(|why| format!("system: {why}"))
}

/// <https://platform.claude.com/docs/en/api/messages/create>: `user` and `assistant` alternate, the first is the user's.
/// The last is the user's too: "This model does not support assistant message prefill. The conversation must end with a
/// user message" (<https://github.com/cortexkit/magic-context/issues/511>). Earlier models take it, but "final assistant content cannot end with trailing whitespace"
/// (<https://github.com/tailcallhq/forgecode/issues/1872>).
fn roles(messages: &[Value]) -> Check {
    for (place, message) in messages.iter().enumerate() {
        let role = if place % 2 == 0 { "user" } else { "assistant" };
        rule(message["role"] == role, || format!("messages.{place}: the role is not {role}"))?;
    }
    rule(messages.len() % 2 == 1, || "messages: the last one is not the user's".to_owned())
}

fn user_blocks(blocks: &[Value]) -> Check {
    blocks.iter().try_for_each(|block| match block["type"].as_str() {
        Some("text") => text(block),
        Some("image") => image(block),
        Some("tool_result") => result(block),
        _ => Err(format!("no block for a user: {block}")),
    })
}

/// "messages: text content blocks must contain non-whitespace text"
/// (<https://github.com/home-assistant/core/issues/175637>).
fn text(block: &Value) -> Check {
    let is_filled = block["text"].as_str().is_some_and(|text| !text.trim().is_empty());
    rule(is_filled && block["type"] == "text", || format!("a blank text: {block}"))
}

/// <https://platform.claude.com/docs/en/build-with-claude/vision>: base 64 of four media types.
fn image(block: &Value) -> Check {
    let source = &block["source"];
    let kinds = ["image/jpeg", "image/png", "image/gif", "image/webp"];
    let is_kind = kinds.iter().any(|kind| source["media_type"] == *kind);
    let is_base64 = source["data"].as_str().is_some_and(|data| {
        !data.is_empty() && data.bytes().all(|b| b.is_ascii_alphanumeric() || b"+/=".contains(&b))
    });
    rule(source["type"] == "base64" && is_kind && is_base64, || format!("an image: {block}"))
}

/// <https://platform.claude.com/docs/en/agents-and-tools/tool-use/handle-tool-calls>: text, or a list of texts and images.
/// "all content must be type \"text\" if \"is_error\" is true".
fn result(block: &Value) -> Check {
    match &block["content"] {
        Value::Null => Ok(()),
        Value::String(text) => rule(!text.trim().is_empty(), || format!("a blank result: {block}")),
        Value::Array(parts) => parts.iter().try_for_each(|part| match part["type"].as_str() {
            Some("image") if block["is_error"] != true => image(part),
            _ => text(part),
        }),
        other => Err(format!("the content of a result: {other}")),
    }
}

/// Text behind a call is refused as a missing result is: "`tool_use` ids were found without `tool_result` blocks
/// immediately after". "The final block in an assistant message cannot be `thinking`"
/// (<https://github.com/tailcallhq/forgecode/issues/2107>).
/// <https://platform.claude.com/docs/en/build-with-claude/extended-thinking#preserving-thinking-blocks>: thinking comes
/// with its signature.
fn assistant_blocks(blocks: &[Value]) -> Check {
    let kind = |block: &Value| block["type"].as_str().unwrap_or_default().to_owned();
    let is_filled = |block: &Value, name: &str| block[name].as_str().is_some_and(|text| !text.is_empty());
    let mut called = false;
    for block in blocks {
        match kind(block).as_str() {
            "text" => text(block)?,
            "tool_use" => call(block)?,
            "thinking" => rule(block["thinking"].is_string() && is_filled(block, "signature"), || {
                format!("thinking without a signature: {block}")
            })?,
            "redacted_thinking" => rule(is_filled(block, "data"), || format!("{block}"))?,
            "compaction" | "container_upload" => {}
            kind if kind.ends_with("_tool_use") || kind.ends_with("_tool_result") => {}
            _ => return Err(format!("no block for an assistant: {block}")),
        }
        called |= block["type"] == "tool_use";
        rule(!called || block["type"] == "tool_use", || format!("something behind a call: {block}"))?;
    }
    let last = blocks.last().map(kind).unwrap_or_default();
    rule(!last.ends_with("thinking"), || "the final block is thinking".to_owned())
}

/// "tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'", "tool_use.input: Input should be a valid dictionary".
fn call(block: &Value) -> Check {
    let name = block["name"].as_str().unwrap_or_default();
    let id = block["id"].as_str().unwrap_or_default();
    rule(is_word(id, usize::MAX) && is_word(name, 64), || format!("a call's id or name: {block}"))?;
    rule(block["input"].is_object(), || format!("a call's input: {block}"))
}

/// <https://platform.claude.com/docs/en/agents-and-tools/tool-use/handle-tool-calls>: the message behind calls begins with
/// their results, one for each; text comes after them. "tool_use ids must be unique".
fn calls_and_results(messages: &[Value]) -> Check {
    let blocks = |message: &Value| message["content"].as_array().cloned().unwrap_or_default();
    let mut used = HashSet::new();
    let mut open: HashSet<String> = HashSet::new();
    for (place, message) in messages.iter().enumerate() {
        let at = |why: &str, id: &str| format!("messages.{place}: {why} {id}");
        let mut may_be_result = true;
        for block in blocks(message) {
            let is_result = block["type"] == "tool_result";
            may_be_result &= is_result;
            if is_result {
                let id = block["tool_use_id"].as_str().unwrap_or_default();
                rule(may_be_result, || at("a result behind something else:", id))?;
                rule(open.remove(id), || at("a result without its call right before:", id))?;
            }
        }
        if let Some(id) = open.iter().next() {
            return Err(at("no result right behind the call", id));
        }
        for call in blocks(message).iter().filter(|block| block["type"] == "tool_use") {
            let id = call["id"].as_str().unwrap_or_default().to_owned();
            rule(used.insert(id.clone()), || at("an id used twice:", &id))?;
            open.insert(id);
        }
    }
    rule(open.is_empty(), || "messages: calls without results at the end".to_owned())
}

/// "unexpected `tool_use_id` found in `advisor_tool_result` blocks. Each `advisor_tool_result` block must have a
/// corresponding `server_tool_use` block before it" (<https://github.com/anthropics/claude-code/issues/95406>). A call of
/// the provider's own tool has its result in the same message, but where a call of ours stands beside it
/// (<https://platform.claude.com/docs/en/build-with-claude/handling-stop-reasons>).
fn server_tools(messages: &[Value]) -> Check {
    let mut open = HashSet::new();
    for (place, message) in messages.iter().enumerate().filter(|(_, message)| message["role"] == "assistant")
    {
        let blocks = message["content"].as_array().into_iter().flatten();
        let mut called = false;
        let mut own = HashSet::new();
        for block in blocks {
            let kind = block["type"].as_str().unwrap_or_default();
            called |= kind == "tool_use";
            if kind.ends_with("_tool_use") {
                let id = block["id"].as_str().unwrap_or_default();
                rule(block["input"].is_object() && own.insert(id), || format!("messages.{place}: {block}"))?;
            } else if kind.ends_with("_tool_result") {
                let id = block["tool_use_id"].as_str().unwrap_or_default();
                rule(own.remove(id) || open.remove(id), || {
                    format!("messages.{place}: a result of nothing: {block}")
                })?;
            }
        }
        rule(called || own.is_empty(), || format!("messages.{place}: no result of {own:?}"))?;
        open.extend(own);
    }
    Ok(())
}

/// <https://platform.claude.com/docs/en/build-with-claude/prompt-caching>: at most four anchors, on tools, system text and
/// blocks of content; "thinking.cache_control: Extra inputs are not permitted"
/// (<https://github.com/UKGovernmentBEIS/inspect_ai/pull/3967>), "cache_control cannot be set for empty text blocks"
/// (<https://github.com/anthropics/claude-code/issues/50082>).
fn anchors(body: &Value) -> Check {
    let mut count = usize::from(!body["cache_control"].is_null());
    let messages = body["messages"].as_array().into_iter().flatten();
    let blocks = messages.clone().filter_map(|message| message["content"].as_array()).flatten();
    let outer = [&body["tools"], &body["system"]].into_iter().filter_map(Value::as_array).flatten();
    for block in outer.chain(blocks).filter(|block| !block["cache_control"].is_null()) {
        count += 1;
        let is_thinking = block["type"].as_str().is_some_and(|kind| kind.ends_with("thinking"));
        let is_known = block["cache_control"]["type"] == "ephemeral";
        rule(is_known && !is_thinking, || format!("an anchor: {block}"))?;
    }
    rule(count <= 4, || format!("{count} anchors"))?;
    let on_message = messages.clone().any(|message| !message["cache_control"].is_null());
    rule(!on_message, || "an anchor on a message".to_owned())
}

fn list<'a>(value: &'a Value, name: &str) -> Result<&'a [Value], String> {
    match value.as_array() {
        Some(items) if !items.is_empty() => Ok(items),
        _ => Err(format!("{name} must be a list that is not empty")),
    }
}

fn is_word(text: &str, longest: usize) -> bool {
    let is_allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
    !text.is_empty() && text.len() <= longest && text.bytes().all(is_allowed)
}
