//! Who holds a lock, and whether there is a sign that the holder is alive.

use std::time::Duration;

use crate::cli::{Failure, output};
use crate::config::JobList;
use crate::names::{HostName, JobName, LockName};
use crate::store::protocol::Open;
use crate::store::{Lock, Retention, Store};

/// How long a lease is watched. Every holder renews its lease every third of its TTL, and at least
/// every ten seconds.
const WATCHED: u32 = 24;
/// How often it is read meanwhile.
const EVERY: Duration = Duration::from_millis(500);

/// A lock, and the jobs that use it.
#[derive(Debug)]
pub(super) struct UsedLock {
    pub(super) lock: Lock,
    /// The jobs of the list that use it; without any, the job of its name.
    jobs: Vec<JobName>,
    /// How many records each job keeps.
    pub(super) keep: Retention,
    /// Whether the list has it: as a lock, or as the lock of a job.
    pub(super) is_listed: bool,
}

impl UsedLock {
    /// The lock of this name; else the lock of the job of this name.
    pub(super) fn named(
        name: &LockName,
        list: Option<&JobList>,
        host: &HostName,
    ) -> Result<Self, Failure> {
        let jobs = || list.into_iter().flat_map(|list| &list.jobs);
        let mut locks = jobs().map(|job| job.lock_on(host));
        let named = Lock::named(name);
        let lock = locks.find(|lock| *lock == named);
        let job = || jobs().find(|job| job.name.as_str() == name.as_str());
        let lock = lock.or_else(|| job().map(|job| job.lock_on(host)));
        let is_listed = lock.is_some();
        let lock = lock.unwrap_or(named);
        if !lock.exclusive {
            return Err(Failure::Usage(format!(
                "job {name} takes no lock (scope: none)"
            )));
        }
        Ok(Self {
            is_listed,
            ..Self::of(lock, list, host)
        })
    }

    /// The lock under a raw key.
    pub(super) fn raw(key: &str, list: Option<&JobList>, host: &HostName) -> Self {
        Self::of(Lock::raw(key), list, host)
    }

    fn of(lock: Lock, list: Option<&JobList>, host: &HostName) -> Self {
        let users = list.into_iter().flat_map(|list| &list.jobs);
        let users = users.filter(|job| job.lock_on(host) == lock);
        let mut jobs: Vec<JobName> = users.map(|job| job.name.clone()).collect();
        let is_listed = !jobs.is_empty();
        if jobs.is_empty() {
            // A job that is in no list any more, or `exec`, which has no job.
            let name = lock.name.split('@').next().unwrap_or(&lock.name);
            jobs.extend(JobName::parse(name).or_else(|_| JobName::parse("exec")));
        }
        Self {
            lock,
            jobs,
            keep: list.map_or(Retention::DEFAULT, |list| list.history),
            is_listed,
        }
    }
}

/// Who holds a lock.
#[derive(Debug)]
pub(super) struct Holder {
    /// The value of the lock.
    pub(super) value: String,
    /// The host, or what another program wrote.
    pub(super) by: String,
    /// How long its lease lasts; `None` if it does not end.
    remaining: Option<Duration>,
    /// Its run, if it is one of a job.
    pub(super) run: Option<(JobName, Open)>,
}

impl Holder {
    /// The holder, its run and its lease, for people.
    pub(super) fn shown(&self) -> String {
        let left = self.remaining.map_or_else(
            || "without an end".to_owned(),
            |left| format!("{} left", output::short(left)),
        );
        let run = match &self.run {
            Some((job, open)) => format!(
                ", for run {} of job {job}, granted at {}",
                open.run_id, open.started_at
            ),
            None => String::new(),
        };
        format!("{} ({left}){run}", self.by)
    }

    /// Host and process id, if the value is a token of cronlatch.
    fn process(&self) -> Option<(&str, &str)> {
        let mut fields = self.value.split(':');
        let process = (fields.next()?, fields.next()?);
        (fields.count() == 2).then_some(process)
    }
}

/// Returns who holds the lock; `None` if it is free.
pub(super) async fn holder_of(
    store: &dyn Store,
    used: &UsedLock,
) -> Result<Option<Holder>, Failure> {
    let jobs = used.jobs.iter();
    let asked: Vec<_> = jobs.map(|job| (job.clone(), used.lock.clone())).collect();
    let reports = store.jobs(&asked).await?;
    let Some(holder) = reports.into_iter().find_map(|report| report.holder) else {
        return Ok(None);
    };
    let mut run = None;
    for job in &used.jobs {
        let ledger = store.ledger(job, &used.lock).await?;
        let open = ledger.state.and_then(|state| state.open);
        if let Some(open) = open.filter(|open| open.token.as_str() == holder.value) {
            run = Some((job.clone(), open));
        }
    }
    Ok(Some(Holder {
        value: holder.value,
        by: holder.by,
        remaining: holder.remaining,
        run,
    }))
}

/// What is seen of a holder.
#[derive(Debug)]
pub(super) enum Sign {
    /// Nothing: it may be gone.
    None,
    /// It is alive, for this reason.
    Alive(String),
    /// It no longer holds the lock.
    Gone,
}

/// Looks whether the daemon of the holder reports, then whether the lease is renewed.
pub(super) async fn look_for_life(
    store: &dyn Store,
    used: &UsedLock,
    holder: &Holder,
) -> Result<Sign, Failure> {
    if let Some((host, pid)) = holder.process() {
        let (hosts, now) = (store.hosts().await?, store.now().await?);
        let mut hosts = hosts.iter();
        let daemon = hosts
            .find(|report| report.info.host.as_str() == host && report.info.pid.to_string() == pid);
        if let Some(report) = daemon {
            let ago = output::short(now.since(report.seen_at));
            return Ok(Sign::Alive(format!("its daemon reported {ago} ago")));
        }
    }
    let Some(mut left) = holder.remaining else {
        return Ok(Sign::None);
    };
    output::report("watching for up to 12 s whether the lease is renewed");
    for _ in 0..WATCHED {
        tokio::time::sleep(EVERY).await;
        let now = holder_of(store, used).await?;
        let Some(now) = now.filter(|now| now.value == holder.value) else {
            return Ok(Sign::Gone);
        };
        let remaining = now.remaining.unwrap_or(Duration::MAX);
        if remaining > left {
            return Ok(Sign::Alive("it has just renewed its lease".to_owned()));
        }
        left = remaining;
    }
    Ok(Sign::None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    #[track_caller]
    fn used(name: &str) -> (String, Vec<String>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("jobs.yaml");
        let text = "\
jobs:
- { name: a, every: 1h, command: x, lock: { name: both } }
- { name: b, every: 1h, command: x, lock: { name: both } }
- { name: c, every: 1h, command: x, lock: { key: 'app:c' } }
- { name: d, every: 1h, command: x, lock: { scope: host } }
- { name: e, every: 1h, command: x, lock: { scope: none } }
";
        std::fs::write(&path, text).unwrap();
        let list = config::load(&path).unwrap();
        let (name, host) = (
            LockName::parse(name).unwrap(),
            HostName::parse("web1").unwrap(),
        );
        match UsedLock::named(&name, Some(&list), &host) {
            Ok(used) => {
                let jobs = used.jobs.iter().map(ToString::to_string).collect();
                (used.lock.name, jobs)
            }
            Err(failure) => (failure.to_string(), Vec::new()),
        }
    }

    #[test]
    fn a_name_means_a_lock_of_the_list_or_the_lock_of_a_job_or_another_lock() {
        let is = |lock: &str, jobs: &[&str]| {
            (
                lock.to_owned(),
                jobs.iter().map(ToString::to_string).collect::<Vec<_>>(),
            )
        };
        assert_eq!(used("both"), is("both", &["a", "b"]));
        assert_eq!(used("a"), is("both", &["a", "b"]));
        assert_eq!(used("c"), is("app:c", &["c"]));
        assert_eq!(used("d"), is("d@web1", &["d"]));
        assert_eq!(used("e"), is("job e takes no lock (scope: none)", &[]));
        assert_eq!(used("deploy"), is("deploy", &["deploy"]));
    }

    #[test]
    fn a_token_names_host_and_process_and_the_value_of_another_program_does_not() {
        let holder = |value: &str| Holder {
            value: value.to_owned(),
            by: String::new(),
            remaining: None,
            run: None,
        };
        assert_eq!(holder("web1:812:run:00ff").process(), Some(("web1", "812")));
        assert_eq!(holder("somebody").process(), None);
        assert_eq!(holder("a:b:c").process(), None);
    }
}
