//! The address of a provider.

use std::fmt;
use std::net::IpAddr;

/// An `http` or `https` address with a host and, mostly, a version; without a slash at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BaseUrl {
    text: String,
    loopback: bool,
}

impl BaseUrl {
    /// Reads an address. The error says what is wrong, to follow "`base_url` ".
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim().trim_end_matches('/');
        let rest = ["http://", "https://"]
            .iter()
            .find_map(|scheme| text.strip_prefix(scheme))
            .ok_or("must begin with http:// or https://")?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        if authority.contains('@') {
            return Err("must not hold a user or a password; name a variable in api_key_env".to_owned());
        }
        if text.contains(['?', '#']) || text.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err("must not hold a query, a fragment or a space".to_owned());
        }
        let host = host_of(authority).ok_or("must name a host and, if any, a port up to 65535")?;
        if let Some(ending) =
            ["chat/completions", "responses", "messages"].iter().find(|ending| path.ends_with(*ending))
        {
            return Err(format!("must end before /{ending}, which is added to it"));
        }
        if path.contains("enerateContent") {
            return Err("must end before /models, which is added to it with the model's name".to_owned());
        }
        Ok(BaseUrl { text: text.to_owned(), loopback: is_loopback(host) })
    }

    /// Whether it leads to this machine.
    pub(crate) fn is_loopback(&self) -> bool {
        self.loopback
    }
}

impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The host of `host`, `host:port` or `[v6]:port`, if the whole reads as one of these.
fn host_of(authority: &str) -> Option<&str> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']')?;
            host.parse::<std::net::Ipv6Addr>().ok()?;
            (host, if after.is_empty() { None } else { Some(after.strip_prefix(':')?) })
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    let port_is_fine = port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0));
    (!host.is_empty() && port_is_fine).then_some(host)
}

fn is_loopback(host: &str) -> bool {
    let name = host.to_ascii_lowercase();
    name == "localhost"
        || name.ends_with(".localhost")
        || host.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_trimmed_and_known_to_be_local_or_not() {
        let table = [
            ("http://127.0.0.1:8080/v1/", "http://127.0.0.1:8080/v1", true),
            (" http://localhost/v1 ", "http://localhost/v1", true),
            ("http://LocalHost:1", "http://LocalHost:1", true),
            ("http://a.localhost/v1", "http://a.localhost/v1", true),
            ("http://[::1]:80/v1", "http://[::1]:80/v1", true),
            ("http://[::ffff:127.0.0.1]/v1", "http://[::ffff:127.0.0.1]/v1", true),
            ("https://api.openai.com/v1", "https://api.openai.com/v1", false),
            ("http://127.0.0.1.example/v1", "http://127.0.0.1.example/v1", false),
            ("http://10.0.0.1", "http://10.0.0.1", false),
        ];
        for (text, expected, loopback) in table {
            let url = BaseUrl::parse(text).unwrap();
            assert_eq!((url.to_string(), url.is_loopback()), (expected.to_owned(), loopback), "{text}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused_with_the_reason() {
        let host = "must name a host and, if any, a port up to 65535";
        let table = [
            ("", "must begin with http:// or https://"),
            ("localhost:8080/v1", "must begin with http:// or https://"),
            ("ftp://a/v1", "must begin with http:// or https://"),
            ("http://", "must begin with http:// or https://"),
            ("http://:80/v1", host),
            ("http://a:/v1", host),
            ("http://a:99999/v1", host),
            ("http://::1/v1", host),
            ("http://[nonsense]/v1", host),
            ("http://me:word@a/v1", "must not hold a user or a password; name a variable in api_key_env"),
            ("http://a/v1?x=1", "must not hold a query, a fragment or a space"),
            ("http://a b/v1", "must not hold a query, a fragment or a space"),
            ("http://a/v1/chat/completions", "must end before /chat/completions, which is added to it"),
            (
                "https://a/v1beta/models/m:streamGenerateContent",
                "must end before /models, which is added to it with the model's name",
            ),
            ("http://a/v1/messages/", "must end before /messages, which is added to it"),
        ];
        for (text, expected) in table {
            assert_eq!(BaseUrl::parse(text).unwrap_err(), expected, "{text}");
        }
    }
}
