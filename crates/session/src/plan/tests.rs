//! Tests of reading, writing and rendering a plan.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn item(id: &str, content: &str, status: PlanItemStatus) -> PlanItem {
    PlanItem { id: id.to_owned(), content: content.to_owned(), status, active_form: String::new() }
}

fn plan(items: impl IntoIterator<Item = PlanItem>) -> Plan {
    Plan { items: items.into_iter().collect() }
}

fn pending(id: &str, content: &str) -> PlanItem {
    item(id, content, PlanItemStatus::Pending)
}

fn in_progress(id: &str, content: &str) -> PlanItem {
    item(id, content, PlanItemStatus::InProgress)
}

fn completed(id: &str, content: &str) -> PlanItem {
    item(id, content, PlanItemStatus::Completed)
}

fn view(items: impl IntoIterator<Item = PlanItem>) -> PlanInView {
    PlanInView { plan: plan(items), ..PlanInView::default() }
}

/// Writes a list over an empty plan.
fn written(todos: Value) -> PlanWrite {
    write(&PlanInView::default(), &json!({ "todos": todos }).to_string()).unwrap()
}

fn refused(todos: Value) -> String {
    write(&PlanInView::default(), &json!({ "todos": todos }).to_string()).unwrap_err().to_string()
}

/// Writes over a plan in view and takes the result as the fold does.
fn apply(view: &mut PlanInView, arguments: &str) -> Result<PlanWrite, PlanRefusal> {
    let accepted = write(view, arguments)?;
    view.resends = if accepted.unchanged { view.resends + 1 } else { 0 };
    view.plan = accepted.plan.clone();
    view.carried = false;
    Ok(accepted)
}

fn arguments_of(plan: &Plan) -> String {
    json!({ "todos": plan }).to_string()
}

/// P01 and P03
#[test]
fn a_write_replaces_the_whole_list_in_its_order() {
    let mut view = view([completed("a", "one"), completed("b", "two")]);
    let todos = json!({"todos": [{"id": "z", "content": "three"}, {"id": "c", "content": "four"}]});
    let accepted = apply(&mut view, &todos.to_string()).unwrap();
    assert_eq!(view.plan, plan([pending("z", "three"), pending("c", "four")]));
    assert_eq!(accepted.summary, "[ ] three\n[ ] four\n\n(0/2 completed)");
    assert_eq!(accepted.content, None);
}

/// P02, A08
#[test]
fn an_empty_list_clears_and_says_so() {
    let mut view = view([completed("1", "one"), in_progress("2", "two"), pending("3", "three")]);
    let accepted = apply(&mut view, r#"{"todos": []}"#).unwrap();
    assert!(view.plan.items.is_empty());
    assert!(!view.plan.has_unfinished());
    assert_eq!(accepted.summary, "(no plan items)");
    assert_eq!(
        accepted.content.unwrap(),
        "the plan is cleared\nunfinished and no longer in the plan:\n\
         - id 2, in_progress: two\n- id 3, pending: three"
    );
}

/// P12 and P13
#[test]
fn the_summary_is_the_rendered_plan_and_nothing_else() {
    let accepted = written(json!([
        {"id": "1", "content": "Read the requirements", "status": "completed", "activeForm": "Reading"},
        {"id": "2", "content": " Implement login ", "status": "in_progress", "activeForm": " Writing login handler "},
        {"id": "3", "content": "Write tests", "status": "pending", "active_form": "Writing tests"},
    ]));
    let expected = "[x] Read the requirements\n[>] Implement login (Writing login handler)\n[ ] Write tests\n\n\
                    (1/3 completed)";
    assert_eq!(accepted.summary, expected);
    assert_eq!(accepted.content, None);
    assert_eq!(accepted.plan.items[2].active_form, "Writing tests");
    assert_eq!(render(&accepted.plan), expected);
    assert_eq!(render(&plan([in_progress("1", "a")])), "[>] a\n\n(0/1 completed)");
}

/// P04, A04
#[test]
fn missing_ids_are_assigned_and_echoed() {
    let cases = [
        (json!([{"content": "a"}, {"content": "b"}]), vec!["1", "2"], "item 1 is `1`, item 2 is `2`"),
        (
            json!([{"id": 1, "content": "a"}, {"id": "3", "content": "b"}, {"content": "c"}]),
            vec!["1", "3", "4"],
            "item 3 is `4`",
        ),
        (
            json!([{"content": "a"}, {"content": "b"}, {"id": "1", "content": "c"}]),
            vec!["2", "3", "1"],
            "item 1 is `2`, item 2 is `3`",
        ),
        (
            json!([{"id": null, "content": "a"}, {"id": " ", "content": "b"}]),
            vec!["1", "2"],
            "item 1 is `1`, item 2 is `2`",
        ),
    ];
    for (todos, ids, echo) in cases {
        let accepted = written(todos);
        let assigned: Vec<&str> = accepted.plan.items.iter().map(|item| item.id.as_str()).collect();
        assert_eq!(assigned, ids);
        assert_eq!(accepted.content.unwrap(), format!("ids assigned: {echo}"));
    }
}

/// P05, A03
#[test]
fn an_id_given_twice_is_refused() {
    let message = refused(json!([
        {"id": "1", "content": "old"}, {"id": 1, "content": "new"}, {"id": "2", "content": "z"},
    ]));
    assert_eq!(message, "the plan was not changed: item 2: id `1` is already that of item 1");
}

/// P06
#[test]
fn an_active_form_is_never_taken_from_the_plan_before() {
    let mut before = in_progress("2", "old");
    before.active_form = "Doing the old".to_owned();
    let mut view = view([before]);
    apply(&mut view, r#"{"todos": [{"id": "2", "content": "new", "status": "in_progress"}]}"#).unwrap();
    assert_eq!(view.plan, plan([in_progress("2", "new")]));
}

/// P07
#[test]
fn empty_content_is_refused_with_its_place_and_other_content_is_trimmed() {
    for content in [json!(""), json!(" \n\t ")] {
        let message = refused(json!([{"content": "a"}, {"content": content}]));
        assert_eq!(message, "the plan was not changed: item 2: content is empty; every item needs a text");
    }
    assert_eq!(written(json!([{"content": " a\nb \n"}])).plan.items[0].content, "a\nb");
}

/// P08, A02
#[test]
fn statuses_are_read_in_any_case_and_by_their_synonyms() {
    use PlanItemStatus::{Completed, InProgress, Pending};
    let cases = [
        ("pending", Pending, false),
        ("PENDING", Pending, false),
        ("todo", Pending, true),
        ("Open", Pending, true),
        ("not_started", Pending, true),
        ("not started", Pending, true),
        (" In_Progress ", InProgress, false),
        ("in-progress", InProgress, true),
        ("In Progress", InProgress, true),
        ("inProgress", InProgress, true),
        ("doing", InProgress, true),
        ("active", InProgress, true),
        ("started", InProgress, true),
        ("COMPLETED", Completed, false),
        ("done", Completed, true),
        ("complete", Completed, true),
        ("finished", Completed, true),
    ];
    for (word, status, named) in cases {
        let accepted = written(json!([{"id": "1", "content": "a", "status": word}]));
        assert_eq!(accepted.plan.items[0].status, status, "{word}");
        let expected = named.then(|| format!("item 1: status `{word}` read as {}", status.as_str()));
        assert_eq!(accepted.content, expected, "{word}");
    }
    assert_eq!(written(json!([{"content": "a", "status": null}])).plan.items[0].status, Pending);
}

/// P08, A02
#[test]
fn other_statuses_are_refused_by_name() {
    let cases = [
        (
            json!("blocked"),
            "item 1: status `blocked` is unknown; allowed are pending, in_progress and completed",
        ),
        (json!(3), "item 1: status is the number 3; allowed are pending, in_progress and completed"),
        (
            json!("Cancelled"),
            "item 1: there is no status `Cancelled`; leave a cancelled item out of the list; allowed are pending, \
             in_progress and completed",
        ),
    ];
    for (status, fault) in cases {
        let message = refused(json!([{"content": "a", "status": status}]));
        assert_eq!(message, format!("the plan was not changed: {fault}"));
    }
}

/// A02
#[test]
fn content_is_read_by_its_synonyms() {
    for name in ["title", "text", "task", "step"] {
        let accepted = written(json!([{"id": "1", name: "a", "priority": "high"}]));
        assert_eq!(accepted.plan, plan([pending("1", "a")]));
        assert_eq!(accepted.content.unwrap(), format!("item 1: `{name}` read as content"));
    }
    let accepted = written(json!([{"id": "1", "content": "a", "title": "b"}]));
    assert_eq!((accepted.plan, accepted.content), (plan([pending("1", "a")]), None));
}

/// P09
#[test]
fn a_second_item_in_progress_is_refused() {
    let message = refused(json!([
        {"content": "a", "status": "in_progress"}, {"content": "b"}, {"content": "c", "status": "doing"},
    ]));
    assert_eq!(message, "the plan was not changed: Only one plan item can be in_progress: items 1, 3 are");
}

/// P10
#[test]
fn a_plan_has_at_most_twelve_items() {
    let items = |count: usize| Value::Array(vec![json!({"content": "a"}); count]);
    assert_eq!(written(items(12)).plan.items.len(), 12);
    assert_eq!(
        refused(items(13)),
        "the plan was not changed: Keep the session plan short (max 12 items): 13 came; completed ones may be left out"
    );
}

/// P17
#[test]
fn overlong_texts_are_refused_so_the_summary_is_bounded() {
    let of = |count: usize| "語".repeat(count);
    let message = refused(json!([{"id": of(65), "content": of(501), "activeForm": of(201)}]));
    assert_eq!(
        message,
        "the plan was not changed: 3 faults\n\
         - item 1: id has 65 characters; at most 64 are allowed\n\
         - item 1: content has 501 characters; at most 500 are allowed\n\
         - item 1: activeForm has 201 characters; at most 200 are allowed"
    );
    let longest = json!({"id": of(64), "content": of(500), "activeForm": of(200)});
    let accepted = written(json!([longest]));
    assert!(accepted.summary.chars().count() < MAX_CONTENT_CHARS + MAX_ACTIVE_FORM_CHARS + 100);
    assert!(
        refused(json!([{"id": "a\u{7}b", "content": "a"}]))
            .contains("id `a\\u{7}b` holds control characters")
    );
}

#[test]
fn all_faults_come_at_once() {
    let message = refused(json!([
        {"id": true, "content": 5, "activeForm": []}, "write tests", {"id": "1"}, {"id": "1", "content": "a", "status": "x"},
    ]));
    assert_eq!(
        message,
        "the plan was not changed: 7 faults\n\
         - item 1: id is true; a text or a number is wanted\n\
         - item 1: content is the number 5; a text is wanted\n\
         - item 1: activeForm is a list; a text is wanted\n\
         - item 2: it is the text `write tests`; every item is an object with `content` and `status`\n\
         - item 3: content is missing; every item needs a text\n\
         - item 4: status `x` is unknown; allowed are pending, in_progress and completed\n\
         - item 4: id `1` is already that of item 3"
    );
    let many = refused(Value::Array(vec![json!({}); 5_000]));
    assert!(many.contains("5001 faults") && many.ends_with("- and 4981 more") && many.lines().count() == 22);
}

/// A01
#[test]
fn the_list_is_read_in_the_shapes_that_models_send() {
    let expected = plan([pending("1", "it's \"é\"\n"), in_progress("2", "b")].map(|mut item| {
        item.content = item.content.trim().to_owned();
        item
    }));
    let list = r#"[{"id":"1","content":"it's \"é\"\n"},{"id":"2","content":"b","status":"in_progress"}]"#;
    let python = r#" [{'id': 1, 'content': "it's \"\xe9\"\n", 'status': None, 'x': [True, -1.5, {}, []]},
        {'id': '2', 'content': 'b', 'status': 'in_progress'}] "#;
    let python_quotes = [
        r"[{'id': '1', 'content': 'it\'s ",
        r#""\u00e9"\n'}, {'id': '2', 'content': 'b', 'status': 'in_progress'}]"#,
    ]
    .concat();
    let shapes = [
        format!(r#"{{"todos":{list}}}"#),
        format!(r#"{{"items":{list}}}"#),
        format!(r#"{{"todos":null,"items":{list},"merge":false}}"#),
        json!({ "todos": list }).to_string(),
        json!({ "todos": python }).to_string(),
        json!({ "todos": python_quotes }).to_string(),
    ];
    for shape in shapes {
        assert_eq!(write(&PlanInView::default(), &shape).unwrap().plan, expected, "{shape}");
        assert_eq!(from_arguments(&shape).as_ref(), Some(&expected), "{shape}");
    }
    let single = json!({"id": "1", "content": "x", "status": "pending"});
    for shape in [
        json!({ "todos": single }),
        json!({ "todos": single.to_string() }),
        json!({"todos": "{'content': 'x'}"}),
    ] {
        assert_eq!(from_arguments(&shape.to_string()), Some(plan([pending("1", "x")])), "{shape}");
    }
}

/// A01, A13
#[test]
fn other_shapes_are_refused_with_what_came() {
    let shape = r#"expected {"todos": [{"id": "1", "content": "Write tests", "status": "pending"}]}"#;
    let cases = [
        ("{}", "`todos` is missing"),
        ("", "`todos` is missing"),
        (r#"{"todos":null}"#, "`todos` is missing"),
        (r#"{"plan":[],"merge":true}"#, "`todos` is missing (there is only `merge`, `plan`)"),
        (r#"{"todos":"not json"}"#, "`todos` is the text `not json`, not a list"),
        (r#"{"todos":"[{'content': 'a\\q'}]"}"#, "`todos` is the text `[{'content': 'a\\q'}]`, not a list"),
        (r#"{"todos":"\"x\""}"#, "`todos` is the text `\"x\"`, not a list"),
        (r#"{"items":7}"#, "`items` is the number 7, not a list"),
    ];
    for (arguments, fault) in cases {
        let refusal = write(&PlanInView::default(), arguments).unwrap_err();
        assert_eq!(refusal.message, format!("the plan was not changed: {fault}; {shape}"));
        assert_eq!(from_arguments(arguments), None);
    }
    for arguments in ["[]", "null", "{", r#"{"todos":["#] {
        let refusal = write(&PlanInView::default(), arguments).unwrap_err();
        assert!(
            refusal.message.starts_with("the plan was not changed: the arguments are not a JSON object (")
        );
    }
    let message = write(&PlanInView::default(), r#"{"todos":"{\"id\":\"1\"}"}"#).unwrap_err().message;
    assert_eq!(message, "the plan was not changed: item 1: content is missing; every item needs a text");
}

/// A01
#[test]
fn deep_nesting_is_refused_not_followed() {
    for open in ["[", "{'a':", "{\"a\":"] {
        let arguments = json!({ "todos": open.repeat(100_000) }).to_string();
        assert!(write(&PlanInView::default(), &arguments).is_err());
    }
}

/// P11, A22
#[test]
fn a_refusal_changes_nothing() {
    let mut view = view([completed("1", "a"), in_progress("2", "b")]);
    view.resends = 1;
    let before = view.clone();
    assert!(apply(&mut view, r#"{"todos": [{"id": "1", "content": ""}]}"#).is_err());
    assert_eq!(view, before);
}

/// P20, A09
#[test]
fn the_third_resend_in_a_row_is_refused() {
    let mut view = PlanInView::default();
    let arguments = r#"{"todos": [{"content": "a"}, {"content": "b"}]}"#;
    let spaced = r#" {"todos" : [{"content":" a "},{"content":"b\n","status":"PENDING"}]}"#;
    assert!(!apply(&mut view, arguments).unwrap().unchanged);
    for resend in [arguments, spaced] {
        let accepted = apply(&mut view, resend).unwrap();
        assert!(accepted.unchanged);
        let first = accepted.content.as_deref().unwrap().lines().next();
        assert_eq!(first, Some("unchanged: the plan already was as sent"));
    }
    for _ in 0..3 {
        let refusal = apply(&mut view, arguments).unwrap_err();
        assert!(
            refusal.message.starts_with("the plan is unchanged")
                && refusal.message.contains("continue the work")
        );
    }
    assert!(
        !apply(&mut view, r#"{"todos": [{"content": "a", "status": "done"}, {"content": "b"}]}"#)
            .unwrap()
            .unchanged
    );
    assert_eq!(view.resends, 0);
}

/// A05
#[test]
fn unfinished_items_that_vanish_are_named() {
    let mut view = view([
        completed("1", "one"),
        completed("2", "two"),
        in_progress("3", "three"),
        pending("4", "four"),
        pending("5", "five"),
    ]);
    let accepted = apply(
        &mut view,
        r#"{"todos": [{"content": "three, first half"}, {"content": "three, second half"}]}"#,
    );
    assert_eq!(
        accepted.unwrap().content.unwrap(),
        "ids assigned: item 1 is `1`, item 2 is `2`\nunfinished and no longer in the plan:\n\
         - id 3, in_progress: three\n- id 4, pending: four\n- id 5, pending: five"
    );
}

/// A06
#[test]
fn an_item_written_differently_has_not_vanished() {
    let both = ["Phase -1: Auto-update check", "Phase -1:  Auto-Update Check"];
    let mut view = view([pending("9", both[0])]);
    for content in both.iter().rev().cycle().take(6) {
        for todo in [json!({ "content": content }), json!({"id": "9", "content": content})] {
            let accepted = apply(&mut view, &json!({ "todos": [todo] }).to_string()).unwrap();
            assert!(!accepted.content.unwrap_or_default().contains("no longer"));
        }
    }
}

/// A05, A06
#[test]
fn each_new_item_stands_for_one_old_item() {
    let before = [pending("1", "A"), pending("2", "B")];
    let cases = [
        // The two swapped their texts, or were moved: nothing is lost.
        (json!([{"id": "1", "content": "B"}, {"id": "2", "content": "A"}]), None),
        (json!([{"content": "b"}, {"content": "a"}]), None),
        // The same id with another text is the same item.
        (json!([{"id": "1", "content": "A, reworded"}, {"id": "2", "content": "B"}]), None),
        // The text is stronger than the id, and does not count twice.
        (json!([{"id": "1", "content": "B"}]), Some("- id 1, pending: A")),
        // An id that was not sent is no evidence.
        (json!([{"content": "C"}, {"id": "2", "content": "B"}]), Some("- id 1, pending: A")),
    ];
    for (todos, expected) in cases {
        let accepted = write(&view(before.clone()), &json!({ "todos": todos }).to_string()).unwrap();
        let content = accepted.content.unwrap_or_default();
        let named = content.split_once("no longer in the plan:\n").map(|(_, named)| named);
        assert_eq!(named, expected, "{todos}");
    }
    let twins = view([completed("1", "run tests"), pending("2", "run tests")]);
    let accepted = write(&twins, r#"{"todos": [{"content": "run tests"}]}"#).unwrap();
    assert_eq!(accepted.content.unwrap(), "ids assigned: item 1 is `1`");
}

/// A07
#[test]
fn the_active_item_may_be_replaced_completed_or_cleared() {
    let mut view = view([in_progress("s1", "one"), pending("s2", "two")]);
    apply(&mut view, &arguments_of(&plan([completed("s1", "one"), in_progress("s2", "two")]))).unwrap();
    apply(&mut view, &arguments_of(&plan([in_progress("s3", "three")]))).unwrap();
    apply(&mut view, r#"{"todos":[]}"#).unwrap();
    assert!(view.plan.items.is_empty());
}

/// A16
#[test]
fn an_older_item_left_pending_is_mentioned() {
    let list =
        plan([pending("1", "one"), completed("2", "two"), completed("3", "three"), pending("4", "four")]);
    let accepted = write(&PlanInView::default(), &arguments_of(&list)).unwrap();
    assert_eq!(accepted.content.unwrap(), "still pending before completed items:\n- id 1, pending: one");
}

/// P14
#[test]
fn both_names_are_the_plan_tool() {
    assert!(is_plan_tool("todo_write") && is_plan_tool("todo"));
    assert!(!is_plan_tool("todo_read") && !is_plan_tool("TodoWrite"));
}

/// P16
#[test]
fn every_item_is_rendered_on_one_line() {
    let mut odd = in_progress("1", "a\nb\tc\r`d` </system-reminder> \u{1b}[2J\u{2028}\u{202e}\\n");
    odd.active_form = "x\ny".to_owned();
    let odd = plan([odd]);
    assert_eq!(
        render(&odd),
        r"[>] a\nb\tc\r`d` </system-reminder> \u{1b}[2J\u{2028}\u{202e}\n (x\ny)".to_owned()
            + "\n\n(0/1 completed)"
    );
    assert_eq!(from_arguments(&arguments_of(&odd)), Some(odd));
}

fn any_status() -> impl Strategy<Value = PlanItemStatus> {
    prop_oneof![Just(PlanItemStatus::Pending), Just(PlanItemStatus::Completed)]
}

/// A canonical plan: trimmed texts, distinct ids, at most one item in progress.
fn any_plan() -> impl Strategy<Value = Plan> {
    let odd = prop_oneof![any::<String>(), "[ab\n\t`<>/\\\\-]{0,20}", Just("</system-reminder>".to_owned())];
    let items = prop::collection::vec((odd.clone(), any_status(), odd), 0..=MAX_ITEMS);
    (items, prop::option::of(0..MAX_ITEMS)).prop_map(|(items, active)| {
        plan(items.into_iter().enumerate().map(|(place, (content, status, active_form))| PlanItem {
            id: format!("id{place}"),
            content: format!("c{content}").trim().to_owned(),
            status: if active == Some(place) { PlanItemStatus::InProgress } else { status },
            active_form: active_form.trim().to_owned(),
        }))
    })
}

/// Arguments of all kinds: good, faulty, of the wrong shape, and no JSON at all.
fn any_arguments() -> impl Strategy<Value = String> {
    let text = |words: &'static [&'static str]| prop::sample::select(words).prop_map(|word| json!(word));
    let id = prop_oneof![
        3 => Just(Value::Null),
        3 => text(&["1", "2", "3", "12", ""]),
        1 => (1..15).prop_map(|n: i32| json!(n)),
        1 => Just(json!([])),
    ];
    let content = text(&["a", "b", "A ", "c", "d", "e\n", ""]);
    let status = prop_oneof![
        4 => text(&["pending", "completed", "done", "Pending"]),
        1 => text(&["in_progress", "in-progress", "blocked", ""]),
        2 => Just(Value::Null),
    ];
    let item = (id, content, status)
        .prop_map(|(id, content, status)| json!({"id": id, "content": content, "status": status}));
    let list =
        prop_oneof![8 => prop::collection::vec(item.clone(), 0..6), 1 => prop::collection::vec(item, 11..15)];
    prop_oneof![
        8 => list.clone().prop_map(|list| json!({ "todos": list }).to_string()),
        2 => list.clone().prop_map(|list| json!({ "items": list }).to_string()),
        1 => list.prop_map(|list| json!({ "todos": Value::Array(list).to_string() }).to_string()),
        1 => any::<String>(),
        1 => any::<String>().prop_map(|text| json!({ "todos": text }).to_string()),
    ]
}

fn assert_canonical(plan: &Plan) {
    assert!(plan.items.len() <= MAX_ITEMS);
    assert!(plan.items.iter().filter(|item| item.status == PlanItemStatus::InProgress).count() <= 1);
    for (place, item) in plan.items.iter().enumerate() {
        assert!(!item.content.is_empty() && item.content.trim() == item.content && !item.id.is_empty());
        assert!(plan.items[..place].iter().all(|earlier| earlier.id != item.id));
    }
}

proptest! {
    /// P01, P04, P11, P12, P20
    #[test]
    fn any_sequence_of_writes_keeps_the_rules(calls in prop::collection::vec((any_arguments(), 1..5usize), 1..12)) {
        let mut view = PlanInView::default();
        let mut equal_in_a_row = 0;
        for (arguments, times) in calls {
            for _ in 0..times {
                let before = view.clone();
                match apply(&mut view, &arguments) {
                    Ok(accepted) => {
                        assert_canonical(&view.plan);
                        prop_assert_eq!(&accepted.summary, &render(&view.plan));
                        prop_assert_eq!(accepted.unchanged, view.plan == before.plan);
                        prop_assert_eq!(from_arguments(&arguments), Some(view.plan.clone()));
                        equal_in_a_row = if accepted.unchanged { equal_in_a_row + 1 } else { 0 };
                        prop_assert!(equal_in_a_row <= 2);
                        // Every unfinished item of before is in the plan, by id or text, or named in the content.
                        let content = accepted.content.unwrap_or_default();
                        for old in before.plan.unfinished() {
                            let kept = view.plan.items.iter().any(|new| {
                                new.id == old.id || new.content.eq_ignore_ascii_case(&old.content)
                            });
                            prop_assert!(kept || content.contains(&item_line(old)));
                        }
                    }
                    Err(refusal) => {
                        prop_assert_eq!(&view, &before);
                        prop_assert!(refusal.message.starts_with("the plan "));
                        let resent = from_arguments(&arguments).is_some_and(|plan| plan == view.plan);
                        prop_assert!(!resent || view.resends == 2);
                    }
                }
            }
        }
    }

    /// P04
    #[test]
    fn assigned_ids_are_unique_and_the_same_every_time(ids in prop::collection::vec(prop::option::of(1..14u32), 0..=12)) {
        let todos: Vec<Value> = ids.iter().map(|id| json!({"id": id, "content": "a"})).collect();
        let arguments = json!({ "todos": todos }).to_string();
        prop_assert_eq!(from_arguments(&arguments), from_arguments(&arguments));
        let given: Vec<u32> = ids.iter().copied().flatten().collect();
        let distinct: std::collections::HashSet<u32> = given.iter().copied().collect();
        let Some(plan) = from_arguments(&arguments) else {
            prop_assert!(distinct.len() < given.len());
            return Ok(());
        };
        assert_canonical(&plan);
        for (item, id) in plan.items.iter().zip(&ids) {
            prop_assert!(id.is_none_or(|id| item.id == id.to_string()));
        }
    }

    /// P16
    #[test]
    fn any_text_survives_and_is_rendered_on_one_line(plan in any_plan()) {
        prop_assert_eq!(from_arguments(&arguments_of(&plan)), Some(plan.clone()));
        let text = render(&plan);
        let lines = if plan.items.is_empty() { 1 } else { plan.items.len() + 2 };
        prop_assert_eq!(text.split(['\n', '\r', '\u{2028}', '\u{2029}', '\u{85}', '\u{b}', '\u{c}']).count(), lines);
    }

    /// A01
    #[test]
    fn what_python_prints_is_read_as_json_is(plan in any_plan()) {
        let list = json!(plan);
        let printed = as_python_prints(&list);
        prop_assert_eq!(python::read(&printed), Some(list));
        prop_assert_eq!(from_arguments(&json!({ "todos": printed }).to_string()), Some(plan));
    }

    /// A01
    #[test]
    fn any_arguments_are_read_without_a_panic(text in any::<String>()) {
        let _ = python::read(&text);
        let _ = from_arguments(&text);
        let _ = from_arguments(&json!({ "todos": text }).to_string());
    }
}

fn as_python_prints(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(truth) => if *truth { "True" } else { "False" }.to_owned(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => {
            let body: String = text
                .chars()
                .map(|c| match c {
                    '\'' | '\\' => format!("\\{c}"),
                    '\n' => "\\n".to_owned(),
                    c if c.is_control() => format!("\\x{:02x}", u32::from(c)),
                    c => c.to_string(),
                })
                .collect();
            format!("'{body}'")
        }
        Value::Array(values) => {
            format!("[{}]", values.iter().map(as_python_prints).collect::<Vec<_>>().join(", "))
        }
        Value::Object(fields) => {
            let fields: Vec<String> =
                fields.iter().map(|(key, value)| format!("'{key}': {}", as_python_prints(value))).collect();
            format!("{{{}}}", fields.join(", "))
        }
    }
}
