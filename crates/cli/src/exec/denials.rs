//! What was denied in a turn, and what would allow it, told at its end.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use mainstay_agent::{Denial, Event};

use crate::output::{inert, say, shortened, toml_text};

/// How much of a command is shown.
const SHOWN: usize = 200;

/// The denied calls of a turn.
#[derive(Clone, Default)]
pub(crate) struct Denials(Arc<Mutex<Vec<Denial>>>);

impl Denials {
    /// Keeps the denials among the events that `hearer` hears too.
    pub(crate) fn heard_on(
        &self,
        hearer: Arc<dyn Fn(&Event) + Send + Sync>,
    ) -> Arc<dyn Fn(&Event) + Send + Sync> {
        let kept = self.0.clone();
        Arc::new(move |event| {
            if let Event::Denied(denial) = event {
                kept.lock().unwrap_or_else(PoisonError::into_inner).push(denial.clone());
            }
            hearer(event);
        })
    }

    /// Lists them on stderr, with the rules to paste into the user's configuration.
    pub(crate) fn say(&self, config_home: Option<&Path>) {
        let denials = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !denials.is_empty() {
            say_all(&denials, config_home);
        }
    }
}

fn say_all(denials: &[Denial], config_home: Option<&Path>) {
    let mut lines: Vec<String> = Vec::new();
    let mut rules: Vec<&(String, String)> = Vec::new();
    for denial in denials {
        let line = format!(
            "  {}: {}\n    {}",
            inert(&denial.tool),
            shortened(&inert(&denial.about), SHOWN),
            shortened(&inert(&denial.why), 2 * SHOWN)
        );
        if !lines.contains(&line) {
            lines.push(line);
        }
        rules.extend(&denial.rules);
    }
    say("denied:");
    lines.iter().for_each(|line| say(line));
    if denials.iter().any(|denial| denial.passes_with_all) {
        say("`--approve all` lets everything pass but what a rule denies");
    }
    let mut told = BTreeSet::new();
    rules.retain(|rule| told.insert(*rule));
    if rules.is_empty() {
        return;
    }
    let file = config_home
        .map_or("your config.toml".to_owned(), |home| home.join("config.toml").display().to_string());
    say(&format!("to allow exactly this from now on, add to {file}:"));
    for (tool, pattern) in rules {
        say(&format!(
            "  [[rules]]\n  tool = {}\n  pattern = {}\n  action = \"allow\"",
            toml_text(tool),
            toml_text(pattern)
        ));
    }
}
