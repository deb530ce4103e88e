//! The supervisor's own process: makes a keeper for every command that runs at the same time as another.
//!
//! It does nothing else, so there is little that can go wrong in it, and it is what all commands of a session have in
//! common. It ends with the agent; so does each keeper, which has a socket of its own to the agent.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::keeper;
use super::protocol::{Report, receive, write_frame};
use crate::sys::{self, Fork};

/// Serves the agent on the socket that is the standard input, until the agent is gone. Never returns.
pub(super) fn supervise() -> ! {
    sys::begin_session();
    sys::ignore_requests_to_end();
    // What became of a keeper, the agent sees by the end of its socket.
    sys::ignore_children();
    sys::close_what_was_inherited();
    let socket = rustix::stdio::stdin();
    while let Some(for_keeper) = next_socket(socket) {
        match sys::fork() {
            Ok(Fork::Parent(_)) => {}
            Ok(Fork::Child) => keeper::keep(for_keeper),
            Err(error) => refuse(for_keeper, &error.to_string()),
        }
    }
    sys::exit_now(0)
}

/// The next keeper's socket; none if the agent is gone.
fn next_socket(socket: BorrowedFd<'_>) -> Option<OwnedFd> {
    loop {
        match receive(socket, &mut [0]) {
            Ok((1.., Some(descriptor))) => return Some(descriptor),
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
