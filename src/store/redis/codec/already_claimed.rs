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
    call.key(&keys.lock).key(keys.job(job));
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

/// Reads `ATTEMPT MS RUN_ID HOST`. The claim reports what is damaged.
fn running(text: &str) -> Option<RunStatus> {
    let mut words = text.splitn(4, ' ');
    let mut word = || words.next();
    let number = |word: &str| word.bytes().all(|it| it.is_ascii_digit());
    let attempt = word().filter(|it| number(it))?.parse().ok()?;
    let left: u64 = word().filter(|it| number(it))?.parse().ok()?;
    Some(RunStatus::Running {
        run_id: RunId::from_text(word()?),
        by: word()?.to_owned(),
        attempt,
        remaining: Duration::from_millis(left.max(1)),
    })
}
