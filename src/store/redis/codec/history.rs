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

/// Returns the history of a job and its failures as one. A failure has the same position in both.
pub(in crate::store::redis) fn merged(
    mut runs: StreamEntries,
    mut failures: StreamEntries,
    limit: usize,
) -> StreamEntries {
    let is_known = |entry: &StreamEntry| {
        let mut known = runs.records.iter();
        known.any(|it| it.id == entry.id || it.record == entry.record)
    };
    failures.records.retain(|entry| !is_known(entry));
    runs.records.extend(failures.records);
    runs.records
        .sort_by_key(|entry| std::cmp::Reverse(entry.id));
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
