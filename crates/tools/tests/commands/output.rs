//! What a command is given, and what is told of it.

use std::fs;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use mainstay_tools::ToolError;
use serde_json::{Value, json};

use crate::place::{Place, most_memory, soon, text};

pub(crate) async fn output_and_exit_code_are_told(place: Place) {
    let output = place.run("echo out; echo err >&2; pwd").await.unwrap();
    assert_eq!((output.summary.as_str(), output.exit_code), ("exit code 0", Some(0)));
    assert_eq!(output.content.unwrap(), format!("out\nerr\n{}", place.root.display()));
    assert_eq!(place.text("true").await, "exit code 0, no output");
    let error = place.run("echo why; exit 3").await.unwrap_err();
    let expected =
        ToolError { summary: "exit code 3".into(), content: Some("why".into()), exit_code: Some(3) };
    assert_eq!(error, expected);
    let error = place.run("kill -SEGV $$").await.unwrap_err();
    assert_eq!((error.summary.as_str(), error.exit_code), ("killed by signal 11", Some(139)));
    assert_eq!(place.run("no-such-program").await.unwrap_err().exit_code, Some(127));
}

pub(crate) async fn what_a_shell_does_not_wait_for_may_finish(place: Place) {
    assert_eq!(place.text("echo hi | tee >(sleep 0.02; tr h H) >/dev/null").await, "exit code 0\nHi");
}

/// F03, W04
pub(crate) async fn nothing_waits_for_a_person(place: Place) {
    assert_ne!(soon(place.run("read x </dev/tty")).await.unwrap_err().exit_code, None);
    assert_eq!(soon(place.text("tty; test -t 1 || echo none")).await, "exit code 0\nnot a tty\nnone");
    let git = "git -c init.defaultBranch=main init -q . && git config user.email a@b.invalid && git config user.name a";
    if place.run(git).await.is_ok() {
        let error = soon(place.run("echo x > x && git add x && git commit")).await.unwrap_err();
        assert!(error.content.is_some_and(|text| text.contains("editor")));
        place.run("git commit -qm first").await.unwrap();
        assert!(soon(place.run("git log")).await.unwrap().content.unwrap().contains("first"));
        assert!(soon(place.run("git rebase -i --root")).await.is_err());
    }
    for command in ["sudo -k true", "ssh -p 1 127.0.0.1 true", "su nobody -s /bin/true -c : <&-; false"] {
        assert!(soon(place.run(command)).await.is_err(), "{command}");
    }
}

/// F04, W04
pub(crate) async fn input_is_empty(place: Place) {
    assert_eq!(soon(place.text("cat; grep foo; (cat) & wait; echo end")).await, "exit code 0\nend");
}

/// F05, W04
pub(crate) async fn a_flood_is_bounded(place: Place) {
    let before = most_memory();
    let output = place.run("echo first; yes | head -c 200M; echo last").await.unwrap();
    let content = output.content.unwrap();
    assert!(content.starts_with("first\n") && content.ends_with("last"));
    assert!(content.len() < 60 << 10, "{}", content.len());
    let kept = place.kept();
    assert!(content.contains("bytes are left out here, from line"), "counts what is missing");
    assert!(content.contains(&format!("The first 64 MiB of it are in {}", kept[0].display())));
    assert_eq!((kept.len(), fs::metadata(&kept[0]).unwrap().len()), (1, 64 << 20));
    let error = soon(place.run_for("yes", 300)).await.unwrap_err();
    assert!(error.summary.starts_with("timed out") && error.content.unwrap().len() < 60 << 10);
    assert!(most_memory() - before < 16 << 10, "from {before} to {} KB", most_memory());
}

/// F06
pub(crate) async fn a_cut_is_between_characters(mut place: Place) {
    for max in [50 << 10, 1 << 12, 1 << 20] {
        place.context.max_result_bytes = max;
        for more in 0..3 {
            let command =
                format!("head -c {} /dev/zero | tr '\\0' a; printf '€%.0s' {{1..40000}}", (1 << 20) - more);
            let text = place.text(&command).await;
            assert!(text.starts_with("exit code 0\naaa") && text.ends_with("€€"), "{max}");
            assert!(!text.contains('\u{fffd}'), "{max}");
        }
    }
}

/// F07
pub(crate) async fn bytes_that_are_no_text_are_said(place: Place) {
    let text = place.text(r"printf '\xff\xfe\x80ok'; exit 4").await;
    let note = "[some bytes of the output are not UTF-8 and are shown as U+FFFD]";
    assert_eq!(text, format!("exit code 4\n\u{fffd}\u{fffd}\u{fffd}ok\n{note}"));
}

/// F08
pub(crate) async fn terminal_control_is_taken_out(place: Place) {
    let text = place.text(r"printf 'a\033]52;c;QQ==\007b\033[6nc\xc2\x9b31md\033]0;t\nÛX\000.\n'").await;
    assert_eq!(text, "exit code 0\nabcd\nÛX.");
}

/// What is printed is told while the command runs, a few times a second at most, and changes nothing of its result.
pub(crate) async fn what_is_printed_is_told_while_it_runs(mut place: Place) {
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let (heard, root) = (told.clone(), place.root.clone());
    place.context.on_output = Arc::new(move |lines: &str| {
        heard.lock().unwrap().push(lines.to_owned());
        fs::write(root.join("go"), "").unwrap();
        if lines.ends_with("end") {
            fs::write(root.join("over"), "").unwrap();
        }
    });
    // It ends when its last line was told.
    let flood = "while [ ! -e go ]; do echo again; done; echo end; while [ ! -e over ]; do sleep 0.02; done";
    let begun = Instant::now();
    let result = soon(place.run(flood)).await.unwrap();
    assert_eq!(result.summary, "exit code 0");
    assert!(result.content.unwrap().ends_with("again\nend"));
    let told = told.lock().unwrap();
    assert!(told.len() as u128 <= begun.elapsed().as_millis() / 100, "{} times", told.len());
    assert!(told.iter().all(|lines| lines.lines().count() <= 10), "{told:?}");
    assert!(told.last().unwrap().ends_with("again\nend"), "{told:?}");
}

/// F09
pub(crate) async fn a_vanished_directory_is_said(place: Place) {
    place.run("mkdir t && cd t && rm -rf ../t").await.unwrap();
    assert_eq!(place.text("pwd").await, format!("exit code 0\n{}", place.root.display()));
    fs::remove_dir_all(&place.root).unwrap();
    let gone = format!("the workspace {} is gone, so nothing can run in it", place.root.display());
    assert_eq!(place.text("pwd").await, gone);
    fs::create_dir(&place.root).unwrap();
    assert!(place.run("pwd").await.is_ok());
}

/// F10: the units are tried where they are read.
pub(crate) async fn timeouts_are_kept_to_and_said(place: Place) {
    let call = async |arguments: Value| {
        let mut all = json!({"command": "echo x; sleep 0.3"});
        all.as_object_mut().unwrap().extend(arguments.as_object().unwrap().clone());
        text(place.call(all).await)
    };
    assert!(call(json!({"timeout_ms": 50})).await.starts_with("timed out after 50 ms"));
    let cut = "[timeout_ms was cut from 900000 to 600000, the longest allowed; `background` has no limit]";
    assert_eq!(call(json!({"timeout_ms": 900_000})).await, format!("exit code 0\nx\n{cut}"));
    let seconds =
        "[(Read `timeout` 5 as `timeout_ms` 5000 (without a unit, in seconds since it is below 1000).)]";
    assert_eq!(call(json!({"timeout": 5})).await, format!("exit code 0\nx\n{seconds}"));
    let text = call(json!({"timeout_ms": 0})).await;
    assert!(text.contains("`timeout_ms`: expected a whole number from 1"), "{text}");
}

pub(crate) async fn long_and_impossible_commands(place: Place) {
    let long = format!("x={}; echo ${{#x}}", "a".repeat(100_000));
    assert_eq!(place.text(&long).await, "exit code 0\n100000");
    let text = place.text(&"a".repeat(131_072)).await;
    assert!(
        text.starts_with("`command` has 131072 bytes, and the longest that can be run has 131071"),
        "{text}"
    );
    let longest = format!("#{}\necho ok", "a".repeat(131_071 - 9));
    assert_eq!(place.text(&longest).await, "exit code 0\nok");
    assert!(place.text("echo a\0b").await.contains("NUL"));
    assert_eq!(place.text("  ").await, "`command` is empty");
}

pub(crate) async fn closed_output_is_no_end(place: Place) {
    let text = place.text("exec >&- 2>&-; sleep 0.1; touch late; exit 5").await;
    assert_eq!((text.as_str(), place.has("late")), ("exit code 5", true));
}

pub(crate) async fn keys_are_in_no_command(place: Place) {
    assert!(std::env::var_os("CASES_API_KEY").is_some());
    let text = place.text("env; cat /proc/$PPID/environ | tr '\\0' '\\n'").await;
    assert!(!text.contains("in no command"), "{text}");
    assert!(text.contains("GIT_EDITOR=false"));
}

/// A command finds signals, descriptors and its directory as a program that is started expects them.
pub(crate) async fn commands_start_afresh(place: Place) {
    let text =
        place.text("sed -n 's/^Sig\\(Blk\\|Ign\\):\t//p' /proc/self/status; ls /proc/$$/fd; true").await;
    let lines: Vec<&str> = text.lines().collect();
    // Signals 32 and 33 are the C library's own: nobody else can set them.
    let signals = |line: &str| u64::from_str_radix(line, 16).unwrap() & !(0b11 << 31);
    assert_eq!((signals(lines[1]), signals(lines[2])), (0, 0), "{text}");
    assert_eq!(lines[3..], ["0", "1", "2"], "{text}");
}
