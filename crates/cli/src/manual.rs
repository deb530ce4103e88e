//! `mainstay completions` and `mainstay man`: what shells and `man` know of the command line, from its one definition.

use std::path::Path;

use clap_complete::Shell;

use crate::args::definition;
use crate::error::{CliError, USAGE};
use crate::output::{out, out_bytes};

/// Prints the completion script of a shell.
pub(crate) fn completions(shell: Shell) {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut definition(), "mainstay", &mut script);
    out_bytes(&script);
}

/// Writes a page for the program and for each of its commands into a directory.
///
/// # Errors
///
/// If one cannot be written (exit code 2).
pub(crate) fn write(directory: &Path) -> Result<(), CliError> {
    clap_mangen::generate_to(definition(), directory).map_err(|error| {
        CliError::new(USAGE, format!("cannot write pages to {}: {error}", directory.display()))
            .hint("name a directory that is there and yours to write")
    })?;
    out(&format!("the pages are in {}: mainstay.1, and one for each command", directory.display()));
    Ok(())
}
