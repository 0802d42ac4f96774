//! A lease as its holder sees it: how long it lasts, and the word that it is lost.

use std::time::Duration;

use tokio::sync::{mpsc, watch};

use super::renewal_loop::WatchdogCommand;
use super::table::LeaseId;
use super::watchdog::LeaseLost;
use crate::store::StoreError;
use crate::time::BootInstant;

/// What the watchdog last said of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeaseState {
    Held { ends: BootInstant },
    Lost(LeaseLost),
}

impl LeaseState {
    /// Moves the end of a lease that is held; returns whether it was.
    pub(super) fn extend(&mut self, to: BootInstant) -> bool {
        let is_held = matches!(self, Self::Held { .. });
        if is_held {
            *self = Self::Held { ends: to };
        }
        is_held
    }

    /// Ends a lease that is held; one that is over stays over for the reason it had. Returns
    /// whether it was held.
    pub(super) fn lose(&mut self, why: LeaseLost) -> bool {
        let is_held = matches!(self, Self::Held { .. });
        if is_held {
            *self = Self::Lost(why);
        }
        is_held
    }
}

/// A lease under renewal; dropping it stops the renewal, and releases nothing.
#[derive(Debug)]
pub struct Lease {
    pub(super) id: LeaseId,
    pub(super) commands: mpsc::UnboundedSender<WatchdogCommand>,
    pub(super) state: watch::Sender<LeaseState>,
    pub(super) trouble: watch::Receiver<Option<StoreError>>,
    pub(super) view: LeaseView,
}

impl Lease {
    /// How long the lease lasts from now if no renewal succeeds any more; zero once lost.
    pub fn validity(&self) -> Duration {
        self.view.validity()
    }

    /// When it ends if no renewal succeeds any more.
    pub fn ends(&self) -> BootInstant {
        self.view.ends()
    }

    /// Waits until the lease is lost. Cancel-safe.
    pub async fn lost(&mut self) -> LeaseLost {
        self.view.lost().await
    }

    /// Why the last renewal failed; `None` if it succeeded or there was none.
    pub(crate) fn trouble(&self) -> Option<StoreError> {
        self.trouble.borrow().clone()
    }

    /// Takes in that a renewal which the holder sent at `sent` succeeded, and made the lease last
    /// until `ends`. Returns whether the lease was still held.
    pub(crate) fn extended(&self, sent: BootInstant, ends: BootInstant) -> bool {
        // The thread must not strike the lease out at its former end.
        let _ = self.commands.send(WatchdogCommand::Renewed(self.id, sent));
        let mut is_held = false;
        self.state.send_if_modified(|state| match *state {
            LeaseState::Held { ends: before } => {
                is_held = true;
                before < ends && state.extend(ends)
            }
            LeaseState::Lost(_) => false,
        });
        is_held
    }

    /// Ends the lease for a reason that the holder found out by itself. Returns the reason it is
    /// over for, which is an earlier one if it was over.
    pub(crate) fn lose(&self, why: LeaseLost) -> LeaseLost {
        self.state.send_if_modified(|state| state.lose(why));
        self.view.known_loss().unwrap_or(why)
    }

    /// Ends the lease for all who look at it, and goes on renewing it: to be called before the
    /// lock is given back, so that nobody works under a lock that another may have by then.
    pub(crate) fn end(&self) {
        self.state
            .send_if_modified(|state| state.lose(LeaseLost::Released));
    }

    /// A view of the same lease for others; it does not keep the renewal going.
    pub fn view(&self) -> LeaseView {
        self.view.clone()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.end();
        // Fails only when the thread is gone, and then nothing is renewed.
        let _ = self.commands.send(WatchdogCommand::LetGo(self.id));
    }
}

/// Sees how a lease fares, without holding it.
#[derive(Debug, Clone)]
pub struct LeaseView {
    state: watch::Receiver<LeaseState>,
    /// Set once [`Self::lost`] has answered: a lost lease stays lost, even if a renewal succeeds
    /// in the instant of its end.
    lost: Option<LeaseLost>,
    last_end: BootInstant,
}

impl LeaseView {
    pub(super) fn new(state: watch::Receiver<LeaseState>, ends: BootInstant) -> Self {
        Self {
            state,
            lost: None,
            last_end: ends,
        }
    }

    /// How long the lease lasts from now if no renewal succeeds any more; zero once lost.
    pub fn validity(&self) -> Duration {
        match (self.lost, *self.state.borrow()) {
            (None, LeaseState::Held { ends }) => ends.remaining(),
            _ => Duration::ZERO,
        }
    }

    /// Why it is lost, if it is.
    pub fn known_loss(&self) -> Option<LeaseLost> {
        self.lost.or(match *self.state.borrow() {
            LeaseState::Lost(why) => Some(why),
            LeaseState::Held { ends } => ends.remaining().is_zero().then_some(LeaseLost::Expired),
        })
    }

    /// When it ends if no renewal succeeds any more.
    pub fn ends(&self) -> BootInstant {
        match *self.state.borrow() {
            LeaseState::Held { ends } => ends,
            LeaseState::Lost(_) => self.last_end,
        }
    }

    /// Waits until the lease is lost. Cancel-safe.
    ///
    /// Does not depend on the watchdog thread for the end of the lease: that is looked at here
    /// too, so that a thread that hangs or died cannot keep it secret.
    pub async fn lost(&mut self) -> LeaseLost {
        loop {
            if let Some(why) = self.lost {
                return why;
            }
            let state = *self.state.borrow_and_update();
            match state {
                LeaseState::Lost(why) => self.lost = Some(why),
                LeaseState::Held { ends } if ends.remaining().is_zero() => {
                    self.last_end = ends;
                    self.lost = Some(LeaseLost::Expired);
                }
                LeaseState::Held { ends } => {
                    self.last_end = ends;
                    self.changed(ends.remaining()).await;
                }
            }
        }
    }

    async fn changed(&mut self, limit: Duration) {
        let changed = async {
            if self.state.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        let _ = tokio::time::timeout(limit, changed).await;
    }
}
