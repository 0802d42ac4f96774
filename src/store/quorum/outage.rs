//! Whether a majority of the nodes was unreachable, and how long holders may report afterwards.
//!
//! Without a majority no holder can renew its lease or report a result. Once the majority is back, a
//! run whose lease ended meanwhile is not judged at once: for one TTL only its holder may report.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::store::StoreError;

/// The outages that one process has seen.
#[derive(Debug, Default)]
pub(super) struct Outage(Mutex<OutageLog>);

#[derive(Debug, Default)]
struct OutageLog {
    away: bool,
    /// When a majority replied again.
    back: Option<Instant>,
    locks: HashMap<String, Spared>,
}

/// The lock of a job that this host lists.
#[derive(Debug, Default)]
struct Spared {
    /// The TTL of its jobs.
    ttl: Duration,
    /// When a majority was last back, if its runs have been spared since then.
    since: Option<Instant>,
}

impl Outage {
    /// Notes the TTL of the jobs of this lock.
    pub(super) fn knows(&self, lock: &str, ttl: Duration) {
        let mut seen = self.seen();
        seen.locks.entry(lock.to_owned()).or_default().ttl = ttl;
    }

    /// Notes that too few nodes replied.
    pub(super) fn failed(&self, error: &StoreError) {
        if matches!(error, StoreError::Unreachable(_)) {
            self.seen().away = true;
        }
    }

    /// Notes that a majority replied.
    pub(super) fn answered(&self) {
        let mut seen = self.seen();
        if std::mem::take(&mut seen.away) {
            seen.back = Some(Instant::now());
        }
    }

    /// Returns how much longer only the holders may close the runs under a lock.
    pub(super) fn spares(&self, lock: &str) -> Duration {
        let mut seen = self.seen();
        let back = seen.back;
        let known = seen.locks.get_mut(lock);
        known.map_or(Duration::ZERO, |known| known.left(back, Instant::now()))
    }

    fn seen(&self) -> MutexGuard<'_, OutageLog> {
        // Nothing that holds the guard can panic half-way through a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Spared {
    fn left(&mut self, back: Option<Instant>, now: Instant) -> Duration {
        let Some(back) = back else {
            return Duration::ZERO;
        };
        // Nodes that come and go must not delay a verdict forever: between two such periods there is
        // one TTL in which runs are judged.
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
