//! The clocks of a store at one operation, and what the store knows about an earlier loss of data.
//!
//! Every rule that compares an instant with now uses these. [`recovery`](super::recovery) notices a
//! loss.

use std::time::Duration;

use crate::store::contract::Due;
use crate::time::Timestamp;

/// How early the store may decide an occurrence, and the longest lead of a claim. The watermark is never
/// further ahead of the store's clock than this.
pub const LEAD: Duration = Duration::from_secs(1);

/// Returns how long before its instant the store may grant an occurrence: the lead of its claim, at most
/// [`LEAD`].
pub(crate) fn lead_of(due: &Due) -> Duration {
    due.lead.min(LEAD)
}

/// A ledger that is further ahead of the store's clock than this was written while the clock was wrong:
/// the job continues from now. If it is ahead by less, the job waits.
pub const LEDGER_AHEAD: Duration = Duration::from_secs(3 * 3600);

/// How far the clock of a server may be behind the clock of the server that it replaces.
///
/// The old server may have granted an occurrence that was due by its clock, and that comes due by the
/// clock of the new server only after the loss was noticed. The clocks of servers with NTP or PTP differ
/// by milliseconds, and a leap second is one second.
pub const SUCCESSOR_SKEW: Duration = Duration::from_secs(1);

/// Occurrences up to this long after a loss was noticed may have been granted before it: by a server
/// whose clock was ahead, and for claims that came ahead of their instant.
pub const FORGOTTEN_AHEAD: Duration = SUCCESSOR_SKEW.saturating_add(LEAD);

/// For this long after a loss, a job that the store does not know counts as lost and not as new.
pub const AFTERMATH: Duration = Duration::from_secs(3600);

/// The store's clocks at one operation, and what it knows about its past.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clock {
    /// UTC in microseconds since the epoch, for the ledger and the fence.
    pub micros: u64,
    /// The clock of lease ends, in milliseconds: UTC in Redis, boot time in `SQLite`.
    pub lease: u64,
    /// Whether the store has lost data.
    pub past: Past,
}

impl Clock {
    /// Returns the time in UTC.
    pub fn utc(self) -> Timestamp {
        Timestamp::from_millis(i64::try_from(self.micros / 1000).unwrap_or(i64::MAX))
    }

    /// Returns how long it is until an instant of UTC, to the microsecond.
    pub(super) fn until_utc(self, at: Timestamp) -> Duration {
        let at = u64::try_from(at.millis()).unwrap_or(0).saturating_mul(1000);
        Duration::from_micros(at.saturating_sub(self.micros))
    }

    pub(super) fn after(self, ttl: Duration) -> u64 {
        self.lease
            .saturating_add(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX))
    }

    /// Returns how long ago `end` was, on [`Self::lease`].
    pub(super) fn since(self, end: u64) -> Duration {
        Duration::from_millis(self.lease.saturating_sub(end))
    }

    pub(super) fn until(self, end: u64) -> Duration {
        Duration::from_millis(end.saturating_sub(self.lease))
    }
}

/// What a store knows about its own past. The default is for a store that cannot lose its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Past {
    /// Occurrences up to this instant may have been decided before a loss of data although the ledger
    /// does not know them: the instant at which the loss was noticed plus [`FORGOTTEN_AHEAD`].
    pub horizon: Option<Timestamp>,
    /// When the loss was noticed, on [`Clock::lease`].
    pub since: u64,
    /// All claims wait until then, on [`Clock::lease`].
    pub until: u64,
    /// The shortest time after the loss for which the current claim waits
    /// ([`least_wait`](super::least_wait)).
    pub least: Duration,
}

impl Past {
    /// Returns how much longer a claim with this TTL waits, if it does. The whole wait is at least
    /// [`SUCCESSOR_SKEW`], so that new fences, which follow the clock, exceed those of a server whose
    /// clock was ahead.
    pub fn recovering(&self, clock: Clock, ttl: Duration) -> Option<Duration> {
        self.horizon?;
        let least = ttl.max(self.least).max(SUCCESSOR_SKEW);
        let own = self
            .since
            .saturating_add(u64::try_from(least.as_millis()).unwrap_or(u64::MAX));
        let left = clock.until(self.until.max(own));
        (!left.is_zero()).then_some(left)
    }

    /// Whether the ledger cannot know how an occurrence ended that it has not decided.
    pub fn is_unknowable(&self, scheduled_at: Timestamp) -> bool {
        self.horizon.is_some_and(|horizon| scheduled_at <= horizon)
    }

    /// Returns the instant from which the occurrences of an unknown job count: now, or the loss in which
    /// the store may have lost the job.
    pub(super) fn beginning(&self, clock: Clock) -> Timestamp {
        self.forgot(clock).unwrap_or(clock.utc())
    }

    /// Returns when the loss was noticed.
    pub(super) fn lost_at(&self) -> Option<Timestamp> {
        self.horizon.map(|horizon| horizon.minus(FORGOTTEN_AHEAD))
    }

    /// Returns when the loss was noticed, if that was within [`AFTERMATH`].
    pub(super) fn forgot(&self, clock: Clock) -> Option<Timestamp> {
        self.lost_at()
            .filter(|lost_at| clock.utc().since(*lost_at) < AFTERMATH)
    }
}

/// Returns the [`Past::horizon`] of a loss that was noticed then.
pub fn horizon_of(lost_at: Timestamp) -> Timestamp {
    lost_at.plus(FORGOTTEN_AHEAD)
}
