use std::fmt::Write as _;

use mainstay_agent::permission::Action;

use super::places::Environment;
use super::*;

fn document(text: &str) -> Document {
    Document::new(Path::new("config.toml"), text)
}

fn user(text: &str) -> Layer {
    file::read(&document(text)).unwrap_or_else(|error| panic!("{text}\n{error}"))
}

fn project(text: &str, user: &Layer) -> Result<Layer, CliError> {
    project::read(&Document::new(Path::new(".mainstay/config.toml"), text), user, false)
}

fn value<T: Clone>(placed: &Option<Placed<T>>) -> T {
    placed.as_ref().unwrap().value.clone()
}

fn name(text: &str) -> ModelName {
    text.parse().unwrap()
}

/// Every key of a user's file, once.
const EVERYTHING: &str = r#"
model = "local/org/qwen"
approve = "edits"
durability = "relaxed"
max_steps = 0x10
tools = ["bash", "read"]
ca_certificates = "company.pem"
protected = ["deploy/**"]

[[rules]]
tool = "bash"
pattern = "git push*"
action = "deny"
examples = { match = ["git push"], not = ["git pull"] }

[plan]
tool = "off"
reminder_after = 0
reminder_repeat = 4

[sandbox]
mode = "read-only"
writable = ["/var/tmp", "~/.cargo"]

[providers.local]
api = "openai-chat"
base_url = "http://127.0.0.1:8080/v1/"
api_key_env = "LOCAL_KEY"
headers = { X-Team = "core" }
first_token_timeout = 30
idle_timeout = 0
ca_certificates = "/etc/gateway.pem"

[providers.local.models."org/qwen"]
context_window = 32768
max_output = 4096
effort = "high"
temperature = 1
images = true
alternate_roles = false
text_calls = "on"
input_price = 2
cached_price = 0.25
cache_write_price = 2.5
output_price = 10.5
extra_body = { top_p = 0.5, stop = ["a"], nested = { at = 2026-01-02 } }
"#;

#[test]
fn every_key_is_read() {
    let layer = user(EVERYTHING);
    assert_eq!(value(&layer.model), name("local/org/qwen"));
    assert_eq!(value(&layer.approve), Approve::Edits);
    assert_eq!(value(&layer.durability), Durability::Relaxed);
    assert_eq!(value(&layer.max_steps), 16);
    assert_eq!(value(&layer.tools), ["bash", "read"]);
    assert_eq!(layer.protected, ["deploy/**"]);
    assert_eq!(layer.rules[0].value.action(), Action::Deny);
    assert_eq!(layer.rules[0].origin, Origin::File("config.toml".into(), 10));
    assert!(!value(&layer.plan_tool));
    assert_eq!((value(&layer.reminder_after), value(&layer.reminder_repeat)), (0, 4));
    assert_eq!(value(&layer.sandbox), SandboxChoice::ReadOnly);
    assert_eq!(value(&layer.writable), ["/var/tmp", "~/.cargo"].map(PathBuf::from));
    assert_eq!(layer.max_steps.as_ref().unwrap().origin, Origin::File("config.toml".into(), 5));

    assert_eq!(value(&layer.ca_certificates), PathBuf::from("company.pem"));

    let local = &layer.providers["local"];
    assert_eq!(value(&local.ca_certificates), PathBuf::from("/etc/gateway.pem"));
    assert_eq!(local.api, Some(Api::OpenaiChat));
    assert_eq!(local.base_url.as_ref().unwrap().to_string(), "http://127.0.0.1:8080/v1");
    assert_eq!(local.api_key_env.as_deref(), Some("LOCAL_KEY"));
    assert_eq!(local.headers["x-team"].expose(), "core");
    assert_eq!((local.first_token_timeout, local.idle_timeout), (Some(30), Some(0)));

    let model = &local.models["org/qwen"];
    assert_eq!(model.context_window, Some(32_768));
    assert_eq!((model.max_output, model.effort.as_deref()), (Some(4096), Some("high")));
    assert_eq!(model.temperature, Some(1.0));
    assert_eq!((model.images, model.alternate_roles), (Some(true), Some(false)));
    assert_eq!(model.text_calls, Some(TextCalls::On));
    let prices =
        PriceLayer { input: Some(2.0), cached: Some(0.25), cache_write: Some(2.5), output: Some(10.5) };
    assert_eq!(model.prices, prices);
    assert_eq!(
        serde_json::to_value(&model.extra_body).unwrap(),
        serde_json::json!({"top_p": 0.5, "stop": ["a"], "nested": {"at": "2026-01-02"}})
    );
}

#[test]
fn an_empty_file_says_nothing_and_a_byte_order_mark_is_no_key() {
    for text in ["", "\u{feff}", "# only a comment\n", "[plan]\n[providers]\n"] {
        let layer = user(text);
        assert!(layer.model.is_none() && layer.providers.is_empty(), "{text:?}");
    }
    assert_eq!(value(&user("\u{feff}model = \"a/b\"").model), name("a/b"));
}

#[test]
fn keys_and_header_values_never_show_in_debug_output() {
    let layer = user("[providers.a]\nheaders = { Authorization = \"private\" }");
    assert!(!format!("{layer:?}").contains("private"));
}

/// Each mistake with the whole message it gives.
#[test]
fn a_mistake_names_its_place_and_what_is_expected() {
    let mistakes = [
        "model = \"a/b\nmax_steps = 3",
        "model",
        "a = 1\na = 2",
        "aprove = \"ask\"",
        "colour = \"blue\"",
        "model = \"gpt\"",
        "model = \"script:\"",
        "model = 7",
        "model = \" \"",
        "approve = \"yes\"",
        "durability = true",
        "max_steps = 0",
        "max_steps = -1",
        "max_steps = \"many\"",
        "max_steps = 1.5",
        "tools = \"read\"",
        "tools = [\"read\", \"raed\"]",
        "tools = [\"read\", 3]",
        "plan = \"on\"",
        "[plan]\ntool = true",
        "[plan]\n  reminder = 3",
        "[plan]\nreminder_after = 99999999999",
        "[sandbox]\nmode = \"strict\"",
        "[sandbox]\nwritable = [\"\"]",
        "[sandbox]\nwritable = [\"build\"]",
        "[[rules]]\npattern = \"git push*\"\naction = \"deny\"",
        "[[rules]]\ntool = \"bash\"",
        "[[rules]]\ntool = \"bash\"\naction = \"forbid\"",
        "[[rules]]\ntool = \"bash\"\naction = \"deny\"\npatern = \"git push*\"",
        "[[rules]]\ntool = \"bash\"\naction = \"ask\"\n\n[[rules]]\ntool = \"bash\"\npattern = \"git push\"\naction = \"deny\"\n\
         examples = { match = [\"git push origin\"] }",
        "[[rules]]\ntool = \"read\"\npattern = \"a[\"\naction = \"deny\"",
        "[[rules]]\ntool = \"Bash\"\naction = \"deny\"",
        "[[rules]]\ntool = \"edit\"\npattern = \"/srv/secrets/**\"\naction = \"deny\"",
        "protected = [\"../x\"]",
        "rules = \"none\"",
        "protected = [\"a[\"]",
        "ca_certificates = true",
        "providers = 1",
        "providers.local = 1",
        "[providers.local]\nurl = \"http://a\"",
        "[providers.local]\napi_key = \"x\"",
        "[providers.local]\napi = \"openai\"",
        "[providers.local]\nbase_url = \"localhost:80\"",
        "[providers.local]\napi_key_env = \"sk-something\"",
        "[providers.local]\nheaders = { \"a b\" = \"c\" }",
        "[providers.local]\nheaders = { a = \"c\\nd\" }",
        "[providers.local]\nidle_timeout = \"2m\"",
        "[providers.local.models]\n\"org/m\" = 1",
        "[providers.local.models.\"org/m\"]\ncontext = 1",
        "[providers.local.models.\"org/m\"]\ntemperature = 2.5",
        "[providers.local.models.\"org/m\"]\ntemperature = nan",
        "[providers.local.models.\"org/m\"]\nimages = \"yes\"",
        "[providers.local.models.\"org/m\"]\ntext_calls = true",
        "[providers.local.models.\"org/m\"]\nextra_body = { a = inf }",
    ];
    let mut all = String::new();
    for text in mistakes {
        let error = file::read(&document(text)).expect_err(text);
        assert_eq!(error.code, crate::error::CONFIGURATION);
        writeln!(all, "{text}\n=> {error}\n").unwrap();
    }
    insta::assert_snapshot!(all, @r#"
    model = "a/b
    max_steps = 3
    => error: config.toml:1:13: invalid basic string, expected `"`

    model
    => error: config.toml:1:6: key with no value, expected `=`

    a = 1
    a = 2
    => error: config.toml:2:1: duplicate key

    aprove = "ask"
    => error: config.toml:1:1: unknown key `aprove`
      did you mean `approve`?
      known here: model, approve, durability, max_steps, tools, rules, protected, plan, sandbox, ca_certificates, providers

    colour = "blue"
    => error: config.toml:1:1: unknown key `colour`
      known here: model, approve, durability, max_steps, tools, rules, protected, plan, sandbox, ca_certificates, providers

    model = "gpt"
    => error: config.toml:1:9: `model` must be PROVIDER/NAME, such as ollama/qwen3-coder, or script:FILE, found "gpt"

    model = "script:"
    => error: config.toml:1:9: `model` must name a file after script:, found "script:"

    model = 7
    => error: config.toml:1:9: `model` must be a text that is not blank, found 7

    model = " "
    => error: config.toml:1:9: `model` must be a text that is not blank, found " "

    approve = "yes"
    => error: config.toml:1:11: `approve` must be "ask", "edits", "auto" or "all", found "yes"

    durability = true
    => error: config.toml:1:14: `durability` must be "always" or "relaxed", found true

    max_steps = 0
    => error: config.toml:1:13: `max_steps` must be a whole number from 1 to 4294967295, found 0

    max_steps = -1
    => error: config.toml:1:13: `max_steps` must be a whole number from 1 to 4294967295, found -1

    max_steps = "many"
    => error: config.toml:1:13: `max_steps` must be a whole number from 1 to 4294967295, found "many"

    max_steps = 1.5
    => error: config.toml:1:13: `max_steps` must be a whole number from 1 to 4294967295, found 1.5

    tools = "read"
    => error: config.toml:1:9: `tools` must be a list of texts, found "read"

    tools = ["read", "raed"]
    => error: config.toml:1:18: `tools` must name tools out of read, write, edit, glob, grep, bash, todo_write, found "raed"

    tools = ["read", 3]
    => error: config.toml:1:18: `tools` must be a text, found 3

    plan = "on"
    => error: config.toml:1:8: `plan` must be a table, found "on"

    [plan]
    tool = true
    => error: config.toml:2:8: `plan.tool` must be "on" or "off", found true

    [plan]
      reminder = 3
    => error: config.toml:2:3: unknown key `reminder` in [plan]
      did you mean `reminder_after`?
      known here: tool, reminder_after, reminder_repeat

    [plan]
    reminder_after = 99999999999
    => error: config.toml:2:18: `plan.reminder_after` must be a whole number from 0 to 4294967295, found 99999999999

    [sandbox]
    mode = "strict"
    => error: config.toml:2:8: `sandbox.mode` must be "read-only", "workspace-write" or "off", found "strict"

    [sandbox]
    writable = [""]
    => error: config.toml:2:13: `sandbox.writable` must be a text that is not blank, found ""

    [sandbox]
    writable = ["build"]
    => error: config.toml:2:13: `sandbox.writable` must hold absolute paths, or such as begin with ~/, found "build"

    [[rules]]
    pattern = "git push*"
    action = "deny"
    => error: config.toml:1:1: `rules` has a rule without `tool`

    [[rules]]
    tool = "bash"
    => error: config.toml:1:1: `rules` has a rule without `action`

    [[rules]]
    tool = "bash"
    action = "forbid"
    => error: config.toml:3:10: `rules.action` must be "allow", "ask" or "deny", found "forbid"

    [[rules]]
    tool = "bash"
    action = "deny"
    patern = "git push*"
    => error: config.toml:4:1: unknown key `patern` in [rules]
      did you mean `pattern`?
      known here: tool, pattern, action, examples

    [[rules]]
    tool = "bash"
    action = "ask"

    [[rules]]
    tool = "bash"
    pattern = "git push"
    action = "deny"
    examples = { match = ["git push origin"] }
    => error: config.toml:5:1: `rules` cannot be obeyed: the rule "bash" "git push" does not match its example "git push origin"

    [[rules]]
    tool = "read"
    pattern = "a["
    action = "deny"
    => error: config.toml:1:1: `rules` cannot be obeyed: the pattern "a[" cannot be used: unclosed character class; missing ']'

    [[rules]]
    tool = "Bash"
    action = "deny"
    => error: config.toml:1:1: `rules` has a rule for the tool `Bash`; the tools are read, write, edit, glob, grep, bash, todo_write

    [[rules]]
    tool = "edit"
    pattern = "/srv/secrets/**"
    action = "deny"
    => error: config.toml:1:1: `rules` cannot be obeyed: the pattern "/srv/secrets/**" cannot be used: paths are judged as they are seen from the workspace: write `secrets/**` or `**/secrets/**`, without a leading `/` and without `.` and `..`

    protected = ["../x"]
    => error: config.toml:1:14: `protected` cannot be obeyed: the pattern "../x" cannot be used: paths are judged as they are seen from the workspace: write `secrets/**` or `**/secrets/**`, without a leading `/` and without `.` and `..`

    rules = "none"
    => error: config.toml:1:9: `rules` must be a list of texts, found "none"

    protected = ["a["]
    => error: config.toml:1:14: `protected` cannot be obeyed: the pattern "a[" cannot be used: unclosed character class; missing ']'

    ca_certificates = true
    => error: config.toml:1:19: `ca_certificates` must be a text that is not blank, found true

    providers = 1
    => error: config.toml:1:13: `providers` must be a table, found 1

    providers.local = 1
    => error: config.toml:1:19: `providers.local` must be a table, found 1

    [providers.local]
    url = "http://a"
    => error: config.toml:2:1: unknown key `url` in [providers.local]
      known here: api, base_url, api_key_env, headers, first_token_timeout, idle_timeout, ca_certificates, models

    [providers.local]
    api_key = "x"
    => error: config.toml:2:1: unknown key `api_key` in [providers.local]
      did you mean `api_key_env`?
      known here: api, base_url, api_key_env, headers, first_token_timeout, idle_timeout, ca_certificates, models

    [providers.local]
    api = "openai"
    => error: config.toml:2:7: `providers.local.api` must be "anthropic", "openai-responses", "openai-chat" or "gemini", found "openai"

    [providers.local]
    base_url = "localhost:80"
    => error: config.toml:2:12: `providers.local.base_url` must begin with http:// or https://, found "localhost:80"

    [providers.local]
    api_key_env = "sk-something"
    => error: config.toml:2:15: `providers.local.api_key_env` must be the name of an environment variable: letters, digits and _
      the key itself does not belong in a file; put it into a variable and name that here

    [providers.local]
    headers = { "a b" = "c" }
    => error: config.toml:2:13: "a b" cannot be the name of a header

    [providers.local]
    headers = { a = "c\nd" }
    => error: config.toml:2:17: `providers.local.headers.a` must hold printable ASCII only

    [providers.local]
    idle_timeout = "2m"
    => error: config.toml:2:16: `providers.local.idle_timeout` must be a whole number from 0 to 86400, found "2m"

    [providers.local.models]
    "org/m" = 1
    => error: config.toml:2:11: `providers.local.models."org/m"` must be a table, found 1

    [providers.local.models."org/m"]
    context = 1
    => error: config.toml:2:1: unknown key `context` in [providers.local.models."org/m"]
      did you mean `context_window`?
      known here: context_window, max_output, effort, temperature, images, alternate_roles, text_calls, extra_body, input_price, cached_price, cache_write_price, output_price

    [providers.local.models."org/m"]
    temperature = 2.5
    => error: config.toml:2:15: `providers.local.models."org/m".temperature` must be a number from 0 to 2, found 2.5

    [providers.local.models."org/m"]
    temperature = nan
    => error: config.toml:2:15: `providers.local.models."org/m".temperature` must be a number from 0 to 2, found nan

    [providers.local.models."org/m"]
    images = "yes"
    => error: config.toml:2:10: `providers.local.models."org/m".images` must be true or false, found "yes"

    [providers.local.models."org/m"]
    text_calls = true
    => error: config.toml:2:14: `providers.local.models."org/m".text_calls` must be "auto", "on" or "off", found true

    [providers.local.models."org/m"]
    extra_body = { a = inf }
    => error: config.toml:2:20: `providers.local.models."org/m".extra_body.a` must be a value that JSON can hold, found inf
    "#);
}

/// Whatever is left of a file after it was cut or a byte of it was lost, reading it ends well or names a place.
#[test]
fn no_damage_goes_without_a_place() {
    let damaged = |text: &str| match file::read(&document(text)) {
        Ok(_) => {}
        Err(error) => assert!(error.message.starts_with("config.toml:"), "{text}\n{error}"),
    };
    for at in 0..EVERYTHING.len() {
        damaged(&EVERYTHING[..at]);
        for other in ["", "\"", "[", "\n", "π", "\u{0}"] {
            damaged(&format!("{}{other}{}", &EVERYTHING[..at], &EVERYTHING[at + 1..]));
        }
    }
}

#[test]
fn a_project_may_narrow() {
    let own = user("model = \"openai/big\"\napprove = \"all\"\nmax_steps = 100\n[providers.mine]\n");
    let text = "approve = \"auto\"\nmax_steps = 100\ndurability = \"always\"\ntools = [\"read\"]\n[plan]\ntool = \"off\"\n\
                reminder_after = 9\nreminder_repeat = 1\n\
                [[rules]]\ntool = \"bash\"\naction = \"deny\"\n[[rules]]\ntool = \"edit\"\naction = \"ask\"\n";
    let narrowed = project(text, &own).unwrap();
    assert_eq!((value(&narrowed.approve), value(&narrowed.max_steps)), (Approve::Auto, 100));
    assert!(!value(&narrowed.plan_tool));
    for model in ["openai/small", "mine/x", "ollama/x", "llamacpp/x", "lmstudio/x"] {
        let narrowed = project(&format!("model = {model:?}"), &own).unwrap();
        assert_eq!(value(&narrowed.model), name(model));
    }
}

#[test]
fn a_project_may_not_widen() {
    let own = "approve = \"edits\"\nmax_steps = 10\ntools = [\"read\", \"edit\"]\nmodel = \"ollama/x\"";
    let attempts = [
        ("", "\n\napprove = \"all\""),
        (own, "approve = \"auto\""),
        ("", "max_steps = 501"),
        (own, "max_steps = 11"),
        ("durability = \"relaxed\"", "durability = \"relaxed\""),
        (own, "tools = [\"read\", \"bash\"]"),
        (own, "model = \"openai/x\""),
        (own, "model = \"script:answers.json\""),
        (own, "[providers.ollama]\nbase_url = \"http://elsewhere.example/v1\""),
        (own, "[sandbox]\nwritable = [\"/\"]"),
        (own, "ca_certificates = \"mine.pem\""),
        (own, "[[rules]]\ntool = \"bash\"\naction = \"allow\""),
        (own, "[plans]"),
    ];
    let mut all = String::new();
    for (own, text) in attempts {
        let error = project(text, &user(own)).expect_err(text);
        assert_eq!(error.code, crate::error::CONFIGURATION);
        writeln!(all, "{text}\n=> {error}\n").unwrap();
    }
    insta::assert_snapshot!(all, @r#"
    approve = "all"
    => error: .mainstay/config.toml:3: a project's file may not set approve to all: that is freer than yours, which is auto
      take the line out there; what you want yourself belongs in your own config.toml or in a flag

    approve = "auto"
    => error: .mainstay/config.toml:1: a project's file may not set approve to auto: that is freer than yours, which is edits
      take the line out there; what you want yourself belongs in your own config.toml or in a flag

    max_steps = 501
    => error: .mainstay/config.toml:1: a project's file may not set max_steps to 501: that is freer than yours, which is 500
      take the line out there; what you want yourself belongs in your own config.toml or in a flag

    max_steps = 11
    => error: .mainstay/config.toml:1: a project's file may not set max_steps to 11: that is freer than yours, which is 10
      take the line out there; what you want yourself belongs in your own config.toml or in a flag

    durability = "relaxed"
    => error: .mainstay/config.toml:1: a project's file may not set durability to relaxed: how safe your log is, you decide
      take the line out there; what you want yourself belongs in your own config.toml or in a flag

    tools = ["read", "bash"]
    => error: .mainstay/config.toml:1: a project's file may not set tools to bash: it is not among the tools that you allow
      take the line out there; what you want yourself belongs in your own config.toml or in a flag

    model = "openai/x"
    => error: .mainstay/config.toml:1: a project's file may not set model to openai/x: you have not chosen "openai" yourself, and what you work on would be sent there
      take the line out there; what you want yourself belongs in your own config.toml or in a flag
      to allow it, add the line [providers.openai] to your own config.toml

    model = "script:answers.json"
    => error: .mainstay/config.toml:1: a project's file may not set model to a script: a script acts as the model and may call any tool
      take the line out there; what you want yourself belongs in your own config.toml or in a flag

    [providers.ollama]
    base_url = "http://elsewhere.example/v1"
    => error: .mainstay/config.toml:1:2: a project's file may not have [providers]
      move it to your own config.toml if you want it

    [sandbox]
    writable = ["/"]
    => error: .mainstay/config.toml:1:2: a project's file may not have [sandbox]
      move it to your own config.toml if you want it

    ca_certificates = "mine.pem"
    => error: .mainstay/config.toml:1:1: a project's file may not say which servers are trusted (ca_certificates)
      move the line to your own config.toml if you want it

    [[rules]]
    tool = "bash"
    action = "allow"
    => error: .mainstay/config.toml:1: a project's file may not allow anything: its rules may only ask and deny
      take the rule out there; if you want it yourself, put it into your own config.toml

    [plans]
    => error: .mainstay/config.toml:1:2: unknown key `plans`
      did you mean `plan`?
      known here: model, approve, durability, max_steps, tools, rules, protected, plan
    "#);
}

#[test]
fn the_environment_says_top_level_keys() {
    let environment: Environment = [
        ("MAINSTAY_MODEL", "a/b"),
        ("MAINSTAY_APPROVE", " all "),
        ("MAINSTAY_DURABILITY", "relaxed"),
        ("MAINSTAY_MAX_STEPS", "7"),
        ("MAINSTAY_TOOLS", "read, edit"),
        ("MAINSTAY_HOME", "/somewhere"),
    ]
    .into_iter()
    .collect();
    let layer = environment::read(&environment).unwrap();
    assert_eq!((value(&layer.model), value(&layer.approve)), (name("a/b"), Approve::All));
    assert_eq!((value(&layer.durability), value(&layer.max_steps)), (Durability::Relaxed, 7));
    assert_eq!(value(&layer.tools), ["read", "edit"]);

    let empty: Environment = [("MAINSTAY_MODEL", ""), ("MAINSTAY_MAX_STEPS", "")].into_iter().collect();
    let layer = environment::read(&empty).unwrap();
    assert!(layer.model.is_none() && layer.max_steps.is_none());
}

#[test]
fn a_mistake_in_the_environment_names_the_variable() {
    let mut all = String::new();
    for pair in [
        ("MAINSTAY_MODEL", "gpt"),
        ("MAINSTAY_APPROVE", "yes"),
        ("MAINSTAY_DURABILITY", "never"),
        ("MAINSTAY_MAX_STEPS", "0"),
        ("MAINSTAY_TOOLS", "read,reed"),
    ] {
        let error = environment::read(&[pair].into_iter().collect()).unwrap_err();
        writeln!(all, "{error}").unwrap();
    }
    insta::assert_snapshot!(all, @r#"
    error: MAINSTAY_MODEL must be PROVIDER/NAME, such as ollama/qwen3-coder, or script:FILE, found "gpt"
      set the variable right, or take it away: unset MAINSTAY_MODEL
    error: MAINSTAY_APPROVE must be "ask", "edits", "auto" or "all", found "yes"
      set the variable right, or take it away: unset MAINSTAY_APPROVE
    error: MAINSTAY_DURABILITY must be "always" or "relaxed", found "never"
      set the variable right, or take it away: unset MAINSTAY_DURABILITY
    error: MAINSTAY_MAX_STEPS must be a whole number from 1, found "0"
      set the variable right, or take it away: unset MAINSTAY_MAX_STEPS
    error: MAINSTAY_TOOLS must name tools out of read, write, edit, glob, grep, bash, todo_write, found "read,reed"
      set the variable right, or take it away: unset MAINSTAY_TOOLS
    "#);
}

/// A home and a repository with a workspace inside.
struct Machine {
    _dir: tempfile::TempDir,
    surroundings: Surroundings,
    repository: PathBuf,
}

impl Machine {
    fn new(user: &str, project: &str, variables: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        let repository = top.join("repo");
        for directory in ["home/.config/mainstay", "repo/.git", "repo/.mainstay", "repo/sub/.mainstay"] {
            std::fs::create_dir_all(top.join(directory)).unwrap();
        }
        std::fs::write(top.join("home/.config/mainstay/config.toml"), user).unwrap();
        std::fs::write(repository.join(".mainstay/config.toml"), project).unwrap();
        // Below the repository's root nothing is read.
        std::fs::write(repository.join("sub/.mainstay/config.toml"), "nonsense").unwrap();
        let home = top.join("home").into_os_string();
        let pairs = variables.iter().map(|(name, value)| (*name, std::ffi::OsString::from(value)));
        let environment = pairs.chain([("HOME", home)]).collect();
        let surroundings = Surroundings { environment, current_dir: repository.join("sub") };
        Machine { _dir: dir, surroundings, repository }
    }

    fn load(&self, overrides: Overrides) -> Layer {
        Config::load(&self.surroundings, &self.repository.join("sub"), overrides).unwrap().values
    }
}

#[test]
fn each_layer_goes_over_the_one_before() {
    let user = "max_steps = 50\napprove = \"all\"\nmodel = \"ollama/user\"\n[plan]\nreminder_after = 7";
    let project = "max_steps = 40\napprove = \"auto\"\nmodel = \"ollama/project\"";
    let variables = [("MAINSTAY_MAX_STEPS", "30"), ("MAINSTAY_MODEL", "a/variable")];
    let flags = Overrides { model: Some(name("a/flag")), ..Overrides::default() };

    let steps_model_approve = |machine: &Machine, flags: Overrides| {
        let layer = machine.load(flags);
        assert_eq!(value(&layer.reminder_after), 7);
        (value(&layer.max_steps), value(&layer.model).to_string(), value(&layer.approve))
    };
    let table = [
        ("", &[][..], Overrides::default(), (50, "ollama/user", Approve::All)),
        (project, &[], Overrides::default(), (40, "ollama/project", Approve::Auto)),
        (project, &variables, Overrides::default(), (30, "a/variable", Approve::Auto)),
        (project, &variables, flags, (30, "a/flag", Approve::Auto)),
    ];
    for (project, variables, flags, (steps, model, approve)) in table {
        let machine = Machine::new(user, project, variables);
        assert_eq!(steps_model_approve(&machine, flags), (steps, model.to_owned(), approve), "{project}");
    }
}

#[test]
fn a_projects_model_is_not_judged_where_it_has_no_effect() {
    let machine = Machine::new("", "model = \"openai/x\"", &[]);
    let workspace = machine.repository.join("sub");
    let refused = Config::load(&machine.surroundings, &workspace, Overrides::default()).unwrap_err();
    assert!(refused.message.contains("a project's file may not set model to openai/x"), "{refused}");
    let stated = Overrides { model: Some(name("a/b")), ..Overrides::default() };
    assert_eq!(value(&machine.load(stated).model), name("a/b"));
}

/// The keys that a table takes, by what is said of one that it does not take.
fn keys(table: &str) -> Vec<String> {
    let head = if table.is_empty() { String::new() } else { format!("[{table}]\n") };
    let error = file::read(&document(&format!("{head}x = 1"))).unwrap_err();
    let known = error.hints.last().unwrap().strip_prefix("known here: ").unwrap().to_owned();
    known.split(", ").map(str::to_owned).collect()
}

const REFERENCE: &str = include_str!("../../../../docs/configuration.md");

#[test]
fn the_reference_names_every_key() {
    let tables = ["", "plan", "sandbox", "providers.p", "providers.p.models.m"];
    let mut all: Vec<String> = tables.into_iter().flat_map(keys).collect();
    all.extend(builtin::BUILT_IN.iter().map(|provider| provider.name.to_owned()));
    all.extend(builtin::BUILT_IN.iter().filter_map(|provider| provider.api_key_env).map(str::to_owned));
    assert!(all.len() > 35, "{all:?}");
    for key in all {
        assert!(REFERENCE.contains(&format!("`{key}`")), "docs/configuration.md says nothing of `{key}`");
    }
}

/// Each key that stands first in a row of the reference is one of its table, each table's default tools are all there are,
/// and each variable is read.
#[test]
fn the_reference_names_no_key_that_is_not_there() {
    let mut known = Vec::new();
    let mut seen = 0;
    for line in REFERENCE.lines() {
        match line {
            "## Keys" => known = keys(""),
            "## Providers" => known = keys("providers.p"),
            "## Models" => known = keys("providers.p.models.m"),
            "`plan`, as `[plan]`:" => known = keys("plan"),
            line if line.starts_with("`sandbox`, as `[sandbox]`") => known = keys("sandbox"),
            "Where `context_window` is not said:" => known.clear(),
            _ => {}
        }
        let Some(cell) = line.strip_prefix("| `").and_then(|_| line.split('|').nth(1)) else { continue };
        let is_of_providers =
            builtin::BUILT_IN.iter().any(|provider| cell.trim() == format!("`{}`", provider.name))
                || Api::WORDS.iter().any(|(word, _)| cell.trim() == format!("`{word}`"));
        if known.is_empty() || is_of_providers {
            continue;
        }
        for key in cell.split('`').skip(1).step_by(2) {
            assert!(
                known.contains(&key.to_owned()),
                "docs/configuration.md: there is no `{key}` here:\n{line}"
            );
            seen += 1;
        }
    }
    assert!(seen > 30, "{seen}");
    let tools = TOOLS.map(|tool| format!("{tool:?}")).join(", ");
    assert!(REFERENCE.contains(&format!("`[{tools}]`")), "{tools}");
    for line in REFERENCE.lines().filter(|line| line.contains("`MAINSTAY_") && line.starts_with("| `")) {
        let cells: Vec<&str> = line.split('`').skip(1).step_by(2).collect();
        let (key, variable) = (cells[0], cells[1]);
        assert_eq!(variable, format!("MAINSTAY_{}", key.to_uppercase()));
        let variables = [(variable, std::ffi::OsString::from("\u{1}"))].into_iter().collect();
        let is_path = key == "ca_certificates";
        assert!(is_path || environment::read(&variables).is_err(), "{variable} is not read");
        let is_known = environment::KNOWN.iter().any(|known| variable == format!("MAINSTAY_{known}"));
        assert!(is_known, "{variable} would be taken for a slip");
    }
}
