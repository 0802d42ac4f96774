//! The registry (`listings`, `enlist`, `listed`, `unlist`): its calls and replies. A key for each job
//! has the entries of all hosts, a key for each host its jobs.

use redis::Value;

use super::call::{Call, flag, millis};
use super::fields::log_replaced;
use super::keys;
use super::reply::{Items, text};
use crate::names::{HostName, JobName, Prefix};
use crate::store::redis::failure::RedisFailure;
use crate::store::registry::LISTED_FOR;
use crate::store::{Entry, HostJobs, JobsRevision, Listing, Standing};

pub(in crate::store::redis) fn listings_call(prefix: &Prefix, jobs: &[JobName]) -> Call {
    let mut call = Call::default();
    for job in jobs {
        call.key(&keys::listing(prefix, job));
    }
    call
}

pub(in crate::store::redis) fn listings_read(
    value: Value,
    jobs: &[JobName],
) -> Result<Vec<Listing>, RedisFailure> {
    let mut replies = Items::of(value)?;
    let mut all = Vec::with_capacity(jobs.len());
    for job in jobs {
        let mut items = Items::of(replies.next()?)?;
        let mut listing = Listing::default();
        while !items.is_empty() {
            let host = items.text()?;
            if items.is_empty() {
                tracing::warn!(%job, "ignoring an unreadable entry in the store's job registry: \
                                      {host}");
                break;
            }
            listing.read(job, &host, &items.text()?);
        }
        all.push(listing);
    }
    Ok(all)
}

pub(in crate::store::redis) fn enlist_call(
    prefix: &Prefix,
    host: &HostName,
    entries: &[(JobName, Entry)],
) -> Call {
    let mut call = Call::default();
    call.arg(host).arg(&millis(LISTED_FOR));
    for (job, entry) in entries {
        call.key(&keys::listing(prefix, job)).arg(&entry.text());
    }
    call
}

/// `entries` are those of the call.
pub(in crate::store::redis) fn enlist_read(
    prefix: &Prefix,
    entries: &[(JobName, Entry)],
    value: Value,
) -> Result<(), RedisFailure> {
    let mut items = Items::of(value)?;
    let failed = items.integer()?;
    if failed > 0 {
        tracing::warn!("{failed} entries of the store's job registry could not be written");
    }
    while !items.is_empty() {
        let place = usize::try_from(items.integer()?).unwrap_or_default();
        if let Some((job, _)) = place.checked_sub(1).and_then(|at| entries.get(at)) {
            log_replaced(keys::listing(prefix, job));
        }
    }
    Ok(())
}

pub(in crate::store::redis) fn unlist_call(prefix: &Prefix, job: &JobName) -> Call {
    let mut call = Call::default();
    call.key(&keys::listing(prefix, job));
    call
}

/// Returns the hosts that had an entry for the job.
pub(in crate::store::redis) fn unlist_read(value: Value) -> Result<Vec<HostName>, RedisFailure> {
    let mut items = Items::of(value)?;
    let mut hosts = Vec::new();
    while !items.is_empty() {
        hosts.extend(HostName::parse(&text(items.next()?)?));
    }
    Ok(hosts)
}

/// Returns the call that removes the job from those that `host` lists.
pub(in crate::store::redis) fn unlisted_call(
    prefix: &Prefix,
    host: &HostName,
    job: &JobName,
) -> Call {
    let mut call = Call::default();
    call.key(&keys::listed_by(prefix, host));
    call.arg(&millis(LISTED_FOR))
        .arg(&JobsRevision::new().0)
        .arg(job)
        .arg("0")
        .arg(&i64::MAX);
    call
}

/// Returns the call that notes which of these jobs the host lists.
pub(in crate::store::redis) fn listed_call(
    prefix: &Prefix,
    host: &HostName,
    entries: &[(JobName, Entry)],
) -> Call {
    let mut call = Call::default();
    call.key(&keys::listed_by(prefix, host))
        .arg(&millis(LISTED_FOR))
        .arg(&JobsRevision::new().0);
    for (job, entry) in entries {
        call.arg(job)
            .arg(&flag(entry.standing != Standing::Withdrawn))
            .arg(&entry.at.millis());
    }
    call
}

/// Reads whether the key had to be replaced.
pub(in crate::store::redis) fn listed_written(
    prefix: &Prefix,
    host: &HostName,
    value: Value,
) -> Result<(), RedisFailure> {
    listed_items(prefix, host, value).map(drop)
}

/// Returns the call that reads the jobs of the host, unless they still have this revision.
pub(in crate::store::redis) fn listed_since_call(
    prefix: &Prefix,
    host: &HostName,
    known: Option<&JobsRevision>,
) -> Call {
    let mut call = Call::default();
    call.key(&keys::listed_by(prefix, host))
        .arg(&millis(LISTED_FOR))
        .arg(known.map_or("", |known| &known.0));
    call
}

/// Returns the jobs that the host lists; `None` if they have the revision of the call.
pub(in crate::store::redis) fn listed_since_read(
    prefix: &Prefix,
    host: &HostName,
    value: Value,
) -> Result<Option<HostJobs>, RedisFailure> {
    let mut items = listed_items(prefix, host, value)?;
    if items.is_empty() {
        return Ok(None);
    }
    let revision = Some(items.text()?).filter(|text| !text.is_empty());
    let mut jobs = Vec::new();
    while !items.is_empty() {
        // A text that is not a valid name belongs to no job.
        jobs.extend(JobName::parse(&text(items.next()?)?));
    }
    Ok(Some(HostJobs {
        jobs,
        revision: revision.map(JobsRevision),
    }))
}

/// Returns what a reply has after whether the key had to be replaced.
fn listed_items(prefix: &Prefix, host: &HostName, value: Value) -> Result<Items, RedisFailure> {
    let mut items = Items::of(value)?;
    if items.integer()? == 1 {
        log_replaced(keys::listed_by(prefix, host));
    }
    Ok(items)
}
