//! Several locks at once, for programs without a runtime.

use std::time::Duration;

use super::RuntimeThread;
use crate::latch::{AcquireError, HeldLock, ReleaseError, several};
use crate::lease::LeaseLost;

/// Several locks to acquire together, as [`cronlatch::LocksRequest`](crate::LocksRequest). See
/// [`Latch::locks`](super::Latch::locks).
#[derive(Debug, Clone)]
#[must_use = "a request does nothing until `acquire` is called"]
pub struct LocksRequest {
    pub(super) request: several::LocksRequest,
    pub(super) thread: RuntimeThread,
}

/// Several locks that are held, as [`cronlatch::HeldLocks`](crate::HeldLocks). Dropping it releases
/// them all.
#[derive(Debug)]
#[must_use = "the locks are released as soon as this is dropped"]
pub struct HeldLocks {
    held: several::HeldLocks,
    thread: RuntimeThread,
}

impl LocksRequest {
    fn map(self, change: impl FnOnce(several::LocksRequest) -> several::LocksRequest) -> Self {
        Self {
            request: change(self.request),
            thread: self.thread,
        }
    }

    /// The TTL of each; see [`LockRequest::ttl`](super::LockRequest::ttl).
    pub fn ttl(self, ttl: Duration) -> Self {
        self.map(|request| request.ttl(ttl))
    }

    /// How long to wait for all of them together; zero, the default, asks once.
    pub fn wait(self, wait: Duration) -> Self {
        self.map(|request| request.wait(wait))
    }

    /// Waits for as long as it takes.
    pub fn wait_forever(self) -> Self {
        self.map(several::LocksRequest::wait_forever)
    }

    /// Acquires all locks, or none.
    ///
    /// # Errors
    ///
    /// As [`LockRequest::acquire`](super::LockRequest::acquire), for the first lock that is not
    /// acquired.
    pub fn acquire(self) -> Result<HeldLocks, AcquireError> {
        let held = self.thread.wait(self.request.acquire())?;
        Ok(HeldLocks {
            held,
            thread: self.thread,
        })
    }
}

impl HeldLocks {
    /// The names of the locks, or their raw keys, in order.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.held.iter().map(HeldLock::name)
    }

    /// The fencing token of the lock of this name; see [`Ticket::fence`](crate::Ticket::fence).
    pub fn fence(&self, name: &str) -> Option<u64> {
        self.held.get(name).map(HeldLock::fence)
    }

    /// How long all of them last if no further renewal succeeds; zero once one is lost.
    pub fn validity(&self) -> Duration {
        self.held.validity()
    }

    /// Which lock is lost and why, if one is.
    pub fn loss(&self) -> Option<(&str, LeaseLost)> {
        let mut held = self.held.iter();
        held.find_map(|held| Some((held.name(), held.loss()?)))
    }

    /// Releases all of them, the last acquired first.
    ///
    /// # Errors
    ///
    /// The first that occurred; the others were released, or at least tried, all the same.
    pub fn release(self) -> Result<(), ReleaseError> {
        let Self { held, thread } = self;
        thread.wait(held.release())
    }
}
