//! How long the rows of a job are kept. In Redis keys expire; here a sweep deletes rows.
//!
//! Each ledger and history has a row in `kept` that says until when it is kept. The hosts that list the
//! job extend it every day, and every use extends it. The wall clock may be wrong (on a machine without
//! a battery, until it has reached its time server). Therefore a sweep deletes nothing if the previous
//! sweep was long ago: only the time between regular sweeps counts.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension as _, params};

use super::clock::TransactionTime;
use super::context::WorkContext;
use super::error::SqliteFailure;
use super::rows::id_of;
use crate::names::JobName;
use crate::store::registry::{HOST_KEPT_FOR, LISTED_FOR};
use crate::store::{Keeping, Lock};

const DAY_MS: i64 = 24 * 3_600_000;

/// A sweep deletes nothing if the previous sweep was longer ago. Shorter than any row is kept.
const TRUSTED_PAUSE_MS: i64 = 6 * DAY_MS;

/// Keeps the rows of jobs that a host lists, and deletes those that no host has listed for too long.
pub(super) fn keep(work: &WorkContext<'_>, jobs: &[Keeping]) -> Result<(), SqliteFailure> {
    let mut statement = work
        .db
        .prepare_cached("INSERT OR REPLACE INTO kept VALUES (?, ?, ?)")?;
    for kept in jobs {
        let until = work.now.clock.utc().plus(kept.span).millis();
        statement.execute(params![id_of(&kept.lock), kept.job.as_str(), until])?;
    }
    sweep(work.db, &work.now)?;
    Ok(())
}

/// Called after every change of a job, so that its rows are kept although no host may list it. Writes
/// at most once a day.
pub(super) fn note_change(
    work: &WorkContext<'_>,
    lock: &Lock,
    job: &JobName,
) -> Result<(), SqliteFailure> {
    let until = work.now.clock.utc().plus(kept_unlisted_for(lock)).millis();
    work.db
        .prepare_cached(
            "INSERT INTO kept VALUES (?1, ?2, ?3) ON CONFLICT (lock, job)
                DO UPDATE SET until = ?3 WHERE until < ?3 - ?4",
        )?
        .execute(params![id_of(lock), job.as_str(), until, DAY_MS])?;
    Ok(())
}

/// Returns how long the rows of a job are kept that is used but not listed.
fn kept_unlisted_for(lock: &Lock) -> Duration {
    match lock.host() {
        Some(_) => HOST_KEPT_FOR,
        None => LISTED_FOR,
    }
}

/// Deletes the rows that are no longer kept. An open run is kept until it is settled.
pub(super) fn sweep(db: &Connection, now: &TransactionTime) -> Result<(), rusqlite::Error> {
    let now = now.clock.utc();
    let kept_until = now.plus(LISTED_FOR).millis();
    let now = now.millis();
    let last: Option<i64> = db
        .query_row("SELECT at FROM sweep", [], |row| row.get(0))
        .optional()?;
    db.execute("DELETE FROM sweep", [])?;
    db.execute("INSERT INTO sweep VALUES (?)", [now])?;
    // Rows that are older than this table, and histories without a ledger.
    db.execute(
        "INSERT OR IGNORE INTO kept SELECT lock, job, ?1 FROM jobs
            UNION SELECT lock, job, ?1 FROM records",
        [kept_until],
    )?;
    if last.is_none_or(|last| !(0..=TRUSTED_PAUSE_MS).contains(&(now - last))) {
        return Ok(());
    }
    let expired = "EXISTS (SELECT 1 FROM kept WHERE kept.lock = rows.lock AND kept.job = rows.job
        AND kept.until < ?1)";
    db.execute(
        &format!("DELETE FROM jobs AS rows WHERE run_id IS NULL AND {expired}"),
        [now],
    )?;
    db.execute(
        &format!(
            "DELETE FROM records AS rows WHERE {expired} AND NOT EXISTS
                (SELECT 1 FROM jobs WHERE jobs.lock = rows.lock AND jobs.job = rows.job)"
        ),
        [now],
    )?;
    db.execute(
        "DELETE FROM kept WHERE until < ?1 AND NOT EXISTS
            (SELECT 1 FROM jobs WHERE jobs.lock = kept.lock AND jobs.job = kept.job)",
        [now],
    )?;
    Ok(())
}
