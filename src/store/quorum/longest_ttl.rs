//! The longest TTL that this host knows. A node that lost its data does not count for that long.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::store::protocol::{counted, least_wait};
use crate::store::redis::node::LongestTtl;
use crate::time::BootInstant;

#[derive(Debug, Default)]
pub(super) struct LongestTtls(Mutex<KnownTtls>);

#[derive(Debug, Default)]
struct KnownTtls {
    /// The longest TTL of the host's own list.
    listed: Duration,
    /// The longest TTL that each node reported last, and when.
    nodes: HashMap<usize, (Duration, BootInstant)>,
}

impl LongestTtls {
    /// The host's list has a job with this TTL.
    pub(super) fn lists(&self, ttl: Duration) {
        let mut known = self.lock();
        known.listed = known.listed.max(ttl);
    }

    /// Notes the longest TTL that a node keeps. The note expires, as it does on the node: otherwise an
    /// unreachable node would preserve a TTL that no list uses any more.
    pub(super) fn told(&self, node: usize, ttl: Duration) {
        self.lock().nodes.insert(node, (ttl, BootInstant::now()));
    }

    /// Returns the longest TTLs for a claim of a lock without a job. Such a claim waits longer if no
    /// list says how long leases last.
    pub(super) fn with_bare(&self, ttl: Duration) -> LongestTtl {
        let listed = self.lock().listed;
        LongestTtl {
            least: least_wait(false, listed),
            ..self.with(counted(ttl, false))
        }
    }

    /// Returns the longest TTLs for a request with a lease of this TTL.
    pub(super) fn with(&self, ttl: Duration) -> LongestTtl {
        let (known, now) = (self.lock(), BootInstant::now());
        let fresh = |(ttl, told): &(Duration, BootInstant)| {
            (now.since(*told) < *ttl + *ttl / 8).then_some(*ttl)
        };
        LongestTtl {
            listed: known.listed.max(ttl),
            elsewhere: known
                .nodes
                .values()
                .filter_map(fresh)
                .max()
                .unwrap_or_default(),
            least: Duration::ZERO,
        }
    }

    fn lock(&self) -> MutexGuard<'_, KnownTtls> {
        // Nothing that holds the guard can panic half-way through a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
