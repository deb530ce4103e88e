use std::process::Command as Process;

use proptest::prelude::*;

use super::*;

/// The words of a line that is one simple command of which everything is known.
fn words(line: &Line) -> Option<Vec<String>> {
    let [command] = line.commands.as_slice() else { return None };
    let is_plain = line.unclear.is_none() && line.writes.is_empty();
    let words = command.assignments.iter().chain(&command.words);
    if is_plain { words.map(Word::text).collect() } else { None }
}

/// The words that bash makes of a text; none if it cannot read it.
fn of_bash(text: &str) -> Option<Vec<String>> {
    let output =
        Process::new("bash").args(["--norc", "-c", &format!("printf '%s\\0' {text}")]).output().ok()?;
    let words = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| words.split_terminator('\0').map(str::to_owned).collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Words of which everything is known are the words that bash makes of them. Only pieces that run nothing occur.
    #[test]
    fn words_are_those_of_bash(pieces in prop::collection::vec(prop::sample::select(vec![
        "a", "b", " ", "  ", "\t", "'", "'", "\"", "\"", "\\", "\\\\", "\\'", "\\\"", "\\\n", "$'", "\\x41", "\\101", "\\u0042",
        "\\n", "$\"", "=", "{", "}", ",", "..", "!", "é", "]", "^", "%", "@", ":", "/", "-", "+", "?", "*", "$",
    ]), 1..14)) {
        let text: String = pieces.concat();
        if let Some(words) = words(&Line::read(&format!("x {text}"))) {
            let expected = of_bash(&text);
            // Without an argument, printf makes one empty word.
            let known: Vec<String> = words[1..].to_vec();
            // What bash does not understand it does not run.
            let is_same = expected.as_ref().is_none_or(|words| *words == known) || (known.is_empty() && expected == Some(vec![String::new()]));
            prop_assert!(is_same, "{:?}: {:?}, bash: {:?}", text, known, expected);
        }
    }
}
