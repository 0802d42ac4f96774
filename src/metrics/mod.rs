//! What a daemon measures, in the text formats of Prometheus.
//!
//! [`Metrics`] is a cheap handle on counters. Engine and store report to it and never wait for it; it
//! decides nothing. [`MetricsPage`] writes a page for `/metrics` and for the textfile, and reads from the
//! store what concerns the whole fleet.
//!
//! Every label has a bounded set of values: the jobs of the list (at most `jobs::JOBS_MAX`, the rest as
//! one), outcomes, replies and operations. Hosts, runs and reasons are no labels.

mod catalog;
mod counters;
mod file;
mod histogram;
mod jobs;
mod page;
mod store;
mod text;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::config::Job;
use crate::lease::LeaseLost;
use crate::names::JobName;
use crate::run::RunObserver;
use crate::store::{
    ClaimReply, CopyReply, Fingerprint, Outcome, Record, RenewReply, RunStatus, Store, StoreError,
};
use crate::time::Timestamp;
use counters::WordCounters;
pub(crate) use file::{MetricsFile, MetricsFileTask};
use histogram::{Bounds, Histogram};
use jobs::{JobSeries, JobTable};
pub(crate) use page::MetricsPage;
use store::MeasuredStore;
pub(crate) use text::TextFormat;

/// In seconds. A start within 50 ms is on time.
const LATENESS: Bounds = &[0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];
/// In seconds. A request takes well below a millisecond in a data centre.
const LATENCY: Bounds = &[
    0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
];

/// The kinds of requests to the store that are counted separately.
const OPERATIONS: [&str; 7] = [
    "claim", "renew", "finish", "register", "announce", "read", "other",
];
/// The kinds of [`StoreError`].
const ERRORS: [&str; 7] = [
    "unreachable",
    "part_unreachable",
    "refused",
    "replica",
    "wrong_list",
    "corrupt",
    "key",
];
const CLAIM_REPLIES: [&str; 16] = [
    "granted",
    "held",
    "running_elsewhere",
    "decided",
    "gap",
    "waits",
    "early",
    "recovering",
    "too_late",
    "unknown",
    "ahead",
    "paused",
    "queue_full",
    "dropped",
    "moved",
    "finished",
];
const RENEW_REPLIES: [&str; 5] = ["renewed", "taken", "absent", "unanswered", "error"];
const LOSSES: [&str; 3] = ["taken", "absent", "expired"];

/// What the daemon's loop publishes of itself every second.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DaemonGauges {
    pub(crate) readiness: Readiness,
    pub(crate) store: StoreReachability,
    pub(crate) clock_offset_ms: Option<i64>,
    pub(crate) list: Fingerprint,
    pub(crate) newest_list: ListState,
    pub(crate) unusable_keys: usize,
    pub(crate) held_back: usize,
    pub(crate) started_at: Timestamp,
}

/// Whether a host can run jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Readiness {
    Ready,
    NotReady,
    Draining,
}

/// Whether the store replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoreReachability {
    Up,
    Down,
}

/// What became of the newest job list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListState {
    InForce,
    Rejected,
}

/// Counts what a daemon does. Clones share the counters.
#[derive(Debug, Clone)]
pub(crate) struct Metrics(Arc<MetricsState>);

#[derive(Debug)]
struct MetricsState {
    daemon: Mutex<Option<DaemonGauges>>,
    jobs: JobTable,
    lateness: Histogram,
    claims: WordCounters<16>,
    renewals: WordCounters<5>,
    losses: WordCounters<3>,
    requests: [StoreOperation; OPERATIONS.len()],
}

#[derive(Debug)]
struct StoreOperation {
    name: &'static str,
    latency: Histogram,
    errors: WordCounters<7>,
}

impl Metrics {
    /// Counters at zero, without jobs.
    pub(crate) fn new() -> Self {
        Self(Arc::new(MetricsState {
            daemon: Mutex::new(None),
            jobs: JobTable::new(),
            lateness: Histogram::new(LATENESS),
            claims: WordCounters::new(CLAIM_REPLIES),
            renewals: WordCounters::new(RENEW_REPLIES),
            losses: WordCounters::new(LOSSES),
            requests: OPERATIONS.map(|name| StoreOperation {
                name,
                latency: Histogram::new(LATENCY),
                errors: WordCounters::new(ERRORS),
            }),
        }))
    }

    /// Returns a store that does the same and is measured.
    pub(crate) fn measure(&self, store: Arc<dyn Store>) -> Arc<dyn Store> {
        Arc::new(MeasuredStore::new(store, self.clone()))
    }

    /// Puts another list of jobs of this host into force. A job that stays keeps its counters.
    pub(crate) fn set_jobs(&self, jobs: &[Arc<Job>]) {
        self.0.jobs.replace(jobs);
    }

    /// Publishes what the daemon is doing.
    pub(crate) fn set_daemon(&self, gauges: DaemonGauges) {
        let mut daemon = self.0.daemon.lock().unwrap_or_else(PoisonError::into_inner);
        *daemon = Some(gauges);
    }

    /// A claim has a reply.
    pub(crate) fn claimed(&self, reply: &CopyReply) {
        if let Some(word) = word_of_claim(reply) {
            self.0.claims.add(word, 1);
        }
    }

    /// This host recorded a verdict. A range counts once for each of its occurrences.
    pub(crate) fn recorded(&self, record: &Record) {
        if record.is_correction() {
            return;
        }
        let series = self.0.jobs.of(&record.job);
        series.decided(record.outcome, record.count.unwrap_or(1));
        if record.run_id.is_some()
            && let (Some(started), Some(finished)) = (record.started_at, record.finished_at)
        {
            series.ran(finished.since(started));
        }
    }

    /// This host recorded a run as interrupted whose host stopped reporting.
    pub(crate) fn settled(&self, job: &JobName) {
        self.0.jobs.of(job).decided(Outcome::Interrupted, 1);
    }

    /// A run lost its lease.
    pub(crate) fn lost(&self, why: LeaseLost) {
        match why {
            LeaseLost::Taken => self.0.losses.add("taken", 1),
            LeaseLost::Absent => self.0.losses.add("absent", 1),
            LeaseLost::Expired => self.0.losses.add("expired", 1),
            LeaseLost::Released => {}
        }
    }

    /// Returns a follower of a run that is about to start, which passes starts on to `next`.
    pub(crate) fn follow(
        &self,
        job: &JobName,
        lateness: Option<LatenessClock>,
        next: impl RunObserver + 'static,
    ) -> MeasuredRun {
        MeasuredRun {
            metrics: self.clone(),
            series: self.0.jobs.of(job),
            lateness,
            next: Box::new(next),
            began: AtomicBool::new(false),
        }
    }

    fn store_replied(&self, operation: &str, took: Duration, error: Option<&StoreError>) {
        let known = self.0.requests.iter().find(|known| known.name == operation);
        let Some(operation) = known else { return };
        operation.latency.observe(took);
        if let Some(error) = error {
            operation.errors.add(word_of_error(error), 1);
        }
    }

    fn renewed(&self, sent: usize, replies: Option<&[RenewReply]>) {
        let Some(replies) = replies else {
            return self.0.renewals.add("error", sent as u64);
        };
        for reply in replies {
            let word = match reply {
                RenewReply::Renewed => "renewed",
                RenewReply::Taken => "taken",
                RenewReply::Absent => "absent",
                RenewReply::Unanswered => "unanswered",
            };
            self.0.renewals.add(word, 1);
        }
    }
}

/// How late a run starts: the instant at which its command starts, less the one at which it was due.
#[derive(Debug, Clone)]
pub(crate) struct LatenessClock {
    due: Timestamp,
    /// When `read`, by the clock that decides what is due.
    read: Timestamp,
    at: Instant,
}

impl LatenessClock {
    /// For an occurrence that was `due` then, while the deciding clock shows `now`.
    pub(crate) fn new(due: Timestamp, now: Timestamp) -> Self {
        Self {
            due,
            read: now,
            at: Instant::now(),
        }
    }

    fn lateness(&self) -> Duration {
        self.read.plus(self.at.elapsed()).since(self.due)
    }
}

/// Follows one run from before its start to its end.
#[derive(Debug)]
pub(crate) struct MeasuredRun {
    metrics: Metrics,
    series: Arc<JobSeries>,
    lateness: Option<LatenessClock>,
    next: Box<dyn RunObserver>,
    began: AtomicBool,
}

impl RunObserver for MeasuredRun {
    // Further attempts are no further starts.
    fn started(&self) {
        if !self.began.swap(true, Ordering::Relaxed) {
            self.series.in_progress.fetch_add(1, Ordering::Relaxed);
            if let Some(lateness) = &self.lateness {
                self.metrics.0.lateness.observe(lateness.lateness());
            }
        }
        self.next.started();
    }
}

impl Drop for MeasuredRun {
    fn drop(&mut self) {
        if self.began.load(Ordering::Relaxed) {
            self.series.in_progress.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn word_of_claim(reply: &CopyReply) -> Option<&'static str> {
    let reply = match reply {
        CopyReply::Granted { .. } => return Some("granted"),
        CopyReply::NotSent => return None,
        CopyReply::Refused(reply) => reply,
    };
    Some(match reply {
        ClaimReply::Granted { .. } => "granted",
        ClaimReply::Held { .. } => "held",
        ClaimReply::AlreadyClaimed(RunStatus::Running { .. }) => "running_elsewhere",
        ClaimReply::AlreadyClaimed(RunStatus::Decided) => "decided",
        ClaimReply::Gap { .. } => "gap",
        ClaimReply::Waits { .. } => "waits",
        ClaimReply::Early { .. } => "early",
        ClaimReply::Recovering { .. } => "recovering",
        ClaimReply::TooLate | ClaimReply::Stale => "too_late",
        ClaimReply::Unknown => "unknown",
        ClaimReply::Ahead { .. } => "ahead",
        ClaimReply::Paused(_) => "paused",
        ClaimReply::QueueFull => "queue_full",
        ClaimReply::Dropped => "dropped",
        ClaimReply::Moved { .. } => "moved",
        ClaimReply::Finished => "finished",
    })
}

fn word_of_error(error: &StoreError) -> &'static str {
    match error {
        StoreError::Unreachable(_) => "unreachable",
        StoreError::PartUnreachable(_) => "part_unreachable",
        StoreError::Refused(_) => "refused",
        StoreError::Replica(_) => "replica",
        StoreError::WrongList(_) => "wrong_list",
        StoreError::Corrupt(_) => "corrupt",
        StoreError::Key(_) => "key",
    }
}

#[cfg(test)]
mod tests;
