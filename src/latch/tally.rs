//! Counts the locks and requests of a latch that are in use. Its shutdown waits for them.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

/// Counts attempts to acquire, held locks, and releases that the store has not confirmed.
#[derive(Debug)]
pub(super) struct LatchCounts {
    counts: watch::Sender<Counts>,
    /// For those who wait without a runtime; held while they are woken.
    guard: Mutex<()>,
    fell: Condvar,
}

#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    entries: usize,
    closed: bool,
}

/// One counted item, until it is dropped. A clone counts separately.
#[derive(Debug)]
pub(super) struct Counted(Arc<LatchCounts>);

impl LatchCounts {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            counts: watch::Sender::default(),
            guard: Mutex::default(),
            fell: Condvar::new(),
        })
    }

    /// Counts one more; `None` once the latch is shut down.
    pub(super) fn enter(self: &Arc<Self>) -> Option<Counted> {
        let entered = self.counts.send_if_modified(|counts| {
            if !counts.closed {
                counts.entries += 1;
            }
            !counts.closed
        });
        entered.then(|| Counted(Arc::clone(self)))
    }

    pub(super) fn close(&self) {
        self.counts.send_modify(|counts| counts.closed = true);
    }

    /// Waits until the latch is shut down.
    pub(super) async fn closed(&self) {
        let mut counts = self.counts.subscribe();
        // Cannot fail: the sender is borrowed.
        let _ = counts.wait_for(|counts| counts.closed).await;
    }

    /// Waits until nothing is counted, at most `limit`; returns how many are left.
    pub(super) async fn empty(&self, limit: Duration) -> usize {
        let mut counts = self.counts.subscribe();
        let empty = counts.wait_for(|counts| counts.entries == 0);
        let _ = tokio::time::timeout(limit, empty).await;
        self.entries()
    }

    /// As [`Self::empty`], and blocks the thread.
    pub(super) fn empty_blocking(&self, limit: Duration) -> usize {
        let until = Instant::now() + limit;
        let mut guard = self.guard.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let (entries, left) = (
                self.entries(),
                until.saturating_duration_since(Instant::now()),
            );
            if entries == 0 || left.is_zero() {
                return entries;
            }
            (guard, _) = self
                .fell
                .wait_timeout(guard, left)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn entries(&self) -> usize {
        self.counts.borrow().entries
    }
}

impl Clone for Counted {
    fn clone(&self) -> Self {
        self.0.counts.send_modify(|counts| counts.entries += 1);
        Self(Arc::clone(&self.0))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.counts.send_modify(|counts| counts.entries -= 1);
        // A thread that read the count before this point waits on the condition once this is
        // locked.
        drop(self.0.guard.lock());
        self.0.fell.notify_all();
    }
}
