//! Asking for a lock.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Latch;
use super::acquire::Acquisition;
use super::error::{AcquireError, ReleaseError, RunError};
use super::held::HeldLock;
use super::owner::{self, Owner};
use super::patience::WaitLimit;
use super::queue::QueueTurn;
use super::ticket::Ticket;
use crate::names::Token;
use crate::store::{Finish, FinishReply, Lock, StoreError};

/// The shortest TTL: with a shorter one, a single slow reply could lose the lease.
const TTL_MIN: Duration = Duration::from_secs(1);
/// The longest TTL: a holder that dies blocks its lock for this long.
const TTL_MAX: Duration = Duration::from_secs(86_400);
const TTL_DEFAULT: Duration = Duration::from_secs(30);

/// A lock to acquire, and how. See [`Latch::lock`] and [`Latch::key`].
///
/// Unless set otherwise the TTL is 30 s, a lock that is held is not waited for, and it is renewed
/// for as long as it is held. A request can be cloned and used many times.
///
/// Tasks of one process that wait for the same lock through clones of one latch form a queue, first
/// come, first served, and only its head asks the store. Between processes there is no order.
#[derive(Debug, Clone)]
#[must_use = "a request does nothing until `acquire`, `try_acquire` or `run` is called"]
pub struct LockRequest {
    latch: Latch,
    lock: Lock,
    options: Options,
}

/// How to acquire; the same for every kind of lock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Options {
    pub(super) ttl: Duration,
    pub(super) wait: WaitLimit,
    /// For how long leases are renewed; `None`: for as long as they are held.
    pub(super) renew_for: Option<Duration>,
}

impl Options {
    pub(super) const DEFAULT: Self = Self {
        ttl: TTL_DEFAULT,
        wait: WaitLimit::UpTo(Duration::ZERO),
        renew_for: None,
    };

    pub(super) fn check(&self) -> Result<(), AcquireError> {
        if (TTL_MIN..=TTL_MAX).contains(&self.ttl) {
            Ok(())
        } else {
            Err(AcquireError::InvalidTtl(self.ttl))
        }
    }

    /// What is left of the wait, which began then.
    pub(super) fn less(self, began: Instant) -> Self {
        let wait = match self.wait {
            WaitLimit::UpTo(wait) => WaitLimit::UpTo(wait.saturating_sub(began.elapsed())),
            WaitLimit::Forever => WaitLimit::Forever,
        };
        Self { wait, ..self }
    }
}

impl LockRequest {
    pub(super) fn new(latch: Latch, lock: Lock) -> Self {
        Self {
            latch,
            lock,
            options: Options::DEFAULT,
        }
    }

    pub(super) fn with(self, options: Options) -> Self {
        Self { options, ..self }
    }

    /// How long the lease lasts unless it is renewed: from 1 s to 24 h, 30 s by default. A holder
    /// that dies blocks the lock for at most this long.
    ///
    /// Use the same TTL wherever the lock is taken.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.options.ttl = ttl;
        self
    }

    /// How long to wait for a lock that is held, a store that recovers, or a store that does not
    /// reply. Zero, the default, tries once; a length beyond the clock's range means for ever.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.options.wait = WaitLimit::UpTo(wait);
        self
    }

    /// Waits for as long as it takes.
    pub fn wait_forever(mut self) -> Self {
        self.options.wait = WaitLimit::Forever;
        self
    }

    /// Renews the lease in the background for `limit` only, counted from the grant. Then it ends
    /// within one TTL, unless it is [extended](HeldLock::extend): a holder that hangs for ever does
    /// not hold the lock for ever.
    pub fn renew_for(mut self, limit: Duration) -> Self {
        self.options.renew_for = Some(limit);
        self
    }

    /// Does not renew the lease in the background: it ends with its TTL unless the holder
    /// [extends](HeldLock::extend) it.
    pub fn manual_renewal(self) -> Self {
        self.renew_for(Duration::ZERO)
    }

    /// Acquires the lock. From then on it is renewed in the background, until it is released,
    /// dropped or lost.
    ///
    /// Dropping the future gives up waiting, and leaves the queue; a lease that was granted
    /// meanwhile is released in the background.
    ///
    /// # Errors
    ///
    /// [`Held`](AcquireError::Held) when the wait is over, [`Recovering`](AcquireError::Recovering)
    /// when it is over before the store grants locks again, [`Store`](AcquireError::Store) when the
    /// store rejects requests or does not reply until then, [`InvalidTtl`](AcquireError::InvalidTtl), and
    /// [`ShutDown`](AcquireError::ShutDown).
    pub async fn acquire(self) -> Result<HeldLock, AcquireError> {
        self.options.check()?;
        let Some(entry) = self.latch.shared.tally.enter() else {
            return Err(AcquireError::ShutDown);
        };
        let shared = Arc::clone(&self.latch.shared);
        let name = self.lock.name.clone();
        let options = self.options;
        let mut acquisition = Acquisition::new(
            Arc::clone(&shared.store),
            &shared.host,
            self.lock.clone(),
            options.ttl,
            options.wait,
        )
        .cancelled_by(&shared.watchdog, entry.clone());
        let taken = tokio::select! {
            biased;
            () = shared.tally.closed() => return Err(AcquireError::ShutDown),
            taken = async {
                let turn = self.turn().await;
                acquisition.acquire().await.map(|grant| (grant, turn))
            } => taken,
        };
        // Where nothing was granted, what is in doubt is cancelled in the background.
        let (grant, turn) = taken.map_err(|why| AcquireError::of(&name, why))?;
        let held = HeldLock::new(shared, grant, options.renew_for, entry, turn);
        acquisition.hand_over();
        Ok(held)
    }

    /// Acquires the lock if it is free; returns `None` when it is held. Ignores
    /// [`wait`](Self::wait), and does not queue: it asks the store at once, also if tasks of this
    /// process wait for the lock, and may overtake them.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), except for [`Held`](AcquireError::Held).
    pub async fn try_acquire(mut self) -> Result<Option<HeldLock>, AcquireError> {
        self.options.wait = WaitLimit::UpTo(Duration::ZERO);
        match self.acquire().await {
            Ok(held) => Ok(Some(held)),
            Err(AcquireError::Held { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Acquires the lock, does the work, releases the lock.
    ///
    /// When the lease is lost, the work's future is dropped where it stands, at its current
    /// `.await`, and the result is [`RunError::Lost`]. A library can do no more: code that is not
    /// at an `.await`, a thread or process that the work started, and a request that was already
    /// sent go on. **Exclusion ends at the lost-lease signal**; what must not be changed by two
    /// holders at once should check the [fencing token](Ticket::fence). (A job of the daemon and a
    /// command under `cronlatch exec` are processes, and are killed before their lease ends.)
    ///
    /// Work that came to its end is never discarded: if its lock turns out to be lost only then,
    /// the output is in [`RunError::LostAtEnd`]. (If the work can go on and the lock is lost at the
    /// same moment, the work does not go on.)
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let url = format!("sqlite:{}/locks.db", dir.path().display());
    /// # tokio::runtime::Runtime::new()?.block_on(async {
    /// # async fn store_report(fence: u64) -> usize { fence.to_string().len() }
    /// let latch = cronlatch::Latch::open(&url)?;
    /// let length = latch
    ///     .lock("nightly-report")?
    ///     .run(|ticket| async move { store_report(ticket.fence()).await })
    ///     .await?;
    /// # assert!(length > 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn run<W, F>(self, work: W) -> Result<F::Output, RunError<F::Output>>
    where
        W: FnOnce(Ticket) -> F,
        F: Future,
    {
        let held = self.acquire().await?;
        let mut signal = held.ticket();
        let output = tokio::select! {
            biased;
            why = signal.lost() => return Err(RunError::Lost(why)),
            output = work(held.ticket()) => output,
        };
        ended(held.release().await, output)
    }

    /// Returns who holds the lock now; `None` when it is free. Changes nothing.
    pub async fn owner(&self) -> Result<Option<Owner>, StoreError> {
        owner::of(&*self.latch.shared.store, &self.lock).await
    }

    /// Releases the lock of another holder, if its value is still `token` (see
    /// [`owner`](Self::owner)). Returns whether it was.
    ///
    /// **This breaks exclusion**: the holder notices only at its next renewal, up to a third of its
    /// TTL later, and works on until then; if it releases the lock before, it does not notice at
    /// all. Use it when the holder is known to be gone and its TTL is too long to wait for.
    pub async fn force_release(&self, token: &str) -> Result<bool, StoreError> {
        let finish = Finish::of_lock(self.lock.clone(), Token::from_text(token));
        let reply = self.latch.shared.store.finish(&finish).await?;
        Ok(reply == FinishReply::Released)
    }

    pub(super) fn lock(&self) -> &Lock {
        &self.lock
    }

    /// Waits in the queue of this process, no longer than the wait.
    async fn turn(&self) -> Option<QueueTurn> {
        let queues = &self.latch.shared.queues;
        match self.options.wait {
            WaitLimit::UpTo(Duration::ZERO) => queues.turn_now(&self.lock),
            // At its end the store is asked once, for who holds the lock.
            WaitLimit::UpTo(wait) => tokio::time::timeout(wait, queues.turn(&self.lock))
                .await
                .ok()
                .flatten(),
            WaitLimit::Forever => queues.turn(&self.lock).await,
        }
    }
}

/// The result of work that ended by itself.
pub(super) fn ended<T>(released: Result<(), ReleaseError>, output: T) -> Result<T, RunError<T>> {
    match released {
        Ok(()) => Ok(output),
        Err(ReleaseError::Lost(why)) => Err(RunError::LostAtEnd { why, output }),
        // The work was done under the lock, which now ends with its TTL.
        Err(ReleaseError::Store(error)) => {
            tracing::warn!("cannot release the lock: {error}; it expires after its TTL");
            Ok(output)
        }
    }
}
