use super::*;
use crate::conversation::Step;
use crate::ids::CallRef;
use crate::message::{Outcome, ToolCall};

fn range(path: &str, lines: Option<(u64, u64)>) -> FileRange {
    FileRange { path: path.to_owned(), lines }
}

#[test]
fn the_lists_at_the_end_are_read_and_are_no_part_of_the_summary() {
    let answer = "Goal: mend the parser.\nDone: the lexer was mended and its tests pass.\n\n**Read first:**\n- `src/a.rs:10-80`\n- src/b.rs (lines 5-9)\n- src/c d.rs\n\nReferences: README.md, Cargo.toml\n- (none)\n";
    let summary = Summary::parse(answer).unwrap();
    assert_eq!(summary.text, "Goal: mend the parser.\nDone: the lexer was mended and its tests pass.");
    assert_eq!(
        summary.read_first,
        [range("src/a.rs", Some((10, 80))), range("src/b.rs", Some((5, 9))), range("src/c d.rs", None)]
    );
    assert_eq!(summary.references, ["README.md", "Cargo.toml"]);
}

/// C04, C05: what cannot stand for a conversation is no summary.
#[test]
fn what_is_no_summary_is_refused() {
    let markup = "<｜｜DSML｜｜tool_calls>read</｜｜DSML｜｜tool_calls> and some words around it";
    for (answer, fault) in [
        ("", SummaryFault::Empty),
        (" \n\t", SummaryFault::Empty),
        ("Goal: (none)\nDone: (none)\nPending: (none)\nFacts: (none)\n", SummaryFault::Hollow),
        ("Ok.", SummaryFault::Hollow),
        ("Read first:\n- a.rs\n", SummaryFault::Hollow),
        (markup, SummaryFault::Markup),
        ("<tool_call>{\"name\": \"read\"}</tool_call>", SummaryFault::Markup),
    ] {
        assert_eq!(Summary::parse(answer), Err(fault), "{answer}");
    }
}

fn prompt(text: &str) -> Item {
    Item::Prompt { text: text.to_owned(), images: Vec::new() }
}

fn step(seq: u64, output: &str) -> Item {
    let call =
        ToolCall { id: "c".to_owned(), name: "work".to_owned(), arguments: "{}".to_owned(), opaque: None };
    let content = vec![
        Content::Reasoning { text: "hm".to_owned(), opaque: None },
        Content::Text { text: "I work.".to_owned() },
        Content::Call(call),
    ];
    let mut step = Step::new(seq, "m".to_owned(), content);
    step.results[0] = Some(ToolResult {
        answer: seq,
        call: 0,
        call_id: String::new(),
        outcome: Outcome::Ok,
        summary: "done".to_owned(),
        content: Some(output.to_owned()),
        images: Vec::new(),
        referenced_files: Vec::new(),
        changes: Vec::new(),
        duration_ms: 0,
        exit_code: None,
        plan: None,
    });
    Item::Step(step)
}

/// C06, C09, K11: the tail begins at a border of steps, and the last prompt is always kept, verbatim.
#[test]
fn the_end_of_a_conversation_is_kept_at_borders() {
    let notice = Item::Notice { text: runtime_block("Refresh your current plan before continuing.") };
    let news = Item::Notice { text: crate::attention::notification_text("job", "it ended") };
    let history = vec![
        prompt("first"),
        step(1, "x"),
        prompt(&"second ".repeat(9)),
        step(2, "y"),
        notice,
        news.clone(),
        step(3, "z"),
    ];
    for tail in 0..1_000 {
        for prompts in [0, 10, 1_000] {
            let kept = keep(&history, tail, prompts, false);
            let all: Vec<&Item> = kept.prompts.iter().chain(&kept.tail).collect();
            assert!(all.contains(&&history[2]), "the last prompt is missing at {tail}");
            let steps = all.iter().filter_map(|item| item.as_step());
            assert!(steps.clone().all(|step| step.results.iter().all(Option::is_some)));
            assert_eq!(all.iter().filter(|item| **item == &history[2]).count(), 1);
        }
    }
    let kept = keep(&history, 360, 1_000, true);
    assert_eq!(kept.prompts, [history[0].clone(), history[2].clone()]);
    assert_eq!(kept.tail.len(), 3, "{:?}", kept.tail);
    assert_eq!(kept.tail[1], news);
    assert!(
        kept.tail[0]
            .as_step()
            .unwrap()
            .content
            .iter()
            .all(|block| !matches!(block, Content::Reasoning { .. }))
    );
    assert_eq!(kept.tail[0].as_step().unwrap().calls().next().unwrap().0, CallRef { answer: 2, call: 0 });
}

#[test]
fn old_results_shrink_and_say_so() {
    let mut history = vec![step(1, &"a".repeat(5_000)), step(2, &"b".repeat(5_000))];
    assert!(shrink(&mut history, 1, 200));
    assert!(item_bytes(&history[0]) < 500 && item_bytes(&history[1]) > 5_000);
    assert!(!shrink(&mut history, 1, 200));
}

/// U05: the instruction names the five most recent files, the most recent first. K01: and every item of the plan.
#[test]
fn the_instruction_holds_the_plan_and_the_recent_files() {
    let mut state = SessionState::default();
    for name in ["a", "b", "c", "d", "e", "f"] {
        state.recent_files.touch(std::path::PathBuf::from(format!("/w/{name}")).into());
    }
    state.plan.plan = serde_json::from_str(
        r#"[{"id":"1","content":"Read","status":"completed"},{"id":"2","content":"③ 移行","status":"in_progress"}]"#,
    )
    .unwrap();
    let text = instruction_text(&state, Some("keep the names"), 600);
    assert!(text.starts_with(COMPACTION_REQUEST));
    assert!(text.contains("- /w/f\n- /w/e\n- /w/d\n- /w/c\n- /w/b\n") && !text.contains("/w/a"));
    assert!(text.contains("[x] Read") && text.contains("[>] ③ 移行") && text.contains("keep the names"));
}
