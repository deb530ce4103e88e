//! What models are known to cost: `prices.toml`, which is made for reading.

use std::collections::BTreeMap;

use mainstay_agent::Prices;
use serde::Deserialize;

const TABLE: &str = include_str!("prices.toml");

/// A row of the table.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    input: f64,
    cached: Option<f64>,
    cache_write: Option<f64>,
    output: f64,
}

/// What a provider's model is known to cost, at the provider's own address.
pub(crate) fn known(provider: &str, model: &str) -> Option<Prices> {
    let table: BTreeMap<String, BTreeMap<String, Row>> = toml::from_str(TABLE).ok()?;
    let rows = table.get(provider)?;
    let Row { input, cached, cache_write, output } =
        *rows.get(model).or_else(|| rows.get(undated(model)?))?;
    Some(Prices { cached, cache_write, ..Prices::new(input, output) })
}

/// The models of a provider whose prices are known.
pub(crate) fn models(provider: &str) -> Vec<String> {
    let table: BTreeMap<String, BTreeMap<String, Row>> = toml::from_str(TABLE).unwrap_or_default();
    table.get(provider).map(|rows| rows.keys().cloned().collect()).unwrap_or_default()
}

/// A model's name without the date behind it.
fn undated(model: &str) -> Option<&str> {
    // A name may end in digits, so only what looks like a date is taken off: 20250929 or 2025-09-29.
    [8, 10].into_iter().find_map(|length| {
        let (name, date) = model.split_at_checked(model.len().checked_sub(length)?)?;
        let is_date = match length {
            8 => date.bytes().all(|byte| byte.is_ascii_digit()),
            _ => date.bytes().enumerate().all(|(at, byte)| match at {
                4 | 7 => byte == b'-',
                _ => byte.is_ascii_digit(),
            }),
        };
        name.strip_suffix('-').filter(|_| is_date)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::builtin::BuiltIn;

    #[test]
    fn the_table_is_whole_and_of_built_in_providers() {
        let table: BTreeMap<String, BTreeMap<String, Row>> = toml::from_str(TABLE).unwrap();
        for (provider, rows) in table {
            assert!(BuiltIn::find(&provider).is_some(), "{provider}");
            for (model, row) in rows {
                let cached = row.cached.unwrap_or(0.0);
                assert!(cached < row.input && row.input < row.output && row.output < 1_000.0, "{model}");
                assert!(row.cache_write.is_none_or(|write| write >= row.input), "{model}");
            }
        }
    }

    #[test]
    fn a_date_behind_a_name_is_passed_over_and_nothing_else() {
        let opus = Prices { cached: Some(0.2), cache_write: Some(5.0), ..Prices::new(4.0, 20.0) };
        let nano = Prices { cached: Some(0.005), ..Prices::new(0.05, 0.4) };
        for (provider, model, prices) in [
            ("anthropic", "claude-opus-5-5", Some(opus)),
            ("anthropic", "claude-opus-5-5-20260901", Some(opus)),
            ("anthropic", "claude-opus-5-55", None),
            ("anthropic", "claude-opus-5-5-fast", None),
            ("openai", "gpt-5-nano-2025-08-07", Some(nano)),
            ("openai", "gpt-5-nano-latest", None),
            ("openai", "claude-opus-5-5", None),
            ("openai", "", None),
            ("openai", "20250807", None),
            ("mine", "gpt-5-nano", None),
        ] {
            assert_eq!(known(provider, model), prices, "{provider}/{model}");
        }
    }
}
