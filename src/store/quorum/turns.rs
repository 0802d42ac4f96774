//! The requests of one process: their ids, and the order of those about one lock.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

use crate::store::redis::node::SERIAL_BITS;

/// Ids of ballots. A later request of a process supersedes its own earlier vote, which may reach a node
/// long after the request was abandoned (a node that was stopped).
#[derive(Debug)]
pub(super) struct Ids {
    process: u64,
    serial: AtomicU64,
}

impl Ids {
    /// `random` identifies the process. An id fits into the 52 bits that Lua keeps exactly.
    pub(super) fn new(random: u64) -> Self {
        Self {
            process: random >> (12 + SERIAL_BITS) << SERIAL_BITS,
            serial: AtomicU64::new(0),
        }
    }

    pub(super) fn next(&self) -> u64 {
        let serial = self.serial.fetch_add(1, Ordering::Relaxed);
        self.process | (serial & ((1 << SERIAL_BITS) - 1))
    }
}

/// Makes the requests of this process about one lock run one after another. Two at once would preempt
/// each other.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<HashMap<String, Arc<AsyncMutex<()>>>>);

/// A turn, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    turns: &'a Turns,
    lock: String,
    held: Option<OwnedMutexGuard<()>>,
}

impl Turns {
    /// Waits for the turn of a request about this lock.
    pub(super) async fn take(&self, lock: &str) -> Turn<'_> {
        let mutex = Arc::clone(self.known().entry(lock.to_owned()).or_default());
        // Created first, so that a caller that is cancelled while it waits leaves nothing behind.
        let mut turn = Turn {
            turns: self,
            lock: lock.to_owned(),
            held: None,
        };
        turn.held = Some(mutex.lock_owned().await);
        turn
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, Arc<AsyncMutex<()>>>> {
        // Nothing that holds the guard can panic half-way through a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        drop(self.held.take());
        let mut known = self.turns.known();
        let is_last = known
            .get(&self.lock)
            .is_some_and(|mutex| Arc::strong_count(mutex) == 1);
        if is_last {
            known.remove(&self.lock);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::node::Ballot;

    #[test]
    fn a_later_request_supersedes_an_earlier_one_of_its_own_process_only() {
        let (one, other) = (Ids::new(u64::MAX), Ids::new(u64::MAX / 2));
        let (first, second) = (one.next(), one.next());
        let ballot = |id| Ballot { number: 1, id };
        assert!(first < 1 << 52);
        assert!(ballot(second).supersedes(first));
        assert!(!ballot(first).supersedes(second));
        assert!(!ballot(other.next()).supersedes(first));
    }

    #[tokio::test]
    async fn turns_of_one_lock_follow_one_another_and_leave_nothing_behind() {
        let turns = Turns::default();
        let first = turns.take("l").await;
        let other = turns.take("another").await;
        let waits = turns.take("l");
        tokio::pin!(waits);
        assert!(futures_now(&mut waits).await.is_none(), "it is taken");
        drop(first);
        let second = waits.await;
        assert_eq!(turns.known().len(), 2);
        drop((second, other));
        assert_eq!(turns.known().len(), 0);
    }

    /// Returns the result of the future if it is ready.
    async fn futures_now<F: Future + Unpin>(future: F) -> Option<F::Output> {
        tokio::time::timeout(std::time::Duration::ZERO, future)
            .await
            .ok()
    }
}
