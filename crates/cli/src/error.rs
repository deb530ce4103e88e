//! What the program says when it cannot go on.
//!
//! One type at the rim: an exit code, one line that says what is wrong and where, and lines that say what to do.
//! Libraries below return their own errors; only this crate decides on codes.

use std::fmt;

use crate::output::inert_lines;

/// Exit code of a command line that cannot be obeyed: an unknown option, an unusable directory.
pub(crate) const USAGE: u8 = 2;
/// Exit code of a session that cannot go on: no readable header, or an entry that only a newer version knows.
pub(crate) const DAMAGED: u8 = 65;
/// Exit code for a missing or unusable API key.
pub(crate) const CREDENTIALS: u8 = 77;
/// Exit code for a configuration that cannot be used.
pub(crate) const CONFIGURATION: u8 = 78;

/// An end before or outside of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CliError {
    /// The exit code.
    pub(crate) code: u8,
    /// What is wrong and where, lower-case, without a full stop; may have more than one line.
    pub(crate) message: String,
    /// What to do, a line each.
    pub(crate) hints: Vec<String>,
}

impl CliError {
    /// An error without hints.
    pub(crate) fn new(code: u8, message: impl Into<String>) -> Self {
        CliError { code, message: message.into(), hints: Vec::new() }
    }

    /// An error in the configuration.
    pub(crate) fn configuration(message: impl Into<String>) -> Self {
        CliError::new(CONFIGURATION, message)
    }

    /// The same error with one more hint.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }
}

/// Reads as it is printed: `error: …`, then the hints, indented. Both may quote what others wrote, so neither can steer a
/// terminal.
impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", inert_lines(&self.message))?;
        self.hints.iter().try_for_each(|hint| write!(f, "\n  {}", inert_lines(hint)))
    }
}

impl std::error::Error for CliError {}
