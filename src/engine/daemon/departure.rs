//! Whether a claim was sent, agreed between the task that sends it and whoever cancels it; and
//! when the store answered a claim last.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use crate::time::BootInstant;

/// A store that answered so recently is not down, whatever became of another request.
const RECENTLY: Duration = Duration::from_millis(500);

const WAITING: u8 = 0;
const SENT: u8 = 1;
const CANCELLED: u8 = 2;

/// A claim's departure: it is sent, or cancelled before that, but never both.
#[derive(Debug, Clone, Default)]
pub(super) struct Departure(Arc<AtomicU8>);

impl Departure {
    /// Returns whether the claim may be sent. From then on its copies may reach the store.
    pub(super) fn send(&self) -> bool {
        let was = self
            .0
            .compare_exchange(WAITING, SENT, Ordering::AcqRel, Ordering::Acquire);
        matches!(was, Ok(_) | Err(SENT))
    }

    /// Returns whether the claim is cancelled by this alone, since no copy of it was sent.
    pub(super) fn cancel(&self) -> bool {
        self.0
            .compare_exchange(WAITING, CANCELLED, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }
}

/// When the store last did what a claim asks of it: to read and to write.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_sent_or_cancelled_and_its_copies_may_follow() {
        let departure = Departure::default();
        assert!(departure.send());
        assert!(departure.send(), "a copy");
        assert!(!departure.cancel(), "the store must be told");
        let departure = Departure::default();
        assert!(departure.cancel());
        assert!(!departure.send());
    }
}
