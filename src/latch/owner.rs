//! Who holds a lock.

use std::time::Duration;

use crate::names::JobName;
use crate::store::{Lock, Store, StoreError};

/// Who holds a lock. See [`LockRequest::owner`](super::LockRequest::owner).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Owner {
    /// The value of the lock: `HOST:PID:RUN_ID:RANDOM`, or what another program wrote into a raw
    /// key.
    pub token: String,
    /// The host that holds it, or what another program wrote (at most 100 bytes).
    pub host: String,
    /// How long the lease lasts unless it is renewed; `None` for a raw key without a TTL.
    pub remaining: Option<Duration>,
}

pub(super) async fn of(store: &dyn Store, lock: &Lock) -> Result<Option<Owner>, StoreError> {
    // A report is about a job and its lock; the lock's half is true whatever the job is called.
    let job = JobName::parse("-").map_err(|e| StoreError::refused(e.to_string()))?;
    let reports = store.jobs(&[(job, lock.clone())]).await?;
    let holder = reports.into_iter().next().and_then(|report| report.holder);
    Ok(holder.map(|holder| Owner {
        token: holder.value,
        host: holder.by,
        remaining: holder.remaining,
    }))
}
