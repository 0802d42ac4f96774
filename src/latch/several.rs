//! Several locks at once.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;

use super::error::{AcquireError, ReleaseError};
use super::held::HeldLock;
use super::patience::WaitLimit;
use super::request::{LockRequest, Options};
use crate::ground::sorting::SortShort as _;
use crate::lease::LeaseLost;

/// Several locks to acquire together. See [`Latch::locks`](super::Latch::locks).
///
/// They are acquired one after the other in the order of their names, and each name once, so two
/// holders that want the same locks never wait for each other. If one is not acquired, those before
/// it are released.
#[derive(Debug, Clone)]
#[must_use = "a request does nothing until `acquire` is called"]
pub struct LocksRequest {
    requests: Vec<LockRequest>,
    options: Options,
}

/// Several locks that are held. Dropping it releases them all; see [`HeldLock`].
#[derive(Debug)]
#[must_use = "the locks are released as soon as this is dropped"]
pub struct HeldLocks {
    held: Vec<HeldLock>,
}

impl LocksRequest {
    pub(super) fn new(mut requests: Vec<LockRequest>) -> Self {
        requests.sort_short_by(|a, b| a.lock().name.cmp(&b.lock().name));
        requests.dedup_by(|a, b| a.lock() == b.lock());
        Self {
            requests,
            options: Options::DEFAULT,
        }
    }

    /// The TTL of each; see [`LockRequest::ttl`].
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.options.ttl = ttl;
        self
    }

    /// How long to wait for all of them together; see [`LockRequest::wait`].
    pub fn wait(mut self, wait: Duration) -> Self {
        self.options.wait = WaitLimit::UpTo(wait);
        self
    }

    /// Waits for as long as it takes.
    pub fn wait_forever(mut self) -> Self {
        self.options.wait = WaitLimit::Forever;
        self
    }

    /// Acquires all locks, or none. Dropping the future releases those that it has.
    ///
    /// # Errors
    ///
    /// As [`LockRequest::acquire`], for the first lock that is not acquired.
    pub async fn acquire(self) -> Result<HeldLocks, AcquireError> {
        self.options.check()?;
        let began = Instant::now();
        let mut all = HeldLocks {
            held: Vec::with_capacity(self.requests.len()),
        };
        for request in self.requests {
            match request.with(self.options.less(began)).acquire().await {
                Ok(held) => all.held.push(held),
                Err(why) => {
                    // So that the caller, once it has the error, does not find locks held that are
                    // still being released.
                    let _ = all.release().await;
                    return Err(why);
                }
            }
        }
        if let Some(lost) = all.held.iter().find(|held| held.loss().is_some()) {
            // Another took it while this one waited for the rest.
            let lock = lost.name().to_owned();
            let _ = all.release().await;
            return Err(AcquireError::LostMeanwhile { lock });
        }
        Ok(all)
    }
}

impl HeldLocks {
    /// The locks, in the order of their names.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &HeldLock> {
        self.held.iter()
    }

    /// The lock of this name, or with this raw key.
    pub fn get(&self, name: &str) -> Option<&HeldLock> {
        self.held.iter().find(|held| held.name() == name)
    }

    /// How long all of them last if no further renewal succeeds; zero once one is lost.
    pub fn validity(&self) -> Duration {
        let validities = self.held.iter().map(HeldLock::validity);
        validities.min().unwrap_or(Duration::MAX)
    }

    /// Waits until one of them is lost; returns which and why. Cancel-safe. Without any lock it
    /// waits for ever.
    pub async fn lost(&mut self) -> (String, LeaseLost) {
        let mut waits: Vec<_> = self
            .held
            .iter_mut()
            .map(|held| {
                Box::pin(async move {
                    let why = held.lost().await;
                    (held.name().to_owned(), why)
                })
            })
            .collect();
        poll_fn(|context| {
            let mut polled = waits.iter_mut().map(|wait| wait.as_mut().poll(context));
            polled.find(Poll::is_ready).unwrap_or(Poll::Pending)
        })
        .await
    }

    /// Releases all of them, the last acquired first.
    ///
    /// # Errors
    ///
    /// The first that occurred; the others were released, or at least tried, all the same.
    pub async fn release(mut self) -> Result<(), ReleaseError> {
        let mut result = Ok(());
        while let Some(held) = self.held.pop() {
            result = result.and(held.release().await);
        }
        result
    }
}
