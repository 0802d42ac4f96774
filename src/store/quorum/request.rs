//! A request to a majority of the nodes, and its outcome, as plain data.

use std::time::Duration;

use crate::names::{JobName, Token};
use crate::store::protocol::Effect;
use crate::store::{Lock, StoreError};

/// A request to a majority.
#[derive(Debug, Clone)]
pub(super) struct QuorumRequest<'a> {
    pub(super) lock: &'a Lock,
    pub(super) job: Option<&'a JobName>,
    /// The token of the request.
    pub(super) me: Option<&'a Token>,
    /// The request reports on the run of its own token.
    pub(super) reports: bool,
    /// The TTL of the lease; zero if the request has none.
    pub(super) ttl: Duration,
    pub(super) wait: QuorumWait,
}

/// Which replies a request waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QuorumWait {
    /// As many as a decision needs.
    Enough,
    /// All nodes that reply.
    All,
}

impl<'a> QuorumRequest<'a> {
    /// A request about a job and its lock, without a token.
    pub(super) fn of_job(job: &'a JobName, lock: &'a Lock) -> Self {
        Self {
            lock,
            job: Some(job),
            me: None,
            reports: false,
            ttl: Duration::ZERO,
            wait: QuorumWait::Enough,
        }
    }
}

/// The result of applying the rules once.
#[derive(Debug)]
pub struct Transition<R> {
    /// The reply to the request.
    pub reply: R,
    /// What else the nodes write.
    pub effects: Vec<Effect>,
    /// The lock is taken for the token in the state.
    pub taken: bool,
}

impl<R> Transition<R> {
    /// Returns the result of rules that take no lock.
    pub fn of(reply: R, effects: Vec<Effect>) -> Self {
        Self {
            reply,
            effects,
            taken: false,
        }
    }
}

/// The outcome of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum QuorumReply<R> {
    Reply(R),
    /// Too many nodes lost their data. The remaining time of the recovery.
    Recovering(Duration),
}

impl<R> QuorumReply<R> {
    /// Returns the reply, or the error for nodes that recover.
    pub(super) fn or_recovering(self) -> Result<R, StoreError> {
        match self {
            Self::Reply(reply) => Ok(reply),
            Self::Recovering(left) => Err(recovering(left)),
        }
    }
}

/// The error for a majority that recovers from a loss of data.
pub(super) fn recovering(left: Duration) -> StoreError {
    StoreError::unreachable(format!(
        "a majority of the nodes is new, was restarted or has lost its data; nothing is granted \
         for another {:.1} s. Wait: this ends by itself (only before the first use of the nodes does \
         `cronlatch init` avoid it)",
        left.as_secs_f64()
    ))
}
