//! What the handles of leases send to the watchdog thread, and how it reports back to them.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::sync::watch;

use super::lost::LeaseLost;
use super::table::{LeaseId, RenewedLease};
use crate::names::{JobName, RunId};
use crate::store::{Finish, Renewal, StoreError};
use crate::time::{BootInstant, Timestamp};

/// A value that is kept alive for as long as a lease or a request lasts, and does its work when it
/// is dropped.
pub(crate) type OnDrop = Box<dyn Any + Send + Sync>;

/// A request of a handle to the thread.
#[derive(Debug)]
pub(super) enum WatchdogCommand {
    /// Renew this lease.
    Hold(LeaseId, LeaseSubscriber, Box<RenewedLease>),
    /// The holder renewed the lease itself, with a request sent at this instant.
    Renewed(LeaseId, BootInstant),
    /// Stop renewing this lease.
    LetGo(LeaseId),
    /// Deliver a release.
    Finish(Box<BackgroundFinish>),
}

/// A release, or the cancellation of a claim in doubt, for which no caller waits.
#[derive(Debug)]
pub(super) struct BackgroundFinish {
    /// The lease that ends with it, if it is held.
    pub(super) lease: Option<LeaseId>,
    pub(super) finish: Finish,
    pub(super) limit: Duration,
    /// Dropped once the store has replied or the limit is over.
    pub(super) until_done: OnDrop,
}

/// Where the thread reports on a lease.
#[derive(Debug)]
pub(super) struct LeaseSubscriber {
    pub(super) state: watch::Sender<LeaseState>,
    /// The run whose deadline in the guard moves with each renewal.
    pub(super) run: Option<RunId>,
    /// Why renewals have failed since the last one that succeeded.
    pub(super) trouble: watch::Sender<Option<StoreError>>,
    pub(super) fields: LeaseFields,
    /// Set once the run has ended, and only its result waits for the store. Failed renewals are then logged
    /// differently, as there is no job to kill.
    pub(super) run_ended: Arc<AtomicBool>,
    /// Dropped with the subscriber.
    pub(super) _while_held: Option<OnDrop>,
    /// Whether it was logged that this lease alone cannot be renewed.
    pub(super) is_failure_logged: bool,
}

/// The fields of log lines about a lease.
#[derive(Debug)]
pub(super) struct LeaseFields {
    pub(super) lock: String,
    pub(super) run_id: RunId,
    /// `None` for a bare lock.
    pub(super) job: Option<JobName>,
    /// `None` for a bare lock and for a manual run.
    pub(super) scheduled_at: Option<Timestamp>,
}

impl LeaseFields {
    pub(super) fn of(renewal: &Renewal) -> Self {
        let run = renewal.run.as_ref();
        Self {
            lock: renewal.grant.lock.name.clone(),
            run_id: renewal.grant.run_id.clone(),
            job: run.map(|run| run.job.clone()),
            scheduled_at: run.and_then(|run| run.scheduled_at),
        }
    }

    /// The name for people: the job, or the lock of a lease without one.
    pub(super) fn label(&self) -> &str {
        self.job.as_ref().map_or(&self.lock, JobName::as_str)
    }
}

/// The state of a lease, as the thread last reported it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeaseState {
    Held { ends: BootInstant },
    Lost(LeaseLost),
}

impl LeaseState {
    /// Moves the end of a lease that is held; returns whether it was held.
    pub(super) fn extend(&mut self, to: BootInstant) -> bool {
        let is_held = matches!(self, Self::Held { .. });
        if is_held {
            *self = Self::Held { ends: to };
        }
        is_held
    }

    /// Ends a lease that is held; returns whether it was. A lease that is over keeps its reason.
    pub(super) fn mark_lost(&mut self, why: LeaseLost) -> bool {
        let is_held = matches!(self, Self::Held { .. });
        if is_held {
            *self = Self::Lost(why);
        }
        is_held
    }
}
