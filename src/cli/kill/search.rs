//! Looks for runs in the ledgers of the jobs that the fleet or the list has.

use super::{KillTarget, NotKilled};
use crate::cli::Failure;
use crate::cli::nearest::nearest_name;
use crate::cli::pause::{known_jobs, locks_of};
use crate::cli::request::ASKING;
use crate::config::JobList;
use crate::names::{HostName, JobName, RunId};
use crate::store::{
    HostReport, JobReport, Lock, OpenRun, Outcome, Record, Store, StoreError, retry,
};

/// How many records of each job are searched for a run that is not in progress: it may have ended long
/// ago, and lists keep at most so many records in general.
const RECORDS_SEARCHED: usize = 1000;

/// What was found.
#[derive(Debug)]
pub(super) enum FoundRuns {
    /// These hosts have what is to be killed. The errors are about what cannot be killed.
    Known(Vec<KillTarget>, Vec<NotKilled>),
    /// One of these hosts may have the run. The failure applies if none has it.
    Possible(Vec<KillTarget>, Failure),
}

/// A search in one store.
pub(super) struct RunSearch<'a> {
    pub(super) store: &'a dyn Store,
    live: Vec<HostReport>,
    /// Each job with the locks under which it has a ledger.
    jobs: Vec<(JobName, Vec<Lock>)>,
}

impl<'a> RunSearch<'a> {
    pub(super) async fn begin(
        store: &'a dyn Store,
        list: Option<&JobList>,
        host: &HostName,
    ) -> Result<Self, Failure> {
        let live = retry(ASKING, || store.peers()).await?;
        let names: Vec<JobName> = known_jobs(store, list).await?.into_iter().collect();
        let listings = retry(ASKING, || store.listings(&names)).await?;
        let jobs = names.into_iter().zip(listings);
        let jobs = jobs.map(|(job, listing)| {
            let locks = locks_of(&job, &listing, list, host);
            (job, locks)
        });
        Ok(Self {
            store,
            live,
            jobs: jobs.collect(),
        })
    }

    /// Finds the run with this id, or the runs in progress of the job with this name.
    pub(super) async fn find(&self, what: &str) -> Result<FoundRuns, Failure> {
        match uuid::Uuid::parse_str(what) {
            Ok(run) => self.find_run(&RunId::from_text(&run.to_string())).await,
            Err(_) => self.find_runs_of(what).await,
        }
    }

    async fn find_runs_of(&self, name: &str) -> Result<FoundRuns, Failure> {
        let job = JobName::parse(name).map_err(|error| Failure::Usage(error.to_string()))?;
        let Some((_, locks)) = self.jobs.iter().find(|(name, _)| *name == job) else {
            return Err(self.unknown(&job));
        };
        let (mut found, mut not_killed) = (Vec::new(), Vec::new());
        for lock in locks {
            let open = self.open(&job, lock).await?;
            match open {
                open if !lock.exclusive => {
                    found.extend(self.host_without_lock(&job, lock, open.as_ref()));
                }
                Some(open) => match holder(&job, lock, open) {
                    Ok(target) => found.push(target),
                    Err(error) => not_killed.push(error),
                },
                None => {}
            }
        }
        if found.is_empty() && not_killed.is_empty() {
            return Err(Failure::NotAcquired(format!(
                "no run of job {job} is in progress"
            )));
        }
        Ok(FoundRuns::Known(found, not_killed))
    }

    /// The host of a job without a lock, if it may have runs of it. The ledger, which lies under the
    /// name of the host, has the newest run alone.
    fn host_without_lock(
        &self,
        job: &JobName,
        lock: &Lock,
        open: Option<&OpenRun>,
    ) -> Option<KillTarget> {
        let host = HostName::parse(lock.host()?).ok()?;
        let may_have_runs = open.is_some() || self.is_live(&host);
        may_have_runs.then(|| KillTarget {
            job: job.clone(),
            lock: lock.clone(),
            run: None,
            host,
        })
    }

    async fn open(&self, job: &JobName, lock: &Lock) -> Result<Option<OpenRun>, StoreError> {
        let asked = [(job.clone(), lock.clone())];
        let reports: Vec<JobReport> = retry(ASKING, || self.store.jobs(&asked)).await?;
        Ok(reports.into_iter().next().and_then(|report| report.open))
    }

    async fn find_run(&self, run: &RunId) -> Result<FoundRuns, Failure> {
        let mut possible = Vec::new();
        for (job, locks) in &self.jobs {
            for lock in locks {
                let open = self.open(job, lock).await?;
                if let Some(open) = open.as_ref().filter(|open| open.run_id == *run) {
                    return self.found_run(job, lock, open);
                }
                if !lock.exclusive {
                    possible.extend(self.host_without_lock(job, lock, open.as_ref()));
                }
            }
        }
        for (job, locks) in &self.jobs {
            for lock in locks {
                let history =
                    retry(ASKING, || self.store.history(job, lock, RECORDS_SEARCHED)).await?;
                if let Some(record) = end_of(run, lock, &history.records) {
                    return Err(ended_already(run, record));
                }
            }
        }
        let (live, silent): (Vec<_>, Vec<_>) = (possible.into_iter())
            .map(|target| KillTarget {
                run: Some(run.clone()),
                ..target
            })
            .partition(|target| self.is_live(&target.host));
        Ok(FoundRuns::Possible(live, nowhere(run, &silent)))
    }

    /// The run that the ledger has as open.
    fn found_run(&self, job: &JobName, lock: &Lock, open: &OpenRun) -> Result<FoundRuns, Failure> {
        let target = if lock.exclusive {
            Some(holder(job, lock, open.clone()).map_err(NotKilled::into_failure)?)
        } else {
            self.host_without_lock(job, lock, Some(open))
        };
        let target = target.map(|target| KillTarget {
            run: Some(open.run_id.clone()),
            ..target
        });
        Ok(FoundRuns::Known(target.into_iter().collect(), Vec::new()))
    }

    fn is_live(&self, host: &HostName) -> bool {
        self.live.iter().any(|report| report.info.host == *host)
    }

    /// Fails if nobody can reach the run.
    pub(super) fn check_live(&self, target: &KillTarget) -> Result<(), Failure> {
        let KillTarget { job, host, run, .. } = target;
        if self.is_live(host) {
            return Ok(());
        }
        Err(Failure::Unavailable(match run {
            Some(run) => format!(
                "run {run} of job {job} runs on host {host}, whose daemon does not report: if it is \
                 dead, the run is recorded as interrupted once its lease has expired\nhelp: restore \
                 the daemon of {host} or its way to the store, or end the processes of the run on \
                 {host}; a run of `trigger --here` has no daemon, and ends with that process"
            ),
            None => format!(
                "host {host}, whose daemon does not report, may have runs of job {job}: if it is \
                 dead, they are recorded as interrupted once their leases have expired"
            ),
        }))
    }

    /// Why a daemon refused: most often the run has just ended.
    pub(super) async fn ended_meanwhile(&self, target: &KillTarget, failure: Failure) -> Failure {
        let Some(run) = &target.run else {
            return failure;
        };
        let history = self
            .store
            .history(&target.job, &target.lock, RECORDS_SEARCHED);
        let Ok(history) = history.await else {
            return failure;
        };
        let ended = end_of(run, &target.lock, &history.records);
        ended.map_or(failure, |record| ended_already(run, record))
    }

    fn unknown(&self, job: &JobName) -> Failure {
        let names = self.jobs.iter().map(|(name, _)| name.as_str());
        let mut text = format!("no host and no list has a job {job}: nothing was done");
        if let Some(name) = nearest_name(job.as_str(), names) {
            text += &format!("\nhelp: did you mean {name}?");
        }
        Failure::Usage(text)
    }
}

/// The host that holds a lock for its open run.
fn holder(job: &JobName, lock: &Lock, open: OpenRun) -> Result<KillTarget, NotKilled> {
    let Ok(host) = HostName::parse(&open.by) else {
        return Err(NotKilled::Failed(Failure::NotAcquired(format!(
            "run {} of job {job} is held by {}, which is no host of cronlatch",
            open.run_id, open.by
        ))));
    };
    if open.remaining.is_zero() {
        return Err(NotKilled::NoRun(Failure::NotAcquired(format!(
            "run {} of job {job} on {host} is over: its lease has expired, and the next host that \
             looks records it as interrupted",
            open.run_id
        ))));
    }
    Ok(KillTarget {
        job: job.clone(),
        lock: lock.clone(),
        run: Some(open.run_id),
        host,
    })
}

/// The failure for a run that no live host and no history has. `silent` are hosts that do not report and
/// may have it.
fn nowhere(run: &RunId, silent: &[KillTarget]) -> Failure {
    let mut hosts: Vec<&str> = silent.iter().map(|target| target.host.as_str()).collect();
    hosts.sort_unstable();
    hosts.dedup();
    let who = match hosts[..] {
        [] => {
            return Failure::Usage(format!(
                "no host has a run {run} in progress, and no history has it; nothing was done"
            ));
        }
        [host] => format!("host {host}, which does not report, may have it"),
        _ => format!(
            "hosts {}, which do not report, may have it",
            hosts.join(", ")
        ),
    };
    Failure::Unavailable(format!(
        "no live host has run {run}; {who}. Nothing was done"
    ))
}

/// The record with which the run ended. Of a job without a lock, an earlier run is recorded as
/// interrupted when the next one starts, and goes on.
fn end_of<'a>(run: &RunId, lock: &Lock, records: &'a [Record]) -> Option<&'a Record> {
    let mut records = records.iter();
    let record = records.find(|record| record.run_id.as_ref() == Some(run))?;
    (lock.exclusive || record.outcome != Outcome::Interrupted).then_some(record)
}

fn ended_already(run: &RunId, record: &Record) -> Failure {
    Failure::NotAcquired(format!(
        "run {run} of job {} has ended already: {}",
        record.job,
        record.outcome.text()
    ))
}
