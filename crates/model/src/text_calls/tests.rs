#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use proptest::prelude::*;

use super::*;

fn tool(name: &str, schema: &str) -> ToolSpec {
    ToolSpec { name: name.to_owned(), description: String::new(), schema: schema.to_owned() }
}

fn tools() -> Vec<ToolSpec> {
    vec![
        tool(
            "read",
            r#"{"type":"object","properties":{"path":{"type":"string"},"limit":{"type":"integer"}},"required":["path"]}"#,
        ),
        tool(
            "write",
            r#"{"type":"object","properties":{"path":{"type":"string"},"content":{"type":"string"}},"required":["path","content"]}"#,
        ),
        tool("list", r#"{"type":"object"}"#),
    ]
}

fn said(text: &str) -> Vec<Content> {
    vec![Content::Text { text: text.to_owned() }]
}

fn take(text: &str) -> Reading {
    read(&said(text), &tools(), TextCallRule::Take)
}

/// The calls by name and arguments, where the text was taken for calls.
fn calls(text: &str) -> Vec<(String, Value)> {
    match take(text) {
        Reading::Calls(content) => content
            .iter()
            .filter_map(Content::as_call)
            .map(|call| (call.name.clone(), serde_json::from_str(&call.arguments).unwrap()))
            .collect(),
        other => panic!("{text}: {other:?}"),
    }
}

/// The forms in which a call of `read` with the path `a b` is written.
const FORMS: &[&str] = &[
    r#"{"name": "read", "arguments": {"path": "a b"}}"#,
    r#" {"name":"read","parameters":{"path":"a b"}} "#,
    r#"{"type":"function","function":{"name":"read","arguments":"{\"path\":\"a b\"}"}}"#,
    r#"[{"name": "read", "arguments": {"path": "a b"}}]"#,
    "```json\n{\"name\": \"read\", \"arguments\": {\"path\": \"a b\"}}\n```",
    "```\n{\"tool\": \"read\", \"args\": {\"path\": \"a b\"}}\n```\n",
    "<tool_call>\n{\"name\": \"read\", \"arguments\": {\"path\": \"a b\"}}\n</tool_call>",
    "<tool_call>\n{\"name\": \"read\", \"arguments\": {\"path\": \"a b\"}}",
    "<tools>{\"name\": \"read\", \"arguments\": {\"path\": \"a b\"}}</tools>",
    "```xml\n<tool_call>{\"name\": \"read\", \"arguments\": {\"path\": \"a b\"}}</tool_call>\n```",
    "<function_calls><invoke name=\"read\"><parameter name=\"path\">a b</parameter></invoke></function_calls>",
    "<\u{ff5c}DSML\u{ff5c}function_calls>\n<\u{ff5c}DSML\u{ff5c}invoke name=\"read\">\n<\u{ff5c}DSML\u{ff5c}parameter name=\"path\" string=\"true\">a b</\u{ff5c}DSML\u{ff5c}parameter>\n</\u{ff5c}DSML\u{ff5c}invoke>\n</\u{ff5c}DSML\u{ff5c}function_calls>",
    "<\u{2016}DSML\u{2016}tool_calls><\u{2016}DSML\u{2016}invoke name=\"read\"><\u{2016}DSML\u{2016}parameter name=\"path\">a b</\u{2016}DSML\u{2016}parameter></\u{2016}DSML\u{2016}invoke></\u{2016}DSML\u{2016}tool_calls>",
    "<tool_call>\n<function=read>\n<parameter=path>\na b\n</parameter>\n</function>\n</tool_call>",
    "<function=read>{\"path\": \"a b\"}</function>",
    "[TOOL_CALLS][{\"name\": \"read\", \"arguments\": {\"path\": \"a b\"}}]",
    "[TOOL_CALLS]read[ARGS]{\"path\": \"a b\"}",
    "read[ARGS]{\"path\": \"a b\"}",
    "<|python_tag|>{\"name\": \"read\", \"parameters\": {\"path\": \"a b\"}}",
    r#"{"index":0,"function":{"name":"read","arguments":{"path":"a b"}}}"#,
];

/// I03, I04: a call is known in each of the forms in which models write one.
#[test]
fn a_call_is_read_in_every_form() {
    for form in FORMS {
        assert_eq!(calls(form), [("read".to_owned(), json!({"path": "a b"}))], "{form}");
    }
}

#[test]
fn several_calls_are_read_in_order_and_keep_all_of_the_text() {
    let one = r#"{"name":"list","arguments":{}}"#;
    let text = format!("\n<tool_call>{one}</tool_call>\n{} \n", FORMS[0]);
    let thought = Content::Reasoning { text: "hm".to_owned(), opaque: None };
    let content = vec![thought.clone(), said(&text).remove(0)];
    let Reading::Calls(content) = read(&content, &tools(), TextCallRule::Take) else { panic!() };
    assert_eq!(content[0], thought);
    let calls: Vec<&ToolCall> = content.iter().filter_map(Content::as_call).collect();
    assert_eq!(calls.iter().map(|call| call.name.as_str()).collect::<Vec<_>>(), ["list", "read"]);
    let kept = |call: &&ToolCall| {
        let opaque: Value = serde_json::from_str(call.opaque.as_deref().unwrap()).unwrap();
        opaque["text_call"].as_str().unwrap().to_owned()
    };
    assert_eq!(calls.iter().map(kept).collect::<String>(), text);
}

/// A parameter is text where the schema says so, whatever it looks like.
#[test]
fn parameters_have_the_types_of_the_schema() {
    let text = "<function=write><parameter=path>7</parameter><parameter=content>\n{\"a\":1}\n\n</parameter></function>";
    assert_eq!(calls(text), [("write".to_owned(), json!({"path": "7", "content": "{\"a\":1}\n"}))]);
    let text = "<invoke name=\"read\"><parameter name=\"path\">a</parameter><parameter name=\"limit\">7</parameter></invoke>";
    assert_eq!(calls(text), [("read".to_owned(), json!({"path": "a", "limit": 7}))]);
}

/// I03: what is no whole call, or fits no offered tool, is not taken; where it must have been meant as one, it is told.
#[test]
fn what_is_not_wholly_a_fitting_call_is_not_taken() {
    let why = |text: &str| match take(text) {
        Reading::Untaken(Untaken { tool, why }) => Some((tool, why)),
        Reading::Text => None,
        Reading::Calls(calls) => panic!("{text}: {calls:?}"),
    };
    let read = |why| Some(("read".to_owned(), why));
    for (text, expected) in [
        ("I read the file.", None),
        (r#"{"answer": 42}"#, None),
        (r#"{"name": "Ada", "arguments": {"for": 1}}"#, None),
        ("Models write `<tool_call>{\"name\": \"read\"}</tool_call>` around a call.", None),
        ("So:\n```xml\n<tool_call>{\"name\": \"read\"}</tool_call>\n```\nis how.", None),
        ("[1] See the list.\n[2] read it.", None),
        (r#"{"name": "read", "arguments": {}}"#, read(WhyNot::Misfit("it lacks `path`".to_owned()))),
        (
            r#"{"name": "read", "arguments": {"path": "a", "x": 1}}"#,
            read(WhyNot::Misfit("the tool has no `x`".to_owned())),
        ),
        (
            r#"{"name": "read", "arguments": {"path": 1}}"#,
            read(WhyNot::Misfit("`path` is of another type".to_owned())),
        ),
        ("I read it:\n{\"name\": \"read\", \"arguments\": {\"path\": \"a\"}}", read(WhyNot::NotWhole)),
        (
            "I read it:\n```json\n{\"name\": \"read\", \"arguments\": {\"path\": \"a\"}}\n```",
            read(WhyNot::NotWhole),
        ),
        ("I read it.\n<tool_call>\n{\"name\": \"read\", \"argum", read(WhyNot::NotWhole)),
        ("<\u{ff5c}DSML\u{ff5c}invoke name=\"read\"><\u{ff5c}DSML\u{ff5c}param", read(WhyNot::NotWhole)),
        ("Read[ARGS]{\"path\": \"a\"}", read(WhyNot::NotWhole)),
        (
            "<tool_call>read<arg_key>path</arg_key><arg_value>a</arg_value></tool_call>",
            read(WhyNot::NotWhole),
        ),
        ("<tool_call>{\"name\": \"reader\", \"arguments\": {}}</tool_call>", None),
    ] {
        assert_eq!(why(text), expected, "{text}");
    }
}

/// I03: elsewhere than on local servers a whole call is told of, with nothing run; `off` looks at nothing.
#[test]
fn the_rule_decides_what_becomes_of_a_whole_call() {
    for form in FORMS {
        let reading = read(&said(form), &tools(), TextCallRule::Report);
        assert_eq!(reading, untaken("read", WhyNot::Setting), "{form}");
        assert_eq!(read(&said(form), &tools(), TextCallRule::Ignore), Reading::Text);
    }
}

/// I03: an answer with real calls is as it is, and one that says nothing but thinks of a call is told of.
#[test]
fn real_calls_are_left_alone_and_thoughts_are_looked_at() {
    let call =
        ToolCall { id: "c".to_owned(), name: "list".to_owned(), arguments: "{}".to_owned(), opaque: None };
    let mut content = said(FORMS[6]);
    content.push(Content::Call(call));
    assert_eq!(read(&content, &tools(), TextCallRule::Take), Reading::Text);
    let thought = |text: &str| vec![Content::Reasoning { text: text.to_owned(), opaque: None }];
    assert_eq!(read(&thought(FORMS[11]), &tools(), TextCallRule::Take), untaken("read", WhyNot::NotWhole));
    assert_eq!(read(&thought("I could read it."), &tools(), TextCallRule::Take), Reading::Text);
}

fn shown(rule: TextCallRule, text: &str, size: usize) -> (String, String) {
    let mut gate = Gate::new(rule);
    let chars: Vec<char> = text.chars().collect();
    let pieces = chars.chunks(size).map(|piece| piece.iter().collect::<String>());
    let shown: String = pieces.filter_map(|piece| gate.push(&piece)).collect();
    (shown, gate.finish().unwrap_or_default())
}

/// I03: no fragment of a call is shown while it streams, wherever the stream is cut; other text is shown at once.
#[test]
fn no_fragment_of_a_call_is_shown() {
    for size in [1, 2, 3, 7, 1000] {
        for form in FORMS {
            let (seen, held) = shown(TextCallRule::Take, form, size);
            assert_eq!((seen.trim(), held.trim_start()), ("", form.trim_start()), "{form}");
        }
        let text = format!("Now.\n{}", FORMS[11]);
        assert_eq!(shown(TextCallRule::Report, &text, size), ("Now.\n".to_owned(), FORMS[11].to_owned()));
        for text in [
            "if a < b { c[0] }",
            "It is **done**.",
            "a `b` <b>c</b> [1]",
            "```rust\nlet x = 1;\n",
            "```json\n{\"version\": 1",
            "```html\n<p>",
            "``` x ``` is a fence",
            "{\"path\": \"a",
            "{\"name\": \"app\", \"version\": 1",
            "```json\n{\"name\": \"app\"}\n```\nIt is",
            "[{\"path\": 1",
            "[1] says so",
        ] {
            assert_eq!(shown(TextCallRule::Take, text, size), (text.to_owned(), String::new()));
        }
        assert_eq!(shown(TextCallRule::Ignore, FORMS[6], size).0, FORMS[6]);
    }
}

/// However much of what may be calls comes, it is neither too deep nor too long.
#[test]
fn many_things_that_may_be_calls_are_held_and_looked_at() {
    for text in [
        "{}".repeat(100_000),
        "[{\"name\":\"a\"}]".repeat(20_000),
        format!("{{\"name\":\"{}", "a".repeat(300_000)),
    ] {
        assert_eq!(shown(TextCallRule::Take, &text, 3), (String::new(), text.clone()));
        let (seen, held) = shown(TextCallRule::Take, &format!("{text}}} no, {}", "words ".repeat(20_000)), 3);
        assert!(text.ends_with('a') || !seen.is_empty() && held.len() < 9, "{}", held.len());
    }
}

proptest! {
    /// H08: what is shown and what is held are the text, in every cut; nothing that a model writes makes reading panic.
    #[test]
    fn nothing_is_lost_and_nothing_panics(
        text in "(<|>|/|tool_call|tools|invoke name=\"|function=|parameter|\\[TOOL_CALLS\\]|\\[ARGS\\]|\u{ff5c}DSML\u{ff5c}|```|json|\n|\\{\"name\":\"read\",\"arguments\":|\\{\"path\":\"a\"\\}|\\}|read| |ñ){0,24}",
        size in 1usize..9,
    ) {
        for rule in [TextCallRule::Take, TextCallRule::Report, TextCallRule::Ignore] {
            let (seen, held) = shown(rule, &text, size);
            prop_assert_eq!(format!("{seen}{held}"), text.clone());
            if let Reading::Calls(content) = read(&said(&text), &tools(), rule) {
                prop_assert!(seen.trim().is_empty(), "{:?}", seen);
                prop_assert!(rule == TextCallRule::Take && content.iter().all(|block| block.as_call().is_some()));
            }
        }
    }
}
