//! Which daemons live, by their own word.

use std::time::Duration;

use rusqlite::params;
use serde::{Deserialize, Serialize};

use super::error::Failure;
use super::rows::stored;
use super::worker::Work;
use crate::names::HostName;
use crate::store::{Fingerprint, HostInfo, HostReport};
use crate::time::Timestamp;

/// What is kept of [`HostInfo`] besides the name.
#[derive(Serialize, Deserialize)]
struct Kept {
    config: String,
    version: String,
    running: usize,
    pid: u32,
    draining: bool,
    started_at: Timestamp,
    /// Earlier versions did not measure it.
    #[serde(default)]
    clock_offset_ms: Option<i64>,
}

pub(super) fn announce(
    work: &Work<'_>,
    host: &HostInfo,
    valid_for: Duration,
) -> Result<(), Failure> {
    let kept = Kept {
        config: host.config.0.clone(),
        version: host.version.clone(),
        running: host.running,
        pid: host.pid,
        draining: host.draining,
        started_at: host.started_at,
        clock_offset_ms: host.clock_offset_ms,
    };
    let info = serde_json::to_string(&kept)
        .map_err(|e| Failure::Unreadable(format!("a host that cannot be written: {e}")))?;
    let valid_for = u64::try_from(valid_for.as_millis()).unwrap_or(u64::MAX);
    let now = &work.now;
    work.db
        .prepare_cached("INSERT OR REPLACE INTO hosts VALUES (?, ?, ?, ?, ?)")?
        .execute(params![
            host.host.as_str(),
            info,
            now.clock.utc().millis(),
            now.boot,
            stored(now.clock.lease.saturating_add(valid_for)),
        ])?;
    work.db
        .prepare_cached("DELETE FROM hosts WHERE boot <> ? OR ends <= ?")?
        .execute(params![now.boot, stored(now.clock.lease)])?;
    Ok(())
}

pub(super) fn living(work: &Work<'_>) -> Result<Vec<HostReport>, Failure> {
    let mut statement = work.db.prepare_cached(
        "SELECT host, info, seen_at FROM hosts WHERE boot = ? AND ends > ? ORDER BY host",
    )?;
    let rows = statement
        .query_map(
            params![work.now.boot, stored(work.now.clock.lease)],
            |row| {
                Ok((
                    row.get::<_, String>(0)?,
                    row.get::<_, String>(1)?,
                    row.get::<_, i64>(2)?,
                ))
            },
        )?
        .collect::<Result<Vec<_>, _>>()?;
    rows.iter()
        .map(|(host, info, seen_at)| {
            let unreadable = |e: String| Failure::Unreadable(format!("host {host}: {e}"));
            let kept: Kept = serde_json::from_str(info).map_err(|e| unreadable(e.to_string()))?;
            Ok(HostReport {
                info: HostInfo {
                    host: HostName::parse(host).map_err(|e| unreadable(e.to_string()))?,
                    config: Fingerprint(kept.config),
                    version: kept.version,
                    running: kept.running,
                    pid: kept.pid,
                    draining: kept.draining,
                    started_at: kept.started_at,
                    clock_offset_ms: kept.clock_offset_ms,
                },
                seen_at: Timestamp::from_millis(*seen_at),
            })
        })
        .collect()
}
