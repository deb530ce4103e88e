//! Rules that the user wrote: `allow`, `ask` or `deny`, by tool and pattern.
//!
//! What a pattern is held against depends on what the tool does: the simple commands of a command line, the path of a
//! file as seen from the workspace, or the name of the tool. A rule is checked when it is made: a pattern that cannot be
//! one, and an example that does not behave as it says, are errors, so no rule ever does something else than its author
//! tried.

use std::path::Path;
use std::sync::LazyLock;

use globset::{GlobBuilder, GlobMatcher};
use mainstay_session::entry::Grant;

use super::shell::{Command, Line};
use super::words::{Pattern, Text, Word};

/// What a rule says of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It may run.
    Allow,
    /// Somebody is asked.
    Ask,
    /// It may not run.
    Deny,
}

/// A rule as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleText {
    /// The tool's name; `*` stands for any text.
    pub tool: String,
    /// What the rule is about; all of the tool's calls if there is none.
    pub pattern: Option<String>,
    /// What it says.
    pub action: Action,
    /// Where it is written, for those who meet it.
    pub origin: String,
    /// Commands, paths or names that it must be about.
    pub matching: Vec<String>,
    /// Commands, paths or names that it must not be about.
    pub other: Vec<String>,
}

/// Why a rule cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RuleError {
    /// The pattern cannot be read.
    #[error("the pattern {pattern:?} cannot be used: {why}")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        why: String,
    },
    /// An example is not met.
    #[error("the rule {rule} does not match its example {example:?}")]
    Missed {
        /// The rule, by tool and pattern.
        rule: String,
        /// The example.
        example: String,
    },
    /// An example that should not be met is.
    #[error("the rule {rule} matches {example:?}, which is an example of what it should not match")]
    Caught {
        /// The rule, by tool and pattern.
        rule: String,
        /// The example.
        example: String,
    },
}

/// A rule that was checked.
#[derive(Clone, Debug)]
pub struct Rule {
    text: RuleText,
    tool: Pattern,
    about: About,
}

/// The forms of a pattern.
#[derive(Clone, Debug)]
struct About {
    command: Pattern,
    /// None if it cannot be a path.
    path: Option<GlobMatcher>,
}

/// The names of the tools that change files: what may not be edited may not be overwritten either.
const CHANGING: [&str; 2] = ["write", "edit"];

impl Rule {
    /// Checks a rule.
    ///
    /// # Errors
    ///
    /// The pattern cannot be read, or an example does not hold.
    pub fn new(text: RuleText) -> Result<Self, RuleError> {
        let pattern = text.pattern.as_deref().unwrap_or("**");
        let fault = |why: String| RuleError::Pattern { pattern: pattern.to_owned(), why };
        if pattern.trim().is_empty() {
            return Err(fault("it is blank".to_owned()));
        }
        let path = match text.tool.as_str() {
            // Making a path's pattern ready takes long, and commands have no use for it.
            "bash" => None,
            _ => Some(path_glob(pattern, false).map_err(|error| fault(error.kind().to_string()))?),
        };
        let is_of_paths = matches!(text.tool.as_str(), "read" | "write" | "edit" | "glob" | "grep");
        if let Some(why) = never_fits(pattern).filter(|_| is_of_paths) {
            return Err(fault(why));
        }
        let about = About { command: Pattern::new(pattern), path };
        let rule = Rule { tool: Pattern::new(&text.tool), about, text };
        rule.check_examples()?;
        Ok(rule)
    }

    /// Whether it is about calls of a tool of this name.
    pub fn names(&self, tool: &str) -> bool {
        self.tool.surely_fits(&Text::of([&Word::of(tool)]))
    }

    /// What it says.
    pub fn action(&self) -> Action {
        self.text.action
    }

    /// How people call it: its tool, its pattern, and where it is written.
    pub(super) fn shown(&self) -> String {
        match self.text.origin.as_str() {
            "" => self.name(),
            origin => format!("{} ({origin})", self.name()),
        }
    }

    fn name(&self) -> String {
        let pattern = self.text.pattern.as_ref().map(|pattern| format!(" {pattern:?}")).unwrap_or_default();
        format!("{:?}{pattern}", self.text.tool)
    }

    fn check_examples(&self) -> Result<(), RuleError> {
        if let Some(example) = self.text.matching.iter().find(|example| !self.is_about_example(example)) {
            return Err(RuleError::Missed { rule: self.name(), example: example.clone() });
        }
        match self.text.other.iter().find(|example| self.is_about_example(example)) {
            Some(example) => Err(RuleError::Caught { rule: self.name(), example: example.clone() }),
            None => Ok(()),
        }
    }

    fn is_about_example(&self, example: &str) -> bool {
        match self.text.tool.as_str() {
            "bash" => {
                let line = Line::read(example);
                match self.text.action {
                    Action::Allow => {
                        line.commands.iter().all(|command| command.is_wrapper || self.covers(command))
                    }
                    Action::Ask | Action::Deny => line.commands.iter().any(|command| self.meets(command)),
                }
            }
            "read" | "write" | "edit" | "glob" | "grep" => self.is_about_path(example),
            _ => self.is_about_name(example),
        }
    }

    /// Whether it is about calls of a tool at all. What forbids a change of a file holds for each tool that makes one.
    pub(super) fn is_of(&self, tool: &str) -> bool {
        let fits = |name: &str| self.tool.surely_fits(&Text::of([&Word::of(name)]));
        let is_change = CHANGING.contains(&tool) && self.text.action != Action::Allow;
        fits(tool) || is_change && CHANGING.into_iter().any(fits)
    }

    /// Whether a permission for what the rule is about is one for this command, whatever its unknown parts are.
    pub(super) fn covers(&self, command: &Command) -> bool {
        self.text.pattern.is_none() || self.about.command.surely_fits(&whole(command))
    }

    /// Whether the command is surely one that the rule is about.
    pub(super) fn meets(&self, command: &Command) -> bool {
        self.text.pattern.is_none()
            || plain_forms(command).iter().any(|text| self.about.command.surely_fits(text))
    }

    /// Whether the command may be one that the rule is about.
    pub(super) fn may_meet(&self, command: &Command) -> bool {
        let fits = |text: &Text| self.about.command.may_fit(text);
        self.meets(command)
            || plain_forms(command).iter().any(fits)
            || without_options(&command.words).iter().any(fits)
    }

    /// Whether it is about all calls of its tool.
    pub(super) fn is_unbounded(&self) -> bool {
        self.text.pattern.is_none()
    }

    /// Whether the rule is about a path as seen from the workspace.
    pub(super) fn is_about_path(&self, path: &str) -> bool {
        self.text.pattern.is_none()
            || self.about.path.as_ref().is_some_and(|glob| glob.is_match(Path::new(path)))
    }

    /// Whether the rule is about a tool of this name.
    pub(super) fn is_about_name(&self, name: &str) -> bool {
        self.text.pattern.is_none() || self.about.command.surely_fits(&Text::of([&Word::of(name)]))
    }
}

/// The command with its assignments, as it is written.
fn whole(command: &Command) -> Text {
    Text::of(command.assignments.iter().chain(&command.words))
}

/// The command without its assignments, by the path and by the name of its program.
fn plain_forms(command: &Command) -> Vec<Text> {
    let mut forms = vec![Text::of(&command.words)];
    forms.extend(by_name(&command.words).map(|words| Text::of(&words)));
    forms
}

fn by_name(words: &[Word]) -> Option<Vec<Word>> {
    let path = words.first()?.text()?;
    let (_, name) = path.rsplit_once('/')?;
    let mut named = words.to_vec();
    named[0] = Word::of(name);
    Some(named)
}

/// The command without options between its name and its first operand. An option may take the next word along, so there
/// are several readings.
fn without_options(words: &[Word]) -> Vec<Text> {
    /// So many words are looked at; what stands behind them may be anything.
    const MOST: usize = 64;
    let words = by_name(words).unwrap_or_else(|| words.to_vec());
    let Some((name, rest)) = words.split_first() else { return Vec::new() };
    let is_option = |word: &Word| word.starts_with("-") || word.starts_with("+");
    let mut seen: Vec<Word> = rest.iter().take(MOST).cloned().collect();
    if rest.len() > MOST {
        seen.push(Word::unknown());
    }
    let mut reached = vec![false; seen.len() + 2];
    reached[0] = true;
    for at in 0..seen.len() {
        if reached[at] && is_option(&seen[at]) {
            reached[at + 1] = true;
            reached[at + 2] = true;
        }
    }
    let places = (1..seen.len()).filter(|at| reached[*at]);
    places.map(|at| Text::of(std::iter::once(name).chain(&seen[at..]))).collect()
}

/// All that is said of permissions beforehand. By default nothing but which paths are protected in any case.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    rules: Vec<Rule>,
    /// What the user protects.
    protected: Vec<GlobMatcher>,
    given: Vec<Grant>,
}

/// What asks before it is changed, even where edits pass: each of these can make other programs run something later.
const PROTECTED: [&str; 6] = [
    "**/.git",
    "**/.git/hooks/**",
    "**/.git/config*",
    "**/.git/modules/**",
    "**/.git/info/attributes",
    "**/.mainstay/**",
];

/// Made ready when it is first asked for, since that takes long.
static PROTECTED_ALWAYS: LazyLock<[Option<GlobMatcher>; 6]> =
    LazyLock::new(|| PROTECTED.map(|pattern| protection(pattern).ok()));

/// What keeps a pattern from ever fitting a path, which is always the one seen from the workspace.
fn never_fits(pattern: &str) -> Option<String> {
    let leads_away = pattern.starts_with('/') || pattern.split('/').any(|part| part == "." || part == "..");
    leads_away.then(|| {
        "paths are judged as they are seen from the workspace: write `secrets/**` or `**/secrets/**`, without a leading \
         `/` and without `.` and `..`"
            .to_owned()
    })
}

fn path_glob(pattern: &str, any_case: bool) -> Result<GlobMatcher, globset::Error> {
    let mut glob = GlobBuilder::new(pattern);
    glob.literal_separator(true).backslash_escape(true).case_insensitive(any_case);
    glob.build().map(|glob| glob.compile_matcher())
}

/// Protected, whatever its case: some file systems take names in either case for one.
fn protection(pattern: &str) -> Result<GlobMatcher, RuleError> {
    let fault = |why: String| RuleError::Pattern { pattern: pattern.to_owned(), why };
    if let Some(why) = never_fits(pattern) {
        return Err(fault(why));
    }
    path_glob(pattern, true).map_err(|error| fault(error.kind().to_string()))
}

/// Checks a pattern of protected paths.
///
/// # Errors
///
/// It cannot be read.
pub fn check_path_pattern(pattern: &str) -> Result<(), RuleError> {
    protection(pattern).map(|_| ())
}

impl Rules {
    /// Rules, further protected paths, and what was granted for this project before.
    ///
    /// # Errors
    ///
    /// A protected path is no pattern.
    pub fn new(rules: Vec<Rule>, protected: &[String], given: Vec<Grant>) -> Result<Self, RuleError> {
        let own = protected.iter().map(|pattern| protection(pattern));
        Ok(Rules { rules, protected: own.collect::<Result<_, _>>()?, given })
    }

    /// The rules with one action that are about calls of a tool.
    pub(super) fn of<'s, 't>(
        &'s self,
        action: Action,
        tool: &'t str,
    ) -> impl Iterator<Item = &'s Rule> + use<'s, 't> {
        self.rules.iter().filter(move |rule| rule.text.action == action && rule.is_of(tool))
    }

    /// What was granted for this project before.
    pub(super) fn given(&self) -> &[Grant] {
        &self.given
    }

    /// Whether a path as seen from the workspace asks before it is changed.
    pub(super) fn protects(&self, path: &str) -> bool {
        let always = PROTECTED_ALWAYS.iter().flatten();
        always.chain(&self.protected).any(|glob| glob.is_match(Path::new(path)))
    }
}

/// A permission that was given, ready to be held against calls.
pub(super) fn granted(grant: &Grant) -> Option<Rule> {
    let text = RuleText {
        tool: Pattern::quoted(&grant.tool),
        pattern: Some(grant.pattern.clone()),
        action: Action::Allow,
        origin: String::new(),
        matching: Vec::new(),
        other: Vec::new(),
    };
    Rule::new(text).ok()
}

/// The pattern of exactly this path.
pub(super) fn path_pattern(path: &str) -> String {
    globset::escape(path)
}
