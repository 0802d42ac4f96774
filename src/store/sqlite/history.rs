//! The history of each job. It is capped, and equal skips in a row are one record.

use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::context::WorkContext;
use super::error::{RowKey, SqliteFailure};
use super::rows::id_of;
use crate::names::JobName;
use crate::store::protocol;
use crate::store::{ErrorDetail, History, Lock, Record, Retention};
use crate::time::Timestamp;

fn row(job: &str, id: i64) -> RowKey {
    RowKey::of("records", format!("{id} (job {job})"))
}

/// Adds a record to the history of its job, and deletes the oldest beyond `keep`.
pub(super) fn append(
    work: &WorkContext<'_>,
    lock: &str,
    record: &Record,
    keep: Option<Retention>,
    follows: Option<Timestamp>,
) -> Result<(), SqliteFailure> {
    let job = record.job.as_str();
    let newest: Option<(i64, String)> = work
        .db
        .prepare_cached(
            "SELECT id, record FROM records WHERE lock = ? AND job = ? ORDER BY id DESC LIMIT 1",
        )?
        .query_row([lock, job], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    // A record that cannot be read is not changed.
    if let Some((id, text)) = newest
        && let Ok(newest) = serde_json::from_str(&text)
        && let Some(both) = protocol::merge(&newest, record, follows)
    {
        work.db
            .prepare_cached("UPDATE records SET record = ? WHERE id = ?")?
            .execute(params![written(&both)?, id])?;
        return Ok(());
    }
    let now = work.now.clock.utc();
    work.db
        .prepare_cached(
            "INSERT INTO records (lock, job, record, failed, at) VALUES (?, ?, ?, ?, ?)",
        )?
        .execute(params![
            lock,
            job,
            written(record)?,
            record.outcome.is_failure(),
            now.millis()
        ])?;
    if let Some(keep) = keep {
        trim(work, (lock, job), keep)?;
    }
    Ok(())
}

/// Deletes the oldest records of a job beyond what is kept. Failures are counted apart.
fn trim(
    work: &WorkContext<'_>,
    (lock, job): (&str, &str),
    keep: Retention,
) -> Result<(), SqliteFailure> {
    let oldest = work.now.clock.utc().minus(keep.age).millis();
    work.db
        .prepare_cached(
            "DELETE FROM records WHERE lock = ?1 AND job = ?2 AND (at < ?5
                OR id <= coalesce((SELECT id FROM records WHERE lock = ?1 AND job = ?2
                        ORDER BY id DESC LIMIT 1 OFFSET ?3), 0)
                    AND (failed = 0 OR id <= coalesce((SELECT id FROM records
                        WHERE lock = ?1 AND job = ?2 AND failed = 1
                        ORDER BY id DESC LIMIT 1 OFFSET ?4), 0)))",
        )?
        .execute(params![lock, job, keep.records, keep.failures, oldest])?;
    Ok(())
}

/// Deletes the records that the result of a run replaces ([`protocol::is_replaced_by`]). Records that cannot be read
/// are kept.
pub(super) fn remove_replaced(
    work: &WorkContext<'_>,
    lock: &str,
    result: &Record,
) -> Result<(), SqliteFailure> {
    if result.run_id.is_none() {
        return Ok(());
    }
    let mut select = work
        .db
        .prepare_cached("SELECT id, record FROM records WHERE lock = ? AND job = ?")?;
    let mut rows = select.query([lock, result.job.as_str()])?;
    let mut replaced: Vec<i64> = Vec::new();
    while let Some(row) = rows.next()? {
        if readable(row, 1)?.is_some_and(|known| protocol::is_replaced_by(&known, result)) {
            replaced.push(row.get(0)?);
        }
    }
    for id in replaced {
        work.db
            .prepare_cached("DELETE FROM records WHERE id = ?")?
            .execute([id])?;
    }
    Ok(())
}

/// Sets `failed` and `at` of every record, in a file of a version that did not have them. Records that cannot be read
/// keep what they have.
pub(super) fn fill_failed_and_at(db: &Connection) -> Result<(), rusqlite::Error> {
    // One at a time, because a row must not be changed while a query is still to return it.
    let mut select =
        db.prepare("SELECT id, record FROM records WHERE id > ? ORDER BY id LIMIT 1")?;
    let mut update =
        db.prepare("UPDATE records SET failed = ?, at = coalesce(?, at) WHERE id = ?")?;
    let mut newest = i64::MIN;
    loop {
        let next = select.query_row([newest], |row| Ok((row.get(0)?, readable(row, 1)?)));
        let Some((id, record)) = next.optional()? else {
            return Ok(());
        };
        newest = id;
        if let Some(record) = record {
            let finished_at = record.finished_at.map(Timestamp::millis);
            update.execute(params![record.outcome.is_failure(), finished_at, id])?;
        }
    }
}

/// The record in a column, or `None` if it cannot be read.
fn readable(row: &Row<'_>, column: usize) -> Result<Option<Record>, rusqlite::Error> {
    let text = row.get_ref(column)?.as_str().ok();
    Ok(text.and_then(|text| serde_json::from_str(text).ok()))
}

fn written(record: &Record) -> Result<String, SqliteFailure> {
    serde_json::to_string(record)
        .map_err(|e| RowKey::of("records", record.job.as_str()).unreadable(e))
}

/// Returns the newest records, newest first, and the faults of those that cannot be read.
pub(super) fn newest(
    work: &WorkContext<'_>,
    job: &JobName,
    lock: &Lock,
    limit: usize,
) -> Result<History, SqliteFailure> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut statement = work.db.prepare_cached(
        "SELECT id, record FROM records WHERE lock = ? AND job = ? ORDER BY id DESC LIMIT ?",
    )?;
    let rows = statement
        .query_map(params![id_of(lock), job.as_str(), limit], |row| {
            Ok((row.get(0)?, row.get::<_, String>(1)?))
        })?
        .collect::<Result<Vec<_>, _>>()?;
    let mut history = History::default();
    for (id, text) in rows {
        add(&mut history, &text, || row(job.as_str(), id), work.shown);
    }
    Ok(history)
}

/// Returns the newest failures of all jobs, newest first.
pub(super) fn failures(work: &WorkContext<'_>, limit: usize) -> Result<History, SqliteFailure> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut statement = work.db.prepare_cached(
        "SELECT id, record, job FROM records WHERE failed = 1 ORDER BY id DESC LIMIT ?",
    )?;
    let rows = statement
        .query_map([limit], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
        .collect::<Result<Vec<(i64, String, String)>, _>>()?;
    let mut history = History::default();
    for (id, text, job) in rows {
        add(&mut history, &text, || row(&job, id), work.shown);
    }
    Ok(history)
}

/// Adds a record, or the fault of one that cannot be read.
fn add(history: &mut History, text: &str, row: impl FnOnce() -> RowKey, shown: &str) {
    match serde_json::from_str(text) {
        Ok(record) => history.records.push(record),
        Err(error) => {
            let detail = ErrorDetail::of("the record cannot be read", error);
            history.unreadable.push(row().fault(shown, detail));
        }
    }
}
