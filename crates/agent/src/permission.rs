//! Which calls may run without anyone being asked.

use mainstay_tools::ToolKind;

use crate::interceptor::Verdict;

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
    /// Everything passes.
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

/// Judges a call where nobody can be asked: what would ask is denied, with a reason that the model reads.
///
/// Reading and the plan never ask. A tool of the embedding program is its own affair.
pub fn judge(approve: Approve, kind: ToolKind) -> Verdict {
    let asks = match (kind, approve) {
        (ToolKind::Read | ToolKind::Plan | ToolKind::Other, _) | (_, Approve::All) => false,
        (ToolKind::Edit, Approve::Edits | Approve::Auto) => false,
        (ToolKind::Edit, Approve::Ask) => true,
        // There is no sandbox yet, so `auto` has nothing to let a command pass in.
        (ToolKind::Command, Approve::Ask | Approve::Edits | Approve::Auto) => true,
    };
    if !asks {
        return Verdict::Allow;
    }
    let what = match kind {
        ToolKind::Command => "run commands",
        ToolKind::Edit => "change files",
        ToolKind::Read | ToolKind::Plan | ToolKind::Other => "do this",
    };
    Verdict::Deny {
        reason: format!(
            "Permission denied: this session may not {what} (`--approve {}`, and nobody is here to be asked). It stays \
             denied until the user starts it with `--approve all`; go on without it, or say what you would have run.",
            approve.as_str()
        ),
    }
}
