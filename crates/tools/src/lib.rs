//! Runs one tool call in a workspace and says what it touched.
//!
//! A tool never changes the session's state: the plan in view and the hashes of what was read are handed in, and what
//! it did comes back as a [`ToolOutput`]. It knows neither the model nor other tools.

pub mod tool;

pub use tool::{CallContext, StartedProcess, Tool, ToolError, ToolKind, ToolOutput};
