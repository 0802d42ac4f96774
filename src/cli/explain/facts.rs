//! What list, store and registry know of a job.

use std::sync::Arc;

use crate::cli::Failure;
use crate::cli::status::recovering_until;
use crate::config::{CatchUp, Job, JobList};
use crate::names::{HostName, JobName};
use crate::store::{Fingerprint, HostReport, JobReport, Listing, Lock, Record, Store, StoreError};
use crate::time::Timestamp;

/// How many records are read: all that a history keeps.
const ALL: usize = 100_000;

/// Everything that an answer is made from.
#[derive(Debug, Clone)]
pub(super) struct OccurrenceFacts {
    /// The store's clock.
    pub(super) now: Timestamp,
    /// This host: for `scope: host` and `none` the answer is about it alone.
    pub(super) host: HostName,
    pub(super) job: Arc<Job>,
    /// The identity of the whole list.
    pub(super) config: Fingerprint,
    /// How many records the store keeps of each job.
    pub(super) keeps: u32,
    pub(super) report: JobReport,
    /// The history of the job, newest first, then those under the locks that it had before.
    pub(super) records: Vec<Record>,
    /// The histories of the other jobs that share its lock.
    pub(super) neighbours: Vec<Record>,
    /// The open runs of those jobs.
    pub(super) open_neighbours: Vec<JobReport>,
    pub(super) listing: Listing,
    pub(super) hosts: Vec<HostReport>,
    /// Why the store grants nothing now, if it does not.
    pub(super) grants_nothing: Option<GrantsNothing>,
}

/// Why a store grants nothing.
#[derive(Debug, Clone)]
pub(super) struct GrantsNothing {
    pub(super) why: String,
    /// When that ends, if it is known.
    pub(super) until: Option<Timestamp>,
}

impl OccurrenceFacts {
    /// Reads them from the store.
    pub(super) async fn read(
        store: &dyn Store,
        list: &JobList,
        (name, host): (&JobName, &HostName),
    ) -> Result<Self, Failure> {
        let of_name = list.jobs.iter().find(|job| job.name == *name);
        let Some(job) = of_name.cloned() else {
            return Err(crate::cli::unknown_job(name, list));
        };
        let lock = job.lock_on(host);
        let sharing: Vec<(JobName, Lock)> = list
            .jobs
            .iter()
            .filter(|other| other.name != job.name && other.lock_on(host) == lock)
            .map(|other| (other.name.clone(), lock.clone()))
            .collect();
        let mut neighbours = Vec::new();
        for (other, lock) in &sharing {
            neighbours.extend(store.history(other, lock, ALL).await?.records);
        }
        let asked = [(name.clone(), lock.clone())];
        let report = store.jobs(&asked).await?.pop();
        let report = report.ok_or_else(|| {
            StoreError::corrupt(format!("the store's reply lacks the job {name}"))
        })?;
        let listing = store.listings(std::slice::from_ref(name)).await?.pop();
        let listing = listing.unwrap_or_default();
        let mut records = store.history(name, &lock, ALL).await?.records;
        for earlier in listing.other_locks(host, &job.lock_id()) {
            records.extend(store.history(name, &earlier, ALL).await?.records);
        }
        let now = store.now().await?;
        Ok(Self {
            now,
            host: host.clone(),
            config: list.fingerprint.clone(),
            keeps: list.history.records,
            report,
            records,
            neighbours,
            open_neighbours: store.jobs(&sharing).await?,
            listing,
            hosts: store.hosts().await?,
            grants_nothing: grants_nothing(store, &asked, (now, &job)).await,
            job,
        })
    }

    /// The newest occurrence up to now.
    pub(super) fn newest_occurrence(&self) -> Option<Timestamp> {
        let after_now = Timestamp::from_millis(self.now.millis() + 1);
        self.job.schedule.last_before(after_now)
    }

    /// Returns why the store does not grant this occurrence, unless that ends while it may still start.
    pub(super) fn not_granted(&self, at: Timestamp) -> Option<String> {
        let nothing = self.grants_nothing.as_ref()?;
        let policies = &self.job.policies;
        let due = at.plus(self.job.delay());
        let mut last = due.plus(policies.start_deadline);
        if policies.catch_up != CatchUp::None {
            last = last.max(due.plus(policies.catch_up_window));
        }
        let in_time = nothing.until.is_some_and(|until| until <= last);
        (!in_time).then(|| nothing.why.clone())
    }

    /// The record that has the verdict about an occurrence.
    pub(super) fn record_of(&self, at: Timestamp) -> Option<&Record> {
        let of = |record: &&Record| {
            let first = record.scheduled_at;
            first == Some(at)
                || first.is_some_and(|first| first <= at)
                    && record.until.is_some_and(|last| at <= last)
        };
        self.records.iter().find(of)
    }
}

/// Returns why the store grants nothing to this job now: it takes no writes, or may have lost data.
async fn grants_nothing(
    store: &dyn Store,
    asked: &[(JobName, Lock)],
    (now, job): (Timestamp, &Arc<Job>),
) -> Option<GrantsNothing> {
    if let Some(why) = store.takes_no_writes().await {
        return Some(GrantsNothing { why, until: None });
    }
    // Other requests report what else is wrong.
    let condition = store.condition(asked).await.ok()?;
    let until = recovering_until(&condition, now, std::slice::from_ref(job))?;
    let why =
        format!("the store is new, was restarted or lost data, and grants no locks until {until}");
    Some(GrantsNothing {
        why,
        until: Some(until),
    })
}
