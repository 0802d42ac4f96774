//! When the store last replied to a request that reads and writes, such as a claim.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::time::BootInstant;

/// A store that replied within this time is not down, whatever became of another request.
const RECENTLY: Duration = Duration::from_millis(500);

/// When the store last replied to a request that reads and writes.
#[derive(Debug, Clone, Default)]
pub(super) struct LastAnswer(Arc<AtomicU64>);

impl LastAnswer {
    pub(super) fn note(&self) {
        let nanos = BootInstant::now().to_duration().as_nanos();
        self.0
            .fetch_max(u64::try_from(nanos).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(super) fn is_recent(&self) -> bool {
        let nanos = self.0.load(Ordering::Relaxed);
        let at = BootInstant::from_duration(Duration::from_nanos(nanos));
        nanos > 0 && BootInstant::now().since(at) < RECENTLY
    }
}
