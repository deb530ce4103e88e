//! `mainstay models`: which models can be had, from where, and what is known of them.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use mainstay_agent::Prices;
use mainstay_tui::ModelOffer;
use serde::Serialize;

use crate::args::ModelsArguments;
use crate::config::builtin::BUILT_IN;
use crate::config::places::Surroundings;
use crate::config::{Config, Overrides, prices};
use crate::error::CliError;
use crate::output::{inert, out, say};
use crate::settings::servers::{self, LocalServer};
use crate::settings::{KeyFound, Offered, asked, offered};

/// How long all servers on this machine together may take to answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// A model that can be had, perhaps.
#[derive(Debug, Default)]
struct Row {
    /// It is what a run takes that says no other.
    is_chosen: bool,
    is_configured: bool,
    /// The server that has it.
    server: Option<String>,
    known: Option<Offered>,
    /// The window that the server says it has.
    served_window: Option<u64>,
    /// Why it cannot be asked.
    fault: Option<String>,
}

#[derive(Serialize)]
struct Document<'a> {
    model: &'a str,
    chosen: bool,
    configured: bool,
    served_at: Option<&'a str>,
    context_window: Option<u64>,
    input_price: Option<f64>,
    cached_price: Option<f64>,
    cache_write_price: Option<f64>,
    output_price: Option<f64>,
    api_key_env: Option<&'a str>,
    key_is_set: Option<bool>,
    error: Option<&'a str>,
}

/// Lists models: the configured one, those with a table of their own, those that servers on this machine have, and those
/// with a known price of providers whose key is set.
///
/// # Errors
///
/// If the configuration cannot be read (exit code 78).
pub(crate) fn models(surroundings: &Surroundings, arguments: &ModelsArguments) -> Result<(), CliError> {
    let workspace = surroundings.workspace(arguments.cwd.as_deref())?;
    let config = Config::load(surroundings, &workspace, Overrides::default())?;
    let servers = servers::find(&config, PATIENCE);
    let rows = rows(surroundings, &config, &servers);
    if arguments.json {
        rows.iter().for_each(|(model, row)| out(&document(model, row)));
        return Ok(());
    }
    show(&rows);
    for server in servers.iter().filter(|server| server.models.is_empty()) {
        say(&format!("{} at {} answers and names no models", server.provider, server.address));
    }
    if rows.is_empty() {
        say(
            "No model is configured, and no server on this machine answers. `mainstay exec` says what to do.",
        );
    }
    Ok(())
}

/// The models that [`models`] lists where no server is asked, for whoever chooses one in the interface.
pub(crate) fn configured(
    surroundings: &Surroundings,
    workspace: &Path,
    overrides: Overrides,
) -> Result<Vec<ModelOffer>, CliError> {
    let config = Config::load(surroundings, workspace, overrides)?;
    let offer = |(name, row): (String, Row)| {
        let window = row.known.as_ref().map(|known| format!("window {}", known.context_window));
        let about: Vec<String> = window.into_iter().chain(remarks(&row)).collect();
        ModelOffer { name, about: about.join("; ") }
    };
    Ok(rows(surroundings, &config, &[]).into_iter().map(offer).collect())
}

fn rows(surroundings: &Surroundings, config: &Config, servers: &[LocalServer]) -> BTreeMap<String, Row> {
    let mut rows: BTreeMap<String, Row> = BTreeMap::new();
    if let Some(chosen) = &config.values.model {
        let row = rows.entry(chosen.value.to_string()).or_default();
        (row.is_chosen, row.is_configured) = (true, true);
    }
    for (provider, own) in &config.values.providers {
        for model in own.models.keys() {
            rows.entry(format!("{provider}/{model}")).or_default().is_configured = true;
        }
    }
    for server in servers {
        for model in &server.models {
            let row = rows.entry(format!("{}/{model}", server.provider)).or_default();
            row.server = Some(server.address.clone());
            row.served_window = server.windows.get(model).copied();
        }
    }
    for known in &BUILT_IN {
        for model in prices::models(known.name) {
            let name = format!("{}/{model}", known.name);
            let is_usable = resolve(&name, config, surroundings).is_ok_and(|offered| {
                offered.is_some_and(|o| o.key.is_some_and(|key| key.is_set) && o.prices.is_some())
            });
            if is_usable {
                rows.entry(name).or_default();
            }
        }
    }
    for (model, row) in &mut rows {
        match resolve(model, config, surroundings) {
            Ok(known) => row.known = known,
            Err(error) => row.fault = Some(error.message),
        }
    }
    rows
}

fn resolve(model: &str, config: &Config, surroundings: &Surroundings) -> Result<Option<Offered>, CliError> {
    offered(&asked(model)?, config, &surroundings.environment)
}

fn show(rows: &BTreeMap<String, Row>) {
    if rows.is_empty() {
        return;
    }
    let width = rows.keys().map(|model| model.chars().count()).max().unwrap_or_default().clamp(5, 60);
    out(&format!("{:width$}  {:>9}  {:>7}  {:>7}  {:>7}", "MODEL", "WINDOW", "INPUT", "CACHED", "OUTPUT"));
    for (model, row) in rows {
        let window =
            row.known.as_ref().map_or_else(|| "-".to_owned(), |known| known.context_window.to_string());
        let prices = row.known.as_ref().and_then(|known| known.prices);
        let price =
            |of: fn(Prices) -> Option<f64>| prices.and_then(of).map_or_else(|| "-".to_owned(), amount);
        out(&format!(
            "{:width$}  {window:>9}  {:>7}  {:>7}  {:>7}  {}",
            inert(model),
            price(|prices| Some(prices.input)),
            price(|prices| prices.cached),
            price(|prices| Some(prices.output)),
            remarks(row).join("; ")
        ));
    }
}

/// A price with as many digits as it has, and two at least.
fn amount(price: f64) -> String {
    let text = price.to_string();
    match text.split_once('.') {
        Some((_, parts)) if parts.len() >= 2 => text,
        Some(_) => format!("{text}0"),
        None => format!("{text}.00"),
    }
}

fn remarks(row: &Row) -> Vec<String> {
    let mut remarks = Vec::new();
    match (row.is_chosen, row.is_configured) {
        (true, _) => remarks.push("chosen".to_owned()),
        (false, true) => remarks.push("configured".to_owned()),
        (false, false) => {}
    }
    remarks.extend(row.server.as_ref().map(|address| format!("served at {address}")));
    let assumed = row.known.as_ref().map(|known| known.context_window);
    if let Some(window) = row.served_window.filter(|window| assumed.is_some_and(|assumed| assumed != *window))
    {
        remarks.push(format!("served with a window of {window}: say `context_window = {window}`"));
    }
    if let Some(KeyFound { variable, is_set }) = row.known.as_ref().and_then(|known| known.key.as_ref()) {
        remarks.push(format!("{variable} is {}", if *is_set { "set" } else { "not set" }));
    }
    remarks.extend(row.fault.as_deref().map(inert));
    remarks
}

fn document(model: &str, row: &Row) -> String {
    let prices = row.known.as_ref().and_then(|known| known.prices);
    let key = row.known.as_ref().and_then(|known| known.key.as_ref());
    let document = Document {
        model,
        chosen: row.is_chosen,
        configured: row.is_configured,
        served_at: row.server.as_deref(),
        context_window: row.known.as_ref().map(|known| known.context_window),
        input_price: prices.map(|prices| prices.input),
        cached_price: prices.and_then(|prices| prices.cached),
        cache_write_price: prices.and_then(|prices| prices.cache_write),
        output_price: prices.map(|prices| prices.output),
        api_key_env: key.map(|key| key.variable.as_str()),
        key_is_set: key.map(|key| key.is_set),
        error: row.fault.as_deref(),
    };
    serde_json::to_string(&document).unwrap_or_default()
}
