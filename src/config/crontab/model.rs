//! The jobs of crontabs, before they become a job list.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::config::environment::Environment;

/// The receivers of mails, and their sender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mailbox {
    /// The addresses; at least one.
    pub(super) to: Vec<String>,
    /// The sender, if `MAILFROM` names one.
    pub(super) from: Option<String>,
}

/// A mailbox as a target of the list.
#[derive(Debug, Clone)]
pub(super) struct MailboxTarget {
    /// Its name in the list.
    pub(super) name: String,
    pub(super) mailbox: Mailbox,
}

/// The form of a crontab.
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
pub(super) enum FieldValue {
    Text(String),
    /// A text in which the list replaces variables.
    Expanded(&'static str),
    Map(BTreeMap<String, String>),
    List(Vec<String>),
}

impl FieldValue {
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }
}

/// A job's fields, by name, in the order in which they are written.
pub(super) type Fields = Vec<(&'static str, FieldValue)>;

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
pub(super) struct CrontabJob {
    pub(super) line: LineRef,
    /// The columns where schedule and command begin.
    pub(super) columns: (usize, usize),
    /// The line of its time zone, if a setting names one.
    pub(super) zone_line: Option<usize>,
    /// The comments above the line.
    pub(super) comments: Vec<String>,
    pub(super) name: String,
    /// All fields but `name`.
    pub(super) fields: Fields,
    /// Why its schedule is refused.
    pub(super) refused: Option<String>,
}

impl CrontabJob {
    pub(super) fn field(&self, name: &str) -> Option<&FieldValue> {
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
    pub(super) jobs: Vec<CrontabJob>,
    /// Comments below the last job.
    pub(super) trailing: Vec<String>,
    pub(crate) remarks: Vec<ImportRemark>,
    /// The locks that lock files have become: file -> name.
    pub(super) locks: BTreeMap<String, String>,
    /// The targets that the values of `MAILTO` have become.
    pub(super) targets: Vec<MailboxTarget>,
    pub(super) environment: Environment,
}

/// A job list made of crontabs.
#[derive(Debug)]
pub(crate) struct ImportedList {
    pub(crate) text: String,
    /// The line of the list at which each job begins, and the line of the crontab.
    pub(super) origins: Vec<(usize, LineRef)>,
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

impl Crontabs {
    pub(super) fn valid_jobs(&self) -> impl Iterator<Item = &CrontabJob> {
        self.jobs.iter().filter(|job| job.refused.is_none())
    }

    /// The time zone in which cron reads the schedules of this machine.
    pub(super) fn zone(&self) -> String {
        let zone = self.environment.zone.clone();
        zone.unwrap_or_else(|| "UTC".to_owned())
    }

    pub(super) fn remark(&mut self, line: usize, kind: RemarkKind, text: impl Into<String>) {
        let file = self.paths.len().saturating_sub(1);
        self.remarks.push(ImportRemark {
            line: LineRef { file, line },
            kind,
            text: text.into(),
        });
    }
}
