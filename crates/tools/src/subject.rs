//! What a call is about, told before it runs, for whoever decides whether it may.
//!
//! It is read from the arguments by the same rules as the call itself reads them, so that what is judged is what is
//! done. Nothing is changed and nothing is run; files are looked at to say what an edit would make of them.

use std::path::{Path, PathBuf};

use crate::arguments::{Arguments, PATH};
use crate::lookup;
use crate::paths::plain;
use crate::place::{Place, Purpose, resolve};
use crate::tool::{CallContext, ToolKind};
use crate::{edit, write};

/// What a call is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A command for a shell.
    Command(String),
    /// A file, or the directory where a search begins.
    Path {
        /// Where the path leads, links resolved; perhaps out of what the tool may use.
        path: PathBuf,
        /// What else it may be taken for: the path by its text alone, and a name that looks the same, where only that one
        /// exists.
        others: Vec<PathBuf>,
    },
    /// Nothing more is known than the tool.
    Unknown,
}

/// What a call of a tool of some kind is about. A call that cannot succeed, since its arguments do not fit, is about
/// nothing.
pub fn subject(kind: ToolKind, arguments: &str, context: &CallContext) -> Subject {
    let Ok(mut arguments) = Arguments::parse(arguments) else { return Subject::Unknown };
    match kind {
        ToolKind::Command => match arguments.text("command", &["cmd", "script"]) {
            command if command.is_empty() => Subject::Unknown,
            command => Subject::Command(command),
        },
        ToolKind::Read | ToolKind::Edit => {
            let names: Vec<&str> = PATH.iter().chain(&lookup::PATH).copied().collect();
            let asked = arguments.optional_text("path", &names).filter(|path| !path.is_empty());
            let purpose = if kind == ToolKind::Edit { Purpose::Change } else { Purpose::Read };
            place(context, asked.as_deref().unwrap_or("."), purpose).unwrap_or(Subject::Unknown)
        }
        ToolKind::Plan | ToolKind::Other => Subject::Unknown,
    }
}

fn place(context: &CallContext, asked: &str, purpose: Purpose) -> Option<Subject> {
    let Ok(Place { path, .. }) = Place::of(context, asked, purpose) else {
        // It leads out of what the tool may use, or the tool will say what is wrong with it.
        let path = where_written(&context.workspace, asked)?;
        return Some(Subject::Path { path, others: Vec::new() });
    };
    let alike = Place::of_existing(context, asked, purpose).ok().map(|place| place.path);
    let mut others = vec![plain(&context.workspace.join(asked))];
    others.extend(alike);
    others.retain(|other| *other != path);
    Some(Subject::Path { path, others })
}

/// Where something leads that is written to `text` from the workspace, links resolved; none if that cannot be told.
pub fn where_written(workspace: &Path, text: &str) -> Option<PathBuf> {
    if text.is_empty() { None } else { resolve(workspace, Some(text)).ok() }
}

/// What a call of `write` or `edit` would change, as a diff without a header; none for other tools, and for a call that
/// would fail or change nothing.
pub fn preview(tool: &str, arguments: &str, context: &CallContext) -> Option<String> {
    match tool {
        "write" => write::preview(arguments, context),
        "edit" => edit::preview(arguments, context),
        _ => None,
    }
}
