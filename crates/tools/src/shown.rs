//! How names of files are written for the model.
//!
//! Names are bytes, texts are not. Each byte that is not UTF-8 and each byte of a control character is `\xNN`, and so is
//! the backslash of a name that holds such an escape itself: every name has one such form, and the form names exactly
//! one file.

use std::os::unix::ffi::OsStrExt;

use mainstay_session::message::FilePath;

/// An absolute path in this form.
pub(crate) fn shown_file(path: &FilePath) -> String {
    shown_name(path.as_path().as_os_str().as_bytes())
}

/// The bytes of a name, or of a path, in this form.
pub(crate) fn shown_name(bytes: &[u8]) -> String {
    escaped(bytes, |c| !c.is_control())
}

/// The same form with every character outside of ASCII escaped, so that names that look the same can be told apart.
pub(crate) fn spelled_out(bytes: &[u8]) -> String {
    escaped(bytes, |c| c.is_ascii() && !c.is_control())
}

fn escaped(bytes: &[u8], is_plain: impl Fn(char) -> bool) -> String {
    let mut shown = String::with_capacity(bytes.len());
    let escape = |shown: &mut String, bytes: &[u8]| {
        bytes.iter().for_each(|byte| shown.push_str(&format!("\\x{byte:02X}")));
    };
    let mut at = 0;
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            let spelling = &bytes[at..at + c.len_utf8()];
            at += c.len_utf8();
            if is_plain(c) && (c != '\\' || escape_at(&bytes[at - 1..]).is_none()) {
                shown.push(c);
            } else {
                escape(&mut shown, spelling);
            }
        }
        escape(&mut shown, chunk.invalid());
        at += chunk.invalid().len();
    }
    shown
}

/// The bytes that a shown form stands for; none if it holds no escape and stands for itself.
pub(crate) fn named_by(shown: &str) -> Option<Vec<u8>> {
    let shown = shown.as_bytes();
    let mut named = Vec::with_capacity(shown.len());
    let mut at = 0;
    while at < shown.len() {
        match escape_at(&shown[at..]) {
            Some(byte) => {
                named.push(byte);
                at += 4;
            }
            None => {
                named.push(shown[at]);
                at += 1;
            }
        }
    }
    (named.len() < shown.len()).then_some(named)
}

/// The byte that is written as `\xNN` at the start of a text.
fn escape_at(text: &[u8]) -> Option<u8> {
    let digits = text.strip_prefix(b"\\x")?.get(..2)?;
    let digit = |at: usize| char::from(digits[at]).to_digit(16);
    u8::try_from(digit(0)? * 16 + digit(1)?).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// E14
    #[test]
    fn names_are_shown_so_that_each_names_one_file() {
        for (name, shown) in [
            (&b"a\xffz\n.txt"[..], "a\\xFFz\\x0A.txt"),
            (b"a\\xffz", "a\\x5Cxffz"),
            (b"a\\xz \\", "a\\xz \\"),
            ("日本\u{9b}é".as_bytes(), "日本\\xC2\\x9Bé"),
        ] {
            assert_eq!(shown_name(name), shown);
        }
    }

    proptest! {
        /// E14: whatever the bytes of a name are, its form leads back to them.
        #[test]
        fn a_shown_name_leads_back(name in prop::collection::vec(prop_oneof![
            any::<u8>(), Just(b'\\'), Just(b'x'), Just(b'5'), Just(b'C')
        ], 0..12)) {
            for shown in [shown_name(&name), spelled_out(&name)] {
                prop_assert_eq!(named_by(&shown).unwrap_or(shown.into_bytes()), name.clone());
            }
        }
    }
}
