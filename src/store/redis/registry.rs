//! The registry's calls and replies, for a single server, a node and a server of a Cluster alike.

use redis::Value;

use super::claim::{flag, millis};
use super::failure::RedisFailure;
use super::keys::{self, LockKeys};
use super::link::Call;
use super::reading::log_replaced;
use super::reply::{Items, text};
use crate::names::{HostName, JobName, Prefix};
use crate::store::registry::LISTED_FOR;
use crate::store::{Beginning, Entry, Keeping, Listing, Standing};

pub(super) fn begin_call(prefix: &Prefix, jobs: &[Beginning]) -> Call {
    let mut call = Call::default();
    call.key(keys::store(prefix));
    for job in jobs {
        let keys = LockKeys::of(prefix, &job.lock);
        call.key(keys.job(&job.job)).key(keys.lock);
        call.arg(&job.fingerprint.0)
            .arg(&millis(job.ttl))
            .arg(&job.counts.at.millis())
            .arg(&flag(job.counts.again));
    }
    call
}

pub(super) fn begin_read(value: Value) -> Result<Vec<bool>, RedisFailure> {
    let mut items = Items::of(value)?;
    let mut all = Vec::new();
    while !items.is_empty() {
        all.push(items.integer()? == 1);
    }
    Ok(all)
}

pub(super) fn listings_call(prefix: &Prefix, jobs: &[JobName]) -> Call {
    let mut call = Call::default();
    for job in jobs {
        call.key(keys::listing(prefix, job));
    }
    call
}

pub(super) fn listings_read(value: Value, jobs: &[JobName]) -> Result<Vec<Listing>, RedisFailure> {
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

pub(super) fn enlist_call(prefix: &Prefix, host: &HostName, entries: &[(JobName, Entry)]) -> Call {
    let mut call = Call::default();
    call.arg(host).arg(&millis(LISTED_FOR));
    for (job, entry) in entries {
        call.key(keys::listing(prefix, job)).arg(&entry.text());
    }
    call
}

/// `entries` are those of the call.
pub(super) fn enlist_read(
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
            log_replaced(&keys::listing(prefix, job));
        }
    }
    Ok(())
}

pub(super) fn keep_call(prefix: &Prefix, jobs: &[Keeping]) -> Call {
    let mut call = Call::default();
    for kept in jobs {
        let keys = LockKeys::of(prefix, &kept.lock);
        call.key(&keys.state)
            .key(keys.job(&kept.job))
            .key(keys.runs(&kept.job))
            .arg(&millis(kept.span));
    }
    call
}

pub(super) fn unlist_call(prefix: &Prefix, job: &JobName) -> Call {
    let mut call = Call::default();
    call.key(keys::listing(prefix, job));
    call
}

/// The hosts that said something about the job.
pub(super) fn unlist_read(value: Value) -> Result<Vec<HostName>, RedisFailure> {
    let mut items = Items::of(value)?;
    let mut hosts = Vec::new();
    while !items.is_empty() {
        hosts.extend(HostName::parse(&text(items.next()?)?));
    }
    Ok(hosts)
}

/// The call after which `host` no longer lists the job.
pub(super) fn unlisted_call(prefix: &Prefix, host: &HostName, job: &JobName) -> Call {
    let mut call = Call::default();
    call.key(keys::listed_by(prefix, host));
    call.arg(&millis(LISTED_FOR)).arg(job).arg("0");
    call
}

/// The call that remembers which of these jobs the host lists; without jobs, the one that asks.
pub(super) fn listed_call(prefix: &Prefix, host: &HostName, entries: &[(JobName, Entry)]) -> Call {
    let mut call = Call::default();
    call.key(keys::listed_by(prefix, host))
        .arg(&millis(LISTED_FOR));
    for (job, entry) in entries {
        call.arg(job)
            .arg(&flag(entry.standing != Standing::Withdrawn));
    }
    call
}

/// The jobs that the host lists; none unless the call asked.
pub(super) fn listed_read(
    prefix: &Prefix,
    host: &HostName,
    value: Value,
) -> Result<Vec<JobName>, RedisFailure> {
    let mut items = Items::of(value)?;
    if items.integer()? == 1 {
        log_replaced(&keys::listed_by(prefix, host));
    }
    let mut jobs = Vec::new();
    while !items.is_empty() {
        // A name that cannot be a job's is nobody's.
        jobs.extend(JobName::parse(&text(items.next()?)?));
    }
    Ok(jobs)
}
