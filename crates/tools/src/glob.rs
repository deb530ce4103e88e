//! The `glob` tool: files by name, in the order of their paths.
//!
//! The order is that of the paths, not of their times: the same at every call, and the files of a directory together.
//! Finding is a discovery, so nothing is declared as touched.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use mainstay_session::message::ToolSpec;

use crate::arguments::Arguments;
use crate::lookup::{self, Page, RESULTS, short};
use crate::place::Place;
use crate::place::shown_path;
use crate::search::globs::Globs;
use crate::search::{Files, Stop, files};
use crate::text::count;
use crate::tool::{CallContext, Tool, ToolError, ToolKind, ToolOutput};

const SHAPE: &str = r#"{"pattern": "src/**/*.rs", "path": "directory, the workspace if absent"}"#;

/// Finds files by name.
#[derive(Debug, Default)]
pub struct Glob;

impl Tool for Glob {
    fn spec(&self) -> ToolSpec {
        crate::spec("glob", include_str!("prompts/glob.md"), include_str!("prompts/glob.json"))
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Read
    }

    fn run<'a>(
        &'a self,
        arguments: &'a str,
        context: &'a CallContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let mut arguments = Arguments::parse(arguments)?;
            let pattern = arguments.text("pattern", &["glob", "glob_pattern", "file_pattern", "query"]);
            let path = arguments.optional_text("path", &lookup::PATH);
            let note = arguments.finish(SHAPE)?;
            lookup::run(context, move |context, stop| find(context, &pattern, path.as_deref(), note, stop))
                .await
        })
    }
}

fn find(
    context: &CallContext,
    pattern: &str,
    path: Option<&str>,
    note: Option<String>,
    stop: &Stop,
) -> Result<ToolOutput, ToolError> {
    let place = lookup::place(context, path)?;
    if !lookup::is_directory(&place) {
        let shown = &place.shown;
        return Err(ToolError::from(format!(
            "{shown} is a file; name the directory to look in, or read the file"
        )));
    }
    let globs = Arc::new(Globs::new(&place.path, &[pattern])?);
    let found = files(&place.path, &globs, RESULTS, stop);
    let mut notes = lookup::left_out(&context.workspace, &found.passed, stop);
    let mut page = Page::new(context, &notes);
    let shown =
        found.first.iter().take_while(|path| page.push(&shown_path(path, &context.workspace))).count();
    let first = if found.total == 0 {
        notes.extend(why_none(&place, pattern, &globs));
        format!("No file matches {} in {}", short(pattern), lookup::shown(context, &place))
    } else {
        told(&found, shown as u64)
    };
    Ok(ToolOutput {
        summary: lookup::summary(first, &notes, [place.note, note]),
        content: page.into_content(),
        ..ToolOutput::default()
    })
}

fn told(found: &Files, shown: u64) -> String {
    let verb = if found.total == 1 { "matches" } else { "match" };
    let all = format!("{} {verb}", count(found.total, "file"));
    if shown == found.total {
        all
    } else {
        format!("{all}; the first {shown} by path are shown: narrow the pattern or the path")
    }
}

/// What may be the reason that nothing was found.
fn why_none(place: &Place, pattern: &str, globs: &Globs) -> Option<String> {
    let named = place.path.join(pattern.trim_start_matches('/'));
    match named.symlink_metadata() {
        Ok(is) if is.is_dir() => {
            let directory = short(pattern.trim_end_matches('/'));
            Some(format!(
                "{directory} is a directory; its files match {directory}/**, unless they are ignored"
            ))
        }
        Ok(is) if is.is_file() => {
            Some(format!("{} exists but is ignored, by .gitignore or the like", short(pattern)))
        }
        Ok(_) | Err(_) if globs.hidden() => Some(IGNORED.to_owned()),
        Ok(_) | Err(_) => Some(format!("{IGNORED}, nor are hidden ones unless the pattern names them")),
    }
}

const IGNORED: &str = "ignored files are not listed unless `path` is the ignored directory";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_total_is_told_with_what_is_shown_of_it() {
        let found = |total| Files { total, ..Files::default() };
        assert_eq!(told(&found(1), 1), "1 file matches");
        assert_eq!(told(&found(7), 7), "7 files match");
        assert_eq!(
            told(&found(700), 100),
            "700 files match; the first 100 by path are shown: narrow the pattern or the path"
        );
    }
}
