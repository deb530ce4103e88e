//! Which files a search is for, as globs.
//!
//! They read like `rg -g`: without a slash a glob matches a name at any depth, with one it matches from the searched
//! directory on, and `!` in front leaves files out. Other than with `rg -g` a glob only ever narrows: it brings back
//! nothing that is ignored, so `**/*` lists a project and not its build directory. A real name that happens to hold
//! brackets or braces is matched by writing it as it is.

use std::path::Path;

use ignore::overrides::{Override, OverrideBuilder};

use crate::tool::ToolError;

/// The globs of one search. None at all take every file.
#[derive(Debug)]
pub struct Globs {
    overrides: Override,
    /// The names of the directories through which every match is reached.
    through: Vec<String>,
    hidden: bool,
    git: bool,
}

impl Globs {
    /// Reads globs that count from a directory, given as its absolute path.
    ///
    /// # Errors
    ///
    /// One of them is empty, leads up or is no glob, neither as it stands nor as a literal name; the error says which.
    pub fn new<S: AsRef<str>>(root: &Path, globs: &[S]) -> Result<Self, ToolError> {
        let mut builder = OverrideBuilder::new(root);
        let mut through = Vec::new();
        let (mut hidden, mut git) = (false, false);
        for glob in globs {
            let (sign, glob) = match glob.as_ref().strip_prefix('!') {
                Some(glob) => ("!", glob),
                None => ("", glob.as_ref()),
            };
            let glob = from_root(root, glob)?;
            add(&mut builder, sign, &glob)?;
            if sign.is_empty() {
                hidden |= names_hidden(&glob);
                git |= glob.split('/').any(|name| name == ".git");
                if globs.len() == 1 {
                    through = leading_names(&glob);
                }
            }
        }
        let overrides = builder.build().map_err(|error| ToolError::from(format!("bad glob: {error}")))?;
        Ok(Globs { overrides, through, hidden, git })
    }

    /// Whether hidden files and directories are searched: where a glob names one.
    pub fn hidden(&self) -> bool {
        self.hidden
    }

    /// Whether there is none, so that every file is taken.
    pub fn is_empty(&self) -> bool {
        self.overrides.is_empty()
    }

    /// Whether a file is searched for.
    pub(super) fn takes(&self, path: &Path) -> bool {
        self.overrides.is_empty() || !self.overrides.matched(path, false).is_ignore()
    }

    /// Whether a directory may hold such files; `depth` is 1 for those in the searched directory.
    pub(super) fn enters(&self, path: &Path, depth: usize) -> bool {
        let name = path.file_name().unwrap_or_default();
        if self.hidden && !self.git && name == ".git" {
            return false;
        }
        let on_the_way =
            self.through.get(depth.wrapping_sub(1)).is_none_or(|through| name == through.as_str());
        on_the_way && (self.overrides.is_empty() || !self.overrides.matched(path, true).is_ignore())
    }
}

/// The glob as it counts from the searched directory.
fn from_root(root: &Path, glob: &str) -> Result<String, ToolError> {
    let mut rest = glob;
    if let Some(below) = root.to_str().and_then(|root| glob.strip_prefix(root)).filter(|b| b.starts_with('/'))
    {
        rest = below;
    }
    while let Some(below) = rest.strip_prefix("./") {
        rest = below;
    }
    if rest.is_empty() || rest == "/" {
        return Err(ToolError::from(format!("the glob {glob:?} is empty; use * for every file")));
    }
    if rest.split('/').any(|name| name == "..") {
        return Err(ToolError::from(format!(
            "the glob {glob:?} leads up; set `path` to the directory instead"
        )));
    }
    Ok(if rest.ends_with('/') { format!("{rest}**") } else { rest.to_owned() })
}

/// Adds a glob, as a glob and as the name that it may be. A second reading can only match files that really have such
/// odd names.
fn add(builder: &mut OverrideBuilder, sign: &str, glob: &str) -> Result<(), ToolError> {
    let mut readings = vec![glob.to_owned()];
    for literal in ["[]", "[]{}", "[]{}\\"] {
        let reading = escaped(glob, literal);
        if readings.last() != Some(&reading) {
            readings.push(reading);
        }
    }
    let mut problem = None;
    let mut added = false;
    for reading in readings {
        match builder.add(&format!("{sign}{}", as_line(&reading))) {
            Ok(_) => added = true,
            Err(error) => problem = problem.or(Some(error)),
        }
    }
    match problem {
        Some(error) if !added => Err(ToolError::from(format!("bad glob {glob:?}: {error}"))),
        Some(_) | None => Ok(()),
    }
}

fn escaped(glob: &str, literal: &str) -> String {
    let mut out = String::with_capacity(glob.len());
    for c in glob.chars() {
        if literal.contains(c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

/// A glob as a line of an ignore file, where some things at either end have a meaning of their own.
fn as_line(glob: &str) -> String {
    let lead = if glob.starts_with(['#', '!']) { "\\" } else { "" };
    match glob.strip_suffix(' ') {
        Some(rest) if !rest.ends_with('\\') => format!("{lead}{rest}\\ "),
        _ => format!("{lead}{glob}"),
    }
}

/// Whether a component, or an alternative that may begin one, begins with a dot.
fn names_hidden(glob: &str) -> bool {
    let mut before = '/';
    for c in glob.chars() {
        if c == '.' && matches!(before, '/' | '{' | ',') {
            return true;
        }
        before = c;
    }
    false
}

/// The leading components that are plain names, but the last, which is a file's.
fn leading_names(glob: &str) -> Vec<String> {
    let plain = |name: &&str| !name.contains(['*', '?', '[', ']', '{', '}', '\\', '!']);
    let Some((directories, _)) = glob.trim_start_matches('/').rsplit_once('/') else { return Vec::new() };
    // An alternative may hold a slash; what stands before its brace is plain all the same.
    directories.split('/').take_while(plain).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}
