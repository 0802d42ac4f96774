//! The tables, their versions, and the migration from one version to the next. A file of a newer
//! version is rejected.

use std::time::{Duration, Instant};

use rusqlite::{Connection, TransactionBehavior, params};

use super::clock::TransactionTime;
use super::context::{BUSY, WorkContext};
use super::error::SqliteFailure;
use super::{history, rows};
use crate::store::StoreError;

/// Identifies a file of cronlatch (`PRAGMA application_id`): `CrLt`.
const APPLICATION: i32 = 0x4372_4C74;

/// The migrations from each version to the next. Their number is the current version.
const STEPS: &[&str] = &[
    "
CREATE TABLE marker (
    format INTEGER NOT NULL,
    since  INTEGER NOT NULL        -- UTC, ms
) STRICT;

-- A lock: its name, or `key:` and the raw key.
CREATE TABLE locks (
    lock      TEXT PRIMARY KEY,
    boot      TEXT NOT NULL,       -- the boot that the ends below are counted in
    key_value TEXT,                -- who holds it: what Redis has as PREFIX:{LOCK}:lock
    key_end   INTEGER,             -- ms since that boot
    fence     INTEGER NOT NULL,
    token     TEXT,
    lease_end INTEGER NOT NULL,    -- ms since that boot
    run_id    TEXT,
    used_at   INTEGER NOT NULL     -- UTC, ms
) STRICT, WITHOUT ROWID;

-- The tokens that ended, apart from `locks`, whose rows every renewal writes.
CREATE TABLE finished (
    lock   TEXT PRIMARY KEY,
    tokens TEXT NOT NULL           -- JSON: [[token, ending], ...], oldest first
) STRICT, WITHOUT ROWID;

CREATE TABLE jobs (
    lock         TEXT NOT NULL,
    job          TEXT NOT NULL,
    last         INTEGER NOT NULL, -- UTC, ms
    fingerprints TEXT NOT NULL,    -- JSON: [[fingerprint, first seen], ...], oldest first
    run_id       TEXT,             -- the open run; NULL when there is none
    token        TEXT,
    scheduled_at INTEGER,
    attempt      INTEGER,
    kind         TEXT,
    fence        INTEGER,
    started_at   INTEGER,
    host         TEXT,
    prev_last    INTEGER,
    PRIMARY KEY (lock, job)
) STRICT, WITHOUT ROWID;

CREATE TABLE records (
    id     INTEGER PRIMARY KEY,
    lock   TEXT NOT NULL,
    job    TEXT NOT NULL,
    record TEXT NOT NULL           -- JSON, as `history --json` prints it
) STRICT;
CREATE INDEX records_of_job ON records (lock, job, id);

CREATE TABLE hosts (
    host    TEXT PRIMARY KEY,
    info    TEXT NOT NULL,         -- JSON
    seen_at INTEGER NOT NULL,      -- UTC, ms
    boot    TEXT NOT NULL,
    ends    INTEGER NOT NULL       -- ms since that boot
) STRICT, WITHOUT ROWID;
",
    "
-- What each host says about each job: the registry.
CREATE TABLE listings (
    job    TEXT NOT NULL,
    host   TEXT NOT NULL,
    listed INTEGER NOT NULL,       -- 0: the host's list no longer has the job enabled
    entry  TEXT NOT NULL,          -- `Entry::text`
    at     INTEGER NOT NULL,       -- when it was written or refreshed; UTC, ms
    PRIMARY KEY (job, host)
) STRICT, WITHOUT ROWID;
CREATE INDEX listings_of_host ON listings (host);
",
    "
-- The terms of the open run, and the waiting list, as in `store::protocol::text`.
ALTER TABLE jobs DROP COLUMN prev_last;
ALTER TABLE jobs ADD COLUMN terms TEXT;
ALTER TABLE jobs ADD COLUMN waiting TEXT NOT NULL DEFAULT '';
",
    "
-- Until when a job's ledger and history stay.
CREATE TABLE kept (
    lock  TEXT NOT NULL,
    job   TEXT NOT NULL,
    until INTEGER NOT NULL,        -- UTC, ms
    PRIMARY KEY (lock, job)
) STRICT, WITHOUT ROWID;
-- When that was last looked at; one row, UTC in ms.
CREATE TABLE sweep (at INTEGER NOT NULL) STRICT;
",
    "
-- Which lock the job uses, if that ever changed: JSON, `store::protocol::Moved`.
ALTER TABLE jobs ADD COLUMN moved TEXT;
",
    "
-- The runs by hand that every daemon looks after.
CREATE TABLE manual (
    run_id   TEXT PRIMARY KEY,
    run      TEXT NOT NULL,        -- `ManualRun::text`
    noted_at INTEGER NOT NULL      -- UTC, ms
) STRICT, WITHOUT ROWID;
",
    "
-- The occurrences after `last` that are decided: UTC in ms, separated by spaces.
ALTER TABLE jobs ADD COLUMN beyond TEXT NOT NULL DEFAULT '';
",
    "
-- The pauses: a line a pause, as `store::protocol::pauses_text` writes it.
ALTER TABLE jobs ADD COLUMN pauses TEXT NOT NULL DEFAULT '';
",
    "
-- The newest verdicts: JSON, `store::Summary`.
ALTER TABLE jobs ADD COLUMN summary TEXT;
-- Whether a record is a failure (1 or 0), and when it was written: UTC, ms.
ALTER TABLE records ADD COLUMN failed INTEGER NOT NULL DEFAULT 0;
ALTER TABLE records ADD COLUMN at INTEGER NOT NULL DEFAULT 0;
UPDATE records SET at = 1000 * strftime('%s', 'now'); -- `fill_failed_and_at` then sets both from the record
CREATE INDEX failures ON records (id) WHERE failed = 1;
CREATE INDEX failures_of_job ON records (lock, job, id) WHERE failed = 1;
",
    "
-- The requests to daemons, with their replies.
CREATE TABLE requests (
    id       TEXT PRIMARY KEY,
    host     TEXT NOT NULL,
    filed_at INTEGER NOT NULL,     -- UTC, ms
    deadline INTEGER NOT NULL,     -- UTC, ms
    request  TEXT NOT NULL,        -- `DaemonRequest::text`
    taken    INTEGER NOT NULL DEFAULT 0,
    reply    TEXT                  -- `RequestReply::text`
) STRICT, WITHOUT ROWID;
-- The output of triggered runs, for those who wait for it; number -1: what is read next.
CREATE TABLE request_output (
    run    TEXT NOT NULL,
    number INTEGER NOT NULL,
    text   TEXT NOT NULL,          -- `OutputChunk::text`
    at     INTEGER NOT NULL,       -- UTC, ms
    PRIMARY KEY (run, number)
) STRICT, WITHOUT ROWID;
",
    "
-- The jobs of the lists that daemons have.
CREATE TABLE lists (
    fingerprint TEXT PRIMARY KEY,
    jobs        TEXT NOT NULL,     -- `ListedJobs::text`
    until       INTEGER NOT NULL   -- UTC, ms
) STRICT, WITHOUT ROWID;
",
];

/// Returns the version that this program writes, which is the newest that it reads.
pub(super) fn version() -> usize {
    STEPS.len()
}

/// The first version whose records have `failed` and `at`.
const FAILED_AND_AT: usize = 9;

/// Takes the tables from one version to another.
pub(super) fn migrate(db: &Connection, from: usize, to: usize) -> Result<(), rusqlite::Error> {
    for (version, step) in (1..).zip(STEPS).take(to).skip(from) {
        db.execute_batch(step)?;
        if version == FAILED_AND_AT {
            history::fill_failed_and_at(db)?;
        }
    }
    Ok(())
}

/// Marks a new file as one of cronlatch, of this version.
pub(super) fn mark(db: &Connection, now_ms: i64, version: usize) -> Result<(), rusqlite::Error> {
    db.pragma_update(None, "application_id", APPLICATION)?;
    db.execute("INSERT INTO marker VALUES (1, ?)", [now_ms])?;
    note_version(db, version)
}

fn note_version(db: &Connection, version: usize) -> Result<(), rusqlite::Error> {
    db.pragma_update(None, "user_version", stored(version))
}

/// The version as the file has it.
fn stored(version: usize) -> i64 {
    i64::try_from(version).unwrap_or(i64::MAX)
}

/// Checks that the file belongs to cronlatch and has a known version, and migrates it. Changes nothing
/// in another file.
pub(super) fn prepare(db: &mut Connection, now_ms: i64, shown: &str) -> Result<(), StoreError> {
    let store_error = |failure: rusqlite::Error| SqliteFailure::from(failure).store_error(shown);
    inspect(db, shown)?;
    let mode = write_ahead(db).map_err(|failure| failure.store_error(shown))?;
    if !["wal", "memory"].contains(&mode.as_str()) {
        return Err(StoreError::refused(format!(
            "{shown}: its file system does not allow SQLite's write-ahead log"
        )));
    }
    db.execute_batch(
        "PRAGMA synchronous = FULL; PRAGMA journal_size_limit = 16777216;
         PRAGMA temp_store = MEMORY;",
    )
    .map_err(store_error)?;
    if inspect(db, shown)? == stored(version()) {
        return Ok(());
    }
    // Several processes may get here at once. The first one migrates, under the write lock.
    let tx = db
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(store_error)?;
    let found = usize::try_from(inspect(&tx, shown)?).unwrap_or(0);
    migrate(&tx, found, version()).map_err(store_error)?;
    let marked = match found {
        0 => mark(&tx, now_ms, version()),
        _ => note_version(&tx, version()),
    };
    marked.map_err(store_error)?;
    tx.commit().map_err(store_error)
}

/// Switches the file to the write-ahead log. Returns the mode that the file then has.
///
/// The switch reads the file before it writes. If another process writes in between, `SQLite` returns
/// busy without its busy handler, because a reader that waits could cause a deadlock. This connection
/// holds nothing, so it retries for as long as the busy handler would have waited.
fn write_ahead(db: &Connection) -> Result<String, SqliteFailure> {
    let began = Instant::now();
    loop {
        let switched = db.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0));
        match switched.map_err(SqliteFailure::from) {
            Err(failure) if failure.is_busy() && began.elapsed() < BUSY => {
                std::thread::sleep(Duration::from_millis(5));
            }
            outcome => return outcome,
        }
    }
}

/// Returns the version of the file; 0 for an empty file.
fn inspect(db: &Connection, shown: &str) -> Result<i64, StoreError> {
    let store_error = |failure: rusqlite::Error| SqliteFailure::from(failure).store_error(shown);
    let (application, found, objects): (i32, i64, i64) = db
        .query_row(
            "SELECT (SELECT application_id FROM pragma_application_id),
                    (SELECT user_version FROM pragma_user_version),
                    (SELECT count(*) FROM sqlite_schema)",
            [],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
        )
        .map_err(store_error)?;
    if (application, found, objects) == (0, 0, 0) {
        return Ok(0);
    }
    if application != APPLICATION {
        return Err(StoreError::corrupt(format!(
            "{shown} is a database of another program"
        )));
    }
    if found > stored(version()) {
        return Err(StoreError::corrupt(format!(
            "{shown} was written by a newer cronlatch (format {found}; this one reads up to {}): \
             upgrade this program",
            version()
        )));
    }
    Ok(found)
}

/// Initialises an empty store, or returns how many entries there are.
pub(super) fn init(work: &WorkContext<'_>) -> Result<Option<u64>, SqliteFailure> {
    let entries: i64 = work.db.query_row(
        "SELECT (SELECT count(*) FROM locks) + (SELECT count(*) FROM jobs)
              + (SELECT count(*) FROM records) + (SELECT count(*) FROM hosts)",
        [],
        |row| row.get(0),
    )?;
    if entries > 0 {
        return Ok(Some(u64::try_from(entries).unwrap_or(0)));
    }
    let now = work.now.clock.utc().millis();
    work.db.execute("UPDATE marker SET since = ?", [now])?;
    Ok(None)
}

/// Deletes locks without jobs that were not used for an hour, which in Redis expire.
pub(super) fn forget_old_locks(
    db: &Connection,
    now: &TransactionTime,
) -> Result<(), rusqlite::Error> {
    const HOUR_MS: i64 = 3_600_000;
    let before = now.clock.utc().millis().saturating_sub(HOUR_MS);
    // The wall clock may be wrong, so leases that have not ended by the boot clock are kept.
    let forgotten = db.execute(
        "DELETE FROM locks WHERE used_at < ?1 AND (boot <> ?2 OR lease_end <= ?3)
            AND lock NOT IN (SELECT lock FROM jobs)",
        params![before, now.boot, rows::stored(now.clock.lease)],
    )?;
    if forgotten > 0 {
        db.execute(
            "DELETE FROM finished WHERE lock NOT IN (SELECT lock FROM locks)",
            [],
        )?;
    }
    Ok(())
}
