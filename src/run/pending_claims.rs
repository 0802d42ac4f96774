//! Whether many claims of this host have no reply yet. Runs that wait for their instant are not prepared meanwhile.
//!
//! Thousands of jobs that share an instant are claimed in the second before it. To prepare a run takes a core ten times
//! as long as to claim one, so preparations would keep this host, and others on its machine, from claiming the rest in
//! time; what is claimed after the instant comes late, because by then thousands of commands want the cores.
//!
//! The daemon counts the claims, those that have not been sent for want of a turn among them.

use std::time::Duration;

use tokio::sync::watch;

use crate::time::BootInstant;

/// More claims than this are many. A host sends 64 at a time to one server, so most of these wait for their turn.
const MANY: usize = 256;

/// Once there were many, so few have to be left, so that runs are not woken each time that a reply arrives.
const FEW: usize = 128;

/// How long before its instant a run is prepared, however many claims there are.
const LATEST: Duration = Duration::from_millis(100);

/// Whether many claims of this host have no reply. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct PendingClaims {
    are_many: watch::Sender<bool>,
}

impl Default for PendingClaims {
    fn default() -> Self {
        let (are_many, _) = watch::channel(false);
        Self { are_many }
    }
}

impl PendingClaims {
    /// So many claims have no reply now.
    pub(crate) fn set(&self, count: usize) {
        self.are_many.send_if_modified(|are_many| {
            let before = *are_many;
            *are_many = count > if before { FEW } else { MANY };
            // Nobody waits for many.
            before && !*are_many
        });
    }

    /// Whether there are many.
    pub(crate) fn are_many(&self) -> bool {
        *self.are_many.borrow()
    }

    /// Waits until few claims have no reply, or the run that begins at `start` has to be prepared. Cancel-safe.
    /// Suspended time does not count, so it may return later by the time that the machine was suspended.
    pub(super) async fn few(&self, start: BootInstant) {
        let left = start.remaining().saturating_sub(LATEST);
        if left.is_zero() || !self.are_many() {
            return;
        }
        let mut are_many = self.are_many.subscribe();
        let few = are_many.wait_for(|are_many| !are_many);
        // Neither a time-out nor the end of the sender is an error.
        let _ = tokio::time::timeout(left, few).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a run that begins then is prepared at once.
    async fn at_once(claims: &PendingClaims, start: BootInstant) -> bool {
        let few = tokio::time::timeout(Duration::ZERO, claims.few(start));
        few.await.is_ok()
    }

    #[tokio::test]
    async fn a_run_is_prepared_once_few_claims_are_left_or_its_instant_is_near() {
        let claims = PendingClaims::default();
        let far = BootInstant::now().plus(Duration::from_secs(3_600));
        claims.set(MANY);
        assert!(at_once(&claims, far).await);
        claims.set(MANY + 1);
        assert!(!at_once(&claims, far).await);
        claims.few(BootInstant::now().plus(LATEST * 2)).await;
        assert!(at_once(&claims, BootInstant::now().plus(LATEST)).await);
        let waiting = tokio::spawn({
            let claims = claims.clone();
            async move { claims.few(far).await }
        });
        tokio::task::yield_now().await;
        claims.set(FEW + 1);
        assert!(
            !at_once(&claims, far).await,
            "it would be woken for nothing"
        );
        claims.set(FEW);
        waiting.await.expect("it ends");
    }
}
