//! How many requests the daemon sends to one part of the store at a time.
//!
//! A request that waits here was not sent: it can be cancelled without a message to the store, its
//! lease does not count yet, and a claim for one server of a Cluster does not wait for another
//! server.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Claims, and what is asked about open runs, in flight at a time.
const CLAIMS: usize = 64;
/// Verdicts in flight at a time. They do not wait behind claims: others wait for what they free.
const FINISHES: usize = 32;

/// The turns of one sort of request, first come, first served in each part of the store.
#[derive(Debug, Clone)]
pub(super) struct RequestTurns {
    most: usize,
    parts: Arc<Mutex<HashMap<u64, Arc<Semaphore>>>>,
}

impl RequestTurns {
    /// Those of claims.
    pub(super) fn of_claims() -> Self {
        Self::of(CLAIMS)
    }

    /// Those of verdicts.
    pub(super) fn of_finishes() -> Self {
        Self::of(FINISHES)
    }

    fn of(most: usize) -> Self {
        Self {
            most,
            parts: Arc::default(),
        }
    }

    /// Waits for a turn, which lasts until the permit is dropped. `part` is what
    /// [`Store::shard`](crate::store::Store::shard) returns for the lock.
    pub(crate) async fn take(&self, part: u64) -> Option<OwnedSemaphorePermit> {
        let turns = {
            // Nothing that holds the guard can panic half-way through a change.
            let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
            let turns = parts
                .entry(part)
                .or_insert_with(|| Arc::new(Semaphore::new(self.most)));
            Arc::clone(turns)
        };
        // Never closed; `None` would let the request go at once.
        turns.acquire_owned().await.ok()
    }
}
