//! `finish`: its call and its reply. The script is `scripts/finish.lua`.

use std::borrow::Cow;

use redis::Value;

use super::call::{Call, flag};
use super::keys::{self, Key, LockKeys, job_keys};
use super::record::pairs;
use super::reply::text;
use super::summary::{line as summary_line, retention};
use crate::names::Prefix;
use crate::store::redis::failure::RedisFailure;
use crate::store::{Finish, FinishReply, Outcome, Record};

/// `all_failures` is the key of the failures of all jobs.
pub(in crate::store::redis) fn call(
    prefix: &Prefix,
    finish: &Finish,
    all_failures: Option<Key<'_>>,
) -> Call {
    let keys = LockKeys::of(prefix, &finish.lock);
    let mut call = Call::default();
    call.key(&keys.lock())
        .key(&keys.state())
        .key(&keys::store(prefix));
    let job = finish
        .job
        .as_ref()
        .or(finish.record.as_ref().map(|record| &record.job));
    if let Some(job) = job {
        job_keys(&mut call, (keys, job), all_failures);
    }
    call.arg(&flag(finish.lock.exclusive))
        .arg(finish.token.as_str())
        .arg(&keys.released())
        .arg(&flag(finish.give_back))
        .arg(&retention(finish.keep))
        .arg(&flag(finish.record.is_some()));
    if let Some(record) = &finish.record {
        let pairs = pairs(record);
        success(&mut call, record, &pairs);
        for (name, value) in &pairs {
            call.arg(name).arg(value);
        }
    }
    call
}

/// Adds what the short way of the usual finish writes and compares (`ended.lua`): of a run of one occurrence
/// that has succeeded its line of the summary and its instants, otherwise nothing.
fn success(call: &mut Call, record: &Record, pairs: &[(&str, Cow<'_, str>)]) {
    let is_usual = record.outcome == Outcome::Succeeded
        && record.run_id.is_some()
        && record.until.is_none()
        && record.count.is_none();
    match (record.scheduled_at, record.finished_at) {
        (Some(due), Some(ended)) if is_usual => {
            let (due, ended) = (due.millis(), ended.millis());
            call.arg(&summary_line(pairs)).arg(&due).arg(&ended);
        }
        _ => {
            call.arg("").arg("").arg("");
        }
    }
}

pub(in crate::store::redis) fn read(
    prefix: &Prefix,
    value: Value,
) -> Result<FinishReply, RedisFailure> {
    match text(value)?.as_str() {
        "R" => Ok(FinishReply::Released),
        "L" => Ok(FinishReply::Lost),
        moved if moved.starts_with('M') => Ok(FinishReply::Moved {
            to: keys::lock_of(prefix, &moved[1..]),
        }),
        other => Err(RedisFailure::corrupt(format!(
            "the reply to a finish is {other:?}"
        ))),
    }
}
