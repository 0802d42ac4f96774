//! What happened on this host, and what notifications about it are made from.

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::deliver::SendEnvironment;
use crate::config::{Job, NotifyTarget};
use crate::ground::sorting::SortShort as _;
use crate::names::{HostName, JobName, RunId};
use crate::store::{Record, Store};
use crate::time::Timestamp;

/// What notifications are made from.
pub(crate) struct NotifierSetup {
    /// The list that the process starts with.
    pub(crate) list: NotifiedList,
    /// The store with the histories of the jobs.
    pub(crate) store: Arc<dyn Store>,
    /// This host.
    pub(crate) host: HostName,
    /// What kind of process this is.
    pub(crate) role: Role,
}

/// Jobs that are found by their names. Sorted, because a hash table of many jobs takes four times the memory.
#[derive(Debug, Default)]
pub(super) struct JobsByName(Vec<Arc<Job>>);

impl JobsByName {
    pub(super) fn of(jobs: &[Arc<Job>]) -> Self {
        let mut jobs = jobs.to_vec();
        jobs.sort_short_by(|one, other| one.name.cmp(&other.name));
        Self(jobs)
    }

    pub(super) fn get(&self, name: &JobName) -> Option<&Arc<Job>> {
        let place = self.0.binary_search_by(|job| job.name.cmp(name)).ok()?;
        self.0.get(place)
    }
}

/// What a job list defines for notifications.
#[derive(Debug, Clone)]
pub(crate) struct NotifiedList {
    /// The targets of the list.
    pub(crate) targets: Vec<NotifyTarget>,
    /// The jobs of this host.
    pub(crate) jobs: Vec<Arc<Job>>,
    /// How many records each job keeps.
    pub(crate) keep: u32,
    /// The environment of programs.
    pub(crate) environment: SendEnvironment,
}

impl NotifiedList {
    /// Whether any job has notifications.
    pub(super) fn asks(&self) -> bool {
        self.jobs.iter().any(|job| {
            let alerts = &job.alerts;
            let times = alerts.long_after.or(alerts.expect_success_within);
            !alerts.targets.is_empty() || alerts.ping.is_some() || times.is_some()
        })
    }
}

/// A process that notifies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// A daemon. It also watches `expect_success_within`.
    Daemon,
    /// `trigger`: one run, and its end.
    SingleRun,
}

/// Something that happened on this host.
#[derive(Debug)]
pub(super) enum Fact {
    /// A verdict was delivered.
    Verdict(Box<Record>),
    /// The store has replied to a claim, which recorded these verdicts. It may have recorded others in passing.
    Claimed(JobName, Vec<Record>),
    /// A run whose host is gone was recorded as interrupted.
    Settled(JobName, RunId),
    /// A run's command was started.
    Began(RunBegan),
    /// A run has ended; its verdict follows.
    Over(RunId),
    /// The daemon ends.
    End(LastMessages),
}

/// The order to send what is waiting, and to end.
#[derive(Debug)]
pub(super) struct LastMessages {
    /// Until then.
    pub(super) until: Instant,
    /// Learns that it is done.
    pub(super) done: oneshot::Sender<()>,
}

/// A run whose command was started.
#[derive(Debug, Clone)]
pub(crate) struct RunBegan {
    /// The job.
    pub(crate) job: JobName,
    /// The run.
    pub(crate) run_id: RunId,
    /// Its occurrence; `None` for a run by hand.
    pub(crate) scheduled_at: Option<Timestamp>,
}
