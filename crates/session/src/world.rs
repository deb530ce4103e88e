//! The world in words: the system text, the first blocks that the model reads, and what it is told of changes.
//!
//! The first two are a fixed function of their input and part of projection 1: their bytes open every request, so a change
//! of a single one is a new projection. The system text holds nothing of the world, so that all sessions share it; the
//! opening begins with what most sessions share, the user's own instructions, and ends with what the fewest do. Changes
//! are notices of their own.

use crate::entry::{Instruction, World};
use crate::lookalike::runtime_block;
use crate::message::FilePath;
use crate::plan::one_line;

#[cfg(test)]
mod tests;

/// The system text, but for what depends on the tools on offer.
pub const SYSTEM: &str = include_str!("world/system.md");

const PLAN_GUIDANCE: &str = "Use `todo_write` to plan work of several steps. Keep exactly one item in progress while you \
                             work. Refresh the plan as the work advances, together with other calls.";

/// The system text. How to use the plan is told only where the plan tool is on.
pub fn system_text(plan_tool: bool) -> String {
    let common = SYSTEM.trim_end();
    if plan_tool { format!("{common}\n\n{PLAN_GUIDANCE}") } else { common.to_owned() }
}

/// The first blocks in the user's role, each a text of its own: every instruction file that says something, then the
/// date and the working directory.
pub fn opening(world: &World) -> Vec<String> {
    let instructions = world.instructions.iter().filter(|instruction| !instruction.text.trim().is_empty());
    let mut blocks: Vec<String> =
        instructions.map(|instruction| runtime_block(&instruction_body(instruction))).collect();
    blocks.push(runtime_block(&format!(
        "Date: {}\nWorking directory: {}",
        one_line(&world.date),
        one_line(&world.cwd)
    )));
    blocks
}

/// That the date has changed, to one as `2026-12-01`.
pub fn date_text(date: &str) -> String {
    runtime_block(&format!("The date is now {}.", one_line(date)))
}

/// That the session works in another directory.
pub fn moved_text(cwd: &str) -> String {
    runtime_block(&format!(
        "The working directory is now {}. Relative paths start there; what was said of paths in the directory before \
         holds there only if the files are there.",
        one_line(cwd)
    ))
}

/// That instruction files have changed: those that are new or say something else, and those that are gone.
pub fn instructions_text(changed: &[Instruction], gone: &[FilePath]) -> String {
    let mut parts = Vec::new();
    if !changed.is_empty() {
        parts.push("Instruction files have changed. This replaces what these files said before.".to_owned());
        parts.extend(changed.iter().map(instruction_body));
    }
    if !gone.is_empty() {
        let paths: Vec<String> =
            gone.iter().map(|path| format!("\n- {}", one_line(&path.to_string()))).collect();
        parts.push(format!(
            "These instruction files are gone, and what they said no longer applies:{}",
            paths.concat()
        ));
    }
    runtime_block(&parts.join("\n\n"))
}

/// What is told of a file that changed outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileNews {
    /// It holds something else.
    Changed,
    /// It holds something else, and this is what is different, as a diff.
    Diff(String),
    /// It is gone.
    Gone,
}

/// That files have changed outside since they were read.
pub fn files_text<'a>(files: impl Iterator<Item = (FilePath, &'a FileNews)>) -> String {
    let mut lines = vec!["Changed by something else since you last read or wrote it:".to_owned()];
    for (path, news) in files {
        let path = one_line(&path.to_string());
        lines.push(match news {
            FileNews::Changed => format!("- {path}: read it again before you rely on it"),
            FileNews::Diff(diff) => format!("- {path}:\n{diff}"),
            FileNews::Gone => format!("- {path}: it is gone"),
        });
    }
    runtime_block(&lines.join("\n"))
}

/// An instruction file as it is told: where it lies, and its text.
fn instruction_body(instruction: &Instruction) -> String {
    let path = one_line(&instruction.path.to_string());
    format!("Instructions from {path}:\n\n{}", instruction.text.trim_end())
}
