//! Rules, consent and what is told of a denial, through an agent that runs.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

mod common;

use std::fs;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::{
    Bench, assert_sound, assert_stopped, calls, go, log, plan, replayed, results, resume, run, text,
    with_tool,
};
use futures_util::future::BoxFuture;
use mainstay_agent::permission::{Action, Rule, RuleText};
use mainstay_agent::{
    Approval, ApprovalRequest, Approve, Approver, CommandSandbox, Denial, Event, Rules, Setup,
};
use mainstay_session::entry::{Body, Grant, StopReason};
use mainstay_session::message::Outcome;
use mainstay_testkit::tools;
use mainstay_tools::{Edit, Read, TodoWrite, ToolKind, Write};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

fn rule(tool: &str, pattern: Option<&str>, action: Action) -> Rule {
    common::rule(tool, pattern, action, "config.toml:3")
}

fn with_rules(setup: Setup, approve: Approve, rules: Vec<Rule>) -> Setup {
    Setup {
        approve,
        rules: Arc::new(Rules::new(rules, &["vault/**".to_owned()], Vec::new()).unwrap()),
        ..setup
    }
}

fn with_files(setup: Setup) -> Setup {
    with_tool(with_tool(with_tool(setup, Arc::new(Read)), Arc::new(Edit)), Arc::new(Write))
}

/// A shell that runs nothing.
fn with_bash(setup: Setup) -> Setup {
    with_tool(setup, tools::succeeds("bash", ToolKind::Command))
}

fn bash(command: &str) -> Value {
    calls(&[("bash", json!({ "command": command }))])
}

fn write(path: &str) -> Value {
    calls(&[("write", json!({ "path": path, "content": "x\n" }))])
}

/// A user who answers as planned, and what was asked.
struct User {
    answers: Mutex<Vec<Approval>>,
    asked: Mutex<Vec<ApprovalRequest>>,
    kept: Mutex<Vec<Grant>>,
}

impl User {
    fn new(answers: &[Approval]) -> Arc<Self> {
        let answers = Mutex::new(answers.iter().rev().cloned().collect());
        Arc::new(User { answers, asked: Mutex::default(), kept: Mutex::default() })
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().iter().map(|request| request.about.clone()).collect()
    }
}

impl Approver for User {
    fn ask<'a>(&'a self, request: &'a ApprovalRequest) -> BoxFuture<'a, Approval> {
        self.asked.lock().unwrap().push(request.clone());
        let answer = self.answers.lock().unwrap().pop();
        Box::pin(async move {
            match answer {
                Some(answer) => answer,
                None => std::future::pending().await,
            }
        })
    }

    fn keep(&self, grant: &Grant) -> Result<(), String> {
        self.kept.lock().unwrap().push(grant.clone());
        Ok(())
    }
}

fn denials(bench: &Bench) -> Vec<Denial> {
    let denial = |event: Event| match event {
        Event::Denied(denial) => Some(denial),
        _ => None,
    };
    bench.events().into_iter().filter_map(denial).collect()
}

fn outcomes(agent: &mainstay_agent::Agent) -> Vec<Outcome> {
    results(&agent.dir()).iter().map(|result| result.outcome).collect()
}

fn grants(agent: &mainstay_agent::Agent) -> Vec<(String, String)> {
    let grant = |entry: mainstay_session::entry::Entry| match entry.body {
        Body::Grant(grant) => Some((grant.pattern, grant.scope)),
        _ => None,
    };
    log(&agent.dir()).into_iter().filter_map(grant).collect()
}

/// A script that goes on with these answers behind those that the session has.
fn behind<const N: usize>(agent: &mainstay_agent::Agent, answers: [Value; N]) -> Value {
    let given = agent.read(|state| usize::try_from(state.totals.answers).unwrap());
    Value::Array(vec![text("said before"); given].into_iter().chain(answers).collect())
}

const OK: Outcome = Outcome::Ok;
const DENIED: Outcome = Outcome::Denied;

/// What each mode lets pass where nobody can be asked: an edit, a command, a command in a sandbox, a command that a rule
/// allows, and one that a rule denies.
#[tokio::test]
async fn each_mode_lets_pass_what_it_says() {
    let table = [
        (Approve::Ask, false, [DENIED, DENIED, OK, DENIED]),
        (Approve::Edits, false, [OK, DENIED, OK, DENIED]),
        (Approve::Auto, false, [OK, DENIED, OK, DENIED]),
        (Approve::Ask, true, [DENIED, DENIED, OK, DENIED]),
        (Approve::Edits, true, [OK, DENIED, OK, DENIED]),
        (Approve::Auto, true, [OK, OK, OK, DENIED]),
        (Approve::All, false, [OK, OK, OK, DENIED]),
    ];
    for (mode, is_boxed, expected) in table {
        let bench = Bench::new();
        let answers = json!([write("f"), bash("make"), bash("cargo test"), bash("git push"), text("done")]);
        let (setup, _) = bench.scripted(&answers);
        let rules = vec![
            rule("bash", Some("git push*"), Action::Deny),
            rule("bash", Some("cargo test *"), Action::Allow),
        ];
        let sandbox = if is_boxed { CommandSandbox::Enforced } else { CommandSandbox::None };
        let setup = Setup { sandbox, ..with_rules(setup, mode, rules) };
        let (agent, report) = run(with_bash(with_files(setup)), "x").await;
        assert_stopped(&report, StopReason::EndTurn);
        assert_eq!(outcomes(&agent), expected, "{mode:?}, sandbox {is_boxed}");
        let count = expected.iter().filter(|outcome| **outcome == DENIED).count();
        assert_eq!((report.denied, denials(&bench).len()), (count as u64, count));
        assert_sound(&agent);
    }
}

/// What was denied is told with why, and with the rules that would allow exactly that.
#[tokio::test]
async fn a_denial_tells_the_rule_that_would_allow_it() {
    let bench = Bench::new();
    let lines = ["ls -l | wc -l", "git push", "$x", "ls $x"];
    let answers: Vec<Value> = lines.iter().map(|line| bash(line)).chain([text("done")]).collect();
    let (setup, _) = bench.scripted(&Value::Array(answers));
    let rules =
        vec![rule("bash", Some("git push*"), Action::Deny), rule("bash", Some("wc *"), Action::Allow)];
    let (agent, _) = run(with_bash(with_rules(setup, Approve::Auto, rules)), "x").await;

    let told: Vec<_> = denials(&bench)
        .into_iter()
        .map(|denial| (denial.about, denial.rules, denial.passes_with_all))
        .collect();
    let rule = ("bash".to_owned(), "ls -l".to_owned());
    let expected = [
        ("ls -l | wc -l", vec![rule], true),
        ("git push", vec![], false),
        ("$x", vec![], false),
        ("ls $x", vec![], true),
    ];
    assert_eq!(told, expected.map(|(about, rules, all)| (about.to_owned(), rules, all)));
    let texts: Vec<String> = results(&agent.dir()).iter().map(|result| result.summary.clone()).collect();
    assert!(
        texts[0].contains("nobody is here to be asked") && texts[0].contains("--approve all"),
        "{}",
        texts[0]
    );
    assert!(texts[1].contains(r#"the rule "bash" "git push*" (config.toml:3) denies it"#), "{}", texts[1]);
    assert!(texts[2].contains("it may be what the rule"), "{}", texts[2]);
}

/// Paths are judged by where they lead: links, dots and other names for the same file change nothing.
#[cfg(unix)]
#[tokio::test]
async fn rules_for_files_hold_whatever_the_path_looks_like() {
    let bench = Bench::new();
    let root = bench.workspace.path();
    for name in ["secrets/key", "src/a", ".git/hooks/x.sample", ".mainstay/config.toml", "vault/a"] {
        bench.workspace.write(name, "x\n");
    }
    std::os::unix::fs::symlink("secrets", root.join("link")).unwrap();
    std::os::unix::fs::symlink(".git/hooks", root.join("hooks")).unwrap();
    let read = |path: &str| calls(&[("read", json!({ "path": path }))]);
    let alias = |path: &str| calls(&[("write", json!({ "filePath": path, "content": "x\n" }))]);
    let inside = root.join("secrets/key").display().to_string();
    let table = [
        (read("src/a"), OK),
        (read("secrets/key"), DENIED),
        (read("link/key"), DENIED),
        (read("./src/../secrets//key"), DENIED),
        (read(&inside), DENIED),
        (write("src/b"), OK),
        (write("src/gen/deep/b"), DENIED),
        (write("src/a/../gen/c"), DENIED),
        (write(".git/hooks/pre-commit"), DENIED),
        (write("hooks/pre-commit"), DENIED),
        (alias(".GIT/config"), DENIED),
        (write("sub/.git/hooks/post-merge"), DENIED),
        (write(".mainstay/config.toml"), DENIED),
        (write("vault/a"), DENIED),
        (write("other"), OK),
    ];
    let rules = || {
        vec![
            rule("read", Some("secrets/**"), Action::Deny),
            // What may not be edited may not be overwritten.
            rule("edit", Some("src/gen/**"), Action::Deny),
        ]
    };
    for (call, expected) in table {
        let (setup, _) = bench.scripted(&json!([call, text("done")]));
        let (agent, _) = run(with_files(with_rules(setup, Approve::Auto, rules())), "x").await;
        assert_eq!(outcomes(&agent), [expected], "{call}");
    }
    assert!(!root.join(".git/hooks/pre-commit").exists() && !root.join("src/gen").exists());
}

/// A grant is an entry before the call runs; it holds for as long as it says, also after a resume.
#[tokio::test]
async fn grants_are_entries_and_hold_as_long_as_they_say() {
    let bench = Bench::new();
    let lines = ["make", "make", "cargo test -p a", "cargo test -p b; cargo check", "cargo check", "rm -r x"];
    let answers: Vec<Value> = lines.iter().map(|line| bash(line)).chain([text("done")]).collect();
    let (setup, _) = bench.scripted(&Value::Array(answers));
    let user = User::new(&[
        Approval::Once,
        Approval::Once,
        Approval::Session,
        Approval::Project,
        Approval::No { word: "keep it".to_owned() },
    ]);
    let setup = with_bash(with_rules(Setup { approver: Some(user.clone()), ..setup }, Approve::Auto, vec![]));
    let (agent, report) = run(setup, "x").await;

    assert_stopped(&report, StopReason::EndTurn);
    assert_eq!(outcomes(&agent), [OK, OK, OK, OK, OK, DENIED]);
    assert_eq!(user.asked(), ["make", "make", "cargo test -p a", "cargo test -p b; cargo check", "rm -r x"]);
    let named = |pattern: &str, scope: &str| (pattern.to_owned(), scope.to_owned());
    assert_eq!(
        grants(&agent),
        [
            named("make", "once"),
            named("make", "once"),
            named("cargo test *", "session"),
            named("cargo check *", "project"),
        ]
    );
    assert_eq!(user.kept.lock().unwrap().len(), 1);
    let last = results(&agent.dir()).pop().unwrap().summary;
    assert_eq!(last, "The user denied this call and says: keep it");
    assert_sound(&agent);

    let again = [bash("cargo test --all"), bash("make"), text("done")];
    let (setup, _) = bench.scripted(&behind(&agent, again));
    let setup = with_bash(with_rules(setup, Approve::Auto, vec![]));
    let (mut agent, _) = resume(agent, setup);
    go(&mut agent, "again").await;
    assert_eq!(outcomes(&agent)[6..], [OK, DENIED]);
}

/// What is asked about an edit says what it would change; protected paths ask even where edits pass.
#[tokio::test]
async fn an_edit_is_asked_about_with_its_diff() {
    let bench = Bench::new();
    bench.workspace.write(".mainstay/config.toml", "a\nb\n");
    let read = calls(&[("read", json!({ "path": ".mainstay/config.toml" }))]);
    let edit = json!({ "path": ".mainstay/config.toml", "old": "b", "new": "c" });
    let (setup, _) = bench.scripted(&json!([read, calls(&[("edit", edit)]), text("done")]));
    let user = User::new(&[Approval::Session]);
    let setup = with_rules(Setup { approver: Some(user.clone()), ..setup }, Approve::Auto, vec![]);
    let (agent, _) = run(with_files(setup), "x").await;

    assert_eq!(outcomes(&agent), [OK, OK]);
    assert_eq!(bench.workspace.read(".mainstay/config.toml").unwrap(), "a\nc\n");
    let asked = user.asked.lock().unwrap().clone();
    let [request] = asked.as_slice() else { panic!("{asked:?}") };
    assert_eq!(request.why, "`.mainstay/config.toml` is protected");
    assert!(request.diff.as_ref().unwrap().ends_with(" a\n-b\n+c"), "{:?}", request.diff);
    assert_eq!(grants(&agent), [(".mainstay/config.toml".to_owned(), "session".to_owned())]);
}

/// Cancelling withdraws the question: the call has a result that says so, and nothing ran.
#[tokio::test]
async fn cancelling_withdraws_the_question() {
    let bench = Bench::new();
    let (setup, _) = bench.scripted(&json!([write("f"), text("done")]));
    let user = User::new(&[]);
    let setup = with_files(with_rules(Setup { approver: Some(user.clone()), ..setup }, Approve::Ask, vec![]));
    let mut agent = mainstay_agent::Agent::create(setup).unwrap();
    let cancel = CancellationToken::new();
    let stopping = async {
        common::until(|| !user.asked().is_empty()).await;
        cancel.cancel();
    };
    let (report, ()) = tokio::join!(agent.run("x", &cancel), stopping);
    assert_stopped(&report, StopReason::Cancelled);
    assert_eq!(outcomes(&agent), [Outcome::Interrupted]);
    assert!(!bench.workspace.path().join("f").exists() && grants(&agent).is_empty());
    assert_sound(&agent);
}

/// One question at a time, also for calls that run side by side; an answer may settle the next question.
#[tokio::test]
async fn one_question_is_open_at_a_time() {
    let bench = Bench::new();
    bench.workspace.write("a", "x\n");
    let two = json!({ "path": "a" });
    let (setup, _) = bench.scripted(&json!([calls(&[("read", two.clone()), ("read", two)]), text("done")]));
    let user = User::new(&[Approval::Session]);
    let rules = vec![rule("read", None, Action::Ask)];
    let setup = with_files(with_rules(Setup { approver: Some(user.clone()), ..setup }, Approve::Auto, rules));
    let (agent, _) = run(setup, "x").await;
    assert_eq!((outcomes(&agent), user.asked()), (vec![OK, OK], vec!["a".to_owned()]));
}

/// P19 A12: a rule may deny any tool by its name, the plan tool too: the plan stays as it is, live and after replay, and
/// from the second time on the model reads that it stays denied.
#[tokio::test]
async fn a_denied_plan_write_changes_nothing_and_ends() {
    let bench = Bench::new();
    let (setup, _) = bench.scripted(&Value::Array(vec![plan(&[("a", "pending")]); 9]));
    let setup = with_rules(setup, Approve::All, vec![rule("todo_write", None, Action::Deny)]);
    let (agent, report) = run(setup, "x").await;
    assert_stopped(&report, StopReason::RepeatedFailure);
    let results = results(&agent.dir());
    assert_eq!((report.denied, results.len()), (3, 3));
    assert!(!results[0].text().contains("denied before") && results[1].text().contains("will stay denied"));
    agent.read(|state| assert!(state.plan.plan.items.is_empty()));
    assert!(replayed(&agent.dir()).plan.plan.items.is_empty());
    assert_sound(&agent);
}

/// A12: calls that differ, and are denied all the same, come to an end too.
#[tokio::test]
async fn denied_calls_that_differ_come_to_an_end() {
    let bench = Bench::new();
    let answers: Vec<Value> = (0..40).map(|n| bash(&format!("make {n}"))).collect();
    let (setup, _) = bench.scripted(&Value::Array(answers));
    let (agent, report) = run(with_bash(with_rules(setup, Approve::Auto, vec![])), "x").await;
    assert_stopped(&report, StopReason::RepeatedFailure);
    assert_eq!(report.denied, 6);
    assert_sound(&agent);
}

fn changing_plan(number: usize) -> Value {
    plan(&[(&format!("item {number}"), "pending")])
}

/// A10: plan writes without any work between them are counted through the session: first a warning, then refusals, and
/// the plan stays what the last accepted one made it. Work sets the count back.
#[tokio::test]
async fn a_slow_runaway_of_plan_writes_is_warned_of_and_refused() {
    let bench = Bench::new();
    let turn = |turn: usize| (0..10).map(move |n| changing_plan(turn * 10 + n)).chain([text("ok")]);
    let answers: Vec<Value> = (0..10).flat_map(turn).collect();
    let (setup, _) = bench.scripted(&Value::Array(answers));
    let (mut agent, _) = run(setup, "go").await;
    for _ in 0..9 {
        go(&mut agent, "go on").await;
    }
    let results = results(&agent.dir());
    let accepted: Vec<_> = results.iter().filter(|result| result.outcome == OK).collect();
    let warned = accepted.iter().filter(|result| result.text().contains("many times")).count();
    assert!(results.len() < 70 && accepted.len() < 60, "{} of {}", accepted.len(), results.len());
    assert!(warned > 0 && !accepted[5].text().contains("many times"), "{warned}");
    let refused = results.iter().find(|result| result.outcome == Outcome::Error).unwrap();
    assert!(refused.text().contains("The plan was not written"), "{}", refused.text());
    let last = accepted.last().unwrap().plan.clone().unwrap();
    agent.read(|state| assert_eq!(state.plan.plan, last));
    assert_sound(&agent);

    let (setup, _) = bench.scripted(&behind(&agent, [common::work(), changing_plan(900), text("done")]));
    let (mut agent, _) = resume(agent, setup);
    let report = go(&mut agent, "work").await;
    assert_stopped(&report, StopReason::EndTurn);
    assert_eq!(report.plan.plan.items[0].content, "item 900");
}

/// A11: with nothing but the plan tool, and a shell that is missing, writing plans comes to an end.
#[tokio::test]
async fn a_storm_of_plans_comes_to_an_end() {
    let bench = Bench::new();
    let both = |n| [changing_plan(n), bash("ls")];
    let answers: Vec<Value> = (0..100).flat_map(both).collect();
    let (mut setup, _) = bench.scripted(&Value::Array(answers));
    setup.tools = vec![Arc::new(TodoWrite)];
    setup.max_steps = 200;
    let (agent, report) = run(setup, "go").await;
    assert_stopped(&report, StopReason::RepeatedFailure);
    assert!(results(&agent.dir()).len() <= 60, "{}", results(&agent.dir()).len());
    assert_sound(&agent);
}

/// An approval interface sees what the tool would see: arguments under other names too.
#[tokio::test]
async fn what_is_asked_is_what_would_be_done() {
    let bench = Bench::new();
    fs::write(bench.workspace.path().join("f"), "").unwrap();
    let other = calls(&[
        ("bash", json!({ "cmd": "make" })),
        ("write", json!({ "file_path": "f", "contents": "new\n" })),
    ]);
    let (setup, _) = bench.scripted(&json!([other, text("done")]));
    let user = User::new(&[Approval::Once, Approval::Once]);
    let setup = with_rules(Setup { approver: Some(user.clone()), ..setup }, Approve::Ask, vec![]);
    let (agent, _) = run(with_bash(with_files(setup)), "x").await;
    assert_eq!((outcomes(&agent), user.asked()), (vec![OK, OK], vec!["make".to_owned(), "f".to_owned()]));
    let diff = user.asked.lock().unwrap()[1].diff.clone();
    assert!(diff.unwrap().contains("+new"));
}

/// A rule whose examples do not hold is an error that names it.
#[test]
fn a_rules_examples_are_checked() {
    let try_it = |tool: &str, pattern: &str, action, matching: &[&str], other: &[&str]| {
        let texts = |all: &[&str]| all.iter().map(|text| (*text).to_owned()).collect();
        let text = RuleText {
            tool: tool.to_owned(),
            pattern: Some(pattern.to_owned()),
            action,
            origin: String::new(),
            matching: texts(matching),
            other: texts(other),
        };
        Rule::new(text).map(|_| ()).map_err(|error| error.to_string())
    };
    let deny = Action::Deny;
    assert_eq!(
        try_it("bash", "git push*", deny, &["git push", "ls && git push -f"], &["git pull", "echo git push"]),
        Ok(())
    );
    assert_eq!(try_it("bash", "ls *", Action::Allow, &["ls", "ls -l"], &["ls; rm x", "lsof"]), Ok(()));
    assert_eq!(try_it("read", "secrets/**", deny, &["secrets/a/b"], &["src/secrets"]), Ok(()));
    assert_eq!(try_it("mcp_*", "mcp_mail", deny, &["mcp_mail"], &["mcp_other"]), Ok(()));
    assert_eq!(
        try_it("bash", "git push", deny, &["git push origin"], &[]),
        Err(r#"the rule "bash" "git push" does not match its example "git push origin""#.to_owned())
    );
    assert_eq!(
        try_it("bash", "git*", deny, &[], &["git pull"]),
        Err(r#"the rule "bash" "git*" matches "git pull", which is an example of what it should not match"#
            .to_owned())
    );
    assert!(try_it("read", "a[", deny, &[], &[]).unwrap_err().contains("cannot be used"));
    assert_eq!(try_it("bash", "a[", deny, &["a["], &[]), Ok(()), "a command's pattern knows no brackets");
}

/// How long the user took to answer is no time of the call.
#[tokio::test]
async fn the_wait_for_an_answer_is_not_in_the_duration() {
    struct Slow(Mutex<Option<Instant>>);
    impl Approver for Slow {
        fn ask<'a>(&'a self, _: &'a ApprovalRequest) -> BoxFuture<'a, Approval> {
            Box::pin(async {
                tokio::time::sleep(Duration::from_millis(400)).await;
                *self.0.lock().unwrap() = Some(Instant::now());
                Approval::Once
            })
        }

        fn keep(&self, _: &Grant) -> Result<(), String> {
            Ok(())
        }
    }
    let bench = Bench::new();
    let (setup, _) = bench.scripted(&json!([bash("make"), text("Done.")]));
    let slow = Arc::new(Slow(Mutex::default()));
    let setup =
        Setup { approver: Some(slow.clone()), ..with_rules(with_bash(setup), Approve::Auto, Vec::new()) };
    let (agent, report) = run(setup, "make it").await;
    // However slow the machine is, the call took no longer than all that came behind the answer.
    let behind = slow.0.lock().unwrap().unwrap().elapsed();
    assert_stopped(&report, StopReason::EndTurn);
    let result = &results(&agent.dir())[0];
    assert_eq!(result.outcome, Outcome::Ok);
    assert!(u128::from(result.duration_ms) <= behind.as_millis(), "{} ms of {behind:?}", result.duration_ms);
}
