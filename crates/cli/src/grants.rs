//! Permissions that the user gave for a project: `grants.toml` beside the user's `config.toml`.
//!
//! They never lie in the repository, where whoever can write to it could give them. Each is keyed by the workspace's
//! resolved path, so a copy of the repository elsewhere has none.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use mainstay_agent::session::entry::Grant;

use crate::config::document::{Document, Value};
use crate::error::CliError;
use crate::output::toml_text;

const FILE: &str = "grants.toml";

/// What was granted for a workspace.
///
/// # Errors
///
/// With exit code 78, if the file is damaged: a permission that was taken out by hand must stay out.
pub(crate) fn load(config_home: Option<&Path>, workspace: &Path) -> Result<Vec<Grant>, CliError> {
    let Some(path) = config_home.map(|home| home.join(FILE)) else { return Ok(Vec::new()) };
    let Some(document) = Document::open(&path)? else { return Ok(Vec::new()) };
    let all =
        document.read(|table| Ok(table.get("grants", |grants| grants.list(grant))?.unwrap_or_default()))?;
    Ok(all
        .into_iter()
        .filter(|(project, _)| Path::new(project) == workspace)
        .map(|(_, grant)| grant)
        .collect())
}

fn grant(value: &Value<'_>) -> Result<(String, Grant), CliError> {
    value.table(|table| {
        let mut text = |key: &'static str| {
            let found = table.get(key, |value| Ok(value.text()?.to_owned()))?;
            found.ok_or_else(|| value.complain(&format!("has an entry without `{key}`")))
        };
        let (project, tool, pattern) = (text("project")?, text("tool")?, text("pattern")?);
        Ok((project, Grant { tool, pattern, scope: "project".to_owned() }))
    })
}

/// Keeps a permission for a workspace.
///
/// # Errors
///
/// There is no place for it, or it cannot be written there; the text says why.
pub(crate) fn keep(config_home: Option<&Path>, workspace: &Path, grant: &Grant) -> Result<(), String> {
    let home = config_home.ok_or("HOME is not set, so there is no place to keep it")?;
    let project = workspace.to_str().ok_or("the workspace's path is not UTF-8, so it cannot be kept")?;
    let known = load(config_home, workspace).map_err(|error| error.message)?;
    if known.iter().any(|known| (&known.tool, &known.pattern) == (&grant.tool, &grant.pattern)) {
        return Ok(());
    }
    let path = home.join(FILE);
    let entry = format!(
        "\n[[grants]]\nproject = {}\ntool = {}\npattern = {}\n",
        toml_text(project),
        toml_text(&grant.tool),
        toml_text(&grant.pattern)
    );
    let write = || -> std::io::Result<()> {
        std::fs::create_dir_all(home)?;
        let mut file = OpenOptions::new().create(true).append(true).mode(0o600).open(&path)?;
        let head = "# Permissions that you gave for a project. Take out what you no longer want.\n";
        let is_new = file.metadata()?.len() == 0;
        file.write_all(format!("{}{entry}", if is_new { head } else { "" }).as_bytes())?;
        file.sync_data()
    };
    write().map_err(|error| format!("{} cannot be written: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(pattern: &str) -> Grant {
        Grant { tool: "bash".to_owned(), pattern: pattern.to_owned(), scope: "project".to_owned() }
    }

    #[test]
    fn what_is_kept_holds_for_its_workspace_only() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("config");
        let (here, there) = (Path::new("/work/a \"quoted\""), Path::new("/work/b"));
        assert_eq!(load(Some(&home), here).unwrap(), []);
        for pattern in ["cargo test *", "echo \\*\u{1b}", "cargo test *"] {
            keep(Some(&home), here, &grant(pattern)).unwrap();
        }
        assert_eq!(load(Some(&home), here).unwrap(), [grant("cargo test *"), grant("echo \\*\u{1b}")]);
        assert_eq!(load(Some(&home), there).unwrap(), []);
        assert_eq!(load(None, here).unwrap(), []);
        assert!(keep(None, here, &grant("x")).unwrap_err().contains("HOME"));
    }

    #[test]
    fn a_damaged_file_is_named() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(FILE), "[[grants]]\ntool = \"bash\"\n").unwrap();
        let error = load(Some(dir.path()), Path::new("/a")).unwrap_err();
        assert!(error.message.contains("has an entry without `project`"), "{error}");
        let kept = keep(Some(dir.path()), Path::new("/a"), &grant("x"));
        assert!(kept.unwrap_err().contains("without `project`"));
    }
}
