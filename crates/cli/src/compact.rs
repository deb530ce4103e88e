//! `mainstay compact`: the conversation is summarised now, or the last summary is taken back.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use mainstay_agent::{Agent, CompactError, Event, Setup};
use tokio_util::sync::CancellationToken;

use crate::args::CompactArguments;
use crate::choose::{self, short_id};
use crate::config::Overrides;
use crate::config::places::Surroundings;
use crate::error::CliError;
use crate::exec::{failure_code, resume, text};
use crate::output::say;
use crate::settings::Settings;
use crate::setup::setup;
use crate::signals::{INTERRUPTED, Signals};

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
    let home = session.cwd.clone();
    let directory = arguments.cwd.as_deref().or(home.as_ref().map(|path| path.as_path()));
    let overrides = Overrides { model: arguments.model.clone(), ..Overrides::default() };
    let settings = Settings::resolve(surroundings, directory, overrides)?;
    let setup = Setup { on_event: Arc::new(show), ..setup(&settings, None)? };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| CliError::new(1, format!("cannot start: {error}")))?;
    runtime.block_on(async {
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
                    CompactError::NoCompaction => Some("only the last compaction can be taken back; `mainstay rewind` goes back further"),
                    CompactError::Failed(_) if arguments.undo => Some("`mainstay rewind` goes back to an earlier turn; a model with a larger window fits more"),
                    _ => None,
                };
                let code = match &error {
                    CompactError::Failed(failure) => failure_code(failure),
                    _ => 1,
                };
                let error = CliError::new(code, format!("session {}: {error}", short_id(&session.id)));
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
    let cancel = CancellationToken::new();
    let listener = Signals::catch().map(|signals| tokio::spawn(signals.listen(cancel.clone(), signal)));
    let done = agent.compact(arguments.instructions.as_deref(), &cancel).await.map(|_| ());
    if let Ok(listener) = listener {
        listener.abort();
    }
    done
}
