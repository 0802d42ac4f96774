//! `jobs`: its call and its reply. The script is `scripts/jobs.lua`.

use redis::Value;

use super::call::{Call, flag};
use super::fields::{fingerprints, open_run, pauses, waiting};
use super::keys::LockKeys;
use super::reply::{Items, each};
use super::{summary, unacknowledged};
use crate::names::{JobName, Prefix};
use crate::store::protocol::holder;
use crate::store::redis::failure::RedisFailure;
use crate::store::{JobReport, Lock, LockHolder};

pub(in crate::store::redis) fn call(prefix: &Prefix, jobs: &[(JobName, Lock)]) -> Call {
    let mut call = Call::default();
    for (job, lock) in jobs {
        let keys = LockKeys::of(prefix, lock);
        call.key(&keys.lock())
            .key(&keys.state())
            .key(&keys.job(job))
            .key(&keys.runs(job));
        call.arg(&flag(lock.exclusive));
    }
    call
}

pub(in crate::store::redis) fn read(
    value: Value,
    jobs: &[(JobName, Lock)],
) -> Result<Vec<JobReport>, RedisFailure> {
    let mut names = jobs.iter().map(|(job, _)| job);
    each(value, |mut items| {
        let job = names.next().ok_or_else(|| {
            RedisFailure::corrupt("the reply contains more jobs than the request".to_owned())
        })?;
        Ok(JobReport {
            job: job.clone(),
            last: items.optional_timestamp()?,
            fence: items.unsigned()?,
            fingerprints: fingerprints(&items.text()?)?,
            holder: lock_holder(&mut items)?,
            waiting: waiting(&items.text()?)?,
            unacknowledged: unacknowledged::read(&items.text()?),
            pauses: pauses(&items.text()?)?,
            summary: summary::read(job, &items.text()?),
            open: open_run(&mut items)?,
        })
    })
}

fn lock_holder(items: &mut Items) -> Result<Option<LockHolder>, RedisFailure> {
    let held = items.integer()? == 1;
    let value = items.text()?;
    let remaining = items.optional_duration()?;
    Ok(held.then(|| LockHolder {
        by: holder(&value),
        value,
        remaining,
    }))
}
