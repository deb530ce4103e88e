//! Keys and what looks like them, masked.
//!
//! A guess by form: well-known prefixes of keys, bearer tokens, private keys, and values of fields whose name says that
//! they are secret. What is masked is replaced by `***`; the name of the field stays. Nothing is masked in the log itself,
//! which has the true bytes.

use std::borrow::Cow;

#[cfg(test)]
mod tests;

/// What stands in for a secret.
pub const MASK: &str = "***";

/// Prefixes by which providers mark their keys, and how many characters follow at least.
const PREFIXES: [(&str, usize); 18] = [
    ("sk-", 16),
    ("sk_live_", 16),
    ("sk_test_", 16),
    ("rk_live_", 16),
    ("ghp_", 20),
    ("gho_", 20),
    ("ghu_", 20),
    ("ghs_", 20),
    ("ghr_", 20),
    ("github_pat_", 20),
    ("glpat-", 16),
    ("xoxb-", 16),
    ("xoxp-", 16),
    ("AKIA", 16),
    ("ASIA", 16),
    ("AIza", 30),
    ("hf_", 20),
    ("gsk_", 20),
];

/// Words in the names of fields that hold secrets.
const NAMES: [&str; 8] =
    ["token", "secret", "password", "passwd", "api_key", "apikey", "access_key", "private_key"];

/// The shortest value of such a field that is masked.
const SHORTEST: usize = 8;

/// A text with what looks like a secret masked.
pub fn mask(text: &str) -> Cow<'_, str> {
    let mut spans = private_keys(text);
    let mut place = 0;
    for word in text.split_inclusive(|c: char| !is_word(c)) {
        let bare = word.trim_end_matches(|c: char| !is_word(c));
        spans.extend(key_in(bare).map(|(from, to)| (place + from, place + to)));
        place += word.len();
    }
    spans.extend(values(text));
    spans.sort_unstable();
    replaced(text, &spans)
}

fn replaced<'a>(text: &'a str, spans: &[(usize, usize)]) -> Cow<'a, str> {
    if spans.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut masked = String::with_capacity(text.len());
    let mut done = 0;
    for &(from, to) in spans {
        if to <= done {
            continue;
        }
        if from >= done {
            masked.push_str(&text[done..from]);
            masked.push_str(MASK);
        }
        done = to;
    }
    masked.push_str(&text[done..]);
    Cow::Owned(masked)
}

/// A character of a key.
fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '+' | '/' | '~')
}

/// Where in a word a key with a known prefix stands.
fn key_in(word: &str) -> Option<(usize, usize)> {
    let starts_anew = |at: usize| word[..at].chars().next_back().is_none_or(|c| !c.is_ascii_alphanumeric());
    PREFIXES.iter().find_map(|(prefix, least)| {
        let at = word.match_indices(prefix).map(|(at, _)| at).find(|at| starts_anew(*at))?;
        let has_digit = word[at + prefix.len()..].bytes().any(|byte| byte.is_ascii_digit());
        (word.len() - at - prefix.len() >= *least && has_digit).then_some((at, word.len()))
    })
}

/// Blocks from `-----BEGIN … PRIVATE KEY-----` to their end, without the two lines.
fn private_keys(text: &str) -> Vec<(usize, usize)> {
    const BEGIN: &str = "PRIVATE KEY-----";
    let mut spans = Vec::new();
    let mut from = 0;
    while let Some(found) = text[from..].find(BEGIN) {
        let start = from + found + BEGIN.len();
        let is_begin =
            text[..from + found].rfind("-----").is_some_and(|at| text[at..].starts_with("-----BEGIN"));
        let end = text[start..].find("-----END").map_or(text.len(), |at| start + at);
        if is_begin && end > start {
            spans.push((start, end));
        }
        from = end.max(start);
    }
    spans
}

/// Values behind names such as `GITHUB_TOKEN=` or `"password": `, and behind `Bearer `.
fn values(text: &str) -> Vec<(usize, usize)> {
    let mut spans = Vec::new();
    for (at, separator) in text.match_indices(['=', ':']) {
        let name = text[..at].trim_end_matches([' ', '"', '\'', '\\']);
        let name_start = name
            .rfind(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-')))
            .map_or(0, |at| at + name[at..].chars().next().map_or(1, char::len_utf8));
        if is_secret_name(&name[name_start..]) {
            spans.extend(value_from(text, at + separator.len()));
        }
    }
    for (at, bearer) in text.match_indices("Bearer ") {
        spans.extend(value_from(text, at + bearer.len()));
    }
    spans
}

fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace('-', "_");
    // `max_tokens` and its like count tokens.
    !name.ends_with("tokens") && NAMES.iter().any(|word| name.contains(word))
}

/// The value that begins at or soon behind `from`, if it is long enough and no reference to where the secret is.
fn value_from(text: &str, from: usize) -> Option<(usize, usize)> {
    let lead = text[from..].len() - text[from..].trim_start_matches([' ', '"', '\'', '\\']).len();
    let start = from + lead;
    let rest = &text[start..];
    let len = rest.find(|c: char| {
        c.is_whitespace() || matches!(c, '"' | '\'' | '\\' | ',' | ';' | '<' | '`' | ')' | ']' | '}')
    });
    let value = &rest[..len.unwrap_or(rest.len())];
    let is_reference =
        value.starts_with(['$', '{', '%', '*']) || value.contains(['(', '[']) || value.contains("::");
    (value.len() >= SHORTEST && !is_reference).then_some((start, start + value.len()))
}
