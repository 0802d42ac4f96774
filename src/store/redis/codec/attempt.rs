//! `attempt`: its call and its reply. The script is `scripts/attempt.lua`.

use redis::Value;

use super::call::Call;
use super::keys::LockKeys;
use super::reply::integer;
use crate::names::Prefix;
use crate::store::Attempt;
use crate::store::redis::failure::RedisFailure;

pub(in crate::store::redis) fn call(prefix: &Prefix, attempt: &Attempt) -> Call {
    let keys = LockKeys::of(prefix, &attempt.lock);
    let mut call = Call::default();
    call.key(&keys.job(&attempt.job)).key(&keys.lock());
    call.arg(attempt.token.as_str()).arg(&attempt.attempt);
    call
}

pub(in crate::store::redis) fn read(value: &Value) -> Result<bool, RedisFailure> {
    Ok(integer(value)? == 1)
}
