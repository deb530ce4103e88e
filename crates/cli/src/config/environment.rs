//! The layer of the environment: `MAINSTAY_` and a top-level key in upper case.

use super::document::{Origin, Placed, alternatives, nearest};
use super::places::Environment;
use super::{Approve, Durability, Layer, TOOLS};
use crate::error::CliError;

/// The variables that are read, behind `MAINSTAY_`.
pub(super) const KNOWN: [&str; 7] =
    ["MODEL", "APPROVE", "DURABILITY", "MAX_STEPS", "TOOLS", "CA_CERTIFICATES", "HOME"];
/// What somebody may take for a variable, and how it is said.
const ELSEWHERE: [(&str, &str); 5] = [
    ("SANDBOX", "--sandbox MODE, or `mode` in [sandbox]"),
    ("EFFORT", "--effort EFFORT, or `effort` of the model"),
    ("MAX_COST", "--max-cost DOLLARS"),
    ("MAX_TIME", "--max-time TIME"),
    ("REQUIRE_PLAN", "--require-plan=N"),
];

/// Reads the layer. Of other variables that begin with `MAINSTAY_`, those are refused that look like a slip; the rest mean
/// other things and are left alone.
pub(super) fn read(environment: &Environment) -> Result<Layer, CliError> {
    environment.names().filter_map(|name| name.strip_prefix("MAINSTAY_")).try_for_each(no_slip)?;
    Ok(Layer {
        model: variable(environment, "MAINSTAY_MODEL", str::parse)?,
        approve: variable(environment, "MAINSTAY_APPROVE", |text| choice(text, &Approve::WORDS))?,
        durability: variable(environment, "MAINSTAY_DURABILITY", |text| choice(text, &Durability::WORDS))?,
        max_steps: variable(environment, "MAINSTAY_MAX_STEPS", max_steps)?,
        tools: variable(environment, "MAINSTAY_TOOLS", tools)?,
        ca_certificates: variable(environment, "MAINSTAY_CA_CERTIFICATES", |text| Ok(text.into()))?,
        ..Layer::default()
    })
}

/// Refuses a name, behind `MAINSTAY_`, that looks like a slip: what shall hold the agent back must not be ignored.
fn no_slip(name: &str) -> Result<(), CliError> {
    let said = match ELSEWHERE.iter().find(|(other, _)| *other == name) {
        Some((_, said)) => format!("say it so: {said}"),
        None => match nearest(name, &KNOWN).filter(|near| *near != name) {
            Some(near) => format!("did you mean MAINSTAY_{near}?"),
            None => return Ok(()),
        },
    };
    let unknown = CliError::configuration(format!("the variable MAINSTAY_{name} is none that is read"));
    Err(unknown.hint(said).hint(format!("and take it away: unset MAINSTAY_{name}")))
}

fn variable<T>(
    environment: &Environment,
    name: &'static str,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Result<Option<Placed<T>>, CliError> {
    let Some(text) = environment.get(name) else { return Ok(None) };
    let parsed = match text.to_str() {
        Some(text) => parse(text.trim()).map_err(|why| format!("{name} {why}, found {text:?}")),
        None => Err(format!("{name} is not UTF-8")),
    };
    let value = parsed.map_err(|why| {
        CliError::configuration(why).hint(format!("set the variable right, or take it away: unset {name}"))
    })?;
    Ok(Some(Placed { value, origin: Origin::Variable(name) }))
}

fn choice<T: Copy>(text: &str, words: &[(&'static str, T)]) -> Result<T, String> {
    words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value).ok_or_else(|| {
        format!("must be {}", alternatives(&words.iter().map(|(word, _)| *word).collect::<Vec<_>>()))
    })
}

fn max_steps(text: &str) -> Result<u32, String> {
    text.parse().ok().filter(|steps| *steps > 0).ok_or_else(|| "must be a whole number from 1".to_owned())
}

fn tools(text: &str) -> Result<Vec<&'static str>, String> {
    text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(tool).collect()
}

/// The tool of a name. The error says which there are, to follow "`tools` ".
pub(super) fn tool(name: &str) -> Result<&'static str, String> {
    TOOLS
        .into_iter()
        .find(|tool| *tool == name)
        .ok_or_else(|| format!("must name tools out of {}", TOOLS.join(", ")))
}
