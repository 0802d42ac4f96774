//! `settle`: its call and its reply. The script is `scripts/settle.lua`.

use redis::Value;

use super::call::{Call, flag};
use super::keys::{self, Key, LockKeys};
use super::reply::integer;
use super::summary::retention;
use crate::names::Prefix;
use crate::store::Settle;
use crate::store::redis::failure::RedisFailure;

/// `all_failures` is the key of the failures of all jobs.
pub(in crate::store::redis) fn call(
    prefix: &Prefix,
    settle: &Settle,
    all_failures: Option<Key<'_>>,
) -> Call {
    let keys = LockKeys::of(prefix, &settle.lock);
    let mut call = Call::default();
    call.key(&keys.lock())
        .key(&keys.state())
        .key(&keys.job(&settle.job))
        .key(&keys.runs(&settle.job))
        .key(&keys::store(prefix))
        .key(&keys.failures(&settle.job));
    if let Some(all) = all_failures {
        call.key(&all);
    }
    call.arg(&flag(settle.lock.exclusive))
        .arg(&settle.run_id)
        .arg(&retention(settle.keep));
    call
}

pub(in crate::store::redis) fn read(value: &Value) -> Result<bool, RedisFailure> {
    integer(value).map(|done| done == 1)
}
