//! The names by which a session, an entry and a tool call are known.
//!
//! A provider's call id is not an identity: ids repeat within a session and some providers give none. A call is known
//! by its [`CallRef`], the place where it stands in the log.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The identity of a session, a UUID version 7 in its usual text form.
///
/// Version 7 begins with the time of creation, so ids sort by age.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SessionId(String);

impl SessionId {
    /// Makes the id of a session created at `now`, from random bytes that are handed in.
    pub fn new(now: jiff::Timestamp, random: [u8; 10]) -> Self {
        let millis = u64::try_from(now.as_millisecond()).unwrap_or(0);
        let uuid = uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid();
        SessionId(uuid.hyphenated().to_string())
    }

    /// Makes an id that no other session has, for one created at `now`.
    pub fn random(now: jiff::Timestamp) -> Self {
        let mut random = [0; 10];
        random.copy_from_slice(&uuid::Uuid::new_v4().as_bytes()[..10]);
        SessionId::new(now, random)
    }

    /// The id as text, which is also the name of the session's folder.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The part that is shown to people and may be typed: its end, which is random. Its beginning is the time.
    pub fn short(&self) -> &str {
        &self.0[self.0.len() - 8..]
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The text is not the id of a session.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not a session id")]
pub struct NotASessionId(String);

impl FromStr for SessionId {
    type Err = NotASessionId;

    fn from_str(text: &str) -> Result<Self, NotASessionId> {
        match uuid::Uuid::parse_str(text) {
            Ok(uuid) if uuid.hyphenated().to_string() == text => Ok(SessionId(text.to_owned())),
            _ => Err(NotASessionId(text.to_owned())),
        }
    }
}

impl TryFrom<String> for SessionId {
    type Error = NotASessionId;

    fn try_from(text: String) -> Result<Self, NotASessionId> {
        text.parse()
    }
}

impl From<SessionId> for String {
    fn from(id: SessionId) -> String {
        id.0
    }
}

/// The place of an entry in its session: 1 for the first, rising by one, across segments.
pub type Seq = u64;

/// A tool call, known by the answer that holds it and its place among that answer's calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CallRef {
    /// The answer entry that asked for the call.
    pub answer: Seq,
    /// The call's place among the answer's calls, from 0.
    pub call: u32,
}
