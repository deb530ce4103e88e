//! Drives the turns of a session until a stop reason: the loop, permission, notifications.
//!
//! An [`Agent`] owns one session. [`Agent::run`] takes a prompt through as many steps as it needs; the path of a turn
//! is `agent` → `turn` → `step` → `dispatch`, and everything that is said on the way is an entry of the session's log
//! before it has any effect. Nothing here prints, parses arguments or reads configuration files.

pub mod interceptor;
pub mod permission;
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

pub use agent::{Agent, Notifier, ResumeError, Resumed, StartError};
pub use compaction::CompactError;
pub use event::{Event, PlanChange, PlanChangeKind, TurnFailure, TurnReport};
pub use interceptor::{Interceptor, Verdict};
pub use permission::{Approval, ApprovalRequest, Approve, Approver, Denial, Rules};
pub use pictures::SessionPictures;
pub use setup::{Clock, CommandSandbox, Setup, SetupError, Surroundings, SurroundingsNow};

pub use mainstay_model as model;
pub use mainstay_session as session;
pub use mainstay_tools as tools;
