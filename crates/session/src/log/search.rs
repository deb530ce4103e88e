//! Which sessions speak of something: titles, prompts and answers, in whatever case.
//!
//! A file is looked through as bytes; only lines in which the text stands are decoded. Sessions are looked through side by
//! side, as many at a time as the machine has cores.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use regex::{Regex, RegexBuilder, bytes};

use super::{SessionSummary, reading, segment_path};
use crate::entry::{Body, Lane};
use crate::line;

/// How much of a text is shown around what was found, in characters, before and behind.
const AROUND: usize = 30;

/// Where a session speaks of a text: the words around the last place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The session's place among those that were given.
    pub session: usize,
    /// The words around it, on one line.
    pub excerpt: String,
}

/// Finds the sessions whose title, prompts or answers hold `text`, in the order in which they are given. What was left by a
/// rewind is found too. Files that cannot be read hold nothing.
pub fn search(sessions: &[SessionSummary], text: &str) -> Vec<Found> {
    let Some(needle) = Needle::new(text) else { return Vec::new() };
    let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let cores = thread::available_parallelism().map_or(1, usize::from).min(8);
    thread::scope(|scope| {
        for _ in 0..cores.min(sessions.len()) {
            scope.spawn(|| {
                while let Some((place, session)) = {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    sessions.get(place).map(|session| (place, session))
                } {
                    if let Some(excerpt) = needle.find_in(session) {
                        let found = &mut *found.lock().unwrap_or_else(PoisonError::into_inner);
                        found.push(Found { session: place, excerpt });
                    }
                }
            });
        }
    });
    let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    found.sort_unstable_by_key(|found| found.session);
    found
}

struct Needle {
    text: Regex,
    /// As the text stands in a line, where some characters are escaped.
    raw: bytes::Regex,
}

impl Needle {
    fn new(text: &str) -> Option<Self> {
        let escaped = serde_json::to_string(text).ok()?;
        let raw = regex::escape(escaped.get(1..escaped.len() - 1)?);
        Some(Needle {
            text: RegexBuilder::new(&regex::escape(text)).case_insensitive(true).build().ok()?,
            raw: bytes::RegexBuilder::new(&raw).case_insensitive(true).build().ok()?,
        })
    }

    fn find_in(&self, session: &SessionSummary) -> Option<String> {
        let segments = reading::segments(&session.dir).ok()?;
        let in_log =
            segments.iter().rev().find_map(|segment| self.last_in(&segment_path(&session.dir, *segment)));
        in_log.or_else(|| self.text.find(&session.title).map(|found| around(&session.title, found.range())))
    }

    /// The words around the last place in a segment.
    fn last_in(&self, path: &Path) -> Option<String> {
        let mut last = None;
        let read = reading::for_each_line(path, |line| {
            if self.raw.is_match(line)
                && let Some(excerpt) = self.said(line)
            {
                last = Some(excerpt);
            }
        });
        read.ok().and(last)
    }

    /// The words around it in what the user or the model said on this line.
    fn said(&self, line: &[u8]) -> Option<String> {
        let entry = line::decode(line).ok().filter(|entry| entry.lane == Lane::Main)?;
        let in_text = |text: &str| self.text.find(text).map(|found| around(text, found.range()));
        match &entry.body {
            Body::UserPrompt(prompt) => in_text(&prompt.text),
            Body::Answer(answer) => {
                answer.content.iter().filter_map(|block| block.as_text()).find_map(in_text)
            }
            _ => None,
        }
    }
}

fn around(text: &str, found: std::ops::Range<usize>) -> String {
    let before: Vec<char> = text[..found.start].chars().rev().take(AROUND + 1).collect();
    let behind: Vec<char> = text[found.end..].chars().take(AROUND + 1).collect();
    let cut = |part: &[char]| if part.len() > AROUND { "…" } else { "" };
    let (start, end) = (cut(&before), cut(&behind));
    let before: String = before.iter().take(AROUND).rev().collect();
    let behind: String = behind.iter().take(AROUND).collect();
    let words = format!("{before}{}{behind}", &text[found]);
    format!("{start}{}{end}", words.split_whitespace().collect::<Vec<_>>().join(" "))
}
