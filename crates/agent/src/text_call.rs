//! What is said of a call that a model wrote as text and that was not run.

use mainstay_model::text_calls::{Untaken, WhyNot};

/// Why it was not run, for the model.
pub(crate) fn reason(untaken: &Untaken) -> String {
    match &untaken.why {
        WhyNot::Setting => "text is not taken for calls here".to_owned(),
        WhyNot::NotWhole => "something else stands beside it, or it is not written to its end".to_owned(),
        WhyNot::Misfit(what) => what.clone(),
    }
}

/// What happened and what helps, for the user.
pub(crate) fn message(untaken: &Untaken, model: &str) -> String {
    let Untaken { tool, why } = untaken;
    let (provider, name) = model.split_once('/').unwrap_or((model, model));
    let helps = match why {
        WhyNot::Setting => format!(
            "the server does not pass the model's calls on as calls; text_calls = \"on\" in \
             [providers.{provider}.models.{name:?}] runs those that are a whole answer"
        ),
        WhyNot::NotWhole => {
            "something else stands beside it, or it is not written to its end; check that the server is started with the \
             model's chat template and tool calls"
                .to_owned()
        }
        WhyNot::Misfit(what) => format!("{what}; check that the server is started with tool calls"),
    };
    format!("{model} wrote a call of `{tool}` as text, and it was not run: {helps}")
}
