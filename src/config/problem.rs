//! Errors of a job list: gathered all, shown each with its line.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::path::PathBuf;

use super::mask;
use super::source::{Source, Span};
use crate::ground::sorting::SortShort as _;

/// One thing that is wrong, as it is found.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Problem {
    span: Span,
    message: String,
    help: Vec<String>,
    other: Option<Box<(Span, &'static str)>>,
    secret: bool,
}

impl Problem {
    /// Something wrong at a place.
    pub(super) fn new(span: Span, message: impl Into<String>) -> Self {
        Self {
            span,
            message: message.into(),
            help: Vec::new(),
            other: None,
            secret: false,
        }
    }

    /// The rest of the line after the position is not shown.
    #[must_use]
    pub(super) fn secret(mut self) -> Self {
        self.secret = true;
        self
    }

    /// What was expected, or a way out.
    #[must_use]
    pub(super) fn help(mut self, help: impl Into<String>) -> Self {
        let help = help.into();
        if !help.is_empty() {
            self.help.push(help);
        }
        self
    }

    /// The other place that this one contradicts.
    #[must_use]
    pub(super) fn other(mut self, span: Span, what: &'static str) -> Self {
        self.other = Some(Box::new((span, what)));
        self
    }
}

/// Something that is allowed, but probably not what the author of the list meant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Warning {
    /// Where it is written.
    pub(super) place: Span,
    /// A full sentence.
    pub(super) text: String,
}

impl Warning {
    /// Returns a warning about what is written at a place.
    pub(super) fn new(place: Span, text: impl Into<String>) -> Self {
        Self {
            place,
            text: text.into(),
        }
    }
}

/// All problems found so far; the same one is kept once, however many jobs inherit it.
#[derive(Debug, Default)]
pub(super) struct Problems {
    list: Vec<Problem>,
    seen: HashSet<Problem>,
}

impl Problems {
    /// Notes a problem.
    pub(super) fn add(&mut self, problem: Problem) {
        if self.seen.insert(problem.clone()) {
            self.list.push(problem);
        }
    }

    /// Adds the problems that were found in another part, in their order.
    pub(super) fn extend(&mut self, further: Self) {
        further
            .list
            .into_iter()
            .for_each(|problem| self.add(problem));
    }

    /// Whether nothing was found.
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The problems as errors, in the order of the files.
    pub(super) fn into_errors(mut self, sources: &[Source]) -> ConfigErrors {
        self.list
            .sort_short_by_key(|p| (p.span.file, p.span.line, p.span.column));
        let list = self
            .list
            .iter()
            .map(|p| ConfigError::of(p, sources))
            .collect();
        ConfigErrors { list }
    }
}

/// Every error of a job list; printed, it shows them all, each with its line.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{}", self.text())]
pub struct ConfigErrors {
    list: Vec<ConfigError>,
}

/// One error of a job list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// The file, as it was named or found.
    pub path: PathBuf,
    /// The line, from 1; 0 when the error is about the file as a whole.
    pub line: usize,
    /// The column in characters, from 1; 0 like the line.
    pub column: usize,
    /// What is wrong.
    pub message: String,
    /// What was expected, and ways out.
    pub help: Vec<String>,
    excerpt: String,
}

impl ConfigErrors {
    /// One error about a file or directory as a whole.
    pub(super) fn of_path(path: PathBuf, message: impl Into<String>, help: &str) -> Self {
        Self {
            list: vec![ConfigError {
                path,
                line: 0,
                column: 0,
                message: message.into(),
                help: std::iter::once(help)
                    .filter(|h| !h.is_empty())
                    .map(str::to_owned)
                    .collect(),
                excerpt: String::new(),
            }],
        }
    }

    /// A file that is not valid text from that place on.
    pub(super) fn not_utf8(path: PathBuf, line: usize, column: usize) -> Self {
        let mut errors = Self::of_path(path, "this file is not UTF-8", "save it as UTF-8");
        for error in &mut errors.list {
            (error.line, error.column) = (line, column);
        }
        errors
    }

    /// These errors and others.
    pub(super) fn and(mut self, others: Self) -> Self {
        self.list.extend(others.list);
        self
    }

    /// The errors, in the order of the files.
    pub fn iter(&self) -> impl Iterator<Item = &ConfigError> {
        self.list.iter()
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for error in &self.list {
            let _ = writeln!(text, "{error}");
        }
        let _ = match self.list.len() {
            1 => write!(text, "1 error"),
            n => write!(text, "{n} errors"),
        };
        text
    }
}

impl std::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.path.display())?;
        if self.line > 0 {
            write!(f, ":{}:{}", self.line, self.column)?;
        }
        writeln!(f, ": error: {}", self.message)?;
        f.write_str(&self.excerpt)?;
        for help in &self.help {
            writeln!(f, "      = {help}")?;
        }
        Ok(())
    }
}

impl ConfigError {
    /// The error in one line: where it is, what is wrong, and a way out. It quotes no line of the file.
    pub fn in_one_line(&self) -> String {
        let mut text = self.path.display().to_string();
        if self.line > 0 {
            let _ = write!(text, ":{}:{}", self.line, self.column);
        }
        let _ = write!(text, ": {}", self.message);
        for help in &self.help {
            let _ = write!(text, "; {help}");
        }
        text.replace('\n', " ")
    }

    fn of(problem: &Problem, sources: &[Source]) -> Self {
        let Span {
            file, line, column, ..
        } = problem.span;
        let mut help = problem.help.clone();
        if let Some((span, what)) = problem.other.as_deref() {
            help.insert(0, format!("{what} {}", place(*span, sources)));
        }
        let source = sources.get(file);
        Self {
            path: source.map_or_else(PathBuf::new, |s| s.path.clone()),
            line,
            column,
            message: problem.message.clone(),
            help,
            excerpt: source.map_or_else(String::new, |s| excerpt(s, problem)),
        }
    }
}

/// `path:line:column`.
pub(super) fn place(span: Span, sources: &[Source]) -> String {
    let path = sources
        .get(span.file)
        .map_or_else(String::new, |s| s.path.display().to_string());
    match span.line {
        0 => path,
        line => format!("{path}:{line}:{}", span.column),
    }
}

/// The widest line shown whole.
const LINE_MAX: usize = 120;

/// The line of the place, with carets below it.
fn excerpt(source: &Source, problem: &Problem) -> String {
    let span = problem.span;
    if span.line == 0 {
        return String::new();
    }
    let written = source.line(span.line);
    let mut masked = mask::line_below(source.key_above(span.line), written);
    if problem.secret {
        let shown: String = written
            .chars()
            .skip(span.column - 1)
            .take(span.width)
            .collect();
        masked = format!("… {shown}: ***");
    }
    // Where a secret was hidden before the place, the place moves with what follows.
    let behind: String = written.chars().skip(span.column - 1).collect();
    let column = match masked.strip_suffix(behind.as_str()) {
        _ if problem.secret => 3,
        Some(before) => before.chars().count() + 1,
        None => span.column,
    };
    let line: Vec<char> = masked
        .trim_end()
        .chars()
        .map(|c| match c {
            '\t' => ' ',
            c if c.is_control() => '\u{fffd}',
            c => c,
        })
        .collect();
    // A long line is shown around its place.
    let at = (column - 1).min(line.len());
    let from = if line.len() > LINE_MAX {
        at.saturating_sub(40)
    } else {
        0
    };
    let until = (from + LINE_MAX).min(line.len());
    let dots = |cut: bool| if cut { "…" } else { "" };
    let shown: String = line[from..until].iter().collect();
    let (before, after) = (dots(from > 0), dots(until < line.len()));
    let indent = at - from + before.chars().count();
    let width = span.width.min((until - at).max(1));
    format!(
        "{:5} | {before}{shown}{after}\n{:5} | {:indent$}{}\n",
        span.line,
        "",
        "",
        "^".repeat(width)
    )
}
