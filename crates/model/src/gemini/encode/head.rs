//! The body up to the tools: what does not depend on the conversation, and what depends on which Gemini it is.

use serde_json::{Map, Value, json};

use crate::json::quoted;
use crate::settings::ModelSettings;

/// A generation of models, as far as requests differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Generation {
    /// Models that do not think, and those that are not called Gemini.
    Plain,
    /// Gemini 2.5, which thinks up to a number of tokens.
    Budget,
    /// Gemini 3 and what follows it, which thinks on a level and wants its signatures back.
    Level,
}

impl Generation {
    /// Reads a model's name; a Gemini without a number (`gemini-flash-latest`) is one of the newest.
    pub(super) fn of(model: &str) -> Self {
        let Some((_, version)) = model.rsplit('/').next().unwrap_or(model).split_once("gemini-") else {
            return Generation::Plain;
        };
        let number = version.split(|c: char| !c.is_ascii_digit() && c != '.').next().unwrap_or_default();
        match (number, number.split('.').next().and_then(|major| major.parse().ok())) {
            ("2.5", _) => Generation::Budget,
            (_, Some(0..=2)) => Generation::Plain,
            _ => Generation::Level,
        }
    }

    /// Whether the first call of an answer must have a signature.
    pub(super) fn wants_signatures(self) -> bool {
        self == Generation::Level
    }

    /// Whether a function's response may hold images
    /// (<https://ai.google.dev/gemini-api/docs/function-calling>, "Multimodal function responses").
    pub(super) fn takes_images_in_results(self) -> bool {
        self == Generation::Level
    }

    /// How hard the model shall think. A model takes a level or a budget and never both
    /// (<https://ai.google.dev/gemini-api/docs/thinking>); the budgets are those that Google itself puts in the place of
    /// the words (<https://ai.google.dev/gemini-api/docs/openai>). Thoughts may be asked for only where there are any.
    fn thinking(self, name: &str, effort: Option<&str>) -> Option<Value> {
        let effort = effort.map(str::to_lowercase);
        let thinking = match (self, effort.as_deref()) {
            (Generation::Plain, None) => return None,
            // Does not think unless told to.
            (Generation::Budget, None) if name.contains("flash-lite") => return None,
            (Generation::Budget | Generation::Level, None) => json!({"includeThoughts": true}),
            (Generation::Level, Some("none" | "off")) => json!({"thinkingLevel": "minimal"}),
            (Generation::Level, Some(level)) => json!({"includeThoughts": true, "thinkingLevel": level}),
            (Generation::Plain | Generation::Budget, Some(effort)) => match budget(effort) {
                Some(0) => json!({"thinkingBudget": 0}),
                Some(budget) => json!({"includeThoughts": true, "thinkingBudget": budget}),
                None => json!({"includeThoughts": true, "thinkingLevel": effort}),
            },
        };
        Some(thinking)
    }
}

/// A budget of thoughts in tokens, by a word or in figures.
fn budget(effort: &str) -> Option<i64> {
    match effort {
        "none" | "off" => Some(0),
        "minimal" | "low" => Some(1_024),
        "medium" => Some(8_192),
        "high" => Some(24_576),
        figures => figures.parse().ok(),
    }
}

/// Writes the body up to the tools.
pub(super) fn write(settings: &ModelSettings) -> String {
    let mut generation = Map::new();
    let mut set =
        |name: &str, value: Option<Value>| generation.extend(value.map(|value| (name.to_owned(), value)));
    set("maxOutputTokens", settings.max_output.map(Value::from));
    set("temperature", settings.temperature.map(Value::from));
    set(
        "thinkingConfig",
        Generation::of(&settings.name).thinking(&settings.name, settings.effort.as_deref()),
    );
    let mut fields = Vec::new();
    for (name, value) in &settings.extra_body {
        match (name.as_str(), value) {
            ("contents" | "tools" | "systemInstruction" | "system_instruction", _) => {}
            ("generationConfig", Value::Object(extra)) => replace(&mut generation, extra),
            ("generationConfig", _) => generation.clear(),
            (_, Value::Null) => {}
            (name, value) => fields.push(format!("{}:{value},", quoted(name))),
        }
    }
    let generation = match generation.is_empty() {
        true => String::new(),
        false => format!("\"generationConfig\":{},", Value::Object(generation)),
    };
    format!("{{{generation}{}", fields.concat())
}

/// Replaces fields one by one; `null` leaves one out.
fn replace(fields: &mut Map<String, Value>, extra: &Map<String, Value>) {
    for (name, value) in extra {
        match value {
            Value::Null => drop(fields.remove(name)),
            value => drop(fields.insert(name.clone(), value.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generation_follows_from_the_name() {
        for (name, generation) in [
            ("gemini-2.0-flash", Generation::Plain),
            ("gemini-1.5-pro-002", Generation::Plain),
            ("gemma-3-27b-it", Generation::Plain),
            ("gemini-2.5-flash-lite", Generation::Budget),
            ("models/gemini-2.5-pro", Generation::Budget),
            ("gemini-3-pro-preview", Generation::Level),
            ("gemini-3.5-flash", Generation::Level),
            ("gemini-10-pro", Generation::Level),
            ("publishers/google/models/gemini-flash-latest", Generation::Level),
        ] {
            assert_eq!(Generation::of(name), generation, "{name}");
        }
    }

    #[test]
    fn effort_becomes_a_level_or_a_budget_and_other_fields_are_taken_over() {
        let head = |name: &str, effort: Option<&str>, extra: Value| {
            let mut settings = ModelSettings::new("gemini", name, "http://127.0.0.1:1/v1beta", 8_000);
            settings.effort = effort.map(str::to_owned);
            settings.extra_body = serde_json::from_value(extra).unwrap();
            write(&settings)
        };
        for (name, effort, thinking) in [
            ("gemini-3-pro-preview", None, r#"{"includeThoughts":true}"#),
            ("gemini-3-pro-preview", Some("High"), r#"{"includeThoughts":true,"thinkingLevel":"high"}"#),
            ("gemini-3.5-flash", Some("none"), r#"{"thinkingLevel":"minimal"}"#),
            ("gemini-2.5-pro", Some("medium"), r#"{"includeThoughts":true,"thinkingBudget":8192}"#),
            ("gemini-2.5-flash", Some("0"), r#"{"thinkingBudget":0}"#),
        ] {
            let wanted = format!("{{\"generationConfig\":{{\"thinkingConfig\":{thinking}}},");
            assert_eq!(head(name, effort, json!({})), wanted);
        }
        for name in ["gemini-2.0-flash", "gemini-2.5-flash-lite", "gemma-3-27b-it"] {
            assert_eq!(head(name, None, json!({})), "{");
        }
        let extra = json!({
            "contents": [],
            "tools": [],
            "generationConfig": {"thinkingConfig": null, "topK": 3},
            "safetySettings": [],
            "toolConfig": null,
        });
        assert_eq!(
            head("gemini-2.5-pro", None, extra),
            "{\"generationConfig\":{\"topK\":3},\"safetySettings\":[],"
        );
    }
}
