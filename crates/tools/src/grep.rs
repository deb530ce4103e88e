//! The `grep` tool: lines of files that match a regular expression, by path and number.
//!
//! Finding is a discovery, so nothing is declared as touched.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use ignore::types::TypesBuilder;
use mainstay_session::message::ToolSpec;
use serde_json::Value;

use crate::arguments::{Arguments, described};
use crate::files::open_regular;
use crate::lookup::{self, Page, RESULTS, short};
use crate::place::shown_path;
use crate::search::globs::Globs;
use crate::search::pattern::{Pattern, Reading};
use crate::search::{FileHits, Found, Line, LineKind, Stop, Wanted, lines, lines_of_file};
use crate::text::count;
use crate::tool::{CallContext, Tool, ToolError, ToolKind, ToolOutput};

const SHAPE: &str = r#"{"pattern": "regular expression", "path": "file or directory", "glob": "*.rs", "context": lines, "mode": "lines" | "files" | "counts", "limit": results}; to search for text as it is, escape \.+*?()|[]{}^$ with a backslash"#;
/// More lines than these around a hit are a case for read.
const CONTEXT: u64 = 50;

/// Searches the text of files.
#[derive(Debug, Default)]
pub struct Grep;

impl Tool for Grep {
    fn spec(&self) -> ToolSpec {
        crate::spec("grep", include_str!("prompts/grep.md"), include_str!("prompts/grep.json"))
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
            let (call, note) = decode(arguments)?;
            lookup::run(context, move |context, stop| search(context, &call, note, stop)).await
        })
    }
}

/// What a call asks for.
struct Call {
    pattern: String,
    reading: Reading,
    path: Option<String>,
    globs: Vec<String>,
    wanted: Wanted,
    limit: u64,
}

fn decode(arguments: &str) -> Result<(Call, Option<String>), ToolError> {
    let mut arguments = Arguments::parse(arguments)?;
    let reading = reading(&mut arguments);
    let pattern = arguments.text("pattern", &["query", "regex", "regexp", "search", "search_pattern"]);
    let path = arguments.optional_text("path", &lookup::PATH);
    let mut globs = globs(&mut arguments);
    globs.extend(globs_of_type(&mut arguments));
    let context = context(&mut arguments);
    let wanted = wanted(&mut arguments, context);
    let limit = arguments.optional_number("limit", &["head_limit", "max_results", "maxResults"], 1);
    let limit = limit.unwrap_or(RESULTS).min(RESULTS);
    // Lines are always numbered.
    for name in ["-n", "line_numbers", "line_number", "show_line_numbers"] {
        let _ = arguments.take(name, &[]);
    }
    let note = arguments.finish(SHAPE)?;
    Ok((Call { pattern, reading, path, globs, wanted, limit }, note))
}

/// How the pattern shall be read, where other agents have fields for it.
fn reading(arguments: &mut Arguments) -> Reading {
    let any = |arguments: &mut Arguments, names: &[&str], meaning: bool, read_as: &str| {
        // All of them, lest one that says nothing new counts as unknown.
        names.iter().filter(|name| switch(arguments, name, meaning, read_as)).count() > 0
    };
    let ignore_case =
        any(arguments, &["-i", "ignore_case", "ignoreCase", "case_insensitive"], true, "(?i) in `pattern`")
            | any(arguments, &["case_sensitive", "caseSensitive"], false, "(?i) in `pattern`");
    let across_lines = any(arguments, &["multiline", "multi_line", "-U"], true, "(?s) across lines");
    let literal =
        any(arguments, &["literal", "fixed_strings", "fixed_string", "-F"], true, "`pattern` as plain text")
            | any(
                arguments,
                &["is_regex", "isRegex", "is_regexp", "use_regex"],
                false,
                "`pattern` as plain text",
            );
    Reading { literal, ignore_case, across_lines }
}

/// Whether a field is there and has a value that changes how the call is read.
fn switch(arguments: &mut Arguments, name: &str, meaning: bool, read_as: &str) -> bool {
    let Some(value) = arguments.take(name, &[]) else { return false };
    let on = match &value {
        Value::Bool(on) => *on,
        Value::String(text) if text.eq_ignore_ascii_case("true") => true,
        Value::String(text) if text.eq_ignore_ascii_case("false") => false,
        other => {
            arguments.problem(format!("`{name}`: expected true or false, {} came", described(other)));
            return false;
        }
    };
    if on == meaning {
        arguments.read_as(&format!("`{name}` as {read_as}"));
    }
    on == meaning
}

/// The globs, which may come as one text or a list, and in one text with commas.
fn globs(arguments: &mut Arguments) -> Vec<String> {
    let others = ["include", "include_pattern", "includes", "file_pattern", "file_glob", "glob_pattern"];
    let came = match arguments.take("glob", &others) {
        None => return Vec::new(),
        Some(Value::Array(items)) => items,
        Some(value) => vec![value],
    };
    let mut globs = Vec::new();
    for item in came {
        match item {
            Value::String(text) if text.is_empty() => {}
            Value::String(text) => {
                let parts = at_commas(&text);
                if parts.len() > 1 {
                    arguments.read_as(&format!("`glob` as {}", short(&parts.join(" or "))));
                }
                globs.extend(parts);
            }
            other => arguments.problem(format!("`glob`: expected a string, {} came", described(&other))),
        }
    }
    globs
}

/// The parts of a text between commas that are not in braces.
fn at_commas(text: &str) -> Vec<String> {
    let mut depth = 0_i32;
    let parts = text.split(|c| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && depth == 0
    });
    parts.map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

/// The globs of a kind of file that ripgrep knows by name.
fn globs_of_type(arguments: &mut Arguments) -> Vec<String> {
    let Some(name) = arguments.optional_text("type", &["file_type"]).filter(|name| !name.is_empty()) else {
        return Vec::new();
    };
    let known = TypesBuilder::new().add_defaults().definitions();
    match known.iter().find(|known| known.name() == name) {
        Some(known) => {
            arguments.read_as(&format!("`type` as `glob` {}", short(&known.globs().join(" or "))));
            known.globs().to_vec()
        }
        None => {
            arguments.problem(format!("`type`: {name:?} is no kind of file that is known; use `glob`"));
            Vec::new()
        }
    }
}

fn context(arguments: &mut Arguments) -> u64 {
    let both = arguments.optional_number("context", &["-C", "context_lines"], 0);
    let mut lines = both.unwrap_or(0);
    for name in ["-A", "-B", "after_context", "before_context"] {
        if let Some(number) = arguments.optional_number(name, &[], 0) {
            arguments.read_as(&format!("`{name}` as `context`"));
            lines = lines.max(number);
        }
    }
    lines.min(CONTEXT)
}

fn wanted(arguments: &mut Arguments, context: u64) -> Wanted {
    let mode = arguments.optional_text("mode", &["output_mode"]);
    let lines = Wanted::Lines { context: usize::try_from(context).unwrap_or(0) };
    match mode.as_deref() {
        None | Some("" | "lines" | "content") => lines,
        Some("files" | "files_with_matches" | "filenames" | "paths") => Wanted::Files,
        Some("counts" | "count") => Wanted::Counts,
        Some(other) => {
            arguments.problem(format!("`mode`: expected lines, files or counts, {other:?} came"));
            lines
        }
    }
}

fn search(
    context: &CallContext,
    call: &Call,
    note: Option<String>,
    stop: &Stop,
) -> Result<ToolOutput, ToolError> {
    let place = lookup::place(context, call.path.as_deref())?;
    let pattern = Pattern::new(&call.pattern, call.reading)?;
    let failed = |error: std::io::Error| ToolError::from(format!("cannot search {}: {error}", place.shown));
    let directory = lookup::is_directory(&place);
    let found = if directory {
        let globs = Arc::new(Globs::new(&place.path, &call.globs)?);
        lines(&place.path, &globs, &pattern, call.wanted, call.limit, stop).map_err(failed)?
    } else {
        let file = open_regular(&place).map_err(|error| error.for_model(&place))?;
        lines_of_file(&file, &place.path, &pattern, call.wanted, call.limit, stop).map_err(failed)?
    };
    let mut notes = lookup::left_out(&context.workspace, &found.passed, stop);
    let mut page = Page::new(context, &notes);
    let shown = match call.wanted {
        Wanted::Lines { context: around } => show_lines(&mut page, context, &found, around > 0),
        Wanted::Files => show_files(&mut page, &found, |file| shown_path(&file.path, &context.workspace)),
        Wanted::Counts => show_files(&mut page, &found, |file| {
            format!("{}:{}", shown_path(&file.path, &context.workspace), file.hits)
        }),
    };
    let first = if found.files == 0 {
        notes.extend(why_none(call, &found, &pattern, directory));
        if directory {
            format!("No match in {} of {}", count(found.searched, "file"), lookup::shown(context, &place))
        } else {
            format!("No match in {}", place.shown)
        }
    } else {
        told(&found, call.wanted, pattern.spans_lines(), shown)
    };
    Ok(ToolOutput {
        summary: lookup::summary(first, &notes, [place.note, note]),
        content: page.into_content(),
        ..ToolOutput::default()
    })
}

/// Shows the lines under their files; gives back how many of them match.
fn show_lines(page: &mut Page, context: &CallContext, found: &Found, gaps: bool) -> u64 {
    let mut shown = 0;
    for file in &found.first {
        let mut head = shown_path(&file.path, &context.workspace);
        if shown > 0 {
            head.insert(0, '\n');
        }
        if file.binary {
            if !page.push(&format!("{head}\n(binary: it matches, but has no lines to show)")) {
                return shown;
            }
            shown += file.hits;
            continue;
        }
        let mut before: Option<&Line> = None;
        for line in &file.lines {
            let gap = gaps && before.is_some_and(|before| line.number > before.number + 1);
            let mark = if matches!(line.kind, LineKind::Match | LineKind::Continued) { ':' } else { '-' };
            let block = format!("{}{}{mark}{}", if gap { "--\n" } else { "" }, line.number, line.text);
            // A heading never stands alone.
            let fits = match before {
                None => page.push(&format!("{head}\n{block}")),
                Some(_) => page.push(&block),
            };
            if !fits {
                return shown;
            }
            shown += u64::from(line.kind == LineKind::Match);
            before = Some(line);
        }
    }
    shown
}

fn show_files(page: &mut Page, found: &Found, line: impl Fn(&FileHits) -> String) -> u64 {
    found.first.iter().take_while(|file| page.push(&line(file))).count() as u64
}

fn told(found: &Found, wanted: Wanted, spans_lines: bool, shown: u64) -> String {
    let files = count(found.files, "file");
    let verb = |number| if number == 1 { "matches" } else { "match" };
    let (all, total) = match wanted {
        Wanted::Files => (format!("{files} {}", verb(found.files)), found.files),
        Wanted::Lines { .. } | Wanted::Counts => {
            let hits = match (spans_lines, found.hits) {
                (false, number) => format!("{} {}", count(number, "line"), verb(number)),
                (true, 1) => "1 match".to_owned(),
                (true, number) => format!("{number} matches"),
            };
            (format!("{hits} in {files}"), if wanted == Wanted::Counts { found.files } else { found.hits })
        }
    };
    if shown >= total {
        return all;
    }
    let of_what = if total == found.hits && !matches!(wanted, Wanted::Files) { "" } else { " files" };
    format!("{all}; the first {shown}{of_what} by path are shown: narrow the pattern, the path or the glob")
}

/// What may be the reason that nothing was found.
fn why_none(call: &Call, found: &Found, pattern: &Pattern, directory: bool) -> Vec<String> {
    let mut reasons = Vec::new();
    if directory && found.searched == 0 && !call.globs.is_empty() {
        reasons.push(format!("no file matches the glob {}", short(&call.globs.join(" or "))));
    }
    if directory {
        reasons.push("ignored and hidden files are searched only if `path` or `glob` names them".to_owned());
    }
    if pattern.spans_lines() {
        reasons.push(r"in files with CRLF line endings a line ends with \r\n".to_owned());
    }
    reasons
}
