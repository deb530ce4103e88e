//! What every request begins with: the system text and the tools.

#![allow(clippy::unwrap_used, reason = "tests")]

use mainstay_session::world::system_text;
use mainstay_tools::{BuiltinOptions, builtin_tools};
use serde_json::{Value, json};

/// §12: at most 10,000 bytes, in the wordiest of the wire formats.
#[test]
fn tools_and_system_text_are_short() {
    let tools: Vec<Value> = builtin_tools(&BuiltinOptions::default())
        .iter()
        .map(|tool| {
            let spec = tool.spec();
            let parameters: Value = serde_json::from_str(&spec.schema).unwrap();
            let function =
                json!({ "name": spec.name, "description": spec.description, "parameters": parameters });
            json!({ "type": "function", "function": function })
        })
        .collect();
    let sizes: Vec<(String, usize)> =
        tools.iter().map(|tool| (tool["function"]["name"].to_string(), tool.to_string().len())).collect();
    let system = json!({ "role": "system", "content": system_text(true) }).to_string().len();
    let sum = system + json!(tools).to_string().len();
    assert!(sum <= 10_000, "{sum} bytes: the system text {system}, {sizes:?}");
}

/// §5, A28: the plan costs little.
#[test]
fn the_plan_tool_is_told_of_in_a_few_words() {
    let tools = builtin_tools(&BuiltinOptions::default());
    let plan = tools.iter().map(|tool| tool.spec()).find(|spec| spec.name == "todo_write").unwrap();
    assert!(plan.description.len() <= 400, "{} bytes", plan.description.len());
}

#[test]
fn every_schema_is_one_line_of_json_that_names_what_it_requires() {
    for tool in builtin_tools(&BuiltinOptions::default()) {
        let spec = tool.spec();
        let schema: Value = serde_json::from_str(&spec.schema).unwrap();
        assert_eq!(spec.schema.lines().count(), 1, "{}", spec.name);
        for required in schema["required"].as_array().unwrap() {
            let name = required.as_str().unwrap();
            assert!(schema["properties"].get(name).is_some(), "{}: {name}", spec.name);
        }
        assert_eq!(tool.spec(), spec);
    }
}
