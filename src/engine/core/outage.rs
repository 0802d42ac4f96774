//! What a lane does while the store is unreachable.

use super::answers::join_backlog;
use super::event::{Action, ClaimId};
use super::lane::{AfterOwnRun, Lane, LedgerSync, Phase, RegistrationState};
use super::occurrence::{NotClaimed, Occurrence};
use super::policy::Exclusion;
use super::shared::{Shared, StoreState, TimerKind};
use crate::config::{CatchUp, OnOverlap, OnStoreDown};
use crate::time::Timestamp;

impl Lane {
    /// A claim has received no reply; the driver resends it.
    pub(super) fn no_reply(&mut self, shared: &mut Shared, unanswered: ClaimId) {
        let (claim, occ, placed) = match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Claiming { claim, occ, placed } if claim == unanswered => (claim, occ, placed),
            other => {
                self.phase = other;
                return;
            }
        };
        let current = occ.is_current();
        if let Some(until) = self.unsure_until(shared).filter(|_| current) {
            // It may have had no reply because this host stood still.
            self.cancel(shared, claim, placed);
            self.pending.push_front(Occurrence {
                needs_ledger_sync: true,
                ..*occ
            });
            shared.arm(until, self.job, TimerKind::Unsure);
            return;
        }
        match self.policy.on_store_down {
            OnStoreDown::Skip if current => {
                self.cancel(shared, claim, placed);
                self.needs_ledger_sync = true;
                self.leave_unclaimed(shared, occ.at, NotClaimed::StoreDown);
                self.skip_pending(shared);
            }
            OnStoreDown::Run if current && !self.notes.is_paused(shared.now.utc) => {
                self.needs_ledger_sync = true;
                if self.overlaps_own_run() {
                    self.cancel(shared, claim, placed);
                    self.pending.push_front(*occ);
                } else {
                    self.note(occ.at, NotClaimed::RanWithoutStore);
                    self.start_without_store(shared, claim, occ.at);
                }
                self.advance(shared);
            }
            // Occurrences in the waiting list stay there, and `catch_up` judges past ones again; neither must
            // hold up what comes due in the meantime.
            OnStoreDown::Run | OnStoreDown::Skip => {
                self.cancel(shared, claim, placed);
                self.require_sync_before_pending();
                self.advance(shared);
            }
            OnStoreDown::Wait => {
                if self.policy.catch_up == CatchUp::All {
                    // They may overlap the late run of this one, which is no reason to skip them.
                    for later in &mut self.pending {
                        join_backlog(&self.policy, later);
                    }
                }
                shared.arm_utc(occ.deadline, self.job, TimerKind::Deadline(claim));
                self.phase = Phase::Claiming { claim, occ, placed };
            }
        }
    }

    /// The store is reachable but cannot use this job's keys; the driver resends the claim. No host
    /// runs the job in the meantime: unlike in an outage, `on_store_down: run` would run it on
    /// every host.
    pub(super) fn keys_unusable(&mut self, shared: &mut Shared, unusable: ClaimId) {
        if let Phase::Claiming { claim, occ, .. } = &self.phase
            && *claim == unusable
        {
            shared.arm_utc(occ.deadline, self.job, TimerKind::Deadline(*claim));
        }
    }

    fn skip_pending(&mut self, shared: &mut Shared) {
        for occ in std::mem::take(&mut self.pending) {
            if occ.is_current() {
                self.leave_unclaimed(shared, occ.at, NotClaimed::StoreDown);
            }
        }
    }

    /// The start deadline has passed without a reply. This and all pending occurrences are left to `catch_up`,
    /// once the store is reachable again.
    pub(super) fn give_up_claim(&mut self, shared: &mut Shared, claim: ClaimId, placed: bool) {
        self.cancel(shared, claim, placed);
        self.pending.clear();
        self.needs_ledger_sync = true;
        self.advance(shared);
    }

    /// Returns whether nothing more is to be done about the occurrence.
    pub(super) fn due_while_down(&mut self, shared: &mut Shared, at: Timestamp) -> bool {
        self.needs_ledger_sync = true;
        match self.policy.on_store_down {
            OnStoreDown::Wait => true,
            OnStoreDown::Skip => {
                self.leave_unclaimed(shared, at, NotClaimed::StoreDown);
                true
            }
            // The ledger skips it once the store is reachable again.
            OnStoreDown::Run if self.notes.is_paused(shared.now.utc) => true,
            OnStoreDown::Run => {
                let skip = self.policy.on_overlap == OnOverlap::Skip && self.overlaps_own_run();
                if skip {
                    self.leave_unclaimed(shared, at, NotClaimed::StillRunning);
                }
                skip
            }
        }
    }

    /// The wait for the store after a stop of this host is over. If the store is still unreachable, acts on the
    /// outage.
    pub(super) fn outage_confirmed(&mut self, shared: &mut Shared) {
        if shared.store != StoreState::Down {
            return;
        }
        if self.policy.on_store_down == OnStoreDown::Skip {
            self.needs_ledger_sync = true;
            self.skip_pending(shared);
        }
        self.advance(shared);
    }

    fn overlaps_own_run(&self) -> bool {
        self.running > 0 && self.policy.exclusion == Exclusion::Lock
    }

    /// Runs due occurrences without the store (`on_store_down: run`).
    pub(super) fn advance_without_store(&mut self, shared: &mut Shared) {
        // Catching up needs the ledger, so past occurrences wait for it.
        self.pending.retain(Occurrence::is_current);
        self.require_sync_before_pending();
        self.needs_ledger_sync = true;
        if self.notes.is_paused(shared.now.utc) {
            self.pending.clear();
        }
        while !self.overlaps_own_run()
            && let Some(occ) = self.pending.pop_front()
        {
            let claim = shared.new_claim();
            if occ.deadline < shared.now.utc {
                continue;
            }
            if !shared.take_place() {
                self.park(shared, claim, occ);
                return;
            }
            self.note(occ.at, NotClaimed::RanWithoutStore);
            self.start_without_store(shared, claim, occ.at);
        }
        if self.policy.on_overlap == OnOverlap::Skip {
            for occ in std::mem::take(&mut self.pending) {
                self.leave_unclaimed(shared, occ.at, NotClaimed::StillRunning);
            }
        }
    }

    fn start_without_store(&mut self, shared: &mut Shared, claim: ClaimId, at: Timestamp) {
        self.running += 1;
        self.after_own_run = AfterOwnRun::Look;
        shared.act(Action::StartWithoutStore {
            job: self.job,
            claim,
            at,
        });
    }

    /// The store became unreachable (its data need not be lost).
    ///
    /// With `on_store_down: wait` and `catch_up: all`, pending occurrences came due before the outage was noticed,
    /// so they may overlap late runs; they join the backlog. While a registration had no reply, no claim was sent
    /// and the outage could not be noticed, so what waits for it is left to `catch_up` (with `catch_up: latest`, or
    /// if this daemon has never reached the store).
    pub(super) fn store_unreachable(&mut self) {
        if self.policy.on_store_down == OnStoreDown::Wait && self.policy.catch_up == CatchUp::All {
            for occ in &mut self.pending {
                join_backlog(&self.policy, occ);
            }
        }
        let waits_for_ledger = self.registration == RegistrationState::Pending
            || self.policy.catch_up == CatchUp::Latest && self.sync != LedgerSync::Known;
        if waits_for_ledger && self.policy.on_store_down == OnStoreDown::Wait {
            self.start_anew();
        }
    }
}
