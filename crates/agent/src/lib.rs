//! Drives the turns of a session until a stop reason: the loop, permission, notifications.
//!
//! An [`Agent`] owns one session. [`Agent::run`] takes a prompt through as many steps as it needs; the path of a turn
//! is `agent` → `turn` → `step` → `dispatch`, and everything that is said on the way is an entry of the session's log
//! before it has any effect. Nothing here prints, parses arguments or reads configuration files.
//!
//! A program that embeds an agent needs this crate alone: the crates below are [`model`], [`session`] and [`tools`], and
//! what signatures name of other libraries is exported here too. It
//!
//! 1. begins its `main` with [`supervise_if_asked`], if commands are to run: they are not its own children, but run
//!    under a supervisor, which is the same executable, so that none outlives it however it ends;
//! 2. makes a [`Setup`], which is all that an agent works with: model, tools, who is asked, who hears; and says with
//!    [`Setup::hold_commands`] what holds commands, for nothing does unless it is said;
//! 3. begins a session with [`Agent::create`] or goes on with one by [`Agent::resume`], which takes the session's folder:
//!    [`session::log::session_dir`] knows it by its [`SessionId`], [`session::log::list`] finds all;
//! 4. takes prompts through turns with [`Agent::run`], and looks at [`Event`]s meanwhile and at the [`TurnReport`] after.
//!
//! ```
//! use std::sync::Arc;
//! use mainstay_agent::{Agent, CancellationToken, Setup, block_on, model::ScriptModel};
//!
//! # let dir = std::env::temp_dir().join(format!("mainstay-doc-{}", std::process::id()));
//! # std::fs::create_dir_all(&dir)?;
//! // A model of a provider is made with `ChatModel::new(ModelSettings::new(…))` and the like.
//! let model = ScriptModel::from_json("script:hello", r#"[{"text": "Hello."}]"#)?;
//! let mut agent = Agent::create(Setup::new(dir.join("data"), &dir, Arc::new(model))?)?;
//! let report = block_on(agent.run("Say hello.", &CancellationToken::new()))?;
//! assert_eq!(report.text, "Hello.");
//! assert_eq!(agent.get_history().messages.len(), 3, "what opens the session, the prompt, the answer");
//! # std::fs::remove_dir_all(&dir)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `examples/embed.rs` is a whole program with a tool, an interceptor, an approver and a notifier of its own.

#![deny(missing_docs)]

pub mod interceptor;
pub mod permission;
pub mod prices;
pub mod prompt;
pub mod form;
pub mod event;
pub mod setup;
mod pictures;
mod occupancy;
mod shared;
mod excerpt;
mod caps;
mod surroundings;
mod watch;
mod closing;
mod consent;
mod dispatch;
mod text_call;
mod window;
mod ask;
pub mod compaction;
mod step;
mod turn;
pub mod agent;
pub mod undo;

use std::sync::OnceLock;

pub use agent::{Agent, Notifier, ResumeError, Resumed, StartError};
pub use closing::known_of;
pub use compaction::CompactError;
pub use event::{Event, PlanChange, PlanChangeKind, TurnFailure, TurnReport};
pub use form::AnswerForm;
pub use interceptor::{Interceptor, Verdict};
pub use permission::{Approval, ApprovalRequest, Approve, Approver, Denial, Rules};
pub use pictures::SessionPictures;
pub use prices::Prices;
pub use prompt::Prompt;
pub use setup::{Clock, CommandSandbox, Hold, Setup, SetupError, Surroundings, SurroundingsNow};

/// What methods of [`tools::Tool`] and [`Approver`] return.
pub use futures_util::future::BoxFuture;
/// Cancels a turn.
pub use tokio_util::sync::CancellationToken;

/// Does work to its end, for a program that has no tokio runtime of its own: on one thread, with time and network.
///
/// All calls share one runtime, which stays, so that what an agent began in one call, such as a background job, goes on in
/// the next.
///
/// # Errors
///
/// If the operating system gives no runtime.
pub fn block_on<T>(work: impl Future<Output = T>) -> std::io::Result<T> {
    static RUNTIME: OnceLock<tokio::runtime::Runtime> = OnceLock::new();
    let runtime = match RUNTIME.get() {
        Some(runtime) => runtime,
        None => {
            let made = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            RUNTIME.get_or_init(|| made)
        }
    };
    Ok(runtime.block_on(work))
}

// What tools, approvers and interceptors are made of, and what reports and events hold.
pub use mainstay_model::Model;
pub use mainstay_session::entry::{Grant, StopReason};
pub use mainstay_session::history::{History, HistoryMessage};
pub use mainstay_session::ids::SessionId;
pub use mainstay_session::message::{
    ContentHash, ErrorClass, FilePath, Outcome, ReferencedFile, ToolCall, ToolResult, ToolSpec,
};
pub use mainstay_session::state::SessionState;
pub use mainstay_tools::arguments::Arguments;
pub use mainstay_tools::sandbox::SandboxMode;
pub use mainstay_tools::{
    BuiltinOptions, CallContext, Tool, ToolError, ToolKind, ToolOutput, supervise_if_asked,
};

pub use mainstay_model as model;
pub use mainstay_session as session;
pub use mainstay_tools as tools;

// What signatures name of other libraries.
pub use {jiff, serde_json};
