//! What OpenAI, and the servers that imitate it, demand of the body of a request over Responses.
//!
//! Written from the documentation and from refusals that were reported, not from the encoder.

use std::collections::HashSet;

use serde_json::Value;

/// Says which rule a body breaks, if it breaks one.
pub fn check_responses(body: &Value) -> Result<(), String> {
    check_head(body)?;
    for tool in list(&body["tools"], "tools")? {
        check_tool(tool)?;
    }
    let names: Vec<&str> = list(&body["tools"], "tools")?.iter().filter_map(|t| t["name"].as_str()).collect();
    rule(distinct(&names), "two tools have the same name")?;
    let input = body["input"].as_array().ok_or("`input` is no list")?;
    for (place, item) in input.iter().enumerate() {
        check_item(item).map_err(|error| format!("input[{place}]: {error}"))?;
    }
    check_calls(input)?;
    check_reasoning(input)?;
    check_ids(input)
}

/// <https://platform.openai.com/docs/api-reference/responses/create>
fn check_head(body: &Value) -> Result<(), String> {
    rule(is_filled(&body["model"]), "`model` is missing")?;
    rule(body["stream"] == true, "`stream` is not true")?;
    rule(body.get("messages").is_none(), "`messages` belongs to another format")?;
    rule(body.get("instructions").is_none_or(is_filled), "`instructions` says nothing")?;
    rule(
        body.get("max_output_tokens").is_none_or(|limit| limit.as_u64() >= Some(16)),
        "`max_output_tokens` is at least 16",
    )?;
    // <https://platform.openai.com/docs/api-reference/responses/create#responses-create-prompt_cache_key>
    rule(
        body.get("prompt_cache_key").is_none_or(|key| length(key).is_some_and(|length| length <= 64)),
        "`prompt_cache_key` has at most 64 characters",
    )?;
    // Where nothing is stored, nothing can be referred to:
    // <https://platform.openai.com/docs/guides/migrate-to-responses#4-decide-when-to-use-statefulness>
    rule(body["store"] == false && body.get("previous_response_id").is_none(), "something stored is needed")
}

/// <https://platform.openai.com/docs/guides/function-calling#defining-functions>
fn check_tool(tool: &Value) -> Result<(), String> {
    rule(tool["type"] == "function", "a tool is no function")?;
    rule(is_word(&tool["name"]), "a tool's name is not 1 to 64 letters, digits, _ and -")?;
    rule(tool["parameters"].is_object(), "a tool's parameters are no schema")?;
    // The default is true, which demands schemas with every field required:
    // <https://platform.openai.com/docs/guides/function-calling#strict-mode>
    rule(tool["strict"] == false, "a tool is strict")
}

fn check_item(item: &Value) -> Result<(), String> {
    match item["type"].as_str() {
        Some("message") => check_message(item),
        // <https://platform.openai.com/docs/api-reference/responses/create#responses-create-input>
        Some("function_call") => {
            rule(is_word(&item["call_id"]), "`call_id` is not 1 to 64 letters, digits, _ and -")?;
            rule(is_word(&item["name"]), "`name` is not 1 to 64 letters, digits, _ and -")?;
            let arguments = item["arguments"].as_str().and_then(|text| serde_json::from_str(text).ok());
            rule(arguments.as_ref().is_some_and(Value::is_object), "`arguments` is not the text of an object")
        }
        Some("function_call_output") => match &item["output"] {
            Value::String(text) => rule(!text.is_empty(), "`output` is empty"),
            parts => check_input_parts(parts),
        },
        Some("reasoning") => {
            rule(item["summary"].is_array(), "`summary` is no list")?;
            // "Items are not persisted when `store` is set to false": <https://github.com/vercel/ai/issues/7543>
            let is_whole = is_filled(&item["encrypted_content"])
                || item["content"].as_array().is_some_and(|parts| !parts.is_empty());
            rule(is_whole, "a reasoning item is only a reference")
        }
        Some(
            "web_search_call"
            | "file_search_call"
            | "code_interpreter_call"
            | "image_generation_call"
            | "mcp_list_tools"
            | "mcp_call"
            | "compaction",
        ) => rule(is_filled(&item["id"]), "an item of the provider's has no id"),
        other => Err(format!("items of type {other:?} are none that can be sent without an answer to them")),
    }
}

/// <https://platform.openai.com/docs/api-reference/responses/create#responses-create-input>
fn check_message(item: &Value) -> Result<(), String> {
    match item["role"].as_str() {
        Some("user") => {
            let own = ["type", "role", "content"];
            let extra =
                item.as_object().into_iter().flatten().find(|(name, _)| !own.contains(&name.as_str()));
            rule(extra.is_none(), "a user's message has fields that only answers have")?;
            check_input_parts(&item["content"])
        }
        Some("assistant") => {
            let phase = item.get("phase").filter(|phase| !phase.is_null());
            rule(
                phase.is_none_or(|phase| phase == "commentary" || phase == "final_answer"),
                "a phase is none that exists",
            )?;
            let parts = filled_list(&item["content"])?;
            let is_part = |part: &Value| {
                part["type"] == "output_text" && is_filled(&part["text"]) && part["annotations"].is_array()
            };
            // llama.cpp takes nothing but output_text:
            // <https://github.com/ggml-org/llama.cpp/blob/master/tools/server/server-chat.cpp>
            rule(parts.iter().all(is_part), "a part of an answer's message is no text")
        }
        // A developer's message may stand anywhere, but not with every server.
        other => Err(format!("a message has the role {other:?}")),
    }
}

/// <https://platform.openai.com/docs/guides/images-vision#giving-a-model-images-as-input>
fn check_input_parts(parts: &Value) -> Result<(), String> {
    for part in filled_list(parts)? {
        match part["type"].as_str() {
            Some("input_text") => rule(is_filled(&part["text"]), "a part is a blank text")?,
            Some("input_image") => {
                let url = part["image_url"].as_str().unwrap_or_default();
                let kinds = ["png", "jpeg", "webp", "gif"];
                let is_data = kinds.iter().any(|kind| url.starts_with(&format!("data:image/{kind};base64,")));
                rule(is_data, "an image is no data URL of a kind that is taken")?;
                rule(["auto", "low", "high"].iter().any(|d| part["detail"] == *d), "an image has no detail")?;
            }
            other => return Err(format!("a part is of type {other:?}")),
        }
    }
    Ok(())
}

/// "No tool output found for function call": each call has its one output behind it, before anything else is said.
///
/// <https://platform.openai.com/docs/guides/function-calling#handling-function-calls>
fn check_calls(input: &[Value]) -> Result<(), String> {
    let ids: Vec<&str> =
        input.iter().filter(|i| is(i, "function_call")).filter_map(|i| i["call_id"].as_str()).collect();
    rule(distinct(&ids), "two calls have the same `call_id`")?;
    let mut open: Vec<&str> = Vec::new();
    let mut answering = false;
    for item in input {
        let id = item["call_id"].as_str().unwrap_or_default();
        if is(item, "function_call") {
            rule(!answering, &format!("call {id} stands between the outputs of others"))?;
            open.push(id);
        } else if is(item, "function_call_output") {
            let place = open.iter().position(|known| *known == id);
            open.remove(place.ok_or(format!("output {id} has no open call before it"))?);
            answering = !open.is_empty();
        } else {
            let is_of_answer = !is_user(item) && !answering;
            rule(open.is_empty() || is_of_answer, &format!("call {open:?} has no output where one must be"))?;
        }
    }
    rule(open.is_empty(), &format!("call {open:?} has no output"))
}

/// "Item of type 'reasoning' was provided without its required following item", and the same the other way round:
/// <https://github.com/OpenHands/software-agent-sdk/pull/1754>, <https://github.com/NousResearch/hermes-agent/pull/97777>,
/// <https://github.com/laravel/ai/pull/1052>.
fn check_reasoning(input: &[Value]) -> Result<(), String> {
    let mut bound = false;
    for (place, item) in input.iter().enumerate() {
        let fail = |what: &str| Err(format!("input[{place}]: {what}"));
        if is_user(item) || is(item, "function_call_output") {
            bound = false;
        } else if is(item, "reasoning") {
            let is_bound = is_filled(&item["encrypted_content"]) && is_filled(&item["id"]);
            bound |= is_bound;
            match input.get(place + 1) {
                Some(next) if is_user(next) || is(next, "function_call_output") => {
                    return fail("reasoning is followed by nothing of its answer");
                }
                Some(next) if is_bound && is(next, "message") && !is_filled(&next["id"]) => {
                    return fail("reasoning is followed by a message that does not say whose it is");
                }
                Some(_) => {}
                None => return fail("reasoning stands last"),
            }
        } else if (is(item, "message") || is(item, "function_call")) && item.get("id").is_some() && !bound {
            return fail("an item with an id has no reasoning before it");
        }
    }
    Ok(())
}

/// "Duplicate item found with id", and ids have at most 64 characters:
/// <https://platform.openai.com/docs/api-reference/responses/create#responses-create-input>
fn check_ids(input: &[Value]) -> Result<(), String> {
    let ids: Vec<&str> = input.iter().filter_map(|item| item["id"].as_str()).collect();
    rule(distinct(&ids), "two items have the same id")?;
    rule(ids.iter().all(|id| (1..=64).contains(&id.chars().count())), "an item's id is empty or too long")
}

fn rule(holds: bool, broken: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(broken.to_owned()) }
}

fn is(item: &Value, kind: &str) -> bool {
    item["type"] == kind
}

fn is_user(item: &Value) -> bool {
    is(item, "message") && item["role"] == "user"
}

fn is_filled(text: &Value) -> bool {
    text.as_str().is_some_and(|text| !text.trim().is_empty())
}

fn length(text: &Value) -> Option<usize> {
    text.as_str().map(|text| text.chars().count())
}

fn is_word(text: &Value) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    text.as_str().is_some_and(|text| (1..=64).contains(&text.len()) && text.chars().all(is_allowed))
}

fn distinct(names: &[&str]) -> bool {
    names.iter().collect::<HashSet<_>>().len() == names.len()
}

fn list<'a>(value: &'a Value, name: &str) -> Result<&'a [Value], String> {
    match value {
        Value::Null => Ok(&[]),
        Value::Array(items) => Ok(items),
        _ => Err(format!("`{name}` is no list")),
    }
}

fn filled_list(value: &Value) -> Result<&[Value], String> {
    match value.as_array() {
        Some(items) if !items.is_empty() => Ok(items),
        _ => Err("a list of parts is empty or missing".to_owned()),
    }
}
