//! Records manual runs whose `trigger` died, whether or not this host lists their jobs.

use std::time::Duration;

use super::tasks::TaskContext;
use crate::store::Retention;
use crate::store::manual::settle_ended;

/// Every how many rounds the notes of runs by hand are read.
pub(super) const EVERY: u32 = 5;
/// A lease that ends before the notes are read again is looked at when it ends.
const SOON: Duration = Duration::from_secs(5);
/// How long after the end of a lease it is looked at.
const MARGIN: Duration = Duration::from_millis(50);

impl TaskContext {
    /// Records the ends of runs by hand whose leases are over, and of those whose leases end soon.
    ///
    /// If the store does not reply, other tasks notice; the notes are read again in a few seconds.
    pub(super) async fn settle_manual_runs(self, keep: Retention) {
        let mut left = settle_ended(&*self.store, keep).await;
        if let Ok(Some(first)) = left
            && first < SOON
        {
            tokio::time::sleep(first + MARGIN).await;
            left = settle_ended(&*self.store, keep).await;
        }
        if let Err(error) = left {
            tracing::debug!("cannot check manual runs: {error}");
        }
    }
}
