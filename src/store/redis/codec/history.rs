//! The commands that read histories, and their replies. They need no script, because one command reads
//! a stream.

use redis::Cmd;
use redis::Value;

use super::record;
use super::reply::Items;
use crate::names::JobName;
use crate::store::redis::failure::RedisFailure;
use crate::store::{History, KeyFault, Record};

/// The position of an entry in a stream: milliseconds, and a number among those.
pub(in crate::store::redis) type StreamId = (u64, u64);

/// The entries of a stream, newest first, and the faults of those that cannot be read.
#[derive(Debug, Default)]
pub(in crate::store::redis) struct StreamEntries {
    pub(in crate::store::redis) records: Vec<StreamEntry>,
    pub(in crate::store::redis) unreadable: Vec<KeyFault>,
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

pub(in crate::store::redis) fn command(stream: &str, limit: usize) -> Cmd {
    let mut command = redis::cmd("XREVRANGE");
    command
        .arg(stream)
        .arg("+")
        .arg("-")
        .arg("COUNT")
        .arg(limit);
    command
}

/// Reads the stream under the key `stream`. Its records are of `job`, or of the jobs that they name.
pub(in crate::store::redis) fn read(
    value: Value,
    job: Option<&JobName>,
    stream: &str,
) -> Result<StreamEntries, RedisFailure> {
    let mut entries = Items::of(value)?;
    let mut all = StreamEntries::default();
    while !entries.is_empty() {
        let entry = entries.next()?;
        let text = record::id_of(&entry);
        let ballot = record::field(&entry, BALLOT).and_then(|text| text.parse().ok());
        let id = (text.split_once('-'))
            .and_then(|(ms, number)| Some((ms.parse().ok()?, number.parse().ok()?)))
            .unwrap_or_default();
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
    }
    Ok(all)
}

/// Returns two histories as one: that of a job and its failures, or the failures of two jobs. A failure
/// has the same position in both histories of its job; entries of two jobs may have it by chance.
pub(in crate::store::redis) fn merged(
    mut runs: StreamEntries,
    mut failures: StreamEntries,
    limit: usize,
) -> StreamEntries {
    let is_known = |entry: &StreamEntry| {
        let mut known = runs.records.iter();
        let is_same_place =
            |it: &StreamEntry| it.id == entry.id && it.record.job == entry.record.job;
        known.any(|it| is_same_place(it) || it.record == entry.record)
    };
    failures.records.retain(|entry| !is_known(entry));
    runs.records.extend(failures.records);
    runs.records
        .sort_by_key(|entry| std::cmp::Reverse((entry.id, entry.record.finished_at)));
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
            id: (1_700_000_000_000, 0),
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
