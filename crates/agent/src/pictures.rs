//! The bytes of the images that requests show, in base 64, each read and written out once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use mainstay_session::log::Spill;
use mainstay_session::message::{ContentHash, Image};

/// Images of one session by their hash; none where one could not be read.
#[derive(Clone)]
pub struct SessionPictures {
    spill: Spill,
    read: Arc<Mutex<HashMap<ContentHash, Option<Arc<str>>>>>,
}

impl SessionPictures {
    /// Looks in a session's spill, and reads nothing yet.
    pub fn new(spill: Spill) -> Self {
        SessionPictures { spill, read: Arc::default() }
    }

    /// The bytes of an image. What could not be read once is not tried again: a request only grows.
    pub fn find(&self, image: &Image) -> Option<Arc<str>> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let load = || Some(BASE64_STANDARD.encode(self.spill.load(&image.hash).ok()?).into());
        read.entry(image.hash.clone()).or_insert_with(load).clone()
    }
}
