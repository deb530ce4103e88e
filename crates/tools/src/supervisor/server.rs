//! The supervisor's own process: makes a keeper for every command that runs at the same time as another.
//!
//! It does nothing else, so there is little that can go wrong in it, and it is what all commands of a session have in
//! common. It ends with the agent; so does each keeper, which has a socket of its own to the agent.

use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use super::keeper;
use super::protocol::{Begin, Begun, Report, read_whole, receive, write_frame};
use crate::sandbox::Held;
use crate::sys::{self, Fork};

/// Serves the agent on the socket that is the standard input, until the agent is gone. Never returns. If it is to hold
/// commands, it says first what of that is in force; if it cannot, it ends.
pub(super) fn supervise(is_to_hold: bool) -> ! {
    sys::begin_session();
    sys::ignore_requests_to_end();
    // What became of a keeper, the agent sees by the end of its socket.
    sys::ignore_children();
    sys::close_what_was_inherited();
    let socket = rustix::stdio::stdin();
    let mut held = if is_to_hold { Some(hold(socket)) } else { None };
    while let Some(for_keeper) = next_socket(socket) {
        match sys::fork() {
            Ok(Fork::Parent(_)) => {}
            Ok(Fork::Child) => keeper::keep(for_keeper, held),
            Err(error) => refuse(for_keeper, &error.to_string()),
        }
    }
    if let Some(held) = &mut held {
        // Each keeper has ended what it ran before it ends.
        sys::wait_until_childless();
        held.put_aside_of_lost();
        held.end();
    }
    sys::exit_now(0)
}

/// Enters the sandbox that the agent describes.
fn hold(socket: BorrowedFd<'_>) -> Held {
    let entered = || -> Result<_, String> {
        let own = socket.try_clone_to_owned().map_err(|error| error.to_string())?;
        let mut agent = UnixStream::from(own);
        let Begin { way, layout, sockets } = read_whole(&agent).map_err(|error| error.to_string())?;
        let entered = Held::enter(way, layout, sockets);
        let (answer, held) = match entered {
            Ok((held, report)) => (Begun::Ready(report), Some(held)),
            Err(why) => (Begun::Cannot(why), None),
        };
        let frame = write_frame(&answer).map_err(|error| error.to_string())?;
        if let Err(error) = agent.write_all(&frame) {
            held.iter().for_each(Held::end);
            return Err(error.to_string());
        }
        held.ok_or_else(String::new)
    };
    // The agent has been told, or is gone.
    entered().unwrap_or_else(|_| sys::exit_now(1))
}

/// The next keeper's socket; none if the agent is gone, or has this supervisor end.
fn next_socket(socket: BorrowedFd<'_>) -> Option<OwnedFd> {
    loop {
        match receive(socket, &mut [0]) {
            Ok((1.., Some(descriptor))) => return Some(descriptor),
            // The agent's other end of a socket that could not be taken tells it that there is no keeper.
            Ok((1.., None)) => {}
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Ok((0, _)) | Err(_) => return None,
        }
    }
}

fn refuse(socket: OwnedFd, reason: &str) {
    let report = Report::NotStarted { reason: format!("no process can be made for it: {reason}") };
    if let Ok(frame) = write_frame(&report) {
        // If it cannot be told, the end of the socket tells that there is no keeper.
        let _ = rustix::io::write(socket.as_fd(), &frame);
    }
}
