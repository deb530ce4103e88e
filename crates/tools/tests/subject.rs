//! What is told of a call before it runs: what it is about, and the diff that it would make.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;

use common::Workspace;
use mainstay_tools::subject::preview;
use mainstay_tools::{Edit, Tool, Write};
use serde_json::{Value, json};

/// A diff is shown exactly for a call that then makes it: not for one that is refused, and not for one that changes
/// nothing.
#[tokio::test]
async fn a_diff_is_shown_only_for_a_call_that_then_makes_it() {
    let edit = |old: &str, new: &str| json!({"path": "f", "edits": [{"old": old, "new": new}]});
    let write = |content: &str| json!({"path": "f", "content": content});
    type Case = (&'static str, &'static [u8], bool, u32, Value, bool);
    let cases: [Case; 16] = [
        ("edit", b"a\n", true, 0o644, edit("a", "b"), true),
        ("edit", b"a\n", false, 0o644, edit("a", "b"), false),
        ("edit", b"a\n", true, 0o444, edit("a", "b"), false),
        ("edit", b"a\0\n", true, 0o644, edit("a", "b"), false),
        ("edit", b"a\n", true, 0o644, edit("a", "a"), false),
        ("edit", b"a\n", true, 0o644, edit("no", "b"), false),
        (
            "edit",
            b"a\n",
            true,
            0o644,
            json!({"path": "f", "edits": [{"old": "a", "new": "b"}, {"old": "b", "new": "a"}]}),
            false,
        ),
        ("edit", b"a\n", true, 0o644, json!({"path": "g", "edits": [{"old": "a", "new": "b"}]}), false),
        ("write", b"a\n", true, 0o644, write("b\n"), true),
        ("write", b"a\n", false, 0o644, write("b\n"), false),
        ("write", b"", false, 0o644, write("b\n"), true),
        ("write", b"a\n", true, 0o444, write("b\n"), false),
        ("write", b"a\0\n", true, 0o644, write("b\n"), false),
        ("write", b"a\n", true, 0o644, write("a\n"), false),
        ("write", b"a\n", true, 0o644, json!({"path": "f"}), false),
        ("write", b"a\n", false, 0o644, json!({"path": "g", "content": "b\n"}), true),
    ];
    for (name, held, is_read, mode, arguments, shown) in cases {
        let ws = Workspace::new();
        let path = ws.put("f", held);
        if is_read {
            // A binary file is not read, but its hash may be known all the same.
            ws.seen.lock().unwrap().insert(path.clone(), mainstay_session::message::ContentHash::of(held));
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let diff = preview(name, &arguments.to_string(), &ws.context);
        let tool: &dyn Tool = if name == "edit" { &Edit } else { &Write };
        let made = ws.call(tool, arguments.clone()).await.ok().filter(|output| !output.changes.is_empty());
        assert_eq!((diff.is_some(), made.is_some()), (shown, shown), "{name} {arguments} on {held:?}");
        if let Some(content) = made.and_then(|output| output.content) {
            assert_eq!(diff, Some(content));
        }
    }
}
