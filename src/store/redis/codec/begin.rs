//! `begin`: its call and its reply. The script is `scripts/begin.lua`.

use redis::Value;

use super::call::{Call, flag, millis};
use super::keys::{self, LockKeys};
use super::reply::Items;
use crate::names::Prefix;
use crate::store::Beginning;
use crate::store::redis::failure::RedisFailure;

pub(in crate::store::redis) fn call(prefix: &Prefix, jobs: &[Beginning]) -> Call {
    let mut call = Call::default();
    call.key(&keys::store(prefix));
    for job in jobs {
        let keys = LockKeys::of(prefix, &job.lock);
        call.key(&keys.job(&job.job)).key(&keys.lock());
        call.arg(&*job.fingerprint.0)
            .arg(&millis(job.ttl))
            .arg(&job.counts.at.millis())
            .arg(&flag(job.counts.again));
    }
    call
}

pub(in crate::store::redis) fn read(value: Value) -> Result<Vec<bool>, RedisFailure> {
    let mut items = Items::of(value)?;
    let mut all = Vec::new();
    while !items.is_empty() {
        all.push(items.integer()? == 1);
    }
    Ok(all)
}
