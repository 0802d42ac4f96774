//! A lock that is held.

use std::sync::Arc;
use std::time::Duration;

use super::acquire::{self, Grant};
use crate::config::OnLost;
use crate::lease::{Held, Lease, LeaseLost, LeaseView, Watchdog};
use crate::names::Token;
use crate::store::{FinishReply, Lock, Store, StoreError, Tenure};

/// For how long [`HeldLock::release`] goes on trying, at least and at most.
const RELEASE_LEAST: Duration = Duration::from_secs(1);
const RELEASE_LIMIT: Duration = Duration::from_secs(10);

/// A lock that is held and renewed in the background.
///
/// [Release](Self::release) it when done. Dropping it stops the renewal and releases it in the
/// background if a tokio runtime is there to do so; else it ends with its TTL.
///
/// **Exclusion ends at the lost-lease signal.** Whoever holds a lock must watch for it while they
/// work, and stop; nobody else can do that for them:
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let url = format!("sqlite:{}/locks.db", dir.path().display());
/// # tokio::runtime::Runtime::new()?.block_on(async {
/// # async fn one_step() {}
/// let latch = cronlatch::Latch::open(&url)?;
/// let mut held = latch.lock("migration")?.acquire().await?;
/// for _ in 0..3 {
///     tokio::select! {
///         why = held.lost() => return Err(why.into()),
///         () = one_step() => {}
///     }
/// }
/// held.release().await?;
/// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct HeldLock {
    store: Arc<dyn Store>,
    lock: Lock,
    /// `None` once released.
    lease: Option<Lease>,
    ticket: Ticket,
}

/// What is known of a lock that is held, for those who work under it. Does not keep it.
#[derive(Debug, Clone)]
pub struct Ticket {
    token: Token,
    fence: u64,
    view: LeaseView,
}

/// Why a lock could not be released.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// It was not ours any more. Nobody else's lock was touched.
    #[error(transparent)]
    Lost(LeaseLost),
    /// The store does not answer; the lock ends with its TTL.
    #[error(transparent)]
    Store(StoreError),
}

impl HeldLock {
    pub(super) fn new(store: Arc<dyn Store>, watchdog: &Watchdog, grant: Grant) -> Self {
        let lease = watchdog.hold(Held {
            lock: grant.lock.clone(),
            token: grant.token.clone(),
            ttl: grant.ttl,
            tenure: Tenure::of_lock(grant.fence, grant.run_id),
            sent: grant.sent,
            run: None,
            on_lost: OnLost::Continue,
        });
        Self {
            store,
            lock: grant.lock,
            ticket: Ticket {
                token: grant.token,
                fence: grant.fence,
                view: lease.view(),
            },
            lease: Some(lease),
        }
    }

    /// The value that marks the lock as ours: `HOST:PID:RUN_ID:RANDOM`.
    pub fn token(&self) -> &str {
        self.ticket.token()
    }

    /// The fencing token; see [`Ticket::fence`].
    pub fn fence(&self) -> u64 {
        self.ticket.fence
    }

    /// How long the lock is ours from now if no renewal succeeds any more; zero once it is lost.
    pub fn validity(&self) -> Duration {
        self.ticket.validity()
    }

    /// Waits until the lock is lost. Cancel-safe.
    pub async fn lost(&mut self) -> LeaseLost {
        self.ticket.lost().await
    }

    /// Something to hand to those who do the work.
    pub fn ticket(&self) -> Ticket {
        self.ticket.clone()
    }

    /// Releases the lock, and wakes one who waits for it. Tries again while the store does not
    /// answer, until the lease is over, for 1 to 10 s.
    pub async fn release(mut self) -> Result<(), ReleaseError> {
        let lost = self.ticket.view.known_loss();
        let limit = self.validity().clamp(RELEASE_LEAST, RELEASE_LIMIT);
        let released = acquire::release(&*self.store, &self.lock, &self.ticket.token, limit).await;
        // Renewed until here: while the answer is out the lock may still be ours.
        self.lease = None;
        match (released, lost) {
            (_, Some(why)) => Err(ReleaseError::Lost(why)),
            (Ok(FinishReply::Released), None) => Ok(()),
            (Ok(FinishReply::Lost), None) => Err(ReleaseError::Lost(self.ticket.why_lost())),
            (Err(error), None) => Err(ReleaseError::Store(error)),
        }
    }
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        if self.lease.take().is_some() {
            acquire::release_in_background(&self.store, &self.lock, &self.ticket.token);
        }
    }
}

impl Ticket {
    /// The value that marks the lock as ours: `HOST:PID:RUN_ID:RANDOM`.
    pub fn token(&self) -> &str {
        self.token.as_str()
    }

    /// A number that is larger with every holder of the lock. Hand it to whatever is written to,
    /// and let that refuse a smaller one than it has seen: so a holder that was paused for longer
    /// than its lease does no harm when it wakes.
    pub fn fence(&self) -> u64 {
        self.fence
    }

    /// How long the lock is ours from now if no renewal succeeds any more; zero once it is lost.
    pub fn validity(&self) -> Duration {
        self.view.validity()
    }

    /// Waits until the lock is lost; after a release, until its time would have been over.
    /// Cancel-safe.
    pub async fn lost(&mut self) -> LeaseLost {
        self.view.lost().await
    }

    fn why_lost(&self) -> LeaseLost {
        self.view.known_loss().unwrap_or(LeaseLost::Absent)
    }
}
