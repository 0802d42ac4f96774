//! `renew` and `reassert`: their calls and replies. `reassert` follows for leases that the store may
//! have lost.

use std::time::Duration;

use redis::Value;

use super::call::{Call, flag, millis, optional_instant};
use super::keys::{self, LockKeys};
use super::reply::text;
use crate::ground::timing;
use crate::names::Prefix;
use crate::store::protocol::{longest_counted, terms_text};
use crate::store::redis::RESPONSE_TIMEOUT;
use crate::store::redis::failure::RedisFailure;
use crate::store::{RenewReply, Renewal};

pub(in crate::store::redis) fn call(prefix: &Prefix, renewals: &[Renewal]) -> Call {
    let mut call = Call::default();
    call.key(&keys::store(prefix));
    call.arg(&longest_counted(renewals).as_millis());
    for renewal in renewals {
        let keys = LockKeys::of(prefix, &renewal.grant.lock);
        call.key(&keys.lock()).key(&keys.state());
        call.arg(&flag(renewal.grant.lock.exclusive))
            .arg(renewal.grant.token.as_str())
            .arg(&millis(renewal.grant.ttl));
    }
    call
}

/// Returns the call of `reassert`: the renewals with everything that the store needs to restore the
/// leases.
pub(in crate::store::redis) fn reassert_call(prefix: &Prefix, renewals: &[&Renewal]) -> Call {
    let mut call = Call::default();
    call.key(&keys::store(prefix));
    for renewal in renewals {
        let keys = LockKeys::of(prefix, &renewal.grant.lock);
        call.key(&keys.lock()).key(&keys.state());
        call.arg(&flag(renewal.grant.lock.exclusive))
            .arg(renewal.grant.token.as_str())
            .arg(&millis(renewal.grant.ttl))
            .arg(&renewal.grant.fence)
            .arg(&renewal.grant.run_id);
        if let Some(run) = &renewal.run {
            call.key(&keys.job(&run.job)).key(&keys.runs(&run.job));
            call.arg(run.kind.word())
                .arg(&optional_instant(run.scheduled_at))
                .arg(&run.attempt)
                .arg(&run.started_at.millis())
                .arg(&terms_text(&run.terms));
        } else {
            call.key(&keys.state()).key(&keys.state());
            call.arg("").arg("").arg("").arg("").arg("");
        }
    }
    call
}

/// Returns how long a batch of renewals may take, which its shortest lease decides.
pub(in crate::store::redis) fn limit(renewals: &[Renewal]) -> Duration {
    renewals
        .iter()
        .map(|renewal| timing::response_timeout(renewal.grant.ttl))
        .min()
        .unwrap_or(RESPONSE_TIMEOUT)
}

/// Returns `None` for a lease that the store may have lost.
pub(in crate::store::redis) fn read(
    value: Value,
    count: usize,
) -> Result<Vec<Option<RenewReply>>, RedisFailure> {
    letters(value, count, |letter| match letter {
        'R' => Some(Some(RenewReply::Renewed)),
        'T' => Some(Some(RenewReply::Taken)),
        'A' => Some(Some(RenewReply::Absent)),
        'F' => Some(None),
        _ => None,
    })
}

/// Reads a reply that has a letter for each of `count` leases. `meaning` returns `None` for a letter that
/// the script does not write.
pub(in crate::store::redis) fn letters<T>(
    value: Value,
    count: usize,
    meaning: impl Fn(char) -> Option<T>,
) -> Result<Vec<T>, RedisFailure> {
    let letters = text(value)?;
    let replies: Option<Vec<T>> = letters.chars().map(meaning).collect();
    replies
        .filter(|replies| replies.len() == count)
        .ok_or_else(|| {
            RedisFailure::corrupt(format!("the reply for {count} leases is {letters:?}"))
        })
}
