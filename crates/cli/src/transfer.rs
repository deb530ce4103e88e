//! `mainstay export` and `mainstay import`: a whole session as one file, and back.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Write};
use std::path::Path;

use mainstay_agent::session::log::{
    self, ExportError, Exported, ImportError, SessionSummary, new_export_file,
};

use crate::args::ExportArguments;
use crate::error::{CliError, USAGE};
use crate::history::{read, unreadable};
use crate::output::{counted, inert, out, say};

/// Writes a session to one file, which is new: nothing is written over.
///
/// # Errors
///
/// If the file exists already (exit code 2), or cannot be written. Then it is removed again.
pub(crate) fn export(
    session: &SessionSummary,
    current_dir: &Path,
    arguments: &ExportArguments,
) -> Result<(), CliError> {
    let id = session.id.short();
    // What cannot be read is said, and exported as it is.
    read(session)?;
    let name = arguments.output.clone().unwrap_or_else(|| format!("mainstay-{id}.jsonl").into());
    let exported = if name.as_os_str() == "-" {
        write(session, arguments.mask, &mut io::stdout().lock()).map_err(not_exported)?
    } else {
        let path = current_dir.join(name);
        let file = new_export_file(&path).map_err(|error| not_begun(&path, &error))?;
        let exported = write(session, arguments.mask, &mut BufWriter::new(file)).map_err(|error| {
            // Half an export is of no use to anybody.
            let _ = fs::remove_file(&path);
            not_exported(error)
        })?;
        out(&format!("session {id}: {} files in {}", exported.files, path.display()));
        exported
    };
    if arguments.mask {
        say("what looks like a secret was replaced; look through it before you give it to someone");
    }
    if exported.unmasked > 0 {
        say(&format!("{} files are no text and were not looked through", exported.unmasked));
    }
    Ok(())
}

fn write(session: &SessionSummary, mask: bool, to: &mut dyn Write) -> Result<Exported, ExportError> {
    let program = format!("mainstay {}", env!("CARGO_PKG_VERSION"));
    log::export(&session.dir, mask, &program, jiff::Timestamp::now(), to)
}

fn not_begun(path: &Path, error: &io::Error) -> CliError {
    let message = format!("cannot write {}: {error}", path.display());
    match error.kind() {
        io::ErrorKind::AlreadyExists => CliError::new(USAGE, message).hint("name another file with -o FILE"),
        _ => CliError::new(1, message).hint("name a file that can be written with -o FILE"),
    }
}

fn not_exported(error: ExportError) -> CliError {
    match error {
        ExportError::Read(error) => unreadable(error),
        error @ ExportError::Write(_) => CliError::new(1, error.to_string()).hint("nothing is left of it"),
    }
}

/// Takes in a session, and says where it works.
///
/// # Errors
///
/// If it is not a whole export, or there is such a session already. Then nothing is left of it.
pub(crate) fn import(data_home: &Path, current_dir: &Path, file: &Path) -> Result<(), CliError> {
    let imported = if file.as_os_str() == "-" {
        log::import(data_home, &mut io::stdin().lock())
    } else {
        let path = current_dir.join(file);
        log::import(data_home, &mut BufReader::new(opened(&path)?))
    };
    let log::Imported { id, grants } = imported.map_err(not_imported)?;
    let summary = log::summarise(&log::session_dir(data_home, &id), id);
    read(&summary)?;
    let id = summary.id.short();
    out(&format!("session {id} is here; {}: {}", counted(summary.turns, "turn"), inert(&summary.title)));
    if !grants.is_empty() {
        let given = grants.iter().map(|(tool, pattern)| inert(&format!("{tool} `{pattern}`")));
        let given: Vec<String> = given.take(5).collect();
        say(&format!(
            "{} given where it comes from, do not hold here and are asked for again: {}{}",
            counted(grants.len() as u64, "permission"),
            given.join(", "),
            if grants.len() > given.len() { ", …" } else { "" }
        ));
    }
    let shown = summary.cwd.as_ref().map(|cwd| inert(&cwd.to_string())).unwrap_or_default();
    match &summary.cwd {
        Some(cwd) if cwd.as_path().is_dir() => {
            say(&format!("to go on with it in {shown}: mainstay exec --session {id} \"…\""));
        }
        Some(_) => say(&format!(
            "it worked in {shown}, which is not here; to go on with it: mainstay exec --session {id} --cwd DIR \"…\""
        )),
        None => {}
    }
    Ok(())
}

fn opened(path: &Path) -> Result<File, CliError> {
    let unreadable = |why: &dyn std::fmt::Display| {
        CliError::new(USAGE, format!("cannot read {}: {why}", path.display()))
            .hint("name a file that `mainstay export` wrote")
    };
    let file = File::open(path).map_err(|error| unreadable(&error))?;
    let is_dir = file.metadata().is_ok_and(|metadata| metadata.is_dir());
    if is_dir { Err(unreadable(&"it is a directory")) } else { Ok(file) }
}

fn not_imported(error: ImportError) -> CliError {
    match error {
        ImportError::NoSession(error) => unreadable(error),
        error @ ImportError::Exists { .. } => CliError::new(USAGE, error.to_string())
            .hint("it was left as it is; `mainstay sessions rm` moves it away"),
        error @ ImportError::Newer { .. } => CliError::new(USAGE, error.to_string()).hint("update mainstay"),
        error @ ImportError::Invalid { .. } => CliError::new(1, error.to_string())
            .hint("nothing was imported; export it again, or copy the file again"),
        error @ ImportError::Write(_) => {
            CliError::new(1, error.to_string()).hint("free some space or check who may write there")
        }
    }
}
