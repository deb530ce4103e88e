//! The instruction files that a session begins with.
//!
//! First the user's own `AGENTS.md` beside `config.toml`, then, from the repository's root down to the workspace, each
//! directory's `AGENTS.md`, or its `CLAUDE.md` where there is no `AGENTS.md`. Without a repository, only the workspace
//! is looked at. Nothing about these files can fail a run: what cannot be used is a warning.
//!
//! A file of the repository that leads outside of it by a link is left out: a repository from elsewhere must not be
//! able to send any file of the user's to a provider. The same file found twice is told once. What the files say
//! together is limited; the notes about what was cut come on top.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use mainstay_session::entry::Instruction;
use mainstay_session::message::FilePath;

/// The most bytes that instruction files may have together, however large the window.
pub(crate) const MAX_BYTES: usize = 32 * 1024;

/// What instruction files were found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Instructions {
    /// The files in the order in which they are told.
    pub(crate) files: Vec<Instruction>,
    /// The files as a user wants them listed, in the same order: the path, and what was cut.
    pub(crate) list: Vec<String>,
    /// What could not be used, and why.
    pub(crate) warnings: Vec<String>,
}

/// The most bytes of instructions for a model with this context window in tokens: an eighth of the window, at three
/// and a half bytes a token, and at most [`MAX_BYTES`].
pub(crate) fn limit(context_window: u64) -> usize {
    usize::try_from(context_window.saturating_mul(7) / 16).unwrap_or(usize::MAX).min(MAX_BYTES)
}

/// Reads the instruction files as they are now. `root` is the workspace or an ancestor of it; both are resolved.
pub(crate) fn load(
    config_home: Option<&Path>,
    root: &Path,
    workspace: &Path,
    context_window: u64,
) -> Instructions {
    let limit = limit(context_window);
    let mut reading = Reading { found: Instructions::default(), seen: BTreeSet::new(), limit, left: limit };
    if let Some(home) = config_home {
        reading.take_first(home, &["AGENTS.md"], None);
    }
    let mut directories: Vec<&Path> =
        workspace.ancestors().take_while(|directory| directory.starts_with(root)).collect();
    directories.reverse();
    for directory in directories {
        reading.take_first(directory, &["AGENTS.md", "CLAUDE.md"], Some(root));
    }
    reading.found
}

struct Reading {
    found: Instructions,
    seen: BTreeSet<PathBuf>,
    limit: usize,
    left: usize,
}

impl Reading {
    /// Takes the first of some files that is there at all, usable or not.
    fn take_first(&mut self, directory: &Path, names: &[&str], confine: Option<&Path>) {
        let mut paths = names.iter().map(|name| directory.join(name));
        let Some(path) = paths.find(|path| path.symlink_metadata().is_ok()) else { return };
        if let Err(why) = self.take(&path, confine) {
            self.found.warnings.push(format!("instructions in {} are left out: {why}", path.display()));
        }
    }

    fn take(&mut self, path: &Path, confine: Option<&Path>) -> Result<(), String> {
        let resolved = path.canonicalize().map_err(|cause| cause.to_string())?;
        if let Some(root) = confine.filter(|root| !resolved.starts_with(root)) {
            return Err(format!("it is a link to a place outside {}", root.display()));
        }
        // Asked before opening: opening a FIFO would wait for a writer.
        if !resolved.is_file() {
            return Err("it is not a file".to_owned());
        }
        if !self.seen.insert(resolved.clone()) {
            return Ok(());
        }
        let (text, size) = read_lossy(&resolved, self.left).map_err(|cause| cause.to_string())?;
        if size > 0 && !text.trim().is_empty() || size > self.left as u64 {
            self.add(path, text, size);
        }
        Ok(())
    }

    fn add(&mut self, path: &Path, mut text: String, size: u64) {
        let kept = text.floor_char_boundary(self.left);
        let is_cut = size > self.left as u64 || kept < text.len();
        text.truncate(kept);
        self.left -= kept;
        let mut line = path.display().to_string();
        if is_cut {
            let limit = self.limit;
            line.push_str(&format!(" (cut: {kept} of {size} bytes)"));
            let gap = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
            text.push_str(&format!(
                "{gap}[cut here: {kept} of {size} bytes are shown, as instruction files may have {limit} together; \
                 the rest can be read from the file]\n"
            ));
        }
        self.found.list.push(line);
        self.found.files.push(Instruction { path: FilePath(path.to_owned()), text });
    }
}

/// Reads a little more than `wanted` bytes of a file, so that no character at the limit is torn, and says how many
/// bytes it has. What is not UTF-8 becomes U+FFFD.
fn read_lossy(path: &Path, wanted: usize) -> std::io::Result<(String, u64)> {
    let file = File::open(path)?;
    let size = file.metadata()?.len();
    let mut bytes = Vec::new();
    file.take(wanted as u64 + 4).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text).to_owned();
    Ok((text, size.max(bytes.len() as u64)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A configuration directory, and a repository with a workspace two levels down.
    struct Place {
        _dir: tempfile::TempDir,
        top: PathBuf,
    }

    impl Place {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let top = dir.path().canonicalize().unwrap();
            std::fs::create_dir_all(top.join("config")).unwrap();
            std::fs::create_dir_all(top.join("repo/a/b")).unwrap();
            Place { _dir: dir, top }
        }

        fn write(&self, path: &str, text: impl AsRef<[u8]>) {
            std::fs::write(self.top.join(path), text).unwrap();
        }

        fn load(&self) -> Instructions {
            self.load_for(1_000_000)
        }

        fn load_for(&self, window: u64) -> Instructions {
            load(Some(&self.top.join("config")), &self.top.join("repo"), &self.top.join("repo/a/b"), window)
        }

        fn texts(&self) -> Vec<(String, String)> {
            let relative = |path: &Path| path.strip_prefix(&self.top).unwrap().display().to_string();
            let found = self.load();
            assert_eq!(found.warnings, Vec::<String>::new());
            found.files.iter().map(|file| (relative(file.path.as_path()), file.text.clone())).collect()
        }
    }

    fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        expected.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
    }

    /// C08: each file once, in a fixed order; J02, J04: the same files give the same bytes.
    #[test]
    fn files_are_told_from_the_user_down_to_the_workspace() {
        let place = Place::new();
        place.write("AGENTS.md", "above the repository");
        place.write("config/AGENTS.md", "user\n");
        place.write("config/CLAUDE.md", "not read");
        place.write("repo/AGENTS.md", "root");
        place.write("repo/CLAUDE.md", "shadowed");
        place.write("repo/a/CLAUDE.md", "middle");
        place.write("repo/a/b/AGENTS.md", "\u{feff}deep");
        let expected = pairs(&[
            ("config/AGENTS.md", "user\n"),
            ("repo/AGENTS.md", "root"),
            ("repo/a/CLAUDE.md", "middle"),
            ("repo/a/b/AGENTS.md", "deep"),
        ]);
        assert_eq!(place.texts(), expected);
        assert_eq!(place.texts(), expected);
        let listed: Vec<String> =
            expected.iter().map(|(path, _)| place.top.join(path).display().to_string()).collect();
        assert_eq!(place.load().list, listed);
    }

    #[test]
    fn no_files_is_nothing_at_all() {
        assert_eq!(Place::new().load(), Instructions::default());
    }

    /// C08
    #[test]
    fn the_same_file_is_told_once() {
        let place = Place::new();
        place.write("repo/AGENTS.md", "once");
        symlink("../AGENTS.md", place.top.join("repo/a/AGENTS.md")).unwrap();
        symlink("../../AGENTS.md", place.top.join("repo/a/b/CLAUDE.md")).unwrap();
        assert_eq!(place.texts(), pairs(&[("repo/AGENTS.md", "once")]));
    }

    #[test]
    fn blank_files_are_not_told_and_still_shadow() {
        let place = Place::new();
        place.write("repo/AGENTS.md", " \n");
        place.write("repo/CLAUDE.md", "shadowed");
        assert_eq!(place.load(), Instructions::default());
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced() {
        let place = Place::new();
        place.write("repo/AGENTS.md", b"caf\xe9 is fine");
        assert_eq!(place.texts(), pairs(&[("repo/AGENTS.md", "caf\u{fffd} is fine")]));
    }

    #[test]
    fn links_out_of_the_repository_and_things_that_are_no_files_are_warnings() {
        let place = Place::new();
        place.write("secret", "a key");
        symlink(place.top.join("secret"), place.top.join("config/AGENTS.md")).unwrap();
        symlink("../secret", place.top.join("repo/AGENTS.md")).unwrap();
        symlink("nowhere", place.top.join("repo/a/AGENTS.md")).unwrap();
        std::fs::create_dir(place.top.join("repo/a/b/AGENTS.md")).unwrap();
        let found = place.load();
        let top = place.top.display();
        // The user's own link is the user's own choice.
        assert_eq!(found.list, [format!("{top}/config/AGENTS.md")]);
        assert_eq!(
            found.warnings,
            [
                format!(
                    "instructions in {top}/repo/AGENTS.md are left out: it is a link to a place outside {top}/repo"
                ),
                format!(
                    "instructions in {top}/repo/a/AGENTS.md are left out: No such file or directory (os error 2)"
                ),
                format!("instructions in {top}/repo/a/b/AGENTS.md are left out: it is not a file"),
            ]
        );
    }

    #[test]
    fn the_limit_follows_the_window() {
        let table =
            [(8_000, 3_500), (32_768, 14_336), (74_898, 32_767), (128_000, MAX_BYTES), (u64::MAX, MAX_BYTES)];
        for (window, expected) in table {
            assert_eq!(limit(window), expected, "{window}");
        }
    }

    #[test]
    fn what_is_too_long_is_cut_between_characters_and_said() {
        let place = Place::new();
        place.write("config/AGENTS.md", "12345678\n");
        place.write("repo/AGENTS.md", "äöüß".repeat(500));
        place.write("repo/a/AGENTS.md", "no room");
        let found = place.load_for(8_000 / 7 * 2);
        let texts: Vec<&str> = found.files.iter().map(|file| file.text.as_str()).collect();
        let limit = limit(8_000 / 7 * 2);
        assert_eq!(limit, 999);
        let shown = "äöüß".repeat(500)[..990].to_owned();
        assert_eq!(
            texts,
            [
                "12345678\n".to_owned(),
                format!(
                    "{shown}\n[cut here: 990 of 4000 bytes are shown, as instruction files may have 999 together; \
                     the rest can be read from the file]\n"
                ),
                "[cut here: 0 of 7 bytes are shown, as instruction files may have 999 together; \
                 the rest can be read from the file]\n"
                    .to_owned(),
            ]
        );
        let top = place.top.display();
        assert_eq!(
            found.list,
            [
                format!("{top}/config/AGENTS.md"),
                format!("{top}/repo/AGENTS.md (cut: 990 of 4000 bytes)"),
                format!("{top}/repo/a/AGENTS.md (cut: 0 of 7 bytes)"),
            ]
        );
    }

    /// Sizes around the limit: never more than it, never less than it would hold, and never a torn character.
    #[test]
    fn at_the_limit_nothing_is_lost_by_one() {
        let place = Place::new();
        let limit = limit(16);
        assert_eq!(limit, 7);
        for size in 1..12 {
            for letter in ["a", "ü", "語", "🦀"] {
                let text: String = letter.repeat(size);
                place.write("repo/AGENTS.md", &text);
                let found = place.load_for(16);
                let told = &found.files[0].text;
                if text.len() <= limit {
                    assert_eq!(*told, text);
                } else {
                    let kept = letter.repeat(limit / letter.len());
                    let note = format!("{kept}\n[cut here: {} of {} bytes", kept.len(), text.len());
                    assert!(told.starts_with(&note), "{told}");
                }
            }
        }
    }
}
