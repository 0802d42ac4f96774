//! Watches a run of another host: once its lease is over, the run is closed or repeated.

use std::time::Duration;

use super::event::Action;
use super::lane::{Lane, LedgerSync, Phase};
use super::occurrence::{Aim, Occurrence, Origin};
use super::open_run::OpenRunWatch;
use super::shared::{Mode, Shared, TimerKind};
use crate::names::RunId;
use crate::store::{Head, Kind, Late, OpenRun, Overlap};
use crate::time::Timestamp;

/// How long after the end of a lease it is asked about.
const MARGIN: Duration = Duration::from_millis(25);

impl Lane {
    /// Looks after a run; there is at most one open run per job, so the newest word counts.
    pub(super) fn watch_run(
        &mut self,
        shared: &mut Shared,
        at: Option<Timestamp>,
        run_id: RunId,
        remaining: Duration,
    ) {
        self.unwatch(shared);
        if shared.mode == Mode::Draining {
            return;
        }
        let fire = shared.now.boot.plus(remaining + MARGIN);
        shared.arm(fire, self.job, TimerKind::Watch);
        self.watch = Some(OpenRunWatch {
            at,
            run_id,
            fire,
            due: false,
        });
    }

    pub(super) fn watch_open(&mut self, shared: &mut Shared, open: OpenRun) {
        // Our own run needs no looking after.
        if self.running == 0 && self.closing == 0 {
            self.watch_run(shared, open.scheduled_at, open.run_id, open.remaining);
        }
    }

    /// A claim of this lane's was refused, and the refusal names no run of the job: one that was
    /// granted for an occurrence that this lane passed by would be watched by nobody.
    pub(super) fn look(&mut self, shared: &mut Shared) {
        let busy = self.running > 0 || self.closing > 0 || shared.mode == Mode::Draining;
        if self.may_have_missed_run && self.watch.is_none() && !busy {
            shared.act(Action::Look { job: self.job });
        }
    }

    /// A host may have returned an occurrence of the job. If this lane looks after the run of
    /// another host, that may be the one: the ledger says what waits.
    ///
    /// The reply that names the run may come after this message, on another connection: therefore
    /// a message that comes while a claim or a registration is out counts once the reply is there.
    pub(super) fn returned_elsewhere(&mut self, shared: &mut Shared) {
        let claiming = matches!(self.phase, Phase::Claiming { .. });
        let registering = !matches!(self.sync, LedgerSync::Known | LedgerSync::Grace);
        self.returned_meanwhile = claiming || registering;
        self.look_for_returned(shared);
    }

    /// The reply is there that a message about a returned occurrence may have overtaken.
    pub(super) fn returned_before_reply(&mut self, shared: &mut Shared) {
        if std::mem::take(&mut self.returned_meanwhile) {
            self.look_for_returned(shared);
        }
    }

    fn look_for_returned(&mut self, shared: &mut Shared) {
        let busy = self.running > 0 || self.closing > 0 || shared.mode == Mode::Draining;
        if self.watch.is_some() && self.wait.is_none() && !busy {
            shared.act(Action::Look { job: self.job });
        }
    }

    /// This lane was granted the occurrence whose run it looked after.
    pub(super) fn unwatch_own(&mut self, shared: &mut Shared, at: Timestamp) {
        if self
            .watch
            .as_ref()
            .is_some_and(|watch| watch.at == Some(at))
        {
            self.unwatch(shared);
        }
    }

    pub(super) fn found(&mut self, shared: &mut Shared, open: Option<OpenRun>, head: Option<Head>) {
        if let Some(open) = open.filter(|_| self.watch.is_none()) {
            self.watch_open(shared, open);
        }
        self.heard_of_head(shared, head);
        self.advance(shared);
    }

    pub(super) fn watch_again(&mut self, shared: &mut Shared, after: Duration) {
        if let Some(watch) = self.watch.take() {
            self.watch_run(shared, watch.at, watch.run_id, after);
        }
    }

    pub(super) fn unwatch(&mut self, shared: &mut Shared) {
        if let Some(watch) = self.watch.take() {
            shared.disarm(watch.fire, self.job, TimerKind::Watch);
        }
    }

    pub(super) fn watch_due(&mut self, shared: &mut Shared) {
        let Some(watch) = self.watch.as_mut() else {
            return;
        };
        if watch.fire > shared.now.boot {
            return;
        }
        if watch.at.is_none() {
            let run_id = watch.run_id.clone();
            self.watch = None;
            shared.act(Action::Settle {
                job: self.job,
                run_id,
            });
            return;
        }
        watch.due = true;
        if self.policy.max_reruns() == 0 {
            self.set_aside();
        }
        self.advance(shared);
    }

    /// The run was given back, or waits to be run again: only the ledger knows.
    pub(super) fn not_settled(&mut self, shared: &mut Shared) {
        self.needs_ledger_sync = true;
        self.advance(shared);
    }

    /// The claim that asks for a run whose lease is over.
    ///
    /// Of a job that is not run again it brings a record alone: a full host need not wait for a place.
    pub(super) fn due_rerun(&mut self, shared: &Shared) -> Option<Occurrence> {
        let is_run_again = self.policy.max_reruns() > 0;
        let watch = self.watch.as_mut().filter(|watch| watch.due)?;
        watch.due = false;
        let at = watch.at?;
        Some(Occurrence {
            at,
            kind: Kind::Rerun,
            deadline: self.policy.deadline(at),
            overlap: Overlap::Wait,
            late: Late::Leave,
            aim: if is_run_again || shared.has_place() {
                Aim::Run
            } else {
                Aim::Verdict
            },
            gap: None,
            origin: Origin::Watch,
            blocked: false,
            needs_ledger_sync: false,
        })
    }
}
