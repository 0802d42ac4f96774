//! The store's clock on this host: the last measurement, continued by the boot clock.
//!
//! What is due is decided by this clock and never by the wall clock, which may be wrong and may be
//! stepped at any time. An outage changes nothing: the boot clock runs on. Only a daemon that has
//! not measured yet, because no store has replied to it, goes by its wall clock.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};

use crate::preflight::Offset;
use crate::schedule::ticker::WallClock;
use crate::time::{BootInstant, Timestamp};

/// A wall clock that is no further off than this is taken for right: what the network adds to a
/// measurement must not make a host with a good clock start its jobs later than its clock says.
const NEGLIGIBLE: Duration = Duration::from_millis(50);

/// What is lost where instants are counted in milliseconds.
const MILLISECOND: Duration = Duration::from_millis(1);

/// No measurement yet.
const UNKNOWN: i64 = i64::MIN;

/// A wall clock less the boot clock: the same until the wall clock is stepped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Epoch(i64);

impl Epoch {
    /// Of this host, now.
    pub fn now() -> Self {
        let wall = nanos(SystemTime::now());
        Self(wall.saturating_sub(of_boot(BootInstant::now())))
    }

    /// Of a host whose clocks show this.
    pub fn of(wall: Timestamp, boot: BootInstant) -> Self {
        let wall = wall.millis().saturating_mul(1_000_000);
        Self(wall.saturating_sub(of_boot(boot)))
    }

    /// How far apart two clocks are.
    pub(super) fn distance(self, other: Self) -> Duration {
        Duration::from_nanos(self.0.abs_diff(other.0))
    }

    /// Whether this clock shows an earlier time.
    pub(super) fn is_before(self, other: Self) -> bool {
        self.0 < other.0
    }

    fn minus_millis(self, millis: i64) -> Self {
        Self(self.0.saturating_sub(millis.saturating_mul(1_000_000)))
    }
}

/// In nanoseconds.
impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Reads what [`fmt::Display`] writes.
impl FromStr for Epoch {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        text.parse().map(Self)
    }
}

/// The store's clock. Its clones show the same.
#[derive(Debug, Clone)]
pub struct StoreClock(Arc<AtomicI64>);

impl Default for StoreClock {
    fn default() -> Self {
        Self(Arc::new(AtomicI64::new(UNKNOWN)))
    }
}

impl StoreClock {
    /// What it shows when the host's clocks show this.
    pub fn read(&self, wall: Timestamp, boot: BootInstant) -> Timestamp {
        match self.known() {
            None => wall,
            Some(Epoch(epoch)) => {
                let nanos = epoch.saturating_add(of_boot(boot));
                Timestamp::from_millis(nanos.div_euclid(1_000_000))
            }
        }
    }

    /// What it shows less the boot clock, once that is known.
    pub fn epoch(&self) -> Option<Epoch> {
        self.known()
    }

    /// Goes by what an earlier daemon measured.
    pub(super) fn recall(&self, epoch: Epoch) {
        self.0.store(epoch.0, Ordering::Relaxed);
    }

    fn known(&self) -> Option<Epoch> {
        let epoch = self.0.load(Ordering::Relaxed);
        (epoch != UNKNOWN).then_some(Epoch(epoch))
    }

    /// Takes a measurement, made while the host's wall clock was at `epoch`. Returns how far this
    /// moves what the clock shows.
    ///
    /// Of what the measurement allows it takes the earliest, so that nothing starts early.
    pub(super) fn measured(&self, offset: Offset, epoch: Epoch) -> Duration {
        let before = self.known();
        let margin = offset.error + MILLISECOND;
        let now = if offset.exceeds(NEGLIGIBLE) {
            let margin = i64::try_from(margin.as_millis()).unwrap_or(i64::MAX);
            let ahead = offset.millis.saturating_add(margin).saturating_add(1);
            epoch.minus_millis(ahead)
        } else {
            epoch
        };
        let before = before.unwrap_or(epoch);
        if before != epoch && now.distance(before) <= 2 * margin {
            // According to this clock nothing has changed.
            return Duration::ZERO;
        }
        self.0.store(now.0, Ordering::Relaxed);
        now.distance(before)
    }
}

impl WallClock for StoreClock {
    fn now(&self) -> SystemTime {
        let Some(Epoch(epoch)) = self.known() else {
            return SystemTime::now();
        };
        let nanos = epoch.saturating_add(of_boot(BootInstant::now()));
        SystemTime::UNIX_EPOCH + Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
    }
}

fn of_boot(boot: BootInstant) -> i64 {
    i64::try_from(boot.to_duration().as_nanos()).unwrap_or(i64::MAX)
}

fn nanos(wall: SystemTime) -> i64 {
    let since = wall.duration_since(SystemTime::UNIX_EPOCH);
    i64::try_from(since.unwrap_or_default().as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::seconds_after_boot as boot;

    fn offset(millis: i64) -> Offset {
        Offset {
            millis,
            error: Duration::from_millis(5),
        }
    }

    #[test]
    fn a_step_of_the_wall_clock_moves_the_store_s_clock_by_nothing() {
        let clock = StoreClock::default();
        let wall = Timestamp::from_secs(1_000);
        assert_eq!(clock.read(wall, boot(10)), wall, "never measured");
        // The host is 25 s ahead, give or take 5 ms.
        let moved = clock.measured(offset(25_000), Epoch::of(wall, boot(10)));
        assert_eq!(moved, Duration::from_millis(25_007));
        let earliest = Timestamp::from_millis(974_993);
        assert_eq!(clock.read(wall, boot(10)), earliest);
        let stepped = Timestamp::from_secs(20_000);
        let later = earliest.plus(Duration::from_secs(3));
        assert_eq!(clock.read(stepped, boot(13)), later);
        // Measured again: the host is as much further ahead as it was stepped.
        let epoch = Epoch::of(stepped, boot(13));
        let moved = clock.measured(offset(20_000_000 - 978_000 + 4), epoch);
        assert_eq!(moved, Duration::ZERO);
        assert_eq!(clock.read(stepped, boot(13)), later);
    }

    #[test]
    fn a_good_clock_is_left_as_it_is() {
        let clock = StoreClock::default();
        let wall = Timestamp::from_secs(1_000);
        let moved = clock.measured(offset(-40), Epoch::of(wall, boot(10)));
        assert_eq!(moved, Duration::ZERO);
        assert_eq!(clock.read(wall, boot(10)), wall);
    }
}
