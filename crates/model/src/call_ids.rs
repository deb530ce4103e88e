//! The ids of calls as they are sent.
//!
//! Providers' ids repeat, are missing, or hold characters that another provider refuses. Within a request each call has
//! an id of its own that is a function of what stands before it, so that it never changes while the request grows; a call
//! and its result carry the same one. A provider's own id is kept where it can be.

use std::collections::HashSet;

/// Which ids a provider takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IdRule {
    /// Up to 64 letters, digits, `_` and `-`.
    Word,
    /// Up to 40 of them: "Expected a string with maximum length 40" is what OpenAI says over Chat Completions
    /// (<https://github.com/microsoft/autogen/issues/6377>).
    Forty,
    /// Nine letters and digits, which Mistral demands.
    Nine,
}

/// Gives out ids in the order of the calls.
pub(crate) struct CallIds {
    rule: IdRule,
    used: HashSet<String>,
    calls: u64,
    answer: Vec<String>,
}

impl CallIds {
    pub(crate) fn new(rule: IdRule) -> Self {
        CallIds { rule, used: HashSet::new(), calls: 0, answer: Vec::new() }
    }

    /// Begins an answer, whose calls are counted from 0.
    pub(crate) fn begin_answer(&mut self) {
        self.answer.clear();
    }

    /// The id of the answer's next call, which the provider called `own`.
    pub(crate) fn assign(&mut self, own: &str) -> String {
        self.calls += 1;
        let id = if self.is_sendable(own) && !self.used.contains(own) {
            own.to_owned()
        } else {
            // Nine letters and digits please every provider. A provider's own id may look the same: take the next.
            let derived = (self.calls..).map(|n| format!("c{n:08}")).find(|id| !self.used.contains(id));
            derived.unwrap_or_default()
        };
        self.used.insert(id.clone());
        self.answer.push(id.clone());
        id
    }

    /// The id of a call of the answer that began last.
    pub(crate) fn of_call(&self, call: u32) -> Option<&str> {
        self.answer.get(usize::try_from(call).ok()?).map(String::as_str)
    }

    fn is_sendable(&self, id: &str) -> bool {
        match self.rule {
            IdRule::Nine => id.len() == 9 && id.bytes().all(|b| b.is_ascii_alphanumeric()),
            IdRule::Forty => is_word(id, 40),
            IdRule::Word => is_word(id, 64),
        }
    }
}

fn is_word(id: &str, longest: usize) -> bool {
    (1..=longest).contains(&id.len())
        && id.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
}
