//! `forget`: its call and its reply. The script is `scripts/forget.lua`.

use redis::Value;

use super::call::{Call, flag};
use super::keys::{Key, LockKeys};
use super::reply::Items;
use crate::names::Prefix;
use crate::store::redis::failure::RedisFailure;
use crate::store::{Forget, Forgotten, LockKey};

/// Whether the script deletes, or only checks whether it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store::redis) enum ForgetStep {
    Look,
    Delete,
}

/// `all_failures` is the key of the failures of all jobs; `None` in a Cluster, which has none.
pub(in crate::store::redis) fn call(
    prefix: &Prefix,
    forget: &Forget,
    step: ForgetStep,
    all_failures: Option<Key<'_>>,
) -> Call {
    let keys = LockKeys::of(prefix, &forget.lock);
    let mut call = Call::default();
    call.key(&keys.lock())
        .key(&keys.state())
        .key(&keys.job(&forget.job))
        .key(&keys.runs(&forget.job))
        .key(&keys.failures(&forget.job));
    if let Some(all) = all_failures {
        call.key(&all);
    }
    call.arg(flag(forget.lock.exclusive))
        .arg(flag(forget.lock.key == LockKey::Named))
        .arg(flag(forget.with_lock))
        .arg(flag(forget.although_held))
        .arg(match step {
            ForgetStep::Look => "look",
            ForgetStep::Delete => "delete",
        })
        .arg(&forget.job);
    call
}

pub(in crate::store::redis) fn read(value: Value) -> Result<Forgotten, RedisFailure> {
    let mut items = Items::of(value)?;
    match items.text()?.as_str() {
        "held" => Ok(Forgotten::Held {
            by: items.text()?,
            remaining: items.optional_duration()?,
        }),
        "forgotten" => Ok(Forgotten::Done {
            entries: items.unsigned()?,
        }),
        other => Err(RedisFailure::corrupt(format!(
            "the reply to a request to forget a job is {other:?}"
        ))),
    }
}
