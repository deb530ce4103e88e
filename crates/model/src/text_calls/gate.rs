//! What of an answer may be shown while it streams: all but what may turn out to be a call.

use super::markup::{marker_from, may_become_calls};
use crate::settings::TextCallRule;

/// Holds back what may be a call written as text, until it is known.
#[derive(Debug)]
pub struct Gate {
    rule: TextCallRule,
    held: String,
    /// Whether something was shown, so that what comes later is not the whole answer.
    any_shown: bool,
    /// From what length on it is looked at again whether it may be a call as a whole.
    looked_at_from: usize,
}

impl Gate {
    /// Begins an answer.
    pub fn new(rule: TextCallRule) -> Self {
        Gate { rule, held: String::new(), any_shown: false, looked_at_from: 0 }
    }

    /// Takes the next piece, and gives what can be shown.
    pub fn push(&mut self, piece: &str) -> Option<String> {
        self.held.push_str(piece);
        let shown = if self.rule == TextCallRule::Ignore { self.held.len() } else { self.showable() };
        let held = self.held.split_off(shown);
        let shown = std::mem::replace(&mut self.held, held);
        self.any_shown |= !shown.trim().is_empty();
        Some(shown).filter(|shown| !shown.is_empty())
    }

    /// What was held back, for an answer that turned out to be no call.
    pub fn finish(self) -> Option<String> {
        Some(self.held).filter(|held| !held.is_empty())
    }

    fn showable(&mut self) -> usize {
        // Where text may be calls, an answer that begins like one is held as long as it may be one. The longer it is, the
        // longer it takes to look at.
        let len = self.held.len();
        let may_be_whole = self.rule == TextCallRule::Take
            && !self.any_shown
            && (len < self.looked_at_from || may_become_calls(&self.held));
        if may_be_whole && len >= self.looked_at_from {
            self.looked_at_from = len + len / 8;
        }
        if may_be_whole { 0 } else { marker_from(&self.held).unwrap_or(self.held.len()) }
    }
}
