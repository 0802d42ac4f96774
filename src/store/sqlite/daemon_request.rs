//! Requests to daemons, and the output of triggered runs. They are rows with the texts that Redis keeps
//! too.

use rusqlite::{OptionalExtension as _, params};

use super::context::WorkContext;
use super::error::SqliteFailure;
use crate::names::{HostName, RunId};
use crate::store::contract::{OUTPUT_KEPT_FOR, REQUEST_KEPT_FOR, REQUESTS_KEPT, StoredParts};
use crate::store::{DaemonRequest, Filed, FiledRequest, OutputChunk, RequestReply};
use crate::time::Timestamp;

/// The number of the row that has, as its text, the number that the reader wants next.
const READ: i64 = -1;

pub(super) fn file(
    work: &WorkContext<'_>,
    request: &DaemonRequest,
    deadline: Timestamp,
) -> Result<Filed, SqliteFailure> {
    let now = work.now.clock.utc();
    work.db
        .prepare_cached("DELETE FROM requests WHERE filed_at <= ?")?
        .execute([now.minus(REQUEST_KEPT_FOR).millis()])?;
    let (is_known, kept): (bool, i64) = work.db.query_row(
        "SELECT coalesce(max(id = ?), 0), count(*) FROM requests",
        [request.id.as_str()],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?;
    if is_known {
        return Ok(Filed::Kept);
    }
    if deadline <= now {
        return Ok(Filed::Late);
    }
    if usize::try_from(kept).unwrap_or(0) >= REQUESTS_KEPT {
        return Ok(Filed::Full);
    }
    work.db
        .prepare_cached(
            "INSERT INTO requests (id, host, filed_at, deadline, request) VALUES (?, ?, ?, ?, ?)",
        )?
        .execute(params![
            request.id.as_str(),
            request.host.as_str(),
            now.millis(),
            deadline.millis(),
            request.text(),
        ])?;
    work.filed.set(true);
    Ok(Filed::Kept)
}

pub(super) fn take(work: &WorkContext<'_>, id: &RunId) -> Result<bool, SqliteFailure> {
    let now = work.now.clock.utc().millis();
    let taken = work
        .db
        .prepare_cached(
            "UPDATE requests SET taken = 1 WHERE id = ? AND taken = 0 AND deadline > ?",
        )?
        .execute(params![id.as_str(), now])?;
    Ok(taken == 1)
}

pub(super) fn reply(
    work: &WorkContext<'_>,
    id: &RunId,
    reply: &RequestReply,
) -> Result<(), SqliteFailure> {
    work.db
        .prepare_cached("UPDATE requests SET reply = ? WHERE id = ?")?
        .execute(params![reply.text(), id.as_str()])?;
    Ok(())
}

pub(super) fn list(
    work: &WorkContext<'_>,
    host: Option<&HostName>,
) -> Result<Vec<FiledRequest>, SqliteFailure> {
    let now = work.now.clock.utc();
    let mut statement = work.db.prepare_cached(
        "SELECT id, host, filed_at, deadline, request, taken, coalesce(reply, '') FROM requests
         WHERE ?1 IS NULL OR host = ?1 ORDER BY id",
    )?;
    let mut rows = statement.query([host.map(HostName::as_str)])?;
    let mut filed = Vec::new();
    while let Some(row) = rows.next()? {
        let text = |column| Ok::<_, rusqlite::Error>(row.get_ref(column)?.as_str().unwrap_or(""));
        let millis = |column| Ok::<_, rusqlite::Error>(Timestamp::from_millis(row.get(column)?));
        filed.extend(FiledRequest::parse(&StoredParts {
            id: text(0)?,
            host: text(1)?,
            age: now.since(millis(2)?),
            left: millis(3)?.since(now),
            taken: row.get(5)?,
            request: text(4)?,
            reply: text(6)?,
        }));
    }
    Ok(filed)
}

pub(super) fn send(
    work: &WorkContext<'_>,
    (run, number): (&RunId, u64),
    chunk: &OutputChunk,
) -> Result<u64, SqliteFailure> {
    let now = work.now.clock.utc();
    work.db
        .prepare_cached("DELETE FROM request_output WHERE at <= ?")?
        .execute([now.minus(OUTPUT_KEPT_FOR).millis()])?;
    write(work, run, stored(number), &chunk.text())?;
    let read: Option<String> = work
        .db
        .prepare_cached("SELECT text FROM request_output WHERE run = ? AND number = ?")?
        .query_row(params![run.as_str(), READ], |row| row.get(0))
        .optional()?;
    Ok(read.and_then(|read| read.parse().ok()).unwrap_or(0))
}

pub(super) fn receive(
    work: &WorkContext<'_>,
    run: &RunId,
    from: u64,
) -> Result<Vec<(u64, OutputChunk)>, SqliteFailure> {
    work.db
        .prepare_cached("DELETE FROM request_output WHERE run = ? AND number BETWEEN 0 AND ?")?
        .execute(params![run.as_str(), stored(from) - 1])?;
    let mut statement = work.db.prepare_cached(
        "SELECT number, text FROM request_output WHERE run = ? AND number >= 0 ORDER BY number",
    )?;
    let mut rows = statement.query([run.as_str()])?;
    let mut chunks = Vec::new();
    while let Some(row) = rows.next()? {
        let number = u64::try_from(row.get::<_, i64>(0)?).unwrap_or(0);
        let chunk = OutputChunk::parse(row.get_ref(1)?.as_str().unwrap_or(""));
        chunks.extend(chunk.map(|chunk| (number, chunk)));
    }
    write(work, run, READ, &from.to_string())?;
    Ok(chunks)
}

fn write(
    work: &WorkContext<'_>,
    run: &RunId,
    number: i64,
    text: &str,
) -> Result<(), SqliteFailure> {
    let at = work.now.clock.utc().millis();
    work.db
        .prepare_cached("INSERT OR REPLACE INTO request_output VALUES (?, ?, ?, ?)")?
        .execute(params![run.as_str(), number, text, at])?;
    Ok(())
}

fn stored(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
