//! `mainstay demo`: a small real job that survives the death of its agent.
//!
//! The embedded scripted model works with the real tools in a temporary workspace. In the middle of the test command
//! the agent's process is killed with SIGKILL; another one goes on with the session. What is shown is read from the
//! agents' events and from the log, and what is claimed at the end is checked.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use mainstay_agent::session::log::SessionSummary;
use mainstay_agent::session::message::Outcome;
use mainstay_agent::session::plan::{self, Plan};
use mainstay_agent::session::state::SessionState;
use mainstay_agent::tools::is_running;
use serde_json::Value;

use crate::choose::session;
use crate::error::CliError;
use crate::history::read;
use crate::output::{inert, out, shortened};

const SCRIPT: &str = include_str!("demo/script.json");

const GREET: &str = "#!/bin/sh\n# Greets whoever is named.\necho \"Helo, $1!\"\n";

/// Slow enough for something to happen in its middle.
const TEST: &str = "#!/bin/sh\necho started >> test.log\nsleep 1\n\
                    if [ \"$(sh greet.sh World)\" = \"Hello, World!\" ]; then echo \"ok: the greeting is right\"\n\
                    else echo \"failed: $(sh greet.sh World)\"; exit 1; fi\n";

/// How long the demo waits for something that takes a moment at most.
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs the demo. Its exit code is 0 only if everything it claims was so.
pub(crate) fn demo(data_home: &Path) -> Result<ExitCode, CliError> {
    let place = Place::make()
        .map_err(|error| CliError::new(1, format!("cannot make the demo's workspace: {error}")))?;
    out(&format!(
        "A scripted model, real tools, and a workspace with a bug in it: {}",
        place.workspace.display()
    ));
    out("");
    let id = first_run(&place).map_err(failed)?;
    let found = session(data_home, &place.workspace, Some(&id))?;
    let killed = read(&found)?;
    show_the_crash(&killed);
    second_run(&place, &found).map_err(failed)?;
    let finished = read(&found)?;
    let is_as_claimed = show_the_end(&killed, &finished);
    show_how_to_look(&found);
    Ok(if is_as_claimed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn failed(error: io::Error) -> CliError {
    CliError::new(1, format!("the demo could not be run: {error}"))
}

struct Place {
    workspace: PathBuf,
    script: PathBuf,
}

impl Place {
    /// Makes a folder that stays, so that it can be looked at afterwards.
    fn make() -> io::Result<Self> {
        let root = tempfile::Builder::new().prefix("mainstay-demo-").tempdir()?.keep().canonicalize()?;
        let place = Place { workspace: root.join("workspace"), script: root.join("script.json") };
        fs::create_dir(&place.workspace)?;
        fs::write(place.workspace.join("greet.sh"), GREET)?;
        fs::write(place.workspace.join("test.sh"), TEST)?;
        fs::write(&place.script, SCRIPT)?;
        Ok(place)
    }

    fn exec(&self, arguments: &[&str]) -> io::Result<Child> {
        Command::new(std::env::current_exe()?)
            .args(["exec", "--json", "--approve", "all", "--model"])
            .arg(format!("script:{}", self.script.display()))
            .arg("--cwd")
            .arg(&self.workspace)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
    }
}

/// Runs the agent up to the middle of the test command and kills it there. Returns the session's id.
fn first_run(place: &Place) -> io::Result<String> {
    let mut child =
        place.exec(&["Mend the greeting in greet.sh, run test.sh, and write down what changed."])?;
    let mut id = String::new();
    for event in events(&mut child)? {
        let event = event?;
        if event["type"] == "session.started" {
            event["session_id"].as_str().unwrap_or_default().clone_into(&mut id);
        }
        show(&event);
        if event["type"] == "tool.started" && event["name"] == "bash" {
            wait_for(&place.workspace.join("test.log"))?;
            std::thread::sleep(Duration::from_millis(300));
            out("");
            out(&format!("  ⚡ kill -9 {}   the agent's own process, in the middle of the test", child.id()));
            child.kill()?;
            break;
        }
    }
    child.wait()?;
    Ok(id)
}

fn second_run(place: &Place, found: &SessionSummary) -> io::Result<()> {
    out("Another process goes on with the session:");
    out("");
    let mut child = place.exec(&["--session", found.id.as_str(), "Go on where you stopped."])?;
    for event in events(&mut child)? {
        show(&event?);
    }
    child.wait()?;
    Ok(())
}

fn events(child: &mut Child) -> io::Result<impl Iterator<Item = io::Result<Value>> + use<>> {
    let stdout = child.stdout.take().ok_or_else(|| io::Error::other("the agent has no output"))?;
    Ok(BufReader::new(stdout).lines().map(|line| Ok(serde_json::from_str(&line?)?)))
}

fn wait_for(path: &Path) -> io::Result<()> {
    let begun = Instant::now();
    while !path.exists() {
        if begun.elapsed() > PATIENCE {
            return Err(io::Error::other(format!("{} did not appear", path.display())));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn show(event: &Value) {
    let text = |key: &str| inert(event[key].as_str().unwrap_or_default());
    match event["type"].as_str().unwrap_or_default() {
        "answer" if !text("text").is_empty() => out(&format!("  model  {}", text("text"))),
        "tool.started" if text("name") != "todo_write" => {
            out(&format!("  {:5}  {}", text("name"), shortened(&text("arguments"), 90)));
        }
        "tool.completed" if event["exit_code"].is_i64() => {
            out(&format!("         exit code {}", event["exit_code"]))
        }
        "plan" => {
            let items = serde_json::from_value(event["items"].clone()).unwrap_or_default();
            show_plan(&Plan { items });
        }
        "error" => out(&format!("  error  {}", text("message"))),
        _ => {}
    }
}

fn show_plan(shown: &Plan) {
    plan::render(shown)
        .lines()
        .filter(|line| !line.is_empty())
        .for_each(|line| out(&format!("           {line}")));
}

fn show_the_crash(killed: &SessionState) {
    out("");
    out("What the log says now:");
    out("");
    show_plan(&killed.plan.plan);
    for open in killed.open_calls() {
        out(&format!("  in flight: {} {}", open.call.name, inert(&open.call.arguments)));
    }
    let alive = survivors(killed);
    out(&format!(
        "  of its processes {} still running",
        if alive == 0 { "none is".to_owned() } else { alive.to_string() }
    ));
    out("");
}

/// How many of the commands that were in flight are alive, after they had a moment to end.
fn survivors(killed: &SessionState) -> usize {
    let begun = Instant::now();
    loop {
        let alive = killed.running.values().filter(|intent| is_running(intent.pid, intent.started)).count();
        if alive == 0 || begun.elapsed() > Duration::from_secs(2) {
            return alive;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn show_the_end(killed: &SessionState, finished: &SessionState) -> bool {
    let interrupted = finished.results().find(|result| result.outcome == Outcome::Interrupted);
    let test = finished.results().filter(|result| result.exit_code.is_some()).last();
    let claims = [
        ("the plan was kept", killed.plan.plan.items.len() == 4 && killed.plan.plan.completed() == 2),
        ("the interrupted call was named to the model", interrupted.is_some()),
        ("nothing was left running", survivors(killed) == 0),
        ("the test was run again and passed", test.is_some_and(|result| result.exit_code == Some(0))),
        ("the plan is finished", finished.plan.plan.items.len() == 4 && !finished.plan.plan.has_unfinished()),
    ];
    out("");
    for (claim, holds) in claims {
        out(&format!("  {} {claim}", if holds { "✓" } else { "✗ NOT SO:" }));
    }
    if let Some(result) = interrupted {
        out("");
        out("What the model was told of the call in flight:");
        result.text().lines().for_each(|line| out(&format!("  {}", inert(line))));
    }
    claims.iter().all(|(_, holds)| *holds)
}

fn show_how_to_look(found: &SessionSummary) {
    let id = found.id.short();
    out("");
    out(&format!("The session lies in {}", found.dir.display()));
    out(&format!("  mainstay plan {id}       its plan"));
    out(&format!("  mainstay history {id}    everything the model saw, word for word"));
    out(&format!("  jq . {}/0001.jsonl", found.dir.display()));
}
