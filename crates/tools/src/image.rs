//! Images as models take them: PNG, JPEG, GIF and WebP, told by what they hold and not by their names.
//!
//! An image that a provider refuses would be refused with every later request too, since what was sent once stays. So
//! what comes through here is whole as far as its structure tells, and keeps to the strictest limits known. Pixels are
//! not decoded.

/// The most bytes of an image. Anthropic takes 5 MB of an image in base 64, which is a third longer than the image.
pub const IMAGE_BYTES: usize = 5 * 1024 * 1024 / 4 * 3;

/// The most pixels of an image's width and of its height. Anthropic's limit for one of more than 20 images in a
/// request (8,000 otherwise), and a session comes to have as many.
pub const IMAGE_SIDE: usize = 2_000;

/// An image that models take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageInfo {
    /// What kind it is.
    pub kind: ImageKind,
    /// Its width in pixels.
    pub width: usize,
    /// Its height in pixels.
    pub height: usize,
}

/// The kinds of images that models take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageKind {
    /// Portable Network Graphics.
    Png,
    /// What JPEG files hold.
    Jpeg,
    /// Graphics Interchange Format.
    Gif,
    /// WebP.
    Webp,
}

/// Why bytes are no image for a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageFault {
    /// They begin like no image of a known kind.
    #[error("it is no PNG, JPEG, GIF or WebP image")]
    NotAnImage,
    /// They begin like one but are not whole.
    #[error("the {} image is damaged or cut off", .0.name())]
    Damaged(ImageKind),
    /// They are more than [`IMAGE_BYTES`].
    #[error("the image has {bytes} bytes, and models take {IMAGE_BYTES}; make a smaller copy with a command")]
    TooManyBytes {
        /// How many they are.
        bytes: usize,
    },
    /// A side has more than [`IMAGE_SIDE`] pixels.
    #[error(
        "the image has {width}x{height} pixels, and models take {IMAGE_SIDE}x{IMAGE_SIDE}; make a smaller copy with a command"
    )]
    TooManyPixels {
        /// Its width.
        width: usize,
        /// Its height.
        height: usize,
    },
}

impl ImageKind {
    /// The kind of an image by its first bytes, of which 12 are enough.
    pub fn of(start: &[u8]) -> Option<Self> {
        match start {
            [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1A, b'\n', ..] => Some(ImageKind::Png),
            [0xFF, 0xD8, 0xFF, ..] => Some(ImageKind::Jpeg),
            [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some(ImageKind::Gif),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some(ImageKind::Webp),
            _ => None,
        }
    }

    /// Its name for people.
    pub fn name(self) -> &'static str {
        match self {
            ImageKind::Png => "PNG",
            ImageKind::Jpeg => "JPEG",
            ImageKind::Gif => "GIF",
            ImageKind::Webp => "WebP",
        }
    }

    /// Its media type, as `image/png`.
    pub fn media_type(self) -> &'static str {
        match self {
            ImageKind::Png => "image/png",
            ImageKind::Jpeg => "image/jpeg",
            ImageKind::Gif => "image/gif",
            ImageKind::Webp => "image/webp",
        }
    }

    fn is_whole(self, bytes: &[u8]) -> bool {
        match self {
            ImageKind::Png => png_is_whole(bytes).is_some(),
            ImageKind::Jpeg => jpeg_is_whole(bytes).is_some(),
            ImageKind::Gif => gif_is_whole(bytes).is_some(),
            ImageKind::Webp => webp_is_whole(bytes).is_some(),
        }
    }
}

/// Says what image these bytes are, if models take it.
///
/// # Errors
///
/// They are no image, not whole, or too large in bytes or pixels.
pub fn inspect(bytes: &[u8]) -> Result<ImageInfo, ImageFault> {
    let kind = ImageKind::of(bytes).ok_or(ImageFault::NotAnImage)?;
    if bytes.len() > IMAGE_BYTES {
        return Err(ImageFault::TooManyBytes { bytes: bytes.len() });
    }
    let size = imagesize::blob_size(bytes).map_err(|_| ImageFault::Damaged(kind))?;
    let (width, height) = (size.width, size.height);
    if width == 0 || height == 0 || !kind.is_whole(bytes) {
        return Err(ImageFault::Damaged(kind));
    }
    if width.max(height) > IMAGE_SIDE {
        return Err(ImageFault::TooManyPixels { width, height });
    }
    Ok(ImageInfo { kind, width, height })
}

/// Chunks with right checksums from the header to the end, image data among them (PNG specification, chapter 5).
fn png_is_whole(bytes: &[u8]) -> Option<()> {
    let mut rest = bytes.get(8..).filter(|chunks| chunks.get(4..8) == Some(b"IHDR"))?;
    let mut has_data = false;
    loop {
        let (length, after) = rest.split_first_chunk::<4>()?;
        let (body, after) =
            after.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?.checked_add(4)?)?;
        let (checksum, after) = after.split_first_chunk::<4>()?;
        if crc32fast::hash(body) != u32::from_be_bytes(*checksum) {
            return None;
        }
        match &body[..4] {
            b"IDAT" => has_data = true,
            b"IEND" => return has_data.then_some(()),
            _ => {}
        }
        rest = after;
    }
}

/// Segments up to the scan, and an end behind it (ITU-T T.81, annex B).
fn jpeg_is_whole(bytes: &[u8]) -> Option<()> {
    let mut rest = bytes.get(2..)?;
    loop {
        let (marker, after) = rest.split_first_chunk::<2>()?;
        match marker {
            // A byte of padding before a marker.
            [0xFF, 0xFF] => rest = rest.get(1..)?,
            [0xFF, 0xDA] => return after.windows(2).rposition(|pair| pair == [0xFF, 0xD9]).map(|_| ()),
            [0xFF, _] => {
                let length = after.first_chunk::<2>()?;
                rest = after.get(usize::from(u16::from_be_bytes(*length))..)?;
            }
            _ => return None,
        }
    }
}

/// Blocks up to the trailer, an image among them (GIF89a specification).
fn gif_is_whole(bytes: &[u8]) -> Option<()> {
    let table = |flags: u8| if flags & 0x80 == 0 { 0 } else { 3 << ((flags & 7) + 1) };
    let mut rest = bytes.get(13 + table(*bytes.get(10)?)..)?;
    let mut has_image = false;
    loop {
        let (kind, after) = rest.split_first()?;
        rest = match kind {
            0x21 => after_sub_blocks(after.get(1..)?)?,
            0x2C => {
                has_image = true;
                after_sub_blocks(after.get(10 + table(*after.get(8)?)..)?)?
            }
            0x3B => return has_image.then_some(()),
            _ => return None,
        };
    }
}

fn after_sub_blocks(mut rest: &[u8]) -> Option<&[u8]> {
    loop {
        let (length, after) = rest.split_first()?;
        rest = after.get(usize::from(*length)..)?;
        if *length == 0 {
            return Some(rest);
        }
    }
}

/// As long as its container says (RFC 9649, section 2.3).
fn webp_is_whole(bytes: &[u8]) -> Option<()> {
    let length = u32::from_le_bytes(*bytes.get(4..)?.first_chunk::<4>()?);
    (usize::try_from(length).ok()?.checked_add(8)? <= bytes.len() && bytes.len() > 20).then_some(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The smallest image of each kind, 1 by 1 pixel but for the PNG's given size.
    fn samples() -> Vec<(ImageKind, Vec<u8>)> {
        let gif =
            b"GIF89a\x01\0\x01\0\x80\0\0\0\0\0\xff\xff\xff,\0\0\0\0\x01\0\x01\0\0\x02\x02D\x01\0;".to_vec();
        let jpeg = [
            &b"\xff\xd8\xff\xe0\0\x10JFIF\0\x01\x01\0\0\x01\0\x01\0\0"[..],
            b"\xff\xc0\0\x0b\x08\0\x01\0\x01\x01\x01\x11\0",
            b"\xff\xda\0\x08\x01\x01\0\0\x3f\0\x37\xff\xd9",
        ]
        .concat();
        let webp =
            b"RIFF\x1a\0\0\0WEBPVP8L\x0d\0\0\0\x2f\0\0\0\x10\x07\x10\x11\x11\x88\x88\xfe\x07\0".to_vec();
        vec![
            (ImageKind::Png, png(1, 1)),
            (ImageKind::Jpeg, jpeg),
            (ImageKind::Gif, gif),
            (ImageKind::Webp, webp),
        ]
    }

    fn png(width: u32, height: u32) -> Vec<u8> {
        let mut bytes = b"\x89PNG\r\n\x1a\n".to_vec();
        let header = [&width.to_be_bytes()[..], &height.to_be_bytes(), b"\x08\x02\0\0\0"].concat();
        for (kind, data) in [(b"IHDR", &header[..]), (b"IDAT", b"\x78\x9c\x63\0"), (b"IEND", b"")] {
            let body = [kind, data].concat();
            bytes.extend(u32::try_from(data.len()).unwrap().to_be_bytes());
            bytes.extend(&body);
            bytes.extend(crc32fast::hash(&body).to_be_bytes());
        }
        bytes
    }

    #[test]
    fn whole_images_are_taken_and_cut_ones_are_not() {
        for (kind, bytes) in samples() {
            assert_eq!(inspect(&bytes), Ok(ImageInfo { kind, width: 1, height: 1 }));
            for cut in 0..bytes.len() {
                let expected = if cut < 12 { ImageKind::of(&bytes[..cut]) } else { Some(kind) };
                let fault = expected.map_or(ImageFault::NotAnImage, ImageFault::Damaged);
                assert_eq!(inspect(&bytes[..cut]), Err(fault), "{kind:?} cut at {cut}");
            }
        }
        let mut flipped = png(1, 1);
        flipped[45] ^= 1;
        assert_eq!(inspect(&flipped), Err(ImageFault::Damaged(ImageKind::Png)));
    }

    #[test]
    fn images_beyond_the_limits_are_refused_with_what_to_do() {
        assert!(inspect(&png(2_000, 2_000)).is_ok());
        assert_eq!(
            inspect(&png(2_560, 1_440)).unwrap_err().to_string(),
            "the image has 2560x1440 pixels, and models take 2000x2000; make a smaller copy with a command"
        );
        let mut long = png(1, 1);
        long.resize(IMAGE_BYTES, 0);
        assert!(inspect(&long).is_ok());
        long.push(0);
        assert_eq!(inspect(&long), Err(ImageFault::TooManyBytes { bytes: 3_932_161 }));
        assert_eq!(inspect(&png(0, 5)), Err(ImageFault::Damaged(ImageKind::Png)));
    }

    proptest! {
        #[test]
        fn damage_never_panics(which in 0usize..4, at in any::<prop::sample::Index>(), byte in any::<u8>()) {
            let (_, mut bytes) = samples().swap_remove(which);
            let at = at.index(bytes.len());
            bytes[at] = byte;
            let _ = inspect(&bytes);
        }
    }
}
