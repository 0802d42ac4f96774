//! `renew`, `finish` and `settle`: their calls and answers.

use std::time::Duration;

use redis::Value;

use super::claim::{flag, millis, optional};
use super::failure::RedisFailure;
use super::keys::{self, LockKeys};
use super::link::{Call, RESPONSE_TIMEOUT};
use super::record::{pairs, word};
use super::reply::{integer, text};
use crate::ground::timing;
use crate::names::Prefix;
use crate::store::protocol::{longest_counted, terms_text};
use crate::store::{Attempt, Finish, FinishReply, RenewReply, Renewal, Settle};

pub(super) fn renew_call(prefix: &Prefix, renewals: &[Renewal]) -> Call {
    let mut call = Call::default();
    call.key(keys::store(prefix));
    call.arg(&longest_counted(renewals).as_millis());
    for renewal in renewals {
        let keys = LockKeys::of(prefix, &renewal.grant.lock);
        call.key(keys.lock).key(keys.state);
        call.arg(&flag(renewal.grant.lock.exclusive))
            .arg(&renewal.grant.token)
            .arg(&millis(renewal.grant.ttl));
    }
    call
}

/// The renewals once more, with all that the store needs to take the leases back.
pub(super) fn reassert_call(prefix: &Prefix, renewals: &[&Renewal]) -> Call {
    let mut call = Call::default();
    call.key(keys::store(prefix));
    for renewal in renewals {
        let keys = LockKeys::of(prefix, &renewal.grant.lock);
        call.key(&keys.lock).key(&keys.state);
        call.arg(&flag(renewal.grant.lock.exclusive))
            .arg(&renewal.grant.token)
            .arg(&millis(renewal.grant.ttl))
            .arg(&renewal.grant.fence)
            .arg(&renewal.grant.run_id);
        if let Some(run) = &renewal.run {
            call.key(keys.job(&run.job)).key(keys.runs(&run.job));
            call.arg(&word(run.kind))
                .arg(&optional(run.scheduled_at))
                .arg(&run.attempt)
                .arg(&run.started_at.millis())
                .arg(&terms_text(&run.terms));
        } else {
            call.key(&keys.state).key(&keys.state);
            call.arg("").arg("").arg("").arg("").arg("");
        }
    }
    call
}

/// How long a batch of renewals may take: as long as the shortest lease in it allows.
pub(super) fn renew_limit(renewals: &[Renewal]) -> Duration {
    renewals
        .iter()
        .map(|renewal| timing::response_timeout(renewal.grant.ttl))
        .min()
        .unwrap_or(RESPONSE_TIMEOUT)
}

/// `None` where the store may have forgotten the lease.
pub(super) fn renew_read(
    value: Value,
    count: usize,
) -> Result<Vec<Option<RenewReply>>, RedisFailure> {
    let letters = text(value)?;
    let replies: Option<Vec<Option<RenewReply>>> = letters
        .chars()
        .map(|letter| match letter {
            'R' => Some(Some(RenewReply::Renewed)),
            'T' => Some(Some(RenewReply::Taken)),
            'A' => Some(Some(RenewReply::Absent)),
            'F' => Some(None),
            _ => None,
        })
        .collect();
    replies
        .filter(|replies| replies.len() == count)
        .ok_or_else(|| {
            RedisFailure::corrupt(format!("the answer to {count} renewals is {letters:?}"))
        })
}

pub(super) fn finish_call(prefix: &Prefix, finish: &Finish) -> Call {
    let keys = LockKeys::of(prefix, &finish.lock);
    let mut call = Call::default();
    call.key(&keys.lock)
        .key(&keys.state)
        .key(keys::store(prefix));
    let job = finish
        .job
        .as_ref()
        .or(finish.record.as_ref().map(|record| &record.job));
    if let Some(job) = job {
        call.key(keys.job(job)).key(keys.runs(job));
    }
    call.arg(&flag(finish.lock.exclusive))
        .arg(&finish.token)
        .arg(&keys.released)
        .arg(&flag(finish.give_back))
        .arg(&finish.keep)
        .arg(&flag(finish.record.is_some()));
    for (name, value) in finish.record.iter().flat_map(pairs) {
        call.arg(&name).arg(&value);
    }
    call
}

pub(super) fn finish_read(prefix: &Prefix, value: Value) -> Result<FinishReply, RedisFailure> {
    match text(value)?.as_str() {
        "R" => Ok(FinishReply::Released),
        "L" => Ok(FinishReply::Lost),
        moved if moved.starts_with('M') => Ok(FinishReply::Moved {
            to: keys::lock_of(prefix, &moved[1..]),
        }),
        other => Err(RedisFailure::corrupt(format!(
            "the answer to a finish is {other:?}"
        ))),
    }
}

pub(super) fn settle_call(prefix: &Prefix, settle: &Settle) -> Call {
    let keys = LockKeys::of(prefix, &settle.lock);
    let mut call = Call::default();
    call.key(&keys.lock)
        .key(&keys.state)
        .key(keys.job(&settle.job))
        .key(keys.runs(&settle.job))
        .key(keys::store(prefix));
    call.arg(&flag(settle.lock.exclusive))
        .arg(&settle.run_id)
        .arg(&settle.keep);
    call
}

pub(super) fn settle_read(value: &Value) -> Result<bool, RedisFailure> {
    integer(value).map(|done| done == 1)
}

pub(super) fn attempt_call(prefix: &Prefix, attempt: &Attempt) -> Call {
    let keys = LockKeys::of(prefix, &attempt.lock);
    let mut call = Call::default();
    call.key(keys.job(&attempt.job)).key(&keys.lock);
    call.arg(&attempt.token).arg(&attempt.attempt);
    call
}

pub(super) fn attempt_read(value: &Value) -> Result<bool, RedisFailure> {
    Ok(integer(value)? == 1)
}
