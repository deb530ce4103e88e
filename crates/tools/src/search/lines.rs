//! The lines that match a pattern, in the files that a search is for.
//!
//! A file is read in blocks, decoded where a byte order mark says so, and never held whole but for a pattern that spans
//! lines. Binary files are searched as ripgrep does: up to the first zero byte where a walk came upon them, and where
//! one was named by itself, only for whether it matches.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use grep_matcher::{LineTerminator, Matcher};
use grep_searcher::{
    BinaryDetection, Searcher, SearcherBuilder, Sink, SinkContext, SinkContextKind, SinkFinish, SinkMatch,
};

use super::Stop;
use super::excerpt::excerpt;
use super::first::First;
use super::globs::Globs;
use super::open::Root;
use super::pattern::Pattern;
use super::walk::{Collect, Passed, walk};

/// The longest line, and for a pattern that spans lines the largest file, that is searched.
const HELD_BYTES: usize = 64 << 20;
/// How large a searcher's buffer is before it meets a longer line.
const BUFFER_BYTES: usize = 64 << 10;
/// So many lines of one match across lines are shown.
const LINES_OF_MATCH: usize = 20;

/// What a search shall bring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The matching lines, with so many lines around each.
    Lines {
        /// How many before and how many after.
        context: usize,
    },
    /// The files with a match.
    Files,
    /// The files with a match, and how many lines match in each.
    Counts,
}

/// Why a line is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineKind {
    /// It matches.
    Match,
    /// It belongs to the match of the line above, which spans lines.
    Continued,
    /// It stands before a line that matches.
    Before,
    /// It stands after a line that matches.
    After,
}

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Its number, from 1.
    pub number: u64,
    /// Why it is shown.
    pub kind: LineKind,
    /// Its text without its end, shortened if it is long; what is not UTF-8 appears as U+FFFD.
    pub text: String,
}

/// What matches in one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileHits {
    /// The file's absolute path.
    pub path: PathBuf,
    /// How many lines match; 1 where only the files are wanted.
    pub hits: u64,
    /// The first of them with the lines around them, where lines are wanted and the file is text.
    pub lines: Vec<Line>,
    /// Whether the file is binary, so that its lines are not shown.
    pub binary: bool,
}

/// What a search for lines found.
#[derive(Debug, Default)]
pub struct Found {
    /// The first files by path, so many that the lines or files reach the limit.
    pub first: Vec<FileHits>,
    /// How many files have a match.
    pub files: u64,
    /// How many lines match, or how many matches there are of a pattern that spans lines.
    pub hits: u64,
    /// How many files were searched.
    pub searched: u64,
    /// What was left out.
    pub passed: Passed,
}

/// Finds the lines that match below a directory, in the files that the globs take: the first `limit` of them by path and
/// number, or where lines are not wanted, that many files. Returns early, with what it has, when `stop` is set.
///
/// # Errors
///
/// The directory cannot be opened.
pub fn lines(
    root: &Path,
    globs: &Arc<Globs>,
    pattern: &Pattern,
    wanted: Wanted,
    limit: u64,
    stop: &Stop,
) -> io::Result<Found> {
    let opened = Root::open(root)?;
    let make = || {
        let binary = BinaryDetection::quit(0);
        let search = FileSearch::new(pattern.clone(), wanted, limit, binary, stop);
        LinesOfThread { root: &opened, search, first: First::new(limit), found: Found::default() }
    };
    let (threads, passed) = walk(root, globs, stop, make);
    let mut found = Found { passed, ..Found::default() };
    let mut first = First::new(limit);
    for thread in threads {
        first.merge(thread.first);
        found.files += thread.found.files;
        found.hits += thread.found.hits;
        found.searched += thread.found.searched;
        found.passed.merge(thread.found.passed);
    }
    found.first = first.into_items().map(|(_, hits)| hits).collect();
    cut_last(&mut found.first, wanted, limit);
    Ok(found)
}

/// Finds the lines that match in one opened file, as [`lines`] does below a directory.
///
/// # Errors
///
/// The file cannot be read to its end.
pub fn lines_of_file(
    file: &File,
    path: &Path,
    pattern: &Pattern,
    wanted: Wanted,
    limit: u64,
    stop: &Stop,
) -> io::Result<Found> {
    let mut search = FileSearch::new(pattern.clone(), wanted, limit, BinaryDetection::convert(0), stop);
    let searched = search.run(file, true);
    if stop.is_set() {
        return Ok(Found::default());
    }
    let hits = searched?.0.map(|hits| FileHits { path: path.to_owned(), ..hits });
    Ok(Found {
        files: u64::from(hits.is_some()),
        hits: hits.as_ref().map_or(0, |hits| hits.hits),
        searched: 1,
        first: hits.into_iter().collect(),
        passed: Passed::default(),
    })
}

/// Of the last file no more lines are shown than the limit has left.
fn cut_last(first: &mut [FileHits], wanted: Wanted, limit: u64) {
    let Wanted::Lines { .. } = wanted else { return };
    let Some((last, before)) = first.split_last_mut() else { return };
    let shown: u64 = before.iter().map(|file| file.hits).sum();
    cut(&mut last.lines, limit.saturating_sub(shown));
}

/// Drops every match after so many, with the lines that stand before it.
fn cut(lines: &mut Vec<Line>, matches: u64) {
    let mut seen = 0;
    let end = lines.iter().position(|line| {
        seen += u64::from(line.kind == LineKind::Match);
        seen > matches
    });
    if let Some(end) = end {
        let before = lines[..end].iter().rev().take_while(|line| line.kind == LineKind::Before).count();
        lines.truncate(end - before);
    }
}

/// Searches the files that one thread comes to.
struct LinesOfThread<'a> {
    root: &'a Root,
    search: FileSearch<'a>,
    first: First<FileHits>,
    found: Found,
}

impl Collect for LinesOfThread<'_> {
    fn file(&mut self, path: &Path) {
        let shown = self.first.wants(path);
        let searched = self.root.file(path).and_then(|file| self.search.run(&file, shown));
        if self.search.stop.is_set() {
            return;
        }
        self.found.searched += 1;
        match searched {
            Ok((hits, binary)) => {
                self.found.passed.binary += u64::from(binary);
                if let Some(hits) = hits {
                    self.found.files += 1;
                    self.found.hits += hits.hits;
                    self.keep(path, shown, hits);
                }
            }
            Err(error) => {
                self.found.passed.unreadable.add(path.to_owned(), Some(reason(&error)));
            }
        }
    }
}

impl LinesOfThread<'_> {
    fn keep(&mut self, path: &Path, shown: bool, hits: FileHits) {
        if shown {
            let weight = if matches!(self.search.wanted, Wanted::Lines { .. }) { hits.hits } else { 1 };
            let hits = FileHits { path: path.to_owned(), ..hits };
            self.first.insert(path.to_owned(), weight, hits);
        }
    }
}

/// Why a file could not be searched. The searcher has no kind of its own for a file that it would have to hold.
fn reason(error: &io::Error) -> String {
    if error.to_string().contains("allocation limit") {
        return format!(
            "has more than {} MB in a line, or in all for a pattern that spans lines",
            HELD_BYTES >> 20
        );
    }
    error.to_string()
}

/// Searches one file after the other.
struct FileSearch<'a> {
    build: SearcherBuilder,
    searcher: Searcher,
    pattern: Pattern,
    wanted: Wanted,
    limit: u64,
    stop: &'a Stop,
}

impl<'a> FileSearch<'a> {
    fn new(pattern: Pattern, wanted: Wanted, limit: u64, binary: BinaryDetection, stop: &'a Stop) -> Self {
        let context = match wanted {
            Wanted::Lines { context } => context,
            Wanted::Files | Wanted::Counts => 0,
        };
        let line_end = if pattern.crlf { LineTerminator::crlf() } else { LineTerminator::byte(b'\n') };
        let mut build = SearcherBuilder::new();
        build
            .line_terminator(line_end)
            .line_number(matches!(wanted, Wanted::Lines { .. }))
            .before_context(context)
            .after_context(context)
            .multi_line(pattern.across_lines)
            .heap_limit(Some(HELD_BYTES))
            .binary_detection(binary);
        FileSearch { searcher: build.build(), build, pattern, wanted, limit, stop }
    }

    /// What matches in a file, if anything does, and whether it was left as binary. Lines are kept only if they shall
    /// be shown.
    ///
    /// A searcher's buffer grows with a long line and stays so large, and in how large a piece a file is read decides
    /// which lines before a zero byte are found. So that this does not depend on the file before, the first file that
    /// meets a grown buffer is searched again with a new one.
    fn run(&mut self, mut file: &File, shown: bool) -> io::Result<(Option<FileHits>, bool)> {
        let (found, grown) = self.once(file, shown);
        if !grown {
            return found;
        }
        self.searcher = self.build.build();
        file.rewind()?;
        let (found, _) = self.once(file, shown);
        self.searcher = self.build.build();
        found
    }

    /// As [`FileSearch::run`], and whether the buffer is larger than a new one.
    fn once(&mut self, file: &File, shown: bool) -> (io::Result<(Option<FileHits>, bool)>, bool) {
        let keep = if shown && matches!(self.wanted, Wanted::Lines { .. }) { self.limit } else { 0 };
        let mut hits = Hits {
            pattern: &self.pattern,
            stop: self.stop,
            only_one: self.wanted == Wanted::Files,
            keep,
            hits: 0,
            lines: Vec::new(),
            binary: false,
        };
        let mut file = Watched { file, stop: self.stop, largest: 0 };
        let searched = self.searcher.search_reader(&self.pattern.matcher, &mut file, &mut hits);
        let grown = file.largest > BUFFER_BYTES && !self.pattern.across_lines;
        let quits = self.searcher.binary_detection().quit_byte().is_some();
        (searched.map(|()| hits.into_file(quits, self.wanted)), grown)
    }
}

/// A file that cannot be read any more once the search shall end.
struct Watched<'a> {
    file: &'a File,
    stop: &'a Stop,
    /// The most bytes that were asked for at once.
    largest: usize,
}

impl Read for Watched<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.stop.is_set() {
            return Err(stopped());
        }
        self.largest = self.largest.max(buffer.len());
        self.file.read(buffer)
    }
}

fn stopped() -> io::Error {
    io::Error::other("the search was ended")
}

/// Takes what matches in one file.
struct Hits<'a> {
    pattern: &'a Pattern,
    stop: &'a Stop,
    only_one: bool,
    /// So many matches are kept, the others counted.
    keep: u64,
    hits: u64,
    lines: Vec<Line>,
    binary: bool,
}

impl Hits<'_> {
    /// What matches in the file, if anything does, and whether its search was ended because it is binary.
    fn into_file(self, quits: bool, wanted: Wanted) -> (Option<FileHits>, bool) {
        let quit = self.binary && quits;
        let file = FileHits {
            path: PathBuf::new(),
            hits: self.hits,
            binary: self.binary && !quit,
            lines: if self.binary && !quit { Vec::new() } else { self.lines },
        };
        // Lines before the first zero byte are lines; how many there are in all is not known.
        let found = self.hits > 0 && !(quit && wanted == Wanted::Counts);
        (found.then_some(file), quit)
    }

    fn push(&mut self, number: Option<u64>, kind: LineKind, line: &[u8]) {
        let text = excerpt(line, |line| {
            let hit = self.pattern.matcher.find(line).ok().flatten()?;
            (kind == LineKind::Match).then_some(hit.start()..hit.end())
        });
        self.lines.push(Line { number: number.unwrap_or(0), kind, text });
    }

    fn push_match(&mut self, found: &SinkMatch<'_>) {
        for (index, line) in found.lines().enumerate().take(LINES_OF_MATCH) {
            let kind = if index == 0 { LineKind::Match } else { LineKind::Continued };
            self.push(found.line_number().map(|first| first + index as u64), kind, line);
        }
        let more = found.lines().count().saturating_sub(LINES_OF_MATCH);
        if more > 0
            && let Some(last) = self.lines.last_mut()
        {
            last.text.push_str(&format!("\n[… {more} more lines of this match …]"));
        }
    }
}

impl Sink for &mut Hits<'_> {
    type Error = io::Error;

    fn matched(&mut self, searcher: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        if self.stop.is_set() {
            return Err(stopped());
        }
        self.hits += 1;
        if self.hits <= self.keep {
            self.push_match(found);
        } else if self.hits == self.keep + 1 {
            while self.lines.last().is_some_and(|line| line.kind == LineKind::Before) {
                self.lines.pop();
            }
        }
        let told_enough = self.binary && searcher.binary_detection().convert_byte().is_some();
        Ok(!self.only_one && !told_enough)
    }

    fn context(&mut self, _searcher: &Searcher, context: &SinkContext<'_>) -> io::Result<bool> {
        if self.hits <= self.keep && self.keep > 0 {
            let kind = match context.kind() {
                SinkContextKind::Before => LineKind::Before,
                SinkContextKind::After | SinkContextKind::Other => LineKind::After,
            };
            self.push(context.line_number(), kind, context.bytes());
        }
        Ok(true)
    }

    fn binary_data(&mut self, _searcher: &Searcher, _offset: u64) -> io::Result<bool> {
        self.binary = true;
        Ok(true)
    }

    fn finish(&mut self, _searcher: &Searcher, end: &SinkFinish) -> io::Result<()> {
        self.binary |= end.binary_byte_offset().is_some();
        Ok(())
    }
}
