//! A view of a lock for the code that works under it.

use std::fmt;
use std::time::Duration;

use crate::lease::{LeaseLost, LeaseView};
use crate::names::Token;

/// A view of a lock that is held, for the code that works under it. Cheap to clone; it does not
/// keep the lock, and it is over as soon as the lock is released, dropped or lost.
#[derive(Clone)]
pub struct Ticket {
    token: Token,
    fence: u64,
    view: LeaseView,
}

impl Ticket {
    pub(super) fn new(token: Token, fence: u64, view: LeaseView) -> Self {
        Self { token, fence, view }
    }

    /// The value of the lock in the store: `HOST:PID:RUN_ID:RANDOM`.
    pub fn token(&self) -> &str {
        self.token.as_str()
    }

    /// The fencing token: a number that is larger for every later holder of the lock.
    ///
    /// Pass it to whatever is written to, and let that refuse a number smaller than the largest it
    /// has seen. Then a holder that was paused for longer than its lease does no harm when it
    /// resumes. `docs/fencing.md` shows how with SQL, object storage and files.
    pub fn fence(&self) -> u64 {
        self.fence
    }

    /// How long the lock lasts from now if no further renewal succeeds; zero once it is over.
    pub fn validity(&self) -> Duration {
        self.view.validity()
    }

    /// Why the lock is over, if it is.
    pub fn loss(&self) -> Option<LeaseLost> {
        self.view.known_loss()
    }

    /// Waits until the lock is over, and returns why: it was lost, or its holder
    /// [released](LeaseLost::Released) it. Cancel-safe.
    pub async fn lost(&mut self) -> LeaseLost {
        self.view.lost().await
    }
}

/// Without the token, which is the right to release the lock.
impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket")
            .field("fence", &self.fence)
            .field("validity", &self.validity())
            .finish_non_exhaustive()
    }
}
