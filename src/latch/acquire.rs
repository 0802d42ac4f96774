//! Acquiring and releasing a bare lock: what `exec` and the library share.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::patience::{RetryPauses, Setback, TimeLeft, WaitLimit};
use super::tally::Counted;
use crate::ground::timing;
use crate::lease::{Watchdog, finish_until};
use crate::names::{HostName, RunId, Token};
use crate::store::{
    Claim, ClaimReply, ClaimTarget, Finish, FinishReply, Grant, KeyFaultKind, Lock, Store,
    StoreError,
};
use crate::time::BootInstant;

/// The timeout of one claim.
const CLAIM_LIMIT: Duration = Duration::from_secs(5);
/// The minimum time between two claims.
const SETTLE: Duration = Duration::from_millis(5);
/// How long the cancellation of a claim without a reply is retried.
const CANCEL_LIMIT: Duration = Duration::from_secs(2);

/// The attempt to acquire one lock. It uses one token throughout, so a claim whose reply was lost
/// can be sent again.
#[derive(Debug)]
pub(crate) struct Acquisition {
    store: Arc<dyn Store>,
    claim: Claim,
    wait: WaitLimit,
    /// The store may hold a lease under our token, now or when a delayed claim reaches it.
    in_doubt: bool,
    began: Instant,
    /// Who cancels a claim that is given up, also when no runtime is left; `None`: a task on the
    /// current runtime does.
    background: Option<(Watchdog, Counted)>,
}

/// Why a lock was not acquired.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotAcquired {
    #[error("the lock is held by {by}")]
    Held {
        by: String,
        remaining: Option<Duration>,
    },
    #[error("{}", waits_text(*.remaining))]
    Recovering { remaining: Duration },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a store grants nothing at present, as text.
pub(crate) fn waits_text(remaining: Duration) -> String {
    format!(
        "the store grants no locks for another {:.1} s: it is new, was restarted or lost its \
         data, and a lock that it no longer knows may still be held (initialise a new store with \
         `cronlatch init`, or Latch::init in a program)",
        remaining.as_secs_f64()
    )
}

impl Acquisition {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        host: &HostName,
        lock: Lock,
        ttl: Duration,
        wait: WaitLimit,
    ) -> Self {
        let run_id = RunId::new();
        let claim = Claim {
            lock,
            token: Token::new(host, &run_id),
            run_id,
            ttl,
            what: ClaimTarget::Lock,
        };
        Self {
            store,
            claim,
            wait,
            in_doubt: false,
            began: Instant::now(),
            background: None,
        }
    }

    /// Leaves it to the watchdog to cancel a claim that is given up.
    pub(super) fn cancelled_by(mut self, watchdog: &Watchdog, entry: Counted) -> Self {
        self.background = Some((watchdog.clone(), entry));
        self
    }

    /// Claims until the lock is ours or the wait, which began with [`Self::new`], is over. Dropping
    /// the future, or this value, cancels a claim that may have been granted meanwhile.
    pub(crate) async fn acquire(&mut self) -> Result<Grant, NotAcquired> {
        let mut patience = RetryPauses::new(&self.claim.lock.key);
        let mut complained = false;
        loop {
            let why = match self.claim_once().await {
                Ok(grant) => return Ok(grant),
                Err(why) => why,
            };
            let setback = match &why {
                NotAcquired::Held { remaining, .. } => Setback::Held(*remaining),
                NotAcquired::Recovering { remaining } => Setback::Recovering(*remaining),
                NotAcquired::Store(StoreError::Unreachable(_) | StoreError::PartUnreachable(_)) => {
                    Setback::Silence
                }
                NotAcquired::Store(StoreError::Refused(_) | StoreError::Replica(_)) => {
                    Setback::Refusal
                }
                NotAcquired::Store(StoreError::Key(fault))
                    if fault.kind == KeyFaultKind::Forbidden =>
                {
                    Setback::Refusal
                }
                NotAcquired::Store(
                    StoreError::Corrupt(_) | StoreError::WrongList(_) | StoreError::Key(_),
                ) => return Err(why),
            };
            let left = self.left();
            let Some(pause) = patience.after(setback, left, spread()) else {
                return Err(why);
            };
            // What is out of the ordinary is said once: nobody wonders why it takes long.
            let is_odd = matches!(setback, Setback::Silence | Setback::Recovering(_));
            if is_odd && !std::mem::replace(&mut complained, true) {
                tracing::warn!(lock = self.claim.lock.name, "{why}; retrying");
            } else {
                tracing::debug!(lock = self.claim.lock.name, "{why}; retrying");
            }
            match setback {
                Setback::Held(_) => self.listen(pause).await,
                Setback::Recovering(_) | Setback::Silence | Setback::Refusal => {
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }

    /// Makes sure that no claim of ours is granted any more. Tries for two seconds at most; what
    /// is left then ends with its TTL.
    pub(crate) async fn cancel(&mut self) {
        if !self.in_doubt {
            return;
        }
        let finish = Finish::of_lock(self.claim.lock.clone(), self.claim.token.clone());
        if let Err(error) = finish_until(&*self.store, &finish, CANCEL_LIMIT).await {
            tracing::debug!(
                lock = self.claim.lock.name,
                "cannot cancel the claim, it ends with its TTL: {error}"
            );
        }
        self.in_doubt = false;
    }

    /// The lease has an owner who will release it.
    pub(crate) fn hand_over(mut self) {
        self.in_doubt = false;
    }

    async fn claim_once(&mut self) -> Result<Grant, NotAcquired> {
        let doubt = std::mem::replace(&mut self.in_doubt, true);
        let sent = BootInstant::now();
        let reply = tokio::time::timeout(CLAIM_LIMIT, self.store.claim(&self.claim))
            .await
            .unwrap_or_else(|_| {
                let text = format!("no reply to a claim within {CLAIM_LIMIT:?}");
                Err(StoreError::unreachable(text))
            });
        let ttl = self.claim.ttl;
        match reply {
            // After a stop of this process most of the lease may be gone. The same claim again
            // gives it its full length, or says that it is over.
            Ok(ClaimReply::Granted { .. }) if timing::ends(sent, ttl).remaining() < ttl * 2 / 3 => {
                let text = "the grant arrived too late in its lease".to_owned();
                Err(StoreError::unreachable(text).into())
            }
            Ok(ClaimReply::Granted { fence, .. }) => Ok(Grant::of(&self.claim, fence, sent)),
            Ok(ClaimReply::Held { by, remaining }) => {
                self.in_doubt = doubt;
                Err(NotAcquired::Held { by, remaining })
            }
            Ok(ClaimReply::Recovering { remaining }) => {
                self.in_doubt = doubt;
                Err(NotAcquired::Recovering { remaining })
            }
            Ok(reply) => {
                self.in_doubt = doubt;
                let text = format!("unexpected reply to the claim of a lock: {reply:?}");
                Err(StoreError::corrupt(text).into())
            }
            Err(error @ (StoreError::Unreachable(_) | StoreError::PartUnreachable(_))) => {
                Err(error.into())
            }
            Err(error) => {
                self.in_doubt = doubt;
                Err(error.into())
            }
        }
    }

    /// Until a release is heard of, at most for `pause`.
    async fn listen(&self, pause: Duration) {
        let began = Instant::now();
        let until = began + pause;
        let heard = self.store.released(&self.claim.lock, pause);
        match tokio::time::timeout_at(until, heard).await {
            // A store may say at once that something happened, as often as it is asked.
            Ok(Ok(())) | Err(_) => tokio::time::sleep_until((began + SETTLE).min(until)).await,
            // Not being able to listen must not turn waiting into a storm of claims.
            Ok(Err(error)) => {
                tracing::debug!("cannot subscribe to the release: {error}");
                tokio::time::sleep_until(until).await;
            }
        }
    }

    fn left(&self) -> TimeLeft {
        match self.wait {
            WaitLimit::UpTo(wait) => TimeLeft::Time(wait.saturating_sub(self.began.elapsed())),
            WaitLimit::Forever => TimeLeft::Unbounded,
        }
    }
}

impl Drop for Acquisition {
    fn drop(&mut self) {
        if self.in_doubt {
            let finish = Finish::of_lock(self.claim.lock.clone(), self.claim.token.clone());
            match self.background.take() {
                Some((watchdog, entry)) => {
                    watchdog.finish(None, finish, CANCEL_LIMIT, Box::new(entry));
                }
                None => finish_in_background(&self.store, finish),
            }
        }
    }
}

fn finish_in_background(store: &Arc<dyn Store>, finish: Finish) {
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        let store = Arc::clone(store);
        runtime.spawn(async move { finish_until(&*store, &finish, CANCEL_LIMIT).await.map(drop) });
    }
}

/// Releases a lease, and retries until `limit` has passed.
pub(crate) async fn release(
    store: &dyn Store,
    grant: &Grant,
    limit: Duration,
) -> Result<FinishReply, StoreError> {
    finish_until(store, &grant.release(), limit).await
}

fn spread() -> u8 {
    let mut byte = [0_u8];
    // Without randomness those who wait ask at the same time, which is no harm.
    let _ = getrandom::fill(&mut byte);
    byte[0]
}
