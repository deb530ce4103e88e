//! What a request says before the tools: the model, the limits and how hard to think.

use serde_json::{Value, json};

use crate::json::opening;
use crate::settings::ModelSettings;

/// The longest answer where the settings name none, for the wire format demands one. Every model since Claude Opus 4 can
/// write as much (<https://platform.claude.com/docs/en/about-claude/models/overview>); older ones want a `max_output`.
const MAX_TOKENS: u64 = 32_000;

/// The least that a budget of thinking may be.
const LEAST_BUDGET: u64 = 1_024;

/// The body up to the tools: what does not depend on the conversation.
pub(super) fn head(settings: &ModelSettings) -> String {
    let max_tokens = settings.max_output.unwrap_or_else(|| MAX_TOKENS.min(settings.context_window / 4));
    let mut fields = vec![("max_tokens".to_owned(), Some(Value::from(max_tokens)))];
    fields.push(("temperature".to_owned(), settings.temperature.map(Value::from)));
    fields.extend(thinking(&settings.name, settings.effort.as_deref(), max_tokens));
    opening(settings, fields, &["messages", "tools", "system"])
}

/// How an effort is said.
///
/// Since Claude 4.6 the model itself decides how long it thinks, and the effort is told in words
/// (<https://platform.claude.com/docs/en/build-with-claude/effort>). Since Claude 5 it thinks unasked and in silence, and
/// what it says between calls stands in its thinking too, so a summary is asked for
/// (<https://platform.claude.com/docs/en/build-with-claude/thinking>). Earlier models, and other servers, take a budget in
/// tokens, which must be smaller than the answer's limit
/// (<https://platform.claude.com/docs/en/build-with-claude/extended-thinking>).
fn thinking(model: &str, effort: Option<&str>, max_tokens: u64) -> Vec<(String, Option<Value>)> {
    let field = |name: &str, value| (name.to_owned(), Some(value));
    let adaptive = || field("thinking", json!({"type": "adaptive", "display": "summarized"}));
    match (generation(model), effort) {
        (Generation::Unasked, None) => vec![adaptive()],
        (Generation::Budget | Generation::Adaptive, None) => Vec::new(),
        (_, Some("none")) => vec![field("thinking", json!({"type": "disabled"}))],
        (Generation::Adaptive | Generation::Unasked, Some(effort)) => {
            vec![adaptive(), field("output_config", json!({"effort": effort}))]
        }
        (Generation::Budget, Some(effort)) => {
            let budget = match effort {
                "minimal" | "low" => 2_048,
                "medium" => 8_192,
                _ => 16_384,
            };
            let budget = budget.min(max_tokens / 2);
            let enabled = || field("thinking", json!({"type": "enabled", "budget_tokens": budget}));
            (budget >= LEAST_BUDGET).then(enabled).into_iter().collect()
        }
    }
}

/// How a model is told to think.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Generation {
    /// With a budget in tokens, if at all.
    Budget,
    /// With an effort in words, if at all.
    Adaptive,
    /// With an effort in words, and it thinks without being told.
    Unasked,
}

/// The name tells: `claude-opus-4-6`, `claude-3-7-sonnet-20250219`.
fn generation(model: &str) -> Generation {
    if !model.contains("claude") {
        return Generation::Budget;
    }
    let mut numbers = model
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|part| part.len() <= 2)
        .filter_map(|part| part.parse::<u32>().ok());
    match numbers.next().map(|major| (major, numbers.next().unwrap_or(0))) {
        Some(version) if version < (4, 6) => Generation::Budget,
        Some((..5, _)) | None => Generation::Adaptive,
        Some(_) => Generation::Unasked,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_models_name_tells_how_it_is_told_to_think() {
        for (model, expected) in [
            ("claude-3-7-sonnet-20250219", Generation::Budget),
            ("claude-sonnet-4-20250514", Generation::Budget),
            ("claude-opus-4-5-20251101", Generation::Budget),
            ("MiniMax-M2.7", Generation::Budget),
            ("claude-opus-4-6", Generation::Adaptive),
            ("claude-opus-4.7", Generation::Adaptive),
            ("my-claude", Generation::Adaptive),
            ("claude-sonnet-5-20260630", Generation::Unasked),
            ("claude-fable-5-1", Generation::Unasked),
        ] {
            assert_eq!(generation(model), expected, "{model}");
        }
    }

    #[test]
    fn what_must_be_said_is_said_and_what_the_user_says_wins() {
        let head_of = |change: &dyn Fn(&mut ModelSettings)| {
            let mut settings =
                ModelSettings::new("anthropic", "claude-opus-4-8", "https://x.invalid/v1", 200_000);
            change(&mut settings);
            let head = head(&settings);
            head[r#"{"model":""#.len()..].split_once(r#""stream":true,"#).unwrap().1.to_owned()
        };
        assert_eq!(head_of(&|_| {}), r#""max_tokens":32000,"#);
        assert_eq!(head_of(&|s| s.context_window = 8_000), r#""max_tokens":2000,"#);
        assert_eq!(
            head_of(&|s| (s.max_output, s.temperature) = (Some(9), Some(0.5))),
            r#""max_tokens":9,"temperature":0.5,"#
        );
        let effort = |name: &'static str, effort: &'static str, max_output| {
            head_of(&move |s| {
                (s.name, s.effort, s.max_output) = (name.to_owned(), Some(effort.to_owned()), max_output);
            })
        };
        assert_eq!(
            effort("claude-opus-5", "xhigh", Some(9)),
            r#""max_tokens":9,"thinking":{"display":"summarized","type":"adaptive"},"output_config":{"effort":"xhigh"},"#
        );
        assert_eq!(
            effort("claude-sonnet-4-5", "low", None),
            r#""max_tokens":32000,"thinking":{"budget_tokens":2048,"type":"enabled"},"#
        );
        assert_eq!(
            effort("claude-sonnet-4-5", "high", Some(4_096)),
            r#""max_tokens":4096,"thinking":{"budget_tokens":2048,"type":"enabled"},"#
        );
        assert_eq!(effort("claude-sonnet-4-5", "high", Some(2_000)), r#""max_tokens":2000,"#);
        let unasked = r#""max_tokens":32000,"thinking":{"display":"summarized","type":"adaptive"},"#;
        assert_eq!(head_of(&|s| s.name = "claude-opus-5".to_owned()), unasked);
        assert_eq!(head_of(&|s| s.name = "MiniMax-M2.7".to_owned()), r#""max_tokens":32000,"#);
        assert_eq!(
            effort("claude-opus-5", "none", None),
            r#""max_tokens":32000,"thinking":{"type":"disabled"},"#
        );
        assert_eq!(
            head_of(&|s| {
                s.effort = Some("low".to_owned());
                s.extra_body =
                    serde_json::from_str(r#"{"thinking":null,"top_k":3,"tools":[],"system":"x"}"#).unwrap();
            }),
            r#""max_tokens":32000,"output_config":{"effort":"low"},"top_k":3,"#
        );
    }
}
