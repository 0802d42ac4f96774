//! The jobs of lists: the calls and replies of `scripts/listed_jobs.lua`.

use redis::Value;

use super::call::{Call, millis};
use super::keys;
use super::reply::{integer, text};
use crate::names::Prefix;
use crate::store::contract::LIST_KEPT_FOR;
use crate::store::redis::failure::RedisFailure;
use crate::store::{Fingerprint, ListedJobs};

pub(in crate::store::redis) fn keep_call(
    prefix: &Prefix,
    list: &Fingerprint,
    jobs: Option<&ListedJobs>,
) -> Call {
    let mut call = read_call(prefix, list);
    call.arg(&millis(LIST_KEPT_FOR));
    if let Some(jobs) = jobs {
        call.arg(&jobs.text());
    }
    call
}

pub(in crate::store::redis) fn keep_read(value: &Value) -> Result<bool, RedisFailure> {
    Ok(integer(value)? == 1)
}

pub(in crate::store::redis) fn read_call(prefix: &Prefix, list: &Fingerprint) -> Call {
    let mut call = Call::default();
    call.key(&keys::listed_jobs(prefix, list));
    call
}

/// A text that cannot be read is as good as none: it is shown to people, and decides nothing.
pub(in crate::store::redis) fn read(
    list: &Fingerprint,
    value: Value,
) -> Result<Option<ListedJobs>, RedisFailure> {
    let text = text(value)?;
    let jobs = Some(text).filter(|text| !text.is_empty());
    Ok(jobs.and_then(|text| ListedJobs::parse(list.clone(), &text)))
}
