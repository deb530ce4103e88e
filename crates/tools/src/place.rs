//! Where a path leads, and how to open it without being led elsewhere.
//!
//! A path from the model is resolved once, links included, and must end inside the workspace (or, for reading, inside
//! what the call may read besides). What is opened afterwards is reached from that directory's descriptor one
//! component at a time, and none of them may be a link: one that was swapped in between makes the call fail. Nothing is
//! created before the check.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, Stat};
use unicode_normalization::UnicodeNormalization;

use crate::text::{shown_name, shown_path};
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

impl Place {
    /// Resolves a path for something that may not exist yet.
    pub(crate) fn of(context: &CallContext, asked: &str, purpose: Purpose) -> Result<Self, ToolError> {
        if asked.is_empty() || asked.contains('\0') {
            return Err(ToolError::from("`path` is empty or holds a zero byte; name a file".to_owned()));
        }
        Self::of_path(context, &context.workspace.join(asked), asked, purpose)
    }

    /// Resolves a path for something that exists. A name that is missing stands for the only one in its directory that
    /// looks the same (another Unicode form, an odd space, a byte written as `\xNN`), and the note says so.
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
            let path = place.path.with_file_name(name);
            let mut found = Self::of_path(context, &path, asked, purpose)?;
            found.note =
                Some(format!("({asked} does not exist; this is {}, which looks the same.)", found.shown));
            return Ok(found);
        }
        Err(place.missing(context, &looks_alike))
    }

    fn of_path(context: &CallContext, path: &Path, asked: &str, purpose: Purpose) -> Result<Self, ToolError> {
        let path =
            resolve(path).map_err(|error| ToolError::from(format!("cannot resolve {asked}: {error}")))?;
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

    fn look_alikes(&self) -> Vec<OsString> {
        let wanted = self.path.file_name().unwrap_or_default();
        self.siblings().into_iter().filter(|name| looks_like(name, wanted)).collect()
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
            looks_alike.iter().map(|name| name.as_bytes().escape_ascii().to_string()).collect()
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

/// Follows every link of an absolute path. What does not exist stays as it is written, links that dangle lead on to
/// where they point.
fn resolve(path: &Path) -> io::Result<PathBuf> {
    let mut resolved = PathBuf::from("/");
    let mut pending: Vec<OsString> = reversed(path);
    let mut links = 0;
    while let Some(component) = pending.pop() {
        if component == ".." {
            resolved.pop();
            continue;
        }
        resolved.push(&component);
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
        pending.extend(reversed(&target));
    }
    Ok(resolved)
}

fn reversed(path: &Path) -> Vec<OsString> {
    path.components()
        .rev()
        .filter(|component| matches!(component, Component::Normal(_) | Component::ParentDir))
        .map(|component| component.as_os_str().to_owned())
        .collect()
}

/// Whether a person would take the one name for the other.
fn looks_like(name: &OsStr, wanted: &OsStr) -> bool {
    let wanted = wanted.to_string_lossy();
    if shown_name(name.as_bytes()) == wanted {
        return true;
    }
    name.to_str().is_some_and(|name| plain(name) == plain(&wanted))
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
