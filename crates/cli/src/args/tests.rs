use clap::CommandFactory;

use super::*;

fn parse_line(line: &[&str]) -> Result<Command, clap::Error> {
    parse(std::iter::once("mainstay").chain(line.iter().copied()).map(OsString::from))
}

fn exec(line: &[&str]) -> ExecArguments {
    match parse_line(line).unwrap() {
        Command::Exec(arguments) => arguments,
        other => panic!("{other:?}"),
    }
}

fn complaint(line: &[&str]) -> String {
    let error = parse_line(line).unwrap_err();
    assert_eq!(error.exit_code(), 2, "{line:?}");
    error.to_string()
}

#[test]
fn the_definition_holds_together() {
    Arguments::command().debug_assert();
}

/// A command line as a shell would take it apart, in as far as examples need it: words, and texts in quotes.
fn words(line: &str) -> Vec<String> {
    let line = line.split(" | ").find(|part| part.contains("mainstay")).unwrap_or(line);
    let line = line.split(" > ").next().unwrap_or(line);
    let line = line.split(" || ").next().unwrap_or(line);
    let mut words = Vec::new();
    for (place, part) in line.split('"').enumerate() {
        match place % 2 {
            0 => words.extend(part.split_whitespace().map(str::to_owned)),
            _ => words.push(part.to_owned()),
        }
    }
    words
}

/// Every example that help and documents show is a command line that is taken.
#[test]
fn examples_are_taken() {
    fn helps(command: &mut clap::Command) -> String {
        let own = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let long = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
        command.get_subcommands_mut().fold(format!("{own}\n{long}\n"), |all, sub| all + &helps(sub))
    }
    let documents = [
        helps(&mut definition()),
        include_str!("../../../../README.md").to_owned(),
        include_str!("../../../../docs/ci.md").to_owned(),
        include_str!("../../../../docs/sandbox.md").to_owned(),
        include_str!("../../../../docs/tui.md").to_owned(),
    ];
    let lines = documents.iter().flat_map(|text| text.lines()).filter(|line| line.starts_with("  "));
    // What an example does stands beside it, behind two spaces.
    let examples = lines.map(|line| line.trim_start().trim_start_matches("$ ")).filter_map(|line| {
        let line = line.split("  ").next().unwrap_or(line);
        (line.starts_with("mainstay ") || line.contains("| mainstay ")).then(|| words(line))
    });
    let mut taken = 0;
    for example in examples {
        let result = parse(example.iter().map(OsString::from));
        assert!(result.is_ok(), "{example:?}: {}", result.unwrap_err());
        taken += 1;
    }
    assert!(taken > 60, "{taken}");
}

#[test]
fn exec_with_nothing_reads_stdin_in_a_new_session() {
    let arguments = exec(&["exec"]);
    assert_eq!(arguments, ExecArguments::default());
    assert_eq!(arguments.prompt(), PromptSource::Stdin);
    assert_eq!(arguments.session(), SessionChoice::New);
    assert_eq!(arguments.turns.overrides(), Overrides::default());
}

#[test]
fn exec_with_everything() {
    let arguments = exec(&[
        "exec",
        "--json",
        "--deltas",
        "--session",
        "3f2a",
        "--model",
        "local/org/m",
        "--effort",
        "high",
        "--cwd",
        "/w",
        "--approve",
        "all",
        "--sandbox",
        "read-only",
        "--max-steps",
        "7",
        "--require-plan=2",
        "--max-cost",
        "$0.25",
        "--max-time",
        "1h30m",
        "--image",
        "a.png",
        "--image=b.png",
        "--output-schema",
        "form.json",
        "-o",
        "out.json",
        "do it",
    ]);
    assert_eq!(
        arguments,
        ExecArguments {
            prompt: Some("do it".to_owned()),
            json: true,
            deltas: true,
            session: Some("3f2a".to_owned()),
            last: false,
            turns: TurnArguments {
                model: Some(ModelName::Of { provider: "local".to_owned(), model: "org/m".to_owned() }),
                effort: Some("high".to_owned()),
                cwd: Some(PathBuf::from("/w")),
                approve: Some(Approve::All),
                sandbox: Some(SandboxChoice::ReadOnly),
                max_steps: Some(7),
            },
            require_plan: Some(2),
            max_cost: Some(250_000_000),
            max_time: Some(Duration::from_secs(5_400)),
            image: vec!["a.png".into(), "b.png".into()],
            output_schema: Some("form.json".into()),
            output: Some("out.json".into()),
        }
    );
    assert_eq!(arguments.prompt(), PromptSource::Given("do it"));
    assert_eq!(arguments.session(), SessionChoice::Id("3f2a"));
}

#[test]
fn times_and_money_as_they_are_typed() {
    for (text, seconds) in [("90", 90), ("90s", 90), ("10m", 600), ("1h30m", 5_400), ("1h 30m", 5_400)] {
        assert_eq!(
            exec(&["exec", "--max-time", text]).max_time,
            Some(Duration::from_secs(seconds)),
            "{text}"
        );
    }
    for (text, amount) in
        [("1", 1_000_000_000), ("$0.50", 500_000_000), ("0.000000001", 1), ("12.345", 12_345_000_000)]
    {
        assert_eq!(exec(&["exec", "--max-cost", text]).max_cost, Some(amount), "{text}");
    }
}

#[test]
fn small_forms_of_exec() {
    assert_eq!(exec(&["exec", "-"]).prompt(), PromptSource::Stdin);
    assert_eq!(exec(&["exec", "--last", "go on"]).session(), SessionChoice::Last);
    assert_eq!(exec(&["exec", "--", "- a list"]).prompt(), PromptSource::Given("- a list"));
    let bare = exec(&["exec", "--require-plan", "go on"]);
    assert_eq!(
        (bare.require_plan, bare.prompt()),
        (Some(defaults::REQUIRE_PLAN), PromptSource::Given("go on"))
    );
    assert_eq!(exec(&["exec", "--require-plan=0"]).require_plan, Some(0));
    assert_eq!(
        exec(&["exec", "--model", "script:a/b.json"]).turns.overrides().model,
        Some(ModelName::Script(PathBuf::from("a/b.json")))
    );
}

#[test]
fn the_other_commands() {
    let table: [(&[&str], Command); 6] = [
        (&["sessions"], Command::Sessions(SessionsArguments::default())),
        (
            &["sessions", "--json"],
            Command::Sessions(SessionsArguments { json: true, ..SessionsArguments::default() }),
        ),
        (
            &["plan", "3f", "--markdown"],
            Command::Plan(PlanArguments {
                session: Some("3f".to_owned()),
                markdown: true,
                ..PlanArguments::default()
            }),
        ),
        (
            &["plan", "--json", "--cwd", "x"],
            Command::Plan(PlanArguments { json: true, cwd: Some("x".into()), ..PlanArguments::default() }),
        ),
        (
            &["history", "--json"],
            Command::History(HistoryArguments { json: true, ..HistoryArguments::default() }),
        ),
        (&["demo"], Command::Demo),
    ];
    for (line, expected) in table {
        assert_eq!(parse_line(line).unwrap(), expected, "{line:?}");
    }
}

#[test]
fn without_a_command_the_interface_is_meant() {
    let model: ModelName = "local/m".parse().unwrap();
    let interface = TurnArguments { model: Some(model), ..TurnArguments::default() };
    let resume = |session: Option<&str>, last| {
        let session = session.map(str::to_owned);
        Command::Resume(ResumeArguments { session, last, ..ResumeArguments::default() })
    };
    let table: [(&[&str], Command); 5] = [
        (&[], Command::Interface(TurnArguments::default())),
        (&["--model", "local/m"], Command::Interface(interface)),
        (&["resume"], resume(None, false)),
        (&["resume", "--last"], resume(None, true)),
        (&["resume", "3f2a"], resume(Some("3f2a"), false)),
    ];
    for (line, expected) in table {
        assert_eq!(parse_line(line).unwrap(), expected, "{line:?}");
    }
}

#[test]
fn mistakes_are_usage_errors_that_say_what_is_allowed() {
    let table: [(&[&str], &str); 10] = [
        (&["exec", "--last", "--session", "x"], "cannot be used with"),
        (&["exec", "--deltas", "x"], "--json"),
        (&["exec", "--approve", "everything", "x"], "[possible values: ask, edits, auto, all]"),
        (&["exec", "--max-steps", "0", "x"], "0 is not in 1..=4294967295"),
        (
            &["exec", "--model", "gpt", "x"],
            "must be PROVIDER/NAME, such as ollama/qwen3-coder, or script:FILE",
        ),
        (&["exec", "--modle", "a/b", "x"], "a similar argument exists: '--model'"),
        (&["exec", "two", "prompts"], "unexpected argument 'prompts' found"),
        (&["plan", "--json", "--markdown"], "cannot be used with"),
        (&["plan", "3f", "--cwd", "x"], "cannot be used with"),
        (&["exce", "x"], "a similar subcommand exists: 'exec'"),
    ];
    for (line, expected) in table {
        let complaint = complaint(line);
        assert!(complaint.contains(expected), "{line:?}: {complaint}");
    }
}

#[test]
fn version_and_help_are_no_failures() {
    let version = parse_line(&["--version"]).unwrap_err();
    assert_eq!(
        (version.exit_code(), version.to_string()),
        (0, format!("mainstay {}\n", env!("CARGO_PKG_VERSION")))
    );
    for line in [&["--help"][..], &["exec", "--help"], &["plan", "-h"]] {
        let help = parse_line(line).unwrap_err();
        assert_eq!(help.exit_code(), 0);
        assert!(help.to_string().contains("Examples:"), "{line:?}");
    }
}

#[test]
fn the_help_of_exec() {
    // The width is fixed, so that the terminal of whoever runs the test has no say.
    let command = Arguments::command().term_width(100);
    insta::assert_snapshot!(command.try_get_matches_from(["mainstay", "exec", "--help"]).unwrap_err(), @r#"
    Do one turn without an interface: the answer on stdout, all else on stderr

    Usage: mainstay exec [OPTIONS] [PROMPT]

    Arguments:
      [PROMPT]
              What to do; `-` or nothing reads it from stdin

    Options:
          --json
              Print what happens as one JSON object a line instead of the answer

          --deltas
              With --json, also print the pieces of an answer as they come

          --session <ID>
              Continue the session with this id; any unique part of it will do

          --last
              Continue the newest session of this directory

          --model <MODEL>
              The model, over the configured one: PROVIDER/NAME, or script:FILE to replay answers

          --effort <EFFORT>
              How hard the model shall think, in its provider's words, such as low, medium or high

          --cwd <DIR>
              The directory to work in, instead of the current one

          --approve <MODE>
              What needs your consent; where nobody can be asked, what would ask is denied [default:
              auto]

              Possible values:
              - ask:   Edits and commands ask
              - edits: Edits in the workspace pass, commands ask
              - auto:  Edits pass, commands pass inside an enforced sandbox and else ask
              - all:   Everything passes

          --sandbox <MODE>
              What holds the commands of the model [default: workspace-write]

              Possible values:
              - read-only:       Commands change nothing but their own temporary directory
              - workspace-write: They change the workspace too, and reach no network
              - off:             Nothing holds them

          --max-steps <N>
              End a turn after this many steps, a step being one request and the calls it asks for
              [default: 500]

          --max-cost <DOLLARS>
              End after the step with which the turn has cost this many US dollars; needs the model's
              prices

          --max-time <TIME>
              End after this time, such as 90s, 10m or 1h30m; the running step is cancelled

          --require-plan[=<N>]
              Go on up to N times while plan items are unfinished, and exit with 3 if they stay so [N:
              3]

          --image <FILE>
              Show the model a PNG, JPEG, GIF or WebP file with the prompt; may be given more than once.
              Needs a model that takes images (`images` in the configuration)

          --output-schema <FILE>
              The answer must be a JSON document that fits the JSON Schema in this file

      -o, --output <FILE>
              Write the answer to this file too; it is emptied when the turn begins

      -h, --help
              Print help (see a summary with '-h')

    Examples:
      mainstay exec "fix the failing test"
      mainstay exec --model ollama/qwen3-coder "run the tests and fix what fails"
      git diff | mainstay exec -                    the prompt from stdin
      mainstay exec --last "go on"                  also after a crash: nothing is lost
      mainstay exec --require-plan=5 "…"            go on while plan items are unfinished
      mainstay exec --sandbox read-only "…"         commands change nothing
      mainstay exec --json "…" | jq -c .            what happens, for programs
      mainstay exec --image shot.png "what is wrong here?"
      mainstay exec --output-schema form.json -o answer.json "list the public functions"
      mainstay exec --max-cost 0.50 --max-time 10m --max-steps 40 "…"

    With --output-schema the model is asked up to twice to mend an answer that does not fit; if it does
    not, nothing is printed and the exit code is 1. What fits is printed bare, for jq.

    Commands of the model run in a sandbox: they change the workspace and nothing else, and reach no
    network. Where it cannot be enforced (`mainstay doctor` says), they need --approve all.

    Exit codes: 0 done, 1 failed, 2 usage, 3 plan unfinished, 4 limit reached, 65 session damaged, 69
    provider unavailable, 75 try again, 77 credentials, 78 configuration, 130 interrupted, 143
    terminated.
    "#);
}

/// Who gives a prompt where a command belongs is told how a prompt is given, and who mistypes a command, which is meant.
#[test]
fn a_prompt_in_the_place_of_a_command_is_told_its_place() {
    let words = complaint(&["mend the parser"]);
    assert!(words.contains("mainstay exec \"mend the parser\""), "{words}");
    let words = complaint(&["run \"$HOME\""]);
    assert!(words.contains("mainstay exec \"…\"") && !words.contains("exec \"run"), "{words}");
    let words = complaint(&["sesions"]);
    assert!(words.contains("sessions") && !words.contains("mainstay exec"), "{words}");
}
