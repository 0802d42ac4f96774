//! The claims that are out.

use std::collections::HashMap;

use tokio::task::AbortHandle;

use crate::engine::core::ClaimId;
use crate::run::PendingClaims;
use crate::store::Claimant;

/// A claim that is out: no copy of it has a reply yet.
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
    /// Learns how many there are.
    pending: PendingClaims,
}

impl OutstandingClaims {
    pub(super) fn new(pending: PendingClaims) -> Self {
        Self {
            all: HashMap::new(),
            pending,
        }
    }

    pub(super) fn insert(&mut self, id: ClaimId, claim: OutstandingClaim) {
        self.all.insert(id, claim);
        self.pending.set(self.all.len());
    }

    pub(super) fn remove(&mut self, id: ClaimId) -> Option<OutstandingClaim> {
        let removed = self.all.remove(&id);
        self.pending.set(self.all.len());
        removed
    }
}
