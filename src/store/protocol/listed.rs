//! The TTLs for which a store waits after a loss of data.
//!
//! A lease lasts at most one TTL after its last renewal, so a TTL matters only for its own length after
//! its last use. A store keeps this end for each TTL and then removes the TTL: a list that was loaded
//! once with `ttl: 24h` does not delay every later restart by a day.

use std::time::Duration;

use crate::store::Renewal;

/// The longest TTL with which a lock without a job delays other locks.
///
/// Locks of the library and of `exec` may have a TTL of a day. After a loss each waits for its own TTL,
/// but other locks wait only as long as for the default TTL.
///
/// A store that lost all its data has lost the TTLs too. Then a claim without a job list waits for this
/// long, independently of its own TTL. It is three times the longest interval between two renewals
/// ([`renew_every`](crate::ground::timing::renew_every)), so that holders can restore their leases.
pub const BARE_TTL_COUNTED: Duration = Duration::from_secs(30);

/// Returns the TTL of a lease as it counts for other locks.
pub fn counted(ttl: Duration, has_job: bool) -> Duration {
    if has_job {
        ttl
    } else {
        ttl.min(BARE_TTL_COUNTED)
    }
}

/// Returns the shortest wait of a claim after a loss, independently of its own TTL. `listed` is the
/// longest TTL of the caller's job list, which says how long leases last; zero without a list.
pub fn least_wait(has_job: bool, listed: Duration) -> Duration {
    if has_job || !listed.is_zero() {
        Duration::ZERO
    } else {
        BARE_TTL_COUNTED
    }
}

/// Returns the longest TTL of these leases as it counts for other locks.
pub fn longest_counted(renewals: &[Renewal]) -> Duration {
    let counted = |renewal: &Renewal| counted(renewal.grant.ttl, renewal.run.is_some());
    renewals.iter().map(counted).max().unwrap_or_default()
}

/// A TTL, and until when it matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ListedTtl {
    /// In milliseconds.
    pub ttl: u64,
    /// In milliseconds, on the clock of the store.
    pub until: u64,
}

/// The TTLs that were in use, longest first, without those that a longer one outlasts.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct ListedTtls(pub Vec<ListedTtl>);

impl ListedTtls {
    /// Returns the longest, in milliseconds; 0 if there is none.
    pub fn longest(&self) -> u64 {
        self.0.first().map_or(0, |longest| longest.ttl)
    }

    /// Notes that a TTL is in use now, and removes those that no longer matter. Times are in
    /// milliseconds; `ttl` is 0 when the request names none.
    ///
    /// Each is kept an eighth longer than needed, so that not every request changes the data.
    pub fn note(&mut self, now: u64, ttl: u64) {
        let end = |ttl: u64| now.saturating_add(ttl).saturating_add(ttl / 8);
        self.0.retain(|known| known.until > now);
        for known in &mut self.0 {
            // Written while the clock was ahead.
            known.until = known.until.min(end(known.ttl));
        }
        let outlasts =
            |known: &ListedTtl| known.ttl >= ttl && known.until >= now.saturating_add(ttl);
        if ttl == 0 || self.0.iter().any(outlasts) {
            return;
        }
        self.0.retain(|known| known.ttl > ttl);
        let until = end(ttl);
        self.0.push(ListedTtl { ttl, until });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400_000;

    #[test]
    fn a_ttl_matters_for_as_long_as_itself_after_it_was_last_in_use() {
        let mut listed = ListedTtls::default();
        listed.note(0, DAY);
        for now in (0..DAY + DAY / 8).step_by(1000) {
            listed.note(now, 30_000);
            assert_eq!(listed.longest(), DAY);
        }
        listed.note(DAY + DAY / 8, 30_000);
        assert_eq!(
            listed.longest(),
            30_000,
            "the shorter one has been in use all the time"
        );
        listed.note(2 * DAY, 0);
        assert_eq!(listed.longest(), 0);
    }

    #[test]
    fn a_ttl_in_use_is_never_forgotten_and_seldom_written() {
        let (mut listed, mut writes) = (ListedTtls::default(), 0);
        for now in 0..100_000 {
            let before = listed.clone();
            listed.note(now, 8_000);
            writes += usize::from(before != listed);
            assert!(listed.0[0].until >= now + 8_000);
        }
        assert!(writes < 110, "{writes}");
    }

    #[test]
    fn a_clock_that_was_ahead_keeps_no_ttl_for_longer() {
        let mut listed = ListedTtls::default();
        listed.note(365 * DAY, DAY);
        listed.note(0, 0);
        listed.note(2 * DAY, 0);
        assert_eq!(listed, ListedTtls::default());
    }
}
