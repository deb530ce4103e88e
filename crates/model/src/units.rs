//! What a request consists of, and how much of it was sent before.
//!
//! A unit is a piece of the body whose bytes are fixed once sent: a tool, the system text, a content block. Closing
//! brackets belong to no unit, since the next request may have something before them.

use mainstay_session::message::{RequestMark, to_hex};
use sha2::{Digest, Sha256};

/// How much of a hash is kept: enough to tell requests of one session apart by accident, in every line of a log.
const HASH_BYTES: usize = 8;

/// Hashes units as they are written.
pub struct Units<'a> {
    hash: Sha256,
    count: u32,
    previous: Option<&'a RequestMark>,
    shared: u32,
    kept: Option<&'a mut Vec<Vec<u8>>>,
}

impl<'a> Units<'a> {
    /// Begins a request that follows the `previous` one.
    pub fn new(previous: Option<&'a RequestMark>) -> Self {
        Units { hash: Sha256::new(), count: 0, previous, shared: 0, kept: None }
    }

    /// Begins a request that follows none, and keeps the bytes of its units.
    pub fn keeping(kept: &'a mut Vec<Vec<u8>>) -> Self {
        Units { kept: Some(kept), ..Units::new(None) }
    }

    /// Adds the next unit.
    pub fn push(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
        self.count += 1;
        if let Some(kept) = &mut self.kept {
            kept.push(bytes.to_vec());
        }
        if let Some(previous) = self.previous.filter(|previous| previous.units == self.count)
            && to_hex(&self.hash.clone().finalize()).starts_with(&previous.hash)
        {
            self.shared = self.count;
        }
    }

    /// How many units there are so far.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Ends the request, whose body has `bytes` bytes.
    ///
    /// `shared` is the number of units of the previous request if this one opens with all of them. Otherwise it is 0:
    /// one hash cannot tell how many of them are the same.
    pub fn finish(self, bytes: usize) -> RequestMark {
        RequestMark {
            units: self.count,
            hash: to_hex(&self.hash.finalize()[..HASH_BYTES]),
            shared: self.shared,
            bytes: bytes as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(units: &[&str], previous: Option<&RequestMark>) -> RequestMark {
        let mut hashed = Units::new(previous);
        units.iter().for_each(|unit| hashed.push(unit.as_bytes()));
        hashed.finish(0)
    }

    #[test]
    fn units_are_kept_where_that_is_asked_for() {
        let mut kept = Vec::new();
        let mut units = Units::keeping(&mut kept);
        units.push(b"tool");
        units.push(b"system");
        assert_eq!(units.finish(0), mark(&["tool", "system"], None));
        assert_eq!(kept, [b"tool".to_vec(), b"system".to_vec()]);
    }

    #[test]
    fn a_request_that_grows_shares_all_units_of_the_one_before() {
        let first = mark(&["tool", "system", "hello"], None);
        assert_eq!((first.units, first.shared), (3, 0));
        assert_eq!(mark(&["tool", "system", "hello", "more"], Some(&first)).shared, 3);
        assert_eq!(mark(&["tool", "system", "hello"], Some(&first)).shared, 3);
        assert_eq!(mark(&["tool", "SYSTEM", "hello", "more"], Some(&first)).shared, 0);
        assert_eq!(mark(&["tool", "system"], Some(&first)).shared, 0);
    }
}
