//! Images that go with a message: what a text names behind an `@`, and what was pasted as a path.
//!
//! An image is attached by being named, so it is always to be seen in the text what goes with it. What is no image file by
//! its name is no matter of this module.

use std::io::ErrorKind;
use std::path::Path;

use mainstay_agent::Prompt;
use mainstay_agent::tools::bounded::regular_file;
use mainstay_agent::tools::image::IMAGE_BYTES;

/// The ends of names of files that models look at.
const ENDS: [&str; 5] = [".png", ".jpg", ".jpeg", ".gif", ".webp"];

/// The image files that a text names behind an `@`, in order. A name with white space stands in quotation marks.
pub(crate) fn named(text: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut rest = text;
    let mut is_begin = true;
    while let Some(c) = rest.chars().next() {
        if is_begin && let Some(behind) = rest.strip_prefix('@') {
            let name = match behind.strip_prefix('"') {
                Some(quoted) => quoted.split(['"', '\n']).next().unwrap_or_default(),
                None => {
                    let word = behind.split(char::is_whitespace).next().unwrap_or_default();
                    word.trim_end_matches(['.', ',', ';', ':', '!', '?', ')'])
                }
            };
            if is_image(name) {
                names.push(name);
            }
        }
        is_begin = c.is_whitespace() || c == '(';
        rest = &rest[c.len_utf8()..];
    }
    names
}

/// How a file is named behind an `@`.
pub(crate) fn reference(name: &str) -> String {
    if name.contains(char::is_whitespace) { format!("@\"{name}\"") } else { format!("@{name}") }
}

/// What stands for a paste that is the path of an image, as a terminal pastes a file that is dropped on it.
pub(crate) fn pasted(text: &str) -> Option<String> {
    let text = text.trim();
    if text.contains('\n') {
        return None;
    }
    let quoted = ['\'', '"'].into_iter().find_map(|mark| text.strip_prefix(mark)?.strip_suffix(mark));
    let path = match (quoted, text.strip_prefix("file://")) {
        (Some(quoted), _) => quoted.to_owned(),
        (None, Some(address)) => decoded(address)?,
        // A bare path that holds a space is a sentence, unless it was escaped.
        (None, None) => unescaped(text)?,
    };
    (path.starts_with('/') && is_image(&path)).then(|| format!("{} ", reference(&path)))
}

fn is_image(name: &str) -> bool {
    let name = name.to_lowercase();
    ENDS.iter().any(|end| name.len() > end.len() && name.ends_with(end))
}

/// A path without the backslashes that a shell wants; none if there is white space without one.
fn unescaped(text: &str) -> Option<String> {
    let mut path = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => path.push(chars.next()?),
            c if c.is_whitespace() => return None,
            c => path.push(c),
        }
    }
    Some(path)
}

/// The path of a `file://` address.
fn decoded(address: &str) -> Option<String> {
    let path = &address[address.find('/')?..];
    let mut bytes = Vec::new();
    let mut rest = path.as_bytes();
    while let [byte, behind @ ..] = rest {
        match (byte, behind) {
            (b'%', [high, low, behind @ ..]) => {
                let digits = [*high, *low];
                bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
                rest = behind;
            }
            (byte, behind) => {
                bytes.push(*byte);
                rest = behind;
            }
        }
    }
    String::from_utf8(bytes).ok()
}

/// How many images go with one message at most. Providers take smaller ones only where there are more.
const MOST: usize = 20;

/// A message with the images of these names, and what is to be said about names that are no file.
///
/// # Errors
///
/// If an image cannot be sent; the text says which, why, and what to do.
pub(crate) fn prompt(
    text: &str,
    names: &[String],
    workspace: &Path,
    model: &str,
    takes_images: bool,
) -> Result<(Prompt, Vec<String>), String> {
    let mut prompt = Prompt::from(text);
    let (there, gone): (Vec<&String>, Vec<&String>) =
        names.iter().partition(|name| workspace.join(name).try_exists().unwrap_or(true));
    let missing: Vec<String> =
        gone.iter().map(|name| format!("there is no file {name}; the message went without it")).collect();
    if let Some(name) = there.first().filter(|_| !takes_images) {
        return Err(format!(
            "not sent: {}: {model} is not said to take images; if it does, say `images = true` in its configuration; to \
             name the file only, leave out the @",
            reference(name)
        ));
    }
    if there.len() > MOST {
        return Err(format!(
            "not sent: it names {} images, and at most {MOST} go with one message; send the others with the next",
            there.len()
        ));
    }
    for name in there {
        let refused = |why: &str| format!("not sent: {}: {why}", reference(name));
        let bytes = read(&workspace.join(name)).map_err(|why| refused(&why))?;
        let bytes = bytes.ok_or_else(|| refused("it is gone"))?;
        prompt = prompt.image(bytes).map_err(|fault| refused(&fault.to_string()))?;
    }
    Ok((prompt, missing))
}

/// The bytes of a file that is there. Does not hang, whatever lies there or takes its place.
fn read(path: &Path) -> Result<Option<Vec<u8>>, String> {
    match regular_file(path, IMAGE_BYTES) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) => match error.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => Ok(None),
            ErrorKind::InvalidInput => Err(error.to_string()),
            ErrorKind::FileTooLarge => {
                Err(format!("{error}, which is the most that models take; make a smaller copy"))
            }
            _ => Err(format!("it cannot be read: {error}")),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    use rustix::fs::{CWD, FileType, Mode, RenameFlags, mknodat, renameat_with};

    use super::*;

    #[test]
    fn images_are_named_behind_an_at() {
        let table: [(&str, &[&str]); 8] = [
            ("what is @shot.png?", &["shot.png"]),
            ("(@a/b.JPEG) and @\"my shot.webp\", please", &["a/b.JPEG", "my shot.webp"]),
            ("@src/main.rs @x.gif\n@y.png", &["x.gif", "y.png"]),
            ("logo@2x.png a@b.png", &[]),
            ("shot.png", &[]),
            ("@.png @", &[]),
            ("@\"open.png", &["open.png"]),
            ("", &[]),
        ];
        for (text, names) in table {
            assert_eq!(named(text), names, "{text}");
        }
    }

    #[test]
    fn a_dropped_image_is_one() {
        for (text, shown) in [
            ("/tmp/shot.png\n", Some("@/tmp/shot.png ")),
            ("'/tmp/my shot.png'", Some("@\"/tmp/my shot.png\" ")),
            (r"/tmp/my\ shot.png", Some("@\"/tmp/my shot.png\" ")),
            ("file:///tmp/a%20b.png", Some("@\"/tmp/a b.png\" ")),
            ("file://host/tmp/ü%C3%BC.jpg", Some("@/tmp/üü.jpg ")),
            ("file:///tmp/%zz.png", None),
            ("shot.png", None),
            ("/tmp/notes.txt", None),
            ("look at /tmp/shot.png", None),
            ("/tmp/a.png\n/tmp/b.png", None),
            ("\\", None),
        ] {
            assert_eq!(pasted(text).as_deref(), shown, "{text}");
        }
    }

    #[test]
    fn what_cannot_be_sent_is_said() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("bad.png"), "text").unwrap();
        fs::create_dir(dir.path().join("dir.png")).unwrap();
        let made = |text: &str, takes_images| {
            let names: Vec<String> = named(text).into_iter().map(str::to_owned).collect();
            prompt(text, &names, dir.path(), "local/m", takes_images)
        };
        let (plain, said) = made("see @gone.png", false).unwrap();
        assert_eq!(plain, Prompt::from("see @gone.png"));
        assert_eq!(said, ["there is no file gone.png; the message went without it"]);
        assert_eq!(
            made("@bad.png", true).unwrap_err(),
            "not sent: @bad.png: it is no PNG, JPEG, GIF or WebP image"
        );
        assert_eq!(made("@dir.png", true).unwrap_err(), "not sent: @dir.png: it is no file");
        for name in ["bad.png", "dir.png"] {
            let refused = made(&format!("@gone.png @{name}"), false).unwrap_err();
            let said = format!("not sent: @{name}: local/m is not said to take images");
            assert!(refused.starts_with(&said), "{refused}");
        }
        let many = made(&"@bad.png ".repeat(21), true).unwrap_err();
        assert_eq!(
            many,
            "not sent: it names 21 images, and at most 20 go with one message; send the others with the next"
        );
    }

    /// What is behind a name may be another thing between two looks at it.
    #[test]
    fn a_pipe_that_takes_a_files_place_holds_nothing_up() {
        let dir = tempfile::tempdir().unwrap();
        let (shot, pipe) = (dir.path().join("shot.png"), dir.path().join("pipe"));
        fs::write(&shot, "bytes").unwrap();
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let (done, is_done) = mpsc::channel();
        let path = shot.clone();
        let reader = std::thread::spawn(move || {
            for _ in 0..20_000 {
                let read = read(&path);
                let is_either =
                    read == Ok(Some(b"bytes".to_vec())) || read == Err("it is no file".to_owned());
                assert!(is_either, "{read:?}");
            }
            done.send(()).unwrap();
        });
        let begun = Instant::now();
        while is_done.try_recv() == Err(mpsc::TryRecvError::Empty) {
            renameat_with(CWD, &shot, CWD, &pipe, RenameFlags::EXCHANGE).unwrap();
            assert!(begun.elapsed() < Duration::from_secs(60), "it hangs");
        }
        reader.join().unwrap();
    }
}
