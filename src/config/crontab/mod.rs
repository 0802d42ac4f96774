//! Crontabs: read by cron's rules, to run as they are or to be written as a job list.
//!
//! | file | content |
//! | --- | --- |
//! | `line` | what a line of a crontab is |
//! | `reader`, `settings` | a line and the settings above it -> the fields of a job |
//! | `command`, `input` | what a command does differently here; `%` |
//! | `flock`, `naming` | `flock FILE COMMAND` -> a lock; a command -> a name |
//! | `mail` | `MAILTO` -> a target of notifications |
//! | `directory` | `/etc/cron.daily` and its siblings |
//! | `tree`, `text` | jobs -> the tree that `list` reads; jobs -> the text of a list |

mod command;
mod directory;
mod flock;
mod input;
mod line;
mod mail;
mod naming;
mod reader;
mod settings;
mod text;
mod tree;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::environment::Environment;
pub(super) use line::is_crontab;
pub(super) use tree::read_as_list;

/// Which form a crontab has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CrontabKind {
    /// The crontab of one user, as `crontab -l` prints it.
    User,
    /// `/etc/crontab` and files in `/etc/cron.d`: the sixth field is the user.
    System,
}

/// How to read a crontab.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReadOptions {
    /// Its form, if that is known.
    pub(crate) kind: Option<CrontabKind>,
    /// The owner of a user's crontab, if its jobs are to name the user.
    pub(crate) owner: Option<String>,
}

/// The value of a job's field.
#[derive(Debug, Clone, PartialEq, Eq)]
enum FieldValue {
    Text(String),
    /// A text in which the list replaces variables.
    Expanded(&'static str),
    Map(BTreeMap<String, String>),
    List(Vec<String>),
}

impl FieldValue {
    fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }
}

/// A job's fields, by name, in the order in which they are written.
type Fields = Vec<(&'static str, FieldValue)>;

/// A line of one of the crontabs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LineRef {
    /// The index of the file.
    pub(crate) file: usize,
    /// The line, from 1; 0 for the file as a whole.
    pub(crate) line: usize,
}

/// A job of a crontab.
#[derive(Debug, Clone)]
struct CrontabJob {
    line: LineRef,
    /// The columns where schedule and command begin.
    columns: (usize, usize),
    /// The line of its time zone, if a setting names one.
    zone_line: Option<usize>,
    /// The comments above the line.
    comments: Vec<String>,
    name: String,
    /// All fields but `name`.
    fields: Fields,
    /// Why its schedule is refused.
    refused: Option<String>,
}

impl CrontabJob {
    fn field(&self, name: &str) -> Option<&FieldValue> {
        let found = self.fields.iter().find(|(field, _)| *field == name);
        found.map(|(_, value)| value)
    }
}

/// How much a remark matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RemarkKind {
    /// Something was left out, or behaves differently.
    NeedsLook,
    /// Something has changed its form only.
    Note,
}

/// What the owner of a crontab should know about a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ImportRemark {
    pub(crate) line: LineRef,
    pub(crate) kind: RemarkKind,
    pub(crate) text: String,
}

/// The jobs of crontabs and directories of scripts.
#[derive(Debug, Default)]
pub(crate) struct Crontabs {
    pub(crate) paths: Vec<PathBuf>,
    jobs: Vec<CrontabJob>,
    /// Comments below the last job.
    trailing: Vec<String>,
    pub(crate) remarks: Vec<ImportRemark>,
    /// The locks that lock files have become: file -> name.
    locks: BTreeMap<String, String>,
    /// The targets that the values of `MAILTO` have become.
    targets: Vec<mail::MailboxTarget>,
    environment: Environment,
}

impl Crontabs {
    /// Returns no crontabs; those that are added are read for this machine.
    pub(crate) fn new() -> Self {
        Self::in_environment(&Environment::of_process())
    }

    fn in_environment(environment: &Environment) -> Self {
        Self {
            environment: environment.clone(),
            ..Self::default()
        }
    }

    /// Adds the jobs of a crontab.
    pub(crate) fn add(&mut self, path: &Path, text: &str, options: &ReadOptions) {
        self.paths.push(path.to_owned());
        reader::read_all(self, text, options);
    }

    /// Records that a file was left out because cron ignores files of this name.
    pub(crate) fn add_ignored(&mut self, path: &Path) {
        self.paths.push(path.to_owned());
        self.remark(
            0,
            RemarkKind::NeedsLook,
            "cron ignores this file because of its name, which may have only letters, digits, `_` \
             and `-`; it is left out",
        );
    }

    /// Whether a directory such as `/etc/cron.daily` contains scripts instead of crontabs.
    pub(crate) fn is_script_directory(path: &Path) -> bool {
        directory::schedule(path).is_some()
    }

    /// Adds the scripts of a directory such as `/etc/cron.daily`.
    pub(crate) fn add_scripts(&mut self, path: &Path) -> std::io::Result<()> {
        self.paths.push(path.to_owned());
        directory::read(self, path)
    }

    /// Returns the number of jobs whose schedule is valid.
    pub(crate) fn job_count(&self) -> usize {
        self.valid_jobs().count()
    }

    /// Returns the text of a job list with these jobs.
    pub(crate) fn list(&self) -> ImportedList {
        text::of(self)
    }

    fn valid_jobs(&self) -> impl Iterator<Item = &CrontabJob> {
        self.jobs.iter().filter(|job| job.refused.is_none())
    }

    /// The time zone in which cron reads the schedules of this machine.
    fn zone(&self) -> String {
        let zone = self.environment.zone.clone();
        zone.unwrap_or_else(|| "UTC".to_owned())
    }

    fn remark(&mut self, line: usize, kind: RemarkKind, text: impl Into<String>) {
        let file = self.paths.len().saturating_sub(1);
        self.remarks.push(ImportRemark {
            line: LineRef { file, line },
            kind,
            text: text.into(),
        });
    }
}

/// A job list made of crontabs.
#[derive(Debug)]
pub(crate) struct ImportedList {
    pub(crate) text: String,
    /// The line of the list at which each job begins, and the line of the crontab.
    origins: Vec<(usize, LineRef)>,
}

impl ImportedList {
    /// Returns the line of the crontab from which a line of the list was made.
    pub(crate) fn origin(&self, line: usize) -> Option<LineRef> {
        let mut before = self.origins.iter().rev();
        before
            .find(|(first, _)| *first <= line)
            .map(|(_, origin)| *origin)
    }
}
