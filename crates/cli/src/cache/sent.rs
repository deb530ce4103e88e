//! What the log says of each request: how it was made up, and what happened since the one before.

use mainstay_agent::session::entry::{Answer, Body, Entry, Lane, ModelChoice};
use mainstay_agent::session::ids::Seq;
use mainstay_agent::session::message::{RequestMark, Usage};
use serde::Serialize;

/// A request that was sent.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    /// The entry of its answer.
    pub(super) seq: Seq,
    /// Whose conversation it belongs to, where that is not the session's own.
    pub(super) lane: Option<String>,
    /// Whom it was sent to.
    pub(super) model: String,
    /// What it consisted of.
    pub(super) mark: RequestMark,
    /// What the provider counted.
    pub(super) usage: Option<Usage>,
    /// How the attempt ended: `complete`, `cancelled`, or the class of its failure.
    pub(super) ended: &'static str,
    /// What happened since the request before that may change how a request begins.
    pub(super) since: Vec<Event>,
    /// The request before of the session's own lane, by its place among all.
    pub(super) before: Option<usize>,
}

/// What may change how a request begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum Event {
    /// A segment began from a checkpoint: the conversation was compacted.
    Compaction,
    /// The session went back.
    Rewind,
    /// The provider refused reasoning that it had signed, and it was left out.
    ReasoningRefused,
    /// Another model, or the same one with other settings.
    Model {
        /// What it was.
        from: String,
        /// What it is.
        to: String,
    },
    /// The log had lost what the model is told of the world, and it was told anew.
    World,
    /// Lines of the log are damaged or missing.
    Damage,
}

impl Event {
    fn words(&self) -> String {
        match self {
            Event::Compaction => "compaction".to_owned(),
            Event::Rewind => "rewind".to_owned(),
            Event::ReasoningRefused => "signed reasoning was refused and left out".to_owned(),
            Event::Model { from, to } => format!("model changed: {from} → {to}"),
            Event::World => "the world was told anew".to_owned(),
            Event::Damage => "the log is damaged".to_owned(),
        }
    }
}

/// All of them in one line.
pub(super) fn in_words(events: &[Event]) -> String {
    events.iter().map(Event::words).collect::<Vec<_>>().join("; ")
}

/// Collects requests from the lines of a log.
#[derive(Default)]
pub(super) struct Collector {
    sent: Vec<Sent>,
    since: Vec<Event>,
    last_seq: Seq,
    last_main: Option<usize>,
    model: Option<ModelChoice>,
    has_world: bool,
}

impl Collector {
    /// Takes in a line that cannot be read.
    pub(super) fn bad_line(&mut self) {
        self.happened(Event::Damage);
    }

    /// Takes in an entry.
    pub(super) fn take(&mut self, entry: &Entry) {
        if self.last_seq > 0 && entry.seq > self.last_seq.saturating_add(1) {
            self.happened(Event::Damage);
        }
        self.last_seq = self.last_seq.max(entry.seq);
        match (&entry.lane, &entry.body) {
            (lane, Body::Answer(answer)) => self.answer(entry.seq, lane, answer),
            (Lane::Worker(_), _) => {}
            (Lane::Main, Body::Session(_)) => self.has_world = false,
            (Lane::Main, Body::World(_)) if std::mem::replace(&mut self.has_world, true) => {
                self.happened(Event::World);
            }
            (Lane::Main, Body::Checkpoint(_)) => self.happened(Event::Compaction),
            (Lane::Main, Body::Model(choice)) => self.model(choice),
            (Lane::Main, Body::ReasoningRefused(_)) => self.happened(Event::ReasoningRefused),
            (Lane::Main, Body::Rewind(_)) => {
                // Across a segment's border the checkpoint is how it goes back.
                self.since.retain(|event| *event != Event::Compaction);
                self.happened(Event::Rewind);
            }
            (
                Lane::Main,
                Body::World(_)
                | Body::UserPrompt(_)
                | Body::ToolIntent(_)
                | Body::ToolResult(_)
                | Body::Notice(_)
                | Body::Inbox(_)
                | Body::Grant(_)
                | Body::Compaction(_)
                | Body::TurnEnd(_)
                | Body::Lost(_)
                | Body::Unknown(_),
            ) => {}
        }
    }

    /// All requests in the order in which they were sent.
    pub(super) fn finish(self) -> Vec<Sent> {
        self.sent
    }

    fn happened(&mut self, event: Event) {
        if !self.since.contains(&event) {
            self.since.push(event);
        }
    }

    fn model(&mut self, choice: &ModelChoice) {
        if let Some(before) = self.model.replace(choice.clone()).filter(|before| before != choice) {
            self.happened(Event::Model { from: spelled(&before), to: spelled(choice) });
        }
    }

    fn answer(&mut self, seq: Seq, lane: &Lane, answer: &Answer) {
        let Some(mark) = answer.request.clone() else { return };
        let (lane, since, before) = match lane {
            Lane::Main => (None, std::mem::take(&mut self.since), self.last_main.replace(self.sent.len())),
            Lane::Worker(name) => (Some(name.clone()), Vec::new(), self.last_main),
        };
        self.sent.push(Sent {
            seq,
            lane,
            model: answer.made_by(self.model.as_ref()).to_owned(),
            mark,
            usage: answer.usage,
            ended: super::ended(&answer.ended),
            since,
            before,
        });
    }
}

/// A model with what else shapes its requests.
fn spelled(choice: &ModelChoice) -> String {
    match &choice.effort {
        Some(effort) => format!("{} (effort {effort})", choice.model),
        None => choice.model.clone(),
    }
}
