//! What is asked without taking or giving: registration, jobs, hosts, history.

use std::time::Duration;

use redis::{Cmd, Value};

use super::claim::{flag, millis};
use super::failure::RedisFailure;
use super::keys::{self, LockKeys};
use super::link::Call;
use super::record;
use super::reply::Items;
use super::unacknowledged;
use crate::names::{JobName, Prefix, RunId};
use crate::store::heartbeat::HostHeartbeat;
use crate::store::protocol::{Waiting, beyond_of_text, holder, waiting_of_text};
use crate::store::{
    Condition, ErrorDetail, Fingerprint, Head, History, HostInfo, HostReport, JobReport, Lock,
    LockHolder, OpenRun, Registered, Registration,
};
use crate::time::Timestamp;

pub(super) fn register_call(prefix: &Prefix, jobs: &[Registration]) -> Call {
    let mut call = Call::default();
    call.key(keys::store(prefix));
    for registration in jobs {
        let keys = LockKeys::of(prefix, &registration.lock);
        call.key(&keys.lock)
            .key(&keys.state)
            .key(keys.job(&registration.job));
        call.arg(&flag(registration.lock.exclusive))
            .arg(&registration.fingerprint.0)
            .arg(&millis(registration.ttl));
    }
    call
}

pub(super) fn register_read(value: Value) -> Result<Vec<Registered>, RedisFailure> {
    each(value, |mut items| {
        let (decided_until, now) = (items.timestamp()?, items.timestamp()?);
        let recovering = items.duration()?;
        let (head, moved) = head(&mut items)?;
        Ok(Registered {
            decided_until,
            beyond: beyond(&items.text()?)?,
            now,
            recovering,
            head,
            open: open_run(&mut items)?,
            moved,
        })
    })
}

/// The instants beyond the watermark that are decided, in milliseconds.
pub(super) fn beyond(text: &str) -> Result<Vec<Timestamp>, RedisFailure> {
    beyond_of_text(text)
        .ok_or_else(|| RedisFailure::corrupt(format!("what a job has decided reads {text:?}")))
}

/// The head of the waiting list, and whether the ledger has moved instead.
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

fn waiting(text: &str) -> Result<Vec<Head>, RedisFailure> {
    let entries = waiting_of_text(text)
        .ok_or_else(|| RedisFailure::corrupt(format!("a job's waiting list reads {text:?}")))?;
    Ok(entries.iter().map(Waiting::head).collect())
}

pub(super) fn jobs_call(prefix: &Prefix, jobs: &[(JobName, Lock)]) -> Call {
    let mut call = Call::default();
    for (job, lock) in jobs {
        let keys = LockKeys::of(prefix, lock);
        call.key(&keys.lock).key(&keys.state).key(keys.job(job));
        call.arg(&flag(lock.exclusive));
    }
    call
}

pub(super) fn jobs_read(
    value: Value,
    jobs: &[(JobName, Lock)],
) -> Result<Vec<JobReport>, RedisFailure> {
    let mut names = jobs.iter().map(|(job, _)| job);
    each(value, |mut items| {
        let job = names
            .next()
            .ok_or_else(|| RedisFailure::corrupt("more jobs answered than asked for".to_owned()))?;
        Ok(JobReport {
            job: job.clone(),
            last: items.optional_timestamp()?,
            fence: items.unsigned()?,
            fingerprints: fingerprints(&items.text()?)?,
            holder: lock_holder(&mut items)?,
            waiting: waiting(&items.text()?)?,
            unacknowledged: unacknowledged::read(&items.text()?),
            open: open_run(&mut items)?,
        })
    })
}

fn each<T>(
    value: Value,
    mut read: impl FnMut(Items) -> Result<T, RedisFailure>,
) -> Result<Vec<T>, RedisFailure> {
    let mut items = Items::of(value)?;
    let mut all = Vec::new();
    while !items.is_empty() {
        all.push(read(Items::of(items.next()?)?)?);
    }
    Ok(all)
}

fn open_run(items: &mut Items) -> Result<Option<OpenRun>, RedisFailure> {
    if items.is_empty() {
        return Ok(None);
    }
    Ok(Some(OpenRun {
        scheduled_at: items.optional_timestamp()?,
        run_id: RunId::from_text(&items.text()?),
        by: items.text()?,
        attempt: items.unsigned()?,
        started_at: items.timestamp()?,
        remaining: items.duration()?,
    }))
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

pub(super) fn fingerprints(lines: &str) -> Result<Vec<(Fingerprint, Timestamp)>, RedisFailure> {
    lines
        .lines()
        .map(|line| {
            line.split_once(' ')
                .and_then(|(at, fingerprint)| {
                    let at = Timestamp::from_millis(at.parse().ok()?);
                    Some((Fingerprint(fingerprint.to_owned()), at))
                })
                .ok_or_else(|| RedisFailure::corrupt(format!("a job's fingerprint reads {line:?}")))
        })
        .collect()
}

pub(super) fn history_command(runs: &str, limit: usize) -> Cmd {
    let mut command = redis::cmd("XREVRANGE");
    command.arg(runs).arg("+").arg("-").arg("COUNT").arg(limit);
    command
}

/// The history that `runs` holds, with the entries that cannot be read apart from the others.
pub(super) fn history_read(
    value: Value,
    job: &JobName,
    runs: &str,
) -> Result<History, RedisFailure> {
    let mut entries = Items::of(value)?;
    let mut history = History::default();
    while !entries.is_empty() {
        let entry = entries.next()?;
        let id = record::id_of(&entry);
        match record::read(job, entry) {
            Ok(record) => history.records.push(record),
            Err(failure) => {
                let fault = record::unreadable(runs, &id, &failure);
                history.unreadable.push(fault);
            }
        }
    }
    Ok(history)
}

/// `longest` is the longest TTL of the host's job list.
pub(super) fn announce_call(
    prefix: &Prefix,
    info: &HostInfo,
    valid_for: Duration,
    longest: Duration,
) -> Result<Call, RedisFailure> {
    let json = serde_json::to_string(&HostHeartbeat::of(info))
        .map_err(|e| RedisFailure::refused(ErrorDetail::of("a heartbeat cannot be written", e)))?;
    // Zero is no short time but the end of the word.
    let valid_for = match valid_for {
        Duration::ZERO => 0,
        some => millis(some),
    };
    let mut call = Call::default();
    call.key(keys::hosts(prefix)).key(keys::store(prefix));
    call.arg(&info.host)
        .arg(&valid_for)
        .arg(&json)
        .arg(&longest.as_millis());
    Ok(call)
}

/// Logs the entries of other hosts that an announcement removed because they cannot be read.
pub(super) fn announce_read(prefix: &Prefix, value: Value) -> Result<(), RedisFailure> {
    each(value, |mut items| {
        let (host, value) = (items.text()?, items.text()?);
        if host.is_empty() {
            log_replaced(&keys::hosts(prefix));
            return Ok(());
        }
        tracing::warn!(
            entry = ?host,
            ?value,
            "removed an unreadable entry from the announced hosts"
        );
        Ok(())
    })
    .map(drop)
}

/// Logs that a key was of another type than cronlatch writes, and is written anew.
pub(super) fn log_replaced(key: &str) {
    tracing::warn!(
        "replaced the key {key}, which was of another type than cronlatch writes; another program \
         may use the same prefix"
    );
}

pub(super) fn condition_read(value: Value) -> Result<Condition, RedisFailure> {
    let mut items = Items::of(value)?;
    Ok(Condition {
        lost_at: items.optional_timestamp()?,
        recovering: items.duration()?,
        nodes: Vec::new(),
    })
}

pub(super) fn hosts_read(value: Value) -> Result<Vec<HostReport>, RedisFailure> {
    let hosts = each(value, |mut items| {
        let seen_at = items.timestamp()?;
        let word = serde_json::from_str::<HostHeartbeat>(&items.text()?).ok();
        // One entry that cannot be read does not hide the others.
        let info = word.and_then(|word| word.into_info().ok());
        Ok(info.map(|info| HostReport { info, seen_at }))
    })?;
    let mut hosts: Vec<HostReport> = hosts.into_iter().flatten().collect();
    hosts.sort_by(|a, b| a.info.host.cmp(&b.info.host));
    Ok(hosts)
}
