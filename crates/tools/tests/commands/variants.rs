//! The ways in which commands may be kept together: as whom, and with what the kernel refuses.
//!
//! Root gets a pid namespace, everyone else a subreaper; an older kernel, a sandbox or a container may refuse what either is
//! made with. What cannot be made on a machine is named and skipped.

#![allow(unsafe_code, reason = "there is no other way to have the kernel refuse a call")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

/// One way, as a program with arguments to put before this program and its own.
struct Variant {
    name: &'static str,
    before: Vec<String>,
    /// Calls that the kernel refuses, by name.
    refused: &'static str,
    /// Which cases: `all`, or those about `processes`.
    cases: &'static str,
}

/// Runs the cases with `part` in their name in each variant.
pub(crate) fn run_all(part: &str) -> ExitCode {
    let place = tempfile::tempdir().unwrap();
    // Where every user can execute it.
    let program = place.path().join("commands");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    fs::set_permissions(place.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let mut all_passed = true;
    for variant in variants() {
        println!("\n{}:", variant.name);
        if let Some(reason) = why_not(&variant) {
            println!("skipped: {reason}");
            continue;
        }
        let mut command = of(&variant, &program);
        command.args(["--cases", variant.cases, part]);
        command.env("CASES_API_KEY", "in no command").env("HOME", "/nowhere");
        all_passed &= command.status().unwrap().success();
    }
    if all_passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn variants() -> Vec<Variant> {
    let variant = |name, before: &[&str], refused, cases| Variant {
        name,
        before: before.iter().map(|word| (*word).to_owned()).collect(),
        refused,
        cases,
    };
    let none_more = "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$0\" \"$@\"";
    let ordinary = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    let mut all = vec![
        variant("as it is", &[], "", "all"),
        variant("with an older kernel", &[], "pidfd_open,close_range", "processes"),
        variant("without namespaces", &[], "unshare,clone3,clone-user", "processes"),
        variant("as root of a user namespace", &["unshare", "-Ur"], "", "processes"),
        variant(
            "as root of a user namespace that allows no other",
            &["unshare", "-Ur", "sh", "-c", none_more],
            "",
            "processes",
        ),
    ];
    if rustix::process::getuid().is_root() {
        all.push(variant("as an ordinary user", &ordinary, "", "all"));
        all.push(variant(
            "as an ordinary user without namespaces",
            &ordinary,
            "unshare,clone3,clone-user",
            "processes",
        ));
    }
    all
}

fn of(variant: &Variant, program: &Path) -> Command {
    let mut words = variant.before.iter().map(|word| word.as_ref()).chain([program.as_os_str()]);
    let mut command = Command::new(words.next().unwrap());
    command.args(words);
    if !variant.refused.is_empty() {
        command.args(["--without", variant.refused]);
    }
    command
}

/// Why a variant cannot be made here, if it cannot.
fn why_not(variant: &Variant) -> Option<String> {
    let mut command = of(variant, Path::new("true"));
    if variant.before.is_empty() {
        return None;
    }
    let tried = command.stdin(Stdio::null()).output();
    match tried {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(format!(
            "`{}` is not allowed here: {}",
            variant.before.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        )),
        Err(error) => Some(format!("`{}`: {error}", variant.before[0])),
    }
}

/// Has the kernel refuse the calls named, for good, and becomes this program with the other arguments.
pub(crate) fn go_on_without(refused: &str, rest: &[&str]) -> ExitCode {
    let mut program = vec![load(0)];
    for name in refused.split(',') {
        match name {
            "pidfd_open" => refuse(&mut program, libc::SYS_pidfd_open, libc::ENOSYS),
            "close_range" => refuse(&mut program, libc::SYS_close_range, libc::ENOSYS),
            "unshare" => refuse(&mut program, libc::SYS_unshare, libc::EPERM),
            "clone3" => refuse(&mut program, libc::SYS_clone3, libc::ENOSYS),
            "statx" => refuse(&mut program, libc::SYS_statx, libc::ENOSYS),
            "clone-user" => refuse_new_user_namespace(&mut program),
            other => panic!("no such call: {other}"),
        }
    }
    program.push(end(libc::SECCOMP_RET_ALLOW));
    let filter =
        libc::sock_fprog { len: u16::try_from(program.len()).unwrap(), filter: program.as_mut_ptr() };
    // SAFETY: plain values, and a filter that lives through the call.
    let is_set = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &filter) == 0
    };
    if !is_set {
        println!("skipped: the kernel takes no filter: {}", std::io::Error::last_os_error());
        return ExitCode::SUCCESS;
    }
    panic!("cannot go on: {}", Command::new(std::env::current_exe().unwrap()).args(rest).exec());
}

fn instruction(code: u32, jump: (u8, u8), value: u32) -> libc::sock_filter {
    libc::sock_filter { code: u16::try_from(code).unwrap(), jt: jump.0, jf: jump.1, k: value }
}

/// Loads a word of what describes the call: its number stands at 0, its first argument at 16.
fn load(place: u32) -> libc::sock_filter {
    instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, (0, 0), place)
}

fn end(verdict: u32) -> libc::sock_filter {
    instruction(libc::BPF_RET | libc::BPF_K, (0, 0), verdict)
}

fn is_call(number: i64, skipped_if_not: u8) -> libc::sock_filter {
    let number = u32::try_from(number).unwrap();
    instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, (0, skipped_if_not), number)
}

fn refusal(errno: i32) -> libc::sock_filter {
    end(libc::SECCOMP_RET_ERRNO | errno.cast_unsigned())
}

fn refuse(program: &mut Vec<libc::sock_filter>, call: i64, errno: i32) {
    program.extend([is_call(call, 1), refusal(errno)]);
}

fn refuse_new_user_namespace(program: &mut Vec<libc::sock_filter>) {
    let flag = libc::CLONE_NEWUSER.cast_unsigned();
    program.extend([
        is_call(libc::SYS_clone, 4),
        load(16),
        instruction(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, (0, 1), flag),
        refusal(libc::EPERM),
        load(0),
    ]);
}
