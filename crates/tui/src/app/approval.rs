//! A question about a call.

use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use mainstay_agent::{Approval, ApprovalRequest};

use crate::editor::{Editor, Step};

/// How long there must have been no typing before a key is taken for an answer: who was writing did not mean it.
const PAUSE: Duration = Duration::from_millis(600);

/// An open question.
#[derive(Debug)]
pub(crate) struct Approving {
    /// The question's number.
    pub(crate) number: u64,
    /// What is asked.
    pub(crate) request: ApprovalRequest,
    /// When it was asked.
    pub(crate) since: Duration,
    /// Which answer Enter gives. None after typing: then Enter was meant for what is written.
    pub(crate) chosen: Option<usize>,
    /// How many rows of the difference are scrolled away.
    pub(crate) scroll: usize,
    /// The word to the model, once the answer is no.
    pub(crate) word: Option<Editor>,
    /// When it was asked, or when typing went on after that.
    quiet_since: Duration,
    has_typing: bool,
    /// The letter that chose, for as long as it may turn out to be the beginning of a word.
    letter: Option<(char, Duration)>,
}

/// What a key is to a question.
#[derive(Debug)]
pub(crate) enum Taken {
    /// It answers.
    Answer(Approval),
    /// It moved something.
    Moved,
    /// It belongs to what is being written, behind this letter that chose an answer.
    Typing(Option<char>),
}

/// An answer that can be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// This call.
    Once,
    /// The like, in this session.
    Session,
    /// The like, in this project.
    Project,
    /// Not this call.
    No,
}

impl Choice {
    /// Its key and its words.
    pub(crate) fn words(self) -> (char, &'static str) {
        match self {
            Choice::Once => ('y', "yes, once"),
            Choice::Session => ('s', "yes, and the like in this session"),
            Choice::Project => ('p', "yes, and the like in this project"),
            Choice::No => ('n', "no, and tell the model why"),
        }
    }
}

impl Approving {
    /// A question that is asked now. Where something is half written, Enter alone gives no answer.
    pub(crate) fn new(number: u64, request: ApprovalRequest, now: Duration, is_writing: bool) -> Self {
        let chosen = (!is_writing).then_some(0);
        Approving {
            number,
            request,
            since: now,
            chosen,
            scroll: 0,
            word: None,
            quiet_since: now,
            has_typing: false,
            letter: None,
        }
    }

    /// Whether somebody types, so that no key is taken for an answer.
    pub(crate) fn is_typing(&self, now: Duration) -> bool {
        self.word.is_none() && self.has_typing && self.is_guarded(now)
    }

    /// The lasting answer that Enter would give.
    pub(crate) fn lasting(&self) -> Option<Choice> {
        let choice = *self.choices().get(self.chosen?)?;
        matches!(choice, Choice::Session | Choice::Project).then_some(choice)
    }

    /// Notes that somebody types; the letter that was taken for a choice before, if it was one.
    pub(crate) fn typed(&mut self, now: Duration) -> Option<char> {
        self.quiet_since = now;
        self.has_typing = true;
        self.chosen = None;
        self.letter.take().map(|(letter, _)| letter)
    }

    fn is_guarded(&self, now: Duration) -> bool {
        now < self.quiet_since + PAUSE
    }

    /// The answers that can be given.
    pub(crate) fn choices(&self) -> &'static [Choice] {
        if self.request.patterns.is_empty() {
            &[Choice::Once, Choice::No]
        } else {
            &[Choice::Once, Choice::Session, Choice::Project, Choice::No]
        }
    }

    /// Takes a key.
    pub(crate) fn key(&mut self, key: KeyEvent, now: Duration) -> Taken {
        if self.word.is_some() {
            return self.word_key(key).map_or(Taken::Moved, Taken::Answer);
        }
        match key.code {
            KeyCode::PageUp => self.scroll = self.scroll.saturating_sub(5),
            KeyCode::PageDown => self.scroll += 5,
            _ if self.is_guarded(now) => return Taken::Typing(self.typed(now)),
            KeyCode::Up => self.choose(|chosen, _| chosen.map_or(0, |chosen| chosen.saturating_sub(1))),
            KeyCode::Down | KeyCode::Tab => {
                self.choose(|chosen, last| chosen.map_or(0, |chosen| (chosen + 1).min(last)));
            }
            KeyCode::Enter => return self.enter(now),
            KeyCode::Char(c) if !key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) => {
                return self.letter(c, now);
            }
            _ => return Taken::Typing(self.typed(now)),
        }
        Taken::Moved
    }

    fn choose(&mut self, next: impl Fn(Option<usize>, usize) -> usize) {
        self.take_choice(next(self.chosen, self.choices().len() - 1));
        self.letter = None;
    }

    /// What is shown may be another thing then, from its beginning.
    fn take_choice(&mut self, place: usize) {
        let was_lasting = self.lasting();
        self.chosen = Some(place);
        if self.lasting() != was_lasting {
            self.scroll = 0;
        }
    }

    fn enter(&mut self, now: Duration) -> Taken {
        match self.chosen.and_then(|chosen| self.choices().get(chosen)) {
            Some(Choice::Once) => Taken::Answer(Approval::Once),
            Some(Choice::Session) => Taken::Answer(Approval::Session),
            Some(Choice::Project) => Taken::Answer(Approval::Project),
            Some(Choice::No) => self.refuse(),
            None => Taken::Typing(self.typed(now)),
        }
    }

    /// A letter answers where the answer is for this call alone; a lasting one it only chooses.
    fn letter(&mut self, c: char, now: Duration) -> Taken {
        let place = self.choices().iter().position(|choice| choice.words().0 == c.to_ascii_lowercase());
        match place.map(|place| (place, self.choices()[place])) {
            // The second of two letters at once: a word begins.
            Some(_) if self.letter.is_some_and(|(_, then)| now < then + PAUSE) => {
                Taken::Typing(self.typed(now))
            }
            Some((_, Choice::Once)) => Taken::Answer(Approval::Once),
            Some((_, Choice::No)) => self.refuse(),
            Some((place, Choice::Session | Choice::Project)) => {
                self.take_choice(place);
                self.letter = Some((c, now));
                Taken::Moved
            }
            None => Taken::Typing(self.typed(now)),
        }
    }

    fn refuse(&mut self) -> Taken {
        self.word = Some(Editor::default());
        Taken::Moved
    }

    fn word_key(&mut self, key: KeyEvent) -> Option<Approval> {
        let word = self.word.as_mut()?;
        match key.code {
            KeyCode::Enter => return Some(Approval::No { word: word.take() }),
            KeyCode::Backspace => word.delete_back(Step::Character),
            KeyCode::Left => word.left(Step::Character),
            KeyCode::Right => word.right(Step::Character),
            KeyCode::Char(c) if !key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) => {
                word.insert(c.encode_utf8(&mut [0; 4]));
            }
            _ => {}
        }
        None
    }
}
