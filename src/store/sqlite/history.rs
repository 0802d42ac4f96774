//! The history of each job: capped, with equal skips in a row kept as one.

use rusqlite::{OptionalExtension as _, params};

use super::error::Failure;
use super::rows::id_of;
use super::worker::Work;
use crate::names::JobName;
use crate::store::protocol::merge;
use crate::store::{Lock, Record};
use crate::time::Timestamp;

fn read(text: &str, job: &str) -> Result<Record, Failure> {
    serde_json::from_str(text)
        .map_err(|e| Failure::Unreadable(format!("a record of job {job}: {e}")))
}

/// Adds a record to the history of its job and forgets the oldest beyond `keep`.
pub(super) fn append(
    work: &Work<'_>,
    lock: &str,
    record: &Record,
    keep: Option<u32>,
    follows: Option<Timestamp>,
) -> Result<(), Failure> {
    let job = record.job.as_str();
    let newest: Option<(i64, String)> = work
        .db
        .prepare_cached(
            "SELECT id, record FROM records WHERE lock = ? AND job = ? ORDER BY id DESC LIMIT 1",
        )?
        .query_row([lock, job], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    if let Some((id, text)) = newest
        && let Some(both) = merge(&read(&text, job)?, record, follows)
    {
        work.db
            .prepare_cached("UPDATE records SET record = ? WHERE id = ?")?
            .execute(params![written(&both)?, id])?;
        return Ok(());
    }
    work.db
        .prepare_cached("INSERT INTO records (lock, job, record) VALUES (?, ?, ?)")?
        .execute([lock, job, &written(record)?])?;
    if let Some(keep) = keep {
        work.db
            .prepare_cached(
                "DELETE FROM records WHERE lock = ?1 AND job = ?2 AND id <= (SELECT id FROM records
                    WHERE lock = ?1 AND job = ?2 ORDER BY id DESC LIMIT 1 OFFSET ?3)",
            )?
            .execute(params![lock, job, keep])?;
    }
    Ok(())
}

fn written(record: &Record) -> Result<String, Failure> {
    serde_json::to_string(record)
        .map_err(|e| Failure::Unreadable(format!("a record that cannot be written: {e}")))
}

/// The newest records, newest first.
pub(super) fn newest(
    work: &Work<'_>,
    job: &JobName,
    lock: &Lock,
    limit: usize,
) -> Result<Vec<Record>, Failure> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut statement = work.db.prepare_cached(
        "SELECT record FROM records WHERE lock = ? AND job = ? ORDER BY id DESC LIMIT ?",
    )?;
    let texts = statement
        .query_map(params![id_of(lock), job.as_str(), limit], |row| {
            row.get::<_, String>(0)
        })?
        .collect::<Result<Vec<_>, _>>()?;
    texts.iter().map(|text| read(text, job.as_str())).collect()
}
