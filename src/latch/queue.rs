//! The local queue of each lock: of all tasks of a process that want the lock, one asks the store.
//!
//! The turn stays with the lock while it is held. So the next task, in order of arrival, asks when
//! the lock is released or lost.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::store::Lock;

/// Unused queues are removed when there are this many queues, or twice as many as are in use.
const PRUNE_FROM: usize = 64;

/// The queues of one latch.
#[derive(Debug, Default)]
pub(super) struct Queues(Mutex<QueueMap>);

#[derive(Debug, Default)]
struct QueueMap {
    queues: HashMap<Lock, Weak<Semaphore>>,
    prune_at: usize,
}

/// The right to ask for a lock, or to hold it. Dropping it passes it to the next task.
#[derive(Debug)]
pub(super) struct QueueTurn {
    _permit: OwnedSemaphorePermit,
}

impl Queues {
    /// Waits for its turn, behind all who came before. Cancel-safe: leaves the queue.
    pub(super) async fn turn(&self, lock: &Lock) -> Option<QueueTurn> {
        // Fails only for a semaphore that was closed, which none is.
        let permit = self.queue(lock).acquire_owned().await.ok()?;
        Some(QueueTurn { _permit: permit })
    }

    /// Takes its turn if nobody is there.
    pub(super) fn turn_now(&self, lock: &Lock) -> Option<QueueTurn> {
        let permit = self.queue(lock).try_acquire_owned().ok()?;
        Some(QueueTurn { _permit: permit })
    }

    fn queue(&self, lock: &Lock) -> Arc<Semaphore> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(queue) = known.queues.get(lock).and_then(Weak::upgrade) {
            return queue;
        }
        if known.queues.len() >= known.prune_at.max(PRUNE_FROM) {
            known.queues.retain(|_, queue| queue.strong_count() > 0);
            known.prune_at = known.queues.len() * 2;
        }
        let queue = Arc::new(Semaphore::new(1));
        known.queues.insert(lock.clone(), Arc::downgrade(&queue));
        queue
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{PRUNE_FROM, QueueMap, Queues};
    use crate::store::Lock;

    fn known(queues: &Queues) -> usize {
        let QueueMap { queues, .. } = &*queues.0.lock().expect("no test panics within");
        queues.len()
    }

    #[tokio::test]
    async fn turns_come_in_the_order_of_arrival() {
        let queues = Arc::new(Queues::default());
        let lock = Lock::raw("k");
        let first = queues.turn(&lock).await;
        let (order, mut came) = tokio::sync::mpsc::unbounded_channel();
        for n in 0..9 {
            let (queues, lock, order) = (Arc::clone(&queues), lock.clone(), order.clone());
            tokio::spawn(async move {
                let _turn = queues.turn(&lock).await;
                order.send(n).expect("the test waits");
            });
            tokio::task::yield_now().await;
        }
        assert!(queues.turn_now(&lock).is_none());
        drop((first, order));
        let mut all = Vec::new();
        while let Some(n) = came.recv().await {
            all.push(n);
        }
        assert_eq!(all, (0..9).collect::<Vec<_>>());
        assert!(queues.turn_now(&lock).is_some());
    }

    #[test]
    fn queues_that_nobody_uses_are_forgotten() {
        let queues = Queues::default();
        let kept = queues.turn_now(&Lock::raw("kept"));
        for n in 0..10 * PRUNE_FROM {
            drop(queues.turn_now(&Lock::raw(&n.to_string())));
        }
        assert!(known(&queues) <= PRUNE_FROM, "{}", known(&queues));
        assert!(queues.turn_now(&Lock::raw("kept")).is_none());
        drop(kept);
    }
}
