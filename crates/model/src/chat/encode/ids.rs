//! The ids of calls as they are sent.
//!
//! Providers' ids repeat, are missing, or hold characters that another provider refuses. Within a request each call has
//! an id of its own that is a function of what stands before it, so that it never changes while the request grows; a call
//! and its result carry the same one. A provider's own id is kept where it can be.

use std::collections::HashSet;

/// Gives out ids in the order of the calls.
pub(super) struct CallIds {
    /// Whether an id must be nine letters and digits.
    is_short: bool,
    used: HashSet<String>,
    calls: u64,
    answer: Vec<String>,
}

impl CallIds {
    pub(super) fn new(is_short: bool) -> Self {
        CallIds { is_short, used: HashSet::new(), calls: 0, answer: Vec::new() }
    }

    /// Begins an answer, whose calls are counted from 0.
    pub(super) fn begin_answer(&mut self) {
        self.answer.clear();
    }

    /// The id of the answer's next call, which the provider called `own`.
    pub(super) fn assign(&mut self, own: &str) -> String {
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
    pub(super) fn of_call(&self, call: u32) -> Option<&str> {
        self.answer.get(usize::try_from(call).ok()?).map(String::as_str)
    }

    fn is_sendable(&self, id: &str) -> bool {
        if self.is_short {
            return id.len() == 9 && id.bytes().all(|b| b.is_ascii_alphanumeric());
        }
        (1..=64).contains(&id.len())
            && id.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
    }
}
