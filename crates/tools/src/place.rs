//! Where a path leads, and how to open it without being led elsewhere.
//!
//! A path from the model is resolved once, links included, and must end inside the workspace (or, for reading, inside
//! what the call may read besides). What is opened afterwards is reached from that directory's descriptor one
//! component at a time, and none of them may be a link: one that was swapped in between makes the call fail. Nothing is
//! created before the check.
//!
//! A path that comes in is read both ways, component by component: as the form in which names are shown (`shown.rs`) if a
//! file of that name exists, else as it stands.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, Stat};
use unicode_normalization::UnicodeNormalization;

use crate::shown::{named_by, shown_name, spelled_out};
use crate::tool::{CallContext, ToolError};

/// What a path is wanted for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To look at; the call's readable directories count too.
    Read,
    /// To change; only the workspace counts.
    Change,
}

/// A resolved path inside a directory that the call may use.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    root: PathBuf,
    relative: PathBuf,
    /// The absolute path, free of links when it was resolved.
    pub(crate) path: PathBuf,
    /// The path for people.
    pub(crate) shown: String,
    /// What the result should say about how the path was understood.
    pub(crate) note: Option<String>,
}

impl CallContext {
    /// Where a path of the model leads, if the call may read there: inside the workspace, or in the session's own files.
    ///
    /// # Errors
    ///
    /// If there is nothing, or it lies elsewhere; the text says so to the model.
    pub fn path_to_read(&self, asked: &str) -> Result<PathBuf, ToolError> {
        Ok(Place::of_existing(self, asked, Purpose::Read)?.path)
    }

    /// Where a path of the model leads, if the call may write a file there: inside the workspace. It may not be there yet.
    ///
    /// # Errors
    ///
    /// If it lies elsewhere, or is no name of a file; the text says so to the model.
    pub fn path_to_change(&self, asked: &str) -> Result<PathBuf, ToolError> {
        Ok(Place::of(self, asked, Purpose::Change)?.path)
    }
}

impl Place {
    /// Resolves a path for something that may not exist yet.
    pub(crate) fn of(context: &CallContext, asked: &str, purpose: Purpose) -> Result<Self, ToolError> {
        if asked.is_empty() || asked.contains('\0') {
            return Err(ToolError::from("`path` is empty or holds a zero byte; name a file".to_owned()));
        }
        if purpose == Purpose::Change && asked.ends_with('/') {
            return Err(ToolError::from(format!("{asked} names a directory; name a file")));
        }
        Self::of_resolved(context, resolve(&context.workspace, Some(asked)), asked, purpose)
    }

    /// Resolves a path for something that exists. A name that is missing stands for the only one in its directory that
    /// looks the same (another Unicode form, an odd space), and the note says so.
    pub(crate) fn of_existing(
        context: &CallContext,
        asked: &str,
        purpose: Purpose,
    ) -> Result<Self, ToolError> {
        let place = Self::of(context, asked, purpose)?;
        if place.stat().is_ok() {
            return Ok(place);
        }
        let looks_alike = place.look_alikes();
        if let [name] = looks_alike.as_slice() {
            let path = resolve(&place.path.with_file_name(name), None);
            let mut found = Self::of_resolved(context, path, asked, purpose)?;
            let spelled = spelled_out(name.as_bytes());
            found.note = Some(format!("({asked} does not exist; this is {spelled}, which looks the same.)"));
            return Ok(found);
        }
        Err(place.missing(context, &looks_alike))
    }

    fn of_resolved(
        context: &CallContext,
        path: io::Result<PathBuf>,
        asked: &str,
        purpose: Purpose,
    ) -> Result<Self, ToolError> {
        let path = path.map_err(|error| ToolError::from(format!("cannot resolve {asked}: {error}")))?;
        let mut roots = vec![context.workspace.clone()];
        if purpose == Purpose::Read && !path.starts_with(&context.workspace) {
            roots.extend(context.readable.iter().filter_map(|dir| dir.canonicalize().ok()));
        }
        let Some(root) = roots.into_iter().find(|root| path.starts_with(root)) else {
            return Err(outside(context, asked, &path));
        };
        let relative = path.strip_prefix(&root).map(Path::to_owned).unwrap_or_default();
        let shown = shown_path(&path, &context.workspace);
        Ok(Place { root, relative, path, shown, note: None })
    }

    /// The place of an absolute path that was free of links once. None unless it leads straight into `root`.
    pub(crate) fn inside(root: &Path, path: &Path) -> Option<Self> {
        let relative = path.strip_prefix(root).ok()?;
        let is_plain = relative.components().all(|component| matches!(component, Component::Normal(_)));
        (is_plain && relative.file_name().is_some()).then(|| Place {
            root: root.to_owned(),
            relative: relative.to_owned(),
            path: path.to_owned(),
            shown: shown_path(path, root),
            note: None,
        })
    }

    /// Removes the file, itself and not where a link would lead.
    pub(crate) fn remove(&self) -> Result<(), ToolError> {
        let remove = || -> io::Result<()> {
            let (directory, name) = self.parent(false)?;
            Ok(rustix::fs::unlinkat(&directory, &name, AtFlags::empty())?)
        };
        remove().map_err(|error| ToolError::from(format!("cannot remove {}: {error}", self.shown)))
    }

    /// The directory that holds it, with the name it has there. `create` makes missing directories on the way.
    pub(crate) fn parent(&self, create: bool) -> io::Result<(OwnedFd, OsString)> {
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let mut directory = rustix::fs::openat(CWD, &self.root, flags, Mode::empty())?;
        let Some(name) = self.relative.file_name() else {
            return Ok((directory, OsString::from(".")));
        };
        for component in self.relative.parent().into_iter().flat_map(Path::components) {
            if create {
                match rustix::fs::mkdirat(&directory, component.as_os_str(), Mode::from(0o777)) {
                    Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            directory = rustix::fs::openat(&directory, component.as_os_str(), flags, Mode::empty())?;
        }
        Ok((directory, name.to_owned()))
    }

    /// What lies there, itself and not where a link would lead.
    pub(crate) fn stat(&self) -> io::Result<Stat> {
        let (directory, name) = self.parent(false)?;
        Ok(rustix::fs::statat(&directory, &name, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// The other names in the same directory that a person would take for this one.
    pub(crate) fn look_alikes(&self) -> Vec<OsString> {
        let Some(wanted) = self.path.file_name().and_then(OsStr::to_str) else { return Vec::new() };
        let looks_like = |name: &OsString| {
            name.to_str().is_some_and(|name| name != wanted && plain(name) == plain(wanted))
        };
        self.siblings().into_iter().filter(looks_like).collect()
    }

    fn siblings(&self) -> Vec<OsString> {
        let Ok((directory, _)) = self.parent(false) else { return Vec::new() };
        entries(&directory).unwrap_or_default()
    }

    fn missing(&self, context: &CallContext, looks_alike: &[OsString]) -> ToolError {
        let summary = format!("{} does not exist", self.shown);
        let names: Vec<String> = if looks_alike.is_empty() {
            let wanted = self.path.file_name().unwrap_or_default();
            nearest(&wanted.to_string_lossy(), &self.siblings())
        } else {
            looks_alike.iter().map(|name| spelled_out(name.as_bytes())).collect()
        };
        let parent = self.path.parent().unwrap_or(&self.path);
        let content = if !parent.is_dir() {
            format!("Its directory {} does not exist either.", shown_path(parent, &context.workspace))
        } else if names.is_empty() {
            return ToolError::from(summary);
        } else {
            format!("Similar names in the same directory: {}", names.join(", "))
        };
        ToolError { summary, content: Some(content), exit_code: None }
    }
}

/// The names in a directory, sorted, without `.` and `..`.
pub(crate) fn entries(directory: &OwnedFd) -> io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(OsString::from_vec(name.to_vec()));
        }
    }
    names.sort();
    Ok(names)
}

fn outside(context: &CallContext, asked: &str, resolved: &Path) -> ToolError {
    ToolError {
        summary: format!("{asked} is outside the workspace; nothing was done"),
        content: Some(format!(
            "It leads to {}. The workspace is {}.",
            shown_name(resolved.as_os_str().as_bytes()),
            context.workspace.display()
        )),
        exit_code: None,
    }
}

/// Follows every link of an absolute path and of what is asked for from there. What does not exist stays as it is
/// written, links that dangle lead on to where they point.
pub(crate) fn resolve(from: &Path, asked: Option<&str>) -> io::Result<PathBuf> {
    let asked = asked.map(Path::new);
    let mut resolved = PathBuf::from("/");
    let mut pending: Vec<(OsString, Spelling)> = Vec::new();
    pending.extend(asked.into_iter().flat_map(|path| reversed(path, Spelling::Asked)));
    if asked.is_none_or(Path::is_relative) {
        pending.extend(reversed(from, Spelling::Exact));
    }
    let mut links = 0;
    while let Some((component, spelling)) = pending.pop() {
        if component == ".." {
            resolved.pop();
            continue;
        }
        match spelling {
            Spelling::Exact => resolved.push(component),
            Spelling::Asked => resolved.push(meant(&resolved, component)),
        }
        // Anything but a link, what is missing and what may not be looked at included, is no link to follow.
        let Ok(target) = std::fs::read_link(&resolved) else { continue };
        links += 1;
        if links > 40 {
            return Err(io::Error::other("its links go in a circle"));
        }
        resolved.pop();
        if target.is_absolute() {
            resolved = PathBuf::from("/");
        }
        pending.extend(reversed(&target, Spelling::Exact));
    }
    Ok(resolved)
}

/// How a component of a path is written.
#[derive(Clone, Copy)]
enum Spelling {
    /// As the file system has it.
    Exact,
    /// As the model has it, so that it may be a shown form.
    Asked,
}

fn reversed(path: &Path, spelling: Spelling) -> Vec<(OsString, Spelling)> {
    path.components()
        .rev()
        .filter(|component| matches!(component, Component::Normal(_) | Component::ParentDir))
        .map(|component| (component.as_os_str().to_owned(), spelling))
        .collect()
}

/// The name that a component of an asked path means in its directory.
fn meant(directory: &Path, component: OsString) -> OsString {
    let named = component.to_str().and_then(named_by);
    // What the escapes spell out must be one name: they can neither climb nor descend.
    let named = named.filter(|name| {
        !matches!(name.as_slice(), b"" | b"." | b"..") && !name.contains(&b'/') && !name.contains(&0)
    });
    match named.map(OsString::from_vec) {
        Some(name) if directory.join(&name).symlink_metadata().is_ok() => name,
        _ => component,
    }
}

/// A path as it is shown: from the workspace where it lies in it.
pub(crate) fn shown_path(path: &Path, workspace: &Path) -> String {
    let path = path.strip_prefix(workspace).ok().filter(|p| !p.as_os_str().is_empty()).unwrap_or(path);
    shown_name(path.as_os_str().as_bytes())
}

fn plain(name: &str) -> String {
    name.nfc().map(|c| if c.is_whitespace() { ' ' } else { c }).collect()
}

fn nearest(wanted: &str, names: &[OsString]) -> Vec<String> {
    let wanted = wanted.to_lowercase();
    let mut scored: Vec<(f32, String)> = names
        .iter()
        .take(2_000)
        .map(|name| shown_name(name.as_bytes()))
        .map(|name| (similar::TextDiff::from_chars(&wanted, &name.to_lowercase()).ratio(), name))
        .filter(|(score, _)| *score > 0.6)
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0));
    scored.into_iter().take(3).map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_shown_from_the_workspace() {
        assert_eq!(shown_path(Path::new("/w/a/b"), Path::new("/w")), "a/b");
        assert_eq!(shown_path(Path::new("/w"), Path::new("/w")), "/w");
    }
}
