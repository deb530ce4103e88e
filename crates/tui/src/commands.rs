//! What can be typed behind a `/`.

use crate::text::Row;
use crate::theme::{ACCENT, BOLD, DIM, PLAIN};
use ratatui::text::Span;

/// A command of the interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Says what there is.
    Help,
    /// Shows the whole plan.
    Plan,
    /// Summarises the conversation.
    Compact {
        /// What the summary shall heed.
        wish: Option<String>,
    },
    /// Says or changes which model answers.
    Model {
        /// The other model.
        name: Option<String>,
    },
    /// Begins a new session.
    New,
    /// Offers the sessions to go on with.
    Resume,
    /// Goes on in a copy of the session.
    Fork,
    /// Offers the turns to go back before.
    Rewind,
    /// Takes file changes back.
    Undo,
    /// Shows the conversation again.
    History,
    /// Says what was used.
    Cost,
    /// Says what may be done without asking.
    Permissions,
    /// Says how another process can tell the session something, or tells it.
    Notify {
        /// What to tell.
        text: Option<String>,
    },
    /// Leaves.
    Quit,
}

/// Name, arguments, what it does.
pub(crate) const COMMANDS: [(&str, &str, &str); 15] = [
    ("help", "", "what can be typed, and the keys"),
    ("plan", "", "the whole plan"),
    ("compact", "[WHAT TO KEEP]", "summarise the conversation now"),
    ("model", "[PROVIDER/NAME]", "which model answers; change it"),
    ("new", "", "begin a new session; this one can be gone on with"),
    ("sessions", "", "the sessions; go on with another"),
    ("resume", "", "the same: the sessions, to go on with another"),
    ("fork", "", "go on in a copy, the session stays as it is"),
    ("rewind", "", "go back to before one of your messages"),
    ("undo", "", "take back the last turn's changes of files"),
    ("history", "", "show the conversation again"),
    ("cost", "", "what was used"),
    ("permissions", "", "what may be done without asking"),
    ("notify", "[TEXT]", "tell the session something; from elsewhere too"),
    ("quit", "", "leave, as `exit` does; the session is kept"),
];

const KEYS: [(&str, &str); 12] = [
    ("Enter", "send; while the model works, the message waits for the next step"),
    ("Alt-Enter, Ctrl-J", "a new line (Shift-Enter where the terminal tells it)"),
    ("Esc", "cancel the turn"),
    ("Ctrl-C, Ctrl-D", "cancel; twice: leave"),
    ("Up, Down", "earlier messages; take back one that waits"),
    ("@", "names of files, Tab completes; an image goes along"),
    ("Ctrl-O", "the last call in full; again for the one before"),
    ("Ctrl-G", "write in $VISUAL or $EDITOR"),
    ("Ctrl-A, Ctrl-E", "beginning and end of the line"),
    ("Ctrl-W, Ctrl-U, Ctrl-K", "delete a word, to the beginning, to the end"),
    ("Ctrl-Y", "put that back in"),
    ("Ctrl-L", "draw the screen again"),
];

/// Why a text behind a `/` is no command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NoCommand {
    /// What was typed.
    pub(crate) name: String,
}

/// Reads a text. None: it is a message, also where it begins with a path. A message that is one word by which people leave
/// other programs is none.
pub(crate) fn parse(text: &str) -> Option<Result<Command, NoCommand>> {
    if matches!(text.trim(), "exit" | "quit") {
        return Some(Ok(Command::Quit));
    }
    let typed = text.trim().strip_prefix('/')?;
    let (name, rest) = typed.split_once(char::is_whitespace).unwrap_or((typed, ""));
    if name.is_empty() || name.contains('/') || text.trim().contains('\n') && !is_known(name) {
        return None;
    }
    let rest = Some(rest.trim().to_owned()).filter(|rest| !rest.is_empty());
    Some(Ok(match name {
        "help" | "?" => Command::Help,
        "plan" => Command::Plan,
        "compact" => Command::Compact { wish: rest },
        "model" => Command::Model { name: rest },
        "new" => Command::New,
        "sessions" | "resume" => Command::Resume,
        "fork" => Command::Fork,
        "rewind" => Command::Rewind,
        "undo" => Command::Undo,
        "history" => Command::History,
        "cost" => Command::Cost,
        "permissions" => Command::Permissions,
        "notify" => Command::Notify { text: rest },
        "quit" | "exit" | "q" => Command::Quit,
        name => return Some(Err(NoCommand { name: name.to_owned() })),
    }))
}

fn is_known(name: &str) -> bool {
    COMMANDS.iter().any(|(known, ..)| *known == name)
}

/// What there is to type.
pub(crate) fn help() -> Vec<Row> {
    let line = |left: String, right: &'static str| {
        Row::of(vec![Span::styled(format!("  {left:<24} "), ACCENT), Span::styled(right, PLAIN)]).indented(27)
    };
    let mut rows = vec![Row::new("Commands", BOLD)];
    rows.extend(COMMANDS.iter().map(|(name, arguments, what)| line(format!("/{name} {arguments}"), what)));
    rows.push(Row::new("Keys", BOLD));
    rows.extend(KEYS.iter().map(|(keys, what)| line((*keys).to_owned(), what)));
    rows.push(Row::new(
        "The conversation is in your terminal's own scrollback: scroll, search and copy there.",
        DIM,
    ));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_of_the_help_is_one() {
        for (name, ..) in COMMANDS {
            assert!(matches!(parse(&format!("/{name}")), Some(Ok(_))), "{name}");
        }
        let wish = Some("keep the errors".to_owned());
        assert_eq!(parse("/compact keep the errors "), Some(Ok(Command::Compact { wish })));
        assert_eq!(parse("/nope"), Some(Err(NoCommand { name: "nope".to_owned() })));
        for leaving in ["exit", " quit ", "/exit", "/q"] {
            assert_eq!(parse(leaving), Some(Ok(Command::Quit)), "{leaving}");
        }
        for message in [
            "exit the loop early",
            "Quit",
            "exit\nquit",
            "say /help",
            "/usr/bin/env is missing",
            "/",
            "/todo\nsecond line",
        ] {
            assert_eq!(parse(message), None, "{message}");
        }
    }
}
