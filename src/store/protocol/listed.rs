//! The TTLs for which a store waits after a loss of data.
//!
//! A lease lasts at most one TTL from its last renewal, so a TTL matters for as long as itself
//! after it was last in use. A store keeps when each one stops to matter, and forgets it then: a
//! list that was loaded once with `ttl: 24h` does not delay every later restart by a day.

use std::time::Duration;

use crate::store::Renewal;

/// The TTL up to which a lock without a job counts for the locks of others.
///
/// Locks of the library and of `exec` may have a TTL of a day. Each waits for its own TTL after a
/// loss; others wait for it no longer than for a lock with the default TTL.
///
/// A store that lost all its data has forgotten the TTLs, too. Then a claim that has no job list
/// waits for so long, whatever its own TTL: three times the longest interval between two renewals
/// ([`renew_every`](crate::ground::timing::renew_every)), so that the holder takes its lease back.
pub const BARE_TTL_COUNTED: Duration = Duration::from_secs(30);

/// The TTL of a lease as far as others wait for it.
pub fn counted(ttl: Duration, has_job: bool) -> Duration {
    if has_job {
        ttl
    } else {
        ttl.min(BARE_TTL_COUNTED)
    }
}

/// Returns how long a claim waits at least after a loss, whatever its own TTL. `listed` is the
/// longest TTL of the caller's job list, which says how long leases last; zero without a list.
pub fn least_wait(has_job: bool, listed: Duration) -> Duration {
    if has_job || !listed.is_zero() {
        Duration::ZERO
    } else {
        BARE_TTL_COUNTED
    }
}

/// The longest TTL of these leases, as far as others wait for it.
pub fn longest_counted(renewals: &[Renewal]) -> Duration {
    let counted = |renewal: &Renewal| counted(renewal.grant.ttl, renewal.run.is_some());
    renewals.iter().map(counted).max().unwrap_or_default()
}

/// One TTL, and when it stops to matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ListedTtl {
    /// In milliseconds.
    pub ttl: u64,
    /// In milliseconds, on the clock of the store.
    pub until: u64,
}

/// The TTLs that were in use, the longest first. One that a longer one outlasts is left out.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct ListedTtls(pub Vec<ListedTtl>);

impl ListedTtls {
    /// The longest, in milliseconds; 0 without any.
    pub fn longest(&self) -> u64 {
        self.0.first().map_or(0, |longest| longest.ttl)
    }

    /// Notes that a TTL is in use now, and forgets those that stopped to matter. Times are in
    /// milliseconds; `ttl` is 0 when the request names none.
    ///
    /// What is kept lasts an eighth longer than needed, so that not every request changes it.
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
