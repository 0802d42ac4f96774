//! Selects the records that `history` shows.

use std::collections::BTreeMap;

use crate::cli::Failure;
use crate::config::JobList;
use crate::names::JobName;
use crate::store::{Outcome, Record};
use crate::time::Timestamp;

/// How many records of a job are read at most when a filter decides which of them are shown: more
/// than a history keeps.
pub(super) const ALL: usize = 100_000;

/// The filters of `history`; a record is shown if it passes all of them.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct Filters {
    /// Only from this time on: `yesterday`, `02:30`, `2026-01-31 02:30`, `2h`, RFC 3339
    #[arg(long, value_name = "T", value_parser = crate::cli::times::instant)]
    since: Option<Timestamp>,
    /// Only up to this time
    #[arg(long, value_name = "T", value_parser = crate::cli::times::instant)]
    until: Option<Timestamp>,
    /// Only runs that failed: `failed`, `timed_out`, `lease_lost` or `interrupted`
    #[arg(long, conflicts_with = "outcome")]
    failed: bool,
    /// Only these outcomes: `succeeded`, `failed`, `timed_out`, `lease_lost`, `stopped`,
    /// `interrupted`, `skipped`, `missed`, `unknown`
    #[arg(long, value_name = "WORD", value_delimiter = ',', value_parser = outcome)]
    outcome: Vec<Outcome>,
    /// Only what these hosts ran or decided (names or globs)
    #[arg(long, value_name = "HOST", value_delimiter = ',')]
    on: Vec<String>,
}

impl Filters {
    /// Whether any filter is set.
    pub(super) fn any(&self) -> bool {
        self.failed
            || self.since.is_some()
            || self.until.is_some()
            || !self.outcome.is_empty()
            || !self.on.is_empty()
    }

    /// Fails if no record can pass, because the interval is empty.
    pub(super) fn check(&self) -> Result<(), Failure> {
        match (self.since, self.until) {
            (Some(since), Some(until)) if until < since => Err(Failure::Usage(format!(
                "--until ({until}) is before --since ({since}): no record passes"
            ))),
            _ => Ok(()),
        }
    }

    /// Whether only failures are shown.
    pub(super) fn asks_for_failures(&self) -> bool {
        self.failed
    }

    /// Whether a record that is sorted by this instant is shown.
    pub(super) fn accept(&self, at: Timestamp, record: &Record) -> bool {
        self.since.is_none_or(|since| at >= since)
            && self.until.is_none_or(|until| at <= until)
            && (!self.failed || record.outcome.is_failure())
            && (self.outcome.is_empty() || self.outcome.contains(&record.outcome))
            && (self.on.is_empty() || record.host.as_ref().is_some_and(|h| self.names(h.as_str())))
    }

    fn names(&self, host: &str) -> bool {
        self.on
            .iter()
            .any(|glob| glob_match::glob_match(glob, host))
    }
}

fn outcome(word: &str) -> Result<Outcome, String> {
    Outcome::of_word(word).ok_or_else(|| {
        let words = Outcome::ALL.map(Outcome::word);
        let near = |known: &&&str| strsim::levenshtein(known, word) <= 2;
        match words.iter().find(near) {
            Some(known) => format!("not an outcome; did you mean {known}?"),
            None => format!("not an outcome; the outcomes are {}", words.join(", ")),
        }
    })
}

/// The jobs that names and globs stand for, each once, in the order of the list; without any, all
/// jobs of the list.
///
/// A name without a glob may be of a job that the list no longer has.
pub(super) fn jobs(asked: &[String], list: Option<&JobList>) -> Result<Vec<JobName>, Failure> {
    let listed = list.map_or(&[][..], |list| &list.jobs);
    let mut found: Vec<JobName> = listed
        .iter()
        .filter(|job| {
            asked.is_empty()
                || asked
                    .iter()
                    .any(|glob| glob_match::glob_match(glob, job.name.as_str()))
        })
        .map(|job| job.name.clone())
        .collect();
    for asked in asked {
        if is_glob(asked) {
            if !found
                .iter()
                .any(|job| glob_match::glob_match(asked, job.as_str()))
            {
                return Err(Failure::Usage(format!(
                    "no job in the list has a name that matches {asked:?}"
                )));
            }
        } else {
            let name = JobName::parse(asked).map_err(|e| Failure::Usage(e.to_string()))?;
            if !found.contains(&name) {
                found.push(name);
            }
        }
    }
    Ok(found)
}

/// Whether a text is a pattern rather than a name: names have none of these characters.
pub(super) fn is_glob(text: &str) -> bool {
    text.contains(['*', '?', '[', '{', '!'])
}

/// Leaves the newest `limit` records of each job, of which several locks may have kept so many.
pub(super) fn keep_newest(records: &mut Vec<Record>, limit: usize) {
    let mut counts: BTreeMap<JobName, usize> = BTreeMap::new();
    let mut keep: Vec<bool> = records
        .iter()
        .rev()
        .map(|record| {
            let count = counts.entry(record.job.clone()).or_default();
            *count += 1;
            *count <= limit
        })
        .collect();
    records.retain(|_| keep.pop().unwrap_or(true));
}
