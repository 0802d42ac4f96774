//! Whether a majority of the nodes was away, and what is left to holders for it.
//!
//! While a majority is away no holder can renew its lease or report a result. When it is back, a
//! run whose lease ended meanwhile is not judged at once: for one TTL it is left to its holder,
//! whose verdict is on its way.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::store::StoreError;

/// What one process has seen of outages.
#[derive(Debug, Default)]
pub(super) struct Outage(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    away: bool,
    /// When a majority answered again.
    back: Option<Instant>,
    locks: HashMap<String, Spared>,
}

/// What is known of a lock.
#[derive(Debug, Default)]
struct Spared {
    /// The TTL of its jobs.
    ttl: Duration,
    /// The return of a majority from which on its runs were last left to their holders.
    since: Option<Instant>,
}

impl Outage {
    /// The jobs of this lock have this TTL.
    pub(super) fn knows(&self, lock: &str, ttl: Duration) {
        let mut seen = self.seen();
        seen.locks.entry(lock.to_owned()).or_default().ttl = ttl;
    }

    /// Too few nodes answered, for this reason.
    pub(super) fn failed(&self, error: &StoreError) {
        if matches!(error, StoreError::Unreachable(_)) {
            self.seen().away = true;
        }
    }

    /// A majority answered.
    pub(super) fn answered(&self) {
        let mut seen = self.seen();
        if std::mem::take(&mut seen.away) {
            seen.back = Some(Instant::now());
        }
    }

    /// Returns for how long yet the runs under a lock are left to their holders.
    pub(super) fn spares(&self, lock: &str) -> Duration {
        let mut seen = self.seen();
        let back = seen.back;
        let known = seen.locks.get_mut(lock);
        known.map_or(Duration::ZERO, |known| known.left(back, Instant::now()))
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        // Nothing that holds the guard can panic half-way through a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Spared {
    fn left(&mut self, back: Option<Instant>, now: Instant) -> Duration {
        let Some(back) = back else {
            return Duration::ZERO;
        };
        // Nodes that come and go must not put a judgement off for ever: between two periods there
        // is one TTL in which runs are judged.
        let is_over = |since: Instant| back.saturating_duration_since(since) >= 2 * self.ttl;
        if self.since.is_none_or(is_over) {
            self.since = Some(back);
        }
        let since = self.since.unwrap_or(back);
        self.ttl
            .saturating_sub(now.saturating_duration_since(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(10);

    #[test]
    fn runs_are_left_to_their_holders_for_one_ttl_after_a_majority_is_back() {
        let outage = Outage::default();
        outage.knows("l", TTL);
        outage.answered();
        assert_eq!(outage.spares("l"), Duration::ZERO, "there was no outage");
        outage.failed(&StoreError::unreachable(String::new()));
        assert_eq!(outage.spares("l"), Duration::ZERO, "it is not over");
        outage.answered();
        assert!(outage.spares("l") > TTL / 2);
        assert_eq!(outage.spares("another"), Duration::ZERO);
    }

    #[test]
    fn nodes_that_come_and_go_put_no_judgement_off_for_ever() {
        let mut lock = Spared {
            ttl: TTL,
            since: None,
        };
        let first = Instant::now();
        let after = |secs| first + Duration::from_secs(secs);
        assert_eq!(lock.left(Some(first), after(4)), TTL * 6 / 10);
        assert_eq!(lock.left(Some(after(9)), after(9)), TTL / 10);
        assert_eq!(lock.left(Some(after(12)), after(12)), Duration::ZERO);
        assert_eq!(lock.left(Some(after(20)), after(20)), TTL);
    }
}
