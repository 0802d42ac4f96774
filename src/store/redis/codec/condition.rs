//! `condition`: its call and its reply. The script is `scripts/condition.lua`.

use redis::Value;

use super::call::Call;
use super::keys;
use super::reply::Items;
use crate::names::Prefix;
use crate::store::Condition;
use crate::store::redis::failure::RedisFailure;

pub(in crate::store::redis) fn call(prefix: &Prefix) -> Call {
    let mut call = Call::default();
    call.key(&keys::store(prefix));
    call
}

pub(in crate::store::redis) fn read(value: Value) -> Result<Condition, RedisFailure> {
    let mut items = Items::of(value)?;
    Ok(Condition {
        lost_at: items.optional_timestamp()?,
        recovering: items.duration()?,
        nodes: Vec::new(),
    })
}
