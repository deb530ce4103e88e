//! Commands try to get out of the sandbox, and do in it what builds and tests need.
//!
//! What holds them depends on who runs them and on what the kernel offers, so everything is tried in every variant that
//! can be made here: as root and as an ordinary user, with namespaces, within bubblewrap, and with neither. A part that
//! the system lacks is said; in CI it fails the test, unless `MAINSTAY_ALLOW_MISSING` names it (`landlock`, `seccomp`, `namespaces`,
//! `bubblewrap`, with commas). `cargo test … --test sandbox NAME` runs the cases with this part of a name.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    unreachable_pub,
    dead_code,
    reason = "a test may fail loudly, and reports by itself; parts are shared with another test"
)]

#[path = "commands/place.rs"]
mod place;

#[path = "commands/variants.rs"]
mod variants;

#[path = "sandbox/attacker.rs"]
mod attacker;

#[path = "sandbox/bench.rs"]
mod bench;

#[path = "sandbox/changes.rs"]
mod changes;

#[path = "sandbox/escapes.rs"]
mod escapes;

#[path = "sandbox/git.rs"]
mod git;

#[path = "sandbox/work.rs"]
mod work;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use mainstay_tools::sandbox::Way;

fn main() -> ExitCode {
    mainstay_tools::supervise_if_asked();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["--attack", what, rest @ ..] => attacker::attack(what, rest),
        ["--as-agent", workspace, way, command] => work::agent(Path::new(workspace), way_of(way), command),
        ["--without", refused, rest @ ..] => variants::go_on_without(refused, rest),
        ["--cases", way, part] => cases(way_of(way), part),
        rest => run_all(rest.iter().find(|argument| !argument.starts_with('-')).unwrap_or(&"")),
    }
}

/// The users and the ways, as words before this program, what the kernel refuses, and the way that is taken.
const NO_NAMESPACES: &str = "unshare,clone-user";

struct Variant {
    name: &'static str,
    before: &'static [&'static str],
    refused: &'static str,
    way: &'static str,
    /// What must be there for it.
    needs: &'static str,
}

const ORDINARY: &[&str] = &["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
/// Root as some containers have it: without the right to change the bounding set, and with what no command shall have.
const CONTAINED: &[&str] = &[
    "setpriv",
    "--bounding-set=-all,+chown,+dac_override,+fowner,+kill,+setgid,+setuid,+net_raw,+mknod,+sys_ptrace",
    "--inh-caps=-all",
];
const NONE_MORE: &[&str] =
    &["unshare", "-Ur", "sh", "-c", "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$0\" \"$@\""];

fn run_all(part: &str) -> ExitCode {
    let as_root = rustix::process::getuid().is_root();
    let variant = |name, before, refused, way, needs| Variant { name, before, refused, way, needs };
    let mut all = vec![
        variant("as it is", &[][..], "", "namespaces", "namespaces"),
        variant("without namespaces", &[], NO_NAMESPACES, "plain", ""),
        variant("within bubblewrap", &[], "", "bubblewrap", "bubblewrap"),
        variant("as root of a user namespace", &["unshare", "-Ur"], "", "namespaces", "namespaces"),
        variant(
            "as root of a user namespace that allows no other",
            NONE_MORE,
            "",
            "namespaces",
            "namespaces",
        ),
    ];
    if as_root {
        all.extend([
            variant("as an ordinary user", ORDINARY, "", "namespaces", "namespaces"),
            variant("as an ordinary user without namespaces", ORDINARY, NO_NAMESPACES, "plain", ""),
            variant("as root of a container without namespaces", CONTAINED, NO_NAMESPACES, "plain", ""),
            variant("as an ordinary user within bubblewrap", ORDINARY, "", "bubblewrap", "bubblewrap"),
        ]);
    }
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let program = place.path().join("sandbox");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    // For whoever is not root, a program that makes root of them.
    let suid = place.path().join("suid");
    fs::copy(&program, &suid).unwrap();
    fs::set_permissions(&suid, PermissionsExt::from_mode(0o4755)).unwrap();
    let mut all_passed = true;
    for variant in all {
        println!("\n{}:", variant.name);
        if let Some(missing) = missing(&variant) {
            let is_allowed = may_lack(variant.needs);
            println!("{}: {missing}", if is_allowed { "skipped" } else { "FAILED" });
            all_passed &= is_allowed;
            continue;
        }
        let mut words = variant.before.iter().map(AsRef::as_ref).chain([program.as_os_str()]);
        let mut command = Command::new(words.next().unwrap());
        command.args(words);
        if !variant.refused.is_empty() {
            command.args(["--without", variant.refused]);
        }
        command
            .args(["--cases", variant.way, part])
            .env("HOME", "/nowhere")
            .env("SUID", &suid)
            .env("RUST_BACKTRACE", "0");
        all_passed &= command.status().unwrap().success();
    }
    if all_passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Whether a part of the system may be missing: where `MAINSTAY_ALLOW_MISSING` names it, and on a machine of somebody's own,
/// which need not have all that is tried in CI. What is missing is said.
pub(crate) fn may_lack(part: &str) -> bool {
    std::env::var_os("CI").is_none()
        || std::env::var("MAINSTAY_ALLOW_MISSING")
            .is_ok_and(|allowed| allowed.split(',').any(|word| word == part))
}

/// What a variant needs and this machine does not have.
fn missing(variant: &Variant) -> Option<String> {
    let works = |words: &[&str]| {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let with_all = [variant.before, &["true"]].concat();
    if !variant.before.is_empty() && !works(&with_all) {
        return Some(format!("`{}` is not allowed here", variant.before.join(" ")));
    }
    let bwrap = [variant.before, &["bwrap", "--ro-bind", "/", "/", "--unshare-net", "true"]].concat();
    let unshare = [variant.before, &["unshare", "-Urnm", "true"]].concat();
    match variant.needs {
        "bubblewrap" if !works(&bwrap) => Some("bubblewrap is not here, or not allowed".to_owned()),
        "namespaces" if variant.before.len() < 4 && !works(&unshare) => {
            Some("namespaces are not allowed here".to_owned())
        }
        _ => None,
    }
}

fn way_of(name: &str) -> Way {
    match name {
        "namespaces" => Way::Namespaces,
        "bubblewrap" => Way::Bubblewrap,
        "plain" => Way::Plain,
        other => panic!("no such way: {other}"),
    }
}

type Case = fn(Way) -> futures_util::future::BoxFuture<'static, ()>;

macro_rules! cases {
    ($($module:ident: $($name:ident),+;)*) => {
        &[$($((stringify!($name), |way| Box::pin($module::$name(way)))),+),*]
    };
}

const CASES: &[(&str, Case)] = cases![
    escapes:
        nothing_outside_is_changed,
        nothing_is_changed_in_read_only_mode,
        no_call_leads_out,
        nothing_beyond_its_own_loopback_is_reached,
        other_processes_are_out_of_reach,
        shared_memory_of_others_is_not_met,
        protected_places_stay_as_they_are,
        a_worktree_opens_only_its_own_repository,
        git_is_led_to_no_other_repository,
        a_submodule_opens_only_its_own_repository,
        sockets_of_others_are_hidden_where_commands_may_write,
        a_replaced_directory_opens_nothing,
        what_a_pattern_names_is_kept_or_said;
    changes:
        what_is_replaced_outside_stays_protected,
        a_job_meets_the_new_mount,
        what_comes_to_be_outside_is_kept,
        a_weaker_sandbox_is_asked_about,
        where_mounts_are_not_told_none_are_made,
        a_git_that_commands_may_write_is_not_asked,
        sockets_are_hidden_whatever_their_names_are,
        sockets_that_come_later_are_hidden,
        what_cannot_be_moved_aside_is_said,
        nothing_is_planted_in_what_git_goes_on_with,
        nothing_is_hidden_by_a_mode,
        what_cannot_be_looked_at_whole_does_not_count_as_held,
        the_end_of_a_session_moves_nothing_of_the_users,
        what_a_lost_command_made_is_moved_at_the_end,
        a_lost_command_does_not_bar_the_next,
        a_file_with_two_names_does_not_count_as_kept,
        where_gits_configuration_leads_is_protected,
        a_tried_network_is_said_though_all_went_well;
    git:
        ordinary_git_works,
        git_that_is_refused_names_the_place_and_the_setting,
        git_waits_for_nobody;
    work:
        what_holds_is_reported,
        builds_and_tests_find_what_they_need,
        calls_and_jobs_share_a_loopback,
        what_was_refused_is_named_with_its_setting,
        the_temporary_directory_ends_with_the_session,
        a_cancelled_start_leaves_no_directory;
];

fn cases(way: Way, part: &str) -> ExitCode {
    let mut failed = 0;
    for (name, case) in CASES.iter().filter(|(name, _)| name.contains(part)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let begun = std::time::Instant::now();
        let result = std::panic::catch_unwind(AssertUnwindSafe(|| runtime.block_on(case(way))));
        let word = if result.is_ok() { "ok" } else { "FAILED" };
        println!("{name} … {word} ({} ms)", begun.elapsed().as_millis());
        failed += u32::from(result.is_err());
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
