//! The arithmetic of a lease: when it is renewed, when it ends, when its job must be dead.
//!
//! A lease of length `ttl` counts from *before* its successful request was sent, less 1 % for
//! clocks that tick at slightly different rates. It is renewed every third of its length. A job
//! receives its first signal early enough that SIGKILL reaches the whole tree before the lease
//! ends.

use std::time::Duration;

use crate::time::BootInstant;

/// How long killing a process tree may take beyond its grace: scanning, signals, scheduling.
pub const KILL_MARGIN: Duration = Duration::from_millis(500);

/// The longest time between two renewals of a lease.
///
/// A store that has lost its data does not know how long the lost leases were. It waits three times
/// as long before it grants a lock to another holder under a shorter TTL.
const LONGEST_INTERVAL: Duration = Duration::from_secs(10);

/// How often a lease is renewed: every third of its length, and at least every ten seconds.
pub fn renew_every(ttl: Duration) -> Duration {
    (ttl / 3).min(LONGEST_INTERVAL)
}

/// How long the store may take to reply before the attempt counts as failed: `min(1 s, ttl/12)`.
pub fn response_timeout(ttl: Duration) -> Duration {
    (ttl / 12).min(Duration::from_secs(1))
}

/// The default of `kill_grace`: `min(10 s, ttl/4)`.
pub fn default_kill_grace(ttl: Duration) -> Duration {
    (ttl / 4).min(Duration::from_secs(10))
}

/// The shortest TTL that leaves room for one renewal that fails twice, the grace and the kill:
/// `ttl/3 + 2T + kill_grace + ttl/100 + 500 ms`. A TTL below it is refused.
pub fn needed(ttl: Duration, kill_grace: Duration) -> Duration {
    ttl / 3 + 2 * response_timeout(ttl) + kill_grace + ttl / 100 + KILL_MARGIN
}

/// When a lease ends for its holder, given the time at which its successful request was sent.
pub fn ends(sent: BootInstant, ttl: Duration) -> BootInstant {
    sent.plus(ttl.saturating_sub(ttl / 100))
}

/// When SIGKILL must be sent at the latest for a lease that ends at `end`.
pub fn kill_at(end: BootInstant) -> BootInstant {
    end.minus(KILL_MARGIN)
}

/// What happens to a job whose lease is lost (`on_lost`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OnLost {
    /// The job is killed before its lease can end in the store.
    Kill,
    /// The job continues; two runs may overlap.
    Continue,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_renewed_every_third_of_its_ttl_and_every_ten_seconds() {
        let every = |secs| renew_every(Duration::from_secs(secs)).as_secs();
        assert_eq!([3, 30, 86_400].map(every), [1, 10, 10]);
    }
}
