//! Which models the servers on this machine have.
//!
//! A server is asked over plain HTTP/1.0 with no key. A closed port on this machine answers at once; a server has a given
//! patience and no more.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::thread;
use std::time::{Duration, Instant};

use crate::config::Config;
use crate::config::base_url::BaseUrl;
use crate::config::builtin::BUILT_IN;

/// A server on this machine that answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LocalServer {
    /// The provider that stands for it.
    pub(crate) provider: String,
    /// Its host and port.
    pub(crate) address: String,
    /// The models it says it has, as far as it said so in time.
    pub(crate) models: Vec<String>,
    /// The windows with which it serves them, where it says so, as llama.cpp's server does.
    pub(crate) windows: BTreeMap<String, u64>,
}

/// The models that a server names, and the windows that it tells.
type Told = (Vec<String>, BTreeMap<String, u64>);

/// Asks all servers on this machine that the configuration knows, and those that are built in, at once.
pub(crate) fn find(config: &Config, patience: Duration) -> Vec<LocalServer> {
    let threads: Vec<_> = known(config)
        .into_iter()
        .map(|(provider, url)| thread::spawn(move || ask(&provider, &url, patience)))
        .collect();
    threads.into_iter().filter_map(|thread| thread.join().ok().flatten()).collect()
}

/// Providers whose address is on this machine and speaks plain HTTP; an address that two have is asked once.
fn known(config: &Config) -> Vec<(String, String)> {
    let own = config.values.providers.iter().filter_map(|(name, own)| Some((name, own.base_url.clone()?)));
    let is_moved = |name: &str| config.values.providers.get(name).is_some_and(|own| own.base_url.is_some());
    let built_in = BUILT_IN
        .iter()
        .filter(|known| known.is_local() && !is_moved(known.name))
        .filter_map(|known| Some((known.name.to_owned(), BaseUrl::parse(known.base_url).ok()?)));
    let mut found: Vec<(String, String)> = Vec::new();
    for (name, url) in own.map(|(name, url)| (name.clone(), url)).chain(built_in) {
        let text = url.to_string();
        if url.is_loopback() && text.starts_with("http://") && !found.iter().any(|(_, other)| *other == text)
        {
            found.push((name, text));
        }
    }
    found
}

fn ask(provider: &str, url: &str, patience: Duration) -> Option<LocalServer> {
    let rest = url.strip_prefix("http://")?;
    let (address, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (models, windows) = ask_for_models(address, path, patience)?;
    Some(LocalServer { provider: provider.to_owned(), address: address.to_owned(), models, windows })
}

/// The models that a server names; none of them where it answers the connection and nothing useful after.
fn ask_for_models(authority: &str, path: &str, patience: Duration) -> Option<Told> {
    let end = Instant::now() + patience;
    let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let place = if has_port { authority.to_owned() } else { format!("{authority}:80") };
    let mut connection = place
        .to_socket_addrs()
        .ok()?
        .find_map(|address| TcpStream::connect_timeout(&address, patience).ok())?;
    let slash = if path.is_empty() { "" } else { "/" };
    Some(read_models(&mut connection, authority, &format!("{slash}{path}/models"), end).unwrap_or_default())
}

/// Speaks HTTP/1.0, so that the body comes in one piece and ends with the connection.
fn read_models(connection: &mut TcpStream, host: &str, path: &str, end: Instant) -> Option<Told> {
    write!(connection, "GET {path} HTTP/1.0\r\nHost: {host}\r\nAccept: application/json\r\n\r\n").ok()?;
    let mut response = Vec::new();
    let mut piece = [0; 8192];
    let body = loop {
        let left = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
        connection.set_read_timeout(Some(left)).ok()?;
        let count = connection.read(&mut piece).ok()?;
        response.extend_from_slice(&piece[..count]);
        let whole =
            response.windows(4).position(|four| four == b"\r\n\r\n").map(|head| &response[head + 4..]);
        // A server may keep the connection open in spite of HTTP/1.0, or frame the body in chunks: done is when the first
        // object in it is whole.
        match whole.and_then(first_object) {
            Some(body) => break body,
            None if count == 0 || response.len() > 1 << 20 => return None,
            None => {}
        }
    };
    let models = body.get("data")?.as_array()?;
    let name = |model: &serde_json::Value| Some(model.get("id")?.as_str()?.to_owned());
    let window = |model| Some((name(model)?, model.get("meta")?.get("n_ctx")?.as_u64()?));
    Some((models.iter().filter_map(name).collect(), models.iter().filter_map(window).collect()))
}

/// The first JSON object in some bytes; none as long as it is not whole.
fn first_object(bytes: &[u8]) -> Option<serde_json::Value> {
    let start = bytes.iter().position(|byte| *byte == b'{')?;
    serde_json::Deserializer::from_slice(&bytes[start..]).into_iter().next()?.ok()
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener};

    use super::*;

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

    /// llama.cpp's server tells the window that it was started with.
    #[test]
    fn a_server_may_tell_its_windows() {
        let (address, _server) = serve(
            "HTTP/1.1 200 OK\r\n\r\n{\"data\":[{\"id\":\"a\",\"meta\":{\"n_ctx\":16384}},{\"id\":\"b\",\"meta\":null}]}",
        );
        let (models, windows) = ask_for_models(&address.to_string(), "v1", Duration::from_secs(60)).unwrap();
        assert_eq!((models.len(), windows), (2, BTreeMap::from([("a".to_owned(), 16_384)])));
    }

    #[test]
    fn a_server_is_asked_for_its_models() {
        let answers = [
            (
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{\"data\":[{\"id\":\"m/1\"},{\"id\":\"m2\"}]}",
                vec!["m/1", "m2"],
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n18\r\n{\"data\":[{\"id\":\"m/1\"}]}\r\n0\r\n\r\n",
                vec!["m/1"],
            ),
            ("HTTP/1.1 404 Not Found\r\n\r\nnot here", vec![]),
            ("", vec![]),
        ];
        for (answer, expected) in answers {
            let (address, server) = serve(answer);
            assert_eq!(
                ask_for_models(&address.to_string(), "v1", Duration::from_secs(60)).unwrap().0,
                expected,
                "{answer}"
            );
            let head = format!("GET /v1/models HTTP/1.0\r\nHost: {address}\r\n");
            assert!(server.join().unwrap().starts_with(&head));
        }
    }

    #[test]
    fn a_closed_port_is_no_server() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        assert_eq!(ask_for_models(&address.to_string(), "v1", Duration::from_secs(60)), None);
    }
}
