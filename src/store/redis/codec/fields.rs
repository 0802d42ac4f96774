//! Fields that several replies contain. The scripts write them in the text forms of
//! [`protocol`](crate::store::protocol).

use super::keys::Key;
use super::reply::Items;
use crate::names::RunId;
use crate::store::protocol::{
    Pause, Waiting, decided_beyond_of_text, pauses_of_text, waiting_of_text,
};
use crate::store::redis::failure::RedisFailure;
use crate::store::{Fingerprint, Head, OpenRun};
use crate::time::Timestamp;

/// Reads the decided instants beyond the watermark.
pub(in crate::store::redis) fn decided_beyond(text: &str) -> Result<Vec<Timestamp>, RedisFailure> {
    decided_beyond_of_text(text)
        .ok_or_else(|| RedisFailure::corrupt(format!("what a job has decided reads {text:?}")))
}

/// Reads the pauses of a job.
pub(in crate::store::redis) fn pauses(text: &str) -> Result<Vec<Pause>, RedisFailure> {
    pauses_of_text(text)
        .ok_or_else(|| RedisFailure::corrupt(format!("the pauses of a job read {text:?}")))
}

/// Reads one pause.
pub(super) fn pause(text: &str) -> Result<Pause, RedisFailure> {
    let mut pauses = pauses(text)?;
    let pause = pauses.pop().filter(|_| pauses.is_empty());
    pause.ok_or_else(|| RedisFailure::corrupt(format!("a pause reads {text:?}")))
}

/// Reads the fingerprints of a job, and when each was first seen.
pub(in crate::store::redis) fn fingerprints(
    lines: &str,
) -> Result<Vec<(Fingerprint, Timestamp)>, RedisFailure> {
    lines
        .lines()
        .map(|line| {
            line.split_once(' ')
                .and_then(|(at, fingerprint)| {
                    let at = Timestamp::from_millis(at.parse().ok()?);
                    Some((Fingerprint(fingerprint.into()), at))
                })
                .ok_or_else(|| RedisFailure::corrupt(format!("a job's fingerprint reads {line:?}")))
        })
        .collect()
}

/// Reads the open run from the rest of a reply, if there is a rest.
pub(super) fn open_run(items: &mut Items) -> Result<Option<OpenRun>, RedisFailure> {
    if items.is_empty() {
        return Ok(None);
    }
    Ok(Some(OpenRun {
        scheduled_at: items.optional_timestamp()?,
        run_id: RunId::from_text(&items.text()?),
        by: items.text()?,
        attempt: items.unsigned()?,
        started_at: items.timestamp()?,
        remaining: items.duration()?,
    }))
}

/// Reads a waiting list.
pub(in crate::store::redis) fn waiting(text: &str) -> Result<Vec<Head>, RedisFailure> {
    let entries = waiting_of_text(text)
        .ok_or_else(|| RedisFailure::corrupt(format!("a job's waiting list reads {text:?}")))?;
    Ok(entries.iter().map(Waiting::head).collect())
}

/// Logs that a key had a type that cronlatch does not write, and was replaced.
pub(super) fn log_replaced(key: Key<'_>) {
    tracing::warn!(
        "replaced the key {key}, which was of another type than cronlatch writes: another program \
         may use the same prefix. Look for its keys with `redis-cli --scan`, and give one of the two \
         another prefix"
    );
}
