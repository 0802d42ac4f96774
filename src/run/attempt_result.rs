//! How one attempt of a run ended.

use crate::guard::{Lack, Status};
use crate::store::Outcome;

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AttemptResult {
    pub(super) outcome: Outcome,
    pub(super) reason: Option<String>,
    pub(super) status: Option<Status>,
    /// Whether the command was started at all.
    pub(super) started: bool,
    /// Set if it was not started, but another host may start it.
    pub(super) returned: Option<ReturnReason>,
}

/// Why the occurrence of a run whose command this host did not start goes back to the store undecided: another
/// host may start it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReturnReason {
    /// This host has run out of something.
    Lacks(Lack),
    /// The guard is gone, and the daemon ends.
    NoGuard,
    /// Its process was killed before the command began.
    Killed,
    /// The daemon stopped before the command began.
    Draining,
    /// The lease was lost before the command began.
    LeaseLost,
}

impl AttemptResult {
    pub(super) fn not_started(outcome: Outcome, reason: String) -> Self {
        Self {
            outcome,
            reason: Some(reason),
            status: None,
            started: false,
            returned: None,
        }
    }

    /// Whether the command was certainly not started. A guard that dies may not have reported a start.
    pub(super) fn is_unstarted(&self) -> bool {
        !self.started && self.outcome != Outcome::Unknown
    }

    /// Whether a further attempt could do better.
    pub(super) fn is_worth_a_retry(&self) -> bool {
        matches!(self.outcome, Outcome::Failed | Outcome::TimedOut)
    }
}
