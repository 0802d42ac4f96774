//! The lease of a run, and whether its loss was noticed.

use std::future::pending;

use crate::lease::{Lease, LeaseLost};

/// The lease under which a run's processes run, if it has one.
#[derive(Debug, Default)]
pub(crate) struct RunLease {
    lease: Option<Lease>,
    lost: Option<LeaseLost>,
}

impl RunLease {
    /// A lease whose loss was not noticed yet; `None` for a run without one.
    pub(crate) fn new(lease: Option<Lease>) -> Self {
        Self { lease, lost: None }
    }

    /// Waits until the lease is lost, and returns that once. After that, and without a lease, it
    /// waits for ever. Cancel-safe.
    pub(super) async fn next_loss(&mut self) -> LeaseLost {
        match &mut self.lease {
            Some(lease) if self.lost.is_none() => {
                let lost = lease.lost().await;
                self.lost = Some(lost);
                lost
            }
            _ => pending().await,
        }
    }

    /// Waits until the lease is lost, for ever without one. Unlike [`Self::next_loss`] it returns that each
    /// time, and notices nothing. Cancel-safe.
    pub(super) async fn is_lost(&mut self) -> LeaseLost {
        match &mut self.lease {
            Some(lease) => lease.lost().await,
            None => pending().await,
        }
    }

    /// Counts a loss as noticed.
    pub(super) fn notice(&mut self, lost: LeaseLost) {
        self.lost = Some(lost);
    }

    /// The loss that [`Self::next_loss`] has returned.
    pub(crate) fn noticed_loss(&self) -> Option<LeaseLost> {
        self.lost
    }

    /// The lease.
    pub(crate) fn lease(&self) -> Option<&Lease> {
        self.lease.as_ref()
    }

    /// Returns the lease, to be held until the result is delivered.
    pub(super) fn into_lease(self) -> Option<Lease> {
        self.lease
    }

    /// Returns what the loss of the lease means, in plain words, and why it was not renewed.
    pub(super) fn explain(&self, lost: LeaseLost) -> String {
        let meaning = match lost {
            LeaseLost::Taken => "another holder took the lock",
            LeaseLost::Absent => "the lock disappeared from the store",
            LeaseLost::Expired => "the lease was not renewed in time",
            LeaseLost::Released => "the lock was released",
        };
        if lost != LeaseLost::Expired {
            return meaning.to_owned();
        }
        match self.lease.as_ref().and_then(Lease::trouble) {
            Some(error) => format!("{meaning}; last error: {}", error.reason()),
            None => format!(
                "{meaning}, and no renewal had failed: the daemon or its guard was stopped, or the \
                 host is overloaded"
            ),
        }
    }
}
