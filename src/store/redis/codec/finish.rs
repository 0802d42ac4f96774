//! `finish`: its call and its reply. The script is `scripts/finish.lua`.

use redis::Value;

use super::call::{Call, flag};
use super::keys::{self, LockKeys, job_keys};
use super::record::pairs;
use super::reply::text;
use super::summary::retention;
use crate::names::Prefix;
use crate::store::redis::failure::RedisFailure;
use crate::store::{Finish, FinishReply};

/// `all_failures` is the key of the failures of all jobs.
pub(in crate::store::redis) fn call(
    prefix: &Prefix,
    finish: &Finish,
    all_failures: Option<&str>,
) -> Call {
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
        job_keys(&mut call, (&keys, job), all_failures);
    }
    call.arg(&flag(finish.lock.exclusive))
        .arg(finish.token.as_str())
        .arg(&keys.released)
        .arg(&flag(finish.give_back))
        .arg(&retention(finish.keep))
        .arg(&flag(finish.record.is_some()));
    for (name, value) in finish.record.iter().flat_map(pairs) {
        call.arg(&name).arg(&value);
    }
    call
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
