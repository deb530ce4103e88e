//! A request as it was sent, made once more from the entries before it.
//!
//! A log holds one hash over a request's units and not the request, so the place where two of them part is found by
//! building both anew. Which settings they were encoded with is not in the log either: the few that shape units are tried
//! until the hash fits. Where none fits, another version wrote it, or lines are lost, and nothing is said that might be
//! wrong.

use std::sync::Arc;

use mainstay_agent::SessionPictures;
use mainstay_agent::model::units::Units;
use mainstay_agent::model::{Model, ModelSettings};
use mainstay_agent::session::entry::{Answer, ModelChoice};
use mainstay_agent::session::message::RequestMark;
use mainstay_agent::session::request::request_with;
use mainstay_agent::session::state::SessionState;

use crate::provider;

/// The units of a request, byte for byte, and the settings that they were written with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rebuilt {
    pub(super) units: Vec<Vec<u8>>,
    pub(super) shape: Shape,
}

/// The settings that shape units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    alternate_roles: bool,
    images: bool,
    short_call_ids: bool,
}

impl Shape {
    /// The names of the settings in which two differ.
    pub(super) fn differences(self, other: Shape) -> Vec<&'static str> {
        let pairs = [
            ("alternate_roles", self.alternate_roles != other.alternate_roles),
            ("images", self.images != other.images),
            ("the form of call ids", self.short_call_ids != other.short_call_ids),
        ];
        pairs.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
    }

    /// All of them, those first that a provider of this name has by default.
    fn likely(provider: &str) -> Vec<Shape> {
        let default = ModelSettings::new(provider, "", "", 0);
        let flip = |bits: u8, bit: u8, value: bool| if bits & bit == 0 { value } else { !value };
        (0..8u8)
            .map(|bits| Shape {
                alternate_roles: flip(bits, 1, default.alternate_roles),
                images: flip(bits, 2, default.images),
                short_call_ids: flip(bits, 4, default.short_call_ids),
            })
            .collect()
    }
}

/// Builds the request anew for which `answer` came, from the state before it. None if it comes out otherwise than it was
/// sent.
pub(super) fn rebuild(
    state: &SessionState,
    answer: &Answer,
    mark: &RequestMark,
    pictures: &SessionPictures,
) -> Option<Rebuilt> {
    let choice = state.model.as_ref().filter(|choice| choice.model == answer.made_by(Some(choice)))?;
    let request = request_with(state, &|image| pictures.find(image));
    let provider = choice.model.split('/').next().unwrap_or_default();
    Shape::likely(provider).into_iter().find_map(|shape| {
        let units = encoder(choice, shape)?.units(&request);
        fits(&units, mark).then_some(Rebuilt { units, shape })
    })
}

fn fits(units: &[Vec<u8>], mark: &RequestMark) -> bool {
    let mut hashed = Units::new(None);
    units.iter().for_each(|unit| hashed.push(unit));
    let found = hashed.finish(0);
    // Older logs have longer hashes.
    found.units == mark.units && mark.hash.starts_with(&found.hash)
}

/// A model that encodes as the chosen one does.
fn encoder(choice: &ModelChoice, shape: Shape) -> Option<Arc<dyn Model>> {
    provider::unasked(choice, |settings| ModelSettings {
        alternate_roles: shape.alternate_roles,
        images: shape.images,
        short_call_ids: shape.short_call_ids,
        ..settings
    })
}

/// Where two requests part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parting {
    /// How many units they share.
    pub(super) shared: usize,
    /// The first byte of the next unit that differs, counted from 0; the length of the shorter one where it opens the
    /// longer.
    pub(super) byte: usize,
    /// The same byte counted from the first unit's.
    pub(super) offset: usize,
    /// What stands there in the earlier request, from a little before; empty if it had no more units.
    pub(super) was: String,
    /// What stands there in the later one.
    pub(super) is: String,
}

impl Parting {
    /// Compares two requests. None if the earlier one opens the later one.
    pub(super) fn of(earlier: &[Vec<u8>], later: &[Vec<u8>]) -> Option<Self> {
        let shared = earlier.iter().zip(later).take_while(|(before, after)| before == after).count();
        let was = earlier.get(shared)?;
        let is = later.get(shared).map(Vec::as_slice).unwrap_or_default();
        let byte = was.iter().zip(is).take_while(|(before, after)| before == after).count();
        let offset = earlier[..shared].iter().map(Vec::len).sum::<usize>() + byte;
        Some(Parting { shared, byte, offset, was: around(was, byte), is: around(is, byte) })
    }
}

/// What stands around a byte.
fn around(unit: &[u8], byte: usize) -> String {
    const BEFORE: usize = 24;
    const BEHIND: usize = 40;
    let text = unit.get(byte.saturating_sub(BEFORE)..unit.len().min(byte + BEHIND)).unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn units(texts: &[&str]) -> Vec<Vec<u8>> {
        texts.iter().map(|text| text.as_bytes().to_vec()).collect()
    }

    #[test]
    fn requests_part_at_a_byte_of_a_unit() {
        let parting = |earlier: &[&str], later: &[&str]| {
            let parting = Parting::of(&units(earlier), &units(later))?;
            Some((parting.shared, parting.byte, parting.offset, parting.was, parting.is))
        };
        let text = |text: &str| text.to_owned();
        for (earlier, later, expected) in [
            (&["ab", "cd"][..], &["ab", "cd", "e"][..], None),
            (&["ab", "cd"], &["ab", "cx"], Some((1, 1, 3, text("cd"), text("cx")))),
            (&["ab", "cd"], &["ab"], Some((1, 0, 2, text("cd"), String::new()))),
            (&["ab", "cd"], &["ab", "cde"], Some((1, 2, 4, text("cd"), text("cde")))),
            (&["ab"], &["xb"], Some((0, 0, 0, text("ab"), text("xb")))),
            (&[], &["a"], None),
        ] {
            assert_eq!(parting(earlier, later), expected, "{earlier:?} {later:?}");
        }
    }
}
