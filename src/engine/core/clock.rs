//! What a lane does when the clock it goes by was found to be another than the store's.

use super::lane::{Lane, Phase};
use super::occ::Occ;
use super::shared::Shared;

impl Lane {
    /// Takes back what was begun of occurrences that are not due yet, as it turns out: the ticker
    /// fires them again at their time.
    pub(super) fn clock_set(&mut self, shared: &mut Shared) {
        let now = shared.now.utc;
        let is_ahead =
            |lane: &Self, occ: &Occ| occ.is_current() && lane.policy.not_before(occ.at) > now;
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
        self.notes.forget_skips_after(due);
        if self.seen_until.is_some_and(|seen| seen > due) {
            self.seen_until = Some(due);
            // Which of those that were let go are decided, only the ledger knows.
            self.hole_before_pending();
        }
        self.advance(shared);
    }
}
