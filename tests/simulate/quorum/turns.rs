//! Whose turn it is: as in `store::quorum::turns`, the requests of one process about one lock go
//! one after another, for a later one supersedes the votes of an earlier one.

use std::collections::{BTreeMap, VecDeque};

/// The host, the process on it, the name of the lock.
pub(super) type Queue = (usize, u32, String);

/// The requests that wait for one another; the first of each queue has its turn.
#[derive(Debug, Default)]
pub(super) struct Turns(BTreeMap<Queue, VecDeque<u64>>);

impl Turns {
    /// A request comes; answers whether it has its turn at once.
    pub(super) fn take(&mut self, queue: Queue, request: u64) -> bool {
        let waiting = self.0.entry(queue).or_default();
        waiting.push_back(request);
        waiting.len() == 1
    }

    /// The turn of a request ends; returns the next one.
    pub(super) fn end(&mut self, queue: &Queue, request: u64) -> Option<u64> {
        let waiting = self.0.get_mut(queue)?;
        let was_first = waiting.front() == Some(&request);
        waiting.retain(|it| *it != request);
        let next = waiting.front().copied();
        if next.is_none() {
            self.0.remove(queue);
        }
        next.filter(|_| was_first)
    }
}
