//! Drives the turns of a session until a stop reason.
