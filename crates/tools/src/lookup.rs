//! What glob and grep have in common: where they look, for how long, and how they tell what was left out.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::FileType;

use crate::place::shown_path;
use crate::place::{Place, Purpose};
use crate::search::{Counted, Passed, Stop};
use crate::text::{content_budget, count, head};
use crate::tool::{CallContext, ToolError};

/// The most results of a call.
pub(crate) const RESULTS: u64 = 100;
const TIME: Duration = Duration::from_secs(30);
/// How long a search may take to notice that it shall end: as long as one block takes.
const GRACE: Duration = Duration::from_secs(2);

/// Names that other agents use for the path of a search.
pub(crate) const PATH: [&str; 8] =
    ["directory", "dir", "dir_path", "folder", "file_path", "search_path", "root", "base_path"];

/// Where a search begins: the workspace, if nothing is named.
pub(crate) fn place(context: &CallContext, path: Option<&str>) -> Result<Place, ToolError> {
    let path = path.filter(|path| !path.is_empty()).unwrap_or(".");
    Place::of_existing(context, path, Purpose::Read)
}

/// Whether a directory lies at a place.
pub(crate) fn is_directory(place: &Place) -> bool {
    place.stat().is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}

/// Runs a search on threads of its own until it is done, cancelled, or out of time. They are not the runtime's, so that a
/// search that cannot be ended in time holds up nobody who wants to leave.
pub(crate) async fn run<T: Send + 'static>(
    context: &CallContext,
    search: impl FnOnce(&CallContext, &Stop) -> Result<T, ToolError> + Send + 'static,
) -> Result<T, ToolError> {
    let stop = StopOnDrop(Arc::new(Stop::default()));
    let (done, mut result) = tokio::sync::oneshot::channel();
    let (seen, owned) = (stop.0.clone(), context.clone());
    std::thread::Builder::new()
        .name("search".to_owned())
        .spawn(move || {
            // Nobody listens any more where the call was dropped.
            let _ = done.send(search(&owned, &seen));
        })
        .map_err(|error| ToolError::from(format!("cannot start a search: {error}")))?;
    let finished = tokio::select! {
        biased;
        () = context.cancel.cancelled() => None,
        result = &mut result => Some(result),
        () = tokio::time::sleep(TIME) => None,
    };
    let finished = match finished {
        Some(finished) => Ok(finished),
        None => {
            if context.cancel.is_cancelled() {
                stop.0.cancel()
            } else {
                stop.0.run_out_of_time()
            }
            tokio::time::timeout(GRACE, result).await
        }
    };
    if stop.0.is_cancelled() {
        return Err(ToolError::from("cancelled while searching".to_owned()));
    }
    match finished {
        Ok(Ok(found)) => found,
        Ok(Err(_)) => Err(ToolError::from("the search could not be finished; try a narrower one".to_owned())),
        Err(_) => Err(ToolError::from(format!(
            "the search was given up after {} s without a result; narrow the path or simplify the pattern",
            TIME.as_secs()
        ))),
    }
}

struct StopOnDrop(Arc<Stop>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// What a result should say about what was left out, and why it may be incomplete.
pub(crate) fn left_out(workspace: &Path, passed: &Passed, stop: &Stop) -> Vec<String> {
    let mut notes = Vec::new();
    if stop.is_set() {
        notes.push(format!(
            "stopped after {} s: not everything was searched; narrow the path",
            TIME.as_secs()
        ));
    }
    if passed.unreadable.total > 0 {
        notes.push(format!("{} not read: {}", passed.unreadable.total, named(workspace, &passed.unreadable)));
    }
    if passed.links.total > 0 {
        let links = count(passed.links.total, "link");
        notes.push(format!("{links} not followed: {}", named(workspace, &passed.links)));
    }
    if passed.binary > 0 {
        notes.push(format!("{} not searched to the end", count(passed.binary, "binary file")));
    }
    notes
}

fn named(workspace: &Path, counted: &Counted) -> String {
    let mut names: Vec<String> = counted
        .named
        .iter()
        .map(|(path, reason)| {
            let path = short(&shown_path(path, workspace));
            reason.as_ref().map_or_else(|| path.clone(), |reason| format!("{path} ({reason})"))
        })
        .collect();
    if counted.total > names.len() as u64 {
        names.push("…".to_owned());
    }
    names.join(", ")
}

/// A summary with its notes in brackets, and what was read differently from how it came.
pub(crate) fn summary(first: String, notes: &[String], read_as: [Option<String>; 2]) -> String {
    let notes = (!notes.is_empty()).then(|| format!("({})", notes.join("; ")));
    std::iter::once(first).chain(notes).chain(read_as.into_iter().flatten()).collect::<Vec<_>>().join(" ")
}

/// A text of any length for one line of a summary.
pub(crate) fn short(text: &str) -> String {
    const HALF: usize = 60;
    if text.len() <= 2 * HALF {
        return text.to_owned();
    }
    format!("{}…{}", head(text, HALF), &text[text.ceil_char_boundary(text.len() - HALF)..])
}

/// Collects lines of a result while they fit.
pub(crate) struct Page {
    text: String,
    budget: usize,
}

impl Page {
    /// A page of the size that a call allows, with room for what the summary has to say besides.
    pub(crate) fn new(context: &CallContext, notes: &[String]) -> Self {
        let notes: usize = notes.iter().map(|note| note.len() + 2).sum();
        Page { text: String::new(), budget: content_budget(context.max_result_bytes).saturating_sub(notes) }
    }

    /// Takes a block of lines if it fits as a whole.
    pub(crate) fn push(&mut self, block: &str) -> bool {
        let fits = self.text.len() + block.len() < self.budget;
        if fits {
            if !self.text.is_empty() {
                self.text.push('\n');
            }
            self.text.push_str(block);
        }
        fits
    }

    /// What was collected, if anything was.
    pub(crate) fn into_content(self) -> Option<String> {
        (!self.text.is_empty()).then_some(self.text)
    }
}

/// Where a search looked, as it is told.
pub(crate) fn shown(context: &CallContext, place: &Place) -> String {
    if place.path == context.workspace { "the workspace".to_owned() } else { place.shown.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// G07, G03: a result that is incomplete says so, and names what it can.
    #[test]
    fn what_was_left_out_is_told() {
        let workspace = Path::new("/w");
        let counted = |total, names: &[&str], reason: Option<&str>| Counted {
            total,
            named: names.iter().map(|name| (workspace.join(name), reason.map(str::to_owned))).collect(),
        };
        let passed = Passed {
            links: counted(4, &["a", "b", &"c".repeat(300)], None),
            unreadable: counted(1, &["d"], Some("Permission denied")),
            binary: 2,
        };
        let stop = Stop::default();
        assert_eq!(left_out(workspace, &Passed::default(), &stop), Vec::<String>::new());
        stop.run_out_of_time();
        let c = "c".repeat(60);
        assert_eq!(
            left_out(workspace, &passed, &stop),
            [
                "stopped after 30 s: not everything was searched; narrow the path".to_owned(),
                "1 not read: d (Permission denied)".to_owned(),
                format!("4 links not followed: a, b, {c}…{c}, …"),
                "2 binary files not searched to the end".to_owned(),
            ]
        );
    }
}
