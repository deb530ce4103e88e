//! What the next segment begins with, and how large the request is that follows from it.

use std::collections::BTreeSet;
use std::path::PathBuf;

use mainstay_session::attention::carried_text;
use mainstay_session::compaction::{
    CarriedFile, DEFAULT_REFERENCES, FileRange, Summary, carried_files_text, jobs_text, keep, shorten_step,
};
use mainstay_session::conversation::Item;
use mainstay_session::entry::{Body, Entry, Lane, World};
use mainstay_session::ids::{CallRef, SessionId};
use mainstay_session::log::NextSegment;
use mainstay_session::message::{FilePath, ReferencedFile, ToolCall};
use mainstay_session::state::SessionState;
use mainstay_tools::look::{Stamp, read_regular};
use mainstay_tools::{Tool, ToolKind, ToolOutput};
use serde_json::json;

use super::{Compactor, summary_item};
use crate::consent::refused_unasked;
use crate::dispatch::call_context;
use crate::occupancy::estimate;

/// The most tokens of a summary, and of the files that are shown with it.
const SUMMARY_TOKENS: u64 = 8_000;
const FILE_TOKENS: u64 = 10_000;

/// The most files that are shown.
const SHOWN_FILES: usize = 5;

/// The most files that are named.
const NAMED_FILES: usize = 20;

/// Bytes per token, when room is divided.
const BYTES_PER_TOKEN: u64 = 3;

/// How the room for a conversation is divided, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shares {
    summary: usize,
    prompts: usize,
    files: usize,
    tail: usize,
}

impl Shares {
    /// The ways to divide `available` tokens after a conversation of `live` tokens, the most generous first. The tail is at
    /// most a quarter of the conversation: in a window with room all of it would fit, and nothing would be gained.
    pub(super) fn of(available: u64, live: u64) -> [Shares; 3] {
        let bytes = |tokens: u64| usize::try_from(tokens * BYTES_PER_TOKEN).unwrap_or(usize::MAX);
        let summary = bytes((available / 3).min(SUMMARY_TOKENS));
        let full = Shares {
            summary,
            prompts: bytes(available / 5),
            files: bytes((available / 5).min(FILE_TOKENS)),
            tail: bytes((available / 5).min(live / 4)),
        };
        let lean = Shares { files: 0, tail: full.tail / 2, prompts: full.prompts / 2, ..full };
        [full, lean, Shares { tail: 0, prompts: 0, summary: summary / 2, ..lean }]
    }
}

/// A segment that could be begun.
pub(super) struct Candidate {
    pub(super) opening: NextSegment,
    /// How many tokens the request has that follows from it.
    pub(super) tokens: u64,
}

/// The segment that goes on from a summary.
pub(super) async fn from_summary(
    compactor: &Compactor<'_>,
    state: &SessionState,
    summary: &Summary,
    shares: &Shares,
) -> Candidate {
    let mut history = state.history.clone();
    if let Some(last) = history.iter_mut().rev().find(|item| item.as_step().is_some()) {
        let calls = last.as_step().map_or(1, |step| step.results.len()).max(1);
        shorten_step(last, shares.tail / (2 * calls));
    }
    let kept = keep(&history, shares.tail, shares.prompts, compactor.binds_thinking());
    let files = carried_files(compactor, state, summary, shares.files).await;
    let mut items = vec![summary_item(short(&summary.text, shares.summary))];
    items.extend(carried_files_text(&files.told).map(|text| Item::Notice { text }));
    items.extend(kept.prompts);
    items.extend(kept.tail);
    candidate(compactor, state, items, &files.seen)
}

/// A segment that begins with these items, and with what runs in the background. `seen` are the files that they show as they are now.
pub(super) fn candidate(
    compactor: &Compactor<'_>,
    state: &SessionState,
    mut items: Vec<Item>,
    seen: &[ReferencedFile],
) -> Candidate {
    let setup = compactor.setup;
    items.extend(jobs_text(state).map(|text| Item::Notice { text }));
    let now = (setup.surroundings)();
    let mut checkpoint = state.checkpoint(items);
    for file in seen {
        let Some(hash) = &file.hash else { continue };
        checkpoint.seen.retain(|(path, _)| *path != file.path);
        checkpoint.seen.push((file.path.clone(), hash.clone()));
        checkpoint.told_files.retain(|mark| mark.path != file.path);
    }
    let world = state.world.clone().unwrap_or_default();
    let opening = NextSegment {
        header: state.header.clone().unwrap_or_else(|| {
            // A log without a header does not open, so this is for completeness alone.
            setup.header(SessionId::new((setup.clock)(), [0; 10]))
        }),
        // The tools and the system text are those that the segment before began with, byte for byte.
        world: World {
            cwd: setup.workspace.display().to_string(),
            date: now.date,
            instructions: now.instructions,
            ..world
        },
        model: setup.choice(),
        checkpoint,
    };
    let tokens = tokens(compactor, &opening);
    Candidate { opening, tokens }
}

/// How many tokens the request has that follows from an opening.
fn tokens(compactor: &Compactor<'_>, opening: &NextSegment) -> u64 {
    let mut next = SessionState::default();
    let bodies = [
        Body::World(opening.world.clone()),
        Body::Model(opening.model.clone()),
        Body::Checkpoint(Box::new(opening.checkpoint.clone())),
    ];
    for (seq, body) in (1..).zip(bodies) {
        next.apply(&Entry { seq, ts: jiff::Timestamp::UNIX_EPOCH.into(), lane: Lane::Main, body });
    }
    next.history.extend(carried_text(&opening.checkpoint.plan).map(|text| Item::Notice { text }));
    compactor.log.measured_of(&next, compactor.setup.model.as_ref()).1
}

/// The files that are handed on, and what the model sees of them.
struct Files {
    told: Vec<CarriedFile>,
    seen: Vec<ReferencedFile>,
}

async fn carried_files(
    compactor: &Compactor<'_>,
    state: &SessionState,
    summary: &Summary,
    mut left: usize,
) -> Files {
    let mut files = Files { told: Vec::new(), seen: Vec::new() };
    let mut known = BTreeSet::new();
    for wanted in summary.read_first.iter().take(SHOWN_FILES) {
        let path = resolved(compactor, &wanted.path);
        if Stamp::of(&path).is_none() || known.contains(&path) {
            continue;
        }
        let Some(output) = read(compactor, wanted, left).await else { continue };
        let text = output.content.clone().unwrap_or_default();
        if text.len() > left {
            continue;
        }
        left -= text.len();
        known.insert(path);
        files.told.push(CarriedFile { path: range_shown(wanted), remark: None, text: Some(text) });
        files.seen.extend(output.referenced_files);
    }
    let asked = summary.read_first.iter().map(|file| &file.path).chain(&summary.references);
    let recent = state.recent_files.iter().take(DEFAULT_REFERENCES).map(|file| file.path.to_string());
    for name in asked.cloned().chain(recent) {
        let path = resolved(compactor, &name);
        if files.told.len() < NAMED_FILES && known.insert(path.clone()) {
            let remark = remark(state, &FilePath(path));
            files.told.push(CarriedFile { path: name, remark, text: None });
        }
    }
    files
}

fn resolved(compactor: &Compactor<'_>, path: &str) -> PathBuf {
    let path = compactor.setup.workspace.join(path);
    path.canonicalize().unwrap_or(path)
}

fn range_shown(file: &FileRange) -> String {
    match file.lines {
        Some((first, last)) => format!("{}, lines {first} to {last}", file.path),
        None => file.path.clone(),
    }
}

/// What is to be known of a file that is only named.
fn remark(state: &SessionState, path: &FilePath) -> Option<&'static str> {
    const LOOKED_AT: u64 = 4 << 20;
    let Some(stamp) = Stamp::of(path.as_path()) else { return Some("it is gone") };
    let seen = state.seen.get(path)?;
    let bytes = (stamp.size() <= LOOKED_AT).then(|| read_regular(path.as_path(), LOOKED_AT).ok())??.1;
    (mainstay_session::message::ContentHash::of(&bytes) != *seen)
        .then_some("it has changed since it was last read")
}

/// Reads a file as the session's own tool does, in the same scope. None if it refuses.
async fn read(compactor: &Compactor<'_>, wanted: &FileRange, max: usize) -> Option<ToolOutput> {
    let tool = reader(compactor)?;
    let mut arguments = json!({"path": wanted.path});
    if let Some((first, last)) = wanted.lines {
        arguments["offset"] = json!(first);
        arguments["limit"] = json!(last - first + 1);
    }
    let Compactor { setup, log, jobs, cancel } = compactor;
    let nobodys = CallRef { answer: 0, call: 0 };
    let mut context = call_context(setup, log, jobs, cancel, nobodys, max);
    context.takes_images = false;
    // What sees calls sees this one as well, though no model made it.
    let call = ToolCall {
        id: String::new(),
        name: tool.spec().name,
        arguments: arguments.to_string(),
        opaque: None,
    };
    if refused_unasked(setup, log, tool, &call, &call.arguments, &context).is_some() {
        return None;
    }
    tool.run(&call.arguments, &context).await.ok()
}

/// The tool that reads files.
pub(super) fn reader<'a>(compactor: &Compactor<'a>) -> Option<&'a dyn Tool> {
    let tools = compactor.setup.tools.iter();
    tools.map(AsRef::as_ref).find(|tool| tool.kind() == ToolKind::Read && tool.spec().name == "read")
}

/// At most `max` bytes of a summary.
fn short(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

/// About how many tokens a text has.
pub(super) fn text_tokens(text: &str) -> u64 {
    estimate(text.as_bytes())
}
