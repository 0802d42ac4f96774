//! Reports a store that may have lost data. The core decides what to do about it.

use std::time::Duration;

use super::Daemon;
use crate::engine::core::{Action, Event, JobIx};
use crate::ground::tasks;
use crate::time::{BootInstant, Timestamp};

/// Two replies that differ by less mean the same wait.
pub(super) const SAME: Duration = Duration::from_secs(1);

impl Daemon {
    /// The time for which the shard of this job's lock grants nothing, according to a reply about
    /// the job.
    pub(super) fn store_recovers(&mut self, job: JobIx, remaining: Duration) {
        if remaining.is_zero() {
            return;
        }
        self.registry.doubt();
        let until = BootInstant::now().plus(remaining);
        self.warn_of_recovery(until, remaining);
        let Some(shard) = self.shard_of(job) else {
            return;
        };
        if self.registry.recovers(shard, until) {
            self.look_after_registry();
            if self.health.is_up() {
                self.enter_after(shard, remaining);
            }
        }
    }

    fn shard_of(&self, job: JobIx) -> Option<u64> {
        let job = self.job(job)?;
        Some(self.link.store.shard(&job.lock_id().on(&self.host)))
    }

    /// Says once that nothing starts until then.
    fn warn_of_recovery(&mut self, until: BootInstant, remaining: Duration) {
        let known = self.recovers.replace(until);
        if known.is_some_and(|known| until <= known.plus(SAME)) {
            self.recovers = known.max(Some(until));
            return;
        }
        tracing::warn!(
            "the store is new, was restarted or has lost data; nothing starts until {} (in {:.1} \
             s), because a run that the store no longer knows may still be in progress on some \
             host. Runs on this host continue, and due jobs wait (to avoid this on a first start, \
             run `cronlatch init`)",
            Timestamp::now().plus(remaining),
            remaining.as_secs_f64()
        );
        // It may have forgotten that this host lives, and which locks it uses.
        if self.is_ready {
            self.announce();
        }
        self.status();
    }

    /// This shard may have forgotten that a ledger has moved to another lock: each job whose lock it keeps
    /// is entered once more before anything of the job is claimed. This waits until the shard has
    /// recovered, because by then all hosts have written again which locks they use.
    fn enter_after(&mut self, shard: u64, remaining: Duration) {
        let mut entered = self.registry.entered_jobs();
        entered.retain(|job| self.shard_of(*job) == Some(shard));
        let mut jobs = Vec::with_capacity(entered.len());
        for job in entered {
            self.registry.leave(job);
            let absent = Event::Absent { job: Some(job) };
            for action in self.core.handle(self.clock.now(), absent) {
                match action {
                    Action::Register { job } => jobs.push(job),
                    other => self.act(other),
                }
            }
        }
        // The store may have lost, too, that this host lives.
        self.registry.not_registered();
        tasks::spawn(self.link.clone().register_after(jobs, remaining));
    }

    /// Says that the wait is over.
    pub(super) fn look_for_recovery(&mut self) {
        if self
            .recovers
            .is_some_and(|until| until.remaining().is_zero())
        {
            self.recovers = None;
            tracing::info!(
                "the store has recovered; occurrences from before the data loss whose result is \
                 not known are recorded as unknown"
            );
        }
    }
}
