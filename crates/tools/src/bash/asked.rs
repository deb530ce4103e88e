//! What a call of `bash` asks for.

use serde_json::Value;

use crate::arguments::{Arguments, described};
use crate::tool::ToolError;

const SHAPE: &str = r#"{"command": "cargo test", "timeout_ms": milliseconds, "background": true for a job}"#;
const DEFAULT_TIMEOUT_MS: u64 = 120_000;
pub(super) const LONGEST_TIMEOUT_MS: u64 = 600_000;

/// The longest command, in bytes: more than this does not fit into one argument of a program.
const LONGEST_COMMAND: usize = 128 * 1024 - 1;

/// A `timeout` whose unit nobody told is in seconds if it is below this: no command is meant to end within a second, and
/// none may run for so many seconds.
const SECONDS_BELOW: f64 = 1_000.0;

/// A call, read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) what: What,
    pub(super) timeout_ms: u64,
    /// What the model should know of how its arguments were read.
    pub(super) notes: Vec<String>,
}

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum What {
    /// Run a command to its end.
    Run(String),
    /// Start a command as a background job.
    Start(String),
    /// List the jobs.
    List,
    /// Wait for a job to end.
    Wait(u32),
    /// End a job.
    Stop(u32),
}

/// Reads a call's arguments.
pub(super) fn decode(arguments: &str) -> Result<Asked, ToolError> {
    let mut arguments = Arguments::parse(arguments)?;
    let command = arguments.text("command", &["cmd", "script"]);
    let timeout = timeout(&mut arguments);
    let background = arguments.flag("background", &["run_in_background", "is_background"]);
    let mut notes: Vec<String> = arguments.finish(SHAPE)?.into_iter().collect();
    check(&command)?;
    let timeout_ms = timeout.unwrap_or(DEFAULT_TIMEOUT_MS);
    let what = match about_jobs(&command) {
        Some(what) => what,
        None if background => What::Start(command),
        None => What::Run(command),
    };
    match (&what, timeout) {
        (What::Start(_), Some(_)) => {
            notes.push("a background job has no time limit; timeout_ms was passed over".to_owned());
        }
        (_, Some(timeout)) if timeout > LONGEST_TIMEOUT_MS => notes.push(format!(
            "timeout_ms was cut from {timeout} to {LONGEST_TIMEOUT_MS}, the longest allowed; `background` has no limit"
        )),
        (_, _) => {}
    }
    Ok(Asked { what, timeout_ms: timeout_ms.min(LONGEST_TIMEOUT_MS), notes })
}

fn check(command: &str) -> Result<(), ToolError> {
    if command.trim().is_empty() {
        return Err(ToolError::from("`command` is empty".to_owned()));
    }
    if command.contains('\0') {
        return Err(ToolError::from("`command` holds a NUL character, which no shell takes".to_owned()));
    }
    if command.len() > LONGEST_COMMAND {
        return Err(ToolError::from(format!(
            "`command` has {} bytes, and the longest that can be run has {LONGEST_COMMAND}; write it to a file and run \
             that",
            command.len()
        )));
    }
    Ok(())
}

/// A command that is about background jobs. In a new shell, which has none of its own, each of these words is of no use,
/// so none means anything else.
fn about_jobs(command: &str) -> Option<What> {
    let words: Vec<&str> = command.split_whitespace().collect();
    match words.as_slice() {
        ["jobs"] | ["jobs", "-l" | "list"] => Some(What::List),
        ["jobs", "wait", job] | ["wait", job] => named(job, words[0]).map(What::Wait),
        ["jobs", "stop" | "kill", job] | ["kill", job] => named(job, words[0]).map(What::Stop),
        _ => None,
    }
}

/// The number of `job-1` or `%1`; behind `jobs` also of `1`.
fn named(job: &str, first: &str) -> Option<u32> {
    let number = job.strip_prefix("job-").or(job.strip_prefix('%'));
    number.or((first == "jobs").then_some(job))?.parse().ok()
}

/// The time limit in milliseconds, if there is one. Other agents have `timeout` in seconds or in milliseconds, so how it
/// was read is always told.
fn timeout(arguments: &mut Arguments) -> Option<u64> {
    let (name, value, unit) = [
        ("timeout_ms", ["timeoutMs", "timeout_millis", "timeout_milliseconds"].as_slice(), Some(1.0)),
        ("timeout_s", ["timeout_sec", "timeout_secs", "timeout_seconds"].as_slice(), Some(1_000.0)),
        ("timeout", ["time_limit"].as_slice(), None),
    ]
    .into_iter()
    .find_map(|(name, others, unit)| Some((name, arguments.take(name, others)?, unit)))?;
    let Some(read) = read_time(&value, unit) else {
        let expected = if name == "timeout_ms" { "a whole number from 1" } else { "a time from 1 ms" };
        arguments.problem(format!("`{name}`: expected {expected}, {} came", described(&value)));
        return None;
    };
    match (unit, &value) {
        (Some(1.0), Value::Number(_)) => {}
        (Some(1.0), _) if read.unit == 1.0 => arguments.read_as(&format!("`{name}` {value} as a number")),
        (Some(_), _) => arguments.read_as(&format!("`{name}` {value} as `timeout_ms` {}", read.millis)),
        (None, _) => {
            let unit = if read.unit == 1.0 { "milliseconds" } else { "seconds" };
            let rule = if read.is_guess {
                format!(
                    " (without a unit, in {unit} since it is {} 1000)",
                    if read.unit == 1.0 { "not below" } else { "below" }
                )
            } else {
                String::new()
            };
            arguments.read_as(&format!("`{name}` {value} as `timeout_ms` {}{rule}", read.millis));
        }
    }
    Some(read.millis)
}

/// A time, with how it was read.
struct Time {
    millis: u64,
    /// Milliseconds in the unit of the number.
    unit: f64,
    is_guess: bool,
}

fn read_time(value: &Value, unit: Option<f64>) -> Option<Time> {
    let (number, written) = match value {
        Value::Number(number) => (number.as_f64()?, None),
        Value::String(text) => split_unit(text)?,
        _ => return None,
    };
    let told = written.or(unit);
    let unit = told.unwrap_or(if number < SECONDS_BELOW { 1_000.0 } else { 1.0 });
    let millis = number * unit;
    // Beyond the longest limit by far, it is as good as that many.
    if !(1.0..1.0e15).contains(&millis) || (unit == 1.0 && millis.fract() != 0.0) {
        return None;
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "within bounds, as just checked"
    )]
    let millis = millis.round() as u64;
    Some(Time { millis, unit, is_guess: told.is_none() })
}

/// The number of `90`, `90s` or `1.5 min`, and the milliseconds in its unit if it has one.
fn split_unit(text: &str) -> Option<(f64, Option<f64>)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let unit = match text[end..].trim().to_ascii_lowercase().as_str() {
        "" => None,
        "ms" | "millis" | "milliseconds" => Some(1.0),
        "s" | "sec" | "secs" | "second" | "seconds" => Some(1_000.0),
        "m" | "min" | "mins" | "minute" | "minutes" => Some(60_000.0),
        "h" | "hour" | "hours" => Some(3_600_000.0),
        _ => return None,
    };
    Some((text[..end].parse().ok()?, unit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn timeout_of(arguments: Value) -> Result<(u64, Vec<String>), String> {
        let mut all = json!({"command": "x"});
        all.as_object_mut().unwrap().extend(arguments.as_object().unwrap().clone());
        match decode(&all.to_string()) {
            Ok(asked) => Ok((asked.timeout_ms, asked.notes)),
            Err(error) => Err(error.content.unwrap()),
        }
    }

    /// F10: milliseconds by its name, whatever the number; too much is cut and said.
    #[test]
    fn timeout_ms_is_in_milliseconds() {
        for fine in [1, 120, 120_000, 600_000] {
            assert_eq!(timeout_of(json!({"timeout_ms": fine})), Ok((fine, vec![])));
        }
        assert_eq!(timeout_of(json!({})), Ok((120_000, vec![])));
        assert_eq!(timeout_of(json!({"timeout_ms": null})), Ok((120_000, vec![])));
        let cut = "timeout_ms was cut from 900000 to 600000, the longest allowed; `background` has no limit";
        assert_eq!(timeout_of(json!({"timeout_ms": 900_000})), Ok((600_000, vec![cut.to_owned()])));
        for wrong in [json!(0), json!(-1), json!(0.5), json!("soon"), json!([1]), json!("-5"), json!(1e300)] {
            let error = timeout_of(json!({"timeout_ms": wrong})).unwrap_err();
            assert!(error.starts_with("`timeout_ms`: expected a whole number from 1, "), "{error}");
        }
    }

    /// F10: what other agents call it is read by one rule, and that is told.
    #[test]
    fn other_timeouts_are_read_by_one_rule_that_is_told() {
        let guess = |value: &str, millis: u64, unit: &str, side: &str| {
            format!(
                "(Read `timeout` {value} as `timeout_ms` {millis} (without a unit, in {unit} since it is {side} 1000).)"
            )
        };
        for (arguments, millis, note) in [
            (json!({"timeout": 30}), 30_000, guess("30", 30_000, "seconds", "below")),
            (json!({"timeout": 0.5}), 500, guess("0.5", 500, "seconds", "below")),
            (json!({"timeout": "90"}), 90_000, guess("\"90\"", 90_000, "seconds", "below")),
            (json!({"timeout": 1000}), 1000, guess("1000", 1000, "milliseconds", "not below")),
            (json!({"timeout": 120_000}), 120_000, guess("120000", 120_000, "milliseconds", "not below")),
            (json!({"timeout": "90s"}), 90_000, "(Read `timeout` \"90s\" as `timeout_ms` 90000.)".to_owned()),
            (
                json!({"timeout": "2 min"}),
                120_000,
                "(Read `timeout` \"2 min\" as `timeout_ms` 120000.)".to_owned(),
            ),
            (json!({"timeout": "500ms"}), 500, "(Read `timeout` \"500ms\" as `timeout_ms` 500.)".to_owned()),
            (json!({"timeout_s": 20}), 20_000, "(Read `timeout_s` 20 as `timeout_ms` 20000.)".to_owned()),
            (
                json!({"timeout_seconds": 20}),
                20_000,
                "(Read `timeout_seconds` as `timeout_s`, `timeout_s` 20 as `timeout_ms` 20000.)".to_owned(),
            ),
            (json!({"timeoutMs": 20}), 20, "(Read `timeoutMs` as `timeout_ms`.)".to_owned()),
            (json!({"timeout_ms": "600"}), 600, "(Read `timeout_ms` \"600\" as a number.)".to_owned()),
            (
                json!({"timeout_ms": "30s"}),
                30_000,
                "(Read `timeout_ms` \"30s\" as `timeout_ms` 30000.)".to_owned(),
            ),
        ] {
            assert_eq!(timeout_of(arguments.clone()), Ok((millis, vec![note])), "{arguments}");
        }
        assert!(timeout_of(json!({"timeout": 0})).is_err());
        assert!(
            timeout_of(json!({"timeout": 5, "timeout_ms": 5}))
                .unwrap_err()
                .contains("`timeout`: no such field")
        );
    }

    #[test]
    fn words_about_jobs_are_told_from_commands() {
        for (command, what) in [
            ("jobs", What::List),
            (" jobs -l\n", What::List),
            ("jobs wait job-1", What::Wait(1)),
            ("wait %2", What::Wait(2)),
            ("jobs stop 3", What::Stop(3)),
            ("jobs kill job-3", What::Stop(3)),
            ("kill job-12", What::Stop(12)),
            ("kill %1", What::Stop(1)),
        ] {
            assert_eq!(about_jobs(command), Some(what), "{command}");
        }
        for command in
            ["jobs; ls", "kill 12", "wait 12", "wait", "jobs stop", "jobs stop x", "kill -9 %1 2", "./jobs"]
        {
            assert_eq!(about_jobs(command), None, "{command}");
        }
    }
}
