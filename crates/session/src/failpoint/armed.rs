//! The places of a program under test.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Holds the orders: `PLACE[#PASS[+]]=ACTION`, several of them with `;` between.
const ORDERS: &str = "MAINSTAY_FAILPOINTS";

/// Names a file to which the name of each place is added when it is passed, one a line.
const TRACE: &str = "MAINSTAY_FAILPOINTS_TRACE";

static ARMED: OnceLock<Armed> = OnceLock::new();

struct Armed {
    orders: Vec<Order>,
    trace: Option<File>,
    /// How often each place was passed.
    passes: Mutex<HashMap<String, u64>>,
}

/// What happens where, and at which pass.
struct Order {
    place: String,
    first: u64,
    last: u64,
    action: Action,
}

enum Action {
    /// The process is killed with SIGKILL.
    Kill,
    /// The system call fails.
    Fail(rustix::io::Errno),
    /// This path is moved away, with `.gone` behind its name.
    Vanish(PathBuf),
}

/// Reads the orders from the environment, through whoever may look at it. An order that cannot be read ends the program: a
/// test that tests nothing would pass.
pub fn arm(environment: impl Fn(&str) -> Option<OsString>) {
    let text = environment(ORDERS).map(|orders| orders.to_string_lossy().into_owned()).unwrap_or_default();
    let trace = environment(TRACE).map(|path| {
        File::options().append(true).create(true).open(path).unwrap_or_else(|_| unreadable(&text))
    });
    let read = |order| Order::read(order).unwrap_or_else(|| unreadable(order));
    let orders: Vec<Order> = text.split(';').filter(|order| !order.is_empty()).map(read).collect();
    if trace.is_some() || !orders.is_empty() {
        let _ = ARMED.set(Armed { orders, trace, passes: Mutex::default() });
    }
}

fn unreadable<T>(order: &str) -> T {
    let _ = writeln!(io::stderr(), "error: {ORDERS} or {TRACE} cannot be obeyed: {order}");
    std::process::exit(78)
}

/// Comes by a place.
///
/// # Errors
///
/// What was ordered for this pass.
pub fn pass(place: &str) -> io::Result<()> {
    ARMED.get().map_or(Ok(()), |armed| armed.pass(place))
}

/// Writes bytes, with a place before, one after the first half (`.half`) and one behind (`.done`). `write` is given parts,
/// each with its offset.
///
/// # Errors
///
/// Those of `write`, and what was ordered.
pub fn write(
    place: &str,
    bytes: &[u8],
    mut write: impl FnMut(usize, &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let Some(armed) = ARMED.get() else { return write(0, bytes) };
    armed.pass(place)?;
    let half = format!("{place}.half");
    // Only where something is to happen there are two writes.
    let written = if armed.has_order(&half) { bytes.len() / 2 } else { 0 };
    if written > 0 {
        write(0, &bytes[..written])?;
    }
    armed.pass(&half)?;
    write(written, &bytes[written..])?;
    armed.pass(&format!("{place}.done"))
}

impl Armed {
    fn has_order(&self, place: &str) -> bool {
        self.orders.iter().any(|order| order.place == place)
    }

    fn pass(&self, place: &str) -> io::Result<()> {
        let pass = {
            let mut passes = self.passes.lock().unwrap_or_else(PoisonError::into_inner);
            let pass = passes.entry(place.to_owned()).or_default();
            *pass += 1;
            *pass
        };
        if let Some(mut trace) = self.trace.as_ref() {
            trace.write_all(format!("{place}\n").as_bytes())?;
        }
        let is_meant = |order: &&Order| order.place == place && (order.first..=order.last).contains(&pass);
        self.orders.iter().find(is_meant).map_or(Ok(()), |order| order.action.run())
    }
}

impl Order {
    fn read(text: &str) -> Option<Order> {
        let (place, action) = text.split_once('=')?;
        let (place, passes) = place.split_once('#').unwrap_or((place, "1+"));
        let first = passes.trim_end_matches('+').parse().ok()?;
        let last = if passes.ends_with('+') { u64::MAX } else { first };
        let action = match action {
            "kill" => Action::Kill,
            "eio" => Action::Fail(rustix::io::Errno::IO),
            "enospc" => Action::Fail(rustix::io::Errno::NOSPC),
            other => Action::Vanish(PathBuf::from(other.strip_prefix("vanish:")?)),
        };
        Some(Order { place: place.to_owned(), first, last, action })
    }
}

impl Action {
    fn run(&self) -> io::Result<()> {
        match self {
            Action::Kill => {
                rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)?;
                Ok(())
            }
            Action::Fail(error) => Err((*error).into()),
            Action::Vanish(path) => {
                let mut gone = path.clone().into_os_string();
                gone.push(".gone");
                fs::rename(path, gone)
            }
        }
    }
}
