//! What keys do.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::{App, Approving, Choosing, Completion, Effect, Order, Overlay, Phase, TWICE, Taken};
use crate::attachments;
use crate::commands::COMMANDS;
use crate::editor::Step;
use crate::files::fitting;

/// How many completions are offered.
const OFFERS: usize = 6;

impl App {
    pub(super) fn key(&mut self, key: KeyEvent, effects: &mut Vec<Effect>) {
        if key.kind == KeyEventKind::Release {
            return;
        }
        self.hint = None;
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        let would_leave = self.work.is_some() && self.overlay.is_none() && self.editor.is_empty();
        match key.code {
            KeyCode::Char('c') if is_control => return self.interrupt(effects),
            KeyCode::Char('d') if is_control && would_leave => return self.interrupt(effects),
            _ => {}
        }
        self.last_interrupt = None;
        if is_control && key.code == KeyCode::Char('l') {
            return effects.push(Effect::Redraw);
        }
        match self.overlay.take() {
            Some(overlay) => self.overlay_key(overlay, key, effects),
            None => {
                if key.code == KeyCode::Esc {
                    return self.escape(effects);
                }
                self.input_key(key, effects);
            }
        }
    }

    /// Ctrl-C: cancels what runs, or clears what is written; the second one leaves.
    fn interrupt(&mut self, effects: &mut Vec<Effect>) {
        if self.last_interrupt.is_some_and(|last| self.now < last + TWICE) {
            return effects.push(Effect::Quit(if self.work.is_some() { 130 } else { 0 }));
        }
        self.last_interrupt = Some(self.now);
        if self.work.is_some() {
            self.cancel(effects);
            self.say_hint("cancelling; Ctrl-C again to leave");
        } else if matches!(self.overlay, Some(Overlay::Picker(_))) {
            self.overlay = None;
            self.say_hint("Ctrl-C again to leave");
        } else if !self.editor.is_empty() {
            let text = self.editor.take();
            self.remember(&text, effects);
            self.completion = None;
            self.say_hint("Up brings it back; Ctrl-C again to leave");
        } else {
            self.say_hint("Ctrl-C again to leave");
        }
    }

    fn escape(&mut self, effects: &mut Vec<Effect>) {
        if self.completion.take().is_some() {
            return;
        }
        if self.work.is_some() {
            self.cancel(effects);
        }
    }

    fn cancel(&mut self, effects: &mut Vec<Effect>) {
        if self.asks() {
            self.overlay = None;
        }
        if let Some(work) = &mut self.work {
            work.is_cancelled = true;
            effects.push(Effect::Cancel);
        }
    }

    fn overlay_key(&mut self, overlay: Overlay, key: KeyEvent, effects: &mut Vec<Effect>) {
        match overlay {
            Overlay::Approval(mut approving) => {
                if key.code == KeyCode::Esc {
                    if approving.word.take().is_some() {
                        self.overlay = Some(Overlay::Approval(approving));
                    } else {
                        self.cancel(effects);
                    }
                    return;
                }
                match approving.key(key, self.now) {
                    Taken::Answer(answer) => {
                        self.was_asked(&approving);
                        return effects.push(Effect::Answer(approving.number, answer));
                    }
                    Taken::Moved => {}
                    Taken::Typing(letter) => self.draft_key(letter, key, effects),
                }
                self.overlay = Some(Overlay::Approval(approving));
            }
            Overlay::Picker(mut picker) => {
                if key.code == KeyCode::Esc {
                    return;
                }
                match picker.key(key) {
                    Some(choosing) => self.chosen(choosing, effects),
                    None => self.overlay = Some(Overlay::Picker(picker)),
                }
            }
        }
    }

    /// The time in which a question was open is the user's, not that of the work.
    fn was_asked(&mut self, approving: &Approving) {
        let asked = self.now.saturating_sub(approving.since);
        if let Some(work) = &mut self.work {
            work.since += asked;
            work.calls.iter_mut().for_each(|running| running.since += asked);
        }
    }

    /// A key of somebody who goes on writing while a question is open. It changes the text and does nothing else: what
    /// would send it only ends the line.
    fn draft_key(&mut self, letter: Option<char>, key: KeyEvent, effects: &mut Vec<Effect>) {
        if let Some(letter) = letter {
            self.editor.insert(letter.encode_utf8(&mut [0; 4]));
        }
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Enter if self.editor.is_empty() => {}
            KeyCode::Enter => self.editor.insert("\n"),
            KeyCode::Char(c) if is_control && !"abefhjkuwy".contains(c) => {}
            KeyCode::Char(_)
            | KeyCode::Left
            | KeyCode::Right
            | KeyCode::Home
            | KeyCode::End
            | KeyCode::Backspace
            | KeyCode::Delete => self.input_key(key, effects),
            _ => {}
        }
        self.completion = None;
    }

    fn chosen(&mut self, choosing: Choosing, effects: &mut Vec<Effect>) {
        if choosing == Choosing::Model(self.session.model.clone()) {
            return self.say_hint("it answers already");
        }
        self.begin(Phase::Other("a moment"));
        match choosing {
            Choosing::Model(name) => self.order(Order::Model(name), effects),
            Choosing::Session(dir) => self.order(Order::Resume(dir), effects),
            Choosing::Turn(turn, text) => {
                self.give_back(text.as_slice());
                self.order(Order::Rewind(turn), effects);
            }
        }
    }

    pub(super) fn pasted(&mut self, text: &str, effects: &mut Vec<Effect>) {
        match &mut self.overlay {
            Some(Overlay::Approval(approving)) => {
                if let Some(word) = &mut approving.word {
                    return word.paste(text);
                }
                if let Some(letter) = approving.typed(self.now) {
                    self.editor.insert(letter.encode_utf8(&mut [0; 4]));
                }
                self.editor.paste(text);
            }
            Some(Overlay::Picker(_)) => {}
            None => {
                match attachments::pasted(text).filter(|_| self.session.takes_images) {
                    Some(image) => self.editor.insert(&image),
                    None => self.editor.paste(text),
                }
                self.complete(effects);
            }
        }
    }

    fn input_key(&mut self, key: KeyEvent, effects: &mut Vec<Effect>) {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        let alt = key.modifiers.contains(KeyModifiers::ALT);
        let shift = key.modifiers.contains(KeyModifiers::SHIFT);
        if std::mem::take(&mut self.awaits_editor_key) && control && key.code == KeyCode::Char('e') {
            return effects.push(Effect::Edit(self.editor.whole()));
        }
        let step = if control || alt { Step::Word } else { Step::Character };
        let editor = &mut self.editor;
        match key.code {
            KeyCode::Enter if alt || shift => editor.insert("\n"),
            KeyCode::Enter => {
                if !self.accept(effects, true) {
                    self.submit(effects);
                }
                return;
            }
            KeyCode::Tab => {
                self.accept(effects, false);
                return;
            }
            KeyCode::Up => return self.up(effects),
            KeyCode::Down => return self.down(),
            KeyCode::Left => editor.left(step),
            KeyCode::Right => editor.right(step),
            KeyCode::Home => editor.left(Step::Line),
            KeyCode::End => editor.right(Step::Line),
            KeyCode::Backspace => editor.delete_back(step),
            KeyCode::Delete => editor.delete_forth(step),
            KeyCode::Char(c) if control => return self.control(c, effects),
            KeyCode::Char('b') if alt => editor.left(Step::Word),
            KeyCode::Char('f') if alt => editor.right(Step::Word),
            KeyCode::Char('d') if alt => editor.delete_forth(Step::Word),
            KeyCode::Char(c) if !alt => editor.insert(c.encode_utf8(&mut [0; 4])),
            _ => return,
        }
        self.complete(effects);
    }

    fn control(&mut self, c: char, effects: &mut Vec<Effect>) {
        let editor = &mut self.editor;
        match c {
            'j' => editor.insert("\n"),
            'a' => editor.left(Step::Line),
            'e' => editor.right(Step::Line),
            'b' => editor.left(Step::Character),
            'f' => editor.right(Step::Character),
            'h' => editor.delete_back(Step::Character),
            'w' => editor.delete_back(Step::Word),
            'u' => editor.delete_back(Step::Line),
            'k' => editor.delete_forth(Step::Line),
            'y' => editor.yank(),
            'd' if editor.is_empty() => return effects.push(Effect::Quit(0)),
            'd' => editor.delete_forth(Step::Character),
            'p' => return self.up(effects),
            'n' => return self.down(),
            'g' => return effects.push(Effect::Edit(editor.whole())),
            'x' => {
                self.awaits_editor_key = true;
                return;
            }
            'o' => return self.open_detail(),
            'z' => return effects.push(Effect::Suspend),
            _ => return,
        }
        self.complete(effects);
    }

    fn up(&mut self, effects: &mut Vec<Effect>) {
        if let Some(completion) = &mut self.completion {
            completion.chosen = completion.chosen.saturating_sub(1);
            return;
        }
        if self.editor.is_empty() && !self.queue.is_empty() {
            return effects.push(Effect::TakeBack);
        }
        if self.editor.up() {
            return;
        }
        let at = self.browsing.as_ref().map_or(self.earlier.len(), |(at, _)| *at);
        let Some(at) = at.checked_sub(1) else { return };
        let earlier = self.editor.successor(&self.earlier[at]);
        let before = std::mem::replace(&mut self.editor, earlier);
        let before = self.browsing.take().map_or(before, |(_, before)| before);
        self.browsing = Some((at, before));
    }

    fn down(&mut self) {
        if let Some(completion) = &mut self.completion {
            completion.chosen = (completion.chosen + 1).min(completion.offers.len().saturating_sub(1));
            return;
        }
        if self.editor.down() {
            return;
        }
        let Some((at, before)) = self.browsing.take() else { return };
        match self.earlier.get(at + 1) {
            Some(text) => {
                self.editor = self.editor.successor(text);
                self.browsing = Some((at + 1, before));
            }
            None => self.editor = before.replacing(&self.editor),
        }
    }

    /// Takes the chosen completion. With Enter, a command that is whole already is sent instead.
    fn accept(&mut self, effects: &mut Vec<Effect>, by_enter: bool) -> bool {
        let Some(completion) = self.completion.take() else { return false };
        let Some((offer, _)) = completion.offers.get(completion.chosen) else { return false };
        if by_enter && self.editor.before().ends_with(offer.as_str()) {
            return false;
        }
        self.editor.replace_before(completion.replaces, &format!("{offer} "));
        if by_enter && offer.starts_with('/') {
            return false;
        }
        self.complete(effects);
        true
    }

    /// Looks for completions of what stands before the cursor.
    pub(super) fn complete(&mut self, effects: &mut Vec<Effect>) {
        let shown = self.completion.take();
        let before = self.editor.before();
        let word = before.rsplit(char::is_whitespace).next().unwrap_or_default();
        let offers: Vec<(String, &'static str)> = if let Some(typed) = word.strip_prefix('/')
            && before.len() == word.len()
            && !typed.contains('/')
        {
            let names = COMMANDS
                .iter()
                .map(|(name, ..)| *name)
                .filter(|name| typed.is_empty() || name.starts_with(typed));
            let what = |name: &str| COMMANDS.iter().find(|known| known.0 == name).map_or("", |known| known.2);
            names.map(|name| (format!("/{name}"), what(name))).collect()
        } else if before.strip_prefix("/model ").is_some_and(|behind| behind == word) {
            let Some(models) = &self.models else {
                if !std::mem::replace(&mut self.is_loading_models, true) {
                    effects.push(Effect::LoadModels);
                }
                return;
            };
            let found = fitting(models.iter().map(|model| model.name.as_str()), word, OFFERS);
            found.into_iter().map(|name| (name, "")).collect()
        } else if let Some(typed) = word.strip_prefix('@') {
            if (self.files.is_none() || self.files_are_old)
                && !std::mem::replace(&mut self.is_loading_files, true)
            {
                effects.push(Effect::LoadFiles);
            }
            // The old ones serve until the new ones come.
            let Some(files) = &self.files else { return };
            let found = fitting(files.iter().map(String::as_str), typed, OFFERS);
            found.into_iter().map(|name| (attachments::reference(&name), "")).collect()
        } else {
            Vec::new()
        };
        if !offers.is_empty() {
            let chosen = shown.filter(|shown| shown.offers == offers).map_or(0, |shown| shown.chosen);
            self.completion = Some(Completion { offers, chosen, replaces: word.len() });
        }
    }
}
