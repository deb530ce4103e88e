//! Sessions of any size, written as the agent writes them: entry by entry, and segment by segment.

use std::path::Path;

use mainstay_session::entry::{Answer, Body, ModelChoice, SessionHeader, StopReason, UserPrompt, World};
use mainstay_session::ids::{CallRef, Seq, SessionId};
use mainstay_session::log::{Durability, Log, NextSegment};
use mainstay_session::message::{
    Content, ContentHash, Ended, FilePath, Finish, Outcome, ReferencedFile, RequestMark, ToolCall,
    ToolResult, ToolSpec, Usage,
};

/// When the first of them was created.
pub fn beginning() -> jiff::Timestamp {
    jiff::Timestamp::from_second(1_796_000_000).unwrap()
}

/// A session that is being made.
pub struct Made {
    pub log: Log,
    cwd: FilePath,
    now: jiff::Timestamp,
    round: u64,
}

impl Made {
    /// A new session of a workspace.
    pub fn new(home: &Path, cwd: &Path, number: u32) -> Self {
        let now = beginning() + jiff::SignedDuration::from_secs(i64::from(number) * 60);
        let mut random = [0; 10];
        random[..4].copy_from_slice(&number.to_be_bytes());
        let header = SessionHeader {
            format: mainstay_session::entry::FORMAT,
            projection: mainstay_session::entry::PROJECTION,
            session: SessionId::new(now, random),
            segment: 1,
            cwd: FilePath(cwd.to_owned()),
            parent: None,
            child: false,
            program: String::new(),
        };
        let first = vec![Body::World(world(cwd)), Body::Model(model())];
        let log = Log::create(home, header, first, Durability::Relaxed, now).unwrap();
        Made { log, cwd: FilePath(cwd.to_owned()), now, round: 0 }
    }

    /// Writes an entry, a tenth of a second after the one before.
    pub fn append(&mut self, body: Body) -> Seq {
        self.now += jiff::SignedDuration::from_millis(100);
        self.log.append(body, self.now).unwrap()
    }

    /// What the user says, which begins a turn.
    pub fn prompt(&mut self, text: &str) {
        self.append(Body::UserPrompt(UserPrompt {
            text: text.to_owned(),
            spill: None,
            images: Vec::new(),
            steering: false,
            inbox: None,
        }));
    }

    /// An answer that reads a file, and what was read: a number of bytes, on lines of forty.
    pub fn round(&mut self, bytes: usize) {
        self.round += 1;
        let file = format!("src/file{}.rs", self.round % 40);
        let call = Content::Call(ToolCall {
            id: format!("call_{}", self.round),
            name: "read".to_owned(),
            arguments: format!("{{\"path\": \"{file}\"}}"),
            opaque: None,
        });
        let said = Content::Text { text: format!("I look at {file}.") };
        let answer = self.append(answer(vec![said, call], Finish::ToolCalls, self.round));
        let line = format!("{:039}\n", self.round);
        let content = line.repeat(bytes / line.len() + 1);
        let path = FilePath(self.cwd.0.join(&file));
        let hash = Some(ContentHash::of(line.as_bytes()));
        let result = ToolResult::new(
            CallRef { answer, call: 0 },
            Outcome::Ok,
            format!("{file}: some lines"),
            Some(content[..bytes].to_owned()),
        );
        self.append(Body::ToolResult(ToolResult {
            referenced_files: vec![ReferencedFile { path, hash }],
            duration_ms: 1,
            ..result
        }));
    }

    /// The end of a turn, behind a last answer.
    pub fn end(&mut self, text: &str) {
        let said = Content::Text { text: text.to_owned() };
        self.append(answer(vec![said], Finish::EndTurn, self.round));
        let end = self.log.state().turn_end(StopReason::EndTurn, None);
        self.append(Body::TurnEnd(end));
    }

    /// Starts the next segment, with the last few pieces of the conversation, as a compaction does.
    pub fn next_segment(&mut self) {
        let state = self.log.state();
        let kept = state.history[state.history.len().saturating_sub(4)..].to_vec();
        let opening = NextSegment {
            header: state.header.clone().unwrap(),
            world: world(&self.cwd.0),
            model: model(),
            checkpoint: state.checkpoint(kept),
        };
        self.log.next_segment(opening, Vec::new(), self.now).unwrap();
    }
}

fn answer(content: Vec<Content>, finish: Finish, round: u64) -> Body {
    let units = u32::try_from(round).unwrap_or(u32::MAX);
    Body::Answer(Answer {
        model: String::new(),
        content,
        finish,
        usage: Some(Usage { input_tokens: 2000 + round, cached_tokens: 2000, output_tokens: 20 }),
        ended: Ended::Complete,
        request: Some(RequestMark {
            units: units.saturating_mul(3),
            hash: "0123456789abcdef".to_owned(),
            shared: units.saturating_mul(3).saturating_sub(3),
            bytes: 8000 + round * 300,
        }),
        duration_ms: 900,
    })
}

fn world(cwd: &Path) -> World {
    World {
        cwd: cwd.display().to_string(),
        date: "2026-11-30".to_owned(),
        instructions: Vec::new(),
        system: "You are an agent.".to_owned(),
        tools: vec![ToolSpec {
            name: "read".to_owned(),
            description: "Reads a file.".to_owned(),
            schema: r#"{"type":"object","properties":{"path":{"type":"string"}}}"#.to_owned(),
        }],
    }
}

fn model() -> ModelChoice {
    ModelChoice {
        model: "local/small".to_owned(),
        api: "openai-chat".to_owned(),
        context_window: 1_000_000,
        effort: None,
    }
}
