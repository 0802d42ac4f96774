//! `already_claimed`: its call and its reply. The script is `scripts/already_claimed.lua`.

use std::time::Duration;

use redis::Value;

use super::call::Call;
use super::keys::LockKeys;
use super::reply::text;
use crate::names::{Prefix, RunId};
use crate::store::protocol::{LEAD, lead_of};
use crate::store::redis::failure::RedisFailure;
use crate::store::{Claim, ClaimTarget, RunStatus};

/// Returns the question whether another host has claimed the occurrence; `None` if the claim is for
/// something else, or excludes no other host.
pub(in crate::store::redis) fn call(prefix: &Prefix, claim: &Claim) -> Option<Call> {
    let ClaimTarget::Occurrence { job, due, .. } = &claim.what else {
        return None;
    };
    if !claim.lock.exclusive {
        return None;
    }
    let keys = LockKeys::of(prefix, &claim.lock);
    // Until then the claim may have to wait, and the ledger may be ahead of the clock.
    let earliest = due.not_before.minus(lead_of(due));
    let earliest = earliest.max(due.scheduled_at.minus(LEAD));
    let mut call = Call::default();
    call.key(&keys.lock()).key(&keys.job(job));
    call.arg(&due.scheduled_at.millis())
        .arg(&format_args!(" {}\n", due.fingerprint.0))
        .arg(&earliest.millis());
    Some(call)
}

/// Returns how the occurrence was claimed; `None` if the claim must be sent.
pub(in crate::store::redis) fn read(value: Value) -> Result<Option<RunStatus>, RedisFailure> {
    if value == Value::Nil {
        return Ok(None);
    }
    let reply = text(value)?;
    Ok(match reply.as_str() {
        "decided" => Some(RunStatus::Decided),
        run => running(run),
    })
}

/// Reads the lines `ATTEMPT`, `MS`, `RUN_ID` and `HOST`. The claim reports what is damaged.
fn running(text: &str) -> Option<RunStatus> {
    let lines: Vec<_> = text.split('\n').collect();
    let &[attempt, left, run_id, host] = lines.as_slice() else {
        return None;
    };
    let is_number = |it: &str| it.bytes().all(|it| it.is_ascii_digit());
    let is_word = |it: &str| !it.is_empty() && !it.contains(char::is_whitespace);
    if !(is_number(attempt) && is_number(left) && is_word(run_id) && is_word(host)) {
        return None;
    }
    let left: u64 = left.parse().ok()?;
    Some(RunStatus::Running {
        run_id: RunId::from_text(run_id),
        by: host.to_owned(),
        attempt: attempt.parse().ok()?,
        remaining: Duration::from_millis(left.max(1)),
    })
}
