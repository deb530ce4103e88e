//! The fold.

use serde::{Deserialize, Serialize};

/// Placeholder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {}
