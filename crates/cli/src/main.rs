//! The `mainstay` binary.
#![allow(dead_code)]

mod error;
mod config;
mod args;
mod instructions;
mod settings;

fn main() {}
