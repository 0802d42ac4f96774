//! Watches a run of another host. Once its lease is over, this lane settles or reruns it.

use std::time::Duration;

use super::event::Action;
use super::lane::{Lane, LedgerSync, Phase};
use super::occurrence::{Aim, Occurrence, Origin};
use super::open_run::{MARGIN, OpenRunWatch};
use super::shared::{Mode, Shared, TimerKind};
use crate::names::RunId;
use crate::store::{Head, Kind, Late, OpenRun, Overlap};
use crate::time::Timestamp;

/// How long a full host waits before it has the store settle a run again.
const SETTLE_AGAIN: Duration = Duration::from_secs(1);

/// The reply to a query of the ledger: the open run, the head of the waiting list, and the entry behind it
/// whose deadline passes first.
pub(super) struct QueriedLedger {
    pub(super) open: Option<OpenRun>,
    pub(super) head: Option<Head>,
    pub(super) behind: Option<Head>,
}

impl Lane {
    /// Watches a run. A job has at most one open run, so this replaces an earlier watch.
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
        self.watch = Some(Box::new(OpenRunWatch {
            at,
            run_id,
            fire,
            due: false,
        }));
    }

    pub(super) fn watch_open(&mut self, shared: &mut Shared, open: OpenRun) {
        // This host's own run needs no watch.
        if self.running > 0 || self.closing > 0 {
            return;
        }
        let now = shared.now.boot;
        let is_over = open.remaining.is_zero();
        let known = self.watch.as_mut();
        match known.filter(|watch| is_over && watch.run_id == open.run_id) {
            // The reply does not say when the lease ended; the watch knows.
            Some(watch) if watch.fire <= now => watch.due = true,
            Some(watch) if watch.fire <= now.plus(SETTLE_AGAIN + MARGIN) => {}
            // The store may have refused to settle it, such as after a loss of data.
            _ if is_over && self.policy.max_reruns() > 0 && !shared.has_place() => {
                self.watch_run(shared, open.scheduled_at, open.run_id, SETTLE_AGAIN);
            }
            _ => self.watch_run(shared, open.scheduled_at, open.run_id, open.remaining),
        }
    }

    /// Queries the ledger if this lane skipped occurrences that another host may run. The rejection
    /// of this lane's claim names no run, so without the query no host would watch that run.
    pub(super) fn query_if_run_missed(&mut self, shared: &mut Shared) {
        let busy = self.running > 0 || self.closing > 0 || shared.mode == Mode::Draining;
        if self.may_have_missed_run && self.watch.is_none() && !busy {
            shared.act(Action::QueryLedger { job: self.job });
        }
    }

    /// Another host may have returned an occurrence of the job. If this lane watches that host's
    /// run, it must query the ledger for the waiting list.
    ///
    /// The reply that names the run may arrive after this message, on another connection. Therefore
    /// a message that arrives before the reply to a claim or registration is handled again after
    /// it.
    pub(super) fn returned_elsewhere(&mut self, shared: &mut Shared) {
        self.returned_meanwhile = self.awaits_reply();
        self.query_for_returned(shared);
    }

    fn awaits_reply(&self) -> bool {
        let claiming = matches!(self.phase, Phase::Claiming { .. });
        claiming || !matches!(self.sync, LedgerSync::Known | LedgerSync::Grace)
    }

    /// Whether a message about a returned occurrence changes anything in this lane.
    pub(super) fn listens(&self) -> bool {
        self.returned_meanwhile || self.watch.is_some() || self.awaits_reply()
    }

    /// Handles a message about a returned occurrence that arrived before the reply.
    pub(super) fn returned_before_reply(&mut self, shared: &mut Shared) {
        if std::mem::take(&mut self.returned_meanwhile) {
            self.query_for_returned(shared);
        }
    }

    fn query_for_returned(&mut self, shared: &mut Shared) {
        let busy = self.running > 0 || self.closing > 0 || shared.mode == Mode::Draining;
        if self.watch.is_some() && self.wait.is_none() && !busy {
            shared.act(Action::QueryLedger { job: self.job });
        }
    }

    /// Ends the watch if this lane was granted the occurrence itself.
    pub(super) fn unwatch_own(&mut self, shared: &mut Shared, at: Timestamp) {
        if self
            .watch
            .as_ref()
            .is_some_and(|watch| watch.at == Some(at))
        {
            self.unwatch(shared);
        }
    }

    /// Has the store decide what becomes of a run that this host cannot run again now: it has the record, or
    /// its rerun waits in the ledger, with its deadline, or its holder has renewed the lease.
    ///
    /// A claim for the record would be granted if the window is longer than this host knows.
    fn settle_watched(&mut self, shared: &mut Shared) {
        if let Some(watch) = self.watch.as_ref() {
            let run_id = watch.run_id.clone();
            self.unwatch(shared);
            shared.act(Action::Settle {
                job: self.job,
                run_id,
            });
        }
    }

    pub(super) fn ledger_queried(
        &mut self,
        shared: &mut Shared,
        QueriedLedger { open, head, behind }: QueriedLedger,
    ) {
        if let Some(open) = open.filter(|_| self.watch.is_none()) {
            self.watch_open(shared, open);
        }
        self.apply_waiting(shared, head, behind);
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
        self.set_aside();
        self.advance(shared);
    }

    /// The run was returned, waits for its rerun, or goes on; only the ledger knows.
    pub(super) fn not_settled(&mut self, shared: &mut Shared) {
        self.needs_ledger_sync = true;
        self.advance(shared);
        if self.sync == LedgerSync::Known && shared.mode == Mode::Working {
            // Until the pending occurrences are claimed, no registration names the run or the head.
            shared.act(Action::QueryLedger { job: self.job });
        }
    }

    /// Returns the occurrence of a watched run whose lease is over, to be claimed again.
    ///
    /// For a job without reruns the claim only produces the record, so a full host need not wait for a
    /// place.
    pub(super) fn due_rerun(&mut self, shared: &mut Shared) -> Option<Occurrence> {
        let is_run_again = self.policy.max_reruns() > 0;
        let watch = self.watch.as_mut().filter(|watch| watch.due)?;
        watch.due = false;
        let at = watch.at?;
        let lease_ended = watch.lease_end(shared.now);
        let deadline = lease_ended.plus(self.policy.rerun_window());
        let is_over = deadline < shared.now.utc;
        if is_run_again && (is_over || !shared.has_place()) {
            self.settle_watched(shared);
            return None;
        }
        Some(Occurrence {
            at,
            kind: Kind::Rerun,
            deadline,
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
