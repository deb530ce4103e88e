//! The same answer in each wire format, as its provider streams it: one test can then try all four.

use std::sync::Arc;

use mainstay_model::{
    AnthropicModel, ChatModel, GeminiModel, Model, ModelSettings, ResponsesModel, SettingsError,
};
use serde_json::{Value, json};

/// A wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wire {
    /// OpenAI Chat Completions.
    Chat,
    /// Anthropic Messages.
    Anthropic,
    /// OpenAI Responses.
    Responses,
    /// Gemini.
    Gemini,
}

/// What a model says in one answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Speech {
    /// Its reasoning, which the provider wants back; none if it is empty.
    pub reasoning: String,
    /// The text; none if it is empty.
    pub text: String,
    /// Calls by id, name and arguments.
    pub calls: Vec<(String, String, String)>,
}

impl Speech {
    /// An answer of a text alone.
    pub fn text(text: &str) -> Self {
        Speech { text: text.to_owned(), ..Speech::default() }
    }

    /// An answer with one call, after some reasoning.
    pub fn call(id: &str, name: &str, arguments: &str) -> Self {
        Speech {
            reasoning: format!("I think of {name}"),
            calls: vec![(id.to_owned(), name.to_owned(), arguments.to_owned())],
            ..Speech::default()
        }
    }
}

impl Wire {
    /// All of them.
    pub const ALL: [Wire; 4] = [Wire::Chat, Wire::Anthropic, Wire::Responses, Wire::Gemini];

    /// The name under which a log knows the model.
    pub fn model_name(self) -> &'static str {
        match self {
            Wire::Chat => "local/small",
            Wire::Anthropic => "anthropic/claude-opus-5",
            Wire::Responses => "openai/gpt-5.1",
            Wire::Gemini => "gemini/gemini-3-pro",
        }
    }

    /// Settings for a server at an address.
    pub fn settings(self, base_url: &str) -> ModelSettings {
        let (provider, name) = self.model_name().split_once('/').unwrap_or_default();
        ModelSettings::new(provider, name, base_url, 200_000)
    }

    /// The model that speaks it.
    ///
    /// # Errors
    ///
    /// If the settings cannot be used.
    pub fn model(self, settings: ModelSettings) -> Result<Arc<dyn Model>, SettingsError> {
        Ok(match self {
            Wire::Chat => Arc::new(ChatModel::new(settings)?),
            Wire::Anthropic => Arc::new(AnthropicModel::new(settings)?),
            Wire::Responses => Arc::new(ResponsesModel::new(settings)?),
            Wire::Gemini => Arc::new(GeminiModel::new(settings)?),
        })
    }

    /// The body of an answer: an event stream that ends in order. Texts and arguments come in two pieces each.
    pub fn stream(self, speech: &Speech) -> String {
        match self {
            Wire::Chat => chat(speech),
            Wire::Anthropic => anthropic(speech),
            Wire::Responses => responses(speech),
            Wire::Gemini => gemini(speech),
        }
    }

    /// The event by which a provider says, within a stream that began well, that it failed.
    pub fn error_event(self, message: &str) -> String {
        match self {
            Wire::Chat => event(&json!({"error": {"message": message, "type": "server_error", "code": 500}})),
            Wire::Anthropic => {
                named(&json!({"type": "error", "error": {"type": "overloaded_error", "message": message}}))
            }
            Wire::Responses => named(&json!({
                "type": "response.failed",
                "response": {"status": "failed", "error": {"code": "server_error", "message": message}},
            })),
            Wire::Gemini => {
                event(&json!({"error": {"code": 503, "message": message, "status": "UNAVAILABLE"}}))
            }
        }
    }
}

fn event(data: &Value) -> String {
    format!("data: {data}\n\n")
}

fn named(data: &Value) -> String {
    format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap_or_default())
}

/// A text in two pieces.
fn halves(text: &str) -> [&str; 2] {
    let middle = (text.len() / 2..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let (one, other) = text.split_at(middle);
    [one, other]
}

fn chat(speech: &Speech) -> String {
    let delta = |delta: Value| event(&json!({"choices": [{"index": 0, "delta": delta}]}));
    let mut body = delta(json!({"role": "assistant", "content": ""}));
    if !speech.reasoning.is_empty() {
        body.extend(halves(&speech.reasoning).map(|piece| delta(json!({"reasoning_content": piece}))));
    }
    if !speech.text.is_empty() {
        body.extend(halves(&speech.text).map(|piece| delta(json!({"content": piece}))));
    }
    for (index, (id, name, arguments)) in speech.calls.iter().enumerate() {
        let [one, other] = halves(arguments);
        let function = json!({"name": name, "arguments": one});
        body.push_str(&delta(
            json!({"tool_calls": [{"index": index, "id": id, "type": "function", "function": function}]}),
        ));
        body.push_str(&delta(json!({"tool_calls": [{"index": index, "function": {"arguments": other}}]})));
    }
    let reason = if speech.calls.is_empty() { "stop" } else { "tool_calls" };
    body.push_str(&event(&json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})));
    body.push_str(&event(&json!({"choices": [], "usage": {"prompt_tokens": 50, "completion_tokens": 5}})));
    body.push_str("data: [DONE]\n\n");
    body
}

fn anthropic(speech: &Speech) -> String {
    let usage = json!({"input_tokens": 50, "output_tokens": 1});
    let message = json!({"type": "message", "role": "assistant", "content": [], "usage": usage});
    let mut body = named(&json!({"type": "message_start", "message": message}));
    let mut index = 0;
    let mut block = |start: Value, deltas: Vec<Value>| {
        let mut events =
            named(&json!({"type": "content_block_start", "index": index, "content_block": start}));
        events.extend(
            deltas
                .iter()
                .map(|delta| named(&json!({"type": "content_block_delta", "index": index, "delta": delta}))),
        );
        events.push_str(&named(&json!({"type": "content_block_stop", "index": index})));
        index += 1;
        events
    };
    if !speech.reasoning.is_empty() {
        let pieces =
            halves(&speech.reasoning).map(|piece| json!({"type": "thinking_delta", "thinking": piece}));
        let signature = json!({"type": "signature_delta", "signature": "signed"});
        let deltas = pieces.into_iter().chain([signature]).collect();
        body.push_str(&block(json!({"type": "thinking", "thinking": "", "signature": ""}), deltas));
    }
    if !speech.text.is_empty() {
        let pieces = halves(&speech.text).map(|piece| json!({"type": "text_delta", "text": piece}));
        body.push_str(&block(json!({"type": "text", "text": ""}), pieces.to_vec()));
    }
    for (id, name, arguments) in &speech.calls {
        let pieces =
            halves(arguments).map(|piece| json!({"type": "input_json_delta", "partial_json": piece}));
        body.push_str(&block(
            json!({"type": "tool_use", "id": id, "name": name, "input": {}}),
            pieces.to_vec(),
        ));
    }
    let reason = if speech.calls.is_empty() { "end_turn" } else { "tool_use" };
    let usage = json!({"output_tokens": 5});
    body.push_str(&named(
        &json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage}),
    ));
    body.push_str(&named(&json!({"type": "message_stop"})));
    body
}

/// Ids of items are unique for the whole provider: here, as long as what is said differs.
fn responses(speech: &Speech) -> String {
    let mut body = named(&json!({"type": "response.created", "response": {"id": "resp_1"}}));
    let mut output = Vec::new();
    let mut item = |begun: Value, kind: &str, pieces: &[&str], done: Value| {
        let index = output.len();
        let mut events =
            named(&json!({"type": "response.output_item.added", "output_index": index, "item": begun}));
        events.extend(pieces.iter().map(|piece| {
            named(&json!({
                "type": format!("response.{kind}.delta"), "output_index": index, "content_index": 0,
                "summary_index": 0, "delta": piece,
            }))
        }));
        events.push_str(&named(
            &json!({"type": "response.output_item.done", "output_index": index, "item": done}),
        ));
        output.push(done);
        events
    };
    let mark = speech.calls.iter().map(|(id, ..)| id.as_str()).collect::<Vec<_>>().join("_");
    if !speech.reasoning.is_empty() {
        let with = |summary: Value| json!({"type": "reasoning", "id": format!("rs_{mark}"), "summary": summary, "encrypted_content": "sealed"});
        let done = with(json!([{"type": "summary_text", "text": speech.reasoning}]));
        let pieces = halves(&speech.reasoning);
        body.push_str(&item(with(json!([])), "reasoning_summary_text", &pieces, done));
    }
    if !speech.text.is_empty() {
        let with = |content: Value| json!({"type": "message", "id": format!("msg_{mark}"), "role": "assistant", "content": content});
        let done = with(json!([{"type": "output_text", "text": speech.text, "annotations": []}]));
        body.push_str(&item(with(json!([])), "output_text", &halves(&speech.text), done));
    }
    for (id, name, arguments) in &speech.calls {
        let with = |arguments: &str| {
            json!({
                "type": "function_call", "id": format!("fc_{id}"), "call_id": id, "name": name,
                "arguments": arguments,
            })
        };
        let pieces = halves(arguments);
        body.push_str(&item(with(""), "function_call_arguments", &pieces, with(arguments)));
    }
    let usage = json!({"input_tokens": 50, "output_tokens": 5});
    let response = json!({"id": "resp_1", "status": "completed", "output": output, "usage": usage});
    body.push_str(&named(&json!({"type": "response.completed", "response": response})));
    body
}

/// Calls come whole and without ids, as Gemini sends them.
fn gemini(speech: &Speech) -> String {
    let chunk = |parts: Vec<Value>, end: bool| {
        let mut candidate = json!({"content": {"role": "model", "parts": parts}, "index": 0});
        if end {
            candidate["finishReason"] = json!("STOP");
        }
        let usage = json!({"promptTokenCount": 50, "candidatesTokenCount": 5});
        event(&json!({"candidates": [candidate], "usageMetadata": usage}))
    };
    let mut body = String::new();
    if !speech.reasoning.is_empty() {
        body.extend(
            halves(&speech.reasoning)
                .map(|piece| chunk(vec![json!({"text": piece, "thought": true})], false)),
        );
    }
    if !speech.text.is_empty() {
        body.extend(halves(&speech.text).map(|piece| chunk(vec![json!({"text": piece})], false)));
    }
    for (place, (_, name, arguments)) in speech.calls.iter().enumerate() {
        let arguments: Value = serde_json::from_str(arguments).unwrap_or_default();
        let mut part = json!({"functionCall": {"name": name, "args": arguments}});
        if place == 0 {
            part["thoughtSignature"] = json!("signed");
        }
        body.push_str(&chunk(vec![part], false));
    }
    body.push_str(&chunk(Vec::new(), true));
    body
}
