//! The proposer: the nodes of the store, and what one process remembers of them.
//!
//! The phases of a request are in `transact`, `prepare` and `accept`.

use std::collections::HashSet;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::longest_ttl::LongestTtls;
use super::nodes::{NodeReply, Nodes};
use super::outage::Outage;
use super::request::QuorumRequest;
use super::turns::{Ids, Turns};
use crate::names::Token;
use crate::store::protocol::counted;
use crate::store::redis::node::RequestTarget;
use crate::store::{RedlockSettings, RetryDelay, StoreError};

/// The nodes, how often a request is retried, and what this process remembers.
#[derive(Debug)]
pub(super) struct Proposer {
    pub(super) nodes: Nodes,
    pub(super) tries: u32,
    retry_delay: RetryDelay,
    pub(super) longest: LongestTtls,
    pub(super) ids: Ids,
    pub(super) turns: Turns,
    /// All nodes were asked once, and are different servers.
    pub(super) looked: AtomicBool,
    /// Whether a majority was unreachable.
    pub(super) outage: Outage,
    /// The tokens of the runs that are being re-asserted.
    returning: Mutex<HashSet<Token>>,
}

impl Proposer {
    pub(super) fn new(settings: &RedlockSettings) -> Result<Self, StoreError> {
        Ok(Self {
            nodes: Nodes::new(settings)?,
            tries: settings.tries.max(1),
            retry_delay: settings.retry_delay,
            longest: LongestTtls::default(),
            ids: Ids::new(random()),
            turns: Turns::default(),
            looked: AtomicBool::new(false),
            outage: Outage::default(),
            returning: Mutex::default(),
        })
    }

    /// Returns the error for too few replies, and notes the outage.
    pub(super) fn few(&self, answered: usize, errors: &[NodeReply<()>]) -> StoreError {
        let error = self.nodes.too_few(answered, errors);
        self.outage.failed(&error);
        error
    }

    pub(super) fn returning(&self) -> MutexGuard<'_, HashSet<Token>> {
        // Nothing that holds the guard can panic half-way through a change.
        self.returning
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the lock and the job of a request, with the longest TTLs that this host knows.
    pub(super) fn target(&self, request: &QuorumRequest<'_>) -> RequestTarget {
        RequestTarget {
            lock: request.lock.clone(),
            job: request.job.cloned(),
            ttl: request.ttl,
            longest: if request.job.is_none() && !request.reports {
                self.longest.with_bare(request.ttl)
            } else {
                self.longest
                    .with(counted(request.ttl, request.job.is_some()))
            },
        }
    }

    /// Returns the pause before the next try.
    pub(super) fn jittered(&self) -> Duration {
        let RetryDelay { shortest, longest } = self.retry_delay;
        let share = u32::try_from(random() >> 48).unwrap_or(0);
        shortest + longest.saturating_sub(shortest) * share / 65_536
    }
}

fn random() -> u64 {
    let mut bytes = [0_u8; 8];
    // Without random numbers no request is safe; the same holds for tokens.
    getrandom::fill(&mut bytes).expect("the kernel's random source answers once booted");
    u64::from_ne_bytes(bytes)
}
