//! What Google documents of a `generateContent` request, as a check of a whole body.
//!
//! Written from the documentation and from what its servers are reported to refuse, not from the encoder.

use serde_json::{Map, Value};

/// Checks a body against everything that any model behind the API demands.
pub fn check_gemini(body: &Value) -> Result<(), String> {
    let body = object(body, "the body")?;
    // https://ai.google.dev/api/generate-content#request-body
    only(
        body,
        &[
            "contents",
            "tools",
            "toolConfig",
            "safetySettings",
            "systemInstruction",
            "generationConfig",
            "cachedContent",
        ],
        "the body",
    )?;
    if let Some(config) = body.get("generationConfig") {
        generation_config(object(config, "generationConfig")?)?;
    }
    for tool in list(body.get("tools"), "tools")? {
        declarations(tool)?;
    }
    if let Some(system) = body.get("systemInstruction") {
        // https://ai.google.dev/api/generate-content: "Currently, text only."
        for part in list(system.get("parts"), "systemInstruction.parts")? {
            only(object(part, "systemInstruction part")?, &["text"], "systemInstruction part")?;
            said(part, "systemInstruction part")?;
        }
    }
    let contents = list(body.get("contents"), "contents")?;
    ensure(!contents.is_empty(), || "contents is empty".to_owned())?;
    turns(contents)
}

/// Checks a body against what Gemini 3 demands besides.
pub fn check_gemini_3(body: &Value) -> Result<(), String> {
    check_gemini(body)?;
    for (at, content) in list(body.get("contents"), "contents")?.iter().enumerate() {
        let mut calls = parts(content)?.iter().filter(|part| part.get("functionCall").is_some());
        // https://ai.google.dev/gemini-api/docs/thought-signatures: the first call of each step must have its signature,
        // the other parallel ones need none.
        if let Some(first) = calls.next() {
            ensure(first.get("thoughtSignature").is_some(), || {
                format!("the first call of content {at} has no thoughtSignature")
            })?;
        }
    }
    Ok(())
}

fn generation_config(config: &Map<String, Value>) -> Result<(), String> {
    let is_in = |name: &str, low: f64, high: f64| {
        config.get(name).is_none_or(|value| value.as_f64().is_some_and(|value| (low..=high).contains(&value)))
    };
    ensure(is_in("maxOutputTokens", 1.0, 1e6), || "maxOutputTokens is no count".to_owned())?;
    // https://ai.google.dev/api/generate-content#generationconfig: "Values can range from [0.0, 2.0]."
    ensure(is_in("temperature", 0.0, 2.0), || "temperature is not from 0 to 2".to_owned())?;
    let has = |name: &str| config.get("thinkingConfig").is_some_and(|thinking| thinking.get(name).is_some());
    // https://ai.google.dev/gemini-api/docs/thinking: level and budget in one request are an error.
    ensure(!(has("thinkingLevel") && has("thinkingBudget")), || {
        "both thinkingLevel and thinkingBudget".to_owned()
    })
}

fn declarations(tool: &Value) -> Result<(), String> {
    let mut names = Vec::new();
    for declaration in list(tool.get("functionDeclarations"), "functionDeclarations")? {
        let fields = object(declaration, "function declaration")?;
        let name = callable(declaration, "function declaration")?;
        // https://ai.google.dev/gemini-api/docs/function-calling: a name stands for one function.
        ensure(!names.contains(&name), || format!("function {name} is declared twice"))?;
        names.push(name);
        ensure(declaration["description"].is_string(), || format!("function {name} has no description"))?;
        // https://ai.google.dev/api/caching#FunctionDeclaration: parametersJsonSchema must describe an object and excludes
        // parameters.
        ensure(!fields.contains_key("parameters"), || {
            format!("function {name} has parameters of two kinds")
        })?;
        object(&declaration["parametersJsonSchema"], "parametersJsonSchema")?;
    }
    ensure(!names.is_empty(), || "a tool without functions".to_owned())
}

/// The order of roles, and the pairing of calls and responses.
fn turns(contents: &[Value]) -> Result<(), String> {
    let mut ids = std::collections::HashSet::new();
    let mut calls: Vec<(&str, &Value)> = Vec::new();
    for (at, content) in contents.iter().enumerate() {
        only(object(content, "content")?, &["role", "parts"], "content")?;
        // https://ai.google.dev/gemini-api/docs/text-generation#multi-turn-conversations: the user begins, then roles
        // alternate; two contents of a role are refused as "Please ensure that multiturn requests alternate".
        let is_user = at % 2 == 0;
        let role = if is_user { "user" } else { "model" };
        ensure(content["role"] == role, || format!("content {at} is not of role {role}"))?;
        let parts = parts(content)?;
        ensure(!parts.is_empty(), || format!("content {at} has no parts"))?;
        for part in parts {
            check_part(part, is_user).map_err(|error| format!("content {at}: {error}"))?;
        }
        if is_user {
            responses(parts, &calls).map_err(|error| format!("content {at}: {error}"))?;
            calls.clear();
            continue;
        }
        for call in parts.iter().filter_map(|part| part.get("functionCall")) {
            // https://ai.google.dev/gemini-api/docs/function-calling: each call has an id of its own, which the response
            // carries too.
            if let Some(id) = call.get("id") {
                ensure(ids.insert(id.clone()), || format!("content {at}: the id {id} stands twice"))?;
            }
            calls.push((call["name"].as_str().unwrap_or_default(), &call["id"]));
        }
    }
    ensure(calls.is_empty(), || "the last calls have no response".to_owned())
}

/// The API's words for what it refuses: "Please ensure that the number of function response parts is equal to the number of
/// function call parts of the function call turn", "… that function response turn comes immediately after a function call
/// turn" (<https://ai.google.dev/gemini-api/docs/function-calling#parallel_function_calling>). Parallel calls and their
/// responses may not be interleaved (<https://ai.google.dev/gemini-api/docs/thought-signatures>, "FAQs").
fn responses(parts: &[Value], calls: &[(&str, &Value)]) -> Result<(), String> {
    let is_response = |part: &&Value| part.get("functionResponse").is_some();
    let leading = parts.iter().take_while(is_response).count();
    ensure(leading == parts.iter().filter(is_response).count(), || {
        "a response stands behind other parts".to_owned()
    })?;
    ensure(leading == calls.len(), || format!("{leading} responses to {} calls", calls.len()))?;
    for (part, (name, id)) in parts.iter().zip(calls) {
        let response = &part["functionResponse"];
        ensure(response["name"] == *name, || format!("the response to {name} names {}", response["name"]))?;
        ensure(&response["id"] == *id, || format!("the response to {id} carries {}", response["id"]))?;
    }
    Ok(())
}

fn check_part(part: &Value, is_user: bool) -> Result<(), String> {
    let fields = object(part, "part")?;
    // https://ai.google.dev/api/caching#Part: data is a union; the other fields say something about it.
    let data = [
        "text",
        "inlineData",
        "functionCall",
        "functionResponse",
        "fileData",
        "executableCode",
        "codeExecutionResult",
        "toolCall",
        "toolResponse",
    ];
    only(
        fields,
        &[&data[..], &["thought", "thoughtSignature", "videoMetadata", "mediaResolution"]].concat(),
        "part",
    )?;
    let present: Vec<&str> = data.into_iter().filter(|name| fields.contains_key(*name)).collect();
    // The API's words: "required oneof field 'data' must have one initialized field".
    let [kind] = present[..] else { return Err(format!("a part holds {present:?}")) };
    let signature = fields.get("thoughtSignature");
    if let Some(signature) = signature {
        // https://ai.google.dev/api/caching#Part: "A base64-encoded string", of the model's parts.
        let text = signature.as_str().unwrap_or_default();
        ensure(!is_user && is_base64(text), || {
            format!("the signature {signature} is no base 64, or the user's")
        })?;
    }
    match kind {
        // https://ai.google.dev/gemini-api/docs/thought-signatures: a signature may come in a part with empty text.
        "text" if signature.is_some() => ensure(part["text"].is_string(), || "text is no string".to_owned()),
        "text" => said(part, "part"),
        "inlineData" => blob(&part["inlineData"]),
        "functionCall" => {
            ensure(!is_user, || "a call of the user".to_owned())?;
            callable(&part["functionCall"], "call")?;
            // https://ai.google.dev/api/caching#FunctionCall: args is a Struct, a JSON object.
            object(&part["functionCall"]["args"], "args").map(drop)
        }
        "functionResponse" => {
            ensure(is_user, || "a response of the model".to_owned())?;
            let response = &part["functionResponse"];
            callable(response, "response")?;
            // https://ai.google.dev/api/caching#FunctionResponse: response is a Struct; "output" holds what the function
            // said and "error" what went wrong.
            only(object(&response["response"], "response")?, &["output", "error"], "response")?;
            for nested in list(response.get("parts"), "parts of a response")? {
                only(object(nested, "part of a response")?, &["inlineData"], "part of a response")?;
                blob(&nested["inlineData"])?;
            }
            Ok(())
        }
        _ => ensure(!is_user, || format!("{kind} of the user")),
    }
}

/// <https://ai.google.dev/gemini-api/docs/image-understanding>: PNG, JPEG, WEBP, HEIC and HEIF.
fn blob(blob: &Value) -> Result<(), String> {
    only(object(blob, "inlineData")?, &["mimeType", "data"], "inlineData")?;
    let kinds = ["image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"];
    let kind = blob["mimeType"].as_str().unwrap_or_default();
    ensure(kinds.contains(&kind), || format!("an image of type {kind}"))?;
    ensure(blob["data"].as_str().is_some_and(is_base64), || "an image that is no base 64".to_owned())
}

/// <https://ai.google.dev/api/caching#FunctionDeclaration>: letters, digits, `_`, `:`, `.` and `-`, at most 64; Vertex AI
/// demands a letter or `_` in front
/// (<https://docs.cloud.google.com/vertex-ai/generative-ai/docs/model-reference/function-calling>).
fn callable<'v>(value: &'v Value, what: &str) -> Result<&'v str, String> {
    let name = value["name"].as_str().unwrap_or_default();
    let begins = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let is_made = name.len() <= 64 && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_:.-".contains(&b));
    ensure(begins && is_made, || format!("a {what} with the name {name:?}"))?;
    Ok(name)
}

fn parts(content: &Value) -> Result<&[Value], String> {
    list(content.get("parts"), "parts")
}

/// Blank text is refused by some models ("Unable to submit request because it must have a text parameter").
fn said(part: &Value, what: &str) -> Result<(), String> {
    let is_said = part["text"].as_str().is_some_and(|text| !text.trim().is_empty());
    ensure(is_said, || format!("a {what} with blank text"))
}

fn is_base64(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"+/-_=".contains(&b))
}

fn object<'v>(value: &'v Value, what: &str) -> Result<&'v Map<String, Value>, String> {
    value.as_object().ok_or_else(|| format!("{what} is no object: {value}"))
}

/// The items of a list; none where there is no list.
fn list<'v>(value: Option<&'v Value>, what: &str) -> Result<&'v [Value], String> {
    match value {
        None => Ok(&[]),
        Some(value) => {
            value.as_array().map(Vec::as_slice).ok_or_else(|| format!("{what} is no list: {value}"))
        }
    }
}

fn only(fields: &Map<String, Value>, known: &[&str], what: &str) -> Result<(), String> {
    // The API's words: "Invalid JSON payload received. Unknown name".
    match fields.keys().find(|name| !known.contains(&name.as_str())) {
        Some(name) => Err(format!("{what} has the unknown field {name}")),
        None => Ok(()),
    }
}

fn ensure(holds: bool, or: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(or()) }
}
