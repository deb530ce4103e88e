//! Named places at which a test makes the disk fail or the process die.
//!
//! Each place where something is written, made durable, renamed or started calls [`pass`] or [`write`] with its name. Without
//! the feature `faults` both are empty and inlined, so nothing of them is in the program; with it they do nothing until
//! [`arm`] has read an order. What an order can say stands in `docs/durability.md`.

#[cfg(feature = "faults")]
mod armed;

#[cfg(feature = "faults")]
pub use armed::{arm, pass, write};
#[cfg(not(feature = "faults"))]
pub use unarmed::{arm, pass, write};

/// What is left of it in a program that is shipped: nothing.
#[cfg(not(feature = "faults"))]
mod unarmed {
    use std::ffi::OsString;
    use std::io;

    /// Does nothing.
    #[inline(always)]
    pub fn arm(_environment: impl Fn(&str) -> Option<OsString>) {}

    /// Succeeds.
    ///
    /// # Errors
    ///
    /// Never.
    #[inline(always)]
    pub fn pass(_place: &str) -> io::Result<()> {
        Ok(())
    }

    /// Writes the bytes, in one piece.
    ///
    /// # Errors
    ///
    /// Those of `write`.
    #[inline(always)]
    pub fn write(
        _place: &str,
        bytes: &[u8],
        mut write: impl FnMut(usize, &[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        write(0, bytes)
    }
}
