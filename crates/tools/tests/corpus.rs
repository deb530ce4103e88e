//! W07: glob and grep beside the installed `rg`, over this project, a hostile tree and a large one.
//!
//! Files are the same as `rg --files` finds; which of them a glob takes is what `rg -g` says with everything ignored
//! brought back, because a glob of ours brings nothing back. Lines are the same as `rg -n` prints, counts as `rg -c`,
//! files as `rg -l`. Without `rg` nothing is compared, which is said; where `CI` is set that is a failure.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use mainstay_tools::search::globs::Globs;
use mainstay_tools::search::pattern::{Pattern, Reading};
use mainstay_tools::search::{LineKind, Stop, Wanted, files, lines};

/// Names from the searched directory, escaped so that a failed comparison can be read.
type Names = BTreeSet<String>;
/// Line number and text by name.
type Lines = BTreeMap<String, BTreeMap<u64, String>>;

const GLOBS: [&str; 24] = [
    "*",
    "**",
    "**/*",
    "*.rs",
    "**/*.rs",
    "*.{rs,md}",
    "src/**",
    "/src/*.rs",
    "src/*/*.rs",
    "crates/*/src/*.rs",
    "!*.rs",
    "!src",
    "!**/src/**",
    "[a-m]*",
    "[!a-m]*",
    "?",
    "a?",
    "*.t?t",
    "**/deep/**/*.txt",
    "deep",
    "{src,deep}/**",
    "*[0-9]*",
    "\\[foo",
    "*é*",
];

const PATTERNS: [&str; 22] = [
    "needle",
    "fn \\w+\\(",
    "(?i)NEEDLE",
    "^use ",
    "^$",
    "^needle\\b",
    ".",
    "\\bne+dle\\b",
    "needle|Needle",
    "--ctx-size|--n-predict",
    "-1",
    "->",
    "[^\\x00-\\x7F]",
    "(?-u)\\xff",
    "é",
    "\\s+needle",
    "\\d{3,}",
    "needle.*needle",
    "x*",
    "\\t",
    "naïve|日本",
    "(a|b|c)needle(d|e|f)?",
];

/// Whether `rg` is there to compare with.
fn rg_is_there() -> bool {
    let there = Command::new("rg").arg("--version").stdout(Stdio::null()).status().is_ok_and(|s| s.success());
    if !there {
        assert!(std::env::var_os("CI").is_none(), "rg is not installed, and CI must compare with it");
        // Written past the harness, which would keep it to itself.
        let _ = writeln!(std::io::stderr(), "rg is not installed: nothing was compared");
    }
    there
}

fn rg(root: &Path, arguments: &[&str]) -> Vec<u8> {
    // In order, because how much of a binary file is searched depends on what a thread of `rg` searched before.
    let output = Command::new("rg")
        .args(["--no-config", "--color=never", "--no-messages", "--null", "--sort=path"])
        .args(arguments)
        .current_dir(root)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    output.stdout
}

fn rg_files(root: &Path, arguments: &[&str]) -> Names {
    let out = rg(root, &[&["--files"], arguments].concat());
    out.split(|byte| *byte == 0).filter(|name| !name.is_empty()).map(escaped).collect()
}

fn rg_lines(root: &Path, arguments: &[&str]) -> Lines {
    let out = rg(root, &[&["--line-number", "--no-heading", "--with-filename"], arguments].concat());
    let mut lines = Lines::new();
    // A name may hold a newline, so records are told apart by the zero byte after the name. What `rg` says about a
    // binary file stands on a line of its own without one.
    let mut rest = &out[..];
    while let Some(zero) = rest.iter().position(|byte| *byte == 0) {
        let mut name = &rest[..zero];
        let warning = b"found \"\\0\" byte around offset";
        if let Some(at) = name.windows(warning.len()).rposition(|window| window == warning) {
            name = &name[at + name[at..].iter().position(|byte| *byte == b'\n').unwrap() + 1..];
        }
        let end = zero + rest[zero..].iter().position(|byte| *byte == b'\n').unwrap();
        let line = String::from_utf8_lossy(&rest[zero + 1..end]);
        let (number, text) = line.split_once(':').unwrap();
        let text = text.strip_suffix('\r').unwrap_or(text).to_owned();
        lines.entry(escaped(name)).or_default().insert(number.parse().unwrap(), text);
        rest = &rest[end + 1..];
    }
    lines
}

fn escaped(name: &[u8]) -> String {
    name.escape_ascii().to_string()
}

fn below(root: &Path, path: &Path) -> String {
    escaped(path.strip_prefix(root).unwrap().as_os_str().as_bytes())
}

fn our_files(root: &Path, glob: Option<&str>) -> Names {
    let globs = Arc::new(Globs::new(root, glob.as_slice()).unwrap());
    let found = files(root, &globs, u64::MAX, &Stop::default());
    let names: Names = found.first.iter().map(|path| below(root, path)).collect();
    assert_eq!(found.total, names.len() as u64, "each file once");
    names
}

fn our_lines(root: &Path, pattern: &str, reading: Reading) -> Lines {
    let (globs, pattern) =
        (Arc::new(Globs::new::<&str>(root, &[]).unwrap()), Pattern::new(pattern, reading).unwrap());
    let wanted = Wanted::Lines { context: 0 };
    let found = lines(root, &globs, &pattern, wanted, u64::MAX, &Stop::default()).unwrap();
    let of_file = |lines: Vec<mainstay_tools::search::Line>| {
        lines
            .into_iter()
            .filter(|line| line.kind == LineKind::Match)
            .map(|line| (line.number, line.text))
            .collect()
    };
    found.first.into_iter().map(|file| (below(root, &file.path), of_file(file.lines))).collect()
}

/// Whether a line as we show it is a line as `rg` prints it: the same, or a long one around its hit.
fn same_line(ours: &str, theirs: &str) -> bool {
    let Some((shown, _)) = ours.split_once(" [from column ").filter(|_| theirs.chars().count() > 400) else {
        return ours == theirs;
    };
    theirs.contains(shown.trim_matches('…').trim_matches('\u{fffd}'))
}

/// Compares sets and shows only what one of them lacks.
fn assert_same(ours: &Names, theirs: &Names, what: &str, root: &Path) {
    let more: Vec<_> = ours.difference(theirs).collect();
    let fewer: Vec<_> = theirs.difference(ours).collect();
    assert!(
        more.is_empty() && fewer.is_empty(),
        "{what} in {}: more {more:?}, fewer {fewer:?}",
        root.display()
    );
}

fn same_files(root: &Path) {
    let all = rg_files(root, &[]);
    assert!(!all.is_empty());
    assert_same(&our_files(root, None), &all, "all files", root);
    for glob in GLOBS {
        let matching = rg_files(root, &["--no-ignore", "--hidden", "-g", glob]);
        // Older ones do not let a wildcard stand for the newline in a name.
        let comparable = |name: &String| !name.contains("\\n");
        let expected: Names = all.intersection(&matching).filter(|name| comparable(name)).cloned().collect();
        let ours = our_files(root, Some(glob)).into_iter().filter(comparable).collect();
        assert_same(&ours, &expected, &format!("glob {glob:?}"), root);
    }
}

/// With a `$` we take both line endings for the end of a line, which `rg` does if told to.
fn crlf(pattern: &str) -> &'static str {
    if pattern.contains('$') { "--crlf" } else { "--no-crlf" }
}

fn same_lines(root: &Path, pattern: &str) {
    let reading = Reading::default();
    let (ours, theirs) = (our_lines(root, pattern, reading), rg_lines(root, &[crlf(pattern), "-e", pattern]));
    let here = format!("pattern {pattern:?} in {}", root.display());
    let names = |lines: &Lines| lines.keys().cloned().collect();
    assert_same(&names(&ours), &names(&theirs), &format!("files with {pattern:?}"), root);
    for ((name, ours), theirs) in ours.iter().zip(theirs.values()) {
        assert_eq!(
            ours.keys().collect::<Vec<_>>(),
            theirs.keys().collect::<Vec<_>>(),
            "lines of {name}, {here}"
        );
        for ((number, ours), theirs) in ours.iter().zip(theirs.values()) {
            assert!(same_line(ours, theirs), "{name}:{number}, {here}:\n{ours}\n{theirs}");
        }
    }
}

fn same_counts(root: &Path, pattern: &str) {
    let globs = Arc::new(Globs::new::<&str>(root, &[]).unwrap());
    let compiled = Pattern::new(pattern, Reading::default()).unwrap();
    let counts = |wanted| {
        let found = lines(root, &globs, &compiled, wanted, u64::MAX, &Stop::default()).unwrap();
        found.first.iter().map(|file| (below(root, &file.path), file.hits)).collect::<BTreeMap<_, _>>()
    };
    let mut theirs = BTreeMap::new();
    // `name`, zero byte, count, newline; names may hold newlines, so the zero bytes lead.
    let mut rest = &rg(root, &[crlf(pattern), "--count", "--with-filename", "-e", pattern])[..];
    while let Some(end) = rest.iter().position(|byte| *byte == 0) {
        let newline = end + rest[end..].iter().position(|byte| *byte == b'\n').unwrap();
        let count = std::str::from_utf8(&rest[end + 1..newline]).unwrap();
        theirs.insert(escaped(&rest[..end]), count.trim().parse().unwrap());
        rest = &rest[newline + 1..];
    }
    assert_eq!(counts(Wanted::Counts), theirs, "counts of {pattern:?} in {}", root.display());
    let out = rg(root, &[crlf(pattern), "--files-with-matches", "-e", pattern]);
    let theirs: Names = out.split(|byte| *byte == 0).filter(|name| !name.is_empty()).map(escaped).collect();
    let ours: Names = counts(Wanted::Files).into_keys().collect();
    assert_eq!(ours, theirs, "files with {pattern:?} in {}", root.display());
}

fn same_everything(root: &Path) {
    same_files(root);
    for pattern in PATTERNS {
        same_lines(root, pattern);
    }
    for pattern in PATTERNS.iter().step_by(3) {
        same_counts(root, pattern);
    }
}

/// W07
#[test]
fn this_project_is_searched_as_ripgrep_does() {
    if rg_is_there() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
        same_everything(&root);
    }
}

/// W07, and G02, G05, G06, G08, E14 as cases.
#[test]
fn a_hostile_tree_is_searched_as_ripgrep_does() {
    if rg_is_there() {
        let (_kept, root) = hostile_tree();
        same_everything(&root);
        for below in ["nested", "deep", "repo", "ignored", ".hidden", "odd"] {
            same_files(&root.join(below));
            same_lines(&root.join(below), "needle");
        }
    }
}

/// W07: what a pattern finds that names hidden files is what `rg --hidden` finds, but for what git keeps for itself.
#[test]
fn patterns_that_name_hidden_files_find_them() {
    if !rg_is_there() {
        return;
    }
    let (_kept, root) = hostile_tree();
    let mut all = rg_files(&root, &["--hidden"]);
    all.retain(|name| !format!("/{name}").contains("/.git/"));
    for glob in [".*", ".hidden/**", "**/.hidden/*", "{.hidden,src}/**", ".hidden*"] {
        let matching = rg_files(&root, &["--no-ignore", "--hidden", "-g", glob]);
        let expected: Names = all.intersection(&matching).cloned().collect();
        assert!(!expected.is_empty());
        assert_same(&our_files(&root, Some(glob)), &expected, glob, &root);
    }
    assert_eq!(our_files(&root, Some(".git/HEAD")), Names::from([".git/HEAD".to_owned()]));
}

/// W07: other readings of a pattern, beside the flags that mean them.
#[test]
fn readings_of_a_pattern_are_ripgreps() {
    if !rg_is_there() {
        return;
    }
    let (_kept, root) = hostile_tree();
    let plain = Reading::default();
    for (pattern, reading, flags) in [
        ("needle$", plain, &["--crlf"][..]),
        ("e.dle$", plain, &["--crlf"]),
        ("NEEDLE", Reading { ignore_case: true, ..plain }, &["-i"]),
        ("a.b(", Reading { literal: true, ..plain }, &["-F"]),
        ("needle\\r$", plain, &[]),
        ("needle$", Reading { literal: true, ..plain }, &["-F"]),
    ] {
        let ours = our_lines(&root, pattern, reading);
        assert!(!ours.is_empty(), "{pattern}");
        let theirs = rg_lines(&root, &[flags, &["-e", pattern]].concat());
        assert_eq!(ours.keys().collect::<Vec<_>>(), theirs.keys().collect::<Vec<_>>(), "{pattern}");
        for (name, ours) in &ours {
            let same = ours.keys().eq(theirs[name].keys());
            let same = same
                && ours.values().zip(theirs[name].values()).all(|(ours, theirs)| same_line(ours, theirs));
            assert!(same, "{name}, {pattern}");
        }
    }
    for (pattern, reading, flags) in [
        ("first\\nsecond", plain, &["-U"][..]),
        ("first.*third", Reading { across_lines: true, ..plain }, &["-U", "--multiline-dotall"]),
    ] {
        let ours: Vec<_> = our_lines(&root, pattern, reading).into_keys().collect();
        assert!(!ours.is_empty(), "{pattern}");
        let theirs: Vec<_> = rg_lines(&root, &[flags, &["-e", pattern]].concat()).into_keys().collect();
        assert_eq!(ours, theirs, "{pattern}");
    }
}

/// G05: a user's own ignore file counts as it does for git. The tree is searched by this program run again, because
/// the file is found through the environment.
#[test]
fn the_users_ignore_file_counts() {
    const TREE: &str = "MAINSTAY_TEST_TREE";
    if let Some(root) = std::env::var_os(TREE) {
        same_files(Path::new(&root));
        same_lines(Path::new(&root), "needle");
        assert!(!our_files(Path::new(&root), None).contains("mine.local"));
        return;
    }
    if !rg_is_there() {
        return;
    }
    let (_kept, root) = hostile_tree();
    put(&root, "mine.local", "needle\n");
    put(&root, "src/also.local", "needle\n");
    let home = tempfile::tempdir().unwrap();
    fs::create_dir_all(home.path().join("git")).unwrap();
    put(home.path(), "git/ignore", "*.local\n[\n!src/also.local\n");
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_users_ignore_file_counts"])
        .env(TREE, &root)
        .env("XDG_CONFIG_HOME", home.path())
        .env("HOME", home.path())
        .status();
    assert!(status.unwrap().success());
}

/// W07 at size: some 100,000 files.
#[test]
fn a_large_tree_is_searched_as_ripgrep_does() {
    if rg_is_there() {
        let (_kept, root) = large_tree(100_000);
        let all = rg_files(&root, &[]);
        assert!(all.len() >= 80_000, "{}", all.len());
        assert_same(&our_files(&root, None), &all, "all files", &root);
        let matching = rg_files(&root, &["-g", "d1*/**/*.md"]);
        assert_same(&our_files(&root, Some("d1*/**/*.md")), &matching, "a glob", &root);
        same_lines(&root, "needle 77");
    }
}

fn put(root: &Path, name: impl AsRef<OsStr>, bytes: impl AsRef<[u8]>) {
    let path = root.join(Path::new(name.as_ref()));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

fn temporary() -> (tempfile::TempDir, PathBuf) {
    let kept = tempfile::tempdir().unwrap();
    let root = kept.path().canonicalize().unwrap();
    (kept, root)
}

fn utf16(text: &str, big_endian: bool) -> Vec<u8> {
    let to_bytes = if big_endian { u16::to_be_bytes } else { u16::to_le_bytes };
    std::iter::once(0xFEFF).chain(text.encode_utf16()).flat_map(to_bytes).collect()
}

/// A tree that holds one of everything that goes wrong with trees.
fn hostile_tree() -> (tempfile::TempDir, PathBuf) {
    let (kept, root) = temporary();
    put(&root, ".git/HEAD", "ref: refs/heads/main\nneedle\n");
    put(&root, ".git/info/exclude", "excluded.txt\n");
    put(&root, "excluded.txt", "needle\n");
    put(
        &root,
        ".gitignore",
        "*.log\n!keep.log\nignored/\nnode_modules/\n/anchored.txt\nodd/gone?\n# needle\n\\#real\n",
    );
    for name in
        ["a.log", "keep.log", "ignored/x.txt", "node_modules/m/i.js", "anchored.txt", "nested/anchored.txt"]
    {
        put(&root, name, "a needle\n");
    }
    put(&root, "#real", "needle\n");
    // Nested rules and negations, of every kind of ignore file.
    put(&root, "nested/.gitignore", "!b.log\n*.tmp\n!keep/\nkeep/*\n!keep/this.tmp\n");
    for name in
        ["nested/b.log", "nested/c.tmp", "nested/keep/this.tmp", "nested/keep/that.txt", "nested/n.txt"]
    {
        put(&root, name, "needle in a nest\n");
    }
    put(&root, "dot/.ignore", "x.txt\n!y.log\n");
    put(&root, "dot/.rgignore", "!x.txt\nz.txt\n");
    for name in ["dot/x.txt", "dot/y.log", "dot/z.txt", "dot/w.txt"] {
        put(&root, name, "needle\n");
    }
    // Lines that are no globs, ends of lines, blanks.
    put(&root, "invalid/.gitignore", "[\n{a\n  \nbad.txt\n");
    put(&root, "crlf/.gitignore", "bad.txt\r\nother.txt \r\n");
    for directory in ["invalid", "crlf"] {
        put(&root, format!("{directory}/bad.txt"), "needle\n");
        put(&root, format!("{directory}/good.txt"), "needle\n");
    }
    // An ignore file that is a link, one that dangles and one that is a directory.
    put(&root, "rules", "linked.txt\n");
    for directory in ["linked", "dangling", "directory"] {
        put(&root, format!("{directory}/linked.txt"), "needle\n");
        put(&root, format!("{directory}/free.txt"), "needle\n");
    }
    symlink("../rules", root.join("linked/.gitignore")).unwrap();
    symlink("../none", root.join("dangling/.gitignore")).unwrap();
    fs::create_dir(root.join("directory/.gitignore")).unwrap();
    // Links: to themselves, in a circle, up, out, to files and directories.
    put(&root, "deep/a/b/c/d/e.txt", "needle\n");
    put(&root, "deep/a/deep/f.txt", "needle\n");
    symlink(".", root.join("deep/loop")).unwrap();
    symlink("self", root.join("deep/self")).unwrap();
    symlink("two", root.join("deep/one")).unwrap();
    symlink("one", root.join("deep/two")).unwrap();
    symlink("/", root.join("deep/all")).unwrap();
    symlink("a/b", root.join("deep/short")).unwrap();
    symlink("a/b/c/d/e.txt", root.join("deep/file.txt")).unwrap();
    symlink("real", root.join("deep/node_modules")).unwrap();
    // Hidden files, and repositories in the repository.
    put(&root, ".hidden.txt", "needle\n");
    put(&root, ".hidden/h.txt", "needle\n");
    put(&root, ".hidden/.more/h.txt", "needle\n");
    put(&root, "repo/.git/HEAD", "needle\n");
    put(&root, "repo/.gitignore", "inner.txt\n");
    for name in ["repo/inner.txt", "repo/x.log", "repo/outer.txt", "repo/ignored/x.txt"] {
        put(&root, name, "needle\n");
    }
    put(&root, "worktree/.git", "gitdir: ../.git\n");
    put(&root, "worktree/x.log", "needle\n");
    // Odd names.
    for name in [
        &b"odd/a\xffz.txt"[..],
        b"odd/new\nline.txt",
        b"odd/\x1b[31m.txt",
        b"odd/ blank .txt",
        b"odd/[foo",
        b"odd/-e",
    ] {
        put(&root, OsStr::from_bytes(name), "needle\n");
    }
    for name in [
        "odd/{a,b}.rs",
        "odd/a*b?.rs",
        "odd/back\\slash.rs",
        "odd/!not.rs",
        "odd/goner",
        "odd/e\u{301}\u{e9}",
    ] {
        put(&root, name, "needle\n");
    }
    put(&root, "app/(app)/[slug]/layout.tsx", "needle\n");
    // Contents: binary late and early, encodings, endings, long lines, nothing at all.
    put(&root, "binary/early", b"\x7fELF\0needle\n");
    put(&root, "binary/late", [&b"needle\n".repeat(12_000)[..], b"\0\nneedle\n"].concat());
    put(&root, "binary/after", [&b"just a line of this\n".repeat(5_000)[..], b"needle\n\0\n"].concat());
    put(&root, "text/utf16le.txt", utf16("first needle\nna\u{ef}ve needle\r\n", false));
    put(&root, "text/utf16be.txt", utf16("first needle\n日本 needle\n", true));
    put(&root, "text/marked.txt", "\u{feff}needle\nneedle\n");
    put(&root, "text/latin1.txt", b"caf\xe9 needle\n\xff needle\n");
    put(&root, "text/crlf.txt", "needle\r\n\r\nno\r\nneedle\r\n");
    put(&root, "text/mixed.txt", "needle\r\nneedle\nold needle\rneedle");
    put(&root, "text/no-end.txt", "first\nsecond\nthird\nneedle");
    put(&root, "text/empty.txt", "");
    put(&root, "text/blank.txt", "\n\n\n");
    put(&root, "text/long.txt", format!("{}needle{}\nneedle\n", "ä".repeat(40_000), " b".repeat(20_000)));
    put(
        &root,
        "text/damaged.txt",
        [&b"\xff".repeat(3_000)[..], b"needle", &b"\x80".repeat(3_000), b"\n"].concat(),
    );
    put(
        &root,
        "text/code.rs",
        "use a.b(c);\nlet cost = \"needle$\";\nfn needle() -> u8 { -1 }\n\tneedle --ctx-size 4096\n// ->\n",
    );
    put(&root, "src/a.rs", "use std;\nneedle needle\nNeedle\n");
    put(&root, "src/sub/b.rs", "fn f(needle: u8) {}\n");
    put(&root, "src/m.md", "# needle 123 456\n");
    (kept, root)
}

/// So many files, a fifth of them ignored, in directories of 25. They are names of a few hundred files, which a disk
/// makes ten times faster than files.
fn large_tree(number: usize) -> (tempfile::TempDir, PathBuf) {
    let (kept, root) = temporary();
    put(&root, ".git/HEAD", "");
    put(&root, ".gitignore", "*.o\nbuild/\n");
    let original = |index: usize| root.join(format!(".originals/{index}"));
    for index in 0..250 {
        put(&root, original(index), format!("// needle {index}\nfn item_{index}() {{}}\n"));
    }
    std::thread::scope(|scope| {
        for half in 0..2 {
            let root = &root;
            scope.spawn(move || {
                for directory in (half..number / 25).step_by(2) {
                    let path = root.join(format!("d{}/e{}/f{directory}", directory % 20, directory % 400));
                    fs::create_dir_all(&path).unwrap();
                    for file in 0..25 {
                        let ending = ["rs", "md", "txt", "c", "o"][file % 5];
                        let name = path.join(format!("file{file}.{ending}"));
                        fs::hard_link(original((directory * 25 + file) % 250), name).unwrap();
                    }
                }
            });
        }
    });
    (kept, root)
}
