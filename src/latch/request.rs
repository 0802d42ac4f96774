//! Asking for a lock.

use std::time::Duration;

use super::acquire::{Acquisition, NotAcquired, waits_text};
use super::held::{HeldLock, Ticket};
use super::patience::Wait;
use super::{Latch, ReleaseError};
use crate::lease::LeaseLost;
use crate::store::{Lock, StoreError};

/// The shortest TTL: below it a slow answer would be enough to lose the lease.
const TTL_MIN: Duration = Duration::from_secs(1);
const TTL_DEFAULT: Duration = Duration::from_secs(30);

/// A lock to take, and how; see [`Latch::lock`].
///
/// Unless told otherwise the TTL is 30 s, and a lock that is held is not waited for.
#[derive(Debug, Clone)]
pub struct LockRequest {
    latch: Latch,
    lock: Lock,
    ttl: Duration,
    wait: Wait,
}

/// Why a lock was not acquired.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// Another holds it.
    #[error("the lock is held by {by}")]
    Held {
        /// The host that holds it, or what another program wrote into the key.
        by: String,
        /// How long it lasts unless renewed; `None` for a key without a TTL.
        remaining: Option<Duration>,
    },
    /// The store is new, was restarted or lost its data: nothing is granted until every lock that
    /// it has forgotten is renewed or over. `cronlatch init` declares an empty store new.
    #[error("{}", waits_text(*.remaining))]
    Recovering {
        /// How long that takes yet.
        remaining: Duration,
    },
    /// The TTL is below a second.
    #[error("a TTL of {0:?} is too short: one second is the least")]
    TtlTooShort(Duration),
    /// The store does not answer, or refuses.
    #[error(transparent)]
    Store(StoreError),
}

/// Why work under a lock was not done, or not safely.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The lock was not acquired; the work was not begun.
    #[error(transparent)]
    NotAcquired(#[from] AcquireError),
    /// The lease was lost. The work was dropped where it stood, or had just come to its end.
    #[error(transparent)]
    Lost(#[from] LeaseLost),
}

impl From<NotAcquired> for AcquireError {
    fn from(why: NotAcquired) -> Self {
        match why {
            NotAcquired::Held { by, remaining } => Self::Held { by, remaining },
            NotAcquired::Recovering { remaining } => Self::Recovering { remaining },
            NotAcquired::Store(error) => Self::Store(error),
        }
    }
}

impl LockRequest {
    pub(super) fn new(latch: Latch, lock: Lock) -> Self {
        Self {
            latch,
            lock,
            ttl: TTL_DEFAULT,
            wait: Wait::UpTo(Duration::ZERO),
        }
    }

    /// How long the lease lasts unless renewed: for so long, at most, a holder that died blocks
    /// the lock. It is renewed every third of it. At least one second.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How long to wait for a lock that is held, and for a store that does not answer.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Wait::UpTo(wait);
        self
    }

    /// Waits for as long as it takes.
    #[must_use]
    pub fn wait_forever(mut self) -> Self {
        self.wait = Wait::Forever;
        self
    }

    /// Takes the lock. From then on it is renewed in the background, until it is released,
    /// dropped or lost.
    ///
    /// Dropping the future gives up waiting; a lease that was granted meanwhile is given back.
    pub async fn acquire(self) -> Result<HeldLock, AcquireError> {
        if self.ttl < TTL_MIN {
            return Err(AcquireError::TtlTooShort(self.ttl));
        }
        let Latch {
            store,
            watchdog,
            host,
        } = self.latch;
        let mut acquisition =
            Acquisition::new(store.clone(), &host, self.lock, self.ttl, self.wait);
        match acquisition.acquire().await {
            Ok(grant) => {
                let held = HeldLock::new(store, &watchdog, grant);
                acquisition.hand_over();
                Ok(held)
            }
            // What is in doubt is cancelled in the background.
            Err(why) => Err(why.into()),
        }
    }

    /// Takes the lock, does the work, releases the lock.
    ///
    /// When the lease is lost the work's future is dropped where it stands, at its current
    /// `.await`, and the answer is [`RunError::Lost`]. That is all a library can do: code that is
    /// not at an `.await`, a thread or a process that the work started, and a request already on
    /// its way go on. **Exclusion ends at the lost-lease signal**; what must not be touched by two
    /// at once should check the [fencing token](Ticket::fence). (A job of the daemon, and a
    /// command under `cronlatch exec`, are processes, and are killed before their lease ends.)
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
    pub async fn run<W, F>(self, work: W) -> Result<F::Output, RunError>
    where
        W: FnOnce(Ticket) -> F,
        F: Future,
    {
        let held = self.acquire().await?;
        let mut signal = held.ticket();
        let done = tokio::select! {
            biased;
            why = signal.lost() => return Err(RunError::Lost(why)),
            done = work(held.ticket()) => done,
        };
        match held.release().await {
            Ok(()) => Ok(done),
            Err(ReleaseError::Lost(why)) => Err(RunError::Lost(why)),
            // The work was done under the lock, which now ends with its TTL.
            Err(ReleaseError::Store(error)) => {
                tracing::warn!("cannot release the lock, it ends with its TTL: {error}");
                Ok(done)
            }
        }
    }
}
