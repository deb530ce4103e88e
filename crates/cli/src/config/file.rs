//! The layer of a file: which keys there are, and what each may be.

use std::collections::BTreeMap;
use std::path::PathBuf;

use mainstay_agent::model::TextCalls;

use super::base_url::BaseUrl;
use super::defaults;
use super::document::{Document, Placed, Table, Value};
use super::environment::tool;
use super::{Api, Approve, Durability, Layer, ModelLayer, PriceLayer, ProviderLayer, SandboxChoice, Secret};
use crate::error::CliError;

/// Reads the user's own file.
pub(super) fn read(document: &Document) -> Result<Layer, CliError> {
    document.read(|table| {
        let mut layer = read_common(table)?;
        (layer.sandbox, layer.writable) = table.section("sandbox", read_sandbox)?;
        layer.ca_certificates = table.place("ca_certificates", path)?;
        layer.providers = table.section("providers", |table| named(table, read_provider))?;
        Ok(layer)
    })
}

/// Reads the keys that any file may have; what each may say in a project's is [`super::project`]'s matter.
pub(super) fn read_common(table: &mut Table<'_>) -> Result<Layer, CliError> {
    let mut layer = Layer {
        model: table
            .place("model", |value| value.text()?.parse().map_err(|why: String| wrong(value, &why)))?,
        approve: table.place("approve", |value| value.choice(&Approve::WORDS))?,
        durability: table.place("durability", |value| value.choice(&Durability::WORDS))?,
        max_steps: table.place("max_steps", |value| count(value, 1))?,
        tools: table.place("tools", |value| {
            value.list(|item| tool(item.any_text()?).map_err(|why| wrong(item, &why)))
        })?,
        ..Layer::default()
    };
    layer.rules = super::rules::read(table)?;
    layer.protected = super::rules::read_protected(table)?;
    table.section("plan", |plan| {
        layer.plan_tool = plan.place("tool", |value| value.choice(&[("on", true), ("off", false)]))?;
        layer.reminder_after = plan.place("reminder_after", |value| count(value, 0))?;
        layer.reminder_repeat = plan.place("reminder_repeat", |value| count(value, 0))?;
        Ok(())
    })?;
    Ok(layer)
}

fn wrong(value: &Value<'_>, why: &str) -> CliError {
    match value.any_text() {
        Ok(found) => value.complain(&format!("{why}, found {found:?}")),
        Err(error) => error,
    }
}

fn count(value: &Value<'_>, least: u64) -> Result<u32, CliError> {
    value.whole(least..=u64::from(u32::MAX)).map(|number| u32::try_from(number).unwrap_or(u32::MAX))
}

/// `[sandbox]`: its mode, and what may be written beside the workspace.
fn read_sandbox(table: &mut Table<'_>) -> Result<SandboxLayer, CliError> {
    let mode = table.place("mode", |value| value.choice(&SandboxChoice::WORDS))?;
    Ok((mode, table.place("writable", |value| value.list(writable))?))
}

type SandboxLayer = (Option<Placed<SandboxChoice>>, Option<Placed<Vec<PathBuf>>>);

/// A directory that means the same wherever the program is started.
fn writable(value: &Value<'_>) -> Result<PathBuf, CliError> {
    let path = path(value)?;
    if path.is_absolute() || path.starts_with("~") {
        return Ok(path);
    }
    Err(wrong(value, "must hold absolute paths, or such as begin with ~/"))
}

/// A table whose keys are names: each a table, read with `read`.
fn named<T>(
    table: &mut Table<'_>,
    read: impl Fn(&mut Table<'_>) -> Result<T, CliError>,
) -> Result<BTreeMap<String, T>, CliError> {
    table.take_all().iter().map(|value| Ok((value.key().to_owned(), value.table(&read)?))).collect()
}

fn read_provider(table: &mut Table<'_>) -> Result<ProviderLayer, CliError> {
    Ok(ProviderLayer {
        api: table.get("api", |value| value.choice(&Api::WORDS))?,
        base_url: table
            .get("base_url", |value| BaseUrl::parse(value.text()?).map_err(|why| wrong(value, &why)))?,
        api_key_env: table.get("api_key_env", variable_name)?,
        headers: table.section("headers", |headers| headers.take_all().iter().map(header).collect())?,
        first_token_timeout: table.get("first_token_timeout", seconds)?,
        idle_timeout: table.get("idle_timeout", seconds)?,
        ca_certificates: table.place("ca_certificates", path)?,
        models: table.section("models", |models| named(models, read_model))?,
    })
}

fn read_model(table: &mut Table<'_>) -> Result<ModelLayer, CliError> {
    let tokens = 1..=1_000_000_000;
    Ok(ModelLayer {
        context_window: table.get("context_window", |value| window(value, tokens.clone()))?,
        max_output: table.get("max_output", |value| value.whole(tokens.clone()))?,
        effort: table.get("effort", |value| Ok(value.text()?.to_owned()))?,
        temperature: table.get("temperature", |value| value.number(0.0..=2.0))?,
        images: table.get("images", Value::boolean)?,
        alternate_roles: table.get("alternate_roles", Value::boolean)?,
        text_calls: table.get("text_calls", |value| value.choice(&TEXT_CALLS))?,
        extra_body: table.section("extra_body", |body| {
            body.take_all().iter().map(|value| Ok((value.key().to_owned(), value.json()?))).collect()
        })?,
        prices: PriceLayer {
            input: table.get("input_price", price)?,
            cached: table.get("cached_price", price)?,
            cache_write: table.get("cache_write_price", price)?,
            output: table.get("output_price", price)?,
        },
    })
}

const TEXT_CALLS: [(&str, TextCalls); 3] =
    [("auto", TextCalls::Auto), ("on", TextCalls::On), ("off", TextCalls::Off)];

/// A context window, also of a model that is not asked: what is too small would fail only once it is.
fn window(value: &Value<'_>, tokens: std::ops::RangeInclusive<u64>) -> Result<u64, CliError> {
    let window = value.whole(tokens)?;
    if window >= defaults::MIN_WINDOW {
        return Ok(window);
    }
    Err(value
        .complain(&format!(
            "is too small: a session needs {} tokens or more, found {window}",
            defaults::MIN_WINDOW
        ))
        .hint(
            "serve the model with a larger one, such as: llama-server -c 32768, OLLAMA_CONTEXT_LENGTH=32768",
        )
        .hint("and say so here: context_window = 32768"))
}

/// US dollars for a million tokens.
fn price(value: &Value<'_>) -> Result<f64, CliError> {
    value.number(0.0..=1e6)
}

fn path(value: &Value<'_>) -> Result<PathBuf, CliError> {
    value.text().map(PathBuf::from)
}

fn seconds(value: &Value<'_>) -> Result<u64, CliError> {
    value.whole(0..=86_400)
}

/// The name of a variable. The value is not repeated: some paste the key itself here.
fn variable_name(value: &Value<'_>) -> Result<String, CliError> {
    let name = value.any_text()?;
    let fits = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !name.starts_with(|c: char| c.is_ascii_digit());
    if !fits {
        return Err(value
            .complain("must be the name of an environment variable: letters, digits and _")
            .hint("the key itself does not belong in a file; put it into a variable and name that here"));
    }
    Ok(name.to_owned())
}

fn header(value: &Value<'_>) -> Result<(String, Secret), CliError> {
    let name_fits = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    if value.key().is_empty() || !value.key().chars().all(name_fits) {
        return Err(value.refuse(&format!("{:?} cannot be the name of a header", value.key())));
    }
    let text = value.any_text()?;
    if !text.chars().all(|c| c.is_ascii_graphic() || c == ' ' || c == '\t') {
        return Err(value.complain("must hold printable ASCII only"));
    }
    Ok((value.key().to_ascii_lowercase(), Secret::new(text)))
}
