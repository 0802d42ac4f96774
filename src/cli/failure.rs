//! Why a command failed, and the exit code for it (sysexits.h).

use std::io;
use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;

use super::page::{Page, Tone};
use super::stderr;
use crate::config::{ConfigError, ConfigErrors};
use crate::store::StoreError;

/// Wrong use of the command line (`EX_USAGE`).
pub(super) const USAGE: u8 = 64;
/// The store or a host does not reply (`EX_UNAVAILABLE`).
pub(super) const UNAVAILABLE: u8 = 69;
/// A defect, or an operating system that refuses (`EX_SOFTWARE`).
pub(super) const INTERNAL: u8 = 70;
/// Output that cannot be written (`EX_IOERR`).
pub(super) const OUTPUT: u8 = 74;
/// The lock was not acquired, or was lost (`EX_TEMPFAIL`).
pub(super) const NOT_ACQUIRED: u8 = 75;
/// Wrong configuration (`EX_CONFIG`).
pub(super) const CONFIG: u8 = 78;

/// Why a command failed. Each kind has one exit code; the text is for a person.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// 64: the command line asks for what cannot be.
    #[error("{0}")]
    Usage(String),
    /// 69: the store does not reply.
    #[error("{0}")]
    Unavailable(String),
    /// 70: a defect, or an operating system that refuses.
    #[error("{0}")]
    Internal(String),
    /// 74: standard output or a file cannot be written.
    #[error("{0}")]
    Output(String),
    /// 75: the lock was not acquired, or was lost.
    #[error("{0}")]
    NotAcquired(String),
    /// 78: the configuration is wrong. The text holds every error.
    #[error("{0}")]
    Config(String),
    /// 78: a job list has errors.
    #[error("{0}")]
    List(ConfigErrors),
}

impl From<ConfigErrors> for Failure {
    fn from(errors: ConfigErrors) -> Self {
        Self::List(errors)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::WrongList(_) => Self::Config(error.to_string()),
            _ => Self::Unavailable(error.to_string()),
        }
    }
}

impl Failure {
    /// A file that cannot be written.
    pub(super) fn cannot_write(path: &Path, error: &io::Error) -> Self {
        Self::Output(format!("cannot write {}: {error}", path.display()))
    }

    /// Standard output that cannot be written.
    pub(super) fn cannot_print(error: &io::Error) -> Self {
        Self::Output(format!("cannot write to standard output: {error}"))
    }

    /// Prints the failure on standard error and returns its exit code.
    pub fn report(&self) -> ExitCode {
        if stderr::prints_json() {
            stderr::report_json(&self.object());
        } else {
            stderr::report_page(&toned(&marked(&self.to_string())));
        }
        ExitCode::from(self.code())
    }

    /// The failure for programs.
    fn object(&self) -> ErrorObject {
        let mut body = ErrorBody {
            code: self.word(),
            exit_code: self.code(),
            message: String::new(),
            hint: None,
            errors: Vec::new(),
        };
        if let Self::List(errors) = self {
            body.message = counted(errors);
            body.errors = errors.iter().map(ListError::of).collect();
        } else {
            let text = self.to_string();
            let (message, hint) = stderr::message_and_hint(&text);
            message.clone_into(&mut body.message);
            body.hint = hint.map(str::to_owned);
        }
        ErrorObject { error: body }
    }

    /// The kind of failure, for programs.
    fn word(&self) -> &'static str {
        match self {
            Self::Usage(_) => "usage",
            Self::Unavailable(_) => "unavailable",
            Self::Internal(_) => "internal",
            Self::Output(_) => "output",
            Self::NotAcquired(_) => "not_acquired",
            Self::Config(_) | Self::List(_) => "config",
        }
    }

    /// The exit code for this failure.
    pub(super) fn code(&self) -> u8 {
        match self {
            Self::Usage(_) => USAGE,
            Self::Unavailable(_) => UNAVAILABLE,
            Self::Internal(_) => INTERNAL,
            Self::Output(_) => OUTPUT,
            Self::NotAcquired(_) => NOT_ACQUIRED,
            Self::Config(_) | Self::List(_) => CONFIG,
        }
    }

    /// The failure that another process of ours reported.
    pub(super) fn with_code(code: u8, text: String) -> Self {
        match code {
            USAGE => Self::Usage(text),
            UNAVAILABLE => Self::Unavailable(text),
            OUTPUT => Self::Output(text),
            NOT_ACQUIRED => Self::NotAcquired(text),
            CONFIG => Self::Config(text),
            _ => Self::Internal(text),
        }
    }
}

/// The error of a command with `--json`. The names are an interface.
#[derive(Debug, Serialize)]
struct ErrorObject {
    error: ErrorBody,
}

#[derive(Debug, Serialize)]
struct ErrorBody {
    /// The kind of failure.
    code: &'static str,
    exit_code: u8,
    message: String,
    /// What to do about it.
    hint: Option<String>,
    /// The errors of a job list.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<ListError>,
}

/// An error of a job list, for programs.
#[derive(Debug, Serialize)]
pub(super) struct ListError {
    path: String,
    /// From 1; 0 when the error is about the file as a whole.
    line: usize,
    column: usize,
    message: String,
    help: Vec<String>,
}

impl ListError {
    pub(super) fn of(error: &ConfigError) -> Self {
        Self {
            path: error.path.display().to_string(),
            line: error.line,
            column: error.column,
            message: error.message.clone(),
            help: error.help.clone(),
        }
    }
}

fn counted(errors: &ConfigErrors) -> String {
    match errors.iter().count() {
        1 => "the job list has an error".to_owned(),
        n => format!("the job list has {n} errors"),
    }
}

/// What clap reports about the command line, for programs.
pub(super) fn of_command_line(error: &clap::Error) -> Failure {
    let text = error.to_string();
    let text = text.trim().trim_start_matches("error: ");
    let (message, more) = text.split_once("\n\n").unwrap_or((text, ""));
    let hint = more.split("\n\n").next().unwrap_or_default().trim();
    let hint = hint.strip_prefix("tip: ").unwrap_or(hint);
    let help = if hint.is_empty() { "" } else { "\nhelp: " };
    Failure::Usage(format!("{message}{help}{hint}"))
}

/// Returns a message that begins with `error: `, as those about the command line do. The errors of a list
/// have the word behind their place already.
fn marked(text: &str) -> String {
    let first = text.lines().next().unwrap_or_default();
    if first.starts_with("error: ") || first.contains(": error: ") {
        text.to_owned()
    } else {
        format!("error: {text}")
    }
}

/// Gives the words and marks of messages their tones: `error:` where a message begins, and the marks
/// under what is wrong.
fn toned(text: &str) -> Page {
    let mut page = Page::default();
    for (index, line) in text.lines().enumerate() {
        if index > 0 {
            page.push("\n");
        }
        let marks = line.trim_start_matches([' ', '|']);
        let is_mark = !marks.is_empty() && marks.chars().all(|c| c == '^');
        if is_mark {
            page.push(&line[..line.len() - marks.len()]);
            page.push_toned(Tone::Bad, marks);
        } else if let Some(message) = line.strip_prefix("error: ").filter(|_| index == 0) {
            page.push_toned(Tone::Bad, "error:");
            page.push(format!(" {message}"));
        } else if let Some((place, message)) = line.split_once(": error: ") {
            page.push(format!("{place}: "));
            page.push_toned(Tone::Bad, "error:");
            page.push(format!(" {message}"));
        } else if let Some(help) = line.trim_start().strip_prefix("help: ") {
            page.push(&line[..line.len() - help.len() - "help: ".len()]);
            page.push_toned(Tone::Heading, "help:");
            page.push(format!(" {help}"));
        } else {
            page.push(line);
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use super::{marked, toned};

    #[test]
    fn every_message_says_once_that_it_is_an_error() {
        let cases = [
            ("no such job\nhelp: a", "error: no such job\nhelp: a"),
            ("a.yaml:2:3: error: b", "a.yaml:2:3: error: b"),
            ("a failed\nb: error: c", "error: a failed\nb: error: c"),
        ];
        for (text, expected) in cases {
            assert_eq!(marked(text), expected);
        }
        assert!(toned("error: a").coloured().starts_with("\x1b[31merror:"));
    }

    #[test]
    fn tones_change_nothing_of_a_message() {
        let text =
            "a.yaml:2:3: error: no: error: x\n    2 | a ^\n      |   ^^\n      = b\n\n  help: c\n^";
        let page = toned(text);
        assert_eq!(page.text(), text);
        let red = |text: &str| format!("\x1b[31m{text}\x1b[0m");
        let expected = format!(
            "a.yaml:2:3: {} no: error: x\n    2 | a ^\n      |   {}\n      = b\n\n  \x1b[1mhelp:\x1b[0m c\n{}",
            red("error:"),
            red("^^"),
            red("^")
        );
        assert_eq!(page.coloured(), expected);
    }
}
