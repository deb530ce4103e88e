//! `mainstay doctor`: what is there, what of a session is damaged, and its repair.

mod sandbox;

use std::process::ExitCode;

use mainstay_agent::session::log::{
    self, Inspection, ReadError, RepairError, Repaired, SessionSummary, read,
};

use crate::choose::list;
use crate::config::places::Surroundings;
use crate::error::{CliError, DAMAGED};
use crate::history::{cannot_open, damage_line, unreadable};
use crate::output::{counted, inert, out, say};

/// Exit code of a session in which something is damaged.
const FOUND: u8 = 1;

/// Says what there is, a line each. What cannot be used is said on stderr.
///
/// # Errors
///
/// If there is no place to keep sessions, or it cannot be read.
pub(crate) fn installation(surroundings: &Surroundings) -> Result<ExitCode, CliError> {
    let home = surroundings.data_home()?;
    let sessions = list(&home)?;
    out(&format!("version      mainstay {}", env!("CARGO_PKG_VERSION")));
    out(&format!("data         {}{}", home.display(), if home.is_dir() { "" } else { " (not there yet)" }));
    out(&format!("config       {}", config(surroundings)));
    out(&format!("sessions     {}", numbers(&sessions)));
    let trash = log::list_trash(&home).map(|trash| trash.len()).unwrap_or_default();
    out(&format!("trash        {trash} in {}", log::trash_dir(&home).display()));
    let leftovers = log::leftovers(&home).unwrap_or_default();
    if !leftovers.is_empty() {
        let folders = counted(leftovers.len() as u64, "folder");
        out(&format!("leftovers    {folders} without a session, which may be removed:"));
        leftovers.iter().take(5).for_each(|path| out(&format!("             {}", path.display())));
    }
    out(&format!("system       {} {}", std::env::consts::OS, std::env::consts::ARCH));
    sandbox::show(surroundings, &home);
    let unreadable: Vec<&SessionSummary> = sessions.iter().filter(|session| session.cwd.is_none()).collect();
    for session in &unreadable {
        say(&format!("session {} cannot be read: mainstay doctor {0}", session.id.short()));
    }
    Ok(if unreadable.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(FOUND) })
}

fn config(surroundings: &Surroundings) -> String {
    match surroundings.config_home().map(|home| home.join("config.toml")) {
        Some(path) if path.is_file() => path.display().to_string(),
        Some(path) => format!("{} (not there)", path.display()),
        None => "nowhere: HOME is not set".to_owned(),
    }
}

fn numbers(sessions: &[SessionSummary]) -> String {
    let count = |what: fn(&SessionSummary) -> bool| sessions.iter().filter(|session| what(session)).count();
    format!(
        "{}, {} running, {} interrupted",
        sessions.len(),
        count(|session| session.is_running),
        count(|session| session.is_interrupted)
    )
}

/// Says what of a session cannot be read and where, and repairs it if that is asked for.
///
/// # Errors
///
/// If its files cannot be read, or, for a repair, a process works on it.
pub(crate) fn session(session: &SessionSummary, repair: bool) -> Result<ExitCode, CliError> {
    let id = session.id.short();
    let before = log::inspect(&session.dir).map_err(unreadable)?;
    show(&before);
    let found = if repair && !before.damage.is_empty() {
        let done = log::repair(&session.dir, &session.id, jiff::Timestamp::now())
            .map_err(|error| not_repaired(error, id))?;
        show_repaired(&done);
        let after = log::inspect(&session.dir).map_err(unreadable)?;
        after.damage.iter().for_each(|damage| out(&damage_line("left as it is", damage)));
        after
    } else {
        before
    };
    match read(&session.dir) {
        Err(ReadError::NoHeader { .. }) => {
            say(&format!("session {id} cannot go on: no segment has a header that can be read"));
            hint(id, repair, &found);
            return Ok(ExitCode::from(DAMAGED));
        }
        Err(error) => return Err(unreadable(error)),
        Ok((state, _)) => {
            if let Some(what) = state.must {
                say(&format!("session {id} can be read and not written: it holds {}", inert(&what)));
                return Ok(ExitCode::from(DAMAGED));
            }
        }
    }
    if found.is_sound() {
        out(&format!("session {id} is sound"));
        return Ok(ExitCode::SUCCESS);
    }
    say(&format!("session {id} can go on; what is listed above is lost, everything else is kept"));
    hint(id, repair, &found);
    Ok(ExitCode::from(FOUND))
}

fn hint(id: &str, repair: bool, found: &Inspection) {
    if !repair && !found.damage.is_empty() {
        say(&format!("to write the damaged segments anew: mainstay doctor {id} --repair"));
    }
}

fn show(found: &Inspection) {
    for segment in &found.segments {
        let (entries, bytes) = (counted(segment.entries, "entry"), counted(segment.bytes, "byte"));
        out(&format!("{:04}.jsonl: {entries}, {bytes}", segment.number));
    }
    found.damage.iter().for_each(|damage| out(&damage_line("damaged", damage)));
    for (seq, hash) in &found.missing {
        out(&format!("missing: spill/{}, which entry {seq} names", hash.as_str()));
    }
    for path in &found.changed {
        out(&format!("damaged: {} is not what it was", path.display()));
    }
    if !found.lost.is_empty() {
        out(&format!("lost before an earlier repair: {}", counted(found.lost.len() as u64, "entry")));
    }
    found.kept.iter().for_each(|path| out(&format!("kept: {}", path.display())));
    if found.waiting > 0 {
        let notifications = counted(found.waiting as u64, "notification");
        out(&format!("waiting: {notifications} from other processes"));
    }
}

fn show_repaired(done: &Repaired) {
    for (segment, kept) in &done.segments {
        out(&format!("repaired: {segment:04}.jsonl; as it was: {}", kept.display()));
    }
    let headers = if done.headers > 0 { ", and a header was made again" } else { "" };
    out(&format!("marked as lost: {}{headers}", counted(done.lost, "entry")));
}

fn not_repaired(error: RepairError, id: &str) -> CliError {
    match error {
        RepairError::Open(error) => cannot_open(error, id),
        error @ RepairError::Newer { .. } => CliError::new(DAMAGED, format!("session {id}: {error}"))
            .hint("a newer version of mainstay wrote it; repair it with that one"),
        error @ RepairError::Write { .. } => CliError::new(1, format!("session {id}: {error}"))
            .hint("free some space or check who may write there"),
    }
}
