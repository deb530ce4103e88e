//! What is said of one call, given the rules, what was granted and how much is approved in advance.
//!
//! In this order: what a rule denies; what may be that and cannot be told; what was granted; what a rule asks about,
//! and protected paths; what a rule allows; what the mode says. So denial wins over everything, a grant over a question
//! that it answers, and a question over a general permission.

use std::path::Path;

use mainstay_session::entry::Grant;
use mainstay_tools::ToolKind;
use mainstay_tools::subject::{Subject, where_written};

use super::Approve;
use super::rules::{Action, Rule, Rules, granted, path_pattern};
use super::shell::{Command, Line};
use super::words::{Pattern, Word};

/// What is said of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// It may run.
    Allow,
    /// Somebody is asked.
    Ask(Question),
    /// A rule denies it.
    Deny {
        /// The rule, for people and the model.
        rule: String,
    },
}

/// What is asked about a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    /// Why it is asked.
    pub(crate) why: String,
    /// Patterns that together would allow the call; none if no pattern can.
    pub(crate) patterns: Vec<String>,
    /// Rules that together would allow exactly this call, by tool and pattern; none if no rule can.
    pub(crate) rules: Vec<(String, String)>,
    /// Whether a freer mode would let it pass.
    pub(crate) is_of_mode: bool,
}

/// What calls are judged by.
pub(crate) struct Judge<'a> {
    pub(crate) approve: Approve,
    pub(crate) sandbox_is_enforced: bool,
    pub(crate) rules: &'a Rules,
    /// What was granted in the session.
    pub(crate) grants: &'a [Grant],
    pub(crate) workspace: &'a Path,
}

impl Judge<'_> {
    /// Judges a call of the tool of this name.
    pub(crate) fn judge(&self, tool: &str, kind: ToolKind, subject: &Subject) -> Judgement {
        match (kind, subject) {
            (ToolKind::Command, Subject::Command(command)) => self.command(tool, &Line::read(command)),
            (ToolKind::Command, _) => {
                let mut line = Line::default();
                line.doubt("it names no command");
                self.command(tool, &line)
            }
            (ToolKind::Read | ToolKind::Edit, Subject::Path { path, others }) => {
                let paths = std::iter::once(path).chain(others).map(|path| self.seen_from_here(path));
                self.file(tool, kind, &paths.collect::<Vec<_>>())
            }
            (ToolKind::Read | ToolKind::Edit, _) => self.file(tool, kind, &[]),
            (ToolKind::Plan, _) => self.named(tool, false),
            (ToolKind::Other, _) => self.named(tool, self.approve == Approve::Ask),
        }
    }

    fn grants_for(&self, tool: &str) -> Vec<Rule> {
        let lasting = self.grants.iter().filter(|grant| grant.lasts());
        let all = lasting.chain(self.rules.given()).filter(|grant| grant.tool == tool);
        all.filter_map(granted).collect()
    }

    fn seen_from_here(&self, path: &Path) -> String {
        match path.strip_prefix(self.workspace) {
            Ok(inside) if inside.as_os_str().is_empty() => ".".to_owned(),
            Ok(inside) => inside.to_string_lossy().into_owned(),
            Err(_) => path.to_string_lossy().into_owned(),
        }
    }

    /// A call that is known by its tool alone, and that the mode asks about or not.
    fn named(&self, tool: &str, mode_asks: bool) -> Judgement {
        let is_about = |rule: &&Rule| rule.is_about_name(tool);
        if let Some(rule) = self.rules.of(Action::Deny, tool).find(is_about) {
            return denied(rule);
        }
        let is_granted = self.grants_for(tool).iter().any(|rule| rule.is_about_name(tool));
        if self.approve == Approve::All || is_granted {
            return Judgement::Allow;
        }
        let why = match self.rules.of(Action::Ask, tool).find(is_about) {
            Some(rule) => asks(rule),
            None if mode_asks => format!("`{tool}` may change something"),
            None => return Judgement::Allow,
        };
        let patterns = vec![Pattern::quoted(tool)];
        Judgement::Ask(Question { why, rules: Vec::new(), patterns, is_of_mode: true })
    }

    /// A call about a file. `paths` are all that its path may be taken for, where it leads first; none if it leads to
    /// nothing that the tool may use.
    fn file(&self, tool: &str, kind: ToolKind, paths: &[String]) -> Judgement {
        let meets = |rule: &&Rule| paths.iter().any(|path| rule.is_about_path(path));
        let covers = |rule: &Rule| paths.first().is_none_or(|path| rule.is_about_path(path));
        if let Some(rule) = self.rules.of(Action::Deny, tool).find(|rule| rule.is_unbounded() || meets(rule))
        {
            return denied(rule);
        }
        if self.approve == Approve::All || self.grants_for(tool).iter().any(covers) {
            return Judgement::Allow;
        }
        let pattern = paths.first().map(|path| path_pattern(path));
        let question = |why: String, can_be_allowed: bool| {
            let rule =
                pattern.iter().filter(|_| can_be_allowed).map(|pattern| (tool.to_owned(), pattern.clone()));
            let rules = rule.collect();
            Judgement::Ask(Question {
                why,
                rules,
                patterns: pattern.iter().cloned().collect(),
                is_of_mode: true,
            })
        };
        if let Some(rule) = self.rules.of(Action::Ask, tool).find(|rule| rule.is_unbounded() || meets(rule)) {
            return question(asks(rule), false);
        }
        if kind == ToolKind::Read {
            return Judgement::Allow;
        }
        if let Some(path) = paths.iter().find(|path| self.rules.protects(path)) {
            return question(format!("`{path}` is protected"), false);
        }
        if self.approve != Approve::Ask || self.rules.of(Action::Allow, tool).any(covers) {
            return Judgement::Allow;
        }
        question("`--approve ask` asks before edits".to_owned(), true)
    }

    fn command(&self, tool: &str, line: &Line) -> Judgement {
        if let Some(rule) = self.denying(tool, line) {
            return denied(rule);
        }
        if let Some(why) = self.doubt_of(Action::Deny, tool, line) {
            return Judgement::Ask(Question {
                why,
                patterns: Vec::new(),
                rules: Vec::new(),
                is_of_mode: false,
            });
        }
        if self.approve == Approve::All {
            return Judgement::Allow;
        }
        let grants = self.grants_for(tool);
        let uncovered = |rules: &[&Rule]| -> Vec<&Command> {
            let is_covered = |command: &&Command| rules.iter().any(|rule| rule.covers(command));
            line.commands.iter().filter(|command| !command.is_wrapper && !is_covered(command)).collect()
        };
        let is_known = line.unclear.is_none();
        let writes_pass = line.writes.iter().all(|file| self.write_passes(line, file));
        let given: Vec<&Rule> = grants.iter().collect();
        if is_known && writes_pass && uncovered(&given).is_empty() {
            return Judgement::Allow;
        }
        let asked = self.asking(tool, line).map(asks).or_else(|| self.doubt_of(Action::Ask, tool, line));
        let protected = line.writes.iter().find_map(|file| self.protected_write(line, file));
        let asked = asked.or(protected);
        let allowing: Vec<&Rule> = given.iter().copied().chain(self.rules.of(Action::Allow, tool)).collect();
        let rest: Vec<&Command> =
            uncovered(&allowing).into_iter().filter(|command| !is_about_jobs(command)).collect();
        if asked.is_none() && is_known && writes_pass && rest.is_empty() {
            return Judgement::Allow;
        }
        if asked.is_none() && self.approve == Approve::Auto && self.sandbox_is_enforced {
            return Judgement::Allow;
        }
        let can_be_allowed = is_known && writes_pass && rest.iter().all(|command| can_be_named(command));
        let named = uncovered(&given).into_iter().filter(|_| can_be_allowed);
        let patterns = distinct(named.filter(|command| can_be_named(command)).map(grant_pattern));
        let exact = rest.into_iter().filter(|_| can_be_allowed && asked.is_none()).map(exact_pattern);
        Judgement::Ask(Question {
            rules: distinct(exact).into_iter().map(|pattern| (tool.to_owned(), pattern)).collect(),
            patterns,
            why: asked.unwrap_or_else(|| self.why_of_mode(line, writes_pass)),
            is_of_mode: true,
        })
    }

    fn why_of_mode(&self, line: &Line, writes_pass: bool) -> String {
        let mode = self.approve.as_str();
        let why = match self.approve {
            Approve::Auto => format!("`--approve {mode}` asks before commands that no sandbox holds"),
            Approve::Ask | Approve::Edits | Approve::All => {
                format!("`--approve {mode}` asks before commands")
            }
        };
        match &line.unclear {
            Some(unclear) => format!("{why}, and no rule can allow it: {unclear}"),
            None if !writes_pass => format!("{why}, and it writes to a file that no rule for edits allows"),
            None => why,
        }
    }

    fn denying(&self, tool: &str, line: &Line) -> Option<&Rule> {
        self.meeting(Action::Deny, tool, line)
    }

    fn asking(&self, tool: &str, line: &Line) -> Option<&Rule> {
        self.meeting(Action::Ask, tool, line)
    }

    /// A rule that some command of the line surely meets, or a file that it writes.
    fn meeting<'s>(&'s self, action: Action, tool: &str, line: &Line) -> Option<&'s Rule> {
        let (of_tool, of_edits) = (self.rules_of(action, tool), self.rules_of(action, "edit"));
        let meets =
            |rule: &&Rule| rule.is_unbounded() || line.commands.iter().any(|command| rule.meets(command));
        let paths: Vec<String> = line.writes.iter().flat_map(|file| self.path_of(line, file)).collect();
        let writes = |rule: &&Rule| paths.iter().any(|path| rule.is_about_path(path));
        of_tool.into_iter().find(meets).or_else(|| of_edits.into_iter().find(writes))
    }

    fn rules_of(&self, action: Action, tool: &str) -> Vec<&Rule> {
        self.rules.of(action, tool).collect()
    }

    /// Why the line may be one that a rule with this action is about, though that cannot be told.
    fn doubt_of(&self, action: Action, tool: &str, line: &Line) -> Option<String> {
        let rules = self.rules_of(action, tool);
        let word = if action == Action::Deny { "denies" } else { "asks about" };
        let may_meet = |rule: &&&Rule| line.commands.iter().any(|command| rule.may_meet(command));
        if let Some(rule) = rules.iter().find(may_meet) {
            return Some(format!("it may be what the rule {} {word}", rule.shown()));
        }
        if let (Some(unclear), Some(rule)) = (&line.unclear, rules.first()) {
            return Some(format!("{unclear}, and it may be what the rule {} {word}", rule.shown()));
        }
        let is_open = |file: &&Word| self.path_of(line, file).is_none();
        let edits = self.rules_of(action, "edit");
        match (line.writes.iter().find(is_open), edits.first()) {
            (Some(file), Some(rule)) => Some(format!(
                "it writes to `{}`, which may be what the rule {} {word}",
                file.shown(),
                rule.shown()
            )),
            _ => None,
        }
    }

    /// The path that a redirection writes, as seen from the workspace, where that can be told.
    fn path_of(&self, line: &Line, file: &Word) -> Option<String> {
        let text = file.text().filter(|text| !text.starts_with('~'))?;
        let is_fixed = text.starts_with('/') || !line.moves;
        is_fixed.then(|| where_written(self.workspace, &text))?.map(|path| self.seen_from_here(&path))
    }

    fn protected_write(&self, line: &Line, file: &Word) -> Option<String> {
        let path = self.path_of(line, file).filter(|path| self.rules.protects(path))?;
        Some(format!("`{path}` is protected"))
    }

    /// Whether an edit of the file that a redirection writes would pass.
    fn write_passes(&self, line: &Line, file: &Word) -> bool {
        let Some(path) = self.path_of(line, file) else { return false };
        let is_allowed = CHANGING.into_iter().any(|tool| {
            let rules = self.rules.of(Action::Allow, tool);
            rules.chain(self.grants_for(tool).iter()).any(|rule| rule.is_about_path(&path))
        });
        let is_inside = !path.starts_with('/') && self.approve != Approve::Ask;
        (is_inside || is_allowed) && !self.rules.protects(&path)
    }
}

const CHANGING: [&str; 2] = ["write", "edit"];

fn denied(rule: &Rule) -> Judgement {
    Judgement::Deny { rule: rule.shown() }
}

fn asks(rule: &Rule) -> String {
    format!("the rule {} asks", rule.shown())
}

fn distinct(texts: impl Iterator<Item = String>) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    texts.for_each(|text| {
        if !all.contains(&text) {
            all.push(text);
        }
    });
    all
}

/// Background jobs are listed, awaited and ended by commands that no shell is asked to run.
fn is_about_jobs(command: &Command) -> bool {
    let texts: Vec<String> = command.words.iter().map(Word::shown).collect();
    let words: Vec<&str> = texts.iter().map(String::as_str).collect();
    let is_job = |word: &str| word.starts_with("job-") || word.starts_with('%');
    match words.as_slice() {
        ["jobs"] | ["jobs", "-l" | "list"] | ["jobs", "wait" | "stop" | "kill", _] => true,
        ["wait" | "kill", job] => is_job(job),
        _ => false,
    }
}

/// Whether a pattern can be written for a command: all of its words are known, and none holds what a pattern cannot say.
fn can_be_named(command: &Command) -> bool {
    let mut words = command.assignments.iter().chain(&command.words);
    words.all(|word| word.text().is_some_and(|text| !text.is_empty() && !text.contains(char::is_whitespace)))
}

/// The pattern of exactly this command.
fn exact_pattern(command: &Command) -> String {
    let words = command.assignments.iter().chain(&command.words);
    words.map(|word| Pattern::quoted(&word.shown())).collect::<Vec<_>>().join(" ")
}

/// Programs whose first operand says what they do, with operands that mean "anything".
const WITH_COMMANDS: [&str; 6] = ["git", "cargo", "go", "npm", "pnpm", "yarn"];
const FOR_ANYTHING: [&str; 8] = ["exec", "x", "dlx", "run", "run-script", "config", "submodule", "bisect"];

/// The pattern that a lasting grant for a command has: the program with its command and any further words where both
/// are well known, else exactly this command.
fn grant_pattern(command: &Command) -> String {
    let words: Vec<String> = command.words.iter().map(Word::shown).collect();
    let is_plain = |word: &str| word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
    match words.as_slice() {
        [program, operand, ..]
            if command.assignments.is_empty()
                && WITH_COMMANDS.contains(&program.as_str())
                && is_plain(operand)
                && !operand.starts_with('-')
                && !FOR_ANYTHING.contains(&operand.as_str()) =>
        {
            format!("{program} {operand} *")
        }
        _ => exact_pattern(command),
    }
}
