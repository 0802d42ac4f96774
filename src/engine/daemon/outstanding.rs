//! The claims that have no reply yet: those of occurrences, and those that drop some.

use std::collections::{HashMap, HashSet};

use tokio::task::AbortHandle;

use crate::engine::core::ClaimId;
use crate::run::PendingClaims;
use crate::store::Claimant;

/// A claim of which no copy has a reply yet.
#[derive(Debug)]
pub(super) struct OutstandingClaim {
    pub(super) claimant: Claimant,
    /// The task that sends the copies.
    pub(super) sender: AbortHandle,
}

/// Claims without a reply, and granted claims that the core has not handled yet.
#[derive(Debug)]
pub(super) struct OutstandingClaims {
    all: HashMap<ClaimId, OutstandingClaim>,
    /// Those of which a copy has failed: no reply is expected soon, and runs do not wait for one.
    failed: HashSet<ClaimId>,
    /// Learns how many others there are.
    pending: PendingClaims,
}

impl OutstandingClaims {
    pub(super) fn new(pending: PendingClaims) -> Self {
        Self {
            all: HashMap::new(),
            failed: HashSet::new(),
            pending,
        }
    }

    pub(super) fn insert(&mut self, id: ClaimId, claim: OutstandingClaim) {
        self.all.insert(id, claim);
        self.count();
    }

    /// A copy of the claim has failed.
    pub(super) fn note_failure(&mut self, id: ClaimId) {
        if self.all.contains_key(&id) {
            self.failed.insert(id);
            self.count();
        }
    }

    pub(super) fn remove(&mut self, id: ClaimId) -> Option<OutstandingClaim> {
        let removed = self.all.remove(&id);
        self.failed.remove(&id);
        self.count();
        removed
    }

    fn count(&self) {
        self.pending.set(self.all.len() - self.failed.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::daemon::tasks::tests::claimant;

    #[tokio::test]
    async fn claims_count_until_they_are_answered_or_a_copy_has_failed() {
        let pending = PendingClaims::default();
        let mut claims = OutstandingClaims::new(pending.clone());
        let sender = tokio::spawn(std::future::pending::<()>()).abort_handle();
        let insert = |claims: &mut OutstandingClaims, ids: std::ops::Range<u64>| {
            for id in ids {
                let (claimant, sender) = (claimant("lock"), sender.clone());
                claims.insert(ClaimId(id), OutstandingClaim { claimant, sender });
            }
        };
        insert(&mut claims, 0..1_000);
        assert!(pending.are_many());
        for id in 0..500 {
            assert!(claims.remove(ClaimId(id)).is_some());
        }
        assert!(pending.are_many());
        // The first of them are no longer there.
        for id in 400..1_000 {
            claims.note_failure(ClaimId(id));
        }
        assert!(!pending.are_many());
        insert(&mut claims, 1_000..1_200);
        assert!(!pending.are_many(), "what has failed does not count");
        for id in 500..1_000 {
            claims.remove(ClaimId(id));
        }
        insert(&mut claims, 1_200..1_300);
        assert!(pending.are_many());
    }
}
