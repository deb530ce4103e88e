//! Where things lie: the environment, the user's directories, the workspace and the repository around it.
//!
//! The environment and the current directory are handed in once, by `main`; nothing below reads them again, so that
//! every rule about them can be tested with a table.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::error::{self, CliError};

/// The environment variables of the process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Environment(BTreeMap<OsString, OsString>);

impl Environment {
    /// The environment of this process.
    pub(crate) fn of_process() -> Self {
        std::env::vars_os().collect()
    }

    /// The value of a variable; an empty one counts as unset.
    pub(crate) fn get(&self, name: &str) -> Option<&OsStr> {
        self.0.get(OsStr::new(name)).map(OsString::as_os_str).filter(|value| !value.is_empty())
    }

    /// The names of the variables that have a value.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let filled = self.0.iter().filter(|(_, value)| !value.is_empty());
        filled.filter_map(|(name, _)| name.to_str())
    }

    /// An absolute path in a variable. The XDG rules say to ignore a relative one.
    fn absolute(&self, name: &str) -> Option<PathBuf> {
        self.get(name).map(PathBuf::from).filter(|path| path.is_absolute())
    }

    /// A directory that an XDG variable names, or its default below the home directory.
    fn xdg(&self, name: &str, below_home: &str) -> Option<PathBuf> {
        self.absolute(name).or_else(|| Some(self.absolute("HOME")?.join(below_home)))
    }
}

impl<K: Into<OsString>, V: Into<OsString>> FromIterator<(K, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        Environment(pairs.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

/// What the program finds around it when it starts.
#[derive(Clone, Debug)]
pub(crate) struct Surroundings {
    /// The environment variables.
    pub(crate) environment: Environment,
    /// The directory that relative paths on the command line start from.
    pub(crate) current_dir: PathBuf,
}

impl Surroundings {
    /// Those of this process. Fails, with exit code 2, where the current directory no longer exists.
    pub(crate) fn of_process() -> Result<Self, CliError> {
        let current_dir = std::env::current_dir().map_err(|cause| {
            CliError::new(error::USAGE, format!("the current directory cannot be used: {cause}"))
                .hint("change to a directory that exists")
        })?;
        Ok(Surroundings { environment: Environment::of_process(), current_dir })
    }

    /// Where sessions are kept: `$MAINSTAY_HOME`, else `$XDG_DATA_HOME/mainstay`, else `~/.local/share/mainstay`.
    /// Absolute, but not created. Fails, with exit code 78, where none of the variables is set.
    pub(crate) fn data_home(&self) -> Result<PathBuf, CliError> {
        if let Some(home) = self.environment.get("MAINSTAY_HOME") {
            return Ok(self.current_dir.join(home));
        }
        let data = self.environment.xdg("XDG_DATA_HOME", ".local/share").ok_or_else(|| {
            CliError::configuration("there is no place to keep sessions: HOME is not set")
                .hint("set HOME, or MAINSTAY_HOME to a directory of your choice")
        })?;
        Ok(data.join("mainstay"))
    }

    /// Where the user's own configuration and instructions lie: `$XDG_CONFIG_HOME/mainstay`, else
    /// `~/.config/mainstay`; nowhere without a home directory.
    pub(crate) fn config_home(&self) -> Option<PathBuf> {
        Some(self.environment.xdg("XDG_CONFIG_HOME", ".config")?.join("mainstay"))
    }

    /// A path in which a leading `~` stands for the home directory; as it is where there is none.
    pub(crate) fn expand_home(&self, path: &Path) -> PathBuf {
        match (path.strip_prefix("~"), self.environment.absolute("HOME")) {
            (Ok(rest), Some(home)) => home.join(rest),
            (Ok(_), None) | (Err(_), _) => path.to_owned(),
        }
    }

    /// The workspace: the directory asked for, else the current one, with links resolved. Fails, with exit code 2,
    /// where it cannot be used.
    pub(crate) fn workspace(&self, asked: Option<&Path>) -> Result<PathBuf, CliError> {
        let path = asked.map_or_else(|| self.current_dir.clone(), |asked| self.current_dir.join(asked));
        let unusable = |why: String| {
            CliError::new(error::USAGE, format!("the directory {} cannot be used: {why}", path.display()))
                .hint("name an existing directory with --cwd DIR")
        };
        let resolved = path.canonicalize().map_err(|cause| unusable(cause.to_string()))?;
        if !resolved.is_dir() {
            return Err(unusable("it is not a directory".to_owned()));
        }
        std::fs::read_dir(&resolved).map_err(|cause| unusable(cause.to_string()))?;
        Ok(resolved)
    }
}

/// The root of the repository around a directory: the nearest ancestor, itself included, that holds `.git`, which is
/// a file in a linked worktree.
pub(crate) fn repository_root(directory: &Path) -> Option<&Path> {
    directory.ancestors().find(|ancestor| ancestor.join(".git").symlink_metadata().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn surroundings(pairs: &[(&str, &str)]) -> Surroundings {
        Surroundings { environment: pairs.iter().copied().collect(), current_dir: PathBuf::from("/start") }
    }

    #[test]
    fn the_data_directory_follows_the_variables_in_order() {
        let table: &[(&[(&str, &str)], &str)] = &[
            (&[("MAINSTAY_HOME", "/m"), ("XDG_DATA_HOME", "/d"), ("HOME", "/h")], "/m"),
            (&[("MAINSTAY_HOME", "m"), ("HOME", "/h")], "/start/m"),
            (&[("MAINSTAY_HOME", ""), ("XDG_DATA_HOME", "/d"), ("HOME", "/h")], "/d/mainstay"),
            (&[("XDG_DATA_HOME", "relative"), ("HOME", "/h")], "/h/.local/share/mainstay"),
            (&[("HOME", "/h")], "/h/.local/share/mainstay"),
        ];
        for (pairs, expected) in table {
            assert_eq!(surroundings(pairs).data_home().unwrap(), Path::new(expected), "{pairs:?}");
        }
        insta::assert_snapshot!(surroundings(&[]).data_home().unwrap_err(), @r"
        error: there is no place to keep sessions: HOME is not set
          set HOME, or MAINSTAY_HOME to a directory of your choice
        ");
    }

    #[test]
    fn the_configuration_directory_follows_the_variables_in_order() {
        type Case = (&'static [(&'static str, &'static str)], Option<&'static str>);
        let table: &[Case] = &[
            (&[("XDG_CONFIG_HOME", "/c"), ("HOME", "/h")], Some("/c/mainstay")),
            (&[("XDG_CONFIG_HOME", "c"), ("HOME", "/h")], Some("/h/.config/mainstay")),
            (&[("HOME", "/h")], Some("/h/.config/mainstay")),
            (&[], None),
        ];
        for (pairs, expected) in table {
            assert_eq!(surroundings(pairs).config_home().as_deref(), expected.map(Path::new), "{pairs:?}");
        }
    }

    #[test]
    fn the_workspace_is_resolved_or_refused() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("real")).unwrap();
        std::os::unix::fs::symlink("real", root.join("link")).unwrap();
        std::fs::write(root.join("file"), "").unwrap();
        let here = Surroundings { environment: Environment::default(), current_dir: root.clone() };

        assert_eq!(here.workspace(None).unwrap(), root);
        assert_eq!(here.workspace(Some(Path::new("link"))).unwrap(), root.join("real"));
        for (name, why) in
            [("file", "it is not a directory"), ("gone", "No such file or directory (os error 2)")]
        {
            let error = here.workspace(Some(Path::new(name))).unwrap_err();
            assert_eq!(error.code, error::USAGE);
            assert_eq!(
                error.message,
                format!("the directory {} cannot be used: {why}", root.join(name).display())
            );
        }
    }

    #[test]
    fn the_repository_is_the_nearest_directory_with_git_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        std::fs::create_dir_all(root.join("outer/.git")).unwrap();
        std::fs::create_dir_all(root.join("outer/linked/deep")).unwrap();
        std::fs::write(root.join("outer/linked/.git"), "gitdir: elsewhere").unwrap();

        assert_eq!(repository_root(&root.join("outer")), Some(root.join("outer").as_path()));
        assert_eq!(
            repository_root(&root.join("outer/linked/deep")),
            Some(root.join("outer/linked").as_path())
        );
    }
}
