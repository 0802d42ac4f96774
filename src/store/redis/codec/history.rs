//! The commands that read histories, and their replies. They need no script, because one command reads
//! a stream.

use std::collections::{HashMap, HashSet};
use std::fmt;

use redis::Cmd;
use redis::Value;

use super::record;
use super::reply::Items;
use crate::ground::sorting::SortShort as _;
use crate::names::JobName;
use crate::store::redis::failure::RedisFailure;
use crate::store::{History, KeyFault, Record};

/// The position of an entry in a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct StreamId {
    /// When the entry was added, in milliseconds since the epoch.
    pub millis: u64,
    /// Its number among those of that millisecond.
    pub number: u64,
}

impl StreamId {
    /// Reads the position as Redis writes it.
    fn parse(text: &str) -> Option<Self> {
        let (millis, number) = text.split_once('-')?;
        Some(Self {
            millis: millis.parse().ok()?,
            number: number.parse().ok()?,
        })
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.millis, self.number)
    }
}

/// The entries of a stream, newest first, and the faults of those that cannot be read.
#[derive(Debug, Default)]
pub(in crate::store::redis) struct StreamEntries {
    pub(in crate::store::redis) records: Vec<StreamEntry>,
    pub(in crate::store::redis) unreadable: Vec<KeyFault>,
}

impl StreamEntries {
    /// How many entries were read.
    pub(in crate::store::redis) fn len(&self) -> usize {
        self.records.len() + self.unreadable.len()
    }
}

/// A record, its position, and the proposal that added it, as the entry has it.
#[derive(Debug)]
pub(in crate::store::redis) struct StreamEntry {
    pub(in crate::store::redis) id: StreamId,
    pub(in crate::store::redis) ballot: Option<u64>,
    pub(in crate::store::redis) record: Record,
}

/// The field of a stream's entry that holds [`StreamEntry::ballot`].
pub(in crate::store::redis) const BALLOT: &str = "ballot";

/// The most entries that one command reads. A server that replies to each of them in time counts as
/// reachable, however long the stream is.
pub(in crate::store::redis) const PAGE: usize = 1000;

/// Reads entries from the newest on, or from the one after this position.
pub(in crate::store::redis) fn command(stream: &str, after: Option<&str>, limit: usize) -> Cmd {
    let mut command = redis::cmd("XREVRANGE");
    command
        .arg(stream)
        .arg(after.map_or_else(|| "+".to_owned(), |id| format!("({id}")))
        .arg("-")
        .arg("COUNT")
        .arg(limit);
    command
}

/// Reads a page of the stream under the key `stream` into `all`. Its records are of `job`, or of the jobs
/// that they name. Returns the position of the page's last entry.
pub(in crate::store::redis) fn read(
    value: Value,
    job: Option<&JobName>,
    stream: &str,
    all: &mut StreamEntries,
) -> Result<Option<String>, RedisFailure> {
    let mut entries = Items::of(value)?;
    let mut last = None;
    while !entries.is_empty() {
        let entry = entries.next()?;
        let text = record::id_of(&entry);
        let ballot = record::field(&entry, BALLOT).and_then(|text| text.parse().ok());
        let id = StreamId::parse(&text).unwrap_or_default();
        let named = || {
            let name = record::field(&entry, "job").unwrap_or_default();
            JobName::parse(&name).map_err(|error| RedisFailure::corrupt(error.to_string()))
        };
        let of_job = job.map_or_else(named, |job| Ok(job.clone()));
        match of_job.and_then(|job| record::read(&job, entry)) {
            Ok(record) => all.records.push(StreamEntry { id, ballot, record }),
            Err(failure) => {
                let fault = record::unreadable(stream, &text, &failure);
                all.unreadable.push(fault);
            }
        }
        last = Some(text);
    }
    Ok(last)
}

/// Returns two histories as one: that of a job and its failures, or the failures of two jobs. A failure
/// has the same position in both histories of its job; entries of two jobs may have it by chance.
pub(in crate::store::redis) fn merged(
    mut runs: StreamEntries,
    mut failures: StreamEntries,
    limit: usize,
) -> StreamEntries {
    let mut places = HashSet::new();
    let mut by_end: HashMap<_, Vec<&Record>> = HashMap::new();
    for entry in &runs.records {
        places.insert((entry.id, &entry.record.job));
        let ended = by_end.entry(entry.record.finished_at).or_default();
        ended.push(&entry.record);
    }
    failures.records.retain(|entry| {
        let alike = by_end.get(&entry.record.finished_at);
        let is_known = places.contains(&(entry.id, &entry.record.job))
            || alike.is_some_and(|alike| alike.contains(&&entry.record));
        !is_known
    });
    runs.records.extend(failures.records);
    runs.records
        .sort_short_by_key(|entry| std::cmp::Reverse((entry.id, entry.record.finished_at)));
    runs.records.truncate(limit);
    runs.unreadable.extend(failures.unreadable);
    runs
}

impl From<StreamEntries> for History {
    fn from(entries: StreamEntries) -> Self {
        Self {
            records: entries.records.into_iter().map(|it| it.record).collect(),
            unreadable: entries.unreadable,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(job: &str, finished_at: &str) -> StreamEntry {
        let record = serde_json::json!({
            "job": job, "run_id": "r", "kind": "schedule", "outcome": "failed",
            "scheduled_at": finished_at, "finished_at": finished_at, "attempts": 1, "host": null,
        });
        StreamEntry {
            id: StreamId::default(),
            ballot: None,
            record: serde_json::from_value(record).expect("a record"),
        }
    }

    fn entries(records: Vec<StreamEntry>) -> StreamEntries {
        StreamEntries {
            records,
            unreadable: Vec::new(),
        }
    }

    #[test]
    fn failures_of_two_jobs_in_one_millisecond_are_both_shown() {
        let first = entries(vec![failure("a", "2026-01-01T00:00:00Z")]);
        let second = entries(vec![failure("b", "2026-01-01T00:00:01Z")]);
        let all = merged(first, second, 10).records;
        let jobs: Vec<_> = all.iter().map(|it| it.record.job.as_str()).collect();
        assert_eq!(jobs, ["b", "a"]);
    }

    #[test]
    fn a_failure_in_both_histories_of_its_job_is_shown_once() {
        let failure = || entries(vec![failure("a", "2026-01-01T00:00:00Z")]);
        assert_eq!(merged(failure(), failure(), 10).records.len(), 1);
    }
}
