//! What is said of command lines, from a table: the plain, the disguised, and those that nobody can judge.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::path::Path;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use mainstay_agent::permission::{Action, Approve, Rule, RuleText, Rules};
use proptest::prelude::*;

fn rule(action: Action, pattern: &str) -> Rule {
    Rule::new(RuleText {
        tool: "bash".to_owned(),
        pattern: Some(pattern.to_owned()),
        action,
        origin: String::new(),
        matching: Vec::new(),
        other: Vec::new(),
    })
    .unwrap()
}

/// Made once: a path's pattern takes long to be made ready.
static RULES: LazyLock<Rules> = LazyLock::new(|| {
    let deny = ["git push*", "rm -rf*"].map(|pattern| rule(Action::Deny, pattern));
    let ask = ["npm publish*"].map(|pattern| rule(Action::Ask, pattern));
    let allow = ["echo *", "git status *", "cargo test *", "ls *", "cat *"];
    let allow = allow.map(|pattern| rule(Action::Allow, pattern));
    Rules::new(deny.into_iter().chain(ask).chain(allow).collect(), &[], Vec::new()).unwrap()
});

fn named(action: Action) -> &'static str {
    match action {
        Action::Allow => "allow",
        Action::Ask => "ask",
        Action::Deny => "deny",
    }
}

fn unescaped(text: &str) -> String {
    let mut line = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (c, c == '\\') {
            (_, true) => line.push(match chars.next().unwrap() {
                'n' => '\n',
                't' => '\t',
                c => c,
            }),
            (c, false) => line.push(c),
        }
    }
    line
}

/// Every line of the table is judged as it says, without a sandbox and inside one.
#[test]
fn command_lines_are_judged_as_the_table_says() {
    let rules = &*RULES;
    let workspace = tempfile::tempdir().unwrap();
    let workspace = workspace.path().canonicalize().unwrap();
    let (mut lines, mut wrong) = (0, Vec::new());
    for row in include_str!("commands.tsv").lines().filter(|row| !row.starts_with('#')) {
        let [open, boxed, line] = row.splitn(3, '\t').collect::<Vec<_>>().try_into().unwrap();
        let line = unescaped(line);
        lines += 1;
        for (is_boxed, expected) in [(false, open), (true, boxed)] {
            let said = named(rules.of_command(&line, Approve::Auto, is_boxed, &workspace));
            if said != expected {
                wrong.push(format!("{line:?}, sandbox {is_boxed}: {said}, not {expected}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {lines}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(lines >= 200, "{lines}");
}

/// `all` lets everything pass but what a rule denies, or may deny.
#[test]
fn under_all_only_denial_holds() {
    let (rules, here) = (&*RULES, Path::new("/nowhere"));
    for (line, expected) in [
        ("npm publish", Action::Allow),
        ("make", Action::Allow),
        ("echo x > .git/hooks/pre-commit", Action::Allow),
        ("git push", Action::Deny),
        ("$x", Action::Ask),
    ] {
        assert_eq!(rules.of_command(line, Approve::All, false, here), expected, "{line}");
    }
    let none = Rules::default();
    assert_eq!(none.of_command("$x | sh", Approve::All, false, here), Action::Allow);
    assert_eq!(
        none.of_command("make", Approve::Edits, true, here),
        Action::Ask,
        "only `auto` trusts the sandbox"
    );
}

/// No line makes the reader run for long, recurse without bound or panic.
#[test]
fn deep_and_long_lines_are_asked_about() {
    let (rules, here) = (&*RULES, Path::new("/nowhere"));
    let deep = |open: &str, close: &str| format!("ls {}x{}", open.repeat(5_000), close.repeat(5_000));
    let lines = [
        deep("$(ls ", ")"),
        deep("\"$(ls ", ")\""),
        deep("${x:-", "}"),
        deep("$((", "))"),
        deep("$((", ") )"),
        deep("<(", ")"),
        format!("{}ls{}", "( ".repeat(20_000), " )".repeat(20_000)),
        format!("{}ls", "sudo ".repeat(20_000)),
        format!("ls {}", "`".repeat(30_001)),
        format!("ls {}", "a".repeat(200_000)),
        format!("git {}push", "-x ".repeat(30_000)),
        format!("ls {}", "<<E ".repeat(20_000)),
    ];
    for line in lines {
        let begun = Instant::now();
        let said = rules.of_command(&line, Approve::Auto, true, here);
        assert!(begun.elapsed() < Duration::from_secs(20), "{}", &line[..40]);
        assert_ne!(said, Action::Allow, "{}", &line[..40]);
    }
}

proptest! {
    /// Whatever comes, it is judged; and a line with a denied command behind it is never allowed.
    #[test]
    fn any_line_is_judged(pieces in prop::collection::vec(prop::sample::select(vec![
        "ls", "git", "push", " ", " ", ";", "&&", "|", "\n", "$(", ")", "(", "`", "'", "\"", "\\", "$x", "${", "}", "{", ",", "..",
        "<<E", "E", "A=", "#", "*", "if", "then", "fi", "case", "in", "esac", ";;", "for", "do", "done", "[[", "]]", "=",
        ">", "<", "&", "((", "))", "$'", "sh -c", "eval", "xargs", "find . -exec", "\\;", "é", "\t",
    ]), 0..24)) {
        let line: String = pieces.concat();
        let rules = &*RULES;
        let here = Path::new("/nowhere");
        rules.of_command(&line, Approve::Auto, true, here);
        let behind = format!("git push\n{line}");
        prop_assert_ne!(rules.of_command(&behind, Approve::Auto, true, here), Action::Allow, "{:?}", behind);
    }
}
