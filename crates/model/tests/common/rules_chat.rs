//! What OpenAI, and the stricter servers that imitate it, demand of the body of a request over Chat Completions.
//!
//! Written from the documentation and from refusals that were reported, not from the encoder.

use std::collections::HashSet;

use serde_json::Value;

type Check = Result<(), String>;

/// How strict a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChatRules {
    /// The roles alternate, as the templates of Mistral's and Google's models have it.
    pub alternate: bool,
    /// Calls have ids of nine letters and digits.
    pub nine: bool,
}

/// Says which rule a body breaks first, if it breaks one.
pub fn check_chat(body: &Value, rules: ChatRules) -> Check {
    rule(is_filled(&body["model"]), || "`model` is missing".to_owned())?;
    rule(body["stream"] == true, || "`stream` is not true".to_owned())?;
    tools(body)?;
    let messages = body["messages"].as_array().ok_or("`messages` is no list")?;
    rule(!messages.is_empty(), || "`messages` is empty".to_owned())?;
    for (place, message) in messages.iter().enumerate() {
        one(message, place, rules).map_err(|why| format!("messages[{place}]: {why}"))?;
    }
    calls_and_results(messages)?;
    if rules.alternate { alternation(messages).and_then(|()| order(messages)) } else { Ok(()) }
}

/// <https://platform.openai.com/docs/api-reference/chat/create#chat-create-tools>: names of 1 to 64 letters, digits, `_`
/// and `-`. "[] is too short - 'tools'" (<https://github.com/ollama/ollama/issues/12557> and others).
fn tools(body: &Value) -> Check {
    let Some(tools) = body.get("tools") else { return Ok(()) };
    let tools = tools.as_array().filter(|tools| !tools.is_empty()).ok_or("`tools` is empty or no list")?;
    let mut names = HashSet::new();
    for tool in tools {
        let function = &tool["function"];
        rule(tool["type"] == "function", || format!("a tool is no function: {tool}"))?;
        rule(is_word(&function["name"], 64), || format!("a tool's name: {tool}"))?;
        rule(names.insert(function["name"].as_str()), || format!("two tools of one name: {tool}"))?;
        rule(function["parameters"].is_object(), || format!("a tool's schema: {tool}"))?;
    }
    Ok(())
}

fn one(message: &Value, place: usize, rules: ChatRules) -> Check {
    let content = &message["content"];
    match message["role"].as_str() {
        // "System message must be at the beginning." (<https://github.com/ggml-org/llama.cpp/issues/20733>)
        Some("system") => {
            rule(place == 0, || "a system message that is not the first".to_owned())?;
            rule(is_filled(content), || "a blank system message".to_owned())
        }
        Some("user") => match content {
            Value::Array(parts) if !parts.is_empty() => parts.iter().try_for_each(part),
            _ => rule(is_filled(content), || format!("a user's message that says nothing: {content}")),
        },
        Some("assistant") => assistant(message, rules),
        // <https://platform.openai.com/docs/api-reference/chat/create#chat-create-messages>
        Some("tool") => {
            rule(message["tool_call_id"].is_string(), || "a result without an id".to_owned())?;
            rule(is_filled(content), || "a blank result".to_owned())
        }
        other => Err(format!("the role {other:?}")),
    }
}

fn part(part: &Value) -> Check {
    match part["type"].as_str() {
        Some("text") => rule(is_filled(&part["text"]), || "a blank part".to_owned()),
        // <https://platform.openai.com/docs/guides/images-vision#giving-a-model-images-as-input>
        Some("image_url") => {
            let url = part["image_url"]["url"].as_str().unwrap_or_default();
            let kinds = ["png", "jpeg", "webp", "gif"];
            let is_data = kinds.iter().any(|kind| url.starts_with(&format!("data:image/{kind};base64,")));
            rule(is_data, || format!("an image is no data URL of a kind that is taken: {url}"))
        }
        other => Err(format!("a part of type {other:?}")),
    }
}

/// "Content is required unless `tool_calls` is specified", which then is a list that is not empty.
///
/// <https://platform.openai.com/docs/api-reference/chat/create#chat-create-messages>; "string too long. Expected a string
/// with maximum length 40" (<https://github.com/microsoft/autogen/issues/6377>); "Tool call id was … but must be a-z, A-Z,
/// 0-9, with a length of 9" (<https://github.com/langchain-ai/langchain/issues/19679>).
fn assistant(message: &Value, rules: ChatRules) -> Check {
    let content = &message["content"];
    let calls = match &message["tool_calls"] {
        Value::Null => &[][..],
        Value::Array(calls) if !calls.is_empty() => calls,
        other => return Err(format!("`tool_calls` is {other}")),
    };
    let is_said = is_filled(content) || (content.is_null() && !calls.is_empty());
    rule(is_said, || format!("an answer that says nothing: {message}"))?;
    for call in calls {
        let function = &call["function"];
        rule(call["type"] == "function", || format!("a call of no function: {call}"))?;
        let is_nine = |id: &str| id.len() == 9 && id.bytes().all(|b| b.is_ascii_alphanumeric());
        let is_fit = is_word(&call["id"], 40) && (!rules.nine || call["id"].as_str().is_some_and(is_nine));
        rule(is_fit, || format!("a call's id: {call}"))?;
        rule(is_word(&function["name"], 64), || format!("a call's name: {call}"))?;
        let arguments = function["arguments"].as_str().and_then(|text| serde_json::from_str(text).ok());
        rule(arguments.as_ref().is_some_and(Value::is_object), || format!("a call's arguments: {call}"))?;
    }
    Ok(())
}

/// "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'", and
/// "messages with role 'tool' must be a response to a preceding message with 'tool_calls'".
fn calls_and_results(messages: &[Value]) -> Check {
    let mut used = HashSet::new();
    let mut open: Vec<String> = Vec::new();
    for (place, message) in messages.iter().enumerate() {
        let at = |why: &str, what: &str| format!("messages[{place}]: {why} {what}");
        if message["role"] == "tool" {
            let id = message["tool_call_id"].as_str().unwrap_or_default();
            let found = open.iter().position(|known| known == id);
            open.remove(found.ok_or_else(|| at("a result without its call right before:", id))?);
            continue;
        }
        rule(open.is_empty(), || at("no result right behind", &open.join(", ")))?;
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            let id = call["id"].as_str().unwrap_or_default().to_owned();
            rule(used.insert(id.clone()), || at("an id used twice:", &id))?;
            open.push(id);
        }
    }
    rule(open.is_empty(), || "calls without results at the end".to_owned())
}

/// "After the optional system message, conversation roles must alternate user/assistant/user/assistant/...": the template
/// counts neither results nor answers with calls (<https://github.com/BerriAI/litellm/pull/22675>).
fn alternation(messages: &[Value]) -> Check {
    let counts = |message: &&Value| {
        message["role"] == "user" || (message["role"] == "assistant" && message["tool_calls"].is_null())
    };
    for (place, message) in messages.iter().filter(counts).enumerate() {
        let role = if place % 2 == 0 { "user" } else { "assistant" };
        rule(message["role"] == role, || format!("counted message {place} is not the {role}'s: {message}"))?;
    }
    Ok(())
}

/// "Unexpected role 'user' after role 'tool'" (<https://github.com/zed-industries/zed/issues/37021>,
/// <https://github.com/NousResearch/hermes-agent/issues/20154>), and the like for two of the same.
fn order(messages: &[Value]) -> Check {
    for (place, pair) in messages.windows(2).enumerate() {
        let role = |message: &Value| message["role"].as_str().unwrap_or_default().to_owned();
        let (before, after) = (role(&pair[0]), role(&pair[1]));
        let may_follow = match before.as_str() {
            "system" => after == "user",
            "user" => after == "assistant",
            "assistant" if pair[0]["tool_calls"].is_null() => after == "user",
            "assistant" => after == "tool",
            _ => after == "assistant" || after == "tool",
        };
        rule(may_follow, || format!("messages[{}]: unexpected role {after} after role {before}", place + 1))?;
    }
    Ok(())
}

fn rule(holds: bool, broken: impl FnOnce() -> String) -> Check {
    if holds { Ok(()) } else { Err(broken()) }
}

fn is_filled(text: &Value) -> bool {
    text.as_str().is_some_and(|text| !text.trim().is_empty())
}

fn is_word(text: &Value, longest: usize) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    text.as_str().is_some_and(|text| (1..=longest).contains(&text.len()) && text.chars().all(is_allowed))
}
