//! What the session says, on its way to the scrollback.

use std::time::Duration;

use mainstay_agent::session::entry::{Answer, Job, StopReason};
use mainstay_agent::session::message::{Ended, Image, Outcome, ToolCall, ToolResult};
use mainstay_agent::session::plan::PlanItemStatus;
use mainstay_agent::{Event, TurnReport};
use ratatui::text::Span;

use super::{
    App, Approving, Commit, DETAILS, Effect, LONG_TURN, Opened, Overlay, Phase, Picker, Running, Told, Work,
};
use crate::highlight::{Code, is_worth_it, plain_code};
use crate::markdown::{Piece, Settled, end_of, finished, last_block, render, settled, uncoloured};
use crate::text::{Row, plain, plain_line};
use crate::transcript::{self, Part};

/// The last block of an answer that is still coming, whose beginning is no part of what is held any more.
#[derive(Clone, Debug)]
pub(super) enum OpenBlock {
    /// A paragraph.
    Paragraph {
        /// The row that what is still coming goes on with.
        row: Vec<Span<'static>>,
        /// Whether rows before it are printed.
        is_begun: bool,
    },
    /// Code.
    Code,
}

/// The rows of what is behind the beginning of a block, with the row that it began, and whether rows before are printed.
fn joined(open: Option<OpenBlock>, rest: Vec<Piece>) -> (Vec<Row>, bool) {
    let mut rows: Vec<Row> = rest.iter().flat_map(uncoloured).collect();
    match open {
        Some(OpenBlock::Paragraph { row, is_begun }) => {
            match rows.first_mut() {
                Some(first) => drop(first.line.spans.splice(0..0, row)),
                None => rows.push(Row::of(row)),
            }
            (rows, is_begun)
        }
        Some(OpenBlock::Code) => (rows, true),
        None => (rows, false),
    }
}

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
        self.files_are_old = true;
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
        let here = &self.session.workspace;
        if !here.as_os_str().is_empty() && *here != opened.workspace {
            let place = plain_line(&opened.workspace.display().to_string());
            self.note(transcript::note(&format!("this session works in {place}")));
            // Another workspace may have others.
            (self.models, self.files) = (None, None);
        }
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
                self.answer_with(done, effects);
            }
        }
        self.settle(effects);
    }

    /// Prints so many bytes of what is coming: whole blocks.
    fn answer_with(&mut self, bytes: usize, effects: &mut Vec<Effect>) {
        let text: String = self.stream.drain(..bytes).collect();
        self.has_partial = true;
        self.answer(&text, effects);
    }

    /// Prints what is as it shall be of a long block that is still coming, so that neither its cost nor the room it takes
    /// grows with it.
    fn settle(&mut self, effects: &mut Vec<Effect>) {
        let columns = usize::from(self.size.0.max(20));
        if self.stream.len() < self.settles_at.max(4 * columns) {
            return;
        }
        let before = last_block(&self.stream);
        if before > 0 && self.stream.len() - before > 2 * columns {
            self.answer_with(before, effects);
        }
        match settled(&self.stream, columns) {
            Some(Settled::Paragraph(cut)) => {
                let text: String = self.stream.drain(..cut).collect();
                self.settle_paragraph(&text, columns);
            }
            Some(Settled::Code { language, code, rest }) => {
                self.stream = rest;
                let continues = self.open_block.replace(OpenBlock::Code).is_some();
                self.code(Part::Answer, language, code, continues, effects);
                self.has_partial = true;
            }
            None => {}
        }
        // The longer it is, the longer it takes to read.
        self.settles_at = self.stream.len() + columns.max(self.stream.len() / 8);
    }

    /// Prints the rows that a part of a paragraph fills, and keeps the one that it begins.
    fn settle_paragraph(&mut self, text: &str, columns: usize) {
        let (mut rows, was_begun) = joined(self.open_block.take(), render(text));
        let Some(mut last) = rows.pop() else { return };
        if text.ends_with(' ') {
            last.line.spans.push(Span::raw(" "));
        }
        let mut lines = last.wrapped(columns);
        let row = lines.pop().unwrap_or_default().spans;
        rows.extend(lines.into_iter().map(|line| Row::of(line.spans)));
        let is_begun = was_begun || !rows.is_empty();
        self.open_block = Some(OpenBlock::Paragraph { row, is_begun });
        self.has_partial |= is_begun;
        self.go_on(Part::Answer, rows, was_begun);
    }

    /// The rows of what is still coming.
    pub(crate) fn coming(&self) -> Vec<Row> {
        joined(self.open_block.clone(), render(&end_of(&self.stream))).0
    }

    /// Whether the beginning of what is still coming is printed.
    pub(crate) fn is_begun(&self) -> bool {
        matches!(self.open_block, Some(OpenBlock::Code | OpenBlock::Paragraph { is_begun: true, .. }))
    }

    fn answered(&mut self, answer: &Answer, effects: &mut Vec<Effect>) {
        let rest = std::mem::take(&mut self.stream);
        let was_partial = std::mem::take(&mut self.has_partial);
        self.work().reasoning.clear();
        match &answer.ended {
            Ended::Failed { .. } => {
                (self.open_block, self.settles_at) = (None, 0);
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

    /// Prints text of the model: the rest of the block whose beginning is printed, and what comes behind it.
    fn answer(&mut self, text: &str, effects: &mut Vec<Effect>) {
        self.settles_at = 0;
        let mut pieces = render(text).into_iter();
        match self.open_block.take() {
            Some(OpenBlock::Code) => {
                if let Some(Piece::Code { language, code }) = pieces.next() {
                    self.code(Part::Answer, language, code, true, effects);
                }
            }
            open @ Some(OpenBlock::Paragraph { .. }) => {
                let (rows, is_begun) = joined(open, pieces.next().into_iter().collect());
                self.go_on(Part::Answer, rows, is_begun);
            }
            None => {}
        }
        pieces.for_each(|piece| self.piece(Part::Answer, piece, effects));
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
    pub(super) fn show(&mut self, part: Part, rows: Vec<Row>) {
        self.go_on(part, rows, false);
    }

    /// The same for rows that may go on with what was shown last.
    fn go_on(&mut self, part: Part, mut rows: Vec<Row>, continues: bool) {
        if rows.is_empty() {
            return;
        }
        if self.stands_apart(part, continues) {
            rows.insert(0, Row::default());
        }
        self.commits.push_back(Commit::Rows(rows));
    }

    /// Whether an empty row comes before a part of this kind.
    fn stands_apart(&mut self, part: Part, continues: bool) -> bool {
        match (self.last_part.replace(part), part) {
            (Some(last), part) if continues && last == part => false,
            (None, _) | (Some(Part::Call | Part::Note), Part::Call | Part::Note) => false,
            (Some(_), _) => true,
        }
    }

    fn piece(&mut self, part: Part, piece: Piece, effects: &mut Vec<Effect>) {
        match piece {
            Piece::Rows(rows) => self.show(part, rows),
            Piece::Code { language, code } => self.code(part, language, code, false, effects),
        }
    }

    fn code(
        &mut self,
        part: Part,
        language: String,
        text: String,
        continues: bool,
        effects: &mut Vec<Effect>,
    ) {
        if text.is_empty() {
            return;
        }
        if !is_worth_it(&language, &text) {
            return self.go_on(part, plain_code(&text), continues);
        }
        if self.stands_apart(part, continues) {
            self.commits.push_back(Commit::Rows(vec![Row::default()]));
        }
        let id = self.next_code;
        self.next_code += 1;
        self.commits.push_back(Commit::Code { id, code: text.clone(), rows: None });
        effects.push(Effect::Colour(Code { id, language, text, continues }));
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
