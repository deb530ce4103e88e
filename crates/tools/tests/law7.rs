//! Law 7 as a property: bytes outside an edit stay as they were, and so do encoding, line endings, byte order mark, mode
//! and links. What is refused changes nothing at all.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use common::Workspace;
use encoding_rs::{GBK, SHIFT_JIS, WINDOWS_1252};
use mainstay_session::message::ContentHash;
use mainstay_tools::{Edit, ToolError, ToolOutput, Write};
use proptest::prelude::*;
use serde_json::{Value, json};

#[derive(Clone, Copy, Debug)]
enum Coding {
    Utf8,
    Utf8Marked,
    Utf16Little,
    Utf16Big,
    Latin1,
    Gbk,
    ShiftJis,
}

impl Coding {
    fn encode(self, text: &str) -> Vec<u8> {
        match self {
            Coding::Utf8 | Coding::Utf8Marked => text.as_bytes().to_vec(),
            Coding::Utf16Little => text.encode_utf16().flat_map(u16::to_le_bytes).collect(),
            Coding::Utf16Big => text.encode_utf16().flat_map(u16::to_be_bytes).collect(),
            Coding::Latin1 => WINDOWS_1252.encode(text).0.into_owned(),
            Coding::Gbk => GBK.encode(text).0.into_owned(),
            Coding::ShiftJis => SHIFT_JIS.encode(text).0.into_owned(),
        }
    }

    fn mark(self) -> &'static [u8] {
        match self {
            Coding::Utf8Marked => b"\xEF\xBB\xBF",
            Coding::Utf16Little => b"\xFF\xFE",
            Coding::Utf16Big => b"\xFE\xFF",
            Coding::Utf8 | Coding::Latin1 | Coding::Gbk | Coding::ShiftJis => b"",
        }
    }

    /// Letters that the coding has, among them those whose second byte is an ASCII letter or a backslash.
    fn letters(self) -> &'static [&'static str] {
        match self {
            Coding::Latin1 => &["é", "ü", "ß", "©"],
            Coding::Gbk => &["中", "文", "乗", "俓"],
            Coding::ShiftJis => &["日", "本", "表", "ソ"],
            Coding::Utf8 | Coding::Utf8Marked | Coding::Utf16Little | Coding::Utf16Big => {
                &["é", "日", "\u{1F600}", "\u{a0}"]
            }
        }
    }
}

/// A part of a file's text.
#[derive(Clone, Debug)]
enum Piece {
    /// What no edit touches: plain text, or a letter of the coding.
    Plain(String),
    Letter(usize),
    /// What exactly one edit quotes.
    Single,
    /// What an edit of all places quotes.
    Each,
}

/// A line of a file.
#[derive(Clone, Debug)]
enum Line {
    Pieces(Vec<Piece>),
    /// A line that an edit quotes with other white space.
    Loose {
        indent: String,
        trailing: String,
    },
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Endings {
    All(&'static str),
    Mixed,
}

#[derive(Clone, Copy, Debug)]
enum Way {
    Direct,
    Link,
    SecondName,
}

#[derive(Clone, Debug)]
struct Case {
    coding: Coding,
    lines: Vec<Line>,
    endings: Endings,
    ends: bool,
    mode: u32,
    way: Way,
    new: String,
}

/// A stretch of the file: bytes that stay, or what an edit puts in their place.
struct Span {
    before: Vec<u8>,
    new: Option<String>,
}

impl Case {
    fn ending(&self, index: usize) -> &'static str {
        match self.endings {
            Endings::All(ending) => ending,
            Endings::Mixed => ["\n", "\r\n"][index % 2],
        }
    }

    /// The file in spans, and the edits that replace some of them.
    fn spans_and_edits(&self) -> (Vec<Span>, Vec<Value>) {
        let mut spans = vec![Span { before: self.coding.mark().to_vec(), new: None }];
        let mut edits = Vec::new();
        let mut has_each = false;
        let stays = |text: &str| Span { before: self.coding.encode(text), new: None };
        for (index, line) in self.lines.iter().enumerate() {
            match line {
                Line::Pieces(pieces) => {
                    for piece in pieces {
                        let quoted = match piece {
                            Piece::Plain(text) => {
                                spans.push(stays(text));
                                continue;
                            }
                            Piece::Letter(which) => {
                                let letters = self.coding.letters();
                                spans.push(stays(letters[which % letters.len()]));
                                continue;
                            }
                            Piece::Each => {
                                has_each = true;
                                "<*>".to_owned()
                            }
                            Piece::Single => {
                                let quoted = format!("<{}>", edits.len());
                                edits.push(json!({ "old": quoted, "new": self.new }));
                                quoted
                            }
                        };
                        spans.push(Span { before: self.coding.encode(&quoted), new: Some(self.new.clone()) });
                    }
                }
                Line::Loose { indent, trailing } => {
                    let number = edits.len();
                    let new = format!("put <<{number}>>;\n  {};", self.new.replace('\n', " "));
                    edits.push(json!({ "old": format!("let <{number}> = 1;"), "new": new }));
                    let moved = format!("{indent}{}", new.replace('\n', &format!("\n{indent}")));
                    let before = format!("{indent}let  <{number}> =\t1;{trailing}");
                    spans.push(Span { before: self.coding.encode(&before), new: Some(moved) });
                }
            }
            if self.ends || index + 1 < self.lines.len() {
                spans.push(stays(self.ending(index)));
            }
        }
        if has_each {
            edits.push(json!({ "old": "<*>", "new": self.new, "replace_all": true }));
        }
        (spans, edits)
    }

    /// Makes the file; the path by which the tools reach it.
    fn make(&self, ws: &Workspace, bytes: &[u8]) -> &'static str {
        let file = ws.put("f", bytes);
        fs::set_permissions(&file, fs::Permissions::from_mode(self.mode)).unwrap();
        match self.way {
            Way::Direct => "f",
            Way::Link => {
                fs::create_dir(ws.root.join("d")).unwrap();
                symlink("../f", ws.root.join("d/link")).unwrap();
                "d/link"
            }
            Way::SecondName => {
                fs::hard_link(&file, ws.root.join("second")).unwrap();
                "second"
            }
        }
    }

    fn assert_frame(&self, ws: &Workspace) {
        let meta = fs::metadata(ws.root.join("f")).unwrap();
        assert_eq!(meta.mode() & 0o7777, self.mode);
        match self.way {
            Way::Direct => {}
            Way::Link => assert_eq!(fs::read_link(ws.root.join("d/link")).unwrap(), Path::new("../f")),
            Way::SecondName => {
                assert_eq!(meta.nlink(), 2);
                assert_eq!(ws.bytes("second"), ws.bytes("f"));
            }
        }
    }

    /// The ends of lines that a new text may have got.
    fn possible_endings(&self) -> Vec<&'static str> {
        match self.endings {
            // A text without any line end takes those of Unix.
            Endings::All(_) if self.lines.len() == 1 && !self.ends => vec!["\n"],
            Endings::All(ending) => vec![ending],
            Endings::Mixed => vec!["\n", "\r\n"],
        }
    }

    /// Checks that every span that stays is where it was between what the edits put.
    fn assert_spans(&self, spans: &[Span], bytes: &[u8]) {
        let mut rest = bytes;
        for span in spans {
            let possible = match &span.new {
                None => vec![span.before.clone()],
                Some(new) => {
                    let with = |ending: &&str| self.coding.encode(&new.replace('\n', ending));
                    self.possible_endings().iter().map(with).collect()
                }
            };
            let found = possible.iter().find(|possible| rest.starts_with(possible));
            let found = found.unwrap_or_else(|| {
                panic!("expected {} in {}", possible[0].escape_ascii(), rest.escape_ascii())
            });
            rest = &rest[found.len()..];
        }
        assert_eq!(rest, b"");
    }
}

fn case() -> impl Strategy<Value = Case> {
    let coding = prop_oneof![
        Just(Coding::Utf8),
        Just(Coding::Utf8Marked),
        Just(Coding::Utf16Little),
        Just(Coding::Utf16Big),
        Just(Coding::Latin1),
        Just(Coding::Gbk),
        Just(Coding::ShiftJis)
    ];
    let endings = prop_oneof![
        Just(Endings::All("\n")),
        Just(Endings::All("\r\n")),
        Just(Endings::All("\r")),
        Just(Endings::Mixed)
    ];
    let piece = prop_oneof![
        3 => "[a-zA-Z {}();\t]{1,6}".prop_map(Piece::Plain),
        2 => any::<usize>().prop_map(Piece::Letter),
        2 => Just(Piece::Single),
        1 => Just(Piece::Each),
    ];
    let line = prop_oneof![
        4 => prop::collection::vec(piece, 0..5).prop_map(Line::Pieces),
        1 => ("( {0,8}|\t{1,2})", " {0,2}").prop_map(|(indent, trailing)| Line::Loose { indent, trailing }),
    ];
    let mode = prop_oneof![Just(0o644), Just(0o600), Just(0o755), Just(0o664)];
    let way = prop_oneof![Just(Way::Direct), Just(Way::Link), Just(Way::SecondName)];
    let lines = prop::collection::vec(line, 1..8);
    (coding, lines, endings, any::<bool>(), mode, way, "[a-z]{0,3}(\n[a-z]{1,3}){0,2}").prop_map(
        |(coding, lines, endings, ends, mode, way, new)| Case {
            coding,
            lines,
            endings,
            ends,
            mode,
            way,
            new,
        },
    )
}

fn in_runtime(work: impl Future<Output = Result<(), TestCaseError>>) -> Result<(), TestCaseError> {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
}

async fn edit(ws: &Workspace, path: &str, edits: &[Value]) -> Result<ToolOutput, ToolError> {
    ws.call(&Edit, json!({ "path": path, "edits": edits })).await
}

/// All that a refused call must leave as it was.
fn trace(ws: &Workspace) -> Vec<(String, u64, u32, i64, i64, i64, i64)> {
    let mut entries: Vec<_> = fs::read_dir(&ws.root)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let meta = entry.path().symlink_metadata().unwrap();
            let name = entry.file_name().to_string_lossy().into_owned();
            (name, meta.ino(), meta.mode(), meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec())
        })
        .collect();
    entries.sort();
    entries
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// W01, law 7: exact edits, edits of all places and edits that matched except for white space, several in a call.
    /// What was there before is kept.
    #[test]
    fn bytes_outside_the_edits_stay(case in case()) {
        in_runtime(async {
            let ws = Workspace::new();
            let (spans, edits) = case.spans_and_edits();
            prop_assume!(!edits.is_empty());
            let before: Vec<u8> = spans.iter().flat_map(|span| span.before.clone()).collect();
            let path = case.make(&ws, &before);
            ws.read(path).await.unwrap();
            let output = edit(&ws, path, &edits).await.unwrap_or_else(|error| panic!("{error:?}"));
            let after = ws.bytes("f");
            case.assert_spans(&spans, &after);
            case.assert_frame(&ws);
            assert_eq!(output.changes.len(), 1);
            assert_eq!(output.changes[0].path, output.referenced_files[0].path);
            assert_eq!(output.changes[0].after, ContentHash::of(&after));
            let kept = output.changes[0].before.as_ref().unwrap();
            assert_eq!(ws.context.spill.load(kept).unwrap(), before);
            Ok(())
        })?;
    }

    /// W01, W03: a call that is refused leaves bytes, times, modes and the directory as they were.
    #[test]
    fn refused_edits_change_nothing(case in case(), why in 0usize..5) {
        in_runtime(async {
            let ws = Workspace::new();
            let (spans, mut edits) = case.spans_and_edits();
            let before: Vec<u8> = spans.iter().flat_map(|span| span.before.clone()).collect();
            let path = case.make(&ws, &before);
            ws.read(path).await.unwrap();
            match why {
                0 => edits.push(json!({ "old": "<no such place>", "new": "x" })),
                1 => edits.push(json!({ "old": "same", "new": "same" })),
                2 => edits.push(json!({ "old": "", "new": "x" })),
                3 => fs::write(ws.root.join("f"), [&before[..], b" "].concat()).unwrap(),
                _ => fs::set_permissions(ws.root.join("f"), fs::Permissions::from_mode(0o444)).unwrap(),
            }
            prop_assume!(!edits.is_empty());
            let bytes = ws.bytes("f");
            let trace_before = trace(&ws);
            let error = edit(&ws, path, &edits).await.unwrap_err();
            assert_eq!(trace(&ws), trace_before, "{error:?}");
            assert_eq!(ws.bytes("f"), bytes);
            Ok(())
        })?;
    }

    /// Law 7: a file that is overwritten keeps its encoding, byte order mark, line endings, mode and links.
    #[test]
    fn overwriting_keeps_the_form(case in case(), content in "[a-z]{1,3}(\n[a-z]{1,3}){1,3}\n") {
        in_runtime(async {
            let ws = Workspace::new();
            let (spans, _) = case.spans_and_edits();
            let before: Vec<u8> = spans.iter().flat_map(|span| span.before.clone()).collect();
            let path = case.make(&ws, &before);
            ws.read(path).await.unwrap();
            let output = ws.call(&Write, json!({ "path": path, "content": content })).await.unwrap();
            let ending = match case.endings {
                Endings::All(ending) if case.possible_endings() == [ending] => ending,
                Endings::All(_) | Endings::Mixed => "\n",
            };
            // Of a file with one line end or none, mixed is not to be told from either.
            if case.endings != Endings::Mixed || case.lines.len() > 2 {
                let text = case.coding.encode(&content.replace('\n', ending));
                assert_eq!(ws.bytes("f"), [case.coding.mark(), &text].concat());
            }
            case.assert_frame(&ws);
            let kept = output.changes[0].before.as_ref().unwrap();
            assert_eq!(ws.context.spill.load(kept).unwrap(), before);
            Ok(())
        })?;
    }

    /// Law 7, W01: whatever the bytes are and whatever is quoted from them, an edit that is made replaces one stretch
    /// that reads like `old` by one that reads like `new`, and an edit that is not made changes nothing.
    #[test]
    fn an_edit_of_any_bytes_replaces_one_stretch_or_nothing(
        bytes in any_bytes(),
        from in any::<prop::sample::Index>(),
        to in any::<prop::sample::Index>(),
        new in "[a-b\n ]{0,4}",
        loosened in any::<bool>(),
    ) {
        in_runtime(async {
            let ws = Workspace::new();
            ws.put("f", &bytes);
            prop_assume!(!bytes.is_empty() && ws.read("f").await.is_ok());
            let (from, to) = (from.index(bytes.len()), to.index(bytes.len()));
            let old = String::from_utf8_lossy(&bytes[from.min(to)..=from.max(to)]).into_owned();
            let old = if loosened { old.replace(' ', "  ").replace("\r\n", "\n") } else { old };
            let before = trace(&ws);
            match edit(&ws, "f", &[json!({ "old": old, "new": new })]).await {
                Ok(_) => assert!(one_stretch(&bytes, &ws.bytes("f"), &old, &new), "{}", ws.bytes("f").escape_ascii()),
                Err(_) => assert_eq!((trace(&ws), ws.bytes("f")), (before, bytes)),
            }
            Ok(())
        })?;
    }
}

/// Whether `after` is `before` with one stretch that reads like `old` replaced by one that reads like `new`.
fn one_stretch(before: &[u8], after: &[u8], old: &str, new: &str) -> bool {
    let words = |bytes: &[u8]| {
        let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
        let words = bytes.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        words.map(<[u8]>::to_vec).collect::<Vec<_>>()
    };
    let prefix = before.iter().zip(after).take_while(|(a, b)| a == b).count();
    (0..=prefix).any(|start| {
        (start..=before.len()).any(|end| {
            let kept = before.len() - end;
            after.len() >= start + kept
                && after[after.len() - kept..] == before[end..]
                && words(&before[start..end]) == words(old.as_bytes())
                && words(&after[start..after.len() - kept]) == words(new.as_bytes())
        })
    })
}

fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        3 => Just(b"\n".to_vec()),
        2 => Just(b"\r\n".to_vec()),
        1 => Just(b"\r".to_vec()),
        2 => Just("é日".as_bytes().to_vec()),
        1 => Just(b"\xE9".to_vec()),
        1 => Just(b"\xD6\xD0\xCE\x41".to_vec()),
        1 => Just(b"\x83\x5C".to_vec()),
        1 => Just(b"\xEF\xBB\xBF".to_vec()),
        6 => "[ab ]{1,4}".prop_map(String::into_bytes),
    ];
    prop::collection::vec(piece, 0..14).prop_map(|pieces| pieces.concat())
}
