//! Cache anchors: where the provider shall remember a request, and look for what it remembers.
//!
//! An anchor on a block makes the provider keep everything up to it, and lets it find what an earlier request kept there or
//! at most 20 blocks before. There may be four, none on thinking or on a blank text
//! (<https://platform.claude.com/docs/en/build-with-claude/prompt-caching>). Two are fixed: the last tool and the system
//! text, which all sessions share. One is at the end. One is where the request before had its end, so that what was kept is
//! found however long the step in between was; a request that opens with no earlier one has it one block before the end, so
//! that another session in the same place finds the opening.
//!
//! Anchors are no part of the units: moving one changes nothing that the provider caches.

use crate::settings::ModelSettings;

const ANCHOR: &str = ",\"cache_control\":{\"type\":\"ephemeral\"}";

/// Collects the places of anchors while a request is written.
pub(super) struct Anchors {
    is_off: bool,
    fixed: Vec<usize>,
    offered: Vec<Place>,
}

/// A block that can have an anchor.
#[derive(Clone, Copy)]
struct Place {
    /// How many units end with it.
    units: u32,
    /// Where in the body its closing bracket is.
    at: usize,
}

impl Anchors {
    /// Begins a request. A `cache_control` among the settings' further fields takes the place of all anchors.
    pub(super) fn new(settings: &ModelSettings) -> Self {
        let is_off = settings.extra_body.contains_key("cache_control");
        Anchors { is_off, fixed: Vec::new(), offered: Vec::new() }
    }

    /// What was written last has an anchor.
    pub(super) fn fix(&mut self, body: &str) {
        self.fixed.push(body.len() - 1);
    }

    /// The block of the conversation that was written last can have an anchor; `units` units end with it.
    pub(super) fn offer(&mut self, body: &str, units: u32) {
        self.offered.push(Place { units, at: body.len() - 1 });
    }

    /// Writes the anchors into the body, whose first `shared` units are those of the request before.
    pub(super) fn write(self, body: &mut String, shared: u32) {
        if self.is_off {
            return;
        }
        let mut places = self.fixed;
        if let Some((last, earlier)) = self.offered.split_last() {
            let is_sent = |place: &&Place| shared == 0 || place.units <= shared;
            places.extend(earlier.iter().rev().find(is_sent).map(|place| place.at));
            places.push(last.at);
        }
        for at in places.into_iter().rev() {
            body.insert_str(at, ANCHOR);
        }
    }
}
