//! What holds the commands of a session that would be started here, and what to do about what does not.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use mainstay_agent::tools::BuiltinOptions;
use mainstay_agent::tools::sandbox::{Protection, SandboxReport, Way};

use crate::config::places::Surroundings;
use crate::config::{Config, Overrides, SandboxChoice, defaults};
use crate::error::CliError;
use crate::output::{inert, out};
use crate::settings;
use crate::signals::block_on;

/// Says it, a line each. A sandbox is made for it as a session would make one, and is gone afterwards.
pub(super) fn show(surroundings: &Surroundings, data_home: &Path) {
    let (mode, report) = match reported(surroundings, data_home) {
        Ok(found) => found,
        Err(error) => return line("sandbox", &format!("unknown: {}", inert(&error.message))),
    };
    line("sandbox", &mode);
    line("kernel", &format!("Linux {}", asked("kernel/osrelease").unwrap_or_else(|| "unknown".to_owned())));
    let Some(report) = report else { return };
    let yes_or_no = |yes: bool| if yes { "yes" } else { "no" };
    line("landlock", &version(report.landlock));
    line("seccomp", yes_or_no(report.seccomp));
    line("mounts", mounts(&report));
    line("network", network(&report));
    line("protected", protected(&report));
    line("bubblewrap", bubblewrap(surroundings));
    let enforced = if report.is_enforced() {
        "yes: commands pass under `approve = \"auto\"`"
    } else {
        "no: `approve = \"auto\"` asks before commands, and `exec` denies them"
    };
    line("enforced", enforced);
    for lack in &report.lacking {
        line("lacking", &inert(lack));
    }
    for advice in advice(&report) {
        line("to do", &advice);
    }
}

fn line(name: &str, text: &str) {
    out(&format!("{name:12} {text}"));
}

/// The mode with where it was said, and what of it is in force; nothing if there is to be no sandbox.
fn reported(
    surroundings: &Surroundings,
    data_home: &Path,
) -> Result<(String, Option<SandboxReport>), CliError> {
    let workspace = surroundings.workspace(None)?;
    let values = Config::load(surroundings, &workspace, Overrides::default())?.values;
    let (mode, origin) = match &values.sandbox {
        Some(said) => (said.value, format!("from {}", said.origin)),
        None => (defaults::SANDBOX, "by default".to_owned()),
    };
    let shown = format!("{}, {origin}", SandboxChoice::as_str(mode));
    let Some(sandbox) = settings::sandbox(&values, surroundings, &workspace, data_home) else {
        return Ok((shown, None));
    };
    let options = BuiltinOptions { sandbox: Some(sandbox), ..BuiltinOptions::default() };
    let report = block_on(async {
        let report = options.to_supervisor().report().await;
        report.map_err(|error| CliError::new(1, format!("the process that runs commands: {error}")))
    })?;
    Ok((shown, report))
}

fn version(landlock: u32) -> String {
    if landlock == 0 { "no".to_owned() } else { format!("version {landlock}") }
}

fn mounts(report: &SandboxReport) -> &'static str {
    match report.way {
        Way::Namespaces => "read-only but for what may be written",
        Way::Bubblewrap => "read-only but for what may be written, by bubblewrap",
        Way::Plain => "no",
    }
}

fn network(report: &SandboxReport) -> &'static str {
    match (report.network_is_held(), report.way) {
        (true, Way::Namespaces | Way::Bubblewrap) => "a loopback of its own",
        (true, Way::Plain) => "none at all",
        (false, _) => "not held",
    }
}

fn protected(report: &SandboxReport) -> &'static str {
    match report.protected {
        Protection::Nothing => "nothing is to be",
        Protection::Held => "held",
        Protection::Open => "not held",
    }
}

fn bubblewrap(surroundings: &Surroundings) -> &'static str {
    let path = surroundings.environment.get("PATH").unwrap_or_default();
    let is_program = |folder: PathBuf| {
        folder.is_absolute()
            && folder.join("bwrap").metadata().is_ok_and(|file| file.is_file() && file.mode() & 0o111 != 0)
    };
    let is_there = std::env::split_paths(path).any(is_program);
    if is_there { "installed" } else { "not installed" }
}

/// A value of the kernel's, if it has such a one.
fn asked(name: &str) -> Option<String> {
    std::fs::read_to_string(Path::new("/proc/sys").join(name)).ok().map(|text| text.trim().to_owned())
}

/// What would mend what is lacking, as far as it can be told.
fn advice(report: &SandboxReport) -> Vec<String> {
    let mut advice = Vec::new();
    if report.landlock == 0 {
        advice.push("use a kernel from 5.13 on with Landlock, and `landlock` in its `lsm=` list".to_owned());
    }
    if report.way != Way::Plain {
        return advice;
    }
    let is = |name: &str, value: &str| asked(name).as_deref() == Some(value);
    if is("user/max_user_namespaces", "0") {
        advice.push("allow user namespaces: sysctl user.max_user_namespaces=10000".to_owned());
    }
    if is("kernel/unprivileged_userns_clone", "0") {
        advice.push("allow user namespaces: sysctl kernel.unprivileged_userns_clone=1".to_owned());
    }
    if is("kernel/apparmor_restrict_unprivileged_userns", "1") {
        advice.push(
            "AppArmor keeps user namespaces from programs without a profile: install bubblewrap with its profile \
             (bwrap-userns-restrict, in apparmor-profiles), or sysctl kernel.apparmor_restrict_unprivileged_userns=0"
                .to_owned(),
        );
    }
    if advice.is_empty() {
        advice.push(
            "namespaces are refused here, as in many containers: allow them there, or let the container be the sandbox \
             with `--sandbox off --approve all`"
                .to_owned(),
        );
    }
    advice
}
