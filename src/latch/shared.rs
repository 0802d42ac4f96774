//! What all clones of a latch, and all locks taken through it, share.

use std::sync::Arc;
use std::time::Duration;

use super::queue::Queues;
use super::tally::LatchCounts;
use crate::lease::Watchdog;
use crate::names::HostName;
use crate::store::Store;

/// For how long the end of a latch waits for locks that were dropped and are being released.
const LAST_RELEASES: Duration = Duration::from_secs(2);

/// Dropped with the last clone and the last lock. Then it waits for releases that are under way:
/// a program that ends would take them with it.
#[derive(Debug)]
pub(super) struct LatchShared {
    pub(super) store: Arc<dyn Store>,
    pub(super) watchdog: Watchdog,
    pub(super) host: HostName,
    pub(super) queues: Queues,
    pub(super) tally: Arc<LatchCounts>,
    /// The store, without password.
    pub(super) shown: String,
}

impl Drop for LatchShared {
    fn drop(&mut self) {
        let left = self.tally.empty_blocking(LAST_RELEASES);
        if left > 0 {
            tracing::warn!(
                locks = left,
                "locks were not released within {LAST_RELEASES:?} because the store is \
                 unreachable; they expire after their TTLs"
            );
        }
    }
}
