//! Doubles for tests: scripted and push-driven models, tools a test holds in its hand, a wire server, a temporary
//! workspace, a clock that stands still.

pub mod clock;
pub mod models;
pub mod speech;
pub mod tools;
pub mod wire;
pub mod workspace;
