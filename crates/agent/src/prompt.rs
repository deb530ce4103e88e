//! What the user says to an agent.

use mainstay_session::log::{Spill, SpillError};
use mainstay_session::message::Image;
use mainstay_tools::image::{ImageFault, ImageKind, inspect};

/// What the user says: a text, and images that the model sees behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prompt {
    text: String,
    images: Vec<Picture>,
}

/// An image that may enter a session.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Picture {
    kind: ImageKind,
    bytes: Vec<u8>,
}

impl Prompt {
    /// The same prompt with one more image: the bytes of a PNG, JPEG, GIF or WebP file.
    ///
    /// # Errors
    ///
    /// If they are no such image, not whole, or larger than models take.
    pub fn image(mut self, bytes: Vec<u8>) -> Result<Self, ImageFault> {
        let kind = inspect(&bytes)?.kind;
        self.images.push(Picture { kind, bytes });
        Ok(self)
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Keeps the images in a session, so that an entry can name them.
    pub(crate) fn store(self, spill: &Spill) -> Result<(String, Vec<Image>), SpillError> {
        let store = |picture: Picture| {
            let hash = spill.store(&picture.bytes)?;
            let media_type = picture.kind.media_type().to_owned();
            Ok(Image { media_type, hash, bytes: picture.bytes.len() as u64 })
        };
        Ok((self.text, self.images.into_iter().map(store).collect::<Result<_, _>>()?))
    }
}

impl From<String> for Prompt {
    fn from(text: String) -> Self {
        Prompt { text, images: Vec::new() }
    }
}

impl From<&String> for Prompt {
    fn from(text: &String) -> Self {
        Prompt::from(text.clone())
    }
}

impl From<&str> for Prompt {
    fn from(text: &str) -> Self {
        Prompt::from(text.to_owned())
    }
}
