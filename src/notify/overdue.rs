//! Jobs without a success for too long: which host sends the notification, and when.
//!
//! The event has no verdict, so no host has recorded one. The hosts compete for it as they do for
//! an occurrence: they claim the instant at which the job became overdue in a ledger of its own,
//! under a lock with a name that no list can use. One host is granted the instant.
//!
//! The record of that claim keeps when the job became overdue (`started_at`). A host whose history
//! of the job no longer reaches back to the last success continues from there, so that a restart
//! repeats nothing.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::fact::JobsByName;
use crate::config::{Job, NotifyTarget, Scope};
use crate::ground::tasks::SpawnBoxed as _;
use crate::names::{HostName, JobName, RunId, Token};
use crate::store::{
    Claim, ClaimReply, ClaimTarget, Due, Fingerprint, Finish, Kind, Late, Lock, LockKey, Outcome,
    Overlap, Record, Retention, RunStatus, Store, StoreError,
};
use crate::time::Timestamp;

/// How many jobs are looked at at the same time.
const AT_ONCE: usize = 4;
/// When a job is looked at again that the store could not be asked about.
const AGAIN: Duration = Duration::from_secs(10);
/// How soon after the start of the daemon jobs are looked at. By then they are registered.
const FIRST: Duration = Duration::from_secs(5);
/// The lease of a claim. It ends with its result, at once.
const TTL: Duration = Duration::from_secs(10);
/// How late a claim for an overdue instant may be executed.
const PATIENCE: Duration = Duration::from_secs(3600);

/// The jobs that are watched, and what is known of them.
pub(super) struct Overdue {
    jobs: HashMap<JobName, Watched>,
    looks: JoinSet<(JobName, Result<OverdueFinding, StoreError>)>,
}

/// A job to be watched.
#[derive(Debug, Clone)]
pub(super) struct OverdueWatch {
    job: JobName,
    within: Duration,
    /// The shortest `repeat` of its targets.
    repeat: Option<Duration>,
}

impl OverdueWatch {
    /// Returns what to watch of a job; `None` without `expect_success_within`.
    pub(super) fn of(job: &Job, repeat: Option<Duration>) -> Option<Self> {
        Some(Self {
            job: job.name.clone(),
            within: job.alerts.expect_success_within?,
            repeat,
        })
    }
}

#[derive(Debug, Clone)]
struct Watched {
    watch: OverdueWatch,
    last_success: Option<Timestamp>,
    /// From when on there was no success, if the history does not reach back to one.
    not_since: Option<Timestamp>,
    look_at: Instant,
    state: LookState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LookState {
    Idle,
    Looking,
}

/// What was found about a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OverdueFinding {
    /// When it last succeeded, as far as is known.
    pub(super) last_success: Option<Timestamp>,
    /// From when on there was no success, if the history does not reach back to one.
    not_since: Option<Timestamp>,
    /// The instant that this host is to report, if any.
    pub(super) report: Option<OverdueReport>,
    /// When to look again.
    again: Duration,
}

/// An instant of an overdue job that this host was granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OverdueReport {
    /// How long after the job became overdue the instant is; zero for the first time.
    after: Duration,
    /// How long after the job became overdue the instant before it was.
    before: Duration,
}

impl OverdueReport {
    const FIRST: Self = Self {
        after: Duration::ZERO,
        before: Duration::ZERO,
    };

    /// The newest instant that is to be repeated by now.
    fn repeated(repeat: Duration, overdue_for: Duration) -> Option<Self> {
        let nth = overdue_for.as_millis() / repeat.as_millis().max(1);
        let nth = u32::try_from(nth).unwrap_or(u32::MAX);
        (nth > 0).then(|| Self {
            after: repeat.saturating_mul(nth),
            before: repeat.saturating_mul(nth - 1),
        })
    }

    /// Whether a target is notified at this instant: each at the first, then by its own `repeat`.
    pub(super) fn concerns(self, target: &NotifyTarget) -> bool {
        match target.repeat {
            _ if self.after.is_zero() => true,
            None => false,
            Some(repeat) => {
                let stretches = |time: Duration| time.as_millis() / repeat.as_millis().max(1);
                stretches(self.after) > stretches(self.before)
            }
        }
    }
}

impl Overdue {
    /// Watches no job.
    pub(super) fn none() -> Self {
        Self {
            jobs: HashMap::new(),
            looks: JoinSet::new(),
        }
    }

    /// Watches these jobs and no others.
    pub(super) fn replace(&mut self, jobs: impl Iterator<Item = OverdueWatch>, now: Instant) {
        let mut before = std::mem::take(&mut self.jobs);
        let watched = |watch: OverdueWatch| {
            let job = watch.job.clone();
            let before = before.remove(&job);
            let watched = Watched {
                last_success: before.as_ref().and_then(|job| job.last_success),
                not_since: before.as_ref().and_then(|job| job.not_since),
                look_at: now + FIRST,
                state: before.map_or(LookState::Idle, |job| job.state),
                watch,
            };
            (job, watched)
        };
        self.jobs = jobs.map(watched).collect();
    }

    /// When to [`look`](Self::look).
    pub(super) fn next(&self) -> Option<Instant> {
        if self.looks.len() >= AT_ONCE {
            return None;
        }
        let jobs = self.jobs.values();
        let idle = jobs.filter(|job| job.state == LookState::Idle);
        idle.map(|job| job.look_at).min()
    }

    /// A run of a job has succeeded.
    pub(super) fn succeeded(&mut self, job: &JobName, at: Timestamp) {
        if let Some(job) = self.jobs.get_mut(job) {
            job.last_success = job.last_success.max(Some(at));
        }
    }

    /// Begins to look at the jobs whose time has come.
    pub(super) fn look(
        &mut self,
        store: &Arc<dyn Store>,
        (host, keep): (&HostName, u32),
        jobs: &JobsByName,
    ) {
        let now = Instant::now();
        for (name, watched) in &mut self.jobs {
            if self.looks.len() >= AT_ONCE {
                return;
            }
            if watched.state == LookState::Looking || watched.look_at > now {
                continue;
            }
            let Some(job) = jobs.get(name).map(Arc::clone) else {
                watched.look_at = now + PATIENCE;
                continue;
            };
            watched.state = LookState::Looking;
            let look = Look {
                store: Arc::clone(store),
                lock: job.lock_on(host),
                job,
                host: host.clone(),
                keep,
                watched: watched.clone(),
            };
            let name = name.clone();
            self.looks
                .spawn_boxed(async move { (name, look.run().await) });
        }
    }

    /// Waits for what was found about a job; never returns while none is looked at. Cancel-safe.
    pub(super) async fn found(&mut self) -> Option<(JobName, OverdueFinding)> {
        if self.looks.is_empty() {
            return std::future::pending().await;
        }
        let looked = self.looks.join_next().await?;
        let (name, finding) = looked
            .inspect_err(|error| {
                tracing::error!("a notification task failed, which is a bug: please report it with this log: {error}");
            })
            .ok()?;
        let finding = finding.unwrap_or_else(|error| {
            tracing::debug!(job = %name, "cannot find out whether it is overdue: {error}");
            OverdueFinding {
                last_success: None,
                not_since: None,
                report: None,
                again: AGAIN,
            }
        });
        if let Some(watched) = self.jobs.get_mut(&name) {
            watched.state = LookState::Idle;
            watched.last_success = watched.last_success.max(finding.last_success);
            watched.not_since = watched.not_since.or(finding.not_since);
            watched.look_at = Instant::now() + finding.again;
        }
        Some((name, finding))
    }
}

/// From when on a job has had no success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Base {
    /// Its last success.
    Success(Timestamp),
    /// The store first saw the job, which has not succeeded since.
    FirstSeen(Timestamp),
    /// The history begins here, without a success. The last one may have been long before.
    NotSince(Timestamp),
}

impl Base {
    /// When the job becomes overdue, or became so. `reported` is when it did, as a host reported it.
    fn due(self, within: Duration, reported: Option<Timestamp>) -> Timestamp {
        match (self, reported) {
            (Self::NotSince(_), Some(reported)) => reported,
            // What was reported counts until the next success.
            (Self::Success(at) | Self::FirstSeen(at), Some(reported)) => {
                at.plus(within).max(reported)
            }
            (Self::Success(at) | Self::FirstSeen(at) | Self::NotSince(at), None) => at.plus(within),
        }
    }
}

/// One look at one job.
struct Look {
    store: Arc<dyn Store>,
    job: Arc<Job>,
    lock: Lock,
    host: HostName,
    keep: u32,
    watched: Watched,
}

impl Look {
    async fn run(&self) -> Result<OverdueFinding, StoreError> {
        let base = self.base().await?;
        let finding = |report, again| OverdueFinding {
            last_success: match base {
                Some(Base::Success(at)) => Some(at),
                _ => None,
            },
            not_since: match base {
                Some(Base::NotSince(at)) => Some(at),
                _ => None,
            },
            report,
            again,
        };
        let Some(base) = base else {
            return Ok(finding(None, AGAIN));
        };
        let due = base.due(self.watched.watch.within, self.reported().await?);
        let now = self.store.now().await?;
        if now < due {
            return Ok(finding(None, due.since(now) + Duration::from_millis(1)));
        }
        let (report, wait) = self.claim_newest(base, due, now).await?;
        if (report, wait) == (None, None) {
            let job = &self.job.name;
            tracing::debug!(%job, "overdue since {due}; it was reported as overdue before");
        }
        let again = wait.unwrap_or_else(|| self.until_next(due, now));
        Ok(finding(report, again))
    }

    /// Returns `None` if the store does not know the job yet.
    async fn base(&self) -> Result<Option<Base>, StoreError> {
        let asked = [(self.job.name.clone(), self.lock.clone())];
        let report = self.store.jobs(&asked).await?.into_iter().next();
        let success = report.and_then(|report| report.summary.last_success);
        let success = success.and_then(|record| record.finished_at);
        if let Some(at) = self.watched.last_success.max(success) {
            return Ok(Some(Base::Success(at)));
        }
        // The ledgers of earlier versions do not have it.
        let (job, keep) = (&self.job.name, self.keep as usize);
        let records = self.store.history(job, &self.lock, keep).await?.records;
        let successes = records.iter().filter(|it| it.outcome == Outcome::Succeeded);
        let newest = successes.filter_map(|record| record.finished_at).max();
        if let Some(at) = newest {
            return Ok(Some(Base::Success(at)));
        }
        let oldest = records.last().and_then(|record| record.finished_at);
        match (self.watched.not_since, oldest) {
            (Some(since), _) => Ok(Some(Base::NotSince(since))),
            (None, Some(oldest)) if records.len() >= keep => Ok(Some(Base::NotSince(oldest))),
            _ => Ok(self.first_seen().await?.map(Base::FirstSeen)),
        }
    }

    /// When the job became overdue, as a host has reported it last.
    async fn reported(&self) -> Result<Option<Timestamp>, StoreError> {
        let (job, lock) = (&self.job.name, self.own_lock());
        let newest = self.store.history(job, &lock, 1).await?.records;
        Ok(newest.first().and_then(|record| record.started_at))
    }

    /// Claims the instant at which the job became overdue, else the newest one that is repeated.
    async fn claim_newest(
        &self,
        base: Base,
        due: Timestamp,
        now: Timestamp,
    ) -> Result<(Option<OverdueReport>, Option<Duration>), StoreError> {
        let repeat = self.watched.watch.repeat;
        let repeated = repeat.and_then(|repeat| OverdueReport::repeated(repeat, now.since(due)));
        for report in std::iter::once(OverdueReport::FIRST).chain(repeated) {
            match self.claim(base, (due, due.plus(report.after)), now).await? {
                ClaimReply::Granted { .. } => return Ok((Some(report), None)),
                ClaimReply::Early { by } => return Ok((None, Some(by))),
                ClaimReply::Recovering { remaining } => return Ok((None, Some(remaining))),
                _ => {}
            }
        }
        Ok((None, None))
    }

    /// When the job may be overdue anew, or is to be reported again.
    fn until_next(&self, due: Timestamp, now: Timestamp) -> Duration {
        let within = self.watched.watch.within;
        let Some(repeat) = self.watched.watch.repeat else {
            return within;
        };
        let period = repeat.as_millis().max(1);
        let left = period - now.since(due).as_millis() % period;
        let left = Duration::from_millis(u64::try_from(left).unwrap_or(u64::MAX));
        within.min(left + Duration::from_millis(1))
    }

    /// The lock of the ledger of reports. No lock of a list can have this name.
    fn own_lock(&self) -> Lock {
        let job = &self.job.name;
        let place = match self.job.lock.scope {
            Scope::Fleet => job.to_string(),
            Scope::Host | Scope::None => format!("{job}@{}", self.host),
        };
        Lock {
            name: format!("{place}!overdue"),
            key: LockKey::Named,
            exclusive: true,
        }
    }

    /// Claims an instant of a job that became overdue at `due`. Returns `AlreadyClaimed` if a host with another `base`
    /// has reported it meanwhile.
    async fn claim(
        &self,
        base: Base,
        (due, at): (Timestamp, Timestamp),
        now: Timestamp,
    ) -> Result<ClaimReply, StoreError> {
        let run_id = RunId::new();
        let token = Token::new(&self.host, &run_id);
        let job = &self.job.name;
        let lock = self.own_lock();
        let claim = Claim {
            lock: lock.clone(),
            token: token.clone(),
            run_id: run_id.clone(),
            ttl: TTL,
            what: ClaimTarget::Occurrence {
                job: job.clone(),
                kind: Kind::Schedule,
                due: Due {
                    scheduled_at: at,
                    not_before: at,
                    deadline: now.plus(PATIENCE),
                    prev: None,
                    fingerprint: Fingerprint("overdue".into()),
                    gap: None,
                    late: Late::Leave,
                    max_reruns: 0,
                    max_attempts: 0,
                    rerun_window: Duration::ZERO,
                    lead: Duration::ZERO,
                },
                overlap: Overlap::Skip,
                keep: Retention::of_records(1),
            },
        };
        let reply = self.store.claim(&claim).await?;
        if let ClaimReply::Granted { fence, .. } = reply {
            // Since this host looked, another one may have reported it, from a history that begins elsewhere.
            let reported = self.reported().await;
            let since = reported.map_or(due, |it| base.due(self.watched.watch.within, it));
            let finish = Finish {
                lock,
                token,
                record: Some(self.record(run_id, (since, at), fence)),
                job: Some(job.clone()),
                give_back: false,
                keep: Retention::of_records(1),
            };
            // The instant is ours already; without this the lease ends by itself.
            if let Err(error) = self.store.finish(&finish).await {
                tracing::debug!(%job, "cannot close the claim of a notification: {error}");
            }
            if since != due {
                return Ok(ClaimReply::AlreadyClaimed(RunStatus::Decided));
            }
        }
        Ok(reply)
    }

    fn record(&self, run_id: RunId, (due, at): (Timestamp, Timestamp), fence: u64) -> Record {
        Record {
            run_id: Some(run_id),
            scheduled_at: Some(at),
            started_at: Some(due),
            finished_at: Some(Timestamp::now()),
            host: Some(self.host.clone()),
            reason: Some("reported as overdue".to_owned()),
            fence: Some(fence),
            ..Record::blank(self.job.name.clone(), Kind::Schedule, Outcome::Succeeded)
        }
    }

    /// When the store first saw the job.
    async fn first_seen(&self) -> Result<Option<Timestamp>, StoreError> {
        let asked = [(self.job.name.clone(), self.lock.clone())];
        let reports = self.store.jobs(&asked).await?;
        let report = reports.into_iter().next();
        let seen = report.map(|it| it.fingerprints.into_iter().map(|(_, at)| at).min());
        Ok(seen.flatten())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(base: Base, reported: Option<i64>) -> i64 {
        let due = base.due(Duration::from_secs(100), reported.map(Timestamp::from_secs));
        due.millis() / 1000
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_secs(seconds)
    }

    #[test]
    fn a_job_becomes_overdue_by_its_last_success() {
        assert_eq!(due(Base::Success(at(1000)), None), 1100);
        assert_eq!(due(Base::FirstSeen(at(1000)), None), 1100);
        assert_eq!(due(Base::NotSince(at(1000)), None), 1100);
    }

    #[test]
    fn what_was_reported_counts_until_the_next_success() {
        assert_eq!(due(Base::Success(at(1000)), Some(1100)), 1100);
        // The history has lost the success, and begins later.
        assert_eq!(due(Base::NotSince(at(5000)), Some(1100)), 1100);
        assert_eq!(due(Base::Success(at(1050)), Some(1100)), 1150);
        // The job was deleted and added again.
        assert_eq!(due(Base::FirstSeen(at(5000)), Some(1100)), 5100);
    }

    /// A look by this host.
    fn look(store: &Arc<dyn Store>, job: &Arc<Job>, host: &str) -> Look {
        let host = HostName::parse(host).expect("a name");
        let watch = OverdueWatch {
            job: job.name.clone(),
            within: Duration::from_secs(100),
            repeat: None,
        };
        Look {
            store: Arc::clone(store),
            job: Arc::clone(job),
            lock: job.lock_on(&host),
            host,
            keep: 5,
            watched: Watched {
                watch,
                last_success: None,
                not_since: None,
                look_at: Instant::now(),
                state: LookState::Looking,
            },
        }
    }

    #[tokio::test]
    async fn hosts_whose_histories_begin_elsewhere_report_it_once() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("jobs.yaml");
        let text = "jobs: [{ name: job, schedule: '@daily', command: 'true' }]";
        std::fs::write(&path, text).expect("a file");
        let job = Arc::new(crate::config::load(&path).expect("a list").jobs[0].clone());
        let store = crate::store::open_empty().expect("a store");
        let now = store.now().await.expect("it is there");
        let began = now.minus(Duration::from_secs(110));
        let later = began.plus(Duration::from_secs(1));
        let mut reports = Vec::new();
        // Both looked before either had reported it.
        for (host, base) in [
            ("one", Base::FirstSeen(began)),
            ("two", Base::NotSince(later)),
        ] {
            let look = look(&store, &job, host);
            let due = base.due(look.watched.watch.within, None);
            let (report, _) = look.claim_newest(base, due, now).await.expect("a reply");
            reports.push(report.is_some());
        }
        assert_eq!(reports, [true, false]);
        let reported = look(&store, &job, "three").reported().await;
        let first = began.plus(Duration::from_secs(100));
        assert_eq!(reported.expect("a reply"), Some(first));
    }

    #[test]
    fn the_newest_instant_is_repeated() {
        let minutes = |n: u64| Duration::from_secs(60 * n);
        assert_eq!(OverdueReport::repeated(minutes(10), minutes(9)), None);
        let report = OverdueReport::repeated(minutes(10), minutes(35));
        let expected = OverdueReport {
            after: minutes(30),
            before: minutes(20),
        };
        assert_eq!(report, Some(expected));
    }
}
