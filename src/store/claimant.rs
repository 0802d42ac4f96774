//! One claim from its first copy to its end, for the daemon, `trigger`, `exec` and the library.
//!
//! A claim without a reply may have been granted, or may be granted later: a copy of it may be
//! under way. Then it is either sent again under the same token, to which the store gives the same
//! reply, or cancelled by a `finish` under its token, after which no copy is granted.
//! [`Claimant`] knows whether there is anything to cancel. How often a claim is sent, and for how
//! long, is left to its users.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use super::retry::{RetryPace, retry};
use super::{Claim, ClaimReply, Finish, FinishReply, Grant, Retention, Store, StoreError};
use crate::time::BootInstant;

/// How long a claim in doubt is tried to be cancelled. What is left then ends with its TTL.
pub(crate) const CANCEL_LIMIT: Duration = Duration::from_secs(2);

/// No copy can be granted: none was sent, or each was refused.
const CLEAR: u8 = 0;
/// A copy was granted, or may be.
const IN_DOUBT: u8 = 1;
/// The claim was given up: no further copy is sent.
const GIVEN_UP: u8 = 2;
/// The grant has an owner, who finishes it.
const OWNED: u8 = 3;
/// No copy was sent, and the store is to be asked for another host's claim first.
const ASKS_FIRST: u8 = 4;

/// A claim, and whether a copy of it may be granted. Clones share both: a task can send copies while
/// another gives the claim up.
#[derive(Debug, Clone)]
pub(crate) struct Claimant {
    claim: Arc<Claim>,
    /// What the job's history keeps; 0 for a bare lock.
    keep: Retention,
    state: Arc<AtomicU8>,
    /// Until when there is time for a question before the first copy; `None` if nothing is asked.
    asks_until: Option<BootInstant>,
}

/// The reply to one copy of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CopyReply {
    /// It was granted.
    Granted {
        /// The lease.
        grant: Grant,
        /// 1, or more when a crashed run is run again.
        attempt: u32,
    },
    /// It was not granted, for the reason in the reply.
    Refused(ClaimReply),
    /// It was not sent, because the claim had been given up or handed over.
    NotSent,
}

impl Claimant {
    /// A claim that is still to be sent.
    pub(crate) fn new(claim: Claim, keep: Retention) -> Self {
        Self {
            claim: Arc::new(claim),
            keep,
            state: Arc::default(),
            asks_until: None,
        }
    }

    /// Has the store asked whether another host has claimed the occurrence, before the first copy is sent, if
    /// that is sent before `until`. It saves the store time if the claim would probably be refused; otherwise
    /// it costs a round trip.
    #[must_use]
    pub(crate) fn asking_first(self, until: BootInstant) -> Self {
        self.state.store(ASKS_FIRST, Ordering::Release);
        Self {
            asks_until: Some(until),
            ..self
        }
    }

    /// The claim.
    pub(crate) fn claim(&self) -> &Claim {
        &self.claim
    }

    /// Sends one copy. If this future is dropped before it returns, the claim is in doubt.
    ///
    /// A claim that was granted stays in doubt until [`hand_over`](Self::hand_over).
    pub(crate) async fn send(&self, store: &dyn Store) -> Result<CopyReply, StoreError> {
        if self.begins_with_question()
            && let Some(status) = store.already_claimed(&self.claim).await?
        {
            return Ok(CopyReply::Refused(ClaimReply::AlreadyClaimed(status)));
        }
        let Some(before) = self.begin() else {
            return Ok(CopyReply::NotSent);
        };
        let sent = BootInstant::now();
        let reply = store.claim(&self.claim).await;
        match reply {
            Ok(ClaimReply::Granted {
                fence,
                attempt,
                starts_in,
                ..
            }) => {
                let grant =
                    Grant::of(&self.claim, fence, sent).starting_in(starts_in, BootInstant::now());
                return Ok(CopyReply::Granted { grant, attempt });
            }
            Err(error) if self.leaves_doubt(&error) => return Err(error),
            Ok(_) | Err(_) => {}
        }
        if before == CLEAR {
            // If the claim was given up meanwhile, it stays given up.
            let (order, failed) = (Ordering::AcqRel, Ordering::Acquire);
            let _ = (self.state).compare_exchange(IN_DOUBT, CLEAR, order, failed);
        }
        reply.map(CopyReply::Refused)
    }

    /// Whether the store is to be asked now. Once: the answer is right only while no copy was sent.
    fn begins_with_question(&self) -> bool {
        let (order, failed) = (Ordering::AcqRel, Ordering::Acquire);
        let first = (self.state).compare_exchange(ASKS_FIRST, CLEAR, order, failed);
        // The claim may have waited for its turn.
        first.is_ok() && self.asks_until.is_some_and(|it| BootInstant::now() < it)
    }

    /// Enters the doubt in which a copy that is sent leaves the claim. Returns the state before;
    /// `None` if the claim was given up or handed over.
    fn begin(&self) -> Option<u8> {
        let enter = |state| matches!(state, CLEAR | IN_DOUBT).then_some(IN_DOUBT);
        let entered = (self.state).fetch_update(Ordering::AcqRel, Ordering::Acquire, enter);
        entered.ok()
    }

    /// Whether the store may have executed a copy that failed so. The claim of a job writes several
    /// keys, and an error of one key can follow the change of another.
    fn leaves_doubt(&self, error: &StoreError) -> bool {
        let no_reply = matches!(
            error,
            StoreError::Unreachable(_) | StoreError::PartUnreachable(_)
        );
        no_reply || self.claim.what.job().is_some()
    }

    /// Gives the claim up: no further copy is sent. Returns the request that cancels the copies
    /// which may have been granted or may be; `None` if there are none.
    pub(crate) fn give_up(&self) -> Option<Finish> {
        let before = self.state.swap(GIVEN_UP, Ordering::AcqRel);
        (before == IN_DOUBT).then(|| self.claim.cancellation(self.keep))
    }

    /// Gives the claim up, and cancels what is in doubt; tries for [`CANCEL_LIMIT`].
    pub(crate) async fn cancel(&self, store: &dyn Store) {
        if let Some(finish) = self.give_up()
            && let Err(error) = deliver(store, &finish, CANCEL_LIMIT).await
        {
            tracing::debug!(
                lock = self.claim.lock.name,
                "cannot cancel a claim; its lease ends with its TTL: {error}"
            );
        }
    }

    /// The grant has an owner, who finishes it: there is nothing to cancel any more.
    pub(crate) fn hand_over(&self) {
        self.state.store(OWNED, Ordering::Release);
    }
}

/// Releases a lease or cancels a claim, and retries until `limit` is over.
pub(crate) async fn deliver(
    store: &dyn Store,
    finish: &Finish,
    limit: Duration,
) -> Result<FinishReply, StoreError> {
    retry(RetryPace::any_error(limit), || store.finish(finish)).await
}

#[cfg(test)]
mod tests;
