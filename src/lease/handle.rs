//! A lease as its holder sees it: how long it lasts, and whether it is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use super::command::{LeaseState, WatchdogCommand};
use super::lost::LeaseLost;
use super::table::LeaseId;
use crate::store::StoreError;
use crate::time::BootInstant;

/// A lease under renewal. Dropping it stops the renewal and releases nothing.
#[derive(Debug)]
pub struct Lease {
    pub(super) id: LeaseId,
    pub(super) commands: mpsc::UnboundedSender<WatchdogCommand>,
    pub(super) state: watch::Sender<LeaseState>,
    pub(super) trouble: watch::Receiver<Option<StoreError>>,
    pub(super) run_ended: Arc<AtomicBool>,
    pub(super) view: LeaseView,
}

impl Lease {
    /// How long the lease lasts from now if no further renewal succeeds; zero once it is lost.
    pub fn validity(&self) -> Duration {
        self.view.validity()
    }

    /// When the lease ends if no further renewal succeeds.
    pub fn ends(&self) -> BootInstant {
        self.view.ends()
    }

    /// Why the lease is lost; `None` while it is held.
    pub(crate) fn known_loss(&self) -> Option<LeaseLost> {
        self.view.known_loss()
    }

    /// Waits until the lease is lost. Cancel-safe.
    pub async fn lost(&mut self) -> LeaseLost {
        self.view.lost().await
    }

    /// Why the last renewal failed; `None` if it succeeded or none was sent.
    pub(crate) fn trouble(&self) -> Option<StoreError> {
        self.trouble.borrow().clone()
    }

    /// The run has ended, and the lease is held for its result. Only what is logged of it changes.
    pub(crate) fn run_has_ended(&self) {
        self.run_ended.store(true, Ordering::Relaxed);
    }

    /// Records that a renewal which the holder itself sent at `sent` made the lease last until
    /// `ends`. Returns whether the lease was still held.
    pub(crate) fn extended(&self, sent: BootInstant, ends: BootInstant) -> bool {
        // The thread must not expire the lease at its former end.
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

    /// Ends the lease for a reason that the holder found out by itself. Returns why the lease is
    /// over: an earlier reason if it had one.
    pub(crate) fn mark_lost(&self, why: LeaseLost) -> LeaseLost {
        self.state.send_if_modified(|state| state.mark_lost(why));
        self.view.known_loss().unwrap_or(why)
    }

    /// Ends the lease for every view of it, and continues to renew it. To be called before the lock
    /// is released: no code then works under a lock that another holder may already have.
    pub(crate) fn end(&self) {
        self.state
            .send_if_modified(|state| state.mark_lost(LeaseLost::Released));
    }

    /// Returns a view of the lease. It does not keep the renewal going.
    pub fn view(&self) -> LeaseView {
        self.view.clone()
    }
}

#[cfg(test)]
impl Lease {
    /// A lease that nothing renews.
    pub(crate) fn unrenewed(ends: BootInstant) -> Self {
        let (state, view) = watch::channel(LeaseState::Held { ends });
        Self {
            id: LeaseId(0),
            commands: mpsc::unbounded_channel().0,
            state,
            trouble: watch::channel(None).1,
            run_ended: Arc::default(),
            view: LeaseView::new(view, ends),
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.end();
        // Fails only when the thread has ended, and then nothing is renewed.
        let _ = self.commands.send(WatchdogCommand::LetGo(self.id));
    }
}

/// Shows the state of a lease without holding it.
#[derive(Debug, Clone)]
pub struct LeaseView {
    state: watch::Receiver<LeaseState>,
    /// Set once [`Self::lost`] has returned: a lost lease stays lost, even if a renewal succeeds at
    /// the very instant of its end.
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

    /// How long the lease lasts from now if no further renewal succeeds; zero once it is lost.
    pub fn validity(&self) -> Duration {
        match (self.lost, *self.state.borrow()) {
            (None, LeaseState::Held { ends }) => ends.remaining(),
            _ => Duration::ZERO,
        }
    }

    /// Why the lease is lost; `None` while it is held.
    pub fn known_loss(&self) -> Option<LeaseLost> {
        self.lost.or(match *self.state.borrow() {
            LeaseState::Lost(why) => Some(why),
            LeaseState::Held { ends } => ends.remaining().is_zero().then_some(LeaseLost::Expired),
        })
    }

    /// When the lease ends if no further renewal succeeds.
    pub fn ends(&self) -> BootInstant {
        match *self.state.borrow() {
            LeaseState::Held { ends } => ends,
            LeaseState::Lost(_) => self.last_end,
        }
    }

    /// Waits until the lease is lost. Cancel-safe.
    ///
    /// Checks the end of the lease itself, so that it returns in time although the watchdog thread
    /// hangs or has died.
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
