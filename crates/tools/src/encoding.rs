//! How a file's bytes are text, so that a change keeps them so.
//!
//! Work is done on bytes that are UTF-8 where the file is Unicode, and on the file's own bytes where it is not. Both ways
//! lose nothing: what is not touched comes out as it went in.

use std::borrow::Cow;

/// How a file's bytes are text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// UTF-8, ASCII included.
    Utf8,
    /// UTF-8 behind a byte order mark.
    Utf8Marked,
    /// UTF-16 behind a byte order mark.
    Utf16 {
        /// Whether the higher byte comes first.
        big_endian: bool,
    },
    /// Some other encoding of text; which one cannot be known.
    Other,
    /// No text.
    Binary,
}

const UTF8_MARK: &[u8] = b"\xEF\xBB\xBF";

impl Encoding {
    /// Tells the encoding of a file.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        match bytes {
            [0xFF, 0xFE, ..] if from_utf16(bytes, false).is_some() => Encoding::Utf16 { big_endian: false },
            [0xFE, 0xFF, ..] if from_utf16(bytes, true).is_some() => Encoding::Utf16 { big_endian: true },
            _ if bytes.contains(&0) => Encoding::Binary,
            _ if std::str::from_utf8(bytes).is_err() => Encoding::Other,
            _ if bytes.starts_with(UTF8_MARK) => Encoding::Utf8Marked,
            _ => Encoding::Utf8,
        }
    }

    /// The bytes to work on: without a mark, UTF-16 as UTF-8.
    pub(crate) fn decode(self, bytes: &[u8]) -> Cow<'_, [u8]> {
        match self {
            Encoding::Utf8 | Encoding::Other | Encoding::Binary => Cow::Borrowed(bytes),
            Encoding::Utf8Marked => Cow::Borrowed(bytes.strip_prefix(UTF8_MARK).unwrap_or(bytes)),
            Encoding::Utf16 { big_endian } => {
                Cow::Owned(from_utf16(bytes, big_endian).unwrap_or_default().into_bytes())
            }
        }
    }

    /// The bytes for the file.
    pub(crate) fn encode(self, work: &[u8]) -> Vec<u8> {
        match self {
            Encoding::Utf8 | Encoding::Other | Encoding::Binary => work.to_vec(),
            Encoding::Utf8Marked => [UTF8_MARK, work].concat(),
            Encoding::Utf16 { big_endian } => {
                let to_bytes = if big_endian { u16::to_be_bytes } else { u16::to_le_bytes };
                let text = String::from_utf8_lossy(work);
                std::iter::once(0xFEFF).chain(text.encode_utf16()).flat_map(to_bytes).collect()
            }
        }
    }
}

fn from_utf16(bytes: &[u8], big_endian: bool) -> Option<String> {
    let (pairs, []) = bytes[2..].as_chunks::<2>() else { return None };
    let from_bytes = if big_endian { u16::from_be_bytes } else { u16::from_le_bytes };
    let text: String =
        char::decode_utf16(pairs.iter().map(|pair| from_bytes(*pair))).collect::<Result<_, _>>().ok()?;
    // A zero character is no text; UTF-32 begins like UTF-16 and is full of them.
    (!text.contains('\0')).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// W01: decoding and encoding again changes no byte. E02, E03
    #[test]
    fn every_encoding_comes_out_as_it_went_in() {
        let cases: [(&[u8], Encoding); 8] = [
            (b"plain\n", Encoding::Utf8),
            ("é\n".as_bytes(), Encoding::Utf8),
            (b"\xEF\xBB\xBFhello\n", Encoding::Utf8Marked),
            (b"\xFF\xFEh\0i\0=\xd8\x00\xde", Encoding::Utf16 { big_endian: false }),
            (b"\xFE\xFF\0h\0i", Encoding::Utf16 { big_endian: true }),
            (b"// caf\xE9\n", Encoding::Other),
            (b"// \xD6\xD0\xCE\xC4\n", Encoding::Other),
            (b"\x7fELF\0\0", Encoding::Binary),
        ];
        for (bytes, encoding) in cases {
            assert_eq!(Encoding::of(bytes), encoding, "{bytes:?}");
            assert_eq!(encoding.encode(&encoding.decode(bytes)), bytes);
        }
        for bytes in [&b"\xFF\xFEh\0i"[..], b"\xFF\xFE\0\0h\0\0\0", b"\0\0\xFE\xFF\0\0\0h"] {
            assert_eq!(Encoding::of(bytes), Encoding::Binary, "{bytes:?}");
        }
    }
}
