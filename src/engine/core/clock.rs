//! What a lane does when its clock turns out to differ from the store's.

use std::time::Duration;

use super::event::{ClaimId, OccurrenceNotice};
use super::gap;
use super::lane::{Lane, LedgerAheadReport, Phase};
use super::occurrence::{Occurrence, Origin};
use super::shared::Shared;
use crate::store::protocol::{LEAD, LEDGER_AHEAD};
use crate::time::Timestamp;

impl Lane {
    /// Withdraws occurrences that are not due yet by the corrected clock. The ticker fires them
    /// again at their time. Those that came due before this daemon began are left to `catch_up`.
    pub(super) fn clock_set(&mut self, shared: &mut Shared) {
        self.ahead = LedgerAheadReport::NotReported;
        let now = shared.now.utc;
        self.leave_what_came_before(self.began(shared.now));
        let is_ahead =
            |lane: &Self, occ: &Occurrence| occ.is_current() && lane.claimed_from(occ) > now;
        let pending = std::mem::take(&mut self.pending);
        self.pending = pending
            .into_iter()
            .filter(|occ| !is_ahead(self, occ))
            .collect();
        match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Early { occ, .. } if is_ahead(self, &occ) => {}
            Phase::Parked { occ, .. } if is_ahead(self, &occ) => shared.forget_parked(self.job),
            Phase::Claiming { claim, occ, placed } if is_ahead(self, &occ) => {
                self.cancel(shared, claim, placed);
            }
            other => self.phase = other,
        }
        let due = now.minus(self.policy.delay);
        self.forget_skips_after(due);
        if self
            .seen_until
            .is_some_and(|seen| seen > due.plus(self.policy.lead()))
        {
            self.seen_until = self.newest_current().max(Some(due));
            // Only the ledger knows which of the unclaimed occurrences are decided.
            self.require_sync_before_pending();
        }
        self.advance(shared);
    }

    /// Leaves to `catch_up` what a clock that was behind fired, and what came due before this daemon began. What
    /// is claimed already keeps its claim.
    fn leave_what_came_before(&mut self, began: Timestamp) {
        let before = self.pending.len();
        let policy = &self.policy;
        self.pending
            .retain(|occ| !occ.is_current() || policy.not_before(occ.at) >= began);
        if self.pending.len() < before {
            self.require_sync_before_pending();
        }
    }

    /// Returns the newest occurrence that this lane claims, or is about to, at its time.
    fn newest_current(&self) -> Option<Timestamp> {
        let first = match &self.phase {
            Phase::Early { occ, .. } | Phase::Parked { occ, .. } | Phase::Claiming { occ, .. } => {
                Some(&**occ)
            }
            Phase::Idle | Phase::Dropping { .. } => None,
        };
        let all = self.pending.iter().chain(first);
        all.filter(|occ| occ.is_current()).map(|occ| occ.at).max()
    }

    /// Forgets that this host skipped occurrences which are not due at `due`.
    pub(super) fn forget_skips_after(&mut self, due: Timestamp) {
        let calendar = self.policy.calendar.as_ref();
        let millisecond = Duration::from_millis(1);
        self.notes.forget_skips_after(due, |noted| {
            let before = noted.from.minus(millisecond);
            gap::range(calendar, before, due.plus(millisecond))
        });
    }

    /// Waits because the occurrence is due only after `left`. An entry that was written under a wrong
    /// clock may be due in years, so it does not hold up the job.
    pub(super) fn not_yet(
        &mut self,
        shared: &mut Shared,
        claim: ClaimId,
        occ: Occurrence,
        left: Duration,
    ) {
        match occ.origin {
            Origin::Lane => self.ask_again(shared, claim, occ, left),
            Origin::Watch => {
                self.watch_again(shared, left);
                self.advance(shared);
            }
            Origin::Head => {
                self.await_instant(shared, left);
                self.advance(shared);
            }
        }
    }

    /// Reports once that the ledger is ahead of the store's clock, and what happens next.
    pub(super) fn compare_ledger(&mut self, shared: &mut Shared, last: Timestamp, now: Timestamp) {
        if last <= now.plus(LEAD) {
            self.ahead = LedgerAheadReport::NotReported;
        } else if std::mem::replace(&mut self.ahead, LedgerAheadReport::Reported)
            == LedgerAheadReport::NotReported
        {
            let ahead = last.since(now);
            let notice = if ahead > LEDGER_AHEAD {
                OccurrenceNotice::LedgerFarAhead(ahead)
            } else {
                OccurrenceNotice::LedgerAhead(ahead)
            };
            self.report(shared, last, notice);
        }
    }
}
