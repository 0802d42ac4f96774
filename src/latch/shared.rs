//! What all clones of a latch, and all locks acquired through it, share.

use std::sync::Arc;
use std::time::Duration;

use super::queue::Queues;
use super::tally::LatchCounts;
use crate::lease::Watchdog;
use crate::names::HostName;
use crate::store::Store;

/// How long the end of a latch waits for the release of dropped locks.
const LAST_RELEASES: Duration = Duration::from_secs(2);

/// Dropped with the last clone and the last lock. It then waits for releases in progress, because
/// the end of the program would cut them off.
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
