//! Doubles for tests: scripted and push-driven models, a wire server, a temporary workspace, a fixed clock.

pub mod wire;
