//! What a lane does while an occurrence waits for a place on a full host: verdicts need no place, and do not
//! wait for one.

use std::time::Duration;

use super::event::{Action, ClaimId, OccurrenceNotice};
use super::lane::{Lane, LedgerSync, Phase};
use super::occurrence::{Occurrence, Origin, in_order, surely_over};
use super::shared::{Shared, StoreState, TimerKind};
use crate::time::Timestamp;

impl Lane {
    /// Queries the ledger while a rerun or a head waits for a place: newer occurrences may have
    /// verdicts by now, which need no place.
    pub(super) fn sync_while_parked(&mut self, shared: &mut Shared) {
        let is_ahead =
            matches!(&self.phase, Phase::Parked { occ, .. } if occ.origin != Origin::Lane);
        if is_ahead && self.sync == LedgerSync::Known && self.needs_sync_now() {
            self.sync = LedgerSync::Registering;
            shared.act(Action::Register { job: self.job });
        }
    }

    /// Has an occurrence wait for a place.
    pub(super) fn park(&mut self, shared: &mut Shared, claim: ClaimId, occ: Occurrence) {
        let notice = if shared.is_short() {
            OccurrenceNotice::Short
        } else {
            OccurrenceNotice::Full
        };
        self.report(shared, occ.at, notice);
        shared.park(self.job);
        let over = match occ.origin {
            Origin::Lane => occ.deadline.plus(Duration::from_millis(1)),
            Origin::Head | Origin::Watch => surely_over(occ.deadline),
        };
        shared.arm_utc(over, self.job, TimerKind::Deadline(claim));
        self.look_later(shared, claim);
        self.phase = Phase::Parked {
            claim,
            occ: Box::new(occ),
        };
        self.advance(shared);
    }

    /// What was left to other hosts, skipped, or became too late needs a verdict, which does not wait behind
    /// an occurrence that waits for a place.
    pub(super) fn resync(&mut self, shared: &mut Shared) {
        let is_parked = matches!(self.phase, Phase::Parked { .. });
        if matches!(&self.phase, Phase::Parked { occ, .. } if occ.origin == Origin::Lane) {
            self.set_aside();
        }
        if is_parked {
            self.require_sync_before_pending();
        }
        self.needs_ledger_sync = true;
        self.advance(shared);
    }

    fn look_later(&self, shared: &mut Shared, parked: ClaimId) {
        let at = shared.now.boot.plus(self.policy.poll);
        shared.arm(at, self.job, TimerKind::Look(parked));
    }

    /// Queries the ledger while an occurrence waits for a place: another host may run it and die, and what
    /// waits behind it in the ledger may become too late. The records of both need no place. If the lane
    /// itself owes verdicts, it registers, so that they are recorded.
    pub(super) fn look_while_parked(&mut self, shared: &mut Shared, id: ClaimId) {
        if !matches!(&self.phase, Phase::Parked { claim, .. } if *claim == id) {
            return;
        }
        self.look_later(shared, id);
        if shared.store != StoreState::Up {
            return;
        }
        if self.closing == 0 && self.owes_verdicts(shared.now.utc) {
            self.resync(shared);
        } else if self.watch.is_none() && self.running == 0 && self.closing == 0 {
            shared.act(Action::QueryLedger { job: self.job });
        }
    }

    /// Whether the first own occurrence, which waits for a place or behind one that does, is too late, or has
    /// undecided ones before it. Otherwise their verdicts come with its claim.
    fn owes_verdicts(&self, now: Timestamp) -> bool {
        match &self.phase {
            Phase::Parked { occ, .. } if occ.origin == Origin::Lane => self.has_gap_before(occ),
            _ => (self.pending.iter())
                .find(|occ| occ.origin == Origin::Lane)
                .is_some_and(|occ| occ.deadline < now || self.has_gap_before(occ)),
        }
    }

    /// Whether occurrences before this one are undecided, as far as this lane knows.
    fn has_gap_before(&self, occ: &Occurrence) -> bool {
        let before = self.policy.calendar.last_before(occ.at);
        before.is_some_and(|before| self.decided_until.is_some_and(|until| until < before))
    }

    /// A place is free, and this lane has waited longest for one.
    pub(super) fn unparked(&mut self, shared: &mut Shared) {
        match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Parked { occ, .. } => {
                if shared.is_short() {
                    // Delayed occurrences may overlap the late run of a returned one, which is no
                    // reason to skip them.
                    for occ in &mut self.pending {
                        occ.overlap = in_order(occ.overlap);
                    }
                }
                self.resume(shared, *occ);
            }
            other => self.phase = other,
        }
    }

    /// Makes room for a claim that needs no place. The occurrence that waits for a place keeps its
    /// turn.
    pub(super) fn set_aside(&mut self) {
        match (&self.phase, &mut self.wait) {
            (Phase::Parked { occ, .. }, _) if occ.origin == Origin::Lane => {
                self.pending.push_front(Occurrence::clone(occ));
            }
            (Phase::Parked { occ, .. }, Some(wait)) if occ.origin == Origin::Head => {
                wait.ready = true;
            }
            _ => return,
        }
        self.phase = Phase::Idle;
    }
}
