//! What holds where nobody says anything.

use std::time::Duration;

use super::{Approve, Durability, SandboxChoice};

/// `approve`.
pub(crate) const APPROVE: Approve = Approve::Auto;
/// `sandbox.mode`.
pub(crate) const SANDBOX: SandboxChoice = SandboxChoice::WorkspaceWrite;
/// `durability`.
pub(crate) const DURABILITY: Durability = Durability::Always;
/// `max_steps`.
pub(crate) const MAX_STEPS: u32 = 500;
/// `plan.reminder_after`, in steps.
pub(crate) const REMINDER_AFTER: u32 = 3;
/// `--require-plan` without a number.
pub(crate) const REQUIRE_PLAN: u32 = 3;
/// `first_token_timeout`, but for a server on this machine, which may take any time to load a model.
pub(crate) const FIRST_TOKEN_TIMEOUT: Duration = Duration::from_secs(600);
/// `idle_timeout`.
pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_secs(120);
/// The smallest context window to work with, in tokens.
pub(crate) const MIN_WINDOW: u64 = 8_000;
