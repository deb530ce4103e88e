//! `mainstay compact`: the conversation is summarised now, or the last summary is taken back.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use mainstay_agent::{Agent, CompactError, Event, Setup};

use crate::args::CompactArguments;
use crate::choose;
use crate::config::Overrides;
use crate::config::places::Surroundings;
use crate::error::{CliError, USAGE};
use crate::exec::{failure_code, resume, text};
use crate::output::say;
use crate::settings::{Settings, Unsaid};
use crate::setup::setup;
use crate::signals::{INTERRUPTED, block_on, cancellable};

/// Summarises a session's conversation, or takes the last summary back.
///
/// # Errors
///
/// If the session cannot be opened, the model cannot be asked, or no way to go on fits the window.
pub(crate) fn compact(
    surroundings: &Surroundings,
    arguments: &CompactArguments,
) -> Result<ExitCode, CliError> {
    let current = surroundings.current_dir.clone();
    let session = choose::session(&surroundings.data_home()?, &current, Some(&arguments.session))?;
    let overrides = Overrides { model: arguments.model.clone(), ..Overrides::default() };
    // To take a summary back no model is asked, so where none is configured that of the session will do.
    let unsaid = if arguments.undo { Unsaid::Logged(choose::logged_model(&session)) } else { Unsaid::Fails };
    let settings = choose::settings_of(Some(&session), arguments.cwd.as_deref(), |directory| {
        Settings::resolve(surroundings, directory, overrides, unsaid)
    })?;
    let setup = Setup { on_event: Arc::new(show), ..setup(&settings, None)? };
    block_on(async {
        let mut agent = resume(&session, setup)?;
        let signal = Arc::new(AtomicU8::new(INTERRUPTED));
        match run(&mut agent, arguments, signal.clone()).await {
            Ok(()) => Ok(ExitCode::SUCCESS),
            Err(CompactError::Cancelled) => {
                say("cancelled; the conversation is as it was");
                Ok(ExitCode::from(signal.load(Ordering::Relaxed)))
            }
            Err(error) => {
                let hint = match &error {
                    CompactError::NoCompaction => Some(
                        "only the last compaction can be taken back; `mainstay rewind` goes back further",
                    ),
                    CompactError::Failed(_) if arguments.undo => Some(
                        "`mainstay rewind` goes back to an earlier turn; a model with a larger window fits more",
                    ),
                    _ => None,
                };
                let code = match &error {
                    CompactError::Failed(failure) => failure_code(failure),
                    CompactError::NoCompaction => USAGE,
                    _ => 1,
                };
                let error = CliError::new(code, format!("session {}: {error}", session.id.short()));
                Err(hint.into_iter().fold(error, CliError::hint))
            }
        }
    })
}

/// The outcome is what was asked for, so it is said wherever stderr goes.
fn show(event: &Event) {
    match event {
        Event::Compacted(done) => say(&text::compacted_line(done)),
        other => text::show(other),
    }
}

async fn run(
    agent: &mut Agent,
    arguments: &CompactArguments,
    signal: Arc<AtomicU8>,
) -> Result<(), CompactError> {
    if arguments.undo {
        return agent.undo_compaction().map(|_| ());
    }
    let instructions = arguments.instructions.as_deref();
    cancellable(signal, async |cancel| agent.compact(instructions, cancel).await.map(|_| ())).await
}
