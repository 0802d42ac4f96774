//! What is counted for each job of this host.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use super::histogram::seconds_of;
use super::text::Summed;
use crate::config::Job;
use crate::names::JobName;
use crate::store::Outcome;

/// How many jobs have series of their own. What the others do is counted under [`OTHERS`].
pub(super) const JOBS_MAX: usize = 2_000;
/// The label of the jobs beyond [`JOBS_MAX`] and of those that are no longer in the list. No job can
/// have this name.
pub(super) const OTHERS: &str = "(others)";

/// The counters of one job.
#[derive(Debug)]
pub(super) struct JobSeries {
    pub(super) in_progress: AtomicU64,
    /// Of each outcome, in the order of [`Outcome::ALL`].
    verdicts: [AtomicU64; Outcome::ALL.len()],
    runs: AtomicU64,
    sum_micros: AtomicU64,
}

impl JobSeries {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            in_progress: AtomicU64::new(0),
            verdicts: std::array::from_fn(|_| AtomicU64::new(0)),
            runs: AtomicU64::new(0),
            sum_micros: AtomicU64::new(0),
        })
    }

    pub(super) fn decided(&self, outcome: Outcome, count: u64) {
        for (kind, counter) in Outcome::ALL.iter().zip(&self.verdicts) {
            if *kind == outcome {
                counter.fetch_add(count, Ordering::Relaxed);
            }
        }
    }

    pub(super) fn ran(&self, duration: Duration) {
        self.runs.fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        self.sum_micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// The outcomes that occurred, with their counts.
    pub(super) fn verdicts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self.verdicts.iter();
        let counts = counts.map(|counter| counter.load(Ordering::Relaxed));
        let words = Outcome::ALL.iter().map(|outcome| outcome.word());
        words.zip(counts).filter(|(_, count)| *count > 0)
    }

    /// How many runs ended, and how long they took in all, in seconds.
    pub(super) fn durations(&self) -> Summed {
        Summed {
            count: self.runs.load(Ordering::Relaxed),
            sum: seconds_of(&self.sum_micros),
        }
    }
}

/// The jobs of this host.
#[derive(Debug)]
pub(super) struct JobTable {
    state: RwLock<TableState>,
    others: Arc<JobSeries>,
}

#[derive(Debug, Default)]
struct TableState {
    /// How many jobs there are.
    count: usize,
    /// Those that have series of their own.
    listed: Vec<Arc<Job>>,
    series: BTreeMap<JobName, Arc<JobSeries>>,
}

impl JobTable {
    pub(super) fn new() -> Self {
        Self {
            state: RwLock::default(),
            others: JobSeries::new(),
        }
    }

    /// Puts another list into force. A job that stays keeps its counters.
    pub(super) fn replace(&self, jobs: &[Arc<Job>]) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let mut before = std::mem::take(&mut state.series);
        state.count = jobs.len();
        state.listed = jobs.iter().take(JOBS_MAX).map(Arc::clone).collect();
        let named = jobs.iter().take(JOBS_MAX).map(|job| {
            let series = before.remove(&job.name).unwrap_or_else(JobSeries::new);
            (job.name.clone(), series)
        });
        state.series = named.collect();
    }

    /// The counters of a job.
    pub(super) fn of(&self, job: &JobName) -> Arc<JobSeries> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(state.series.get(job).unwrap_or(&self.others))
    }

    /// How many jobs there are.
    pub(super) fn len(&self) -> usize {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        state.count
    }

    /// The jobs that have series of their own.
    pub(super) fn listed(&self) -> Vec<Arc<Job>> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        state.listed.clone()
    }

    /// All counters, by the label of their job.
    pub(super) fn series(&self) -> Vec<(String, Arc<JobSeries>)> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let named = state.series.iter();
        let named = named.map(|(name, series)| (name.to_string(), Arc::clone(series)));
        let others = (OTHERS.to_owned(), Arc::clone(&self.others));
        named.chain([others]).collect()
    }
}
