//! What the agent and its keepers say to each other: frames of a length and a JSON value.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use mainstay_session::message::FilePath;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, SendAncillaryBuffer, SendAncillaryMessage, recvmsg, sendmsg,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::sandbox::{Aside, Layout, SandboxReport, Way};
use crate::sys;

/// The longest frame. A command is part of one.
const LONGEST: usize = 64 << 20;

/// What the agent says to a supervisor that is to hold commands, before all else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Begin {
    pub(super) way: Way,
    pub(super) layout: Layout,
    /// Sockets that commands are not to meet.
    pub(super) sockets: Vec<FilePath>,
}

/// What a supervisor answers to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Begun {
    /// Commands will be held so.
    Ready(SandboxReport),
    /// It cannot be done in this way, and the supervisor has ended.
    Cannot(String),
}

/// What the agent says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case")]
pub(super) enum Order {
    /// Start this command, but hold it before its first instruction. What it prints to comes along as a descriptor.
    Run {
        command: String,
        cwd: FilePath,
        /// More sockets that it is not to meet.
        sockets: Vec<FilePath>,
        /// Whether no other command runs, and none can have left anything: what has come to be is the user's then.
        is_alone: bool,
    },
    /// Let it go.
    Go,
    /// End it, or do not let it begin.
    Kill,
}

/// What a keeper says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "report", rename_all = "snake_case")]
pub(super) enum Report {
    /// The command's process exists and waits.
    Started { pid: u32, started: u64 },
    /// There is no process for it.
    NotStarted { reason: String },
    /// It was not started, since what is to hold it is not what it was any more. Another supervisor may hold it.
    Stale { reason: String },
    /// It has ended, and so has what it left running: `left` processes, of which `stuck` could not be ended.
    Ended {
        exit: Exit,
        left: u32,
        stuck: u32,
        /// What it made though it must not.
        asides: Vec<Aside>,
        /// Whether, while it ran, somebody in the sandbox tried to reach a network.
        tried_network: bool,
    },
    /// It cannot go on and ends, with whatever it runs.
    Failed { reason: String },
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Exit {
    /// By itself.
    Code(i32),
    /// By a signal.
    Signal(i32),
}

impl Exit {
    /// What a status that was waited for says.
    pub(super) fn of(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Exit::Code(code),
            (None, signal) => Exit::Signal(signal.unwrap_or_default()),
        }
    }
}

/// A value as a frame.
pub(super) fn write_frame(value: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut frame = vec![0; 4];
    serde_json::to_writer(&mut frame, value)?;
    let length = u32::try_from(frame.len() - 4).map_err(|_| io::Error::other("the command is too long"))?;
    frame[..4].copy_from_slice(&length.to_le_bytes());
    Ok(frame)
}

/// The value of a frame, whose length is off already.
pub(super) fn read_frame<T: DeserializeOwned>(frame: &[u8]) -> io::Result<T> {
    Ok(serde_json::from_slice(frame)?)
}

/// Waits for a frame on a blocking socket and reads it.
pub(super) fn read_whole<T: DeserializeOwned>(mut socket: impl io::Read) -> io::Result<T> {
    let mut length = [0; 4];
    socket.read_exact(&mut length)?;
    let mut frame = vec![0; frame_length(u32::from_le_bytes(length))?];
    socket.read_exact(&mut frame)?;
    read_frame(&frame)
}

/// Takes the first frame out of what has been received, once it is whole.
pub(super) fn take_frame<T: DeserializeOwned>(received: &mut Vec<u8>) -> io::Result<Option<T>> {
    let Some(length) = received.first_chunk::<4>() else { return Ok(None) };
    let end = 4 + frame_length(u32::from_le_bytes(*length))?;
    if received.len() < end {
        return Ok(None);
    }
    let value = read_frame(&received[4..end])?;
    received.drain(..end);
    Ok(Some(value))
}

/// The length of a frame that is to be read.
pub(super) fn frame_length(length: u32) -> io::Result<usize> {
    match usize::try_from(length) {
        Ok(length) if length <= LONGEST => Ok(length),
        Ok(_) | Err(_) => Err(io::Error::other("a frame is too long")),
    }
}

/// Sends bytes with a descriptor; says how many bytes went.
pub(super) fn send_descriptor(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    descriptor: BorrowedFd<'_>,
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = [descriptor];
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    Ok(sendmsg(socket, &[IoSlice::new(bytes)], &mut control, sys::SEND)?)
}

/// Reads bytes, and a descriptor if one came with them.
pub(super) fn receive(socket: BorrowedFd<'_>, bytes: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let message = recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut control, sys::RECEIVE)?;
    let mut descriptor = None;
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = part {
            descriptor = descriptors.last();
        }
    }
    Ok((message.bytes, descriptor))
}
