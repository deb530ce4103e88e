//! Commands that run other commands: what `env`, `xargs`, `find -exec`, `sh -c` and the like run in turn.
//!
//! A program is known here by its name. Where its options are not understood, or what it runs cannot be seen, the
//! line is in doubt. Programs that are not listed are taken to run nothing but themselves: a build script, a test
//! runner or a program that was just written can do anything, and no reading of its command line tells. That is what
//! the sandbox is for.

use super::shell::{Command, DEEPEST, Line};
use super::words::{Piece, Word};

/// How the command of a wrapper is found behind its own options and operands.
struct Wrapper {
    name: &'static str,
    /// Short options that take a value.
    short: &'static str,
    /// Long options that take a value as the next word.
    long: &'static [&'static str],
    /// How many operands stand before the command.
    operands: usize,
    /// Whether it changes nothing that matters to permissions, so that a permission for the command suffices.
    is_plain: bool,
}

const fn wrapper(
    name: &'static str,
    short: &'static str,
    long: &'static [&'static str],
    operands: usize,
    is_plain: bool,
) -> Wrapper {
    Wrapper { name, short, long, operands, is_plain }
}

const WRAPPERS: &[Wrapper] = &[
    wrapper("env", "u", &["--unset"], 0, true),
    wrapper("nohup", "", &[], 0, true),
    wrapper("nice", "n", &["--adjustment"], 0, true),
    wrapper("ionice", "cnp", &["--class", "--classdata"], 0, true),
    wrapper("time", "fo", &["--format", "--output"], 0, true),
    wrapper("timeout", "ks", &["--kill-after", "--signal"], 1, true),
    wrapper("stdbuf", "ioe", &["--input", "--output", "--error"], 0, true),
    wrapper("setsid", "", &[], 0, true),
    wrapper("command", "", &[], 0, true),
    wrapper("builtin", "", &[], 0, true),
    wrapper("exec", "a", &[], 0, true),
    wrapper("busybox", "", &[], 0, true),
    wrapper("toybox", "", &[], 0, true),
    wrapper("chronic", "", &[], 0, true),
    wrapper("unbuffer", "", &[], 0, true),
    wrapper("taskset", "", &[], 1, true),
    wrapper("sudo", "ugpCThRDUrt", &["--user", "--group", "--prompt", "--chdir", "--host"], 0, false),
    wrapper("doas", "uC", &[], 0, false),
    wrapper(
        "xargs",
        "adEILnPs",
        &[
            "--arg-file",
            "--delimiter",
            "--max-lines",
            "--max-args",
            "--max-procs",
            "--max-chars",
            "--replace",
        ],
        0,
        false,
    ),
    wrapper("flock", "wE", &["--wait", "--timeout", "--conflict-exit-code"], 1, false),
    wrapper("watch", "nq", &["--interval", "--equexit"], 0, false),
];

const SHELLS: &[&str] = &["sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "rbash", "fish"];

/// Programs that run code or commands given in ways that are not taken apart here.
const OPAQUE: &[&str] = &[
    "alias",
    "at",
    "batch",
    "bind",
    "bwrap",
    "chroot",
    "complete",
    "crontab",
    "dbus-run-session",
    "ed",
    "emacs",
    "enable",
    "entr",
    "ex",
    "expect",
    "fakeroot",
    "fc",
    "firejail",
    "gdb",
    "hyperfine",
    "jshell",
    "ld.so",
    "ltrace",
    "mapfile",
    "nc",
    "ncat",
    "netcat",
    "nsenter",
    "nvim",
    "osascript",
    "parallel",
    "perf",
    "pkexec",
    "proot",
    "readarray",
    "rlwrap",
    "rsh",
    "runuser",
    "script",
    "setpriv",
    "socat",
    "ssh",
    "strace",
    "su",
    "systemd-run",
    "telnet",
    "tclsh",
    "tmux",
    "unshare",
    "valgrind",
    "vi",
    "vim",
];

/// Languages whose code may stand in an argument, with the options that it stands behind.
const LANGUAGES: &[(&str, &[&str])] = &[
    ("python", &["-c"]),
    ("pypy", &["-c"]),
    ("perl", &["-e", "-E", "-n", "-p", "-M", "-i"]),
    ("ruby", &["-e", "-n", "-p", "-r"]),
    ("node", &["-e", "-p", "--eval", "--print", "-r", "--require", "--import"]),
    ("nodejs", &["-e", "-p", "--eval", "--print", "-r", "--require"]),
    ("bun", &["-e", "-p", "--eval", "--print"]),
    ("deno", &["eval"]),
    ("php", &["-r", "-B", "-R", "-E"]),
    ("lua", &["-e"]),
    ("Rscript", &["-e"]),
    ("julia", &["-e", "-E"]),
    ("ghc", &["-e"]),
];

/// Builtins that evaluate what they are given.
const EVALUATING: &[&str] = &[
    "[", "test", "let", "declare", "typeset", "local", "export", "readonly", "printf", "read", "unset",
    "wait", "set",
];

/// Variables that change which programs run, or make programs run others.
const STEERING: &[&str] = &[
    "PATH",
    "BASH_ENV",
    "ENV",
    "IFS",
    "LD_PRELOAD",
    "LD_LIBRARY_PATH",
    "LD_AUDIT",
    "SHELLOPTS",
    "BASHOPTS",
    "PS4",
    "PROMPT_COMMAND",
    "EDITOR",
    "VISUAL",
    "PAGER",
    "LESSOPEN",
    "LESSCLOSE",
    "MANPAGER",
    "BROWSER",
    "SHELL",
    "PERL5OPT",
    "PERL5LIB",
    "PYTHONPATH",
    "PYTHONSTARTUP",
    "RUBYOPT",
    "NODE_OPTIONS",
    "MAKEFLAGS",
    "RUSTC_WRAPPER",
    "RUSTC_WORKSPACE_WRAPPER",
    "CC",
    "HOME",
    "XDG_CONFIG_HOME",
];

/// How many words the commands of a line may have, those counted twice that stand in a wrapper.
const MOST_WORDS: usize = 8_000;

/// Notes a simple command, and what it runs in turn. Says whether it is a shell that runs its input.
pub(super) fn note(line: &mut Line, assignments: Vec<Word>, words: Vec<Word>, depth: usize) -> bool {
    if depth > DEEPEST {
        line.doubt("it is nested too deeply to be judged");
        return false;
    }
    for assigned in &assignments {
        judge_assignment(line, assigned);
    }
    let place = line.commands.len();
    line.count += assignments.len() + words.len();
    if line.count > MOST_WORDS {
        line.doubt("it has too many words to be judged");
        return false;
    }
    line.commands.push(Command { assignments, words: words.clone(), is_wrapper: false });
    let Some(first) = words.first() else { return false };
    let Some(path) = first.text() else {
        line.doubt("which program runs is only known when it runs");
        return false;
    };
    let name = path.rsplit('/').next().unwrap_or(&path);
    let arguments = &words[1..];
    if let Some(wrapper) = WRAPPERS.iter().find(|wrapper| wrapper.name == name) {
        return wrapped(line, place, wrapper, arguments, depth);
    }
    if SHELLS.contains(&name) {
        return shell(line, place, arguments, depth);
    }
    match name {
        "eval" => joined_script(line, place, arguments, depth),
        "trap" => trap(line, arguments, depth),
        "find" => find(line, arguments, depth),
        "fd" | "fdfind" => fd(line, arguments, depth),
        "cd" | "pushd" | "popd" => line.moves = true,
        "git" => git(line, arguments),
        "awk" | "gawk" | "mawk" | "nawk" => awk(line, arguments),
        "sed" | "gsed" => sed(line, arguments),
        "hash" if arguments.iter().any(|word| word.is("-p")) => {
            line.doubt("a name is given to another program")
        }
        "tar" | "bsdtar" | "gtar" if has_option(arguments, TAR) => line.doubt("tar runs a program"),
        "rsync" if has_option(arguments, &["-e", "--rsh", "--rsync-path"]) => {
            line.doubt("rsync runs a program")
        }
        "make" | "gmake" if has_option(arguments, &["--eval", "-f-", "-E"]) => {
            line.doubt("make is given rules")
        }
        _ if OPAQUE.contains(&name) => line.doubt(format!("what `{name}` runs cannot be seen")),
        _ if EVALUATING.contains(&name) => evaluating(line, arguments),
        _ => language(line, name, arguments),
    }
    false
}

const TAR: &[&str] = &[
    "-I",
    "--to-command",
    "--checkpoint-action",
    "--use-compress-program",
    "--rsh-command",
    "--new-volume-script",
];

fn has_option(arguments: &[Word], options: &[&str]) -> bool {
    let is_one =
        |word: &Word, option: &&str| word.starts_with(option) || word.pieces.first() == Some(&Piece::Any);
    arguments.iter().any(|word| options.iter().any(|option| is_one(word, option)))
}

fn judge_assignment(line: &mut Line, assigned: &Word) {
    let shown = assigned.shown();
    let name = shown.split(['=', '+']).next().unwrap_or_default();
    if STEERING.contains(&name) || name.starts_with("GIT_") || name.starts_with("BASH_FUNC") {
        line.doubt(format!("setting {name} may change what runs"));
    }
}

/// `declare`, `[` and the like evaluate subscripts and numbers, and some of them set variables.
fn evaluating(line: &mut Line, arguments: &[Word]) {
    for word in arguments {
        if word.holds_code() {
            line.doubt("text is evaluated that holds a substitution");
        }
        if word.value_at.is_some() {
            judge_assignment(line, word);
        }
    }
}

impl Wrapper {
    /// Where the command begins; none if the options are not understood.
    fn command_at(&self, arguments: &[Word]) -> Option<usize> {
        let (mut at, mut operands) = (0, self.operands);
        let takes_assignments = matches!(self.name, "env" | "sudo" | "doas");
        while let Some(word) = arguments.get(at) {
            let text = word.text();
            match text.as_deref().filter(|text| text.starts_with('-')) {
                Some("--") => return Some(at + 1 + operands),
                Some("-") if self.name == "env" => at += 1,
                Some(option) => at += self.words_of(option)?,
                None if takes_assignments && word.value_at.is_some() => at += 1,
                None if text.is_none() && word.pieces.first() == Some(&Piece::Any) => return None,
                None if operands > 0 => {
                    operands -= 1;
                    at += 1;
                }
                None => break,
            }
        }
        Some(at)
    }

    /// How many words an option takes with its value; none if that is not known.
    fn words_of(&self, option: &str) -> Option<usize> {
        if option.starts_with("--") {
            let name = option.split('=').next().unwrap_or(option);
            return match (self.long.contains(&name), option.contains('=')) {
                (true, true) => Some(1),
                (true, false) => Some(2),
                (false, _) => FLAGS.contains(&option).then_some(1),
            };
        }
        let scripts: &[char] = match self.name {
            "env" => &['S', 'C'],
            "sudo" => &['s', 'i', 'e', 'R', 'D'],
            "doas" => &['s'],
            "flock" => &['c'],
            _ => &[],
        };
        let mut chars = option.chars().skip(1).peekable();
        while let Some(c) = chars.next() {
            if scripts.contains(&c) {
                return None;
            }
            if self.short.contains(c) {
                return Some(if chars.peek().is_some() { 1 } else { 2 });
            }
        }
        Some(1)
    }
}

/// Long options without a value, of any of the wrappers. One that is not here may take one.
const FLAGS: &[&str] = &[
    "--background",
    "--close",
    "--ctty",
    "--debug",
    "--exclusive",
    "--exit",
    "--foreground",
    "--fork",
    "--ignore-environment",
    "--interactive",
    "--no-fork",
    "--no-run-if-empty",
    "--non-interactive",
    "--nonblock",
    "--null",
    "--open-tty",
    "--preserve-status",
    "--shared",
    "--unbuffered",
    "--verbose",
    "--portability",
];

fn wrapped(line: &mut Line, place: usize, wrapper: &Wrapper, arguments: &[Word], depth: usize) -> bool {
    let is_query = |word: &Word| word.is("-v") || word.is("-V");
    if wrapper.name == "command" && arguments.first().is_some_and(is_query) {
        return false;
    }
    let Some(at) = wrapper.command_at(arguments) else {
        line.doubt(format!("the options of `{}` are not understood", wrapper.name));
        return false;
    };
    let (own, command) = arguments.split_at(at.min(arguments.len()));
    let assignments: Vec<Word> = own.iter().filter(|word| word.value_at.is_some()).cloned().collect();
    let is_bare = assignments.is_empty();
    if command.is_empty() {
        return false;
    }
    line.commands[place].is_wrapper = wrapper.is_plain && is_bare;
    if wrapper.name == "watch" {
        joined_script(line, place, command, depth);
        return false;
    }
    let mut command = command.to_vec();
    if wrapper.name == "xargs" {
        fill_in(own, &mut command);
    }
    note(line, assignments, command, depth + 1)
}

/// `xargs` puts what it reads behind the command, or in the place of a word.
fn fill_in(own: &[Word], command: &mut Vec<Word>) {
    let texts: Vec<String> = own.iter().map(|word| word.text().unwrap_or_default()).collect();
    let mut stand_ins: Vec<String> = Vec::new();
    for (at, text) in texts.iter().enumerate() {
        match text.as_str() {
            "-I" | "--replace" => stand_ins.extend(texts.get(at + 1).cloned()),
            "-i" => stand_ins.push("{}".to_owned()),
            _ => stand_ins.extend(
                ["-I", "-i", "--replace="]
                    .iter()
                    .filter_map(|option| text.strip_prefix(option))
                    .map(str::to_owned),
            ),
        }
    }
    if stand_ins.is_empty() {
        return command.push(Word::unknown());
    }
    for word in command {
        if stand_ins.iter().any(|stand_in| word.shown().contains(stand_in.as_str())) {
            *word = Word { pieces: vec![Piece::Any], ..Word::default() };
        }
    }
}

/// Words that a shell gets as one script.
fn joined_script(line: &mut Line, place: usize, words: &[Word], depth: usize) {
    let texts: Option<Vec<String>> = words.iter().map(Word::text).collect();
    match texts {
        Some(texts) => {
            line.commands[place].is_wrapper = true;
            script(line, &texts.join(" "), depth);
        }
        None => line.doubt("what a shell is given to run is only known when it runs"),
    }
}

fn script(line: &mut Line, text: &str, depth: usize) {
    // A script is at most as long as the line, so this bounds the work too.
    line.script(text, depth + 1);
}

/// `sh -c SCRIPT`, `sh FILE`, or `sh` with a script on its input, of which it tells.
fn shell(line: &mut Line, place: usize, arguments: &[Word], depth: usize) -> bool {
    let mut at = 0;
    let mut takes_script = false;
    while let Some(word) = arguments.get(at) {
        let Some(text) = word.text() else {
            line.doubt("what a shell is given to run is only known when it runs");
            return false;
        };
        match text.as_str() {
            "--" | "-" => {
                at += 1;
                break;
            }
            "--login" | "--norc" | "--noprofile" | "--posix" | "--noediting" | "--restricted" => at += 1,
            long if long.starts_with("--") => {
                line.doubt("the options of a shell are not understood");
                return false;
            }
            short if short.starts_with(['-', '+']) && short.len() > 1 => {
                takes_script |= short.starts_with('-') && short.contains('c');
                if short.contains(['O', 's']) {
                    line.doubt("the options of a shell are not understood");
                }
                at += 1 + usize::from(short.contains('o'));
            }
            _ => break,
        }
    }
    let Some(next) = arguments.get(at) else { return !takes_script };
    if takes_script {
        joined_script(line, place, std::slice::from_ref(next), depth);
    }
    false
}

fn trap(line: &mut Line, arguments: &[Word], depth: usize) {
    let Some(first) = arguments.iter().find(|word| !word.is("--")) else { return };
    match first.text() {
        Some(text) => script(line, &text, depth),
        None => line.doubt("what a shell is given to run is only known when it runs"),
    }
}

/// The commands of `find -exec … ;`.
fn find(line: &mut Line, arguments: &[Word], depth: usize) {
    let mut rest = arguments;
    while let Some((word, behind)) = rest.split_first() {
        rest = behind;
        match word.text().as_deref() {
            Some("-exec" | "-execdir" | "-ok" | "-okdir") => {
                let end = rest.iter().position(|word| word.is(";") || word.is("+")).unwrap_or(rest.len());
                run_on_files(line, &rest[..end], depth);
                rest = &rest[end..];
            }
            Some(option) if option.starts_with("-fprint") || option == "-fls" => {
                line.writes.extend(rest.first().cloned());
            }
            Some(_) => {}
            None if word.pieces.first() == Some(&Piece::Any) => {
                line.doubt("the options of `find` are only known when it runs");
            }
            None => {}
        }
    }
}

fn fd(line: &mut Line, arguments: &[Word], depth: usize) {
    let options = ["-x", "-X", "--exec", "--exec-batch"];
    if let Some(at) = arguments.iter().position(|word| options.iter().any(|option| word.is(option))) {
        run_on_files(line, &arguments[at + 1..], depth);
    } else if has_option(arguments, &options) {
        line.doubt("the options of `fd` are not understood");
    }
}

fn run_on_files(line: &mut Line, command: &[Word], depth: usize) {
    let is_file = |word: &Word| word.shown().contains('{');
    let named = |word: &Word| match is_file(word) {
        true => Word { pieces: vec![Piece::Any], ..Word::default() },
        false => word.clone(),
    };
    if note(line, Vec::new(), command.iter().map(named).collect(), depth + 1) {
        line.doubt("a shell runs what it is given on its input");
    }
}

/// What `git` runs by its options and its settings.
fn git(line: &mut Line, arguments: &[Word]) {
    let mut at = 0;
    while let Some(word) = arguments.get(at).filter(|word| word.starts_with("-")) {
        let is_setting = word.is("-c") || word.starts_with("--config-env");
        let value = arguments.get(at + 1);
        if is_setting && !value.is_some_and(is_harmless_setting) || word.starts_with("--exec-path=") {
            return line.doubt("a setting of git may make it run a program");
        }
        line.moves |= word.is("-C") || word.starts_with("--work-tree");
        at += 1 + usize::from(GIT_VALUES.iter().any(|option| word.is(option)));
    }
    let Some(command) = arguments.get(at) else { return };
    let rest = &arguments[at + 1..];
    let has = |name: &str| rest.iter().any(|word| word.is(name));
    let begins = |start: &str| rest.iter().any(|word| word.starts_with(start));
    let may_run = match command.text().as_deref() {
        Some("bisect") => has("run"),
        Some("rebase") => begins("-x") || begins("--exec") || begins("--ex"),
        Some("submodule") => has("foreach"),
        Some("grep") => begins("-O") || begins("--open"),
        Some("config") => {
            let reads = ["--get", "--get-all", "--list", "-l", "get", "list"].iter().any(|word| has(word));
            !reads && !rest.iter().any(is_harmless_setting)
        }
        Some("filter-branch" | "difftool" | "mergetool" | "send-email" | "credential") => true,
        Some(_) => {
            begins("--upload-pack") || begins("--receive-pack") || begins("--exec=") || begins("ext::")
        }
        None => true,
    };
    if may_run {
        line.doubt("git may be made to run a program");
    }
}

/// Options of git itself whose value is the next word.
const GIT_VALUES: &[&str] = &[
    "-C",
    "-c",
    "--git-dir",
    "--work-tree",
    "--namespace",
    "--super-prefix",
    "--config-env",
    "--attr-source",
];

fn is_harmless_setting(word: &Word) -> bool {
    ["user.", "author.", "committer.", "color.", "advice.", "init.", "core.quotepath", "log."]
        .iter()
        .any(|key| word.starts_with(key))
}

fn awk(line: &mut Line, arguments: &[Word]) {
    let is_plain = |word: &Word| {
        let text = word.shown();
        !(text.contains("system") || text.contains('|') || text.contains("getline") || text.contains('>'))
    };
    let from_file =
        has_option(arguments, &["-f", "-i", "-l", "--file", "--include", "--load", "-E", "--exec"]);
    if from_file || !arguments.iter().all(is_plain) {
        line.doubt("an awk program may run or write anything");
    }
}

/// GNU sed runs commands and writes files.
fn sed(line: &mut Line, arguments: &[Word]) {
    let mut scripts: Vec<&Word> = Vec::new();
    let mut operands = Vec::new();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        if word.is("-e") || word.is("--expression") {
            scripts.extend(words.next());
        } else if word.is("-l") {
            words.next();
        } else if has_option(std::slice::from_ref(word), &["-e", "-f", "--expression", "--file"]) {
            return line.doubt("what a sed script does cannot be seen");
        } else if !word.starts_with("-") {
            operands.push(word);
        }
    }
    if scripts.is_empty() {
        scripts.extend(operands.first());
    }
    if scripts.iter().any(|script| sed_may_run(&script.shown()).is_none_or(|may| may)) {
        line.doubt("a sed script may run a command or write a file");
    }
}

/// Whether a sed script runs or writes; none if it is not understood.
fn sed_may_run(script: &str) -> Option<bool> {
    let mut chars = script.chars().peekable();
    loop {
        while chars.next_if(|c| c.is_whitespace() || ";{}".contains(*c)).is_some() {}
        while let Some(c) = chars.next_if(|c| c.is_ascii_digit() || "$,!~+/ ".contains(*c)) {
            if c == '/' {
                skip_part(&mut chars, '/')?;
            }
        }
        match chars.next() {
            None => return Some(false),
            Some('s') => {
                let delimiter = chars.next().filter(|c| !c.is_alphanumeric() && !c.is_whitespace())?;
                skip_part(&mut chars, delimiter)?;
                skip_part(&mut chars, delimiter)?;
                while let Some(flag) = chars.next_if(|c| !";}\n".contains(*c)) {
                    if !flag.is_ascii_digit() && !"gpiIMm ".contains(flag) {
                        return Some(true);
                    }
                }
            }
            Some('p' | 'd' | 'q' | 'D' | 'P' | 'n' | 'N' | 'h' | 'H' | 'g' | 'G' | 'x' | '=') => {}
            Some(_) => return None,
        }
    }
}

fn skip_part(chars: &mut std::iter::Peekable<std::str::Chars<'_>>, delimiter: char) -> Option<()> {
    loop {
        match chars.next()? {
            '\\' => drop(chars.next()?),
            c if c == delimiter => return Some(()),
            _ => {}
        }
    }
}

/// Code in an argument, or on the input, of the interpreter of a language.
fn language(line: &mut Line, name: &str, arguments: &[Word]) {
    let versionless = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    let Some((_, options)) = LANGUAGES.iter().find(|(language, _)| *language == versionless) else { return };
    let is_code = |word: &Word| {
        word.is("-") || options.iter().any(|option| word.starts_with(option)) || is_cluster(word, options)
    };
    let own = arguments.iter().take_while(|word| word.starts_with("-") || word.is("eval"));
    let has_file = arguments.iter().any(|word| !word.starts_with("-"));
    if own.into_iter().any(is_code) || !(has_file || asks_version(arguments)) {
        line.doubt(format!("`{name}` is given code to run"));
    }
}

/// Short options in one word, such as `-ne`.
fn is_cluster(word: &Word, options: &[&str]) -> bool {
    let text = word.shown();
    let is_short = text.starts_with('-') && !text.starts_with("--");
    is_short && options.iter().any(|option| option.len() == 2 && text[1..].contains(&option[1..]))
}

fn asks_version(arguments: &[Word]) -> bool {
    arguments.iter().any(|word| ["--version", "-V", "-v", "--help", "-h"].iter().any(|asked| word.is(asked)))
}
