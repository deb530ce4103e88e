//! Changes of the world since the model was last told of it.

use mainstay_session::entry::{InstructionMark, Notice, NoticeKind};
use mainstay_session::message::ContentHash;
use mainstay_session::state::Told;
use mainstay_session::world::{date_text, instructions_text};

use crate::setup::SurroundingsNow;

/// The notices that bring the model up to date, none if nothing changed.
pub(crate) fn changes(told: &Told, now: &SurroundingsNow) -> Vec<Notice> {
    let mut notices = Vec::new();
    let files: Vec<InstructionMark> = now
        .instructions
        .iter()
        .map(|file| InstructionMark { path: file.path.clone(), hash: ContentHash::of(file.text.as_bytes()) })
        .collect();
    if files != told.instructions {
        let changed =
            now.instructions.iter().zip(&files).filter(|(_, mark)| !told.instructions.contains(mark));
        let changed: Vec<_> = changed.map(|(file, _)| file.clone()).collect();
        let is_gone = |old: &&InstructionMark| !files.iter().any(|mark| mark.path == old.path);
        let gone: Vec<_> = told.instructions.iter().filter(is_gone).map(|mark| mark.path.clone()).collect();
        let text = instructions_text(&changed, &gone);
        notices.push(Notice { about: NoticeKind::Instructions { files }, text });
    }
    if now.date != told.date {
        notices
            .push(Notice { about: NoticeKind::Date { date: now.date.clone() }, text: date_text(&now.date) });
    }
    notices
}
