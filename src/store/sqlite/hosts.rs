//! The announcements of hosts. They expire by the boot clock, or with the boot.

use std::time::Duration;

use rusqlite::{OptionalExtension as _, params};

use super::context::WorkContext;
use super::error::{RowKey, SqliteFailure};
use super::rows::stored;
use crate::store::contract::{HostHeartbeat, VANISHED_FOR};
use crate::store::{HostInfo, HostReport};
use crate::time::Timestamp;

pub(super) fn announce(
    work: &WorkContext<'_>,
    host: &HostInfo,
    valid_for: Duration,
) -> Result<(), SqliteFailure> {
    let info = serde_json::to_string(&HostHeartbeat::of(host))
        .map_err(|e| RowKey::of("hosts", host.host.as_str()).unreadable(e))?;
    let now = &work.now;
    if valid_for.is_zero() {
        return withdraw(work, host);
    }
    work.db
        .prepare_cached("INSERT OR REPLACE INTO hosts VALUES (?, ?, ?, ?, ?)")?
        .execute(params![
            host.host.as_str(),
            info,
            now.clock.utc().millis(),
            now.boot,
            stored(now.clock.lease.saturating_add(millis(valid_for))),
        ])?;
    work.db
        .prepare_cached("DELETE FROM hosts WHERE boot <> ? OR ends <= ?")?
        .execute(params![now.boot, long_ago(work)])?;
    Ok(())
}

/// Removes the announcement of this daemon. Another one under the name of this host may have replaced it.
fn withdraw(work: &WorkContext<'_>, host: &HostInfo) -> Result<(), SqliteFailure> {
    let name = host.host.as_str();
    let kept = work
        .db
        .prepare_cached("SELECT info FROM hosts WHERE host = ?")?
        .query_row([name], |row| row.get::<_, String>(0))
        .optional()?;
    let is_of_another = kept
        .and_then(|info| serde_json::from_str::<HostHeartbeat>(&info).ok())
        .is_some_and(|kept| !kept.is_by(host));
    if !is_of_another {
        work.db
            .prepare_cached("DELETE FROM hosts WHERE host = ?")?
            .execute([name])?;
    }
    Ok(())
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The end of the announcements that are forgotten.
fn long_ago(work: &WorkContext<'_>) -> i64 {
    stored(work.now.clock.lease).saturating_sub(stored(millis(VANISHED_FOR)))
}

pub(super) fn living(work: &WorkContext<'_>) -> Result<Vec<HostReport>, SqliteFailure> {
    let now = stored(work.now.clock.lease);
    ending_within(work, (now, i64::MAX))
}

pub(super) fn vanished(work: &WorkContext<'_>) -> Result<Vec<HostReport>, SqliteFailure> {
    let now = stored(work.now.clock.lease);
    ending_within(work, (long_ago(work), now))
}

/// The hosts whose announcements end after the first instant and not after the second one.
fn ending_within(
    work: &WorkContext<'_>,
    (from, until): (i64, i64),
) -> Result<Vec<HostReport>, SqliteFailure> {
    let mut statement = work.db.prepare_cached(
        "SELECT info, seen_at FROM hosts WHERE boot = ? AND ends > ? AND ends <= ? ORDER BY host",
    )?;
    let rows = statement
        .query_map(params![work.now.boot, from, until], |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?))
        })?
        .collect::<Result<Vec<_>, _>>()?;
    // A row that cannot be read does not hide the others. It is deleted when it expires.
    Ok(rows
        .iter()
        .filter_map(|(info, seen_at)| {
            let word: HostHeartbeat = serde_json::from_str(info).ok()?;
            Some(HostReport {
                info: word.into_info().ok()?,
                seen_at: Timestamp::from_millis(*seen_at),
            })
        })
        .collect())
}
