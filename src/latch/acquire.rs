//! Acquiring and releasing a bare lock, for `exec` and the library.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::patience::{RetryPauses, Setback, TimeLeft, WaitLimit};
use super::tally::Counted;
use crate::ground::tasks::SpawnBoxed as _;
use crate::lease::Watchdog;
use crate::names::{HostName, RunId, Token};
use crate::store::{
    CANCEL_LIMIT, Claim, ClaimReply, ClaimTarget, Claimant, CopyReply, Finish, FinishReply, Grant,
    KeyFaultKind, Lock, Retention, Store, StoreError, deliver,
};

/// The timeout of one claim.
const CLAIM_LIMIT: Duration = Duration::from_secs(5);
/// The minimum time between two claims.
const SETTLE: Duration = Duration::from_millis(5);

/// The attempt to acquire one lock, under one token from first to last.
#[derive(Debug)]
pub(crate) struct Acquisition {
    store: Arc<dyn Store>,
    claimant: Claimant,
    wait: WaitLimit,
    began: Instant,
    /// Where a claim that is given up is cancelled, also when no runtime is left; `None`: by a task
    /// on the current runtime.
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
         data, and a lock that it no longer knows may still be held. Wait: this ends by itself \
         (`cronlatch init` avoids it, but only before the first use of a store)",
        remaining.as_secs_f64()
    )
}

/// How long a claim is still tried, for the end of a sentence.
fn for_how_long(left: TimeLeft) -> String {
    match left {
        TimeLeft::Time(Duration::ZERO) => " a few times".to_owned(),
        TimeLeft::Time(left) => format!(" for up to {:.0} s", left.as_secs_f64()),
        TimeLeft::Unbounded => String::new(),
    }
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
            claimant: Claimant::new(claim, Retention::of_records(0)),
            wait,
            began: Instant::now(),
            background: None,
        }
    }

    /// Lets the watchdog cancel a claim that is given up.
    pub(super) fn cancelled_by(mut self, watchdog: &Watchdog, entry: Counted) -> Self {
        self.background = Some((watchdog.clone(), entry));
        self
    }

    /// Claims until the lock is granted or the wait, which began with [`Self::new`], is over.
    /// Dropping the future and this value cancels a claim that may have been granted.
    pub(crate) async fn acquire(&mut self) -> Result<Grant, NotAcquired> {
        let mut patience = RetryPauses::new(&self.lock().key);
        let mut is_logged = false;
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
            // A warning once, so that the user knows why the wait is long.
            let is_odd = matches!(setback, Setback::Silence | Setback::Recovering(_));
            if is_odd && !std::mem::replace(&mut is_logged, true) {
                tracing::warn!(
                    lock = self.lock().name,
                    "{why}; retrying{}",
                    for_how_long(left)
                );
            } else {
                tracing::debug!(lock = self.lock().name, "{why}; retrying");
            }
            match setback {
                Setback::Held(_) => self.await_release(pause).await,
                Setback::Recovering(_) | Setback::Silence | Setback::Refusal => {
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }

    /// Cancels the claim if a copy of it may be granted; tries for two seconds at most. What is left
    /// then ends with its TTL.
    pub(crate) async fn cancel(&mut self) {
        self.claimant.cancel(&*self.store).await;
    }

    /// The lease has an owner, who releases it.
    pub(crate) fn hand_over(self) {
        self.claimant.hand_over();
    }

    async fn claim_once(&mut self) -> Result<Grant, NotAcquired> {
        let sending = self.claimant.send(&*self.store);
        let reply = tokio::time::timeout(CLAIM_LIMIT, sending)
            .await
            .unwrap_or_else(|_| {
                let text = format!("no reply to a claim within {CLAIM_LIMIT:?}");
                Err(StoreError::unreachable(text))
            });
        match reply? {
            // After a stop of this process most of the lease may be over. The same claim again gives
            // it its full length, or returns that it is over.
            CopyReply::Granted { grant, .. } if grant.ends().remaining() < grant.ttl * 2 / 3 => {
                let text = "the grant arrived too late in its lease".to_owned();
                Err(StoreError::unreachable(text).into())
            }
            CopyReply::Granted { grant, .. } => Ok(grant),
            CopyReply::Refused(ClaimReply::Held { by, remaining }) => {
                Err(NotAcquired::Held { by, remaining })
            }
            CopyReply::Refused(ClaimReply::Recovering { remaining }) => {
                Err(NotAcquired::Recovering { remaining })
            }
            reply @ (CopyReply::Refused(_) | CopyReply::NotSent) => {
                let text = format!("unexpected reply to the claim of a lock: {reply:?}");
                Err(StoreError::corrupt(text).into())
            }
        }
    }

    fn lock(&self) -> &Lock {
        &self.claimant.claim().lock
    }

    /// Waits for a release, at most for `pause`.
    async fn await_release(&self, pause: Duration) {
        let began = Instant::now();
        let until = began + pause;
        let released = self.store.released(self.lock(), pause);
        match tokio::time::timeout_at(until, released).await {
            // A store may report a release at once, as often as it is asked.
            Ok(Ok(())) | Err(_) => tokio::time::sleep_until((began + SETTLE).min(until)).await,
            // Without a subscription, the wait must not become a storm of claims.
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
        if let Some(finish) = self.claimant.give_up() {
            match self.background.take() {
                Some((watchdog, entry)) => {
                    watchdog.finish(None, finish, CANCEL_LIMIT, Box::new(entry));
                }
                None => deliver_in_background(&self.store, finish),
            }
        }
    }
}

fn deliver_in_background(store: &Arc<dyn Store>, finish: Finish) {
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        let store = Arc::clone(store);
        runtime.spawn_boxed(async move { deliver(&*store, &finish, CANCEL_LIMIT).await.map(drop) });
    }
}

/// Releases a lease, and retries until `limit` has passed.
pub(crate) async fn release(
    store: &dyn Store,
    grant: &Grant,
    limit: Duration,
) -> Result<FinishReply, StoreError> {
    deliver(store, &grant.release(), limit).await
}

fn spread() -> u8 {
    let mut byte = [0_u8];
    // Without randomness, several waiters claim at the same time, which does no harm.
    let _ = getrandom::fill(&mut byte);
    byte[0]
}
