//! What the session says, on its way to the scrollback.

use std::time::Duration;

use mainstay_agent::session::entry::{Answer, Job, StopReason};
use mainstay_agent::session::message::{Ended, Image, Outcome, ToolCall, ToolResult};
use mainstay_agent::session::plan::PlanItemStatus;
use mainstay_agent::{Event, TurnReport};

use super::{
    App, Approving, Commit, DETAILS, Effect, LONG_TURN, Opened, Overlay, Phase, Picker, Running, Told, Work,
};
use crate::highlight::{Code, is_worth_it};
use crate::markdown::{Piece, finished, render, uncoloured};
use crate::text::{Row, plain};
use crate::transcript::{self, Part};

impl App {
    pub(super) fn told(&mut self, told: Told, effects: &mut Vec<Effect>) {
        match told {
            Told::Event(event) => self.event(event, effects),
            Told::Opened(opened) => self.opened(*opened),
            Told::Ask(number, request) => {
                let approving = Approving::new(number, request, self.now, !self.editor.is_blank());
                self.overlay = Some(Overlay::Approval(Box::new(approving)));
                self.completion = None;
                effects.push(Effect::Bell);
            }
            Told::Withdrawn(number) => self.withdrawn(number),
            Told::Idle { jobs, done } => self.idle(jobs, done, effects),
            Told::Say(part, pieces) => pieces.into_iter().for_each(|piece| self.piece(part, piece, effects)),
            Told::Sessions(sessions) => {
                self.work = None;
                self.offer(
                    Picker::of_sessions(
                        &sessions,
                        &self.session.workspace,
                        self.session.id.as_deref(),
                        self.today,
                    ),
                    "there is no session yet",
                );
            }
            Told::Turns(turns) => {
                self.work = None;
                self.offer(Picker::of_turns(turns), "there is nothing to go back to");
            }
            Told::Returned(texts) => {
                for text in &texts {
                    if let Some(at) = self.queue.iter().position(|queued| queued == text) {
                        self.queue.remove(at);
                    }
                }
                self.give_back(&texts);
            }
            Told::Held(hold) => self.session.hold = Some(hold),
        }
    }

    /// Closes a question that nobody waits for. What was being written to the model about it goes on as a draft.
    fn withdrawn(&mut self, number: u64) {
        match self.overlay.take() {
            Some(Overlay::Approval(approving)) if approving.number == number => {
                if let Some(mut word) = approving.word {
                    self.editor.paste(&word.take());
                }
            }
            other => self.overlay = other,
        }
    }

    fn idle(&mut self, jobs: Vec<Job>, done: u64, effects: &mut Vec<Effect>) {
        self.jobs = jobs;
        // The next completion looks at what there is now.
        self.files = None;
        effects.push(Effect::LookAtBranch);
        if done < self.ordered {
            return;
        }
        self.work = None;
        if let Some(text) = self.unlogged.take() {
            self.give_back(&[text]);
        }
    }

    pub(super) fn offer(&mut self, picker: Picker, none: &str) {
        if picker.is_empty() {
            self.note(transcript::note(none));
        } else {
            self.overlay = Some(Overlay::Picker(picker));
        }
    }

    fn opened(&mut self, opened: Opened) {
        self.is_interrupted = opened.was_interrupted && opened.plan.plan.has_unfinished();
        self.session = opened;
    }

    fn work(&mut self) -> &mut Work {
        let since = self.now;
        self.work.get_or_insert_with(|| Work { since, ..Work::default() })
    }

    fn event(&mut self, event: Event, effects: &mut Vec<Effect>) {
        match event {
            Event::TurnStarted => {
                self.hint = None;
                self.is_interrupted = false;
                self.work().phase = Phase::Working;
            }
            Event::Prompt { text, images, steering } => self.prompted(&text, &images, steering),
            Event::TextDelta(text) => self.streamed(&text, effects),
            Event::ReasoningDelta(text) => {
                let work = self.work();
                work.phase = Phase::Working;
                work.reasoning.push_str(&text);
            }
            Event::Answer { answer, .. } => self.answered(&answer, effects),
            Event::Retry { retry, of, class, message, delay } => {
                let at = self.now + delay;
                let words = format!("retry {retry} of {of} ({}): {message}", class.as_str());
                self.work().phase = Phase::Retry { at, words };
            }
            Event::ToolStarted { call, .. } => {
                let since = self.now;
                self.work().calls.push(Running { call, since, output: Vec::new() });
            }
            Event::ToolOutput { call, lines, .. } => {
                if let Some(running) = self.work().calls.iter_mut().find(|running| running.call == call) {
                    running.output = plain(&lines).collect();
                }
            }
            Event::ToolCompleted { call, result, .. } => self.completed(&call, &result),
            Event::Plan { view, changes } => {
                self.session.plan = view;
                let rows = transcript::plan_change(&self.session.plan.plan, &changes);
                self.show(Part::Call, rows);
            }
            Event::CompactionStarted { before, .. } => self.work().phase = Phase::Compacting { before },
            Event::Compacted(done) => {
                self.work().phase = Phase::Working;
                if let Some(after) = done.after {
                    self.session.used = after;
                }
                // What the user asked for and did not get is said by who carried it out.
                if done.after.is_some() || done.reason != "asked" {
                    self.note(transcript::compacted(&done));
                }
            }
            Event::Notice(notice) => {
                self.note(transcript::notice(&notice));
                self.keep_detail(transcript::notice_detail(&notice.text));
            }
            Event::Warning(words) => self.note(transcript::warning(&words)),
            Event::TurnCompleted(report) => self.ended(&report, effects),
            // The result of a denied call says why.
            Event::Denied(_) => {}
            _ => {}
        }
    }

    fn prompted(&mut self, text: &str, images: &[Image], steering: bool) {
        if steering {
            // One that is too long for the model was shortened; it is the oldest then.
            let at =
                self.queue.iter().position(|queued| queued == text).or((!self.queue.is_empty()).then_some(0));
            at.map(|at| self.queue.remove(at));
        } else {
            self.unlogged = None;
        }
        self.show(Part::Prompt, transcript::prompt(text, images));
    }

    fn streamed(&mut self, text: &str, effects: &mut Vec<Effect>) {
        let work = self.work();
        work.phase = Phase::Working;
        work.reasoning.clear();
        self.stream.push_str(text);
        if text.contains('\n') {
            let done = finished(&self.stream);
            if done > 0 {
                let text: String = self.stream.drain(..done).collect();
                self.has_partial = true;
                self.answer(&text, effects);
            }
        }
    }

    fn answered(&mut self, answer: &Answer, effects: &mut Vec<Effect>) {
        let rest = std::mem::take(&mut self.stream);
        let was_partial = std::mem::take(&mut self.has_partial);
        self.work().reasoning.clear();
        match &answer.ended {
            Ended::Failed { .. } => {
                if was_partial || !rest.trim().is_empty() {
                    self.note(transcript::note("… the answer was cut; what came of it does not count"));
                }
            }
            Ended::Complete | Ended::Cancelled => self.answer(&rest, effects),
        }
        if let (Ended::Complete, Some(usage)) = (&answer.ended, answer.usage) {
            self.session.used = usage.input_tokens + usage.output_tokens;
        }
    }

    fn answer(&mut self, text: &str, effects: &mut Vec<Effect>) {
        for piece in render(text) {
            self.piece(Part::Answer, piece, effects);
        }
    }

    fn completed(&mut self, call: &ToolCall, result: &ToolResult) {
        let running = &mut self.work().calls;
        if let Some(at) = running.iter().position(|running| running.call == *call) {
            running.remove(at);
        }
        if result.outcome != Outcome::Ok || call.name != "todo_write" {
            self.keep_detail(transcript::call_detail(call, result));
        }
        let rows = transcript::call(call, result, usize::from(self.size.0));
        self.show(Part::Call, rows);
    }

    fn ended(&mut self, report: &TurnReport, effects: &mut Vec<Effect>) {
        self.hint = None;
        let took = self.work.as_ref().map_or(Duration::ZERO, |work| self.now.saturating_sub(work.since));
        let rest = std::mem::take(&mut self.stream);
        self.has_partial = false;
        self.answer(&rest, effects);
        self.session.plan = report.plan.clone();
        self.session.totals = report.totals;
        let in_progress = report.plan.plan.items.iter().any(|item| item.status == PlanItemStatus::InProgress);
        self.is_interrupted = report.stop_reason != StopReason::EndTurn && in_progress;
        let rows = transcript::turn_end(report, took);
        self.show(Part::Note, rows);
        if took >= LONG_TURN {
            effects.push(Effect::Bell);
        }
    }

    fn keep_detail(&mut self, rows: Vec<Row>) {
        self.details.push(rows);
        if self.details.len() > DETAILS {
            self.details.remove(0);
        }
        self.opened_details = 0;
    }

    /// Shows the last call that was not opened yet in full.
    pub(super) fn open_detail(&mut self) {
        let Some(at) = self.details.len().checked_sub(self.opened_details + 1) else {
            return self.say_hint("there is nothing more to open");
        };
        self.opened_details += 1;
        let rows = self.details[at].clone();
        self.show(Part::Note, rows);
    }

    pub(super) fn note(&mut self, row: Row) {
        self.show(Part::Note, vec![row]);
    }

    /// Puts rows behind what is on its way to the scrollback, apart from what is of another kind.
    pub(super) fn show(&mut self, part: Part, mut rows: Vec<Row>) {
        if rows.is_empty() {
            return;
        }
        if self.stands_apart(part) {
            rows.insert(0, Row::default());
        }
        self.commits.push_back(Commit::Rows(rows));
    }

    /// Whether an empty row comes before a part of this kind.
    fn stands_apart(&mut self, part: Part) -> bool {
        match (self.last_part.replace(part), part) {
            (None, _) | (Some(Part::Call | Part::Note), Part::Call | Part::Note) => false,
            (Some(_), _) => true,
        }
    }

    fn piece(&mut self, part: Part, piece: Piece, effects: &mut Vec<Effect>) {
        match piece {
            Piece::Rows(rows) => self.show(part, rows),
            Piece::Code { language, code } if is_worth_it(&language, &code) => {
                if self.stands_apart(part) {
                    self.commits.push_back(Commit::Rows(vec![Row::default()]));
                }
                let id = self.next_code;
                self.next_code += 1;
                self.commits.push_back(Commit::Code { id, code: code.clone(), rows: None });
                effects.push(Effect::Colour(Code { id, language, text: code }));
            }
            code @ Piece::Code { .. } => self.show(part, uncoloured(&code)),
        }
    }

    pub(super) fn coloured(&mut self, id: u64, coloured: Vec<Row>) {
        for commit in &mut self.commits {
            if let Commit::Code { id: waiting, rows, .. } = commit
                && *waiting == id
            {
                *rows = Some(coloured);
                return;
            }
        }
    }

    /// Prints what waits for nothing.
    pub(super) fn print_ready(&mut self, effects: &mut Vec<Effect>) {
        let mut ready = Vec::new();
        while let Some(commit) = self.commits.pop_front() {
            match commit {
                Commit::Rows(rows) | Commit::Code { rows: Some(rows), .. } => ready.extend(rows),
                code @ Commit::Code { rows: None, .. } => {
                    self.commits.push_front(code);
                    break;
                }
            }
        }
        if !ready.is_empty() {
            effects.push(Effect::Print(ready));
        }
    }
}
