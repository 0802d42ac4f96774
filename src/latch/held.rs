//! A lock that is held.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::acquire::release;
use super::error::{ExtendError, ReleaseError};
use super::queue::QueueTurn;
use super::shared::LatchShared;
use super::tally::Counted;
use super::ticket::Ticket;
use crate::ground::timing;
use crate::lease::{Guarded, Lease, LeaseLost, NewLease, OnDrop};
use crate::store::{FinishReply, Grant, RenewReply, StoreError};
use crate::time::BootInstant;

/// How long a release is retried, at least and at most.
const RELEASE_LEAST: Duration = Duration::from_secs(1);
const RELEASE_LIMIT: Duration = Duration::from_secs(10);
/// How long one call of [`HeldLock::extend`] waits for the store, at most.
const EXTEND_LIMIT: Duration = Duration::from_secs(5);

/// A lock that is held, and renewed in the background.
///
/// [Release](Self::release) it when the work is done. Dropping it releases it in the background:
/// on the thread that renews leases, so also at the end of a runtime, on a thread without one, and
/// while a panic unwinds. The last of a [`Latch`](super::Latch), its clones and its locks to be
/// dropped waits for such releases, for 2 s at most, so that the end of `main` does not cut them
/// off. (Nothing is dropped by `std::process::exit`, by an abort, or in a `static`: call
/// [`Latch::shutdown`](super::Latch::shutdown) before, or the lock ends with its TTL.)
///
/// **Exclusion ends at the lost-lease signal.** Code that holds a lock must watch for it while it
/// works, and stop; the library cannot do that for it:
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
///
/// A lock that is not bound to a variable is released at once, which the compiler warns of:
///
/// ```compile_fail
/// #![deny(unused_must_use)]
/// async fn work(latch: &cronlatch::Latch) -> Result<(), Box<dyn std::error::Error>> {
///     latch.lock("migration")?.acquire().await?;
///     Ok(())
/// }
/// ```
#[must_use = "the lock is released as soon as this is dropped"]
pub struct HeldLock {
    /// `None` once released.
    lease: Option<Lease>,
    ticket: Ticket,
    grant: Grant,
    entry: Counted,
    /// Last: when it is the last of its latch, its drop waits for all others.
    shared: Arc<LatchShared>,
}

impl HeldLock {
    /// `turn` passes to the next task of this process once the lock is free.
    pub(super) fn new(
        shared: Arc<LatchShared>,
        grant: Grant,
        renew_for: Option<Duration>,
        entry: Counted,
        turn: Option<QueueTurn>,
    ) -> Self {
        let lease = shared.watchdog.hold(NewLease {
            grant: grant.clone(),
            run: None,
            guarded: Guarded::No,
            renew_until: renew_for.map(|limit| grant.sent.plus(limit)),
            while_held: turn.map(|turn| Box::new(turn) as OnDrop),
        });
        Self {
            ticket: Ticket::new(grant.token.clone(), grant.fence, lease.view()),
            lease: Some(lease),
            grant,
            entry,
            shared,
        }
    }

    /// The name of the lock, or its raw key.
    pub fn name(&self) -> &str {
        &self.grant.lock.name
    }

    /// The value of the lock in the store: `HOST:PID:RUN_ID:RANDOM`. A program that knows it can
    /// release the lock by [force](super::LockRequest::force_release).
    pub fn token(&self) -> &str {
        self.ticket.token()
    }

    /// The fencing token; see [`Ticket::fence`].
    pub fn fence(&self) -> u64 {
        self.ticket.fence()
    }

    /// How long the lock lasts from now if no further renewal succeeds; zero once it is lost.
    /// At most the TTL, less 1 % for clocks that tick at different rates.
    pub fn validity(&self) -> Duration {
        self.ticket.validity()
    }

    /// Why the lock is lost, if it is.
    pub fn loss(&self) -> Option<LeaseLost> {
        self.ticket.loss()
    }

    /// Waits until the lock is lost. Cancel-safe.
    pub async fn lost(&mut self) -> LeaseLost {
        self.ticket.lost().await
    }

    /// A view of this lock for the code that does the work. It does not keep the lock.
    pub fn ticket(&self) -> Ticket {
        self.ticket.clone()
    }

    /// Renews the lease now, so that it lasts its full TTL from before this call.
    ///
    /// Only needed with [`manual_renewal`](super::LockRequest::manual_renewal) or
    /// [`renew_for`](super::LockRequest::renew_for), or ahead of work that must not be cut short.
    /// Waits for the store for as long as the lease lasts, at most 5 s. Cancel-safe: a renewal
    /// whose reply is not awaited may have lengthened the lease in the store, which is harmless.
    pub async fn extend(&mut self) -> Result<(), ExtendError> {
        if let Some(why) = self.loss() {
            return Err(ExtendError::Lost(why));
        }
        let sent = BootInstant::now();
        let limit = self.validity().min(EXTEND_LIMIT);
        let renewals = [self.grant.renewal()];
        let renewed = tokio::time::timeout(limit, self.shared.store.renew(&renewals)).await;
        let reply = match renewed {
            Ok(Ok(replies)) => replies.into_iter().next(),
            Ok(Err(error)) => return Err(ExtendError::Store(error)),
            Err(_) => None,
        };
        let ends = timing::ends(sent, self.grant.ttl);
        match (reply, &self.lease) {
            (Some(RenewReply::Renewed), Some(lease)) if lease.extended(sent, ends) => Ok(()),
            (Some(RenewReply::Taken), _) => Err(ExtendError::Lost(self.give_up(LeaseLost::Taken))),
            (Some(RenewReply::Absent), _) => {
                Err(ExtendError::Lost(self.give_up(LeaseLost::Absent)))
            }
            // Over while the request was under way.
            (Some(RenewReply::Renewed), _) => Err(ExtendError::Lost(self.why_lost())),
            (None | Some(RenewReply::Unanswered), _) => {
                let text = format!("no reply to a renewal within {limit:?}");
                Err(ExtendError::Store(StoreError::unreachable(text)))
            }
        }
    }

    /// Releases the lock, and wakes those who wait for it.
    ///
    /// All [tickets](Self::ticket) are over before the lock is released. While the store does not
    /// reply, the release is tried again until the lease is over, for 1 to 10 s; what is left then
    /// ends with the TTL. Dropping the future leaves the release to the background.
    pub async fn release(mut self) -> Result<(), ReleaseError> {
        let lost = self.loss();
        let limit = self.validity().clamp(RELEASE_LEAST, RELEASE_LIMIT);
        if let Some(lease) = &self.lease {
            lease.end();
        }
        let released = release(&*self.shared.store, &self.grant, limit).await;
        // Renewed until here: while the reply is out, the lock may still be ours in the store.
        self.lease = None;
        match (released, lost) {
            (_, Some(why)) => Err(ReleaseError::Lost(why)),
            (Ok(FinishReply::Released), None) => Ok(()),
            (Ok(FinishReply::Lost | FinishReply::Moved { .. }), None) => {
                Err(ReleaseError::Lost(LeaseLost::Absent))
            }
            (Err(error), None) => Err(ReleaseError::Store(error)),
        }
    }

    /// Ends the lease here, as the store has; returns why it was lost.
    fn give_up(&self, why: LeaseLost) -> LeaseLost {
        self.lease
            .as_ref()
            .map_or(why, |lease| lease.mark_lost(why))
    }

    fn why_lost(&self) -> LeaseLost {
        self.loss().unwrap_or(LeaseLost::Absent)
    }
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        if let Some(lease) = self.lease.take() {
            let limit = lease.validity().clamp(RELEASE_LEAST, RELEASE_LIMIT);
            let finish = self.grant.release();
            let until_done = Box::new(self.entry.clone());
            self.shared
                .watchdog
                .finish(Some(lease), finish, limit, until_done);
        }
    }
}

/// Without the token, which is the right to release the lock.
impl fmt::Debug for HeldLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldLock")
            .field("name", &self.name())
            .field("fence", &self.fence())
            .field("validity", &self.validity())
            .finish_non_exhaustive()
    }
}
