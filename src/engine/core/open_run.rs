//! The open run of another host that a lane watches.

use std::time::Duration;

use super::event::Now;
use crate::names::RunId;
use crate::time::{BootInstant, Timestamp};

/// How long after the end of a lease the lane acts on it.
pub(super) const MARGIN: Duration = Duration::from_millis(25);

/// The open run of another host, which this lane settles or reruns when its lease is over.
#[derive(Debug)]
pub(super) struct OpenRunWatch {
    /// Its occurrence; `None` for a manual run, which is never run again.
    pub(super) at: Option<Timestamp>,
    pub(super) run_id: RunId,
    /// [`MARGIN`] after the end of its lease, unless renewed.
    pub(super) fire: BootInstant,
    pub(super) due: bool,
}

impl OpenRunWatch {
    /// Returns when the lease ended of a run whose watch is due.
    pub(super) fn lease_end(&self, now: Now) -> Timestamp {
        now.utc.minus(now.boot.since(self.fire) + MARGIN)
    }
}
