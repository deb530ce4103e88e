//! `mainstay completions` and `mainstay man`: what shells and `man` know of the command line, from its one definition.

use std::fs;
use std::io;
use std::path::Path;

use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use crate::args::definition;
use crate::error::{CliError, USAGE};
use crate::output::{out, out_bytes};

/// How examples begin in what stands below the options.
const EXAMPLES: &str = "Examples:";

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
    let mut program = definition().disable_help_subcommand(true);
    program.build();
    write_pages(&program, directory).map_err(|error| {
        CliError::new(USAGE, format!("cannot write pages to {}: {error}", directory.display()))
            .hint("name a directory that is there and yours to write")
    })?;
    out(&format!("the pages are in {}: mainstay.1, and one for each command", directory.display()));
    Ok(())
}

fn write_pages(command: &clap::Command, directory: &Path) -> io::Result<()> {
    let man = Man::new(command.clone());
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    let notes = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    remarks(&notes).to_writer(&mut page)?;
    if command.get_version().is_some() {
        man.render_version_section(&mut page)?;
    }
    fs::write(directory.join(man.get_filename()), page)?;
    command
        .get_subcommands()
        .filter(|below| !below.is_hide_set())
        .try_for_each(|below| write_pages(below, directory))
}

/// What stands below the options in `--help`: examples, which keep their columns, and paragraphs around them.
fn remarks(text: &str) -> Roff {
    let mut page = Roff::new();
    let is_example = |paragraph: &&str| paragraph.starts_with(EXAMPLES);
    let (examples, notes): (Vec<_>, Vec<_>) =
        text.split("\n\n").filter(|paragraph| !paragraph.is_empty()).partition(is_example);
    if !notes.is_empty() {
        page.control("SH", ["NOTES"]);
    }
    for paragraph in notes {
        page.text([roman(paragraph.replace('\n', " "))]);
        page.control("PP", []);
    }
    for lines in examples {
        page.control("SH", ["EXAMPLES"]);
        page.control("nf", []);
        page.text([roman(lines.trim_start_matches(EXAMPLES).trim_start_matches('\n'))]);
        page.control("fi", []);
    }
    page
}
