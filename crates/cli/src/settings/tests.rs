use std::fmt::Write as _;
use std::time::Duration;

use super::model::ServedModel;
use super::*;
use mainstay_agent::model::TextCalls;

use crate::config::Api;
use crate::config::places::Environment;
use crate::error;

/// A home directory with a configuration, and a workspace.
struct Machine {
    _dir: tempfile::TempDir,
    top: PathBuf,
    surroundings: Surroundings,
}

impl Machine {
    fn new(config: &str, variables: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(top.join("home/.config/mainstay")).unwrap();
        std::fs::create_dir_all(top.join("work/.git")).unwrap();
        std::fs::write(top.join("home/.config/mainstay/config.toml"), config).unwrap();
        let home = top.join("home").into_os_string();
        let pairs = variables.iter().map(|(name, value)| (*name, std::ffi::OsString::from(value)));
        let environment: Environment = pairs.chain([("HOME", home)]).collect();
        let surroundings = Surroundings { environment, current_dir: top.join("work") };
        Machine { _dir: dir, top, surroundings }
    }

    fn resolve(&self) -> Result<Settings, CliError> {
        Settings::resolve(&self.surroundings, None, Overrides::default(), Unsaid::Fails)
    }

    /// The error, with the temporary directory called `/top`.
    fn error(&self) -> (u8, String) {
        let error = self.resolve().unwrap_err();
        (error.code, error.to_string().replace(self.top.to_str().unwrap(), "/top"))
    }
}

fn served(config: &str, variables: &[(&str, &str)]) -> ServedModel {
    match Machine::new(config, variables).resolve().unwrap().model {
        ModelConfig::Served(served) => *served,
        ModelConfig::Script { .. } | ModelConfig::Logged(_) => panic!("it is served"),
    }
}

#[test]
fn what_nobody_says_has_its_default() {
    let machine = Machine::new("model = \"ollama/m\"", &[]);
    let settings = machine.resolve().unwrap();
    assert_eq!(settings.data_home, machine.top.join("home/.local/share/mainstay"));
    assert_eq!(settings.workspace, machine.top.join("work"));
    assert_eq!(settings.config_home, Some(machine.top.join("home/.config/mainstay")));
    assert_eq!((settings.approve, settings.max_steps), (Approve::Auto, 500));
    assert_eq!(settings.durability, Durability::Always);
    assert_eq!(settings.plan, PlanSettings { tool: true, reminder_after: 3, reminder_repeat: 0 });
    assert_eq!(settings.tools, TOOLS);
}

#[test]
fn the_plan_tool_is_on_offer_exactly_if_the_plan_is_on() {
    let table = [
        ("", true, &TOOLS[..]),
        ("plan.tool = \"off\"", false, &["read", "write", "edit", "glob", "grep", "bash"]),
        ("tools = [\"bash\", \"read\"]", false, &["read", "bash"]),
        ("tools = [\"todo_write\", \"read\", \"read\"]", true, &["read", "todo_write"]),
        ("tools = [\"todo_write\"]\nplan.tool = \"off\"", false, &[]),
        ("tools = []", false, &[]),
    ];
    for (config, plan, tools) in table {
        let settings = Machine::new(&format!("model = \"ollama/m\"\n{config}"), &[]).resolve().unwrap();
        assert_eq!((settings.plan.tool, &settings.tools[..]), (plan, tools), "{config}");
    }
}

#[test]
fn commands_see_no_key_of_any_provider() {
    let config = "model = \"ollama/m\"\n[providers.mine]\napi_key_env = \"MINE_KEY\"\n[providers.open]\napi_key_env = \"\"";
    assert_eq!(
        Machine::new(config, &[]).resolve().unwrap().hidden_variables,
        [
            "ANTHROPIC_API_KEY",
            "DEEPSEEK_API_KEY",
            "GEMINI_API_KEY",
            "GROQ_API_KEY",
            "MINE_KEY",
            "MISTRAL_API_KEY",
            "OPENAI_API_KEY",
            "OPENROUTER_API_KEY",
            "XAI_API_KEY",
        ]
    );
}

#[test]
fn every_built_in_provider_resolves() {
    for provider in &BUILT_IN {
        let variables: Vec<(&str, &str)> =
            provider.api_key_env.map(|variable| (variable, " word\n")).into_iter().collect();
        let model = served(&format!("model = \"{}/org/m\"", provider.name), &variables);
        assert_eq!((model.provider.as_str(), model.model.as_str()), (provider.name, "org/m"));
        assert_eq!(model.base_url.to_string(), provider.base_url);
        assert_eq!(model.base_url.is_loopback(), provider.is_local(), "{}", provider.name);
        assert_eq!(model.key.as_ref().map(|key| key.expose()), provider.api_key_env.map(|_| "word"));
        assert_eq!((model.api, model.context_window), (provider.api, provider.context_window));
        assert_eq!(model.first_token_timeout, (!provider.is_local()).then(|| Duration::from_secs(600)));
        assert_eq!(model.idle_timeout, Some(Duration::from_secs(120)));

        let word = Api::WORDS.iter().find(|(_, api)| *api == provider.api).map(|(word, _)| *word);
        let made = crate::provider::model(&ModelConfig::Served(Box::new(model))).unwrap();
        assert_eq!(made.name(), format!("{}/org/m", provider.name));
        assert_eq!((Some(made.api()), made.context_window()), (word, provider.context_window));
        assert_eq!((made.takes_images(), made.effort()), (provider.images, None));
    }
}

#[test]
fn a_provider_of_the_users_own_has_cautious_defaults() {
    let config =
        "model = \"far/m\"\n[providers.far]\napi = \"openai-chat\"\nbase_url = \"https://far.example/v1\"";
    let model = served(config, &[]);
    assert_eq!(model.key, None);
    assert_eq!(model.context_window, 32_768);
    assert!(model.alternate_roles && !model.images && !model.short_call_ids && !model.completion_limit);
    assert_eq!(model.text_calls, TextCalls::Auto);
    assert!(model.ca_certificates.is_empty());
    assert_eq!(model.first_token_timeout, Some(Duration::from_secs(600)));
    assert_eq!((model.max_output, model.effort, model.temperature), (None, None, None));
}

#[test]
fn what_the_user_says_goes_over_what_is_built_in() {
    let config = "model = \"openai/m\"\n[providers.openai]\nbase_url = \"http://localhost:9/v1\"\napi_key_env = \"\"\n\
                  first_token_timeout = 5\nidle_timeout = 0\nheaders = { A = \"b\" }\n\
                  [providers.openai.models.m]\ncontext_window = 8000\ntext_calls = \"off\"\nalternate_roles = true\n\
                  images = false\neffort = \"low\"\nmax_output = 100\ntemperature = 0.5\nextra_body = { x = 1 }";
    let model = served(config, &[("OPENAI_API_KEY", "not sent to another host")]);
    assert_eq!((model.base_url.to_string(), model.key.is_none()), ("http://localhost:9/v1".to_owned(), true));
    assert_eq!((model.first_token_timeout, model.idle_timeout), (Some(Duration::from_secs(5)), None));
    assert_eq!((model.context_window, model.max_output), (8000, Some(100)));
    assert_eq!((model.api, model.completion_limit), (Api::OpenaiResponses, true));
    assert!(model.alternate_roles && !model.images);
    assert_eq!(model.text_calls, TextCalls::Off);
    assert_eq!((model.effort.as_deref(), model.temperature), (Some("low"), Some(0.5)));
    assert_eq!(model.headers["a"].expose(), "b");
    assert_eq!(serde_json::Value::from(model.extra_body), serde_json::json!({"x": 1}));
}

#[test]
fn a_key_never_shows_in_debug_output() {
    let model = served("model = \"openai/m\"", &[("OPENAI_API_KEY", "private")]);
    assert!(!format!("{model:?}").contains("private"));
}

#[test]
fn an_effort_on_the_command_line_goes_over_that_of_the_model() {
    let machine = Machine::new("model = \"ollama/m\"\n[providers.ollama.models.m]\neffort = \"low\"", &[]);
    for (said, expected) in [(None, "low"), (Some("high"), "high")] {
        let overrides = Overrides { effort: said.map(str::to_owned), ..Overrides::default() };
        match Settings::resolve(&machine.surroundings, None, overrides, Unsaid::Fails).unwrap().model {
            ModelConfig::Served(served) => assert_eq!(served.effort.as_deref(), Some(expected)),
            ModelConfig::Script { .. } | ModelConfig::Logged(_) => panic!("it is served"),
        }
    }
}

/// A relative file is looked for from where it was named; a provider's own goes over the one at the top.
#[test]
fn certificates_are_read_from_where_they_were_named() {
    let machine = Machine::new("", &[]);
    std::fs::write(machine.top.join("home/.config/mainstay/ca.pem"), "of the configuration").unwrap();
    std::fs::write(machine.top.join("work/ca.pem"), "of the directory").unwrap();
    let own = machine.top.join("own.pem");
    std::fs::write(&own, "of the provider").unwrap();
    let provider = format!("[providers.ollama]\nca_certificates = {:?}", own.to_str().unwrap());
    for (config, variable, expected) in [
        ("ca_certificates = \"ca.pem\"".to_owned(), "", "of the configuration"),
        ("ca_certificates = \"gone.pem\"".to_owned(), "ca.pem", "of the directory"),
        (format!("ca_certificates = \"gone.pem\"\n{provider}"), "", "of the provider"),
    ] {
        std::fs::write(
            machine.top.join("home/.config/mainstay/config.toml"),
            format!("model = \"ollama/m\"\n{config}"),
        )
        .unwrap();
        let home = machine.top.join("home").into_os_string();
        let environment =
            [("HOME", home), ("MAINSTAY_CA_CERTIFICATES", variable.into())].into_iter().collect();
        let surroundings = Surroundings { environment, ..machine.surroundings.clone() };
        match Settings::resolve(&surroundings, None, Overrides::default(), Unsaid::Fails).unwrap().model {
            ModelConfig::Served(served) => assert_eq!(served.ca_certificates, expected.as_bytes()),
            ModelConfig::Script { .. } | ModelConfig::Logged(_) => panic!("it is served"),
        }
    }
    let (code, text) = Machine::new("model = \"ollama/m\"\nca_certificates = \"gone.pem\"", &[]).error();
    assert_eq!(code, error::CONFIGURATION);
    let expected = "error: /top/home/.config/mainstay/config.toml:2: `ca_certificates`: cannot read \
                    /top/home/.config/mainstay/gone.pem: No such file or directory (os error 2)\n  \
                    name a file that holds one or more certificates in PEM";
    assert_eq!(text, expected);
}

#[test]
fn a_script_is_found_from_where_the_user_stands() {
    let machine = Machine::new("", &[("MAINSTAY_MODEL", "script:sub/a.json")]);
    match machine.resolve().unwrap().model {
        ModelConfig::Script { file } => assert_eq!(file, machine.top.join("work/sub/a.json")),
        ModelConfig::Served(_) | ModelConfig::Logged(_) => panic!("it is a script"),
    }
}

#[test]
fn instructions_come_from_the_configuration_and_the_repository() {
    let machine = Machine::new("model = \"ollama/m\"", &[]);
    std::fs::write(machine.top.join("home/.config/mainstay/AGENTS.md"), "user").unwrap();
    std::fs::write(machine.top.join("work/CLAUDE.md"), "project").unwrap();
    let settings = machine.resolve().unwrap();
    let found = settings.instructions(32_768);
    let texts: Vec<&str> = found.files.iter().map(|file| file.text.as_str()).collect();
    assert_eq!(texts, ["user", "project"]);
}

/// Each mistake with the whole message it gives.
#[test]
fn a_model_that_cannot_be_asked_says_why_and_what_to_do() {
    let far = "[providers.far]\napi = \"openai-chat\"\nbase_url = \"http://10.0.0.1/v1\"\n";
    let cases = [
        ("model = \"openai/m\"".to_owned(), error::CREDENTIALS),
        (format!("model = \"far/m\"\n{far}api_key_env = \"FAR_KEY\""), error::CREDENTIALS),
        ("model = \"xai/m\"".to_owned(), error::CREDENTIALS),
        ("\nmodel = \"olama/m\"".to_owned(), error::CONFIGURATION),
        ("model = \"nowhere/m\"".to_owned(), error::CONFIGURATION),
        ("model = \"far/m\"\n[providers.far]\nbase_url = \"http://a/v1\"".to_owned(), error::CONFIGURATION),
        ("model = \"far/m\"\n[providers.far]\napi = \"openai-chat\"".to_owned(), error::CONFIGURATION),
        (
            format!("model = \"far/m\"\n{far}[providers.far.models.m]\ncontext_window = 7999"),
            error::CONFIGURATION,
        ),
    ];
    let mut all = String::new();
    for (config, expected) in cases {
        let machine = Machine::new(&config, &[("XAI_API_KEY", "two words")]);
        let (code, text) = machine.error();
        assert_eq!(code, expected, "{config}");
        writeln!(all, "{config}\n=> {text}\n").unwrap();
    }
    insta::assert_snapshot!(all, @r#"
    model = "openai/m"
    => error: provider "openai" wants an API key, and the variable OPENAI_API_KEY is not set
      set it: export OPENAI_API_KEY=YOUR-KEY
      or name another variable with api_key_env in [providers.openai] of /top/home/.config/mainstay/config.toml

    model = "far/m"
    [providers.far]
    api = "openai-chat"
    base_url = "http://10.0.0.1/v1"
    api_key_env = "FAR_KEY"
    => error: provider "far" wants an API key, and the variable FAR_KEY is not set
      set it: export FAR_KEY=YOUR-KEY
      or name another variable with api_key_env in [providers.far] of /top/home/.config/mainstay/config.toml

    model = "xai/m"
    => error: the key in XAI_API_KEY holds a space or another character that no key has
      set the variable to the key alone


    model = "olama/m"
    => error: /top/home/.config/mainstay/config.toml:2: there is no provider "olama" (model olama/m)
      did you mean "ollama"?
      there are: anthropic, openai, gemini, openrouter, deepseek, groq, mistral, xai, ollama, llamacpp, lmstudio
      define it with [providers.olama] in /top/home/.config/mainstay/config.toml, with api and base_url

    model = "nowhere/m"
    => error: /top/home/.config/mainstay/config.toml:1: there is no provider "nowhere" (model nowhere/m)
      there are: anthropic, openai, gemini, openrouter, deepseek, groq, mistral, xai, ollama, llamacpp, lmstudio
      define it with [providers.nowhere] in /top/home/.config/mainstay/config.toml, with api and base_url

    model = "far/m"
    [providers.far]
    base_url = "http://a/v1"
    => error: [providers.far] in /top/home/.config/mainstay/config.toml lacks `api`
      add a line such as: api = "openai-chat"

    model = "far/m"
    [providers.far]
    api = "openai-chat"
    => error: [providers.far] in /top/home/.config/mainstay/config.toml lacks `base_url`
      add a line such as: base_url = "http://127.0.0.1:8080/v1"

    model = "far/m"
    [providers.far]
    api = "openai-chat"
    base_url = "http://10.0.0.1/v1"
    [providers.far.models.m]
    context_window = 7999
    => error: /top/home/.config/mainstay/config.toml:6:18: `providers.far.models.m.context_window` is too small: a session needs 8000 tokens or more, found 7999
      serve the model with a larger one, such as: llama-server -c 32768, OLLAMA_CONTEXT_LENGTH=32768
      and say so here: context_window = 32768
    "#);
}

#[test]
fn no_model_at_all_is_a_configuration_error_with_a_line_to_paste() {
    let (code, text) = Machine::new("approve = \"ask\"", &[("MISTRAL_API_KEY", "x")]).error();
    assert_eq!(code, error::CONFIGURATION);
    assert!(
        text.starts_with("error: no model is configured\n  API keys in the environment: MISTRAL_API_KEY"),
        "{text}"
    );
    assert!(
        text.contains(
            "put this line at the top of /top/home/.config/mainstay/config.toml:\n      model = \""
        ),
        "{text}"
    );
}

#[test]
fn a_directory_that_cannot_be_used_is_a_usage_error() {
    let machine = Machine::new("model = \"ollama/m\"", &[]);
    let error = Settings::resolve(
        &machine.surroundings,
        Some(Path::new("gone")),
        Overrides::default(),
        Unsaid::Fails,
    )
    .unwrap_err();
    assert_eq!(error.code, crate::error::USAGE);
}

#[test]
fn a_variable_that_names_no_proxy_is_said_without_what_it_holds() {
    let of = |model: &str, name: &str, value: &str| {
        let key = ("OPENAI_API_KEY", "private");
        Machine::new(&format!("model = \"{model}/m\""), &[key, (name, value)])
    };
    for (name, value) in [
        ("HTTPS_PROXY", "ftp://proxy.test:21"),
        ("https_proxy", "me:private@proxy test"),
        ("ALL_PROXY", "http://:8080"),
        ("all_proxy", "file:///proxy"),
    ] {
        let (code, text) = of("openai", name, value).error();
        assert_eq!(code, error::CONFIGURATION);
        assert!(text.contains(&format!("the variable {name} does not name a proxy")), "{text}");
        assert!(text.contains(&format!("unset {name}")) && !text.contains(value), "{text}");
        assert!(
            of("ollama", name, value).resolve().is_ok(),
            "no proxy is asked for a server on this machine"
        );
    }
    for value in ["proxy.test:3128", "http://me:private@proxy.test", "socks5h://[::1]:1080", ""] {
        assert!(of("openai", "HTTPS_PROXY", value).resolve().is_ok(), "{value}");
    }
    assert!(of("openai", "HTTP_PROXY", "ftp://proxy.test").resolve().is_ok(), "it is asked over https");
}
