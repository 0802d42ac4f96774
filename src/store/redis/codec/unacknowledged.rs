//! The note in a job's hash that claims of the job are not acknowledged: the calls that write and
//! remove it, and its text.

use redis::Value;

use super::call::Call;
use super::keys::LockKeys;
use crate::names::Prefix;
use crate::store::redis::failure::RedisFailure;
use crate::store::{Claim, ClaimTarget, Unacknowledged};
use crate::time::Timestamp;

/// Returns the call that notes in the job's hash that the claim was not acknowledged.
pub(in crate::store::redis) fn note_call(
    prefix: &Prefix,
    claim: &Claim,
    failure: &RedisFailure,
) -> Option<Call> {
    let (ClaimTarget::Occurrence { due, .. }, Some(shortfall)) = (&claim.what, failure.shortfall())
    else {
        return None;
    };
    let mut call = job_call(prefix, claim)?;
    call.arg(&due.scheduled_at.millis())
        .arg(claim.token.as_str())
        .arg(&shortfall.acknowledged)
        .arg(&shortfall.wanted)
        .arg(&shortfall.server);
    Some(call)
}

/// Returns the call that removes the note, if the reply to an acknowledged claim says that there is one.
pub(in crate::store::redis) fn clear_call(
    prefix: &Prefix,
    claim: &Claim,
    reply: &Value,
) -> Option<Call> {
    // As described in claim.lua.
    let is_noted = matches!(reply, Value::Array(items) if items.len() > 5);
    if !is_noted {
        return None;
    }
    let mut call = job_call(prefix, claim)?;
    call.arg("");
    Some(call)
}

fn job_call(prefix: &Prefix, claim: &Claim) -> Option<Call> {
    let job = claim.what.job()?;
    let keys = LockKeys::of(prefix, &claim.lock);
    let mut call = Call::default();
    call.key(&keys.job(job)).key(&keys.runs(job));
    Some(call)
}

/// Reads a note; `None` if there is none.
pub(in crate::store::redis) fn read(noted: &str) -> Option<Unacknowledged> {
    let mut words = noted.splitn(5, ' ');
    let mut number = || words.next()?.parse::<i64>().ok();
    let (since, at) = (number()?, number()?);
    let (acknowledged, wanted) = (number()?, number()?);
    Some(Unacknowledged {
        server: words.next()?.to_owned(),
        acknowledged: u32::try_from(acknowledged).ok()?,
        wanted: u32::try_from(wanted).ok()?,
        since: Timestamp::from_millis(since),
        at: Timestamp::from_millis(at),
    })
}
