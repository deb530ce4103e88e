use super::*;

/// A look-alike, made here so that no key stands in the source.
fn key(prefix: &str) -> String {
    format!("{prefix}{}", "a1B2c3D4".repeat(5))
}

/// C18: keys and what looks like them do not pass.
#[test]
fn what_looks_like_a_secret_is_masked() {
    for prefix in
        ["sk-", "sk-ant-api03-", "sk-proj-", "ghp_", "github_pat_", "xoxb-", "AKIA", "AIza", "hf_", "gsk_"]
    {
        let key = key(prefix);
        for text in [key.clone(), format!("the key is {key}."), format!("\"{key}\","), format!("a={key}\nb")]
        {
            let masked = mask(&text);
            assert!(masked.contains(MASK) && !masked.contains("a1B2"), "{text}: {masked}");
        }
    }
    assert_eq!(mask("export GITHUB_TOKEN=abcdefgh1"), "export GITHUB_TOKEN=***");
    assert_eq!(mask(r#"{"password": "hunter2hunter2", "user": "u"}"#), r#"{"password": "***", "user": "u"}"#);
    assert_eq!(mask("Authorization: Bearer abcdefgh12345678"), "Authorization: Bearer ***");
    assert_eq!(mask("api-key: 0123456789abcdef"), "api-key: ***");
    let block = "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nxyz\n-----END RSA PRIVATE KEY-----\nmore";
    assert_eq!(mask(block), "-----BEGIN RSA PRIVATE KEY-----***-----END RSA PRIVATE KEY-----\nmore");
}

#[test]
fn what_is_no_secret_stays() {
    for text in [
        "",
        "sk-learn and task-runner-of-great-length-without-numbers",
        "max_tokens: 4096000000",
        "let token = next_token();",
        "password = os.environ[\"X\"]",
        "TOKEN=$GITHUB_TOKEN_FROM_CI",
        "token: String",
        "AKIA",
        "日本語 token: 短い",
    ] {
        assert_eq!(mask(text), text);
    }
}

proptest::proptest! {
    #[test]
    fn a_key_is_masked_whatever_stands_around_it(
        before in "(token|password|sk-|Bearer |=|:| |\"|[a-z0-9]{0,30}|-----BEGIN PRIVATE KEY-----|é|\\PC){0,12}",
        after in "(token|=|:| |\"|é|\\PC){0,12}",
    ) {
        let key = key("sk-");
        let masked = mask(&format!("{before} {key} {after}")).into_owned();
        proptest::prop_assert!(!masked.contains(&key), "{}", masked);
    }
}
