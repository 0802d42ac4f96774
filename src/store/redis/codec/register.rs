//! `register`: its call and its reply. The script is `scripts/register.lua`.

use redis::Value;

use super::call::{Call, flag, millis};
use super::fields::{decided_beyond, open_run, pauses};
use super::keys::LockKeys;
use super::reply::{Items, each};
use super::{keys, record};
use crate::names::Prefix;
use crate::store::redis::failure::RedisFailure;
use crate::store::{Head, Registered, Registration};

pub(in crate::store::redis) fn call(prefix: &Prefix, jobs: &[Registration]) -> Call {
    let mut call = Call::default();
    call.key(&keys::store(prefix));
    for registration in jobs {
        let keys = LockKeys::of(prefix, &registration.lock);
        call.key(&keys.lock())
            .key(&keys.state())
            .key(&keys.job(&registration.job));
        call.arg(&flag(registration.lock.exclusive))
            .arg(&*registration.fingerprint.0)
            .arg(&millis(registration.ttl));
    }
    call
}

pub(in crate::store::redis) fn read(value: Value) -> Result<Vec<Registered>, RedisFailure> {
    each(value, |mut items| {
        let (decided_until, now) = (items.timestamp()?, items.timestamp()?);
        let recovering = items.duration()?;
        let (head, moved) = head(&mut items)?;
        Ok(Registered {
            decided_until,
            decided_beyond: decided_beyond(&items.text()?)?,
            pauses: pauses(&items.text()?)?,
            now,
            recovering,
            head,
            open: open_run(&mut items)?,
            moved,
        })
    })
}

/// Reads the head of the waiting list, and whether the ledger has moved.
fn head(items: &mut Items) -> Result<(Option<Head>, bool), RedisFailure> {
    let scheduled_at = items.optional_timestamp()?;
    let (kind, deadline) = (items.text()?, items.timestamp()?);
    let head = |scheduled_at| {
        Ok(Head {
            scheduled_at,
            kind: record::from_word(&kind)?,
            deadline,
        })
    };
    Ok((scheduled_at.map(head).transpose()?, kind == "moved"))
}
