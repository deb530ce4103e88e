//! Secrets in texts: found by their form, and replaced.
//!
//! What is masked is what looks like a key, a token or a password by its own form; a secret that looks like an ordinary
//! word is not found. Texts that only a provider understands are never given to this.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::{Captures, Regex};

/// What stands in for a secret. It has no character that JSON escapes, so a text within a text stays one.
pub const MASK: &str = "[masked]";

/// Forms of secrets. What `keep` names in a form stays in front of the mask, and `close` behind it.
const FORMS: &[&str] = &[
    r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----(?:[A-Za-z0-9+/=\s\\:,-]*?-----END [A-Z0-9 ]*PRIVATE KEY-----|[A-Za-z0-9+/=\s\\]*)",
    r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    r"(?P<keep>(?i:\bbearer)\s+)[A-Za-z0-9._~+/=-]{8,}",
    r"\b(?:sk|pk|rk)[-_](?:[a-z]+[-_])*[A-Za-z0-9_-]{16,}",
    r"\bgh[pousr]_[A-Za-z0-9]{20,}",
    r"\bgithub_pat_[A-Za-z0-9_]{20,}",
    r"\bglpat-[A-Za-z0-9_-]{16,}",
    r"\bxox[abeprs]-[A-Za-z0-9-]{10,}",
    r"\bAIza[0-9A-Za-z_-]{30,}",
    r"\b(?:gsk|hf|npm|pypi|xai|r8)[-_][A-Za-z0-9_-]{20,}",
    r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}",
    r"(?P<keep>://[^\s/:@\x22\x27\\]+:)[^\s/@\x22\x27\\]{3,}(?P<close>@)",
    r#"(?P<keep>(?i:(?:api[_-]?key|secret|token|passw(?:or)?d)[a-z0-9_-]*)\\*["\x27]?\s*[:=]\s*\\*["\x27]?)[A-Za-z0-9/+_.~!$%^&*=-]{16,}"#,
];

static SECRETS: LazyLock<Vec<Regex>> =
    LazyLock::new(|| FORMS.iter().filter_map(|form| Regex::new(form).ok()).collect());

/// The text without what looks like a secret.
pub fn mask(text: &str) -> Cow<'_, str> {
    let mut masked = Cow::Borrowed(text);
    for form in SECRETS.iter() {
        let replaced = form.replace_all(&masked, |found: &Captures<'_>| {
            let part = |name| found.name(name).map_or("", |part| part.as_str());
            format!("{}{MASK}{}", part("keep"), part("close"))
        });
        if let Cow::Owned(text) = replaced {
            masked = Cow::Owned(text);
        }
    }
    masked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_can_be_read() {
        assert_eq!(SECRETS.len(), FORMS.len());
    }

    /// D20: what looks like a secret goes, what stands around it stays. Built here, so that no file holds one.
    #[test]
    fn what_looks_like_a_secret_is_masked() {
        let (upper, lower) = ("A".repeat(16), "a1".repeat(20));
        let pem = |end: &str| format!("-----BEGIN RSA {} KEY-----\nMIIabc+/=\n{end}", "PRIVATE");
        let table = [
            (format!("id AKIA{upper}."), "id [masked].".to_owned()),
            (format!("Authorization: Bearer {}", "aaa.bbb.ccc"), "Authorization: Bearer [masked]".to_owned()),
            (format!("key sk-ant-api03-{lower} x"), "key [masked] x".to_owned()),
            (format!("sk-proj-{lower}"), "[masked]".to_owned()),
            (format!("ghp_{lower}"), "[masked]".to_owned()),
            (format!("AIza{lower}"), "[masked]".to_owned()),
            (
                format!("a {} b", pem(&format!("-----END RSA {} KEY-----", "PRIVATE"))),
                "a [masked] b".to_owned(),
            ),
            (pem(""), "[masked]".to_owned()),
            (format!("eyJ{lower}.{lower}.{lower}"), "[masked]".to_owned()),
            (format!("postgres://me:{}@host/db", "hunter22"), "postgres://me:[masked]@host/db".to_owned()),
            (format!("API_KEY=\"{lower}\""), "API_KEY=\"[masked]\"".to_owned()),
            (
                format!("{{\\\"password\\\": \\\"{lower}\\\"}}"),
                "{\\\"password\\\": \\\"[masked]\\\"}".to_owned(),
            ),
        ];
        for (text, expected) in table {
            assert_eq!(mask(&text), expected, "{text}");
        }
        let plain =
            "The token is in the file; see https://example.com/a?b=c and sha256 0f3a99c1. Bearer of news.";
        assert!(matches!(mask(plain), Cow::Borrowed(text) if text == plain));
    }
}
