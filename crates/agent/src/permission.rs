//! Which calls may run without anyone being asked, and how somebody is asked about the others.
//!
//! A call is judged by what it does, not by what it says: commands after they were taken apart (`shell.rs`), files by
//! where their paths lead. What cannot be told is asked about. Where nobody can be asked it is denied, with a reason
//! that the model reads and the rules that would allow it, for the user.
//!
//! This is no wall. A program that is allowed to run can do anything its user can; what holds it is the sandbox.

mod words;
mod shell;
mod launch;
mod rules;
mod judge;

use std::path::Path;

use futures_util::future::BoxFuture;
use mainstay_session::entry::Grant;
use mainstay_session::message::ToolCall;
use mainstay_tools::ToolKind;
use mainstay_tools::subject::Subject;

pub use rules::{Action, Rule, RuleError, RuleText, Rules, check_path_pattern};

pub(crate) use judge::{Judge, Judgement, Question};

/// How much is approved in advance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Approve {
    /// Edits and commands ask.
    Ask,
    /// Commands ask.
    Edits,
    /// Edits pass, commands pass inside an enforced sandbox, else they ask.
    #[default]
    Auto,
    /// Everything passes but what a rule denies.
    All,
}

impl Approve {
    /// The name used in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Approve::Ask => "ask",
            Approve::Edits => "edits",
            Approve::Auto => "auto",
            Approve::All => "all",
        }
    }
}

impl Rules {
    /// What is said of a command line that `bash` is called with in `workspace`, with nothing granted.
    pub fn of_command(
        &self,
        command: &str,
        mode: Approve,
        sandbox_is_enforced: bool,
        workspace: &Path,
    ) -> Action {
        let judge = Judge { approve: mode, sandbox_is_enforced, rules: self, grants: &[], workspace };
        match judge.judge("bash", ToolKind::Command, &Subject::Command(command.to_owned())) {
            Judgement::Allow => Action::Allow,
            Judgement::Ask(_) => Action::Ask,
            Judgement::Deny { .. } => Action::Deny,
        }
    }
}

/// Asks the user about calls. A terminal and an editor each have one; a headless run has none.
pub trait Approver: Send + Sync {
    /// Asks about one call and waits for the answer. One question is open at a time. The future may be dropped, which
    /// withdraws the question: the turn was cancelled.
    fn ask<'a>(&'a self, request: &'a ApprovalRequest) -> BoxFuture<'a, Approval>;

    /// Keeps a permission for this project beyond the session: in the user's own files, never in the repository. On
    /// failure it says why, and the permission holds for the session.
    ///
    /// # Errors
    ///
    /// It cannot be kept, as by those who keep nothing.
    fn keep(&self, grant: &Grant) -> Result<(), String> {
        let _ = grant;
        Err("this program keeps no permissions".to_owned())
    }
}

/// What the user is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovalRequest {
    /// The call, as the model made it.
    pub call: ToolCall,
    /// The tool's own name.
    pub tool: String,
    /// What it is about: the command line, or the path.
    pub about: String,
    /// Why it is asked.
    pub why: String,
    /// What an edit would change.
    pub diff: Option<String>,
    /// The patterns that a permission beyond this call would have. Where there are none it can be given for this call
    /// only.
    pub patterns: Vec<String>,
}

/// What the user answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Approval {
    /// This call may run.
    Once,
    /// This call may run, and the like in this session.
    Session,
    /// This call may run, and the like in this project.
    Project,
    /// It may not run.
    No {
        /// What the model is told with it; perhaps nothing.
        word: String,
    },
}

/// A call that was denied because nobody could be asked, or by a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// The tool's own name.
    pub tool: String,
    /// What the call was about: the command line, or the path.
    pub about: String,
    /// Why it was denied.
    pub why: String,
    /// Rules, by tool and pattern, that together would allow exactly this call. None if no rule can.
    pub rules: Vec<(String, String)>,
    /// Whether `--approve all` would let it pass.
    pub passes_with_all: bool,
}
