//! What to say where no model is configured: what is at hand, and the line to paste.
//!
//! Looks at the names of variables, never at their values, and asks the three usual local servers which models they
//! have. A closed port on this machine answers at once; a server has [`PATIENCE`] and no more.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crate::config::Config;
use crate::config::builtin::{BUILT_IN, BuiltIn};
use crate::config::places::Environment;
use crate::error::CliError;

/// How long all local servers together may take to answer.
const PATIENCE: Duration = Duration::from_millis(200);

/// A local server that answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LocalServer {
    /// The provider that stands for it.
    provider: &'static str,
    /// Its address.
    address: &'static str,
    /// The models it says it has, as far as it said so in time.
    models: Vec<String>,
}

/// The error for a run without a model, with what is at hand on this machine.
pub(super) fn no_model(config: &Config, environment: &Environment) -> CliError {
    let threads: Vec<_> = BUILT_IN
        .iter()
        .filter(|provider| provider.is_local())
        .map(|provider| thread::spawn(move || find_server(provider)))
        .collect();
    let servers: Vec<LocalServer> =
        threads.into_iter().filter_map(|thread| thread.join().ok().flatten()).collect();
    advise(config, environment, &servers)
}

/// The error for a run without a model, given which servers answer.
pub(super) fn advise(config: &Config, environment: &Environment, servers: &[LocalServer]) -> CliError {
    let file = config
        .user_file
        .as_ref()
        .map_or_else(|| "mainstay/config.toml in $XDG_CONFIG_HOME".to_owned(), |f| f.display().to_string());
    let keyed: Vec<(&BuiltIn, &str)> = BUILT_IN
        .iter()
        .filter_map(|provider| Some((provider, provider.api_key_env?)))
        .filter(|(_, variable)| environment.get(variable).is_some())
        .collect();
    let usable = keyed.first().map(|(provider, _)| *provider);
    let line = match (servers.iter().find(|server| !server.models.is_empty()), usable) {
        (Some(server), _) => format!("{}/{}", server.provider, server.models[0]),
        (None, Some(provider)) => format!("{}/{}", provider.name, provider.example),
        (None, None) => match servers.first() {
            Some(server) => format!("{}/NAME", server.provider),
            None => "ollama/NAME".to_owned(),
        },
    };
    CliError::configuration("no model is configured")
        .hint(format!(
            "API keys in the environment: {}",
            listed(keyed.iter().map(|(provider, variable)| format!("{variable} ({})", provider.name)))
        ))
        .hint(format!("servers on this machine: {}", listed(servers.iter().map(LocalServer::describe))))
        .hint(format!("put this line at the top of {file}:"))
        .hint(format!("    model = {line:?}"))
        .hint("or say it for one run: mainstay exec --model PROVIDER/NAME \"…\"")
}

impl LocalServer {
    fn describe(&self) -> String {
        let models = match self.models.as_slice() {
            [] => String::new(),
            few if few.len() <= 3 => format!(": {}", few.join(", ")),
            many => format!(": {} and {} more", many[..3].join(", "), many.len() - 3),
        };
        format!("{} at {}{models}", self.provider, self.address)
    }
}

fn listed(items: impl Iterator<Item = String>) -> String {
    let items: Vec<String> = items.collect();
    if items.is_empty() { "none found".to_owned() } else { items.join("; ") }
}

fn find_server(provider: &'static BuiltIn) -> Option<LocalServer> {
    let authority = provider.base_url.strip_prefix("http://")?.split('/').next()?;
    let models = ask_for_models(authority.parse().ok()?, authority, PATIENCE)?;
    Some(LocalServer { provider: provider.name, address: authority, models })
}

/// The models that a server names; none of them where it answers the connection and nothing useful after.
fn ask_for_models(address: SocketAddr, host: &str, patience: Duration) -> Option<Vec<String>> {
    let end = Instant::now() + patience;
    let mut connection = TcpStream::connect_timeout(&address, patience).ok()?;
    Some(read_models(&mut connection, host, end).unwrap_or_default())
}

/// Speaks HTTP/1.0, so that the body comes in one piece and ends with the connection.
fn read_models(connection: &mut TcpStream, host: &str, end: Instant) -> Option<Vec<String>> {
    write!(connection, "GET /v1/models HTTP/1.0\r\nHost: {host}\r\nAccept: application/json\r\n\r\n").ok()?;
    let mut response = Vec::new();
    let mut piece = [0; 8192];
    let body = loop {
        let left = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
        connection.set_read_timeout(Some(left)).ok()?;
        let count = connection.read(&mut piece).ok()?;
        response.extend_from_slice(&piece[..count]);
        let whole =
            response.windows(4).position(|four| four == b"\r\n\r\n").map(|head| &response[head + 4..]);
        // A server may keep the connection open in spite of HTTP/1.0: done is when the JSON is whole.
        match whole.and_then(|body| serde_json::from_slice::<serde_json::Value>(body).ok()) {
            Some(body) => break body,
            None if count == 0 || response.len() > 1 << 20 => return None,
            None => {}
        }
    };
    let models = body.get("data")?.as_array()?;
    Some(models.iter().filter_map(|model| Some(model.get("id")?.as_str()?.to_owned())).collect())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    fn config() -> Config {
        Config { values: Default::default(), user_file: Some("/home/me/.config/mainstay/config.toml".into()) }
    }

    #[test]
    fn nothing_at_hand() {
        insta::assert_snapshot!(advise(&config(), &Environment::default(), &[]), @r#"
        error: no model is configured
          API keys in the environment: none found
          servers on this machine: none found
          put this line at the top of /home/me/.config/mainstay/config.toml:
              model = "ollama/NAME"
          or say it for one run: mainstay exec --model PROVIDER/NAME "…"
        "#);
    }

    #[test]
    fn keys_are_named_and_never_shown() {
        let environment: Environment =
            [("ANTHROPIC_API_KEY", "value-a"), ("GROQ_API_KEY", "value-b"), ("XAI_API_KEY", "")]
                .into_iter()
                .collect();
        let error = advise(&config(), &environment, &[]).to_string();
        assert!(!error.contains("value-"), "{error}");
        insta::assert_snapshot!(error, @r#"
        error: no model is configured
          API keys in the environment: ANTHROPIC_API_KEY (anthropic); GROQ_API_KEY (groq)
          servers on this machine: none found
          put this line at the top of /home/me/.config/mainstay/config.toml:
              model = "anthropic/claude-opus-5-5"
          or say it for one run: mainstay exec --model PROVIDER/NAME "…"
        "#);
    }

    #[test]
    fn a_local_server_with_models_gives_the_exact_line() {
        let models = ["qwen3-coder", "b", "c", "d"].map(str::to_owned).to_vec();
        let servers = [
            LocalServer { provider: "llamacpp", address: "127.0.0.1:8080", models: vec![] },
            LocalServer { provider: "ollama", address: "127.0.0.1:11434", models },
        ];
        insta::assert_snapshot!(advise(&config(), &Environment::default(), &servers), @r#"
        error: no model is configured
          API keys in the environment: none found
          servers on this machine: llamacpp at 127.0.0.1:8080; ollama at 127.0.0.1:11434: qwen3-coder, b, c and 1 more
          put this line at the top of /home/me/.config/mainstay/config.toml:
              model = "ollama/qwen3-coder"
          or say it for one run: mainstay exec --model PROVIDER/NAME "…"
        "#);
    }

    /// Serves one connection with a fixed answer, and says what it was asked.
    fn serve(answer: &'static str) -> (SocketAddr, thread::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            let (mut connection, _) = listener.accept().unwrap();
            let mut asked = Vec::new();
            let mut byte = [0];
            while !asked.ends_with(b"\r\n\r\n") && connection.read(&mut byte).unwrap() == 1 {
                asked.push(byte[0]);
            }
            connection.write_all(answer.as_bytes()).unwrap();
            String::from_utf8(asked).unwrap()
        });
        (address, server)
    }

    #[test]
    fn a_server_is_asked_for_its_models() {
        let answers = [
            (
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{\"data\":[{\"id\":\"m/1\"},{\"id\":\"m2\"}]}",
                vec!["m/1", "m2"],
            ),
            ("HTTP/1.1 404 Not Found\r\n\r\nnot here", vec![]),
            ("", vec![]),
        ];
        for (answer, expected) in answers {
            let (address, server) = serve(answer);
            assert_eq!(
                ask_for_models(address, "local", Duration::from_secs(60)).unwrap(),
                expected,
                "{answer}"
            );
            assert!(server.join().unwrap().starts_with("GET /v1/models HTTP/1.0\r\nHost: local\r\n"));
        }
    }

    #[test]
    fn a_closed_port_is_no_server() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        assert_eq!(ask_for_models(address, "local", Duration::from_secs(60)), None);
    }
}
