//! Images through `read`.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{Workspace, whole};
use mainstay_session::message::{ContentHash, Image};
use mainstay_tools::Read;
use mainstay_tools::image::IMAGE_BYTES;
use serde_json::json;

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

const GIF: &[u8] = b"GIF89a\x01\0\x01\0\x80\0\0\0\0\0\xff\xff\xff,\0\0\0\0\x01\0\x01\0\0\x02\x02D\x01\0;";

/// §9: an image is what it holds, whatever its name says; its bytes go to the spill and its block behind the text.
#[tokio::test]
async fn an_image_is_shown_and_kept() {
    let ws = Workspace::new();
    for (name, bytes, media_type, summary) in [
        ("shot.png", png(640, 480), "image/png", "shot.png: PNG image, 640x480 pixels, 61 bytes"),
        ("notes.txt", GIF.to_vec(), "image/gif", "notes.txt: GIF image, 1x1 pixels, 35 bytes"),
    ] {
        let path = ws.put(name, &bytes);
        let output = ws.read(name).await.unwrap();
        let hash = ContentHash::of(&bytes);
        let image =
            Image { media_type: media_type.to_owned(), hash: hash.clone(), bytes: bytes.len() as u64 };
        assert_eq!((output.summary.as_str(), output.content.as_deref()), (summary, None));
        assert_eq!(output.images, [image]);
        assert_eq!(output.referenced_files[0].path.0, path);
        assert_eq!(output.referenced_files[0].hash.as_ref(), Some(&hash));
        assert_eq!(ws.context.spill.load(&hash).unwrap(), bytes);
    }
}

/// D17: what a provider would refuse with this and every later request never becomes part of the session.
#[tokio::test]
async fn an_image_that_would_be_refused_for_ever_is_refused_once() {
    let ws = Workspace::new();
    let whole_png = png(4, 4);
    let mut long = png(4, 4);
    long.resize(IMAGE_BYTES + 1, 0);
    for (name, bytes, why) in [
        ("cut.png", whole_png[..59].to_vec(), "cut.png was not read: the PNG image is damaged or cut off"),
        ("nothing.png", png(0, 0), "nothing.png was not read: the PNG image is damaged or cut off"),
        (
            "wide.png",
            png(8_001, 10),
            "wide.png was not read: the image has 8001x10 pixels, and models take 2000x2000; make a smaller copy with a command",
        ),
        (
            "long.png",
            long,
            "long.png was not read: the image has 3932161 bytes, and models take 3932160; make a smaller copy with a command",
        ),
    ] {
        ws.put(name, bytes);
        assert_eq!(ws.read(name).await.unwrap_err().summary, why);
    }
    ws.put("empty.png", "");
    let output = ws.read("empty.png").await.unwrap();
    assert_eq!((output.summary.as_str(), output.images.len()), ("empty.png is empty", 0));
    ws.put("words.gif", "GIF89a is a format from 1989.\n");
    assert_eq!(ws.read("words.gif").await.unwrap().content.unwrap(), "GIF89a is a format from 1989.");
}

#[tokio::test]
async fn without_eyes_an_image_is_refused_and_the_setting_named() {
    let mut ws = Workspace::new();
    ws.context.takes_images = false;
    ws.put("shot.png", png(1, 1));
    assert_eq!(
        ws.read("shot.png").await.unwrap_err().summary,
        "shot.png is a PNG image, and this model is not said to take images (setting `images` of the model); it was not read"
    );
    assert!(!ws.context.spill.folder().exists());
}

#[tokio::test]
async fn an_image_that_cannot_be_kept_is_not_shown() {
    let ws = Workspace::new();
    ws.put("shot.png", png(1, 1));
    let session = ws.context.spill.folder().parent().unwrap();
    std::fs::create_dir_all(session).unwrap();
    std::fs::write(ws.context.spill.folder(), "in the way").unwrap();
    let error = ws.call(&Read, json!({ "path": "shot.png" })).await.unwrap_err();
    assert!(whole(error).starts_with("shot.png was not read: cannot keep the whole in "));
}
